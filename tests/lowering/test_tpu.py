"""TPU programs: right under upstream's interpreter, without a race, and with just the copies of the schedule."""
import re
import textwrap
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.call import Call
from pallas_lite.lowering import mosaic_tpu as engine
from pallas_lite.traced import Traced
from tests.corpus import load_all
from tests.corpus.test_corpus import compare, upstream_result

from .upstream import EAGER, OLDEST, PARAMS, QUICK, interpreter

CASES = load_all()
UNSUPPORTED = {"prefetch.scalars_traced_by_jit": "depend on traced scalars, so nobody can prove the program",
               "manual.a_remote_copy_to_oneself": "make_async_remote_copy is not lowered to a TPU program yet"}


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(traced, *operands, params=PARAMS):
    """The outputs of the TPU program, and how many DMAs it started."""
    with interpreter() as started:
        return jax.block_until_ready(interpreted(traced, params)(*operands)), len(started)


def interpreted(traced, params=PARAMS):
    return jax.jit(traced.lower("tpu").function(interpret=params), compiler_options=QUICK)


def copies(schedule):
    return sum(e.verb.endswith("start") for e in schedule)


def add(shape, block, depth=2, out_depth=2):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    spec, out = (pl.BlockSpec(block, lambda *ids: ids, pipeline_mode=pl.Buffered(d)) for d in (depth, out_depth))
    return pl.pallas_call(kernel, f32(*shape), grid=tuple(-(-n // b) for n, b in zip(shape, block, strict=True)),
                          in_specs=[spec, spec], out_specs=out)


# All of them on the oldest jax, where they compile quickest; a sample on the newest.
@pytest.mark.parametrize("name", CASES if OLDEST else list(CASES)[::4])
def test_the_corpus_runs_as_tpu_programs(name, monkeypatch):
    case, calls = CASES[name], []

    def on_the_tpu(traced, flat):
        if any(isinstance(a, jax.core.Tracer) for a in flat):
            out = jax.custom_batching.sequential_vmap(traced.lower("tpu").function(interpret=PARAMS))(*flat)
        else:
            calls.append(traced)
            out = interpreted(traced)(*flat)
        outputs = (x.array for x in traced.arrays if x.is_output)
        return traced._results(dict(zip(outputs, out, strict=True)))

    monkeypatch.setattr(Traced, "run", on_the_tpu)
    call, operands = case.build(pl, pltpu)
    if name in UNSUPPORTED:
        with pytest.raises(pl.NotSupportedError, match=UNSUPPORTED[name]):
            call(*operands)
        return
    try:
        with interpreter() as started:
            ours = jax.block_until_ready(call(*operands))
    except pl.PallasLiteError as error:
        assert case.hazard and re.search(f"free of races.*{case.hazard}", str(error), re.S)
        return
    want = case.expected(*operands) if case.expected else upstream_result(case)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(want), strict=True):
        compare(a, b)
    if calls:  # on concrete operands, so each call ran once
        assert len(started) == sum(copies(traced.schedule) for traced in calls)


# Each shape, and each depth, meets both kinds of DMA.
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("number, shape, block", [
    (0, (20, 26), (8, 12)), (1, (5,), (2,)), (2, (7, 9), (7, 4)), (3, (3, 4, 5), (1, 3, 2))])
def test_odd_grids_at_any_depth(number, shape, block, depth):
    x, y = normal(*shape), normal(*shape, seed=1)
    traced = add(shape, block, depth, depth % 4 + 1).trace(x, y)
    [out], started = run(traced, x, y, params=(PARAMS, EAGER)[(number + depth) % 2])
    np.testing.assert_array_equal(out, x + y)
    assert started == copies(traced.schedule)


def test_a_seed_that_shuffles_the_simulator_leaves_the_program_in_grid_order():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    spec, x = pl.BlockSpec((8, 128), lambda i: (i, 0)), normal(64, 128)
    call = pl.pallas_call(kernel, f32(64, 128), grid=8, in_specs=[spec], out_specs=spec,
                          compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
                          interpret=pl.InterpretParams(random_seed=3))
    traced = call.trace(x)
    assert traced.indices != sorted(traced.indices)
    [out], _ = run(traced, x)
    np.testing.assert_array_equal(out, x * 2)


@settings(max_examples=8)
@given(data=st.data())
def test_any_index_map(data):
    """Blocks in any order, also revisited, from scalars: what begins and ends a visit follows no pattern."""
    steps, depth = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    rows = np.array(data.draw(st.lists(st.integers(0, 3), min_size=steps, max_size=steps)), np.int32)
    x = normal(14, 5)  # the last block of 4 rows is cut

    def kernel(rows_ref, x_ref, o_ref):
        keep = rows_ref[pl.program_id(0)] * 4 + jnp.arange(4)[:, None] < 14
        o_ref[...] = jnp.where(keep, x_ref[...], 0)
    blocks = pl.BlockSpec((4, 5), lambda i, rows: (rows[i], 0), pl.Buffered(depth))
    spec = pltpu.PrefetchScalarGridSpec(1, (steps,), [blocks], pl.BlockSpec((4, 5), lambda i, _: (i, 0)))
    traced = pl.pallas_call(kernel, f32(4 * steps, 5), grid_spec=spec).trace(rows, x)
    [out], started = run(traced, rows, x)
    np.testing.assert_array_equal(out, np.pad(x, ((0, 2), (0, 0)))[(4 * rows[:, None] + np.arange(4)).ravel()])
    assert started == copies(traced.schedule)


@pytest.mark.parametrize("verb", ["copy_in_wait", "copy_out_wait"])
def test_an_engine_that_forgets_a_wait_is_caught(verb, monkeypatch):
    """The checks above can fail."""
    dma = engine.dma
    monkeypatch.setattr(engine, "dma", lambda text, v, *ends: None if v == verb else dma(text, v, *ends))
    x = normal(32, 8)
    traced = add((32, 8), (8, 8)).trace(x, x)
    with pytest.raises(AssertionError, match="found a race"):
        run(traced, x, x, params=EAGER)
    assert not np.array_equal(run(traced, x, x)[0][0], x + x)


@pytest.mark.parametrize("name", [n for n in CASES if n not in UNSUPPORTED][::1 if OLDEST else 7])
def test_the_text_and_the_schedule_agree(name):
    """Each copy and wait of the schedule is one instruction's, and each instruction is where its line says."""
    call, operands = CASES[name].build(pl, pltpu)
    if not isinstance(call, Call):
        pytest.skip("a function around calls")
    traced = call.trace(*operands)
    if traced.races:
        pytest.skip("not lowered: it has a race")
    lowered = traced.lower("tpu")
    try:
        lines = lowered.as_text().splitlines()
    except pl.NotSupportedError as error:
        assert re.search(r"Pallas refuses the kernel for a TPU(, at line \d+ of .*)?\. It says:\n", str(error))
        pytest.skip(str(error).splitlines()[1])  # upstream's interpreter can run more than its lowering takes
    assert lines[0].startswith("module")
    for i in lowered.instructions:
        assert f"tpu.{i.op}" in lines[i.line - 1]
        assert traced.manual or i.op == ("enqueue_dma" if "_start(" in i.entry else "wait_dma")
    assert sum("tpu.enqueue_dma" in line or "tpu.wait_dma" in line for line in lines) == len(lowered.instructions)
    if not traced.manual:
        stood_for = sorted(n for i in lowered.instructions for n in i.events)
        assert stood_for == [n for n, e in enumerate(traced.schedule) if e.verb != "run"]


def test_the_summary(golden):
    def kernel(x_ref, w_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    call = pl.pallas_call(kernel, f32(300, 128), grid=(3, 4), name="matmul", in_specs=[
        pl.BlockSpec((128, 128), lambda i, k: (i, k), pl.Buffered(3)), pl.BlockSpec((128, 128), lambda i, k: (k, 0))],
        out_specs=pl.BlockSpec((128, 128), lambda i, k: (i, 0)))
    golden("tpu_summary", call.trace(f32(300, 512), f32(512, 128)).lower("tpu").summary())


def test_a_summary_says_only_what_is_true_of_each_instruction():
    """Padded on both sides, two copies are of one size; and no one formula gives the blocks."""
    call, operands = CASES["contract.the_padding_of_windows_reaches_a_sum"].build(pl, pltpu)
    summary = call.trace(*operands).lower("tpu").summary()
    said = [re.sub(r"line +\d+ +", "", line) for line in summary.splitlines() if "copy_in_start" in line]
    assert said == ["enqueue_dma  prologue  copy_in_start(x[0] → x[0]), 2 of it from 2: step 0",
                    "enqueue_dma  loop      copy_in_start(x), 2 of it from 2: at no step",
                    "enqueue_dma  loop      copy_in_start(x[6] → x[0]), 2 of it: step 1",
                    "enqueue_dma  loop      copy_in_start(x[3] → x[1]): step 0"]


def test_the_listing_in_the_docs_is_the_programs():
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    call = pl.pallas_call(double, f32(64, 128), grid=(8,), in_specs=[rows], out_specs=rows)
    page = (Path(__file__).parents[2] / "docs/tpu.md").read_text(encoding="utf-8")
    assert textwrap.indent(call.trace(f32(64, 128)).lower("tpu").summary(), "    ") in page


def test_the_summary_names_a_kernels_own_copies():
    call, operands = CASES["emitted.a_pipeline_with_two_slots"].build(pl, pltpu)
    summary = call.trace(*operands).lower("tpu").summary()
    assert re.search(r"line +\d+  enqueue_dma  .*copy_\w*start\(.+\)", summary) and "wait_dma" in summary


def test_only_what_is_proven_is_lowered():
    """Bounds and semaphores are not checked in the program: so a call that is not proven right does not get there."""
    def shifted(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1
    block, rows = (8, 8), f32(32, 8)
    racy = pl.pallas_call(shifted, rows, grid=(4,), in_specs=[pl.BlockSpec(block, lambda i: ((i + 3) % 4, 0))],
                          out_specs=pl.BlockSpec(block, lambda i: (i, 0)), input_output_aliases={0: 0})
    with pytest.raises(pl.PallasLiteError, match="only a program that is free of races is lowered, and this one has"):
        racy.trace(rows).lower("tpu")
    outside = pl.pallas_call(shifted, rows, grid=(5,), in_specs=[pl.BlockSpec(block, lambda i: (i, 0))],
                             out_specs=pl.BlockSpec(block, lambda i: (i, 0)))
    with pytest.raises(pl.BlockIndexError, match="step 4: index_map gives"):
        outside.trace(rows)
    with pytest.raises(pl.SpecError, match=r"which accelerator\? traced\.lower\(\"tpu\"\), or one of 'tpu', 'triton'"):
        add((32, 8), block).trace(rows, rows).lower()
    with pytest.raises(pl.NotSupportedError, match="lowering for 'metal' is not supported; there is 'tpu', "):
        add((32, 8), block).trace(rows, rows).lower("metal")


@pytest.mark.parametrize("platform, interpret", [("tpu", PARAMS), ("triton", True)])
def test_a_program_refuses_scalars_that_choose_other_blocks(platform, interpret):
    def kernel(rows_ref, scale_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale_ref[0].astype(jnp.float32)
    spec = pltpu.PrefetchScalarGridSpec(2, (2,), [pl.BlockSpec((8, 128), lambda i, rows, _: (rows[i], 0))],
                                      pl.BlockSpec((8, 128), lambda i, *_: (i, 0)))
    rows, scale, x = np.array([3, 1], np.int32), np.array([2], np.int32), normal(32, 128)
    traced = pl.pallas_call(kernel, f32(16, 128), grid_spec=spec, name="gather").trace(rows, scale, x)
    program = traced.lower(platform).function(interpret=interpret)
    for n in (2, 5):  # what only the kernel reads may be another
        got, = program(rows, scale * 0 + n, x)
        np.testing.assert_array_equal(got, n * x.reshape(4, 8, 128)[rows].reshape(16, 128))
    with pytest.raises(pl.SpecError, match=re.escape(
            "gather: this program is made for the prefetched scalars of its trace, and these choose other blocks of x. "
            "Trace the call on them, and lower that.")):
        program(rows[::-1], scale, x)
    with pytest.raises(pl.BlockIndexError, match=r"operand x, step 1: index_map gives \(4, 0\)"):
        program(np.array([3, 4], np.int32), scale, x)


@pytest.mark.parametrize("platform, kinds", [("tpu", ["revisit", "parallel axis"]), ("triton", ["revisit"]),
                                             ("mosaic_gpu", ["revisit"])])
def test_lowering_warns_of_hazards_that_are_no_races_as_jit_does(platform, kinds):
    def total(x_ref, o_ref):
        o_ref[...] += x_ref[...]

    def call(on_hazard, semantics=None):  # the axis to reduce over is the outermost
        return pl.pallas_call(total, f32(32, 128), grid=(2, 4), on_hazard=on_hazard,
                              in_specs=[pl.BlockSpec((8, 128), lambda k, i: (4 * k + i, 0))],
                              out_specs=pl.BlockSpec((8, 128), lambda k, i: (i, 0)),
                              compiler_params=pltpu.CompilerParams(dimension_semantics=semantics))
    semantics = ("parallel", "arbitrary") if "parallel axis" in kinds else None  # on a GPU that is refused
    x = np.zeros((64, 128), np.float32)
    with pytest.warns(pl.HazardWarning, match="is written again after step 0 left it") as lowered:
        assert call("warn", semantics).trace(f32(64, 128)).lower(platform).avals
    with pytest.warns(pl.HazardWarning) as jitted:
        jax.jit(call("warn", semantics))(x)
    assert [str(w.message) for w in lowered] == [str(w.message) for w in jitted]
    assert [h.kind for h in lowered[0].message.hazards] == kinds
    with pytest.raises(pl.PallasLiteError, match="is written again after step 0 left it"):
        call("raise", semantics).trace(f32(64, 128)).lower(platform)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call("ignore", semantics).trace(f32(64, 128)).lower(platform)


def test_checks_are_off_only_where_they_are_proven():
    def indexed(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(pl.program_id(0), 8), :]

    def options(call, *operands):
        return str(jax.make_jaxpr(call.trace(*operands).lower("tpu").function())(*operands))
    moving = pl.pallas_call(indexed, f32(32, 8), grid=(4,), in_specs=[pl.BlockSpec((16, 8), lambda i: (0, 0))],
                            out_specs=pl.BlockSpec((8, 8), lambda i: (i, 0)))
    call, operands = CASES["emitted.a_pipeline_with_two_slots"].build(pl, pltpu)
    assert "disable_bounds_checks=True" in options(add((32, 8), (8, 8)), f32(32, 8), f32(32, 8))
    assert "disable_bounds_checks=False" in options(moving, f32(16, 8))
    assert "disable_bounds_checks=False" in options(call, *operands)


def test_a_pipeline_whose_blocks_the_kernel_around_it_chooses_is_not_lowered():
    def kernel(x_hbm, o_hbm):
        i = pl.program_id(0)
        spec = pl.BlockSpec((16, 128), lambda k: (i, k))
        pltpu.emit_pipeline(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1), grid=(2,), in_specs=[spec],
                            out_specs=[spec])(x_hbm, o_hbm)
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    f = pl.pallas_call(kernel, f32(32, 256), grid=(2,), in_specs=[in_hbm], out_specs=in_hbm)
    x = normal(32, 256)
    np.testing.assert_array_equal(f(x), x + 1)
    with pytest.raises(pl.NotSupportedError, match="uses values of the kernel around it is not lowered"):
        f.trace(f32(32, 256)).lower("tpu").as_text()
