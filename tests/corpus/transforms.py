"""Calls under JAX's transformations, and inside larger functions."""
import jax
import jax.numpy as jnp
from jax import lax

from . import case, normal, shape


def scaled_difference(pl):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] - y_ref[...] * (pl.program_id(1) + 1).astype(jnp.float32)
    tile = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    return pl.pallas_call(kernel, shape(4, 12), grid=(2, 3), in_specs=[tile, tile], out_specs=tile)


def running_sum(pl, pltpu):
    def kernel(x_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref)
        sum_ref[...] += x_ref[...]
        o_ref[...] = sum_ref[...]
    row = pl.BlockSpec((1, 5), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 5), grid=(4,), in_specs=[row], out_specs=row,
                          scratch_shapes=[pltpu.VMEM((1, 5), jnp.float32)])


@case
def under_jit(pl, pltpu):
    return jax.jit(scaled_difference(pl)), (normal(4, 12), normal(4, 12, seed=1))


@case
def under_vmap(pl, pltpu):
    return jax.vmap(scaled_difference(pl)), (normal(3, 4, 12), normal(3, 4, 12, seed=1))


@case
def under_jit_of_vmap_over_one_operand(pl, pltpu):
    return jax.jit(jax.vmap(scaled_difference(pl), in_axes=(1, None), out_axes=2)), (
        normal(4, 3, 12), normal(4, 12, seed=1))


@case
def under_vmap_of_vmap(pl, pltpu):
    f = scaled_difference(pl)
    return jax.vmap(jax.vmap(f, (0, None)), (None, 0)), (normal(2, 4, 12), normal(2, 4, 12, seed=1))


@case
def scratch_under_vmap(pl, pltpu):
    return jax.vmap(running_sum(pl, pltpu)), (normal(2, 4, 5),)


@case
def called_twice(pl, pltpu):
    f = scaled_difference(pl)
    return lambda x, y: f(f(x, y), x), (normal(4, 12), normal(4, 12, seed=1))


@case
def inside_a_larger_jitted_function(pl, pltpu):
    f = scaled_difference(pl)

    @jax.jit
    def g(x, y):
        z = f(jnp.sin(x), y)
        return {"z": z, "norm": jnp.sqrt(jnp.sum(f(z, x) ** 2))}
    return g, (normal(4, 12), normal(4, 12, seed=1))


@case
def made_inside_the_jitted_function(pl, pltpu):
    @jax.jit
    def double(x):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2
        rows = pl.BlockSpec((2, x.shape[1]), lambda i: (i, 0))
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(x.shape[0] // 2,),
                              in_specs=[rows], out_specs=rows)(x)
    return lambda x, y: (double(x), double(y)), (normal(4, 12), normal(6, 5, dtype=jnp.bfloat16))


@case
def scan_over_calls(pl, pltpu):
    f = running_sum(pl, pltpu)

    def step(carry, x):
        y = f(carry * 0.5 + x)
        return y, y[0]
    return lambda xs: lax.scan(step, jnp.ones((4, 5)), xs), (normal(3, 4, 5),)


@case
def fori_loop_and_cond_over_calls(pl, pltpu):
    f = scaled_difference(pl)

    @jax.jit
    def g(x, y):
        return lax.fori_loop(0, 3, lambda n, z: lax.cond(n % 2 == 0, lambda: f(z, y), lambda: z * 2), x)
    return g, (normal(4, 12), normal(4, 12, seed=1))


@case
def an_alias_under_jit(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 3
    first = pl.BlockSpec((2, 4), lambda i: (i, 0))
    f = pl.pallas_call(kernel, shape(8, 4), grid=(2,), in_specs=[first], out_specs=first,
                       input_output_aliases={0: 0})
    return jax.jit(lambda x: f(x) + x), (normal(8, 4),)


@case
def a_custom_gradient(pl, pltpu):
    def forward(x_ref, o_ref):
        o_ref[...] = jnp.sin(x_ref[...])

    def backward(x_ref, g_ref, o_ref):
        o_ref[...] = jnp.cos(x_ref[...]) * g_ref[...]
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))

    @jax.custom_vjp
    def sine(x):
        return pl.pallas_call(forward, shape(4, 4), grid=(2,), in_specs=[rows], out_specs=rows)(x)
    sine.defvjp(lambda x: (sine(x), x), lambda x, g: (pl.pallas_call(
        backward, shape(4, 4), grid=(2,), in_specs=[rows, rows], out_specs=rows)(x, g),))
    return jax.grad(lambda x: jnp.sum(sine(x) ** 2)), (normal(4, 4),)


@case
def shapes_without_values(pl, pltpu):
    f = scaled_difference(pl)
    return lambda x, y: jnp.zeros(jax.eval_shape(f, x, y).shape), (normal(4, 12), normal(4, 12, seed=1))
