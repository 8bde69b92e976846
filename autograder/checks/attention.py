"""attention: what chapter 11 measures answers by: the right result, what slips give, and a modelled time."""
import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import TPU_V5E

KIB = 1024


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def attend(q, k, v, causal=False) -> np.ndarray:
    """softmax(q·kᵀ/√d)·v in float64."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    scores = q @ k.T / math.sqrt(q.shape[1])
    return softmax(np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf) if causal else scores) @ v


def online(q, k, v, bq, bk, *, scale=None, mask=None, needs=lambda i, j: True, first=lambda i, j: j == 0, last=None,
           of=lambda i, j: j, start=-np.inf, top=np.maximum, shrinks=(True, True), divide=True) -> np.ndarray:
    """The online softmax as a kernel does it, step (i, j) by step, in float32. Each keyword is a place for a slip.

    `scale` divides the scores; `mask(scores, query, key)` masks them, by the places of queries and keys. `first`,
    `needs` and `last` say in which steps the state is set up, the work done, the result written; `of` which block of
    keys is there. `top` makes the new m. `shrinks`: are l and acc rescaled? Rows that no step writes are nan.
    """
    (n, d), steps = q.shape, len(k) // bk
    result = np.full((n, d), np.nan, np.float32)
    m, total, acc = (np.full((bq, width), np.nan, np.float32) for width in (1, 1, d))
    with np.errstate(all="ignore"):
        for i, j in np.ndindex(n // bq, steps):
            rows, keys = np.arange(bq) + i * bq, np.arange(bk) + of(i, j) * bk
            if first(i, j):
                m, total, acc = np.full_like(m, start), np.zeros_like(total), np.zeros_like(acc)
            if needs(i, j):
                scores = q[rows] @ k[keys].T / np.float32(scale or math.sqrt(d))
                if mask is not None:
                    scores = mask(scores, rows[:, None], np.arange(bk)[None] + j * bk)
                new = top(m, scores.max(axis=1, keepdims=True))
                weights, shrink = np.exp(scores - new), np.exp(m - new)
                total = total * (shrink if shrinks[0] else 1) + weights.sum(axis=1, keepdims=True)
                acc = acc * (shrink if shrinks[1] else 1) + weights @ v[keys]
                m = new
            if last(i, j) if last else j == steps - 1:
                result[rows] = acc / total if divide else acc
    return result


Slips = Iterator[tuple[np.ndarray, str]]  # the result that a slip gives, and what to say of it


def typical_slips(q, k, v, bq, bk, **right) -> Slips:
    """What typical slips give. `right`: what `online` takes where there is no slip."""
    n, d = q.shape
    for slip, says in (
            ({"scale": 1}, "The scores are not divided by √d."),
            ({"scale": d}, "The scores are divided by d. It should be √d."),
            ({"scale": 1 / math.sqrt(d)}, "The scores are multiplied by √d. They should be divided by it."),
            *(({"scale": math.sqrt(other)}, f"The scores are divided by √{other}, and here d is {d}: it is "
               "q.shape[1].") for other in sorted({n, 4, 8, 16, 32, 64, 128, 256} - {1, d, d * d})),
            ({"divide": False}, "The result is not divided by l at the end."),
            ({"first": lambda i, j: True}, "Only the last block of keys is in the result; what m, l and acc held "
             "before is lost. Are they set up anew at every step? Is acc overwritten? Or does m never get its new "
             "value? Then it stays at −inf, and exp(m − new) is 0."),
            ({"last": lambda i, j: j == 0}, "Only the first block of keys is in the result. It should be written when "
             "the last one that counts has been seen."),
            ({"first": lambda i, j: i == j == 0}, "Only the first block of queries is right. m, l and acc keep what it "
             "left in them: they have to be set up anew for each block of queries."),
            ({"first": lambda i, j: i == 0}, "m, l and acc are set up in all steps of the first block of queries, and "
             "in no other. The inner axis of the grid is axis 1: they belong to its first step."),
            ({"shrinks": (True, False)}, "acc is not rescaled when the maximum grows; l is."),
            ({"shrinks": (False, True)}, "l is not rescaled when the maximum grows; acc is."),
            ({"shrinks": (False, False)}, "Neither l nor acc is rescaled when the maximum grows. The factor is "
             "exp(m − new), with the m of before: if m has its new value by then, the factor is exp(0)."),
            ({"start": 0}, "With such scores every exp is 0, and l, too, unless the row's own maximum is taken off "
             "first. Does m start at −inf? At any number above the scores it would stay there."),
            ({"top": lambda m, here: here}, "In the first block of keys the scores are much larger than later, and "
             "exp(m − new) overflows if new is the maximum of the later block alone. It is the larger of that and m.")):
        yield online(q, k, v, bq, bk, **right | slip), says
    yield online(q, v, k, bq, bk, **right), ("k and v have changed places. The call passes on its arrays in their "
                                             "order, and the kernel's refs come in the same.")
    yield online(k, q, v, bq, bk, **right), "q and k have changed places: each row of the result belongs to a query."
    if not right:
        s, blocks = q @ k.T / math.sqrt(d), [slice(t, t + bk) for t in range(0, len(k), bk)]
        yield (np.mean([softmax(s[:, b]) @ v[b] for b in blocks], axis=0),
               "The softmax is taken of each block of keys on its own. Its sum has to run over all blocks.")


def causal_slips(q, k, v, b, there: list[int]) -> Slips:
    """What slips of the mask give, then typical ones. `there`: the block of keys that each step of the grid has."""
    n, d = q.shape
    place = np.arange(n)
    row, column, s = place[:, None], place[None, :], q @ k.T / math.sqrt(d)

    def masked(keep):
        with np.errstate(all="ignore"):
            return softmax(np.where(keep, s, -np.inf)) @ v  # nan for a query without a key

    def of(i, j):
        return there[i * (n // b) + j] if len(there) == (n // b) ** 2 else min(i, j)

    def kernel(keep=lambda query, key: key <= query, needs=lambda i, j: j <= i, other=-np.inf, **more):
        return {"mask": lambda scores, query, key: np.where(keep(query, key), scores, np.float32(other)),
                "needs": needs, "last": lambda i, j: j == i, "of": of, **more}
    yield online(q, k, v, b, b, **kernel()), (
        "The mask takes the keys of step (i, j) for block j, and the index map brings another one. The places in the "
        "mask have to be those of the block that is there.")
    yield attend(q, k, v), "Nothing is masked: a query looks at keys behind its own place."
    yield masked(column // b <= row // b), ("Only whole blocks are masked. On the diagonal block, some keys are "
                                            "allowed and some are not.")
    for keep in column < row, (column < row) | (column == 0) & (row == 0):
        yield masked(keep), "A query may look at its own place: key ≤ query, not <."
    yield masked(column // b < row // b), "The block on the diagonal is left out. Some of its keys count: j ≤ i, not <."
    yield masked(column >= row), BACKWARDS
    every = {"needs": lambda i, j: True, "last": lambda i, j: j == n // b - 1}
    for slip, says in (
            ({"keep": lambda query, key: key >= query}, BACKWARDS),
            ({"keep": lambda query, key: key % b <= query % b}, "The mask compares places inside the blocks. Block i "
             "of the queries begins at place i · b, block j of the keys at j · b."),
            ({"keep": lambda query, key: key % b <= query}, "In the mask, block j of the keys begins at place 0. It "
             "begins at j · b."),
            ({"keep": lambda query, key: key <= query % b}, "In the mask, block i of the queries begins at place 0. It "
             "begins at i · b."),
            ({"keep": lambda query, key: key <= query + 1}, "A query looks at one key behind its own place, too. The "
             "last that counts is t = s."),
            ({"keep": lambda query, key: key > query}, BACKWARDS),
            ({"keep": lambda query, key: key // b + key % b <= query // b + query % b}, "In the mask, the numbers of "
             "the blocks are not multiplied by b. Block i of the queries begins at place i · b, block j of the keys at "
             "j · b."),
            *(({"keep": lambda query, key, size=size: key // b * size + key % b <= query // b * size + query % b}, "In "
               f"the mask, blocks have {size} places, and here b is {b}.") for size in sorted({4, 8, 12, 16} - {b})),
            ({"keep": lambda query, key: key <= query // b * b}, "In the mask, all queries of a block have the place "
             "of its first one. Row r of block i is at i · b + r."),
            ({"keep": lambda query, key: key // b * b + query % b <= query // b * b + key % b}, "The places run along "
             "the wrong axes: rows of the scores are queries (dimension 0), columns are keys (1)."),
            ({"needs": lambda i, j: j == i}, "Only the block of keys on the diagonal is in the result. A block of "
             "queries needs all blocks up to its own: the work is done in the steps with j ≤ i, and m, l and acc are "
             "set up before the first of them, at j == 0."),
            ({"needs": lambda i, j: j >= i, "last": every["last"]}, "The work is done in the steps with j ≥ i. A block "
             "of queries needs the blocks of keys up to its own: j ≤ i.")):
        for more in {}, every:
            yield online(q, k, v, b, b, **kernel(**more | slip)), says
    for other in 0, -1, -10, -100, -1000:
        for more in {}, every, {"start": other}, every | {"start": other}:
            yield online(q, k, v, b, b, **kernel(other=other, **more)), (
                "A masked score still counts: exp(0) is 1, and even exp(−100) or exp(−1000) is not 0 beside scores as "
                "low as that. It has to be −inf.")
    yield from typical_slips(q, k, v, b, b, **kernel())


BACKWARDS = "The mask is the wrong way round: key t counts for query s if t ≤ s."


def attention_kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    """The chapter's own kernel: its modelled time is what a choice of blocks is judged by."""
    @pl.when(pl.program_id(1) == 0)
    def _():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    scores = jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=jnp.float32)
    scores = scores / math.sqrt(q_ref.shape[1])
    new = jnp.maximum(m_ref[...], scores.max(axis=1, keepdims=True))
    weights, shrink = jnp.exp(scores - new), jnp.exp(m_ref[...] - new)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    m_ref[...] = new
    l_ref[...] = shrink * l_ref[...] + weights.sum(axis=1, keepdims=True)
    acc_ref[...] = shrink * acc_ref[...] + values

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _():
        o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)


@functools.cache
def cost(n: int, d: int, bq: int, bk: int, depth: int) -> tuple[float, float]:
    """KiB of SRAM with one block of scores, and modelled µs on TPU v5e, of attention in bf16 in these blocks."""
    array = jax.ShapeDtypeStruct((n, d), jnp.bfloat16)
    queries = pl.BlockSpec((bq, d), lambda i, j: (i, 0))
    keys = pl.BlockSpec((bk, d), lambda i, j: (j, 0), pipeline_mode=pl.Buffered(depth))
    scratch = [pltpu.VMEM((bq, width), jnp.float32) for width in (1, 1, d)]
    trace = pl.pallas_call(attention_kernel, array, grid=(n // bq, n // bk), in_specs=[queries, keys, keys],
                           out_specs=queries, scratch_shapes=scratch).trace(array, array, array)
    return (trace.schedule.sram_bytes + 4 * bq * bk) / KIB, trace.timeline(TPU_V5E).total * 1e6

