"""What goes wrong in kernels with copies of their own is named: operand, step, slot, line, both events, and a mend."""
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pallas_lite as pl
from pallas_lite import tpu as pltpu

from .test_manual import HBM, X, shape

ROWS = pl.BlockSpec((4, 8), lambda i: (i, 0))
BUF, SEM = pltpu.VMEM((4, 8), jnp.float32), pltpu.SemaphoreType.DMA


def call(kernel, *scratch):
    return pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=scratch)


def in_a_pipeline(body):
    """A kernel whose pipeline's body gets x, o (in HBM), the blocks x_ref, o_ref, two buffers and two semaphores."""
    def kernel(x, o, bufs, sems):
        pltpu.emit_pipeline(lambda x_ref, o_ref: body(x, o, x_ref, o_ref, bufs, sems), grid=(4,), in_specs=[ROWS],
                            out_specs=[ROWS])(x, o)
    return call(kernel, pltpu.VMEM((2, 4, 8), jnp.float32), pltpu.SemaphoreType.DMA((2,)))


def only(found, kind):
    assert {h.kind for h in found} == {kind}, found
    return found[0]


def plain(hazard):
    """Its text, without the numbers of lines."""
    return re.sub(r"line \d+(, \w+ time)?", "line", str(hazard))


def check(hazard, operand, step, slot, text):
    assert (hazard.operand, hazard.step, hazard.slot) == (operand, step, slot)
    assert plain(hazard) == text


# -- the three classic bugs in the body of a pipeline

def no_wait_in(x, o, x_ref, o_ref, bufs, sems):
    i = pl.program_id(0)
    copy = pltpu.make_async_copy(x.at[pl.ds(4 * i, 4)], bufs.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])
    copy.start()
    o_ref[...] = x_ref[...] + bufs[lax.rem(i, 2)]
    copy.wait()


def test_no_wait_in_inside_a_pipeline():
    found = in_a_pipeline(no_wait_in).trace(X).hazards
    check(only(found, "read before wait"), "bufs", 0, 0,
          "step 0: the kernel reads bufs[0] (line) while the copy x[0:4] → bufs[0] (line) of step 0 is "
          "still in flight.\n  Wait for it first: make_async_copy(x.at[0:4], bufs.at[0], sems.at[0]).wait() "
          "before line.")
    check(found[1], "bufs", 1, 1,
          "step 1: the kernel reads bufs[1] (line) while the copy x[4:8] → bufs[1] (line) of "
          "step 1 is still in flight.\n  Wait for it first: make_async_copy(x.at[4:8], bufs.at[1], "
          "sems.at[1]).wait() before line.")


def no_wait_out(x, o, x_ref, o_ref, bufs, sems):
    i = pl.program_id(0)
    bufs[lax.rem(i, 2)] = x_ref[...]
    o_ref[...] = x_ref[...]
    pltpu.async_copy(bufs.at[lax.rem(i, 2)], x.at[pl.ds(4 * i, 4)], sems.at[lax.rem(i, 2)])


def test_no_wait_out_inside_a_pipeline():
    found = in_a_pipeline(no_wait_out).trace(X).hazards
    overwritten = [h for h in found if h.kind == "overwrite in flight" and h.operand == "bufs"]
    check(overwritten[0], "bufs", 2, 0,
          "step 2: the kernel writes bufs[0] (line) while the copy bufs[0] → x[0:4] (line) of "
          "step 0 is still in flight.\n  Wait for it first, or use another slot: make_async_copy(bufs.at[0], "
          "x.at[0:4], sems.at[0]).wait() before line.")
    assert sum(h.kind == "never waited" for h in found) == 4


def one_slot(x, o, x_ref, o_ref, bufs, sems):
    i = pl.program_id(0)

    def fetch(i):
        return pltpu.make_async_copy(x.at[pl.ds(4 * i, 4)], bufs.at[0], sems.at[0])

    @pl.when(i == 0)
    def _():
        fetch(i).start()
    fetch(i).wait()

    @pl.when(i < 3)
    def _():
        fetch(i + 1).start()
    o_ref[...] = x_ref[...] + bufs[0]


def test_one_slot_inside_a_pipeline():
    check(only(in_a_pipeline(one_slot).trace(X).hazards, "read before wait"), "bufs", 0, 0,
          "step 0: the kernel reads bufs[0] (line) while the copy x[4:8] → bufs[0] (line) of step 0 is "
          "still in flight.\n  Wait for it first: make_async_copy(x.at[4:8], bufs.at[0], sems.at[0]).wait() "
          "before line.")


def test_a_copy_that_a_pipeline_overtakes():
    def body(x, o, x_ref, o_ref, bufs, sems):
        o_ref[...] = x_ref[...]
        i = pl.program_id(0)
        pltpu.make_async_copy(x_ref, bufs.at[0], sems.at[0]).start()

        @pl.when(i == 3)
        def _():
            for _ in range(4):
                pltpu.make_async_copy(x_ref, bufs.at[0], sems.at[0]).wait()
    found = [h for h in in_a_pipeline(body).trace(X).hazards if "pipeline's copy" in h.message]
    check(found[0], "x", 1, 0,
          "step 1: the pipeline's copy x[8:12] → x[slot 0] starts while the copy x[slot 0] → bufs[0] (line) of "
          "step 0 is still in flight.\n  Wait for it first, or use another slot: make_async_copy(x, "
          "bufs.at[0], sems.at[0]).wait() before the pipeline's copy.")


def test_a_pipelines_own_copy_is_not_for_its_body_to_wait_for():
    def body(x, o, x_ref, o_ref, bufs, sems):
        @pl.when(pl.program_id(0) == 1)
        def _():
            pltpu.sync_copy(x_ref, x.at[8:12])
        o_ref[...] = x_ref[...]
    written, hazard = in_a_pipeline(body).trace(X).hazards
    assert written.kind == "written input"
    check(hazard, "x", 1, -1,
          "step 1: the copy x[slot 1] → x[8:12] (line) starts while the pipeline's copy x[8:12] → x[slot 0] of "
          "step 1 is still in flight.\n  Only the pipeline can wait for that copy: keep to the refs that it gives to "
          "its body, or do this after the pipeline.")


# -- semaphores

def test_waiting_twice_would_hang():
    def kernel(x, o, buf, sem):
        copy = pltpu.async_copy(x.at[0:4], buf, sem)
        copy.wait()
        copy.wait()
    f = call(kernel, BUF, SEM)
    text = ("step 0: the wait for x[0:4] → buf (line) asks its semaphore sem for more than the copies started on it "
            "bring (128 bytes, of which 0 can come): the program would hang here.\n  What was started was waited for "
            "already (line): drop this wait, or start the copy again before it.")
    check(only(f.trace(X).hazards, "hang"), "buf", 0, -1, text)
    with pytest.raises(pl.PipelineError, match="would hang here. What was started was waited for already"):
        f(X)


def test_a_hang_names_the_copy_that_went_to_another_slot_and_what_went_wrong_first():
    def kernel(x, o, buf, sem):
        def fetch(i, slot):
            return pltpu.make_async_copy(x.at[pl.ds(2 * i, 2)], buf.at[slot], sem.at[slot])
        fetch(0, 0).start()
        fetch(1, 0).start()  # should be slot 1
        fetch(0, 0).wait()
        buf[0] *= 2
        fetch(1, 1).wait()
    f = call(kernel, pltpu.VMEM((2, 2, 8), jnp.float32), pltpu.SemaphoreType.DMA((2,)))
    first, *_, hang = f.trace(X).hazards
    assert (first.kind, hang.kind, hang.slot) == ("overwrite in flight", "hang", 1)
    text = ("step 1: the wait for x[2:4] → buf[1] (line) asks its semaphore sem[1] for more than the copies started on "
            "it bring (64 bytes, of which 0 can come): the program would hang here.{}Instead, the copy x[2:4] → buf[0] "
            "(line) was started, on sem[0]: give the start and the wait of a copy the same slot and semaphore.")
    check(hang, "buf", 1, 1, text.format("\n  "))
    with pytest.raises(pl.PipelineError) as error:
        f(X)
    assert plain(error.value) == f"{text.format(' ')}\n  Before that, {plain(first)}"


def test_waiting_for_more_than_was_started_would_hang():
    def kernel(x, o, buf, sem):
        pltpu.async_copy(x.at[0:2], buf.at[0:2], sem)
        pltpu.make_async_copy(x.at[0:4], buf, sem).wait()
    found = call(kernel, BUF, SEM).trace(X).hazards
    assert "(128 bytes, of which 64 can come): the program would hang here" in only(found, "hang").message


def test_a_semaphore_that_is_left_with_bytes():
    def kernel(x, o, buf, sem):
        first = pltpu.async_copy(x.at[0:2], buf.at[0:2], sem)
        pltpu.async_copy(x.at[2:4], buf.at[2:4], sem)
        first.wait()
        pltpu.sync_copy(x, o)
    found = call(kernel, BUF, SEM).trace(X).hazards
    check(only(found, "never waited"), "buf", 0, -1,
          "step 0: the copy x[0:2] → buf[0:2] (line) may be the one that is not waited for: semaphore sem gets 128 "
          "bytes from 2 copies, and waits take 64. 64 are left in it.\n  Call make_async_copy(x.at[0:2], buf.at[0:2], "
          "sem).wait() before the kernel ends.")
    assert len(found) == 2  # either may be the one


# -- remote copies have two halves

def remote(wait_send, wait_recv):
    def kernel(x, o, buf, send, receive):
        pltpu.sync_copy(x.at[0:4], buf)
        pltpu.sync_copy(x, o)
        copy = pltpu.make_async_remote_copy(buf, o.at[0:4], send, receive, 0)
        copy.start()
        if wait_send:
            copy.wait_send()
        buf[...] = jnp.zeros((4, 8))
        if wait_recv:
            copy.wait_recv()
        if not wait_send:
            copy.wait_send()
    return call(kernel, BUF, SEM, SEM)


@pytest.mark.parametrize("mode", ["eager", "on_wait", "random"])
def test_a_remote_copy_is_read_when_its_send_is_waited_for(mode):
    f = remote(True, True)
    assert f.trace(X).hazards == []
    np.testing.assert_array_equal(f(X), X)


def test_a_source_that_changes_before_the_send_is_waited_for():
    check(only(remote(False, True).trace(X).hazards, "overwrite in flight"), "buf", 0, -1,
          "step 0: the kernel writes buf (line) while the copy buf → o[0:4] (line) of step 0 is still in flight.\n  "
          "Wait for it first, or use another slot: make_async_remote_copy(buf, o.at[0:4], send, receive).wait_send() "
          "before line.")


def test_a_remote_copy_that_nobody_waits_to_receive():
    assert "never waited for" in only(remote(True, False).trace(X).hazards, "never waited").message


# -- scopes

def test_a_ref_outlives_its_scope():
    def kernel(x, o):
        kept = pl.run_scoped(lambda buf: buf, BUF)
        kept[...] = jnp.zeros((4, 8))
    with pytest.raises(pl.SpecError, match="buf is used after the run_scoped that made it has ended"):
        call(kernel)(X)


def test_a_semaphore_outlives_its_scope():
    def kernel(x, o, buf):
        copy = pl.run_scoped(lambda sem: pltpu.make_async_copy(x.at[0:4], buf, sem), SEM)
        copy.start()
    with pytest.raises(pl.SpecError, match="sem is used after"):
        call(kernel, BUF)(X)


def test_a_scope_ends_under_a_copy():
    def kernel(x, o):
        pl.run_scoped(lambda buf, sem: pltpu.make_async_copy(x.at[0:4], buf, sem).start(), BUF, SEM)
        pltpu.sync_copy(x, o)
    check(only(call(kernel).trace(X).hazards, "never waited"), "buf", 0, -1,
          "step 0: the copy x[0:4] → buf (line) is still in flight where the scope of buf, sem ends.\n  Call "
          "make_async_copy(x.at[0:4], buf, sem).wait() inside the function that run_scoped calls.")


# -- memory that nobody wrote

def ragged(read):
    def kernel(x, o):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] + read(x_ref[...])
        spec = pl.BlockSpec((6, 8), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(3,), in_specs=[spec], out_specs=[spec])(x, o)
    return call(kernel)


def test_the_tail_of_an_edge_block_is_reported_only_where_it_shows():
    assert ragged(lambda block: 1).trace(X).hazards == []
    found = ragged(lambda block: block.sum()).trace(X).hazards
    check(only(found, "uninitialised"), "x", 2, 0, "step 2: the kernel reads x[slot 0] (line), part of "
          "which lies past the edge of its array, where its slot keeps what it held.\n  Leave what lies past the edge "
          "out with jnp.where, on every operand, rather than multiplying it by 0.")


def test_what_an_earlier_visit_left_in_a_slot_counts_as_unwritten():
    def kernel(x_ref, o_ref):
        def scope(buf):
            pltpu.sync_copy(x_ref, buf)
            o_ref[...] += buf[...]
        pl.run_scoped(scope, BUF)
    f = pl.pallas_call(kernel, shape(16, 8), grid=4, in_specs=[ROWS], out_specs=ROWS)
    found = f.trace(X).hazards
    assert [(h.kind, h.operand, h.step, h.slot) for h in found] == [("uninitialised", "o", t, t % 2) for t in range(4)]


def test_scratch_that_is_read_and_masked_is_no_hazard():
    def kernel(x, o, buf, total):
        @pl.loop(0, 4)
        def _(i):
            pltpu.sync_copy(x.at[pl.ds(4 * i, 4)], buf)
            total[...] = jnp.where(i == 0, 0, total[...]) + buf[...]
            pltpu.sync_copy(total, o.at[pl.ds(4 * i, 4)])
    f = call(kernel, BUF, BUF)
    assert f.trace(X).hazards == []
    np.testing.assert_array_equal(f(X), X.reshape(4, 4, 8).cumsum(0).reshape(16, 8))


def test_the_index_of_a_loop_is_an_int32():
    def kernel(x, o, buf):
        def step(i, scale):
            assert i.dtype == jnp.int32
            pltpu.sync_copy(x.at[pl.ds(4 * i, 4)], buf)
            buf[...] = buf[...] * scale + i.astype(jnp.float32)
            pltpu.sync_copy(buf, o.at[pl.ds(4 * i, 4)])
            return scale.astype(jnp.float32)
        lax.fori_loop(0, 4, step, 2.0)
    np.testing.assert_array_equal(call(kernel, BUF)(X), X * 2 + np.repeat(np.arange(4), 4)[:, None])


def test_a_parallel_axis_of_a_kernel_with_copies():
    def kernel(x_ref, o_ref, buf):
        pltpu.sync_copy(x_ref, buf)
        for _ in range(3):  # more runs than steps
            pltpu.sync_copy(buf, o_ref)
            o_ref[...] += 1
    f = pl.pallas_call(kernel, shape(4, 8), grid=4, in_specs=[ROWS], out_specs=pl.BlockSpec((4, 8), lambda i: (0, 0)),
                       scratch_shapes=[BUF], compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)))
    found = only(f.trace(X).hazards, "parallel axis")
    assert (found.operand, found.step) == ("o", 1)


def starts_the_next_copy(x, o_ref, buf, sem, row):
    def fetch(i):
        return pltpu.make_async_copy(x.at[pl.ds(4 * i, 4)], buf, sem)
    i = pl.program_id(0)
    pl.when(i == 0)(lambda: fetch(i).start())
    fetch(i).wait()
    o_ref[...] = buf[...]
    pl.when(i < 3)(lambda: fetch(i + 1).start())


def counts_its_steps(x, o_ref, buf, sem, row):
    @pl.when(pl.program_id(0) == 0)
    def _():
        row[0] = 0
    pltpu.sync_copy(x.at[pl.ds(row[0], 4)], buf)
    o_ref[...] = buf[...]
    row[0] += 4


@pytest.mark.parametrize("kernel, text", [
    (starts_the_next_copy, "the wait for x[12:16] → buf (line) asks its semaphore sem for more than the copies "
                           "started on it bring (128 bytes, of which 0 can come): the program would hang here."),
    (counts_its_steps, "step 0, line: x: slice 2147483647:2147483651 is out of range in dimension 0, which has 16 "
                       "elements. A slice past the end does not shift. Guard it, with pl.when in a kernel and jnp.clip "
                       "in an index map.\n  Before that, step 0: the kernel reads row (line), part of which nobody has "
                       "written.\n  Write it, or copy something into it and wait, before reading it.")])
def test_a_kernel_that_goes_wrong_only_in_another_order_of_parallel_steps(kernel, text):
    f, right = (pl.pallas_call(kernel, shape(16, 8), grid=4, in_specs=[HBM], out_specs=ROWS, scratch_shapes=[
        BUF, SEM, pltpu.SMEM((1,), jnp.int32)], compiler_params=pltpu.CompilerParams(dimension_semantics=(semantics,)))
        for semantics in ("parallel", "arbitrary"))
    for found in (f.trace(X).hazards, f.trace(shape(16, 8)).hazards):
        check(only(found, "parallel axis"), "o", 0, -1, (
            f"step 0: where the steps of parallel axis 0 run backwards, {text}\n"
            '  Mark the axis "arbitrary" in dimension_semantics, or let each step start the copies that it waits for, '
            "and wait for those that it starts."))
    for run in (f, jax.jit(f)):
        with pytest.warns(pl.HazardWarning, match="parallel axis 0 run backwards"):
            np.testing.assert_array_equal(run(X), X)  # in this order all is well
    shuffled = dataclasses.replace(f, params=pltpu.InterpretParams(random_seed=0))
    with pytest.raises(pl.PallasLiteError) as stopped:
        shuffled(X)
    assert stopped.value.__notes__ == ["The steps ran in the order that random_seed=0 chose."]
    assert right.trace(X).hazards == []
    np.testing.assert_array_equal(right(X), X)


def test_a_shared_semaphore_is_the_mend_where_the_wait_is_there():
    def kernel(x, o, a, b, sem):
        first, second = pltpu.async_copy(x.at[0:4], a, sem), pltpu.async_copy(x.at[4:8], b, sem)
        first.wait()  # any four rows: it may be the second copy that has arrived
        a[...] += 1
        second.wait()
        pltpu.sync_copy(a, o.at[0:4])
        pltpu.sync_copy(b, o.at[4:8])
        pltpu.sync_copy(x.at[8:16], o.at[8:16])
    found = call(kernel, BUF, BUF, SEM).trace(X).hazards
    assert [(h.kind, h.operand) for h in found] == [("read before wait", "a"), ("overwrite in flight", "a")]
    for hazard in found:  # the second is found when all is over
        assert "two share semaphore sem. Give each copy a semaphore of its own, or wait for all" in hazard.mend


def test_all_that_an_output_has_unwritten_is_one_hazard():
    def kernel(x, o):
        for i in range(2):
            pltpu.sync_copy(x.at[pl.ds(4 * i, 4)], o.at[0, pl.ds(4 * i, 4)])
    f = pl.pallas_call(kernel, shape(3, 8, 8), in_specs=[HBM], out_specs=HBM)
    (found,) = f.trace(shape(16, 8)).hazards
    check(found, "o", 0, -1, (
        "step 0: output o[1:3, 0:8, 0:8] is never written: whatever memory held stays there.\n"
        "  Copy the whole of it out."))
