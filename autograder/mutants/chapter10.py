"""Planted answers of chapter 10: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pallas_lite as pl
from autograder import personal
from autograder.checks.chapter10 import AXES, DEPTHS, listed


def zero_and_add(x_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)

    @pl.loop(0, x_ref.shape[0])
    def _(k):
        o_ref[...] += x_ref[k]


def total(kernel=zero_and_add, block=lambda r, m, n, bm, bn: (r, bm, bn), of_x=lambda i, j: (0, i, j),
          of_o=lambda i, j: (i, j), grid=lambda m, n, bm, bn: (m // bm, n // bn), out=lambda m, n, bm, bn: (bm, bn)):
    """An answer to 10.2 with one part replaced."""
    def of(x, bm, bn):
        r, m, n = x.shape
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=grid(m, n, bm, bn),
                              in_specs=[pl.BlockSpec(block(r, m, n, bm, bn), of_x)],
                              out_specs=pl.BlockSpec(out(m, n, bm, bn), of_o))(x)
    return of


def add_only(x_ref, o_ref):
    @pl.loop(0, x_ref.shape[0])
    def _(k):
        o_ref[...] += x_ref[k]


def first_layer(x_ref, o_ref):
    o_ref[...] = x_ref[0]


def last_layer(x_ref, o_ref):
    for k in range(x_ref.shape[0]):
        o_ref[...] = x_ref[k]


def zero_inside(x_ref, o_ref):
    for k in range(x_ref.shape[0]):
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[k]


def first_each_time(x_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)
    for _ in range(x_ref.shape[0]):
        o_ref[...] += x_ref[0]


def three(x_ref, o_ref):
    o_ref[...] = x_ref[0] + x_ref[1] + x_ref[2]


def from_one(x_ref, o_ref):
    o_ref[...] = x_ref[1:].sum(0)


def one_short(x_ref, o_ref):
    o_ref[...] = x_ref[:-1].sum(0)


def mean(x_ref, o_ref):
    o_ref[...] = x_ref[...].mean(0) + 1


def returns(x_ref, o_ref):
    return x_ref[...].sum(0)


def on_the_grid(x, bm, bn):
    """Chapter 6's sum: right on a TPU."""
    r, m, n = x.shape

    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn, r),
                          in_specs=[pl.BlockSpec((None, bm, bn), lambda i, j, k: (k, i, j))],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)))(x)


def one_layer(x, bm, bn):
    r, m, n = x.shape

    def kernel(x_ref, o_ref):
        o_ref[...] = r * x_ref[0]
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn),
                          in_specs=[pl.BlockSpec((1, bm, bn), lambda i, j: (0, i, j))],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)))(x)


def everything(x, bm, bn):
    r, m, n = x.shape

    def kernel(x_ref, o_ref):
        i, j = pl.program_id(0), pl.program_id(1)
        o_ref[...] = x_ref[:, pl.ds(i * bm, bm), pl.ds(j * bn, bn)].sum(0)
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn),
                          in_specs=[pl.BlockSpec((r, m, n), lambda i, j: (0, 0, 0))],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)))(x)


WRONG = {
    "10.1": [
        ("all axes of a grid are parallel", {k: ("parallel",) * len(v) for k, v in AXES.items()}, "run at once"),
        ("scratch belongs to a step", AXES | {"running_sum": ("parallel",)}, "left in scratch"),
        ("a sum can be split by itself", AXES | {"matmul": ("parallel",) * 3}, "add to the same sum"),
        ("the first axis is the sequential one", AXES | {"column_sums": ("arbitrary", "parallel")}, "the same block"),
        ("an input that stays ties its steps", AXES | {"scale": ("arbitrary", "parallel")}, "no reason"),
        ("to be safe, in order", {k: ("arbitrary",) * len(v) for k, v in AXES.items()}, "idle"),
        ("one word for the whole grid", AXES | {"matmul": "arbitrary"}, "one word for each"),
        ("sequential is a word of Pallas", AXES | {"running_sum": ("sequential",)}, 'either "parallel" or "arbitrary"'),
    ],
    "10.2": [
        ("the grid is in order", on_the_grid, "both write"),
        ("registers begin at zero", total(add_only), "set it to zero"),
        ("the first layer is enough", total(first_layer), "Only the first layer"),
        ("= adds", total(last_layer), "Only the last layer"),
        ("zero belongs to each turn", total(zero_inside), "set to zero inside the loop"),
        ("a loop counts by itself", total(first_each_time), "layer k"),
        ("bm and bn are the first case's", lambda x, bm, bn: total()(x, 16, 32), ""),
        ("bm is the first case's", lambda x, bm, bn: total()(x, 16, bn), ""),
        ("bn is the first case's", lambda x, bm, bn: total()(x, bm, 32), ""),
        ("there are three layers", total(three), ""),
        ("layers count from 1", total(from_one), "The first layer is missing"),
        ("a loop to r − 1 takes r layers", total(one_short), "The last layer is missing"),
        ("one layer says it all", one_layer, "layers of x"),
        ("the whole stack is at hand", everything, "larger than a step needs"),
        ("the grid counts columns first", total(of_x=lambda i, j: (0, j, i)), "smallest failing case"),
        ("each step writes the first block", total(of_o=lambda i, j: (0, 0)), "both write"),
        ("one step will do", total(grid=lambda m, n, bm, bn: (1, 1), out=lambda m, n, bm, bn: (m, n),
                                   block=lambda r, m, n, bm, bn: (r, m, n)), "one step"),
        ("a kernel returns its result", total(returns), "returns nothing"),
        ("a mean is a sum", total(mean), "look at the kernel"),
        ("the sum is what counts", lambda x, bm, bn: x.sum(0), "no pallas_call"),
    ],
    "10.3": [("one number answers all", 96, "3 answers in a row")],
    "10.4": [
        ("an SM's memory is a block's", DEPTHS["228"][0], "228"),
        ("a KiB has 1000 bytes", DEPTHS["1000"][0], "1024"),
        ("part of a stage is a stage", DEPTHS["up"][0], "round down"),
        ("as near as possible", DEPTHS["near"][0], "round down"),
        ("what fills it to the last byte does not fit", DEPTHS["less"][0], "227 KiB exactly"),
        ("a bf16 has 4 bytes", DEPTHS["f32"][0], "2 bytes"),
        ("only x is copied ahead", DEPTHS["x"][0], "block of y"),
        ("the accumulator is in shared memory", DEPTHS["o"][0], "in registers"),
        ("one stage always fits", DEPTHS["one"][0], "none fits"),
        ("a number is a byte", DEPTHS["numbers"][0], "not one"),
        ("no rounding", lambda bm, bn, bk: 227 * 1024 / ((bm + bn) * bk * 2), "do not fit"),
    ],
    "10.5": [("one number answers all", 3, "3 answers in a row")],
}


def summed_at_once(x_ref, o_ref):
    o_ref[...] = x_ref[...].sum(axis=0)


def carried(x_ref, o_ref):
    first = jnp.zeros(o_ref.shape, o_ref.dtype)
    o_ref[...] = lax.fori_loop(0, x_ref.shape[0], lambda k, so_far: so_far + x_ref[k], first)


def flat(x, bm, bn):
    """One axis of steps, backwards, with the layers added by a Python loop."""
    r, m, n = x.shape
    across, last = n // bn, m // bm * (n // bn) - 1

    def kernel(x_ref, o_ref):
        value = x_ref[0]
        for k in range(1, r):
            value = value + x_ref[k]
        o_ref[...] = value
    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=last + 1,
        in_specs=[pl.BlockSpec((r, bm, bn), lambda t: (0, (last - t) // across, (last - t) % across))],
        out_specs=pl.BlockSpec((bm, bn), lambda t: ((last - t) // across, (last - t) % across)))(x)


def counted(bm, bn, bk):
    depth = 0
    while (depth + 1) * (bm * bk + bk * bn) * 2 <= 227 * 1024:
        depth += 1
    return np.int32(depth)


p = personal("10.3")
PRICE = [p.stages * (p.bm + p.bn) * p.bk / 512, 0, (2 * p.depth + 2) * p.rows * p.columns * 4 + 16 * p.depth]
shown = listed(personal("10.5").place)
READ = (shown.depth, shown.shared_memory / shown.depth / 1024, shown.shared_memory / 1024)

RIGHT = {
    "10.1": [("lists, and one word alone", {k: list(v) for k, v in AXES.items()} | {"running_sum": "Arbitrary"})],
    "10.2": [("summed at once", total(summed_at_once)), ("a value carried through fori_loop", total(carried)),
             ("one axis, backwards", flat)],
    "10.3": [("as an array", np.array(PRICE))],
    "10.4": [("counted up", counted)],
    "10.5": [("as the compiler said", READ)],
}
