"""Results that gather many blocks: sums, normalisations, matmuls, scans, attention."""
import jax
import jax.numpy as jnp
from jax import lax

from . import case, integers, normal, shape


@case
def sum_of_all_blocks(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(4, 8), grid=(5,), in_specs=[pl.BlockSpec((None, 4, 8), lambda i: (i, 0, 0))],
                          out_specs=pl.BlockSpec((4, 8), lambda i: (0, 0))), (normal(5, 4, 8),)


@case
def correct_sum_of_the_tutorial(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(8, 8), grid=(2, 2, 3),
                          in_specs=[pl.BlockSpec((None, 4, 4), lambda i, j, k: (k, i, j))],
                          out_specs=pl.BlockSpec((4, 4), lambda i, j, k: (i, j))), (normal(3, 8, 8),)


@case
def row_sums_over_column_blocks(pl, pltpu):
    def kernel(x_ref, o_ref):
        part = jnp.sum(x_ref[...], axis=1, keepdims=True)

        @pl.when(pl.program_id(1) == 0)
        def _first():
            o_ref[...] = part

        @pl.when(pl.program_id(1) != 0)
        def _others():
            o_ref[...] = o_ref[...] + part
    return pl.pallas_call(kernel, shape(8, 1), grid=(2, 3), in_specs=[pl.BlockSpec((4, 8), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((4, 1), lambda i, j: (i, 0))), (normal(8, 24),)


@case
def maximum_of_a_masked_tail(pl, pltpu):
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        at = i * 8 + lax.broadcasted_iota(jnp.int32, (8, 4), 0)
        inside = jnp.where(at < 21, x_ref[...], -jnp.inf)

        @pl.when(i == 0)
        def _():
            o_ref[...] = jnp.full_like(o_ref, -jnp.inf)
        o_ref[...] = jnp.maximum(o_ref[...], inside.max(axis=0, keepdims=True))
    return pl.pallas_call(kernel, shape(1, 4), grid=(3,), in_specs=[pl.BlockSpec((8, 4), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 4), lambda i: (0, 0))), (normal(21, 4),)


@case
def argmax_across_blocks(pl, pltpu):
    def kernel(x_ref, value_ref, index_ref):
        i = pl.program_id(0)
        value = x_ref[...].max(axis=0, keepdims=True)
        index = jnp.argmax(x_ref[...], axis=0).astype(jnp.int32)[None] + i * x_ref.shape[0]

        @pl.when(i == 0)
        def _():
            value_ref[...] = value
            index_ref[...] = index

        @pl.when(i > 0)
        def _():
            better = value > value_ref[...]
            index_ref[...] = jnp.where(better, index, index_ref[...])
            value_ref[...] = jnp.where(better, value, value_ref[...])
    row = pl.BlockSpec((1, 6), lambda i: (0, 0))
    return pl.pallas_call(kernel, (shape(1, 6), shape(1, 6, dtype=jnp.int32)), grid=(4,),
                          in_specs=[pl.BlockSpec((4, 6), lambda i: (i, 0))], out_specs=(row, row)), (normal(16, 6),)


@case
def softmax_of_rows(pl, pltpu):
    def kernel(x_ref, o_ref):
        x = x_ref[...]
        e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
        o_ref[...] = e / jnp.sum(e, axis=-1, keepdims=True)
    rows = pl.BlockSpec((4, 10), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(8, 10), grid=(2,), in_specs=[rows], out_specs=rows), (normal(8, 10),)


@case
def softmax_in_two_passes(pl, pltpu):
    def kernel(x_ref, o_ref, top, total):
        phase, j = pl.program_id(1), pl.program_id(2)

        @pl.when((phase == 0) & (j == 0))
        def _():
            top[...] = jnp.full_like(top, -jnp.inf)
            total[...] = jnp.zeros_like(total)

        @pl.when(phase == 0)
        def _():
            x = x_ref[...]
            new = jnp.maximum(top[...], x.max(axis=1, keepdims=True))
            total[...] = total[...] * jnp.exp(top[...] - new) + jnp.exp(x - new).sum(axis=1, keepdims=True)
            top[...] = new

        @pl.when(phase == 1)
        def _():
            o_ref[...] = jnp.exp(x_ref[...] - top[...]) / total[...]
    return pl.pallas_call(kernel, shape(8, 12), grid=(2, 2, 3),
                          in_specs=[pl.BlockSpec((4, 4), lambda i, p, j: (i, j))],
                          out_specs=pl.BlockSpec((4, 4), lambda i, p, j: (i, p * j)),
                          scratch_shapes=[pltpu.VMEM((4, 1), jnp.float32)] * 2), (normal(8, 12),)


@case
def layer_norm(pl, pltpu):
    def kernel(x_ref, scale_ref, shift_ref, o_ref):
        x = x_ref[...].astype(jnp.float32)
        x = x - jnp.mean(x, axis=-1, keepdims=True)
        x = x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        o_ref[...] = (x * scale_ref[...] + shift_ref[...]).astype(o_ref.dtype)
    rows, row = pl.BlockSpec((2, 16), lambda i: (i, 0)), pl.BlockSpec((1, 16), lambda i: (0, 0))
    return pl.pallas_call(kernel, shape(6, 16), grid=(3,), in_specs=[rows, row, row], out_specs=rows), (
        normal(6, 16), normal(1, 16, seed=1), normal(1, 16, seed=2))


def matmul(pl, pltpu, a, b, out_dtype, acc_dtype, **kwargs):
    def kernel(a_ref, b_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)
        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=acc_dtype)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...].astype(out_dtype)
    return pl.pallas_call(kernel, shape(a.shape[0], b.shape[1], dtype=out_dtype),
                          grid=(a.shape[0] // 4, b.shape[1] // 4, a.shape[1] // 8), in_specs=[
        pl.BlockSpec((4, 8), lambda i, j, k: (i, k)), pl.BlockSpec((8, 4), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((4, 4), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((4, 4), acc_dtype)], **kwargs), (a, b)


@case
def matmul_with_an_accumulator(pl, pltpu):
    return matmul(pl, pltpu, normal(8, 24), normal(24, 12, seed=1), jnp.float32, jnp.float32)


@case
def matmul_of_bfloat16(pl, pltpu):
    return matmul(pl, pltpu, normal(8, 24, dtype=jnp.bfloat16), normal(24, 12, dtype=jnp.bfloat16, seed=1),
                  jnp.bfloat16, jnp.float32)


@case
def matmul_of_int8_with_parallel_axes(pl, pltpu):
    return matmul(pl, pltpu, integers(-99, 99, 8, 16, dtype="int8"), integers(-99, 99, 16, 8, dtype="int8", seed=1),
                  jnp.int32, jnp.int32,
                  compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))


@case
def matmul_bias_relu(pl, pltpu):
    def kernel(a_ref, b_ref, bias_ref, o_ref):
        o_ref[...] = jax.nn.relu(a_ref[...] @ b_ref[...] + bias_ref[...])
    return pl.pallas_call(kernel, shape(8, 12), grid=(2, 3), in_specs=[
        pl.BlockSpec((4, 5), lambda i, j: (i, 0)), pl.BlockSpec((5, 4), lambda i, j: (0, j)),
        pl.BlockSpec((1, 4), lambda i, j: (0, j))], out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j))), (
        normal(8, 5), normal(5, 12, seed=1), normal(1, 12, seed=2))


@case
def dot_general_with_a_transposed_operand(pl, pltpu):
    def kernel(a_ref, b_ref, o_ref):
        o_ref[...] = lax.dot_general(a_ref[...], b_ref[...], (((1,), (1,)), ((), ())),
                                     preferred_element_type=jnp.float32)
    return pl.pallas_call(kernel, shape(8, 8), grid=(2, 2), in_specs=[
        pl.BlockSpec((4, 6), lambda i, j: (i, 0)), pl.BlockSpec((4, 6), lambda i, j: (j, 0))],
        out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j))), (normal(8, 6), normal(8, 6, seed=1))


@case
def cumulative_sum_with_a_carry(pl, pltpu):
    def kernel(x_ref, o_ref, carry_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            carry_ref[...] = jnp.zeros_like(carry_ref)
        o_ref[...] = jnp.cumsum(x_ref[...], axis=0) + carry_ref[...]
        carry_ref[...] = o_ref[3:4, :]
    rows = pl.BlockSpec((4, 5), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(12, 5), grid=(3,), in_specs=[rows], out_specs=rows,
                          scratch_shapes=[pltpu.VMEM((1, 5), jnp.float32)]), (normal(12, 5),)


@case
def running_maximum(pl, pltpu):
    def kernel(x_ref, o_ref, *, top):
        before = jnp.where(pl.program_id(0) == 0, -jnp.inf, top[0])
        o_ref[...] = jnp.maximum(lax.cummax(x_ref[...], axis=0), before)
        top[0] = o_ref[7]
    block = pl.BlockSpec((8,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(24), grid=(3,), in_specs=[block], out_specs=block,
                          scratch_shapes=dict(top=pltpu.SMEM((1,), jnp.float32))), (normal(24),)


@case
def histogram(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        bins = lax.broadcasted_iota(jnp.int32, (1, 10), 1)
        o_ref[...] += (x_ref[...][:, None] == bins).astype(jnp.int32).sum(axis=0, keepdims=True)
    return pl.pallas_call(kernel, shape(1, 10, dtype=jnp.int32), grid=(4,),
                          in_specs=[pl.BlockSpec((8,), lambda i: (i,))],
                          out_specs=pl.BlockSpec((1, 10), lambda i: (0, 0))), (integers(0, 10, 32),)


@case
def variance_in_one_pass(pl, pltpu):
    def kernel(x_ref, mean_ref, var_ref, sums):
        n = pl.num_programs(0) * x_ref.shape[0]

        @pl.when(pl.program_id(0) == 0)
        def _():
            sums[...] = jnp.zeros_like(sums)
        sums[0:1, :] += x_ref[...].sum(0, keepdims=True)
        sums[1:2, :] += (x_ref[...] ** 2).sum(0, keepdims=True)

        @pl.when(pl.program_id(0) == pl.num_programs(0) - 1)
        def _():
            mean = sums[0, :] / n
            mean_ref[0, :] = mean
            var_ref[0, :] = sums[1, :] / n - mean**2
    row = pl.BlockSpec((1, 6), lambda i: (0, 0))
    return pl.pallas_call(kernel, [shape(1, 6)] * 2, grid=(3,), in_specs=[pl.BlockSpec((4, 6), lambda i: (i, 0))],
                          out_specs=[row, row], scratch_shapes=(pltpu.VMEM((2, 6), jnp.float32),)), (normal(12, 6),)


@case
def flash_attention(pl, pltpu):
    def kernel(q_ref, k_ref, v_ref, o_ref, top, total, acc):
        j = pl.program_id(1)

        @pl.when(j == 0)
        def _():
            top[...] = jnp.full_like(top, -jnp.inf)
            total[...] = jnp.zeros_like(total)
            acc[...] = jnp.zeros_like(acc)
        s = q_ref[...] @ k_ref[...].T
        new = jnp.maximum(top[...], s.max(axis=1, keepdims=True))
        p, shrink = jnp.exp(s - new), jnp.exp(top[...] - new)
        total[...] = total[...] * shrink + p.sum(axis=1, keepdims=True)
        acc[...] = acc[...] * shrink + p @ v_ref[...]
        top[...] = new

        @pl.when(j == pl.num_programs(1) - 1)
        def _():
            o_ref[...] = acc[...] / total[...]
    queries = pl.BlockSpec((4, 6), lambda i, j: (i, 0))
    keys = pl.BlockSpec((4, 6), lambda i, j: (j, 0))
    return pl.pallas_call(kernel, shape(8, 6), grid=(2, 3), in_specs=[queries, keys, keys], out_specs=queries,
                          scratch_shapes=[pltpu.VMEM((4, 1), jnp.float32), pltpu.VMEM((4, 1), jnp.float32),
                                          pltpu.VMEM((4, 6), jnp.float32)]), (
        normal(8, 6), normal(12, 6, seed=1), normal(12, 6, seed=2))


@case
def causal_attention_skips_blocks(pl, pltpu):
    def kernel(q_ref, k_ref, v_ref, o_ref, total, acc):
        i, j = pl.program_id(0), pl.program_id(1)

        @pl.when(j == 0)
        def _():
            total[...] = jnp.zeros_like(total)
            acc[...] = jnp.zeros_like(acc)

        @pl.when(j <= i)
        def _():
            row = i * 4 + lax.broadcasted_iota(jnp.int32, (4, 4), 0)
            column = j * 4 + lax.broadcasted_iota(jnp.int32, (4, 4), 1)
            p = jnp.where(column <= row, jnp.exp(q_ref[...] @ k_ref[...].T), 0.0)
            total[...] += p.sum(axis=1, keepdims=True)
            acc[...] += p @ v_ref[...]

        @pl.when(j == pl.num_programs(1) - 1)
        def _():
            o_ref[...] = acc[...] / total[...]
    queries = pl.BlockSpec((4, 6), lambda i, j: (i, 0))
    keys = pl.BlockSpec((4, 6), lambda i, j: (jnp.minimum(i, j), 0))
    return pl.pallas_call(kernel, shape(12, 6), grid=(3, 3), in_specs=[queries, keys, keys], out_specs=queries,
                          scratch_shapes=[pltpu.VMEM((4, 1), jnp.float32), pltpu.VMEM((4, 6), jnp.float32)]), (
        normal(12, 6), normal(12, 6, seed=1), normal(12, 6, seed=2))
