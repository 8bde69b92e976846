"""copy_nudges: what is said of a kernel with copies of its own that goes wrong. In: its schedule, or its error.

Asked by chapter9.py, exercise 9.2, for n blocks through two slots each way. A sentence names only what the schedule
shows to be so. Its sister for hand-written loops is loop_nudges.py.
"""
import re
from collections import Counter
from dataclasses import replace

from pallas_lite import Hazard, Schedule, timeline
from pallas_lite.hardware import TOY
from pallas_lite.schedule import Event

from ..exercise import Wrong
from .kernels import contract

BLOCK = 8 * 128 * 4  # bytes of a block
WORK = 2.0 * 8 * 128  # operations on it


def blocks_of(n: int) -> str:
    return "is one block, 0" if n == 1 else f"are blocks 0 to {n - 1} only"


# -- errors

def not_a_block(message: str, n: int) -> str:
    """For a copy of a block that there is not."""
    if slot := re.search(r"(\w+_vmem): index", message):
        return f"{slot[1]} has slots, not a place for each block: block i goes into slot i % 2, for each i."
    asked = re.search(r"(\w+): slice (-?\d+):", message)
    if not asked or int(asked[2]) % 8:
        return f"There {blocks_of(n)}, and block i begins at row 8·i."
    block = int(asked[2]) // 8
    there = f"That line asks for block {block}, and there {blocks_of(n)}. "
    if block < 0:
        return f"{there}Where a line asks for the block before, say when there is none before."
    if asked[1].startswith("o"):
        return f"{there}Which one leaves last?"
    return f"{there}Where a line asks for the next block, say when there is no next block to start."


def wait_in_vain(message: str, n: int) -> str:
    """For a wait that no copy will end."""
    if "Instead, " in message:
        return ""  # it says which copy was started in its place
    if "was waited for already" in message:
        return "Each start has one wait. Here two waits are for one copy: is there another copy that has none?"
    return "Each wait needs a start before it. Which line starts the copy of this block?"


# -- hazards

def insist_one_slot(told: str, schedule: Schedule, case: str) -> None:
    """Raises Wrong where a line takes both slots of a buffer at once, as the kernel's own side tells."""
    if whole := re.search(r"the kernel (read|write)s ([xo]_vmem) \(line (\d+)", told):
        verb, name, line = whole.groups()
        raise Wrong(f"The kernel {verb}s both slots of {name} at once.", case=case, schedule=schedule,
                    got=told.partition("\n")[0],
                    nudge=f"In line {line}, {name}[...] is the whole buffer, and {name}[i % 2] one slot of it.")


def first_hazard(schedule: Schedule, hazards: list[Hazard], n: int) -> str:
    first = hazards[0]
    if first.kind == "never waited":
        return _never_waited(schedule, hazards, n)
    if first.kind == "uninitialised":
        return _uninitialised(schedule, first)
    if first.kind == "overwrite in flight" and first.operand == "o_vmem":
        return "The slot is still being sent out when it is written again. Which wait should stand before the compute?"
    if first.kind == "overwrite in flight":
        return ("The slot is still being filled when another copy into it starts. Which slot is free then, or which "
                "wait should stand before this start?")
    if first.kind == "read before wait":
        return "A start only hands in the order; the block is there after its wait."
    return first.mend


def _never_waited(schedule: Schedule, hazards: list[Hazard], n: int) -> str:
    way = {"x_vmem": "in", "o_vmem": "out"}[hazards[0].operand]
    left = [schedule.events[h.events[-1]] for h in hazards if h.kind == "never waited"]
    blocks = [e.block[0] for e in left if e.operand == hazards[0].operand]
    starts = Counter(e.block[0] for e in schedule if e.verb == f"copy_{way}_start")
    if starts[blocks[0]] > 1:
        return (f"The copy {way} of block {blocks[0]} is started {starts[blocks[0]]} times. Which of the starts is one "
                "too many?")
    nobody = f"Nobody waits for the copy {way} of block {blocks[0]}. "
    if way == "in":
        return f"{nobody}Each step waits for its own block before it computes: in the last step, too."
    if blocks[0] == n - 1:
        return (f"{nobody}Each start needs one wait. After the last step a copy is still under way: only an epilogue "
                "can wait for it.")
    return (f"{nobody}The step after may wait for it, once its own copy out is started; and what the loop leaves, the "
            "epilogue waits for.")


def _uninitialised(schedule: Schedule, hazard: Hazard) -> str:
    number = hazard.events[0]
    e, before, behind = schedule.events[number], schedule.events[:number], schedule.events[number + 1:]
    if hazard.operand == "x_vmem":
        if not any(b.verb == "copy_in_start" for b in before):
            return "The kernel computes before any copy in is started. Which line starts the first one?"
    elif not any(map(_writes, schedule)):
        return "No line of the kernel writes o_vmem. Which line computes the block that is to be sent out?"
    elif sum(map(_writes, before)) <= e.block[0] and any(_writes(b) and b.slots[1] == e.slot for b in behind):
        return (f"o_vmem[{e.slot}] is sent out before the kernel writes it. Start the copy out behind the line that "
                "computes.")
    return "Say aloud which slot the copy of this block fills, which one the kernel reads, and which one is sent out."


def _writes(e: Event) -> bool:
    return e.verb == "run" and e.slots[1] >= 0


# -- time

def insist_time(schedule: Schedule, n: int, case: str) -> None:
    """No slower than pallas_call's own order with two slots, on the toy machine."""
    # Where a kernel reads in one stretch and writes in another, the work is in the second.
    works = replace(schedule, events=tuple(e for e in schedule if e.verb != "run" or e.slots[1] >= 0))
    t, limit = timeline(works, TOY), timeline(contract(n, 2, BLOCK // 4, WORK), TOY).total
    if t.total <= limit * (1 + 1e-9):
        return
    ran = [k for k, e in enumerate(works) if e.verb == "run"]
    at = {(e.verb, e.block[0]): k for k, e in enumerate(works) if e.verb != "run"}
    late = [i for i in range(1, n) if at.get(("copy_in_start", i), 0) > ran[i - 1]] if len(ran) == n else []
    early = [i for i in range(n - 1) if at.get(("copy_out_wait", i), ran[-1]) < ran[i + 1]] if len(ran) == n else []
    nudges, spots = [], [s for s in t.spans if s.waiting and s.start > 0]
    if late:
        nudges.append(f"The copy in of block {late[0]} is started when step {late[0] - 1} has run. Start the next copy "
                      "in before you wait for this one, and it runs beside this step.")
    if early:
        nudges.append(f"Step {early[0] + 1} runs when the copy out of block {early[0]} is over. Wait for a copy out "
                      "one block later than it was started, behind the line that computes.")
    slow = {name for name, found in (("x_vmem", late), ("o_vmem", early)) if found}
    spots = [s for s in spots if works.events[s.event].operand in slow] or spots
    where = f" It stands still in step {spots[0].step}, at {spots[0].label}." if spots else ""
    raise Wrong(f"Right, but the core waits too much.{where}", case=case, timeline=t,
                got=f"{t.total * 1e6:.4g} µs on the toy machine", expected=f"at most {limit * 1e6:.4g} µs",
                nudge=" ".join(nudges) or "Which of your starts could stand earlier, and which of your waits later?")
