"""show: one schedule in several views from one recording: verdict, values, listing, timeline, table.

In a notebook the listing stands beside the timeline and the table; a terminal gets verdict, values, table and timeline.
"""
import contextlib
import html
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .by_hand import execute, record, unwritten
from .errors import HazardWarning, PallasLiteError, PipelineError
from .hardware import TOY, Machine
from .memory import InterpretParams
from .schedule import Schedule
from .timeline import Timeline, timeline, unit_of
from .verify import Hazard, Hazards, verify

MOST_VALUES, MOST_LINES = 8, 24  # of B; of a listing, before its middle is left out
TEXT = "font:12px/1.3 monospace;white-space:pre;overflow-x:auto;margin:0 0 6px"
SMALL = TEXT.replace("12px", "11px")  # so that a table fits beside the listing


@dataclass(frozen=True)
class View:
    """The last line of a cell: what `show` makes of a schedule. `print` gives the same as text."""

    schedule: Schedule
    machine: Machine = TOY
    limit: float | None = None  # the end of the time axis, in seconds, to compare two views by eye

    @cached_property
    def timeline(self) -> Timeline:
        """When each engine is busy, on `machine`: modelled, not measured."""
        return timeline(self.schedule, self.machine)

    @cached_property
    def hazards(self) -> list[Hazard]:
        """What is wrong with the schedule; [] is nothing. Blocks that a hand-written loop never writes come last."""
        return Hazards(verify(self.schedule) + unwritten(self.schedule))

    @property
    def verdict(self) -> str:
        """One line: race-free, or the first hazard and its mend."""
        if not self.hazards:
            return "✓ race-free: no choice of moments for the copies changes a result"
        return "✗ " + str(self.hazards[0]) + (f"\n… and {len(self.hazards) - 1} more" if len(self.hazards) > 1 else "")

    @property
    def table(self) -> str:
        """The schedule's table, with the events of the first hazard marked."""
        first = self.hazards[:1]
        return self.schedule.table({n: h.kind for h in first for n in h.events[-1:]})

    @cached_property
    def values(self) -> str:
        """Of a short hand-written loop: what B holds if A holds 10, 20, 30 … and the kernel adds 1. Else ""."""
        size = self.schedule.operands[0].array_shape if self.schedule.operands else None
        own_kernels = {kernel for _, kernel in self.schedule.calls} != {None}
        if not size or not 0 < self.schedule.steps <= MOST_VALUES or own_kernels:
            return ""
        blocks = 10.0 * np.arange(1, 1 + size[0])
        return f"A = {row(blocks)}\n{outcome(self.schedule, blocks)}"

    def listing(self) -> list[tuple[str, str, str, str]]:
        """Of each event: the line of the cell that called it, the modelled time (µs, ns) at which a copy or step starts
        or a wait ends, the event, and what is wrong with it. The middle of a long one is left out."""
        unit, _ = unit_of(self.timeline.total)
        bad = {n: f"✗ {h.kind}" if n == h.events[-1] else "✗" for h in self.hazards[:1] for n in h.events}
        rows = [(str(line or ""), f"{time / unit:.4g}", self.schedule.describe(e), bad.get(n, ""))
                for n, (e, time, (line, _)) in enumerate(zip(
                    self.schedule, self.timeline.times, self.schedule.calls or [(0, None)] * len(self.schedule),
                    strict=True))]
        if len(rows) <= MOST_LINES:
            return rows
        shown = {*range(MOST_LINES * 3 // 4), *range(len(rows) - MOST_LINES // 4, len(rows)), *sorted(bad)[:4]}
        return [rows[n] if n in shown else ("", "", f"… {min(m for m in shown if m > n) - n} more lines", "")
                for n in range(len(rows)) if n in shown or n - 1 in shown]

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [self.verdict, self.values, self.table, str(self.timeline)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from matplotlib.figure import Figure  # late: matplotlib takes half a second

        from .plot import plot_timeline
        from .plot.page import png
        t = self.timeline
        unit, name = unit_of(t.total)
        # No bound here: for a loop whose order holds it up, the largest of the bounds is not what limits it.
        title = f"{t.schedule.name} on {t.machine.name}: {t.total / unit:.4g} {name}, core busy {t.utilisation:.0%}"
        figure = Figure(figsize=(5.7, 2.2), layout="constrained")
        plot_timeline(t, figure.add_subplot(), hazards=self.hazards[:1], limit=self.limit, title="", fold=12)
        # A PNG: pages that clean HTML (GitHub's, or a notebook that nobody trusts yet) take the drawing out of an SVG.
        picture = (f'<img alt="Timeline. {html.escape(title, quote=True)}" width="{96 * 5.7:.0f}" '
                   f'style="max-width:100%;border-radius:6px" src="data:image/png;base64,{png(figure)}">')
        table = self.schedule.table({n: "" for h in self.hazards[:1] for n in h.events[-1:]})
        words = html.escape("\n".join(filter(None, [self.verdict, self.values])))
        return (f'<div class="pallas-lite-view"><pre style="{TEXT}">{words}</pre>'
                '<div style="display:flex;flex-wrap:wrap;gap:6px 16px;align-items:flex-start">'
                f'<pre style="{TEXT}" class="pallas-lite-listing">{self._program(name)}</pre>'
                f'<div style="flex:1 1 400px;min-width:0">'
                f'<div style="{SMALL};font-weight:bold">{html.escape(title)}</div>{picture}'
                f'<pre style="{SMALL};margin-top:6px">{html.escape(table)}</pre>'
                '</div></div></div>')

    def _program(self, unit: str) -> str:
        """The listing as HTML. What is wrong stands behind its event, in bold: a sign and a word, not colour."""
        rows = [("line" if self.schedule.calls else "", unit, "what the program does", ""), *self.listing()]
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = []
        for line, time, event, wrong in rows:
            margin = f'<span style="opacity:.65">{line:>{wide[0]}} {time:>{wide[1]}}</span>  '
            event = html.escape(event)
            lines.append(margin + (f"<b>{event}  {html.escape(wrong)}</b>" if wrong else event))
        return "\n".join(lines)


class NoView(str):
    """Stands where a view will be, while the loop still has a hole in it, or cannot be recorded: it says why."""

    __repr__ = str.__str__
    verdict = property(str.__str__, doc="Where a view says whether the schedule is race-free, this says why none is.")


def show(what: Schedule | Callable, steps: int = 4, *, depth: int = 2, machine: Machine = TOY,
         limit: float | None = None) -> View | NoView:
    """A view of a schedule, or of a hand-written loop, which is recorded first with `steps` blocks and `depth` slots.

    A loop that raises, or does not end within 10 s, gives a line that says so in place of the view, so that a notebook
    goes on; `record` raises.
    """
    try:
        with _time_limit(10):
            schedule = what if isinstance(what, Schedule) else record(what, steps, depth=depth)
    except NotImplementedError as hole:
        return NoView(f"… nothing to show: {str(hole) or 'the loop is not written yet'}")
    except Exception as error:
        kind = "" if isinstance(error, PallasLiteError) else f"{type(error).__name__}: "
        frames = reversed(traceback.extract_tb(error.__traceback__))
        at = next((f.lineno for f in frames if f.name == getattr(what, "__name__", None)), None)
        line = f" (line {at} of the cell)" if at else ""
        return NoView(f"✗ nothing to show, {getattr(what, '__name__', 'the loop')} stopped{line}: {kind}{error}")
    return View(schedule, machine, limit)


def outcome(schedule: Schedule, blocks: np.ndarray) -> str:
    """B after a recorded loop, if copies land as late and as soon as they may: one line, or two where they differ.

    >>> outcome(record(lambda N, A, X, Y, B: None, 2), np.array([10.0, 20.0]))
    'B = nan nan'
    """
    found = []
    for mode in "on_wait", "eager":
        try:
            with warnings.catch_warnings():  # of blocks that are never written: the verdict says so
                warnings.simplefilter("ignore", HazardWarning)
                found.append(row(execute(schedule, blocks, params=InterpretParams(dma_execution_mode=mode))))
        except PipelineError:
            return "B is never finished: the program hangs."
    if found[0] == found[1]:
        return f"B = {found[0]}"
    return "B = {} if copies arrive late\nB = {} if they arrive at once".format(*found)


def row(values: np.ndarray) -> str:
    """Numbers side by side.  >>> row(np.array([11.0, 21.0]))
    '11 21'
    """
    return " ".join(f"{v:g}" for v in np.ravel(values))


@contextlib.contextmanager
def _time_limit(seconds: int):
    """Raises TimeoutError in the main thread of a system that has alarms; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(*_):
        raise TimeoutError(f"it did not end within {seconds} s")
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
