"""timeline: a Timeline -> a picture. Everything drawn comes from the data; `ax` is taken and returned."""
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import expect
from ..schedule import IN_START, OUT_START, RUN, Event
from ..timeline import CORE, LANES, Timeline, unit_of
from ..verify import Hazard

# Okabe and Ito's colours, told apart by colour-blind readers; their lightness differs too, so print stays readable.
PALETTE = ("#56B4E9", "#E69F00", "#009E73", "#F0E442")
BUBBLE, MARK = "#8a8a8a", "#C1272D"


def plot_timeline(timeline: Timeline, ax: Axes | None = None, *, hazards: list[Hazard] = (), title: str | None = None,
                  limit: float | None = None, selected: int | None = None, steps: range | None = None) -> Axes:
    """Engines as lanes, time to the right (modelled), a box for each copy or step, coloured by slot.

    Hatched boxes in the core's lane are bubbles: the core waits for a copy. A thin bar below and after a copy is its
    latency α. `hazards` (of `verify`) are marked with a red frame where they happen. `limit`: the end of the time axis,
    in seconds, to draw two timelines to one scale. `selected`: the number of an event to point at. `steps`: only these,
    the time axis from their first start to their last end. Beyond 160 boxes the labels go.
    """
    expect(Timeline, timeline, "plot_timeline takes a timeline: timeline(schedule), or f.trace(x).timeline(machine)")
    if ax is None:
        ax = Figure(figsize=(9, 2.4), layout="constrained").add_subplot()
    spans = timeline.spans if steps is None else [s for s in timeline.spans if s.step in steps]
    first, last = 0.0, limit or timeline.total
    if steps is not None and spans:
        first, last = min(s.start for s in spans), max(s.end for s in spans)
    unit, name = unit_of(last)
    total, left, right = timeline.total / unit, first / unit, (last or unit) / unit
    schedule, marked = timeline.schedule, {number for h in hazards for number in h.events}
    if schedule.steps and not marked:
        for start, end in ((0, timeline.fill / unit), (total - timeline.drain / unit, total)):
            ax.axvspan(start, end, color="#000000", alpha=0.06, lw=0)
    _draw(timeline, spans, ax, marked, unit, right - left)
    if selected is not None:
        _point_at(timeline, ax, selected, unit, 0.004 * (right - left))
    ax.set_xlim(left, right + 0.005 * (right - left))
    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
    ax.set_ylim(-0.55, len(LANES) - 0.4)
    ax.set_yticks(range(len(LANES)), reversed(LANES))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_xlabel(f"modelled time ({name})", fontsize=9)
    ax.set_title(title if title is not None else
                 f"{schedule.name}: {total:.4g} {name}, core busy {timeline.utilisation:.0%}, {timeline.bound}-bound",
                 fontsize=10, loc="left")
    return ax


def _draw(timeline: Timeline, spans, ax: Axes, marked: set[int], unit: float, room: float) -> None:
    """The boxes of these spans, its bubbles and latencies, and the marks."""
    # One collection for all boxes: a patch for each is four times as slow, and an explorer redraws at every key press.
    boxes, bubbles, latencies = [], [], []
    letters = 12 * ax.figure.bbox.width / ax.figure.dpi  # that fit across the axes, at this size
    for s in spans:
        y = height(s.lane)
        x, width = s.start / unit, (s.end - s.start) / unit
        bad = s.event in marked
        if bad:
            ax.annotate("✗", (x, y + 0.4), (5, -4), textcoords="offset points", ha="left", va="top", fontsize=11,
                        color=MARK, zorder=5, weight="bold")
        if s.waiting:
            bubbles.append((_box(x, width, y, 0.22), MARK if bad else BUBBLE))
            continue
        color = PALETTE[_slot(timeline.schedule[s.event]) % len(PALETTE)]
        boxes.append((bad, _box(x, width, y, 0.4), color))
        if s.arrives > s.end:
            # Below the boxes, since the port is already busy with the next copy.
            latencies.append(([(s.end / unit, y - 0.46), (s.arrives / unit, y - 0.46)], color))
        if len(spans) <= 160 and width / room * letters > len(s.label):
            ax.text(x + width / 2, y, s.label, ha="center", va="center", fontsize=8, color="#111111", zorder=4)
    boxes.sort(key=lambda box: box[0])  # marked ones last, so that no neighbour covers their frame
    ax.add_collection(LineCollection([line for line, _ in latencies], colors=[c for _, c in latencies], linewidths=3,
                                     capstyle="butt"), autolim=False)
    ax.add_collection(PolyCollection([box for box, _ in bubbles], facecolors="none", edgecolors=[c for _, c in bubbles],
                                     hatch="////", linewidths=0.6), autolim=False)
    ax.add_collection(PolyCollection([box for _, box, _ in boxes], facecolors=[c for _, _, c in boxes],
                                     edgecolors=[MARK if bad else "#222222" for bad, _, _ in boxes],
                                     linewidths=[2.5 if bad else 0.7 for bad, _, _ in boxes], zorder=2), autolim=False)


def _point_at(timeline: Timeline, ax: Axes, event: int, unit: float, pad: float) -> None:
    """A bold outline around an event's box; for a wait that cost no time, a tick in the core's lane."""
    span = next((s for s in timeline.spans if s.event == event), None)
    lane = span.lane if span else CORE
    start, end = (span.start, span.end) if span else (timeline.times[event],) * 2
    box = _box(start / unit - pad, (end - start) / unit + 2 * pad, height(lane), 0.46)
    ax.add_collection(PolyCollection([box], facecolors="none", edgecolors="#111111", linewidths=2.2, zorder=6,
                                     clip_on=False), autolim=False)


def height(lane: str) -> int:
    """Where a lane lies in the picture: the first at the top."""
    return len(LANES) - 1 - LANES.index(lane)


def _box(x: float, width: float, y: float, half: float) -> list[tuple[float, float]]:
    return [(x, y - half), (x + width, y - half), (x + width, y + half), (x, y + half)]


def _slot(e: Event) -> int:
    """The slot that decides a box's colour: a copy's own, and for a step that of its first operand."""
    return e.slot if e.verb in (IN_START, OUT_START) else e.slots[0] if e.verb == RUN and e.slots else 0
