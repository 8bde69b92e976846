"""GPU programs compiled for sm_90a by the real compilers, with no GPU: copies, shared memory, registers.

Tests marked gpu need the [gpu] extra: CI runs them in an environment of their own (.ci/run).
"""
import re

import jax.numpy as jnp
import pytest
from jax.experimental.pallas import triton as plgpu

import pallas_lite as pl
from benchmarks import gpu as gpu_benchmark
from benchmarks import gpu_memory
from benchmarks._gpu_kernels import MATMUL, add, into_output, matmul, shape, total

from .gpu import BF16, KERNELS, ROWS, double, looking_for_races, races

# -- the compiler

@pytest.mark.gpu
@pytest.mark.parametrize("dtype, blocks", [(jnp.float32, (128, 128, 64)), (jnp.bfloat16, (128, 128, 64)),
                                           (jnp.float32, (128, 64, 32)), (jnp.bfloat16, (64, 128, 64)),
                                           (jnp.float32, (32, 32, 32)), (jnp.float32, (128, 128, 32))])
def test_triton_pipelines_a_matmul_to_the_depth(dtype, blocks, compiler):
    copies, memory = [], []
    for depth in (1, 2, 3):
        a = shape(512, 512, dtype=dtype)
        program = matmul(512, blocks, depth, dtype).trace(a, a).lower("triton").compile()
        copies.append(len(re.findall(r"cp\.async\.c[ag]", program.as_text())))
        memory.append(program.memory_analysis())
        assert memory[-1].registers > 32
        assert re.search(r"wgmma\.mma_async|mma\.sync", program.as_text())  # on the tensor cores
    assert copies[0] == 0 < copies[1] < copies[2]
    for m in memory:
        assert m.shared_memory_in_bytes == m.predicted_shared_memory_in_bytes


@pytest.mark.gpu
@pytest.mark.parametrize("rows, columns, warps, dtype, result", [
    (256, 64, 8, jnp.float32, jnp.float32), (128, 64, 4, jnp.float32, jnp.float32),
    (32, 128, 4, jnp.bfloat16, jnp.float32), (64, 256, 4, jnp.bfloat16, jnp.bfloat16)])
def test_triton_rearranges_a_result_in_the_memory_that_we_count(rows, columns, warps, dtype, result, compiler):
    program = gpu_memory.matmul(rows, columns, warps, dtype, result).lower("triton")
    memory = program.compile().memory_analysis()
    assert memory.shared_memory_in_bytes == memory.predicted_shared_memory_in_bytes
    assert "to rearrange the result" in program.shared_memory()


@pytest.mark.gpu
@pytest.mark.parametrize("semantics, extra", [(MATMUL, 0), (("arbitrary",) * 3, 64 * 64 * 2)])
def test_a_result_that_is_stored_in_the_loop_is_rearranged_beside_the_operands(semantics, extra, compiler):
    a = shape(256, 256, dtype=jnp.bfloat16)
    program = matmul(256, (64, 64, 64), 2, jnp.bfloat16, semantics).trace(a, a).lower("triton")
    memory = program.compile().memory_analysis()
    assert memory.shared_memory_in_bytes == memory.predicted_shared_memory_in_bytes == 4 * 64 * 64 * 2 + extra


@pytest.mark.gpu
def test_triton_does_not_pipeline_what_no_matmul_reads(compiler):
    for program in (add().trace(shape(512, 512), shape(512, 512)), total().trace(shape(8, 256, 256))):
        compiled = program.lower("triton").compile()
        assert compiled.memory_analysis()[:2] == (0, 0) and "cp.async" not in compiled.as_text()


@pytest.mark.gpu
def test_num_warps_is_a_compiler_parameter(compiler):
    f = pl.pallas_call(double, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS,
                       compiler_params=plgpu.CompilerParams(num_warps=2))
    assert re.search(r"\.reqntid 64|\.maxntid 64", f.trace(shape(32, 128)).lower("triton").compile().as_text())


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_mosaic_gpu_programs_compile_to_the_shared_memory_that_we_count(name, compiler):
    f, operands = KERNELS[name]
    memory = f.trace(*operands).lower("mosaic_gpu").compile().memory_analysis()
    assert memory.shared_memory_in_bytes == memory.predicted_shared_memory_in_bytes > 0


@pytest.mark.gpu
@pytest.mark.parametrize("platform", ["triton", "mosaic_gpu"])
def test_compiling_twice_tells_the_same(platform, compiler):
    program = total().trace(shape(8, 256, 256)).lower(platform)
    first, second = program.compile(), program.compile()
    assert first.memory_analysis() == second.memory_analysis() and second.registers > 16
    assert len(first.as_text()) == len(second.as_text()) > 1000


@pytest.mark.gpu
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", ["add", "total"])
def test_mosaic_gpu_copies_in_bulk_and_waits_on_barriers(name, depth, compiler):
    if name == "add":
        traced = add(512, 64, depth, ("parallel", "arbitrary")).trace(shape(512, 512), shape(512, 512))
    else:
        traced = total(depth=depth).trace(shape(8, 256, 256))
    program = traced.lower("mosaic_gpu").compile()
    ptx, inputs = program.as_text(), len(traced.operands) - 1
    # Each input is fetched depth - 1 times before the loop and once inside; the output leaves once.
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.shared", ptx)) == inputs * depth
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.global", ptx)) == 1
    assert len(re.findall(r"mbarrier\.try_wait", ptx)) == inputs
    if name == "add":  # in the loop, all but the newest depth - 1 copies out are waited for; after it, all
        assert re.findall(r"wait_group\s+(\d)", ptx) == [str(depth - 1), *"0" * (depth - 1)]
    memory = program.memory_analysis()
    assert memory.shared_memory_in_bytes == memory.predicted_shared_memory_in_bytes > 0


@pytest.mark.gpu
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("form", ["scratch", "output", "f32"])
def test_mosaic_gpu_multiplies_where_the_copies_arrive(form, depth, compiler):
    dtype = jnp.float32 if form == "f32" else BF16
    call = into_output if form == "output" else matmul
    f, a = call(512, (128, 128, 32), depth, dtype, transposed=form == "f32"), shape(512, 512, dtype=dtype)
    program = f.trace(a, a).lower("mosaic_gpu").compile()
    ptx, memory = program.as_text(), program.memory_analysis()
    kind = "tf32" if form == "f32" else "bf16"
    instructions = re.findall(rf"wgmma\.mma_async\.sync\.aligned\.m64n128k(\d+)\.f32\.{kind}\.{kind}", ptx)
    assert sum(map(int, instructions)) == 32 * 128 // 64  # the block's k, for each 64 of its m
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.shared", ptx)) == 2 * depth
    assert len(re.findall(r"mbarrier\.try_wait", ptx)) == 2
    assert not re.search(r"ld\.shared", ptx)  # wgmma reads the slots itself, and the sum stays in registers
    assert memory.shared_memory_in_bytes == memory.predicted_shared_memory_in_bytes
    blocks, result = 2 * 128 * 32 * jnp.dtype(dtype).itemsize, 128 * 128 * (2 if form == "scratch" else 4)
    assert memory.predicted_shared_memory_in_bytes == depth * (blocks + 2 * 8) + result
    assert memory.registers < 200  # 128 of them hold the sum: it is not moved about


# -- the benchmark, where there is no GPU to time it

@pytest.mark.gpu
@pytest.mark.parametrize("case", [*gpu_benchmark.cases(256)], ids=lambda case: case[0])
def test_the_benchmark_checks_and_times_every_case(case, dialect, capsys, monkeypatch):
    monkeypatch.setattr(gpu_benchmark, "CALLS", 1)
    monkeypatch.setattr(gpu_benchmark, "median", lambda f: f() or 1e-3)
    rows = list(gpu_benchmark.rows(case, (2,), {"triton": True, "mosaic_gpu": looking_for_races()}))
    assert [platform for _, platform, _, _ in rows] == list(case[1])
    for row in rows:
        gpu_benchmark.show(print, *row)
    assert capsys.readouterr().out.count("(1.00×)") == len(rows) and not races()
    name, platforms, call, avals, plain, _ = case
    wrong = (name, platforms[:1], call, avals, lambda *a: 1 + plain(*a), 0)
    with pytest.raises(AssertionError, match="wrong: off by"):
        list(gpu_benchmark.rows(wrong, (2,), {"triton": True}))


def test_the_benchmark_says_why_there_is_no_program(capsys):
    case = ("add 96²", ("triton",), lambda d: add(96, 96, d), (shape(96, 96),) * 2, lambda x, y: x + y, 0)
    for row in gpu_benchmark.rows(case, (2,)):
        gpu_benchmark.show(print, *row)
    assert "power of two" in capsys.readouterr().out
