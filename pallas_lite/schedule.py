"""schedule: what a pipeline does, in order, as frozen data. Everything that shows, checks or times reads this.

In: events, from engines/record.py (pallas_call) or by_hand.py (a learner's loop).
Out: to verify.py (hazards), timeline.py (time), engines/simulate.py (values) and the text forms below.
"""
import bisect
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from .errors import PallasLiteError, SpecError
from .table import aligned, folded

if TYPE_CHECKING:
    from .rolled import Rolled

IN_START, IN_WAIT, RUN, OUT_START, OUT_WAIT = VERBS = (
    "copy_in_start", "copy_in_wait", "run", "copy_out_start", "copy_out_wait")
CODE = {verb: number for number, verb in enumerate(VERBS)}  # how Columns have them


class Event(NamedTuple):
    """One thing that the program does. Events of a schedule are in program order.

    A copy names its operand, block and slot; a wait that no copy was started for has block None.
    A run has `slots`: the slot of each operand, in the order of `Schedule.operands`; -1 for one that it leaves alone.
    """

    verb: str
    step: int  # the step before whose end this happens: a prologue's copies belong to step 0
    operand: str = ""
    block: tuple[int, ...] | None = None
    slot: int = -1
    slots: tuple[int, ...] = ()


class Columns(NamedTuple):
    """The events of a schedule as arrays, one entry an event, for what must be quick on long pipelines."""

    verb: np.ndarray  # CODE of it
    step: np.ndarray
    operand: np.ndarray  # number in Schedule.operands; -1 for a run
    block: np.ndarray  # number in `blocks`; -1 for none
    slot: np.ndarray
    slots: np.ndarray  # one row a run, in order: the slot of each operand
    blocks: list[tuple[int, ...]]  # all different


class Events(Sequence):
    """Columns, read as a tuple of Events, which is made when somebody looks."""

    def __init__(self, columns: Columns, names: list[str]):
        self.columns, self._names = columns, names

    def _made(self, start: int, stop: int) -> tuple[Event, ...]:
        """The events from `start` up to `stop`."""
        c, n = self.columns, stop - start
        before = np.count_nonzero(c.verb[:start] == CODE[RUN])
        runs, blocks, names = iter(c.slots[before:before + n].tolist()), [*c.blocks, None], [*self._names, ""]
        rows = zip(*(column[start:stop].tolist() for column in c[:5]), strict=True)
        return tuple(Event(VERBS[verb], step, names[x], blocks[block], slot, tuple(next(runs)) if x < 0 else ())
                     for verb, step, x, block, slot in rows)  # -1 is the last of the names, and of the blocks

    @cached_property
    def _all(self) -> tuple[Event, ...]:
        return self._made(0, len(self))

    def __len__(self):
        return len(self.columns.verb)

    def __getitem__(self, i):
        if "_all" in self.__dict__ or isinstance(i, slice):
            return self._all[i]
        i = range(len(self))[i]
        return self._made(i, i + 1)[0]  # no other: an explorer asks for those of a step

    def __iter__(self):
        return iter(self._all)

    def __eq__(self, other):
        return self._all == tuple(other)

    def __hash__(self):
        return hash(self._all)


@dataclass(frozen=True)
class OperandInfo:
    """What a schedule knows of an operand: its slots in SRAM and its array in HBM."""

    name: str  # the buffer in SRAM
    array: str  # the array in HBM; aliased operands share one
    is_output: bool
    depth: int
    block_bytes: int
    block_shape: tuple[int, ...] = (1,)
    array_shape: tuple[int, ...] | None = None  # None: no block reaches past the array's edge
    starts: tuple[tuple[int, int], ...] | None = None  # (a, c): block i starts at element a·i + c; None: block_shape·i
    dtype: str = field(default="", compare=False)  # for messages

    @property
    def ragged(self) -> bool:
        """May a copy move less than a block?"""
        return self.array_shape is not None and (self.starts is not None or any(
            n % b for n, b in zip(self.array_shape, self.block_shape, strict=True)))

    def show(self, block: tuple[int, ...] | None) -> str:
        return "?" if block is None else f"{self.array}[{', '.join(map(str, block))}]" if block else self.array

    def show_slot(self, slot: int) -> str:
        return f"{self.name}[{slot}]" if self.name != self.array else str(slot)


def starts_of(x) -> Sequence[tuple[int, int]]:
    """(a, c) in each dimension of an operand: its block i starts at element a·i + c of the array."""
    return x.starts or [(n, 0) for n in x.block_shape]


def origin(x, block) -> list:
    """The element of its array at which a block of an operand starts, in each dimension."""
    return [b * a + c if c else b * a for b, (a, c) in zip(block, starts_of(x), strict=True)]


def window(x, block: tuple[int, ...]) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Where a block of an operand lies in its array, and the part of the slot that it fills: less than all at the edge.

    Both are (start, stop) in each dimension.

    >>> window(OperandInfo("x", "x", False, 2, 16, (4,), (10,)), (2,))
    (((8, 10),), ((0, 2),))
    """
    starts = origin(x, block)
    sizes = x.array_shape or [s + n for s, n in zip(starts, x.block_shape, strict=True)]
    inside = [(min(max(s, 0), size), min(max(s + n, 0), size))
              for s, n, size in zip(starts, x.block_shape, sizes, strict=True)]
    return tuple(inside), tuple((a - s, b - s) for s, (a, b) in zip(starts, inside, strict=True))


def size_of(rectangle) -> int:
    """How many elements lie in a rectangle, given as (start, stop) in each dimension."""
    return math.prod(b - a for a, b in rectangle)


@dataclass(frozen=True)
class Schedule:
    """The events of one run of a pipeline. Print it, iterate it, or hand it to verify, timeline or simulate."""

    events: Sequence[Event]
    operands: tuple[OperandInfo, ...]
    flops: float = 0.0  # operations per step
    name: str = "pipeline"
    work: tuple[tuple[str, str, float], ...] = ()  # of `flops`: (unit, dtype, operations); the rest: vector, float32
    scratch: tuple[tuple[str, str, int], ...] = ()  # SRAM besides the operands' slots: (name, what it is, bytes)
    # Of a loop written by hand, for each event: the line that called it, and the kernel if `compute` was given one.
    calls: tuple[tuple[int, Callable | None], ...] = field(default=(), compare=False, repr=False)
    # What verify says, where these events do not tell: who stepped through a kernel saw its reads and writes too.
    hazards: tuple | None = field(default=None, compare=False, repr=False)

    rolled: ClassVar[Callable[["Schedule"], "Rolled"]]  # the loop that a person would write; rolled.py puts it here

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, i: int) -> Event:
        return self.events[i]

    @property
    def steps(self) -> int:
        """How often the kernel runs."""
        return len(self.columns.slots)

    @property
    def runs(self) -> np.ndarray:
        """The number of the event that runs each step."""
        return np.flatnonzero(self.columns.verb == CODE[RUN])

    def operand(self, name: str) -> OperandInfo:
        """The operand of this name. Raises SpecError if there is none, here and where else an operand is asked for."""
        for x in self.operands:
            if x.name == name:
                return x
        raise SpecError(f"{self.name} has no operand {name!r}. It has {', '.join(x.name for x in self.operands)}.")

    def copies(self, operand: str) -> int:
        """How many copies of an operand are started; of a grid's: 1 + the number of times its block index changes."""
        c, number = self.columns, self.operands.index(self.operand(operand))
        return int((_starts(c) & (c.operand == number)).sum())

    def blocks(self, operand: str) -> list[tuple[int, ...] | None]:
        """The block of an operand that each step works on; None for a step that finds none in its slot.

        What an input's slot holds is what the last wait before the step waited for; what an output's holds, where the
        next copy from it goes.
        """
        c, x = self.columns, self.operand(operand)
        number, known = self.operands.index(x), [*c.blocks, None]  # block -1 is the last
        copies = np.flatnonzero((c.operand == number) & (c.verb == CODE[OUT_START if x.is_output else IN_WAIT]))
        found: list[tuple[int, ...] | None] = [None] * self.steps
        for slot in range(x.depth):
            steps, mine = np.flatnonzero(c.slots[:, number] == slot), copies[c.slot[copies] == slot]
            at = np.searchsorted(mine, self.runs[steps]) - (not x.is_output)
            for step, i in zip(steps.tolist(), at.tolist(), strict=True):
                found[step] = known[c.block[mine[i]]] if 0 <= i < len(mine) else None
        return found

    @cached_property
    def columns(self) -> Columns:
        """The events as arrays."""
        if isinstance(self.events, Events):
            return self.events.columns
        names = {"": -1, **{x.name: i for i, x in enumerate(self.operands)}}
        blocks: dict[tuple[int, ...], int] = {}
        rows = [(CODE[e.verb], e.step, names[e.operand],
                 -1 if e.block is None else blocks.setdefault(e.block, len(blocks)), e.slot) for e in self.events]
        runs = [e.slots for e in self.events if e.verb == RUN]
        verb, step, operand, block, slot = np.array(rows, np.int64).reshape(-1, 5).T
        return Columns(verb, step, operand, block, slot,
                       np.array(runs, np.int64).reshape(len(runs), len(self.operands)), list(blocks))

    @cached_property
    def copy_of(self) -> np.ndarray:
        """The copy that an event starts or waits for, as the number of the event that starts it; -1 for none.

        A wait takes the oldest copy of its slot and direction that no wait has taken.
        """
        c, found = self.columns, []
        started: dict[int, deque[int]] = defaultdict(deque)
        places = (c.operand * (1 + c.slot.max(initial=0)) + c.slot) * 2 + (c.verb > CODE[RUN])  # slot and direction
        for number, (is_start, place) in enumerate(zip(_starts(c).tolist(), places.tolist(), strict=True)):
            if is_start:
                started[place].append(number)
                found.append(number)
            else:  # nothing is ever started at a run's place, which is below 0
                found.append(started[place].popleft() if started[place] else -1)
        return np.array(found, int)

    def with_waits_named(self) -> "Schedule":
        """The same, each wait with the block of the copy that it waits for."""
        blocks = [self.events[start].block if start >= 0 else None for start in self.copy_of.tolist()]
        return replace(self, events=tuple(e._replace(block=b) for e, b in zip(self.events, blocks, strict=True)))

    @property
    def sram_bytes(self) -> int:
        """Bytes of all slots (block bytes × depth, summed over the operands) and of the scratch buffers."""
        return sum(x.block_bytes * x.depth for x in self.operands) + sum(size for *_, size in self.scratch)

    @cached_property
    def copied_bytes(self) -> np.ndarray:
        """The bytes that each event's copy moves, 0 for a run or a wait. Past the array's edge nothing is moved."""
        c, starts = self.columns, _starts(self.columns)
        moved = np.array([*(x.block_bytes for x in self.operands), 0])[c.operand] * starts
        for i, x in enumerate(self.operands):
            if x.ragged:
                mine = np.flatnonzero(starts & (c.operand == i))
                used, which = np.unique(c.block[mine], return_inverse=True)
                # As `window`, of all blocks at once.
                first = np.array([origin(x, c.blocks[k]) for k in used.tolist()], int).reshape(-1, len(x.block_shape))
                inside = np.clip(first + x.block_shape, 0, x.array_shape) - np.clip(first, 0, x.array_shape)
                moved[mine] = inside.prod(1)[which] * (x.block_bytes // math.prod(x.block_shape))
        return moved

    @property
    def hbm_bytes(self) -> dict[str, int]:
        """Bytes that the copies move: "in" from HBM, "out" to it, and in "total"."""
        moved, verb = self.copied_bytes, self.columns.verb
        ways = {way: int(moved[verb == CODE[v]].sum()) for way, v in (("in", IN_START), ("out", OUT_START))}
        return {**ways, "total": sum(ways.values())}

    @property
    def intensity(self) -> float:
        """Operations for each byte that moves between HBM and SRAM; infinite where nothing moves."""
        moved = self.hbm_bytes["total"]
        return self.flops * self.steps / moved if moved else math.inf

    def describe(self, e: Event) -> str:
        """One event as the literature writes it.  copy_in_start(A[1] → X[1])"""
        if e.verb == RUN:
            slots = zip(self.operands, e.slots, strict=True)  # those of a loop are expressions
            used = ", ".join(f"{x.name}[{s}]" for x, s in slots if str(s) != "-1")
            return f"run step {e.step} on {used}"
        block, slot = self.operand(e.operand).show(e.block), f"{e.operand}[{e.slot}]"
        ends = {IN_START: f"{block} → {slot}", OUT_START: f"{slot} → {block}"}
        return f"{e.verb}({ends.get(e.verb, slot)})"

    def listing(self) -> str:
        """The unrolled program, one event a line."""
        return "\n".join(self.describe(e) for e in self.events)

    def table(self, marks: dict[int, str] | None = None, fold: int | None = 16) -> str:
        """The schedule as text: read each row from left to right, and the rows from top to bottom.

        A row ends where the program goes back to an earlier column, so the table is in exact program order.
        `marks` maps event numbers to a remark, put behind their row. More than `fold` rows: the middle is left out.
        """
        column, step = self.columns.verb, self.columns.step
        # A row ends with its step, where a column is behind the last one, and with a run: two never share one.
        back = (column[1:] < column[:-1]) | (column[1:] == column[:-1]) & (column[1:] == CODE[RUN])
        begins = np.flatnonzero(np.concatenate([[True], (step[1:] != step[:-1]) | back])[:len(step)]).tolist()
        remarks = [""] * len(begins)
        for number, mark in sorted((marks or {}).items()):
            remarks[bisect.bisect(begins, number) - 1] += f"  ✗ {mark}"
        ends, rows = [*begins[1:], len(step)], {}
        for i in folded(len(begins), remarks, fold):
            row = range(begins[i], ends[i])
            rows[i] = [str(step[row[0]]), *(", ".join(self.cell(n) for n in row if column[n] == code)
                                            for code in range(len(VERBS)))]
        return aligned(["step", "copy_in start", "copy_in wait", "run", "copy_out start", "copy_out wait"], rows,
                       remarks)

    def cell(self, number: int) -> str:
        """An event in few letters, as a table has it."""
        c = self.columns  # and not its events, which would all be made for one
        verb, slot = VERBS[c.verb[number]], int(c.slot[number])
        if verb == RUN:
            return "run"
        x = self.operands[c.operand[number]]
        if verb in (IN_START, OUT_START):
            block = x.show(c.blocks[c.block[number]])
            return f"{block} {'→' if verb == IN_START else '←'} {x.show_slot(slot)}"
        return f"{x.name}[{slot}]"

    def __str__(self) -> str:
        return self.table()

    def to_plain(self) -> dict:
        """The schedule as lists, strings and numbers, as JSON can carry it."""
        return {"name": self.name, "flops": self.flops, "work": list(map(list, self.work)),
                "scratch": list(map(list, self.scratch)),
                "operands": [[x.name, x.array, x.is_output, x.depth, x.block_bytes, list(x.block_shape),
                              x.array_shape and list(x.array_shape), x.starts and [list(a) for a in x.starts]]
                             for x in self.operands],
                "events": [[e.verb, e.step, e.operand, None if e.block is None else list(e.block), e.slot,
                            list(e.slots)] for e in self.events]}

    @staticmethod
    def from_plain(data: dict) -> "Schedule":
        """The schedule back from `to_plain`. Trusts nothing: every name, type and slot is checked.

        Raises PallasLiteError, naming the first thing that is not as it should be.
        """
        try:
            operands = tuple(OperandInfo(_text(n), _text(a), bool(o), _whole(d, 1), _whole(b, 0),
                                         tuple(_whole(k, 1) for k in s),
                                         h and tuple(_whole(k, 0) for k, _ in zip(h, s, strict=True)),
                                         p and tuple((_whole(a, 0), _whole(c, -10**9))
                                                     for (a, c), _ in zip(p, s, strict=True)))
                             for n, a, o, d, b, s, h, p in data["operands"])
            known, events = {x.name: x for x in operands}, []
            for verb, step, operand, block, slot, slots in data["events"]:
                if verb not in VERBS:
                    raise ValueError(f"unknown verb {verb!r}")
                if verb == RUN:
                    slots = tuple(_whole(s, -1, x.depth) for x, s in zip(operands, slots, strict=True))
                    events.append(Event(RUN, _whole(step, 0), slots=slots))
                    continue
                x = known[operand]
                if block is not None and len(block) != len(x.block_shape):
                    raise ValueError(f"block {block!r} of {operand}, whose blocks have {len(x.block_shape)} dimensions")
                block = None if block is None else tuple(_whole(b, 0) for b in block)
                events.append(Event(verb, _whole(step, 0), _text(operand), block, _whole(slot, 0, x.depth)))
            work = tuple((_text(unit), _text(dtype), float(n)) for unit, dtype, n in data.get("work", ()))
            scratch = tuple((_text(n), _text(what), _whole(size, 0)) for n, what, size in data.get("scratch", ()))
            return Schedule(tuple(events), operands, float(data["flops"]), _text(data["name"]), work, scratch)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PallasLiteError(f"not a schedule: {error}") from None


def _starts(columns) -> np.ndarray:
    """Which events start a copy?"""
    return (columns.verb == CODE[IN_START]) | (columns.verb == CODE[OUT_START])


def _whole(value, low: int, high: int = 10**9) -> int:
    if type(value) is not int or not low <= value < high:
        raise ValueError(f"{value!r} is not a whole number from {low} to {high - 1}")
    return value


def _text(value) -> str:
    if type(value) is not str or len(value) > 100:
        raise ValueError("a name must be a text of at most 100 characters")
    return value
