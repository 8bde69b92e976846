"""Grids and blocks: arrays cut in the ways that grid, block shape and index map allow."""
import functools

import jax.numpy as jnp

from . import case, normal, shape


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


@case
def add_on_an_int_grid(pl, pltpu):
    rows = pl.BlockSpec((2, 16), lambda i: (i, 0))
    return pl.pallas_call(add, shape(8, 16), grid=4, in_specs=[rows, rows], out_specs=rows), (
        normal(8, 16), normal(8, 16, seed=1))


@case
def add_on_two_axes(pl, pltpu):
    tile = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return pl.pallas_call(add, shape(12, 16), grid=(3, 2), in_specs=[tile, tile], out_specs=tile), (
        normal(12, 16), normal(12, 16, seed=1))


@case
def a_list_as_grid(pl, pltpu):
    rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
    return pl.pallas_call(double, shape(12, 8), grid=(pl.cdiv(12, 4),), in_specs=(rows,), out_specs=rows), (
        normal(12, 8),)


@case
def a_named_grid(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + (10 * pl.program_id(0) + pl.program_id(1)).astype(jnp.float32)
    tile = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return pl.pallas_call(kernel, shape(8, 24), grid=(("rows", 2), ("columns", 3)), in_specs=[tile],
                          out_specs=tile), (normal(8, 24),)


@case
def no_grid_and_no_specs(pl, pltpu):
    return pl.pallas_call(add, shape(8, 5)), (normal(8, 5), normal(8, 5, seed=1))


@case
def no_grid_with_block_shapes(pl, pltpu):
    whole = pl.BlockSpec((8, 5), lambda: (0, 0))
    return pl.pallas_call(double, shape(8, 5), in_specs=[whole], out_specs=whole), (normal(8, 5),)


@case
def a_grid_and_no_specs_at_all(pl, pltpu):
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[i, :] = x_ref[i, :] * 3
    return pl.pallas_call(kernel, shape(4, 8), grid=(4,)), (normal(4, 8),)


@case
def out_specs_alone(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(2 * pl.program_id(0), 2), :]
    return pl.pallas_call(kernel, shape(8, 6), grid=(4,), out_specs=pl.BlockSpec((2, 6), lambda i: (i, 0))), (
        normal(8, 6),)


@case
def block_specs_without_arguments(pl, pltpu):
    return pl.pallas_call(double, shape(3, 7), in_specs=[pl.BlockSpec()], out_specs=pl.BlockSpec()), (normal(3, 7),)


@case
def an_index_map_without_a_block_shape(pl, pltpu):
    return pl.pallas_call(double, shape(3, 7), grid=(1,), in_specs=[pl.BlockSpec(index_map=lambda i: (i, 0))],
                          out_specs=pl.BlockSpec(None, lambda i: (0, 0))), (normal(3, 7),)


@case
def no_inputs(pl, pltpu):
    def kernel(o_ref):
        o_ref[...] = jnp.full(o_ref.shape, pl.program_id(0) * 7, jnp.int32)
    return pl.pallas_call(kernel, shape(4, 8, dtype=jnp.int32), grid=(4,),
                          out_specs=pl.BlockSpec((1, 8), lambda i: (i, 0))), ()


@case
def index_maps_that_return_ints(pl, pltpu):
    block = pl.BlockSpec((4,), lambda i: i)
    return pl.pallas_call(double, shape(16), grid=(4,), in_specs=[block], out_specs=block), (normal(16),)


@case
def index_maps_that_return_lists(pl, pltpu):
    block = pl.BlockSpec((4, 4), lambda i: [i, 0])
    return pl.pallas_call(double, shape(16, 4), grid=(4,), in_specs=[block], out_specs=block), (normal(16, 4),)


@case
def blocks_in_reverse(pl, pltpu):
    return pl.pallas_call(double, shape(16), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i: (3 - i,))],
                          out_specs=pl.BlockSpec((4,), lambda i: (i,))), (normal(16),)


@case
def every_other_block(pl, pltpu):
    return pl.pallas_call(double, shape(8, 3), grid=(4,), in_specs=[pl.BlockSpec((2, 3), lambda i: (2 * i + 1, 0))],
                          out_specs=pl.BlockSpec((2, 3), lambda i: (i, 0))), (normal(16, 3),)


@case
def each_block_twice(pl, pltpu):
    return pl.pallas_call(double, shape(16, 3), grid=(8,), in_specs=[pl.BlockSpec((2, 3), lambda i: (i // 2, 0))],
                          out_specs=pl.BlockSpec((2, 3), lambda i: (i, 0))), (normal(8, 3),)


@case
def index_maps_that_compute_with_jnp(pl, pltpu):
    def before(i):
        return jnp.maximum(i - 1, 0), 0

    def after(i):
        return jnp.where(i == 3, i, i + 1), 0

    def kernel(x_ref, y_ref, z_ref, o_ref):
        o_ref[...] = z_ref[...] - 2 * y_ref[...] + x_ref[...]
    here = pl.BlockSpec((2, 4), lambda i: (i, 0))
    x = normal(8, 4)
    return pl.pallas_call(kernel, shape(8, 4), grid=(4,), in_specs=[pl.BlockSpec((2, 4), before), here,
                                                                     pl.BlockSpec((2, 4), after)],
                          out_specs=here), (x, x, x)


@case
def an_index_map_with_a_bound_argument(pl, pltpu):
    def rotated(by, i):
        return (i + by) % 4, 0
    return pl.pallas_call(double, shape(8, 4), grid=(4,),
                          in_specs=[pl.BlockSpec((2, 4), functools.partial(rotated, 3))],
                          out_specs=pl.BlockSpec((2, 4), lambda i: (i, 0))), (normal(8, 4),)


@case
def a_row_for_every_block(pl, pltpu):
    rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
    return pl.pallas_call(add, shape(12, 8), grid=(3,), in_specs=[rows, pl.BlockSpec((1, 8), lambda i: (0, 0))],
                          out_specs=rows), (normal(12, 8), normal(1, 8, seed=1))


@case
def outer_sum_of_two_vectors(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...][:, None] + y_ref[...][None, :]
    return pl.pallas_call(kernel, shape(8, 12), grid=(2, 3), in_specs=[
        pl.BlockSpec((4,), lambda i, j: (i,)), pl.BlockSpec((4,), lambda i, j: (j,))],
        out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j))), (normal(8), normal(12, seed=1))


@case
def transpose(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].T
    return pl.pallas_call(kernel, shape(12, 8), grid=(2, 3), in_specs=[pl.BlockSpec((4, 4), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((4, 4), lambda i, j: (j, i))), (normal(8, 12),)


@case
def permute_three_axes(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.transpose(x_ref[...], (2, 0, 1))
    return pl.pallas_call(kernel, shape(6, 4, 2), grid=(2, 1, 3),
                          in_specs=[pl.BlockSpec((2, 2, 2), lambda i, j, k: (i, j, k))],
                          out_specs=pl.BlockSpec((2, 2, 2), lambda i, j, k: (k, i, j))), (normal(4, 2, 6),)


@case
def squeezed_batch_of_matmuls(pl, pltpu):
    def kernel(a_ref, b_ref, o_ref):
        o_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)
    return pl.pallas_call(kernel, shape(3, 8, 4), grid=(3, 2), in_specs=[
        pl.BlockSpec((None, 4, 6), lambda b, i: (b, i, 0)), pl.BlockSpec((None, 6, 4), lambda b, i: (b, 0, 0))],
        out_specs=pl.BlockSpec((None, 4, 4), lambda b, i: (b, i, 0))), (normal(3, 8, 6), normal(3, 6, 4, seed=1))


@case
def a_tail_in_one_dimension(pl, pltpu):
    block = pl.BlockSpec((8,), lambda i: (i,))
    return pl.pallas_call(double, shape(21), grid=(pl.cdiv(21, 8),), in_specs=[block], out_specs=block), (normal(21),)


@case
def tails_in_two_dimensions(pl, pltpu):
    tile = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return pl.pallas_call(add, shape(10, 19), grid=(3, 3), in_specs=[tile, tile], out_specs=tile), (
        normal(10, 19), normal(10, 19, seed=1))


@case
def a_block_larger_than_its_array(pl, pltpu):
    block = pl.BlockSpec((8, 8), lambda i: (0, 0))
    return pl.pallas_call(double, shape(5, 6), grid=(1,), in_specs=[block], out_specs=block), (normal(5, 6),)


@case
def inputs_with_blocks_of_different_sizes(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...].reshape(4, 2, 4).sum(1) + y_ref[...]
    return pl.pallas_call(kernel, shape(8, 4), grid=(2,), in_specs=[
        pl.BlockSpec((8, 4), lambda i: (i, 0)), pl.BlockSpec((4, 4), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((4, 4), lambda i: (i, 0))), (normal(16, 4), normal(8, 4, seed=1))


@case
def four_axes(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] - pl.program_id(3).astype(jnp.float32) * pl.program_id(0).astype(jnp.float32)
    block = pl.BlockSpec((1, 2, 2, 2), lambda i, j, k, m: (i, j, k, m))
    return pl.pallas_call(kernel, shape(2, 4, 2, 6), grid=(2, 2, 1, 3), in_specs=[block], out_specs=block), (
        normal(2, 4, 2, 6),)
