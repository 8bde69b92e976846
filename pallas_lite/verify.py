"""verify: a Schedule -> what can go wrong in it, each hazard with operand, step, slot, both events and a mend.

A copy may read its source and write its destination at any moment between its start and the wait that guarantees it,
so two accesses clash when nothing orders them and one of them writes. The rules below walk the events once.

A wait takes one copy's worth from its slot's semaphore. It guarantees a copy only when it cannot have been satisfied by
another one: with two copies in flight on a slot, one wait guarantees neither.
"""
from collections import defaultdict
from dataclasses import dataclass

from .schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, Schedule

RULES = {
    "hang": "every wait has a copy to wait for",
    "read before wait": "a slot is read only after its copy arrived",
    "overwrite in flight": "no slot is refilled or rewritten while a copy of it is in flight",
    "uninitialised": "a slot is read or copied out only after somebody filled it",
    "hbm race": "no block in HBM is written while another copy reads or writes it",
    "never waited": "every copy is waited for before the program ends",
    "revisit": "an output block is not written again after it was left",
}


@dataclass(frozen=True)
class Hazard:
    """One thing that is wrong with a schedule. `events`: the numbers of the two events that clash."""

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
    return _Walk(schedule).hazards


class _Walk:
    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.hazards: list[Hazard] = []
        self.in_flight = defaultdict(list)  # (operand, slot, verb of its start) -> numbers of the start events
        self.waits = defaultdict(int)  # the same key -> waits since the slot was last quiet
        self.filled = set()  # (operand, slot) that a copy (inputs) or a run (outputs) has written
        self.hbm = defaultdict(list)  # (array, block) -> start events of copies in flight there
        self.written = {}  # (array, block) -> step of its last copy-out
        self.revisits = {}  # operand -> [first hazard's number, count]
        rules = {IN_START: self.start, OUT_START: self.start, IN_WAIT: self.wait, OUT_WAIT: self.wait, RUN: self.run}
        for number, e in enumerate(schedule.events):
            rules[e.verb](number, e)
        self.finish()

    def report(self, kind, e, message, mend, operand, slot, *events):
        self.hazards.append(Hazard(kind, message, mend, operand, e.step, slot, events))

    def start(self, number: int, e: Event):
        x = self.schedule.operand(e.operand)
        block, slot = x.show(e.block), f"{x.name}[{e.slot}]"
        others = self.in_flight[e.operand, e.slot, e.verb]
        if e.verb == IN_START:
            if others:
                first = self.schedule[others[0]]
                self.report("overwrite in flight", e, f"copy_in of {block} writes {slot} while the copy of "
                            f"{x.show(first.block)} to it is still in flight.",
                            f"Wait for {slot} before starting this copy, or use another slot.",
                            e.operand, e.slot, others[0], number)
            self.filled.add((e.operand, e.slot))
        elif (e.operand, e.slot) not in self.filled:
            self.report("uninitialised", e, f"copy_out sends {slot} to {block}, but no step has written {slot} yet.",
                        f"Run the kernel on {slot} first, or copy out the slot that it wrote.",
                        e.operand, e.slot, number)
        # In HBM: reads may share a block, a write shares it with nobody.
        for other in self.hbm[x.array, e.block]:
            if IN_START != e.verb or IN_START != self.schedule[other].verb:
                o = self.schedule[other]
                self.report("hbm race", e, f"{e.verb.removesuffix('_start')} of {block} touches the block that the "
                            f"{o.verb.removesuffix('_start')} of step {o.step} still has in flight.",
                            f"Wait for that copy (of {o.operand}[{o.slot}]) first.", e.operand, e.slot, other, number)
        self.hbm[x.array, e.block].append(number)
        if e.verb == OUT_START:
            self.revisit(number, e, x)
        others.append(number)

    def revisit(self, number, e, x):
        before = self.written.get((x.array, e.block))
        self.written[x.array, e.block] = e.step
        if before is None:
            return
        if e.operand in self.revisits:
            self.revisits[e.operand][1] += 1
        else:
            self.revisits[e.operand] = [len(self.hazards), 1]
            self.report("revisit", e, f"output block {x.show(e.block)} is written again after step {before} left it.",
                        "An output's value is not read back from HBM: what the earlier visit wrote is lost. Make the "
                        "axis that you reduce over the innermost (last) axis of the grid.", e.operand, e.slot, number)

    def wait(self, number: int, e: Event):
        key = e.operand, e.slot, IN_START if e.verb == IN_WAIT else OUT_START
        started = self.in_flight[key]
        if self.waits[key] == len(started):
            slot = f"{e.operand}[{e.slot}]"
            self.report("hang", e, f"{e.verb}({slot}) waits for a copy that nobody started: the program would hang "
                        "here.", f"Start a copy on {slot} before this wait, or drop the wait.",
                        e.operand, e.slot, number)
            return
        self.waits[key] += 1
        # Only when all that was started has been waited for is any of it guaranteed.
        if self.waits[key] == len(started):
            for copy in started:
                c = self.schedule[copy]
                self.hbm[self.schedule.operand(c.operand).array, c.block].remove(copy)
            started.clear()
            self.waits[key] = 0

    def run(self, number: int, e: Event):
        for x, s in zip(self.schedule.operands, e.slots, strict=True):
            slot = f"{x.name}[{s}]"
            copies = self.in_flight[x.name, s, OUT_START if x.is_output else IN_START]
            if copies and x.is_output:
                c = self.schedule[copies[0]]
                self.report("overwrite in flight", e, f"the kernel writes {slot} while the copy of it to "
                            f"{x.show(c.block)} is still in flight.",
                            f"Wait with copy_out_wait({slot}) before this step, or give {x.name} one more slot.",
                            x.name, s, copies[0], number)
            elif copies:
                c = self.schedule[copies[0]]
                self.report("read before wait", e, f"the kernel reads {slot} while the copy of {x.show(c.block)} to it "
                            "is still in flight.", f"Call copy_in_wait({slot}) before the kernel runs.",
                            x.name, s, copies[0], number)
            elif not x.is_output and (x.name, s) not in self.filled:
                self.report("uninitialised", e, f"the kernel reads {slot}, which no copy has filled.",
                            f"Start a copy into {slot} and wait for it first.", x.name, s, number)
            if x.is_output:
                self.filled.add((x.name, s))

    def finish(self):
        for (operand, slot, _), copies in self.in_flight.items():
            for number in copies:
                c = self.schedule[number]
                wait = IN_WAIT if c.verb == IN_START else OUT_WAIT
                block = self.schedule.operand(operand).show(c.block)
                self.report("never waited", c, f"the {c.verb.removesuffix('_start')} of {block} ({operand}[{slot}]) is "
                            "never waited for: nobody knows whether it arrived.",
                            f"Call {wait}({operand}[{slot}]) before the slot is used again, or at the end.",
                            operand, slot, number)
        for number, count in self.revisits.values():
            if count > 1:
                h = self.hazards[number]
                self.hazards[number] = Hazard(h.kind, f"{h.message} ({count} such writes in all.)", h.mend, h.operand,
                                              h.step, h.slot, h.events)


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
