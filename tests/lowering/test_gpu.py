"""GPU programs: right on a CPU under Pallas' interpreters, and compiled for sm_90a with no GPU.

Tests marked gpu need the [gpu] extra: CI runs them in an environment of their own (.ci/run).
"""
import importlib.util
import re
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.experimental.pallas import triton as plgpu

import pallas_lite as pl
from benchmarks import gpu as gpu_benchmark
from benchmarks import gpu_memory
from benchmarks._gpu_kernels import MATMUL, add, into_output, marked, matmul, shape, total
from pallas_lite import tpu as pltpu
from pallas_lite.call import Call
from pallas_lite.lowering import cuda
from tests.conftest import require
from tests.corpus import load_all
from tests.corpus.test_corpus import compare

CASES = load_all()
# The CPU programs compile in half the time; jax 0.12 has no such choice.
QUICK = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))
SWAPPED = pl.BlockSpec((8, 128), lambda i: (i ^ 1, 0))  # no sum of multiples of the grid index


@pytest.fixture(scope="module")
def compiler():
    """The CUDA compiler: skip where it is missing, fail in CI."""
    try:
        topologies.get_topology_desc(platform="cuda", target_config=cuda.CHIPS["h200"], topology="1x1x1")
        found = True
    except Exception:  # noqa: BLE001
        found = False
    return require(found, "the CUDA compiler, pallas_lite[gpu],")


@pytest.fixture(scope="module")
def dialect():
    """Mosaic GPU: a part of jax that needs absl-py."""
    require(importlib.util.find_spec("absl"), "absl-py, of pallas_lite[gpu],")


def looking_for_races():
    """Parameters of Mosaic GPU's interpreter."""
    try:
        from jax.experimental.pallas.mosaic_gpu import InterpretGPUParams
    except ImportError:  # jax 0.10.2 has it, without a public name
        from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
    return InterpretGPUParams(detect_races=True)


@pytest.fixture
def interpreter(dialect):
    """Mosaic GPU's interpreter. A race that it finds fails the test."""
    yield looking_for_races()
    assert races() is False


def races():
    """Did the interpreter find a race since it was last asked? None if it ran nothing. It has no public name either."""
    state = sys.modules["jax._src.pallas.mosaic_gpu.interpret.gpu_callbacks"]
    found = state.get_races().races_found if state._races else None
    state.reset_gpu_interpret_mode_state()
    return found


def normal(*dims, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(dims), dtype)


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def running_sum(x_ref, o_ref, sum_ref):
    """A value in scratch goes from each step to the next."""
    @pl.when(pl.program_id(0) == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)
    sum_ref[...] += x_ref[...]
    o_ref[...] = sum_ref[...]


def gathered():
    spec = pltpu.PrefetchScalarGridSpec(1, (4,), [pl.BlockSpec((8, 128), lambda i, rows: (rows[i], 0))],
                                      pl.BlockSpec((8, 128), lambda i, rows: (i, 0)))

    def kernel(rows_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * rows_ref[pl.program_id(0)].astype(jnp.float32)
    return pl.pallas_call(kernel, shape(32, 128), grid_spec=spec)


def gated(x_ref, w_ref, v_ref, o_ref, a_ref, b_ref):
    """Two matmuls of one block, into two accumulators."""
    @pl.when(pl.program_id(2) == 0)
    def _():
        a_ref[...] = jnp.zeros_like(a_ref)
        b_ref[...] = jnp.zeros_like(b_ref)
    a_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    b_ref[...] += jnp.dot(x_ref[...], v_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = jax.nn.silu(a_ref[...]) * b_ref[...]


def triangular(x_ref, w_ref, r_ref, o_ref):
    """Blocks above the diagonal are skipped; the sum starts at another block, and a computed value is multiplied."""
    i, k = pl.program_id(0), pl.program_id(2)

    @pl.when(k == 0)
    def _():
        o_ref[...] = r_ref[...]

    @pl.when(k <= i)
    def _():
        o_ref[...] += jnp.dot(jax.nn.relu(x_ref[...]), w_ref[...], preferred_element_type=jnp.float32)


def scores(x_ref, w_ref, o_ref):
    """One matmul, used twice, and a block that is read in two ways."""
    p = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jnp.where(pl.program_id(0) == 0, 0.5, p * p) - 2.0 * p + x_ref[...].astype(jnp.float32)


def rows_in_a_loop(x_ref, o_ref):
    first = x_ref[0, 0]

    @pl.loop(0, 4)
    def _(i):
        o_ref[pl.ds(2 * i, 2)] = x_ref[pl.ds(6 - 2 * i, 2)] + first


def product_of(kernel, n=128, more=(), dtype=jnp.bfloat16, block=64, **keywords):
    spec = [pl.BlockSpec((block, block), lambda i, j, k: (i, k), pl.Buffered(3)),
            pl.BlockSpec((block, block), lambda i, j, k: (k, j), pl.Buffered(3)), *more]
    m = -(-n // block)
    call = pl.pallas_call(kernel, shape(n, n), grid=(m, m, m), in_specs=spec,
                          out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
                          compiler_params=marked("parallel", "parallel", "arbitrary"), **keywords)
    return call, [normal(n, n).astype(dtype), normal(n, n, seed=1).astype(dtype)]


def with_one_more(product, operand):
    return product[0], [*product[1], operand]


BF16, HALF = jnp.bfloat16, (64, 64, 32)
KERNELS = {
    "add": (add(192, 64), [normal(192, 192), normal(192, 192, seed=1)]),
    "add, one axis a loop": (add(192, 64, semantics=("parallel", "arbitrary")), [normal(192, 192), normal(192, 192)]),
    "add, both axes a loop": (add(192, 64, 3, ("arbitrary", "arbitrary")), [normal(192, 192), normal(192, 192)]),
    "add, depth 1": (add(192, 64, 1, ("parallel", "arbitrary")), [normal(192, 192), normal(192, 192)]),
    "add with tails": (add(200, 64, semantics=("parallel", "arbitrary")), [normal(200, 200), normal(200, 200)]),
    "sum": (total(8, 128), [normal(8, 128, 128)]),
    "matmul": (matmul(128, HALF, 3, BF16), [normal(128, 128).astype(BF16), normal(128, 128, seed=1).astype(BF16)]),
    "matmul f16": (matmul(64, HALF, 2, jnp.float16), [normal(64, 64, dtype=np.float16)] * 2),
    "matmul f32, y.T": (matmul(128, HALF, 4, transposed=True), [normal(128, 128), normal(128, 128, seed=1)]),
    "matmul bf16, y.T": (into_output(128, HALF, 2, BF16, transposed=True), [normal(128, 128).astype(BF16)] * 2),
    "matmul into the output": (into_output(128, HALF, 3, BF16), [normal(128, 128).astype(BF16)] * 2),
    "matmul, all axes a loop": (into_output(128, HALF, 2, BF16, ("arbitrary",) * 3),
                                [normal(128, 128).astype(BF16)] * 2),
    "matmul with tails": (pl.pallas_call(scores, shape(200, 64), grid=(4, 1), in_specs=[
        pl.BlockSpec((64, 64), lambda i, j: (i, 0)), pl.BlockSpec((64, 64), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j))),
        [normal(200, 64).astype(BF16), normal(64, 64).astype(BF16)]),
    "gated": with_one_more(product_of(gated, more=[pl.BlockSpec((64, 64), lambda i, j, k: (k, j))],
                                      scratch_shapes=[pltpu.VMEM((64, 64), jnp.float32)] * 2),
                           normal(128, 128).astype(BF16)),
    "triangular": with_one_more(product_of(triangular, more=[pl.BlockSpec((64, 64), lambda i, j, k: (i, j))]),
                                normal(128, 128, seed=3)),
    "rows in a loop": (pl.pallas_call(rows_in_a_loop, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS),
                       [normal(32, 128)]),
    "running sum": (pl.pallas_call(running_sum, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS,
                                   scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)]), [normal(32, 128)]),
    "blocks by a table": (pl.pallas_call(double, shape(32, 128), grid=(4,), in_specs=[SWAPPED], out_specs=SWAPPED,
                                         compiler_params=marked("arbitrary")), [normal(32, 128)]),
    "prefetched scalars": (gathered(), [jnp.asarray([2, 0, 3, 0], jnp.int32), normal(32, 128)]),
    "in place": (pl.pallas_call(double, shape(32, 128), grid=(4,), in_specs=[ROWS], out_specs=ROWS,
                                input_output_aliases={0: 0}), [normal(32, 128)]),
    "blocks kept": (pl.pallas_call(lambda x_ref, y_ref, o_ref: double(y_ref, o_ref), shape(24, 128), grid=(3, 4),
                                   in_specs=[pl.BlockSpec((8, 128), lambda i, j: (j, 0)),
                                             pl.BlockSpec((8, 128), lambda i, j: (i, 0))],
                                   out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, 0))),
                    [normal(32, 128), normal(24, 128)]),
}


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


@pytest.mark.parametrize("platform", ["triton", pytest.param("mosaic_gpu", marks=pytest.mark.gpu)])
def test_accumulating_across_a_parallel_axis_is_refused(platform, request):
    if platform == "mosaic_gpu":
        request.getfixturevalue("dialect")
    f = matmul(256, (64, 64, 64), semantics=("parallel", "parallel", "parallel"))
    with pytest.raises(pl.PallasLiteError, match="(?s)grid axis 2 is marked parallel.*steps 0 and 1 both write block "
                                                 r"\(0, 0\) of output o.*Mark axis 2 \"arbitrary\""):
        f.trace(shape(256, 256), shape(256, 256)).lower(platform).as_text()


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
    assert "Choose such a block_shape" in text and 'lower to "mosaic_gpu"' in text


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
@pytest.mark.parametrize("case", gpu_benchmark.cases(256), ids=lambda case: case[0])
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
