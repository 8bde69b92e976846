"""loop_nudges: what is said of a hand-written loop that goes wrong. In: its schedule and hazards, or its error.

Out: the hazard to show, and a sentence for it. Asked by chapter3.py, whose judge chapter 7 shares.
"""
import itertools
import re

import pallas_lite as pl
from pallas_lite.errors import many

from ..exercise import AnswerFailed, Trial


def the_cause(hazards: list[pl.Hazard]) -> pl.Hazard:
    """The first hazard of the program; but where Y is written over a copy on its way, that is why its wait is missed.

    `hazards` has those that hang first. What is wrong before a hang is most often why it hangs, and comes first here.
    """
    first = hazards[0]
    if first.kind == "hang":
        before = [h for h in hazards if h.kind != "never waited" and h.events[-1] < first.events[-1]]
        first = min(before, key=lambda h: h.events[-1], default=first)
    clashes = [h for h in hazards if h.kind == "overwrite in flight" and h.operand == first.operand == "Y"
               and first.kind == "never waited" and h.events[0] == first.events[-1]]
    return [*clashes, first][0]


def between_steps(schedule: pl.Schedule, event: int) -> str:
    """Where in the program an event stands, by the steps that have run: "between steps 0 and 1"."""
    ran = sum(e.verb == "run" for e in schedule.events[:event])
    return f"between steps {ran - 1} and {ran}" if 0 < ran < schedule.steps else f"after step {ran - 1}" if ran else \
        "before step 0"


NUDGES = {
    "read before wait": "A start only hands in the order. The data are there after the wait, so the wait must stand "
                        "before the compute that reads this slot. And a slot that is being read cannot be filled at "
                        "the same time.",
    "uninitialised": "Follow this slot backwards through the table: who filled it before it is used here?",
    "hbm race": "Two copies write one block of B at the same time. Each block of B should be written once. Which index "
                "does this copy out use?",
    "revisit": "Each block of B should be written once. Which index does this copy out use?",
}


def first_hazard(schedule: pl.Schedule, hazard: pl.Hazard, n: int) -> str:
    """The nudge for a hazard: what was probably meant."""
    if hazard.operand == "X" and hazard.kind in ("overwrite in flight", "never waited") and \
            (twice := _started_twice(schedule, hazard)):
        return twice
    if hazard.kind == "overwrite in flight":
        if hazard.operand != "X":
            return _rewritten(schedule, hazard)
        used, depth = {e.slot for e in schedule if e.operand == "X"}, schedule.operand("X").depth
        if depth == 1:
            return ("The only slot is still being filled, and a slot takes one block at a time. With depth = 1 there "
                    "is none next door: a block may leave only after the step has used the one before it.")
        if len(used) == 1:
            return (f"X[{hazard.slot}] is still being filled, and a slot takes one block at a time. There are {depth} "
                    f"slots, and every copy in goes to X[{hazard.slot}]: let block i go to slot i % depth.")
        before = schedule.events[:hazard.events[-1]]
        started, ran = (sum(e.verb == verb for e in before) for verb in ("copy_in_start", "run"))
        if started - ran >= depth:
            return (f"{many(started, 'block')} came before it, and {many(ran, 'step')} ran: none of the {depth} slots "
                    "is free. A slot is free once the step that reads its block has run: start the copy behind that.")
        return ("The slot is still being filled with another block. A slot of X takes one block at a time: next "
                "door is slot (i + 1) % depth.")
    if hazard.kind == "never waited" and hazard.operand == "X":
        return ("Nobody waits for this copy in. Step i needs the wait for its own block, in slot i % depth, before "
                "the compute that reads it.")
    if hazard.kind == "never waited":
        return ("Count starts and waits of this slot: each start needs one wait. After the last step some copies are "
                "still under way, and only an epilogue can wait for them.")
    if hazard.kind == "hang" and hazard.operand == "X":
        if _waited_twice(schedule, hazard):
            return (f"X[{hazard.slot}] has been waited for already, and no copy to it was started since. Each start "
                    "has one wait.")
        return _another_is_coming(schedule, hazard) or (
            "This wait is for a copy in that has not been started. Which line starts the copy of the very first "
            "block, and of this one?")
    if hazard.kind == "hang":
        return _waited_in_vain(schedule, hazard, n)
    if hazard.kind == "uninitialised" and hazard.operand == "Y":
        return _sent_unwritten(schedule, hazard) or NUDGES[hazard.kind]
    return NUDGES[hazard.kind]


def _another_is_coming(schedule: pl.Schedule, hazard: pl.Hazard) -> str:
    """What to say of a wait for one slot of X where the next step reads another, to which a copy is on its way."""
    at, coming = hazard.events[-1], {}
    for e in schedule.events[:at]:
        if e.verb == "copy_in_start":
            coming[e.slot] = e.block[0]
        elif e.verb == "copy_in_wait":
            coming.pop(e.slot, None)
    run = next((e for e in schedule.events[at:] if e.verb == "run"), None)
    if run is None or run.slots[0] not in coming:
        return ""
    slot = run.slots[0]
    return (f"This wait is for X[{hazard.slot}], and no copy is on its way there. A[{coming[slot]}] is on its way to "
            f"X[{slot}], which step {run.step} reads. Is that the slot that you wait for?")


def _sent_unwritten(schedule: pl.Schedule, hazard: pl.Hazard) -> str:
    """What to say of a copy out of a slot that no step has written yet: too early, or the wrong slot; else ""."""
    at, slot = hazard.events[-1], f"Y[{hazard.slot}]"
    last = next((e for e in reversed(schedule.events[:at]) if e.verb == "run"), None)
    then = next((e for e in schedule.events[at:] if e.verb == "run"), None)
    if last is not None and last.slots[1] != hazard.slot:
        return (f"Step {last.step} wrote Y[{last.slots[1]}], and this copy out sends {slot}. Which of the two holds "
                "what it should send?")
    if last is None and then is not None and then.slots[1] == hazard.slot:
        return f"A copy out starts after the step that writes its slot: step {then.step} writes {slot}."
    return ""


def _started_twice(schedule: pl.Schedule, hazard: pl.Hazard) -> str:
    """What to say if the slot of a hazard gets a block that it gets already, and no step lies between; else ""."""
    coming = None  # the block on its way to the slot, or there and not read yet
    for e in schedule:
        if e.verb == "run" and e.slots[0] == hazard.slot:
            coming = None
        elif e.verb == "copy_in_start" and e.slot == hazard.slot:
            if e.block == coming:
                return (f"A[{e.block[0]}] is started twice: a second copy of it to X[{e.slot}], before any step has "
                        "read the first. One of the two starts is too many.")
            coming = e.block
    return ""


def _rewritten(schedule: pl.Schedule, hazard: pl.Hazard) -> str:
    """The kernel writes a slot of Y that is still on its way out: no wait, one of another slot, or one that is late."""
    start, run = hazard.events
    sent, step, slot = schedule[start].step, schedule[run].step, f"Y[{hazard.slot}]"
    waits = [e for e in schedule.events[start:run] if e.verb == "copy_out_wait"]
    if waits and waits[-1].step == step:
        return (f"Before the kernel runs in step {step}, your loop waits for Y[{waits[-1].slot}], and the kernel then "
                f"writes {slot}. Is that the slot whose copy out must be over?")
    return (f"Step {sent} sent {slot} on its way, and step {step} writes it anew while the copy out still reads it. "
            "Wait for the older copy before the kernel runs, not after. From which step on must your loop wait?")


def _waited_twice(schedule: pl.Schedule, hazard: pl.Hazard) -> bool:
    """Has this slot of X been waited for already, for the step that has not run yet?"""
    since = itertools.takewhile(lambda e: e.verb != "run", reversed(schedule.events[:hazard.events[-1]]))
    return any(e.verb == "copy_in_wait" and e.slot == hazard.slot for e in since)


def _waited_in_vain(schedule: pl.Schedule, hazard: pl.Hazard, n: int) -> str:
    """A wait for a copy out that is not under way: in the epilogue, a second time, for another slot, or too early."""
    at, slot = hazard.events[-1], f"Y[{hazard.slot}]"
    before = schedule.events[:at]
    in_epilogue = not any(e.verb == "run" for e in schedule.events[at:])
    if not n:
        return ("Without a step no copy out is under way, and the epilogue has none to wait for. How many are left "
                "after the last step when there are fewer steps than slots?")
    sent = {e.slot for e in before if e.verb == "copy_out_start"}
    waits = sum(e.verb == "copy_out_wait" for e in schedule)
    if in_epilogue and schedule.steps < n:
        return (f"{many(schedule.steps, 'step') if schedule.steps else 'No step'} ran, and there "
                f"{'is' if n == 1 else 'are'} {many(n, 'block')}. Does your loop reach each of them?")
    if in_epilogue and waits > n and hazard.slot not in sent:
        return (f"The epilogue waits for {slot}, which no copy has left. How many copies out are under way after "
                f"{many(n, 'step')}, and in which slots?")
    if in_epilogue and [e.slot for e in before if e.verb == "copy_out_start"][-1:] == [hazard.slot]:
        return (f"{slot} has been waited for already, and no copy has left it since. How many copies out are under way "
                f"after {many(n, 'step')}, and in which slots?")
    if in_epilogue:
        return (f"This is the epilogue. After {many(n, 'step')}, which slot did the last copy out leave from, and is "
                "it the one that you wait for?")
    if hazard.slot in sent:
        return (f"{slot} has been waited for already, and no copy has left it since. Which slot is the kernel about to "
                "write in this step, and is it the one that you wait for?")
    if sent:
        return (f"No copy has left {slot} yet. Which slot is the kernel about to write in this step, and when was a "
                "copy sent from it? A wait for an older copy needs an if that says from which step on there is one.")
    return "In the first steps nothing older is under way yet. A wait for an older copy needs an if."


def loop_error(failed: AnswerFailed, trial: Trial, n: int, depth: int) -> str:
    """The nudge for a loop that asked for a block or slot that is not there. Other messages say enough themselves."""
    if failed.kind != "BlockIndexError":
        return ""
    if n == 0:
        return "With no blocks there is no first copy to start and no last one to wait for: guard both ends."
    missing = re.search(r"[AB]\[-?\d+\] does not exist|\((-?\d+)\): the grid .* has no step", failed.message)
    if missing and trial.number == "3.9" and missing[1] != f"{n}":  # else the loop goes one step too far
        steps = f"from 0 to {n - 1}" if n > 1 else "0 only"
        return (f"A slice takes a step, here {steps}, and gives the number of a block, just as it is: "
                "A[in_slices(i)], B[out_slices(i)].")
    if missing and "[-" in failed.message:
        return ("Is this the block that you mean here? If there is one from some step on only, say when the copy "
                "should not happen.")
    if missing:
        return ("Which blocks and slots are there in this case? Let the loop make a step for each block, N in all, and "
                "say when the copy should not happen.")
    if depth == 1:
        where = "Exercise 3.2 has" if trial.number == "3.2" else "With depth = 1 there is"
        return f"{where} one slot of each: X[0] and Y[0]."
    return ""
