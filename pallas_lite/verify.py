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

# What the walk says: kind, message and mend. `slot`, `block`, `verb`, `way` are those of the event that it is about;
# with `first_` in front, those of the event that came before it.
WORDS = {
    "hang": ("hang", "{verb}({slot}) waits for a copy that nobody started: the program would hang here.",
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
                   "{way} of {block} touches the block that the {first_way} of step {first_step} still has in flight.",
                   "Wait for that copy (slot {first_number} of {first_operand}) first.{aliased}"),
    "revisit": ("revisit", "output block {block} is written again after step {first_step} left it.",
                "An output's value is not read back from HBM: what the earlier visit wrote is lost. Make the axis that "
                "you reduce over the innermost (last) axis of the grid."),
}


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

    def report(self, words, e, *events, first=None, **more):
        """A hazard at event `e`, in these words."""
        kind, *texts = WORDS[words]
        if (kind, events) not in self.seen:
            self.seen.add((kind, events))
            facts = self.facts(e) | {f"first_{k}": v for k, v in self.facts(first or e).items()} | more
            self.hazards.append(Hazard(kind, *(t.format(**facts) for t in texts), e.operand, e.step, e.slot, events))

    def facts(self, e):
        return {"operand": e.operand, "slot": f"{e.operand}[{e.slot}]", "number": e.slot, "step": e.step,
                "block": self.operands[e.operand].show(e.block), "verb": e.verb, "way": e.verb.rpartition("_")[0]}

    # -- one method for each verb

    def start(self, number: int, e: Event):
        x = self.operands[e.operand]
        block, slot, size = self.memory.ends(x, e.block, e.slot)
        if e.verb == OUT_START and all(place.last is None for place in slot):
            self.report("sends nothing", e, number)
        ends = (block, slot) if e.verb == IN_START else (slot, block)
        self.races.start(number, *ends, (e.operand, e.slot, e.verb), size)
        if e.verb == OUT_START:
            self.revisit(number, e, x)

    def wait(self, number: int, e: Event):
        started = IN_START if e.verb == IN_WAIT else OUT_START
        size = self.memory.size(self.operands[e.operand], e.block)
        if not self.races.wait((e.operand, e.slot, started), size):
            self.report("hang", e, number)

    def run(self, number: int, e: Event):
        for x, s in zip(self.schedule.operands, e.slots, strict=True):
            places = self.memory.slot(x, s)
            if x.is_output:
                self.races.write(number, places)
            # A part that no copy fills is the tail of an edge block: a run tells whether it reaches a result.
            elif self.races.read(number, places) == len(places):
                self.report("reads nothing", e._replace(operand=x.name, slot=s), number)

    def finish(self):
        for number in itertools.chain(*self.races.in_flight.values()):
            self.report("no wait", self.schedule.events[number], number)
        self.races.final(self.memory.hbm())
        for number, count in self.revisits.values():
            if count > 1:
                h = self.hazards[number]
                self.hazards[number] = replace(h, message=f"{h.message} ({count} such writes in all.)")

    # -- what they report

    def clash(self, kind: str, first: int, second: int):
        a, b = self.schedule.events[first], self.schedule.events[second]
        if b.verb == RUN:
            self.report("read early" if kind == "read" else "written", a._replace(step=b.step), first, second)
        elif a.verb == b.verb == IN_START:
            self.report("refilled", b, first, second, first=a)
        else:
            aliased = " Or do not alias them: a pallas_call waits no earlier." if a.operand != b.operand else ""
            self.report("met in HBM", b, first, second, first=a, aliased=aliased)

    def revisit(self, number, e, x):
        before = self.left.get((x.array, e.block))
        self.left[x.array, e.block] = number
        if before is None:
            return
        if e.operand in self.revisits:
            self.revisits[e.operand][1] += 1
        else:
            self.revisits[e.operand] = [len(self.hazards), 1]
            self.report("revisit", e, before, number, first=self.schedule.events[before])


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
