"""Planted answers of exercise 4.8, the sums of bands with a tail. As in chapter4.py."""
import jax
import jax.numpy as jnp

import pallas_lite as pl

from .chapter4 import of


def summed(body):
    """band_sums with another body: body(value, row in band, step, m, b) gives the row of sums."""
    def band_sums(x, b):
        (m, n), count = x.shape, pl.cdiv(x.shape[0], b)

        def kernel(x_ref, o_ref):
            row = jax.lax.broadcasted_iota(jnp.int32, x_ref.shape, 0)
            o_ref[...] = body(x_ref[...], row, pl.program_id(0), m, b)
        specs = pl.BlockSpec((b, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (i, 0))
        return pl.pallas_call(kernel, of((count, n), x), grid=(count,), in_specs=specs[:1], out_specs=specs[1])(x)
    return band_sums


def total(values):
    return values.sum(axis=0, keepdims=True)


def padded_outside(x, b):
    rest = -x.shape[0] % b
    return summed(lambda x, *_: total(x))(jnp.pad(x, ((0, rest), (0, 0))), b)


def summed_in_a_loop(x, b):
    """Adds row after row, as far as there are any; all rows are read."""
    m, n = x.shape

    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        for r in range(b):
            @pl.when(pl.program_id(0) * b + r < m)
            def _(r=r):
                o_ref[...] += x_ref[r:r + 1, :]
    specs = pl.BlockSpec((b, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (i, 0))
    return pl.pallas_call(kernel, of((pl.cdiv(m, b), n), x), grid=(pl.cdiv(m, b),), in_specs=specs[:1],
                          out_specs=specs[1])(x)


def read_by_hand(cut):
    """band_sums of x itself, cut by the kernel: x comes from outside of it."""
    def band_sums(x, b):
        m, n = x.shape

        def kernel(x_ref, o_ref):
            o_ref[...] = total(cut(x, pl.program_id(0) * b, b))
        specs = pl.BlockSpec((b, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (i, 0))
        return pl.pallas_call(kernel, of((pl.cdiv(m, b), n), x), grid=(pl.cdiv(m, b),), in_specs=specs[:1],
                              out_specs=specs[1])(x)
    return band_sums


WRONG = {
    "4.8": [
        ("past the edge there are zeros", summed(lambda x, r, i, m, b: total(x)), "must not reach"),
        ("0 times garbage is 0", summed(
            lambda x, r, i, m, b: total(x * jnp.where(i * b + r < m, 1.0, 0.0))), "0 · nan is nan"),
        ("False times garbage is 0", summed(lambda x, r, i, m, b: total(x * (i * b + r < m))), "0 · nan is nan"),
        ("rows are counted within the band",
         summed(lambda x, r, i, m, b: total(jnp.where(r < m, x, 0))), "must not reach"),
        ("the remainder is the height of every band",
         summed(lambda x, r, i, m, b: total(jnp.where(r < m % b, x, 0))), "xist"),
        ("row m is the last one",
         summed(lambda x, r, i, m, b: total(jnp.where(i * b + r <= m, x, 0))), "must not reach"),
        ("the last row is row m − 2",
         summed(lambda x, r, i, m, b: total(jnp.where(i * b + r < m - 1, x, 0))), "off by one"),
        ("bands are 16 rows apart", summed(lambda x, r, i, m, b: total(jnp.where(i * 16 + r < m, x, 0))), "exist"),
        ("the condition says what to drop", summed(lambda x, r, i, m, b: total(jnp.where(i * b + r < m, 0, x))),
         "exist"),
        ("the sum is of squares", summed(lambda x, r, i, m, b: total(jnp.where(i * b + r < m, x * x, 0))),
         "as it should: look at the kernel. Band 0 adds up rows 0 to "),
        ("ones are neutral", summed(lambda x, r, i, m, b: total(jnp.where(i * b + r < m, x, 1))), "high. "),
        ("a sum is a mean", summed(lambda x, r, i, m, b: total(jnp.where(i * b + r < m, x, 0)) / b), "is the mean"),
        ("bands are one row apart", summed(lambda x, r, i, m, b: total(jnp.where(i + r < m, x, 0))), "must not reach"),
        ("mask the sum", summed(lambda x, r, i, m, b: jnp.where(i * b + r[-1:] < m, total(x), 0)), "sum"),
        ("a kernel may cut x itself", read_by_hand(lambda x, start, b: x[start:start + b]), "x comes from outside"),
        ("pl.ds cuts x as well", read_by_hand(lambda x, start, b: x[pl.ds(start, b)]), "x comes from outside"),
        ("a mask cuts x as well", read_by_hand(lambda x, start, b: jnp.where(start > 0, x, 0)), "sees its refs only"),
        ("a sum keeps its dimension", summed(lambda x, r, i, m, b: jnp.where(i * b + r < m, x, 0).sum(axis=0)),
         "print(value.shape)"),
        ("make the array fit first", padded_outside, "all the operands"),
    ],
}

RIGHT = {
    "4.8": [("row after row", summed_in_a_loop),
            ("select, and the rest of the array", summed(
                lambda x, r, i, m, b: total(jax.lax.select(r < m - i * b, x, jnp.zeros_like(x)))))],
}
