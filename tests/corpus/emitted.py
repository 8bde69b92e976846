"""Pipelines inside a kernel (emit_pipeline): any depth, several axes, after each other, on a part of an array."""
import jax.numpy as jnp

from . import case, normal, shape
from .manual import buffer, hbm


def doubled(pl, pltpu, depth):
    def kernel(x_hbm, o_hbm):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2
        pltpu.emit_pipeline(
            body, grid=(5,), in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(depth))],
            out_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))])(x_hbm, o_hbm)
    return pl.pallas_call(kernel, shape(40, 128), in_specs=[hbm(pl)], out_specs=hbm(pl)), (normal(40, 128),)


@case(upstream="tpu")
def a_pipeline_with_one_slot(pl, pltpu):
    return doubled(pl, pltpu, 1)


@case(upstream="tpu")
def a_pipeline_with_two_slots(pl, pltpu):
    return doubled(pl, pltpu, 2)


@case(upstream="tpu")
def a_pipeline_with_three_slots(pl, pltpu):
    return doubled(pl, pltpu, 3)


@case(upstream="tpu")
def a_pipeline_with_four_slots(pl, pltpu):
    return doubled(pl, pltpu, 4)


@case(upstream="tpu")
def a_pipeline_over_two_axes(pl, pltpu):
    def kernel(x_hbm, y_hbm, sum_hbm, difference_hbm):
        def body(x_ref, y_ref, sum_ref, difference_ref):
            sum_ref[...] = x_ref[...] + y_ref[...] * (pl.program_id(1) + 1).astype(jnp.float32)
            difference_ref[...] = x_ref[...] - y_ref[...] * pl.num_programs(0)
        tile = pl.BlockSpec((8, 128), lambda i, j: (i, j))
        pltpu.emit_pipeline(body, grid=(3, 2), in_specs=[tile, pl.BlockSpec((8, 128), lambda i, j: (j, 2 - i))],
                            out_specs=[tile, tile])(x_hbm, y_hbm, sum_hbm, difference_hbm)
    return pl.pallas_call(kernel, [shape(24, 256)] * 2, in_specs=[hbm(pl)] * 2, out_specs=[hbm(pl)] * 2), (
        normal(24, 256), normal(16, 384, seed=1))


@case(upstream="tpu")
def a_matmul_that_accumulates_in_its_output(pl, pltpu):
    def kernel(x_hbm, y_hbm, o_hbm):
        def body(x_ref, y_ref, o_ref):
            @pl.when(pl.program_id(2) == 0)
            def _():
                o_ref[...] = jnp.zeros_like(o_ref)
            o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
        pltpu.emit_pipeline(body, grid=(2, 2, 3), in_specs=[
            pl.BlockSpec((8, 128), lambda i, j, k: (i, k), pipeline_mode=pl.Buffered(3)),
            pl.BlockSpec((128, 128), lambda i, j, k: (k, j))],
            out_specs=[pl.BlockSpec((8, 128), lambda i, j, k: (i, j))])(x_hbm, y_hbm, o_hbm)
    return pl.pallas_call(kernel, shape(16, 256), in_specs=[hbm(pl)] * 2, out_specs=hbm(pl)), (
        normal(16, 384), normal(384, 256, seed=1))


@case(upstream="tpu")
def a_pipeline_in_each_step_of_a_grid(pl, pltpu):
    def kernel(x_ref, y_hbm, o_ref):
        o_ref[...] = x_ref[...]

        def body(y_ref):
            o_ref[...] += y_ref[...] * x_ref[...]
        pltpu.emit_pipeline(body, grid=(3,), in_specs=[pl.BlockSpec((8, 128), lambda j: (j, 0))])(y_hbm)
    rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(16, 128), grid=(2,), in_specs=[rows, hbm(pl)], out_specs=rows), (
        normal(16, 128), normal(24, 128, seed=1))


@case(upstream="tpu")
def a_pipeline_on_a_part_of_an_array(pl, pltpu):
    def kernel(x_hbm, o_hbm):
        i = pl.program_id(0)

        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] + 1
        rows = pl.BlockSpec((8, 128), lambda j: (j, 0))
        pltpu.emit_pipeline(body, grid=(2,), in_specs=[rows], out_specs=[rows])(
            x_hbm.at[pl.ds(16 * (1 - i), 16)], o_hbm.at[pl.ds(16 * i, 16)])
    return pl.pallas_call(kernel, shape(32, 128), grid=(2,), in_specs=[hbm(pl)], out_specs=hbm(pl)), (
        normal(32, 128),)


@case(upstream="tpu")
def scratch_in_a_pipeline(pl, pltpu):
    def kernel(x_hbm, o_hbm, total):
        def body(x_ref, o_ref, total_ref):
            @pl.when(pl.program_id(0) == 0)
            def _():
                total_ref[...] = jnp.zeros_like(total_ref)
            total_ref[...] += x_ref[...]
            o_ref[...] = total_ref[...]
        rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(4,), in_specs=[rows], out_specs=[rows])(x_hbm, o_hbm, scratches=[total])
    return pl.pallas_call(kernel, shape(32, 128), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          scratch_shapes=[buffer(pltpu)]), (normal(32, 128),)


@case(upstream="tpu")
def copies_in_the_body_of_a_pipeline(pl, pltpu):
    def kernel(x_hbm, y_hbm, o_hbm, buf, sem):
        def body(x_ref, o_ref):
            pltpu.async_copy(y_hbm.at[pl.program_id(0)], buf, sem).wait()
            o_ref[...] = x_ref[...] - buf[...]
        rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(3,), in_specs=[rows], out_specs=[rows])(x_hbm, o_hbm)
    return pl.pallas_call(kernel, shape(24, 128), in_specs=[hbm(pl)] * 2, out_specs=hbm(pl),
                          scratch_shapes=[buffer(pltpu), pltpu.SemaphoreType.DMA]), (
        normal(24, 128), normal(3, 8, 128, seed=1))


@case(upstream="tpu")
def one_pipeline_after_the_other(pl, pltpu):
    def kernel(x_hbm, half_hbm, o_hbm):
        def halve(x_ref, o_ref):
            o_ref[...] = x_ref[...] / 2

        def reverse(x_ref, o_ref):
            o_ref[...] = jnp.flip(x_ref[...], 0)
        rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(halve, grid=(3,), in_specs=[rows], out_specs=[rows])(x_hbm, half_hbm)
        pltpu.emit_pipeline(reverse, grid=(3,), in_specs=[pl.BlockSpec((8, 128), lambda i: (2 - i, 0))],
                            out_specs=[rows])(half_hbm, o_hbm)
    return pl.pallas_call(kernel, [shape(24, 128)] * 2, in_specs=[hbm(pl)], out_specs=[hbm(pl)] * 2), (
        normal(24, 128),)


@case(upstream="tpu")
def one_array_twice_in_a_pipeline(pl, pltpu):
    def kernel(x_hbm, o_hbm):
        def body(x_ref, y_ref, o_ref):
            o_ref[...] = x_ref[...] * y_ref[...]
        pltpu.emit_pipeline(body, grid=(3, 2), in_specs=[
            pl.BlockSpec((8, 128), lambda i, j: (i, 0)), pl.BlockSpec((8, 128), lambda i, j: (j, 0))],
            out_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))])(x_hbm, x_hbm, o_hbm)
    return pl.pallas_call(kernel, shape(24, 256), in_specs=[hbm(pl)], out_specs=hbm(pl)), (normal(24, 128),)


@case(upstream="tpu")
def a_pipeline_over_a_squeezed_axis_in_bfloat16(pl, pltpu):
    def kernel(x_hbm, o_hbm):
        def body(x_ref, o_ref):
            o_ref[...] = (x_ref[...].astype(jnp.float32) * 3).astype(jnp.bfloat16)
        pltpu.emit_pipeline(body, grid=(4,), in_specs=[pl.BlockSpec((None, 16, 128), lambda i: (i, 0, 0))],
                            out_specs=[pl.BlockSpec((16, 128), lambda i: (i, 0))])(x_hbm, o_hbm)
    return pl.pallas_call(kernel, shape(64, 128, dtype=jnp.bfloat16), in_specs=[hbm(pl)], out_specs=hbm(pl)), (
        normal(4, 16, 128, dtype=jnp.bfloat16),)
