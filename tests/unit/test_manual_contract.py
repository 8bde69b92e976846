"""What a call reports of its blocks, it reports of a kernel with copies of its own too."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu

from .test_manual import HBM, shape
from .test_manual_hazards import BUF, SEM, only

X = jnp.arange(128, dtype=jnp.float32).reshape(16, 8)
ROWS = pl.BlockSpec((4, 8), lambda i: (i, 0))
OUTER = dict(grid=(2, 2), in_specs=[pl.BlockSpec((4, 8), lambda k, i: (2 * k + i, 0))],
             out_specs=pl.BlockSpec((4, 8), lambda k, i: (i, 0)))


def called(f, *arrays):
    """What a call reports, and its value."""
    with pytest.warns(pl.HazardWarning) as caught:
        value = f(*arrays)
    return [h for w in caught for h in w.message.hazards], value


def allocating(kernel):
    """A kernel that is stepped through for a buffer that it does not use."""
    def with_scope(x, o):
        pl.run_scoped(lambda unused: None, BUF)
        kernel(x, o)
    return with_scope


def copy_block(x, o):
    o[...] = x[...]


def accumulate(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o[...] = jnp.zeros_like(o)
    o[...] += x[...]


def inside(body, how=OUTER):
    """The same as pl.pallas_call(body, **how), by emit_pipeline."""
    return lambda x, o: pltpu.emit_pipeline(body, **how)(x, o)


def test_a_revisited_output_block():
    plain = only(pl.pallas_call(copy_block, shape(8, 8), **OUTER).trace(X).hazards, "revisit")
    manual = pl.pallas_call(allocating(copy_block), shape(8, 8), **OUTER)
    emitted = pl.pallas_call(inside(copy_block), shape(8, 8), in_specs=[HBM], out_specs=HBM)
    for f in (manual, emitted):
        found = only(called(f, X)[0], "revisit")
        assert (found.operand, found.step, found.slot) == (plain.operand, plain.step, plain.slot)
        assert str(found) == str(plain)


def test_a_sum_over_the_outer_axis_of_a_pipeline():
    f = pl.pallas_call(inside(accumulate), shape(8, 8), in_specs=[HBM], out_specs=HBM)
    stale, revisit = sorted((h for h in called(f, X)[0] if h.step == 2), key=lambda h: h.kind == "revisit")
    assert re.sub(r" \(line.*?\)", "", str(stale)) == (
        "step 2: the kernel reads o[slot 0], which holds what an earlier visit left there.\n"
        "  Initialise it in the first step of its visit. If it is a sum over a grid axis, make that axis the innermost "
        "(last) of the grid.")
    assert revisit.kind == "revisit"


def test_a_block_that_is_read_back_is_no_revisit():
    def kernel(x, o):
        def add(a, before, after):
            after[...] = before[...] + a[...]

        def once(k):
            pltpu.emit_pipeline(add, grid=(2,), in_specs=[pl.BlockSpec((4, 8), lambda i: (2 * k + i, 0)), ROWS],
                                out_specs=[ROWS])(x, o, o)
        pltpu.emit_pipeline(copy_block, grid=(2,), in_specs=[ROWS], out_specs=[ROWS])(x, o)
        once(1)
    f = pl.pallas_call(kernel, shape(8, 8), in_specs=[HBM], out_specs=HBM, on_hazard="raise")
    np.testing.assert_array_equal(f(X), X[:8] + X[8:])


def test_an_input_block_that_is_written():
    def twice(x, o):
        x[...] = x[...] * 2
        o[...] = x[...]
    how = dict(grid=(4,), in_specs=[ROWS], out_specs=ROWS)
    plain = only(called(pl.pallas_call(twice, shape(16, 8), **how), X)[0], "written input")
    manual = pl.pallas_call(allocating(twice), shape(16, 8), **how)
    emitted = pl.pallas_call(inside(twice, how), shape(16, 8), in_specs=[HBM], out_specs=HBM)
    for f in (manual, emitted):
        found, value = called(f, X)
        assert str(only(found, "written input")) == str(plain)
        assert (found[0].operand, found[0].step, found[0].slot, len(found)) == ("x", 0, 0, 1)
        np.testing.assert_array_equal(value, X * 2)


def test_a_copy_into_an_input_in_hbm():
    def kernel(x, o, b):
        for i in range(4):
            rows = pl.ds(4 * i, 4)
            pltpu.sync_copy(x.at[rows], b)
            b[...] *= 2
            pltpu.sync_copy(b, x.at[rows])
        pltpu.sync_copy(x, o)
    how = dict(in_specs=[HBM], out_specs=HBM, scratch_shapes=[BUF])
    found = only(called(pl.pallas_call(kernel, shape(16, 8), **how), X)[0], "written input")
    assert (found.operand, found.step, found.slot) == ("x", 0, -1)
    assert re.sub(r" \(line.*?\)", "", str(found)) == (
        "step 0: the copy b → x[0:4] writes to the input x: the array belongs to the caller, who may see it change, or "
        "not.\n  Copy to an output, or let one share the input's memory with input_output_aliases.")

    def aliased(x, o, b):
        kernel(o, o, b)
    pl.pallas_call(aliased, shape(16, 8), **how, input_output_aliases={0: 0}, on_hazard="raise")(X)


def carries(x, o, acc):
    @pl.when(pl.program_id(0) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)
    acc[...] += x[...]
    o[...] = acc[...]


def carries_and_allocates(x, o, acc):
    pl.run_scoped(lambda unused: None, BUF)
    carries(x, o, acc)


PARALLEL = dict(grid=(4,), in_specs=[ROWS], out_specs=ROWS,
                compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)))


def test_scratch_carried_along_a_parallel_axis():
    [(plain, _), (found, value)] = (called(pl.pallas_call(k, shape(16, 8), scratch_shapes=[BUF], **PARALLEL), X)
                                    for k in (carries, carries_and_allocates))
    assert (only(found, "parallel axis").step, found[0].operand) == (plain[0].step, "o")
    assert str(found[0]) == str(plain[0])
    np.testing.assert_array_equal(value, np.cumsum(np.asarray(X).reshape(4, 4, 8), 0).reshape(16, 8))


def test_independent_steps_of_a_parallel_axis_are_no_hazard():
    f = pl.pallas_call(allocating(copy_block), shape(16, 8), on_hazard="raise", **PARALLEL)
    np.testing.assert_array_equal(f(X), X)


def test_a_seed_shuffles_the_parallel_steps_of_a_kernel_with_copies():
    def values(kernel):
        params = pltpu.InterpretParams(random_seed=0, uninitialized_memory=1e6)
        f = pl.pallas_call(kernel, shape(16, 8), scratch_shapes=[BUF], interpret=params, on_hazard="ignore", **PARALLEL)
        return np.asarray(f(X + 1))
    np.testing.assert_array_equal(values(carries_and_allocates), values(carries))
    assert not (values(carries) == np.cumsum(np.asarray(X + 1).reshape(4, 4, 8), 0).reshape(16, 8)).all()


TABLE = jnp.array([3, 1, 0, 2])
SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)


def test_the_index_map_of_a_pipeline_reads_a_table():
    def kernel(table, x, o):
        pltpu.emit_pipeline(copy_block, grid=(4,), in_specs=[pl.BlockSpec((4, 8), lambda i: (table[i], 0))],
                            out_specs=[ROWS])(x, o)
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[SMEM, HBM], out_specs=HBM, on_hazard="raise")
    expected = np.asarray(X).reshape(4, 4, 8)[np.asarray(TABLE)].reshape(16, 8)
    np.testing.assert_array_equal(f(TABLE, X), expected)
    np.testing.assert_array_equal(jax.jit(f)(TABLE, X), expected)
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(), in_specs=[HBM], out_specs=HBM)
    np.testing.assert_array_equal(pl.pallas_call(kernel, shape(16, 8), grid_spec=spec)(TABLE, X), expected)


def test_a_pipeline_of_no_steps_does_nothing():
    def kernel(n, x, o):
        pltpu.sync_copy(x, o)
        pltpu.emit_pipeline(lambda a, b: b.__setitem__(..., a[...] + 1), grid=(n[0],), in_specs=[ROWS],
                            out_specs=[ROWS])(x, o)
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[SMEM, HBM], out_specs=HBM, on_hazard="raise")
    for n in (0, 2):
        np.testing.assert_array_equal(f(jnp.array([n]), X), X.at[:4 * n].add(1))
    with pytest.raises(pl.NotSupportedError, match="its grid must be Python ints"):
        jax.jit(f)(jnp.array([2]), X)


def test_an_index_map_out_of_range_in_a_pipeline_names_the_step_around_it():
    def kernel(x, o, sem):
        i = pl.program_id(0)
        pltpu.emit_pipeline(lambda block: None, grid=(1, 2), in_specs=[pl.BlockSpec((4, 8), lambda _, k: (k, i))])(x)
    f = pl.pallas_call(kernel, shape(16, 8), grid=(4,), in_specs=[HBM], out_specs=ROWS, scratch_shapes=[SEM])
    with pytest.raises(pl.BlockIndexError, match=re.escape(
            "in emit_pipeline, operand x, step 0: index_map gives (0, 1), but block index 1 is out of range in "
            "dimension 1 (1 block of 8, so 0 to 0). Change the index map")) as caught:  # no element offsets
        f(np.zeros((16, 8), np.float32))
    assert str(caught.value).startswith("step 1, line ")


def test_what_emit_pipeline_does_not_have_is_refused():
    def call(**options):
        how = dict(grid=(2,), in_specs=[ROWS], out_specs=ROWS)
        return pl.pallas_call(inside(copy_block, how | options), shape(8, 8), in_specs=[HBM], out_specs=HBM)(X)
    with pytest.raises(TypeError, match="should_accumulate_out"):
        call(should_accumulate_out=True)
    with pytest.raises(pl.NotSupportedError, match=r"no_pipelining=True is not supported here. Give each BlockSpec"):
        call(no_pipelining=True)
    call(dimension_semantics=("arbitrary",), trace_scopes=False, core_axis=None)


@pytest.mark.parametrize("kind", [pltpu.SemaphoreType.REGULAR, pltpu.SemaphoreType.BARRIER])
def test_a_copy_takes_a_semaphore_for_copies(kind):
    def kernel(x, o, sem):
        pltpu.async_copy(x, o, sem).wait()
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=[kind])
    with pytest.raises(pl.SpecError, match=f"is not for copies: it is a SemaphoreType.{kind.name}. Give Semaphore"):
        f(X)


def test_a_semaphore_that_two_copies_share():
    def kernel(x, o, a, b, sem):
        first, second = pltpu.async_copy(x.at[0:4], a, sem), pltpu.async_copy(x.at[4:8], b, sem)
        first.wait()
        a[...] += 1
        second.wait()
        pltpu.sync_copy(a, o)
    f = pl.pallas_call(kernel, shape(4, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=[BUF, BUF, SEM])
    found = f.trace(X).hazards[0]
    assert found.kind == "read before wait"
    assert re.sub(r" \(line.*?\)", "", found.mend) == (
        "A wait before may have had the bytes of the copy x[4:8] → b: the two share semaphore sem. Give each copy a "
        "semaphore of its own, or wait for all of them first.")


def test_a_semaphore_that_three_copies_share():
    def kernel(x, o, a, b, c, sem):
        first, *others = (pltpu.async_copy(x.at[4 * i:4 * i + 4], buf, sem) for i, buf in enumerate((a, b, c)))
        first.wait()
        a[...] += 1
        for copy in others:
            copy.wait()
        pltpu.sync_copy(a, o)
    f = pl.pallas_call(kernel, shape(4, 8), in_specs=[HBM], out_specs=HBM, scratch_shapes=[BUF, BUF, BUF, SEM])
    assert re.sub(r" \(line.*?\)", "", f.trace(X).hazards[0].mend) == (
        "A wait before may have had the bytes of the copy x[4:8] → b, the copy x[8:12] → c: all 3 share semaphore sem. "
        "Give each copy a semaphore of its own, or wait for all of them first.")


def never_waited(start, *scratch):
    """The mend for a copy that `start` starts on x, o and scratch."""
    f = pl.pallas_call(lambda *refs: (start(*refs), None)[1], shape(16, 8), in_specs=[HBM], out_specs=HBM,
                       scratch_shapes=scratch)
    return next(h for h in f.trace(X).hazards if h.kind == "never waited").mend


def test_mends_can_be_typed():
    one, sems = pltpu.VMEM((1, 4, 8), jnp.float32), pltpu.SemaphoreType.DMA((1,))
    assert never_waited(lambda x, o, buf, sem: pltpu.async_copy(x.at[0:4], buf.at[0], sem.at[0]), one, sems) == (
        "Call make_async_copy(in0.at[0:4], scratch0.at[0], scratch1.at[0]).wait() before the kernel ends.")
    in_pipeline = never_waited(lambda x, o, sem: pltpu.emit_pipeline(
        lambda a, b: pltpu.async_copy(a, b, sem), grid=(1,), in_specs=[ROWS], out_specs=[ROWS])(x, o), SEM)
    assert in_pipeline == "Call make_async_copy(in0, out0, scratch0).wait() before the kernel ends."

    def remote(x, o, send, receive):
        copy = pltpu.make_async_remote_copy(x, o, send, receive, device_id=0)
        copy.start()
        copy.wait_send()
    assert never_waited(remote, SEM, SEM) == (
        "Call make_async_remote_copy(in0, out0, scratch0, scratch1).wait_recv() before the kernel ends.")


def test_output_windows_that_overlap():
    window = pl.BlockSpec((pl.Element(4), 8), lambda i: (2 * i, 0))
    f = pl.pallas_call(copy_block, shape(8, 8), grid=(3,), in_specs=[ROWS], out_specs=window)
    assert f.trace(X).hazards[0].mend == ("Wait for that copy (slot 0 of o) first. In a pallas_call, which waits no "
                                          "earlier, let the windows of its steps not overlap.")


@pytest.mark.parametrize("rows, kinds", [(4, ["unvisited"]), (2, 3 * ["uninitialised"] + ["unvisited"])])
def test_a_block_that_no_step_visits_is_said_once(rows, kinds):
    """It is left unwritten as well, and that is no second fault; what a step leaves of a block that it visits is."""
    def kernel(x, o):
        o[:rows] = x[:rows]
    f = pl.pallas_call(allocating(kernel), shape(16, 8), grid=(3,), in_specs=[ROWS], out_specs=ROWS)
    assert sorted(h.kind for h in f.trace(X).hazards) == sorted(kinds)
    reported, value = called(f, X)
    assert sorted(h.kind for h in reported) == sorted(kinds)
    assert np.isnan(value[12:]).all() and (value[:rows] == X[:rows]).all()


@pytest.mark.parametrize("decides, text", [
    (lambda buf: buf[...] if pl.program_id(0) == 0 else None, r"Branch with @pl.when\(condition\)"),
    (lambda buf: buf[...] * float(buf[0, 0]), "only a running step has"),
    (lambda buf: [buf[...] for _ in range(pl.program_id(0) + 1)][0], r"Loop with pl.loop\(0, n\)"),
    (lambda buf: buf[:pl.program_id(0) + 8], "Give a start and a size"),
    (lambda buf: np.asarray(buf[...]) * 1, "Use the function of the same name in jax.numpy")])
def test_what_python_decides_goes_through_but_not_under_jit(decides, text):
    def kernel(x_hbm, o_ref, buf, sem):
        pltpu.async_copy(x_hbm, buf, sem).wait()
        o_ref[...] = decides(buf)
    f = pl.pallas_call(kernel, jax.ShapeDtypeStruct((8, 128), jnp.float32), grid=(1,), in_specs=[
        pl.BlockSpec(memory_space=pl.ANY)], out_specs=pl.BlockSpec((8, 128), lambda i: (0, 0)), scratch_shapes=[
        pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA])
    x = jnp.ones((8, 128))
    np.testing.assert_array_equal(f(x), x)
    with pytest.raises(pl.SpecError, match=text):
        jax.jit(f)(x)
