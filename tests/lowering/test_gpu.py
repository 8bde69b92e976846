"""GPU programs: right on a CPU under Pallas' interpreters, and compiled for sm_90a with no GPU.

Tests marked gpu need the [gpu] extra: CI runs them in an environment of their own (.ci/run).
"""
import re
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies

import pallas_lite as pl
from benchmarks._gpu_kernels import add, marked, matmul, shape
from pallas_lite import tpu as pltpu
from pallas_lite.call import Call
from pallas_lite.lowering import cuda
from tests.corpus import load_all
from tests.corpus.test_corpus import compare

from .gpu import BF16, KERNELS, ROWS, double, looking_for_races, normal, races
from .upstream import QUICK

CASES = load_all()


def check_values(f, operands, platform, interpret):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.HazardWarning)
        want = jax.tree.leaves(f(*operands))
    program = f.trace(*operands).lower(platform).function(interpret=interpret)
    got = jax.jit(program, compiler_options=QUICK)(*operands)
    for a, b in zip(got, want, strict=True):
        near = 1e-5 if a.dtype == np.float32 else 1e-2  # one rounding to 16 bits
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(a, b, rtol=near, atol=near * max(1, np.abs(b).max()))


# -- values

@pytest.mark.parametrize("name", KERNELS)
def test_triton_programs_give_the_simulators_values(name):
    check_values(*KERNELS[name], "triton", True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_mosaic_gpu_programs_give_the_simulators_values(name, interpreter):
    check_values(*KERNELS[name], "mosaic_gpu", interpreter)


@pytest.mark.gpu
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("reuse", [1, 2, 3])
def test_mosaic_gpu_pipelines_of_any_depth(depth, reuse, interpreter):
    """Each block stays for `reuse` steps; input and output have depths of their own."""
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...] * (pl.program_id(1) + 1).astype(jnp.float32)
    kept = pl.BlockSpec((8, 128), lambda i, j: (i, 0), pl.Buffered(depth))
    f = pl.pallas_call(kernel, shape(40, 128), grid=(5, reuse), compiler_params=marked("arbitrary", "arbitrary"),
                       in_specs=[kept, pl.BlockSpec((8, 128), lambda i, j: (i * reuse + j, 0), pl.Buffered(5 - depth))],
                       out_specs=kept)
    check_values(f, [normal(40, 128), normal(40 * reuse, 128, seed=2)], "mosaic_gpu", interpreter)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["add, one axis a loop", "matmul"])
def test_the_interpreter_sees_a_missing_wait(name, monkeypatch, dialect):
    """It does not see a missing wait for a copy out: test_mosaic_gpu_copies_in_bulk counts those in the program."""
    from pallas_lite.lowering.mosaic_gpu import MosaicGpu
    monkeypatch.setattr(MosaicGpu, "copy_in_wait", lambda *_: None)
    f, operands = KERNELS[name]
    said = ""
    try:
        program = f.trace(*operands).lower("mosaic_gpu").function(looking_for_races())
        jax.block_until_ready(jax.jit(program)(*operands))
    except jax.errors.JaxRuntimeError as error:  # it also minds barriers that nobody waited for
        said = str(error)
    assert races() or "RACE DETECTED" in said  # since jax 0.12 it stops at a race


def single_calls():
    """The kernels of the corpus that are one call without a hazard: name -> call, operands."""
    built = {name: case.build(pl, pltpu) for name, case in CASES.items() if not case.hazard}
    return {name: (f, jax.tree.map(jnp.asarray, operands)) for name, (f, operands) in built.items()
            if isinstance(f, Call)}


# What Triton cannot do with a value in registers, and says so.
NOT_IN_REGISTERS = {
    "control.augmented_assignment_on_parts": "cannot be taken out",
    "control.slices_with_static_starts_and_strides": "cannot be taken out",
    "reductions.cumulative_sum_with_a_carry": "cannot be taken out",
    "reductions.running_maximum": "cannot be taken out",
    "reductions.variance_in_one_pass": "cannot be taken out",
    "control.fori_loop_that_writes_a_ref": "use pl.when and pl.loop",
}
# Pallas' interpreter moves a window that begins before its array.
CLAMPED = {"specs.a_convolution_that_masks_its_padding"}


@pytest.mark.gpu
@pytest.mark.parametrize("name, call", single_calls().items())
def test_the_corpus_under_triton(name, call):
    f, operands = call
    try:
        program = f.trace(*operands).lower("triton").function(interpret=True)
        got = jax.jit(program, compiler_options=QUICK)(*jax.tree.leaves(operands))
    except pl.NotSupportedError as error:
        assert NOT_IN_REGISTERS.get(name, "starts its own copies") in str(error) and "lower" in str(error)
        return
    assert name not in NOT_IN_REGISTERS
    if name in CLAMPED:
        return
    expected = CASES[name].expected
    want = jax.tree.leaves(expected(*operands) if expected else f(*operands))
    for a, b in zip(got, want, strict=True):
        compare(a, b)


# -- axes

def test_parallel_axes_become_the_cuda_grid_and_the_others_a_loop():
    text = matmul(256, (64, 64, 64)).trace(shape(256, 256), shape(256, 256)).lower("triton").as_text()
    assert "tt.get_program_id x" in text and "tt.get_program_id y" in text and "scf.for" in text
    assert "scf.for" not in add(256).trace(shape(256, 256), shape(256, 256)).lower("triton").as_text()


@pytest.mark.parametrize("platform", ["triton", "mosaic_gpu"])
def test_accumulating_across_a_parallel_axis_is_refused(platform):
    f = matmul(256, (64, 64, 64), semantics=("parallel", "parallel", "parallel"))
    with pytest.raises(pl.PallasLiteError, match="(?s)grid axis 2 is marked parallel.*steps 0 and 1 both write block "
                                                 r"\(0, 0\) of output o.*Mark axis 2 \"arbitrary\""):
        f.trace(shape(256, 256), shape(256, 256)).lower(platform)


def test_scratch_may_carry_a_value_so_nothing_is_parallel_unless_it_is_marked():
    traced = KERNELS["running sum"][0].trace(shape(32, 128))
    assert "get_program_id" not in traced.lower("triton").as_text()


def test_gpu_is_triton():
    assert isinstance(add().trace(shape(512, 512), shape(512, 512)).lower("gpu"), cuda.TritonLowered)


# -- what is refused, and how to mend it

def refused(f, *avals, platform):
    with pytest.raises(pl.PallasLiteError) as error:
        f.trace(*avals).lower(platform).as_text()
    return str(error.value)


def test_triton_wants_powers_of_two():
    spec = pl.BlockSpec((8, 96), lambda i: (i, 0))
    f = pl.pallas_call(double, shape(32, 96), grid=(4,), in_specs=[spec], out_specs=spec)
    text = refused(f, shape(32, 96), platform="triton")
    assert "x: Triton takes arrays of a power of two elements" in text and "(8, 96), which is 768" in text
    assert "Choose such a block_shape" in text and 'or try to lower it to "mosaic_gpu"' in text


@pytest.mark.gpu
def test_mosaic_gpu_wants_no_powers_of_two(dialect):
    spec = pl.BlockSpec((8, 96), lambda i: (i, 0))
    f = pl.pallas_call(double, shape(32, 96), grid=(4,), in_specs=[spec], out_specs=spec)
    assert "gpu.launch" in f.trace(shape(32, 96)).lower("mosaic_gpu").as_text()


def test_triton_keeps_what_is_read_back_in_registers():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        o_ref[0] += 1.0
    f = pl.pallas_call(kernel, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS)
    text = refused(f, shape(32, 128), platform="triton")
    assert "o: the kernel reads it back, so Triton keeps it in registers" in text and "(1, 128) of (8, 128)" in text


@pytest.mark.gpu
@pytest.mark.parametrize("array, block, dtype, text", [
    ((32, 96), (2, 48), jnp.bfloat16, r"a block of \(2, 48\) bfloat16 is 192 bytes"),
    ((32, 66), (8, 64), jnp.float32, "264 bytes, and bulk tensor copies want a multiple of 16. Pad the last dimension"),
    ((2, 512), (2, 512), jnp.float32, "at most 256 elements in a dimension"),
    ((32, 128), (8, 128), jnp.bool_, "Give an int8 array"),
    ((32, 32), (2, 32), jnp.float32, "64 elements, and Mosaic GPU spreads a value evenly over the 128 threads"),
])
def test_what_bulk_tensor_copies_cannot_move(array, block, dtype, text, dialect):
    def copy(x_ref, o_ref):
        o_ref[...] = x_ref[...]
    spec = pl.BlockSpec(block, lambda i: (i, 0))
    f = pl.pallas_call(copy, shape(*array, dtype=dtype), grid=(array[0] // block[0],), in_specs=[spec], out_specs=spec)
    assert re.search(text, refused(f, shape(*array, dtype=dtype), platform="mosaic_gpu"))


def dot(x, y):
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("x, y, multiply, text", [
    (shape(32, 64, dtype=BF16), shape(64, 64, dtype=BF16), lambda x, y: dot(x[...], y[...]), "m in multiples of 64"),
    (shape(64, 24, dtype=BF16), shape(24, 64, dtype=BF16), lambda x, y: dot(x[...], y[...]), "k in multiples of 16"),
    (shape(64, 64, dtype=BF16), shape(64, 24, dtype=BF16), lambda x, y: dot(x[...], y[...]), "n in multiples of 16"),
    (shape(64, 64, dtype=BF16), shape(20, 64, dtype=BF16), lambda x, y: dot(x[...], y[...].T), "n in multiples of 8"),
    (shape(64, 32), shape(64, 12), lambda x, y: dot(x[:, :12], y[...].T), "from shared memory, with k along the rows"),
    (shape(64, 32), shape(32, 64), lambda x, y: dot(x[...], y[...]), "Give w transposed, and write jnp.dot"),
    (shape(64, 32), shape(64, 32), lambda x, y: jnp.dot(x[...], y[...].T, precision="highest"), "precision=HIGHEST"),
    (shape(64, 64, dtype=BF16), shape(64, 64), lambda x, y: dot(x[...], y[...]), "Cast the arrays before the call"),
    (shape(64, 64, dtype=jnp.int8), shape(64, 64, dtype=jnp.int8), lambda x, y: dot(x[...], y[...]), "of bfloat16, of"),
    (shape(64, 64, dtype=BF16), shape(64, 64, dtype=BF16), lambda x, y: dot(x[...], -y[...]), "the whole block"),
    (shape(2, 64, 64, dtype=BF16), shape(2, 64, 64, dtype=BF16),
     lambda x, y: jnp.einsum("bmk,bkn->bmn", x[...], y[...])[0], "blocks of two dimensions"),
])
def test_what_wgmma_does_not_multiply(x, y, multiply, text, dialect):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = multiply(x_ref, y_ref).astype(jnp.float32)
    result = jax.eval_shape(multiply, jnp.zeros(x.shape, x.dtype), jnp.zeros(y.shape, y.dtype))
    said = refused(pl.pallas_call(kernel, shape(*result.shape)), x, y, platform="mosaic_gpu")
    assert text in said and said.startswith("kernel: the matmul of ") and 'or lower to "triton"' in said


@pytest.mark.gpu
def test_a_matmul_in_a_loop_of_the_kernel_is_refused_by_name(dialect):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jax.lax.fori_loop(0, 2, lambda i, s: s + dot(x_ref[...], y_ref[...]), jnp.zeros((64, 64)))
    x = shape(64, 64, dtype=BF16)
    said = refused(pl.pallas_call(kernel, shape(64, 64)), x, x, platform="mosaic_gpu")
    assert "a matmul inside lax.scan is not lowered" in said and "Let the grid count" in said


@pytest.mark.gpu
@pytest.mark.parametrize("platform", ["triton", "mosaic_gpu"])
def test_what_lies_in_registers_does_not_leave_a_branch_of_jax(platform, dialect):
    def kernel(x_ref, y_ref, o_ref):
        def add():
            o_ref[...] += dot(x_ref[...], y_ref[...])
        o_ref[...] = jnp.zeros_like(o_ref)
        jax.lax.cond(x_ref[0, 0] > 0, add, lambda: None)
        o_ref[...] = 2 * o_ref[...]
    x = shape(64, 64, dtype=BF16)
    said = refused(pl.pallas_call(kernel, shape(64, 64)), x, x, platform=platform)
    assert "use pl.when and pl.loop" in said and "in registers" in said


@pytest.mark.gpu
def test_shared_memory_that_does_not_fit_is_itemised(dialect):
    text = refused(add(512, 128, 2, ("arbitrary",) * 2), shape(512, 512), shape(512, 512), platform="mosaic_gpu")
    assert "it needs 393,248 bytes of shared memory, and a CUDA block has 232,448" in text  # as Mosaic GPU counts it
    assert "x: 131,072 bytes" in text and "barriers: 32 bytes" in text and "smaller depth" in text


def test_kernels_with_copies_of_their_own_are_for_a_tpu():
    def kernel(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)
    f = pl.pallas_call(kernel, shape(8, 128), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                       out_specs=pl.BlockSpec(memory_space=pl.ANY))
    assert 'lower it to "tpu"' in refused(f, shape(8, 128), platform="triton")


def test_a_missing_compiler_names_the_extra(monkeypatch):
    def missing(**_):
        raise RuntimeError("no plug-in")
    monkeypatch.setattr(topologies, "get_topology_desc", missing)
    program = add().trace(shape(512, 512), shape(512, 512)).lower("triton")
    with pytest.raises(pl.NotSupportedError, match=r'pip install "pallas_lite\[gpu\]"'):
        program.compile()
    assert "tt.load" in program.as_text()  # everything else still works


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pallas_lite.lowering.mosaic_gpu", None)
    monkeypatch.delattr("pallas_lite.lowering.mosaic_gpu", raising=False)
    with pytest.raises(pl.NotSupportedError, match=r'pip install "pallas_lite\[gpu\]"'):
        add().trace(shape(512, 512), shape(512, 512)).lower("mosaic_gpu").as_text()


def test_another_chip_is_not_known():
    with pytest.raises(pl.NotSupportedError, match="GPU 'mi300' is not supported; there is 'h200'"):
        add().trace(shape(512, 512), shape(512, 512)).lower("triton").compile("mi300")


def test_this_is_a_jax_that_cuda_py_was_tried_on():
    assert any(jax.__version__.startswith(v) for v in cuda.TRIED_ON)
