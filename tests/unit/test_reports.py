"""What is said of results that show what memory held before: whose memory, in which step, and a mend that mends."""
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu

FOUR, FIRST = pl.BlockSpec((4,), lambda i: (i,)), pl.BlockSpec((4,), lambda i: (0,))
SCRATCH = [pltpu.VMEM((4,), jnp.float32)]


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def heard(f, *args):
    """The result of a call, and the hazards that it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = f(*args)
    return value, [h for w in caught for h in w.message.hazards]


def read_first(name):
    return f"the kernel reads {name} before it has written it."


def past_edge(name):
    return f"the block of {name} reaches past the edge of its array, where its slot keeps what it held."


# -- sums, each with a place for what the mend says: a function that initialises its ref

def nothing(ref):
    """No first value."""


def zeros_if(condition):
    """A first value in the steps where the condition, a program's text, holds."""
    def start(ref):
        @pl.when(eval(condition))
        def _():
            ref[...] = jnp.zeros_like(ref)
    return start


def adds(start=nothing):
    def kernel(x_ref, o_ref):
        start(o_ref)
        o_ref[...] += x_ref[...]
    return kernel


def sum_of(n, start=nothing):
    f = pl.pallas_call(adds(start), shape(4), grid=(-(-n // 4),), in_specs=[FOUR], out_specs=FIRST)
    return f, np.arange(n) + 1.0


def sum_of_12(start):
    f, x = sum_of(12, start)
    return f, x, x.reshape(3, 4).sum(0)


def sum_over_two_axes(start):
    x = np.arange(16.0).reshape(2, 2, 4)
    f = pl.pallas_call(adds(start), shape(4), grid=(2, 2, 2), out_specs=pl.BlockSpec((2,), lambda i, j, k: (i,)),
                       in_specs=[pl.BlockSpec((None, None, 2), lambda i, j, k: (j, k, i))])
    return f, x, x.sum((0, 1))


def sums_with_blocks_backwards(start):
    x = np.arange(16.0).reshape(2, 8)
    f = pl.pallas_call(adds(start), shape(8), grid=(2, 2), out_specs=pl.BlockSpec((4,), lambda j, i: (1 - j,)),
                       in_specs=[pl.BlockSpec((None, 4), lambda j, i: (i, 1 - j))])
    return f, x, x.sum(0)


MATMUL = {"grid": (2, 2, 3), "out_specs": pl.BlockSpec((4, 4), lambda i, j, k: (i, j)), "in_specs": [
    pl.BlockSpec((4, 4), lambda i, j, k: (i, k)), pl.BlockSpec((4, 4), lambda i, j, k: (k, j))]}
A = np.random.default_rng(0).integers(-4, 5, (8, 12)).astype(np.float32)


def matmul(start, k=12):
    def kernel(a_ref, b_ref, o_ref):
        start(o_ref)
        o_ref[...] += jnp.dot(a_ref[...], b_ref[...])
    return pl.pallas_call(kernel, shape(8, 8), **MATMUL), A[:, :k], A.T[:k], A[:, :k] @ A.T[:k]


def matmul_in_scratch(start, k=12):
    def kernel(a_ref, b_ref, o_ref, acc_ref):
        start(acc_ref)
        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...])

        @pl.when(pl.program_id(2) == 2)
        def _():
            o_ref[...] = acc_ref[...]
    f = pl.pallas_call(kernel, shape(8, 8), scratch_shapes=[pltpu.VMEM((4, 4), jnp.float32)], **MATMUL)
    return f, A[:, :k], A.T[:k], A[:, :k] @ A.T[:k]


def running_sum(start):
    def kernel(x_ref, o_ref, s_ref):
        start(s_ref)
        s_ref[...] += x_ref[...]
        o_ref[...] = s_ref[...]
    x = np.arange(8.0)
    f = pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[FOUR], out_specs=FOUR, scratch_shapes=SCRATCH)
    return f, x, np.concatenate([x[:4], x[:4] + x[4:]])


@pytest.mark.parametrize("accumulator, ref, step, events, condition", [
    (sum_of_12, "o", 0, (3, 9), "pl.program_id(0) == 0"),
    (sum_over_two_axes, "o", 0, (3, 13), "(pl.program_id(1) == 0) & (pl.program_id(2) == 0)"),
    (sums_with_blocks_backwards, "o", 0, (3, 7), "pl.program_id(1) == 0"),
    (matmul, "o", 0, (6, 17), "pl.program_id(2) == 0"),
    (matmul_in_scratch, "acc", 0, (6, 17), "pl.program_id(2) == 0"),
    (running_sum, "s", 0, (3, 4), "pl.program_id(0) == 0"),
])
def test_an_accumulator_without_a_first_value_is_named_where_it_starts_and_mended_as_it_is_told(
        accumulator, ref, step, events, condition):
    *call, want = accumulator(nothing)
    _, [h] = heard(*call)
    assert (h.kind, h.operand, h.step, h.events) == ("uninitialised", "o", step, events)
    assert h.message.endswith(read_first(ref)) and h.mend.startswith(f"Initialise {ref} ")
    assert call[0].trace(*call[1:]).schedule[events[0]][:2] == ("run", step)
    [said] = re.findall(r"@pl.when\((.*)\)\.$", h.mend)
    assert said == condition
    *call, _ = accumulator(zeros_if(said))
    value, found = heard(*call)
    assert found == [] and (value == want).all()


def test_an_accumulator_initialised_on_the_wrong_axis_is_named_where_its_second_block_starts():
    f = pl.pallas_call(adds(zeros_if("pl.program_id(0) == 0")), shape(12), grid=(3, 2),  # it sums over axis 1
                       in_specs=[pl.BlockSpec((None, 4), lambda j, r: (r, j))],
                       out_specs=pl.BlockSpec((4,), lambda j, r: (j,)))
    _, [h] = heard(f, jnp.ones((2, 12)))
    assert (h.kind, h.step) == ("uninitialised", 2) and "o[4:12]" in h.message
    assert h.mend == "Initialise o in the first step of each visit of o: @pl.when(pl.program_id(1) == 0)."


def test_where_no_program_id_tells_the_first_step_none_is_named():
    every_third = pl.BlockSpec((4,), lambda i: (i // 3,))
    _, [h] = heard(pl.pallas_call(adds(), shape(8), grid=(6,), in_specs=[FOUR], out_specs=every_third), jnp.ones(24))
    assert (h.step, h.mend) == (0, "Initialise o in the first step of each visit of o.")


def test_an_output_read_in_the_only_step_of_its_visit_has_nothing_to_add_up():
    for options in {}, {"input_output_aliases": {0: 0}}:  # an alias shares the array, not the slot
        f = pl.pallas_call(adds(), shape(8), grid=(2,), in_specs=[FOUR], out_specs=FOUR, **options)
        _, [h] = heard(f, jnp.ones(8))
        assert h.mend == "Write o before reading it: its slot does not begin with what is in the array."


def test_an_aliased_array_that_is_read_from_its_input_and_written_to_its_output_is_no_hazard():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1
    value, found = heard(pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[FOUR], out_specs=FOUR,
                                        input_output_aliases={0: 0}), jnp.arange(8.0))
    assert found == [] and value.tolist() == list(range(1, 9))


# -- edges

def test_the_padding_of_an_edge_block_is_named_in_the_step_that_uses_it():
    _, [h] = heard(*sum_of(10, zeros_if("pl.program_id(0) == 0")))
    assert (h.operand, h.step, h.events) == ("o", 2, (8, 9)) and "o[2:4] depends" in h.message
    assert h.message.endswith(past_edge("x"))
    assert h.mend == ("Leave what lies past the edge out with jnp.where, on every operand, rather than multiplying it "
                      "by 0.")


def test_two_faults_are_two_hazards_each_with_its_own_elements_step_and_mend():
    _, found = heard(*sum_of(10))
    assert [(h.step, re.findall(r"o\[.*?\]", h.message)[0], h.message.split(": ")[-1]) for h in found] == [
        (0, "o[0:4]", read_first("o")), (2, "o[2:4]", past_edge("x"))]
    assert ["Initialise" in h.mend for h in found] == [True, False]


@pytest.mark.parametrize("multiply, ref", [(matmul, "o"), (matmul_in_scratch, "acc")])
def test_a_matmul_over_an_edge_names_both_operands_and_its_accumulator_only_if_it_is_at_fault(multiply, ref):
    edges, first = [(2, past_edge("a")), (2, past_edge("b"))], zeros_if("pl.program_id(2) == 0")
    for start, sources in (first, edges), (nothing, [(0, read_first(ref)), *edges]):
        *call, _ = multiply(start, k=10)
        assert [(h.step, h.message.split(": ")[-1]) for h in heard(*call)[1]] == sources


def test_no_edge_is_spoken_of_where_there_is_none():
    for n in 8, 12:
        [h] = heard(*sum_of(n))[1]
        assert not re.search("edge|past|outside", str(h))


# -- outputs that are not written

def test_what_another_output_left_is_not_called_unwritten():
    def kernel(x_ref, o_ref, p_ref):
        o_ref[...] = p_ref[...]
        p_ref[...] = x_ref[...]
    _, [h] = heard(pl.pallas_call(kernel, [shape(8), shape(8)], grid=(2,), in_specs=[FOUR], out_specs=[FOUR, FOUR]),
                   jnp.ones(8))
    assert (h.kind, h.operand) == ("uninitialised", "o") and h.message.endswith(read_first("p"))


def test_blocks_that_no_step_visits_are_spoken_of_once():
    def half(x_ref, o_ref):
        o_ref[0:2] = x_ref[0:2]
    _, found = heard(pl.pallas_call(half, shape(12), grid=(2,), in_specs=[FOUR], out_specs=FOUR), jnp.ones(8))
    assert [h.kind for h in found] == ["unvisited", "unwritten"]
    assert "o[2:4] and o[6:8] is never written" in found[1].message
    assert found[1].mend == "Write the whole block (o_ref[...] = …) in each visit."


def test_what_an_earlier_visit_of_the_same_block_wrote_is_not_called_never_written():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = x_ref[...]
    _, found = heard(pl.pallas_call(kernel, shape(8), grid=(2, 2), in_specs=[pl.BlockSpec((4,), lambda i, j: (j,))],
                                    out_specs=pl.BlockSpec((4,), lambda i, j: (j,))), jnp.ones(8))
    assert [h.kind for h in found] == ["revisit", "unwritten"]
    assert "o[0:8] is not written in the last visit of its block" in found[1].message


def test_what_two_memories_decide_only_together_is_put_down_to_both():
    def kernel(x_ref, o_ref, s_ref, t_ref):
        o_ref[...] = s_ref[...] & t_ref[...]
    _, [h] = heard(pl.pallas_call(kernel, shape(4, dtype=jnp.bool_), scratch_shapes=[pltpu.VMEM((4,), jnp.bool_)] * 2),
                   jnp.ones(4))
    assert h.message.endswith(f"{read_first('s')[:-1]}, and {read_first('t')}")


def test_an_output_of_no_dimension_is_reported_too():
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[0]
    f = pl.pallas_call(kernel, shape(), grid=(2,), in_specs=[FOUR], out_specs=pl.BlockSpec((), lambda i: ()))
    assert heard(f, jnp.ones(8))[1][0].message.startswith("output o: o depends on memory")


def test_a_compiled_program_takes_nan_where_the_simulator_draws_numbers():
    random = pl.InterpretParams(uninitialized_memory="random")
    f = pl.pallas_call(adds(), shape(4), interpret=random, on_hazard="ignore")
    assert f(jnp.ones(4)).max() <= 100 and np.isnan(jax.jit(f)(jnp.ones(4))).all()
