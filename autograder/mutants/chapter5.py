"""Planted answers of chapter 5: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as real_pl
from jax.experimental.pallas import tpu as real_pltpu

import pallas_lite as pl
from autograder import personal
from pallas_lite import tpu as pltpu


def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def scale_and_shift_kernel(x_ref, scale_ref, shift_ref, o_ref):
    o_ref[...] = x_ref[...] * scale_ref[...] + shift_ref[...]


def adder(of_x=lambda i, j: (i, j), of_y=lambda i, j: (i, j), of_o=lambda i, j: (i, j), kernel=add_kernel,
          block=lambda bm, bn: (bm, bn), grid=lambda m, n, bm, bn: (pl.cdiv(m, bm), pl.cdiv(n, bn))):
    """An add with one part replaced."""
    def add(x, y, bm=64, bn=128):
        specs = [pl.BlockSpec(block(bm, bn), index_map) for index_map in (of_x, of_y, of_o)]
        call = pl.pallas_call(kernel, out_shape=x, grid=grid(*x.shape, bm, bn), in_specs=specs[:2], out_specs=specs[2])
        return call(x, y)
    return add


def scaler(grid=lambda p, q: (q, p), tile=lambda j, i: (i, j), part=lambda j, i: (0, j), height=lambda bm: 1):
    """A scale-and-shift with one part replaced; p and q count the blocks down and across."""
    def scale_and_shift(x, scale, shift, bm, bn):
        m, n = x.shape
        of_x, of_row = pl.BlockSpec((bm, bn), tile), pl.BlockSpec((height(bm), bn), part)
        call = pl.pallas_call(scale_and_shift_kernel, x, grid=grid(m // bm, n // bn), in_specs=[of_x, of_row, of_row],
                              out_specs=of_x)
        return call(x, scale, shift)
    return scale_and_shift


def whole_array(x, y, *_):
    return pl.pallas_call(add_kernel, out_shape=x)(x, y)


def with_an_axis_more(x, y):
    spec = pl.BlockSpec((64, 128), lambda i, j, again: (i, j))
    grid = x.shape[0] // 64, x.shape[1] // 128, 2
    return pl.pallas_call(add_kernel, x, grid=grid, in_specs=[spec, spec], out_specs=spec)(x, y)


def beside_a_kernel(x, y):
    adder(kernel=kernel_that_adds_once)(x, y)
    return x + y


def without_a_kernel(x, y, *_):
    return x + y


def kernel_that_returns(x_ref, y_ref, o_ref):
    return x_ref[...] + y_ref[...]


def kernel_that_adds_once(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + x_ref[...]


def call_not_called(x, y, *_):
    spec = pl.BlockSpec((64, 128), lambda i, j: (i, j))
    grid = x.shape[0] // 64, x.shape[1] // 128
    return pl.pallas_call(add_kernel, x, grid=grid, in_specs=[spec, spec], out_specs=spec)


def result_dropped(x, y):
    adder()(x, y)


def sizes_fixed(x, y, bm=256, bn=256):
    return adder()(x, y, 64, 128)


def padded_outside(x, y, bm=64, bn=128):
    m, n = x.shape
    x, y = (jnp.pad(a, ((0, -m % bm), (0, -n % bn))) for a in (x, y))
    return adder()(x, y, bm, bn)[:m, :n]


def whole_rows(x, scale, shift, bm, bn):
    """Right values and few copies, but of larger blocks than asked for."""
    m, n = x.shape
    tile, row = pl.BlockSpec((bm, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (0, 0))
    return pl.pallas_call(scale_and_shift_kernel, x, grid=(m // bm,), in_specs=[tile, row, row], out_specs=tile)(
        x, scale, shift)


def whole_row_parts(x, scale, shift, bm, bn):
    m, n = x.shape
    tile, row = pl.BlockSpec((bm, bn), lambda j, i: (i, j)), pl.BlockSpec((1, n), lambda j, i: (0, 0))
    call = pl.pallas_call(scale_and_shift_kernel, x, grid=(n // bn, m // bm), in_specs=[tile, row, row], out_specs=tile)
    return call(x, scale, shift)


def twice_and_transposed_kernel(x_ref, twice_ref, t_ref):
    twice_ref[...] = 2 * x_ref[...]
    t_ref[...] = x_ref[...].T


def kernel_that_forgets_the_second(x_ref, twice_ref, t_ref):
    twice_ref[...] = 2 * x_ref[...]


def kernel_without_a_transpose(x_ref, twice_ref, t_ref):
    twice_ref[...] = 2 * x_ref[...]
    t_ref[...] = x_ref[...]


def kernel_in_another_order(x_ref, t_ref, twice_ref):
    twice_ref[...] = 2 * x_ref[...]
    t_ref[...] = x_ref[...].T


def doubler(kernel=twice_and_transposed_kernel, of_t=lambda i, j: (j, i), t_block=lambda bm, bn: (bn, bm)):
    """Two outputs from one call, with one part replaced."""
    def two_outputs(x, bm, bn):
        m, n = x.shape
        tile, turned = pl.BlockSpec((bm, bn), lambda i, j: (i, j)), pl.BlockSpec(t_block(bm, bn), of_t)
        shapes = [x, jax.ShapeDtypeStruct((n, m), x.dtype)]
        return pl.pallas_call(kernel, shapes, grid=(m // bm, n // bn), in_specs=[tile], out_specs=[tile, turned])(x)
    return two_outputs


def two_calls(x, bm, bn):
    m, n = x.shape
    tile, turned = pl.BlockSpec((bm, bn), lambda i, j: (i, j)), pl.BlockSpec((bn, bm), lambda i, j: (j, i))

    def double(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    def turn(x_ref, o_ref):
        o_ref[...] = x_ref[...].T
    return tuple(pl.pallas_call(kernel, jax.ShapeDtypeStruct(shape, x.dtype), grid=(m // bm, n // bn), in_specs=[tile],
                                out_specs=spec)(x)
                 for kernel, shape, spec in ((double, (m, n), tile), (turn, (n, m), turned)))


def centrer(part=None, rows=lambda m: pl.cdiv(m, 32), height=32, both=False):
    """The ported kernel, with a part of the old one left as it was. `both`: pallas_lite under either name."""
    def centred(x, gain, real=False):
        p, t = (real_pl, real_pltpu) if real and not both else (pl, pltpu)
        m, n = x.shape

        def kernel(x_ref, gain_ref, o_ref):
            x = p.load(x_ref, (slice(None), slice(None))) if part == "load" else x_ref[...]
            o_ref[...] = (x - x.mean(axis=1, keepdims=part != "no keepdims")) * gain_ref[...]

        high = height or m
        band = p.BlockSpec(*((high, n), lambda i: (i, 0))[::-1 if part == "order" else 1])
        whole = p.BlockSpec(memory_space=t.ANY if part == "old ANY" else p.ANY) if part in ("ANY", "old ANY") else \
            p.BlockSpec((1, n), lambda i: (0, 0))
        params = (t.TPUCompilerParams if part == "params" else t.CompilerParams)(dimension_semantics=("parallel",))
        return p.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(rows(m),), in_specs=[band, whole],
                             out_specs=band, compiler_params=params,
                             interpret=real and not both and part != "compiled")(x, gain)
    return centred


def centred_by_grid_spec(x, gain, real=False):
    """Bands of 16 rows, a tuple of specs in a GridSpec, a mean by sum, no compiler_params."""
    p = real_pl if real else pl
    n = x.shape[1]

    def kernel(x_ref, gain_ref, o_ref):
        o_ref[...] = (x_ref[...] - jnp.sum(x_ref[...], 1)[:, None] / n) * gain_ref[0, :]
    spec = p.GridSpec(grid=(p.cdiv(x.shape[0], 16),), out_specs=p.BlockSpec((16, n), lambda i: (i, 0)),
                      in_specs=[p.BlockSpec((16, n), lambda i: (i, 0)), p.BlockSpec((1, n), lambda i: (0, 0))])
    return p.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid_spec=spec, interpret=real)(x, gain)


b = personal("5.6")
ROW = 2 * b.width * ((1 if b.dtype == "int8" else 2) + 8)  # bytes of all slots, for a row as wide as the array
FIT = b.budget_kib * 1024 // ROW

WRONG = {
    "5.1": [
        ("without a grid there are blocks all the same", whole_array, "one step"),
        ("the sum is what counts", without_a_kernel, "no pallas_call"),
        ("a pallas_call has to stand there, the sum is jnp's", beside_a_kernel, "did not make them"),
        ("pallas_call runs the kernel", call_not_called, "nothing has run"),
        ("what a function computes it returns", result_dropped, "behind its return"),
        ("index maps return element offsets",
         adder(*[lambda i, j: (64 * i, 128 * j)] * 3), "smallest failing case"),
        ("the grid is that of the example, whatever the array",
         adder(grid=lambda m, n, bm, bn: (64, 32)), "makes a step for each block"),
        ("an index map gives one number", adder(of_x=lambda i, j: i), "smallest failing case"),
        ("the first axis of the grid counts columns",
         adder(grid=lambda m, n, bm, bn: (n // bn, m // bm)), "out of range"),
        ("y is transposed", adder(of_y=lambda i, j: (j, i)), "index map of y"),
        ("the pipeline moves the output along", adder(of_o=lambda i, j: (0, 0)), "No step writes"),
        ("every step needs the first block of y", adder(of_y=lambda i, j: (0, 0)), "index map of y"),
        ("one axis is enough", adder(grid=lambda m, n, bm, bn: (m // bm, 1)), "No step writes"),
        ("a kernel returns its result", adder(kernel=kernel_that_returns), "returns nothing"),
        ("the second ref is the first again", adder(kernel=kernel_that_adds_once), "look at the kernel"),
        ("smaller blocks are as good", lambda x, y: flat_grid(x, y, 32, 64), "smaller than the task asks for"),
        ("a row of a block is a block", lambda x, y: adder()(x, y, 1, 128), "64 × 128 are required"),
        ("x is there twice", lambda x, y: adder()(x, x), "both argument 1"),
        ("an axis that no map looks at costs nothing", with_an_axis_more, "makes 8 steps"),
    ],
    "5.2": [
        ("blocks always divide the array", adder(grid=lambda m, n, bm, bn: (m // bm, n // bn)), "cdiv"),
        ("bm and bn are one size", adder(block=lambda bm, bn: (bm, bm)), "locks of"),
        ("one size serves both axes", lambda x, y, bm=64, bn=64: adder()(x, y, bm, bm), "are required"),
        ("the arrays are made to fit first", padded_outside, "nothing is padded"),
        ("bm counts columns", adder(block=lambda bm, bn: (bn, bm)), "rows first"),
        ("the parameters are only a wish", sizes_fixed, "larger than the task allows"),
        ("one more step, to be sure", adder(grid=lambda m, n, bm, bn: (m // bm + 1, n // bn + 1)),
         "makes a step for each block"),
        ("the grid is the size of a block", adder(grid=lambda m, n, bm, bn: (bm, bn)), "out of range"),
        ("one step for each element", adder(grid=lambda m, n, bm, bn: (m, n)), "out of range"),
        ("one block covers it", whole_array, "one step"),
        ("the block is made to divide", lambda x, y, bm=256, bn=256: adder()(
            x, y, math.gcd(x.shape[0], bm), math.gcd(x.shape[1], bn)), "the last ones stick out, as they may"),
        ("the largest divisor is near enough", lambda x, y, bm=256, bn=256: adder()(x, y, *(
            max(d for d in range(1, b + 1) if n % d == 0) for n, b in zip(x.shape, (bm, bn), strict=True))),
         "smaller than the task asks for"),
        ("an element is a block", lambda x, y, bm=256, bn=256: adder()(x, y, 1, 1), "make more steps"),
        ("what is left out may be any size", adder(), "without bm and bn: 256 × 256"),
    ],
    "5.3": [
        ("bm is the first case's", lambda x, scale, shift, bm, bn: scaler()(x, scale, shift, 16, bn), ""),
        ("bn is the first case's", lambda x, scale, shift, bm, bn: scaler()(x, scale, shift, bm, 32), ""),
        ("the order of the grid does not matter",
         scaler(lambda p, q: (p, q), lambda i, j: (i, j), lambda i, j: (0, j)), "copied only once"),
        ("the first parameter of an index map is the row", scaler(tile=lambda i, j: (i, j)), "Are those the blocks"),
        ("a row has only one block", scaler(part=lambda j, i: (0, 0)), "is the given one: look at the index maps"),
        ("the row's block follows i", scaler(part=lambda j, i: (i, j)), "out of range"),
        ("the parts are as high as the tile", scaler(height=lambda bm: bm), "the kernel needs"),
        ("larger blocks are as good", whole_rows, "are required"),
        ("the whole row at once", whole_row_parts, "scale and shift: 1 ×"),
        ("element offsets", scaler(part=lambda j, i: (0, j * 32)), "element offsets"),
        ("a band may be 1 high", lambda x, scale, shift, bm, bn: scaler()(x, scale, shift, 1, bn),
         "smaller than the task asks for"),
        ("narrower parts are copied once as well", lambda x, scale, shift, bm, bn: scaler()(
            x, scale, shift, bm, bn // 2), "smaller than the task asks for"),
    ],
    "5.4": [
        ("one number answers all", 12, "3 answers in a row"),
    ],
    "5.5": [
        ("bm is the first case's", lambda x, bm, bn: doubler()(x, 16, bn), ""),
        ("bn is the first case's", lambda x, bm, bn: doubler()(x, bm, 32), ""),
        ("each output needs a call of its own", two_calls, "several outputs"),
        ("the blocks of a transpose lie where they lay", doubler(of_t=lambda i, j: (i, j)), "look at the kernel"),
        ("a transposed array has the same blocks", doubler(t_block=lambda bm, bn: (bm, bn)), "out of range"),
        ("a transpose has the numbers of x", doubler(kernel_without_a_transpose), "(.T)"),
        ("an output that nobody writes is zero", doubler(kernel_that_forgets_the_second), "nan"),
        ("refs are known by their names", doubler(kernel_in_another_order), "print(value.shape)"),
        ("the first result is enough", lambda x, bm, bn: doubler()(x, bm, bn)[0], "two arrays"),
        ("the order of the results is free", lambda x, bm, bn: doubler()(x, bm, bn)[::-1],
         "should return two arrays, 2 * x and x.T"),
        ("half a block is one, too", lambda x, bm, bn: doubler()(x, bm // 2, bn), "smaller than the task asks for"),
    ],
    "5.6": [
        ("what was good before is good now", (256, 256), "use the budget up"),
        ("larger is better", (512, 512), "do not fit"),
        ("smaller is safer", (8, 128), "Fewer steps"),
        ("an element is a block", (1, 1), "far too slow"),
        ("one slot is enough", (2 * FIT, b.width), "two slots each"),
        ("outputs need no SRAM", (FIT * 3 // 2, b.width), "the output too"),
        ("all of the array", (b.height, b.width), "do not fit"),
        ("columns first", (b.width * 3, 8), "bm counts rows"),
        ("any block of that size will do", (24, 1024), "waste little"),
        ("a fraction of a row", (FIT + 0.5, b.width), "rounds down"),
        ("one number", FIT, "two numbers"),
        ("the budget is in bytes", (FIT // 1024, b.width), f"The budget of {b.budget_kib} KiB is"),
    ],
    "5.7": [
        ("the old way to read still works", centrer("load"), "Index the ref"),
        ("map first, as it was", centrer("order"), "block_shape first"),
        ("the old name of the parameters", centrer("params"), "CompilerParams"),
        ("the old name of ANY", centrer("old ANY"), "pl.ANY"),
        ("a kernel can read what is in HBM", centrer("ANY"), "with a block_shape"),
        ("blocks divide the array", centrer(rows=lambda m: max(m // 32, 1)), "No step writes"),
        ("one band is enough", centrer(height=None, rows=lambda m: 1), "only one step"),
        ("pallas_lite is real enough", centrer(both=True), "still calls pallas_lite"),
        ("the real one needs no interpret", centrer("compiled"), "interpret=real"),
        ("no call is real enough", lambda x, gain, real=False: (x - x.mean(1, keepdims=True)) * gain if real else
         centrer()(x, gain), "no pallas_call of the real"),
        ("the real one is as good", lambda x, gain, real=False: centrer()(x, gain, True), "lite_pl, unless real=True"),
        ("a mean keeps its dimension", centrer("no keepdims"), "print(value.shape)"),
        ("without a kernel", lambda x, gain, real=False: (x - x.mean(1, keepdims=True)) * gain, "no pallas_call"),
    ],
}


def columns_outside(x, y):
    """Another order of the same blocks."""
    spec = pl.BlockSpec((64, 128), lambda j, i: (i, j))
    grid = x.shape[1] // 128, x.shape[0] // 64
    return pl.pallas_call(add_kernel, x, grid=grid, in_specs=[spec, spec], out_specs=spec)(x, y)


def flat_grid(x, y, bm=64, bn=128):
    """One axis of steps, cut in two by the index map; and operands given as a grid spec."""
    across = pl.cdiv(x.shape[1], bn)
    spec = pl.BlockSpec((bm, bn), lambda t: (t // across, t % across))
    grid_spec = pl.GridSpec(grid=pl.cdiv(x.shape[0], bm) * across, in_specs=(spec, spec), out_specs=spec)
    return pl.pallas_call(lambda a, b, c: c.__setitem__(..., jnp.add(a[...], b[...])), x, grid_spec=grid_spec)(x, y)


def one_block_deep(x, y, bm=256, bn=256):
    spec = pl.BlockSpec((bm, bn), lambda i, j: (i, j), pipeline_mode=pl.Buffered(1))
    grid = -(-x.shape[0] // bm), -(-x.shape[1] // bn)
    return pl.pallas_call(add_kernel, x, grid=grid, in_specs=[spec] * 2, out_specs=spec)(x, y)


def snake(x, scale, shift, bm, bn):
    """Down one column of blocks, up the next."""
    down = x.shape[0] // bm

    def of_x(j, i):
        return i + (j % 2) * (down - 1 - 2 * i), j
    tile, part = pl.BlockSpec((bm, bn), of_x), pl.BlockSpec((1, bn), lambda j, i: (0, j))
    return pl.pallas_call(scale_and_shift_kernel, x, grid=(x.shape[1] // bn, down), in_specs=[tile, part, part],
                          out_specs=tile)(x, scale, shift)


def flat_columns(x, scale, shift, bm, bn):
    down = x.shape[0] // bm
    tile = pl.BlockSpec((bm, bn), lambda t: (t % down, t // down))
    part = pl.BlockSpec((None, bn), lambda t: (0, t // down))
    return pl.pallas_call(scale_and_shift_kernel, x, grid=down * (x.shape[1] // bn), in_specs=[tile, part, part],
                          out_specs=tile)(x, scale, shift)


def two_outputs_as_a_tuple(x, bm, bn):
    m, n = x.shape
    specs = pl.BlockSpec((bm, bn), lambda j, i: (i, j)), pl.BlockSpec((bn, bm), lambda j, i: (j, i))

    def kernel(x_ref, *outs):
        for ref, value in zip(outs, (x_ref[...] + x_ref[...], jnp.swapaxes(x_ref[...], 0, 1)), strict=True):
            ref[...] = value
    return pl.pallas_call(kernel, (x, jax.ShapeDtypeStruct((n, m), x.dtype)), grid=(n // bn, m // bm),
                          in_specs=specs[:1], out_specs=specs)(x)


def two_outputs_by_name(x, bm, bn):
    m, n = x.shape

    def kernel(x_ref, out):
        out["twice"][...], out["turned"][...] = 2 * x_ref[...], x_ref[...].T
    tile, turned = pl.BlockSpec((bm, bn), lambda i, j: (i, j)), pl.BlockSpec((bn, bm), lambda i, j: (j, i))
    specs = {"twice": tile, "turned": turned}
    shapes = {"twice": x, "turned": jax.ShapeDtypeStruct((n, m), x.dtype)}
    found = pl.pallas_call(kernel, shapes, grid=(m // bm, n // bn), in_specs=[tile], out_specs=specs)(x)
    return found["twice"], found["turned"]


def two_outputs_put_in_order(x, bm, bn):
    m, n = x.shape

    def kernel(x_ref, turned_ref, twice_ref):
        turned_ref[...], twice_ref[...] = x_ref[...].T, 2 * x_ref[...]
    tile, turned = pl.BlockSpec((bm, bn), lambda i, j: (i, j)), pl.BlockSpec((bn, bm), lambda i, j: (j, i))
    shapes = [jax.ShapeDtypeStruct((n, m), x.dtype), x]
    return pl.pallas_call(kernel, shapes, grid=(m // bm, n // bn), in_specs=[tile], out_specs=[turned, tile])(x)[::-1]


p = personal("5.4")
A, B, KIB = p.m // p.bm * (p.n // p.bn), p.n // p.bn, (2 * p.bm * p.bn + p.bn) * 8 / 1024

RIGHT = {
    "5.1": [("columns of blocks outside", columns_outside), ("one axis of steps", flat_grid)],
    "5.2": [("one axis of steps", lambda x, y, bm=256, bn=256: flat_grid(x, y, bm, bn)),
            ("a single slot each", one_block_deep)],
    "5.3": [("up and down", snake), ("one axis of steps, rows of rank one", flat_columns)],
    "5.4": [("counted with a pencil, as a list", [A, B, KIB]), ("as an array", np.array([A, B, KIB])),
            ("arrays of one number each", (np.array([A]), np.int64(B), np.array([[KIB]])))],
    "5.5": [("columns of blocks outside, a tree of specs", two_outputs_as_a_tuple),
            ("by names that JAX sorts the other way round", two_outputs_by_name),
            ("the kernel has them in another order", two_outputs_put_in_order)],
    "5.6": [("half as wide, as high as fits", [2 * FIT // 8 * 8, b.width // 2]),
            ("not a multiple of 8", np.array([FIT, b.width]))],
    "5.7": [("a GridSpec, smaller bands", centred_by_grid_spec), ("the same, mended", centrer())],
}
