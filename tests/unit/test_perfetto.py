"""The trace file: valid in its format, and the same lanes, times, waits and bytes as the timeline."""
import json

import jax.numpy as jnp
import pytest

import pallas_lite as pl
from pallas_lite.hardware import TOY, TPU_V5E

from .loops import blocking, rolled
from .test_pictures import gather

FAR = TOY.with_(alpha=3e-6)
REQUIRED = {"X": {"name", "cat", "ts", "dur", "pid", "tid", "args"}, "M": {"name", "pid", "tid", "args"},
            "C": {"name", "ts", "pid", "args"}, "s": {"name", "cat", "id", "ts", "pid", "tid"},
            "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"}}


def matmul():
    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...] @ y_ref[...]
    spec = [pl.BlockSpec((128, 128), lambda i, k: (i, k)), pl.BlockSpec((128, 128), lambda i, k: (k, 0))]
    x, y = jnp.zeros((512, 512)), jnp.zeros((512, 128))
    call = pl.pallas_call(kernel, jnp.zeros((512, 128)), grid=(4, 4), in_specs=spec,
                          out_specs=pl.BlockSpec((128, 128), lambda i, k: (i, 0)))
    return call.trace(x, y).timeline(TPU_V5E)


TIMELINES = {"double buffer": lambda: pl.timeline(pl.record(rolled, 8), FAR),
             "odd times": lambda: pl.timeline(pl.record(rolled, 40), TOY.with_(alpha=1.2345678e-6, beta=0.93e9)),
             "prefetched indices": lambda: gather().timeline(TPU_V5E),
             "blocking": lambda: pl.timeline(pl.record(blocking, 3, depth=1)), "no step": lambda: pl.timeline(
                 pl.record(lambda N, A, X, Y, B: None, 0)), "matmul": matmul}


@pytest.fixture(params=TIMELINES)
def both(request, tmp_path):
    timeline = TIMELINES[request.param]()
    path = timeline.to_perfetto(tmp_path / "trace.json")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    return timeline, json.loads(path.read_text(encoding="utf-8"))


def test_every_event_has_what_the_format_asks_for(both):
    _, trace = both
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"} and trace["otherData"]["modelled"] is True
    for e in trace["traceEvents"]:
        assert REQUIRED[e["ph"]] <= set(e), e
        assert e.get("ts", 0) >= 0 and e.get("dur", 0) >= 0


def test_each_lane_is_a_thread_that_no_viewer_takes_for_another(both):
    """Perfetto takes thread 0, and the one with the process's number, for the main thread."""
    _, trace = both
    threads = [e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert len(set(threads)) == len(threads) and not {0, *(e["pid"] for e in trace["traceEvents"])} & set(threads)


def test_times_are_whole_nanoseconds(both):
    """Perfetto cuts what is finer, and drops a box that then overlaps the one before."""
    _, trace = both
    for e in trace["traceEvents"]:
        for time in (e.get("ts", 0), e.get("dur", 0)):
            assert time * 1e3 == pytest.approx(round(time * 1e3), abs=1e-4)


def test_boxes_are_the_spans_and_do_not_overlap_in_a_lane(both):
    timeline, trace = both
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    boxes = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(names[e["tid"]], e["ts"], e["ts"] + e["dur"]) for e in boxes] == [
        (s.lane, pytest.approx(s.start * 1e6, abs=6e-4), pytest.approx(s.end * 1e6, abs=6e-4)) for s in timeline.spans]
    for lane in names:
        mine = sorted((round(e["ts"] * 1e3), round(e["ts"] * 1e3) + round(e["dur"] * 1e3)) for e in boxes
                      if e["tid"] == lane)
        assert all(end <= start for (_, end), (start, _) in zip(mine, mine[1:], strict=False))
    moved = sum(e["args"].get("bytes", 0) for e in boxes)
    assert moved == timeline.hbm_bytes["total"]
    computed = sum(e["dur"] for e in boxes if e["cat"] == "compute")
    assert computed == pytest.approx(timeline.busy * 1e6, abs=1e-3 * timeline.schedule.steps)


def test_an_arrow_leads_from_a_copy_to_the_wait_that_it_ends(both):
    timeline, trace = both
    boxes = {e["args"]["event"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
    starts = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "f"}
    assert set(starts) == set(ends) == {s.event for s in timeline.bubbles}
    for number, start in starts.items():
        wait = boxes[number]
        lane = [e for e in boxes.values() if e["tid"] == start["tid"]]
        copy = next(e for e in lane if e["ts"] < start["ts"] < e["ts"] + e["dur"])
        assert (copy["args"]["operand"], copy["args"]["slot"]) == (wait["args"]["operand"], wait["args"]["slot"])
        assert copy["args"]["arrives_us"] == pytest.approx(wait["ts"] + wait["dur"], abs=2e-3)
        assert wait["ts"] < ends[number]["ts"] < wait["ts"] + wait["dur"]


def test_the_counter_of_bytes_under_way_begins_and_ends_at_none(both):
    timeline, trace = both
    levels = [e["args"]["bytes"] for e in trace["traceEvents"] if e["ph"] == "C"]
    assert not levels or levels[-1] == 0 and min(levels) == 0 and max(levels) > 0
    assert bool(levels) == bool(timeline.schedule.steps)


def test_a_trace_replaces_an_older_one_whole(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old " * 10_000)
    TIMELINES["blocking"]().to_perfetto(str(path))
    assert json.loads(path.read_text())["traceEvents"]
