"""Planted answers of chapter 4: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
Those of 4.8 are in chapter4_tail.py.
"""
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from autograder import personal


def copy_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def of(shape, like):
    return jax.ShapeDtypeStruct(shape, like.dtype)


# 4.1

def numbered(number, grid=lambda *g: g):
    """Step numbers by a formula of n, m, k and the lengths a, b, c."""
    def step_numbers(a, b, c):
        def kernel(o_ref):
            o_ref[...] = jnp.full(o_ref.shape, number(*map(pl.program_id, range(3)), a, b, c))
        one = pl.BlockSpec((1, 1, 1), lambda n, m, k: (n, m, k))
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct((a, b, c), jnp.int32), grid=grid(a, b, c), in_specs=[],
                              out_specs=one)()
    return step_numbers


def numbered_outside(a, b, c):
    return jnp.arange(a * b * c, dtype=jnp.int32).reshape(a, b, c)


def counted_by_python(a, b, c):
    """A counter in Python: the body is read once, not run at each step by Python."""
    steps = itertools.count()
    return numbered(lambda *_: next(steps))(a, b, c)


def numbered_by_num_programs(a, b, c):
    return numbered(lambda n, m, k, *_: (n * pl.num_programs(1) + m) * pl.num_programs(2) + k)(a, b, c)


# 4.2

def bands(rows, columns):
    """Doubled in bands; each side says (grid, block shape, index map) from m, n and b."""
    def doubled(x, by, b):
        grid, block, index_map = (rows if by == "rows" else columns)(*x.shape, b)
        spec = pl.BlockSpec(block, index_map)
        return pl.pallas_call(double_kernel, x, grid=grid, in_specs=[spec], out_specs=spec)(x)
    return doubled


def double_kernel(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def good_rows(m, n, b):
    return (m // b,), (b, n), lambda i: (i, 0)


def good_columns(m, n, b):
    return (n // b,), (m, b), lambda i: (0, i)


# 4.3

def arranged(**other):
    """The four arrangements, some of them with another map: a function of p and q that gives it."""
    good = {"reversed": lambda p, q: lambda i, j: (p - 1 - i, j), "transposed": lambda p, q: lambda i, j: (j, i),
            "every": lambda p, q: lambda i, j: (i, 2 * j), "broadcast": lambda p, q: lambda i, j: (0, j)} | other

    def rearranged(x, how, b):
        p, q = x.shape[0] // b, x.shape[1] // b
        grid = {"reversed": (p, q), "transposed": (q, p), "every other": (p, q // 2), "broadcast": (p, q)}[how]
        of_x = pl.BlockSpec((b, b), good[how.split()[0]](p, q))
        return pl.pallas_call(copy_kernel, of((grid[0] * b, grid[1] * b), x), grid=grid, in_specs=[of_x],
                              out_specs=pl.BlockSpec((b, b), lambda i, j: (i, j)))(x)
    return rearranged


def arranged_by_the_output(x, how, b):
    """Walks over the blocks of x in order where it can, and says where each goes."""
    p, q = x.shape[0] // b, x.shape[1] // b
    if how in ("every other", "broadcast"):
        return arranged()(x, how, b)
    grid, out = (p, q), (lambda i, j: (p - 1 - i, j)) if how == "reversed" else (lambda i, j: (j, i))
    shape = x.shape if how == "reversed" else x.shape[::-1]
    return pl.pallas_call(copy_kernel, of(shape, x), grid=grid, in_specs=[pl.BlockSpec((b, b), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((b, b), out))(x)


def flip_without_a_kernel(x, how, b):
    p, q = x.shape[0] // b, x.shape[1] // b
    tiles = x.reshape(p, b, q, b).swapaxes(1, 2)
    tiles = {"reversed": tiles[::-1], "transposed": tiles.swapaxes(0, 1), "every other": tiles[:, ::2],
             "broadcast": tiles[jnp.zeros(p, int)]}[how]
    return jnp.block([[tile for tile in line] for line in tiles])


# 4.4

def folder(top=lambda h, bm, bn: lambda i, j: (i, j), bottom=lambda h, bm, bn: lambda i, j: (h // bm + i, j)):
    def folded(x, bm, bn):
        n, half = x.shape[1], x.shape[0] // 2
        specs = [pl.BlockSpec((bm, bn), index_map(half, bm, bn)) for index_map in (top, bottom)]
        out = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
        return pl.pallas_call(add_kernel, of((half, n), x), grid=(half // bm, n // bn), in_specs=specs,
                              out_specs=out)(x, x)
    return folded


def add_kernel(top_ref, bottom_ref, o_ref):
    o_ref[...] = top_ref[...] + bottom_ref[...]


def folded_by_elements(x, bm, bn):
    """Keeps the offsets, and says that they are offsets."""
    n, half = x.shape[1], x.shape[0] // 2
    dims = pl.Element(bm), pl.Element(bn)
    top = pl.BlockSpec(dims, lambda i, j: (i * bm, j * bn))
    bottom = pl.BlockSpec(dims, lambda i, j: (half + i * bm, j * bn))
    return pl.pallas_call(add_kernel, of((half, n), x), grid=(half // bm, n // bn), in_specs=[top, bottom],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)))(x, x)


def folded_in(high, wide, x, bm, bn):
    """Other blocks than the output's."""
    n, half = x.shape[1], x.shape[0] // 2
    top, bottom = (pl.BlockSpec((high, wide), lambda i, j, d=d: (d, j)) for d in (0, 1))
    return pl.pallas_call(add_kernel, of((half, n), x), grid=(half // bm, n // bn), in_specs=[top, bottom],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)))(x, x)


def folded_in_rows_of_one(x, bm, bn):
    """With blocks of one row and one column, offsets are indices: but those are other blocks."""
    n, half = x.shape[1], x.shape[0] // 2
    top, bottom = (pl.BlockSpec((1, 1), index_map) for index_map in (lambda i, j: (i, j), lambda i, j: (half + i, j)))
    return pl.pallas_call(add_kernel, of((half, n), x), grid=(half, n), in_specs=[top, bottom], out_specs=top)(x, x)


def folded_backwards(x, bm, bn):
    """The blocks from last to first."""
    n, half = x.shape[1], x.shape[0] // 2
    last = half // bm - 1
    top, bottom = (pl.BlockSpec((bm, bn), lambda i, j, d=d: (d + last - i, j)) for d in (0, half // bm))
    return pl.pallas_call(add_kernel, of((half, n), x), grid=(half // bm, n // bn), in_specs=[top, bottom],
                          out_specs=top)(x, x)


# 4.5

def pager(grid=lambda k, m, n: (k, m, n), of_x=lambda p, i, j: (p, i, j), of_o=lambda p, i, j: (p, j, i),
          page=None, swapped=True):
    def turned_pages(x, bm, bn):
        pages, m, n = x.shape
        specs = [pl.BlockSpec((page, bm, bn), of_x), pl.BlockSpec((page, *((bn, bm) if swapped else (bm, bn))), of_o)]
        return pl.pallas_call(turn_kernel, of((pages, n, m), x), grid=grid(pages, m // bm, n // bn),
                              in_specs=specs[:1], out_specs=specs[1])(x)
    return turned_pages


def turn_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...].T


def page_is_a_block(x, bm, bn):
    pages, m, n = x.shape
    specs = [pl.BlockSpec((None, *shape), lambda p: (p, 0, 0)) for shape in ((m, n), (n, m))]
    return pl.pallas_call(turn_kernel, of((pages, n, m), x), grid=(pages,), in_specs=specs[:1], out_specs=specs[1])(x)


def pages_inside(x, bm, bn):
    """The pages are the fastest axis, and squeezed has its long name."""
    pages, m, n = x.shape
    of_x = pl.BlockSpec((pl.squeezed, bm, bn), lambda i, j, p: (p, i, j))
    of_o = pl.BlockSpec((pl.squeezed, bn, bm), lambda i, j, p: (p, j, i))
    return pl.pallas_call(turn_kernel, of((pages, n, m), x), grid=(m // bm, n // bn, pages), in_specs=[of_x],
                          out_specs=of_o)(x)


# 4.7

def table(column, grid=lambda p, q: (p, q), of_out=None, row_of=lambda i, j: i):
    """The sum table with a way through the columns: column(i, j, p, q)."""
    def sum_table(col, row, b):
        p, q = col.shape[0] // b, row.shape[1] // b
        of_col, of_row = lambda i, j: (row_of(i, j), 0), lambda i, j: (0, column(i, j, p, q))
        of_o = of_out or (lambda i, j: (row_of(i, j), column(i, j, p, q)))
        return table_call(col, row, b, grid(p, q), of_col, of_row, of_o)
    return sum_table


def table_kernel(col_ref, row_ref, o_ref):
    o_ref[...] = col_ref[...] + row_ref[...]


def table_call(col, row, b, grid, of_col, of_row, of_o):
    specs = [pl.BlockSpec((b, 1), of_col), pl.BlockSpec((1, b), of_row)]
    return pl.pallas_call(table_kernel, of((col.shape[0], row.shape[1]), col), grid=grid, in_specs=specs,
                          out_specs=pl.BlockSpec((b, b), of_o))(col, row)


def columns_outside(col, row, b):
    grid = row.shape[1] // b, col.shape[0] // b
    return table_call(col, row, b, grid, lambda j, i: (i, 0), lambda j, i: (0, j), lambda j, i: (i, j))


def whole_row_at_once(col, row, b):
    m, n = col.shape[0], row.shape[1]
    specs = [pl.BlockSpec((b, 1), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (0, 0))]
    return pl.pallas_call(table_kernel, of((m, n), col), grid=(m // b,), in_specs=specs,
                          out_specs=pl.BlockSpec((b, n), lambda i: (i, 0)))(col, row)


def python_if(i, j, p, q):
    return j if i % 2 == 0 else q - 1 - j


def down_and_up(col, row, b):
    """Columns outside, there and back down the rows, without where."""
    p, q = col.shape[0] // b, row.shape[1] // b

    def line(j, i):
        return i + (j % 2) * (p - 1 - 2 * i)
    return table_call(col, row, b, (q, p), lambda j, i: (line(j, i), 0), lambda j, i: (0, j),
                      lambda j, i: (line(j, i), j))


def one_axis(col, row, b):
    q = row.shape[1] // b

    def at(t):
        return t // q, jnp.minimum(t % (2 * q), 2 * q - 1 - t % (2 * q))
    return table_call(col, row, b, col.shape[0] // b * q, lambda t: (at(t)[0], 0), lambda t: (0, at(t)[1]), at)


WRONG = {
    "4.1": [
        ("the first axis runs fastest", numbered(lambda n, m, k, a, b, c: n + a * (m + b * k)), "last one does"),
        ("steps are counted from 1", numbered(lambda n, m, k, a, b, c: (n * b + m) * c + k + 1), "has number 0"),
        ("a step is a step, on whatever axis", numbered(lambda n, m, k, a, b, c: n + m + k), "worth several"),
        ("the indices are digits", numbered(lambda n, m, k, a, b, c: 100 * n + 10 * m + k), "ten steps"),
        ("an index counts in its own length", numbered(lambda n, m, k, a, b, c: (n * a + m) * b + k), "worth"),
        ("each axis knows the length of the next alone", numbered(lambda n, m, k, a, b, c: n * c + m * b + k), "n"),
        ("the innermost index is the step", numbered(lambda n, m, k, a, b, c: k), "whole runs"),
        ("Python counts the runs of the body", counted_by_python, "whole runs"),
        ("the numbers are what counts", numbered_outside, "no pallas_call"),
        ("an array of numbers is made in the kernel", numbered(lambda n, m, k, a, b, c: jnp.dot(
            jnp.array([n, m, k]), jnp.array([b * c, c, 1]))), "or made of given numbers, as jnp.array([1, 2]) is"),
    ],
    "4.2": [
        ("columns are cut like rows", bands(good_rows, good_rows), "whole bands"),
        ("index maps return element offsets",
         bands(lambda m, n, b: ((m // b,), (b, n), lambda i: (i * b, 0)), good_columns), "block"),
        ("a lambda of one axis returns one index",
         bands(lambda m, n, b: ((m // b,), (b, n), lambda i: i), good_columns), "Return one block index for each"),
        ("the band is b wide, too", bands(lambda m, n, b: ((m // b,), (b, b), lambda i: (i, 0)), good_columns),
         "takes in all of the other axis"),
        ("one step does it", bands(lambda m, n, b: ((1,), (m, n), lambda i: (0, 0)), good_columns),
         "all of x in one step"),
        ("the grid is the length of the axis",
         bands(lambda m, n, b: ((m,), (b, n), lambda i: (i, 0)), good_columns), "out of range"),
        ("every array needs a grid of two axes",
         bands(lambda m, n, b: ((m // b, n), (b, n), lambda i, j: (i, 0)), good_columns), "One step for each block"),
        ("the map says where the array begins",
         bands(lambda m, n, b: ((m // b,), (b, n), lambda i: (0, 0)), good_columns),
         "Steps 0 and 1 both write o[0, 0]"),
        ("one row is a band, too", bands(lambda m, n, b: ((m,), (1, n), lambda i: (i, 0)), good_columns),
         "rows, and this one has 1."),
        ("the grid's axis is the array's axis",
         bands(good_rows, lambda m, n, b: ((n // b,), (m, b), lambda i: (i, 0))), "out of range"),
    ],
    "4.3": [
        ("the last index is p", arranged(reversed=lambda p, q: lambda i, j: (p - i, j)), "row 0 must give p − 1"),
        ("reversed means both axes", arranged(reversed=lambda p, q: lambda i, j: (p - 1 - i, q - 1 - j)),
         "columns stay"),
        ("reversed means the columns", arranged(reversed=lambda p, q: lambda i, j: (i, q - 1 - j)), "columns stay"),
        ("negative indices count from the end", arranged(reversed=lambda p, q: lambda i, j: (-1 - i, j)),
         "numbered 0 to p − 1"),
        ("the order of the parameters is free", arranged(transposed=lambda p, q: lambda i, j: (i, j)), "transposed"),
        ("every other block is every other element",
         arranged(every=lambda p, q: lambda i, j: (2 * i, j)), "0, 2, 4"),
        ("the grid skips by itself", arranged(every=lambda p, q: lambda i, j: (i, j)), "0, 2, 4"),
        ("odd columns are every other, too", arranged(every=lambda p, q: lambda i, j: (i, 2 * j + 1)), "0, 2, 4"),
        ("the first block serves all", arranged(broadcast=lambda p, q: lambda i, j: (0, 0)),
         "map of x. Broadcast"),
        ("the first column serves all", arranged(broadcast=lambda p, q: lambda i, j: (i, 0)), "first row of blocks"),
        ("values are what counts", flip_without_a_kernel, "no pallas_call"),
        ("a dict of maps is a map", arranged(reversed=lambda p, q: {"reversed": lambda i, j: (p - 1 - i, j)}),
         "{…}[how]"),
    ],
    "4.4": [
        ("maps return element offsets", folder(lambda h, bm, bn: lambda i, j: (i * bm, j * bn),
                                               lambda h, bm, bn: lambda i, j: (h + i * bm, j * bn)), "block indices"),
        ("the top was right", folder(lambda h, bm, bn: lambda i, j: (i * bm, j * bn)), "block indices"),
        ("half is a number of blocks", folder(bottom=lambda h, bm, bn: lambda i, j: (h + i, j)), "blocks"),
        ("the grid knows which half", folder(bottom=lambda h, bm, bn: lambda i, j: (i, j)), "map of bottom"),
        ("the lower half is the next block", folder(bottom=lambda h, bm, bn: lambda i, j: (i + 1, j)),
         "map of bottom"),
        ("upper and lower blocks take turns", folder(lambda h, bm, bn: lambda i, j: (2 * i, j),
                                                     lambda h, bm, bn: lambda i, j: (2 * i + 1, j)), "lower half"),
        ("the columns are offsets, still", folder(bottom=lambda h, bm, bn: lambda i, j: (h // bm + i, j * bn)),
         "block indices"),
        ("a block is bn × bm", lambda x, bm, bn: folded_in(bn, bm, x, bm, bn), "first argument of both"),
        ("a block is a half", lambda x, bm, bn: folded_in(x.shape[0] // 2, bn, x, bm, bn), "first argument of both"),
        ("with blocks of one element offsets are indices", folded_in_rows_of_one, "are required"),
    ],
    "4.5": [
        ("a length of 1 is not seen", pager(page=1), "squeezed out of both"),
        ("the block keeps its place on the page", pager(of_o=lambda p, i, j: (p, i, j)), "its block (j, i)"),
        ("the block keeps its shape", pager(swapped=False), "comes out as one of"),
        ("a squeezed dimension needs no grid axis",
         pager(grid=lambda k, m, n: (m, n), of_x=lambda i, j: (0, i, j), of_o=lambda i, j: (0, j, i)),
         "No step writes"),
        ("a squeezed dimension has no index", pager(of_x=lambda p, i, j: (i, j)), "three indices from it"),
        ("every page is read from the first", pager(of_x=lambda p, i, j: (0, i, j)), "map of x"),
        ("the page goes last", pager(of_x=lambda p, i, j: (i, j, p)), "same page"),
        ("an axis that no map looks at costs nothing",
         pager(grid=lambda k, m, n: (k, m, n, 2), of_x=lambda p, i, j, again: (p, i, j),
               of_o=lambda p, i, j, again: (p, j, i)), "One step for each block"),
        ("a page is a block", page_is_a_block, "expected: [None, "),
    ],
    "4.6": [("one number answers all", 12, "4 answers in a row")],
    "4.7": [
        ("any order is as good", table(lambda i, j, p, q: j), "both blocks change"),
        ("columns outside are better", columns_outside, "both blocks change"),
        ("index maps are plain Python", table(python_if), "A Python if cannot"),
        ("the output takes care of itself", table(lambda i, j, p, q: jnp.where(i % 2 == 0, j, q - 1 - j),
                                                  of_out=lambda i, j: (i, j)), "map of row"),
        ("backwards is better than forwards", table(lambda i, j, p, q: q - 1 - j), "both blocks change"),
        ("the last column is q", table(lambda i, j, p, q: jnp.where(i % 2 == 0, j, q - j)), "0 to q − 1"),
        ("rows are offsets", table(lambda i, j, p, q: j, row_of=lambda i, j: 2 * i), "rows of blocks 0 to p − 1"),
        ("a larger block is copied less often", whole_row_at_once, "are required"),
    ],
}

w = personal("4.6")
WAY = w.c * w.p + w.r, w.q, w.q * w.p, w.q * (-(-w.p // 2))

RIGHT = {
    "4.1": [("any number of axes, by num_programs", numbered_by_num_programs),
            ("written out", numbered(lambda n, m, k, a, b, c: n * b * c + m * c + k))],
    "4.2": [("a grid of two axes, one of them of length 1",
             bands(lambda m, n, b: ((m // b, 1), (b, n), lambda i, j: (i, j)),
                   lambda m, n, b: ((1, n // b), (m, b), lambda i, j: (i, j)))),
            ("the last band first", bands(lambda m, n, b: ((m // b,), (b, n), lambda i: (m // b - 1 - i, 0)),
                                          good_columns))],
    "4.3": [("by the map of the output", arranged_by_the_output), ("four plain maps", arranged())],
    "4.4": [("offsets, said to be such", folded_by_elements), ("from last to first", folded_backwards)],
    "4.5": [("pages inside, the long name", pages_inside)],
    "4.6": [("as a list", list(WAY)), ("as an array", np.array(WAY))],
    "4.7": [("down and up, columns outside", down_and_up), ("a single axis", one_axis)],
}
