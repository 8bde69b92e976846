"""tracer_errors: what JAX says of a kernel that asks Python about a traced value -> where, what, and how to mend it.

And of one that indexes an array from outside, or calls jax.experimental.pallas, which does not know the refs of this
package. Whose line it was, also for warnings.
"""
import inspect
import os
import re
import sys
import traceback

import jax
import numpy as np

from .errors import UPSTREAM, NotSupportedError, PallasLiteError, SpecError

SLIPS = (  # the first that fits: JAX's error, and words of its text; what happened, and how to mend it
    (jax.errors.NonConcreteBooleanIndexError, "", "a mask selects as many elements as only a running step knows. Take "
     "the whole block and choose: jnp.where(mask, new, old)."),
    (jax.errors.TracerBoolConversionError, "", "Python decides here, while the kernel is traced, on a value that only "
     "a running step has. Branch with @pl.when(condition), choose values with jnp.where(condition, a, b), loop with "
     "jax.lax.while_loop; write & and | for `and` and `or`."),
    (jax.errors.TracerIntegerConversionError, "", "Python needs a whole number here, for a range, a slice or a list, "
     "and gets a value that only a running step has. Loop with pl.loop(0, n) or jax.lax.fori_loop, slice with "
     "pl.ds(start, size)."),
    (jax.errors.TracerArrayConversionError, "", "NumPy needs a value here, and gets one that only a running step has. "
     "Use the function of the same name in jax.numpy."),
    (jax.errors.ConcretizationTypeError, "axis argument", "the axis of jnp.max, jnp.sum and their like is fixed while "
     "the kernel is traced, and here it is a value that only a running step has. Of two arrays, jnp.maximum and "
     "jnp.minimum choose for each number."),
    (jax.errors.ConcretizationTypeError, "", "Python needs a number here, for int() or float(), and gets a value that "
     "only a running step has. Convert with value.astype(jnp.int32) or jnp.float32; an index may stay as it is: "
     "x_ref[i]. Look at a value with pl.debug_print, and assert on results."),
    (IndexError, "static", "a slice a:b has bounds that only a running step has. Slice the ref, "
     "x_ref[pl.ds(start, size)], or a value with jax.lax.dynamic_slice_in_dim(value, start, size)."),
    (IndexError, "Slice(start=", "pl.ds slices a ref, and this is a value. Read x_ref[pl.ds(start, size)], or take "
     "jax.lax.dynamic_slice_in_dim(value, start, size)."),
    (TypeError, "Shapes must be", "a shape is fixed while the kernel is traced, and in this one is a value that only a "
     "running step has. Take the whole block and choose: jnp.where(condition, value, other)."),
    ((TypeError, ValueError), "Tracer", "Python needs a value here, and gets one that only a running step has. Choose "
     "with jnp.where(condition, a, b), branch with @pl.when(condition), loop with pl.loop(0, n)."),
)
REFS_ONLY = ("but a kernel sees its refs only. Pass the array as an input and read its ref, or compute it in the "
             "kernel from jnp.arange, jnp.full or Python numbers.")
_OURS = tuple(os.path.dirname(os.path.abspath(module)) for module in (__file__, jax.__file__, np.__file__))
_PALLAS = os.path.join(_OURS[1], "_src", "pallas")


def first_outside() -> tuple:
    """(level, frame) of the innermost code that is neither ours nor JAX's; the level as the caller's warn counts it."""
    frames = enumerate((frame for frame, _ in traceback.walk_stack(sys._getframe(1))), 1)
    return next(found for found in frames if not found[1].f_code.co_filename.startswith(_OURS))


def arrays_around(f) -> dict[str, object]:
    """The arrays that a function takes from outside, by name, as far as Python tells."""
    try:
        around = inspect.getclosurevars(getattr(f, "func", f))
    except TypeError:
        return {}
    return {name: value for name, value in {**around.globals, **around.nonlocals}.items()
            if isinstance(value, (np.ndarray, jax.Array))}


def say_plainly(name: str, kernel, error: Exception) -> None:
    """Raises what the error of a kernel of this name means, with the line of the kernel that it comes from.

    Any other error is the kernel's own affair, and stays as it is.
    """
    stack = traceback.extract_tb(error.__traceback__)
    own = [n for n, frame in enumerate(stack) if not frame.filename.startswith(_OURS)]
    # What the kernel's last line calls: upstream's Pallas, or this package?
    called = [f.filename for f in stack[own[-1] if own else 0:] if f.filename.startswith((_OURS[0], _PALLAS))]
    text = UPSTREAM if called and called[0].startswith(_PALLAS) else ""
    line = stack[own[-1]].line or "" if own else ""
    frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][own[-1] if own else 0]
    known = {**frame.f_globals, **frame.f_locals}
    jitted = [x for x in re.findall(r"(?<![\w.])\w+(?=\()", line) if isinstance(f := known.get(x), jax.stages.Wrapped)
              and not f.__module__.startswith("jax.")]
    if jitted and "is a ref, not a value" in str(error):
        text = (f"{jitted[0]} is under jax.jit, which takes values, and no refs of this package. Read them first, "
                f"x_ref[...], or call {jitted[0]}.__wrapped__ on the refs: a kernel is compiled as a whole.")
    # Ours speak for themselves; a tracer that was kept is a sign for body.straight.
    elif not isinstance(error, (PallasLiteError, jax.errors.UnexpectedTracerError)):
        indexed = [x for x in dict.fromkeys(re.findall(r"(\w+)\s*(?:\[|\.at\b)", line))
                   if any(known.get(x) is array for array in arrays_around(kernel).values())]
        text = f"{', '.join(indexed)} comes from outside, {REFS_ONLY}" if indexed else next((
            says for kind, words, says in SLIPS if isinstance(error, kind) and words in str(error)), text)
    if text:
        where = f"{name}, line {stack[own[-1]].lineno} ({line})" if own else name
        raise (NotSupportedError if isinstance(error, NotImplementedError) else SpecError)(f"{where}: {text}") from None
