"""Prefetched scalars: index maps that follow data."""
import jax
import jax.numpy as jnp
import numpy as np

from . import case, integers, normal, shape


def copy(scalars_ref, x_ref, o_ref):
    o_ref[...] = x_ref[...]


@case
def gather_of_blocks(pl, pltpu):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(5,), in_specs=[pl.BlockSpec((2, 4), lambda i, which: (which[i], 0))],
        out_specs=pl.BlockSpec((2, 4), lambda i, which: (i, 0)))
    return pl.pallas_call(copy, shape(10, 4), grid_spec=spec), (np.array([2, 0, 0, 3, 1], np.int32), normal(8, 4))


@case
def scatter_of_blocks(pl, pltpu):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec((2, 4), lambda i, where: (i, 0))],
        out_specs=pl.BlockSpec((2, 4), lambda i, where: (where[i], 0)))
    return pl.pallas_call(copy, shape(8, 4), grid_spec=spec), (np.array([2, 0, 3, 1], np.int32), normal(8, 4))


@case
def two_prefetched_operands(pl, pltpu):
    def kernel(rows_ref, sign_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * sign_ref[pl.program_id(0), 0].astype(jnp.float32)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2, grid=(3,), in_specs=[pl.BlockSpec((None, 6), lambda i, rows, sign: (rows[2 - i], 0))],
        out_specs=pl.BlockSpec((None, 6), lambda i, *_: (i, 0)))
    return pl.pallas_call(kernel, shape(3, 6), grid_spec=spec), (
        np.array([4, 1, 3], np.int32), np.array([[1], [-2], [3]], np.int32), normal(5, 6))


@case
def scalars_that_only_the_kernel_reads(pl, pltpu):
    def kernel(n_ref, x_ref, o_ref):
        inside = jnp.arange(8) < n_ref[pl.program_id(0)]
        o_ref[...] = jnp.sum(jnp.where(inside, x_ref[...], 0), axis=1, keepdims=True)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec((1, 8), lambda i, n: (i, 0))],
        out_specs=pl.BlockSpec((1, 1), lambda i, n: (i, 0)))
    return pl.pallas_call(kernel, shape(4, 1), grid_spec=spec), (integers(0, 8, 4), normal(4, 8))


@case
def block_sparse_matmul(pl, pltpu):
    def kernel(rows_ref, columns_ref, first_ref, a_ref, b_ref, o_ref):
        @pl.when(first_ref[pl.program_id(0)] == 1)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += a_ref[...] @ b_ref[...]
    # The stored blocks of a matrix of 3 by 4 blocks, row by row.
    rows, columns = np.array([0, 0, 1, 2, 2, 2], np.int32), np.array([1, 3, 0, 0, 2, 3], np.int32)
    first = np.array([1, 0, 1, 1, 0, 0], np.int32)
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=3, grid=(6,), in_specs=[
        pl.BlockSpec((None, 4, 4), lambda s, rows, columns, first: (s, 0, 0)),
        pl.BlockSpec((4, 5), lambda s, rows, columns, first: (columns[s], 0))],
        out_specs=pl.BlockSpec((4, 5), lambda s, rows, columns, first: (rows[s], 0)))
    return pl.pallas_call(kernel, shape(12, 5), grid_spec=spec), (
        rows, columns, first, normal(6, 4, 4), normal(16, 5, seed=1))


@case
def ragged_groups_of_rows(pl, pltpu):
    def kernel(expert_ref, x_ref, w_ref, o_ref):
        o_ref[...] = x_ref[...] @ w_ref[...]
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(4, 2), in_specs=[
        pl.BlockSpec((2, 5), lambda i, j, expert: (i, 0)),
        pl.BlockSpec((None, 5, 3), lambda i, j, expert: (expert[i], 0, j))],
        out_specs=pl.BlockSpec((2, 3), lambda i, j, expert: (i, j)))
    return pl.pallas_call(kernel, shape(8, 6), grid_spec=spec), (
        np.array([1, 1, 0, 2], np.int32), normal(8, 5), normal(3, 5, 6, seed=1))


@case
def ragged_lengths_skip_blocks(pl, pltpu):
    def kernel(lengths_ref, x_ref, o_ref):
        b, j = pl.program_id(0), pl.program_id(1)

        @pl.when(j == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        @pl.when(j * 4 < lengths_ref[b])
        def _():
            at = j * 4 + jnp.arange(4)
            o_ref[...] += jnp.where(at < lengths_ref[b], x_ref[...], 0).sum(axis=-1, keepdims=True)

    def block(b, j, lengths):
        return b, jnp.minimum(j, jnp.maximum(lengths[b] - 1, 0) // 4)
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(3, 3), in_specs=[pl.BlockSpec((1, 4), block)],
                                        out_specs=pl.BlockSpec((1, 1), lambda b, j, lengths: (b, 0)))
    return pl.pallas_call(kernel, shape(3, 1), grid_spec=spec), (np.array([5, 0, 12], np.int32), normal(3, 12))


@case
def aliases_count_prefetched_scalars(pl, pltpu):
    def kernel(where_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * 10
    block = pl.BlockSpec((2, 4), lambda i, where: (where[i], 0))
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,), in_specs=[block], out_specs=block)
    return pl.pallas_call(kernel, shape(8, 4), grid_spec=spec, input_output_aliases={1: 0}), (
        np.array([3, 1], np.int32), normal(8, 4))


@case
def scalars_with_scratch_and_no_inputs(pl, pltpu):
    def kernel(x_ref, o_ref, total_ref):
        i = pl.program_id(0)

        @pl.when(i == 0)
        def _():
            total_ref[0] = 0
        total_ref[0] += x_ref[i]
        o_ref[...] = jnp.full((1, 3), total_ref[0])
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(4,), in_specs=[],
                                        out_specs=pl.BlockSpec((1, 3), lambda i, x: (i, 0)),
                                        scratch_shapes=[pltpu.SMEM((1,), jnp.int32)])
    return pl.pallas_call(kernel, shape(4, 3, dtype=jnp.int32), grid_spec=spec), (integers(0, 99, 4),)


@case
def scalars_traced_by_jit(pl, pltpu):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec((2, 4), lambda i, which: (which[i], 0))],
        out_specs=pl.BlockSpec((2, 4), lambda i, which: (i, 0)))
    call = pl.pallas_call(copy, shape(8, 4), grid_spec=spec)
    return jax.jit(lambda which, x: call(jnp.flip(which), x)), (np.array([2, 0, 3, 1], np.int32), normal(8, 4))


def update(pl, pltpu, sequences, places, **options):
    """Of each sequence's `places` in a cache that stays in HBM, the one that `where` says gets a new row."""
    def kernel(where_ref, new_ref, cache_hbm, o_ref):
        o_ref[...] = new_ref[...]
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(sequences,),
        in_specs=[pl.BlockSpec((None, 1, 128), lambda b, where: (b, 0, 0)), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((None, None, 1, 128), lambda b, where: (b, where[b], 0, 0)))
    return pl.pallas_call(kernel, shape(sequences, places, 1, 128), grid_spec=spec, **options)


@case
def new_rows_in_a_cache_that_the_output_shares(pl, pltpu):
    return update(pl, pltpu, 3, 8, input_output_aliases={2: 0}), (
        np.array([3, 0, 7], np.int32), normal(3, 1, 128), normal(3, 8, 1, 128))


@case
def an_operand_in_hbm_that_nobody_reads(pl, pltpu):
    return update(pl, pltpu, 4, 1), (np.zeros(4, np.int32), normal(4, 1, 128), normal(4, 1, 1, 128))
