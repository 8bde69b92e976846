"""The derivation stepper without a browser: moves, their verdicts, undo, and a way to the double buffer."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ipywidgets.widgets import widget

import pallas_lite as pl
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait
from pallas_lite.explorers.stepper import EARLIER, LATER, lines_of
from pallas_lite.explorers.stepper import blocking as blocking_loop
from pallas_lite.schedule import IN_START, OUT_WAIT, RUN


@pytest.fixture
def game():
    made = pl.derivation_stepper(4)
    assert made.ui
    yield made
    made.close()


def blocking(steps):
    return lines_of(pl.record(blocking_loop, steps))


def place(game, verb, block):
    """The line of the block's copy or step."""
    return next(n for n, (v, _, b) in enumerate(game.order) if (v, b) == (verb, block))


def at(game, verb, block):
    game.set(line=place(game, verb, block))
    return game


def test_it_begins_as_the_blocking_loop_that_the_course_begins_with(game):
    assert game.order == blocking(4) and not game.hazards
    assert game.timeline.total == pytest.approx(12e-6)
    assert game.details == "B = 11 21 31 41"


def test_a_wait_behind_its_step_is_judged_at_once_and_undone(game):
    at(game, "copy_in_wait", 1).move(LATER)
    assert game.headline.startswith("✗ read before wait") and game.hazards[0].mend in game.details
    assert "nan" in game.details and "B = 11 21 31 41 would be right" in game.details
    assert any(line.endswith("✗") for line in game.lines())
    game.undo()
    assert game.order == blocking(4) and game.line == 6 and game.details == "B = 11 21 31 41"
    assert "Nothing to undo" in game.undo().details


def test_a_wait_before_its_start_hangs_and_says_so(game):
    at(game, "copy_in_wait", 0).move(EARLIER)
    assert "hang" in game.headline and "never finished" in game.details


def test_far_stops_where_the_next_line_would_be_wrong(game):
    at(game, OUT_WAIT, 0).move(LATER, far=True)
    assert place(game, OUT_WAIT, 0) == place(game, RUN, 2) - 1  # step 2 writes Y[0] anew
    assert not game.hazards
    game.move(LATER)
    assert game.hazards[0].kind == "overwrite in flight"


def test_a_step_stays_where_it_is(game):
    at(game, RUN, 1).move(EARLIER)
    assert game.order == blocking(4) and "stays where it is" in game.details


@pytest.mark.parametrize("steps, depth, micros", [(4, 2, 6), (5, 2, 7), (3, 3, 5), (4, 1, 9), (1, 2, 3)])
def test_better_moves_lead_from_blocking_to_the_double_buffer(steps, depth, micros):
    game = pl.derivation_stepper(steps, depth)
    total = game.timeline.total
    for _ in range(30):
        if "o move makes it faster" in game.better().details:
            break
        assert not game.hazards and game.timeline.total <= total
        total = game.timeline.total
    # N + 2 with two slots; with one, each copy in waits for the step before: 2N + 1.
    assert total == pytest.approx(micros * 1e-6)
    params = pl.InterpretParams(dma_execution_mode="random")
    assert np.array_equal(pl.execute(game.schedule, game.blocks, params=params), 10.0 * np.arange(1, steps + 1) + 1)


@pytest.mark.parametrize("depth, might", [(1, True), (2, False), (3, False)])
def test_another_slot_is_named_only_where_one_may_help(depth, might):
    def best(depth):
        game = pl.derivation_stepper(4, depth)
        while "o move makes it faster" not in game.better().details:
            pass
        return game
    game = best(depth)
    assert ("Another slot might: try the depth." in game.details) == might
    assert ("never waits from the first step to the last" in game.details) != might
    assert (best(depth + 1).timeline.total < game.timeline.total * (1 - 1e-9)) == might


def test_an_order_is_recorded_as_the_loop_written_by_hand_is(game):
    def loop(N, A, X, Y, B):
        copy_in_start(A[0], X[0])
        copy_in_start(A[1], X[1])
        for i in range(N):
            copy_in_wait(X[i % 2])
            compute(X[i % 2], Y[i % 2])
            copy_out_start(Y[i % 2], B[i])
            copy_out_wait(Y[i % 2])
            if i + 2 < N:
                copy_in_start(A[i + 2], X[i % 2])
    written = pl.record(loop, 4)
    found = game.record(lines_of(written))
    assert list(found) == list(written) and found.operands == written.operands
    assert game._seconds(lines_of(written)) == pl.timeline(written).total


def test_the_lines_of_a_call_of_ones_own_can_be_moved():
    x = jax.ShapeDtypeStruct((512, 128), jnp.float32)
    spec = pl.BlockSpec((128, 128), lambda i: (i, 0))
    add = pl.pallas_call(lambda x_ref, y_ref, o_ref: None, x, grid=(4,), in_specs=[spec, spec], out_specs=spec)
    game = pl.explore(add, x, x, view="stepper", machine=pl.hardware.TPU_V5E)
    trace = add.trace(x, x)
    assert game.ui and list(game.schedule) == list(trace.schedule) and not game.hazards
    assert game.timeline.total == pytest.approx(trace.timeline(pl.hardware.TPU_V5E).total)
    at(game, "copy_in_wait", 2).move(LATER, far=True)
    assert not game.hazards
    game.move(LATER)
    game.move(LATER)
    assert game.hazards and "B =" not in game.details
    game.undo().undo()
    assert not game.hazards
    game.set(depth=3)
    assert game.schedule.operands[0].depth == 3
    game.close()
    many = pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(64,), in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)))
    with pytest.raises(pl.SpecError, match="call has 320 lines in 64 steps; the stepper takes up to 40 lines, "
                                             "here about 8 steps. Give it a smaller grid"):
        pl.explore(many, x, view="stepper")


def test_the_mouse_is_told_the_line_and_the_time_of_each_box(game):
    words = re.findall("<title>(.*?)</title>", game._image.value, re.DOTALL)
    assert len(words) == 20 + 1  # and the chosen one once more
    assert words[5:7] == ["line 6: copy_in_start(A[1] → X[1])\n3 to 4 µs", "line 7: copy_in_wait(X[1])\n3 to 4 µs"]
    assert "1: copy_in_start(A[0] → X[0])" in game._notes["at"].value


def test_a_better_move_is_not_offered_on_a_wrong_program(game):
    at(game, "copy_in_wait", 1).move(LATER)
    assert "First make it right" in game.better().details


def test_the_page_follows_each_move_and_another_n_begins_anew(game):
    at(game, IN_START, 1)
    picture, words = game._image.value, game._words.value
    for _ in range(3):
        game.move(EARLIER)
    assert game._image.value != picture and game._words.value != words
    assert [text for text, _ in game.controls["line"].options] == game.lines()
    assert game.controls["line"].value == game.line == place(game, IN_START, 1)
    game.controls["depth"].value = 1
    assert game.hazards and game.order != blocking(4)  # the order stays, the room is gone
    game.controls["steps"].value = 3
    assert game.order == blocking(3) and "Nothing to undo" in game.undo().details
    game.set(**game.first)
    assert game.order == blocking(4) and game.settings["depth"] == 2


def test_choosing_a_line_points_at_it_in_the_picture(game):
    before = game._image.value
    game.controls["line"].value = 2
    assert game.line == 2 and game._image.value != before and game.controls["at"].value == 2
    game.controls["at"].value = 7  # the slider, for those who work by keyboard
    assert game.line == game.controls["line"].value == 7
    game.controls["steps"].value = 6
    assert (game.line, game.controls["at"].value, game.controls["at"].max) == (0, 0, 29)
    game.controls["at"].value = 29
    game.controls["steps"].value = 1
    assert (game.line, game.controls["at"].value, game.controls["at"].max) == (0, 0, 4)


def test_still_picture_text_and_end(game):
    picture, words = (data for data, _ in game.still("A still picture."))
    assert game.headline in words["text/html"] and picture["image/png"].startswith("iVBOR")
    assert "→ copy_in_start(A[0] → X[0])" in words["text/plain"]
    listing, timeline = game.figure().axes
    assert set(game.lines()) <= {text.get_text() for text in listing.texts}, "the program, beside its timeline"
    assert timeline.get_xlabel().startswith("modelled time")
    game.close()
    before = set(widget._instances)
    again = pl.derivation_stepper(2)
    assert again.ui
    again.close()
    assert set(widget._instances) == before


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 7}, {"depth": 5}, {"depth": 1.5}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(pl.SpecError, match="derivation_stepper"):
        pl.derivation_stepper(**wrong)
