"""Kernels of the GPU benchmarks and tests."""
import jax
import jax.numpy as jnp

import pallas_lite as pl
from pallas_lite import tpu as pltpu

MATMUL = ("parallel", "parallel", "arbitrary")


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def marked(*semantics):
    return pltpu.CompilerParams(dimension_semantics=semantics)


def add(n=512, block=64, depth=2, semantics=None):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    spec = pl.BlockSpec((block, block), lambda i, j: (i, j), pl.Buffered(depth))
    return pl.pallas_call(kernel, shape(n, n), grid=(-(-n // block),) * 2, in_specs=[spec, spec], out_specs=spec,
                          compiler_params=semantics and marked(*semantics))


def total(r=8, n=256, block=64, depth=2):
    """The sum over the first axis, in the output's own slot."""
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(
        kernel, shape(n, n), grid=(n // block, n // block, r),
        in_specs=[pl.BlockSpec((None, block, block), lambda i, j, k: (k, i, j), pl.Buffered(depth))],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)))


def matmul(n=1024, blocks=(128, 128, 64), depth=2, dtype=jnp.float32, semantics=MATMUL, transposed=False):
    """x @ y in blocks (m, n, k), or x @ y.T, summed in float32 scratch."""
    bm, bn, bk = blocks

    def kernel(x_ref, y_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref)
        sum_ref[...] += product(x_ref, y_ref, transposed)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = sum_ref[...].astype(o_ref.dtype)
    return pl.pallas_call(
        kernel, shape(n, n, dtype=dtype), grid=(n // bm, n // bn, n // bk), compiler_params=marked(*semantics),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k), pl.Buffered(depth)),
                  right_side(bk, bn, depth, transposed)],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])


def into_output(n=1024, blocks=(128, 128, 64), depth=2, dtype=jnp.float32, semantics=MATMUL, transposed=False):
    """The same, summed in a float32 output."""
    bm, bn, bk = blocks

    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += product(x_ref, y_ref, transposed)
    return pl.pallas_call(
        kernel, shape(n, n), grid=(n // bm, n // bn, n // bk), compiler_params=marked(*semantics),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k), pl.Buffered(depth)),
                  right_side(bk, bn, depth, transposed)],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)))


def product(x_ref, y_ref, transposed):
    return jnp.dot(x_ref[...], y_ref[...].T if transposed else y_ref[...], preferred_element_type=jnp.float32)


def right_side(bk, bn, depth, transposed):
    if transposed:
        return pl.BlockSpec((bn, bk), lambda i, j, k: (j, k), pl.Buffered(depth))
    return pl.BlockSpec((bk, bn), lambda i, j, k: (k, j), pl.Buffered(depth))
