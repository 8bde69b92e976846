"""The picture of slots: what it draws agrees with the schedule, and with what the simulator finds in the slots."""
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.hardware import TOY
from pallas_lite.plot.look import PALETTE
from pallas_lite.plot.slots import STATES, occupancy
from tests.unit import loops
from tests.unit.drawn import boxes
from tests.unit.test_pipeline import operand, pipelines


@given(pipelines())
def test_each_slot_is_covered_from_the_start_to_the_end_without_a_gap(case):
    steps, operands = case
    schedule = record(steps, operands)
    for x in operands if steps else []:
        for what, end in (schedule, steps), (pl.timeline(schedule, TOY.with_(alpha=2e-6)), None):
            end = what.total if end is None else end
            for slot in range(x.depth):
                mine = [s for s in occupancy(what, x.name) if s.slot == slot]
                assert mine[0].start == 0 and mine[-1].end == pytest.approx(end)
                assert all(a.end == b.start and a.start < a.end for a, b in zip(mine, mine[1:], strict=False))
                assert all(s.state in STATES for s in mine)


@given(pipelines())
def test_what_a_step_runs_on_is_its_own_block_in_use(case):
    steps, operands = case
    schedule = record(steps, operands)
    for x in operands:
        found = occupancy(schedule, x.name) if steps else []
        for t, block in enumerate(x.blocks):
            number = int(schedule.runs[t])
            slot = schedule[number].slots[operands.index(x)]
            now = [s for s in found if s.slot == slot and s.start <= t + 0.5 < s.end]
            assert [(s.state, s.block) for s in now] == [("valid", block)]


@given(pipelines())
def test_every_copy_has_a_stretch_in_flight(case):
    steps, operands = case
    schedule = record(steps, operands)
    for x in operands if steps else []:
        state = "leaving" if x.is_output else "arriving"
        assert sum(s.state == state for s in occupancy(schedule, x.name)) == schedule.copies(x.name)


def test_an_output_finds_what_the_visit_two_before_left():
    schedule = record(4, [operand("o", range(4), 2, True)])
    slot = [(s.state, s.block) for s in occupancy(schedule, "o") if s.slot == 0]
    assert slot[:5] == [("garbage", None), ("valid", (0,)), ("leaving", (0,)), ("leftover", (0,)), ("valid", (2,))]


def test_an_input_is_left_over_after_its_last_reader():
    schedule = record(4, [operand("x", [0, 0, 1, 2])])
    slot = [(s.state, s.block) for s in occupancy(schedule, "x") if s.slot == 0]
    assert slot == [("arriving", (0,)), ("valid", (0,)), ("leftover", (0,)), ("arriving", (2,)), ("valid", (2,)),
                    ("leftover", (2,))]
    assert next(s for s in occupancy(schedule, "x") if s.state == "leftover").start == 1.8  # after the run of step 1


def test_in_time_a_block_is_there_when_it_arrives():
    t = pl.timeline(pl.record(loops.rolled, 4), TOY.with_(alpha=3e-6))
    copies = {s.event: s for s in t.spans if not s.waiting and s.lane == "DMA in"}
    for s in occupancy(t, "X"):
        if s.state == "arriving":
            assert (s.start, s.end) == (copies[s.event].start, pytest.approx(copies[s.event].arrives))


def test_a_hazard_frames_the_two_stretches_that_clash():
    x, o = operand("x", [0, 0, 1, 2]), operand("o", range(4), 2, True)
    schedule = record(4, [x, replace(o, array="x")])  # an in-place shift by one
    hazard = pl.verify(schedule)[0]
    assert len(hazard.events) == 2
    assert len(boxes(pl.plot_slots(schedule, hazards=[hazard]))) == len(occupancy(schedule)) + 2


def test_the_picture_has_a_row_for_each_slot_and_a_box_for_each_stretch():
    schedule = pl.record(loops.rolled, 4)
    ax = pl.plot_slots(schedule)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["X, slot 0", "X, slot 1", "Y, slot 0", "Y, slot 1"]
    assert len(boxes(ax)) == len(occupancy(schedule))
    assert {"A[0]", "B[3]"} <= {text.get_text() for text in ax.texts}
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [words for words, _, _ in STATES.values()]
    # A block in use has a colour for each visit: so has the legend, in one place.
    swatches = {to_hex(swatch.get_facecolor()).upper() for swatch in ax.get_legend().findobj(Rectangle)}
    assert swatches >= {*PALETTE} and "colour: visit" in ax.get_xlabel()


def test_states_differ_in_grey():
    """By hatch: a block in use may have any of four lightnesses, and only it has no hatch."""
    hatches = {state: hatch for state, (_, hatch, _) in STATES.items()}
    assert len(set(hatches.values())) == len(STATES) and [s for s, hatch in hatches.items() if not hatch] == ["valid"]


def test_notes_window_and_time_axis():
    schedule = pl.record(loops.rolled, 8)
    ax = pl.plot_slots(schedule, "Y", window=(2, 6), notes={t: f"n{t}" for t in range(8)})
    assert ax.get_xlim() == (2, 6)
    assert {f"n{t}" for t in range(2, 6)} == {x.get_text() for x in ax.texts if x.get_text().startswith("n")}
    timed = pl.plot_slots(pl.timeline(schedule))
    assert timed.get_xlabel() == "modelled time (µs) · colour: visit · dark bar: the kernel runs"
    assert timed.get_xlim() == (0, pytest.approx(10))


def test_what_is_not_there_is_said():
    schedule = pl.record(loops.rolled, 2)
    with pytest.raises(pl.SpecError, match="rolled has no operand 'Z'. It has X, Y."):
        pl.plot_slots(schedule, "Z")
    with pytest.raises(pl.SpecError, match="plot_slots takes a schedule or a timeline"):
        pl.plot_slots([1])


def test_leftovers_are_what_a_kernel_reads_from_its_output():
    """The story that the picture tells is the one that the values tell: 65 to 72."""
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((4, 4), jnp.float32), grid=(8, 4, 4),
                          in_specs=[pl.BlockSpec((None, 1, 1), lambda i, j, k: (i, j, k))],
                          out_specs=pl.BlockSpec((1, 1), lambda i, j, k: (j, k)), on_hazard="ignore",
                          interpret=pl.InterpretParams(uninitialized_memory=8.0))
    ones = jnp.ones((8, 4, 4))
    held = {}  # slot -> value, followed through the picture's stretches
    for s in sorted(occupancy(call.trace(ones).schedule, "o"), key=lambda s: s.start):
        if s.state == "valid":
            held[s.slot] = held.get(s.slot, 8) + 1
            held[s.block] = held[s.slot]
    result = call(ones)
    assert result.tolist() == [[held[j, k] for k in range(4)] for j in range(4)]
    assert (held[0, 0], held[3, 3]) == (65, 72)


@pytest.mark.parametrize("timed", [False, True])
def test_a_long_pipeline_folds_its_middle(timed):
    schedule = pl.record(loops.rolled, 74)
    ax = pl.plot_slots(pl.timeline(schedule) if timed else schedule, "X")
    said = {text.get_text() for text in ax.texts}
    assert {"… 58 more steps", "A[0]", "A[11]", "A[70]", "A[73]"} <= said and not said & {"A[20]", "A[60]"}
    if not timed:
        assert [t.get_text() for t in ax.get_xticklabels()] == [*map(str, range(12)), *map(str, range(70, 74))]
    whole = pl.plot_slots(schedule, "X", window=(0, 74))
    assert not any("more steps" in text.get_text() for text in whole.texts)
