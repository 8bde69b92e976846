"""Small programs behind public questions about Pallas pipelining, and what a faithful tool says of each.

`issue` is the public jax issue that raised the question. Each takes (pl, pltpu), ours or upstream's.
"""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as ours
from pallas_lite import tpu as ours_tpu

CASES = {}


def case(issue, expect):
    def register(f):
        CASES[f.__name__] = f
        return f
    return register


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


@case(38497, "error: block index 4 of operand x at step 1 is out of range (4 blocks); index maps return block indices")
def index_map_returns_element_offsets(pl, pltpu):
    spec = pl.BlockSpec((4,), lambda i: (i * 4,))
    return pl.pallas_call(copy, shape(16), grid=(4,), in_specs=[spec], out_specs=spec)(jnp.arange(16.0))


@case(23181, "error: block index 1 in a dimension that has one block")
def index_one_in_a_one_block_dimension(pl, pltpu):
    return pl.pallas_call(copy, shape(1, 4), grid=(1,), in_specs=[pl.BlockSpec((1, 4), lambda i: (1, 0))],
                          out_specs=pl.BlockSpec((1, 4), lambda i: (0, 0)))(jnp.arange(4.0)[None])


@case(20227, "[?, 2, 6, ?]: unwritten elements are unspecified, and the report names the output and the unwritten part")
def output_partly_written(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[1:3] = x_ref[1:3] * y_ref[1:3]
    return pl.pallas_call(kernel, shape(4, dtype=jnp.int32))(jnp.arange(4), jnp.arange(1, 5))


@case(23099, "report: an output block is revisited after it was left, because the reduction axis is not innermost")
def reduction_over_the_outer_axis(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(8), grid=(3, 2), in_specs=[pl.BlockSpec((None, 4), lambda r, j: (r, j))],
                          out_specs=pl.BlockSpec((4,), lambda r, j: (j,)))(jnp.ones((3, 8)))


@case(23099, "first block 1s (re-zeroed every step); second block accumulates on a stale slot: slot-accurate garbage, "
             "and a report of the uninitialised read")
def initialised_on_the_wrong_axis(pl, pltpu):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(8), grid=(2, 3), in_specs=[pl.BlockSpec((None, 4), lambda j, r: (r, j))],
                          out_specs=pl.BlockSpec((4,), lambda j, r: (j,)))(jnp.ones((3, 8)))


@case(21190, "([8.], 1..8): a carry output with a constant index map is legal and written back once")
def cumulative_sum_with_a_carry(pl, pltpu):
    def kernel(x_ref, carry_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            carry_ref[...] = jnp.zeros_like(carry_ref)
        total = jnp.cumsum(x_ref[...]) + carry_ref[...]
        o_ref[...] = total
        carry_ref[...] = total[-1:]
    block = pl.BlockSpec((4,), lambda i: (i,))
    return pl.pallas_call(kernel, [shape(1), shape(8)], grid=(2,), in_specs=[block],
                          out_specs=[pl.BlockSpec((1,), lambda i: (0,)), block])(jnp.ones(8))


@case(17545, "ones; with a note that no block depends on the grid, so each of 4 steps does all the work, with one copy")
def grid_without_specs(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1
    return pl.pallas_call(kernel, shape(8), grid=(4,))(jnp.zeros(8))


@case(21143, "[3, 4, ?, ?] or an IndexError; never [1, 2, 3, 4]: a slice past the end must not shift")
def slice_past_the_end(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(jnp.int32(2) + pl.program_id(0), 4)]
    return pl.pallas_call(kernel, shape(4), grid=(1,))(jnp.arange(1.0, 5.0))


@case(21557, "right values, or an error that names the captured array and says to pass it as an input")
def kernel_captures_a_numpy_array(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + np.arange(4, dtype=np.float32)
    return pl.pallas_call(kernel, shape(4))(jnp.ones(4))


@case(40847, "[2, 5, 3, 4]: num_programs follows each call's grid; nothing stale is cached")
def num_programs_follows_the_grid(pl, pltpu):
    def kernel(o_ref):
        o_ref[...] = jnp.full((1,), pl.num_programs(0), jnp.int32)
    one = pl.BlockSpec((1,), lambda i: (0,))
    return [int(pl.pallas_call(kernel, shape(1, dtype=jnp.int32), grid=(g,), out_specs=one)()[0]) for g in (2, 5, 3, 4)]


@case(23819, "[3, unspecified]: padding of the last block reaches the result unless masked, and is reported")
def reduction_over_a_padded_tail(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.max(x_ref[...], keepdims=True)
    return pl.pallas_call(kernel, shape(2), grid=(2,), in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
                          out_specs=pl.BlockSpec((1,), lambda i: (i,)))(jnp.arange(6.0))


@case("in-place shift", "hazard: the prefetch of x[t+1] and the copy-out of o[t] touch the same HBM block")
def aliased_shift(pl, pltpu):
    return pl.pallas_call(copy, shape(4), grid=(4,), in_specs=[pl.BlockSpec((1,), lambda i: (jnp.maximum(i - 1, 0),))],
                          out_specs=pl.BlockSpec((1,), lambda i: (i,)), input_output_aliases={0: 0})(jnp.arange(4.0))


@case(25379, "600.0: one-dimensional blocks, an int grid, a tail that does not divide")
def one_dimensional_tail(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    block = pl.BlockSpec((128,), lambda i: (i,))
    f = pl.pallas_call(kernel, shape(300), grid=pl.cdiv(300, 128), in_specs=[block], out_specs=block)
    return f(jnp.ones(300)).sum()


# -- what ours says

def run(name):
    """The value, the warnings' texts, and the error of a case."""
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return CASES[name](ours, ours_tpu), " ".join(str(w.message) for w in caught), None
        except ours.PallasLiteError as error:
            return None, "", str(error)


def test_element_offsets_are_an_error():
    error = run("index_map_returns_element_offsets")[2]
    assert "operand x, step 1: index_map gives (4,), but block index 4 is out of range" in error
    assert "(4 blocks of 4, so 0 to 3). Index maps return block indices" in error


def test_index_one_of_one_block_is_an_error():
    assert "block index 1 is out of range in dimension 0 (1 block of 1" in run("index_one_in_a_one_block_dimension")[2]


def test_partly_written_output():
    value, said, _ = run("output_partly_written")
    assert value[1:3].tolist() == [2, 6] and "output o: o[0:1] and o[3:4] is never written" in said


def test_reduction_over_the_outer_axis():
    said = run("reduction_over_the_outer_axis")[1]
    assert "output block o[0] is written again after step 0 left it" in said
    assert "Make the axis that you reduce over the innermost (last) axis of the grid." in said


def test_initialised_on_the_wrong_axis():
    value, said, _ = run("initialised_on_the_wrong_axis")
    assert value[:4].tolist() == [1] * 4 and np.isnan(value[4:]).all()
    assert "o[4:8] depends on memory that nobody had written" in said


def test_cumulative_sum_with_a_carry():
    value, said, _ = run("cumulative_sum_with_a_carry")
    assert value[0].tolist() == [8] and value[1].tolist() == list(range(1, 9)) and said == ""


def test_grid_without_specs():
    value, said, _ = run("grid_without_specs")
    assert value.tolist() == [1] * 8
    assert "no block depends on the grid (4,): each of its 4 steps does all the work again" in said
    assert "on the same blocks, copied once" in said


def test_slice_past_the_end():
    assert "past its end" in run("slice_past_the_end")[2]


def test_a_captured_numpy_array():
    assert "Pass the array as an input" in str(run("kernel_captures_a_numpy_array")[2])


def test_num_programs_follows_the_grid():
    assert run("num_programs_follows_the_grid")[0] == [2, 5, 3, 4]


def test_reduction_over_a_padded_tail():
    value, said, _ = run("reduction_over_a_padded_tail")
    assert value[0] == 3 and "o[1:2] depends on memory" in said


def test_aliased_shift():
    said = run("aliased_shift")[1]
    assert "copy_out of x[1] (shared by o) touches the block that the copy_in begun in step 1 still moves" in said


def test_one_dimensional_tail():
    value, said, _ = run("one_dimensional_tail")
    assert value == 600 and said == ""


# -- siblings: the same slip in other clothes

def called(kernel, out, *args, **options):
    return lambda: ours.pallas_call(kernel, out, **options)(*args)


def initialised_when(axis, at):
    def kernel(x_ref, o_ref):
        @ours.when(ours.program_id(axis) == at)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return kernel


def carried(x_ref, carry_ref, o_ref):
    total = jnp.cumsum(x_ref[...]) + carry_ref[...]
    o_ref[...] = total
    carry_ref[...] = total[-1:]


def halves_itself(x_ref, o_ref, s_ref):
    s_ref[...] = s_ref[...] * 0.5 + x_ref[...]
    o_ref[...] = s_ref[...]


Spec, X8 = ours.BlockSpec, jnp.ones(8)
FOUR = Spec((4,), lambda i: (i,))
SIBLINGS = {  # name -> call, what it must say
    "element offsets in the last dimension": (called(copy, shape(4, 16), jnp.ones((4, 16)), grid=(4,), in_specs=[
        Spec((4, 4), lambda i: (0, i * 4))], out_specs=Spec((4, 4), lambda i: (0, i))), "return block indices"),
    "element offsets of an output": (called(copy, shape(16), jnp.ones(16), grid=(4,), in_specs=[FOUR], out_specs=Spec(
        (4,), lambda i: (i * 4,))), "output o, step 1: index_map gives (4,)"),
    "a block before the first": (called(copy, shape(8), X8, grid=(2,), in_specs=[Spec((4,), lambda i: (i - 1,))],
                                        out_specs=FOUR), "block index -1 is out of range"),
    "index one of a squeezed dimension": (called(copy, shape(4), X8[None, :4], in_specs=[
        Spec((None, 4), lambda: (1, 0))]), "(1 block of 1, so 0 to 0)"),
    "a row is not written": (called(lambda x_ref, o_ref: o_ref.__setitem__(0, x_ref[0]), shape(2, 4), X8.reshape(2, 4)),
                             "o[1:2, 0:4] is never written"),
    "a reduction over a middle axis": (called(initialised_when(1, 0), shape(2, 8), jnp.ones((2, 3, 8)), grid=(2, 3, 2),
                                              in_specs=[Spec((None, None, 4), lambda i, r, j: (i, r, j))],
                                              out_specs=Spec((None, 4), lambda i, r, j: (i, j))),
                                       "output block o[0, 0] is written again after step 0 left it. (8 such writes"),
    "a carry that nobody initialises": (called(carried, [shape(1), shape(8)], X8, grid=(2,), in_specs=[FOUR],
                                               out_specs=[Spec((1,), lambda i: (0,)), FOUR]), "carry[0:1] depends on"),
    "a carry whose block changes": (called(carried, [shape(2), shape(8)], X8, grid=(2,), in_specs=[FOUR], out_specs=[
        Spec((1,), lambda i: (i,)), FOUR]), "carry[0:2] depends on memory"),
    "a step that asks which one it is": (called(lambda x_ref, o_ref: o_ref.__setitem__(
        ..., x_ref[...] + ours.program_id(0)), shape(8), X8, grid=(4,)), ""),
    "steps that go on where the last one stopped": (called(halves_itself, shape(8), X8, grid=(4,), scratch_shapes=[
        ours_tpu.VMEM((8,), jnp.float32)]), "o[0:8] depends on memory"),
    "a store past the end": (called(lambda x_ref, o_ref: o_ref.__setitem__(
        ours.ds(2 + ours.program_id(0), 4), x_ref[...]), shape(4), X8[:4], grid=(1,)), "an index into o"),
    "any() over a padded tail": (called(lambda x_ref, o_ref: o_ref.__setitem__(..., jnp.any(x_ref[...], keepdims=True)),
                                        shape(2, dtype=bool), jnp.zeros(6, bool), grid=(2,), in_specs=[FOUR],
                                        out_specs=Spec((1,), lambda i: (i,))), "o[1:2] depends on memory"),
    "the shift the other way": (called(copy, shape(4), X8[:4], grid=(4,), in_specs=[Spec(
        (1,), lambda i: (jnp.minimum(i + 1, 3),))], out_specs=Spec((1,), lambda i: (i,)),
        input_output_aliases={0: 0}), ""),
    "halves swapped in place": (called(copy, shape(8), X8, grid=(2,), in_specs=[Spec((4,), lambda i: (1 - i,))],
                                       out_specs=FOUR, input_output_aliases={0: 0}),
                                "copy_out of x[0] (shared by o) touches"),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_siblings(name, monkeypatch):
    call, text = SIBLINGS[name]
    monkeypatch.setitem(CASES, name, lambda pl, pltpu: call())
    _, said, error = run(name)
    assert text in (error or said) if text else (error, said) == (None, "")
    assert "no block depends on the grid" not in said
