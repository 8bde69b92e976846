"""Independent steps that run at once in the compiled loop: the values are those of step after step."""
import contextlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.engines import xla


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


@contextlib.contextmanager
def at_most(share):
    """Inside, steps that run at once have windows of at most 1/share of all arrays. Collects how many run at once."""
    before, choose, found = xla.SHARE, xla.at_once, []
    xla.SHARE = share
    xla.at_once = lambda *args: found.append(choose(*args)) or found[-1]
    try:
        yield found
    finally:
        xla.SHARE, xla.at_once = before, choose


def both(build, *arrays, jit=jax.jit):
    """(how many steps ran at once, the axis), after a comparison with the same call step by step, and simulated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.HazardWarning)
        with at_most(0) as found:
            many = jit(build())(*arrays)
        with at_most(2**60) as none:
            one = jit(build())(*arrays)
        assert all(n == 1 for n, *_ in none)
        played = build(backend="simulate")(*arrays)
    for a, b, c in zip(*map(jax.tree.leaves, (many, one, played)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    return found[0][:2] if found else (1, 0)


def numbers(*dims):
    """Small whole numbers, so that sums are exact in any order."""
    return jnp.asarray(np.random.default_rng(0).integers(-9, 9, dims), jnp.float32)


def matmul(**how):
    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...] @ y_ref[...]
    return pl.pallas_call(kernel, shape(6, 12), grid=(3, 4, 5), out_specs=pl.BlockSpec((2, 3), lambda i, j, k: (i, j)),
                          in_specs=[pl.BlockSpec((2, 4), lambda i, j, k: (i, k)),
                                    pl.BlockSpec((4, 3), lambda i, j, k: (k, j))], **how)


MATRICES = numbers(6, 20), numbers(20, 12)


def test_a_matmul_takes_all_its_columns_at_once():
    assert both(matmul, *MATRICES) == (4, 1)


def test_and_chooses_where_to_start_without_a_branch():
    assert "conditional" not in jax.jit(matmul()).lower(*MATRICES).compile().as_text()


def test_and_under_vmap():
    batch = [jnp.stack([m, 2 * m]) for m in MATRICES]
    with at_most(0) as found:
        many = jax.jit(jax.vmap(matmul()))(*batch)
    assert found[0][:2] == (4, 1)
    np.testing.assert_array_equal(many, jnp.einsum("nij,njk->nik", *batch))


@settings(max_examples=15)
@given(grid=st.tuples(*[st.integers(1, 4)] * 3), order=st.permutations(range(3)), reduced=st.integers(0, 3),
       squeezed=st.booleans(), asks=st.sampled_from([None, 0, 1, 2]), semantics=st.sampled_from([None, "arbitrary",
       "parallel"]), offset=st.integers(0, 2))
def test_any_grid(grid, order, reduced, squeezed, asks, semantics, offset):
    """A sum over the last axes of a grid, with blocks in any order of dimensions, that may use one of its indices."""
    kept = [a for a in range(3) if a < 3 - reduced]
    size = (1 if squeezed else 2, 3, 2)
    block = (None, *size[1:]) if squeezed else size
    out = tuple(size if a == 0 else 1 for a, size in enumerate(size)) if not kept else size

    def build(**how):
        def kernel(x_ref, o_ref):
            first = [pl.program_id(a) == 0 for a in range(3) if a not in kept]

            @pl.when(first[0] if len(first) == 1 else first[0] & first[1] if len(first) == 2 else True)
            def _():
                o_ref[...] = jnp.zeros_like(o_ref)
            o_ref[...] += x_ref[...] * (1 if asks is None else pl.program_id(asks) + 1)
        params = semantics and pltpu.CompilerParams(dimension_semantics=[
            "arbitrary" if a not in kept else semantics for a in range(3)])
        return pl.pallas_call(
            kernel, shape(*(grid[a] * n if a in kept else n for a, n in enumerate(size))), grid=grid,
            in_specs=[pl.BlockSpec(block, lambda *ids: tuple(ids[a] + (offset if d == 1 else 0)
                                                             for d, a in enumerate(order)))],
            out_specs=pl.BlockSpec(block, lambda *ids: tuple(ids[a] if a in kept else 0 for a in range(3))),
            compiler_params=params, **how)
    if reduced == 3 or out != size:
        return
    x = numbers(*((grid[a] + (offset if d == 1 else 0)) * n for (d, a), n in zip(enumerate(order), size, strict=True)))
    n, axis = both(build, x)
    free = {a: grid[a] for a in kept if a != asks and grid[a] > 1}
    assert (n, axis) == max(((size, a) for a, size in free.items()), default=(1, 0))


def doubled(kernel, x_map=lambda i: (i, 0), o_map=lambda i: (i, 0), n=4, **more):
    """A call on blocks of (2, 8) rows, as a function of the engine."""
    def build(**how):
        return pl.pallas_call(kernel, shape(2 * n, 8), grid=n, in_specs=[pl.BlockSpec((2, 8), x_map)],
                              out_specs=pl.BlockSpec((2, 8), o_map), **more, **how)
    return build


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def asks_which_step(x_ref, o_ref):
    o_ref[...] = x_ref[...] + pl.program_id(0)


def leaves_a_row(x_ref, o_ref):
    o_ref[0, :] = x_ref[0, :]


def adds_to_what_is_there(x_ref, o_ref):
    o_ref[...] += x_ref[...]


def initialises_too_late(x_ref, o_ref):
    o_ref[...] += x_ref[...]

    @pl.when(pl.program_id(0) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)


def decides_by_what_it_reads(x_ref, o_ref):
    o_ref[...] = x_ref[...]

    @pl.when(x_ref[0, 0] > 0)
    def _():
        o_ref[...] = -x_ref[...]


def picks_a_row_by_what_it_reads(x_ref, o_ref):
    o_ref[...] = x_ref[...]

    @pl.when(x_ref[0, 0] > 0)
    def _():
        o_ref[0, :] = x_ref[1, :]


def loops_until(x_ref, o_ref):
    o_ref[...] = lax.while_loop(lambda v: (v < 9).any(), lambda v: v + 1, x_ref[...])


def writes_in_a_cond(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    lax.cond(jnp.bool_(True), lambda: o_ref.__setitem__((0, 0), jnp.float32(5)), lambda: None)


def writes_in_a_loop(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    lax.fori_loop(0, 3, lambda i, _: o_ref.__setitem__((0, slice(None)), o_ref[0, :] + 1.0), None)


def calls_back(x_ref, o_ref):
    o_ref[...] = jax.pure_callback(np.negative, shape(2, 8), x_ref[...])


def writes_its_input(x_ref, o_ref):
    x_ref[0, :] = x_ref[1, :]
    o_ref[...] = x_ref[...]


def moving_index(x_ref, o_ref):
    @pl.loop(0, 2)
    def _(i):
        o_ref[1 - i, :] = x_ref[i, :]


def in_a_loop(x_ref, o_ref):
    o_ref[...] = x_ref[...]

    @pl.loop(0, 3)
    def _(i):
        o_ref[0, :] += i


@pytest.mark.parametrize("kernel", [double, in_a_loop, picks_a_row_by_what_it_reads], ids=lambda k: k.__name__)
def test_blocks_side_by_side_run_at_once(kernel):
    assert both(doubled(kernel), numbers(8, 8)) == (4, 0)


@pytest.mark.parametrize("kernel", [
    asks_which_step, leaves_a_row, adds_to_what_is_there, initialises_too_late, decides_by_what_it_reads, loops_until,
    writes_in_a_cond, writes_in_a_loop, calls_back, writes_its_input, moving_index], ids=lambda k: k.__name__)
def test_what_runs_step_by_step(kernel):
    assert both(doubled(kernel), numbers(8, 8)) == (1, 0)


def test_a_constant_written_in_a_branch_stays_in_it():
    def kernel(x_ref, o_ref):
        o_ref[...] = 5.0
        lax.cond(pl.program_id(1) > 0, lambda: o_ref.__setitem__(..., 7.0), lambda: None)

    def build(**how):
        spec = pl.BlockSpec((None, None), lambda i, j: (i, j))
        return pl.pallas_call(kernel, shape(2, 3), grid=(2, 3), in_specs=[spec], out_specs=spec, **how)
    assert both(build, numbers(2, 3)) == (1, 0)


@pytest.mark.parametrize("maps", [
    {"x_map": lambda i: (3 - i, 0)}, {"x_map": lambda i: (i ^ 1, 0)}, {"x_map": lambda i: (2 * i, 0)},
    {"o_map": lambda i: (3 - i, 0)}, {"o_map": lambda i: (i // 2, 0)}], ids=["back", "xor", "stride", "out", "shared"])
def test_blocks_that_do_not_lie_side_by_side_run_step_by_step(maps):
    assert both(doubled(double, **maps), numbers(16, 8)) == (1, 0)


def test_scratch_that_is_written_runs_step_by_step():
    def kernel(x_ref, o_ref, total):
        total[...] = x_ref[...]
        o_ref[...] = total[...]
    assert both(doubled(kernel, scratch_shapes=[pltpu.VMEM((2, 8), jnp.float32)]), numbers(8, 8)) == (1, 0)


def test_an_aliased_operand_runs_step_by_step():
    assert both(doubled(double, input_output_aliases={0: 0}), numbers(8, 8)) == (1, 0)


def test_an_edge_runs_step_by_step_in_an_input_and_at_once_in_an_output():
    def fill(o_ref):
        o_ref[...] = jnp.full_like(o_ref, 3)
    rows = pl.BlockSpec((2, 8), lambda i: (i, 0))
    assert both(doubled(double, n=4), numbers(7, 8)) == (1, 0)
    assert both(lambda **how: pl.pallas_call(fill, shape(7, 8), grid=4, out_specs=rows, **how)) == (4, 0)


@pytest.mark.parametrize("traced", [False, True])
def test_prefetched_scalars_choose_blocks_and_values(traced):
    def kernel(rows, x_ref, o_ref):
        o_ref[...] = x_ref[...] * rows[pl.program_id(0)]

    def build(**how):
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(3, 2), in_specs=[pl.BlockSpec((2, 4), lambda i, j, rows: (rows[i], j))],
            out_specs=pl.BlockSpec((2, 4), lambda i, j, rows: (i, j)))
        return pl.pallas_call(kernel, shape(6, 8), grid_spec=spec, **how)
    rows, x = jnp.array([2, 0, 1], jnp.int32), numbers(6, 8)
    if traced:
        assert both(build, rows, x) == (1, 0)
    else:
        assert both(lambda **how: lambda x: build(**how)(rows, x), x) == (2, 1)


def test_prints_come_once_a_step_and_in_order(capfd):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        pl.debug_print("row {}", x_ref[0, 0])
    jax.block_until_ready(jax.jit(doubled(kernel)())(jnp.arange(64.0).reshape(8, 8)))
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:-1] == ["row 0.0", "row 16.0", "row 32.0", "row 48.0"]


def test_windows_stay_an_eighth_of_the_arrays():
    call = doubled(double, n=64)()
    with at_most(xla.SHARE) as found:
        use = jax.jit(call).lower(numbers(128, 8)).compile().memory_analysis()
    assert found[0][:2] == (8, 0)
    least = use.argument_size_in_bytes + use.output_size_in_bytes
    assert least + use.temp_size_in_bytes <= 1.2 * least


def test_an_accumulator_initialised_in_each_visit_is_not_run_again_for_a_report(monkeypatch):
    call, runs = matmul(), []
    traced = call.trace(*MATRICES)
    run = type(traced).run_compiled
    monkeypatch.setattr(type(traced), "run_compiled", lambda self, *args: runs.append(args) or run(self, *args))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(call(*MATRICES), MATRICES[0] @ MATRICES[1])
    assert len(runs) == 1


def test_an_accumulator_that_is_initialised_in_some_visits_is_still_reported():
    def kernel(x_ref, o_ref):
        @pl.when((pl.program_id(1) == 0) & (pl.program_id(0) < 3))
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    call = pl.pallas_call(kernel, shape(8, 4), grid=(4, 2), in_specs=[pl.BlockSpec((2, 4), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((2, 4), lambda i, j: (i, 0)))
    with pytest.warns(pl.HazardWarning, match=r"output o: o\[6:8, 0:4\] depends on memory that nobody had written"):
        call(numbers(8, 8))
