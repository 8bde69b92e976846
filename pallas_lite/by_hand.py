"""by_hand: a pipeline that you write as a loop, with the four copy verbs -> the same Schedule as pallas_call's.

    def loop(N, A, X, Y, B):            # A, B: blocks in HBM. X, Y: slots in SRAM; len(X) is the depth
        for i in range(N):
            copy_in_start(A[i], X[0])
            copy_in_wait(X[0])
            compute(X[0], Y[0])
            copy_out_start(Y[0], B[i])
            copy_out_wait(Y[0])

    schedule = record(loop, 4, depth=1)

Recording runs the loop once, on handles: nothing is copied or computed. Next: verify.py, timeline.py, or `execute`.
"""
import math
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import ArrayLike

from .engines.simulate import simulate
from .errors import BlockIndexError, HazardWarning, PipelineError, expect, many
from .memory import DEFAULT, InterpretParams
from .schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, OperandInfo, Schedule
from .specs import Operand
from .verify import Hazard

ONE_OF = {"input array": "a block of A", "input slots": "a slot of X", "output slots": "a slot of Y",
          "output array": "a block of B"}
MOST_EVENTS = 200_000  # a loop that never ends must not fill the memory


@dataclass(frozen=True)
class Place:
    """One block in HBM, or one slot in SRAM."""

    row: "Row"
    index: int

    def __str__(self):
        return f"{self.row.name}[{self.index}]"

    __repr__ = __str__

    def _no_value(self, *_):
        raise PipelineError(f"{self} is a place, not a value, so nothing can be computed with it here. "
                            "compute(X[i], Y[j]) runs the kernel on slots.")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = __getitem__ = _no_value


@dataclass(frozen=True, eq=False)
class Row:
    """`A`, `X`, `Y` or `B`: indexing gives a place, out of range gives an error that says what there is."""

    tape: "_Tape"
    name: str
    size: int
    kind: str  # "input array", "input slots", "output slots" or "output array"

    def __len__(self):
        return self.size

    def __repr__(self):
        return self.name

    def __setitem__(self, i, value):
        raise PipelineError(f"{self.name}[{i!r}] = …: a place is filled by a copy or by the kernel. compute(X[i], "
                            "Y[j]) runs the kernel, copy_in_start and copy_out_start copy.")

    def __getitem__(self, i):
        try:
            i = i.__index__()
        except (AttributeError, TypeError):
            raise PipelineError(f"{self.name}[{i!r}]: index it with one whole number.") from None
        if not 0 <= i < self.size:
            what = "slot" if "slots" in self.kind else "block"
            has = f"{what}s 0 to {self.size - 1}" if self.size > 1 else f"only {what} 0" if self.size else f"no {what}s"
            mend = ("Blocks are counted from 0." if what == "block" and i < 0 else
                    "Guard the copy with an if." if what == "block" else
                    "Take the index modulo the number of slots." if self.size > 1 else f"Use {self.name}[0].")
            when = f"after step {self.tape.runs - 1}" if self.tape.runs else "before the first step"
            raise BlockIndexError(f"{when}: {self.name}[{i}] does not exist: {self.name} has {has}. {mend}")
        return Place(self, i)


class _Tape:
    """Collects the events and where each is called from; knows which step it is by counting the kernel's runs."""

    def __init__(self, steps, loop):
        self.events, self.calls, self.runs, self.code = [], [], 0, getattr(loop, "__code__", None)
        self.most = max(MOST_EVENTS, 50 * steps)

    def copy(self, verb, slot, block=None):
        # A copy out belongs to the step that has just run, a copy in to the next one. A wait for a copy out after
        # that comes late, on behalf of the next step: steps never go back, so that a table reads downwards.
        last = self.events[-1].step if verb == OUT_WAIT and self.events else 0
        step = max(self.runs - (verb in (OUT_START, OUT_WAIT)), last)
        self._append(Event(verb, step, slot.row.name, block and (block.index,), slot.index))

    def run(self, slots, kernel):
        self._append(Event(RUN, self.runs, slots=slots), kernel)
        self.runs += 1

    def _append(self, event, kernel=None):
        if len(self.events) >= self.most:
            raise PipelineError(f"the loop does not end: it has made {self.most:,} calls. Check its bounds.")
        self.events.append(event)
        line = next((n for frame, n in traceback.walk_stack(None) if frame.f_code is self.code), 0)
        self.calls.append((line, kernel))


def _tape(verb, given, kinds):
    """The tape of the loop whose places these are, if they are of the right kinds."""
    call = f"{verb}({', '.join(map(str, given))})"
    for place, kind in zip(given, kinds, strict=True):
        if isinstance(place, Row):
            raise PipelineError(f"{call}: {place} is all of the {place.kind}. Choose one: {place}[0].")
        if not isinstance(place, Place):
            raise PipelineError(f"{call}: it takes blocks and slots such as A[0] or X[1], not {place!r}.")
        if place.row.kind != kind:
            raise PipelineError(f"{call}: {place} is {ONE_OF[place.row.kind]}; here belongs {ONE_OF[kind]}.")
        if place.row.tape is not given[0].row.tape:
            raise PipelineError(f"{call}: {place} is left over from another loop. Use the places that this loop is "
                                "given.")
    return given[0].row.tape


def copy_in_start(block: Place, slot: Place) -> None:
    """Start copying a block of HBM into a slot of SRAM. The copy is in flight until `copy_in_wait(slot)`."""
    _tape(IN_START, (block, slot), ("input array", "input slots")).copy(IN_START, slot, block)


def copy_in_wait(slot: Place) -> None:
    """Wait until the copy into this slot has arrived."""
    _tape(IN_WAIT, (slot,), ("input slots",)).copy(IN_WAIT, slot)


def compute(x: Place, y: Place, kernel: Callable | None = None) -> None:
    """Run the kernel: read slot x, write slot y. This is one step. `kernel`: other than the one `execute` is given."""
    _tape("compute", (x, y), ("input slots", "output slots")).run((x.index, y.index), kernel)


def copy_out_start(slot: Place, block: Place) -> None:
    """Start copying a slot of SRAM to a block of HBM. The copy is in flight until `copy_out_wait(slot)`."""
    _tape(OUT_START, (slot, block), ("output slots", "output array")).copy(OUT_START, slot, block)


def copy_out_wait(slot: Place) -> None:
    """Wait until the copy out of this slot has arrived."""
    _tape(OUT_WAIT, (slot,), ("output slots",)).copy(OUT_WAIT, slot)


def record(loop: Callable, steps: int, *, depth: int | tuple[int, int] = 2, block_bytes: int = 1000,
           flops: float = 1000.0) -> Schedule:
    """The schedule of a hand-written loop over `steps` blocks, with `depth` slots for X and for Y: a number, or two.

    `block_bytes` and `flops` (operations a step) give it a time; the defaults take 1 µs each on hardware.TOY.
    Raises what the loop raises: BlockIndexError and PipelineError name the place and the mend.
    """
    expect(Callable, loop, "a loop is a function of (N, A, X, Y, B); the schedule of a call is f.trace(x).schedule")
    depths = depth if isinstance(depth, tuple) and len(depth) == 2 else (depth, depth)
    for what, n, least in ("steps", steps, 0), ("depth", depths[0], 1), ("depth", depths[1], 1):
        if not isinstance(n, (int, np.integer)) or n < least:
            raise PipelineError(f"record(…, {what}={n!r}): give a whole number, {least} or more.")
    tape = _Tape(steps, loop)
    done = loop(steps, Row(tape, "A", steps, "input array"), Row(tape, "X", depths[0], "input slots"),
                Row(tape, "Y", depths[1], "output slots"), Row(tape, "B", steps, "output array"))
    if hasattr(done, "send"):
        raise PipelineError(f"{getattr(loop, '__name__', 'the loop')} is a generator or a coroutine, so calling it "
                            "runs nothing. Take yield, async and await out of it.")
    operands = tuple(OperandInfo(name, array, name == "Y", d, block_bytes, array_shape=(int(steps),))
                     for name, array, d in zip("XY", "AB", depths, strict=True))
    name = getattr(loop, "__name__", "loop")
    return Schedule(tuple(tape.events), operands, float(flops), name, calls=tuple(tape.calls)).with_waits_named()


def unwritten(schedule: Schedule, blocks: int | None = None) -> list[Hazard]:
    """[] or one hazard: a recorded loop leaves some of B's blocks unwritten. `blocks`: of so many, not as recorded.

    Not for verify, whose rule is about moments: these blocks are garbage at any.
    """
    y = schedule.operands[-1] if schedule.operands else None
    if not y or (y.name, y.array) != ("Y", "B") or not y.array_shape:
        return []
    blocks, sent = blocks or y.array_shape[0] // y.block_shape[0], {e.block for e in schedule if e.verb == OUT_START}
    missing = [f"B[{i}]" for i in range(blocks) if (i,) not in sent]
    what = f"{len(missing)} of B's {many(blocks, 'block')} never written, the first {[*missing, ''][0]}: garbage stays."
    mend = "Send each to its place with copy_out_start(Y[…], B[…]), after the step that makes it."
    return [Hazard("unwritten", what, mend, "Y", 0, -1, ())] if missing else []


def execute(schedule: Schedule, blocks: ArrayLike, kernel: Callable = lambda x: x + 1,
            params: InterpretParams = DEFAULT) -> np.ndarray:
    """B after a recorded loop ran on these blocks of A (first axis: one block a step): the hardware's numbers.

    `kernel`: a function of a block that gives one of the same shape; for each compute that was given none itself.
    Slots and B start as garbage (NaN, unless `params` says otherwise), so whole numbers become float32. Warns of blocks
    of B that nobody writes. Raises PipelineError where it would hang, and where the blocks or the kernel's results do
    not fit.
    """
    a = np.atleast_1d(np.asarray(blocks))
    if not jax.numpy.issubdtype(a.dtype, np.floating):  # jax's own knows bfloat16
        a = a.astype(np.float32)
    if [x.name for x in schedule.operands] != ["X", "Y"]:
        raise PipelineError(f"execute plays a loop that `record` recorded, and {schedule.name} is none. A pallas_call "
                            "is called on its arrays.")
    most = max((e.block[0] for e in schedule if e.block), default=-1)
    if most >= len(a):
        raise PipelineError(f"{schedule.name} uses block {most}, and there {'is' if len(a) == 1 else 'are'} "
                            f"{many(len(a), 'block')}. Record it for {many(len(a), 'step')}, or give more blocks.")

    own = [call for e, (_, call) in zip(schedule, schedule.calls, strict=False) if e.verb == RUN]

    def step(t, slots):
        y = np.asarray((own and own[t] or kernel)(slots[0].reshape(a.shape[1:])))
        if y.shape != a.shape[1:]:
            raise PipelineError(f"step {t}: the kernel returns the shape {y.shape}, and a slot of Y holds "
                                f"{a.shape[1:]}. Return one value for each element.")
        return [slots[0], y.astype(a.dtype).ravel()]
    size = math.prod(a.shape[1:])
    operands = [Operand(x.name, x.array, x.is_output, x.depth, (a.size,), a.dtype, (size,), (), [])
                for x in schedule.operands]
    result = simulate(schedule, operands, {"A": a.ravel()}, step, params)["B"].reshape(a.shape)
    for hazard in unwritten(schedule, len(a)):
        warnings.warn(HazardWarning(f"{schedule.name}: {hazard}", [hazard]), stacklevel=2)
    return result
