"""What a kernel written for Pallas meets here: windows by element, backends, JAX's transformations, refusals.

Values of whole kernels are in tests/corpus/; here are the edges of the contract, and messages.
"""
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as upstream

import pallas_lite as pl
from pallas_lite import tpu as pltpu


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


BLOCK = pl.BlockSpec((4,), lambda i: (i,))
FIRST = pl.BlockSpec((4,), lambda i: (0,))
X8 = np.random.default_rng(0).standard_normal(8).astype(np.float32)


# -- windows by element

@settings(max_examples=25)
@given(size=st.integers(1, 9), n=st.integers(1, 5), before=st.integers(0, 3), after=st.integers(0, 3), data=st.data())
def test_any_window_on_both_backends(size, n, before, after, data):
    """Against plain slicing of a padded array: cells outside are left to memory, which starts at 77."""
    offsets = data.draw(st.lists(st.integers(0, before + size + after - 1), min_size=1, max_size=4))
    x = np.arange(1, size + 1, dtype=np.int32)
    spec = pltpu.PrefetchScalarGridSpec(1, (len(offsets),), [
        pl.BlockSpec((pl.Element(n, (before, after)),), lambda i, at: (at[i],))],
        pl.BlockSpec((None, n), lambda i, at: (i, 0)))
    slots, want, last = [np.full(n, 77), np.full(n, 77)], [], (None, -1)
    for offset in offsets:
        if offset != last[0]:
            last = offset, last[1] + 1
            inside = [(k, offset - before + k) for k in range(n) if 0 <= offset - before + k < size]
            for k, cell in inside:
                slots[last[1] % 2][k] = x[cell]
        want.append(slots[last[1] % 2].copy())

    def kernel(at_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]
    for backend in ("simulate", "xla"):
        f = pl.pallas_call(kernel, shape(len(offsets), n, dtype=jnp.int32), grid_spec=spec, on_hazard="ignore",
                           backend=backend, interpret=pl.InterpretParams(uninitialized_memory=77))
        np.testing.assert_array_equal(f(np.array(offsets, np.int32), x), np.array(want), err_msg=backend)


def test_windows_that_overlap_in_an_output_race():
    # Both copies-out are in flight when the second begins, and both write o[2:4].
    f = pl.pallas_call(copy, shape(6), grid=(2,), in_specs=[BLOCK],
                       out_specs=pl.BlockSpec((pl.Element(4),), lambda i: (2 * i,)))
    assert {h.kind for h in f.trace(shape(8)).hazards} == {"hbm race"}


def test_windows_that_leave_a_gap_are_named():
    f = pl.pallas_call(copy, shape(10), grid=(2,), in_specs=[BLOCK],
                       out_specs=pl.BlockSpec((pl.Element(4),), lambda i: (6 * i,)))
    with pytest.warns(pl.HazardWarning, match=r"output o: no step visits 2 of its 10 elements, the first is o\[4\]"):
        got = f(X8)
    np.testing.assert_array_equal(np.delete(got, [4, 5]), X8)


def test_an_offset_outside_the_padded_array_is_an_error():
    f = pl.pallas_call(copy, shape(8), grid=(2,), out_specs=BLOCK,
                       in_specs=[pl.BlockSpec((pl.Element(4, padding=(1, 2)),), lambda i: (11 * i,))])
    with pytest.raises(pl.BlockIndexError, match=r"operand x, step 1: index_map gives \(11,\), but element offset "
                       r"11 is out of range in dimension 0 \(8 elements with padding \(1, 2\), so 0 to 10\)"):
        f(X8)


# -- backends and transformations

def test_the_backends_agree_and_others_are_refused():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    calls = [pl.pallas_call(kernel, shape(4), grid=(2,), in_specs=[BLOCK], out_specs=FIRST, backend=b)
             for b in (None, "simulate", "xla")]
    assert len({np.asarray(f(X8)).tobytes() for f in calls}) == 1
    with pytest.raises(pl.NotSupportedError, match="cannot run under jax.jit or jax.vmap.*backend=\"xla\""):
        jax.jit(calls[1])(X8)
    with pytest.raises(pl.NotSupportedError, match="backend='tpu'.*jax.experimental.pallas"):
        pl.pallas_call(kernel, shape(4), backend="tpu")


def test_the_xla_backend_refuses_a_race():
    f = pl.pallas_call(copy, shape(4), grid=(4,), in_specs=[pl.BlockSpec((1,), lambda i: (jnp.maximum(i - 1, 0),))],
                       out_specs=pl.BlockSpec((1,), lambda i: (i,)), input_output_aliases={0: 0}, backend="xla",
                       on_hazard="ignore")
    with pytest.raises(pl.PallasLiteError, match='with backend="xla" a call must be free of races'):
        f(np.ones(4, np.float32))


def test_the_refusal_names_a_race_where_another_hazard_comes_first():
    f = pl.pallas_call(copy, shape(4), grid=(5,), in_specs=[pl.BlockSpec((2,), lambda i: (i // 4,))],
                       out_specs=pl.BlockSpec((2,), lambda i: (i % 2,)), input_output_aliases={0: 0}, backend="xla",
                       on_hazard="ignore")
    assert [h.kind for h in f.trace(shape(4)).hazards] == ["revisit", "hbm race"]
    with pytest.raises(pl.PallasLiteError, match="free of races, and this one has: step 3: copy_out of x"):
        f(np.ones(4, np.float32))


def test_vmap_of_jit_of_a_kernel_with_when():
    def kernel(x_ref, o_ref):
        @pl.when(x_ref[0] > 0)  # differs from batch to batch
        def _():
            o_ref[...] = x_ref[...]

        @pl.when(x_ref[0] <= 0)
        def _():
            o_ref[...] = -x_ref[...]
    f = pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK, on_hazard="ignore")
    xs = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)
    want = np.concatenate([np.sign(xs[..., [0]]) * xs[..., :4], np.sign(xs[..., [4]]) * xs[..., 4:]], axis=-1)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(jax.jit(f)))(xs), want)


def test_traced_scalars_choose_the_blocks_and_can_be_mapped():
    spec = pltpu.PrefetchScalarGridSpec(1, (2,), [pl.BlockSpec((4,), lambda i, which: (which[i],))],
                                        pl.BlockSpec((4,), lambda i, which: (i,)))
    f = pl.pallas_call(lambda which_ref, x_ref, o_ref: copy(x_ref, o_ref), shape(8), grid_spec=spec)
    which = np.array([[1, 0], [1, 1], [0, 0]], np.int32)
    want = X8.reshape(2, 4)[which].reshape(3, 8)
    np.testing.assert_array_equal(jax.jit(f)(which[0], X8), want[0])
    np.testing.assert_array_equal(jax.vmap(f, (0, None))(which, X8), want)
    with pytest.raises(pl.NotSupportedError, match="must be concrete arrays here"):
        f.trace(shape(2, dtype=jnp.int32), X8)


def test_prefetched_floats_are_refused():
    spec = pltpu.PrefetchScalarGridSpec(1, (2,), [pl.BlockSpec((4,), lambda i, s: (i,))],
                                        pl.BlockSpec((4,), lambda i, s: (i,)))
    f = pl.pallas_call(lambda s_ref, x_ref, o_ref: copy(x_ref, o_ref), shape(8), grid_spec=spec)
    with pytest.raises(pl.SpecError, match="prefetched scalar operand is float32; .*memory_space=pltpu.SMEM"):
        f(np.ones(2, np.float32), X8)


def test_debug_print_prints_once_a_step(capfd):
    def kernel(x_ref, o_ref):
        pl.debug_print("step {} of {}", pl.program_id(0), pl.num_programs(0))

        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]  # the report about values runs the kernel on other fillings too
    pl.pallas_call(kernel, shape(4), grid=(2,), in_specs=[BLOCK], out_specs=FIRST)(X8)
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "step 0 of 2", "step 1 of 2"]


def test_a_negative_axis_counts_from_the_end():
    def kernel(o_ref):
        o_ref[...] = jnp.full((1, 1), pl.program_id(-1) + 10 * pl.num_programs(-2))
    f = pl.pallas_call(kernel, shape(2, 3, dtype=jnp.int32), grid=(2, 3), out_specs=pl.BlockSpec((1, 1), lambda *i: i))
    assert f().tolist() == [[20, 21, 22]] * 2


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2", "uint32", "int16", "float16"])
def test_small_and_odd_types_pass_through_a_tail(dtype):
    f = pl.pallas_call(copy, shape(6, dtype=dtype), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(jnp.arange(6).astype(dtype)).astype(int).tolist() == [*range(6)]


# -- refused, as Pallas refuses it

ARRAY = np.array([1.0, 2, 3, 4], np.float32)
TABLE = np.array([1, 0])
TRACED_TABLE = jnp.array([1, 0])


def adds(value):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + value()
    return pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)


def indexed(index_map):
    return pl.pallas_call(copy, shape(8), grid=(2,), in_specs=[pl.BlockSpec((4,), index_map)], out_specs=BLOCK)


@pytest.mark.parametrize("call, text", [
    (lambda: adds(lambda: ARRAY)(X8), r"kernel uses an array from outside \(float32\[4\]\).*Pass the array as an in"),
    (lambda: pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + ARRAY), shape(4))(ARRAY),
     r"uses an array from outside \(ARRAY\)"),
    (lambda: adds(lambda: jnp.array([ARRAY.shape[0], 2, 3, 4.0]))(X8),  # of the array outside, it asks the shape only
     r"an array from outside \(float32\[4\]\) or made of given numbers, as jnp.array\(\[1, 2\]\) is"),
    (lambda: adds(lambda: jnp.float32(3) * 1)(X8), None),
    (lambda: adds(lambda: np.float32(3))(X8), None),
    (lambda: indexed(lambda i: (TABLE[i],))(X8), "Pallas traces its index_map.*NumPy array, a prefetched scalar"),
    (lambda: indexed(lambda i: (max(i - 1, 0),))(X8), "Pallas traces its index_map.*jnp.maximum"),
    (lambda: indexed(lambda i: (0 if i == 0 else 1,))(X8), "Pallas traces its index_map.*jnp.where"),
    (lambda: indexed(lambda i: (TRACED_TABLE[i],))(X8), r"index_map holds an array \(int32\[2\]\).*prefetched scalar"),
    (lambda: jax.jit(lambda n: pl.pallas_call(copy, shape(8), grid=(n,))(X8))(2),
     r"1 or more, not .*\. A grid that only the running program knows is not supported: make its size static for jax"),
    (lambda: pl.pallas_call(copy, shape(8), grid=(2.0,)), "whole number of steps"),
    (lambda: pl.pallas_call(copy, shape(8), grid=(jnp.int32(2),), in_specs=[BLOCK], out_specs=BLOCK)(X8), None),
    (lambda: pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[::-1]), shape(8))(X8),
     "not read backwards"),
    (lambda: pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref.reshape(8)), shape(8))(X8),
     r"x is a ref, and has no reshape: read it first, x\[...\].reshape"),
    (lambda: pl.pallas_call(lambda x_ref, o_ref: copy(x_ref[pl.program_id(0):][:4], o_ref), shape(4), grid=(1,))(X8),
     r"bounds that only a running step knows.*pl.ds\(start, size\)"),
    (lambda: pl.pallas_call(copy, shape(8), scratch_shapes=pltpu.VMEM((4,), jnp.float32))(X8), "give a list or a dict"),
    (lambda: pl.pallas_call(lambda xs, o_ref: copy(xs["a"], o_ref), shape(8), in_specs=[BLOCK, BLOCK], grid=(2,),
                            out_specs=BLOCK)({"a": X8, "b": X8}), "in_specs nest as .* Nest them alike"),
    (lambda: pl.pallas_call(copy, shape(8), grid=(2,), in_specs=[BLOCK, BLOCK], out_specs=BLOCK)((X8, X8)),
     r"in_specs nest as \(\*, \*\), but the operands as \(\(\*, \*\),\). Call it on the operands one by one"),
])
def test_what_pallas_refuses_is_refused_with_a_mend(call, text):
    if text is None:
        call()
        return
    with pytest.raises(pl.PallasLiteError, match=text):
        call()


def test_an_unknown_compiler_setting_is_an_error():
    assert pltpu.CompilerParams(("parallel",), vmem_limit_bytes=3).vmem_limit_bytes == 3
    with pytest.raises(TypeError, match="dimension_semantic"):
        pltpu.CompilerParams(dimension_semantic=("parallel",))


@pytest.mark.parametrize("name, mend", [
    ("bitcast", "read it first, jax.lax.bitcast_convert_type(x[...], dtype)"), ("get", "read it, x[...]"),
    ("set", "write it, x[...] = value"), ("addupdate", "write it, x[...] += value"),
    ("swap", "read it, old = x[...], and write it, x[...] = new"), ("T", "read it first, x[...].T"),
    ("unpack", "its value is x[...]")])
def test_what_a_ref_has_not_is_mended_by_what_there_is(name, mend):
    with pytest.raises(pl.NotSupportedError) as error:
        pl.pallas_call(lambda x_ref, o_ref: getattr(x_ref, name), shape(8))(X8)
    assert str(error.value) == f"x is a ref, and has no {name}: {mend}."
    if name not in ("bitcast", "get", "set", "addupdate", "swap"):
        assert hasattr(X8, name) == (name != "unpack")


def test_the_mend_of_a_bitcast_gives_what_upstream_gives():
    def theirs(x_ref, o_ref):
        o_ref[...] = x_ref.bitcast(jnp.int32)[...]

    def mended(x_ref, o_ref):
        o_ref[...] = jax.lax.bitcast_convert_type(x_ref[...], jnp.int32)
    x, out = np.ones((8, 128), np.float32), jax.ShapeDtypeStruct((8, 128), jnp.int32)
    np.testing.assert_array_equal(pl.pallas_call(mended, out)(x), upstream.pallas_call(theirs, out, interpret=True)(x))
