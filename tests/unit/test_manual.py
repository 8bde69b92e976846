"""Kernels with copies of their own: right ones run, the classic bugs are named by default."""
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.races import Place, Races, Rectangles

HBM = pl.BlockSpec(memory_space=pl.ANY)
X = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def double_buffer(wait_in=True, wait_out=True, slots=2, last_wait=True):
    """A manual pipeline over four blocks, as kernel authors write it; each flag plants one classic bug."""
    def kernel(x_hbm, o_hbm, x_buf, o_buf, in_sem, out_sem):
        n = x_hbm.shape[0] // 4

        def fetch(i):
            s = lax.rem(i, slots)
            return pltpu.make_async_copy(x_hbm.at[pl.ds(i * 4, 4)], x_buf.at[s], in_sem.at[s])

        def send(i):
            s = lax.rem(i, slots)
            return pltpu.make_async_copy(o_buf.at[s], o_hbm.at[pl.ds(i * 4, 4)], out_sem.at[s])
        fetch(jnp.int32(0)).start()

        def step(i, _):
            @pl.when(i + 1 < n)
            def _():
                fetch(i + 1).start()
            if wait_in:
                fetch(i).wait()
            s = lax.rem(i, slots)
            o_buf[s] = x_buf[s] * 2

            send(i).start()

            @pl.when(i > 0)
            def _():
                if wait_out:
                    send(i - 1).wait()
        lax.fori_loop(0, n, step, None)
        if last_wait:
            send(jnp.int32(n - 1)).wait()
    return pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=[
        pltpu.VMEM((2, 4, 8), jnp.float32), pltpu.VMEM((2, 4, 8), jnp.float32),
        pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.DMA((2,))])


def hazards(f, *args):
    return f.trace(*args).hazards


@pytest.mark.parametrize("mode", ["eager", "on_wait", "random"])
def test_a_manual_double_buffer(mode):
    f = double_buffer()
    assert hazards(f, X) == []
    np.testing.assert_array_equal(f(X), X * 2)


@pytest.mark.parametrize("bug, kind, text", [
    (dict(wait_in=False), "read before wait",
     r"step 0: the kernel reads x_buf\[0\] \(line \d+\) while the copy x_hbm\[0:4\] → x_buf\[0\] \(line \d+\) of step "
     r"0 is still in flight.\n  Wait for it first: make_async_copy\(x_hbm.at\[0:4\], x_buf.at\[0\], in_sem.at\[0\]\)"
     r".wait\(\) before line \d+."),
    (dict(wait_out=False, last_wait=False), "overwrite in flight",
     r"step 2: the kernel writes o_buf\[0\] \(line \d+, 3rd time\) while the copy o_buf\[0\] → o_hbm\[0:4\] "
     r"\(line \d+, 1st time\) of step 0 is still in flight.\n  Wait for it first, or use another slot: "
     r"make_async_copy\(o_buf.at\[0\], o_hbm.at\[0:4\], out_sem.at\[0\]\).wait\(\) before line"),
    (dict(slots=1), "overwrite in flight",
     r"step 0: the copy x_hbm\[4:8\] → x_buf\[0\] \(line \d+\) starts while the copy x_hbm\[0:4\] → x_buf\[0\] "
     r"\(line \d+\) of step 0 is still in flight.\n  Wait for it first, or use another slot: make_async_copy"),
    (dict(last_wait=False), "never waited",
     r"step 3: the copy o_buf\[1\] → o_hbm\[12:16\] \(line \d+, 4th time\) is never waited for: nobody knows whether "
     r"it arrived.\n  Call make_async_copy"),
])
def test_the_classic_bugs_are_named(bug, kind, text):
    found = hazards(double_buffer(**bug), X)
    assert any(h.kind == kind for h in found)
    with pytest.warns(pl.HazardWarning, match=text):
        double_buffer(**bug)(X)


def test_a_wait_for_nothing_is_a_hang():
    def kernel(x_hbm, o_hbm, sem):
        pltpu.make_async_copy(x_hbm, o_hbm, sem).wait()
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=[pltpu.SemaphoreType.DMA])
    with pytest.raises(pl.PipelineError, match="would hang here"):
        f(X)


def test_a_pipeline_inside_a_kernel():
    def kernel(x_hbm, y_hbm, o_hbm):
        def add(x_ref, y_ref, o_ref):
            o_ref[...] = x_ref[...] + y_ref[...] * pl.program_id(0)
        pltpu.emit_pipeline(add, grid=(4, 2), in_specs=[pl.BlockSpec((4, 4), lambda i, j: (i, j)),
                                                        pl.BlockSpec((4, 4), lambda i, j: (3 - i, j))],
                            out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j)))(x_hbm, y_hbm, o_hbm)
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM, HBM], out_specs=HBM)
    y = X[::-1].reshape(4, 4, 8)
    want = X + (y[::-1] * np.arange(4)[:, None, None]).reshape(16, 8)
    assert hazards(f, X, X[::-1]) == []
    np.testing.assert_array_equal(f(X, X[::-1].copy()), want)


def test_scoped_buffers_inside_a_grid():
    def kernel(x_ref, o_ref):
        def scope(buf, sem):
            pltpu.async_copy(x_ref, buf, sem).wait()
            pl.run_scoped(lambda inner: pltpu.sync_copy(buf, inner), pltpu.VMEM((4, 8), jnp.float32))
            o_ref[...] = buf[...] + pl.program_id(0)
        pl.run_scoped(scope, pltpu.VMEM((4, 8), jnp.float32), sem=pltpu.SemaphoreType.DMA)
    rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
    f = pl.pallas_call(kernel, shape(16, 8), grid=(4,), in_specs=[rows], out_specs=rows)
    assert hazards(f, X) == []
    np.testing.assert_array_equal(f(X), X + np.repeat(np.arange(4), 4)[:, None])


def test_reading_a_scoped_buffer_that_nobody_wrote_is_named():
    def kernel(o_ref):
        pl.run_scoped(lambda buf: o_ref.__setitem__(..., buf[...]), pltpu.VMEM((4,), jnp.float32))
    with pytest.warns(pl.HazardWarning, match=r"reads buf \(line \d+\), part of which nobody has written"):
        pl.pallas_call(kernel, shape(4))()


@pytest.mark.parametrize("line, text", [
    (lambda x, o, sem: x[0], "x_hbm is in HBM, where a kernel cannot read directly"),
    (lambda x, o, sem: o.__setitem__(0, jnp.zeros(8)), "o_hbm is in HBM, where a kernel cannot write directly"),
    (lambda x, o, sem: pltpu.make_async_copy(x.at[0:2], o.at[0:3], sem), "needs the same shape and dtype on both "
                                                                         "sides"),
    (lambda x, o, sem: pltpu.make_async_copy(jnp.ones(3), o, sem), "give a ref"),
    (lambda x, o, sem: pltpu.make_async_copy(x, o, x), "is not one semaphore"),
    (lambda x, o, sem: x.at[9:20], None),
    (lambda x, o, sem: x.at[20], "index 20 is out of range"),
    (lambda x, o, sem: pltpu.make_async_remote_copy(x, o, sem, sem, (0, 1)), r"device_id=\(0, 1\), but one chip is "
                                                                             "simulated"),
    (lambda x, o, sem: pltpu.make_async_copy(x, o, sem).wait_send(), "this is a local copy"),
])
def test_bad_copies_say_what_is_wrong(line, text):
    def kernel(x_hbm, o_hbm, sem):
        line(x_hbm, o_hbm, sem)
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=[pltpu.SemaphoreType.DMA],
                       on_hazard="ignore")
    if text is None:
        f(X)
    else:
        with pytest.raises(pl.PallasLiteError, match=text):
            f(X)


def test_copies_outside_of_a_kernel_are_an_error():
    with pytest.raises(pl.PallasLiteError, match="only meaningful inside a kernel"):
        pltpu.sync_copy(None, None)


def test_the_schedule_of_a_manual_kernel_is_the_pipelines_own():
    schedule = double_buffer().trace(X).schedule
    assert schedule.listing().splitlines()[:8] == [
        "copy_in_start(x_hbm[0] → x_buf[0])", "copy_in_start(x_hbm[1] → x_buf[1])", "copy_in_wait(x_buf[0])",
        "run step 0 on x_buf[0], o_buf[0]", "copy_out_start(o_buf[0] → o_hbm[0])",
        "copy_in_start(x_hbm[2] → x_buf[0])", "copy_in_wait(x_buf[1])", "run step 1 on x_buf[1], o_buf[1]"]

    def blocked(x_buf, o_buf):
        o_buf[...] = x_buf[...] * 2
    rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
    other = pl.pallas_call(blocked, shape(16, 8), grid=4, in_specs=[rows], out_specs=rows).trace(X).schedule
    assert [e._replace(operand="", block=None) for e in schedule] == [e._replace(operand="", block=None) for e in other]
    assert [e.block for e in schedule if e.block] == [e.block[:1] for e in other if e.block]
    assert pl.verify(schedule) == []
    assert schedule.flops == other.flops == 32  # of one step: 4 × 8 products


def test_an_edge_block_of_a_kernel_that_allocates_moves_its_part_only():
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    def by_way_of_a_buffer(x_ref, o_ref):
        def go(buffer):
            buffer[...] = x_ref[...]
            o_ref[...] = buffer[...] * 2
        pl.run_scoped(go, pltpu.VMEM((4, 8), jnp.float32))
    spec = pl.BlockSpec((4, 8), lambda i: (i, 0))
    plain, scoped = (pl.pallas_call(kernel, shape(10, 8), grid=(3,), in_specs=[spec], out_specs=spec).trace(X[:10])
                     for kernel in (double, by_way_of_a_buffer))
    assert scoped.schedule.hbm_bytes == plain.schedule.hbm_bytes == {"in": 320, "out": 320, "total": 640}
    assert scoped.schedule.operands == plain.schedule.operands


def test_the_arithmetic_of_a_manual_kernel_is_counted_copies_are_not():
    def kernel(x_hbm, y_ref, o_ref, buf, total):
        @pl.loop(0, 4)
        def _(i):
            pltpu.sync_copy(x_hbm.at[pl.ds(4 * i, 4)], buf)
            total[...] = jnp.sin(buf[...]) * y_ref[...] + 1

        def body(block):
            total[...] = total[...] + block[...]
        pltpu.emit_pipeline(body, grid=(2,), in_specs=[pl.BlockSpec((4, 8), lambda i: (i, 0))])(x_hbm)
        o_ref[...] = total[...]
    f = pl.pallas_call(kernel, shape(4, 8), in_specs=[HBM, pl.BlockSpec()],
                       scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)] * 2)
    schedule = f.trace(X, X[:4]).schedule
    assert schedule.flops * schedule.steps == 4 * 3 * 32 + 2 * 32


def test_the_time_of_a_manual_kernel_is_the_pipelines_own():
    got = double_buffer().trace(X).timeline(pl.hardware.TPU_V5E)

    def blocked(x, o):
        o[...] = x[...] * 2
    rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
    want = pl.pallas_call(blocked, shape(16, 8), grid=4, in_specs=[rows], out_specs=rows).trace(X).timeline(
        pl.hardware.TPU_V5E)
    assert (got.total, got.bound, got.terms) == (want.total, want.bound, want.terms)


class Cells:
    """One place for each cell: what Rectangles must agree with."""

    def __init__(self, n):
        self.cells = [Place() for _ in range(n)]

    def find(self, rectangle):
        [(a, b)] = rectangle
        return self.cells[a:b]


@pytest.mark.parametrize("seed", range(200))
def test_rectangles_find_what_cells_find(seed):
    rng, n = random.Random(seed), 6
    found = []
    races = [Races(lambda kind, a, b: found[0].add((kind, a, b))), Races(lambda kind, a, b: found[1].add((kind, a, b)))]
    found += [set(), set()]
    buffers = [[Rectangles(races[0], (n,)) for _ in "ab"], [Cells(n) for _ in "ab"]]
    for number in range(25):
        spans = []
        for _ in "ab":
            a = rng.randrange(n)
            spans.append(((a, rng.randint(a + 1, n)),))
        what, side, sem = rng.choice(["read", "write", "start", "start", "wait"]), rng.randrange(2), rng.randrange(3)
        for race, (a, b) in zip(races, buffers, strict=True):
            one, other = (a, b) if side else (b, a)
            if what == "start":
                race.start(number, one.find(spans[0]), other.find(spans[1]), sem, 4)
            elif what == "wait":
                race.wait(sem, 4)
            else:
                getattr(race, what)(number, one.find(spans[0]))
    # In flight, only the first of several writers is reported: which one depends on the cell.
    assert {(k, b) for k, a, b in found[0]} == {(k, b) for k, a, b in found[1]}


def test_an_output_in_hbm_that_is_left_partly_unwritten_is_named():
    def kernel(x_hbm, o_hbm, buf):
        pltpu.sync_copy(x_hbm.at[0:4], buf)
        pltpu.sync_copy(buf, o_hbm.at[0:4])
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM,
                       scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)])
    assert [str(h.message) for h in hazards(f, X)] == [
        "output o_hbm[4:16] is never written: whatever memory held stays there."]
