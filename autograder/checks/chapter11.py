"""Checks of chapter 11, the capstone. Values are compared with a softmax over all keys, in float64, on uneven scores.

Copies are counted from block indices, times are modelled on this side by tracing the chapter's kernel.
"""
import math
from functools import partial

import numpy as np

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, KernelCall, array, kind_of, number, same_array, so_many
from ..judge.predict import Asked, predict
from ..sandbox.inside.personal import personal
from .attention import KIB, Slips, attend, causal_slips, cost, typical_slips
from .kernels import block_name, by, how_cut, insist_called, insist_values, run, schedule_of, sizes

MIB = 2**20


@exercise("11.1", "Running maximum and sum", points=2)
def running(answer: Handle, trial: Trial) -> None:
    for n, low, high in trial.pick(visible=[(1, 0, 1), (2, 0, 1), (3, 88, 96)],  # close enough that no sum is just 1
                                   hidden=[(1, -4, 4), (2, 0, 3), (4, 88, 95), (5, -99, -92), (3, -2, 6)]):
        blocks = trial.rng.uniform(low, high, (n, 3, 4)).astype(np.float32)
        # After the first block, one row's maximum stays and another's grows: else two slips would look alike.
        blocks[:, 0] = np.sort(blocks[:, 0], axis=None)[::-1].reshape(n, 4)
        blocks[:, 1] = np.sort(blocks[:, 1], axis=None).reshape(n, 4)
        m, total = np.full(3, -np.inf, np.float32), np.zeros(3, np.float32)
        for number_, block in enumerate(blocks):
            seen = np.concatenate(blocks[:number_ + 1], axis=1).astype(np.float64)
            case = f"block {number_ + 1} of {n}, 3 rows of 4 scores from {low} to {high}"
            new = seen.max(axis=1)
            given = _parts(_ask(answer, case, "m and l have one number for each row, the block has rows × keys: "
                                "m[:, None] makes a column of m, and axis=1 of max and sum takes the keys away.",
                                m, total, block), 2, "m and l", case)
            first = array(given[0], new.shape, what="m", case=case, nudge="m is one number for each row: f32[rows].")
            if isinstance(given[1], np.ndarray) and given[1].shape == new.shape and np.allclose(
                    given[1], new) and not np.allclose(first, new):
                raise Wrong("The largest score comes second.", case=case, nudge="Return m first, then l.")
            same_array(given[0], new.astype(np.float32), what="m", case=case,
                       nudge="m is the largest score of each row so far: of this block and of all before it.")
            want = np.exp(seen - new[:, None]).sum(axis=1)
            got = array(given[1], want.shape, what="l", case=case, nudge="l is one number for each row.")
            with np.errstate(all="ignore"):
                block64 = block.astype(np.float64)
                own = np.exp(block64 - new[:, None]).sum(axis=1)
                old = np.asarray(total, np.float64)
                stale = np.exp(block64 - block64.max(axis=1, keepdims=True)).sum(axis=1)
                plain = np.exp(seen).sum(axis=1)
            known = [(old + own, "The sum so far was taken against the old maximum. By what factor do its terms "
                                 "change when the maximum is another one?"),
                     (own, "That is the sum of this block alone. What of the blocks before?"),
                     (old * np.exp(np.where(np.isinf(m), 0.0, new - m)) + own,
                      "The factor is exp(m − new), which is at most 1: a larger maximum makes the old terms "
                      "smaller."),
                     (np.where(np.isinf(m), 0.0, old * np.exp(np.minimum(m - new, 0))) + stale,
                      "The block's own terms are taken against the block's maximum. They belong against the new "
                      "one, which may be an older block's."),
                     (old + stale, "The sum so far, and this block's own, are taken each against its own maximum. "
                                   "Both have to be taken against the new one: by what factor do terms change?"),
                     (plain, "No maximum is taken off: with large scores exp overflows."),
                     (want - own * 3 / 4, "The block's own terms are summed up, not averaged."),
                     (np.log(want), "l is the sum itself, not its logarithm.")]
            nudge = next((says for slip, says in known if np.allclose(got, slip, 1e-4, 1e-6, equal_nan=True)),
                         "l is Σ exp(score − m) over all keys so far, in float32. Go through one row by hand: what is "
                         "left of the old sum, and what does this block add?")
            if np.isnan(got).any():
                nudge = ("nan comes from inf − inf, or 0 · inf. Before the first block m is −inf and l is 0: "
                         "exp(−inf − new) is 0, and that is right.")
            same_array(given[1], want.astype(np.float32), rtol=1e-4, what="l", case=case, nudge=nudge)
            m, total = (np.asarray(part, np.float32) for part in given)


@exercise("11.2", "Rescaling", points=2)
def update(answer: Handle, trial: Trial) -> None:
    for n, low, high in trial.pick(visible=[(1, 0, 1), (2, 0, 4), (3, 88, 96)],
                                   hidden=[(1, -4, 4), (2, 0, 6), (4, 88, 95), (5, -4, 4)]):
        scores = trial.rng.uniform(low, high, (n, 3, 4)).astype(np.float32)
        values = trial.rng.normal(size=(n, 4, 5)).astype(np.float32)
        state = [np.full((3, 1), -np.inf, np.float32), np.zeros((3, 1), np.float32), np.zeros((3, 5), np.float32)]
        for i in range(n):
            case = f"block {i + 1} of {n}: 3 rows, 4 keys with scores from {low} to {high}, d = 5"
            given = _parts(_ask(answer, case, "m and l are columns, [rows, 1]: keepdims=True keeps the axis that max "
                                "and sum take away. Weights [rows, keys] and values [keys, d] make a matrix product: "
                                "weights @ values.", *state, scores[i], values[i]), 3, "m, l and acc", case)
            seen, old = np.concatenate(scores[:i + 1], axis=1).astype(np.float64), state
            new = seen.max(axis=1, keepdims=True)
            weights = np.exp(seen - new)
            same_array(given[0], new.astype(np.float32), what="m", case=case,
                       nudge="m is the largest score of each row so far, of shape [rows, 1] (keepdims=True).")
            same_array(given[1], weights.sum(axis=1, keepdims=True).astype(np.float32), rtol=1e-4, what="l", case=case,
                       nudge="l as in exercise 11.1: the old sum times exp(m − new), and the block's own terms.")
            want = weights @ np.concatenate(values[:i + 1]).astype(np.float64)
            about_acc = "acc is Σ exp(score − m)·value over the keys so far."
            got = array(given[2], want.shape, what="acc", case=case, nudge=about_acc)
            own = np.exp(scores[i].astype(np.float64) - new) @ values[i]
            known = [(old[2] + own, "l shrinks when the maximum grows, and acc has to shrink by the same factor."),
                     (own, "That is this block's part alone: what was in acc is lost."),
                     (want / weights.sum(axis=1, keepdims=True),
                      "That is divided by l already. The division waits until all keys have been seen.")]
            nudge = next((says for slip, says in known if np.allclose(got, slip, 1e-3, 1e-5)), about_acc)
            same_array(given[2], want.astype(np.float32), rtol=1e-3, atol=1e-4, what="acc", case=case, nudge=nudge)
            state = [np.asarray(part, np.float32) for part in given]


def _ask(answer: Handle, case: str, shapes: str, *arrays):
    """What the learner's function gives; if it stops at shapes that do not fit, `shapes` says what to think of."""
    try:
        return answer.call(*arrays)
    except AnswerFailed as failed:
        failed.case = case
        if "shape" in failed.message.lower() or "core dimension" in failed.message:  # jnp's words, and NumPy's of @
            failed.nudge = shapes
        raise


def _parts(given, count: int, names: str, case: str) -> list:
    if not isinstance(given, (tuple, list)) or len(given) != count:
        raise Wrong(f"Your function should return {names}: {count} arrays.", case=case, got=kind_of(given))
    return list(given)


@exercise("11.3", "The kernel", points=4)
def attention(answer: Handle, trial: Trial) -> None:
    for n, d, bq, bk, scores in trial.pick(
            visible=[(8, 4, 8, 8, ""), (24, 8, 12, 8, ""), (16, 4, 8, 8, DEEP), (24, 6, 8, 12, FALL)],
            hidden=[(16, 3, 16, 8, ""), (40, 8, 8, 10, ""), (20, 4, 10, 5, DEEP), (36, 4, 12, 9, FALL)]):
        q, k, v = _qkv(trial, n, d, bk, scores)
        case = f"q, k, v are f32[{n}, {d}], bq = {bq}, bk = {bk}" + scores
        fit = f"{how_cut('q', (n, d), (bq, d))}; {how_cut('k and v', (n, d), (bk, d))}"
        did = run(answer, case, fit, q, k, v, bq, bk)
        call = _attention_call(did, n, d, case)
        queries, keys = _insist_streams(call, n, d, bq, bk, case)
        _insist_result(did.result, attend(q, k, v), case, call, typical_slips(q, k, v, bq, bk), lambda i, j: True,
                       partial(answer.kernel, q, k, v, bq, bk, filling=FILLING), BY_HAND if n > bk else ONE_BLOCK)
        for x in keys:
            _insist_copies(x, keys, n // bk * (n // bq) if n > bk else 1, case, call)
        for x in queries:
            _insist_copies(x, queries, n // bq, case, call)


FALL, DEEP = ", scores of the first block of keys far above the others", ", all scores −4000"
FILLING = 7.0  # of memory that nobody wrote, when a result with nan in it is made a second time


def _qkv(trial: Trial, n: int, d: int, bk: int, scores: str = ""):
    """Scores of very different size, so that the maximum of a row moves from block to block.

    FALL: in the first block of keys about 120 higher, so that exp overflows where a later block's maximum is taken off.
    DEEP: all are alike, exp of each is 0 in float32, and they are lower than what m may start with, or a mask put in
    their place, if that is not very low.
    """
    q, k, v = (trial.rng.normal(size=(n, d)).astype(np.float32) for _ in range(3))
    if scores == DEEP:
        q[:], k[:] = 0, 0
        q[:, 0], k[:, 0] = 64, -4000 / 64 * math.sqrt(d)
        return q, k, v
    q, k = 3 * q, 2 * k
    if scores == FALL:
        q[:, 0] = 8
        k[:bk, 0] += 120 * math.sqrt(d) / 8
    return q, k, v


def _attention_call(did, n: int, d: int, case: str) -> KernelCall:
    """The one call that takes q, k and v and gives the result; no other may do a part of the work."""
    insist_called(did, case, "q, k and v")
    if did.made > 1:
        raise Wrong(f"Your function made {did.made} pallas_calls; one is to do all.", case=case,
                    nudge="Scores and weights must not leave the SRAM: the kernel does all three steps on each block.")
    call = did.calls[0]
    if [x.shape for x in call.inputs] != [(n, d)] * 3 or [x.shape for x in call.outputs] != [(n, d)]:
        raise Wrong("The call should take q, k and v and give the result.", case=case,
                    got=", ".join(f"{x.name}: {list(x.shape)}" for x in (*call.inputs, *call.outputs)),
                    nudge="m, l and acc are scratch (scratch_shapes), not outputs: nobody needs them afterwards.")
    return call


def _insist_streams(call: KernelCall, n: int, d: int, bq: int, bk: int, case: str):
    """The operands that go by blocks of queries, and those by blocks of keys."""
    q, k, v = call.inputs
    for names, operands, rows in (("queries", (q, *call.outputs), bq), ("keys", (k, v), bk)):
        for x in operands:
            if sizes(x) != (rows, d):
                raise Wrong(f"A block of {x.name} should be {rows} × {d}.", case=case, got=by(sizes(x)),
                            nudge=f"{x.name} goes by blocks of {names}, with as many rows as the parameter says, and "
                            "every block is as wide as the array.")
    return (q, *call.outputs), (k, v)


def _insist_copies(x, operands, most: int, case: str, call: KernelCall) -> None:
    if x.copies > most:
        which = "A block of queries" if len(operands) == 2 and x is operands[0] else f"A block of {x.name}"
        raise Wrong(f"{x.name} is copied {x.copies} times; {most} are enough.", case=case, schedule=schedule_of(call),
                    nudge=f"{which} should stay while what it is needed for goes on: which axis of the grid is the "
                          "inner one?")


def _unmet(call: KernelCall, needed) -> str:
    """The first block of keys that no step brings to a block of queries which needs it: needed(i, j)."""
    q, *keys = call.inputs
    for x in keys:
        met = {(of_q[0], of_x[0]) for of_q, of_x in zip(q.blocks, x.blocks, strict=True)}
        for i in range(q.shape[0] // sizes(q)[0]):
            for j in range(x.shape[0] // sizes(x)[0]):
                if needed(i, j) and (i, j) not in met:
                    return (f"{q.name}[{i}, 0] needs {x.name}[{j}, 0], and no step has both. Which axis of the grid "
                            f"goes through the blocks of keys? Look at the index map of {x.name}.")
    return ""


def _misplaced(call: KernelCall) -> str:
    """The first step that has a block of queries and writes another block of the result."""
    q, o = call.inputs[0], call.outputs[0]
    return next((f"Step {t} reads {block_name(q, of_q)} and writes {block_name(o, of_o)}. A block of the result "
                 "belongs to the same block of queries: compare the two index maps."
                 for t, (of_q, of_o) in enumerate(zip(q.blocks, o.blocks, strict=True)) if of_q != of_o), "")


ONE_BLOCK = ("Here is one block of keys alone, so nothing has to be rescaled. Go through one row by hand: its scores "
             "q·kᵀ/√d, exp(score − m), their sum l, and what they make of the rows of v.")
BY_HAND = ("Go through one row by hand: what do m, l and acc hold after the first block of keys, and after the second?")
MASKED = ("Go through one row by hand: which keys does the mask let through, and what do m, l and acc hold after each "
          "block of them?")


def _insist_result(result, expected: np.ndarray, case: str, call: KernelCall, slips: Slips, needed, refilled,
                   by_hand: str) -> None:
    """The result is right, and the call made it. `refilled()`: the run again, where unwritten memory holds FILLING.

    `by_hand`: what to look at where nothing more is known.
    """
    try:
        insist_values(call, 0, result, expected, case, close=(1e-3, 1e-4))
    except Wrong as wrong:
        if wrong.hazards and wrong.hazards[0].kind != "wrong block":
            wrong.nudge = _misplaced(call) or wrong.nudge
        elif isinstance(result, np.ndarray) and result.shape == expected.shape and wrong.got:
            wrong.nudge = _misplaced(call) or _unmet(call, needed) or next(
                (says for gives, says in slips if np.allclose(result, gives, 1e-3, 1e-4, equal_nan=True)), "") or (
                _why_nan(result, call, refilled) if wrong.got.startswith("nan") else "") or by_hand
        raise


def _why_nan(result: np.ndarray, call: KernelCall, refilled) -> str:
    """Where nan comes from: a second run, with numbers for memory that nobody wrote, tells."""
    calls = refilled().calls
    if not calls or not calls[-1].results or calls[-1].results[0].shape != result.shape:
        return ""
    o, again = call.outputs[0], calls[-1].results[0]
    if len(unwritten := np.argwhere(np.isnan(result) & (again == FILLING))):
        block = tuple(int(at) // size for at, size in zip(unwritten[0], sizes(o), strict=True))
        return (f"The kernel never writes {block_name(o, block)}: what was in memory stays there. The result is to be "
                f"written at the last inner step, for each block of queries. (The ref after the three inputs', "
                f"{o.name}, is the result's; those of scratch come behind it.)")
    if np.isfinite(again[np.isnan(result)]).all():
        return ("nan is what memory holds that nobody wrote: something is read before it was set up (l = 0, acc = 0, "
                "m = −inf at the first inner step).")
    return ("nan was computed here: from 0/0, inf/inf or inf − inf. Is l still 0 when the result is written? Does a "
            "row have no key at all in its first block, so that m stays at −inf?")


@predict("11.4", "What is left to move", points=2,
         show=lambda p: f"n = {p.n}, d = {p.d}, bq = {p.bq}, bk = {p.bk}, 2 bytes a number")
def traffic(p) -> list[Asked]:
    a, times, other = p.n * p.d * 2 / MIB, p.n // p.bq, p.n // p.bk
    return [
        Asked("The traffic", "MiB", 2 * a + 2 * a * times, [
            ("each array is moved once", 4 * a, "k and v come by once for each block of queries."),
            ("the scores are moved, too", 4 * a + 2 * p.n * p.n * 2 / MIB,
             "Scores and weights never leave the SRAM: that is what the one kernel is for."),
            ("the keys' blocks decide", 2 * a + 2 * a * other,
             "n/bk is how many blocks of keys there are. How often are all of them needed?"),
            ("everything is copied at each step of the outer axis", 4 * a * times,
             "A block of queries, and its block of the result, stay for a whole row of steps."),
            ("k only", 2 * a + a * times, "k and v both stream by."),
            ("the result needs no copy", a + 2 * a * times, "q comes in, and the result goes out."),
            ("numbers are bytes", a + a * times, "A bf16 has 2 bytes."),
            ("f32", 4 * a + 4 * a * times, "bf16 has 2 bytes, not 4.")],
            nudge="For each of the four arrays: how often is the whole of it copied?"),
        Asked("The ratio", "", (1 + times) / 2, [
            ("the blocks of queries", times, "q and the result are moved only once: they pull the mean down."),
            ("over one array", 2 + 2 * times, "There are four arrays to compare with, not one."),
            ("over q and k and v", (2 + 2 * times) / 3, "The result is one of the four arrays.")]),
    ]


@exercise("11.5", "Choose the blocks", points=3)
def blocks(answer: Handle, trial: Trial) -> None:
    p = personal("11.5", trial.student)
    case = f"n = {p.n}, d = {p.d}, {p.sram_kib} KiB, target {p.target_us:g} µs"
    given = answer.value()
    chosen = so_many(given, 3)
    if chosen is None:
        raise Wrong("`blocks` should hold three numbers: bq, bk and the depth.", case=case, got=kind_of(given))
    bq, bk, depth = (number(x, what) for x, what in zip(chosen, ("bq", "bk", "The depth"), strict=True))
    for what, block in (("bq", bq), ("bk", bk)):
        if block < 8 or block != int(block) or p.n % int(block):
            raise Wrong(f"{what} should be a whole number that divides n, and not tiny.", case=case, got=f"{block:g}",
                        nudge="Powers of two from 128 on are a good start.")
    if (p.n // bq) * (p.n // bk) > 70_000:
        raise Wrong("bq and bk should not both be tiny.", case=case, got=f"{bq:g} and {bk:g}",
                    nudge="Powers of two from 128 on are a good start.")
    if depth not in range(1, 9):
        raise Wrong("The depth should be a whole number from 1 to 8.", case=case, got=f"{depth:g}")
    kib, micros = cost(p.n, p.d, int(bq), int(bk), int(depth))
    scores, streams = 4 * bq * bk / KIB, 2 * depth * bk * p.d * 2 / KIB
    got = f"bq = {bq:g}, bk = {bk:g}, depth {depth:g}: {kib:,.0f} KiB, {micros:.1f} µs"
    if kib > p.sram_kib:
        raise Wrong(f"That needs {kib:,.0f} KiB of SRAM; {p.sram_kib} are left.", case=case, got=got,
                    nudge=f"The block of scores takes {scores:,.0f} KiB: it grows with bq and bk. The slots of k "
                          f"and v take {streams:,.0f}: bk and the depth. What goes with bq alone, q, the result and "
                          f"the scratch, takes {kib - scores - streams:,.0f}.")
    if micros > p.target_us * (1 + 1e-9):
        larger = {"twice the bq": (2 * bq, bk, depth), "twice the bk": (bq, 2 * bk, depth),
                  "one slot more": (bq, bk, depth + 1)}
        costs = {name: cost(p.n, p.d, int(a), int(b), int(c)) for name, (a, b, c) in larger.items()
                 if p.n % int(a) == 0 and p.n % int(b) == 0 and c <= 8}
        room = [f"{name} ({time:.1f} µs)" for name, (need, time) in costs.items()
                if need <= p.sram_kib and time < micros]
        raise Wrong("That fits, and is too slow.", case=case, got=got, expected=f"at most {p.target_us:g} µs",
                    nudge=f"There is room for {' or '.join(room)}." if room else
                    "Neither twice the bq nor twice the bk nor one slot more would fit and help: something has to "
                    f"shrink first. The scores take {scores:,.0f} KiB, the slots of k and v {streams:,.0f}.")


@exercise("11.6", "Causal, without the copies", points=4)
def causal(answer: Handle, trial: Trial) -> None:
    # DEEP with the largest b: all keys weigh the same, so none that the mask drops or lets through goes unseen.
    for n, d, b, scores in trial.pick(visible=[(16, 4, 4, ""), (36, 8, 12, DEEP), (16, 6, 8, FALL)],
                                      hidden=[(16, 3, 8, ""), (32, 4, 16, DEEP), (20, 8, 4, ""), (24, 4, 8, FALL)]):
        q, k, v = _qkv(trial, n, d, b, scores)
        blocks = n // b
        case = f"q, k, v are f32[{n}, {d}], b = {b}: {blocks} blocks of queries and of keys{scores}"
        did = run(answer, case, how_cut("q, k and v", (n, d), (b, d)), q, k, v, b)
        call = _attention_call(did, n, d, case)
        queries, keys = _insist_streams(call, n, d, b, b, case)
        slips = causal_slips(q, k, v, b, [block for block, _ in keys[0].blocks])
        _insist_result(did.result, attend(q, k, v, causal=True), case, call, slips, lambda i, j: j <= i,
                       partial(answer.kernel, q, k, v, b, filling=FILLING), MASKED)
        for x in keys:
            # Block i of the queries needs 0 to i; the last of a row may stay for the next one.
            for step, (of_q, of_k) in enumerate(zip(call.inputs[0].blocks, x.blocks, strict=True)):
                if of_k[0] > of_q[0]:
                    raise Wrong(f"Step {step} copies {x.name}[{of_k[0]}, 0] for block {of_q[0]} of the queries, which "
                                "may not look at it.", case=case, schedule=schedule_of(call),
                                nudge="The kernel cannot call off a copy. Let the index map stop: which block of keys "
                                      "is the last that block i of the queries needs?")
            most = blocks * (blocks + 1) // 2
            if x.copies > most:
                raise Wrong(f"{x.name} is copied {x.copies} times; {most} are enough.", case=case,
                            schedule=schedule_of(call), nudge="In the steps that need nothing new, the index must stay "
                            "the same as in the step before.")


@predict("11.7", "When is the network free?", points=2,
         show=lambda p: f"{p.keys} keys, d = {p.d}, {p.gb_per_s} GB/s, α = {p.alpha_us} µs, {p.tflops}·10¹² op/s")
def ring(p) -> list[Asked]:
    beta, flops = p.gb_per_s * 1e9, p.tflops * 1e12
    size, work = 4 * p.keys * p.d, 4 * p.keys * p.d  # bytes of keys and values; operations of one query with them
    hop = p.alpha_us * 1e-6 + size / beta
    least = float(math.ceil(hop * flops / work))  # no draw has a whole number before that: tests/unit/test_chapter11.py
    return [
        Asked("A hop", "µs", hop * 1e6, [
            ("latency is nothing", size / beta * 1e6, "What leaves the port arrives α later."),
            ("keys only", (p.alpha_us * 1e-6 + size / 2 / beta) * 1e6, "The values travel with the keys."),
            ("f32", (p.alpha_us * 1e-6 + 2 * size / beta) * 1e6, "bf16 has 2 bytes, not 4."),
            ("latency only", float(p.alpha_us), "The bytes take their time, too: bytes/β.")], 0.01,
            nudge="A hop is one transfer, of keys and values together: how many bytes, and how often α?"),
        Asked("The number of queries", "queries", least, [
            ("rounded down", least - 1, "So many take less time than a hop. Round up: the hop is hidden when they take "
                                        "at least as long."),
            ("an add and a multiply are one operation", float(math.ceil(2 * hop * flops / work)),
             "A multiply and an add are two operations."),
            ("scores only", float(math.ceil(2 * hop * flops / work)), "A multiply and an add are two operations."),
            ("latency is nothing", float(math.ceil(size / beta * flops / work)),
             "A hop takes α longer than its bytes: that has to be hidden, too.")], 0,
            nudge="One query with all keys and values makes 4·keys·d operations. How many queries make as many as the "
                  "matrix unit does during a hop? Count with the hop as it is, not rounded: the least whole number is "
                  "asked for.")]
