"""grid: one call of pallas_call, step by step. In: its trace. Out: the block of each operand, its copies, the time.

A slider walks through the steps; every operand's array lies there with the step's block lit (plot/grid.py), the step's
copies and waits stand beside it in order, and the timeline points at the step. The rest is base.py's.
"""
import html
from collections import defaultdict
from functools import cached_property

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..errors import SpecError
from ..hardware import TPU_V5E, Machine
from ..plot import plot_grid, plot_timeline
from ..plot.grid import Sheets, visits_of
from ..plot.timeline import height
from ..schedule import Schedule
from ..show import svg
from ..timeline import CORE, Timeline, unit_of
from .base import Explorer, button, laid_over, show_time

SHOWN = 3  # operands side by side
AROUND = 12  # steps of the timeline on show at once


def explore(call, *operands, machine: Machine = TPU_V5E) -> "GridExplorer":
    """Walk through a `pallas_call(...)` on these operands (arrays or ShapeDtypeStructs), step by step.

    Nothing is computed: the call is traced. Also takes a trace, as `explore(f.trace(x, y))`. Raises SpecError for what
    is neither, and what `trace` raises.
    """
    trace = call if hasattr(call, "schedule") and not operands else None
    if trace is None:
        if not hasattr(call, "trace"):
            raise SpecError("explore takes a pallas_call(…) and its operands, or a trace: explore(f, x, y), or "
                            "explore(f.trace(x, y)).")
        trace = call.trace(*operands)
    if not trace.steps or not trace.operands:
        raise SpecError("explore: this call has no steps, or no operand that is copied block by block. To see a "
                        "kernel's own copies, print f.trace(…).schedule.")
    return GridExplorer(trace, machine)


class GridExplorer(Explorer):
    """What `explore` returns. `step` is where it stands; `set(step=…)` walks from code."""

    what = "Blocks and timeline at a step."

    def __init__(self, trace, machine: Machine):
        self.trace, self.machine, self._drawn = trace, machine, None
        super().__init__({"step": 0})

    @property
    def asked(self) -> tuple:
        return self.trace.call.name, str(self.trace.call.grid), tuple(x.name for x in self.trace.operands), self.machine

    step = property(lambda self: self.settings["step"], doc="The step on show.")

    @property
    def schedule(self) -> Schedule:
        return self.trace.schedule

    @cached_property
    def timeline(self) -> Timeline:
        """When each engine is busy on `machine`: modelled."""
        return self.trace.timeline(self.machine)

    # -- words

    @property
    def headline(self) -> str:
        index = self.trace.indices[self.step]
        index = f"({', '.join(map(str, index))})" if len(index) != 1 else f"{index[0]}"
        return f"step {self.step} of {self.trace.steps} · grid index {index}"

    @property
    def details(self) -> str:
        lines = [f"{number}. {text}" for number, text in enumerate(self.happens(), 1)]
        kept = [x.show(self._block(x)) for x in self.schedule.operands if self._stays(x)]
        if kept:
            lines.append(f"nothing is copied for {', '.join(kept)}: the block is still in its slot")
        t = self.timeline
        lines.append(f"{show_time(t.total)} modelled on {self.machine.name} for all steps, core busy "
                     f"{t.utilisation:.0%}, {t.bound}-bound")
        if self.trace.hazards:
            lines.append(f"✗ {self.trace.hazards[0]}")
        return "\n".join(lines)

    def happens(self) -> list[str]:
        """What the program does in this step, in order."""
        return [self.schedule.describe(e) for e in self._events[self.step]]

    @cached_property
    def _events(self) -> dict[int, list]:
        """The events of each step."""
        found = defaultdict(list)
        for e in self.schedule:
            found[e.step].append(e)
        return found

    @cached_property
    def _runs(self) -> dict[int, tuple[float, float]]:
        """When each step begins and ends."""
        return {s.step: (s.start, s.end) for s in self.timeline.spans if s.lane == CORE and not s.waiting}

    @cached_property
    def _sheets(self) -> list[Sheets]:
        """Where the blocks of each operand on show lie in its picture."""
        return [Sheets(x, visits_of(self.blocks[x.name])) for x in self.schedule.operands[:SHOWN]]

    @cached_property
    def blocks(self) -> dict[str, list]:
        """The block of each step, by operand."""
        return {x.name: self.schedule.blocks(x.name) for x in self.schedule.operands}

    def _block(self, x):
        return self.blocks[x.name][self.step]

    def _stays(self, x) -> bool:
        return self.step > 0 and self._block(x) == self.blocks[x.name][self.step - 1]

    def __str__(self) -> str:
        return f"{self.headline}\n{self.details}"

    # -- picture

    def _figure(self, first: int) -> Figure:
        """All that stays the same from step to step: the arrays, and the timeline of the steps from `first` on."""
        shown = self.schedule.operands[:SHOWN]
        figure, wide = Figure(figsize=(9, 4.7)), 0.94 / len(shown)
        for number, x in enumerate(shown):
            ax = figure.add_axes((0.05 + number * wide, 0.47, wide - 0.05, 0.43))
            plot_grid(self.trace, x.name, None, ax)
            for extra in (*ax.texts, *ax.lines, ax.get_legend()):  # too small to read here
                extra.remove()
            ax.set_title(f"{x.array}, {'output' if x.is_output else 'input'}", fontsize=10, loc="left")
        plot_timeline(self.timeline, figure.add_axes((0.075, 0.09, 0.915, 0.3)), title="",
                      steps=range(first, first + AROUND))
        return figure

    def _lights(self, figure: Figure) -> list[tuple[np.ndarray, str]]:
        """What moves: the corners of the lit blocks and of the step, in points from the lower left, and a word each."""
        points, found = 72 / figure.dpi, []
        *grids, lanes = figure.axes
        for ax, sheets in zip(grids, self._sheets, strict=True):
            x, block = sheets.x, self._block(sheets.x)
            if block is not None:
                box = sheets.box(block)
                words = "stays" if self._stays(x) else "made" if x.is_output else "copied"
                found.append((ax.transData.transform(box) * points, f"{x.show(block)} {words}"))
        (start, end), unit = self._runs[self.step], unit_of(self.timeline.total)[0]
        y = height(CORE)
        corners = [(start / unit, y - 0.46), (end / unit, y + 0.46)]
        found.append((lanes.transData.transform(corners) * points, ""))
        return found

    def picture(self) -> str:
        first = self.step // AROUND * AROUND
        if self._drawn is None or self._drawn[0] != first:
            figure = self._figure(first)
            self._drawn = first, figure, svg(figure.axes[0], self.what)
        _, figure, text = self._drawn
        # A box laid over a drawing that stays: a redraw of all takes ten times as long.
        height, marks = figure.get_figheight() * 72, []
        for corners, words in self._lights(figure):
            (left, low), (right, high) = corners.min(0), corners.max(0)
            marks.append(f'<rect x="{left - 1:.1f}" y="{height - high - 1:.1f}" width="{right - left + 2:.1f}" '
                         f'height="{high - low + 2:.1f}" fill="none" stroke="#111111" stroke-width="3.5"/>')
            if words:
                top = height - figure.axes[len(marks) - 1].bbox.ymin * 72 / figure.dpi + 14
                x = figure.axes[len(marks) - 1].bbox.xmin * 72 / figure.dpi
                marks[-1] += (f'<text x="{x:.0f}" y="{top:.0f}" style="font: 11px sans-serif" fill="#111111">'
                              f"{html.escape(words)}</text>")
        return laid_over(text, marks)

    def figure(self) -> Figure:
        figure = self._figure(self.step // AROUND * AROUND)
        for (corners, words), ax in zip(self._lights(figure), figure.axes, strict=True):
            box = ax.transData.inverted().transform(corners * figure.dpi / 72)
            (left, low), (right, high) = box.min(0), box.max(0)
            ax.add_patch(Rectangle((left, low), right - left, high - low, fill=False, ec="#111111", lw=3.5, zorder=9))
            if words:
                ax.text(0, -0.02, words, transform=ax.transAxes, va="top", fontsize=10)
        return figure

    # -- controls

    def make_controls(self, w) -> dict:
        return {"step": w.IntSlider(self.step, 0, self.trace.steps - 1, description="step",
                                    style={"description_width": "3em"}, layout={"width": "40em"})}

    def more_buttons(self, w) -> list:
        def go(by):
            self.set(step=min(max(self.step + by, 0), self.trace.steps - 1))
        return [button(w, "◀ back", "The step before", lambda: go(-1)),
                button(w, "next ▶", "The step after", lambda: go(1)),
                button(w, "next copy ▶▶", "The next step in which some block changes", lambda: go(self._to_change()))]

    def _to_change(self) -> int:
        """How many steps until an operand takes another block than now."""
        for step in range(self.step + 1, self.trace.steps):
            if any(blocks[step] != blocks[self.step] for blocks in self.blocks.values()):
                return step - self.step
        return 0

    def close(self) -> None:
        super().close()
        self._drawn = None
