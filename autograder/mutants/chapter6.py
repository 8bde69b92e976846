"""Planted answers of chapter 6: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
Those of 6.8 are in chapter6_aliasing.py.
"""
import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from autograder import personal


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def when_first(axis, do):
    """`pl.when` at the start of an axis; (axis,): at its end, None: never, "always": at every step."""
    if axis == "always":
        do()
    elif isinstance(axis, tuple):
        pl.when(pl.program_id(*axis) == pl.num_programs(*axis) - 1)(do)
    elif axis is not None:
        pl.when(pl.program_id(axis) == 0)(do)


def write_zeros(ref):
    ref[...] = jnp.zeros_like(ref)


def name_zeros(ref):
    ref = jnp.zeros_like(ref)  # noqa: F841


def stack(start=2, pictures="inside", of_x=lambda j, k, i: (i, j, k), of_o=lambda j, k, i: (j, k), keep=True,
          block=lambda bm, bn: (bm, bn), picture=None, zeros=write_zeros, order=("start", "add")):
    """The sum of a stack with one part replaced."""
    def stack_sum(x, bm, bn):
        r, m, n = x.shape

        def kernel(x_ref, o_ref):
            def add():
                o_ref[...] = x_ref[...] + (o_ref[...] if keep else 0)

            def begin():
                when_first(start, lambda: zeros(o_ref))
            for part in order:
                {"start": begin, "add": add}[part]()
        bm, bn = block(bm, bn)
        grid = (m // bm, n // bn, r) if pictures == "inside" else (r, m // bm, n // bn)
        return pl.pallas_call(kernel, f32(m, n), grid=grid, in_specs=[pl.BlockSpec((picture, bm, bn), of_x)],
                              out_specs=pl.BlockSpec((bm, bn), of_o))(x)
    return stack_sum


OUTSIDE = {"pictures": "outside", "of_x": lambda i, j, k: (i, j, k), "of_o": lambda i, j, k: (j, k)}


def sum_of_whole_pictures(x, bm, bn):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].sum(axis=0)
    return pl.pallas_call(kernel, f32(*x.shape[1:]))(x)


def stack_at_once(x, bm, bn):
    """Right numbers, but all pictures of a block come in at once."""
    r, m, n = x.shape

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].sum(axis=0)
    return pl.pallas_call(kernel, f32(m, n), grid=(m // bm, n // bn),
                          in_specs=[pl.BlockSpec((r, bm, bn), lambda j, k: (0, j, k))],
                          out_specs=pl.BlockSpec((bm, bn), lambda j, k: (j, k)))(x)


def row_sum_kernel(x_ref, o_ref):
    @pl.when(pl.program_id(1) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...].sum(axis=1, keepdims=True)


def rows(grid=lambda p, q: (p, q), of_x=lambda i, j: (i, j), of_o=lambda i, j: (i, 0),
         tile=lambda bm, bn, m, n: (bm, bn), column=lambda bm, m: (bm, 1)):
    """Row sums with one part replaced; p and q count the blocks down and across."""
    def row_sums(x, bm, bn):
        m, n = x.shape
        return pl.pallas_call(row_sum_kernel, f32(m, 1), grid=grid(m // bm, n // bn),
                              in_specs=[pl.BlockSpec(tile(bm, bn, m, n), of_x)],
                              out_specs=pl.BlockSpec(column(bm, m), of_o))(x)
    return row_sums


def columns(start=1, first=-jnp.inf, combine=lambda old, block: jnp.maximum(old, block.max(axis=0, keepdims=True)),
            grid=lambda p, q: (q, p), of_x=lambda j, i: (i, j), of_o=lambda j, i: (0, j),
            block=lambda bm, bn, m, n: (bm, bn)):
    """The largest number of each column with one part replaced; p and q count the blocks down and across."""
    def column_max(x, bm, bn):
        m, n = x.shape

        def kernel(x_ref, o_ref):
            when_first(start, lambda: o_ref.__setitem__(..., jnp.full_like(o_ref, first)))
            o_ref[...] = combine(o_ref[...], x_ref[...])
        bm, bn = block(bm, bn, m, n)
        return pl.pallas_call(kernel, f32(1, n), grid=grid(m // bm, n // bn), in_specs=[pl.BlockSpec((bm, bn), of_x)],
                              out_specs=pl.BlockSpec((1, bn), of_o))(x)
    return column_max


def only_the_first(old, block):
    return jnp.where(jnp.isinf(old), block.max(axis=0, keepdims=True), old)


def carried(start=1, before=lambda carry: carry, after=lambda carry, block, sums: sums[:, -1:],
            grid=lambda p, q: (p, q), of_x=lambda i, j: (i, j), of_carry=lambda i, j: (i, 0), swapped=False, give=None):
    """Cumulative sums with one part replaced."""
    def cumulative(x, bm, bn):
        m, n = x.shape

        def kernel(x_ref, carry_ref, o_ref):
            if swapped:
                carry_ref, o_ref = o_ref, carry_ref
            when_first(start, lambda: carry_ref.__setitem__(..., jnp.zeros_like(carry_ref)))
            sums = before(carry_ref[...]) + jnp.cumsum(x_ref[...], axis=1)
            o_ref[...] = sums
            carry_ref[...] = after(carry_ref[...], x_ref[...], sums)
        tile = pl.BlockSpec((bm, bn), of_x)
        results = pl.pallas_call(kernel, (f32(m, 1), f32(m, n)), grid=grid(m // bm, n // bn), in_specs=[tile],
                                 out_specs=(pl.BlockSpec((bm, 1), of_carry), tile))(x)
        return results if give is None else results[give]
    return cumulative


def sums_first(x, bm, bn):
    """The right numbers in the wrong order of results."""
    m, n = x.shape

    def kernel(x_ref, o_ref, carry_ref):
        when_first(1, lambda: carry_ref.__setitem__(..., jnp.zeros_like(carry_ref)))
        o_ref[...] = carry_ref[...] + jnp.cumsum(x_ref[...], axis=1)
        carry_ref[...] = o_ref[:, -1:]
    tile = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    return pl.pallas_call(kernel, (f32(m, n), f32(m, 1)), grid=(m // bm, n // bn), in_specs=[tile],
                          out_specs=(tile, pl.BlockSpec((bm, 1), lambda i, j: (i, 0))))(x)


def means(inside=lambda column, n, bn: column < n, divide=lambda n, bn, blocks: n, start=1,
          leave_out=lambda inside, x: jnp.where(inside, x, 0), blocks=pl.cdiv, old=lambda o: o):
    """Row means with one part replaced."""
    def row_means(x, bm, bn):
        m, n = x.shape

        def kernel(x_ref, o_ref):
            when_first(start, lambda: o_ref.__setitem__(..., jnp.zeros_like(o_ref)))
            column = pl.program_id(1) * bn + jnp.arange(bn)
            part = leave_out(inside(column, n, bn), x_ref[...]).sum(axis=1, keepdims=True)
            o_ref[...] = old(o_ref[...]) + part / divide(n, bn, blocks(n, bn))
        return pl.pallas_call(kernel, f32(m, 1), grid=(m // bm, blocks(n, bn)),
                              in_specs=[pl.BlockSpec((bm, bn), lambda i, j: (i, j))],
                              out_specs=pl.BlockSpec((bm, 1), lambda i, j: (i, 0)))(x)
    return row_means


def mean_of_means(x, bm, bn):
    m, n = x.shape
    blocks = pl.cdiv(n, bn)

    def kernel(x_ref, o_ref):
        when_first(1, lambda: o_ref.__setitem__(..., jnp.zeros_like(o_ref)))
        column = pl.program_id(1) * bn + jnp.arange(bn)
        count = jnp.minimum(n - pl.program_id(1) * bn, bn)
        o_ref[...] += jnp.where(column < n, x_ref[...], 0).sum(axis=1, keepdims=True) / count / blocks
    return pl.pallas_call(kernel, f32(m, 1), grid=(m // bm, blocks),
                          in_specs=[pl.BlockSpec((bm, bn), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((bm, 1), lambda i, j: (i, 0)))(x)


def padded_outside(x, bm, bn):
    """Right numbers from an array that was padded in HBM before: it moves all of x once more."""
    m, n = x.shape
    wide = jnp.pad(x, ((0, 0), (0, -n % bn)))
    return rows()(wide, bm, bn) / n


def names(**changed):
    return {"a": "written input", "b": "revisit", "c": "unwritten", "d": "tail", **changed}


WRONG = {
    "6.1": [("one number answers all", 72, "3 answers in a row"), ("two are enough", (65, 72), "3 answers in a row")],
    "6.2": [
        ("bm is the first case's", lambda x, bm, bn: stack()(x, 2, bn), ""),
        ("bn is the first case's", lambda x, bm, bn: stack()(x, bm, 3), ""),
        ("memory is zero", stack(start=None), "what memory held"),
        ("the broken sum as it was", stack(start=None, **OUTSIDE), "what memory held"),
        ("the start is all that was wrong", stack(start=0, **OUTSIDE), "innermost"),
        ("the first axis is the one to ask", stack(start=0), "Which axis"),
        ("the second axis is the one to ask", stack(start=1), "first wrong step: step 1, slot 0 of o"),
        ("start at every step", stack(start="always"), "starts afresh too often"),
        ("start at the last step", stack(start=(2,)), "does not start: it holds NaN"),
        ("what was added before the start is kept", stack(order=("add", "start")), "what is done first"),
        ("a new name for the block starts it", stack(zeros=name_zeros), "only gives the name"),
        ("each step writes its picture", stack(keep=False), "as += does"),
        ("the grid moves, the maps stay", stack(of_x=lambda i, j, k: (i, j, k)), "smallest failing case"),
        ("without a grid it works", sum_of_whole_pictures, "larger than the task allows"),
        ("all pictures at once", stack_at_once, "larger than the task allows"),
        ("the sum is what counts", lambda x, bm, bn: x.sum(axis=0), "no pallas_call"),
        ("every step takes the first picture", stack(of_x=lambda j, k, i: (0, j, k)), "Are those the blocks"),
    ],
    "6.3": [
        ("the inner axis goes down", rows(lambda p, q: (q, p), lambda j, i: (i, j), lambda j, i: (i, 0)), "innermost"),
        ("the result has a block for each block of x", rows(of_o=lambda i, j: (i, j)), "one block, its index is 0"),
        ("the result's block follows j", rows(of_o=lambda i, j: (j, 0)), "which belongs to o[0, 0]"),
        ("one block of the result for all", rows(column=lambda bm, m: (m, 1), of_o=lambda i, j: (0, 0)), "shape"),
        ("a whole row at once", rows(lambda p, q: (p, 1), tile=lambda bm, bn, m, n: (bm, n)),
         "larger than the task allows"),
        ("one axis is enough", rows(lambda p, q: (p, 1)), "look at the kernel"),
        ("x takes block (j, i)", rows(of_x=lambda i, j: (j, i)), "smallest failing case"),
        ("element offsets", rows(of_x=lambda i, j: (i, 3 * j)), "element offsets"),
    ],
    "6.4": [
        ("zero is a good start", columns(first=0.0), "loses against"),
        ("-1000 is a very small number", columns(first=-1000.0), "loses against"),
        ("-1e38 is surely small enough", columns(first=-1e38), "loses against"),
        ("the lowest float16 is low enough", columns(first=-65504.0), "loses against"),
        ("no number has a sign", columns(combine=lambda old, x: jnp.maximum(old, jnp.abs(x).max(0, keepdims=True))),
         "without its sign"),
        ("start at the last step", columns(start=(1,)), "does not start: it holds NaN"),
        ("max takes two arrays", columns(combine=lambda old, x: jnp.max(old, x)), "jnp.maximum"),
        ("memory is a good start", columns(start=None), "what memory held"),
        ("the outer axis is the one to ask", columns(start=0), "starts afresh"),
        ("rows of blocks outside, columns inside",
         columns(grid=lambda p, q: (p, q), of_x=lambda i, j: (i, j), of_o=lambda i, j: (0, j), start=0), "innermost"),
        ("NaN is the only garbage", columns(start=None, combine=lambda old, x: jnp.fmax(
            old, x.max(axis=0, keepdims=True))), "another block left"),
        ("the last block knows", columns(combine=lambda old, x: x.max(axis=0, keepdims=True)), "Only the last block"),
        ("the first block knows", columns(combine=only_the_first), "Only the first block"),
        ("a maximum adds up", columns(first=0.0, combine=lambda old, x: old + x.sum(axis=0, keepdims=True)), "sum"),
        ("the smallest is the largest of negatives",
         columns(first=jnp.inf, combine=lambda old, x: jnp.minimum(old, x.min(axis=0, keepdims=True))), "smallest"),
        ("a whole column at once", columns(block=lambda bm, bn, m, n: (m, bn)), "larger than the task allows"),
        ("the maximum is what counts", lambda x, bm, bn: x.max(axis=0, keepdims=True), "no pallas_call"),
    ],
    "6.5": [
        ("each block starts anew", carried(before=lambda carry: 0), "what came before"),
        ("the carry is the block before", carried(after=lambda carry, x, sums: x.sum(axis=1, keepdims=True)),
         "all"),
        ("the carry starts as zero by itself", carried(start=None), "what memory held"),
        ("the carry starts at the first row only", carried(start=0), "smallest failing case"),
        ("the carry is added twice", carried(after=lambda carry, x, sums: carry + sums[:, -1:]),
         "first wrong step: step 1, slot 0 of carry"),
        ("the carry is the largest so far", carried(after=lambda carry, x, sums: sums.max(axis=1, keepdims=True)),
         "look at the kernel"),
        ("the axis of the rows inside", carried(grid=lambda p, q: (q, p), of_x=lambda j, i: (i, j),
                                                of_carry=lambda j, i: (i, 0)), "innermost"),
        ("refs are known by their names", carried(swapped=True), "hape"),
        ("the sums come first", sums_first, "in another order"),
        ("the sums are enough", carried(give=1), "two arrays"),
        ("the totals are enough", carried(give=0), "two arrays"),
    ],
    "6.6": [
        ("bm is the first case's", lambda x, bm, bn: means()(x, 2, bn), ""),
        ("bn is the first case's", lambda x, bm, bn: means()(x, bm, 4), ""),
        ("past the edge there are zeros", means(leave_out=lambda inside, x: x), "what the slot held"),
        ("0 × garbage is 0", means(leave_out=lambda inside, x: x * jnp.where(inside, 1.0, 0.0)), "0 × NaN"),
        ("False × garbage is 0", means(leave_out=lambda inside, x: x * jnp.broadcast_to(inside, x.shape)), "0 × NaN"),
        ("the mask counts from the block's first column", means(lambda column, n, bn: jnp.arange(bn) < n),
         "what the slot held"),
        ("column n is inside", means(lambda column, n, bn: column <= n), "what the slot held"),
        ("divide by all that the blocks have", means(divide=lambda n, bn, blocks: bn * blocks), "past the edge"),
        ("divide by the width of a block", means(divide=lambda n, bn, blocks: bn), "width of one block"),
        ("a mean is a sum", means(divide=lambda n, bn, blocks: 1), "That is the sum"),
        ("the mean of the blocks' means", mean_of_means, "should count for less"),
        ("whole blocks only", means(blocks=lambda n, bn: max(1, n // bn)), "cdiv"),
        ("memory is zero", means(start=None), "what memory held"),
        ("NaN is the only garbage", means(start=None, old=jnp.nan_to_num), "another block left"),
        ("pad the array first", padded_outside, "pallas_call"),
    ],
    "6.7": [
        ("an input written is an output", names(a="fine"), "still in its slot"),
        ("a lost sum is a lost start", names(b="no start"), "come back"),
        ("what is not written is zero", names(c="fine"), "no step write"),
        ("the blocks cover it", names(d="fine"), "How many columns"),
        ("a minimum is not started", names(d="no start"), "How many columns"),
        ("names of my own", names(d="garbage"), "none of the six"),
        ("true or false", {**names(), "a": True}, "True is none of"),
        ("three answers for four kernels", {k: v for k, v in names().items() if k != "d"}, "no name yet"),
    ],
}


def stack_from_the_first(x, bm, bn):
    """Starts with the first picture rather than with zeros; one axis for all blocks."""
    r, m, n = x.shape
    across = n // bn

    def kernel(x_ref, o_ref):
        i = pl.program_id(1)
        pl.when(i == 0)(lambda: o_ref.__setitem__(..., x_ref[0]))
        pl.when(i > 0)(lambda: o_ref.__setitem__(..., o_ref[...] + x_ref[0]))
    return pl.pallas_call(kernel, f32(m, n), grid=(m // bm * across, r),
                          in_specs=[pl.BlockSpec((1, bm, bn), lambda b, i: (i, b // across, b % across))],
                          out_specs=pl.BlockSpec((bm, bn), lambda b, i: (b // across, b % across)))(x)


def stack_with_scratch(x, bm, bn):
    """Adds up in scratch, and writes the output in the last step of its visit."""
    from pallas_lite import tpu as pltpu
    r, m, n = x.shape

    def kernel(x_ref, o_ref, acc_ref):
        i = pl.program_id(2)
        acc_ref[...] = jnp.where(i == 0, 0, acc_ref[...]) + x_ref[...]

        @pl.when(i == r - 1)
        def _():
            o_ref[...] = acc_ref[...]
    return pl.pallas_call(kernel, f32(m, n), grid=(m // bm, n // bn, r),
                          in_specs=[pl.BlockSpec((None, bm, bn), lambda j, k, i: (i, j, k))],
                          out_specs=pl.BlockSpec((bm, bn), lambda j, k, i: (j, k)),
                          scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])(x)


def backwards(x, bm, bn):
    """From the last block of a row to the first."""
    q = x.shape[1] // bn
    return rows(of_x=lambda i, j: (i, q - 1 - j))(x, bm, bn)


def max_from_the_first(x, bm, bn):
    m, n = x.shape

    def kernel(x_ref, o_ref):
        largest = jnp.max(x_ref[...], 0, keepdims=True)
        o_ref[...] = jnp.where(pl.program_id(1) == 0, largest, jnp.maximum(largest, o_ref[...]))
    return pl.pallas_call(kernel, f32(1, n), grid=(n // bn, m // bm),
                          in_specs=[pl.BlockSpec((bm, bn), lambda j, i: (i, j))],
                          out_specs=pl.BlockSpec((1, bn), lambda j, i: (0, j)))(x)


def carry_of_blocks(x, bm, bn):
    """The carry gets the block's total, after the sums were made with what it had before."""
    m, n = x.shape

    def kernel(x_ref, carry_ref, o_ref):
        before = jnp.where(pl.program_id(1) > 0, carry_ref[...], 0)
        o_ref[...] = before + x_ref[...] @ jnp.triu(jnp.ones((bn, bn), jnp.float32))
        carry_ref[...] = before + x_ref[...].sum(axis=1, keepdims=True)
    tile = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    return pl.pallas_call(kernel, [f32(m, 1), f32(m, n)], grid=(m // bm, n // bn), in_specs=[tile],
                          out_specs=[pl.BlockSpec((bm, 1), lambda i, j: (i, 0)), tile])(x)


def mean_at_the_end(x, bm, bn):
    """Adds up, and divides in the last step; the garbage becomes 0 in the block itself."""
    m, n = x.shape
    steps = pl.cdiv(n, bn)

    def kernel(x_ref, o_ref):
        j = pl.program_id(1)
        left = n - j * bn
        block = jnp.where(jnp.broadcast_to(jnp.arange(bn), (bm, bn)) < left, x_ref[...], 0.0)
        total = jnp.where(j == 0, 0.0, o_ref[...]) + block.sum(1)[:, None]
        o_ref[...] = jnp.where(j == steps - 1, total / n, total)
    return pl.pallas_call(kernel, f32(m, 1), grid=(m // bm, steps),
                          in_specs=[pl.BlockSpec((bm, bn), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((bm, 1), lambda i, j: (i, 0)))(x)


p = personal("6.1")
A0 = p.g + p.c * len(range(0, (p.r - 1) * p.n + 1, 3))
A1 = p.g + p.c * (-(-p.r * p.n // 3))
B1 = p.g + p.r * p.c * (-(-p.n // 3))

RIGHT = {
    "6.1": [("counted with a pencil, as a list", [A0, A1, B1]), ("as an array", np.array([A0, A1, B1], float))],
    "6.2": [("starts with the first picture", stack_from_the_first), ("adds up in scratch", stack_with_scratch),
            ("columns of blocks outside", stack(picture=None))],
    "6.3": [("from right to left", backwards)],
    "6.4": [("starts with the first block", max_from_the_first), ("starts with a very small number",
                                                                 columns(first=jnp.finfo(jnp.float32).min))],
    "6.5": [("a product with a triangle", carry_of_blocks)],
    "6.6": [("divides at the end", mean_at_the_end)],
    "6.7": [("in other words of the same", {k.upper(): f" {v.title()} " for k, v in names().items()})],
}
