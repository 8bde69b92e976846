"""listing: a Timeline -> its program line by line, in the timeline's colours, beside the timeline itself."""
import math
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from ..errors import expect
from ..schedule import IN_WAIT, OUT_WAIT
from ..timeline import Timeline, unit_of
from ..verify import Hazard
from .look import PALETTE, box, ink_of
from .timeline import plot_timeline, result, visits

LETTER, HIGH = 0.072, 0.165  # inches of a letter and of a line, at 8.5 points
POINTS, LEAST = 8.5, 6.5


class Line(NamedTuple):
    """One event of a program. Its number is -1 where lines are left out."""

    event: int
    code: str  # the line of the cell that called it
    time: str  # modelled, at which a copy or step starts, or a wait ends
    text: str
    wrong: str = ""


def lines_of(timeline: Timeline, hazards: list[Hazard] = (), most: int = 24) -> list[Line]:
    """The events of a program, with what is wrong with them. The middle of a long one is left out."""
    schedule, (unit, _) = timeline.schedule, unit_of(timeline.total)
    bad = {n: f"✗ {h.kind}" if n == h.events[-1] else "✗" for h in hazards[:1] for n in h.events}
    calls, times = schedule.calls or [(0, None)] * len(schedule), _written(np.array(timeline.times) / unit)
    found = [Line(n, str(line or ""), time, schedule.describe(e), bad.get(n, ""))
             for n, (e, time, (line, _)) in enumerate(zip(schedule, times, calls, strict=True))]
    if len(found) <= most:
        return found
    shown = {*range(most * 3 // 4), *range(len(found) - most // 4, len(found)), *sorted(bad)[:4]}
    shown |= {n + 1 for n in shown if n + 2 in shown}  # a single line takes the room of the one that would stand for it
    return [found[n] if n in shown else Line(-1, "", "", f"… {min(m for m in shown if m > n) - n} more lines")
            for n in range(len(found)) if n in shown or n - 1 in shown]


def _written(times: np.ndarray) -> list[str]:
    """Four digits of each time; in a long program as many decimals as tell neighbours apart, up to six."""
    steps = np.diff(np.unique(times))
    if not len(steps) or times[-1] < 1000 * steps.min():
        return [f"{t:.4g}" for t in times]
    decimals = min(max(-math.floor(math.log10(steps.min())), 0) + 1, 6)
    return [f"{t:.{decimals}f}".rstrip("0").rstrip(".") for t in times]


def plot_listing(timeline: Timeline, ax: Axes | None = None, *, hazards: list[Hazard] = (), selected: int | None = None,
                 limit: float | None = None, most: int = 24) -> Axes:
    """The program, a line for each event: its line in the cell, when it happens (modelled), what it does.

    A box has the colour that the copy or the step has in `plot_timeline`; a hollow one is a wait for that copy. Without
    `ax` the timeline stands beside it, to `limit` if that is given. `hazards` (of `verify`) and the `selected` event
    are marked in both. Of more than `most` lines the middle is left out.
    """
    expect(Timeline, timeline, "plot_listing takes a timeline: timeline(schedule), or f.trace(x).timeline(machine)")
    lines = lines_of(timeline, hazards, most)
    head = Line(-1, "line" if timeline.schedule.calls else "", unit_of(timeline.total)[1], "what the program does")
    codes, times = (max(len(row[column]) for row in (head, *lines)) for column in (1, 2))
    texts = codes + times + 4.5  # where the texts begin, in letters: two for gaps, two for the box
    wide = texts + max(len(row.text) + 2 + len(row.wrong) for row in (head, *lines))
    if ax is None:
        left, high = min(wide * LETTER, 4.4), max(HIGH * (len(lines) + 1), 2.3) + 0.1
        figure = Figure(figsize=(9, high))
        ax = figure.add_axes((0.005, 0.05 / high, left / 9, 1 - 0.1 / high))
        # No bound: whoever derives a pipeline has not met them yet.
        title = f"{timeline.schedule.name} on {timeline.machine.name}: {result(timeline)}"
        tall = 1.6 - 0.16 * (len(title) * 0.076 // (9 - left - 0.75))  # a long title has a second line
        beside = figure.add_axes(((left + 0.75) / 9, 1 - 1.85 / high, (9 - left - 0.85) / 9, tall / high))
        plot_timeline(timeline, beside, hazards=hazards[:1], title=title, fold=12, selected=selected, limit=limit)
        if len(beside.get_xlabel()) * 0.066 > 9 - left - 0.65:  # it would be cut off where the page ends
            beside.set_xlabel(beside.get_xlabel().replace(" · ", "\n", 1), fontsize=9)
    size = ax.get_position()
    inches = size.width * ax.figure.get_figwidth(), size.height * ax.figure.get_figheight()
    points = min(POINTS * min(1, inches[1] / (len(lines) + 1) / HIGH), max(POINTS * inches[0] / wide / LETTER, LEAST))
    room = int(inches[0] / LETTER * POINTS / points - texts)  # letters of a text; of a longer one the end is left out
    ink, visit, copy = ink_of(ax), visits(timeline.schedule), timeline.play.copy
    ax.set(xlim=(0, inches[0] / LETTER * POINTS / points), ylim=(inches[1] / HIGH * POINTS / points - 1.5, -1.5))
    ax.set_axis_off()
    filled, hollow = [], []
    for y, row in enumerate((head, *lines), -1):
        soft = {"fontsize": points, "family": "monospace", "va": "center", "color": ink.soft}
        ax.text(codes, y, row.code, ha="right", **soft)
        ax.text(codes + times + 1, y, row.time, ha="right", **soft)
        strong = {"color": ink.mark, "weight": "bold"} if row.wrong else {"color": ink.strong}
        cut = max(room - len(row.wrong) - 2, 0) if row.wrong else room
        text = row.text if len(row.text) <= cut else f"{row.text[:max(cut - 1, 0)]}…"
        ax.text(texts, y, f"{text}  {row.wrong}".rstrip(), **{**soft, **strong})
        if row.event >= 0:
            waits = timeline.schedule[row.event].verb in (IN_WAIT, OUT_WAIT)
            lost = waits and copy[row.event] < 0  # it waits for no copy, so it has no visit
            colour = ink.paper if lost else PALETTE[visit[copy[row.event] if waits else row.event] % len(PALETTE)]
            (hollow if waits else filled).append((box(codes + times + 2, 1.6, y, 0.33), colour))
        if selected is not None and row.event == selected:
            ax.axhspan(y - 0.5, y + 0.5, color=ink.strong, alpha=0.12, lw=0)
    ax.add_collection(PolyCollection([b for b, _ in filled], facecolors=[c for _, c in filled], edgecolors=ink.strong,
                                     linewidths=0.6), autolim=False)
    for width, colours in ((3.2, [ink.soft] * len(hollow)), (2, [c for _, c in hollow])):  # pale ones need an outline
        ax.add_collection(PolyCollection([b for b, _ in hollow], facecolors="none", edgecolors=colours,
                                         linewidths=width * points / POINTS), autolim=False)
    return ax
