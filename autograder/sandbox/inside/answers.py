"""answers: one question about one object of the learner -> (kind, body), plain data that wire.py can carry.

The same functions answer in the notebook and in the sandbox, so a check sees the same thing in both.
Kinds: "ok", "not done", "not plain", "failed". Next: judge/handle.py, which asks.
"""
import contextlib
import linecache
import os
import re
import sys
import sysconfig
import traceback
import warnings
from typing import Any

from . import wire

MOST_CALLS = 20  # of one function: these are told, the others counted


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
    """The schedule of a loop; and where it hands kernels of its own to compute, what each makes of 0 to 5, by step."""
    import numpy as np

    import pallas_lite
    schedule = pallas_lite.record(target, steps, depth=depth, **cost)
    kernels = [kernel for e, (_, kernel) in zip(schedule, schedule.calls, strict=True) if e.verb == "run"]
    own = [[step, np.asarray(kernel(np.arange(6, dtype=np.float32).reshape(2, 3)))]
           for step, kernel in enumerate(kernels) if kernel is not None]
    return schedule.to_plain() | {"own": own}


def _on_jax(arrays):
    import jax.numpy as jnp
    import numpy as np
    # Block sizes and the like stay plain numbers.
    return [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]


def _kernel(target, *arrays):
    import pallas_lite
    with pallas_lite.observe_calls() as calls:
        result = target(*_on_jax(arrays))
    # A kernel that is called a thousand times has said enough.
    told = [c.to_plain() | {"results": _small(outputs)}
            for c, outputs in zip(calls[:MOST_CALLS], calls.results, strict=False)]
    return {"result": result, "calls": told, "made": len(calls)}


def _program(target, *arrays):
    """Makes TPU programs of the pallas_calls of a function, and raises what stands against one."""
    import pallas_lite
    with pallas_lite.observe_calls() as calls:
        target(*_on_jax(arrays))
    for call in calls[:MOST_CALLS]:
        call.lower("tpu").as_text()


def _real(target, *arrays):
    """How many pallas_calls of JAX's own a function makes. Nothing runs."""
    import jax
    arrays = _on_jax(arrays)
    return str(jax.make_jaxpr(lambda: target(*arrays))()).count("pallas_call[")


def _small(outputs):
    """The outputs of a call as arrays; none of them if they are unknown (under jit) or large."""
    import jax
    import numpy as np
    known = outputs and all(isinstance(a, jax.Array) and not isinstance(a, jax.core.Tracer) for a in outputs)
    return [np.asarray(a) for a in outputs] if known and sum(a.nbytes for a in outputs) < 2**20 else []


_planned: list = []  # the calls of the last plan: "body" runs their kernels


def _plan(target, *arrays):
    """What the pallas_calls of a function ask for, where their operands come from, and what it returns of them.

    Nothing runs. `manual`: some kernel may start copies of its own, so it cannot be asked for one step.
    """
    import jax

    import pallas_lite
    given = _on_jax(arrays)
    with pallas_lite.observe_calls(run=False) as calls:
        result = target(*given)
    _planned[:] = calls[:MOST_CALLS]
    if any(c.manual or len(c.operands) < len(c.arrays) for c in _planned):
        return {"manual": True}
    leaves = list(result) if type(result) in (tuple, list) else [result]
    places = [_place(a, calls.results[:MOST_CALLS]) for a in leaves if isinstance(a, jax.Array)]
    known = leaves and len(places) == len(leaves) and None not in places
    return {"calls": [_told(c, took, given, calls.results[:k]) for k, (c, took) in
                      enumerate(zip(_planned, calls.operands, strict=False))],
            "made": len(calls), "gives": places if known else None, "several": type(result) in (tuple, list)}


def _told(call, took, given, results):
    """One call as plain data, with all that it takes to go through its steps elsewhere."""
    import numpy as np
    homes = {x.array: i for i, x in enumerate(call.operands) if not x.is_output}
    more = [{"shares": homes.get(x.array) if x.is_output else None,
             "starts": None if x.starts is None else [list(s) for s in x.starts]} for x in call.operands]
    told, given = call.to_plain(), list(given)
    return told | {"operands": [a | b for a, b in zip(told["operands"], more, strict=True)],
                   "takes": [_source(a, given, results) for a in took[len(call.scalars):]],
                   "extras": [{"value": e} if isinstance(e, np.ndarray) else {"shape": list(e.shape),
                              "dtype": str(np.dtype(e.dtype))} for e in call.extras]}


def _place(array, results):
    """Which output of which call an array is: (call, output)."""
    return next(((k, j) for k, outs in enumerate(results) for j, out in enumerate(outs or ()) if array is out), None)


def _source(array, given, results):
    """Where an operand comes from: ("given", i), ("made", call, output), or its value. A given array serves once."""
    import jax
    import numpy as np
    if place := _place(array, results):
        return ("made", *place)
    unknown = isinstance(array, jax.core.Tracer)  # under jit: the first of its shape

    def same(a):
        return a is array or isinstance(a, jax.Array) and (a.shape, a.dtype) == (array.shape, array.dtype) and \
            (unknown or np.array_equal(a, array))
    found = next((i for i, a in enumerate(given) if same(a)), None)
    if found is None:
        return None if unknown else ("value", np.asarray(array))
    if unknown:
        given[found] = None
    return "given", found


def _body(target, call, step, values):
    """One step of a call of the last plan, on the values of its refs: (number, new value) of each that changed."""
    new = _planned[call].body.step(step, values)
    return [(i, a) for i, (a, before) in enumerate(zip(new, values, strict=True)) if a is not before]


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


OPS = {"value": _value, "call": _call, "schedule": _schedule, "kernel": _kernel, "plan": _plan, "body": _body,
       "pipeline": _pipeline, "program": _program, "real": _real}


def _has_hole(target, depth=0):
    if target is ...:
        return True
    if type(target) in (tuple, list) and depth < 3:
        return any(_has_hole(t, depth + 1) for t in target)
    if type(target) is dict and depth < 3:
        return any(_has_hole(t, depth + 1) for t in target.values())
    return False


def describe(error: BaseException) -> dict:
    """What a learner needs to know of an exception: its kind, its text, and their own last line that led to it.

    Where that line is in a function which they call themselves, as a helper that was given, the call is told too.
    `in_kernel`: pallas_lite was running their kernel.
    """
    try:
        message = _plain(str(error))
    except Exception:
        message = ""
    line, lineno, before, in_kernel = "", 0, None, False
    for frame in traceback.extract_tb(error.__traceback__, 500):
        in_kernel |= frame.name == "run_kernel" and f"{os.sep}pallas_lite{os.sep}" in frame.filename
        if _is_own(frame.filename):
            lineno = frame.lineno or 0
            line = _written(frame)
            if before and before.name != frame.name:
                line = f"{line[:150]}, called in line {before.lineno}: {_written(before)[:150]}"
        before = frame if _is_own(frame.filename) else None
    if isinstance(error, SyntaxError) and isinstance(error.text, str) and isinstance(error.lineno, int):
        line, lineno = error.text.strip(), error.lineno
        message = f"{error.msg}, in line {lineno}"  # its text names a file that IPython made up
    # Of Python's own kinds, those with a name for all: Python 3.13 has a _IncompleteInputError.
    kind = "TimeUp" if isinstance(error, TimeUp) else next(
        k.__name__ for k in type(error).__mro__ if k.__module__ != "builtins" or not k.__name__.startswith("_"))
    return {"kind": kind[:100], "message": message[:4000], "line": line[:400], "lineno": lineno, "in_kernel": in_kernel}


def for_a_file(error: BaseException, source: str) -> BaseException:
    """An error of a cell that does not end: a prompt waits for more of it, and Python knows which bracket it is."""
    if isinstance(error, SyntaxError) and error.msg == "incomplete input":
        try:
            compile(source, "cell", "exec")
        except SyntaxError as plain:
            return plain
    return error


def _plain(message: str) -> str:
    """Without the colours of a terminal, and without what JAX adds on where its tracers came from."""
    return re.split(r"\n\s*(?:The error occurred while tracing|This value became a tracer|If using `jit`)",
                    re.sub(r"\x1b\[[0-9;]*m", "", message), maxsplit=1)[0]


def _written(frame: traceback.FrameSummary) -> str:
    return (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()


# `autograder`: the folder of the whole grader in a notebook, this one in the sandbox.
_HOME = sys.modules[__name__.partition(".")[0]].__file__
_OURS = [os.path.dirname(os.path.abspath(_HOME)), sysconfig.get_path("stdlib")]


def _is_own(filename: str) -> bool:
    """Whether a source file is the learner's: a notebook cell, or a file that no library brought."""
    if filename.startswith("<frozen") or f"{os.sep}site-packages{os.sep}" in filename:
        return False
    parts = os.path.dirname(filename).split(os.sep)
    return not any(filename.startswith(o + os.sep) for o in _OURS) and "pallas_lite" not in parts
