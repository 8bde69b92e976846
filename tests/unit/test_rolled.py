"""The rolled loop: what it prints, and that it says neither more nor less than the events."""
import itertools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.engines.record import record
from pallas_lite.specs import Operand
from tests.unit import loops
from tests.unit.test_contract import operand, tables


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


def test_the_tutorials_loop(golden):
    """As chapter 3 writes it."""
    golden("rolled_double_buffer", str(pl.record(loops.rolled, 4).rolled()))


@pytest.mark.parametrize("depth", [1, 3])
def test_other_depths(golden, depth):
    spec = pl.BlockSpec((8,), lambda i: i, pl.Buffered(depth))

    def add(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    call = pl.pallas_call(add, f32(48), grid=6, in_specs=[spec, spec], out_specs=spec)
    golden(f"rolled_depth_{depth}", str(call.trace(f32(48), f32(48)).schedule.rolled()))


def test_two_dimensions(golden):
    spec = pl.BlockSpec((8, 8), lambda i, j: (i, j))

    def add(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    call = pl.pallas_call(add, f32(32, 24), grid=(4, 3), in_specs=[spec, spec], out_specs=spec)
    golden("rolled_add_2d", str(call.trace(f32(32, 24), f32(32, 24)).schedule.rolled()))


def matmul(x_ref, y_ref, o_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...] @ y_ref[...]


def test_matmul_keeps_its_output(golden):
    call = pl.pallas_call(matmul, f32(16, 16), grid=(2, 2, 4),
                          in_specs=[pl.BlockSpec((8, 8), lambda i, j, k: (i, k)),
                                    pl.BlockSpec((8, 8), lambda i, j, k: (k, j))],
                          out_specs=pl.BlockSpec((8, 8), lambda i, j, k: (i, j)))
    golden("rolled_matmul", str(call.trace(f32(16, 32), f32(32, 16)).schedule.rolled()))


def test_a_reduction_with_a_kept_output_and_a_kept_row(golden):
    def total(x_ref, w_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = w_ref[...]
        o_ref[...] += x_ref[...]
    row = pl.BlockSpec((1, 8), lambda i, j: (i, 0))
    call = pl.pallas_call(total, f32(3, 8), grid=(3, 4), in_specs=[pl.BlockSpec((1, 8), lambda i, j: (i, j)), row],
                          out_specs=row)
    golden("rolled_reduction", str(call.trace(f32(3, 32), f32(3, 8)).schedule.rolled()))


def test_a_learners_blocking_loop(golden):
    golden("rolled_blocking", str(pl.record(loops.blocking, 3, depth=1).rolled()))


def test_a_gather_by_prefetched_scalars(golden):
    """Blocks that follow no formula are a table, and begin where it changes."""
    def gather(i_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]
    spec = pltpu.PrefetchScalarGridSpec(1, 8, [pl.BlockSpec((1, 8), lambda t, rows: (rows[t], 0))],
                                        pl.BlockSpec((1, 8), lambda t, rows: (t, 0)))
    rows = np.array([3, 1, 1, 0, 2, 2, 2, 5], np.int32)
    golden("rolled_gather",
           str(pl.pallas_call(gather, f32(8, 8), grid_spec=spec).trace(rows, f32(6, 8)).schedule.rolled()))


# -- exact

class Row:
    """`x` in the printed text: indexing it gives a name and numbers."""

    def __init__(self, name):
        self.name = name

    def __getitem__(self, index):
        return (self.name, *(index if isinstance(index, tuple) else (index,)))


def run_the_text(text, names):
    """Runs what is printed as a Python program; returns the calls that it makes, as (verb, arguments…)."""
    text = re.sub(r"run step \w+ on (.*)", r"run(\1)", text.replace(" →", ","))
    calls = []
    names = {name: Row(name) for name in names}
    for verb in ("copy_in_start", "copy_in_wait", "run", "copy_out_start", "copy_out_wait"):
        names[verb] = lambda *places, verb=verb: calls.append((verb, *places))
    exec(text, names)
    return calls


def calls_of(schedule):
    found = []
    for e in schedule:
        if e.verb == "run":
            found.append(("run", *((x.name, s) for x, s in zip(schedule.operands, e.slots, strict=True))))
            continue
        x = schedule.operand(e.operand)
        slot = x.name, e.slot
        found.append({"copy_in_start": lambda x, e, slot: (e.verb, (x.array, *e.block), slot),
                      "copy_out_start": lambda x, e, slot: (e.verb, slot, (x.array, *e.block))}.get(
                          e.verb, lambda x, e, slot: (e.verb, slot))(x, e, slot))
    return found


def exact(schedule):
    """The loop gives every event back, and so does its text, run as a program."""
    rolled = schedule.rolled()
    assert rolled.events() == list(schedule)
    names = {name for x in schedule.operands for name in (x.array, x.name)}
    assert run_the_text(str(rolled), names) == calls_of(schedule)
    return rolled


@settings(max_examples=100)
@given(tables())
def test_any_pipeline_of_ours(case):
    steps, operands = case
    rolled = exact(record(steps, operands))
    assert rolled.body or steps < 2  # each has a loop


@settings(max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_any_grid(grid, data):
    """Index maps that take grid indices as they are need no table."""
    positions = list(itertools.product(*map(range, grid)))
    operands = []
    for i in range(data.draw(st.integers(1, 3))):
        axes = data.draw(st.lists(st.integers(0, len(grid) - 1), min_size=1, max_size=2, unique=True))
        operands.append(operand(f"x{i}", [tuple(p[a] for a in axes) for p in positions],
                                data.draw(st.integers(1, 4)), data.draw(st.booleans())))
    rolled = exact(record(len(positions), operands))
    assert not [name for name in rolled.tables if "block" in name]


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("loop", [f for f in vars(loops).values() if callable(f) and f.__module__ == loops.__name__])
def test_any_loop_of_a_learner(loop, n):
    rolled = exact(pl.record(loop, n))
    assert rolled.body or n < 2


def start_next_after_compute(N, A, X, Y, B):
    """The copies of the next step between this step's run and its copy out."""
    pl.copy_in_start(A[N - 1], X[0])
    for i in range(N):
        pl.copy_in_wait(X[i % 2])
        pl.compute(X[i % 2], Y[0])
        if i + 1 < N:
            pl.copy_in_start(A[N - 2 - i], X[(i + 1) % 2])
        pl.copy_out_start(Y[0], B[N - 1 - i])
        pl.copy_out_wait(Y[0])


def test_blocks_from_the_last_to_the_first(golden):
    golden("rolled_backwards", str(exact(pl.record(start_next_after_compute, 5))))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)), max_size=25))
def test_any_program_at_all(calls):
    """Whatever is recorded is given back, as a loop or unrolled."""
    def program(N, A, X, Y, B):
        for verb, block, slot, other in calls:
            call, *places = [(pl.copy_in_start, A[block], X[slot]), (pl.copy_in_wait, X[slot]),
                             (pl.compute, X[slot], Y[other]), (pl.copy_out_start, Y[slot], B[block]),
                             (pl.copy_out_wait, Y[slot])][verb]
            call(*places)
    exact(pl.record(program, 4))


def test_what_does_not_repeat_is_printed_as_it_is():
    def program(N, A, X, Y, B):
        pl.copy_in_start(A[0], X[0])
        for i in range(N):
            if i % 2:
                pl.copy_in_wait(X[0])
                pl.copy_in_start(A[i], X[0])
            else:
                pl.copy_in_start(A[i], X[0])
                pl.copy_in_wait(X[0])
            pl.compute(X[0], Y[0])
    text = str(exact(pl.record(program, 4)))
    assert text.startswith("# the steps do not repeat one pattern: no loop, only what happens\ncopy_in_start(A[0]")
    assert "for t" not in text


def test_long_tables_are_folded_and_the_loop_stays_exact():
    blocks = [(b,) for b in np.random.default_rng(0).integers(0, 9, 200).tolist()]
    x = Operand("x", "x", False, 2, (9,), np.dtype(np.float32), (1,), (), blocks)
    rolled = record(200, [x]).rolled()
    assert rolled.events() == list(record(200, [x]))
    assert ", …]" in str(rolled) and len(str(rolled)) < 700


HBM, X = pl.BlockSpec(memory_space=pl.ANY), np.ones((32, 8), np.float32)


def copies(kernel, scratch=(), result=(32, 8)):
    """The schedule of a kernel with copies of its own."""
    return pl.pallas_call(kernel, f32(*result), in_specs=[HBM], out_specs=HBM, scratch_shapes=scratch).trace(X).schedule


def test_a_kernels_own_double_buffer():
    def kernel(x, o, x_buf, o_buf, in_sems, out_sems):
        def fetch(i):
            return pltpu.make_async_copy(x.at[pl.ds(i * 4, 4)], x_buf.at[i % 2], in_sems.at[i % 2])

        def send(i):
            return pltpu.make_async_copy(o_buf.at[i % 2], o.at[pl.ds(i * 4, 4)], out_sems.at[i % 2])
        fetch(0).start()
        for i in range(8):
            if i + 1 < 8:
                fetch(i + 1).start()
            fetch(i).wait()
            if i >= 2:
                send(i - 2).wait()  # as late as it may be: on behalf of step i, though step i - 2 sent it
            o_buf[i % 2] = x_buf[i % 2] * 2
            send(i).start()
        send(6).wait()
        send(7).wait()
    schedule = copies(kernel, [pltpu.VMEM((2, 4, 8), np.float32)] * 2 + [pltpu.SemaphoreType.DMA((2,))] * 2)
    steps = [e.step for e in schedule]
    assert steps == sorted(steps)
    assert str(exact(schedule)) == """\
copy_in_start(x[0] → x_buf[0])
for t in range(8):
    if t < 7:
        copy_in_start(x[t + 1] → x_buf[(t + 1) % 2])
    copy_in_wait(x_buf[t % 2])
    if t >= 2:
        copy_out_wait(o_buf[t % 2])
    run step t on x_buf[t % 2], o_buf[t % 2]
    copy_out_start(o_buf[t % 2] → o[t])
copy_out_wait(o_buf[0])
copy_out_wait(o_buf[1])"""


def test_a_run_shows_what_it_touches_under_names_that_a_person_would_give():
    def kernel(x, o):
        rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
        pltpu.emit_pipeline(lambda a, b: b.__setitem__(..., a[...]), grid=(8,), in_specs=[rows], out_specs=[rows])(x, x)
        pltpu.emit_pipeline(lambda a, b, c: c.__setitem__(..., a[...] + b[...]), grid=(8,), in_specs=[rows, rows],
                            out_specs=[rows])(x, x, o)
    schedule = copies(kernel)
    assert [x.name for x in schedule.operands] == ["x", "x_2", "x_3", "o"]
    runs = [line for line in schedule.listing().splitlines() if line.startswith("run")]
    assert runs[::8] == ["run step 0 on x[0], x_2[0]", "run step 8 on x[0], x_3[0], o[0]"]
    assert "-1" not in schedule.listing() and "-1]" not in str(schedule.rolled())
    assert [h.kind for h in pl.verify(schedule)] == ["written input"]  # as it was seen when it ran
    assert pl.verify(replace(schedule, hazards=None)) == []  # nothing is read where a step leaves an operand alone
