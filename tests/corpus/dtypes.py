"""Element types, alone and mixed."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import case, integers, normal, shape


@case
def bfloat16_with_a_tail(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * x_ref[...] + 1
    block = pl.BlockSpec((8,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(20, dtype=jnp.bfloat16), grid=(3,), in_specs=[block], out_specs=block), (
        normal(20, dtype=jnp.bfloat16),)


@case
def float16_to_float32(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].astype(jnp.float32) / 3
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 4), grid=(2,), in_specs=[rows], out_specs=rows), (
        normal(4, 4, dtype=np.float16),)


@case
def int8_saturates(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        total = x_ref[...].astype(jnp.int32) + y_ref[...].astype(jnp.int32)
        o_ref[...] = jnp.clip(total, -128, 127).astype(jnp.int8)
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 4, dtype=jnp.int8), grid=(2,), in_specs=[rows, rows], out_specs=rows), (
        integers(-128, 127, 4, 4, dtype=np.int8), integers(-128, 127, 4, 4, dtype=np.int8, seed=1))


@case
def int32_wraps_and_shifts(pl, pltpu):
    def kernel(x_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = (x * 1103515245 + 12345) ^ lax.shift_right_logical(x, 7) | (x & 0xFF) << 3
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 4, dtype=jnp.int32), grid=(2,), in_specs=[rows], out_specs=rows), (
        integers(-2**31, 2**31 - 1, 4, 4),)


@case
def integer_division_and_remainder(pl, pltpu):
    def kernel(x_ref, y_ref, q_ref, r_ref):
        q_ref[...] = x_ref[...] // y_ref[...]
        r_ref[...] = lax.rem(x_ref[...], y_ref[...])
    return pl.pallas_call(kernel, [shape(4, 4, dtype=jnp.int32)] * 2), (
        integers(-99, 99, 4, 4), integers(1, 9, 4, 4, seed=1))


@case
def unsigned_bytes(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = 255 - x_ref[...]
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 4, dtype=jnp.uint8), grid=(2,), in_specs=[rows], out_specs=rows), (
        integers(0, 255, 4, 4, dtype=np.uint8),)


@case
def bools_in_and_out(pl, pltpu):
    def kernel(mask_ref, x_ref, o_ref, any_ref):
        o_ref[...] = jnp.where(mask_ref[...], x_ref[...], 0)
        any_ref[...] = jnp.any(mask_ref[...] & (x_ref[...] > 0), axis=1, keepdims=True)
    rows, column = pl.BlockSpec((2, 3), lambda i: (i, 0)), pl.BlockSpec((2, 1), lambda i: (i, 0))
    return pl.pallas_call(kernel, (shape(6, 3), shape(6, 1, dtype=jnp.bool_)), grid=(3,), in_specs=[rows, rows],
                          out_specs=(rows, column)), (integers(0, 2, 6, 3).astype(bool), normal(6, 3))


@case
def comparison_to_a_mask(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] < y_ref[...]
    block = pl.BlockSpec((8,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(20, dtype=jnp.bool_), grid=(3,), in_specs=[block, block], out_specs=block), (
        normal(20), normal(20, seed=1))


@case
def quantise_and_back(pl, pltpu):
    def kernel(x_ref, q_ref, scale_ref):
        scale = jnp.max(jnp.abs(x_ref[...]), axis=1, keepdims=True) / 127
        q_ref[...] = jnp.round(x_ref[...] / scale).astype(jnp.int8)
        scale_ref[...] = scale
    rows, column = pl.BlockSpec((2, 8), lambda i: (i, 0)), pl.BlockSpec((2, 1), lambda i: (i, 0))
    return pl.pallas_call(kernel, (shape(4, 8, dtype=jnp.int8), shape(4, 1)), grid=(2,), in_specs=[rows],
                          out_specs=(rows, column)), (normal(4, 8),)


@case
def int8_weights_in_a_float_matmul(pl, pltpu):
    def kernel(x_ref, w_ref, s_ref, o_ref):
        o_ref[...] = (x_ref[...] @ w_ref[...].astype(jnp.bfloat16)).astype(jnp.float32) * s_ref[...]
    return pl.pallas_call(kernel, shape(4, 8), grid=(2,), in_specs=[
        pl.BlockSpec((4, 6), lambda j: (0, 0)), pl.BlockSpec((6, 4), lambda j: (0, j)),
        pl.BlockSpec((1, 4), lambda j: (0, j))], out_specs=pl.BlockSpec((4, 4), lambda j: (0, j))), (
        integers(-9, 9, 4, 6).astype(jnp.bfloat16), integers(-9, 9, 6, 8, dtype=np.int8), normal(1, 8))


@case
def bits_of_a_float(pl, pltpu):
    def kernel(x_ref, o_ref):
        bits = lax.bitcast_convert_type(x_ref[...], jnp.int32)
        o_ref[...] = lax.bitcast_convert_type(bits & 0x7FFFFFFF, jnp.float32)
    return pl.pallas_call(kernel, shape(4, 4)), (normal(4, 4),)


@case
def weakly_typed_values_take_the_refs_type(pl, pltpu):
    def kernel(x_ref, o_ref, n_ref):
        o_ref[...] = jnp.full(o_ref.shape, 0.5, o_ref.dtype) * x_ref[...]
        o_ref[0, 0] = jnp.asarray(3, o_ref.dtype)
        n_ref[...] = lax.broadcasted_iota(n_ref.dtype, (4, 4), 1) * 2
    return pl.pallas_call(kernel, (shape(4, 4, dtype=jnp.bfloat16), shape(4, 4, dtype=jnp.int16))), (
        normal(4, 4, dtype=jnp.bfloat16),)


@case
def infinities_and_nans_pass_through(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.where(jnp.isnan(x_ref[...]), -1.0, x_ref[...])
    x = normal(4, 4)
    x[0, 1], x[2, 3], x[3, 0] = np.nan, np.inf, -np.inf
    return pl.pallas_call(kernel, shape(4, 4)), (x,)


@case
def random_numbers_from_a_counter(pl, pltpu):
    def kernel(seed_ref, o_ref):
        n = o_ref.shape[0]
        x = (lax.iota(jnp.uint32, n) + (pl.program_id(0) * n).astype(jnp.uint32)) * jnp.uint32(2654435761) ^ seed_ref[0]
        x = (x ^ (x >> 15)) * jnp.uint32(2246822519)
        o_ref[...] = (x >> 8).astype(jnp.float32) / 2**24
    return pl.pallas_call(kernel, shape(24), grid=(3,), in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)],
                          out_specs=pl.BlockSpec((8,), lambda i: (i,))), (integers(0, 2**31, 1, dtype=np.uint32),)


@case
def numpy_scalars_and_dtypes_by_name(pl, pltpu):
    def kernel(x_ref, o_ref, s_ref):
        s_ref[...] = x_ref[...] * np.float32(1.5)
        o_ref[...] = s_ref[...] + np.float32(2)
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((4, 4), "float32"),
                          scratch_shapes=[pltpu.VMEM([4, 4], np.float32)]), (normal(4, 4),)
