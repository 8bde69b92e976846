"""Where upstream's interpreter is wrong or silent: what the hardware gives, as the contract in docs/ says.

Upstream must take these kernels too; `expected` is the contract worked out in NumPy, and masked cells are left open.
"""
import jax.numpy as jnp
import numpy as np

from . import case, normal, shape


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def tail_of_a_sum(x):
    return np.ma.masked_invalid([x[0:4].sum(), x[4:8].sum(), np.nan])


@case(expected=tail_of_a_sum, hazard=r"output o: o\[2:3\] depends on memory")
def the_tail_of_an_edge_block_reaches_a_sum(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sum(x_ref[...], keepdims=True)
    return pl.pallas_call(kernel, shape(3), grid=(3,), in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
                          out_specs=pl.BlockSpec((1,), lambda i: (i,))), (normal(10),)


@case(expected=lambda x: x + 1)
def writes_past_the_edge_are_dropped(pl, pltpu):
    def kernel(x_ref, o_ref):
        inside = jnp.arange(4) + 4 * pl.program_id(0) < 10
        o_ref[...] = jnp.where(inside, x_ref[...] + 1, -7)
    block = pl.BlockSpec((4,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(10), grid=(3,), in_specs=[block], out_specs=block), (normal(10),)


@case(expected=lambda x: np.concatenate([x[4:6], x[6:8]]), hazard=r"output block o\[0\] is written again after step 0")
def an_output_block_that_is_revisited(pl, pltpu):
    return pl.pallas_call(copy, shape(4), grid=(4,), in_specs=[pl.BlockSpec((2,), lambda i: (i,))],
                          out_specs=pl.BlockSpec((2,), lambda i: (i % 2,))), (normal(8),)


def sums_of_other_blocks(x):
    # Visits take turns with two slots, so a block of the second pass finds what the visit two before it left there.
    (a, b, c), (d, e, f) = x.reshape(2, 3, 2)  # pass, block, element
    return np.concatenate([d + b, e + c, f + d + b])


@case(expected=sums_of_other_blocks, hazard="is written again")
def accumulating_over_an_outer_axis(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(6), grid=(2, 3), in_specs=[pl.BlockSpec((2,), lambda p, i: (3 * p + i,))],
                          out_specs=pl.BlockSpec((2,), lambda p, i: (i,))), (normal(12),)


@case(expected=lambda x: x + np.concatenate([np.zeros(4), x[:4]]), hazard=r"output o: o\[4:8\] depends on memory")
def a_stale_accumulator(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) < 2)  # each block should start at zero, not the first two only
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    block = pl.BlockSpec((2,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(8), grid=(4,), in_specs=[block], out_specs=block), (normal(8),)


@case(expected=lambda x: np.concatenate([x[:4], x[0:2], x[2:4]]), hazard=r"o\[4:8\] is never written")
def a_block_that_some_steps_do_not_write(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) < 2)
        def _():
            o_ref[...] = x_ref[...]
    block = pl.BlockSpec((2,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(8), grid=(4,), in_specs=[block], out_specs=block), (normal(8),)


@case(expected=lambda x: np.ma.array([*x[:4], 0, 0], mask=[0] * 4 + [1] * 2), hazard="no step visits 1 of its 3")
def a_block_that_no_step_visits(pl, pltpu):
    block = pl.BlockSpec((2,), lambda i: (i,))
    return pl.pallas_call(copy, shape(6), grid=(2,), in_specs=[block], out_specs=block), (normal(6),)


@case(expected=lambda x: np.tile(x, 2), hazard="writes to its input x")
def an_input_that_the_kernel_writes(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        x_ref[...] = x_ref[...] + 100
    return pl.pallas_call(kernel, shape(8), grid=(4,), in_specs=[pl.BlockSpec((2,), lambda i: (i % 2,))],
                          out_specs=pl.BlockSpec((2,), lambda i: (i,))), (normal(4),)


@case(expected=lambda x: np.ma.array(np.zeros(4), mask=True), hazard="is never written")
def an_aliased_output_that_the_kernel_does_not_write(pl, pltpu):
    def kernel(x_ref, o_ref):
        pass
    block = pl.BlockSpec((2,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(4), grid=(2,), in_specs=[block], out_specs=block,
                          input_output_aliases={0: 0}), (normal(4),)


@case(expected=lambda x: np.roll(x, 1) * [0, 1, 1, 1] + x * [1, 0, 0, 0], hazard="touches the block that the copy_")
def an_in_place_shift_that_prefetches_in_time(pl, pltpu):
    # Step i reads block i - 1 after it was fetched, two steps before it is written.
    one = pl.BlockSpec((1,), lambda i: (i,))
    return pl.pallas_call(copy, shape(4), grid=(4,), in_specs=[pl.BlockSpec((1,), lambda i: (jnp.maximum(i - 1, 0),))],
                          out_specs=one, input_output_aliases={0: 0}), (normal(4),)


def padded_sums(x):
    return np.ma.masked_invalid([np.nan, x[1:5].sum(), np.nan])


@case(expected=padded_sums, hazard=r"o\[0:1\] and o\[2:3\] depends on memory")
def the_padding_of_windows_reaches_a_sum(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sum(x_ref[...], keepdims=True)
    return pl.pallas_call(kernel, shape(3), grid=(3,),
                          in_specs=[pl.BlockSpec((pl.Element(4, padding=(2, 2)),), lambda i: (3 * i,))],
                          out_specs=pl.BlockSpec((1,), lambda i: (i,))), (normal(6),)


@case(expected=lambda x: x * 2)
def windows_that_write_past_the_edges(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.full_like(o_ref, -7)
        o_ref[pl.ds(1 - pl.program_id(0), 3)] = x_ref[...] * 2
    return pl.pallas_call(kernel, shape(6), grid=(2,), in_specs=[pl.BlockSpec((3,), lambda i: (i,))],
                          out_specs=pl.BlockSpec((pl.Element(4, padding=(1, 1)),), lambda i: (4 * i,))), (normal(6),)


@case(upstream="lower", expected=lambda x: np.concatenate([x[128:], x[:128]]))
def one_buffer_as_the_tpu_takes_it(pl, pltpu):
    return pl.pallas_call(copy, shape(256, 128), grid=(2,), in_specs=[
        pl.BlockSpec((128, 128), lambda i: (1 - i, 0), pipeline_mode=pl.Buffered(1))],
        out_specs=pl.BlockSpec((128, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(2))), (normal(256, 128),)
