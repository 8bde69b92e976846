"""Calls under jax.jit and jax.vmap: the values of the call outside, also for kernels with copies of their own."""
import dataclasses
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu

from .test_manual import HBM, X, double_buffer, shape

ROWS = pl.BlockSpec((4, 8), lambda i: (i, 0))


def column_sums():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(16, 4), grid=(4, 2), in_specs=[pl.BlockSpec((4, 4), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, 0)))


def pipeline_in_a_grid():
    """Blocked operands, an array in HBM, scratch, and a pipeline whose index map knows the step around it."""
    def kernel(x_ref, y_hbm, o_ref, total):
        step = pl.program_id(0)
        total[...] = x_ref[...]

        def add(y_ref):
            total[...] += y_ref[...] * (pl.program_id(0) + 1)
        pltpu.emit_pipeline(add, grid=(4,), in_specs=[pl.BlockSpec((4, 8), lambda j: (jnp.bitwise_xor(j, step), 0))])(
            y_hbm)
        o_ref[...] = total[...]
    return pl.pallas_call(kernel, shape(16, 8), grid=4, in_specs=[ROWS, HBM], out_specs=ROWS,
                          scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)])


def ragged_pipeline():
    def kernel(x_hbm, o_hbm):
        def double(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2
        spec = pl.BlockSpec((6, 8), lambda i: (i, 0), pipeline_mode=pl.Buffered(3))
        pltpu.emit_pipeline(double, grid=(3,), in_specs=[spec], out_specs=[pl.BlockSpec((6, 8), lambda i: (i, 0))])(
            x_hbm, o_hbm)
    return pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM)


def scoped_copies():
    def kernel(x_ref, o_ref):
        def scope(buf, sem):
            pltpu.async_copy(x_ref, buf.at[pl.program_id(0)], sem).wait()
            o_ref[...] = buf[pl.program_id(0)] + 1
        pl.run_scoped(scope, pltpu.VMEM((4, 4, 8), jnp.float32), sem=pltpu.SemaphoreType.DMA)
    return pl.pallas_call(kernel, shape(16, 8), grid=(4,), in_specs=[ROWS], out_specs=ROWS)


def in_place():
    def kernel(x_hbm, o_hbm, buf):
        @pl.loop(1, 3)
        def _(i):
            pltpu.sync_copy(o_hbm.at[pl.ds(4 * i, 4)], buf)
            buf[...] = buf[...] - 1
            pltpu.sync_copy(buf, o_hbm.at[pl.ds(4 * i, 4)])
    return pl.pallas_call(kernel, shape(16, 8), in_specs=[HBM], out_specs=HBM, input_output_aliases={0: 0},
                          scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)])


CALLS = [(column_sums, 1), (double_buffer, 1), (pipeline_in_a_grid, 2), (ragged_pipeline, 1), (scoped_copies, 1),
         (in_place, 1)]


@pytest.mark.parametrize("build, n", CALLS, ids=lambda c: getattr(c, "__name__", ""))
def test_values_under_jit_and_vmap_are_those_of_the_call(build, n):
    f = build()
    rng = np.random.default_rng(0)
    batch = [rng.integers(-9, 9, (2, *X.shape)).astype(np.float32) for _ in range(n)]
    want = np.stack([np.asarray(f(*(a[k] for a in batch))) for k in range(2)])
    np.testing.assert_array_equal(jax.vmap(jax.jit(f))(*batch), want)
    if n == 1:
        np.testing.assert_array_equal(jax.jit(f)(batch[0][0]), want[0])


def test_a_batch_over_one_operand_only():
    f = pipeline_in_a_grid()
    got = jax.vmap(f, in_axes=(None, 0))(X, np.stack([X, X + 1]))
    np.testing.assert_array_equal(got, [f(X, X), f(X, X + 1)])


def test_a_race_is_refused_under_jit():
    """Once: no warning says the same before."""
    for transform in (jax.jit, jax.grad):
        with pytest.raises(pl.PallasLiteError, match="under jax.jit, vmap or grad a call must be free of .* x_buf"):
            transform(lambda x: double_buffer(wait_in=False)(x).sum())(X)


def scatter(**options):
    """Right for a permutation; with the same row twice, two copies race to it."""
    def kernel(rows_ref, x_hbm, o_hbm, sem):
        for i in range(4):
            pltpu.make_async_copy(x_hbm.at[pl.ds(4 * i, 4)], o_hbm.at[pl.ds(4 * rows_ref[i], 4)], sem).start()
        for _ in range(4):
            pltpu.make_async_copy(x_hbm.at[0:4], o_hbm.at[0:4], sem).wait()
    return pl.pallas_call(kernel, shape(16, 8), in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), HBM], out_specs=HBM,
                          scratch_shapes=[pltpu.SemaphoreType.DMA], **options)


def test_a_trace_of_arrays_looks_at_their_values():
    f, rows = scatter(), np.array([2, 0, 3, 1], np.int32)
    same = np.zeros(4, np.int32)
    assert f.trace(rows, X).hazards == []
    assert [h.kind for h in f.trace(same, X).hazards] == ["hbm race", "unwritten"]
    assert f.trace(rows, X).hazards == []  # not those of the values before
    assert [h.kind for h in f.trace(*map(jax.typeof, (rows, X))).hazards] == ["hbm race", "unwritten"]  # of zeros
    rows[:] = 0
    assert f.trace(rows, X).hazards  # an array that changed in place


def test_a_trace_of_arrays_knows_a_pipeline_as_long_as_they_say():
    def kernel(n_ref, x_hbm, o_hbm):
        pltpu.emit_pipeline(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), grid=(n_ref[0],),
                            in_specs=[ROWS], out_specs=[ROWS])(x_hbm, o_hbm)
    f = pl.pallas_call(kernel, shape(16, 8), in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), HBM], out_specs=HBM)
    assert [f.trace(np.array([n], np.int32), X).schedule.steps for n in (4, 2)] == [4, 2]
    with pytest.warns(pl.HazardWarning, match="(?s)never written.*was checked on zeros"), pytest.raises(
            pl.NotSupportedError, match="emit_pipeline under jax.jit: its grid must be Python ints"):
        jax.jit(f)(np.array([4], np.int32), X)


def test_under_jit_a_kernel_is_checked_on_stand_ins_and_says_so():
    rows = np.array([2, 0, 3, 1], np.int32)
    with pytest.raises(pl.PallasLiteError, match="checked on zeros for integers.*say so with on_hazard=\"ignore\""):
        jax.jit(scatter())(rows, X)
    f = scatter(on_hazard="ignore")
    np.testing.assert_array_equal(jax.jit(f)(rows, X), f(rows, X))
    np.testing.assert_array_equal(scatter(backend="xla")(rows, X), f(rows, X))  # there the values are known


def test_a_kernel_with_copies_has_no_derivative():
    for gradient in (jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f))):
        with pytest.raises(pl.NotSupportedError, match="a pallas_call has no derivative.*jax.custom_vjp"):
            gradient(lambda x: double_buffer()(x).sum())(jnp.asarray(X))


def test_a_call_on_values_inside_a_traced_function_is_checked_on_them():
    def adds(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    f = pl.pallas_call(adds, shape(16, 8), grid=(2,), in_specs=[pl.BlockSpec((8, 8), lambda i: (i, 0))],
                       out_specs=pl.BlockSpec((8, 8), lambda i: (i, 0)))
    x = jnp.ones((16, 8))
    with pytest.warns(pl.HazardWarning, match="Write o before reading it"):
        value = jax.jit(lambda c: c + f(x))(x)
    np.testing.assert_array_equal(value, x + dataclasses.replace(f, on_hazard="ignore")(x))
    with pytest.raises(pl.PallasLiteError, match="Write o before reading it"):
        jax.lax.scan(lambda c, _: (c + dataclasses.replace(f, on_hazard="raise")(x), None), x, length=2)


def accumulates(x_ref, o_ref):
    o_ref[...] += x_ref[...]


def writes_its_input(x_ref, o_ref):
    x_ref[...] *= 2
    o_ref[...] = x_ref[...]


def copies(x_ref, o_ref):
    o_ref[...] = x_ref[...]


@pytest.mark.parametrize("kernel, out_block, eager, under_jit", [
    (accumulates, lambda i, j: (i, j), ["uninitialised"], []),
    (writes_its_input, lambda i, j: (i, j), ["written input"], []),
    (copies, lambda i, j: (0, j), ["unvisited", "revisit"], ["unvisited", "revisit"]),
])
def test_what_is_said_on_arrays_and_what_under_jit(kernel, out_block, eager, under_jit):
    f = pl.pallas_call(kernel, jax.ShapeDtypeStruct((4, 4), np.float32), grid=(2, 2), out_specs=pl.BlockSpec(
        (2, 2), out_block), in_specs=[pl.BlockSpec((2, 2), lambda i, j: (i, j))])
    for call, kinds in ((f, eager), (jax.jit(f), under_jit)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(np.ones((4, 4), np.float32))
        assert sorted(h.kind for w in caught for h in w.message.hazards) == sorted(kinds)


def test_an_index_that_the_grid_decides_is_checked_on_arrays_only():
    """As docs/fidelity.md says: under jit, what is read past the end is what nobody wrote."""
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(8 * pl.program_id(0) + 8, 8), :]
    f = pl.pallas_call(kernel, shape(16, 8), grid=(2,), in_specs=[pl.BlockSpec((16, 8), lambda i: (0, 0))],
                       out_specs=pl.BlockSpec((8, 8), lambda i: (i, 0)))
    with pytest.raises(pl.BlockIndexError, match="step 1: an index into x"):
        f(X)
    got = np.asarray(jax.jit(f)(X))
    np.testing.assert_array_equal(got[:8], X[8:])
    assert np.isnan(got[8:]).all() and f.trace(X).hazards == []


def printing():
    def kernel(x_hbm, o_ref, buf):
        pltpu.sync_copy(x_hbm.at[pl.ds(0, 4)], buf)
        pl.debug_print("got {}", buf[0, 0])
        pl.when(pl.program_id(0) == 0)(lambda: copies(buf, o_ref))
    return pl.pallas_call(kernel, shape(4, 8), grid=(1,), in_specs=[HBM], out_specs=pl.BlockSpec((4, 8)),
                          scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)])


@pytest.mark.parametrize("way", [lambda f: f, jax.jit, lambda f: lambda x: jax.lax.map(f, x[None])[0]],
                         ids=["eager", "jit", "map"])
def test_a_kernel_with_copies_of_its_own_prints_its_values_once(way, capfd):
    np.testing.assert_array_equal(way(printing())(7 + 0 * X), 7 * np.ones((4, 8)))
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n") == ["got 7.0", ""]  # and not those of the stand-ins


@pytest.mark.parametrize("what", [jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())], ids=["vmap", "grad"])
def test_one_that_prints_is_refused_in_words_where_jax_cannot(what):
    with pytest.raises(pl.NotSupportedError, match=r"prints has no jax.vmap and no derivative.*jax.lax.map"):
        what(printing())(np.ones((2, 16, 8), np.float32) if what is jax.vmap else X)


@pytest.mark.parametrize("use, text, of_values", [
    (lambda x, o, buf, s: pl.semaphore_signal(s), "semaphore_signal is not supported here", False),
    (lambda x, o, buf, s: pltpu.emit_pipeline(copies, grid=(1,), no_pipelining=True), "no_pipelining=True is", False),
    (lambda x, o, buf, s: pltpu.make_async_copy(x, buf, s), "same shape and dtype", False),
    (lambda x, o, buf, s: pltpu.sync_copy(x.at[pl.ds(pl.program_id(0) + 13, 4)], buf), "out of range", True)])
def test_only_what_values_may_decide_is_said_with_the_stand_ins(use, text, of_values):
    f = pl.pallas_call(use, shape(4, 8), grid=(1,), in_specs=[HBM], out_specs=pl.BlockSpec((4, 8)),
                       scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32), pltpu.SemaphoreType.DMA])
    with pytest.raises(pl.PallasLiteError, match=text) as caught:
        jax.jit(f)(X)
    assert ("values are unknown here" in str(caught.value)) == of_values


def test_blocks_chosen_by_traced_scalars_are_not_checked():
    spec = pltpu.PrefetchScalarGridSpec(1, (4,), [pl.BlockSpec((2,), lambda i, table: (i,))],
                                        pl.BlockSpec((2,), lambda i, table: (table[i],)))
    f = pl.pallas_call(lambda table, x, o: copies(x, o), jax.ShapeDtypeStruct((4,), np.float32), grid_spec=spec)
    table, x = np.array([0, 1, 0, 1], np.int32), np.ones(8, np.float32)
    with pytest.warns(pl.HazardWarning, match="written again"):
        f(table, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(f)(table, x)


# -- prefetched scalars that jax.jit traces

def in_a_cache(kernel, copies_rows=True, **options):
    """A row for each of 3 sequences of 4, which stay in HBM and share the output's memory. Scalars say where."""
    out = pl.BlockSpec((1, 1, 8), lambda b, where: (b, where[b], 0)) if copies_rows else HBM
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=3, scratch_shapes=[pltpu.SemaphoreType.DMA] * (
        not copies_rows), in_specs=[pl.BlockSpec((1, 1, 8), lambda b, where: (b, 0, 0)), HBM], out_specs=out)
    return pl.pallas_call(kernel, shape(3, 4, 8), grid_spec=spec, input_output_aliases={2: 0}, **options)


WHERE, NEW, CACHE = np.array([3, 0, 2], np.int32), 1 + X[:3, None], -X[:12].reshape(3, 4, 8)


def put(where_ref, new_ref, cache_hbm, o_ref):
    o_ref[...] = new_ref[...]


@pytest.mark.parametrize("run", [lambda f: f, jax.jit, lambda f: in_a_cache(put, backend="simulate"),
                                 lambda f: lambda *operands: jax.vmap(f)(*(a[None] for a in operands))[0]],
                         ids=["called", "jit", "simulate", "vmap"])
def test_an_operand_in_hbm_that_the_kernel_leaves_alone_makes_no_copies_of_its_own(run):
    want = CACHE.copy()
    want[np.arange(3), WHERE] = NEW[:, 0]
    f = in_a_cache(put, on_hazard="raise")
    np.testing.assert_array_equal(run(f)(WHERE, NEW, CACHE), want)
    traced = f.trace(WHERE, NEW, CACHE)
    assert not traced.manual and not traced.hazards
    assert [x.name for x in traced.schedule.operands] == ["new", "o"]  # whose block of each step is copied, and no more


def test_a_row_of_a_cache_that_two_steps_write_is_a_revisit():
    twice = pl.pallas_call(lambda new_ref, cache_hbm, o_ref: put(None, new_ref, None, o_ref), shape(12, 8), grid=4,
                           in_specs=[pl.BlockSpec((1, 8), lambda i: (i, 0)), HBM], input_output_aliases={1: 0},
                           out_specs=pl.BlockSpec((1, 8), lambda i: (i % 2, 0)))
    with pytest.warns(pl.HazardWarning, match="o") as warned:
        twice(X[:4], X[:12])
    assert [h.kind for h in warned[0].message.hazards] == ["revisit"]


def test_an_operand_in_hbm_that_the_kernel_touches_is_not_left_alone():
    def reads(where_ref, new_ref, cache_hbm, o_ref):
        o_ref[...] = new_ref[...] + cache_hbm[0:1, 0:1]
    with pytest.raises(pl.SpecError, match="is in HBM, where a kernel cannot read directly"):
        in_a_cache(reads)(WHERE, NEW, CACHE)

    def by_python(where_ref, new_ref, cache_hbm, o_ref):
        if where_ref[0] == 3:  # known where a kernel is stepped through
            pltpu.sync_copy(new_ref, o_ref)
    np.testing.assert_array_equal(in_a_cache(by_python)(WHERE, NEW, CACHE), jax.jit(in_a_cache(put))(WHERE, NEW, CACHE))


def copies_it(where_ref, new_ref, cache_hbm, o_hbm, sem):
    b = pl.program_id(0)
    copy = pltpu.make_async_copy(new_ref, o_hbm.at[pl.ds(b, 1), pl.ds(where_ref[b], 1)], sem)
    copy.start()
    copy.wait()


def copies_too(where_ref, new_ref, cache_hbm, o_ref):
    pltpu.sync_copy(new_ref, o_ref)


@pytest.mark.parametrize("f, mend", [
    (in_a_cache(copies_it, copies_rows=False), "or pass them as an operand in SMEM."),
    (in_a_cache(copies_too), "or give o, whose blocks they choose, to the kernel in pl.ANY and copy the blocks there, "
                             "by scalars from an operand in SMEM.")], ids=["read", "choose blocks"])
def test_copies_of_its_own_by_traced_scalars_are_refused_and_the_mends_work(f, mend):
    with pytest.raises(pl.NotSupportedError) as refused:
        jax.jit(f)(WHERE, NEW, CACHE)
    assert str(refused.value) == (
        f"{f.name}: a kernel that starts its own copies (or has semaphores, or an output in pl.ANY) is checked before "
        "it runs, so its prefetched scalars must be concrete arrays, not traced. Call it outside jax.jit, or let the "
        f"function find them outside itself, {mend}")
    want = in_a_cache(put)(WHERE, NEW, CACHE)
    np.testing.assert_array_equal(f(WHERE, NEW, CACHE), want)
    np.testing.assert_array_equal(jax.jit(lambda new, cache: f(WHERE, new, cache))(NEW, CACHE), want)
    in_smem = pl.pallas_call(copies_it, shape(3, 4, 8), grid=3, in_specs=[
        pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((1, 1, 8), lambda b: (b, 0, 0)), HBM], out_specs=HBM,
        input_output_aliases={2: 0}, scratch_shapes=[pltpu.SemaphoreType.DMA])
    np.testing.assert_array_equal(jax.jit(in_smem)(WHERE, NEW, CACHE), want)


def test_traced_scalars_that_no_index_map_reads_leave_the_blocks_known():
    def scale(n_ref, x_ref, o_ref):
        o_ref[...] = n_ref[pl.program_id(0)] * x_ref[...]
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=4, in_specs=[
        pl.BlockSpec((4, 8), lambda i, n: (i, 0))], out_specs=pl.BlockSpec((4, 8), lambda i, n: (i % 2, 0)))
    f, n = pl.pallas_call(scale, shape(8, 8), grid_spec=spec), np.arange(4, dtype=np.int32)
    with pytest.warns(pl.HazardWarning, match="o") as warned:
        got = jax.jit(f)(n, X)
    assert [h.kind for h in warned[0].message.hazards] == ["revisit"]
    np.testing.assert_array_equal(got, np.concatenate([2 * X[8:12], 3 * X[12:16]]))


@pytest.mark.parametrize("around, batch", [
    (lambda f: f, ()), (jax.jit, ()), (jax.vmap, (3,)), (lambda f: jax.jit(jax.vmap(f)), (3,)),
    (lambda f: lambda x: jax.lax.map(f, x), (3,)),
], ids=["a call", "jit", "vmap", "jit of vmap", "map"])
def test_a_warning_points_to_the_line_that_makes_the_call(around, batch):
    block = pl.BlockSpec((4,), lambda i: (0,))
    f = around(pl.pallas_call(copies, jax.ShapeDtypeStruct((8,), jnp.float32), grid=(2,), in_specs=[block],
                              out_specs=block))
    with pytest.warns(pl.HazardWarning) as seen:
        f(jnp.ones((*batch, 8))); here = inspect.currentframe().f_lineno  # noqa: E702  one line
    lines = {(w.filename, w.lineno) for w in seen}
    assert lines in [{(__file__, here)}, {(__file__, around.__code__.co_firstlineno)}]
