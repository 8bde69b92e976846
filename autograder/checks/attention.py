"""attention: what chapter 11 measures answers by: the right result, what slips give, and a modelled time."""
import functools
import math

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



def typical_slips(q, k, v, bq, bk) -> list[tuple[np.ndarray, str]]:
    """What typical slips give: (the result, what to say of it)."""
    n, d = q.shape
    s = q.astype(np.float64) @ k.T.astype(np.float64) / math.sqrt(d)
    blocks = [slice(t, t + bk) for t in range(0, n, bk)]
    m = np.full((n, 1), -np.inf)
    unscaled_acc, unscaled_l = np.zeros((n, d)), np.zeros((n, 1))
    for b in blocks:
        new = np.maximum(m, s[:, b].max(axis=1, keepdims=True))
        w, shrink = np.exp(s[:, b] - new), np.exp(m - new)
        unscaled_acc = unscaled_acc + w @ v[b]
        unscaled_l = unscaled_l * shrink + w.sum(axis=1, keepdims=True)
        m = new
    each = np.mean([softmax(s[:, b]) @ v[b] for b in blocks], axis=0)
    total = np.exp(s - s.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
    return [(attend(q * math.sqrt(d), k, v), "The scores are not divided by √d."),
            (attend(q, k, v) * total, "The result is not divided by l at the end."),
            (softmax(s[:, blocks[-1]]) @ v[blocks[-1]], "Only the last block of keys is in the result: m, l and acc "
             "are set up anew at every step, or acc is overwritten."),
            (unscaled_acc / unscaled_l, "acc is not rescaled when the maximum grows; l is."),
            (each, "The softmax is taken of each block of keys on its own. Its sum has to run over all blocks.")]



def causal_slips(q, k, v, b) -> list[tuple[np.ndarray, str]]:
    n, d = q.shape
    place = np.arange(n)
    s = q.astype(np.float64) @ k.T.astype(np.float64) / math.sqrt(d)

    def masked(keep):
        with np.errstate(all="ignore"):
            return softmax(np.where(keep, s, -np.inf)) @ v  # nan for a query without a key
    whole_blocks = place[None, :] // b <= place[:, None] // b
    before = place[None, :] < place[:, None]
    return [(attend(q, k, v), "Nothing is masked: a query looks at keys behind its own place."),
            (masked(whole_blocks), "Only whole blocks are masked. On the diagonal block, some keys are allowed and "
                                   "some are not."),
            *((masked(keep), "A query may look at its own place: key ≤ query, not <.")
              for keep in (before, before | (place[None, :] == 0) & (place[:, None] == 0))),
            (masked(place[None, :] // b < place[:, None] // b),
             "The block on the diagonal is left out. Some of its keys count: j ≤ i, not <."),
            *((softmax(np.where(place[None, :] <= place[:, None], s, np.where(seen, 0, -np.inf))) @ v,
               "exp(0) is 1, so a score of 0 still counts. A masked score has to be −inf.")
              for seen in (whole_blocks, True)),
            (masked(place[None, :] >= place[:, None]), "The mask is the wrong way round: key t counts for query s if "
                                                       "t ≤ s.")]



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

