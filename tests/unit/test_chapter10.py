"""Chapter 10: its checks agree with the lowerings, and its recorded PTX is what it says."""
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from autograder import check, personal, recorded
from autograder.checks.chapter10 import AXES, in_loop, listed
from autograder.judge.predict import PREDICTIONS
from autograder.mutants.chapter10 import counted
from autograder.sandbox.inside.recorded import listings
from benchmarks._gpu_kernels import marked, matmul
from pallas_lite import tpu as pltpu
from tests.lowering.conftest import compiler as compiler  # a fixture

RECORDS = [*recorded(), *map(listed, range(len(listings())))]

STUDENTS = ["", *(f"s{i}" for i in range(12))]


def calls(kernel, marks, seed=None):
    """The four calls of exercise 10.1 (total of its page), small, and their operands."""
    def zeroed(axis, ref):
        @pl.when(pl.program_id(axis) == 0)
        def _():
            ref[...] = jnp.zeros_like(ref)

    def scale(x_ref, row_ref, o_ref):
        o_ref[...] = x_ref[...] * row_ref[...]

    def column_sums(x_ref, o_ref):
        zeroed(1, o_ref)
        o_ref[...] += x_ref[...].sum(0, keepdims=True)

    def running_sum(x_ref, o_ref, sum_ref):
        zeroed(0, sum_ref)
        o_ref[...] = sum_ref[...] + jnp.cumsum(x_ref[...], axis=0)
        sum_ref[...] = o_ref[-1:, :]

    def product(x_ref, y_ref, o_ref, sum_ref):
        zeroed(2, sum_ref)
        sum_ref[...] += jnp.dot(x_ref[...], y_ref[...])
        o_ref[...] = sum_ref[...]

    tile, rng = (8, 16), np.random.default_rng(0)
    x, y, row = (rng.normal(size=s).astype(np.float32) for s in ((24, 32), (32, 48), (1, 32)))
    interpret = pl.InterpretParams(random_seed=seed) if seed is not None else False
    more = {"compiler_params": marked(*marks), "interpret": interpret, "on_hazard": "ignore"}

    def block(shape, index_map):
        return pl.BlockSpec(shape, index_map)
    ij, ij_of_ji = block(tile, lambda i, j: (i, j)), block(tile, lambda j, i: (i, j))
    if kernel == "scale":
        return pl.pallas_call(scale, x, grid=(3, 2), in_specs=[ij, block((1, 16), lambda i, j: (0, j))], out_specs=ij,
                              **more), (x, row)
    if kernel == "column_sums":
        return pl.pallas_call(column_sums, jax.ShapeDtypeStruct((1, 32), x.dtype), grid=(2, 3), in_specs=[ij_of_ji],
                              out_specs=block((1, 16), lambda j, i: (0, j)), **more), (x,)
    if kernel == "running_sum":
        rows = block((8, 32), lambda i: (i, 0))
        return pl.pallas_call(running_sum, x, grid=3, in_specs=[rows], out_specs=rows,
                              scratch_shapes=[pltpu.VMEM((1, 32), jnp.float32)], **more), (x,)
    return pl.pallas_call(product, jax.ShapeDtypeStruct((24, 48), x.dtype), grid=(3, 3, 2),
                          in_specs=[block((8, 16), lambda j, i, t: (i, t)), block((16, 16), lambda j, i, t: (t, j))],
                          out_specs=block((8, 16), lambda j, i, t: (i, j)),
                          scratch_shapes=[pltpu.VMEM((8, 16), jnp.float32)], **more), (x, y)


@pytest.mark.parametrize("kernel", AXES)
def test_the_axes_that_10_1_calls_parallel_are_just_those_that_may_run_in_any_order(kernel):
    call, operands = calls(kernel, ["arbitrary"] * len(AXES[kernel]))
    right = call(*operands)
    for seed in range(3):
        call, _ = calls(kernel, AXES[kernel], seed)
        np.testing.assert_allclose(call(*operands), right, rtol=1e-5, atol=1e-5)
    for axis in (a for a, mark in enumerate(AXES[kernel]) if mark == "arbitrary"):
        call, _ = calls(kernel, ["parallel" if a == axis else "arbitrary" for a in range(len(AXES[kernel]))])
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            pl.pallas_call(call.kernel, call.out_shape, grid=call.grid, in_specs=call.in_specs,
                           out_specs=call.out_specs, scratch_shapes=call.scratch_shapes,
                           compiler_params=call.compiler_params)(*operands)
        assert any("parallel" in str(w.message) for w in heard)


@pytest.mark.parametrize("student", STUDENTS)
def test_the_product_of_10_3_takes_what_the_lowering_counts(student):
    check("10.3")  # loads the checks
    p = personal("10.3", student)
    a = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    program = matmul(1024, (p.bm, p.bn, p.bk), p.stages, a.dtype).trace(a, a).lower("triton")
    assert sum(program.shared_memory().values()) / 1024 == PREDICTIONS["10.3"](p)[0].value


def test_the_deepest_of_10_4_is_the_last_that_the_lowering_takes():
    a = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)
    for blocks in (64, 256, 64), (128, 128, 64):
        depth = int(counted(*blocks))
        matmul(512, blocks, depth, a.dtype).trace(a, a).lower("triton").as_text()
        with pytest.raises(pl.PallasLiteError, match="bytes of shared memory"):
            matmul(512, blocks, depth + 1, a.dtype).trace(a, a).lower("triton").as_text()


@pytest.mark.parametrize("student", STUDENTS)
def test_the_listing_of_10_5_holds_the_answers(student):
    check("10.5")
    p = personal("10.5", student)
    before, loop = in_loop(p.ptx)
    threads = int(re.search(r"\.reqntid (\d+)", p.ptx)[1])
    stages, kib = 1 + before // loop, loop * threads * 16 / 1024
    assert [stages, kib, stages * kib] == [a.value for a in PREDICTIONS["10.5"](p)]
    assert listed(p.place).kernel != "matmul bfloat16 64×64×32"  # the chapter explains that one
    assert p.ptx not in [r.ptx for r in recorded()]  # which would tell the answers


def test_neighbours_seldom_read_the_same_listing_and_each_fits_a_screen():
    drawn = [personal("10.5", f"student {i}").ptx for i in range(300)]
    most = max(map(drawn.count, set(drawn)))
    assert len(set(drawn)) >= 25 and most <= 300 / 25 * 2
    assert max(text.count("\n") for text in drawn) < 60


def test_the_recorded_shared_memory_is_what_we_predict():
    for r in (r for r in RECORDS if (r.lowering, r.kernel[:6]) == ("triton", "matmul") and r.depth > 1):
        blocks = tuple(map(int, r.kernel.split()[-1].split("×")))
        a = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
        program = matmul(1024, blocks, r.depth, a.dtype).trace(a, a).lower("triton")
        assert sum(program.shared_memory().values()) == r.shared_memory


@pytest.mark.gpu
def test_the_compiler_still_says_what_is_recorded(compiler):
    from tools.record_ptx import kernels, record
    told = {(r.kernel, r.lowering, r.depth): r for r in RECORDS}
    chosen = [k for k in kernels() if k[2] == 3 and ("64×128×32" in k[0] or k[0].startswith("add"))]
    assert len(chosen) == 3
    for name, platform, depth, traced in chosen:
        heading, *lines = record(name, platform, depth, traced).split("\n")
        before = told[name, platform, depth]
        assert heading.split(" | ")[3] == str(before.shared_memory)
        starts = [sum("cp.async.cg" in line or "cp.async.bulk.tensor" in line for line in text)
                  for text in (lines, before.ptx.split("\n"))]
        assert starts[0] == starts[1]


def test_mosaic_gpus_slots_and_barriers_are_those_of_10_3():
    pytest.importorskip("absl")
    p = personal("10.3")
    x = jax.ShapeDtypeStruct((8 * p.rows, 8 * p.columns), jnp.float32)

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    deep, out = (pl.BlockSpec((p.rows, p.columns), lambda i, j: (i, j), pl.Buffered(d)) for d in (p.depth, 2))
    call = pl.pallas_call(kernel, x, grid=(8, 8), in_specs=[deep, deep], out_specs=out,
                          compiler_params=marked("parallel", "arbitrary"))
    program = call.trace(x, x).lower("mosaic_gpu")
    assert sum(program.shared_memory().values()) == PREDICTIONS["10.3"](p)[2].value
