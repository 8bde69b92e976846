"""verify: a Schedule -> what can go wrong in it, each hazard with operand, step, slot, both events and a mend.

The rule is in races.py; here are the walk over a schedule's events, and the words.
"""
import functools
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from .errors import expect, many
from .proof import surely_clean
from .races import Races, Rectangles
from .schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, Schedule, size_of, window

RULES = {
    "hang": "every wait has a copy to wait for",
    "read before wait": "a slot is read only after its copy arrived",
    "overwrite in flight": "no slot is refilled or rewritten while a copy of it is in flight",
    "uninitialised": "a slot is read or copied out only after somebody filled it",
    "hbm race": "no block in HBM is written while another copy reads or writes it",
    "never waited": "every copy is waited for before the program ends",
    "revisit": "an output block is not written again after it was left",
    "unvisited": "every block of an output is visited",
    "parallel axis": "no result depends on the order of the steps of a parallel axis",
    "unwritten": "every element of an output is written",
    "constant blocks": "the steps of a grid do different work",
    "written input": "a kernel does not write its inputs",
    "sram": "slots and scratch fit into the SRAM that one kernel may use",  # timeline.py: it knows the machine
}
RACES = {"hang", "read before wait", "overwrite in flight", "hbm race", "never waited"}  # values depend on moments

# What the walk says: kind, message and mend. `slot`, `block`, `verb`, `way` are those of the event that it is about;
# with `first_` in front, those of the event that came before it.
WORDS = {
    "hang": ("hang", "{verb}({slot}) waits for a copy that is not under way: the program would hang here.",
             "Start a copy on {slot} before this wait, or drop the wait."),
    "reads nothing": ("uninitialised", "the kernel reads {slot}, which no copy has filled.",
                      "Start a copy into {slot} and wait for it first."),
    "sends nothing": ("uninitialised", "copy_out sends {slot} to {block}, but no step has written {slot} yet.",
                      "Run the kernel on {slot} first, or copy out the slot that it wrote."),
    "no wait": ("never waited", "the {way} of {block} ({slot}) is never waited for: nobody knows whether it arrived.",
                "Call {way}_wait({slot}) before the slot is used again, or at the end."),
    "read early": ("read before wait", "the kernel reads {slot} while the copy of {block} to it is still in flight.",
                   "Call copy_in_wait({slot}) before the kernel runs, or copy to another slot."),
    "written": ("overwrite in flight", "the kernel writes {slot} while the copy of it to {block} is still in flight.",
                "Wait with copy_out_wait({slot}) before this step, or give {operand} one more slot."),
    "refilled": ("overwrite in flight",
                 "copy_in of {block} writes {slot} while the copy of {first_block} to it is still in flight.",
                 "Wait for {slot} before starting this copy, or use another slot."),
    "met in HBM": ("hbm race",
                   "{way} of {block} touches the block that the {first_way} begun in step {first_step} still moves.",
                   "Wait for that copy (slot {first_number} of {first_operand}) first.{aliased}"),
    "revisit": ("revisit", "output block {block} is written again after step {first_step} left it.{count}",
                "An output's value is not read back from HBM: what the earlier visit wrote is lost. Make the axis that "
                "you reduce over the innermost (last) axis of the grid. If you reduce over none, let the index map of "
                "{operand} take each block once."),
}


Block: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True, repr=False)
class Hazard:
    """One thing that is wrong with a schedule, or with a kernel's values.

    `events`: the numbers of the two events that clash, or of one that is wrong by itself; none for a block that nothing
    happens to. Reports about values name the run that the value comes from, and the copy that it meets next.
    """

    kind: str
    message: str
    mend: str
    operand: str
    step: int
    slot: int
    events: tuple[int, ...]

    def __str__(self) -> str:
        return f"step {self.step}: {self.message}\n  {self.mend}"

    __repr__ = __str__


class Hazards(list):
    """A list of hazards that prints as words: the first five, and how many more there are."""

    def __str__(self) -> str:
        more = [f"… and {len(self) - 5} more"] if len(self) > 5 else []
        return "\n".join([*map(str, self[:5]), *more]) or "[]"

    __repr__ = __str__


def verify(schedule: Schedule) -> list[Hazard]:
    """The hazards of a schedule, in program order; an empty list means that no choice of moments changes a result."""
    expect(Schedule, schedule, "verify takes a schedule: f.trace(x).schedule, or record(loop, steps)")
    if schedule.hazards is not None:
        return Hazards(schedule.hazards)
    return Hazards(() if surely_clean(schedule) else _Walk(schedule).hazards)


class _Walk:
    """Walks the events once, and puts what races.py finds into words."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.operands = {x.name: x for x in schedule.operands}
        self.found: dict[tuple, Hazard] = {}  # by kind and events
        self.races = Races(self.clash)
        self.memory: dict[tuple, Rectangles] = {}  # see find
        self.window = functools.cache(lambda operand, block: window(self.operands[operand], block))
        self.left: dict[tuple, int] = {}  # (array, block) -> number of its last copy-out
        self.revisits: dict[str, list] = defaultdict(list)  # operand -> (copy-out before, copy-out) of the same block
        rules = {IN_START: self.start, OUT_START: self.start, IN_WAIT: self.wait, OUT_WAIT: self.wait, RUN: self.run}
        for number, e in enumerate(schedule.events):
            rules[e.verb](number, e)
        self.finish()
        self.hazards = sorted(self.found.values(), key=lambda h: (h.kind != "hang", h.events[-1]))

    def report(self, words, e, *events, first=None, **more):
        """A hazard at event `e`, in these words."""
        kind, *texts = WORDS[words]
        facts = self.facts(e) | {f"first_{k}": v for k, v in self.facts(first or e).items()} | more
        hazard = Hazard(kind, *(t.format(**facts) for t in texts), e.operand, e.step, e.slot, events)
        self.found.setdefault((kind, events), hazard)

    def facts(self, e):
        x = self.operands[e.operand]
        shared = f" (shared by {x.name})" if x.array in self.operands and x.array != x.name else ""
        return {"operand": e.operand, "slot": f"{e.operand}[{e.slot}]", "number": e.slot, "step": e.step,
                "block": x.show(e.block) + shared, "verb": e.verb, "way": e.verb.rpartition("_")[0]}

    # -- one method for each verb

    def start(self, number: int, e: Event):
        x = self.operands[e.operand]
        array, part = self.window(e.operand, e.block)
        block = self.find((None, x.array), array, [10**9] * len(array))
        slot = self.find((x.name, e.slot), part, x.block_shape)
        if e.verb == OUT_START and all(place.last is None for place in slot):
            self.report("sends nothing", e, number)
        ends = (block, slot) if e.verb == IN_START else (slot, block)
        self.races.start(number, *ends, (e.operand, e.slot, e.verb), size_of(part))
        if e.verb == IN_START:
            self.left.pop((x.array, e.block), None)  # an aliased input reads back what an output left
        else:
            if (x.array, e.block) in self.left:
                self.revisits[x.name].append((self.left[x.array, e.block], number))
            self.left[x.array, e.block] = number

    def wait(self, number: int, e: Event):
        started = IN_START if e.verb == IN_WAIT else OUT_START
        # Without a block nothing was started: any size hangs.
        size = 1 if e.block is None else size_of(self.window(e.operand, e.block)[1])
        if not self.races.wait((e.operand, e.slot, started), size):
            self.report("hang", e, number)

    def run(self, number: int, e: Event):
        for x, s in ((x, s) for x, s in zip(self.schedule.operands, e.slots, strict=True) if s >= 0):
            places = self.find((x.name, s), tuple((0, n) for n in x.block_shape), x.block_shape)
            if x.is_output:
                self.races.write(number, places)
            # A part that no copy fills is the tail of an edge block: a run tells whether it reaches a result.
            elif self.races.read(number, places) == len(places):
                self.report("reads nothing", e._replace(operand=x.name, slot=s), number)

    def find(self, memory, rectangle, shape):
        """The places of a rectangle of a memory: (None, array) in HBM, (operand, slot) in SRAM."""
        if memory not in self.memory:
            self.memory[memory] = Rectangles(self.races, shape)
        return self.memory[memory].find(rectangle)

    def finish(self):
        for number in itertools.chain(*self.races.in_flight.values()):
            self.report("no wait", self.schedule[number], number)
        for (operand, _), rectangles in self.memory.items():
            self.races.final(rectangles.places.values() if operand is None else ())
        for (before, number), *others in self.revisits.values():
            count = f" ({1 + len(others)} such writes in all.)" if others else ""
            self.report("revisit", self.schedule[number], before, number, first=self.schedule[before], count=count)

    # -- what they report

    def clash(self, kind: str, first: int, second: int):
        a, b = self.schedule[first], self.schedule[second]
        if b.verb == RUN:
            self.report("read early" if kind == "read" else "written", a._replace(step=b.step), first, second)
        elif a.verb == b.verb == IN_START:
            self.report("refilled", b, first, second, first=a)
        else:
            aliased = " Or do not alias them: a pallas_call waits no earlier." if a.operand != b.operand else ""
            if a.verb == b.verb and self.operands[a.operand].starts:
                aliased = " In a pallas_call, which waits no earlier, let the windows of its steps not overlap."
            self.report("met in HBM", b, first, second, first=a, aliased=aliased)


def grid_hazards(operands, indices, parallel: list[int], schedule: Schedule) -> list[Hazard]:
    """What is wrong with the blocks that a grid asks for: output blocks never visited, or shared along a parallel axis.

    `indices`: the grid position of each step. `parallel`: the axes whose steps may run in any order.
    """
    found = []
    for i, y in ((i, x) for i, x in enumerate(operands) if x.is_output):
        # An aliased output keeps the operand's values where no step goes.
        shared = any(x.array == y.array for x in operands if x is not y) or y.array != y.name
        if missing := [] if shared else _unvisited(y):
            what = (f"output {y.name}: no step visits {missing[0]}, the first is {y.info.show(missing[1])}: what "
                    "memory held stays there.")
            found += [Hazard("unvisited", what, "Make the grid or the index map cover every block.", y.name, 0, -1, ())]
        for axis in parallel:
            if two := two_on_a_block(y, indices, axis):
                other, t = two
                what = (f"output block {y.info.show(y.blocks[t])} is written by step {other} too, and grid axis "
                        f"{axis} between them is parallel: its steps may run in any order, or on two cores.")
                mend = (f'Mark axis {axis} "arbitrary" in dimension_semantics, or give each of its steps an output '
                        "block of its own.")
                found.append(Hazard("parallel axis", what, mend, y.name, t, int(schedule.columns.slots[t, i]),
                                    (int(schedule.runs[other]), int(schedule.runs[t]))))
    return found


def of_tables(found: list[Hazard], operands, grid) -> list[Hazard]:
    """`found`, for a call whose prefetched scalars choose blocks: no order of its axes may mend a revisit."""
    def mended(h):
        y = next((y for y in operands if y.name == h.operand and h.kind == "revisit"), None)
        if y is None:
            return h
        blocks = np.asarray(y.blocks).reshape(*grid, -1)
        summed = [a for a in range(len(grid)) if (blocks == blocks.take([0], a)).all()]
        visits = np.moveaxis(blocks, summed, range(len(grid) - len(summed), len(grid))).reshape(-1, blocks.shape[-1])
        visits = visits[np.concatenate([[True], (visits[1:] != visits[:-1]).any(1)])]
        return h if len(np.unique(visits, axis=0)) == len(visits) else replace(
            h, mend=f"{WORDS['revisit'][2].partition('. ')[0]}. Let the steps of a block follow each other: sort the "
                    f"scalars that choose the blocks of {y.name}, and with them what else the steps take.")
    return [*map(mended, found)]


def two_on_a_block(y, indices, axis: int) -> tuple[int, int] | None:
    """The first two steps that differ along a grid axis and share a block of this output; None if no two do."""
    first: dict[tuple[int, ...], int] = {}
    for t, block in enumerate(y.blocks):
        if indices[first.setdefault(block, t)][axis] != indices[t][axis]:
            return first[block], t
    return None


def _unvisited(y) -> tuple:
    """How much of an output lies in no block that a step visits, and the first of it; () for nothing."""
    if y.starts:  # windows may overlap: count elements
        free = np.ones(y.shape, bool)
        for block in set(y.blocks):
            free[y.window(block)[0]] = False
        missing, total, what = [tuple(i) for i in np.argwhere(free)], free.size, "element"
    else:
        counts = [-(-n // b) for n, b in zip(y.shape, y.block_shape, strict=True)]
        visited, total, what = set(y.blocks), math.prod(counts), "block"
        every = itertools.product(*map(range, counts)) if len(visited) < total else ()
        missing = [b for b in every if b not in visited]
    return (f"{len(missing)} of its {many(total, what)}", missing[0]) if missing else ()


def provenance(schedule: Schedule) -> dict[tuple[str, Block], tuple[int, dict[str, Block]]]:
    """Where each output block in HBM came from: (array, block) -> (step that wrote it, input -> the block it read).

    Every copy lands at the wait that names its slot, as the simulator's "on_wait" has it; a block that was never waited
    for is not in the result. None stands for a slot that nothing had landed in.
    """
    slots: dict[tuple[str, int], Block] = {}
    results: dict[tuple[str, int], tuple[int, dict[str, Block]]] = {}
    out = {}
    for e, start in zip(schedule, schedule.copy_of.tolist(), strict=True):
        if e.verb == RUN:
            read = {x.name: slots.get((x.name, s)) for x, s in zip(schedule.operands, e.slots, strict=True)
                    if not x.is_output}
            for x, s in zip(schedule.operands, e.slots, strict=True):
                if x.is_output:
                    results[x.name, s] = e.step, read
        elif e.verb == IN_WAIT and start >= 0:
            slots[e.operand, e.slot] = schedule[start].block
        elif e.verb == OUT_WAIT and start >= 0 and (e.operand, e.slot) in results:
            out[schedule.operand(e.operand).array, schedule[start].block] = results[e.operand, e.slot]
    return out
