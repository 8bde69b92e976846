"""TPU programs under the real TPU compiler, which needs no TPU. A missing libtpu is a skip at home, a failure in CI."""
import importlib.util
import re

import jax
import jax.numpy as jnp
import pytest

import pallas_lite as pl
from benchmarks import tpu as table
from pallas_lite import tpu as pltpu
from pallas_lite.call import Call
from tests.conftest import require
from tests.corpus import load_all

CASES = load_all()
# What the compiler says of windows. Where it would, our own check has spoken before.
WINDOWS = "aligned to tiles|word size|512 bytes|leading tiles|Scoped allocation"

# libtpu 0.0.50 (jax 0.12) does not refuse these: it aborts the process (layout.h: Check failed: rem == 0).
ABORTS = {"specs.a_convolution_that_masks_its_padding"} if jax.__version_info__ >= (0, 12) else set()


@pytest.fixture(autouse=True, scope="module")
def compiler():
    require(importlib.util.find_spec("libtpu"), "libtpu")


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def lower(kernel, *arguments, **more):
    call, operands = kernel(pl, *arguments, **more)
    return call.trace(*operands).lower("tpu")


def test_the_corpus_compiles_or_says_why():
    """Where our check refuses a kernel, so does the compiler; what the compiler refuses beyond that is the body's."""
    outcomes = {"compiled": 0, "ours": 0, "compiler": 0}
    for name, case in CASES.items():
        call, operands = case.build(pl, pltpu)
        if not isinstance(call, Call) or name in ABORTS:
            continue
        try:
            lowered = call.trace(*operands).lower("tpu")
        except pl.PallasLiteError as error:
            assert "free of races" in str(error), name
            continue
        try:
            lowered.compile("v5e")
            outcomes["compiled"] += 1
        except pl.NotSupportedError as error:
            assert lowered.traced.manual or not re.search(WINDOWS, str(error)), f"{name}: {error}"
            outcomes["compiler"] += 1
        except pl.PallasLiteError as error:
            assert "the TPU compiler cannot copy the blocks" in str(error)
            if "copies bools" not in str(error):  # libtpu 0.0.50 compiles some, and aborts on others
                assert table.refusal(lowered, "v5e"), f"{name}: only we refuse it: {error}"
            outcomes["ours"] += 1
    assert outcomes["compiled"] > 50 and min(outcomes.values()) > 10, outcomes


@pytest.mark.parametrize("target", ["v5e", "v5p", "v6e"])
@pytest.mark.parametrize("name", table.KERNELS)
def test_the_three_kernels_compile_at_every_depth(name, target):
    for depth in (1, 2, 3, 4):
        compiled = lower(table.KERNELS[name], 256, depth).compile(target)
        assert compiled.memory_analysis().argument_size_in_bytes > 0
        assert compiled.cost_analysis()
    assert "custom-call" in compiled.as_text()


@pytest.mark.parametrize("shape, block, dtype, depth", [
    ((2048, 1024), (256, 256), "float32", 3), ((2048, 1024), (512, 128), "bfloat16", 2),
    ((4096, 1024), (8, 128), "int8", 4),
    ((8192, 128), (5, 128), "float32", 1), ((65536, 5, 256), (8, 5, 256), "float32", 2),
    ((4096, 1024), (1, 128), "bfloat16", 2), ((3000, 500), (100, 100), "float32", 2),
    ((2097152,), (1024,), "float32", 3), ((2097152,), (1024,), "bfloat16", 3)])
def test_windows_are_the_compilers(shape, block, dtype, depth):
    taken, what, agree = table.window_row(shape, block, dtype, depth)
    assert agree, f"{taken} bytes, {what}"


def test_windows_that_do_not_fit_are_refused_first_with_the_same_bytes():
    lowered = lower(table.add, 1024)
    with pytest.raises(pl.PallasLiteError, match=re.escape(
            "kernel: its windows take 25,165,824 bytes of VMEM, 8,388,608 more than the 16,777,216 that one kernel may "
            "use on a TPU v5e:\n  x: 2 × float32[1024, 1024] = 8,388,608 bytes\n")):
        lowered.compile("v5e")
    assert "Scoped allocation with size 24.00M and limit 16.00M" in table.refusal(lowered, "v5e")
    lowered.compile("v6e")  # which has twice as much


def test_a_tile_that_a_copy_would_cut_is_named():
    with pytest.raises(pl.PallasLiteError) as refused:
        lower(table.add, 64).compile("v5e")
    assert str(refused.value) == (
        "kernel: the TPU compiler cannot copy the blocks (64, 64) of x (float32[4096, 4096]): a copy of 64 columns, "
        "from a multiple of 64, cuts a tile of 128. Take a multiple of 128 columns in each block, or just all 4096.")


def softmax(limit):
    def kernel(x_ref, o_ref):
        e = jnp.exp(x_ref[...] - x_ref[...].max(axis=1, keepdims=True))
        o_ref[...] = e / e.sum(axis=1, keepdims=True)
    block = pl.BlockSpec((512, 512), lambda i: (i, 0))
    call = pl.pallas_call(kernel, f32(4096, 512), grid=(8,), in_specs=[block], out_specs=block, name="softmax",
                          compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit))
    return call.trace(f32(4096, 512)).lower("tpu")


def test_what_is_left_for_the_body_is_said():
    softmax(8 * 2**20).compile("v5e")
    with pytest.raises(pl.NotSupportedError, match=re.escape(
            "softmax: the TPU compiler refuses the kernel for a TPU. Its windows take 4,194,304 of 4,195,328 bytes of "
            "VMEM, which leaves 1,024 for what the kernel itself needs:\n  x: 2 × float32[512, 512] = 2,097,152 bytes\n"
            "  o: 2 × float32[512, 512] = 2,097,152 bytes\n It says:\n") + "(.|\n)*Scoped allocation with size"):
        softmax(4 * 2**20 + 1024).compile("v5e")


def test_the_limit_can_be_raised():
    call, operands = table.add(pl, 1024)
    more = pl.pallas_call(call.kernel, call.out_shape, grid=call.grid, in_specs=call.in_specs,
                          out_specs=call.out_specs,
                          compiler_params=pltpu.CompilerParams(vmem_limit_bytes=32 * 2**20))
    more.trace(*operands).lower("tpu").compile("v5e")


def test_our_programs_take_no_more_bundles_than_upstreams():
    for name, block, ours, theirs in table.bundle_table(128):
        assert ours[0] <= 1.05 * theirs, f"{name} in blocks of {block}²: {ours[0]} bundles, upstream's {theirs}"


def test_an_unknown_chip_and_a_missing_compiler(monkeypatch):
    lowered = lower(table.add, 128)
    with pytest.raises(pl.NotSupportedError, match="a TPU called 'v9' is not supported; there is 'v5e', 'v5p', 'v6e'"):
        lowered.compile("v9")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    from pallas_lite import mosaic
    mosaic._device.cache_clear()
    with pytest.raises(pl.NotSupportedError, match=r'pip install "pallas_lite\[tpu\]"'):
        lowered.compile("v5e")
    mosaic._device.cache_clear()
