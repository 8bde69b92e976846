"""slots: a Schedule or a Timeline -> which block is in which slot, and in what state. All of it from the data."""
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

from ..errors import expect
from ..schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Schedule
from ..timeline import Timeline, unit_of
from ..verify import Hazard
from .look import LETTER, ON_COLOUR, PALETTE, Fold, box, boxes, entitle, folded, ink_of, label
from .timeline import edges

# state -> what the legend says, hatch, colour of the box (None: the page's; in use: one for each visit). Grey print
# tells them by hatch: only a block in use has none.
STATES = {"garbage": ("nothing yet: garbage", "xx", None), "arriving": ("copy in, in flight", "////", None),
          "valid": ("block in use", "", PALETTE[0]), "leaving": ("copy out, in flight", "\\\\\\\\", None),
          "leftover": ("left over, stale", "..", "#dddddd")}

KEY = "colour: visit · dark bar: the kernel runs"


class Segment(NamedTuple):
    """One stretch of a slot: from `start` to `end` it holds `block` in this state. `event` began it; -1: the start."""

    operand: str
    slot: int
    state: str  # a key of STATES
    block: tuple[int, ...] | None
    start: float
    end: float
    event: int


def occupancy(what: Schedule | Timeline, operand: str | None = None) -> list[Segment]:
    """The stretches of every slot (of one operand), slot by slot. In steps for a schedule, in seconds for a timeline.

    In steps, step t takes from t to t + 1; starts and waits before its run are drawn in its first fifth, those after in
    its last. In use means: from the arrival to the last step that reads it; for an output, from the first step that
    writes it to the start of its copy out. Left over: nobody needs it any more, and nobody has cleared it.
    """
    schedule = what.schedule if isinstance(what, Timeline) else what
    moments = _seconds(what) if isinstance(what, Timeline) else _steps(schedule)
    end = what.total if isinstance(what, Timeline) else float(schedule.steps)
    shown = schedule.operands if operand is None else [schedule.operand(operand)]
    return [s for x in shown for slot in range(x.depth) for s in _slot(schedule, x, slot, moments, end)]


def _slot(schedule, x, slot, moments, end):
    """The stretches of one slot."""
    number, segments = schedule.operands.index(x), []
    state, block, since, event, used = "garbage", None, 0.0, -1, 0.0

    def turn(at, new, holds, cause):
        nonlocal state, block, since, event
        if state == "valid" and not x.is_output and since < used < at:  # after its last reader it is only left over
            segments.append(Segment(x.name, slot, state, block, since, used, event))
            state, since = "leftover", used
        if at > since:
            segments.append(Segment(x.name, slot, state, block, since, at, event))
        state, block, since, event = new, holds, at, cause

    mine = [(n, e) for n, e in enumerate(schedule)
            if (e.slots[number] == slot if e.verb == RUN else (e.operand, e.slot) == (x.name, slot))]
    leaves, goes = {}, None  # a run -> the block that leaves the slot next; backwards, so that each is found at once
    for n, e in reversed(mine):
        goes = leaves[n] = e.block if e.verb == OUT_START else goes
    for n, e in mine:
        at, done = moments[n]
        if e.verb == RUN:
            used = done
            if x.is_output and state != "valid":  # whatever was there, the kernel now finds it, and may overwrite it
                turn(at, "valid", leaves[n], n)
        elif e.verb in (IN_START, OUT_START):
            turn(at, "arriving" if e.verb == IN_START else "leaving", e.block, n)
        elif e.verb == IN_WAIT and state == "arriving":
            turn(at, "valid", block, n)
        elif e.verb == OUT_WAIT and state == "leaving":
            turn(at, "leftover", block, n)
    turn(end, "", None, -1)
    return segments


def _steps(schedule) -> list[tuple[float, float]]:
    """Where each event is drawn, in steps: (start, end). In program order; only a run has a length."""
    moments, order = [], {}
    for e in schedule:
        after = e.step in order and order[e.step][0]
        verbs = order.setdefault(e.step, [False, {}])[1]
        if e.verb == RUN:
            moments.append((e.step + 0.2, e.step + 0.8))
            order[e.step] = [True, {}]
        else:  # verbs that follow each other share a moment
            at = e.step + (0.8 if after else 0) + 0.1 * min(verbs.setdefault(e.verb, len(verbs)), 2)
            moments.append((at, at))
    return moments


def _seconds(t: Timeline) -> list[tuple[float, float]]:
    """When each event happens, in seconds. A wait counts from the arrival: there the data are, whoever looks."""
    arrives = {s.event: s.arrives for s in t.spans if not s.waiting}
    return [(time, time + t.step_seconds) if e.verb == RUN else
            (arrives[start] if e.verb in (IN_WAIT, OUT_WAIT) and start >= 0 else time,) * 2
            for e, time, start in zip(t.schedule, t.times, t.schedule.copy_of.tolist(), strict=True)]


def plot_slots(what: Schedule | Timeline, operand: str | None = None, ax: Axes | None = None, *,
               window: tuple[float, float] | None = None, notes: Mapping[int, str] | None = None,
               hazards: list[Hazard] = (), title: str | None = None, fold: int | None = 16) -> Axes:
    """Slot occupancy: a row for each slot, time to the right, and in each box the block that is there.

    A schedule is drawn over its steps, a timeline over modelled time. `operand` shows the slots of that one only. A
    dark bar at the foot of a box: the kernel runs on this slot. `window` draws a part: (first, one past the last) step,
    or seconds; without it, the middle of more than `fold` steps is left out. `notes[t]` is a text for step t, put where
    its run uses a slot. Stretches that events of `hazards` (of `verify`) begin have a red frame, and the legend names
    their kind. Raises SpecError for an unknown operand.
    """
    expect((Schedule, Timeline), what, "plot_slots takes a schedule or a timeline: f.trace(x).schedule, or "
                                       "f.trace(x).timeline(machine)")
    timed = isinstance(what, Timeline)
    schedule, segments = what.schedule if timed else what, occupancy(what, operand)
    unit, name = unit_of(what.total) if timed else (1, "step")
    at = (Fold([end / unit for end in window], [range(1)]) if window else
          folded(schedule, edges(what, unit) if timed else range(what.steps + 1), fold, hazards))
    rows = list(dict.fromkeys((s.operand, s.slot) for s in segments))
    if ax is None:
        ax = Figure(figsize=(9, 1.1 + 0.5 * len(rows)), layout="constrained").add_subplot()
    ink, place = ink_of(ax), {row: len(rows) - 1 - i for i, row in enumerate(rows)}
    ax.set_xlim(at.places[0], max(at.places[-1], at.places[0] + 1e-9))
    ax.set_ylim(-0.5, len(rows) - 0.5)
    seen = [s for s in segments if not at.hides(s.start / unit, s.end / unit)]
    frames = {s: box(x, end - x, place[s.operand, s.slot], 0.4) for s, (x, end) in
              zip(seen, at(np.array([(s.start, s.end) for s in seen]).reshape(-1, 2) / unit).tolist(), strict=True)}
    _boxes(ax, schedule, frames, ink, bool(notes))
    marked = [frame for s, frame in frames.items() if any(s.event in h.events for h in hazards)]
    ax.add_collection(PolyCollection(marked, facecolors="none", edgecolors=ink.mark, linewidths=2.5, zorder=5),
                      autolim=False)
    _runs(ax, what, place, at, unit, ink, notes or {})
    ax.set_yticks([place[row] for row in rows], [f"{x}, slot {slot}" for x, slot in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    if timed:
        at.ticks(ax)
    else:
        steps = [t for a, b in at.parts for t in range(int(a), int(b))]
        shown = steps[::1 + len(steps) // 24]
        at.name(ax, [t + 0.5 for t in shown], [str(t) for t in shown])
        if len(steps) <= 64:
            ax.vlines(at([*steps, at.parts[-1][1]]), -0.5, len(rows) - 0.5, color=ink.strong, alpha=0.2, lw=0.6)
    at.cover(ax, ink)
    ax.set_xlabel(f"{f'modelled time ({name})' if timed else 'step'} · {KEY}", fontsize=9)
    found = [state for state in STATES if any(s.state == state for s in seen)]
    kinds = ", ".join(dict.fromkeys(h.kind for h in hazards))
    swatches = [tuple(Patch(facecolor=colour or ink.paper, hatch=hatch, edgecolor=ink.soft, lw=0.6)
                      for colour in (PALETTE if s == "valid" else [colour])) for s in found for _, hatch, colour in
                [STATES[s]]] + [(Patch(facecolor="none", edgecolor=ink.mark, lw=2),)] * bool(marked)
    said = [STATES[s][0] for s in found] + [f"✗ {kinds}"] * bool(marked)
    room = ax.figure.bbox.width / ax.figure.dpi - LETTER * 10 * max((len(x) + 8 for x, _ in rows), default=0)
    lines = 1 + (sum(0.055 * len(text) + 0.38 for text in said) > room)  # inches
    ax.legend(swatches, said, loc="lower left", handler_map={tuple: HandlerTuple(None, 0)}, bbox_to_anchor=(0, 1),
              ncols=-(-len(said) // lines) or 1, frameon=False, fontsize=8, borderaxespad=0.2, handlelength=1.8,
              columnspacing=1.2)
    entitle(ax, title if title is not None else f"{schedule.name}: what is in each slot", pad=12 + 12 * lines)
    return ax


def _boxes(ax, schedule, frames, ink, noted):
    """The boxes, one collection for each state, and the name of the block in each that has room for it."""
    uses = {x.name: [s for s in sorted(frames, key=lambda s: s.start) if s.state == "valid" and s.operand == x.name]
            for x in schedule.operands}
    visit = {s: number for mine in uses.values() for number, s in enumerate(mine)}
    for state, (_, hatch, colour) in STATES.items():
        mine = [s for s in frames if s.state == state]
        colours = [PALETTE[visit[s] % len(PALETTE)] if state == "valid" else colour or ink.paper for s in mine]
        boxes(ax, [(frames[s], c, ink.soft, 0.6) for s, c in zip(mine, colours, strict=True)], hatch=hatch or None)
    low, high = ax.get_xlim()
    for s, ((left, bottom), (right, _), (_, top), _) in frames.items():
        paper, used = s.state in ("arriving", "leaving"), s.state == "valid"
        left, right = max(left, low), min(right, high)
        if s.block is not None:  # a block in use has a bar at its foot, and maybe a note above that
            foot = bottom + used * (0.34 if noted else 0.1)
            label(ax, schedule.operand(s.operand).show(s.block), box(left, right - left, (foot + top) / 2,
                  (top - foot) / 2), upright=used, color=ink.strong if paper else ON_COLOUR if used else "#555555",
                  style="italic" if s.state == "leftover" else "normal",
                  bbox=None if used else {"fc": STATES[s.state][2] or ink.paper, "ec": "none", "pad": 0.8})


def _runs(ax, what, place, at, unit, ink, notes):
    """A dark bar where the kernel runs on a slot, and the notes."""
    timed = isinstance(what, Timeline)
    schedule = what.schedule if timed else what
    moments, bars = _seconds(what) if timed else _steps(schedule), []
    for number in schedule.runs.tolist():
        (start, end), e = (m / unit for m in moments[number]), schedule[number]
        if at.hides(start, end):
            continue
        start, end = at([start, end])
        for x, slot in zip(schedule.operands, e.slots, strict=True):
            if (x.name, slot) in place:
                y = place[x.name, slot]
                bars.append([(start, y - 0.36), (end, y - 0.36)])
                if e.step in notes:
                    ax.text((start + end) / 2, y - 0.16, notes[e.step], ha="center", va="center", fontsize=9,
                            weight="bold", color=ON_COLOUR, zorder=4, clip_on=True)
    ax.add_collection(LineCollection(bars, colors=ON_COLOUR, linewidths=2.5, capstyle="butt", zorder=3), autolim=False)
