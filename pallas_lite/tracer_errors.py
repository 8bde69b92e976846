"""tracer_errors: what JAX says of a kernel that asks Python about a traced value -> where, what, and how to mend it.

And of one that calls jax.experimental.pallas, which does not know the refs of this package. Whose line it was, also for
warnings.
"""
import os
import sys
import traceback

import jax
import numpy as np

from .errors import UPSTREAM, NotSupportedError, SpecError

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
_OURS = tuple(os.path.dirname(os.path.abspath(module)) for module in (__file__, jax.__file__, np.__file__))
_PALLAS = os.path.join(_OURS[1], "_src", "pallas")


def first_outside() -> tuple:
    """(level, frame) of the innermost code that is neither ours nor JAX's; the level as the caller's warn counts it."""
    frames = enumerate((frame for frame, _ in traceback.walk_stack(sys._getframe(1))), 1)
    return next(found for found in frames if not found[1].f_code.co_filename.startswith(_OURS))


def say_plainly(name: str, error: Exception) -> None:
    """Raises what the error of a kernel of this name means, with the line of the kernel that it comes from.

    Any other error is the kernel's own affair, and stays as it is.
    """
    stack = traceback.extract_tb(error.__traceback__)
    own = [n for n, frame in enumerate(stack) if not frame.filename.startswith(_OURS)]
    # What the kernel's last line calls: upstream's Pallas, or this package?
    called = [f.filename for f in stack[own[-1] if own else 0:] if f.filename.startswith((_OURS[0], _PALLAS))]
    theirs = UPSTREAM if called and called[0].startswith(_PALLAS) else None
    if text := next((text for kind, text in SLIPS if isinstance(error, kind)), theirs):
        where = f"{name}, line {stack[own[-1]].lineno} ({stack[own[-1]].line})" if own else name
        raise (NotSupportedError if isinstance(error, NotImplementedError) else SpecError)(f"{where}: {text}") from None
