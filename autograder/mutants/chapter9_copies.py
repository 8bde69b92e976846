"""Planted answers of exercise 9.2, in the form of chapter9.py: a kernel with copies of its own."""
import jax
import jax.numpy as jnp
from jax import lax

import pallas_lite as pl
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
    no_epilogue(n, copy_in, copy_out, compute)
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


def copies_in_untold(n, copy_in, copy_out, compute):
    """No step waits for its block."""
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        compute(i)
        copy_out(i).start()
        if i > 0:
            copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def waits_with_the_next_start(n, copy_in, copy_out, compute):
    """The wait for the block itself has slipped under the if of the next."""
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


def epilogue_only(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
    copy_out(n - 1).wait()


def sent_before_computed(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        copy_out(i).start()
        compute(i)
        if i > 0:
            copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def out_before_the_step(n, copy_in, copy_out, compute):
    """Each step first waits for the copy out of the step before."""
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        if i > 0:
            copy_out(i - 1).wait()
        compute(i)
        copy_out(i).start()
    copy_out(n - 1).wait()


def no_guard_of_the_wait(n, copy_in, copy_out, compute):
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def waits_for_its_own(n, copy_in, copy_out, compute):
    """With the guard of the block before."""
    copy_in(0).start()
    for i in range(n):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        if i > 0:
            copy_out(i).wait()
    copy_out(n - 1).wait()


def never_computes(n, copy_in, copy_out, compute):
    right(n, copy_in, copy_out, lambda i: None)


def both_at_once(x):
    """Reads and writes whole buffers."""
    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        ins = [pltpu.make_async_copy(x_hbm.at[8 * i:8 * i + 8], x_vmem.at[i % 2], x_sems.at[i % 2])
               for i in range(x.shape[0] // 8)]
        outs = [pltpu.make_async_copy(o_vmem.at[i % 2], o_hbm.at[8 * i:8 * i + 8], o_sems.at[i % 2])
                for i in range(x.shape[0] // 8)]

        def compute(i):
            o_vmem[...] = 3 * x_vmem[...] + 1
        right(len(ins), ins.__getitem__, outs.__getitem__, compute)
    return call_on_hbm(kernel, x)(x)


def with_loop(n, copy_in, copy_out, compute):
    """The answer of the chapter, but for the `if` of Python, which no program can have there."""
    copy_in(0).start()

    @pl.loop(0, n)
    def _(i):
        if i + 1 < n:
            copy_in(i + 1).start()
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()

        @pl.when(i > 0)
        def _():
            copy_out(i - 1).wait()
    copy_out(n - 1).wait()


def from_a_list(n, copy_in, copy_out, compute):
    """Asks a list of Python for copy i, where i is no number yet."""
    ins = [copy_in(i) for i in range(n)]
    ins[0].start()

    @pl.loop(0, n)
    def _(i):
        pl.when(i + 1 < n)(lambda: ins[i + 1].start())
        copy_in(i).wait()
        compute(i)
        copy_out(i).start()
        pl.when(i > 0)(lambda: copy_out(i - 1).wait())
    copy_out(n - 1).wait()


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


WRONG = {
    "9.2": [
        ("start and wait belong together", buffered(blocking), "waits too much"),
        ("a slot for each block", buffered(right, x_slot=lambda i: i, o_slot=lambda i: i), "slot i % 2"),
        ("the next copy can start when this step is done", buffered(late_start), "before you wait"),
        ("a copy out is waited for where it is started", buffered(early_wait), "one block later"),
        ("the loop waits for all", buffered(no_epilogue), "never waited"),
        ("the loop fetches the first block, too", buffered(no_prologue), "needs a start before it"),
        ("a start is enough", buffered(compute_first), "read before wait"),
        ("there is always a next block", buffered(no_guard), "when there is no next block"),
        ("there is always a block before", buffered(no_guard_of_the_wait), "when there is none before"),
        ("the last copy is two before the end", buffered(one_before_last), "block -1, and there is one block, 0."),
        ("the last copy left from slot 1", buffered(fixed_epilogue), "which one leaves last"),
        ("a copy in need not be waited for", buffered(copies_in_untold), "Each step waits for its own block"),
        ("the wait belongs to the next start", buffered(waits_with_the_next_start), "in the last step, too"),
        ("the epilogue waits for all", buffered(epilogue_only), "The step after may wait for it"),
        ("the wait is for the block itself", buffered(waits_for_its_own), "another copy that has none"),
        ("a copy out sends what comes later", buffered(sent_before_computed), "Start the copy out behind the line"),
        ("a step begins when the copy before is out", buffered(out_before_the_step), "at wait o_vmem[0]"),
        ("copies alone make a pipeline", buffered(never_computes), "No line of the kernel writes o_vmem"),
        ("a buffer is a slot", both_at_once, "both slots of x_vmem at once"),
        ("Python's if asks for i", buffered(with_loop), "becomes an if of the program"),
        ("a list knows copy i", buffered(from_a_list), "Which value does that line ask for"),
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


RIGHT = {
    "9.2": [("unrolled in Python", buffered(right)), ("fori_loop, waits as late as may be", buffered(with_fori_loop)),
            ("reading and writing apart", read_then_write)],
}
