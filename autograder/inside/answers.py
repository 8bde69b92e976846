"""answers: one question about one object of the learner -> (kind, body), plain data that wire.py can carry.

The same functions answer in the notebook and in the sandbox, so a check sees the same thing in both.
Kinds: "ok", "not done", "not plain", "failed". Next: ../handle.py, which asks.
"""
import contextlib
import linecache
import os
import sysconfig
import traceback
import warnings
from typing import Any

from . import wire


class TimeUp(BaseException):
    """The time limit of a check in a notebook. Not an Exception, so that a learner's `except Exception` lets it by."""


def answer(get, op: str, args: tuple, passing: tuple[type, ...] = ()) -> tuple[str, Any]:
    """The reply to `op` on the object that `get()` returns. Never raises, except the kinds in `passing`."""
    try:
        target = get()
        if _has_hole(target):
            return "not done", None
        if op != "value" and not callable(target):
            message = f"your answer is a value of type {type(target).__name__}; a function is expected"
            return "failed", {"kind": "TypeError", "message": message, "line": "", "lineno": 0}
        return "ok", OPS[op](target, *args)
    except passing:
        raise
    except NotImplementedError as error:
        # pallas_lite's NotSupportedError is one too, and it is no hole.
        return ("not done", None) if type(error) is NotImplementedError else ("failed", describe(error))
    except wire.NotPlain as error:
        return "not plain", str(error)
    except BaseException as error:
        return "failed", describe(error)


def _value(target):
    return target


def _call(target, *args):
    return target(*args)


def _schedule(target, steps, depth, cost):
    import pallas_lite
    return pallas_lite.record(target, steps, depth=depth, **cost).to_plain()


def _kernel(target, *arrays):
    import jax.numpy as jnp
    import numpy as np

    import pallas_lite
    # Block sizes and the like stay plain numbers.
    arrays = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]
    with pallas_lite.observe_calls() as calls:
        result = target(*arrays)
    # A kernel that is called a thousand times has said enough.
    told = [c.to_plain() | {"results": _small(outputs)} for c, outputs in zip(calls[:20], calls.results, strict=False)]
    return {"result": result, "calls": told, "made": len(calls)}


def _small(outputs):
    """The outputs of a call as arrays; none of them if they are unknown (under jit) or large."""
    import jax
    import numpy as np
    known = outputs and all(isinstance(a, jax.Array) and not isinstance(a, jax.core.Tracer) for a in outputs)
    return [np.asarray(a) for a in outputs] if known and sum(a.nbytes for a in outputs) < 2**20 else []


def _pipeline(target, grid, kernel, into, out, blocks):
    """A general pipeline of chapter 3: the schedule of the loop that it gives, and what the loop makes of `blocks`.

    `kernel`: factor, summand, and whether it turns a block upside down. `into`, `out`: the block of each step.
    """
    import pallas_lite

    def slices(name, numbers):
        def of(step):
            if not 0 <= step < len(numbers):
                raise pallas_lite.BlockIndexError(f"{name}({step}): the grid {grid} has no step {step}.")
            return numbers[step]
        return of
    factor, summand, turned = kernel
    loop = target(tuple(grid), lambda x: factor * (x[::-1] if turned else x) + summand, slices("in_slices", into),
                  slices("out_slices", out))
    schedule, values = pallas_lite.record(loop, len(blocks)), None
    with warnings.catch_warnings(), contextlib.suppress(pallas_lite.PipelineError):  # the check finds what is wrong
        warnings.simplefilter("ignore", pallas_lite.HazardWarning)
        values = pallas_lite.execute(schedule, blocks)
    return {"schedule": schedule.to_plain(), "values": values}


OPS = {"value": _value, "call": _call, "schedule": _schedule, "kernel": _kernel, "pipeline": _pipeline}


def _has_hole(target, depth=0):
    if target is ...:
        return True
    if type(target) in (tuple, list) and depth < 3:
        return any(_has_hole(t, depth + 1) for t in target)
    if type(target) is dict and depth < 3:
        return any(_has_hole(t, depth + 1) for t in target.values())
    return False


def describe(error: BaseException) -> dict:
    """What a learner needs to know of an exception: its kind, its text, and their own last line that led to it."""
    try:
        message = str(error)
    except Exception:
        message = ""
    line, lineno = "", 0
    for frame in traceback.extract_tb(error.__traceback__, 500):
        if _is_own(frame.filename):
            lineno = frame.lineno or 0
            line = (frame.line or linecache.getline(frame.filename, lineno)).strip()
    if isinstance(error, SyntaxError) and error.text:
        line, lineno = error.text.strip(), error.lineno or 0
    kind = "TimeUp" if isinstance(error, TimeUp) else type(error).__name__
    return {"kind": kind[:100], "message": message[:4000], "line": line[:400], "lineno": lineno}


_OURS = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), sysconfig.get_path("stdlib")]


def _is_own(filename: str) -> bool:
    """Whether a source file is the learner's: a notebook cell, or a file that no library brought."""
    if filename.startswith("<frozen") or f"{os.sep}site-packages{os.sep}" in filename:
        return False
    parts = os.path.dirname(filename).split(os.sep)
    return not any(filename.startswith(o + os.sep) for o in _OURS) and "pallas_lite" not in parts
