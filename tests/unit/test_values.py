"""Reports about values, bounds, scratch, aliases, prefetched scalars, jit and vmap."""
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def quietly(f, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return f(*args)


BLOCK = pl.BlockSpec((4,), lambda i: (i,))


def test_a_partly_written_output_is_named_with_its_unwritten_part():
    def kernel(x_ref, y_ref, o_ref):
        o_ref[1:3] = x_ref[1:3] * y_ref[1:3]
    f = pl.pallas_call(kernel, shape(4, dtype=jnp.int32))
    with pytest.warns(pl.HazardWarning, match=r"output o: o\[0:1\] and o\[3:4\] is never written"):
        got = f(jnp.arange(4), jnp.arange(1, 5))
    assert got[1:3].tolist() == [2, 6]


def test_what_an_earlier_visit_left_in_the_slot_counts_as_unwritten():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) < 2)  # the later visits find the slots filled, so no filling shows in their values
        def _():
            o_ref[...] = x_ref[...]
    f = pl.pallas_call(kernel, shape(16), grid=(4,), in_specs=[BLOCK], out_specs=BLOCK)
    with pytest.warns(pl.HazardWarning, match=r"output o: o\[8:16\] is never written"):
        got = f(jnp.arange(16.0))
    assert got.tolist() == [*range(8), *range(8)]  # the hardware's numbers: what the slots held


def test_accumulating_without_initialising_is_named():
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    f = pl.pallas_call(kernel, shape(4), grid=(3,), in_specs=[BLOCK], out_specs=pl.BlockSpec((4,), lambda i: (0,)))
    with pytest.warns(pl.HazardWarning, match=r"o\[0:4\] depends on memory that nobody had written"):
        f(jnp.ones(12))


def test_an_initialised_accumulator_is_no_hazard():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    f = pl.pallas_call(kernel, shape(4), grid=(3,), in_specs=[BLOCK], out_specs=pl.BlockSpec((4,), lambda i: (0,)))
    assert quietly(f, jnp.arange(12.0)).tolist() == [12, 15, 18, 21]


def test_a_tail_is_a_hazard_only_where_it_reaches_the_result():
    def largest(x_ref, o_ref):
        o_ref[...] = jnp.max(x_ref[...], keepdims=True)
    def masked(x_ref, o_ref):
        inside = jnp.arange(4) + 4 * pl.program_id(0) < 6
        o_ref[...] = jnp.max(jnp.where(inside, x_ref[...], -jnp.inf), keepdims=True)
    one = pl.BlockSpec((1,), lambda i: (i,))
    f, g = (pl.pallas_call(k, shape(2), grid=(2,), in_specs=[BLOCK], out_specs=one) for k in (largest, masked))
    with pytest.warns(pl.HazardWarning, match=r"output o: o\[1:2\] depends on memory"):
        assert f(jnp.arange(6.0))[0] == 3
    assert quietly(g, jnp.arange(6.0)).tolist() == [3, 5]


def test_a_step_multiplies_garbage_by_a_mask_as_it_is_written():
    def kernel(x_ref, o_ref):
        o_ref[...] = (x_ref[...] * (jnp.arange(4) < 3)).sum(keepdims=True)
    four, one = pl.BlockSpec((4,), lambda i: (i,)), pl.BlockSpec((1,), lambda i: (0,))
    call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((1,), jnp.float32), grid=(1,), in_specs=[four], out_specs=one,
                          backend="simulate", on_hazard="ignore")
    assert np.isnan(call(jnp.array([1.0, 2.0, 3.0])))  # 0 · NaN; XLA's algebra would leave the NaN out


def test_a_written_input_is_named():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        x_ref[...] = x_ref[...] + 1
    f = pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)
    with pytest.warns(pl.HazardWarning, match="writes to its input x"):
        f(jnp.arange(8.0))


def test_an_output_block_that_no_step_visits_is_named():
    f = pl.pallas_call(copy, shape(16), grid=(3,), in_specs=[BLOCK], out_specs=BLOCK)
    [h] = f.trace(shape(16)).hazards
    assert h.kind == "unvisited" and "no step visits 1 of its 4 blocks, the first is o[3]" in h.message


def test_sharing_an_output_block_along_a_parallel_axis_is_named():
    params = pltpu.CompilerParams(dimension_semantics=("parallel",))
    f = pl.pallas_call(copy, shape(4), grid=(2,), in_specs=[BLOCK], out_specs=pl.BlockSpec((4,), lambda i: (0,)),
                       compiler_params=params)
    assert [h.kind for h in f.trace(shape(8)).hazards] == ["parallel axis"]


def test_garbage_times_zero_is_named():
    def kernel(x_ref, o_ref, acc_ref):
        acc_ref[...] = acc_ref[...] * jnp.where(pl.program_id(0) == 0, 0.0, 1.0) + x_ref[...]
        o_ref[...] = acc_ref[...]
    f = pl.pallas_call(kernel, shape(4), grid=(2,), in_specs=[BLOCK], out_specs=pl.BlockSpec((4,), lambda i: (0,)),
                       scratch_shapes=[pltpu.VMEM((4,), jnp.float32)])
    with pytest.warns(pl.HazardWarning, match="is NaN if memory .*0 × garbage is not 0.*reads acc before"):
        f(jnp.arange(8.0))


def test_an_in_place_update_of_a_part_is_no_hazard():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1
    first = pl.BlockSpec((4,), lambda i: (0,))
    f = pl.pallas_call(kernel, shape(8), grid=(1,), in_specs=[first], out_specs=first, input_output_aliases={0: 0})
    assert quietly(f, jnp.arange(8.0)).tolist() == [1, 2, 3, 4, 4, 5, 6, 7]


# -- bounds

@pytest.mark.parametrize("body, text", [
    (lambda x, o: o.__setitem__(..., x[pl.ds(2, 4)]), r"x: slice 2:6 is out of range in dimension 0, which has 4 "
                                                      r"elements"),
    (lambda x, o: o.__setitem__(..., x[pl.ds(2 + pl.program_id(0), 4)]), r"step 0: an index into x, .* past its end"),
    (lambda x, o: o.__setitem__(0, x[7]), "index 7 is out of range"),
    (lambda x, o: o.__setitem__(4, x[0]), "o: index 4 is out of range"),
    (lambda x, o: o.__setitem__((0, 0), x[0]), "2 indices for shape"),
    (lambda x, o: o.__setitem__(..., x[0:2]), r"value of shape \(2,\) is written to a window of shape \(4,\)"),
    (lambda x, o: o.__setitem__(..., x[...].astype(jnp.int32)), "a value of int32 is written to a ref of float32"),
    (lambda x, o: o.__setitem__(..., x), r"read the ref first: o\[...\] = x\[...\]"),
    (lambda x, o: o.__setitem__(..., x[None]), "index its value"),
    (lambda x, o: x + 1, r"x is a ref, not a value: read it first, x\[...\]"),
    (lambda x, o: pl.when(lambda: None), "pl.when needs a condition, a bool"),
])
def test_bad_indices_are_errors(body, text):
    def kernel(x_ref, o_ref):
        body(x_ref, o_ref)
    with pytest.raises(pl.PallasLiteError, match=text):
        pl.pallas_call(kernel, shape(4), grid=(1,), in_specs=[BLOCK], out_specs=BLOCK)(jnp.arange(1.0, 5.0))


def test_a_slice_past_the_end_reads_garbage_if_one_asks_for_it():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(2 + pl.program_id(0), 4)]
    f = pl.pallas_call(kernel, shape(4), grid=(1,), on_hazard="ignore",
                       interpret=pl.InterpretParams(out_of_bounds_reads="uninitialized"))
    got = f(jnp.arange(1.0, 5.0))
    assert got[:2].tolist() == [3, 4] and np.isnan(got[2:]).all()


def test_traced_starts_read_and_write_what_they_name():
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[pl.ds(6 - 2 * i, 2)] = x_ref[pl.ds(2 * i, 2)]
    f = pl.pallas_call(kernel, shape(8), grid=(4,))
    assert f(jnp.arange(8.0)).tolist() == [6, 7, 4, 5, 2, 3, 0, 1]


def test_windows_of_windows():
    def kernel(x_ref, o_ref):
        o_ref[0, :] = x_ref.at[1:3].at[1][0:4]
        o_ref.at[1][1:3] = x_ref[0, pl.ds(0, 2, stride=2)]
        o_ref[1, 0] = 7.0
        o_ref[1, -1] = x_ref[3, jnp.int32(3)]
    x = jnp.arange(16.0).reshape(4, 4)
    assert quietly(pl.pallas_call(kernel, shape(2, 4)), x).tolist() == [[8, 9, 10, 11], [7, 0, 2, 15]]


# -- scratch, aliases, prefetched scalars

def test_matmul_with_an_accumulator_in_scratch():
    def kernel(a_ref, b_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)
        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...].astype(o_ref.dtype)
    a, b = (np.random.default_rng(s).standard_normal(n).astype(jnp.bfloat16) for s, n in ((0, (32, 24)), (1, (24, 16))))
    f = pl.pallas_call(kernel, shape(32, 16, dtype=jnp.bfloat16), grid=(2, 2, 3), in_specs=[
        pl.BlockSpec((16, 8), lambda i, j, k: (i, k)), pl.BlockSpec((8, 8), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((16, 8), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((16, 8), jnp.float32)])
    want = (a.astype(np.float32) @ b.astype(np.float32)).astype(jnp.bfloat16)
    np.testing.assert_allclose(quietly(f, a, b).astype(np.float32), want.astype(np.float32), rtol=0.02)


def test_scratch_as_keywords_keeps_its_value_between_steps():
    def kernel(x_ref, o_ref, *, total):
        @pl.when(pl.program_id(0) == 0)
        def _():
            total[0] = 0.0
        total[0] += x_ref[...].sum()
        o_ref[...] = jnp.full_like(o_ref, total[0])
    f = pl.pallas_call(kernel, shape(3), grid=(3,), in_specs=[BLOCK], out_specs=pl.BlockSpec((1,), lambda i: (i,)),
                       scratch_shapes={"total": pltpu.SMEM((1,), jnp.float32)})
    assert quietly(f, jnp.arange(12.0)).tolist() == [6, 28, 66]


def test_scratch_read_before_it_is_written_is_named():
    def kernel(x_ref, o_ref, acc_ref):
        acc_ref[...] += x_ref[...]
        o_ref[...] = acc_ref[...]
    f = pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK,
                       scratch_shapes=[pltpu.VMEM((4,), "float32")])
    with pytest.warns(pl.HazardWarning, match=r"o\[0:8\] depends on memory"):
        f(jnp.ones(8))


def test_a_block_list_in_prefetched_scalars_chooses_the_blocks():
    def kernel(order_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + order_ref[pl.program_id(0)]
    spec = pltpu.PrefetchScalarGridSpec(1, grid=(3,), in_specs=[pl.BlockSpec((4,), lambda i, order: (order[i],))],
                                        out_specs=pl.BlockSpec((4,), lambda i, order: (i,)))
    f = pl.pallas_call(kernel, shape(12), grid_spec=spec)
    x = jnp.arange(12.0)
    assert quietly(f, jnp.array([2, 0, 2]), x).tolist() == [10, 11, 12, 13, 0, 1, 2, 3, 10, 11, 12, 13]
    assert quietly(f, jnp.array([1, 1, 1]), x).tolist() == [5, 6, 7, 8] * 3
    assert f.trace(jnp.array([1, 1, 1]), x).schedule.copies("x") == 1
    with pytest.raises(pl.BlockIndexError, match="operand x, step 1: .* block index 3 is out of range"):
        f(jnp.array([0, 3, 0]), x)
    with pytest.raises(pl.NotSupportedError, match="prefetched scalars choose the blocks"):
        f.trace(shape(3, dtype=jnp.int32), x)


@pytest.mark.parametrize("around", [lambda f: f, jax.jit], ids=["a call", "jit"])
def test_an_index_map_that_takes_the_prefetched_scalar_first_is_told_the_order(around):
    spec = pltpu.PrefetchScalarGridSpec(1, grid=(2,), in_specs=[pl.BlockSpec((4,), lambda order, i: (order[i],))],
                                        out_specs=pl.BlockSpec((4,), lambda i, order: (i,)))
    f = around(pl.pallas_call(lambda order, x_ref, o_ref: copy(x_ref, o_ref), shape(8), grid_spec=spec))
    with pytest.raises(pl.SpecError, match="operand x: its index_map raises SpecError: i is a ref, not a value.*\\. "
                                           "It gets the grid's indices first, then the prefetched scalars\\."):
        f(jnp.array([1, 0]), jnp.arange(8.0))


@pytest.mark.parametrize("twice", [False, True])
def test_an_index_past_the_end_of_a_prefetched_scalar_names_its_lines(twice):
    def kernel(ids, x_ref, o_ref):
        o_ref[...] = x_ref[...] + ids[pl.program_id(0) - 1]
        if twice:
            o_ref[...] *= ids[pl.program_id(0)]

    spec = pltpu.PrefetchScalarGridSpec(1, grid=(2,), in_specs=[pl.BlockSpec((4,), lambda i, ids: (i,))],
                                        out_specs=pl.BlockSpec((4,), lambda i, ids: (i,)))
    line = kernel.__code__.co_firstlineno + 1
    lines = f"line {line} or {line + 2}" if twice else f"line {line}"
    with pytest.raises(pl.BlockIndexError, match=rf"an index into ids, .* goes past its end or below 0 \({lines}\)\."):
        pl.pallas_call(kernel, shape(8), grid_spec=spec)(jnp.array([1, 2]), jnp.arange(8.0))


def test_a_revisited_output_block_that_an_alias_reads_back_is_not_lost():
    def kernel(x_ref, before_ref, o_ref):
        o_ref[...] = before_ref[...] + x_ref[...]

    def f(rows, steps, **options):
        block = pl.BlockSpec((2,), lambda k, i: (i,))
        each = pl.BlockSpec((2,), lambda k, i: (rows * k + i,))
        return pl.pallas_call(kernel, shape(2 * rows), grid=(steps, rows), in_specs=[each, block], out_specs=block,
                              **options)
    x = jnp.arange(24.0)
    alias = f(4, 3, input_output_aliases={1: 0})
    np.testing.assert_array_equal(alias(x, jnp.zeros(8)), np.asarray(x).reshape(3, 8).sum(0))
    assert alias.trace(x, jnp.zeros(8)).hazards == []
    assert [h.kind for h in f(4, 3).trace(x, jnp.zeros(8)).hazards] == ["revisit"]
    # Read back too early: that is a race, and nothing else.
    assert {h.kind for h in f(2, 6, input_output_aliases={1: 0}).trace(x, jnp.zeros(4)).hazards} == {"hbm race"}


def test_an_aliased_input_and_output_share_their_memory():
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    f = pl.pallas_call(double, shape(16), grid=(2,), in_specs=[BLOCK], out_specs=BLOCK, input_output_aliases={0: 0},
                       on_hazard="ignore")
    x = jnp.arange(16.0)
    assert f(x).tolist() == [*range(0, 16, 2), *range(8, 16)]  # blocks that no step visits keep the input's values
    assert x.tolist() == list(range(16))


def test_the_in_place_shift_races():
    f = pl.pallas_call(copy, shape(4), grid=(4,), in_specs=[pl.BlockSpec((1,), lambda i: (jnp.maximum(i - 1, 0),))],
                       out_specs=pl.BlockSpec((1,), lambda i: (i,)), input_output_aliases={0: 0})
    assert {h.kind for h in f.trace(shape(4)).hazards} == {"hbm race"}
    with pytest.warns(pl.HazardWarning, match="touches the block that the copy_"):
        f(jnp.arange(4.0))


# -- under JAX's transformations

def test_under_jit_and_vmap():
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] - y_ref[...] * pl.program_id(1)
    spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    f = pl.pallas_call(kernel, shape(8, 24), grid=(2, 3), in_specs=[spec, spec], out_specs=spec)
    x, y = (np.random.default_rng(s).standard_normal((5, 8, 24)).astype(np.float32) for s in (0, 1))
    want = np.stack([f(a, b) for a, b in zip(x, y, strict=True)])
    np.testing.assert_array_equal(jax.jit(f)(x[0], y[0]), want[0])
    np.testing.assert_array_equal(jax.vmap(f)(x, y), want)
    np.testing.assert_array_equal(jax.jit(jax.vmap(f, in_axes=(0, None)))(x, y[0])[2], f(x[2], y[0]))


def test_the_wrong_sum_is_as_wrong_under_jit():
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    f = pl.pallas_call(kernel, shape(8, 8), grid=(8, 4, 4),
                       in_specs=[pl.BlockSpec((None, 2, 2), lambda i, j, k: (i, j, k))],
                       out_specs=pl.BlockSpec((2, 2), lambda i, j, k: (j, k)),
                       interpret=pl.InterpretParams(uninitialized_memory=8.0), on_hazard="ignore")
    assert jax.jit(f)(jnp.ones((8, 8, 8)))[::2, ::2].tolist() == [
        [65, 65, 66, 66], [67, 67, 68, 68], [69, 69, 70, 70], [71, 71, 72, 72]]


def test_a_race_under_jit_is_an_error():
    f = pl.pallas_call(copy, shape(4), grid=(4,), in_specs=[pl.BlockSpec((1,), lambda i: (jnp.maximum(i - 1, 0),))],
                       out_specs=pl.BlockSpec((1,), lambda i: (i,)), input_output_aliases={0: 0}, on_hazard="ignore")
    with pytest.raises(pl.PallasLiteError, match="under jax.jit, vmap or grad a call must be free of races"):
        jax.jit(f)(jnp.arange(4.0))


def test_loop_carries_a_value():
    def kernel(x_ref, o_ref):
        @pl.loop(0, 4, init_carry=jnp.float32(0))
        def total(i, carry):
            return carry + x_ref[i]

        @pl.loop(0, 4, step=2)
        def _(i):
            o_ref[pl.ds(i, 2)] = jnp.full((2,), total) + i
    assert quietly(pl.pallas_call(kernel, shape(4), on_hazard="ignore"), jnp.arange(4.0)).tolist() == [6, 6, 8, 8]


def test_a_loop_that_counts_writes_may_decide_how_often_another_runs():
    def kernel(x_ref, o_ref):
        def row(i, count):
            o_ref[i] = x_ref[i]
            return count + 1
        doublings = jax.lax.while_loop(lambda n: n < 20, lambda n: 2 * n, jax.lax.fori_loop(0, 8, row, 0))
        o_ref[...] = o_ref[...] * doublings
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    x = jnp.arange(16 * 128, dtype=jnp.float32).reshape(16, 128)
    f = pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=2, in_specs=[spec], out_specs=spec)
    assert (f(x) == 32 * x).all()
