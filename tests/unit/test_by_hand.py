"""Hand-written pipelines: recorded, verified, executed and timed like our own."""
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite.engines.record import record as record_pipeline
from tests.unit import loops
from tests.unit.test_pipeline import operand

BLOCKS = np.arange(8.0).reshape(4, 2)


def test_the_hand_written_loop_is_our_pipeline():
    ours = record_pipeline(4, [operand("X", range(4)), operand("Y", range(4), 2, True)])
    assert [e[:1] + e[3:] for e in pl.record(loops.rolled, 4)] == [e[:1] + e[3:] for e in ours]


@pytest.mark.parametrize("n", range(6))
def test_the_rolled_loop_is_right_for_every_n(n):
    schedule = pl.record(loops.rolled, n)
    blocks = np.arange(2.0 * n).reshape(n, 2)
    assert pl.verify(schedule) == []
    np.testing.assert_array_equal(pl.execute(schedule, blocks, lambda x: 3 * x + 1), 3 * blocks + 1)


@pytest.mark.parametrize("loop, kind, step, slot", [
    (loops.no_wait_in, "read before wait", 0, 0),
    (loops.no_wait_out, "overwrite in flight", 2, 0),
    (loops.one_slot, "read before wait", 0, 0),
    (loops.waits_on_slot_one, "never waited", 2, 0),
])
def test_the_classic_bugs_are_named(loop, kind, step, slot):
    hazards = pl.verify(pl.record(loop, 3 if loop is loops.waits_on_slot_one else 4))
    assert (kind, step, slot) in [(h.kind, h.step, h.slot) for h in hazards]


def test_waiting_on_slot_one_is_right_for_even_n_only():
    assert pl.verify(pl.record(loops.waits_on_slot_one, 4)) == []
    first = pl.verify(pl.record(loops.waits_on_slot_one, 3))[0]
    assert str(first) == (
        "step 2: copy_out_wait(Y[1]) waits for a copy that nobody started: the program would hang here.\n"
        "  Start a copy on Y[1] before this wait, or drop the wait.")


def test_a_wrong_slot_is_no_race_but_wrong_values():
    schedule = pl.record(loops.wrong_slot, 4)
    assert pl.verify(schedule) == []
    step, read = pl.provenance(schedule)["B", (1,)]
    assert step == 1 and read == {"X": (0,)}  # step 1 read block 0
    np.testing.assert_array_equal(pl.execute(schedule, BLOCKS)[1], BLOCKS[0] + 1)


def test_a_missing_wait_shows_garbage_not_luck():
    got = pl.execute(pl.record(loops.no_wait_in, 2), BLOCKS[:2])
    assert np.isnan(got).all()
    eager = pl.InterpretParams(dma_execution_mode="eager")
    np.testing.assert_array_equal(pl.execute(pl.record(loops.no_wait_in, 2), BLOCKS[:2], params=eager), BLOCKS[:2] + 1)


def test_slots_start_as_what_one_asks_for():
    eights = pl.InterpretParams(uninitialized_memory=8.0)
    assert (pl.execute(pl.record(loops.no_wait_in, 2), BLOCKS[:2], params=eights) == 9.0).all()


def test_two_copies_on_one_slot_and_one_wait_guarantee_neither():
    def loop(N, A, X, Y, B):
        pl.copy_in_start(A[0], X[0])
        pl.copy_in_start(A[1], X[0])
        pl.copy_in_wait(X[0])
        pl.compute(X[0], Y[0])
        pl.copy_in_wait(X[0])
    assert [h.kind for h in pl.verify(pl.record(loop, 2))] == ["overwrite in flight", "read before wait"]


def test_executing_a_loop_that_hangs_says_so():
    with pytest.raises(pl.PipelineError, match=r"step 2: copy_out_wait\(Y\[1\]\) waits .* would hang"):
        pl.execute(pl.record(loops.waits_on_slot_one, 3), BLOCKS[:3])


@pytest.mark.parametrize("line, error, text", [
    (lambda A, X, Y, B: pl.copy_in_start(A[4], X[0]), pl.BlockIndexError,
     r"step 0: A\[4\] does not exist: A has blocks 0 to 3. Guard the copy with an if."),
    (lambda A, X, Y, B: pl.copy_in_wait(X[2]), pl.BlockIndexError, r"X has slots 0 to 1. .*modulo"),
    (lambda A, X, Y, B: pl.copy_in_wait(X[-1]), pl.BlockIndexError, r"X\[-1\] does not exist"),
    (lambda A, X, Y, B: pl.copy_in_start(X[0], A[0]), pl.PipelineError, r"X\[0\] is one of the input slots"),
    (lambda A, X, Y, B: pl.copy_out_start(X[0], B[0]), pl.PipelineError, "here belongs one of the output slots"),
    (lambda A, X, Y, B: pl.copy_in_start(0, X[0]), pl.PipelineError, r"takes blocks and slots such as A\[0\]"),
    (lambda A, X, Y, B: pl.copy_in_start(A, X[0]), pl.PipelineError,
     r"copy_in_start\(A, X\[0\]\): A is all of the input array. Choose one: A\[0\]"),
    (lambda A, X, Y, B: X[0] + 1, pl.PipelineError, r"X\[0\] is a place, not a value"),
    (lambda A, X, Y, B: Y.__setitem__(0, X[0]), pl.PipelineError, "filled by a copy or by the kernel"),
    (lambda A, X, Y, B: pl.copy_in_wait(X["0"]), pl.PipelineError, "one whole number"),
])
def test_a_wrong_place_is_named(line, error, text):
    with pytest.raises(error, match=text):
        pl.record(lambda N, A, X, Y, B: line(A, X, Y, B), 4)


def test_a_loop_without_end_is_stopped():
    def loop(N, A, X, Y, B):
        while True:
            pl.compute(X[0], Y[0])
    with pytest.raises(pl.PipelineError, match="does not end"):
        pl.record(loop, 4)


def test_show_says_why_it_has_nothing_to_show():
    def hole(N, A, X, Y, B):
        raise NotImplementedError("Exercise 3.2 is not done yet")

    def past_the_end(N, A, X, Y, B):
        pl.copy_in_start(A[N], X[0])
    assert str(pl.show(hole)) == "… nothing to show: Exercise 3.2 is not done yet"
    said = str(pl.show(past_the_end))
    assert pl.show(past_the_end).verdict == said
    assert "past_the_end stopped (line " in said and "A[4] does not exist" in said
    assert "NameError: name 'copyin' is not defined" in str(pl.show(lambda N, A, X, Y, B: copyin(A)))  # noqa: F821


def test_show_ends_a_loop_that_does_not(monkeypatch):
    from pallas_lite import show

    def forever(N, A, X, Y, B):
        while True:
            pass
    limit = show.__globals__["_time_limit"]
    monkeypatch.setitem(show.__globals__, "_time_limit", lambda seconds: limit(1))
    assert "did not end within 1 s" in str(pl.show(forever))
