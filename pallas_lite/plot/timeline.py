"""timeline: a Timeline -> a picture. Everything drawn comes from the data; `ax` is taken and returned."""
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from ..errors import SpecError, expect
from ..schedule import CODE, IN_START, IN_WAIT, OUT_START, OUT_WAIT, Schedule
from ..timeline import CORE, LANES, Timeline, unit_of
from ..verify import Hazard
from .look import BUBBLE, LETTER, PALETTE, Fold, Ink, box, boxes, entitle, folded, inches_of, ink_of, label

KEY = "colour: visit · hatched: bubble · tick: wait"  # what newcomers need to read the picture


def plot_timeline(timeline: Timeline, ax: Axes | None = None, *, hazards: list[Hazard] = (), title: str | None = None,
                  limit: float | None = None, selected: int | None = None, steps: range | None = None,
                  of: int | None = None, fold: int | None = 16) -> Axes:
    """Engines as lanes, time to the right (modelled), a box for each copy or step, coloured by visit.

    Before the first step the pipeline fills, after the last it drains: shaded. Hatched boxes in the core's lane are
    bubbles: the core waits for a copy. A tick below that lane is a wait, where it ends. A thin bar below and after a
    copy is its latency α; those of copies that are under way together lie in rows. `hazards` (of `verify`) are marked
    with a red frame and a word where they happen. `limit`: the end of the time axis, in seconds, to draw two timelines
    to one scale. `selected`: the number of an event to point at. `steps`: the time axis goes from their first start to
    their last end, and its label names them; `of`: how many there are, where the timeline has only the first of them.
    With more than `fold` steps, and neither limit nor steps, the middle is left out. Beyond 160 boxes the labels go.
    Raises SpecError for an event that there is not, and for steps of which the timeline has none.
    """
    expect(Timeline, timeline, "plot_timeline takes a timeline: timeline(schedule), or f.trace(x).timeline(machine)")
    schedule = timeline.schedule
    if (selected or 0) not in range(len(schedule) or 1) or steps and steps[0] not in range(schedule.steps):
        raise SpecError(f"plot_timeline: {schedule.name} has {len(schedule)} events and {schedule.steps} steps, from 0")
    if ax is None:
        ax = Figure(figsize=(9, 2.4), layout="constrained").add_subplot()
    ink, fold = ink_of(ax), None if limit or steps is not None else fold
    spans, first, last = timeline.spans, 0.0, limit or timeline.total
    if steps is not None and (own := [s for s in spans if s.step in steps]):  # and what else happens meanwhile
        first, last = min(s.start for s in own), max(s.end for s in own)
        spans = [s for s in spans if s.start < last and s.end > first or s.step in steps]
    unit, name = unit_of(timeline.total if fold else last)
    at = (folded(schedule, edges(timeline, unit), fold, hazards) if fold else
          Fold((first / unit, (last or unit) / unit), [range(1)]))
    if at.left_out or last < timeline.total:
        spans = [s for s in spans if not at.hides(s.start / unit, max(s.end, s.start + 1e-12) / unit)]
    ax.set_xlim(at.places[0], at.places[-1] + 0.005 * (at.places[-1] - at.places[0]))
    ax.set_ylim(-0.6, len(LANES) - 0.12)
    _phases(timeline, ax, at, unit, ink, shaded=not hazards and schedule.steps > 0)
    _draw(timeline, spans, ax, at, unit, ink, {number for h in hazards for number in h.events})
    named: list[tuple[float, float, int]] = []  # where a sign stands already: from, to, lane
    for h in hazards:
        _name(timeline, ax, at, unit, ink, h, named)
    if selected is not None:
        _point_at(timeline, ax, at, selected, unit, ink)
    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    if at.left_out:
        at.cover(ax, ink)
        at.ticks(ax)
    ax.set_yticks(range(len(LANES)), reversed(LANES))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    bar = " · bar: latency α" * (timeline.machine.alpha > 0)
    of = of or schedule.steps
    part = f"steps {steps[0]} to {steps[-1]} of {of:,} · " if steps is not None and len(steps) < of else ""
    ax.set_xlabel(f"{part}modelled time ({name}) · {KEY}{bar}", fontsize=9)
    bound = "" if timeline.hangs else f", {timeline.bound}-bound"
    entitle(ax, title if title is not None else f"{schedule.name}: {result(timeline)}{bound}")
    return ax


def visits(schedule: Schedule) -> np.ndarray:
    """Of each event that has a box, which visit it belongs to: the first copy of an operand is that of visit 0.

    A step counts as the operand does that is copied most often: there each step has a block of its own, if anywhere.
    """
    c = schedule.columns
    found, copies = np.zeros(len(schedule), int), []
    for number, x in enumerate(schedule.operands):
        copies.append(np.flatnonzero((c.operand == number) & (c.verb == CODE[OUT_START if x.is_output else IN_START])))
        found[copies[-1]] = np.arange(len(copies[-1]))
    if copies and schedule.steps:
        lead = max(range(len(copies)), key=lambda number: len(copies[number]))
        for slot in range(schedule.operands[lead].depth):
            mine, runs = copies[lead][c.slot[copies[lead]] == slot], schedule.runs[c.slots[:, lead] == slot]
            if len(mine):  # an input's last copy into the slot before the run, an output's first from it after
                which = np.searchsorted(mine, runs) - (not schedule.operands[lead].is_output)
                found[runs] = found[mine[np.clip(which, 0, len(mine) - 1)]]
    return found


def height(lane: str) -> int:
    """Where a lane lies in the picture: the first at the top."""
    return len(LANES) - 1 - LANES.index(lane)


def result(t: Timeline) -> str:
    """How long it takes and how busy the core is, or when it hangs, for a title."""
    unit, name = unit_of(t.total)
    return (f"{t.hangs}; drawn as if it went on" if t.hangs else
            f"{t.total / unit:.4g} {name} modelled, core busy {t.utilisation:.0%}")


def overlaps(t: Timeline) -> bool:
    """Is any copy under way while the core computes?"""
    number, near = np.flatnonzero(t.play.copy == np.arange(len(t.play.copy))), 1e-9 * t.total
    starts = np.array(t.times)[number]
    ends = starts + t.play.seconds[number] + t.machine.alpha
    before = np.searchsorted(t.runs + t.step_seconds, starts + near, "right")  # steps that are over by then
    return bool((before < np.searchsorted(t.runs, ends - near, "left")).any())


def edges(t: Timeline, unit: float) -> list[float]:
    """Where each step begins, and the last one ends, in units; fill and drain belong to the first and the last."""
    return [0.0, *(t.runs[1:] / unit).tolist(), (t.total or unit) / unit]


def _phases(t: Timeline, ax: Axes, at: Fold, unit: float, ink: Ink, shaded: bool) -> None:
    """Fill and drain in grey, and the names of the three phases where there is room.

    What lies between is a steady state where some copy is under way while the core computes, and else has no name.
    """
    start, filled, draining, end = at(np.array([0, t.fill, t.total - t.drain, t.total]) / unit).tolist()
    for left, right in ((start, filled), (draining, end)) if shaded else ():
        ax.axvspan(left, right, color=ink.strong, alpha=0.08 * (left < right), lw=0)
    letter = 5.6 * np.ptp(ax.get_xlim()) / (72 * inches_of(ax))  # a narrow one's name needs more room
    filled = max(filled, start + 4 * letter) if filled > start else filled
    draining = min(draining, end - 5 * letter) if end > draining else draining
    for name, left, right in (("fill", start, filled), ("steady state" * overlaps(t), filled, draining),
                              ("drain", draining, end)) if shaded else ():
        if name and right > left:
            label(ax, name, box(left, right - left, len(LANES) - 0.33, 0.1), upright=False, color=ink.soft)


def _draw(timeline: Timeline, spans, ax: Axes, at: Fold, unit: float, ink: Ink, marked: set[int]) -> None:
    """The boxes of these spans, its bubbles, latencies and waits."""
    drawn, bubbles, bars, visit = [], [], {}, visits(timeline.schedule).tolist()
    low, high = ax.get_xlim()
    places = at(np.array([(s.start, s.end, s.arrives) for s in spans]).reshape(-1, 3) / unit).tolist()
    for s, (x, end, arrives) in zip(spans, places, strict=True):
        y, width, bad = height(s.lane), end - x, s.event in marked
        if s.waiting:
            bubbles.append((box(x, width, y, 0.22), "none", ink.mark if bad else BUBBLE, 0.6))
            continue
        color = PALETTE[visit[s.event] % len(PALETTE)]
        drawn.append((box(x, width, y, 0.4), color, ink.mark if bad else ink.strong, 2.5 if bad else 0.7))
        if arrives > end:
            bars.setdefault(y, []).append((end, arrives, color))
        if len(spans) <= 160:  # in the part of the box that can be seen
            label(ax, s.label, box(max(x, low), max(min(end, high) - max(x, low), 0), y, 0.4))
    # The bar of a latency lies below the boxes, since its port is already busy with the next copy. Copies arrive in the
    # order in which they leave the port, so as many rows do, in turn, as are under way at once.
    rows = max((_at_once(mine) for mine in bars.values()), default=1)
    half = min(0.035, 0.09 / rows)
    # With an edge: the palette's light colours would be lost on a white page.
    boxes(ax, [(box(end, arrives - end, y - 0.425 - half * (1 + 2 * (number % rows)), half), color, ink.strong,
                min(0.5, 1 / rows)) for y, mine in bars.items() for number, (end, arrives, color) in enumerate(mine)],
          label="latency")
    boxes(ax, bubbles, hatch="////")
    boxes(ax, sorted(drawn, key=lambda b: b[-1]), zorder=2)  # marked ones last: no neighbour covers their frame
    waits, y = np.isin(timeline.schedule.columns.verb, (CODE[IN_WAIT], CODE[OUT_WAIT])), height(CORE)
    ticks = np.array(timeline.times)[waits] / unit  # a long pipeline has thousands beyond the axis
    ticks = at(ticks[(at.knots[0] <= ticks) & (ticks <= at.knots[-1])])
    line = np.stack([np.repeat(ticks, 3), np.tile([y - 0.53, y - 0.38, np.nan], len(ticks))], 1)  # one, with gaps
    ax.add_collection(LineCollection([line], colors=ink.strong, linewidths=1.1, zorder=3), autolim=False)


def _at_once(bars: list[tuple[float, float, str]]) -> int:
    """How many of these bars (from, to, colour), which begin and end in order, are there at the same time, at most."""
    starts, ends = np.array([bar[:2] for bar in bars]).T
    return int((np.arange(1, len(bars) + 1) - np.searchsorted(ends, starts + 1e-9 * np.ptp(ends), "right")).max())


def _place(timeline: Timeline, event: int, at: Fold, unit: float) -> tuple[float, float, int]:
    """Where an event is drawn: from, to, and how high; a wait that costs no time is a moment in the core's lane."""
    span = next((s for s in timeline.spans if s.event == event), None)
    start, end = (span.start, span.end) if span else (timeline.times[event],) * 2
    return *at(np.array([start, end]) / unit).tolist(), height(span.lane if span else CORE)


def _name(timeline: Timeline, ax: Axes, at: Fold, unit: float, ink: Ink, hazard: Hazard,
          named: list[tuple[float, float, int]]) -> None:
    """A sign at each event of a hazard, and at the last the kind, in the free room above its lane: if there is room.

    Of many hazards the first are named.
    """
    inch = np.ptp(ax.get_xlim()) / inches_of(ax)
    for event in hazard.events:
        start, _, y = _place(timeline, event, at, unit)
        last, late = event == hazard.events[-1], start > np.mean(ax.get_xlim())
        text = ("✗" if not last else f"{hazard.kind} ✗" if late else f"✗ {hazard.kind}")
        wide = (len(text) + 1) * LETTER * 10 * inch  # bold letters, and a frame
        left = start - wide if late and last else start
        if any(left < b and a < left + wide and lane == y for a, b, lane in named):
            continue
        named.append((left, left + wide, y))
        ax.annotate(text, (start, y + 0.45), (0, 0), textcoords="offset points", ha="right" if late and last else
                    "left", va="center", fontsize=9, color=ink.mark, zorder=9, weight="bold",
                    bbox={"boxstyle": "round,pad=0.12", "fc": ink.paper, "ec": ink.mark, "lw": 0.8})


def _point_at(timeline: Timeline, ax: Axes, at: Fold, event: int, unit: float, ink: Ink) -> None:
    """A bold outline around an event's box; for a wait that cost no time, a tick in the core's lane."""
    start, end, y = _place(timeline, event, at, unit)
    pad = 0.004 * (at.places[-1] - at.places[0])
    ax.add_collection(PolyCollection([box(start - pad, end - start + 2 * pad, y, 0.46)], facecolors="none", zorder=6,
                                     edgecolors=ink.strong, linewidths=2.2, clip_on=False), autolim=False)
