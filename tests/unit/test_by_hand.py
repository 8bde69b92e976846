"""Hand-written pipelines: recorded, verified, executed and timed like our own."""
import re
import signal
import time
import warnings

import jax
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import record
from pallas_lite.alarm import time_limit
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
        "step 2: copy_out_wait(Y[1]) waits for a copy that is not under way: the program would hang here.\n"
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
     r"before the first step: A\[4\] does not exist: A has blocks 0 to 3. Guard the copy with an if."),
    (lambda A, X, Y, B: (pl.compute(X[0], Y[0]), pl.copy_out_start(Y[0], B[-1])), pl.BlockIndexError,
     r"after step 0: B\[-1\] does not exist: B has blocks 0 to 3. Blocks are counted from 0."),
    (lambda A, X, Y, B: pl.copy_in_wait(X[2]), pl.BlockIndexError, r"X has slots 0 to 1. .*modulo"),
    (lambda A, X, Y, B: pl.copy_in_wait(X[-1]), pl.BlockIndexError, r"X\[-1\] does not exist"),
    (lambda A, X, Y, B: pl.copy_in_start(X[0], A[0]), pl.PipelineError,
     r"X\[0\] is a slot of X; here belongs a block of A\."),
    (lambda A, X, Y, B: pl.copy_out_start(X[0], B[0]), pl.PipelineError, r"here belongs a slot of Y\."),
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
    monkeypatch.setitem(show.__globals__, "LONGEST", 1)
    assert "did not end within 1 s" in str(pl.show(forever))


# -- whatever a learner writes

def blocking_with(places, n=4, depth=2):
    """A blocking loop on the slots that `places(i)` names, and what it computes."""
    def loop(N, A, X, Y, B):
        for i in range(N):
            x, y = places(i, X, Y)
            pl.copy_in_start(A[i], x)
            pl.copy_in_wait(x)
            pl.compute(x, y)
            pl.copy_out_start(y, B[i])
            pl.copy_out_wait(y)
    schedule = pl.record(loop, n, depth=depth)
    assert pl.verify(schedule) == []
    return pl.execute(schedule, BLOCKS[:n])


@pytest.mark.parametrize("places", [
    lambda i, X, Y: (X[np.int64(i % 2)], Y[np.uint8(0)]),
    lambda i, X, Y: (list(X)[i % 2], next(iter(Y))),
    lambda i, X, Y: (X[True], Y[jax.numpy.int32(1)]),
])
def test_any_whole_number_is_an_index(places):
    np.testing.assert_array_equal(blocking_with(places), BLOCKS + 1)


def test_x_and_y_may_have_depths_of_their_own():
    np.testing.assert_array_equal(blocking_with(lambda i, X, Y: (X[i % 3], Y[0]), depth=(3, 1)), BLOCKS + 1)
    schedule = pl.record(loops.blocking, 2, depth=(3, 1))
    assert [x.depth for x in schedule.operands] == [3, 1]


def test_while_recursion_and_swapped_names():
    def loop(N, A, X, Y, B):
        def rest(i, now, after):
            if i == N:
                return
            if i + 1 < N:
                pl.copy_in_start(A[i + 1], after)
            pl.copy_in_wait(now)
            pl.compute(now, Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
            rest(i + 1, after, now)
        pl.copy_in_start(A[0], X[0])
        rest(0, X[0], X[1])

    def with_while(N, A, X, Y, B):
        now, after, i = X[0], X[1], 0
        pl.copy_in_start(A[0], now)
        while i < N:
            if i + 1 < N:
                pl.copy_in_start(A[i + 1], after)
            pl.copy_in_wait(now)
            pl.compute(now, Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
            now, after, i = after, now, i + 1
    assert list(pl.record(loop, 4)) == list(pl.record(with_while, 4))
    assert pl.verify(pl.record(loop, 4)) == []
    np.testing.assert_array_equal(pl.execute(pl.record(loop, 4), BLOCKS), BLOCKS + 1)


@pytest.mark.parametrize("sent, text", [
    ((0, 1, 2), "1 of B's 4 blocks never written, the first B[3]: garbage stays.\n  Send each to its place"),
    ((0, 2), "2 of B's 4 blocks never written, the first B[1]: garbage stays.\n  Send"),
    ((), "4 of B's 4 blocks never written, the first B[0]: garbage stays.\n  Send"),
])
def test_a_block_that_no_copy_goes_to_is_named(sent, text):
    def loop(N, A, X, Y, B):
        for i in sent:
            pl.copy_in_start(A[i], X[0])
            pl.copy_in_wait(X[0])
            pl.compute(X[0], Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
    schedule = pl.record(loop, 4)
    assert pl.verify(schedule) == []  # no choice of moments changes it
    assert pl.show(loop, 4).verdict.startswith("✗ step 0: " + text)
    with pytest.warns(pl.HazardWarning, match=re.escape("loop: step 0: " + text)) as caught:
        got = pl.execute(schedule, BLOCKS)
    assert [h.kind for h in caught[0].message.hazards] == ["unwritten"]
    np.testing.assert_array_equal(np.isnan(got[:, 0]), [i not in sent for i in range(4)])


def test_all_blocks_written_is_nothing_to_say():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.execute(pl.record(loops.rolled, 4), BLOCKS)
    assert pl.show(loops.rolled, 4).verdict.startswith("✓") and pl.show(loops.rolled, 0).verdict.startswith("✓")
    with pytest.warns(pl.HazardWarning, match=r"1 of B's 4 blocks never written"):  # recorded for 3, and given 4
        pl.execute(pl.record(loops.rolled, 3), BLOCKS)


def test_no_blocks_no_runs_and_two_runs_a_block():
    assert len(pl.record(loops.rolled, 0)) == 0 and pl.verify(pl.record(loops.rolled, 0)) == []
    assert pl.execute(pl.record(loops.rolled, 0), np.zeros((0, 2))).shape == (0, 2)

    def copies_only(N, A, X, Y, B):
        pl.copy_in_start(A[0], X[0])
    assert [h.kind for h in pl.verify(pl.record(copies_only, 4))] == ["never waited"]

    def twice(N, A, X, Y, B):
        for i in range(N):
            pl.copy_in_start(A[i], X[0])
            pl.copy_in_wait(X[0])
            pl.compute(X[0], Y[0])
            pl.compute(X[0], Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
    schedule = pl.record(twice, 4)
    assert schedule.steps == 8 and pl.verify(schedule) == []
    np.testing.assert_array_equal(pl.execute(schedule, BLOCKS), BLOCKS + 1)


def test_a_long_loop_is_no_endless_one():
    assert len(pl.record(loops.rolled, 50_000)) == 250_000


@pytest.mark.parametrize("blocks, dtype", [(BLOCKS.astype(np.float16), np.float16), (BLOCKS.astype(int), np.float32),
                                           (jax.numpy.asarray(BLOCKS, jax.numpy.bfloat16), jax.numpy.bfloat16),
                                           (BLOCKS.reshape(4, 2, 1), np.float64), (BLOCKS[:, 0], np.float64)])
def test_blocks_of_any_shape_and_dtype(blocks, dtype):
    got = pl.execute(pl.record(loops.rolled, 4), blocks, lambda x: 2 * x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(float), 2 * np.asarray(blocks).astype(float))


def yields(N, A, X, Y, B):
    pl.compute(X[0], Y[0])
    yield


@pytest.mark.parametrize("make, text", [
    (lambda: pl.record(yields, 4), "yields is a generator or a coroutine, so calling it runs nothing. Take yield, "
                                   "async and await out of it."),
    (lambda: pl.record(loops.rolled, -1), "record(…, steps=-1): give a whole number, 0 or more."),
    (lambda: pl.record(loops.rolled, 4.0), "record(…, steps=4.0): give a whole number, 0 or more."),
    (lambda: pl.record(loops.rolled, 4, depth=0), "record(…, depth=0): give a whole number, 1 or more."),
    (lambda: pl.record(loops.rolled, 4, depth=(2, 0)), "record(…, depth=0): give a whole number, 1 or more."),
    (lambda: pl.record(lambda N, A, X, Y, B: A[1.5], 4), "A[1.5]: index it with one whole number."),
    (lambda: pl.record(lambda N, A, X, Y, B: A[jax.numpy.float32(1)], 4), "A[Array(1., dtype=float32)]: index it with "
                                                                          "one whole number."),
    (lambda: pl.execute(pl.record(loops.rolled, 4), BLOCKS[:3]),
     "rolled uses block 3, and there are 3 blocks. Record it for 3 steps, or give more blocks."),
    (lambda: pl.execute(pl.record(loops.rolled, 4), BLOCKS[:1]),
     "rolled uses block 3, and there is 1 block. Record it for 1 step, or give more blocks."),
    (lambda: pl.execute(pl.record(loops.rolled, 4), BLOCKS, lambda x: x.sum()),
     "step 0: the kernel returns the shape (), and a slot of Y holds (2,). Return one value for each element."),
    (lambda: pl.execute(pl.record(loops.rolled, 4), BLOCKS, lambda x: None),
     "step 0: the kernel returns the shape (), and a slot of Y holds (2,). Return one value for each element."),
    (lambda: pl.execute(record_pipeline(1, [operand("x", [0])]), BLOCKS),
     "execute plays a loop that `record` recorded, and pipeline is none. A pallas_call is called on its arrays."),
])
def test_what_cannot_be_recorded_or_executed(make, text):
    with pytest.raises(pl.PipelineError) as error:
        make()
    assert str(error.value) == text


def test_places_of_another_recording():
    kept = []
    pl.record(lambda N, A, X, Y, B: kept.append(X), 4)
    with pytest.raises(pl.PipelineError) as error:
        pl.record(lambda N, A, X, Y, B: pl.copy_in_start(A[0], kept[0][0]), 4)
    assert str(error.value) == ("copy_in_start(A[0], X[0]): X[0] is left over from another loop. Use the places that "
                                "this loop is given.")


def test_time_limits_nest_and_the_outer_one_goes_on():
    """`check` puts one around an answer, and pl.show in the answer another."""
    def spins(N, A, X, Y, B):
        while True:
            pass
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="outer"), time_limit(0.5, lambda: TimeoutError("outer")):
        with pytest.raises(TimeoutError, match="inner"), time_limit(0.1, lambda: TimeoutError("inner")):
            record(spins, 2)
        pl.show(lambda N, A, X, Y, B: None, 2)
        record(spins, 2)
    assert time.monotonic() - began < 5
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
