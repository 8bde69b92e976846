"""What upstream's interpret=True runs, runs here, with the same results: in and out of jax.jit, and with 64 bits."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as upstream
from jax.experimental.pallas import tpu as upstream_tpu

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.call import KEPT
from tests.corpus import load_all
from tests.corpus.test_corpus import compare, compile_quickly, upstream_result  # noqa: F401  a fixture

X = np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)
ROWS = (8, 12), lambda i, *_: (i, 0)


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def ways(f):
    """A call as users make it: on arrays; on traced values; on arrays while a function around it is traced."""
    return {"eager": f, "jit": jax.jit(f), "within jit": lambda *given: jax.jit(lambda: f(*given))()}


def agree(build, *operands):
    """`build(pl, pltpu, **more)` makes the call, which must give in all ways what upstream's gives."""
    want = build(upstream, upstream_tpu, interpret=True)(*operands)
    for way, run in ways(build(pl, pltpu)).items():
        got = run(*operands)
        assert (way, got.shape, got.dtype) == (way, want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=way)


# -- loops whose bounds only a running step knows

LOOPS = {
    "pl.loop": lambda pl, n, f: pl.loop(0, n)(f),
    "pl.loop, carry": lambda pl, n, f: pl.loop(1, n + 2, step=2, init_carry=0)(lambda r, c: (f(r), c + r)[1]),
    "fori_loop": lambda pl, n, f: lax.fori_loop(0, n, lambda r, c: (f(r), c)[1], 0),
    "fori_loop, static": lambda pl, n, f: lax.fori_loop(0, 3, lambda r, _: f(r), None),
    "while_loop": lambda pl, n, f: lax.while_loop(lambda r: r < n, lambda r: (f(r), r + 1)[1], jnp.int32(0)),
    "nested, in branches": lambda pl, n, f: lax.fori_loop(
        0, n, lambda a, _: pl.when(a > 0)(lambda: lax.fori_loop(0, n, lambda r, _: f(r), None) or None), None),
}
WRITES = {
    "slice": lambda pl, x, o, r: o.__setitem__(slice(0, 4), o[0:4] + x[4:8]),
    "columns": lambda pl, x, o, r: o.__setitem__((slice(None), slice(0, 6)), o[:, 6:12] * 0.5),
    "row": lambda pl, x, o, r: o.__setitem__(-1, o[-1] + x[1]),
    "element": lambda pl, x, o, r: o.__setitem__((0, 3), o[0, 3] + x[1, 2]),
    "view": lambda pl, x, o, r: o.at[2:6].__setitem__((pl.ds(1, 2), slice(None)), x.at[0:2][...]),
    "stride": lambda pl, x, o, r: o.__setitem__((pl.ds(0, 4, 2), slice(None)), o[pl.ds(1, 4, 2), :] + 1.0),
    "row and part of it": lambda pl, x, o, r: o.__setitem__((r, slice(0, 4)), o[r, 4:8] + x[0, 0:4]),
    "whole": lambda pl, x, o, r: o.__setitem__(..., o[...] + x[...]),
}


@pytest.mark.parametrize("loop, write", [*[(loop, "slice") for loop in LOOPS], *[("fori_loop", w) for w in WRITES],
                                         ("nested, in branches", "row and part of it"), ("while_loop", "element")])
def test_a_loop_that_writes_part_of_a_ref(loop, write):
    def build(pl, pltpu, **more):
        def kernel(x_ref, o_ref):
            o_ref[...] = jnp.ones_like(o_ref)
            LOOPS[loop](pl, pl.program_id(0) + 1, lambda r: WRITES[write](pl, x_ref, o_ref, r))
        rows = pl.BlockSpec(*ROWS)
        return pl.pallas_call(kernel, shape(16, 12), grid=(2,), in_specs=[rows], out_specs=rows, **more)
    agree(build, X)


def test_a_loop_as_long_as_a_prefetched_scalar_says():
    def build(pl, pltpu, **more):
        def kernel(n_ref, x_ref, o_ref):
            o_ref[...] = jnp.zeros_like(o_ref)

            @pl.loop(0, n_ref[pl.program_id(0)])
            def _(r):
                o_ref[0:1, :] += x_ref[pl.ds(r, 1), :]
        return pl.pallas_call(kernel, shape(16, 12), grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(2,), in_specs=[pl.BlockSpec(*ROWS)], out_specs=pl.BlockSpec(*ROWS)), **more)
    agree(build, np.array([5, 0], np.int32), X)


@pytest.mark.parametrize("dtype", ["int8", "uint32"])
def test_integers_take_the_type_of_the_ref_they_are_written_to(dtype):
    def build(pl, pltpu, **more):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 100 - 7  # wraps
        return pl.pallas_call(kernel, shape(6, dtype=dtype), **more)
    agree(build, np.arange(6, dtype=np.int32))


VALUES = {"a Python int": 3, "a Python float": 1.5, "a bool": True, "a float of NumPy": np.float64(1.5),
          "a weak int": lambda n: jnp.full(n, 3), "a weak float": lambda n: jnp.full(n, 1.5),
          "float32": lambda n: jnp.full(n, 1.5, jnp.float32), "uint8": lambda n: jnp.full(n, 3, jnp.uint8),
          "a negative int": -1}


@pytest.mark.parametrize("at", [0, pl.ds(0, 3, 2)], ids=["element", "stride"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "bfloat16", "bool"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_of_another_type_is_stored_or_refused_as_upstream_does(value, dtype, at):
    def build(pl, interpret):
        def kernel(o_ref):
            n = () if at == 0 else (3,)
            o_ref[...] = jnp.zeros(o_ref.shape, o_ref.dtype)
            o_ref[at if at == 0 else pl.ds(0, 3, 2)] = value(n) if callable(value) else jnp.broadcast_to(
                value, n) if n else value
        return np.asarray(pl.pallas_call(kernel, shape(6, dtype=dtype), interpret=interpret)())
    try:
        want = build(upstream, True)
    except ValueError as error:
        assert "Invalid dtype for `swap`" in str(error)
        with pytest.raises(pl.SpecError, match=f"is written to a ref of {dtype}. Cast it first: (value.astype|jnp.as)"):
            build(pl, False)
    else:
        np.testing.assert_array_equal(build(pl, False), want)


# -- None in place of an operand, an output, a prefetched scalar

def test_none_stands_for_an_operand_that_is_not_there():
    def build(pl, pltpu, **more):
        def kernel(x_ref, b_ref, c_ref, o_ref):
            assert b_ref is None
            o_ref[...] = x_ref[...] + c_ref[...]
        rows = pl.BlockSpec(*ROWS)
        return pl.pallas_call(kernel, shape(16, 12), grid=(2,), in_specs=[rows, None, rows], out_specs=rows,
                              input_output_aliases={1: 0}, **more)
    agree(build, X, None, X[::-1])
    with pytest.raises(pl.SpecError, match=r"3 operands but 2 in_specs.*None for nothing; of a whole array the spec is "
                                           r"pl.BlockSpec\(\)"):
        build(pl, pltpu)(X, X, X)


def test_none_stands_for_an_output_that_is_not_there():
    def kernel(x_ref, no_ref, o_ref):
        assert no_ref is None
        o_ref[...] = 2 * x_ref[...]
    rows = pl.BlockSpec(*ROWS)
    nothing, got = pl.pallas_call(kernel, [None, shape(16, 12)], grid=(2,), in_specs=[rows],
                                  out_specs=[None, rows])(X)
    assert nothing is None
    np.testing.assert_array_equal(got, 2 * X)


ORDER = np.array([1, 0], np.int32)


@pytest.mark.parametrize("scalars", [(None, ORDER), ((ORDER, np.array([3], np.int32)), None)], ids=["None", "nested"])
def test_prefetched_scalars_nest_as_jax_trees_do(scalars):
    def which(first, second):
        return second if first is None else first[0]

    def build(pl, pltpu, **more):
        def kernel(first_ref, second_ref, x_ref, o_ref):
            n = which(first_ref, second_ref)[pl.program_id(0)] + (0 if first_ref is None else first_ref[1][0])
            o_ref[...] = x_ref[...] * n.astype(jnp.float32)
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2, grid=(2,), out_specs=pl.BlockSpec(*ROWS),
            in_specs=[pl.BlockSpec((8, 12), lambda i, first, second: (which(first, second)[i], 0))])
        return pl.pallas_call(kernel, shape(16, 12), grid_spec=spec, **more)
    agree(build, *scalars, X)


# -- refs of no dimension

def scaled(pl, pltpu, spec=None, **more):
    def kernel(x_ref, s_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[...]
    rows = pl.BlockSpec(*ROWS)
    given = {} if spec is None else {"grid": (2,), "in_specs": [rows, spec], "out_specs": rows}
    return pl.pallas_call(kernel, shape(16, 12), **given, **more)


def total(pl, pltpu, spec=None, **more):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.float32(0)
        o_ref[...] += x_ref[...].sum()
    return pl.pallas_call(kernel, shape(), grid=(2,), in_specs=[pl.BlockSpec(*ROWS)], out_specs=spec, **more)


def doubled_by_copies(pl, pltpu, **more):
    def kernel(s_hbm, o_hbm, buf, sem):
        pltpu.async_copy(s_hbm, buf, sem).wait()
        buf[...] = buf[...] * 2
        pltpu.async_copy(buf, o_hbm, sem).wait()
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(kernel, shape(), in_specs=[in_hbm], out_specs=in_hbm,
                          scratch_shapes=[pltpu.SMEM((), jnp.float32), pltpu.SemaphoreType.DMA], **more)


def raised(pl, pltpu, **more):
    def kernel(n_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + n_ref[...].astype(jnp.float32)
    moved = pl.BlockSpec((8, 12), lambda i, n: ((i + n[...]) % 2, 0))
    return pl.pallas_call(kernel, shape(16, 12), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,), in_specs=[moved], out_specs=pl.BlockSpec(*ROWS)), **more)


def with_spec(build, spec):
    return lambda pl, pltpu, **more: build(pl, pltpu, spec(pl, pltpu), **more)


def block(pl, pltpu):
    return pl.BlockSpec((), lambda i: ())


def in_smem(pl, pltpu):
    return pl.BlockSpec(memory_space=pltpu.SMEM)


NO_DIMENSION = {
    "a Python number, no grid": (scaled, X, 2.5),
    "a block of each step": (with_spec(scaled, block), X, 2.5),
    "in SMEM": (with_spec(scaled, in_smem), X, 2.5),
    "an output": (with_spec(total, block), X),
    "an output in SMEM": (with_spec(total, in_smem), X),
    "in HBM, both": (doubled_by_copies, np.float32(2.5)),
    "a prefetched scalar": (raised, np.int32(3), X),
}


@pytest.mark.parametrize("build, operands", [(build, operands) for build, *operands in NO_DIMENSION.values()],
                         ids=NO_DIMENSION)
def test_a_ref_of_no_dimension(build, operands):
    if build is doubled_by_copies:  # interpret=True has no copies
        assert [run(*operands) for run in ways(build(pl, pltpu)).values()] == [5.0] * 3
    else:
        agree(build, *operands)
    traced = build(pl, pltpu).trace(*operands)
    assert traced.hazards == []
    assert traced.schedule.steps == traced.steps or traced.manual  # whose schedule counts runs
    assert traced.timeline(pl.hardware.TPU_V5E).total > 0
    assert pl.show(traced) is not None


# -- 64 bits

@pytest.mark.parametrize("name", [
    "blocked.add_on_two_axes", "control.cond_with_refs_in_both_branches", "control.slices_with_traced_starts",
    "emitted.a_pipeline_over_two_axes", "manual.two_slots_in_a_fori_loop", "prefetch.scalars_traced_by_jit",
    "reductions.histogram", "specs.a_convolution_that_masks_its_padding"])
def test_kernels_of_the_corpus_where_jax_computes_with_64_bits(name):
    with jax.enable_x64(True):
        call, operands = load_all()[name].build(pl, pltpu)
        got, want = map(jax.tree.leaves, (call(*operands), upstream_result.__wrapped__(load_all()[name])))
    assert [x.dtype for x in got] == [x.dtype for x in want]
    for a, b in zip(got, want, strict=True):
        compare(a, b)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_operands_of_64_bits(dtype):
    x = (X * 1e9).astype(dtype)

    def build(pl, pltpu, **more):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 3 + pl.program_id(0).astype(dtype)
        rows = pl.BlockSpec(*ROWS)
        return pl.pallas_call(kernel, shape(16, 12, dtype=dtype), grid=(2,), in_specs=[rows], out_specs=rows, **more)
    with jax.enable_x64(True):
        agree(build, x)
        f = build(pl, pltpu)
        np.testing.assert_array_equal(f(x), build(pl, pltpu, backend="simulate")(x))
        np.testing.assert_array_equal(jax.vmap(f)(jnp.stack([x, -x]))[0], f(x))
        with pytest.raises(pl.NotSupportedError) as error:
            f.trace(x).lower("tpu").as_text()
    assert str(error.value) == (f"kernel: x is {dtype}, and a TPU's numbers have 32 bits at most. Cast the operands "
                                "and the shapes of the outputs.")


def test_a_tpu_program_has_32_bits_where_jax_has_64():
    with jax.enable_x64(True):
        lowered = scaled(pl, pltpu, pl.BlockSpec((8, 12), lambda i: (i, 0))).trace(X, X).lower("tpu")
        with_64 = lowered.as_text()
    assert with_64 == scaled(pl, pltpu, pl.BlockSpec((8, 12), lambda i: (i, 0))).trace(X, X).lower("tpu").as_text()


def test_a_kernel_under_jit_is_the_kernel_and_keeps_its_name_and_its_other_decorators():
    def twice(kernel):
        @functools.wraps(kernel)
        def run(x_ref, o_ref):
            kernel(x_ref, o_ref)
            o_ref[...] = 2 * o_ref[...]
        return run

    def build(pl, pltpu, **more):
        @jax.jit
        @twice
        def add_one(x_ref, o_ref):
            o_ref[...] = x_ref[...] + 1
        rows = pl.BlockSpec(*ROWS)
        return pl.pallas_call(add_one, shape(16, 12), grid=(2,), in_specs=[rows], out_specs=rows, **more)
    agree(build, X)
    assert build(pl, pltpu).name == "add_one"


def test_the_widest_numbers_are_reported_on_too():
    def add(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    with jax.enable_x64(True):
        block = pl.BlockSpec((4,), lambda i: (i,))
        f = pl.pallas_call(add, shape(8, dtype=jnp.complex128), grid=(2,), in_specs=[block], out_specs=block)
        with pytest.warns(pl.HazardWarning, match="reads o before it has written it"):
            f(jnp.ones(8, jnp.complex128))


def test_a_call_keeps_so_many_traces_and_no_more():
    def copy(at_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,), out_specs=pl.BlockSpec(*ROWS),
                                        in_specs=[pl.BlockSpec((8, 12), lambda i, at: (at[i], 0))])
    f = pl.pallas_call(copy, shape(16, 12), grid_spec=spec)
    for n in range(KEPT + 5):
        f.trace(np.array([n % 2, 0, n], np.int32), X)
    assert len(f._traces) == KEPT


@pytest.mark.parametrize("number", [np.float32(0), np.int32(3), np.float64(1), 2, True])
def test_any_number_may_stand_for_memory_that_was_never_written(number):
    assert pltpu.InterpretParams(uninitialized_memory=number).uninitialized_memory == number
