"""TPU programs under the real TPU compiler, which needs no TPU. A missing libtpu is a skip at home, a failure in CI."""
import importlib.util
import itertools
import os
import re

import jax
import jax.numpy as jnp
import pytest

import pallas_lite as pl
from benchmarks import tpu as table
from pallas_lite import tpu as pltpu
from pallas_lite.call import Call, observe_calls
from pallas_lite.lowering import libtpu
from pallas_lite.lowering.mosaic import CHIPS
from tests.conftest import require
from tests.corpus import load_all

CASES = load_all()
# The same for every chip. The newest compiler also copies bools.
COUNTS = {"compiled": 122, "ours": 58, "compiler": 14, "racy": 1}
if jax.__version_info__ >= (0, 12):
    COUNTS |= {"compiled": 123, "ours": 57}
# What the compiler says of windows. Where it would, our own check has spoken before.
WINDOWS = "aligned to tiles|word size|512 bytes|leading tiles|Scoped allocation"

@pytest.fixture(autouse=True, scope="module")
def compiler():
    require(importlib.util.find_spec("libtpu"), "libtpu")


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def lower(kernel, *arguments, **more):
    call, operands = kernel(pl, *arguments, **more)
    return call.trace(*operands).lower("tpu")


def calls(case):
    """The traces of a case's calls; of a function around calls, those that it makes."""
    call, operands = case.build(pl, pltpu)
    if isinstance(call, Call):
        return [call.trace(*operands)]
    with observe_calls() as seen:
        call(*operands)
    return list(dict.fromkeys(seen))


def test_the_corpus_compiles_or_says_why():
    """Where our check refuses a kernel, so does the compiler; what the compiler refuses beyond that is the body's.

    Each call for one of two chips in turn, as all of them take it a minute; a v5p has the limits of a v5e.
    """
    outcomes = {"compiled": [], "ours": [], "compiler": [], "racy": []}
    traces = [(name, traced) for name, case in CASES.items() for traced in calls(case)]
    for (name, traced), target in zip(traces, itertools.cycle(["v5e", "v6e"]), strict=False):
        try:
            lowered = traced.lower("tpu")
        except pl.PallasLiteError as error:
            assert "free of races" in str(error), name
            outcomes["racy"].append(name)
            continue
        try:
            lowered.compile(target)
            outcomes["compiled"].append(name)
        except pl.NotSupportedError as error:
            assert traced.manual or not re.search(WINDOWS, str(error)), f"{name}: {error}"
            outcomes["compiler"].append(name)
        except pl.PallasLiteError as error:
            assert "the TPU compiler cannot copy the blocks" in str(error)
            assert table.refusal(lowered, target), f"{name}: only we refuse it: {error}"
            outcomes["ours"].append(name)
    assert {what: len(names) for what, names in outcomes.items()} == COUNTS, outcomes


@pytest.mark.parametrize("target", CHIPS)
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
    ((2097152,), (1024,), "float32", 3), ((2097152,), (8192,), "float32", 3), ((2097152,), (1024,), "bfloat16", 3),
    ((4096,), (512,), "int8", 2), ((4096,), (256,), "int8", 1), ((1100,), (1100,), "float32", 4),
    ((1100,), (1100,), "bfloat16", 2), ((4096, 1024), (None, 256), "float32", 3),
    ((32768, 1024), (256, 256), "bool", 3)])
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
        "from a multiple of 64, cuts a tile of 128. Take a multiple of 128 columns in each block, or all 4096.")


@pytest.mark.parametrize("rows, columns, mend", [
    (300, 256, "a copy of 44 rows, from a multiple of 64, cuts a tile of 8. The 44 are what the array's edge leaves "
               "of a block of 64: pad the array to 304 rows, or take all 300 in one block."),
    (256, 300, "a copy of 44 columns, from a multiple of 128, cuts a tile of 128. The 44 are what the array's edge "
               "leaves of a block of 128: pad the array to 384 columns, or take all 300 in one block.")])
def test_an_edge_that_cuts_a_tile_says_to_what_to_pad(rows, columns, mend):
    def lowered(*dims):
        spec = pl.BlockSpec((64, 128), lambda i, j: (i, j))
        like = jax.ShapeDtypeStruct(dims, jnp.float32)
        return pl.pallas_call(double, like, grid=(pl.cdiv(dims[0], 64), pl.cdiv(dims[1], 128)), in_specs=[spec],
                              out_specs=spec).trace(like).lower("tpu")
    with pytest.raises(pl.PallasLiteError, match=re.escape(mend)):
        lowered(rows, columns).compile("v5e")
    lowered(-(-rows // 8) * 8, -(-columns // 128) * 128).compile("v5e")


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def softmax(x_ref, o_ref):
    e = jnp.exp(x_ref[...] - x_ref[...].max(axis=1, keepdims=True))
    o_ref[...] = e / e.sum(axis=1, keepdims=True)


def normalize(x_ref, o_ref):
    centred = x_ref[...] - x_ref[...].mean(axis=1, keepdims=True)
    o_ref[...] = centred * jax.lax.rsqrt((centred * centred).mean(axis=1, keepdims=True))


def cube(x_ref, o_ref):
    square = jnp.dot(x_ref[...], x_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jnp.dot(square, x_ref[...], preferred_element_type=jnp.float32)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("kernel", [softmax, normalize, cube])
def test_what_is_left_for_the_body_is_said(kernel, target):
    def lowered(limit):
        block = pl.BlockSpec((512, 512), lambda i: (i, 0))
        call = pl.pallas_call(kernel, f32(4096, 512), grid=(8,), in_specs=[block], out_specs=block,
                              compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit))
        return call.trace(f32(4096, 512)).lower("tpu")
    lowered(8 * 2**20).compile(target)
    with pytest.raises(pl.NotSupportedError, match=re.escape(
            f"{kernel.__name__}: the TPU compiler refuses the kernel for a TPU. Its windows take 4,194,304 of "
            "4,195,328 bytes of VMEM, which leaves 1,024 for what the kernel itself needs:\n"
            "  x: 2 × float32[512, 512] = 2,097,152 bytes\n  o: 2 × float32[512, 512] = 2,097,152 bytes\n It says:\n"
            ) + r"(.|\n)*Scoped allocation with size 4\.[89]"):
        lowered(4 * 2**20 + 1024).compile(target)


def interleaved(x_ref, o_ref):
    apart = x_ref[...].reshape(2, 4, 4, 32)
    o_ref[...] = apart.transpose(3, 1, 0, 2).reshape(8, 128)


@pytest.mark.skipif(jax.__version_info__ >= (0, 12), reason="the newer compiler has this operation")
def test_an_operation_that_the_compiler_lacks_is_blamed_by_its_line():
    """And nothing is said of VMEM, of which there is enough."""
    call = pl.pallas_call(interleaved, f32(8, 128))
    line = interleaved.__code__.co_firstlineno + 2
    with pytest.raises(pl.NotSupportedError, match=re.escape(
            f"interleaved: the TPU compiler refuses the kernel for a TPU, at line {line} of {__file__}. It says:\n")):
        call.trace(f32(8, 128)).lower("tpu").compile("v6e")


@pytest.mark.parametrize("scopes, taken", [("one", 4), ("nested", 6), ("after each other", 4), ("a pipeline", 6)])
def test_what_a_kernel_allocates_itself_counts_as_a_window(scopes, taken):
    """Ours are the compiler's own bytes: it compiles with just as many, and not with a granule less."""
    def kernel(x_ref, o_ref, scratch_ref):
        def through(buffer, row):
            pltpu.sync_copy(x_ref.at[pl.ds(row, 512)], buffer)
            pltpu.sync_copy(buffer, o_ref.at[pl.ds(row, 512)])

        def nested(buffer):
            through(buffer, 0)
            pl.run_scoped(lambda inner: through(inner, 512), rows)
        rows = pltpu.VMEM((512, 1024), jnp.float32)
        through(scratch_ref, 1024)
        if scopes == "a pipeline":
            spec = pl.BlockSpec((256, 1024), lambda i: (i, 0))
            pltpu.emit_pipeline(softmax, grid=(16,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)
        elif scopes == "nested":
            pl.run_scoped(nested, rows)
        else:
            pl.run_scoped(lambda buffer: through(buffer, 0), rows)
            if scopes == "after each other":
                pl.run_scoped(lambda buffer: through(buffer, 512), rows)

    def lowered(limit):
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        call = pl.pallas_call(kernel, f32(4096, 1024), in_specs=[anywhere], out_specs=anywhere,
                              scratch_shapes=[pltpu.VMEM((512, 1024), jnp.float32)], on_hazard="ignore",
                              compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit))
        return call.trace(f32(4096, 1024)).lower("tpu")
    windows = lowered(None).windows()
    assert sum(w.bytes for w in windows) == taken * 2**20, windows
    if scopes != "a pipeline":  # whose body needs some more
        lowered(taken * 2**20).compile("v5e")
    assert "Scoped allocation" in table.refusal(lowered(taken * 2**20 - 1024), "v5e")
    with pytest.raises(pl.PallasLiteError, match=f"its windows take {taken * 2**20:,} bytes of VMEM, 1,024 more than"):
        lowered(taken * 2**20 - 1024).compile("v5e")


def test_the_limit_can_be_raised():
    call, operands = table.add(pl, 1024)
    more = pl.pallas_call(call.kernel, call.out_shape, grid=call.grid, in_specs=call.in_specs,
                          out_specs=call.out_specs,
                          compiler_params=pltpu.CompilerParams(vmem_limit_bytes=32 * 2**20))
    more.trace(*operands).lower("tpu").compile("v5e")


@pytest.mark.parametrize("target", CHIPS)
def test_the_limit_can_be_raised_as_far_as_there_is_memory(target):
    def lowered(slots):
        rows = pl.BlockSpec((512, 1024), lambda i: (i, 0), pl.Buffered(slots))  # 2 MiB
        call = pl.pallas_call(lambda x_ref, o_ref: None, f32(2**17, 1024), grid=(256,), in_specs=[rows],
                              out_specs=pl.BlockSpec((8, 1024), lambda i: (i, 0)),
                              compiler_params=pltpu.CompilerParams(vmem_limit_bytes=2**30))
        return call.trace(f32(2**17, 1024)).lower("tpu")
    memory = CHIPS[target].machine.physical_sram_bytes
    most = memory // 2**21
    lowered(most - 1).compile(target)
    with pytest.raises(pl.PallasLiteError, match=f"more than the {memory:,} that one kernel may use"):
        lowered(most + 1).compile(target)
    assert re.search(rf"exceed memory \(size={memory}\)|of {memory / 2**20:.2f}M vmem",
                     table.refusal(lowered(most + 1), target))


def test_our_programs_take_no_more_bundles_than_upstreams():
    for name, block, ours, theirs in table.bundle_table(128):
        assert ours[0] <= 1.05 * theirs, f"{name} in blocks of {block}²: {ours[0]} bundles, upstream's {theirs}"


def test_an_unknown_chip_and_a_missing_compiler(monkeypatch):
    lowered = lower(table.add, 128)
    with pytest.raises(pl.NotSupportedError, match="a TPU called 'v9' is not supported; there is 'v5e', 'v5p', 'v6e'"):
        lowered.compile("v9")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pl.NotSupportedError, match=r'pip install "pallas_lite\[tpu\]"'):
        lowered.compile("v5e")


def test_another_version_of_the_compiler_is_named_where_it_fails(monkeypatch):
    def fails(*_):
        raise ValueError("no such field")
    assert libtpu.mismatch() == ""
    monkeypatch.setattr(libtpu, "version", lambda: "0.0.7")
    monkeypatch.setattr(libtpu, "compiled", fails)
    with pytest.raises(pl.NotSupportedError, match=r"no such field libtpu is 0\.0\.7, but jax .* asks for 0\.0\.[45]"):
        lower(table.add, 128).compile("v5e")


def test_a_compiler_that_aborts_is_an_error_and_the_process_lives(monkeypatch):
    """libtpu 0.0.50 aborts on a vector of bools that is made a column; any compiler may be killed."""
    monkeypatch.setattr(libtpu, "CALM", "none")
    stage = libtpu._stage(os.getpid())
    stage.kill()
    with pytest.raises(pl.NotSupportedError, match=r"It says:\nlibtpu .* ended its process, which was not this one: "):
        lower(table.add, 128).compile("v5e")
    lower(table.add, 128).compile("v5e")

    def column(x_ref, o_ref):
        o_ref[...] = jnp.where((jnp.arange(8) > 3)[:, None], x_ref[...], 0)
    with pytest.raises(pl.NotSupportedError, match="tpu.reshape|ended its process, .* Check failed"):
        pl.pallas_call(column, f32(8, 128)).trace(f32(8, 128)).lower("tpu").compile("v5e")
    lower(table.add, 128).compile("v5e")
