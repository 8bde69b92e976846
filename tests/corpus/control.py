"""Control flow and refs inside a kernel: when, loop, fori_loop, cond, while_loop, scan, slices, views."""
import functools

import jax
import jax.numpy as jnp
from jax import lax

from . import case, integers, normal, shape


@case
def when_with_a_python_bool(pl, pltpu):
    def kernel(x_ref, o_ref, *, negate):
        o_ref[...] = x_ref[...]

        @pl.when(negate)
        def _():
            o_ref[...] = -x_ref[...]

        @pl.when(not negate)
        def _():
            o_ref[...] = jnp.zeros_like(x_ref)
    return pl.pallas_call(functools.partial(kernel, negate=True), shape(4, 4)), (normal(4, 4),)


@case
def when_inside_when(pl, pltpu):
    def kernel(x_ref, o_ref):
        i, j = pl.program_id(0), pl.program_id(1)
        o_ref[...] = x_ref[...]

        @pl.when(i == 1)
        def _():
            @pl.when(j > 0)
            def _():
                o_ref[...] = x_ref[...] * 2

            @pl.when(jnp.logical_not(j > 0))
            def _():
                o_ref[0, :] = x_ref[1, :]
    tile = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    return pl.pallas_call(kernel, shape(4, 8), grid=(2, 2), in_specs=[tile], out_specs=tile), (normal(4, 8),)


@case
def when_on_a_value(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]

        @pl.when(jnp.sum(x_ref[...]) > 0)
        def _():
            o_ref[...] = x_ref[...] * 10
    rows = pl.BlockSpec((1, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(6, 4), grid=(6,), in_specs=[rows], out_specs=rows), (normal(6, 4),)


@case
def loop_over_rows(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.loop(0, x_ref.shape[0])
        def _(r):
            o_ref[r, :] = x_ref[r, :] * r.astype(jnp.float32)
    rows = pl.BlockSpec((4, 6), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(8, 6), grid=(2,), in_specs=[rows], out_specs=rows), (normal(8, 6),)


@case
def loop_with_a_step(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.loop(0, 8, step=2)
        def _(r):
            o_ref[pl.ds(r, 2), :] = x_ref[pl.ds(6 - r, 2), :]
    return pl.pallas_call(kernel, shape(8, 6)), (normal(8, 6),)


@case
def loop_with_a_carry(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.loop(0, x_ref.shape[0], init_carry=jnp.zeros((1, 6), jnp.float32), unroll=2)
        def total(r, carry):
            return carry * 0.5 + x_ref[pl.ds(r, 1), :]
        o_ref[...] = total
    return pl.pallas_call(kernel, shape(2, 6), grid=(2,), in_specs=[pl.BlockSpec((4, 6), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 6), lambda i: (i, 0))), (normal(8, 6),)


@case
def loop_with_a_tree_as_carry(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.loop(1, 8, init_carry={"low": x_ref[0], "high": x_ref[0]})
        def span(r, carry):
            return {"low": jnp.minimum(carry["low"], x_ref[r]), "high": jnp.maximum(carry["high"], x_ref[r])}
        o_ref[0] = span["low"]
        o_ref[1] = span["high"]
    return pl.pallas_call(kernel, shape(2)), (normal(8),)


@case
def fori_loop_on_values(pl, pltpu):
    def kernel(x_ref, o_ref):
        def newton(_, y):
            return 0.5 * (y + x_ref[...] / y)
        o_ref[...] = lax.fori_loop(0, 12, newton, jnp.ones(x_ref.shape, x_ref.dtype))
    rows = pl.BlockSpec((2, 5), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 5), grid=(2,), in_specs=[rows], out_specs=rows), (abs(normal(4, 5)) + 1,)


@case
def fori_loop_that_writes_a_ref(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)

        def add_row(r, carry):
            o_ref[...] += x_ref[pl.ds(r, 1), :]
            return carry
        lax.fori_loop(0, 4, add_row, None)
    return pl.pallas_call(kernel, shape(2, 6), grid=(2,), in_specs=[pl.BlockSpec((4, 6), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 6), lambda i: (i, 0))), (normal(8, 6),)


@case
def fori_loop_with_traced_bounds(pl, pltpu):
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[...] = lax.fori_loop(i, 2 * i + 1, lambda r, acc: acc + x_ref[pl.ds(r, 1), :], jnp.zeros((1, 6)))
    return pl.pallas_call(kernel, shape(4, 6), grid=(4,), in_specs=[pl.BlockSpec((8, 6), lambda i: (0, 0))],
                          out_specs=pl.BlockSpec((1, 6), lambda i: (i, 0))), (normal(8, 6),)


@case
def cond_on_the_program_id(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = lax.cond(pl.program_id(0) % 2 == 0, jnp.sin, jnp.cos, x_ref[...])
    rows = pl.BlockSpec((2, 5), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(8, 5), grid=(4,), in_specs=[rows], out_specs=rows), (normal(8, 5),)


@case
def cond_with_refs_in_both_branches(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        def left():
            o_ref[...] = x_ref[...]

        def right():
            o_ref[...] = y_ref[...] + 1
        lax.cond(x_ref[0, 0] > y_ref[0, 0], left, right)
    rows = pl.BlockSpec((1, 5), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(6, 5), grid=(6,), in_specs=[rows, rows], out_specs=rows), (
        normal(6, 5), normal(6, 5, seed=1))


@case
def switch_on_the_program_id(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = lax.switch(pl.program_id(0), [lambda x: x, lambda x: -x, lambda x: x * x], x_ref[...])
    rows = pl.BlockSpec((2, 5), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(6, 5), grid=(3,), in_specs=[rows], out_specs=rows), (normal(6, 5),)


@case
def while_loop_on_integers(pl, pltpu):
    def kernel(x_ref, o_ref):
        def collatz(carry):
            n, steps = carry
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1
        o_ref[0] = lax.while_loop(lambda carry: carry[0] != 1, collatz, (x_ref[0], jnp.int32(0)))[1]
    one = pl.BlockSpec((1,), lambda i: (i,))
    return pl.pallas_call(kernel, shape(5, dtype=jnp.int32), grid=(5,), in_specs=[one], out_specs=one), (
        integers(2, 30, 5),)


@case
def while_loop_that_reads_a_ref(pl, pltpu):
    def kernel(x_ref, o_ref):
        def small(carry):
            r, total = carry
            return (r < 8) & (total < 1.5)
        r, total = lax.while_loop(small, lambda c: (c[0] + 1, c[1] + x_ref[c[0], 0] ** 2), (0, 0.0))
        o_ref[0, 0], o_ref[0, 1] = r.astype(jnp.float32), total
    return pl.pallas_call(kernel, shape(3, 2), grid=(3,), in_specs=[pl.BlockSpec((8, 1), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 2), lambda i: (i, 0))), (normal(24, 1),)


@case
def scan_over_rows_of_a_value(pl, pltpu):
    def kernel(x_ref, o_ref):
        def step(carry, row):
            carry = 0.9 * carry + row
            return carry, carry * 2
        _, rows = lax.scan(step, jnp.zeros(6), x_ref[...])
        o_ref[...] = rows
    rows = pl.BlockSpec((4, 6), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(8, 6), grid=(2,), in_specs=[rows], out_specs=rows), (normal(8, 6),)


@case
def python_loops_and_helpers(pl, pltpu):
    def halves(ref):
        n = ref.shape[0] // 2
        return ref.at[pl.ds(0, n)], ref.at[pl.ds(n, n)]

    def kernel(x_ref, o_ref):
        for source, target in zip(halves(x_ref), reversed(halves(o_ref)), strict=True):
            for r in range(source.shape[0]):
                target[r, :] = source[r, :] * (r + 1)
    return pl.pallas_call(kernel, shape(4, 6)), (normal(4, 6),)


@case
def a_callable_object_as_kernel(pl, pltpu):
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x_ref, o_ref):
            o_ref[...] = x_ref[...] * self.by
    return pl.pallas_call(Scale(3), shape(4, 6)), (normal(4, 6),)


@case
def a_method_and_a_partial_kernel(pl, pltpu):
    class Scale:
        by = 3

        def kernel(self, offset, x_ref, o_ref):
            o_ref[...] = x_ref[...] * self.by + offset
    return pl.pallas_call(functools.partial(Scale().kernel, 2.0), shape(4, 6)), (normal(4, 6),)


@case
def program_ids_and_num_programs(pl, pltpu):
    def kernel(o_ref):
        i, j = pl.program_id(0), pl.program_id(axis=1)
        n, m = pl.num_programs(0), pl.num_programs(axis=1)
        o_ref[...] = jnp.full((1, 2), (i * m + j) * 1000 + n * 10 + m, jnp.int32)
    return pl.pallas_call(kernel, shape(3, 8, dtype=jnp.int32), grid=(3, 4),
                          out_specs=pl.BlockSpec((1, 2), lambda i, j: (i, j))), ()


@case
def jitted_and_mapped_helpers(pl, pltpu):
    @jax.jit
    def squash(x):
        return jnp.tanh(x) * 2

    def kernel(x_ref, o_ref):
        o_ref[...] = jax.vmap(squash)(x_ref[...]) + jax.vmap(jnp.dot, (0, None))(x_ref[...], x_ref[0])[:, None]
    rows = pl.BlockSpec((4, 6), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(8, 6), grid=(2,), in_specs=[rows], out_specs=rows), (normal(8, 6),)


@case
def a_gradient_inside_the_kernel(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.grad(lambda x: jnp.sum(jnp.sin(x) * x))(x_ref[...])
    return pl.pallas_call(kernel, shape(4, 6)), (normal(4, 6),)


@case
def functions_of_jax_nn(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.nn.gelu(x_ref[...]) + jax.nn.softmax(x_ref[...], axis=-1) * jax.nn.silu(x_ref[...])
    return pl.pallas_call(kernel, shape(4, 6)), (normal(4, 6),)


# -- refs

@case
def slices_with_traced_starts(pl, pltpu):
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[pl.ds(6 - 2 * i, 2), :] = x_ref[pl.ds(2 * i, 2), :]
    return pl.pallas_call(kernel, shape(8, 6), grid=(4,)), (normal(8, 6),)


@case
def slices_with_static_starts_and_strides(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[pl.ds(0, 4, stride=2), :] = x_ref[pl.ds(4, 4), :]
        o_ref[pl.dslice(1, 4, 2), :] = x_ref[pl.dslice(0, 4), :]
    return pl.pallas_call(kernel, shape(8, 6)), (normal(8, 6),)


@case
def strides_from_a_traced_start(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(pl.program_id(0), 4, stride=2), :]
    return pl.pallas_call(kernel, shape(8, 6), grid=(2,), in_specs=[pl.BlockSpec((8, 6), lambda i: (0, 0))],
                          out_specs=pl.BlockSpec((4, 6), lambda i: (i, 0))), (normal(8, 6),)


@case
def python_slices_and_integers(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[0:2, 1:] = x_ref[2:4, :5]
        o_ref[:2, 0] = x_ref[1:3, 5]
        o_ref[2] = x_ref[0]
        o_ref[3, 2:4] = x_ref[3, 0:2]
        o_ref[3, 0], o_ref[3, 1] = x_ref[0, 0], x_ref[1, 1]
        o_ref[3, 4:6] = x_ref[1, 4:6]
    return pl.pallas_call(kernel, shape(4, 6)), (normal(4, 6),)


@case
def an_ellipsis_on_either_side(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[..., 0] = x_ref[..., 2]
        o_ref[0, ..., 1:] = x_ref[1, ..., :2]
        o_ref[1, ...] = x_ref[0, ...]
        o_ref[1, 1, ...] = x_ref[1, 1, ...] * 2
    return pl.pallas_call(kernel, shape(2, 4, 3)), (normal(2, 4, 3),)


@case
def views_of_views(pl, pltpu):
    def kernel(x_ref, o_ref):
        half = x_ref.at[pl.ds(4 * pl.program_id(0), 4)]
        corner = half.at[1:3].at[:, pl.ds(2, 3)]
        o_ref[...] = corner[...] + half[0:2, 0:3]
    return pl.pallas_call(kernel, shape(4, 3), grid=(2,), out_specs=pl.BlockSpec((2, 3), lambda i: (i, 0))), (
        normal(8, 6),)


@case
def augmented_assignment_on_parts(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        o_ref[1:3, :] *= 2
        o_ref[0, :] += x_ref[3, :]
        o_ref.at[2][0:2] -= 5.0
    return pl.pallas_call(kernel, shape(4, 6)), (normal(4, 6),)


@case
def scalars_are_broadcast_when_written(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros(o_ref.shape, o_ref.dtype)
        o_ref[0, :] = jnp.broadcast_to(x_ref[0, 0], (6,))
        o_ref[1, 2] = 7.0
        o_ref[2, 3] = x_ref[3, 3]
    return pl.pallas_call(kernel, shape(4, 6)), (normal(4, 6),)


@case
def attributes_of_refs(pl, pltpu):
    def kernel(x_ref, o_ref):
        assert x_ref.ndim == 2 and x_ref.size == 24 and len(x_ref.shape) == 2 and x_ref.dtype == jnp.float32
        o_ref[...] = x_ref[...].astype(o_ref.dtype) * (x_ref.shape[0] + x_ref.shape[-1])
    return pl.pallas_call(kernel, shape(4, 6, dtype=jnp.int32)), (normal(4, 6) * 20,)


@case
def a_table_lookup_on_the_value(pl, pltpu):
    def kernel(table_ref, index_ref, o_ref):
        o_ref[...] = jnp.take(table_ref[...], index_ref[...], axis=0)
    return pl.pallas_call(kernel, shape(8, 3), grid=(2,), in_specs=[
        pl.BlockSpec((5, 3), lambda i: (0, 0)), pl.BlockSpec((4,), lambda i: (i,))],
        out_specs=pl.BlockSpec((4, 3), lambda i: (i, 0))), (normal(5, 3), integers(0, 5, 8))


@case
def a_kernel_that_prints(pl, pltpu):
    def kernel(x_ref, o_ref):
        pl.debug_print("step {}", pl.program_id(0))
        o_ref[...] = x_ref[...] + 1
    rows = pl.BlockSpec((2, 6), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 6), grid=(2,), in_specs=[rows], out_specs=rows), (normal(4, 6),)
