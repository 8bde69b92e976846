"""Checks of chapter 4, grid and BlockSpec. In: a handle on the learner's function. Out: nothing, or Wrong.

An index map is judged by the blocks that the steps of the call took, and by the values that came out.
"""
import contextlib
import math
from collections.abc import Callable
from functools import partial

import numpy as np

from pallas_lite import cdiv
from pallas_lite.errors import many

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, KernelCall, KernelRun
from ..judge.predict import Asked, predict
from .kernels import (
    how_cut,
    insist_made_by,
    insist_steps,
    insist_values,
    random_array,
    run,
    schedule_of,
    sizes,
    the_call,
)


@exercise("4.1", "The number of a step", points=1)
def step_numbers(answer: Handle, trial: Trial) -> None:
    for grid in trial.pick(visible=[(1, 1, 3), (1, 3, 2), (2, 2, 3), (2, 3, 4)],
                           hidden=[(1, 1, 2), (2, 1, 1), (3, 2, 4), (2, 5, 3), (4, 3, 2)]):
        case = f"step_numbers{grid}: the grid is {grid}"
        did = run(answer, case, f"The grid is {grid}", *grid)
        call = the_call(did, [], [grid], case)
        if call.grid != grid:
            raise Wrong("The grid of your call is another one.", case=case, got=f"{call.grid}", expected=f"{grid}")
        got = did.result
        if not isinstance(got, np.ndarray) or got.shape != grid:
            raise Wrong(f"The result should be an array of shape {grid}.", case=case)
        right = np.arange(math.prod(grid)).reshape(grid)
        if (bad := np.argwhere(got != right)).size:
            at = tuple(map(int, bad[0]))
            raise Wrong(f"Step {right[at]}, whose grid index is {at}, gives itself another number.", case=case,
                        got=f"{got[at]}", expected=f"{right[at]}", nudge=_step_slip(answer, got, grid))
        insist_made_by(call, 0, right, case)


def _step_slip(answer: Handle, got: np.ndarray, grid: tuple[int, int, int]) -> str:
    """What went wrong, where it shows on this grid and on one whose three lengths differ."""
    found = {grid: got}
    with contextlib.suppress(AnswerFailed, Wrong):
        found[2, 3, 4] = answer.kernel(2, 3, 4).result
    for slip, says in [
            (lambda a, b, c, n, m, k: n + a * (m + b * k),
             "That is how one would count if the first axis ran fastest. The last one does."),
            (lambda a, b, c, n, m, k: (n * b + m) * c + k + 1, "The first step has number 0."),
            (lambda a, b, c, n, m, k: n + m + k,
             "Those are the three indices added up. But a step of an outer loop is worth several steps."),
            (lambda a, b, c, n, m, k: 100 * n + 10 * m + k,
             "Those are the digits from the page. A loop need not have ten steps."),
            (lambda a, b, c, n, m, k: (n * a + m) * b + k,
             "A run of the loop over k has c steps, so m is worth c. Which length is n worth?"),
            (lambda a, b, c, n, m, k: n * c + m * b + k,
             "n moves on after the two loops inside it have run through. How many steps is that?")]:
        if all(np.array_equal(made, slip(*g, *np.indices(g))) for g, made in found.items()):
            return says
    return ("Before this step, how many whole runs of the loops inside have passed? Each m is worth a run of the loop "
            "over k, each n a run of both inner loops.")


@exercise("4.2", "Rows and columns", points=2)
def rows_and_columns(answer: Handle, trial: Trial) -> None:
    for by, shape, b in trial.pick(
            visible=[("rows", (4, 6), 4), ("rows", (8, 6), 4), ("columns", (4, 6), 3), ("columns", (6, 20), 4)],
            hidden=[("rows", (15, 8), 5), ("columns", (15, 8), 2), ("rows", (6, 18), 2), ("columns", (7, 9), 3)]):
        x = random_array(trial, shape)
        block = (b, shape[1]) if by == "rows" else (shape[0], b)
        case = f'x is f32{list(shape)}, by = "{by}", b = {b}'
        did = run(answer, case, how_cut("x", shape, block), x, by, b)
        call = the_call(did, [x], [shape], case)
        for operand in (*call.inputs, *call.outputs):
            if sizes(operand) != block:
                raise Wrong(f"The blocks of {operand.name} are not whole bands of {b} {by}.", case=case,
                            got=f"{list(operand.block_shape)}", expected=f"{list(block)}",
                            nudge=_band_slip(sizes(operand), shape, block, by))
        insist_values(call, 0, did.result, 2 * x, case)
        insist_steps(call, "x", block, shape, case)


def _band_slip(got, shape, block, by: str) -> str:
    """What makes a block another one than a band."""
    if got == shape:
        return "That is all of x in one step; a band is a part."
    across = 1 if by == "rows" else 0
    if got[across] == shape[across]:
        return f"A band has {block[1 - across]} {by}, and this one has {got[1 - across]}."
    return f"A band of {by} takes in all of the other axis: its block is as long there as x."


# For each arrangement: the grid over p × q blocks, the block of x that belongs to block (i, j), what a slip may be.
ARRANGED: dict[str, tuple[Callable, Callable, str]] = {
    "reversed": (lambda p, q: (p, q), lambda p, q, i, j: (p - 1 - i, j),
                 "Reversed: the rows of blocks are numbered 0 to p − 1, so row 0 must give p − 1; columns stay."),
    "transposed": (lambda p, q: (q, p), lambda p, q, i, j: (j, i),
                   "Transposed: what is a row of blocks in the result was a column of blocks in x."),
    "every other": (lambda p, q: (p, q // 2), lambda p, q, i, j: (i, 2 * j),
                    "Every other: columns of blocks 0, 1, 2 of the result are 0, 2, 4 of x. The rows stay."),
    "broadcast": (lambda p, q: (p, q), lambda p, q, i, j: (0, j),
                  "Broadcast: the first row of blocks serves every row of the result; the columns stay."),
}


@exercise("4.3", "Same body, new index map", points=3)
def same_body(answer: Handle, trial: Trial) -> None:
    b = trial.pick(visible=2, hidden=4)
    for p, q in trial.pick(visible=[(1, 4), (3, 2), (3, 4)], hidden=[(2, 6), (5, 4)]):
        for how, (grid_of, source, says) in ARRANGED.items():
            grid, x = grid_of(p, q), random_array(trial, (p * b, q * b))
            tiles = x.reshape(p, b, q, b).swapaxes(1, 2)
            expected = np.block([[tiles[source(p, q, i, j)] for j in range(grid[1])] for i in range(grid[0])])
            case = f'how = "{how}", {how_cut("x", x.shape, (b, b))}'
            did = _run(answer, case, partial(_map_slip, says), x, how, b)
            call = the_call(did, [x], [expected.shape], case)
            _insist_all(call, (b, b), case)
            with _saying(says):
                insist_values(call, 0, did.result, expected, case, given=["out"],
                              sources=lambda out: [source(p, q, *out)])  # noqa: B023


def _map_slip(says: str, failed: AnswerFailed) -> str:
    """What may be behind a call of exercise 4.3 that stopped."""
    return ("A dict holds a map for each arrangement. Take out the one that is asked for: {…}[how]."
            if "not a function" in failed.message else says)


@exercise("4.4", "Repair the maps", points=2)
def repair(answer: Handle, trial: Trial) -> None:
    for shape, (bm, bn) in trial.pick(
            visible=[((4, 3), (2, 3)), ((8, 3), (2, 3)), ((8, 6), (2, 3)), ((32, 12), (4, 4))],
            hidden=[((8, 8), (4, 4)), ((12, 8), (2, 4)), ((48, 10), (4, 5)), ((6, 9), (1, 3))]):
        x, half = random_array(trial, shape), shape[0] // 2
        case = f"{how_cut('x', shape, (bm, bn))}, so half = {half}"
        says = (f"Maps return block indices: in blocks of {bm} rows, the lower half begins {half // bm} "
                f"block{'s' * (half // bm > 1)} down, and {half} rows down.")
        did = _run(answer, case, partial(_half_slip, says, bm, bn), x, bm, bn)
        call = the_call(did, [x, x], [(half, shape[1])], case)
        _insist_all(call, (bm, bn), case)
        with _saying(says):
            insist_values(call, 0, did.result, x[:half] + x[half:], case, given=["out"],
                          sources=lambda out: [out, (half // bm + out[0], out[1])])  # noqa: B023


def _half_slip(says: str, bm: int, bn: int, failed: AnswerFailed) -> str:
    """What may be behind a call of exercise 4.4 that stopped."""
    return (f"The kernel and the output's spec are given. Blocks of {bm} × {bn} are required: (bm, bn) is the first "
            "argument of both BlockSpecs." if failed.in_kernel else says)


@exercise("4.5", "Page by page", points=2)
def page_by_page(answer: Handle, trial: Trial) -> None:
    for shape, (bm, bn) in trial.pick(
            visible=[((1, 4, 3), (2, 3)), ((2, 4, 6), (4, 6)), ((2, 4, 6), (2, 3)), ((3, 4, 9), (2, 3))],
            hidden=[((2, 6, 4), (3, 2)), ((3, 8, 4), (2, 4)), ((4, 4, 10), (4, 5)), ((1, 9, 8), (3, 4))]):
        x, out_shape = random_array(trial, shape), (shape[0], shape[2], shape[1])
        case = f"x is f32{list(shape)}: {shape[0]} page{'s' * (shape[0] > 1)}, blocks of {bm} × {bn}"
        says = (f"A block of {bm} × {bn} comes out as one of {bn} × {bm}, on the same page. Block (i, j) of a page "
                "turns into its block (j, i).")
        did = _run(answer, case, partial(_page_slip, says), x, bm, bn)
        call = the_call(did, [x], [out_shape], case)
        for operand, block in ((call.inputs[0], (None, bm, bn)), (call.outputs[0], (None, bn, bm))):
            _insist_size(operand, block, case, "One block of one page is required.")
        with _saying(says):
            insist_values(call, 0, did.result, x.transpose(0, 2, 1), case,
                          sources=lambda out: [(out[0], out[2], out[1])])
        insist_steps(call, "x", (1, bm, bn), shape, case)


def _page_slip(says: str, failed: AnswerFailed) -> str:
    """What may be behind a call of exercise 4.5 that stopped."""
    if failed.kind == "SpecError" and "index_map" in failed.message:
        return "Three lengths in the grid, three parameters of a map, and three indices from it: page, row and column."
    if "window of shape (1, " in failed.message:
        return "The kernel works on two dimensions: the page has to be squeezed out of both refs (None)."
    return says


@predict("4.6", "Predict the way and the copies", points=3,
         show=lambda p: f"grid ({p.q}, {p.p}), block ({p.r}, {p.c})")
def way_and_copies(n) -> list[Asked]:
    p, q, r, c = n.p, n.q, n.r, n.c
    once = ("i // 2 goes through its values once in each run of i. When the next run begins, it falls back to 0, and "
            "that block is gone.")
    return [
        Asked("The number of the step", "", c * p + r, [
            ("the row of a block is the outer loop, whatever the grid", r * q + c,
             "That is the step if i were the outer loop. Here the first axis of the grid is j."),
            ("steps are counted from 1", c * p + r + 1, "The first step has number 0."),
            ("the outer index counts its own length", c * q + r,
             "One j is worth a whole run of i. How many steps has that?")], 0),
        Asked("The number of copies of u", "copies", q, [
            ("each step makes a copy", p * q, "u's map returns (j, 0). Does j change at every step?"),
            ("changes only, without the first copy", q - 1, "There is also the first copy: 1 + index changes."),
            ("it follows the first index of a block", p, "u's map returns (j, 0): count the values of j.")], 0),
        Asked("The number of copies of v", "copies", p * q, [
            ("each block is copied once, whatever the order", p,
             "That is how many blocks v has. A block that was left must be copied again when a later step needs it."),
            ("it changes with the outer loop", q, "v's map returns (i, 0). Which of the two axes runs fastest?"),
            ("changes only, without the first copy", p * q - 1,
             "There is also the first copy: 1 + index changes.")], 0),
        Asked("The number of copies of w", "copies", q * ((p + 1) // 2), [
            ("each step makes a copy", p * q, "i // 2 is the same for two steps in a row: one copy serves both."),
            ("each block is copied once, whatever the order", (p + 1) // 2, once),
            ("and the last block, of one step, is forgotten", p // 2, once),
            ("an odd step out is forgotten", q * (p // 2),
             "The last value of i // 2 in a run belongs to one step only. It is copied all the same."),
            ("where a run ends, the block stays", q * ((p + 1) // 2) - (q - 1),
             "At the end of a run i // 2 is at its largest, and then it falls back to 0: that is a change.")], 0),
    ]


@exercise("4.7", "Turn around at the end", points=3)
def turn_around(answer: Handle, trial: Trial) -> None:
    b = trial.pick(visible=2, hidden=3)
    for p, q in trial.pick(visible=[(1, 3), (2, 3), (3, 4)], hidden=[(3, 5), (4, 2)]):
        col, row = random_array(trial, (p * b, 1)), random_array(trial, (1, q * b))
        shape, least = (p * b, q * b), p * q + 1
        case = f"{p} × {q} blocks of {b} × {b}"
        says = "A step writes the column of blocks that it reads from row: both maps need the same column."
        did = _run(answer, case, _way_slip, col, row, b)
        call = the_call(did, [col, row], [shape], case)
        for operand, block in zip((*call.inputs, *call.outputs), ((b, 1), (1, b), (b, b)), strict=True):
            _insist_size(operand, block, case, f"Blocks of {b} × {b} of the table are required.")
        with _saying(says):
            insist_values(call, 0, did.result, col + row, case,
                          sources=lambda out: [(out[0], 0), (0, out[1])])
        total = sum(x.copies for x in call.inputs)
        if total > least:
            (at, rows), (_, columns) = ((x.name, x.blocks) for x in call.inputs)
            t = next(t for t in range(1, call.steps) if rows[t] != rows[t - 1] and columns[t] != columns[t - 1])
            raise Wrong(f"There are {total} copies of {at} and {call.inputs[1].name}; {least} are enough.", case=case,
                        got=f"{total} copies", expected=f"{least}", schedule=schedule_of(call),
                        nudge=f"From step {t - 1} to step {t} both blocks change. Where should the next row of blocks "
                              "begin, so that one of them can stay?")


def _way_slip(failed: AnswerFailed) -> str:
    """What may be behind a call of exercise 4.7 that stopped."""
    if failed.kind == "BlockIndexError":
        return ("A map must give block indices that there are: rows of blocks 0 to p − 1, columns "
                "of blocks 0 to q − 1, and 0 where there is one only.")
    return "jnp.where(condition, a, b) chooses between two columns. A Python if cannot." if "traces" in failed.message \
        else ""


@exercise("4.8", "Mask the tail", points=3)
def mask(answer: Handle, trial: Trial) -> None:
    for (m, n), b in trial.pick(
            visible=[((4, 3), 4), ((3, 3), 4), ((7, 3), 4), ((10, 3), 4), ((40, 6), 16)],
            hidden=[((5, 4), 8), ((16, 3), 8), ((13, 4), 8), ((35, 7), 8)]):
        x, bands = random_array(trial, (m, n)), cdiv(m, b)
        case = f"x is f32[{m}, {n}], b = {b}: {bands} band{'s' * (bands > 1)}"
        did = run(answer, case, how_cut("x", (m, n), (b, n)), x, b)
        call = the_call(did, [x], [(bands, n)], case)
        _insist_size(call.inputs[0], (b, n), case, "One band is one block.")
        expected = np.stack([x[i * b:(i + 1) * b].sum(0) for i in range(bands)])
        with _saying(_tail_slip(did.result, x, b)):
            insist_values(call, 0, did.result, expected, case, sources=lambda out: [(out[0], 0)])


def _tail_slip(got, x: np.ndarray, b: int) -> str:
    """What is in the first wrong sum of a band of b rows: garbage, or too few of the rows that there are."""
    bands = cdiv(len(x), b)
    if not isinstance(got, np.ndarray) or got.shape != (bands, x.shape[1]):
        return ""

    def holds(i, rows):
        return np.allclose(got[i], rows.sum(axis=0), rtol=1e-5, atol=1e-4)
    wrong = [i for i in range(bands) if not holds(i, x[i * b:(i + 1) * b])]
    if not wrong:
        return ""
    i, first = wrong[0], wrong[0] * b
    rows = x[first:first + b]
    there = len(rows)
    # Past the edge, the slot holds what the band before the last one left there, or nothing yet.
    old = x[first - 2 * b + there:first - b] if i > 1 else x[:0]
    if there < b and (np.isnan(got[i]).any() or any(
            holds(i, np.concatenate([rows, old[:k]])) for k in range(1, len(old) + 1))):
        return (f"Only {there} row{'s' * (there > 1)} of the last band exist{'s' * (there == 1)}. What the slot holds "
                "past them may be anything, nan even, and 0 · nan is nan. It must not reach the sum: choose with "
                "jnp.where, before you add up.")
    added = (got[i] - rows.sum(axis=0)) / max(1, b - there)
    if there < b and np.allclose(added, added[0], rtol=1e-4, atol=1e-4):
        way = "high" if added[0] > 0 else "low"
        return (f"The sums of the last band are all {abs(added[0]) * (b - there):.4g} too {way}. What do you put in "
                f"place of the {many(b - there, 'row')} past the edge? 0 adds nothing.")
    if any(holds(i, rows / n) for n in (b, there) if n > 1):
        return "That is the mean of the band's rows. The sum is asked for."
    kept = next((k for k in range(there) if holds(i, rows[:k])), None)
    if kept == 0:
        return (f"None of the {there} row{'s' * (there > 1)} of band {i} that exist{'s' * (there == 1)} is in its sum. "
                "For which rows does your condition hold? jnp.where(condition, a, b) takes a where it does.")
    if kept == there - 1:
        return f"Row {first + kept} of x exists, and is missing in band {i}: is the comparison off by one?"
    return f"Band {i} adds up rows {first} to {first + there - 1} of x: its row r is row {i} · {b} + r of x."


# What these checks share

def _run(answer: Handle, case: str, says: str | Callable[[AnswerFailed], str], *arrays) -> KernelRun:
    """As kernels.run, with a sentence of the exercise, or one on what failed, where blocks do not exist or fit."""
    try:
        return run(answer, case, "", *arrays)
    except AnswerFailed as failed:
        if failed.kind in ("BlockIndexError", "SpecError") or "shape" in failed.message:
            failed.nudge = says(failed) if callable(says) else says
        raise


@contextlib.contextmanager
def _saying(says: str):
    """Inside, a Wrong gets one more sentence behind its nudge."""
    try:
        yield
    except Wrong as wrong:
        wrong.nudge = f"{wrong.nudge} {says}".strip()
        raise


def _insist_size(operand, block, case: str, says: str) -> None:
    """`block`: with None for a dimension of 1 that the kernel should not see; a 1 there does as well."""
    if sizes(operand) != tuple(n or 1 for n in block):
        raise Wrong(f"The blocks of {operand.name} have another shape.", case=case, got=f"{list(operand.block_shape)}",
                    expected=f"{list(block)}", nudge=says)


def _insist_all(call: KernelCall, block, case: str) -> None:
    for operand in (*call.inputs, *call.outputs):
        _insist_size(operand, block, case, f"Blocks of {' × '.join(map(str, block))} are required.")
