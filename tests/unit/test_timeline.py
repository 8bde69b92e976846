"""Modelled time: the tutorial's figures, and the bounds of the contract on generated machines."""
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.hardware import TOY, Machine
from pallas_lite.plot import PALETTE
from pallas_lite.plot.look import Label
from pallas_lite.plot.timeline import height, overlaps, visits
from tests.unit import loops
from tests.unit.drawn import boxes
from tests.unit.test_pipeline import operand, pipelines

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
  Use smaller blocks or fewer slots (Buffered(n)), first of all for X; or give a real machine, such as \
pl.hardware.TPU_V5E.""")
    assert "SRAM" not in str(pl.timeline(pl.record(loops.rolled, 4)))


def test_a_timeline_names_its_excess():
    assert str(pl.timeline(pl.record(loops.blocking, 6))) == (
        "blocking on toy: 18 µs modelled, core busy 33%, order-bound (lower bounds: compute 6, bandwidth 6, latency 6 "
        "µs; above them: first trip 1, last trip 1, wait-out 5, order 5); fill 1, drain 1 µs")


def test_fill_and_drain_are_one_thing_in_text_picture_and_explorer():
    t = pl.timeline(pl.record(loops.rolled, 6, depth=3), TOY.with_(alpha=3 * US))
    assert not {"fill", "drain"} & set(t.excess) and t.excess["first trip"] != pytest.approx(t.fill)
    assert str(t).endswith("fill 4, drain 4 µs") and (t.fill, t.drain) == (pytest.approx(4 * US),) * 2
    shaded = [patch.get_extents().transformed(ax.transData.inverted()) for ax in [pl.plot_timeline(t)]
              for patch in ax.patches]
    assert [box.width for box in shaded] == [pytest.approx(4), pytest.approx(4)]
    explorer = pl.schedule_explorer(6, 3, machine=TOY.with_(alpha=3 * US))
    assert "fill 4 µs · drain 4 µs" in explorer.details


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


# -- the picture


def texts(ax):
    return [t.get_text() for t in ax.texts]


def ticks(ax, lane):
    """The x of the short upright lines at the foot of a lane: one path with gaps."""
    [path] = [p.vertices for c in ax.collections if isinstance(c, LineCollection) for p in c.get_paths()
              if np.isnan(p.vertices).any()]
    assert (path[1::3, 1] == lane - 0.38).all() and (path[0::3, 0] == path[1::3, 0]).all()
    return path[1::3, 0].tolist()


def colours(ax):
    """The colour of each box, by (lane's height, start)."""
    found = {}
    for corners, colour, hatch in boxes(ax):
        if not hatch:
            (left, low), (_, high) = corners.min(0).tolist(), corners.max(0).tolist()
            found[round((low + high) / 2), round(left, 6)] = colour
    return found


def test_a_block_has_one_colour_in_all_lanes_and_the_next_another():
    t = pl.timeline(pl.record(loops.rolled, 6))
    found = colours(pl.plot_timeline(t))
    for s in t.spans:
        if not s.waiting:
            assert found[height(s.lane), round(s.start / US, 6)] == PALETTE[s.step % 4 if s.lane != "DMA in" else
                                                                          t.schedule[s.event].block[0] % 4]


@given(pipelines())
def test_a_visit_is_counted_by_the_copies_before_it(case):
    steps, operands = case
    schedule = record(steps, operands)
    number = visits(schedule)
    for x in operands if steps else []:
        verb = "copy_out_start" if x.is_output else "copy_in_start"
        assert [number[n] for n, e in enumerate(schedule) if (e.operand, e.verb) == (x.name, verb)] == list(
            range(schedule.copies(x.name)))
    if steps and operands:
        most = max(operands, key=lambda x: schedule.copies(x.name))
        changes = [t for t in range(1, steps) if most.blocks[t] != most.blocks[t - 1]]
        assert number[schedule.runs].tolist() == [sum(c <= t for c in changes) for t in range(steps)]


def test_each_wait_is_a_tick_below_the_core_where_it_ends():
    t = pl.timeline(pl.record(loops.rolled, 4), TOY.with_(alpha=3 * US))
    waits = [time / US for e, time in zip(t.schedule, t.times, strict=True) if e.verb.endswith("wait")]
    assert ticks(pl.plot_timeline(t), height("core")) == pytest.approx(waits) and len(waits) == 8


@pytest.mark.parametrize("depth, rows", [(2, 2), (4, 3), (8, 6)])
def test_each_latency_bar_can_be_followed_from_its_copy_to_its_arrival(depth, rows):
    call = pl.pallas_call(lambda x_ref, o_ref: None, X, grid=(9,), in_specs=[spec(depth)], out_specs=spec(depth))
    t = pl.timeline(call.trace(X).schedule, TOY.with_(alpha=(rows - 0.5) * US, beta=1e9))
    found = drawn_bars(pl.plot_timeline(t))
    wanted = [(s.end / US, s.arrives / US) for s in t.spans if s.arrives > s.end]
    assert sorted((left, right) for left, right, *_ in found) == [pytest.approx(each) for each in sorted(wanted)]
    for number, (left, right, low, high) in enumerate(found):  # none lies on another, nor on a box
        assert not [other for other in found[:number] if min(right, other[1]) - max(left, other[0]) > 1e-6
                    and min(high, other[3]) - max(low, other[2]) > 1e-6]
        assert 0.4 <= -high % 1 < -low % 1 <= 0.61
    assert len({low for *_, low, _ in found if low > 1}) == rows


X = jax.ShapeDtypeStruct((9 * 125, 2), jnp.float32)  # nine blocks of 1000 bytes


def spec(depth):
    return pl.BlockSpec((125, 2), lambda i: (i, 0), pipeline_mode=pl.Buffered(depth))


def drawn_bars(ax):
    """Of each latency: from, to, and from where to where it is high."""
    [bars] = [c for c in ax.collections if c.get_label() == "latency"]
    corners = [path.vertices.reshape(-1, 5, 2) for path in bars.get_paths()]
    return [(c[:, 0].min(), c[:, 0].max(), c[:, 1].min(), c[:, 1].max()) for mine in corners for c in mine]


def test_a_program_that_hangs_says_so_where_others_have_a_total():
    t = pl.show(loops.waits_on_slot_one, 3).timeline
    drawn = "✗ hangs at 4 µs modelled; drawn as if it went on"
    assert pl.plot_timeline(t).get_title("left") == f"waits_on_slot_one: {drawn}"
    beside = pl.plot_listing(t).figure.axes[1]
    assert beside.get_title("left").replace("\n", " ") == f"waits_on_slot_one on toy: {drawn}"
    assert str(t).startswith("waits_on_slot_one on toy: ✗ hangs at 4 µs modelled; if it went on: 5 µs modelled, core")
    right = pl.show(loops.waits_on_slot_one, 2).timeline  # its last line is right for even N
    assert not right.hangs and "hangs" not in f"{right} {pl.plot_timeline(right).get_title('left')}"
    # A wait with nothing to wait for has the colour of no visit.
    hollow = pl.plot_listing(t).collections[-1].get_edgecolors()
    assert to_hex(hollow[-1]) == "#ffffff" and all(to_hex(c).upper() in PALETTE for c in hollow[:-1])


@given(pipelines())
def test_a_timeline_hangs_exactly_where_the_verifier_says_so(case):
    schedule = record(*case)
    lame = replace(schedule, events=tuple(e for e in schedule if not (e.verb.endswith("start") and e.step == 1)))
    for each in schedule, lame:
        assert bool(pl.timeline(each).hangs) == ("hang" in {h.kind for h in pl.verify(each)})


def test_a_steady_state_is_only_where_a_copy_is_under_way_while_the_core_computes():
    for loop, depth, overlapped in ((loops.blocking, 1, False), (loops.rolled, 2, True)):
        for machine in TOY, TOY.with_(alpha=3 * US), TOY.with_(flops=7e9):
            t = pl.timeline(pl.record(loop, 6, depth=depth), machine)
            assert overlaps(t) == overlapped == ("steady state" in texts(pl.plot_timeline(t)))


def test_fill_and_drain_have_names_also_where_they_are_narrow():
    def shown(ax):
        ax.figure.draw_without_rendering()
        return {text.whole for text in ax.texts if isinstance(text, Label) and text.fit(*(
            np.ptp(ax.transData.transform(text.corners), axis=0) * 72 / ax.figure.dpi))}
    for steps in 1, 15:
        slow = pl.timeline(pl.record(loops.rolled, steps), step_seconds=9 * US)
        assert shown(pl.plot_timeline(slow)) >= {"fill", "drain"}


def test_beside_some_steps_stands_what_else_happens_meanwhile():
    t = pl.timeline(pl.record(loops.rolled, 60, block_bytes=500), TOY.with_(flops=1e9 / 4))
    ax = pl.plot_timeline(t, steps=range(10, 20))
    low, high = ax.get_xlim()
    core = sorted((c[:, 0].min(), c[:, 0].max()) for c, *_ in boxes(ax) if c[:, 1].min() < 1 < c[:, 1].max())
    assert core[0][0] <= low and core[-1][1] >= high - 0.01 * (high - low), "the core's lane has no blank in it"
    assert all(a[1] >= b[0] - 1e-6 for a, b in itertools.pairwise(core))
    assert ax.get_xlabel().startswith("steps 10 to 19 of 60 · ")
    assert pl.plot_timeline(t, steps=range(10, 20), of=4096).get_xlabel().startswith("steps 10 to 19 of 4,096 · ")
    # A label is in the part of its box that is seen.
    assert all(low - 1e-9 <= text.corners[0][0] <= text.corners[1][0] <= high for text in ax.texts
               if isinstance(text, Label))


def test_the_three_phases_have_their_names():
    t = pl.timeline(pl.record(loops.rolled, 6))
    names = {text.get_text(): text.get_position()[0] for text in pl.plot_timeline(t).texts}
    assert (names["fill"], names["steady state"], names["drain"]) == pytest.approx((0.5, 4, 7.5))


@pytest.mark.parametrize("loop", [loops.no_wait_in, loops.no_wait_out, loops.one_slot, loops.waits_on_slot_one])
def test_a_hazard_is_named_where_it_happens(loop):
    view = pl.show(loop, 3)
    hazard = view.hazards[0]
    ax = pl.plot_timeline(view.timeline, hazards=[hazard])
    [named] = [t for t in ax.texts if hazard.kind in t.get_text()]
    spans = {s.event: (s.start, height(s.lane)) for s in view.timeline.spans}
    start, lane = spans.get(hazard.events[-1], (view.timeline.times[hazard.events[-1]], height("core")))
    assert named.xy == (pytest.approx(start / US), pytest.approx(lane + 0.45))
    assert sum("✗" in text for text in texts(ax)) == len(hazard.events)


def test_a_long_pipeline_folds_its_middle():
    t = pl.timeline(pl.record(loops.rolled, 74))
    ax = pl.plot_timeline(t)
    assert "… 58 more steps" in texts(ax)
    assert [text for text in texts(ax) if text.isdigit()] == [*map(str, range(12)), *map(str, range(70, 74))]
    # What is shown, 13 µs and 5, keeps its scale, and the ticks their times; the fold takes 6 % of that.
    at = dict(zip([label.get_text() for label in ax.get_xticklabels()], ax.get_xticks(), strict=True))
    assert at["12"] - at["0"] == pytest.approx(12) and at["76"] - at["72"] == pytest.approx(4)
    assert at["72"] - at["12"] == pytest.approx(1 + 0.06 * 18 + 1)


def test_a_fold_shows_the_hazard_in_its_middle():
    def loop(N, A, X, Y, B):
        for i in range(N):
            pl.copy_in_start(A[i], X[0])
            if i != 30:
                pl.copy_in_wait(X[0])
            pl.compute(X[0], Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
    schedule = pl.record(loop, 60, depth=1)
    said = texts(pl.plot_timeline(pl.timeline(schedule), hazards=pl.verify(schedule)[:1]))
    assert {"29", "30", "31"} <= set(said) and sum("more steps" in text for text in said) == 2


@pytest.mark.parametrize("whole", [{"fold": None}, {"limit": 90 * US}])
def test_a_time_axis_that_is_asked_for_is_not_folded(whole):
    ax = pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 64)), **whole)
    assert not any("more steps" in text for text in texts(ax)) and ax.get_xlim()[1] >= 66


def test_what_happens_after_the_end_of_the_time_axis_is_not_drawn():
    t = pl.timeline(pl.record(loops.rolled, 100))
    ax = pl.plot_timeline(t, limit=8 * US)
    ends = [corners[:, 0].max() for corners, *_ in boxes(ax)]
    assert len(ends) == sum(s.start < 8 * US for s in t.spans) and max(ends) <= 8
    assert {"A[7]", "6", "B[5]"} <= set(texts(ax)) and not {"A[8]", "8", "B[8]"} & set(texts(ax))


@pytest.mark.parametrize("asked", [{"selected": 35}, {"selected": -1}, {"steps": range(7, 9)}])
def test_a_picture_of_what_there_is_not_is_refused(asked):
    with pytest.raises(pl.SpecError, match="rolled has 35 events and 7 steps, from 0"):
        pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 7)), **asked)
