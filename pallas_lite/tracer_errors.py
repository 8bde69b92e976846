"""tracer_errors: what JAX says of a kernel that asks Python about a traced value -> where, what, and how to mend it."""
import os
import traceback

import jax
import numpy as np

from .errors import UPSTREAM, SpecError

SLIPS = (  # the first that fits: JAX's error; what happened, and how to mend it
    (jax.errors.NonConcreteBooleanIndexError, "a mask selects as many elements as only a running step knows. Take the "
     "whole block and choose: jnp.where(mask, new, old)."),
    (jax.errors.TracerBoolConversionError, "Python decides here, while the kernel is traced, on a value that only a "
     "running step has. Branch with @pl.when(condition), choose values with jnp.where(condition, a, b), loop with "
     "jax.lax.while_loop; write & and | for `and` and `or`."),
    (jax.errors.TracerIntegerConversionError, "Python needs a whole number here, for a range, a slice or a list, and "
     "gets a value that only a running step has. Loop with pl.loop(0, n) or jax.lax.fori_loop, slice with "
     "pl.ds(start, size)."),
    (jax.errors.TracerArrayConversionError, "NumPy needs a value here, and gets one that only a running step has. Use "
     "the function of the same name in jax.numpy."),
    (jax.errors.ConcretizationTypeError, "Python needs a number here, for int() or float(), and gets a value that only "
     "a running step has. Convert with value.astype(jnp.int32); an index may stay as it is: x_ref[i]."),
)
KINDS = (AssertionError, *(kind for kind, _ in SLIPS))
_OURS = tuple(os.path.dirname(os.path.abspath(module)) for module in (__file__, jax.__file__, np.__file__))


def said_plainly(name: str, error: Exception) -> Exception:
    """The error for a kernel of this name, with the line of the kernel that it comes from.

    An assertion is the kernel's own affair, but for upstream's, which has no words: its program_id asks for its grid.
    """
    stack = traceback.extract_tb(error.__traceback__)
    text = next((text for kind, text in SLIPS if isinstance(error, kind)), UPSTREAM)
    if text is UPSTREAM and os.path.join("_src", "pallas") not in stack[-1].filename:
        return error
    frames = [f for f in stack if not f.filename.startswith(_OURS)]
    where = f"{name}, line {frames[-1].lineno} ({frames[-1].line})" if frames else name
    return SpecError(f"{where}: {text}")
