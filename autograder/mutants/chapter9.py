"""Planted answers of chapter 9: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pallas_lite as pl
from autograder import personal
from pallas_lite import tpu as pltpu


def call_on_hbm(kernel, x, slots=2):
    in_hbm, buffer = pl.BlockSpec(memory_space=pl.ANY), pltpu.VMEM((slots, 8, 128), jnp.float32)
    semaphores = pltpu.SemaphoreType.DMA((slots,))
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[in_hbm], out_specs=in_hbm,
                          scratch_shapes=[buffer, buffer, semaphores, semaphores])


def buffered(body, x_slot=lambda i: i % 2, o_slot=lambda i: i % 2, x_sem=lambda i: i % 2, o_sem=lambda i: i % 2):
    """An answer to 9.2: `body(n, copy_in, copy_out, compute)`, with one part replaced."""
    def double_buffered(x):
        def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
            def copy_in(i):
                return pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], x_vmem.at[x_slot(i)], x_sems.at[x_sem(i)])

            def copy_out(i):
                return pltpu.make_async_copy(o_vmem.at[o_slot(i)], o_hbm.at[pl.ds(8 * i, 8)], o_sems.at[o_sem(i)])

            def compute(i, read=x_slot, plus=1, write=o_slot):
                o_vmem[write(i)] = 3 * x_vmem[read(i)] + plus
            body(x.shape[0] // 8, copy_in, copy_out, compute)
        return call_on_hbm(kernel, x)(x)
    return double_buffered


def without_return(x):
    buffered(right)(x)


def right(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        if i > 0:
            copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def blocking(n, copy_in, copy_out, compute):
    for i in range(n):
        copy_in(i).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        copy_out(i).wait()


def late_start(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        copy_in(i).wait()
        compute(i)
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_out(i).start()
        if i > 0:
            copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def early_wait(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        copy_out(i).wait()


def no_epilogue(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        if i > 0:
            copy_out(i - 1).wait()


def no_prologue(n, copy_in, copy_out, compute):
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        copy_out(i).wait()


def compute_first(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        compute(i)
        copy_in(i).wait()
        copy_out(i).start()
        if i > 0:
            copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def no_guard(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        copy_out(i).wait()


def fixed_epilogue(n, copy_in, copy_out, compute):
    """The tutorial's own slip: right for even n only."""
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        if i > 0:
            copy_out(i - 1).wait()
    copy_out(1).wait()


def other_slot(n, copy_in, copy_out, compute):
    right(n, copy_in, copy_out, lambda i: compute(i, read=lambda i: (i + 1) % 2))


def without_one(n, copy_in, copy_out, compute):
    right(n, copy_in, copy_out, lambda i: compute(i, plus=0))


def slot_zero(n, copy_in, copy_out, compute):
    right(n, copy_in, copy_out, lambda i: compute(i, read=lambda i: 0, write=lambda i: 0))


def read_slot_zero(n, copy_in, copy_out, compute):
    right(n, copy_in, copy_out, lambda i: compute(i, read=lambda i: 0))


def one_before_last(n, copy_in, copy_out, compute):
    no_epilogue(n, copy_in, copy_out, compute)
    copy_out(n - 2).wait()


def twice(n, copy_in, copy_out, compute):
    copy_in(0).start()
    copy_in(0).wait()
    right(n, copy_in, copy_out, compute)


def by_the_pipeline(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = 3 * x_ref[...] + 1
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, x, grid=(x.shape[0] // 8,), in_specs=[spec], out_specs=spec)(x)


def as_one_block(x):
    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, sem):
        pltpu.sync_copy(x_hbm, x_vmem)
        o_vmem[...] = 3 * x_vmem[...] + 1
        pltpu.sync_copy(o_vmem, o_hbm)
    in_hbm, whole = pl.BlockSpec(memory_space=pl.ANY), pltpu.VMEM(x.shape, x.dtype)
    return pl.pallas_call(kernel, x, in_specs=[in_hbm], out_specs=in_hbm,
                          scratch_shapes=[whole, whole, pltpu.SemaphoreType.DMA])(x)


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
    "9.2": [
        ("start and wait belong together", buffered(blocking), "waits too much"),
        ("the next copy can start when this step is done", buffered(late_start), "before you wait"),
        ("a copy out is waited for where it is started", buffered(early_wait), "one block later"),
        ("the loop waits for all", buffered(no_epilogue), "never waited"),
        ("the loop fetches the first block, too", buffered(no_prologue), "needs a start before it"),
        ("a start is enough", buffered(compute_first), "read before wait"),
        ("there is always a next block", buffered(no_guard), "when there is no next block"),
        ("the last copy is two before the end", buffered(one_before_last), "There is one block, 0:"),
        ("the last copy left from slot 1", buffered(fixed_epilogue), "which one leaves last"),
        ("one semaphore will do", buffered(right, x_sem=lambda i: 0), "semaphore"),
        ("results need one slot only", buffered(right, o_slot=lambda i: 0), "overwrite in flight"),
        ("x needs one slot only", buffered(right, x_slot=lambda i: 0), "in flight"),
        ("the kernel reads the slot that is filled next", buffered(other_slot), "which one the kernel reads"),
        ("what is computed does not matter", buffered(without_one), "Does the kernel compute 3·x + 1?"),
        ("the kernel has one slot each way", buffered(slot_zero), "copy of this block fills"),
        ("the kernel reads one slot", buffered(read_slot_zero), "slot that this block went into"),
        ("a copy more does no harm", buffered(twice), "once each way"),
        ("pallas_call copies well enough", by_the_pipeline, "leaves the copies to the pipeline"),
        ("one large block is a pipeline", as_one_block, "8 rows each"),
        ("the sum is what counts", lambda x: 3 * x + 1, "no pallas_call"),
        ("a call is a return", without_return, "behind its return"),
    ],
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
        ("128 columns always fit", tiled(lambda m, n: (512, 128)), "cuts a tile"),
        ("rows need no tiles", tiled(lambda m, n: (100, n)), "multiples of 8"),
        ("the smallest tile is the best", tiled(lambda m, n: (8, n)), "latency"),
        ("larger is always better", tiled(lambda m, n: (m, n)), "do not fit"),
        ("columns take what they have", tiled(lambda m, n: (408 if n == 1200 else 512, n)), "do not fit"),
        ("one slot saves room", tiled(lambda m, n: (256, n), depth=1), "too slow"),
        ("blocks divide the array", tiled(lambda m, n: (256, n), lambda m, n: (m // 256, 1)), "No step writes"),
        ("the product is what counts", lambda x: 2 * x, "no pallas_call"),
    ],
}


def with_fori_loop(n, copy_in, copy_out, compute):
    copy_in(0).start()

    def step(i, _):
        pl.when(i + 1 < n)(lambda: copy_in(i + 1).start())
        copy_in(i).wait()
        pl.when(i > 1)(lambda: copy_out(i - 2).wait())  # as late as it may be: before this slot is written
        compute(i)
        copy_out(i).start()
    lax.fori_loop(0, n, step, None)
    for i in range(max(0, n - 2), n):
        copy_out(i).wait()


def read_then_write(x):
    """The slot is read before the wait for its place, and written after it."""
    n = x.shape[0] // 8

    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        ins = [pltpu.make_async_copy(x_hbm.at[8 * i:8 * i + 8], x_vmem.at[i % 2], x_sems.at[i % 2]) for i in range(n)]
        outs = [pltpu.make_async_copy(o_vmem.at[i % 2], o_hbm.at[8 * i:8 * i + 8], o_sems.at[i % 2]) for i in range(n)]
        for copy in ins[:2]:
            copy.start()
        for i in range(n):
            ins[i].wait()
            value = 3 * x_vmem[i % 2] + 1
            if i + 2 < n:
                ins[i + 2].start()
            if i >= 2:
                outs[i - 2].wait()
            o_vmem[i % 2] = value
            outs[i].start()
        for copy in outs[-2:]:
            copy.wait()
    return call_on_hbm(kernel, x)(x)


def many_rows(x):
    """As many rows as fit, padded columns counted, in the last of three axes' order."""
    m, n = x.shape
    rows = min(2**24 // (4 * 4 * pl.cdiv(n, 128) * 128), 400) // 8 * 8
    last = pl.cdiv(m, rows) - 1
    spec = pl.BlockSpec((rows, n), lambda i: (last - i, 0))
    return pl.pallas_call(double_kernel, x, grid=last + 1, in_specs=[spec], out_specs=spec)(x)


p = personal("9.1")
STEPS, PARTS = p.m // p.bm * (p.n // p.bn), p.n // p.bn
COUNTS = [p.x_depth + 3, p.o_depth + 2, 2 * STEPS + PARTS]

RIGHT = {
    "9.1": [("as an array", np.array(COUNTS)), ("counted one by one", tuple(float(c) for c in COUNTS))],
    "9.2": [("unrolled in Python", buffered(right)), ("fori_loop, waits as late as may be", buffered(with_fori_loop)),
            ("reading and writing apart", read_then_write)],
    "9.3": [("other cases and keys", {f"kernel_{k}": name.upper() for k, name in NAMES.items()})],
    "9.4": [("as many rows as fit, backwards", many_rows), ("256 rows, two axes", tiled(lambda m, n: (256, n)))],
}
