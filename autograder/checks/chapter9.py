"""Checks of chapter 9, TPU programs. In: a handle on the answer. Out: nothing, or Wrong with the first slip.

A kernel with copies of its own is judged by its schedule, as the loops of chapter 3: what it did is taken as plain
events; hazards, provenance, copies and time are found here.
"""
import contextlib
import math
import re

import numpy as np

from pallas_lite import Schedule, Timeline, cdiv, provenance, timeline, verify
from pallas_lite.engines.record import record
from pallas_lite.errors import PallasLiteError, many
from pallas_lite.hardware import TPU_V5E
from pallas_lite.lowering.tiles import check as insist_tiles
from pallas_lite.lowering.tiles import tiled_bytes
from pallas_lite.schedule import OperandInfo
from pallas_lite.specs import Operand

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, same_array
from ..judge.predict import Asked, predict
from .copy_nudges import BLOCK, WORK, blocks_of, first_hazard, insist_one_slot, insist_time, not_a_block, wait_in_vain
from .kernels import how_cut, insist_values, operands_of, own_copies, random_array, run, sizes, the_call
from .naming import insist_names
from .tuning import what_helps

MiB = 2**20


@predict("9.1", "Count before you read", points=3,
         show=lambda p: f"x is f32[{p.m}, {p.n}], bm = {p.bm}, bn = {p.bn}, {p.x_depth} slots for x, 2 for row, "
                        f"{p.o_depth} for o")
def count(p) -> list[Asked]:
    parts_of_row, steps = p.n // p.bn, (p.m // p.bm) * (p.n // p.bn)
    copies = 2 * steps + parts_of_row
    return [
        Asked("The number of enqueue_dma", "instructions", p.x_depth + 3, [
            *([("row needs no prologue", p.x_depth + 2, "One start is missing, before the loop. There each input, row "
                "too, starts the blocks of steps 0 to depth − 2.")] if p.x_depth > 3 else []),  # else 5, see below
            ("one instruction for each copy", copies,
             "That many copies are made when it runs. In the text, the copies of a loop are one instruction."),
            ("one instruction for each operand", 3,
             "Those are the loop's. What is started before the loop, so that it can run ahead?"),
            ("the prologue starts the first block only", 5,
             "x has more than two slots, so the loop runs further ahead, and the prologue starts more blocks of x."),
            ("the prologue fills all slots", p.x_depth + 4,
             "The loop itself starts the block of step t + depth − 1, and at t = 0 that fills the last slot. How many "
             "are left to the prologue?")], 0,
            "In the loop, one start for each operand. And before it, what does each input start ahead?"),
        Asked("The number of wait_dma", "instructions", p.o_depth + 2, [
            ("as many waits as starts", p.x_depth + 3,
             "When it runs there is a wait for each start. In the text, one wait in the loop may serve a start in the "
             "prologue and one in the loop."),
            ("only the loop waits", 3, "And after the loop? Some copies out are still under way."),
            ("the epilogue waits for every slot", p.o_depth + 3,
             "In the last step the loop still waits for one older copy out. How many are left after it?"),
            ("one wait for each copy", copies, "That many waits happen when it runs; the loop's are one instruction "
                                               "each.")], 0,
            "In the loop, one wait for each operand. And after it, which copies are still under way?"),
        Asked("The number of copies started when it runs", "copies", copies, [
            ("row is copied in every step", 3 * steps,
             "row's block follows j, the outer axis: it stays for a whole run of steps, and is then not copied."),
            ("instructions are copies", p.x_depth + 3, "Those are instructions; the loop's are executed many times."),
            ("results need no copy", steps + parts_of_row, "Each block of the result is copied out, too."),
            ("outputs are fetched first", 3 * steps + parts_of_row, "An output is not read from HBM; its slots are "
                                                                    "only written, and copied out."),
            ("row is copied once", 2 * steps + 1,
             "row has several blocks, one for each j, and each of them is copied once.")], 0,
            "Count for each operand apart: a block is copied each time that another one than in the step before is "
            "needed."),
    ]


@exercise("9.2", "A double buffer of your own", points=4)
def double_buffer(answer: Handle, trial: Trial) -> None:
    for n in trial.pick(visible=(1, 2, 3, 4, 7), hidden=(1, 2, 3, 4, 5, 6, 9, 12)):
        x, case = random_array(trial, (8 * n, 128)), f"x is f32[{8 * n}, 128]: {n} block{'s' * (n > 1)} of 8 rows"
        try:
            did = run(answer, case, how_cut("x", x.shape, (8, 128)), x)
        except AnswerFailed as failed:
            if failed.kind in ("BlockIndexError", "PipelineError"):
                failed.nudge = (not_a_block if failed.kind == "BlockIndexError" else wait_in_vain)(failed.message, n)
            raise
        call = own_copies(did, case)
        schedule = in_blocks(call.schedule, n, case)
        # A slot that is sent out and never written: where another one was written instead, that is the cause of all.
        if hazards := sorted(verify(schedule), key=lambda h: (h.kind, h.operand) != ("uninitialised", "o_vmem")):
            told = "".join(call.hazards[:1])  # knows the lines and semaphores
            insist_one_slot(told, schedule, case)
            nudge = told if "share semaphore" in told else first_hazard(schedule, hazards, n)
            raise Wrong(f"The kernel has a hazard: {hazards[0].kind}.", case=case, schedule=schedule, hazard=hazards,
                        nudge=nudge)
        if call.hazards:
            raise Wrong("The kernel has a hazard.", case=case, schedule=schedule, nudge=call.hazards[0])
        made = provenance(schedule)
        missing = [i for i in range(n) if ("o_hbm", (i,)) not in made]
        if missing:
            raise Wrong(f"Block {missing[0]} of the result is never copied out.", case=case, schedule=schedule,
                        nudge="Which step sends its slot to this block?")
        for name, way in (("x_vmem", "in"), ("o_vmem", "out")):
            if schedule.copies(name) > n:
                raise Wrong("Each block should be copied once each way.", case=case, schedule=schedule,
                            got=f"{schedule.copies(name)} copies {way}", expected=f"{n}")
        in_place = all(made["o_hbm", (i,)][1]["x_vmem"] == (i,) for i in range(n))
        same_array(did.result, 3 * x + 1, case=case, schedule=schedule, nudge="The copies are in order. " + (
            "The slots are, too: each block is made from its own. Does the kernel compute 3·x + 1?" if in_place else
            "Does the kernel read the slot that this block went into, and write the slot that is sent out?"))
        insist_time(schedule, n, case)
    insist_program(answer, random_array(trial, (24, 128)))


def insist_program(answer: Handle, x) -> None:
    """A TPU program can be made of the kernel: no line of it asks for what only a running step knows."""
    try:
        answer.ask("program", x)
    except AnswerFailed as failed:
        if failed.kind == "SpecError":  # what is not supported here may be right all the same
            raise Wrong("The kernel is right where it runs step by step, but no TPU program can be made of it.",
                        case=how_cut("x", x.shape, (8, 128)), got=failed.message,
                        nudge="No step runs while a program is made. " + (
                            "@pl.when(condition) over a function becomes an if of the program."
                            if "Python decides" in failed.message else
                            "Which value does that line ask for that only a running step has?")) from None


def in_blocks(told: Schedule, n: int, case: str) -> Schedule:
    """What the kernel did, on operands of our own: x and the result in blocks of 8 rows. Raises Wrong for others."""
    sides = {x.is_output: x for x in told.operands}
    if len(told.operands) > len(sides) or any(x.block_bytes != BLOCK or x.depth > 2 for x in told.operands):
        raise Wrong("The copies should move x to x_vmem and the result from o_vmem, a block of 8 rows each.", case=case,
                    got=", ".join(f"{x.array} and {x.name}, {x.block_bytes} bytes a copy" for x in told.operands),
                    nudge="copy_in(i) and copy_out(i) are defined for you. All that is to choose is when to start "
                          "them and when to wait.")
    if len(sides) < 2:
        raise Wrong("The kernel should copy blocks in and copy blocks out.", case=case, schedule=told,
                    nudge="Start copy_in(i) and copy_out(i) for each i, and wait for them.")
    ours = {sides[out].name: OperandInfo(name, array, out, 2, BLOCK, (8,), (8 * n,))
            for out, name, array in ((False, "x_vmem", "x_hbm"), (True, "o_vmem", "o_hbm"))}
    order, events = [told.operands.index(sides[out]) for out in (False, True)], []
    for e in told:
        if e.verb == "run":
            events.append(e._replace(slots=tuple(e.slots[i] for i in order)))
            continue
        block = e.block or (0,)  # a wait for nothing does not come here; an array of one block is not cut
        if block[0] >= n:
            raise Wrong("A copy takes 8 rows that are not one of the blocks.", case=case, schedule=told,
                        nudge=f"There {blocks_of(n)}.")
        events.append(e._replace(operand=ours[e.operand].name, block=block))
    return Schedule(tuple(events), tuple(ours.values()), WORK, "kernel")


KERNELS = {"a": "fine", "b": "shared semaphore", "c": "never waited", "d": "overwrite in flight"}
ABOUT = {
    "shared semaphore": "Look at the copies out. When this kernel waits for one, how many are under way on the "
                        "semaphore that it waits on?",
    "overwrite in flight": "Take n = 2. When block 1's result is written to o_vmem[0], is the copy of block 0 out of "
                           "it over?",
    "never waited": "Count starts and waits of the copies out, for n = 2.",
    "fine": "A wait does not name a copy: it counts bytes on a semaphore. Is any other copy under way on that "
            "semaphore? Strange is not wrong.",
}


@exercise("9.3", "Which of these may run?", points=3)
def races(answer: Handle, trial: Trial) -> None:
    insist_names(answer, KERNELS, ABOUT, "kernel")


LEAST = 1_000_000  # numbers in x, from which on the time counts


@exercise("9.4", "Make it compile, and make it fast", points=3)
def in_tiles(answer: Handle, trial: Trial) -> None:
    shapes = [(1000, 1200), (512, 2500), (8192, 128), (2008, 520)]
    if trial.hidden:
        n = int(100 * 25 ** trial.rng.random())
        shapes = [(1008, 1200), (520, 2500), (cdiv(LEAST, 8 * n) * 8, n)]
    for m, n in shapes:
        x, case = random_array(trial, (m, n)), f"x is f32[{m}, {n}]"
        did = run(answer, case, f"x has {m} rows and {n} columns", x)
        call = the_call(did, [x], [(m, n)], case)
        operands = operands_of(call)
        for operand in operands:
            try:
                insist_tiles("kernel", operand)
            except PallasLiteError as error:
                # x goes into the call as it came.
                got = re.sub(r"pad the array to \d+ \w+, or ", "", str(error).partition(": ")[2])
                raise Wrong("The compiler refuses the blocks.", case=case, got=got,
                            nudge=f"Of rows, a block takes a multiple of 8; of columns, a multiple of 128, or all {n}."
                                  + f" {n} is no multiple of 128, so here it is all." * (n % 128 > 0)) from None
        taken = sum(tiled_bytes((x.depth, *x.block_shape), x.dtype) for x in operands)
        if taken > TPU_V5E.sram_bytes:
            raise Wrong("The slots do not fit.", case=case, got=f"{taken / MiB:.4g} MiB of VMEM, in whole tiles",
                        expected=f"at most {TPU_V5E.sram_bytes / MiB:g} MiB",
                        nudge="Fewer rows in a block. Count all slots, of x and of the result, and columns rounded up "
                              "to 128.")
        t = timeline(record(call.steps, operands, float(sizes(call.outputs[0])[0] * n)), TPU_V5E)
        limit = 1.2 * 2 * x.nbytes / TPU_V5E.beta
        if t.total > limit:
            raise Wrong("It compiles, but it is too slow.", case=case, got=f"{t.total * 1e6:.1f} µs, {t.bound}-bound",
                        expected=f"at most {limit * 1e6:.1f} µs",
                        nudge=f"{many(call.steps, 'step')}. {why_slow(operands, t)}".strip())
        insist_values(call, 0, did.result, 2 * x, case)


def why_slow(operands: list[Operand], t: Timeline) -> str:
    """What holds up a call that doubles x, as its copies tell; where they are as they should be, what would help."""
    for x in operands:
        copies, blocks = t.schedule.copies(x.name), len(set(x.blocks))
        if copies > blocks:
            return f"{x.name} has {many(blocks, 'block')}, and {copies} are copied. Which block is copied twice?"
        if x.depth == 1:
            return f"{x.name} has one slot, so its copies never run beside a step."
    x = operands[0]
    choice = (*x.block_shape, x.depth)
    latency = f"Small blocks drown in latency: {x.depth} slots keep {x.depth} copies on the way, no more. "
    helps = ""
    if abs(doubling(x.shape, choice).total - t.total) < 1e-9:  # else its blocks come in another way
        helps, _ = what_helps(choice, ("height", "width"), lambda c: doubling(x.shape, c).total,
                              lambda c: may_be_chosen(x.shape, c))
    return f"{latency * (t.bound == 'latency')}{helps}"


def tiled(shape: tuple[int, ...], choice: tuple[int, ...]) -> list[Operand]:
    """x and the result in blocks of this height and width, row by row, with so many slots."""
    *block, depth = choice
    blocks = list(np.ndindex(*map(cdiv, shape, block)))
    return [Operand(name, name, out, depth, shape, np.dtype(np.float32), tuple(block), (), blocks)
            for name, out in (("x", False), ("o", True))]


def doubling(shape: tuple[int, ...], choice: tuple[int, ...]) -> Timeline:
    operands = tiled(shape, choice)
    return timeline(record(len(operands[0].blocks), operands, float(math.prod(choice[:2]))), TPU_V5E)


def may_be_chosen(shape: tuple[int, ...], choice: tuple[int, ...]) -> bool:
    """Whether the blocks keep to tiles and fit; of slots a pallas_call for the TPU has two at most."""
    *block, depth = choice
    if depth > 2 or block[1] > shape[1]:
        return False
    operands = tiled(shape, choice)
    with contextlib.suppress(PallasLiteError):
        insist_tiles("kernel", operands[0])
        return sum(tiled_bytes((depth, *block), x.dtype) for x in operands) <= TPU_V5E.sram_bytes
    return False
