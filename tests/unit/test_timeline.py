"""Modelled time: the tutorial's figures, and the bounds of the contract on generated machines."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.hardware import TOY, Machine
from tests.unit import loops
from tests.unit.test_pipeline import operand

US = 1e-6


def test_six_of_eight_slots_busy_is_75_percent():
    timeline = pl.timeline(pl.record(loops.rolled, 6))
    assert timeline.total == pytest.approx(8 * US)
    assert timeline.utilisation == pytest.approx(0.75)


def test_a_blocking_loop_keeps_the_core_busy_a_third_of_the_time():
    timeline = pl.timeline(pl.record(loops.blocking, 4, depth=1))
    assert timeline.total == pytest.approx(12 * US)
    assert timeline.utilisation == pytest.approx(1 / 3)


def test_fill_and_drain_are_one_copy_each():
    timeline = pl.timeline(pl.record(loops.rolled, 6))
    assert (timeline.fill, timeline.drain) == (pytest.approx(US), pytest.approx(US))


def test_latency_bound_until_the_depth_hides_it():
    slow = TOY.with_(alpha=6 * US)
    bounds = [pl.timeline(record(32, [operand("x", range(32), d)], flops=1000.0), TOY.with_(alpha=6 * US)).bound
              for d in (1, 2, 8)]
    assert slow.alpha == 6 * US
    assert bounds[:2] == ["latency", "latency"] and bounds[2] == "compute"


def test_bandwidth_bound_when_a_copy_takes_longer_than_a_step():
    timeline = pl.timeline(pl.record(loops.rolled, 6, block_bytes=3000))
    assert timeline.bound == "bandwidth"
    assert timeline.total == pytest.approx((6 * 3 + 1 + 3) * US)  # N·X/β, then the last step and its copy out


def test_one_port_for_both_ways_is_slower_than_one_each():
    schedule = pl.record(loops.rolled, 6)
    assert pl.timeline(schedule, TOY.with_(duplex=False)).total > pl.timeline(schedule, TOY).total


@given(steps=st.integers(1, 30), depth=st.integers(1, 5), alpha=st.floats(0, 9), copy=st.integers(1, 9),
       work=st.integers(0, 9), duplex=st.booleans())
def test_inputs_only_time_lies_between_the_bound_and_one_fill_more(steps, depth, alpha, copy, work, duplex):
    machine = Machine("m", alpha, 4.0, 1.0, 1.0, 10**9, duplex)
    x = operand("x", [t % 8 for t in range(steps)], depth)  # 4 bytes a block, so X/β is 1
    schedule = record(steps, [x], flops=float(work))
    machine = machine.with_(beta=4.0 / copy)
    # Blocks change at each step, so each step has a copy of its own.
    total = pl.timeline(schedule, machine).total
    bound = max(steps * work, steps * copy, steps * (alpha + copy + work) / depth)
    assert bound * (1 - 1e-9) <= total <= (bound + alpha + copy + work) * (1 + 1e-9)
    assert max(pl.timeline(schedule, machine).terms.values()) == pytest.approx(bound)


def test_sram_that_does_not_fit_is_said():
    assert str(pl.timeline(pl.record(loops.rolled, 4, block_bytes=10_000))).endswith("""
It needs 40,000 bytes of SRAM; one kernel has 16,000 on toy, over by 24,000.
  X: 2 × 10,000 = 20,000 bytes
  Y: 2 × 10,000 = 20,000 bytes
  Use smaller blocks or fewer slots (Buffered(n)), first of all for X.""")
    assert "SRAM" not in str(pl.timeline(pl.record(loops.rolled, 4)))


def test_a_timeline_names_its_excess():
    assert str(pl.timeline(pl.record(loops.blocking, 6))) == (
        "blocking on toy: 18 µs modelled, core busy 33%, order-bound (lower bounds: compute 6, bandwidth 6, latency 6 "
        "µs; above them: fill 1, drain 1, wait-out 5, order 5); 1 before the first step, 1 µs after the last")


def test_bubbles_are_the_cores_waits_and_what_for():
    t = pl.timeline(pl.record(loops.blocking, 2))
    assert [(round(b.seconds / US, 6), b.label, t.schedule[b.event].verb) for b in t.bubbles] == [
        (1, "wait X[0]", "copy_in_wait"), (1, "wait Y[0]", "copy_out_wait")] * 2
    assert t.busy + sum(b.seconds for b in t.bubbles) == pytest.approx(t.total)


def test_a_step_may_be_given_in_seconds():
    assert pl.timeline(pl.record(loops.rolled, 6), step_seconds=5 * US).total == pytest.approx((1 + 6 * 5 + 1) * US)


def test_a_timeline_says_in_words_that_it_is_modelled():
    assert "µs modelled" in str(pl.timeline(pl.record(loops.rolled, 4)))


def test_every_machine_names_its_sources():
    for machine in vars(pl.hardware).values():
        if isinstance(machine, Machine):
            assert machine.sources


def test_no_time_is_a_negative_zero():
    t = pl.timeline(pl.record(loops.rolled, 4))
    assert "-0.0" not in f"{t.excess} {t.terms} {t}" and str(t).count("drain") == 1
