"""slots: a Schedule or a Timeline -> which block is in which slot, and in what state. All of it from the data."""
from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from ..errors import SpecError, expect
from ..schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Schedule
from ..timeline import Timeline, unit_of
from ..verify import Hazard
from .timeline import MARK, PALETTE, _box

# state -> what the legend says, hatch, colour of the box (None: the slot's own). Grey print tells them by hatch.
STATES = {"garbage": ("nothing yet: garbage", "xx", "#ffffff"), "arriving": ("copy in, in flight", "////", "#ffffff"),
          "valid": ("block in use", "", None), "leaving": ("copy out, in flight", "\\\\\\\\", "#ffffff"),
          "leftover": ("left over, stale", "", "#e6e6e6")}


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
    shown = [x for x in schedule.operands if operand in (None, x.name)]
    if not shown:
        known = ", ".join(x.name for x in schedule.operands)
        raise SpecError(f"{schedule.name} has no operand {operand!r}. It has {known}.")
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
    for place, (n, e) in enumerate(mine):
        at, done = moments[n]
        if e.verb == RUN:
            used = done
            if x.is_output and state != "valid":  # whatever was there, the kernel now finds it, and may overwrite it
                turn(at, "valid", next((e.block for _, e in mine[place:] if e.verb == OUT_START), None), n)
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
               hazards: list[Hazard] = (), title: str | None = None) -> Axes:
    """Slot occupancy: a row for each slot, time to the right, and in each box the block that is there.

    A schedule is drawn over its steps, a timeline over modelled time. `operand` shows the slots of that one only. A
    dark bar at the foot of a box: the kernel runs on this slot. `window` draws a part: (first, one past the last) step,
    or seconds. `notes[t]` is a text for step t, put where its run uses a slot. Stretches that events of `hazards` (of
    `verify`) begin have a red frame. Raises SpecError for an unknown operand.
    """
    expect((Schedule, Timeline), what, "plot_slots takes a schedule or a timeline: f.trace(x).schedule, or "
                                       "f.trace(x).timeline(machine)")
    timed = isinstance(what, Timeline)
    schedule, segments = what.schedule if timed else what, occupancy(what, operand)
    unit, name = unit_of(what.total) if timed else (1, "step")
    low, high = window or (0, what.total if timed else schedule.steps)
    rows = list(dict.fromkeys((s.operand, s.slot) for s in segments))
    if ax is None:
        ax = Figure(figsize=(9, 1.1 + 0.5 * len(rows)), layout="constrained").add_subplot()
    ax.set_xlim(low / unit, max(high / unit, low / unit + 1e-9))
    ax.set_ylim(-0.5, len(rows) - 0.5)
    place = {row: len(rows) - 1 - i for i, row in enumerate(rows)}
    seen = [s for s in segments if s.end > low and s.start < high]
    _boxes(ax, schedule, seen, place, unit, (low, high), bool(notes))
    marked = [s for s in seen if any(s.event in h.events for h in hazards)]
    ax.add_collection(PolyCollection([_frame(s, place, unit) for s in marked], facecolors="none", edgecolors=MARK,
                                     linewidths=2.5, zorder=5), autolim=False)
    _runs(ax, what, place, unit, (low, high), notes or {})
    ax.set_yticks([place[row] for row in rows], [f"{x}, slot {slot}" for x, slot in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    if timed:
        ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
    else:
        steps = range(int(low), int(high), 1 + (int(high) - int(low)) // 24)
        ax.xaxis.set_major_locator(FixedLocator([t + 0.5 for t in steps]))
        ax.xaxis.set_major_formatter(FixedFormatter([str(t) for t in steps]))
        if high - low <= 64:
            ax.vlines(range(int(low), int(high) + 1), -0.5, len(rows) - 0.5, color="#000000", alpha=0.15, lw=0.6)
    ax.set_xlabel(f"modelled time ({name})" if timed else "step", fontsize=9)
    found = [state for state in STATES if any(s.state == state for s in seen)]
    ax.legend(handles=[Patch(facecolor=STATES[s][2] or PALETTE[0], hatch=STATES[s][1], edgecolor="#333333", lw=0.6,
                             label=STATES[s][0]) for s in found],
              loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES), frameon=False, fontsize=8, borderaxespad=0.2,
              handlelength=1.8, columnspacing=1.2)
    ax.set_title(title if title is not None else f"{schedule.name}: what is in each slot", fontsize=10, loc="left",
                 pad=24)
    return ax


def _boxes(ax, schedule, segments, place, unit, window, noted):
    """The boxes, one collection for each state, and the name of the block in each that has room for it."""
    low, high = window
    for state, (_, hatch, colour) in STATES.items():
        mine = [s for s in segments if s.state == state]
        colours = [colour or PALETTE[s.slot % len(PALETTE)] for s in mine]
        ax.add_collection(PolyCollection(
            [_frame(s, place, unit) for s in mine], facecolors=colours, hatch=hatch or None,
            edgecolors="#999999" if state == "garbage" else "#333333", linewidths=0.6), autolim=False)
    for s in segments:
        left, right = max(s.start, low), min(s.end, high)
        label = schedule.operand(s.operand).show(s.block)
        # About 110 letters fit across the axes at this size.
        if s.block is not None and (right - left) / (high - low) * 110 > len(label) + 1:
            plain = s.state in ("valid", "leftover")
            ax.text((left + right) / 2 / unit, place[s.operand, s.slot] + 0.12 * (noted and s.state == "valid"), label,
                    ha="center", va="center", fontsize=8, color="#555555" if s.state == "leftover" else "#111111",
                    style="italic" if s.state == "leftover" else "normal", zorder=4, clip_on=True,
                    bbox=None if plain else {"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def _frame(s, place, unit):
    return _box(s.start / unit, (s.end - s.start) / unit, place[s.operand, s.slot], 0.4)


def _runs(ax, what, place, unit, window, notes):
    """A dark bar where the kernel runs on a slot, and the notes."""
    timed = isinstance(what, Timeline)
    schedule = what.schedule if timed else what
    moments, bars, (low, high) = _seconds(what) if timed else _steps(schedule), [], window
    for number in schedule.runs.tolist():
        (start, end), e = moments[number], schedule[number]
        for x, slot in zip(schedule.operands, e.slots, strict=True):
            if (x.name, slot) in place and end > low and start < high:
                y = place[x.name, slot]
                bars.append([(start / unit, y - 0.36), (end / unit, y - 0.36)])
                if e.step in notes:
                    ax.text((start + end) / 2 / unit, y - 0.16, notes[e.step], ha="center", va="center", fontsize=9,
                            weight="bold", color="#111111", zorder=4, clip_on=True)
    ax.add_collection(LineCollection(bars, colors="#111111", linewidths=2.5, capstyle="butt", zorder=3), autolim=False)
