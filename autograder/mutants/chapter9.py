"""Planted answers of chapter 9: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import numpy as np

import pallas_lite as pl
from autograder import personal


def double_kernel(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def tiled(block, counts=None, depth=2, index_map=lambda i, j: (i, j)):
    """An answer to 9.4: `block(m, n)`, and the grid that covers the array, or `counts(m, n)`."""
    def in_tiles(x):
        shape = block(*x.shape)
        grid = counts(*x.shape) if counts else tuple(map(pl.cdiv, x.shape, shape))
        spec = pl.BlockSpec(shape, index_map, pipeline_mode=pl.Buffered(depth))
        return pl.pallas_call(double_kernel, x, grid=grid, in_specs=[spec], out_specs=spec)(x)
    return in_tiles


NAMES = {"a": "fine", "b": "shared semaphore", "c": "never waited", "d": "overwrite in flight"}

WRONG = {
    "9.1": [("one number answers all", 7, "3 answers in a row")],
    "9.3": [
        ("a wait names its copy", NAMES | {"b": "fine"}, "how many are under way"),
        ("what looks strange is wrong", NAMES | {"a": "shared semaphore"}, "Strange is not wrong"),
        ("a wait in the loop is enough", NAMES | {"c": "fine"}, "Count starts and waits"),
        ("results need one slot only", NAMES | {"d": "fine"}, "When block 1's result"),
        ("any name will do", NAMES | {"d": "race"}, "none of the four names"),
        ("one kernel is enough", {"a": "fine"}, "has no name yet"),
    ],
    "9.4": [
        ("any block will do", tiled(lambda m, n: (100, 100)), "cuts a tile"),
        ("128 columns always fit", tiled(lambda m, n: (512, 128)), "take all 1200"),
        ("rows need no tiles", tiled(lambda m, n: (100, n)), "multiple of 8"),
        ("as many rows as fit", tiled(lambda m, n: (2**18 // n, n)), "Take a multiple of 8 rows"),
        ("the smallest tile is the best", tiled(lambda m, n: (8, n)), "latency"),
        ("larger is always better", tiled(lambda m, n: (m, n)), "do not fit"),
        ("columns take what they have", tiled(lambda m, n: (408 if n == 1200 else 512, n)), "do not fit"),
        ("one slot saves room", tiled(lambda m, n: (256, n), depth=1), "has one slot"),
        ("bandwidth-bound is as fast as can be", tiled(lambda m, n: (64, n)), "a larger height gains most"),
        ("256 rows are always enough", tiled(lambda m, n: (256, n)), "it is too slow"),
        ("4096 rows do for few columns", tiled(lambda m, n: (256 if n > 1000 else 4096, n)), "smallest failing case"),
        ("blocks may come again", tiled(lambda m, n: (256, n), lambda m, n: (2, pl.cdiv(m, 256)),
                                        index_map=lambda k, i: (i, 0)), "copied twice"),
        ("blocks divide the array", tiled(lambda m, n: (256, n), lambda m, n: (m // 256, 1)), "No step writes"),
        ("the product is what counts", lambda x: 2 * x, "no pallas_call"),
    ],
}


def power_of_two(m, n):
    rows = 8
    while 2 * rows * n <= 2**19 and 2 * rows <= m:
        rows *= 2
    return rows, n


def many_rows(x):
    """As many rows as fit, padded columns counted, backwards."""
    m, n = x.shape
    rows = min(2**24 // (4 * 4 * pl.cdiv(n, 128) * 128), pl.cdiv(m, 2)) // 8 * 8
    last = pl.cdiv(m, rows) - 1
    spec = pl.BlockSpec((rows, n), lambda i: (last - i, 0))
    return pl.pallas_call(double_kernel, x, grid=last + 1, in_specs=[spec], out_specs=spec)(x)


p = personal("9.1")
STEPS, PARTS = p.m // p.bm * (p.n // p.bn), p.n // p.bn
COUNTS = [p.x_depth + 3, p.o_depth + 2, 2 * STEPS + PARTS]

RIGHT = {
    "9.1": [("as an array", np.array(COUNTS)), ("counted one by one", tuple(float(c) for c in COUNTS))],
    "9.3": [("other cases and keys", {f"kernel_{k}": name.upper() for k, name in NAMES.items()})],
    "9.4": [("as many rows as fit, backwards", many_rows), ("a power of two, two axes", tiled(power_of_two))],
}
