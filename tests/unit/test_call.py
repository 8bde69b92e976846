"""pallas_call on the simulator: the tutorial's real sizes, upstream's values, and errors that teach."""
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as upstream

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import TPU_V5E


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def random(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def test_the_tutorials_add_of_4096_by_4096():
    x, y = random(4096, 4096), random(4096, 4096, seed=1)
    spec = pl.BlockSpec((512, 512), lambda i, j: (i, j))
    f = pl.pallas_call(add, shape(4096, 4096), grid=(8, 8), in_specs=[spec, spec], out_specs=spec)
    np.testing.assert_array_equal(f(x, y), x + y)
    assert f.trace(x, y).schedule.copies("x") == 64
    assert f.trace(x, y).hazards == []


def wrong_sum(fill):
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    return pl.pallas_call(
        kernel, shape(1024, 1024), grid=(8, 4, 4), in_specs=[pl.BlockSpec((None, 256, 256), lambda i, j, k: (i, j, k))],
        out_specs=pl.BlockSpec((256, 256), lambda i, j, k: (j, k)),
        interpret=pl.InterpretParams(uninitialized_memory=fill), on_hazard="ignore")


def test_the_wrong_sum_gives_65_to_72_when_sram_starts_at_8():
    got = np.asarray(wrong_sum(8.0)(jnp.ones((8, 1024, 1024))))
    rows = [[65, 65, 66, 66], [67, 67, 68, 68], [69, 69, 70, 70], [71, 71, 72, 72]]
    want = np.kron(rows, np.ones((256, 256)))
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_the_wrong_sum_follows_what_sram_held():
    got = np.asarray(wrong_sum(0.0)(jnp.ones((8, 1024, 1024))))
    assert got[0, 0] == 57 and got[-1, -1] == 64
    assert np.isnan(wrong_sum("nan")(jnp.ones((8, 1024, 1024)))).all()


def test_the_wrong_sum_warns_of_the_revisit():
    f = pl.pallas_call(copy, shape(8), grid=(3, 2), in_specs=[pl.BlockSpec((None, 4), lambda r, j: (r, j))],
                       out_specs=pl.BlockSpec((4,), lambda r, j: (j,)))
    with pytest.warns(pl.HazardWarning, match=r"step 2: output block o\[0\] is written again after step 0 left it"):
        f(random(3, 8))


def test_on_hazard_raise_stops_before_running():
    f = pl.pallas_call(copy, shape(8), grid=(3, 2), in_specs=[pl.BlockSpec((None, 4), lambda r, j: (r, j))],
                       out_specs=pl.BlockSpec((4,), lambda r, j: (j,)), on_hazard="raise")
    with pytest.raises(pl.PallasLiteError, match="innermost"):
        f(random(3, 8))


def test_the_right_sum():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    f = pl.pallas_call(
        kernel, shape(1024, 1024), grid=(4, 4, 8), in_specs=[pl.BlockSpec((None, 256, 256), lambda i, j, k: (k, i, j))],
        out_specs=pl.BlockSpec((256, 256), lambda i, j, k: (i, j)))
    x = random(8, 1024, 1024)
    np.testing.assert_allclose(f(x), x.sum(0), rtol=1e-5, atol=1e-5)
    assert f.trace(x).schedule.copies("o") == 16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)


def kernels(pl):
    """Kernels that both packages must run alike: (call, operands)."""
    def scale(x_ref, s_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[...] + pl.program_id(0)

    def where_am_i(o_ref):
        o_ref[...] = jnp.full((1, 2), pl.program_id(0) * pl.num_programs(1) + pl.program_id(1), jnp.int32)

    def both(x_ref, lo_ref, hi_ref):
        lo_ref[...], hi_ref[...] = x_ref[...] - 1, x_ref[...] + 1

    def first_only(x_ref, o_ref):
        o_ref[...] = x_ref[...]

        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[0, :] = -x_ref[0, :]

        @pl.when(False)
        def _():
            o_ref[...] = x_ref[...] * 100

    x = random(8, 12)
    rows = pl.BlockSpec((2, 12), lambda i: (i, 0))
    return {
        "no grid": (pl.pallas_call(copy, shape(8, 12)), [x]),
        "int grid": (pl.pallas_call(copy, shape(8, 12), grid=4, in_specs=[rows], out_specs=rows), [x]),
        "broadcast row": (pl.pallas_call(scale, shape(8, 12), grid=(4,), in_specs=[
            rows, pl.BlockSpec((1, 12), lambda i: (0, 0))], out_specs=rows), [x, random(1, 12, seed=2)]),
        "transposed blocks": (pl.pallas_call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...].T), shape(12, 8), grid=(4, 3),
            in_specs=[pl.BlockSpec((2, 4), lambda i, j: (i, j))],
            out_specs=pl.BlockSpec((4, 2), lambda i, j: (j, i))), [x]),
        "squeezed": (pl.pallas_call(copy, shape(8, 12), grid=(8,),
                                    in_specs=[pl.BlockSpec((None, 12), lambda i: (7 - i, 0))],
                                    out_specs=pl.BlockSpec((None, 12), lambda i: (i, 0))), [x]),
        "program ids": (pl.pallas_call(where_am_i, shape(3, 4, dtype=jnp.int32), grid=(3, 2),
                                       out_specs=pl.BlockSpec((1, 2), lambda i, j: (i, j))), []),
        "two outputs": (pl.pallas_call(both, [shape(8, 12), shape(8, 12)], grid=(4,), in_specs=[rows],
                                       out_specs=[rows, rows]), [x]),
        "when": (pl.pallas_call(first_only, shape(8, 12), grid=(4,), in_specs=[rows], out_specs=rows), [x]),
        "jnp in an index map": (pl.pallas_call(copy, shape(8, 12), grid=(4,), in_specs=[
            pl.BlockSpec((2, 12), lambda i: (jnp.maximum(i - 1, 0), 0))], out_specs=rows), [x]),
    }


@pytest.mark.parametrize("name", kernels(pl))
def test_the_same_kernel_gives_upstreams_values(name, monkeypatch):
    ours, operands = kernels(pl)[name]
    interpreted = lambda *a, **k: upstream_call(*a, **k, interpret=True)  # noqa: E731
    upstream_call = upstream.pallas_call
    monkeypatch.setattr(upstream, "pallas_call", interpreted)
    theirs, _ = kernels(upstream)[name]
    want, got = theirs(*operands), ours(*operands)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


def test_a_tail_that_does_not_divide():
    block = pl.BlockSpec((128,), lambda i: (i,))
    f = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), shape(300), grid=pl.cdiv(300, 128),
                       in_specs=[block], out_specs=block)
    assert f(jnp.ones(300)).sum() == 600.0


def test_an_int_tail_holds_what_the_slot_held():
    block = pl.BlockSpec((4,), lambda i: (i,))
    one = pl.BlockSpec((1,), lambda i: (i,))

    def largest(x_ref, o_ref):
        o_ref[...] = jnp.max(x_ref[...], keepdims=True)
    f = pl.pallas_call(largest, shape(2, dtype=jnp.int32), grid=(2,), in_specs=[block], out_specs=one,
                       interpret=pl.InterpretParams(uninitialized_memory=77))
    with pytest.warns(pl.HazardWarning, match="reaches past the edge"):
        assert f(jnp.arange(6)).tolist() == [3, 77]


def test_an_input_that_is_written_is_refetched_when_it_comes_back():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        x_ref[...] = x_ref[...] + 100
    f = pl.pallas_call(kernel, shape(4), grid=(4,), in_specs=[pl.BlockSpec((1,), lambda i: (i % 2,))],
                       out_specs=pl.BlockSpec((1,), lambda i: (i,)))
    x = jnp.array([1.0, 2.0])
    with pytest.warns(pl.HazardWarning, match="writes to its input"):
        assert f(x).tolist() == [1, 2, 1, 2]
    assert x.tolist() == [1, 2]


def test_num_programs_follows_each_calls_grid():
    def kernel(o_ref):
        o_ref[...] = jnp.full((1,), pl.num_programs(0), jnp.int32)
    one = pl.BlockSpec((1,), lambda i: (0,))
    with pytest.warns(pl.HazardWarning, match="no block depends on the grid"):
        assert [int(pl.pallas_call(kernel, shape(1, dtype=jnp.int32), grid=(g,), out_specs=one)()[0])
                for g in (2, 5, 3, 4)] == [2, 5, 3, 4]


def test_observers_see_grid_blocks_and_shapes():
    f = pl.pallas_call(copy, shape(4), grid=(2,), in_specs=[pl.BlockSpec((2,), lambda i: (1 - i,))],
                       out_specs=pl.BlockSpec((2,), lambda i: (i,)), name="swap")
    with pl.observe_calls() as calls:
        f(jnp.arange(4.0))
    f(jnp.arange(4.0))
    [seen] = [c.to_plain() for c in calls]
    assert seen["name"] == "swap" and seen["grid"] == [2]
    assert seen["operands"][0] == {"name": "x", "is_output": False, "depth": 2, "shape": [4], "dtype": "float32",
                                   "block_shape": [2], "blocks": [[1], [0]]}


def test_flops_count_a_matmul_as_two_mnk():
    def kernel(a_ref, b_ref, o_ref):
        o_ref[...] = jnp.dot(a_ref[...], b_ref[...])
    f = pl.pallas_call(kernel, shape(8, 4))
    assert f.trace(shape(8, 16), shape(16, 4)).schedule.flops == 2 * 8 * 4 * 16


def test_an_estimate_of_a_function_is_the_calls_estimate():
    cost = pl.estimate_cost(lambda x: jnp.exp(x) @ x, shape(8, 8))
    assert cost == pl.CostEstimate(flops=2 * 8**3, transcendentals=64, bytes_accessed=2 * 4 * 64)
    f = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), shape(8, 8), cost_estimate=cost)
    assert f.trace(shape(8, 8)).schedule.flops == cost.flops


def test_a_trace_needs_shapes_only():
    spec = pl.BlockSpec((512, 512), lambda i, j: (i, j))
    f = pl.pallas_call(add, shape(4096, 4096), grid=(8, 8), in_specs=[spec, spec], out_specs=spec)
    timeline = f.trace(shape(4096, 4096), shape(4096, 4096)).timeline(pl.hardware.TPU_V5E)
    assert timeline.bound == "bandwidth"
    assert timeline.total > 3 * 4096**2 * 4 / 819e9


X4 = jnp.arange(16.0)
BLOCK = pl.BlockSpec((4,), lambda i: (i,))


def semantics(*words):
    return pl.pallas_call(copy, shape(16), grid=4, compiler_params=pltpu.CompilerParams(dimension_semantics=words))


@pytest.mark.parametrize("call, error, text", [
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i: (i * 4,))],
                            out_specs=BLOCK)(X4), pl.BlockIndexError,
     r"operand x, step 1: index_map gives \(4,\), but block index 4 is out of range in dimension 0 \(4 blocks of 4, so "
     r"0 "
     r"to 3\)\. Index maps return block indices, not element offsets\."),
    (lambda: pl.pallas_call(copy, shape(1, 4), grid=(1,), in_specs=[pl.BlockSpec((1, 4), lambda i: (1, 0))],
                            out_specs=pl.BlockSpec((1, 4), lambda i: (0, 0)))(jnp.ones((1, 4))), pl.BlockIndexError,
     r"operand x, step 0: .* block index 1 .* \(1 block of 1, so 0 to 0\)"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i: (-1,))],
                            out_specs=BLOCK)(X4), pl.BlockIndexError, "block index -1 is out of range"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i: (i, 0))],
                            out_specs=BLOCK)(X4), pl.SpecError,
     r"operand x: index_map\(0,\) returns 2 block indices \(0, 0\), but block_shape has 1 dimension\b"),
    (lambda: pl.pallas_call(copy, shape(4, 4), grid=(4,), in_specs=[pl.BlockSpec((4, 4), lambda i: i)],
                            out_specs=pl.BlockSpec((4, 4), lambda i: (0, 0)))(jnp.ones((4, 4))), pl.SpecError,
     "returns 1 block index"),
    (lambda: pl.pallas_call(copy, shape(4, 4), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
                            out_specs=pl.BlockSpec((4, 4), lambda i: (0, 0)))(jnp.ones((4, 4))), pl.SpecError,
     r"block_shape \(4,\) has 1 dimension, but the array \(4, 4\) has 2"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i, j: (i,))],
                            out_specs=BLOCK)(X4), pl.SpecError, "operand x: its index_map does not take 1 argument, "
                                                                "one"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[BLOCK], out_specs=BLOCK)(X4, X4), pl.SpecError,
     "copy: 2 operands but 1 in_specs"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[BLOCK, BLOCK], out_specs=BLOCK)(X4), pl.SpecError,
     "copy: 1 operand but 2 in_specs. Call it on 2"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), out_specs=BLOCK)(X4, X4), pl.SpecError,
     r"copy\(x_ref, o_ref\) does not fit the call, which gives it 3 refs"),
    (lambda: pl.pallas_call(copy, [shape(16), shape(16)], grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(X4),
     pl.SpecError, "2 outputs but 1 out_specs"),
    (lambda: pl.pallas_call(copy, [shape(16)], grid=(4,), in_specs=[BLOCK], out_specs=BLOCK)(X4),
     pl.SpecError, r"copy: out_specs nest as \*, but the outputs as \(\*,\). Nest them"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(X4),
     pl.SpecError, r"out_specs nest as \(\*,\), but the outputs as \*"),
    (lambda: pl.pallas_call(lambda x_ref, o_ref: x_ref[...], shape(16))(X4), pl.SpecError, "a kernel returns nothing"),
    (lambda: pl.pallas_call(copy, shape(16), scratch_shapes=[shape(4)])(X4), pl.SpecError, "scratch_shapes holds"),
    (lambda: pl.pallas_call(copy, (16,))(X4), pl.SpecError, "out_shape holds 16; give jax.ShapeDtypeStruct"),
    (lambda: pl.pallas_call(copy, shape(16), in_specs=[pl.BlockSpec(lambda i: (i,), (4,))])(X4), pl.SpecError,
     "block_shape first"),
    (lambda: pl.pallas_call(copy, shape(16), in_specs=[BLOCK], out_specs=BLOCK)(X4), pl.SpecError,
     "the call has no grid"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(0,)), pl.SpecError, "1 or more"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(-1,)), pl.SpecError, "each entry must be a whole number of steps"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[pl.BlockSpec((4,), lambda i: (i / 2,))],
                            out_specs=BLOCK)(X4), pl.SpecError, "block indices are whole numbers"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[pl.BlockSpec((0,), lambda i: (i,))],
                            out_specs=BLOCK)(X4), pl.SpecError, "entry 0 of block_shape"),
    (lambda: pl.pallas_call(copy, shape(16), grid=(4,), in_specs=["rows"], out_specs=BLOCK)(X4), pl.SpecError,
     "its spec is 'rows'"),
    (lambda: pl.pallas_call(copy, shape(16), input_output_aliases={1: 0})(X4), pl.SpecError, "operands are counted "
                                                                                             "flat"),
    (lambda: pl.pallas_call(copy, shape(8), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK,
                            input_output_aliases={0: 0})(X4), pl.SpecError, "one shape and dtype"),
    (lambda: semantics("paralel"), pl.SpecError, "=\\('paralel',\\): give a tuple with one word for each axis of the "
                                                 "grid \\(4,\\): \"parallel\" .* or \"arbitrary\""),
    (lambda: pl.pallas_call(copy, shape(16), grid=4, compiler_params=pltpu.CompilerParams("parallel")), pl.SpecError,
     "='parallel': give a tuple with one word"),
    (lambda: semantics("parallel", pltpu.ARBITRARY), pl.SpecError, "one word for each axis of the grid \\(4,\\)"),
    (semantics, pl.SpecError, "one word for each axis of the grid \\(4,\\)"),
    (lambda: pl.pallas_call(copy, shape(16), grid=4, compiler_params={"dimension_semantics": ("parallel",)}),
     pl.SpecError, "give pltpu.CompilerParams\\(dimension_semantics="),
    (lambda: pl.pallas_call(copy, shape(16), compiler_params=pltpu.CompilerParams), pl.SpecError, "give pltpu.Comp"),
    (lambda: pl.program_id(0), pl.PallasLiteError, "only meaningful inside a kernel"),
    (lambda: pl.Buffered(0), pl.SpecError, "1 or more"),
    (lambda: pl.InterpretParams(dma_execution_mode="late"), pl.SpecError, "choose"),
])
def test_errors_say_where_what_and_how_to_mend_it(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_bad_axis_names_the_grid():
    def kernel(o_ref):
        o_ref[...] = jnp.full((1,), pl.program_id(2), jnp.int32)
    with pytest.raises(pl.SpecError, match=r"program_id\(2\): the grid \(1, 1\) has axes 0 to 1"):
        pl.pallas_call(kernel, shape(1, dtype=jnp.int32), grid=(1, 1))()


@pytest.mark.parametrize("name, text", [("load", r"Index the ref: x_ref\[...\]"), ("dot", "jnp.dot")])
def test_a_name_that_is_not_here_says_the_nearest_way(name, text):
    with pytest.raises(pl.NotSupportedError, match=rf"pallas_lite.{name} is not supported here. .*{text}"):
        getattr(pl, name)
    assert not hasattr(pl, name) and not hasattr(pl, "no_such_name")


def scopes(x_ref, o_ref):
    pl.run_scoped(lambda buf_ref: None, (8, 128))


@pytest.mark.parametrize("call, text", [
    (pl.verify, "verify takes a schedule: f.trace\\(x\\).schedule.* This is of type Traced."),
    (pl.timeline, "timeline takes a schedule: f.trace\\(x\\).schedule"),
    (pl.plot_timeline, "plot_timeline takes a timeline: .* or f.trace\\(x\\).timeline\\(machine\\)"),
    (lambda t: pl.plot_sweep(t.timeline()), "plot_sweep takes {depth: .* This is of type Timeline."),
    (lambda t: pl.plot_sweep({2: t.timeline()}), "plot_sweep takes {depth: .* This is of type Timeline."),
    (lambda t: pl.plot_roofline(TPU_V5E, [t]), "takes kernels by their names, {name: kernel}; .* of type list."),
    (lambda t: t.timeline("v5e"), "one of pl.hardware, such as pl.hardware.TPU_V5E. This is of type str."),
    (lambda t: pl.record(3, 4), "a loop is a function of .* This is of type int."),
    (lambda t: pltpu.VMEM(8, jnp.float32), "VMEM: the shape is a tuple, such as \\(8, 128\\). This is of type int."),
    (lambda t: pltpu.SemaphoreType.DMA(2), "SemaphoreType.DMA: the shape is a tuple, such as \\(2,\\)"),
    (lambda t: pl.pallas_call(scopes, shape(16))(X4), "run_scoped allocates pltpu.VMEM.* This is of type tuple."),
])
def test_an_argument_of_another_kind_names_the_right_one(call, text):
    with pytest.raises(pl.SpecError, match=text):
        call(pl.pallas_call(copy, shape(16)).trace(X4))


def test_a_trace_shows_as_its_schedule_does():
    trace = pl.pallas_call(copy, shape(16)).trace(X4)
    assert str(pl.show(trace)) == str(pl.show(trace.schedule))
    assert pl.show(trace, machine=pl.hardware.TOY.with_(alpha=1e-3)).timeline.total > 1e-3
