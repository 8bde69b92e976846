"""grid: one call of pallas_call, step by step. In: its trace. Out: the block of each operand, its copies, the time.

A slider walks through the steps; every operand's array lies there with the step's block lit (plot/grid.py), the step's
copies and waits stand beside it in order, and the timeline points at the step. The rest is base.py's.
"""
import html
from functools import cached_property

from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from ..hardware import Machine
from ..plot import plot_grid, plot_timeline
from ..plot.grid import Sheets, Visit, visits_of
from ..schedule import Schedule
from ..timeline import Timeline
from ..verify import Hazards
from .base import STRONG, Explorer, button, fresh, happens, laid_over, show_time, touch, touch_steps

BESIDE, SHOWN = 3, 9  # operands side by side, and in all
HIGH = 2.85  # inches, of a row of them
AROUND = 12  # steps of the timeline on show at once
FINE = 400  # blocks: with more of them, each as a box of its own is too much for a page, and the mouse finds none


class GridExplorer(Explorer):
    """What `explore` returns first of all. `step` is where it stands; `set(step=…)` walks from code."""

    what = "Blocks and timeline at a step."

    def __init__(self, trace, machine: Machine):
        self.trace, self.machine = trace, machine
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
        at = f"({', '.join(map(str, index))})" if len(index) != 1 else f"{index[0]}"
        return f"step {self.step} of {self.trace.steps}" + f" · grid index {at}" * bool(index)

    @property
    def details(self) -> str:
        lines = [f"{number}. {text}" for number, text in enumerate(self.happens(), 1)]
        kept = [x.show(self._block(x)) for x in self.schedule.operands if self._stays(x)]
        if kept:
            lines.append(f"nothing is copied for {', '.join(kept)}: the block is still in its slot")
        t = self.timeline
        lines.append(f"{show_time(t.total)} modelled on {self.machine.name} for all steps, core busy "
                     f"{t.utilisation:.0%}, {t.bound}-bound")
        many = len(self.schedule.operands)
        lines += [f"drawn: the first {SHOWN} of {many} operands"] * (many > SHOWN)
        lines += [f"✗ {Hazards(found)}" for found in [self.trace.hazards or self.trace.reported] if found]
        return "\n".join(lines)

    def happens(self) -> list[str]:
        """What the program does in this step, in order."""
        return happens(self.schedule, self.step)

    @cached_property
    def _visits(self) -> dict[str, list[Visit]]:
        """The visits of each operand on show."""
        return {x.name: visits_of(self.blocks[x.name]) for x in self.schedule.operands[:SHOWN]}

    @cached_property
    def _sheets(self) -> list[Sheets]:
        """Where the blocks of each operand on show lie in its picture."""
        return [Sheets(x, self._visits[x.name], self.schedule) for x in self.schedule.operands[:SHOWN]]

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

    _high = property(lambda self: HIGH * -(-len(self._sheets) // BESIDE), doc="Inches, of all rows.")

    def _arrays(self, figure) -> Figure:
        """All that stays the same from step to step: the arrays and their blocks."""
        many, high, keys = len(self._sheets), HIGH / self._high, {}
        wide = 0.94 / min(many, BESIDE)
        for number, sheets in enumerate(self._sheets):
            row, column = divmod(number, BESIDE)
            ax = figure.add_axes((0.05 + column * wide, 1 - (row + 0.8) * high, wide - 0.05, 0.65 * high))
            plot_grid(self.trace, sheets.x.name, None, ax)
            keys |= {key.get_label(): key for key in ax.get_legend().legend_handles}
            for extra in (*ax.texts, *ax.lines, ax.get_legend()):  # too small to read here
                extra.remove()
            for boxes in ax.collections:
                boxes.set_rasterized(len(sheets.blocks()) > FINE)
            ax.set_title(f"{sheets.x.array}, {'output' if sheets.x.is_output else 'input'}", fontsize=10, loc="left")
        figure.legend(handles=list(keys.values()), loc="lower left", bbox_to_anchor=(0.04, 0), ncols=5, fontsize=9,
                      frameon=False)
        return figure

    def _lanes(self, figure, selected: int | None = None) -> Figure:
        """The timeline of the steps around this one."""
        plot_timeline(self.timeline, fresh(figure, (0.075, 0.23, 0.915, 0.75)), title="", steps=self._page,
                      selected=selected)
        return figure

    @property
    def _page(self) -> range:
        first = self.step // AROUND * AROUND
        return range(first, min(first + AROUND, self.trace.steps))

    def _said(self, x) -> str:
        return f"{x.show(self._block(x))} {'stays' if self._stays(x) else 'made' if x.is_output else 'copied'}"

    def picture(self) -> str:
        # Boxes laid over drawings that stay: a redraw of all takes a hundred times as long.
        figure, arrays = self.part("Blocks of each operand", 0, (9, self._high), self._arrays,
                                   lambda ax: self._touch_blocks(ax.figure))
        marks = []
        for ax, sheets in zip(figure.axes, self._sheets, strict=True):
            lit = self._block(sheets.x)
            if lit is not None:
                left, low = ax.bbox.xmin * 72 / figure.dpi, 72 * self._high - ax.bbox.ymin * 72 / figure.dpi + 14
                marks += [touch(ax, sheets.x.show(lit), [sheets.box(lit)], now=True),
                          f'<text x="{left:.0f}" y="{low:.0f}" style="font: 11px sans-serif; fill: {STRONG}">'
                          f"{html.escape(self._said(sheets.x))}</text>"]
        t, page = self.timeline, self._page
        last = max(s.end for s in t.spans if s.step in page)
        figure, lanes = self.part("Timeline", page, (9, 1.85), self._lanes,
                                  lambda ax: touch_steps(ax, t, page, last))
        now = touch_steps(figure.axes[0], t, range(self.step, self.step + 1), last, now=True)
        return laid_over(arrays, marks) + laid_over(lanes, now)

    def _touch_blocks(self, figure: Figure) -> list[str]:
        """Over the arrays: the steps and the slots of each block."""
        found = []
        for ax, sheets in zip(figure.axes, self._sheets, strict=True):
            x, steps = sheets.x, {}
            for number, visit in enumerate(self._visits[x.name] if len(sheets.visited) <= FINE else ()):
                words = f"step{'s' * (visit.last > visit.first)} {visit}, slot {x.show_slot(number % x.depth)}"
                steps.setdefault(visit.block, [x.show(visit.block)]).append(words)
            found += [touch(ax, "\n".join(words[:12]), [sheets.box(block)]) for block, words in steps.items()]
        return found

    def figure(self) -> Figure:
        figure = Figure(figsize=(9, self._high + 1.85))
        above, below = figure.subfigures(2, height_ratios=(self._high, 1.85))
        self._lanes(below, int(self.schedule.runs[self.step]))
        for ax, sheets in zip(self._arrays(above).axes, self._sheets, strict=True):
            lit = self._block(sheets.x)
            if lit is not None:
                ax.add_patch(Polygon(sheets.box(lit), fill=False, ec="#111111", lw=3.5, zorder=9))
                ax.text(0, -0.02, self._said(sheets.x), transform=ax.transAxes, va="top", fontsize=10)
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
