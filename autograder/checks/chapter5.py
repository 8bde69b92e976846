"""Checks of chapter 5, pallas_call. In: a handle on the learner's function. Out: nothing, or Wrong with the first slip.

Values alone do not pass: the work must be done by a pallas_call, in blocks of the size that the task asks for.
"""
import math
from types import SimpleNamespace

import jax
import numpy as np

import pallas_lite as pl
from pallas_lite.hardware import TPU_V5E

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, kind_of, same_array, so_many
from ..judge.predict import Asked, predict
from ..sandbox.inside.personal import personal
from .kernels import (
    how_cut,
    insist_blocks,
    insist_parts,
    insist_steps,
    insist_values,
    random_array,
    run,
    schedule_of,
    sizes,
    the_call,
)


@exercise("5.1", "The pipelined add", points=2)
def pipelined_add(answer: Handle, trial: Trial) -> None:
    block = (64, 128)
    for counts in trial.pick(visible=[(2, 2), (1, 2), (2, 3), (3, 1)], hidden=[(2, 2), (1, 3), (4, 2), (3, 5)]):
        shape = tuple(n * b for n, b in zip(counts, block, strict=True))
        x, y = random_array(trial, shape), random_array(trial, shape)
        case = f"x and y are f32{list(shape)}: {counts[0]} × {counts[1]} blocks of 64 × 128"
        did = run(answer, case, how_cut("The arrays", shape, block), x, y)
        call = the_call(did, [x, y], [shape], case)
        insist_blocks(call, block, shape, case)
        insist_values(call, 0, did.result, x + y, case, given=["add_kernel"])
        insist_steps(call, "x", block, shape, case)


@exercise("5.2", "Block sizes as parameters", points=2)
def parametrised_add(answer: Handle, trial: Trial) -> None:
    cases = trial.pick(
        visible=[((16, 64), (16, 32)), ((32, 64), (16, 32)), ((48, 32), (16, 32)), ((40, 100), (16, 32)),
                 ((9, 200), (8, 128)), ((40, 60), (24, 16))],
        hidden=[((8, 96), (8, 48)), ((32, 32), (32, 16)), ((30, 96), (8, 48)), ((77, 45), (32, 16)), ((64, 8), (8, 8)),
                ((33, 130), (24, 128))])
    for shape, given in [*((shape, block) for shape, block in cases), ((300, 520), ())]:
        x, y, block = random_array(trial, shape), random_array(trial, shape), given or (256, 256)
        case = f"x and y are f32{list(shape)}, " + (
            f"bm = {block[0]}, bn = {block[1]}" if given else "without bm and bn: 256 × 256")
        did = run(answer, case, how_cut("The arrays", shape, block), x, y, *given)
        call = the_call(did, [x, y], [shape], case)
        insist_blocks(call, block, shape, case)
        insist_values(call, 0, did.result, x + y, case, given=["add_kernel"])
        insist_steps(call, "x", block, shape, case)


@exercise("5.3", "Same body, new index map", points=3)
def scale_and_shift(answer: Handle, trial: Trial) -> None:
    cases = trial.pick(visible=[((32, 64), (16, 32)), ((16, 64), (16, 32)), ((24, 48), (8, 24))],
                       hidden=[((16, 32), (8, 16)), ((24, 48), (8, 16)), ((64, 32), (16, 32)), ((32, 96), (8, 48)),
                               ((40, 80), (8, 16))])
    for shape, block in cases:
        n, (bm, bn) = shape[1], block
        x, scale, shift = random_array(trial, shape), random_array(trial, (1, n)), random_array(trial, (1, n))
        case = f"x is f32{list(shape)}, bm = {bm}, bn = {bn}"
        fit = f"{how_cut('x', shape, block)}; {how_cut('scale and shift', (1, n), (1, bn))}"
        did = run(answer, case, fit, x, scale, shift, bm, bn)
        call = the_call(did, [x, scale, shift], [shape], case)
        insist_blocks(call, block, shape, case)
        rows, blocks = [row for row in call.inputs if row.shape == (1, n)], n // bn
        for row in rows:
            if sizes(row) != (1, bn):
                raise Wrong(f"A block of {row.name} has shape {list(row.block_shape)}; the kernel needs {bn} of its "
                            "numbers at a time.", case=case,
                            nudge=f"Blocks of 1 × {bn} are required: a row is 1 high, and so is each part of it.")
        insist_values(call, 0, did.result, x * scale + shift, case, given=["scale_and_shift_kernel"])
        insist_steps(call, "x", block, shape, case)
        for row in rows:
            if row.copies > blocks:
                raise Wrong(f"{row.name} has {blocks} block{'s' * (blocks > 1)}, but {row.copies} are copied; each "
                            "should be copied only once.", case=case, schedule=schedule_of(call),
                            got=f"{row.copies} copies of {row.name}", expected=f"{blocks}",
                            nudge=f"copies = 1 + index changes. The block of {row.name} follows one axis of the grid. "
                                  "Must that axis be the inner or the outer one, for the block to stay?")


@predict("5.4", "Count before you run", points=3,
         show=lambda p: f"x is f32[{p.m}, {p.n}], bm = {p.bm}, bn = {p.bn}")
def count(p) -> list[Asked]:
    rows, columns = p.m // p.bm, p.n // p.bn
    tile, row, kib = p.bm * p.bn * 4, p.bn * 4, 1024
    return [
        Asked("The number of copies of row in A", "copies", rows * columns, [
            ("each block is copied once, whatever the order", columns,
             "That is how many blocks row has. A block that was left must be copied again when a later step needs it."),
            ("the row's block changes with i", rows,
             "Those are the rows of the grid. Walk along one of them: does row's block stay, from step to step?"),
            ("an operand that is broadcast is copied once", 1,
             "It would be one copy if row's block never changed. Its index map returns (0, j), and j is the inner "
             "axis."),
            ("changes only, without the first copy", rows * columns - 1,
             "There is also the first copy: 1 + index changes."),
            ("copies go by elements", p.m * p.n, "Copies go by blocks, not by elements."),
            ("two slots, two copies", 2 * rows * columns,
             "Two slots do not mean two copies: each step's block goes into one of them.")], 0),
        Asked("The number of copies of row in B", "copies", columns, [
            ("swapping axes changes nothing", rows * columns,
             "In B, j is the outer axis: it stays the same for a whole run of steps."),
            ("the row's block changes with i", rows,
             "Count the changes of j, the index that row's map returns, and not those of i."),
            ("changes only, without the first copy", columns - 1, "There is also the first copy: 1 + index changes."),
            ("an operand that is broadcast is copied once", 1,
             "It would be one copy if row's block never changed; j still goes through all its values.")], 0),
        Asked("The SRAM", "KiB", (2 * tile + row) * 2 / kib, [
            ("one slot an operand", (2 * tile + row) / kib,
             "That is one slot for each operand. There are two, so that one can be filled while the kernel reads the "
             "other."),
            ("a KiB is a byte", (2 * tile + row) * 2, "Those are bytes; a KiB has 1024 of them."),
            ("numbers are bytes", (2 * tile + row) / 2 / kib, "Those are numbers; each f32 takes 4 bytes."),
            ("the part is as high as the tile", 3 * tile * 2 / kib, "row's block is 1 row high, not bm."),
            ("a row needs no SRAM", 2 * tile * 2 / kib, "row has slots, too."),
            ("a row has one slot", (4 * tile + row) / kib, "row has two slots, as the others have."),
            ("a KiB is a kB", (2 * tile + row) * 2 / 1000, "A KiB has 1024 bytes."),
            ("outputs need no SRAM", (tile + row) * 2 / kib, "Outputs have slots, too."),
            ("all of the row is in SRAM", (2 * tile + p.n * 4) * 2 / kib,
             "Only one block of row is in a slot, not the whole row.")], 0),
    ]


@exercise("5.5", "Two outputs", points=2)
def two_outputs(answer: Handle, trial: Trial) -> None:
    for shape, block in trial.pick(visible=[((32, 64), (16, 32)), ((16, 64), (16, 32)), ((24, 48), (8, 16))],
                                   hidden=[((16, 32), (8, 16)), ((24, 32), (8, 16)), ((48, 32), (16, 32))]):
        x = random_array(trial, shape)
        case = f"x is f32{list(shape)}, bm = {block[0]}, bn = {block[1]}"
        fit = f"{how_cut('x', shape, block)}; {how_cut('its transpose', shape[::-1], block[::-1])}"
        did = run(answer, case, fit, x, *block)
        call = the_call(did, [x], [shape, shape[::-1]], case)
        insist_blocks(call, block, shape, case)
        insist_blocks(call, block[::-1], shape[::-1], case)
        results = insist_parts(did.result, [2 * x, x.T], "two arrays, 2 * x and x.T", case)
        insist_values(call, 0, results[0], 2 * x, case)
        insist_values(call, 1, results[1], x.T, case)
        insist_steps(call, "x", block, shape, case)
        if call.inputs[0].copies > math.prod(shape) // math.prod(sizes(call.inputs[0])):
            raise Wrong("Some block of x is copied more than once: one pass is enough for both outputs.", case=case,
                        schedule=schedule_of(call), got=f"{call.inputs[0].copies} copies")


SLACK = 0.08  # of exercise 5.6: how far above bytes / β the modelled time may be


@exercise("5.6", "Fit and fast", points=3)
def fit_and_fast(answer: Handle, trial: Trial) -> None:
    p = personal("5.6", trial.student)
    case = f"x: {p.dtype}[{p.height}, {p.width}], a budget of {p.budget_kib} KiB"
    bm, bn = _two_sizes(answer.value(), case, p.budget_kib)
    if bm > p.height or bn > p.width:
        raise Wrong("A block is larger than the array.", case=case, got=f"{bm} × {bn}",
                    nudge="bm counts rows and bn counts columns. Neither can be more than there are.")
    steps = pl.cdiv(p.height, bm) * pl.cdiv(p.width, bn)
    if steps > 20_000:
        raise Wrong(f"Blocks of {bm} × {bn} make {steps:,} steps: far too slow.", case=case,
                    nudge="Every step costs a good part of α. Larger blocks, fewer steps.")
    trace = packed_add(p, bm, bn)
    kib, least = trace.schedule.sram_bytes / 1024, trace.schedule.hbm_bytes["total"] / TPU_V5E.beta
    if kib > p.budget_kib:
        raise Wrong("The slots do not fit into the budget.", case=case, got=f"{kib:.0f} KiB",
                    expected=f"at most {p.budget_kib} KiB",
                    nudge="Three operands, the output too, with two slots each: bm · bn · (bytes of x + 4 + 4) · 2.")
    time = trace.timeline(TPU_V5E).total
    if time > (1 + SLACK) * least:
        over = steps * bm * bn / (p.height * p.width) - 1
        raise Wrong(f"Blocks of {bm} × {bn} fit, but are too slow.", case=case, expected=f"at most {SLACK:.0%}",
                    got=f"{time * 1e6:.1f} µs modelled, {time / least - 1:.0%} above bytes / β",
                    nudge=f"They take {kib:.0f} of {p.budget_kib} KiB, and reach past the edges by {over:.0%} of the "
                          "array. Fewer steps are faster: use the budget up, and waste little at the edges.")


def packed_add(p: SimpleNamespace, bm: int, bn: int):
    """The trace of the add of exercise 5.6 in blocks of bm × bn. Only these two numbers come from the answer."""
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...].astype(np.float32) + y_ref[...]
    x, y = (jax.ShapeDtypeStruct((p.height, p.width), dtype) for dtype in (p.dtype, "float32"))
    block = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    grid = pl.cdiv(p.height, bm), pl.cdiv(p.width, bn)
    return pl.pallas_call(kernel, y, grid=grid, in_specs=[block, block], out_specs=block).trace(x, y)


def _two_sizes(given, case: str, kib: int) -> tuple[int, int]:
    pair = so_many(given, 2)
    if pair is None:
        raise Wrong("blocks should be two numbers, bm and bn.", case=case, got=kind_of(given))
    whole = all(type(n) is int or isinstance(n, float) and n.is_integer() for n in pair)
    if not whole or min(pair) < 1:
        raise Wrong("bm and bn should be whole numbers, 1 or more.", case=case, got=f"{pair[0]!r}, {pair[1]!r}"[:100],
                    nudge=f"The budget of {kib} KiB is {kib * 1024:,} bytes." if whole else
                    "// divides and rounds down.")
    return int(pair[0]), int(pair[1])


OLD_NAMES = {  # what a message of upstream says -> how to mend it
    "load": "pl.load is gone: index the ref, x_ref[...].", "store": "pl.store is gone: o_ref[...] = value.",
    "TPUCompilerParams": "It is pltpu.CompilerParams now.",
    "'ANY'": "It is pl.ANY now; and a kernel cannot read there.",
    "not iterable": "BlockSpec takes the block's shape first, then the index map.",
    "interpret mode": "The real pallas_call compiles for an accelerator. Here it is to be simulated: interpret=real."}


@exercise("5.7", "Port a Pallas kernel", points=3)
def port(answer: Handle, trial: Trial) -> None:
    for rows, n in trial.pick(visible=[(32, 8), (64, 8), (72, 128)], hidden=[(40, 16), (96, 8), (20, 24)]):
        x, gain = random_array(trial, (rows, n)), random_array(trial, (1, n))
        right, case = (x - x.mean(1, keepdims=True)) * gain, f"x is f32[{rows}, {n}]"
        did = run(answer, f"{case}, with pallas_lite", how_cut("x", x.shape, (32, n)), x, gain)
        if not did.calls:
            raise Wrong("Your function made no pallas_call of pallas_lite's.", case=case,
                        nudge="Build the call with pl.pallas_call(kernel, …), where pl is what the first line sets: "
                              "lite_pl, unless real=True.")
        call = the_call(did, [x, gain], [x.shape], case)
        insist_blocks(call, (32, n), x.shape, case, smaller=True)
        insist_values(call, 0, did.result, right, case)
        case = f"{case}, with the real Pallas"
        try:
            real = answer.kernel(x, gain, True)
        except AnswerFailed as failed:
            failed.case = case
            failed.nudge = next((mend for word, mend in OLD_NAMES.items() if word in failed.message), "")
            raise
        if real.made:
            raise Wrong("With real=True your function still calls pallas_lite.", case=case,
                        nudge="Inside the function, use the pl and pltpu that its first line sets.")
        same_array(real.result, right, case=case)
        made = answer.ask("real", x, gain, True)
        if type(made) is not int or made < 1:
            raise Wrong("With real=True your function makes no pallas_call of the real Pallas.", case=case,
                        nudge="One body serves both: the same pl.pallas_call(kernel, …), where pl is what the first "
                              "line sets.")
