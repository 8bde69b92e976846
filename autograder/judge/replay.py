"""replay: a learner's pallas_call, run where the learner's code cannot reach. In: what the call asked for. Out: values.

The array in HBM, the slots and the order of the steps are ours. The learner's side gets one step's blocks at a time and
sends back what the kernel makes of them. So specs that are made up do not help: whatever they say is what happens.
The first look at a call is on decoys, so that nobody has seen the real arrays before the last step is done.
Asked by handle.py; the other end is sandbox/inside/answers.py.
"""
import math
from typing import Any

import numpy as np

from pallas_lite import InterpretParams, PallasLiteError
from pallas_lite.engines.record import record
from pallas_lite.engines.simulate import simulate
from pallas_lite.specs import VMEM, Operand, Scratch

from ..sandbox.inside import wire

MOST_STEPS = 5000  # of all calls of one function
MOST_VISITS = 20_000  # of operands by steps, of all calls: each is some rows of a schedule
MOST_SLOTS = 1000  # of all operands of a call: each is an array
MOST_LOOKED_INTO = 64  # steps of a call: of so many, what each leaves in its outputs is kept for a message
MOST_BYTES = 256 * 2**20  # of one call's arrays, slots and scratch


def decoys(arrays) -> list[Any]:
    """Arrays of the same shapes and dtypes, with other numbers. Whole numbers stay: they may choose the blocks."""
    rng = np.random.default_rng()
    return [rng.normal(size=a.shape).astype(a.dtype) if isinstance(a, np.ndarray) and a.dtype.kind not in "iub" else a
            for a in arrays]


def replay(told: list[dict], calls: tuple, arrays: tuple, ask, left_by: dict | None = None,
           filling: str | float = "nan") -> list[tuple[np.ndarray, ...]]:
    """The outputs of each call; none where what was told cannot be followed. `ask(call, step, values)` runs a step.

    `left_by`, if given, gets what each step of a short call leaves in its blocks of the outputs: by (call, step).
    `filling`: what memory holds that nobody wrote, as InterpretParams(uninitialized_memory=…) takes it.
    """
    made: list[tuple[np.ndarray, ...]] = []
    left, visits = MOST_STEPS, MOST_VISITS
    for k, (data, call) in enumerate(zip(told, calls, strict=True)):
        left -= call.steps
        visits -= call.steps * len(call.inputs + call.outputs)
        try:
            if min(left, visits) < 0:
                made.append(())
                continue
            keep = left_by if call.steps <= MOST_LOOKED_INTO else None
            made.append(_one(data, call, arrays, made, lambda *step, k=k: ask(k, *step), k, keep, filling))
        except (PallasLiteError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError,
                wire.NotPlain):  # the last: no message can hold its refs
            made.append(())
    return made


def _one(data, call, arrays, made, ask, k, keep, filling):
    operands = _operands(data, call)
    inputs = [x for x in operands if not x.is_output]
    values = {x.array: _given(source, x, arrays, made) for x, source in zip(inputs, data["takes"], strict=True)}
    extras = [np.asarray(e["value"]) if "value" in e else Scratch(_lengths(e["shape"]), _dtype(e["dtype"]), VMEM)
              for e in data["extras"]]
    taken = [(x.shape, x.dtype, 1) for x in operands] + [(x.block_shape, x.dtype, x.depth) for x in operands]
    taken += [(e.shape, np.dtype(e.dtype), 1) for e in extras]
    if sum(math.prod(shape) * dtype.itemsize * many for shape, dtype, many in taken) > MOST_BYTES:
        raise ValueError("more memory than a case of an exercise needs")
    if sum(x.depth for x in operands) > MOST_SLOTS:
        raise ValueError("more slots than a case of an exercise needs")

    def body(step, values):
        new = list(values)
        for i, value in ask(step, values):
            if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (new[i].shape, new[i].dtype):
                raise ValueError("no block")
            new[i] = value
        if keep is not None:
            keep[k, step] = tuple(np.array(v) for v in new[len(inputs):len(operands)])
        return new
    done = simulate(record(call.steps, operands), operands, values, body,
                    InterpretParams(uninitialized_memory=filling), extras=extras)
    return tuple(done[x.array] for x in operands if x.is_output)


def _operands(data, call) -> list[Operand]:
    """The operands as the pipeline takes them, under names of ours."""
    found: list[Operand] = []
    for i, (told, x) in enumerate(zip(data["operands"], (*call.inputs, *call.outputs), strict=True)):
        is_output, shared, starts = i >= len(call.inputs), told["shares"], told["starts"]
        home = found[shared] if is_output and type(shared) is int and 0 <= shared < len(call.inputs) else None
        if home and (home.shape, str(home.dtype)) != (x.shape, x.dtype):
            raise ValueError("shares the memory of another shape")
        if starts is not None:
            starts = tuple((int(a), int(c)) for a, c in starts)
        found.append(Operand(
            f"x{i}", home.array if home else f"a{i}", is_output, x.depth, x.shape, _dtype(x.dtype),
            tuple(1 if n is None else n for n in x.block_shape),
            tuple(d for d, n in enumerate(x.block_shape) if n is None), list(x.blocks), starts=starts))
    return found


def _given(source, x: Operand, arrays, made) -> np.ndarray:
    """What an operand holds: an array of the case, another call's output, or a value that came without either."""
    kind, *where = source
    value = {"given": lambda i: arrays[i], "made": lambda k, j: made[k][j], "value": lambda a: a}[kind](*where)
    value = np.asarray(value)
    if value.shape != x.shape:
        raise ValueError("an operand of another shape")
    return value.astype(x.dtype)


def _dtype(name) -> np.dtype:
    if name not in wire.DTYPES:
        raise ValueError("no dtype")
    return wire.dtype_of(name)


def _lengths(shape) -> tuple[int, ...]:
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise ValueError("no shape")
    return tuple(shape)
