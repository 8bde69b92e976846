"""Planted answers of 11.6, causal attention, in the form of chapter11.py."""
import math

import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from pallas_lite import tpu as pltpu

from .chapter11 import unscaled


def make_causal(*, map_of_keys=lambda i, j: (jnp.minimum(i, j), 0), keep=lambda key, query, b: key <= query,
                at_end=False, skip=True, nothing=-1e30, needs=lambda j, i: j <= i, start_at=-1e30, scale=math.sqrt,
                maximum=jnp.maximum, out=lambda j, i: j == i, turned=False, sets=lambda j, i: j == 0,
                steps=None):
    """Causal attention with one part replaced. With `nothing` -inf, a row without a key gives nan, as in plain code."""
    def causal(q, k, v, b):
        n, d = q.shape

        def kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
            i, j = pl.program_id(0), pl.program_id(1)

            @pl.when(sets(j, i))
            def _():
                m_ref[...] = jnp.full_like(m_ref, start_at)
                l_ref[...] = jnp.zeros_like(l_ref)
                acc_ref[...] = jnp.zeros_like(acc_ref)

            @pl.when(needs(j, i) if skip else (j >= 0))
            def _():
                s = jnp.dot(q_ref[...], k_ref[...].T) / scale(d)
                query = i * b + jax.lax.broadcasted_iota(jnp.int32, (b, b), 1 if turned else 0)
                key = j * b + jax.lax.broadcasted_iota(jnp.int32, (b, b), 0 if turned else 1)
                allowed = keep(key, query, b)
                s = jnp.where(allowed, s, nothing)
                new = maximum(m_ref[...], s.max(axis=1, keepdims=True))
                w, shrink = jnp.exp(s - new), jnp.exp(m_ref[...] - new)
                if nothing != -jnp.inf:
                    w = jnp.where(allowed | (s > -1e29), w, 0)
                m_ref[...] = new
                l_ref[...] = l_ref[...] * shrink + w.sum(axis=1, keepdims=True)
                acc_ref[...] = acc_ref[...] * shrink + w @ v_ref[...]

            @pl.when(j == pl.num_programs(1) - 1 if at_end else out(j, i))
            def _():
                o_ref[...] = acc_ref[...] / l_ref[...]
        queries, keys = pl.BlockSpec((b, d), lambda i, j: (i, 0)), pl.BlockSpec((b, d), map_of_keys)
        scratch = [pltpu.VMEM((b, w), jnp.float32) for w in (1, 1, d)]
        return pl.pallas_call(kernel, q, grid=(n // b, steps or n // b), in_specs=[queries, keys, keys],
                              out_specs=queries, scratch_shapes=scratch)(q, k, v)
    return causal


def with_b(size):
    """Right, but with blocks of that size instead of b."""
    return lambda q, k, v, b: make_causal()(q, k, v, size)


def masked_by(size):
    """Right, but with the mask of blocks of that size."""
    return make_causal(keep=lambda key, query, b: key // b * size + key % b <= query // b * size + query % b)


def by_the_block(key, query, b):
    return key // b <= query // b


def triangle_walked_flat(q, k, v, b):
    """Only the steps that are needed: a grid of n(n+1)/2 steps, its row found from the step's number by a table."""
    n, d = q.shape
    pairs = np.array([(i, j) for i in range(n // b) for j in range(i + 1)], np.int32)
    rows, columns = jnp.asarray(pairs[:, 0]), jnp.asarray(pairs[:, 1])

    def kernel(rows_ref, columns_ref, q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
        t = pl.program_id(0)
        i, j = rows_ref[t], columns_ref[t]

        @pl.when(j == 0)
        def _():
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)
        s = jnp.dot(q_ref[...], k_ref[...].T) / math.sqrt(d)
        query = i * b + jax.lax.broadcasted_iota(jnp.int32, (b, b), 0)
        key = j * b + jax.lax.broadcasted_iota(jnp.int32, (b, b), 1)
        s = jnp.where(key <= query, s, -jnp.inf)
        new = jnp.maximum(m_ref[...], s.max(axis=1, keepdims=True))
        w, shrink = jnp.exp(s - new), jnp.exp(m_ref[...] - new)
        m_ref[...], l_ref[...] = new, l_ref[...] * shrink + w.sum(axis=1, keepdims=True)
        acc_ref[...] = acc_ref[...] * shrink + w @ v_ref[...]

        @pl.when(j == i)
        def _():
            o_ref[...] = acc_ref[...] / l_ref[...]
    queries = pl.BlockSpec((b, d), lambda t, rows, columns: (rows[t], 0))
    keys = pl.BlockSpec((b, d), lambda t, rows, columns: (columns[t], 0))
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=2, grid=(len(pairs),), in_specs=[queries, keys, keys],
                                        out_specs=queries,
                                        scratch_shapes=[pltpu.VMEM((b, w), jnp.float32) for w in (1, 1, d)])
    return pl.pallas_call(kernel, q, grid_spec=spec)(rows, columns, q, k, v)


WRONG = {
    "11.6": [
        ("the kernel calls the copies off", make_causal(map_of_keys=lambda i, j: (j, 0)), "cannot call off"),
        ("nothing is masked", make_causal(keep=lambda key, query, b: key >= 0, skip=False,
                                          map_of_keys=lambda i, j: (j, 0), at_end=True), "Nothing is masked"),
        ("whole blocks are enough", make_causal(keep=by_the_block), "diagonal block"),
        ("0 is as good as nothing", make_causal(nothing=0.0), "exp(0) is 1"),
        ("the diagonal block is not needed", make_causal(needs=lambda j, i: j < i), "on the diagonal is left out"),
        ("the larger of the two", make_causal(map_of_keys=lambda i, j: (jnp.maximum(i, j), 0)), "index map of k"),
        ("a query sees only what was before", make_causal(keep=lambda key, query, b: key < query), "key ≤ query"),
        ("a query does not see itself", make_causal(keep=lambda key, query, b: (key < query) | (key + query == 0)),
         "key ≤ query"),
        ("the mask looks forward", make_causal(keep=lambda key, query, b: key >= query, skip=False,
                                               map_of_keys=lambda i, j: (j, 0), at_end=True), "wrong way round"),
        ("back to block 0 when there is nothing to do", make_causal(
            map_of_keys=lambda i, j: (jnp.where(j <= i, j, j % 2), 0)), ""),
        ("−10 is as good as nothing", make_causal(nothing=-10.0), "still counts"),
        ("−100 is as good as nothing", make_causal(nothing=-100.0), "even exp(−100)"),
        ("a block knows its own places only", make_causal(keep=lambda key, query, b: key % b <= query % b),
         "places inside the blocks"),
        ("keys begin at 0", make_causal(keep=lambda key, query, b: key % b <= query), "It begins at j · b"),
        ("queries begin at 0", make_causal(keep=lambda key, query, b: key <= query % b, nothing=-jnp.inf),
         "It begins at i · b"),
        ("rows are keys", make_causal(turned=True), "wrong axes"),
        ("the mask looks forward, in the blocks that are there", make_causal(
            keep=lambda key, query, b: key >= query, nothing=-jnp.inf, start_at=-jnp.inf), "wrong way round"),
        ("the blocks behind are needed", make_causal(needs=lambda j, i: j >= i, at_end=True), "up to its own"),
        ("the first block already has the result", make_causal(out=lambda j, i: j == 0),
         "Only the first block of keys"),
        ("the keys backwards", make_causal(map_of_keys=lambda i, j: (jnp.maximum(i - j, 0), 0)),
         "index map brings another"),
        ("Python's min in an index map", make_causal(map_of_keys=lambda i, j: (min(i, j), 0)), "jnp.minimum"),
        ("the scores are the dot products", make_causal(scale=unscaled), "divided by √d"),
        ("a maximum is the block's own", make_causal(maximum=lambda old, here: here), "larger of that and m"),
        ("a maximum starts at 0", make_causal(start_at=0.0), "start at −inf"),
        ("a masked score of −1000 is as good as none", make_causal(nothing=-1000.0), "It has to be −inf"),
        ("-1000 is low enough to start at", make_causal(start_at=-1000.0), "start at −inf"),
        ("blocks have the size that the first case has", with_b(4), "should be"),
        ("in the mask, blocks have 8 places", masked_by(8), "blocks have 8 places"),
        ("three blocks of keys are all", make_causal(steps=3, at_end=True), ""),
        ("d is 4 or 8", make_causal(scale=lambda d: 2 if d == 4 else math.sqrt(8)), "divided by √8, and here d is"),
        ("one key more", make_causal(keep=lambda key, query, b: key <= query + 1), "one key behind"),
        ("a block's number is its place", make_causal(
            keep=lambda key, query, b: key // b + key % b <= query // b + query % b), "not multiplied by b"),
        ("a query's place is its block's", make_causal(keep=lambda key, query, b: key <= query // b * b),
         "of its first one"),
        ("set up on the diagonal", make_causal(sets=lambda j, i: j == i), "set up before the first"),
        ("a query looks forward, and not at itself", make_causal(
            keep=lambda key, query, b: key > query, nothing=-jnp.inf, start_at=-jnp.inf), "wrong way round"),
        ("k and v change places", lambda q, k, v, b: make_causal()(q, v, k, b), "k and v have changed places"),
        ("in plain jnp", lambda q, k, v, b: jax.nn.softmax(jnp.where(
            jnp.tri(q.shape[0], dtype=bool), q @ k.T / math.sqrt(q.shape[1]), -jnp.inf), axis=1) @ v, "no pallas_call"),
    ],
}

RIGHT = {
    "11.6": [("the index stops", make_causal()), ("written at the last step", make_causal(at_end=True)),
             ("no step in vain, by prefetched tables", triangle_walked_flat)],
}
