"""Triton's shared memory for matmuls of many shapes at depth 1, against our count, to the byte. Needs the [gpu] extra.

At depth 1 the operands take little, so most of it is what the result is rearranged in before it is stored.
"""
import itertools

import jax.numpy as jnp
from jax.experimental.pallas import triton

import pallas_lite as pl

from . import NotHere
from ._gpu_kernels import shape

ROWS, COLUMNS, WARPS = (16, 32, 64, 128, 256, 512), (16, 32, 64, 128, 256), (4, 8)
DTYPES = ((jnp.float32, jnp.float32), (jnp.bfloat16, jnp.bfloat16), (jnp.bfloat16, jnp.float32))


def matmul(rows, columns, warps, dtype, result, n=1024, k=16):
    """x @ y in blocks, summed in the output's own slot."""
    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32).astype(o_ref.dtype)
    once = pl.Buffered(1)
    call = pl.pallas_call(kernel, shape(n, n, dtype=result), grid=(n // rows, n // columns, n // k),
                          in_specs=[pl.BlockSpec((rows, k), lambda i, j, k: (i, k), once),
                                    pl.BlockSpec((k, columns), lambda i, j, k: (k, j), once)],
                          out_specs=pl.BlockSpec((rows, columns), lambda i, j, k: (i, j)),
                          compiler_params=triton.CompilerParams(num_warps=warps))
    return call.trace(*[shape(n, n, dtype=dtype)] * 2)


def main(report) -> None:
    tried = right = 0
    for (dtype, result), warps, rows, columns in itertools.product(DTYPES, WARPS, ROWS, COLUMNS):
        if rows * columns > 2**15:
            continue
        try:
            memory = matmul(rows, columns, warps, dtype, result).lower("triton").compile().memory_analysis()
        except pl.NotSupportedError as error:
            raise NotHere(error) from error
        tried, right = tried + 1, right + (memory[0] == memory[1])
        if memory[0] != memory[1]:
            print(f"{dtype.__name__} -> {result.__name__}, {rows}×{columns}, {warps} warps: the compiler takes "
                  f"{memory[0]:,} bytes, we count {memory[1]:,}")
    report.figure("agree", f"{right} of {tried}")
