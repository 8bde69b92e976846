"""Results that depend on the order of parallel steps: found beside all else, whatever the seed, with a mend that helps.
"""
import functools

import jax.numpy as jnp
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu

from .test_hazards import BLOCK, PARALLEL, X8, copy, reads_what_it_wrote, said, shape
from .test_manual import HBM, X


def carries(x_ref, o_ref, s_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        s_ref[...] = jnp.zeros_like(s_ref)
    s_ref[...] += x_ref[...]
    o_ref[...] = s_ref[...]


def through_scratch(x_ref, o_ref, s_ref):
    s_ref[...] = x_ref[...]
    o_ref[...] = s_ref[...] * 2


def parallel(kernel, x, **options):
    """The result and hazards over blocks of four, each scratch of four, whose steps may run in any order."""
    options = {"in_specs": [BLOCK], "out_specs": BLOCK, "compiler_params": PARALLEL, "grid": (len(x) // 4,),
               "out_shape": shape(len(x)), **options}
    return said(pl.pallas_call(kernel, **options), x)


SCRATCH = {"scratch_shapes": [pltpu.VMEM((4,), jnp.float32)]}
MEANT = ('If it is meant to, mark the axis "arbitrary" in dimension_semantics: then its steps run in the order of the '
         "grid.")


def test_scratch_carried_along_a_parallel_axis_is_named():
    value, [h] = parallel(carries, X8, **SCRATCH)
    assert value.tolist() == [1, 2, 3, 4, 6, 8, 10, 12]
    assert (h.kind, h.operand, h.step, h.slot, h.events) == ("parallel axis", "o", 1, 1, (6, 7))
    assert str(h) == (
        "step 1: output o: o[4:8] changes when the steps of parallel axis 0 run backwards.\n"
        "  Let no step use what another left in scratch (reset it in each step), in a slot or in an array that they "
        f"share. {MEANT}")


def test_scratch_carried_along_two_parallel_axes_is_named():
    """Each step adds to what the one before it left, whichever of the axes it went along."""
    def kernel(x_ref, o_ref, s_ref):
        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))
        def _():
            s_ref[...] = jnp.zeros_like(s_ref)
        s_ref[...] += x_ref[...]
        o_ref[...] = s_ref[...]
    block = pl.BlockSpec((4,), lambda i, j: (2 * i + j,))
    _, [h] = parallel(kernel, jnp.arange(16.0), grid=(2, 2), in_specs=[block], out_specs=block, **SCRATCH,
                      compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 2))
    assert "changes when the steps of parallel axes 0 and 1 run backwards" in h.message
    assert 'mark each of these axes "arbitrary"' in h.mend


@pytest.mark.parametrize("guilty", [0, 1])
@pytest.mark.parametrize("seed", [None, 1])
def test_of_two_parallel_axes_the_one_that_carries_is_named(guilty, seed):
    def kernel(x_ref, o_ref, s_ref):
        @pl.when(pl.program_id(guilty) == 0)
        def _():
            s_ref[pl.program_id(1 - guilty)] = 0.0
        s_ref[pl.program_id(1 - guilty)] += x_ref[0]
        o_ref[...] = jnp.full_like(o_ref, s_ref[pl.program_id(1 - guilty)])
    block, semantics = pl.BlockSpec((4,), lambda i, j: (2 * i + j,)), ["parallel"] * 2
    options = {"grid": (2, 2), "in_specs": [block], "out_specs": block, "interpret": pl.InterpretParams(
        random_seed=seed), "scratch_shapes": [pltpu.SMEM((2,), jnp.float32)]}
    _, [h] = parallel(kernel, jnp.arange(16.0), **options, compiler_params=pltpu.CompilerParams(semantics))
    assert f"changes when the steps of parallel axis {guilty} run backwards" in h.message and h.mend.endswith(MEANT)
    semantics[guilty] = "arbitrary"  # as the mend says
    assert parallel(kernel, jnp.arange(16.0), **options, compiler_params=pltpu.CompilerParams(semantics))[1] == []


@pytest.mark.parametrize("rest, kinds", [
    (lambda o_ref, t_ref: None, ["unwritten"]), (lambda o_ref, t_ref: fill(o_ref, t_ref[...]), ["uninitialised"]),
    (lambda o_ref, t_ref: fill(o_ref, jnp.ones(4)), [])], ids=["unwritten", "uninitialised", "all is written"])
def test_another_hazard_of_an_output_does_not_hide_that_it_depends_on_the_order(rest, kinds):
    def kernel(x_ref, o_ref, s_ref, t_ref):
        carries(x_ref, o_ref.at[0], s_ref)
        rest(o_ref, t_ref)
    f = pl.pallas_call(kernel, shape(2, 12), grid=(3,), in_specs=[BLOCK], compiler_params=PARALLEL,
                       out_specs=pl.BlockSpec((2, 4), lambda i: (0, i)), scratch_shapes=SCRATCH["scratch_shapes"] * 2)
    *others, order = sorted(said(f, jnp.ones(12))[1], key=lambda h: h.kind == "parallel axis")
    assert [h.kind for h in others] == kinds and all("o[1:2, 0:12]" in h.message for h in others)
    assert order.message == "output o: o[0:1, 4:12] changes when the steps of parallel axis 0 run backwards."


def fill(o_ref, value):
    o_ref[1] = value


def test_what_is_unspecified_in_the_order_of_the_grid_is_not_put_down_to_another():
    def kernel(x_ref, o_ref, s_ref):
        s_ref[...] += x_ref[...]  # nobody sets it to 0
        o_ref[...] = s_ref[...]
    assert [h.kind for h in parallel(kernel, X8, **SCRATCH)[1]] == ["uninitialised"]


def test_garbage_that_a_maximum_hides_in_another_order_is_found():
    """Backwards, the first step reads what nobody has written: a number below all others would not show."""
    def kernel(x_ref, o_ref, s_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            s_ref[...] = jnp.zeros_like(s_ref)
        o_ref[...] = jnp.maximum(s_ref[...], x_ref[...])
    value, [h] = parallel(kernel, 1 + X8, **SCRATCH)
    assert value.tolist() == (1 + X8).tolist() and h.kind == "parallel axis" and "o[4:8] changes" in h.message


@pytest.mark.parametrize("semantics, at_each_row, value, kinds", [
    (("parallel", "arbitrary"), False, [3, 6], ["parallel axis"]),
    (("parallel", "arbitrary"), True, [3, 3], []),  # as the mend says
    (("arbitrary", "arbitrary"), False, [3, 6], [])])  # scratch may carry a value from row to row
def test_a_sum_that_is_reset_once_and_not_in_each_row_gets_that_as_its_mend(semantics, at_each_row, value, kinds):
    def kernel(x_ref, o_ref, s_ref):
        row_begins = pl.program_id(1) == 0

        @pl.when(row_begins if at_each_row else (pl.program_id(0) == 0) & row_begins)
        def _():
            s_ref[...] = jnp.zeros_like(s_ref)
        s_ref[...] += x_ref[...]
        o_ref[...] = s_ref[...]
    got, found = parallel(kernel, jnp.ones(24), grid=(2, 3), in_specs=[pl.BlockSpec((4,), lambda i, k: (3 * i + k,))],
                          out_specs=pl.BlockSpec((4,), lambda i, k: (i,)), out_shape=shape(8), **SCRATCH,
                          compiler_params=pltpu.CompilerParams(dimension_semantics=semantics))
    assert got[::4].tolist() == value and [h.kind for h in found] == kinds
    assert [h.mend for h in found] == [
        "Let no step use what another left in scratch (reset it in the first step of each row: "
        f"@pl.when(pl.program_id(1) == 0)), in a slot or in an array that they share. {MEANT}"] * len(kinds)


def test_reading_a_neighbour_in_place_along_a_parallel_axis_is_named():
    after = pl.BlockSpec((4,), lambda i: (jnp.minimum(i + 1, 2),))
    value, [h] = parallel(copy, jnp.arange(12.0), in_specs=[after], input_output_aliases={0: 0})
    assert value.tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11]
    assert h.kind == "parallel axis" and "o[0:4] changes" in h.message
    assert h.mend == f"Let no step use what another left in a slot or in an array that they share. {MEANT}"


@pytest.mark.parametrize("kernel, options", [
    (through_scratch, SCRATCH), (copy, {"input_output_aliases": {0: 0}}), (reads_what_it_wrote, {}),
    (carries, {"compiler_params": pltpu.CompilerParams(dimension_semantics=("arbitrary",)), **SCRATCH})])
def test_steps_that_leave_each_other_alone_are_no_hazard(kernel, options):
    assert parallel(kernel, X8, **options)[1] == []


def test_sums_over_an_arbitrary_axis_inside_parallel_ones_are_no_hazard():
    def matmul(a_ref, b_ref, o_ref, s_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            s_ref[...] = jnp.zeros_like(s_ref)
        s_ref[...] += jnp.dot(a_ref[...], b_ref[...])
        o_ref[...] = s_ref[...]
    a = jnp.arange(16.0).reshape(4, 4)
    value, hazards = said(pl.pallas_call(
        matmul, shape(4, 4), grid=(2, 2, 2), in_specs=[pl.BlockSpec((2, 2), lambda i, j, k: (i, k)),
                                                       pl.BlockSpec((2, 2), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((2, 2), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((2, 2), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"))), a, a)
    assert hazards == [] and (value == a @ a).all()


def test_a_seed_shuffles_the_steps_of_parallel_axes_alone():
    def order(axis, seed):
        def kernel(o_ref, count):
            @pl.when(count[0] > 1e3)  # nobody has written it: the very first step
            def _():
                count[0] = 0.0
            count[0] += 1
            o_ref[...] = jnp.full_like(o_ref, count[0])
        semantics = ["arbitrary", "arbitrary"]
        semantics[axis] = "parallel"
        f = pl.pallas_call(kernel, shape(4, 3), grid=(4, 3), out_specs=pl.BlockSpec((1, 1), lambda i, j: (i, j)),
                           scratch_shapes=[pltpu.SMEM((1,), jnp.float32)], on_hazard="ignore",
                           interpret=pl.InterpretParams(random_seed=seed, uninitialized_memory=1e6),
                           compiler_params=pltpu.CompilerParams(dimension_semantics=semantics))
        return f().astype(int).tolist(), [e.block for e in f.trace().schedule if e.verb == "copy_out_start"]
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    assert order(0, None)[0] == rows
    shuffled, blocks = order(0, 3)
    assert shuffled != rows and sorted(shuffled) == rows and order(0, 3)[0] == shuffled
    assert [shuffled[i][j] for i, j in blocks] == list(range(1, 13))  # the schedule runs in that order too
    assert [sorted(r) for r in order(1, 3)[0]] == rows and order(1, 3)[0] != rows


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_does_not_change_the_cause_that_is_named(seed):
    x, options = jnp.arange(16.0), {**SCRATCH, "interpret": pl.InterpretParams(random_seed=seed)}
    (_, [plain]), (_, [h]) = parallel(carries, x, **SCRATCH), parallel(carries, x, **options)
    assert (h.kind, h.message, h.mend) == (plain.kind, plain.message, plain.mend)


def test_a_race_that_only_shuffled_steps_have_is_put_down_to_their_order():
    after = {"in_specs": [pl.BlockSpec((4,), lambda i: (jnp.minimum(i + 1, 3),))], "input_output_aliases": {0: 0}}
    for seed in range(9):
        _, found = parallel(copy, jnp.arange(16.0), **after, interpret=pl.InterpretParams(random_seed=seed))
        race = [h for h in found if h.kind == "hbm race"]
        assert all(h.message.startswith(f"where the steps of parallel axis 0 run in the order of random_seed={seed}, ")
                   and h.mend.endswith(MEANT) for h in race) and (race or found[0].kind == "parallel axis")
        if race:
            return
    raise AssertionError("no seed runs the steps in an order with a race")


# -- kernels with copies of their own

ROWS, BUF = pl.BlockSpec((4, 8), lambda i: (i, 0)), pltpu.VMEM((4, 8), jnp.float32)


def to_the_same_rows(x, o, buf):
    pltpu.sync_copy(x.at[pl.ds(4 * pl.program_id(0), 4)], buf)
    pltpu.sync_copy(buf, o.at[0:4])


def to_the_same_rows_by_a_pipeline(x, o, buf):
    i = pl.program_id(0)
    pltpu.emit_pipeline(lambda x, o: o.__setitem__(..., x[...]), grid=(1,), out_specs=[ROWS],
                        in_specs=[pl.BlockSpec((4, 8), lambda j: (i, 0))])(x, o)


def adds_to_what_is_left(x, o, buf):
    here = pl.ds(4 * pl.program_id(0), 4)

    @pl.when(pl.program_id(0) == 0)
    def _():
        buf[...] = jnp.zeros_like(buf)

    @functools.partial(pl.run_scoped, new=BUF)
    def _(new):
        pltpu.sync_copy(x.at[here], new)
        buf[...] += new[...]
    pltpu.sync_copy(buf, o.at[here])


def reads_garbage_too(x, o, buf):
    adds_to_what_is_left(x, o, buf)
    pl.run_scoped(lambda new: pltpu.sync_copy(new, o.at[0:4]), BUF)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("kernel, rows, kinds, changes", [
    (to_the_same_rows, 4, [], "o[0:4, 0:8]"), (to_the_same_rows, 8, ["unwritten"], "o[0:4, 0:8]"),
    (to_the_same_rows_by_a_pipeline, 8, ["unwritten"], "o[0:4, 0:8]"), (adds_to_what_is_left, 16, [], "o[4:16, 0:8]"),
    (reads_garbage_too, 16, ["uninitialised"], "o[4:16, 0:8]")])
def test_what_depends_on_the_order_is_said_beside_other_hazards_and_with_a_seed(kernel, rows, kinds, changes, seed):
    f = pl.pallas_call(kernel, shape(rows, 8), grid=4, in_specs=[HBM], out_specs=HBM, scratch_shapes=[BUF],
                       interpret=pltpu.InterpretParams(random_seed=seed),
                       compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)))
    with pytest.warns(pl.HazardWarning) as warned:
        f(X)
    *others, order = warned[0].message.hazards
    assert sorted({h.kind for h in others}) == kinds
    assert order.message == f"output o: {changes} changes when the steps of parallel axis 0 run backwards."
    assert order.mend.startswith("Let no step use what another left in scratch (reset it in each step), in a slot")
