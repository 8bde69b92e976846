"""Checks of chapter 8, matmul. Whole numbers as data: float32 adds them up exactly, so results must agree to the bit,
and a sum that bfloat16 cannot hold tells whether it was rounded on the way.

Next: kernels.py, what checks of pallas_call share; ../mutants/chapter8.py, planted answers.
"""
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.errors import many
from pallas_lite.hardware import TPU_V5E

from ..exercise import Trial, Wrong, exercise
from ..judge.handle import Handle, KernelCall, kind_of, number, so_many
from ..judge.predict import Asked, predict
from .kernels import how_cut, insist_blocks, insist_values, random_array, run, schedule_of, sizes, the_call
from .tuning import largest_excess, what_helps

US, MIB, BF16 = 1e-6, 2**20, np.dtype(ml_dtypes.bfloat16)

# m, n, k, bm, bn, bk: k cut; then all cut, into different numbers of steps, so that no two axes can be taken for each
# other. m, n and k differ, so that the arrays are known by their shapes. Few cases, since each is compiled anew.
# Each block size changes between them: one that is written in instead of the parameter shows.
VISIBLE = [(8, 24, 64, 8, 24, 32), (48, 32, 60, 12, 16, 20)]
HIDDEN = [(24, 16, 64, 12, 16, 32), (16, 48, 120, 4, 24, 20)]


def whole_numbers(trial: Trial, shape, low: int, high: int, dtype=BF16) -> np.ndarray:
    return trial.rng.integers(low, high, shape).astype(dtype)


def insist_tiles(call: KernelCall, m, n, k, bm, bn, bk, case: str) -> None:
    """No block of the product's three arrays is larger than asked for."""
    for block, shape in (((bm, bn), (m, n)), ((bm, bk), (m, k)), ((bk, bn), (k, n))):
        insist_blocks(call, block, shape, case)


def insist_product(call: KernelCall, result, expected: np.ndarray, case: str, slips=(), rounded=()) -> None:
    """The values of a product are right to the bit; else says how they came about, if one of the `slips` gives them.

    `slips`: (what the result would be, what to say). `rounded`: what it would be, to the bit, if rounded on the way.
    """
    if isinstance(result, np.ndarray) and result.shape == expected.shape and result.dtype != expected.dtype:
        raise Wrong(f"The result should be {expected.dtype}, as x is.", case=case, got=str(result.dtype),
                    nudge="Give that dtype in out_shape, and round at the end: .astype(o_ref.dtype).")
    try:
        insist_values(call, 0, result, expected, case)
    except Wrong as wrong:
        if wrong.hazards and wrong.hazards[0].kind != "wrong block":
            raise  # the hazard's own mend says it better
        if isinstance(result, np.ndarray) and result.shape == expected.shape:
            how = _finished_outside if np.array_equal(result, expected) else _how
            wrong.nudge = how(call, result, expected, slips, rounded) or wrong.nudge
        raise


def _finished_outside(call: KernelCall, _, expected: np.ndarray, slips, __) -> str:
    """What the call's own result lacks, where the function's is right."""
    if not call.results or (made := call.results[0]).shape != expected.shape:
        return ""
    if made.dtype != expected.dtype and np.array_equal(made.astype(expected.dtype), expected):
        return (f"The call gives {made.dtype}, and that is rounded after it. Let the kernel round, at the last step of "
                f"k (.astype(o_ref.dtype)), into an out_shape of {expected.dtype}.")
    says = next((says for value, says in slips if np.allclose(made.astype(np.float64), value, rtol=1e-2)), "")
    return says and f"Look at what the call itself gives, before anything is done to it outside. {says}"


def _how(_, result: np.ndarray, expected: np.ndarray, slips, rounded) -> str:
    got, expected = result.astype(np.float64), expected.astype(np.float64)
    for value, says in slips:
        if np.allclose(got, value, rtol=1e-2):
            return says
    if np.isnan(got).any():
        return ("There is nan in it: memory that nobody wrote. Scratch starts as garbage: does the first step of k "
                "clear the sum? And does the last one write the output?")
    once = ("Keep the sum in float32 scratch, ask jnp.dot for preferred_element_type=jnp.float32, and round to "
            "bfloat16 once, at the last step of k.")
    if any(np.array_equal(got, value) for value in rounded):
        return f"Nearly right: rounded too often. {once}"
    if np.allclose(got, expected, rtol=0.05, atol=0.02 * np.abs(expected).max()):
        return ("Nearly right. Either the kernel computes another thing, which comes near what is asked for, or "
                f"something is rounded before the end. {once}")
    return ""


def rounded_sums(x: np.ndarray, y: np.ndarray, bk: int, after=lambda total: total):
    """What comes out if products, or the sum, or both are rounded to bfloat16 at each step of k."""
    def narrow(a):
        return a.astype(BF16).astype(np.float32)

    def wide(a):
        return a
    for part, keep in ((narrow, wide), (wide, narrow), (narrow, narrow)):
        total = np.float32(0)
        for k in range(0, x.shape[1], bk):
            total = keep(total + part(x[:, k:k + bk].astype(np.float32) @ y[k:k + bk].astype(np.float32)))
        yield after(total).astype(BF16).astype(np.float64)


def k_slips(x: np.ndarray, y: np.ndarray, bk: int, after=lambda total: total):
    """What comes out if the sum over k is begun, or written, at the wrong step. Only where there are several."""
    x, y, k = x.astype(np.float64), y.astype(np.float64), x.shape[1]
    if k == bk:
        return []
    return [(after(x[:, :bk] @ y[:bk]), "That is the product of the first block of k alone. Write the output at the "
                                        "last step of k, when the sum is complete."),
            (after(x[:, -bk:] @ y[-bk:]), "That is the product of the last block of k alone. Add to the sum at every "
                                          "step, and clear it only at the first step of k.")]


def cleared_once(call: KernelCall, x: np.ndarray, y: np.ndarray, after=lambda total: total):
    """What comes out if the sum is cleared at the very first step alone. Only where there are several tiles."""
    out, total, grown = call.outputs[0], x.astype(np.float64) @ y.astype(np.float64), 0.0
    slip, (bm, bn) = np.full(total.shape, np.nan), sizes(out)
    for i, j in dict.fromkeys(out.blocks):
        tile = slice(i * bm, (i + 1) * bm), slice(j * bn, (j + 1) * bn)
        if total[tile].shape != (bm, bn):
            return []
        slip[tile] = grown = grown + total[tile]
    return [(after(slip), "The sum goes on from tile to tile. Clear it at the first step of k of every tile, not only "
                          "at the very first step.")] if (bm, bn) != total.shape else []


@exercise("8.1", "Matmul", points=3)
def matmul(answer: Handle, trial: Trial) -> None:
    for m, n, k, bm, bn, bk in trial.pick(VISIBLE, HIDDEN):
        x, y = whole_numbers(trial, (m, k), 1, 41), whole_numbers(trial, (k, n), 1, 41)
        case = f"x is bf16[{m}, {k}], y is bf16[{k}, {n}], bm = {bm}, bn = {bn}, bk = {bk}"
        fit = f"{how_cut('x', (m, k), (bm, bk))}; {how_cut('y', (k, n), (bk, bn))}"
        did = run(answer, case, fit, x, y, bm, bn, bk)
        call = the_call(did, [x, y], [(m, n)], case)
        insist_tiles(call, m, n, k, bm, bn, bk, case)
        expected = (x.astype(np.float32) @ y.astype(np.float32)).astype(BF16)
        insist_product(call, did.result, expected, case, [*k_slips(x, y, bk), *cleared_once(call, x, y)],
                       rounded_sums(x, y, bk))


@predict("8.2", "Bytes of each order", points=3,
         show=lambda p: f"x: bf16[{p.m}, {p.k}], w: bf16[{p.k}, {p.n}], tiles of {p.bm} × {p.bn}, k in {p.cut}")
def bytes_of_each_order(p) -> list[Asked]:
    x, w, out = (2 * size / MIB for size in (p.m * p.k, p.k * p.n, p.m * p.n))
    down, across = p.m // p.bm, p.n // p.bn
    a, b, c = x + down * w + out, across * x + w + out, across * x + down * w + out
    each = "For each of the three arrays: how often is the whole of it moved?"
    once = ("each array is moved once", x + w + out,
            "That is every array once. A block that was left is read again when it is needed again.")
    return [
        Asked("The traffic of A", "MiB", a, [
            once,
            ("the other array stays", b, "In A, m is the outer axis. Which of the two blocks does not change while n "
                                         "runs?"),
            ("no block stays", c, "With k whole, x's block is the same for all n. It stays."),
            ("numbers of 4 bytes", 2 * a, "A bfloat16 has 2 bytes."),
            *[("numbers are bytes", a / 2, "A bfloat16 has 2 bytes, not one.")] *
            (abs(a / 2 - once[1]) > 0.05 * a),
            ("outputs are free", a - out, "The output is moved, too.")], nudge=each),
        Asked("The traffic of B", "MiB", b, [
            once,
            ("the other array stays", a, "In B, n is the outer axis. Which of the two blocks does not change while m "
                                         "runs?"),
            ("no block stays", c, "With k whole, w's block is the same for all m. It stays."),
            ("outputs are free", b - out, "The output is moved, too.")], nudge=each),
        Asked("The traffic of C", "MiB", c, [
            once,
            ("x stays as in A", a, "With k cut, does x's block stay while n runs? k runs faster than n."),
            ("each block of k writes the output", c + (p.cut - 1) * out,
             "The output's block stays while k runs, and is copied out once."),
            ("k blocks, k times the bytes", p.cut * (c - out) + out,
             "Blocks of k are smaller: all of them together are the whole array, moved as often as before.")],
              nudge=each),
    ]


@exercise("8.3", "A fused epilogue", points=3)
def dense(answer: Handle, trial: Trial) -> None:
    for m, n, k, bm, bn, bk in trial.pick(VISIBLE, HIDDEN):
        x, w = whole_numbers(trial, (m, k), -20, 22), whole_numbers(trial, (k, n), -20, 22)
        bias = whole_numbers(trial, (1, n), -900, 900, np.float32) + np.float32(0.5)
        case = f"x is bf16[{m}, {k}], w is bf16[{k}, {n}], bm = {bm}, bn = {bn}, bk = {bk}"
        cuts = (("x", (m, k), (bm, bk)), ("w", (k, n), (bk, bn)), ("bias", (1, n), (1, bn)))
        fit = "; ".join(how_cut(*cut) for cut in cuts)
        did = run(answer, case, fit, x, w, bias, bm, bn, bk)
        call = the_call(did, [x, w, bias], [(m, n)], case)
        insist_tiles(call, m, n, k, bm, bn, bk, case)
        strip = next(operand for operand in call.inputs if operand.shape == bias.shape)
        if sizes(strip)[0] > 1:
            raise Wrong(f"A block of {strip.name} is higher than the array, which has one row.", case=case,
                        got=f"{list(strip.block_shape)}", expected=f"[1, {bn}]",
                        nudge="Past the edge there is garbage. A block of one row is enough: the sum broadcasts it "
                              "over the rows of the tile.")
        total = x.astype(np.float32) @ w.astype(np.float32)
        expected = np.maximum(total + bias, 0).astype(BF16)
        if any(np.array_equal(made, total.astype(BF16)) for made in call.results):
            raise Wrong("Your call makes the product alone, without bias and max.", case=case,
                        nudge="After the call, the product has been rounded, and makes a way to HBM and back. Let the "
                              "kernel add the bias and take the max, at the last step of k, before it rounds the sum.")
        def finished(total, bias=bias):
            return np.maximum(total + bias, 0)
        insist_product(call, did.result, expected, case, [
            *epilogue_slips(x, w, bias, bk, bn), *k_slips(x, w, bk, finished), *cleared_once(call, x, w, finished)],
            rounded_sums(x, w, bk, finished))


def epilogue_slips(x, w, bias, bk, bn):
    """What other epilogues give, where they give something else."""
    x, w, b = (a.astype(np.float64) for a in (x, w, bias))
    steps, total, grown, biased = x.shape[1] // bk, x @ w, np.zeros((len(x), w.shape[1])), 0.0
    parts = parts_biased = 0.0
    for k in range(0, x.shape[1], bk):
        part = x[:, k:k + bk] @ w[k:k + bk]
        grown, biased = np.maximum(grown + part, 0), np.maximum(biased + part + b, 0)
        parts, parts_biased = parts + np.maximum(part, 0), parts_biased + np.maximum(part + b, 0)
    early = "A sum that still grows must stay as it is: apply bias and max once, at the last step of k."
    right = np.maximum(total + b, 0)
    slips = [(total + b, "The activation is missing: max(…, 0), on the finished sum."),
             (np.maximum(total, 0), "The bias is missing."),
             (np.maximum(total, 0) + b, "First the bias, then max(…, 0): else results can be negative."),
             (np.maximum(total + steps * b, 0), "The bias came in at every step of k. " + early),
             (np.maximum(grown + b, 0), early), (biased, early),
             (np.maximum(parts + b, 0), "max(…, 0) was applied to each block's product. " + early),
             (parts_biased, "Bias and max(…, 0) were applied to each block's product. " + early),
             (np.maximum(total + np.tile(b[:, :bn], w.shape[1] // bn), 0),
              "Each tile got the first block of the bias. Its index map should follow j, as the columns of w do.")]
    return [(value, says) for value, says in slips if not np.allclose(value, right, rtol=1e-2)]


PRODUCT, TARGET = (2048, 2048, 8192), 363.0  # m, n, k; µs


@exercise("8.4", "Hit the target", points=3)
def hit_the_target(answer: Handle, trial: Trial) -> None:
    given = answer.value()
    numbers = so_many(given, 4)
    if numbers is None:
        raise Wrong("The choice should be four numbers in a row: bm, bn, bk, slots.", got=kind_of(given))
    given = [number(x, name) for x, name in zip(numbers, ("bm", "bn", "bk", "The number of slots"), strict=True)]
    if any(x != int(x) or not 1 <= x < 2**31 for x in given):
        raise Wrong("Block sizes and slots are whole numbers, 1 or more, and none that no chip could hold.",
                    got=", ".join(f"{x:g}" for x in given))
    bm, bn, bk, depth = map(int, given)
    choice = f"{bm} × {bn} × {bk}, {many(depth, 'slot')}"
    for name, size, block in zip(("m", "n", "k"), PRODUCT, (bm, bn, bk), strict=True):
        if block % 128 or size % block:
            raise Wrong(f"b{name} = {block} will not do.", got=choice,
                        nudge=f"It should be a multiple of 128 that divides {name} = {size}.")
    slots = bytes_of_slots(bm, bn, bk, depth)
    if slots > TPU_V5E.sram_bytes:
        raise Wrong("That does not fit into the SRAM.", got=f"{choice}: {slots / MIB:g} MiB",
                    expected=f"at most {TPU_V5E.sram_bytes / MIB:g} MiB",
                    nudge="x and w: slots × (bm·bk + bk·bn) numbers of 2 bytes. The output: 2 × bm·bn of 2 bytes. The "
                          "sum: bm·bn of 4 bytes.")
    t = product_timeline(bm, bn, bk, depth)
    if t.total > TARGET * US:
        helps, _ = what_helps((bm, bn, bk, depth), ("bm", "bn", "bk"), lambda c: product_timeline(*c).total,
                              may_be_chosen)
        raise Wrong("Right, but too slow.", got=f"{choice}: {t.total / US:.1f} µs", expected=f"at most {TARGET:g} µs",
                    nudge=f"{why_slow(t, bm, bn, bk)} {helps}".strip())


def bytes_of_slots(bm: int, bn: int, bk: int, depth: int) -> int:
    return 2 * (depth * (bm * bk + bk * bn) + 2 * bm * bn) + 4 * bm * bn


def may_be_chosen(choice: tuple[int, ...]) -> bool:
    blocks = zip(PRODUCT, choice[:3], strict=True)
    return all(block % 128 == 0 == size % block for size, block in blocks) and \
        bytes_of_slots(*choice) <= TPU_V5E.sram_bytes


def why_slow(t: pl.Timeline, bm: int, bn: int, bk: int) -> str:
    """What the time of a choice is made of, where that is above the target."""
    (m, n, k), compute, least = PRODUCT, t.terms["compute"] / US, max(t.terms.values()) / US
    said, (cause, above) = [], largest_excess(t)
    if t.bound == "latency":
        said.append(f"It is latency-bound: {least:.1f} µs.")
    elif t.bound == "bandwidth":
        said.append(f"It is bandwidth-bound: x is read {many(n // bn, 'time')}, w {many(m // bm, 'time')}.")
    elif compute <= TARGET:
        said.append(f"Its bounds would allow {least:.1f} µs. Most of what comes on top: {cause}, "
                    f"{above / US:.1f} µs.")
    if compute > TARGET:
        said.append(f"The core alone takes {compute:.1f} µs: it adds to each sum {many(k // bk, 'time')}.")
    return " ".join(said)


def product_timeline(bm: int, bn: int, bk: int, depth: int) -> pl.Timeline:
    """Of the exercise's product on a v5e. The kernel is traced for its work; nothing runs."""
    def kernel(x_ref, y_ref, o_ref, sum_ref):
        sum_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
    (m, n, k), slots = PRODUCT, pl.Buffered(depth)
    call = pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((m, n), jnp.bfloat16), grid=(m // bm, n // bn, k // bk),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k), slots),
                  pl.BlockSpec((bk, bn), lambda i, j, k: (k, j), slots)],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])
    return call.trace(*(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((m, k), (k, n)))).timeline(TPU_V5E)


@exercise("8.5", "Same body, one more axis", points=2)
def batched(answer: Handle, trial: Trial) -> None:
    cases = trial.pick([(2, 16, 24, 8, 16, 24), (1, 32, 48, 8, 16, 24), (3, 24, 36, 16, 8, 12)],
                       [(2, 32, 16, 24, 8, 16), (3, 12, 60, 24, 4, 20), (5, 16, 32, 24, 8, 16)])
    for batch, m, n, k, bm, bn in cases:
        x, y = random_array(trial, (batch, m, k)), random_array(trial, (batch, k, n))
        case = f"x is f32[{batch}, {m}, {k}], y is f32[{batch}, {k}, {n}], bm = {bm}, bn = {bn}"
        fit = (f"{how_cut('x', x.shape, (1, bm, k))}; {how_cut('y', y.shape, (1, k, bn))}. The body is for matrices: "
               "with None for 1 in a block's shape, its ref loses that axis")
        did = run(answer, case, fit, x, y, bm, bn)
        call = the_call(did, [x, y], [(batch, m, n)], case)
        for operand, block in zip((*call.inputs, *call.outputs), ((1, bm, k), (1, k, bn), (1, bm, bn)), strict=True):
            if any(has > most for has, most in zip(sizes(operand), block, strict=True)):
                raise Wrong(f"The blocks of {operand.name} are larger than the task allows.", case=case,
                            got=f"{list(operand.block_shape)}", expected=f"at most {list(block)}",
                            nudge="One matrix of the batch at a time (None), bm of its rows, bn of its columns.")
        expected = np.einsum("bmk,bkn->bmn", x, y, optimize=True)
        insist_values(call, 0, did.result, expected, case, sources=partial(_rows_and_columns, call, x.shape))
        rows = next(operand for operand in call.inputs if operand.shape == x.shape)
        blocks = batch * (m // bm)
        if rows.copies > blocks:
            raise Wrong(f"x has {blocks} blocks, but {rows.copies} are copied; each should be copied only once.",
                        case=case, schedule=schedule_of(call), got=f"{rows.copies} copies of x", expected=f"{blocks}",
                        nudge="x's block follows b and i, and not j. Which axis must be the innermost, for the block "
                              "to stay?")


def _rows_and_columns(call: KernelCall, of_x, block) -> list[tuple[int, ...]]:
    """Which block of each input makes a block of the output."""
    return [(block[0], block[1], 0) if operand.shape == of_x else (block[0], 0, block[2]) for operand in call.inputs]
