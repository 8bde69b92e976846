"""Checks of chapter 6, sharp edges. In: a handle on the learner's function. Out: nothing, or Wrong with the first slip.

A reduction is judged by its values, which tell garbage from sums, by its blocks, and by the schedule, which tells a
block that is left and comes back.
"""
import numpy as np

from pallas_lite.engines.record import record
from pallas_lite.specs import Operand
from pallas_lite.verify import RACES, verify

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, KernelCall, kind_of
from ..judge.predict import Asked, predict
from .kernels import block_name, how_cut, insist_blocks, insist_parts, insist_values, random_array, run, sizes, the_call
from .naming import insist_names

NOT_STARTED = ("NaN is what memory held before anybody wrote it. Whatever you combine with it stays NaN: in which "
               "step does the block start afresh? (o_ref[...] = … writes into the block; o_ref = … only gives the name "
               "to something else.)")
LEFT_OVER = ("The block starts from what another block left in its slot. In the first step of each visit start it "
             "anew, whatever the slot holds by then.")
STARTED_LATE = ("Only the last block that passed by is left. In the first step of its visit the block does not start: "
                "it holds NaN still, from memory. Which program id is 0 in that step, and in no other of the visit?")
STARTED_AGAIN = ("Only the last block that passed by is left. Does each step keep what is in the result already, as += "
                 "does? If it does, the result starts afresh too often: which axis of the grid goes through the "
                 "blocks that belong together? pl.when must ask for that one.")


def started_again(call: KernelCall, which: int) -> str:
    """What to say where only the last block of a visit is left: it starts late, or again and again."""
    late = call.left_by and np.isnan(call.left_by[0][which]).any()
    return STARTED_LATE if late else STARTED_AGAIN


def reduced(answer: Handle, case: str, fit: str, arrays, rest, expected, limits, slips, homes, nan=NOT_STARTED,
            parts="", folds=()):
    """Runs a reduction and judges it: one call, blocks within `limits` (shape -> largest block), right values.

    `expected`: an array for each output. `slips`: for each output, (what a slip would give, what to say of it, or a
    function of the call and the output's place that says so).
    `homes`: for each output, the block that a block of x belongs to, as a function of its index.
    `nan`: what to say where NaN, which memory holds at first, got into the result. `parts`: what should be returned.
    `folds`: for each output, what its block should hold when these blocks of x have passed by, in this order.
    """
    try:
        did = run(answer, case, fit, *arrays, *rest)
    except AnswerFailed as failed:
        if failed.kind == "BlockIndexError" and failed.message.startswith("output"):
            cut = [how_cut("the result" if len(expected) == 1 else f"result {k}", e.shape, dict(limits)[e.shape])
                   for k, e in enumerate(expected)]
            failed.nudge = (f"{'; '.join(cut)}. Blocks of x that belong together share a block of it: which program id "
                            "still counts there? Where an axis is one block, its index is 0.")
        raise
    call = the_call(did, arrays, [e.shape for e in expected], case)
    for shape, block in limits:
        insist_blocks(call, block, shape, case)
    results = insist_parts(did.result, expected, parts, case) if len(expected) > 1 else [did.result]
    for which in reversed(range(len(expected))):  # a carry comes first, and what is made with it tells more
        known = [(np.full(expected[which].shape, np.nan), nan),
                 *((value, says(call, which) if callable(says) else says) for value, says in slips[which])]
        fold = folds[which] if folds else None
        try:
            insist_values(call, which, results[which], expected[which], case, slips=known,
                          so_far=_passed(call, arrays[0], fold) if fold else None)
        except Wrong as wrong:
            wrong.nudge = _astray(call, which, homes[which], limits) or wrong.nudge
            raise


def _passed(call: KernelCall, x: np.ndarray, fold):
    """What a block of the output should hold after some steps: `fold` of the blocks of x that they read."""
    def so_far(steps):
        blocks = [call.inputs[0].blocks[t] for t in steps]
        shape = sizes(call.inputs[0])
        return fold([x[tuple(slice(i * n, (i + 1) * n) for i, n in zip(b, shape, strict=True))] for b in blocks])
    return so_far


def _astray(call: KernelCall, which: int, home, limits) -> str:
    """A nudge where a step takes a block of x to a block of an output that it does not belong to."""
    x, out = call.inputs[0], call.outputs[which]
    if any(sizes(o) != dict(limits).get(o.shape) for o in (x, out)):
        return ""
    for t, (block, into) in enumerate(zip(x.blocks, out.blocks, strict=True)):
        if home(*block) != into:
            read, right, taken = block_name(x, block), block_name(out, home(*block)), block_name(out, into)
            return (f"Step {t} reads {read}, which belongs to {right}, and takes it to {taken}. One of their two index "
                    "maps is at fault: as they are, do the blocks that belong together meet?")
    return ""


@predict("6.1", "Predict the garbage", points=3,
         show=lambda p: f"r = {p.r} pictures full of {p.c}, n = {p.n} blocks of o, 3 slots that hold {p.g}")
def garbage(p) -> list[Asked]:
    r, n, c, g = p.r, p.n, p.c, p.g

    def after(visit, each, slots=3):
        """What the slot of a visit holds after it, if every visit adds `each`."""
        return g + each * (visit // slots + 1)
    first, last = (r - 1) * n, r * n - 1
    right_sum = ("the hardware knows what I mean", r * c,
                 "That is the right sum. The slots start with garbage, and no block has a slot of its own.")
    own_slot = ("each block has a slot of its own", g + r * c,
                "That would be so if each block had a slot of its own. There are three slots for all of them.")
    return [
        Asked("The number in o's first block after A", "", after(first, c), [
            right_sum, own_slot,
            ("there are two slots", after(first, c, 2), "Two slots are the default. Here there are three."),
            ("there is one slot", after(first, c, 1), "Not every visit comes to this slot, only every third."),
            ("the visit itself adds nothing", after(first, c) - c,
             "You counted the visits before it. It adds its own c, too."),
            ("the first visit counts", g + c,
             "That is after the block's first visit. It is written again in each round; what stays is its last."),
            ("memory is zero", after(first, c) - g, "The slots hold g when the first visit comes.")], 0),
        Asked("The number in o's last block after A", "", after(last, c), [
            right_sum, own_slot,
            ("all blocks are alike", after(first, c),
             "The last block comes later in the last round: its slot has had more visits by then."),
            ("there are two slots", after(last, c, 2), "Two slots are the default. Here there are three."),
            ("there is one slot", after(last, c, 1), "Not every visit comes to this slot, only every third."),
            ("the visit itself adds nothing", after(last, c) - c,
             "You counted the visits before it. It adds its own c, too."),
            ("memory is zero", after(last, c) - g, "The slots hold g when the first visit comes.")], 0),
        Asked("The number in o's last block after B", "", after(n - 1, r * c), [
            right_sum,
            ("only the garbage is wrong", g + r * c,
             "That holds for the first block of each slot. Those after it start from what it left."),
            ("the order changes nothing", after(last, c),
             "In B a block stays for r steps, so a visit adds r·c, and there are only n visits."),
            ("a visit is a step", after(n - 1, c), "In B a visit is r steps long. How much does it add?"),
            ("there are two slots", after(n - 1, r * c, 2), "Two slots are the default. Here there are three."),
            ("there is one slot", after(n - 1, r * c, 1), "Not every visit comes to this slot, only every third."),
            ("the visit itself adds nothing", after(n - 1, r * c) - r * c,
             "You counted the visits before it. It adds its own r·c, too."),
            ("memory is zero", after(n - 1, r * c) - g, "The slots hold g when the first visit comes.")], 0),
    ]


@exercise("6.2", "Mend the sum", points=2)
def stack_sum(answer: Handle, trial: Trial) -> None:
    cases = trial.pick(visible=[((3, 2, 3), (2, 3)), ((3, 2, 6), (2, 3)), ((4, 12, 10), (3, 5))],
                       hidden=[((3, 4, 4), (4, 4)), ((4, 8, 4), (4, 4)), ((3, 6, 10), (2, 5))])
    for shape, (bm, bn) in cases:
        x = random_array(trial, shape)
        reduced(answer, f"x is f32{list(shape)}, bm = {bm}, bn = {bn}", how_cut("x", shape, (1, bm, bn)), [x],
                [bm, bn], [x.sum(axis=0)], [(shape, (1, bm, bn)), (shape[1:], (bm, bn))],
                [[(x[-1], started_again), (x[0], "Only the first picture is there. What do the others do?"),
                  (x[1:].sum(axis=0), "The first picture is missing. In the first step, what is done first: adding, or "
                                      "starting afresh?")]], [lambda i, j, k: (j, k)],
                folds=[lambda blocks: sum(blocks)[0]])


@exercise("6.3", "Row sums", points=2)
def row_sums(answer: Handle, trial: Trial) -> None:
    for shape, block in matrices(trial):
        x = random_array(trial, shape)
        reduced(answer, *matrix_case(shape, block), [x], block, [x.sum(axis=1, keepdims=True)],
                [(shape, block), ((shape[0], 1), (block[0], 1))],
                [[(x[:, -block[1]:].sum(axis=1, keepdims=True),
                   "Only the last block of the row is left. The kernel starts afresh when program_id(1) is 0: which "
                   "axis of your grid goes along a row?")]], [lambda i, j: (i, 0)], folds=[row_total])


def row_total(blocks: list[np.ndarray]) -> np.ndarray:
    return sum(block.sum(axis=1, keepdims=True) for block in blocks)


def matrices(trial: Trial):
    """Shapes and blocks that divide them; no two sizes of a case are alike by chance."""
    return trial.pick(visible=[((4, 6), (2, 3)), ((6, 20), (2, 5)), ((12, 8), (3, 4))],
                      hidden=[((6, 10), (3, 5)), ((3, 8), (3, 4)), ((10, 12), (5, 3))])


def matrix_case(shape, block) -> tuple[str, str]:
    return f"x is f32{list(shape)}, bm = {block[0]}, bn = {block[1]}", how_cut("x", shape, block)


def above_all(x: np.ndarray):
    """Where a result is the same in several columns, and above all of their numbers: what the block started with."""
    def shows(result: np.ndarray) -> np.ndarray:
        above = result > x.max(axis=0)
        return np.where(above & (above.sum() > 1 and np.ptp(result[above]) == 0), result, np.nan)
    return shows


LOWEST = np.finfo(np.float32).min


@exercise("6.4", "Running max", points=2)
def column_max(answer: Handle, trial: Trial) -> None:
    # Three blocks side by side: the third one's slot holds what the first has left.
    cases = trial.pick(visible=[((6, 3), (2, 3)), ((6, 12), (2, 4)), ((20, 6), (5, 3))],
                       hidden=[((8, 5), (4, 5)), ((12, 10), (3, 5)), ((18, 16), (6, 4))])
    for (m, n), (bm, bn) in cases:
        # Any block of a column may have its largest number; what another column's block left is larger than all.
        x = -1 - np.abs(random_array(trial, (m, n))) - 8 * (np.arange(n, dtype=np.float32) // bn)
        case, cut = matrix_case((m, n), (bm, bn))
        if (m, n) == cases[-1][0]:
            x[:, 1::2] = LOWEST  # "a very small number" has to be smaller than that
            case += ", every other column as low as f32 goes"
        first, last = (part.max(axis=0, keepdims=True) for part in (x[:bm], x[-bm:]))
        largest = x.max(axis=0, keepdims=True)
        left = largest.copy()
        for j in range(2 * bn, n, bn):
            left[:, j:j + bn] = np.maximum(left[:, j:j + bn], left[:, j - 2 * bn:j - bn])
        reduced(answer, case, cut, [x], [bm, bn], [largest],
                [((m, n), (bm, bn)), ((1, n), (1, bn))],
                [[(above_all(x),
                   "No number of that column is that large, and other columns have the same: did the block start with "
                   "it? Start with a number that loses against every other."),
                  (left, LEFT_OVER),
                  (np.abs(x).max(axis=0, keepdims=True), "That is the largest number without its sign."),
                  (x.sum(axis=0, keepdims=True, dtype=np.float64), "That is the sum of the column."),
                  (x.min(axis=0, keepdims=True), "That is the smallest number of the column."),
                  (last, lambda *of: started_again(*of).replace("+=", "jnp.maximum with the old one")),
                  (first, "Only the first block counts. Do the later ones change the result?")]],
                [lambda i, j: (0, j)],
                folds=[lambda blocks: np.max([block.max(axis=0, keepdims=True) for block in blocks], axis=0)])


@exercise("6.5", "A carry", points=3)
def cumulative(answer: Handle, trial: Trial) -> None:
    for shape, block in matrices(trial):
        x, bn = random_array(trial, shape), block[1]
        parts = x.reshape(shape[0], -1, bn)
        alone = np.cumsum(parts, axis=2).reshape(shape)  # without a carry
        short = alone + np.repeat(np.concatenate([np.zeros((shape[0], 1)), parts[:, :-1].sum(axis=2)], 1), bn, axis=1)
        sums = np.cumsum(x, axis=1)
        reduced(answer, *matrix_case(shape, block), [x], block, [sums[:, -1:], sums],
                [(shape, block), ((shape[0], 1), (block[0], 1))],
                [[(alone[:, -1:], "That is the sum of the last block only. The carry must hold all blocks so far."),
                  (sums[:, -bn - 1:-bn] if shape[1] > bn else sums[:, :1],
                   "The last block is missing from the carry: write it after the block's own sums are added.")],
                 [(alone, "This block starts from 0. What came before it should be in the carry: is it added, and "
                          "does the carry start afresh in the first block of a row only?"),
                  (short, "The carry holds the block before only. It must hold all that came before.")]],
                [lambda i, j: (i, 0), lambda i, j: (i, j)], parts="two arrays, the totals and the sums",
                folds=[row_total, None])


@exercise("6.6", "A mean with a tail", points=3)
def row_means(answer: Handle, trial: Trial) -> None:
    # First without a tail: NaN in there is another slip.
    cases = trial.pick(
        visible=[((2, 8), (2, 4)), ((2, 3), (2, 4)), ((2, 6), (2, 4)), ((9, 13), (3, 5))],
        hidden=[((6, 10), (2, 5)), ((3, 2), (3, 5)), ((6, 7), (3, 5)), ((4, 13), (2, 5))])
    for (m, n), (bm, bn) in cases:
        x, blocks = random_array(trial, (m, n)) + 3, -(-n // bn)
        total, whole = x.sum(axis=1, keepdims=True), n // bn * bn
        starts = range(0, n, bn)
        by_blocks = np.mean([x[:, s:s + bn].mean(axis=1, keepdims=True) for s in starts], axis=0)
        stale, left = total.copy(), total / n
        for i in range(2 * bm, m, bm):  # a slot of the result holds that of the block two before
            left[i:i + bm] += left[i - 2 * bm:i - bm]
        if blocks > 2 and n % bn:  # two slots: the tail of the last block still holds that of the block two before
            stale += x[:, n - 2 * bn:(blocks - 2) * bn].sum(axis=1, keepdims=True)
        tail = ("Past the edge a block holds what the slot held before: another block's numbers, or NaN at first. "
                "Leave that out of the sum with jnp.where; 0 × NaN is NaN. Does your mask count the columns of the "
                "row, or those of the block?")
        reduced(answer, *matrix_case((m, n), (bm, bn)), [x], [bm, bn], [total / n],
                [((m, n), (bm, bn)), ((m, 1), (bm, 1))],
                [[(stale / n, tail), (left, LEFT_OVER), (total, "That is the sum; the mean is it divided by a number."),
                  (total / (blocks * bn), "You divide by all numbers of the blocks. Some of them lie past the edge."),
                  (total / bn, "You divide by the width of one block, not by that of the row."),
                  (x[:, :whole].sum(axis=1, keepdims=True) / n,
                   "The last block, which sticks out, has no step. pl.cdiv rounds up."),
                  (by_blocks, "That is the mean of the blocks' means. The last block has fewer numbers, and should "
                              "count for less.")]],
                [lambda i, j: (i, 0)], nan=tail if n % bn else NOT_STARTED)


FAULTS = {"a": "written input", "b": "revisit", "c": "unwritten", "d": "tail"}
ABOUT = {
    "written input": "In the second step of each row the block of x is still in its slot. What is in it by then?",
    "revisit": "Write down the blocks of o for the steps (0, 0), (0, 1), (1, 0), (1, 1). Does one come back?",
    "unwritten": "Which column of o does no step write?",
    "tail": "How many columns do the blocks cover, and how many has x?",
}
NAMES = (*ABOUT, "no start", "fine")


@exercise("6.7", "Name the fault", points=2)
def name_the_fault(answer: Handle, trial: Trial) -> None:
    insist_names(answer, FAULTS, ABOUT, "kernel", choice=NAMES)


def in_place(reads, writes):
    """The schedule of a call whose input and output share the array x, and its first race, if there is one."""
    def operand(name, is_output, blocks):
        return Operand(name, "x", is_output, 2, (1 + max([*reads, *writes]),), np.dtype(np.float32), (1,), (),
                       [(b,) for b in blocks])
    schedule = record(len(reads), [operand("x", False, reads), operand("o", True, writes)], 1000.0, "in place")
    return schedule, next((h for h in verify(schedule) if h.kind in RACES), None)


PATTERNS = (([0], [0]), ([0, 1, 2], [0, 1, 2]), ([3, 0, 1], [0, 1, 2]), ([1, 2, 3], [0, 1, 2]),
            ([0, 2, 4], [1, 3, 5]), ([1, 7], [7, 4]), ([4, 5, 0, 1], [0, 1, 2, 3]),
            ([6, 7, 8, 0, 1], [0, 1, 2, 3, 4]), ([3, 2, 1, 0], [0, 1, 2, 3]),
            ([2, 0, 1, 3, 0, 4], [3, 5, 2, 0, 4, 1]),
            # Blocks that are read twice: the second time races, or neither does, or the first time.
            ([0, 1, 0], [0, 1, 2]), ([0, 1, 2, 0], [0, 3, 1, 2]), ([0, 1, 0, 1], [1, 2, 0, 3]))


def orders(trial: Trial):
    """(reads, writes) to judge; in a hidden trial with other names for the blocks, and random ones besides."""
    if not trial.hidden:
        yield from PATTERNS
        return
    for pattern in PATTERNS:
        name = trial.rng.permutation(10).tolist()
        yield tuple([name[block] for block in side] for side in pattern)
    for n in (2, 3, 4, 5, 6, 8, 10) * 3:
        writes, reads = trial.rng.permutation(n + 2)[:n].tolist(), [-1]
        while len(reads) <= n:
            block = int(trial.rng.integers(0, n + 2))
            reads += [block] * (block != reads[-1])
        yield reads[1:], writes


@exercise("6.8", "When is aliasing safe?", points=3)
def aliasing_is_safe(answer: Handle, trial: Trial) -> None:
    for reads, writes in orders(trial):
        given, case = answer.call(reads, writes), f"reads = {reads}, writes = {writes}"
        schedule, race = in_place(reads, writes)
        if isinstance(given, np.ndarray) and given.shape == ():
            given = given.item()
        if not isinstance(given, (bool, np.bool_)):
            raise Wrong("Your function should return True or False.", case=case, got=kind_of(given))
        if bool(given) is (race is None):
            continue
        if race:
            raise Wrong("This order races, and you call it safe.", case=case, got="True", expected="False",
                        schedule=schedule, hazard=race,
                        nudge="The copy in of a block starts one step before it is read; the copy out is waited for "
                              "one step after it was written. Which steps does that forbid?")
        pairs = [(s, writes.index(b)) for s, b in enumerate(reads) if b in writes]
        said = {s <= t: f"Step {s} reads block {reads[s]}, and step {t} writes it: " + (
            "the copy in is over before the copy out starts." if s <= t else
            "by the time that the copy in starts, the copy out is over.") for s, t in reversed(pairs)}
        nudge = " ".join(said.values()) or "No block is both read and written, so nothing can meet."
        raise Wrong("This order is free of races, and you call it unsafe.", case=case, got="False", expected="True",
                    schedule=schedule, nudge=nudge)
