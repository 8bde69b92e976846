"""Kernels for the tests of GPU programs, with operands; and Mosaic GPU's interpreter, which looks for races."""
import sys

import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from benchmarks._gpu_kernels import add, into_output, marked, matmul, shape, total
from pallas_lite import tpu as pltpu

ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))
SWAPPED = pl.BlockSpec((8, 128), lambda i: (i ^ 1, 0))  # no sum of multiples of the grid index


def looking_for_races():
    """Parameters of Mosaic GPU's interpreter."""
    try:
        from jax.experimental.pallas.mosaic_gpu import InterpretGPUParams
    except ImportError:  # jax 0.10.2 has it, without a public name
        from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
    return InterpretGPUParams(detect_races=True)


def races():
    """Did the interpreter find a race since it was last asked? None if it ran nothing. It has no public name either."""
    state = sys.modules["jax._src.pallas.mosaic_gpu.interpret.gpu_callbacks"]
    found = state.get_races().races_found if state._races else None
    state.reset_gpu_interpret_mode_state()
    return found


def normal(*dims, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(dims), dtype)


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def running_sum(x_ref, o_ref, sum_ref):
    """A value in scratch goes from each step to the next."""
    @pl.when(pl.program_id(0) == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)
    sum_ref[...] += x_ref[...]
    o_ref[...] = sum_ref[...]


def gathered():
    spec = pltpu.PrefetchScalarGridSpec(1, (4,), [pl.BlockSpec((8, 128), lambda i, rows: (rows[i], 0))],
                                      pl.BlockSpec((8, 128), lambda i, rows: (i, 0)))

    def kernel(rows_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * rows_ref[pl.program_id(0)].astype(jnp.float32)
    return pl.pallas_call(kernel, shape(32, 128), grid_spec=spec)


def gated(x_ref, w_ref, v_ref, o_ref, a_ref, b_ref):
    """Two matmuls of one block, into two accumulators."""
    @pl.when(pl.program_id(2) == 0)
    def _():
        a_ref[...] = jnp.zeros_like(a_ref)
        b_ref[...] = jnp.zeros_like(b_ref)
    a_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    b_ref[...] += jnp.dot(x_ref[...], v_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = jax.nn.silu(a_ref[...]) * b_ref[...]


def triangular(x_ref, w_ref, r_ref, o_ref):
    """Blocks above the diagonal are skipped; the sum starts at another block, and a computed value is multiplied."""
    i, k = pl.program_id(0), pl.program_id(2)

    @pl.when(k == 0)
    def _():
        o_ref[...] = r_ref[...]

    @pl.when(k <= i)
    def _():
        o_ref[...] += jnp.dot(jax.nn.relu(x_ref[...]), w_ref[...], preferred_element_type=jnp.float32)


def scores(x_ref, w_ref, o_ref):
    """One matmul, used twice, and a block that is read in two ways."""
    p = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jnp.where(pl.program_id(0) == 0, 0.5, p * p) - 2.0 * p + x_ref[...].astype(jnp.float32)


def rows_in_a_loop(x_ref, o_ref):
    first = x_ref[0, 0]

    @pl.loop(0, 4)
    def _(i):
        o_ref[pl.ds(2 * i, 2)] = x_ref[pl.ds(6 - 2 * i, 2)] + first


def product_of(kernel, n=128, more=(), dtype=jnp.bfloat16, block=64, **keywords):
    spec = [pl.BlockSpec((block, block), lambda i, j, k: (i, k), pl.Buffered(3)),
            pl.BlockSpec((block, block), lambda i, j, k: (k, j), pl.Buffered(3)), *more]
    m = -(-n // block)
    call = pl.pallas_call(kernel, shape(n, n), grid=(m, m, m), in_specs=spec,
                          out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
                          compiler_params=marked("parallel", "parallel", "arbitrary"), **keywords)
    return call, [normal(n, n).astype(dtype), normal(n, n, seed=1).astype(dtype)]


def with_one_more(product, operand):
    return product[0], [*product[1], operand]


BF16, HALF = jnp.bfloat16, (64, 64, 32)
KERNELS = {
    "add": (add(192, 64), [normal(192, 192), normal(192, 192, seed=1)]),
    "add, one axis a loop": (add(192, 64, semantics=("parallel", "arbitrary")), [normal(192, 192), normal(192, 192)]),
    "add, both axes a loop": (add(192, 64, 3, ("arbitrary", "arbitrary")), [normal(192, 192), normal(192, 192)]),
    "add, depth 1": (add(192, 64, 1, ("parallel", "arbitrary")), [normal(192, 192), normal(192, 192)]),
    "add with tails": (add(200, 64, semantics=("parallel", "arbitrary")), [normal(200, 200), normal(200, 200)]),
    "sum": (total(8, 128), [normal(8, 128, 128)]),
    "matmul": (matmul(128, HALF, 3, BF16), [normal(128, 128).astype(BF16), normal(128, 128, seed=1).astype(BF16)]),
    "matmul f16": (matmul(64, HALF, 2, jnp.float16), [normal(64, 64, dtype=np.float16)] * 2),
    "matmul f32, y.T": (matmul(128, HALF, 4, transposed=True), [normal(128, 128), normal(128, 128, seed=1)]),
    "matmul bf16, y.T": (into_output(128, HALF, 2, BF16, transposed=True), [normal(128, 128).astype(BF16)] * 2),
    "matmul into the output": (into_output(128, HALF, 3, BF16), [normal(128, 128).astype(BF16)] * 2),
    "matmul, all axes a loop": (into_output(128, HALF, 2, BF16, ("arbitrary",) * 3),
                                [normal(128, 128).astype(BF16)] * 2),
    "matmul with tails": (pl.pallas_call(scores, shape(200, 64), grid=(4, 1), in_specs=[
        pl.BlockSpec((64, 64), lambda i, j: (i, 0)), pl.BlockSpec((64, 64), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j))),
        [normal(200, 64).astype(BF16), normal(64, 64).astype(BF16)]),
    "gated": with_one_more(product_of(gated, more=[pl.BlockSpec((64, 64), lambda i, j, k: (k, j))],
                                      scratch_shapes=[pltpu.VMEM((64, 64), jnp.float32)] * 2),
                           normal(128, 128).astype(BF16)),
    "triangular": with_one_more(product_of(triangular, more=[pl.BlockSpec((64, 64), lambda i, j, k: (i, j))]),
                                normal(128, 128, seed=3)),
    "rows in a loop": (pl.pallas_call(rows_in_a_loop, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS),
                       [normal(32, 128)]),
    "running sum": (pl.pallas_call(running_sum, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS,
                                   scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)]), [normal(32, 128)]),
    "blocks by a table": (pl.pallas_call(double, shape(32, 128), grid=(4,), in_specs=[SWAPPED], out_specs=SWAPPED,
                                         compiler_params=marked("arbitrary")), [normal(32, 128)]),
    "prefetched scalars": (gathered(), [jnp.asarray([2, 0, 3, 0], jnp.int32), normal(32, 128)]),
    "in place": (pl.pallas_call(double, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS,
                                input_output_aliases={0: 0}), [normal(32, 128)]),
    "blocks kept": (pl.pallas_call(lambda x_ref, y_ref, o_ref: double(y_ref, o_ref), shape(24, 128), grid=(3, 4),
                                   in_specs=[pl.BlockSpec((8, 128), lambda i, j: (j, 0)),
                                             pl.BlockSpec((8, 128), lambda i, j: (i, 0))],
                                   out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, 0))),
                    [normal(32, 128), normal(24, 128)]),
}
