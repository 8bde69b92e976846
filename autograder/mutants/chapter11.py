"""Planted answers of chapter 11: wrong ones with a word of the message that they must get, and right ones by style.

Those of 11.6 are in chapter11_causal.py.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from autograder import personal
from pallas_lite import tpu as pltpu


def running(m, total, block):
    new = np.maximum(m, block.max(axis=1))
    return new, total * np.exp(m - new) + np.exp(block - new[:, None]).sum(axis=1)


def running_without_rescaling(m, total, block):
    new = np.maximum(m, block.max(axis=1))
    return new, total + np.exp(block - new[:, None]).sum(axis=1)


def running_of_this_block(m, total, block):
    new = np.maximum(m, block.max(axis=1))
    return new, np.exp(block - new[:, None]).sum(axis=1)


def running_grows(m, total, block):
    new = np.maximum(m, block.max(axis=1))
    factor = np.where(np.isinf(m), 0, np.exp(new - m))
    return new, total * factor + np.exp(block - new[:, None]).sum(axis=1)


def running_each_on_its_own(m, total, block):
    own = block.max(axis=1)
    return np.maximum(m, own), total + np.exp(block - own[:, None]).sum(axis=1)


def running_in_a_row(m, total, block):
    new = np.maximum(m, block.max(axis=1))
    return new, total * np.exp(m - new) + np.exp(block - new).sum(axis=1)


def running_over_rows(m, total, block):
    new = np.maximum(m, block.max())
    return new, total * np.exp(m - new) + np.exp(block - new[:, None]).sum(axis=1)


def running_against_the_block(m, total, block):
    own = block.max(axis=1)
    new = np.maximum(m, own)
    return new, total * np.exp(m - new) + np.exp(block - own[:, None]).sum(axis=1)


def _with_own(m, total, block, own):
    new = np.maximum(m, block.max(axis=1))
    return new, total * np.exp(m - new) + own(np.exp(block - new[:, None]))


def running_forgets_the_maximum(m, total, block):
    new = block.max(axis=1)
    return new, total * np.exp(np.where(np.isinf(m), 0, m - new)) + np.exp(block - new[:, None]).sum(axis=1)


def running_in_jax(m, total, block):
    new = jnp.max(jnp.concatenate([m[:, None], block], axis=1), axis=1)
    return new, jnp.exp(m - new) * total + jnp.exp(block - new[:, None]).sum(1)


def update(m, total, acc, block, values):
    new = jnp.maximum(m, block.max(axis=1, keepdims=True))
    weights, shrink = jnp.exp(block - new), jnp.exp(m - new)
    return new, total * shrink + weights.sum(axis=1, keepdims=True), acc * shrink + weights @ values


def updated(change):
    """`update` with its result changed: change(m, l, acc of before, of after, own part of acc)."""
    def made(m, total, acc, block, values):
        new, new_total, new_acc = update(m, total, acc, block, values)
        return change((m, total, acc), (new, new_total, new_acc), jnp.exp(block - new) @ values)
    return made


def update_in_numpy(m, total, acc, block, values):
    new = np.maximum(m, np.max(block, axis=1)[:, None])
    weights = np.exp(block - new)
    return [new, np.exp(m - new) * total + np.sum(weights, 1, keepdims=True), np.exp(m - new) * acc + weights @ values]


def update_without_keepdims(m, total, acc, block, values):
    new = jnp.maximum(m, block.max(axis=1))
    weights, shrink = jnp.exp(block - new[:, None]), jnp.exp(m - new)
    return new, total * shrink + weights.sum(axis=1), acc * shrink + weights @ values


def make_attention(*, scale=math.sqrt, init="first", divide=True, rescale=(True, True), each=False, order="ij",
                   out="last", start_at=-jnp.inf, map_of_keys=lambda i, j: (j, 0),
                   map_of_result=lambda i, j: (i, 0), maximum="all", keep_m=True):
    """Attention with one part replaced."""
    def attention(q, k, v, bq, bk):
        n, d = q.shape
        inner = 1 if order == "ij" else 0

        def kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
            first = {"first": pl.program_id(inner) == 0, "first queries": pl.program_id(1 - inner) == 0}.get(
                init, pl.program_id(inner) >= 0)

            def start():
                m_ref[...] = jnp.full_like(m_ref, start_at)
                l_ref[...] = jnp.zeros_like(l_ref)
                acc_ref[...] = jnp.zeros_like(acc_ref)
            if init == "never":
                pass
            elif init == "whole call":
                pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))(start)
            else:
                pl.when(first)(start)
            s, old = jnp.dot(q_ref[...], k_ref[...].T) / scale(d), m_ref[...]
            here = s.max(axis=1, keepdims=True)
            new = {"all": jnp.maximum(old, here), "block": here, "none": old}[maximum]
            w, shrink = jnp.exp(s - new), jnp.exp(old - new)
            if each:
                acc_ref[...] += jax.nn.softmax(s, axis=1) @ v_ref[...] / (n // bk)
                l_ref[...] = jnp.ones_like(l_ref)
            else:
                l_ref[...] = l_ref[...] * (shrink if rescale[0] else 1) + w.sum(axis=1, keepdims=True)
                acc_ref[...] = acc_ref[...] * (shrink if rescale[1] else 1) + w @ v_ref[...]
            if keep_m:
                m_ref[...] = new

            @pl.when({"last": pl.program_id(inner) == n // bk - 1, "first": pl.program_id(inner) == 0,
                      "last queries": pl.program_id(0) == n // bq - 1, "never": pl.program_id(0) < 0}[out])
            def _():
                o_ref[...] = acc_ref[...] / l_ref[...] if divide else acc_ref[...]
        of = {"ij": (lambda i, j: (i, 0), map_of_keys), "ji": (lambda j, i: (i, 0), lambda j, i: (j, 0))}[order]
        queries, keys = pl.BlockSpec((bq, d), of[0]), pl.BlockSpec((bk, d), of[1])
        results = pl.BlockSpec((bq, d), map_of_result) if order == "ij" else queries
        grid = (n // bq, n // bk) if order == "ij" else (n // bk, n // bq)
        scratch = [pltpu.VMEM((bq, w), jnp.float32) for w in (1, 1, d)]
        return pl.pallas_call(kernel, q, grid=grid, in_specs=[queries, keys, keys], out_specs=results,
                              scratch_shapes=scratch)(q, k, v)
    return attention


def unscaled(d):
    return 1


def plain_attention(q, k, v, *_):
    return jax.nn.softmax(q @ k.T / math.sqrt(q.shape[1]), axis=1) @ v


def whole_attention(q, k, v, bq, bk):
    def kernel(q_ref, k_ref, v_ref, o_ref):
        o_ref[...] = plain_attention(q_ref[...], k_ref[...], v_ref[...])
    return pl.pallas_call(kernel, q)(q, k, v)


def keys_in_one_block(q, k, v, bq, bk):
    n, d = q.shape

    def kernel(q_ref, k_ref, v_ref, o_ref):
        o_ref[...] = plain_attention(q_ref[...], k_ref[...], v_ref[...])
    queries, keys = pl.BlockSpec((bq, d), lambda i: (i, 0)), pl.BlockSpec((n, d), lambda i: (0, 0))
    return pl.pallas_call(kernel, q, grid=(n // bq,), in_specs=[queries, keys, keys], out_specs=queries)(q, k, v)


def two_calls(q, k, v, bq, bk):
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] / math.sqrt(q.shape[1])
    q = pl.pallas_call(double, q)(q)
    return make_attention(scale=unscaled)(q, k, v, bq, bk)


def attention_in_the_output(q, k, v, bq, bk):
    """acc lives in the output block, m and l in one scratch buffer; the sum is kept as a logarithm."""
    n, d = q.shape

    def kernel(q_ref, k_ref, v_ref, o_ref, top_ref, log_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
            log_ref[...] = jnp.full_like(log_ref, -1e30)
            top_ref[...] = jnp.zeros_like(top_ref)
        s = q_ref[...] @ k_ref[...].T / math.sqrt(d)
        here = jax.nn.logsumexp(s, axis=1, keepdims=True)
        both = jnp.logaddexp(log_ref[...], here)
        o_ref[...] = o_ref[...] * jnp.exp(log_ref[...] - both) + jnp.exp(s - both) @ v_ref[...]
        log_ref[...] = both
    queries, keys = pl.BlockSpec((bq, d), lambda i, j: (i, 0)), pl.BlockSpec((bk, d), lambda i, j: (j, 0))
    scratch = {"top_ref": pltpu.VMEM((1, 1), jnp.float32), "log_ref": pltpu.VMEM((bq, 1), jnp.float32)}
    return pl.pallas_call(kernel, q, grid=(n // bq, n // bk), in_specs=[queries, keys, keys], out_specs=queries,
                          scratch_shapes=scratch)(q, k, v)


TASK = personal("11.5")
GOOD = {(64, 768): (256, 256, 4), (128, 1024): (256, 128, 4), (128, 1536): (512, 128, 4), (64, 1536): (512, 256, 4)}[
    TASK.d, TASK.sram_kib]

WRONG = {
    "11.1": [
        ("a sum only grows", running_without_rescaling, "By what factor"),
        ("the block is all there is", running_of_this_block, "blocks before"),
        ("the factor is the other way round", running_grows, "at most 1"),
        ("a block's sum is taken against the block's maximum, and that is that", running_each_on_its_own,
         "against its own maximum"),
        ("m fits the block as it is", running_in_a_row, "m[:, None]"),
        ("one maximum for all rows", running_over_rows, "of each row"),
        ("each block has its own maximum", running_against_the_block, "against the block's maximum"),
        ("the maximum of the last block will do", running_forgets_the_maximum, "all before it"),
        ("a mean is a sum", lambda m, total, block: _with_own(m, total, block, lambda terms: terms.mean(axis=1)),
         "not averaged"),
        ("the terms are the sum", lambda m, total, block: _with_own(m, total, block, lambda terms: terms),
         "of max and sum"),
        ("l is a logarithm", lambda m, total, block: (running(m, total, block)[0], np.log(running(
            m, np.where(np.isinf(m), 0, np.exp(total)), block)[1])), "not its logarithm"),
        ("l comes first", lambda m, total, block: running(m, total, block)[::-1], "m first, then l"),
        ("m is a column", lambda m, total, block: (running(m, total, block)[0][:, None], total), "f32[rows]"),
        ("only the sum is asked for", lambda m, total, block: running(m, total, block)[1], "m and l"),
    ],
    "11.2": [
        ("acc needs no correction", updated(lambda old, new, own: (*new[:2], old[2] + own)), "by the same factor"),
        ("acc is this block's", updated(lambda old, new, own: (*new[:2], own)), "is lost"),
        ("divide as you go", updated(lambda old, new, own: (*new[:2], new[2] / new[1])), "waits until all keys"),
        ("max takes no axis away", update_without_keepdims, "keepdims=True keeps"),
        ("m is a row", updated(lambda old, new, own: (new[0][:, 0], *new[1:])), "keepdims"),
        ("l needs no correction", updated(lambda old, new, own: (new[0], old[1] + new[1], new[2])),
         "as in exercise 11.1"),
        ("a product goes element by element", lambda m, total, acc, block, values: (*update(
            m, total, acc, block, values)[:2], acc + jnp.exp(block) * values), "weights @ values"),
        ("the weights are turned", lambda m, total, acc, block, values: (*update(
            m, total, acc, block, values)[:2], acc + np.exp(block).T @ values), "weights @ values"),
        ("m and l suffice", updated(lambda old, new, own: new[:2]), "m, l and acc"),
    ],
    "11.3": [
        ("the result is what counts", plain_attention, "no pallas_call"),
        ("one block is a pipeline", whole_attention, "lock of"),
        ("all keys at once", keys_in_one_block, "goes by blocks of keys"),
        ("two kernels are as good as one", two_calls, "one is to do all"),
        ("the scores are the dot products", make_attention(scale=unscaled), "divided by √d"),
        ("acc is the result", make_attention(divide=False), "not divided by l"),
        ("scratch starts as zero", make_attention(init="never"), "set up"),
        ("set up at every step", make_attention(init="every"), "Only the last block"),
        ("set up once for the whole call", make_attention(init="whole call"), "anew for each block"),
        ("a maximum starts at 0", make_attention(start_at=0.0), "start at −inf"),
        ("-1000 is low enough to start at", make_attention(start_at=-1000.0), "start at −inf"),
        ("exp needs no maximum", make_attention(start_at=0.0, maximum="none"), "maximum is taken off"),
        ("keys go with the queries", make_attention(map_of_keys=lambda i, j: (i, 0)), "index map of k"),
        ("only l is rescaled", make_attention(rescale=(True, False)), "acc is not rescaled"),
        ("a mean of softmaxes is a softmax", make_attention(each=True), "on its own"),
        ("the order of the axes does not matter", make_attention(order="ji"), ""),
        ("the first block already has the result", make_attention(out="first"), "Only the first block of keys"),
        ("the scores are divided by d", make_attention(scale=float), "divided by d. It should"),
        ("a maximum is the block's own", make_attention(maximum="block"), "larger of that and m"),
        ("the result needs no writing", make_attention(out="never"), "never writes o[0, 0]"),
        ("the result is written at the last block of queries", make_attention(out="last queries"),
         "never writes o[0, 0]"),
        ("m needs no writing", make_attention(keep_m=False), "never get its new value"),
        ("the factor is made of the new m", make_attention(rescale=(False, False)), "with the m of before"),
        ("only acc is rescaled", make_attention(rescale=(False, True)), "l is not rescaled"),
        ("set up while the first queries are there", make_attention(init="first queries"), "set up"),
        ("blocks of queries have 8 rows", lambda q, k, v, bq, bk: make_attention()(q, k, v, 8, bk), "should be"),
        ("blocks of keys have 8 rows", lambda q, k, v, bq, bk: make_attention()(q, k, v, bq, 8), "should be"),
        ("d is 4 or 8", make_attention(scale=lambda d: 2 if d == 4 else math.sqrt(8)), "divided by √8, and here d is"),
        ("d is the page's", make_attention(scale=lambda d: math.sqrt(128)), "divided by √128, and here d is"),
        ("the scores are multiplied by √d", make_attention(scale=lambda d: 1 / math.sqrt(d)), "multiplied by √d"),
        ("q is scaled before the call", lambda q, k, v, bq, bk: make_attention(scale=unscaled)(
            q / math.sqrt(q.shape[1]), k, v, bq, bk), "the arrays as they came"),
        ("k and v change places", lambda q, k, v, bq, bk: make_attention()(q, v, k, bq, bk), "k and v have changed"),
        ("the scores are made for keys, not queries", lambda q, k, v, bq, bk: make_attention()(k, q, v, bq, bk),
         "q and k have changed"),
        ("the result goes with the keys", make_attention(map_of_result=lambda i, j: (j, 0)), "index map"),
    ],
    "11.4": [("one number answers all", 12, "2 answers in a row")],
    "11.5": [
        ("the smallest blocks are the safest", (128, 128, 2), "too slow"),
        ("as large as it goes", (1024, 1024, 2), "block of scores"),
        ("depth is free", (1024, 512, 8), "KiB of SRAM"),
        ("one slot saves room", (GOOD[0], GOOD[1], 1), "one slot more ("),
        ("any block size divides", (100, 128, 2), "divides n"),
        ("two numbers are enough", (256, 256), "three numbers"),
        ("the whole array is a block", (TASK.n, TASK.n, 1), "KiB of SRAM"),
    ],
    "11.7": [("one number answers all", 12, "2 answers in a row")],
}
a, b = personal("11.4"), personal("11.7")
moved = sum(2 * a.d * keys for i in range(0, a.n, a.bq) for keys in (a.bq, a.bq, *[a.bk] * (2 * a.n // a.bk)))
hop = b.alpha_us * 1e-6 + 2 * b.keys * b.d * 2 / (b.gb_per_s * 1e9)

RIGHT = {
    "11.1": [("in NumPy", running), ("in JAX, by one maximum", running_in_jax)],
    "11.2": [("in JAX", update), ("in NumPy, as a list", update_in_numpy)],
    "11.3": [("three scratch buffers", make_attention()), ("a start that is no −inf", make_attention(start_at=-1e30)),
             ("acc in the output, a logarithm for m and l", attention_in_the_output)],
    "11.4": [("block by block, as a list", [moved / 2**20, moved / (4 * a.n * a.d * 2)])],
    "11.5": [("tried out", GOOD), ("as an array", np.array(GOOD))],
    "11.7": [("tried out, as an array", np.array([hop * 1e6, next(
        n for n in range(1, 10**6) if n * 4 * b.keys * b.d / (b.tflops * 1e12) >= hop)]))],
}
