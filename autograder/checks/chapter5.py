"""Checks of chapter 5, pallas_call. In: a handle on the learner's function. Out: nothing, or Wrong with the first slip.

Values alone do not pass: the work must be done by a pallas_call, in blocks of the size that the task asks for.
"""
import math
from random import Random

import numpy as np

from pallas_lite import Hazard, Schedule, cdiv, verify
from pallas_lite.engines.record import record
from pallas_lite.specs import Operand

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..handle import Handle, KernelCall, KernelOperand, KernelRun, close, kind_of, same_array

DRAWN = 64  # steps: a longer schedule is not shown with a failure


@exercise("5.1", "The pipelined add", points=2)
def pipelined_add(answer: Handle, trial: Trial) -> None:
    block = (64, 128)
    for counts in trial.pick(visible=[(2, 2), (1, 2), (2, 3), (3, 1)], hidden=[(2, 2), (1, 3), (4, 2), (3, 5)]):
        shape = tuple(n * b for n, b in zip(counts, block, strict=True))
        x, y = _random(trial, shape), _random(trial, shape)
        case = f"x and y are f32{list(shape)}: {counts[0]} × {counts[1]} blocks of 64 × 128"
        run = _run(answer, case, _cut("The arrays", shape, block), x, y)
        call = _the_call(run, [x, y], [shape], case)
        _insist_blocks(call, block, shape, case)
        _insist_values(call, 0, run.result, x + y, case)


@exercise("5.2", "Block sizes as parameters", points=2)
def parametrised_add(answer: Handle, trial: Trial) -> None:
    cases = trial.pick(
        visible=[((16, 64), (16, 32)), ((32, 64), (16, 32)), ((48, 32), (16, 32)), ((40, 100), (16, 32)),
                 ((9, 200), (8, 128))],
        hidden=[((8, 96), (8, 48)), ((32, 32), (32, 16)), ((30, 96), (8, 48)), ((77, 45), (32, 16)), ((64, 8), (8, 8)),
                ((33, 130), (24, 128))])
    for shape, block in cases:
        x, y = _random(trial, shape), _random(trial, shape)
        case = f"x and y are f32{list(shape)}, bm = {block[0]}, bn = {block[1]}"
        run = _run(answer, case, _cut("The arrays", shape, block), x, y, *block)
        call = _the_call(run, [x, y], [shape], case)
        _insist_blocks(call, block, shape, case)
        _insist_values(call, 0, run.result, x + y, case)


@exercise("5.3", "Same body, new index map", points=3)
def scale_and_shift(answer: Handle, trial: Trial) -> None:
    cases = trial.pick(visible=[((32, 64), (16, 32)), ((16, 64), (16, 32)), ((48, 64), (16, 32))],
                       hidden=[((16, 32), (8, 16)), ((24, 48), (8, 16)), ((64, 32), (16, 32)), ((32, 96), (8, 48)),
                               ((40, 80), (8, 16))])
    for shape, block in cases:
        n, (bm, bn) = shape[1], block
        x, scale, shift = _random(trial, shape), _random(trial, (1, n)), _random(trial, (1, n))
        case = f"x is f32{list(shape)}, bm = {bm}, bn = {bn}"
        fit = f"{_cut('x', shape, block)}; {_cut('scale and shift', (1, n), (1, bn))}"
        run = _run(answer, case, fit, x, scale, shift, bm, bn)
        call = _the_call(run, [x, scale, shift], [shape], case)
        _insist_blocks(call, block, shape, case)
        rows, blocks = [row for row in call.inputs if row.shape == (1, n)], n // bn
        for row in rows:
            if math.prod(_sizes(row)) > bn:
                raise Wrong(f"A block of {row.name} has shape {list(row.block_shape)}; the kernel needs {bn} of its "
                            "numbers at a time.", case=case,
                            nudge=f"Blocks of 1 × {bn} are required: a row is 1 high, and so is each part of it.")
        _insist_values(call, 0, run.result, x * scale + shift, case)
        for row in rows:
            if row.copies > blocks:
                raise Wrong(f"{row.name} has {blocks} block{'s' * (blocks > 1)}, but {row.copies} are copied; each "
                            "should be copied only once.", case=case, schedule=_schedule(call),
                            got=f"{row.copies} copies of {row.name}", expected=f"{blocks}",
                            nudge=f"copies = 1 + index changes. The block of {row.name} follows one axis of the grid. "
                                  "Must that axis be the inner or the outer one, for the block to stay?")


@exercise("5.4", "Count before you run", points=3)
def count(answer: Handle, trial: Trial) -> None:
    m, n, bm, bn = puzzle(trial.student)
    p, q = m // bm, n // bn
    case = f"x is f32[{m}, {n}], bm = {bm}, bn = {bn}"
    given = answer.value()
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if not isinstance(given, (tuple, list)) or len(given) != 3:
        got = f"{kind_of(given)} of length {len(given)}" if isinstance(given, (tuple, list)) else kind_of(given)
        raise Wrong("`prediction` should hold three numbers: copies of row in A, copies of row in B, KiB of SRAM.",
                    case=case, got=got)
    close(given[0], p * q, "copies", 1e-9, what="The number of copies of row in A", case=case, slips={
        q: "That is how many blocks row has. A block that was left must be copied again when a later step needs it.",
        p: "Those are the rows of the grid. Walk along one of them: does row's block stay, from step to step?",
        1: "It would be one copy if row's block never changed. Its index map returns (0, j), and j is the inner axis.",
        m * n: "Copies go by blocks, not by elements.",
        2 * p * q: "Two slots do not mean two copies: each step's block goes into one of them."})
    close(given[1], q, "copies", 1e-9, what="The number of copies of row in B", case=case, slips={
        p * q: "In B, j is the outer axis: it stays the same for a whole run of steps.",
        p: "Count the changes of j, the index that row's map returns, and not those of i.",
        q - 1: "There is also the first copy: 1 + index changes.",
        1: "It would be one copy if row's block never changed; j still goes through all its values."})
    tile, row = bm * bn * 4, bn * 4
    close(given[2], (2 * tile + row) * 2 / 1024, "KiB", 1e-9, what="The SRAM", case=case, slips={
        (2 * tile + row) / 1024: "That is one slot for each operand. There are two, so that one can be filled "
                                 "while the kernel reads the other.",
        (2 * tile + row) * 2: "Those are bytes; a KiB has 1024 of them.",
        (2 * tile + row) / 2 / 1024: "Those are numbers; each f32 takes 4 bytes.",
        3 * tile * 2 / 1024: "row's block is 1 row high, not bm.",
        2 * tile * 2 / 1024: "row has slots, too.",
        (tile + row) * 2 / 1024: "Outputs have slots, too.",
        (2 * tile + n * 4) * 2 / 1024: "Only one block of row is in a slot, not the whole row."})


@exercise("5.5", "Two outputs", points=2)
def two_outputs(answer: Handle, trial: Trial) -> None:
    for shape, block in trial.pick(visible=[((32, 64), (16, 32)), ((16, 64), (16, 32)), ((24, 96), (8, 32))],
                                   hidden=[((16, 32), (8, 16)), ((24, 32), (8, 16)), ((48, 32), (16, 32))]):
        x = _random(trial, shape)
        case = f"x is f32{list(shape)}, bm = {block[0]}, bn = {block[1]}"
        fit = f"{_cut('x', shape, block)}; {_cut('its transpose', shape[::-1], block[::-1])}"
        run = _run(answer, case, fit, x, *block)
        call = _the_call(run, [x], [shape, shape[::-1]], case)
        _insist_blocks(call, block, shape, case)
        if not isinstance(run.result, (tuple, list)) or len(run.result) != 2:
            raise Wrong("Your function should return two arrays.", case=case, got=kind_of(run.result))
        _insist_values(call, 0, run.result[0], 2 * x, case)
        _insist_values(call, 1, run.result[1], x.T, case)
        if call.inputs[0].copies > math.prod(shape) // math.prod(_sizes(call.inputs[0])):
            raise Wrong("Some block of x is copied more than once: one pass is enough for both outputs.", case=case,
                        schedule=_schedule(call), got=f"{call.inputs[0].copies} copies")


def puzzle(student: str) -> tuple[int, int, int, int]:
    """m, n, bm, bn of exercise 5.4 for a (normalised) student. The notebook draws them with the same lines."""
    mine = Random(f"{student}/5.4")
    bm, bn = mine.choice([64, 128, 256]), mine.choice([128, 256, 512])
    return bm * mine.choice([3, 5, 6, 7]), bn * mine.choice([4, 8, 9, 10]), bm, bn


# What the checks above share


def _random(trial: Trial, shape) -> np.ndarray:
    return trial.rng.normal(size=shape).astype(np.float32)


def _cut(name: str, shape, block) -> str:
    """How an array is cut.  >>> _cut("x", (32, 64), (16, 32))
    'x: 2 × 2 blocks of 16 × 32'
    """
    counts = [cdiv(n, b) for n, b in zip(shape, block, strict=True)]
    blocks = f"block{'s' * (math.prod(counts) > 1)}"
    return f"{name}: {' × '.join(map(str, counts))} {blocks} of {' × '.join(map(str, block))}"


def _run(answer: Handle, case: str, fit: str, *arrays) -> KernelRun:
    """Runs the learner's function. `fit` says how the arrays of this case are cut, for a nudge."""
    try:
        return answer.kernel(*arrays)
    except AnswerFailed as failed:
        failed.case = case
        if failed.kind == "BlockIndexError" and "index_map gives" in failed.message:
            failed.nudge = f"{fit}. " + (
                "The index map says which block it is, 0, 1, 2 …; the pipeline multiplies by the block's shape itself."
                if "not element offsets" in failed.message else
                "The grid makes a step for each block: take its numbers of steps from x.shape, axis by axis, and see "
                "that each index map gives the row of blocks first, then the column.")
        elif failed.kind == "SpecError" or "shape" in failed.message:  # JAX says so of blocks that do not broadcast
            failed.nudge = f"{fit}. See that the grid, the specs and the kernel's refs agree with that."
        raise
    except Wrong as wrong:
        if "of type Call" in wrong.what:
            raise Wrong("Your function returns the call itself, and nothing has run.", case=case,
                        nudge="pl.pallas_call(…) gives a function. Call it on the arrays.") from None
        wrong.case = wrong.case or case
        raise


def _the_call(run: KernelRun, arrays, shapes, case: str) -> KernelCall:
    """The call that took all the arrays and gave arrays of these shapes."""
    if not run.calls:
        raise Wrong("Your function made no pallas_call.", case=case,
                    nudge="Build the call with pl.pallas_call(kernel, …), then call that on the arrays.")
    wanted = sorted(a.shape for a in arrays)
    for call in reversed(run.calls):
        operands = (*call.inputs, *call.outputs)
        if sorted(x.shape for x in call.inputs) == wanted and [o.shape for o in call.outputs] == shapes and \
                all(len(x.block_shape) == len(x.shape) for x in operands):
            return call
    call = run.calls[-1]
    raise Wrong("One pallas_call should take all the operands and give the result.", case=case,
                got=", ".join(f"{x.name}: {x.dtype}{list(x.shape)}" for x in (*call.inputs, *call.outputs)))


def _insist_blocks(call: KernelCall, block, shape, case: str) -> None:
    """No block larger than the task's."""
    out = call.outputs[0]
    if call.steps == 1 and _sizes(out) == shape != block:
        raise Wrong("Your pallas_call makes only one step: the whole array is one block.", case=case,
                    got=f"grid {call.grid}, block {list(out.block_shape)}",
                    expected=f"blocks of {block[0]} × {block[1]}",
                    nudge="Without a grid and specs every operand is one block. Give grid=, in_specs= and out_specs=.")
    for x in (*call.inputs, *call.outputs):
        if x.shape == shape and any(n > most for n, most in zip(_sizes(x), block, strict=True)):
            raise Wrong(f"The blocks of {x.name} are larger than the task allows.", case=case,
                        got=f"{list(x.block_shape)}", expected=f"at most {list(block)}",
                        nudge=f"Blocks of {block[0]} × {block[1]} are required. The first argument of BlockSpec is the "
                              "shape of one block: rows first, then columns.")


def _insist_values(call: KernelCall, which: int, result, expected: np.ndarray, case: str) -> None:
    """The values of an output are right; else says which step left the first wrong block, and what it made it from."""
    out, sizes = call.outputs[which], _sizes(call.outputs[which])
    schedule = _schedule(call)
    if schedule is not None and (hazards := verify(schedule)):
        raise Wrong("The result depends on a hazard.", case=case, schedule=schedule, hazard=hazards,
                    nudge=hazards[0].mend)
    if not isinstance(result, np.ndarray) or result.shape != expected.shape:
        same_array(result, expected, case=case)
    bad = ~np.isclose(result.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=1e-5)
    if not bad.any():
        return
    visits = _visits(out)  # (first step, block) of each visit
    cell = {}  # block -> its first wrong cell
    for index in np.argwhere(bad):
        cell.setdefault(tuple(int(i) // n for i, n in zip(index, sizes, strict=True)), tuple(map(int, index)))
    missing = [b for b in cell if b not in {b for _, b in visits}]
    if missing:
        at, counts = cell[missing[0]], [cdiv(n, b) for n, b in zip(out.shape, sizes, strict=True)]
        raise Wrong(f"No step writes block {_block(out, missing[0])}: it keeps what was in memory.", case=case,
                    got=f"{out.name}{list(at)} = {result[at]:.6g}", expected=f"{expected[at]:.6g}", schedule=schedule,
                    nudge=f"In blocks of {' × '.join(map(str, sizes))}, {out.name} has {' × '.join(map(str, counts))} "
                          f"of them; the grid is {call.grid}. Each block needs a step, and so do the partial ones at "
                          "the edge (pl.cdiv rounds up).")
    last = {block: (visit, step) for visit, (step, block) in enumerate(visits)}
    (visit, step), block = min((last[b], b) for b in cell)
    at, slot = cell[block], visit % out.depth
    made_from = " and ".join(_block(x, x.blocks[step]) for x in call.inputs)
    hazard = None
    if schedule is not None:
        number = next(i for i, e in enumerate(schedule) if e.verb == "run" and e.step == step)
        hazard = Hazard("wrong block", f"the kernel makes {_block(out, block)} from {made_from}", "", out.name, step,
                        slot, (number,))
    # With one output, all that is as large as it goes block by block with it.
    odd = [x for x in call.inputs if len(call.outputs) == 1 and x.shape == out.shape and x.blocks[step] != block]
    nudge = (f"Step {step} should read {_block(odd[0], block)} to write {_block(out, block)}. Look at the index map of "
             f"{odd[0].name}." if odd else f"Step {step} reads {made_from}. Are those the blocks that belong to "
             f"{_block(out, block)}? If they are, look at the kernel.")
    raise Wrong(f"Step {step} leaves a wrong block {_block(out, block)}, by slot {out.name}[{slot}].", case=case,
                got=f"{out.name}{list(at)} = {result[at]:.6g}", expected=f"{expected[at]:.6g}", schedule=schedule,
                hazard=hazard, nudge=nudge)


def _sizes(x: KernelOperand) -> tuple[int, ...]:
    return tuple(n or 1 for n in x.block_shape)


def _block(x: KernelOperand, block) -> str:
    return f"{x.name}[{', '.join(map(str, block))}]"


def _visits(x: KernelOperand) -> list[tuple[int, tuple[int, ...]]]:
    return [(t, b) for t, b in enumerate(x.blocks) if t == 0 or b != x.blocks[t - 1]]


def _schedule(call: KernelCall) -> Schedule | None:
    """The schedule of a call, from what it asked for; None if it is too long to show, or not to be trusted."""
    try:
        operands = [Operand(x.name, x.name, out, x.depth, x.shape, np.dtype(x.dtype), _sizes(x), (), list(x.blocks))
                    for out, side in ((False, call.inputs), (True, call.outputs)) for x in side]
        return record(call.steps, operands, float(math.prod(_sizes(call.outputs[0]))), call.name) \
            if call.steps <= DRAWN else None
    except (TypeError, ValueError):
        return None
