"""perfetto: a Timeline -> a trace file for the Perfetto viewer (ui.perfetto.dev) and Chrome's tracing page.

The format is Chrome's "Trace Event Format": JSON, one complete event ("X") a stretch of work, times in µs. As in a
profile of a real accelerator, each engine is a thread, an arrow leads from a copy to the wait that it ends, and the
bytes under way are a counter. Times are modelled, and the file says so.
"""
import json
import os
from pathlib import Path
from typing import Any

from .schedule import IN_START, OUT_START, RUN

PROCESS = 1
FIRST_THREAD = 2  # 0 and the process's own number are both its main thread: two lanes would fall into one
US = 1e6  # the format's unit


def write(timeline, path: str | os.PathLike) -> Path:
    """Writes the trace; returns its path. An existing file is replaced once the new one is whole."""
    path = Path(path)
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(json.dumps(as_trace(timeline), ensure_ascii=False), encoding="utf-8")
    os.replace(fresh, path)
    return path


def us(seconds: float) -> float:
    """Seconds as µs, in whole ns: the viewer cuts what is finer, and drops a box that then overlaps the one before.

    >>> us(1.23456e-6)
    1.235
    """
    return round(seconds * 1e9) / 1e3


def as_trace(timeline) -> dict[str, Any]:
    """The trace as plain data."""
    schedule, machine = timeline.schedule, timeline.machine
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(s.lane for s in timeline.spans), FIRST_THREAD)}
    about = {"modelled": True, "machine": machine.name, "alpha_us": machine.alpha * US,
             "beta_bytes_per_s": machine.beta, "total_us": timeline.total * US,
             "utilisation": timeline.utilisation, "bound": timeline.bound}
    events = [_name("process_name", f"{schedule.name} on {machine.name} (modelled)", 0)]
    for lane, number in lanes.items():
        events += [_name("thread_name", lane, number), _name("thread_sort_index", number, number)]
    events += [_complete(timeline, s, lanes[s.lane]) for s in timeline.spans]
    events += _arrows(timeline, lanes) + _in_flight(timeline)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _name(what: str, value: str | int, thread: int) -> dict:
    key = "sort_index" if what == "thread_sort_index" else "name"
    return {"ph": "M", "name": what, "pid": PROCESS, "tid": thread, "args": {key: value}}


def _complete(timeline, span, thread: int) -> dict:
    e = timeline.schedule[span.event]
    if e.verb == RUN:
        name, kind, args = f"step {e.step}", "compute", {"slots": list(e.slots)}
    elif span.waiting:
        name, kind, args = span.label, "wait", {"operand": e.operand, "slot": e.slot}
    else:
        name, kind = span.label, "copy in" if e.verb == IN_START else "copy out"
        args = {"operand": e.operand, "block": list(e.block), "slot": e.slot,
                "bytes": int(timeline.schedule.copied_bytes[span.event]), "arrives_us": us(span.arrives)}
    return {"ph": "X", "name": name, "cat": kind, "pid": PROCESS, "tid": thread, "ts": us(span.start),
            "dur": round(us(span.end) - us(span.start), 3), "args": {"step": e.step, "event": span.event, **args}}


def _arrows(timeline, lanes: dict[str, int]) -> list[dict]:
    """From each copy that a wait stood still for, to the end of that wait."""
    spans = {s.event: s for s in timeline.spans}
    found = []
    for number, start in enumerate(timeline.schedule.copy_of.tolist()):
        if start >= 0 and number in spans and spans[number].waiting:
            copy, wait = spans[start], spans[number]
            same = {"cat": "arrival", "name": "arrives", "id": number, "pid": PROCESS}
            # An arrow begins and ends inside a box; the viewer drops one that touches its very edge.
            found += [{"ph": "s", "tid": lanes[copy.lane], "ts": us(copy.start + copy.seconds / 2), **same},
                      {"ph": "f", "bp": "e", "tid": lanes[wait.lane], "ts": us(wait.end - wait.seconds / 4), **same}]
    return found


def _in_flight(timeline) -> list[dict]:
    """A counter: the bytes that have left one memory and not yet arrived in the other."""
    changes = {}
    for s in timeline.spans:
        if timeline.schedule[s.event].verb in (IN_START, OUT_START):
            size = int(timeline.schedule.copied_bytes[s.event])
            changes[s.start] = changes.get(s.start, 0) + size
            changes[s.arrives] = changes.get(s.arrives, 0) - size
    level, found = 0, []
    for time, change in sorted(changes.items()):
        level += change
        found.append({"ph": "C", "name": "bytes under way", "pid": PROCESS, "ts": us(time), "args": {"bytes": level}})
    return found

