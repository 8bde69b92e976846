"""verify: a Schedule -> what can go wrong in it, each hazard with operand, step, slot, both events and a mend.

The rule is in races.py; here are the walk over a schedule's events, and the words.
"""
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, replace

from .clean import surely_clean
from .errors import many
from .races import Place, Races, Rectangles
from .schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, Schedule, window

RULES = {
    "hang": "every wait has a copy to wait for",
    "read before wait": "a slot is read only after its copy arrived",
    "overwrite in flight": "no slot is refilled or rewritten while a copy of it is in flight",
    "uninitialised": "a slot is read or copied out only after somebody filled it",
    "hbm race": "no block in HBM is written while another copy reads or writes it",
    "never waited": "every copy is waited for before the program ends",
    "revisit": "an output block is not written again after it was left",
    "unvisited": "every block of an output is visited",
    "parallel axis": "steps that a parallel axis may reorder do not share an output block",
    "unwritten": "every element of an output is written",
    "constant blocks": "the steps of a grid do different work",
    "written input": "a kernel does not write its inputs",
}
RACES = {"hang", "read before wait", "overwrite in flight", "hbm race", "never waited"}  # values depend on moments


@dataclass(frozen=True)
class Hazard:
    """One thing that is wrong with a schedule, or with a kernel's values.

    `events`: the numbers of the two events that clash, or of one that is wrong by itself; none for a block that nothing
    happens to. Reports about values name the run that left the value, and the copy that it meets next.
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


def verify(schedule: Schedule) -> list[Hazard]:
    """The hazards of a schedule, in program order; an empty list means that no choice of moments changes a result."""
    return [] if surely_clean(schedule) else _Walk(schedule).hazards


class _Walk:
    """Walks the events once, and puts what races.py finds into words."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.operands = {x.name: x for x in schedule.operands}
        self.hazards: list[Hazard] = []
        self.seen = set()  # (kind, events) already reported
        self.races = Races(self.clash)
        self.memory = _Memory(self.races, schedule.operands)
        self.left = {}  # (array, block) -> number of its last copy-out
        self.revisits = {}  # operand -> [number of its first hazard, count]
        rules = {IN_START: self.start, OUT_START: self.start, IN_WAIT: self.wait, OUT_WAIT: self.wait, RUN: self.run}
        for number, e in enumerate(schedule.events):
            rules[e.verb](number, e)
        self.finish()
        self.hazards.sort(key=lambda h: (h.kind != "hang", h.events[-1]))

    def report(self, kind, e, message, mend, operand, slot, *events):
        if (kind, events) not in self.seen:
            self.seen.add((kind, events))
            self.hazards.append(Hazard(kind, message, mend, operand, e.step, slot, events))

    # -- one method for each verb

    def start(self, number: int, e: Event):
        x = self.operands[e.operand]
        block, slot, size = self.memory.ends(x, e.block, e.slot)
        if e.verb == OUT_START and all(place.last is None for place in slot):
            name = f"{x.name}[{e.slot}]"
            what = f"copy_out sends {name} to {x.show(e.block)}, but no step has written {name} yet."
            mend = f"Run the kernel on {name} first, or copy out the slot that it wrote."
            self.report("uninitialised", e, what, mend, e.operand, e.slot, number)
        ends = (block, slot) if e.verb == IN_START else (slot, block)
        self.races.start(number, *ends, (e.operand, e.slot, e.verb), size)
        if e.verb == OUT_START:
            self.revisit(number, e, x)

    def wait(self, number: int, e: Event):
        started = IN_START if e.verb == IN_WAIT else OUT_START
        size = self.memory.size(self.operands[e.operand], e.block)
        if not self.races.wait((e.operand, e.slot, started), size):
            slot = f"{e.operand}[{e.slot}]"
            what = f"{e.verb}({slot}) waits for a copy that nobody started: the program would hang here."
            mend = f"Start a copy on {slot} before this wait, or drop the wait."
            self.report("hang", e, what, mend, e.operand, e.slot, number)

    def run(self, number: int, e: Event):
        for x, s in zip(self.schedule.operands, e.slots, strict=True):
            places = self.memory.slot(x, s)
            if x.is_output:
                self.races.write(number, places)
            # A part that no copy fills is the tail of an edge block: a run tells whether it reaches a result.
            elif self.races.read(number, places) == len(places):
                name = f"{x.name}[{s}]"
                self.report("uninitialised", e, f"the kernel reads {name}, which no copy has filled.",
                            f"Start a copy into {name} and wait for it first.", x.name, s, number)

    def finish(self):
        for (operand, slot, _), copies in self.races.in_flight.items():
            for number in copies:
                c = self.schedule.events[number]
                wait = IN_WAIT if c.verb == IN_START else OUT_WAIT
                block, place = self.operands[operand].show(c.block), f"{operand}[{slot}]"
                what = (f"the {c.verb.removesuffix('_start')} of {block} ({place}) is never waited for: nobody knows "
                        "whether it arrived.")
                mend = f"Call {wait}({place}) before the slot is used again, or at the end."
                self.report("never waited", c, what, mend, operand, slot, number)
        self.races.final(self.memory.hbm())
        for number, count in self.revisits.values():
            if count > 1:
                h = self.hazards[number]
                self.hazards[number] = replace(h, message=f"{h.message} ({count} such writes in all.)")

    # -- what they report

    def clash(self, kind: str, first: int, second: int):
        a, b = self.schedule.events[first], self.schedule.events[second]
        x = self.operands[a.operand]
        name, block = f"{a.operand}[{a.slot}]", x.show(a.block)
        if b.verb == RUN and kind == "read":
            name_of_it, slot = "read before wait", a.slot
            what = f"the kernel reads {name} while the copy of {block} to it is still in flight."
            mend = f"Call copy_in_wait({name}) before the kernel runs, or copy to another slot."
        elif b.verb == RUN:
            name_of_it, slot = "overwrite in flight", a.slot
            what = f"the kernel writes {name} while the copy of it to {block} is still in flight."
            mend = f"Wait with copy_out_wait({name}) before this step, or give {x.name} one more slot."
        elif a.verb == b.verb == IN_START:
            name_of_it, slot = "overwrite in flight", b.slot
            what = f"copy_in of {x.show(b.block)} writes {name} while the copy of {block} to it is still in flight."
            mend = f"Wait for {name} before starting this copy, or use another slot."
        else:
            name_of_it, slot = "hbm race", b.slot
            what = (f"{b.verb.removesuffix('_start')} of {self.operands[b.operand].show(b.block)} touches the block "
                    "that "
                    f"the {a.verb.removesuffix('_start')} of step {a.step} still has in flight.")
            mend = f"Wait for that copy (slot {a.slot} of {a.operand}) first."
            if a.operand != b.operand:
                mend += " Or do not alias them: a pallas_call waits no earlier."
        operand = a.operand if b.verb == RUN else b.operand
        self.report(name_of_it, b, what, mend, operand, slot, first, second)

    def revisit(self, number, e, x):
        before = self.left.get((x.array, e.block))
        self.left[x.array, e.block] = number
        if before is None:
            return
        if e.operand in self.revisits:
            self.revisits[e.operand][1] += 1
        else:
            self.revisits[e.operand] = [len(self.hazards), 1]
            then = self.schedule.events[before].step
            self.report("revisit", e, f"output block {x.show(e.block)} is written again after step {then} left it.",
                        "An output's value is not read back from HBM: what the earlier visit wrote is lost. Make the "
                        "axis that you reduce over the innermost (last) axis of the grid.",
                        e.operand, e.slot, before, number)


class _Memory:
    """The places of HBM and SRAM: whole blocks and slots, or pieces of them where two accesses overlap in part.

    That happens in an array where aliased operands cut it differently or windows overlap, and in a slot of an operand
    whose edge blocks fill it in part.
    """

    def __init__(self, races, operands):
        cuts = defaultdict(set)
        for x in operands:
            cuts[x.array].add((x.block_shape, x.starts))
        self.whole = defaultdict(Place)  # by array and block (None in front), or by operand and slot
        self.cut = {(None, array): Rectangles(races, [10**9] * len(next(iter(c))[0]))
                    for array, c in cuts.items() if len(c) > 1 or next(iter(c))[1]}
        self.cut |= {(x.name, s): Rectangles(races, x.block_shape)
                     for x in operands if x.ragged for s in range(x.depth)}

    def ends(self, x, block, slot) -> tuple[list[Place], list[Place], int]:
        """The places of a copy in the array and in the slot, and how many elements it moves."""
        here, there = (None, x.array), (x.name, slot)
        if here not in self.cut and there not in self.cut:
            return [self.whole[*here, block]], [self.whole[there]], self.size(x, block)
        array, part = window(x, block)
        return (self.cut[here].find(array) if here in self.cut else [self.whole[*here, block]],
                self.cut[there].find(part) if there in self.cut else [self.whole[there]], self.size(x, block))

    def slot(self, x, slot) -> list[Place]:
        key = x.name, slot
        return self.cut[key].find(tuple((0, n) for n in x.block_shape)) if key in self.cut else [self.whole[key]]

    def size(self, x, block) -> int:
        """How many elements a copy of a block moves, and a wait for it takes; None stands for a whole one."""
        if block is None or not x.ragged:
            return math.prod(x.block_shape)
        return math.prod(b - a for a, b in window(x, block)[0])

    def hbm(self):
        yield from (place for key, place in self.whole.items() if key[0] is None)
        for key, rectangles in self.cut.items():
            if key[0] is None:
                yield from rectangles.places.values()


def grid_hazards(operands, grid: tuple[int, ...], semantics, schedule: Schedule) -> list[Hazard]:
    """What is wrong with the blocks that a grid asks for: output blocks never visited, or shared along a parallel axis.

    `semantics`: "parallel" or "arbitrary" for each axis, or None (all arbitrary: steps run in order on one core).
    """
    found = []
    axes = [a for a, s in enumerate(semantics or ()) if "parallel" in str(s).lower()]
    ids = list(itertools.product(*map(range, grid))) if axes else []
    for i, y in ((i, x) for i, x in enumerate(operands) if x.is_output):
        counts = [-(-n // b) for n, b in zip(y.shape, y.block_shape, strict=True)]
        visited = set(y.blocks)
        # An aliased output keeps the operand's values where no step goes.
        shared = any(x.array == y.array for x in operands if x is not y) or y.array != y.name
        if len(visited) < math.prod(counts) and not shared:
            missing = next(b for b in itertools.product(*map(range, counts)) if b not in visited)
            total = math.prod(counts)
            what = (f"output {y.name}: {total - len(visited)} of its {many(total, 'block')} are never visited, the "
                    "first "
                    f"is {y.info.show(missing)}: they keep what memory held.")
            mend = "Make the grid or the index map cover every block."
            found.append(Hazard("unvisited", what, mend, y.name, 0, -1, ()))
        for axis in axes:
            first = {}
            for t, (position, block) in enumerate(zip(ids, y.blocks, strict=True)):
                other = first.setdefault(block, (t, position[axis]))
                if other[1] != position[axis]:
                    what = (f"output block {y.info.show(block)} is written by step {other[0]} too, and grid axis "
                            f"{axis} "
                            "between them is parallel: its steps may run in any order, or on two cores.")
                    mend = (f'Mark axis {axis} "arbitrary" in dimension_semantics, or give each of its steps an output '
                            "block of its own.")
                    found.append(Hazard("parallel axis", what, mend, y.name, t, int(schedule.columns.runs[t, i]),
                                        (int(schedule.runs[other[0]]), int(schedule.runs[t]))))
                    break
    return found


def provenance(schedule: Schedule) -> dict[tuple[str, tuple[int, ...]], tuple[int, dict[str, tuple[int, ...] | None]]]:
    """Where each output block in HBM came from: (array, block) -> (step that wrote it, input -> the block it read).

    Every copy lands at the wait that names its slot, as the simulator's "on_wait" has it; a block that was never waited
    for is not in the result. None stands for a slot that nothing had landed in.
    """
    slots, results, pending, out = {}, {}, defaultdict(list), {}
    for e in schedule:
        if e.verb == RUN:
            read = {x.name: slots.get((x.name, s)) for x, s in zip(schedule.operands, e.slots, strict=True)
                    if not x.is_output}
            for x, s in zip(schedule.operands, e.slots, strict=True):
                if x.is_output:
                    results[x.name, s] = e.step, read
        elif e.verb in (IN_START, OUT_START):
            pending[e.operand, e.slot, e.verb].append(e.block)
        else:
            queue = pending[e.operand, e.slot, IN_START if e.verb == IN_WAIT else OUT_START]
            if queue and e.verb == IN_WAIT:
                slots[e.operand, e.slot] = queue.pop(0)
            elif queue and (e.operand, e.slot) in results:
                out[schedule.operand(e.operand).array, queue.pop(0)] = results[e.operand, e.slot]
    return out
