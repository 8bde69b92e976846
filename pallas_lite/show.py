"""show: one schedule in several views from one recording: verdict, timeline, table. In notebooks and terminals."""
import contextlib
import html
import io
import re
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import matplotlib
from matplotlib.axes import Axes

from .by_hand import record, unwritten
from .errors import PallasLiteError
from .hardware import TOY, Machine
from .plot import plot_timeline
from .schedule import Schedule
from .timeline import Timeline, timeline, unit_of
from .verify import Hazard, Hazards, verify


@dataclass(frozen=True)
class View:
    """The last line of a cell: verdict, timeline and table in a notebook, the same as text in a terminal."""

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

    def __str__(self) -> str:
        return f"{self.verdict}\n\n{self.table}\n\n{self.timeline}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        t = self.timeline
        unit, name = unit_of(t.total)
        # No bound here: for a loop whose order holds it up, the largest of the bounds is not what limits it.
        title = f"{t.schedule.name} on {t.machine.name}: {t.total / unit:.4g} {name}, core busy {t.utilisation:.0%}"
        picture = svg(plot_timeline(t, hazards=self.hazards[:1], limit=self.limit, title=title), f"Timeline. {title}")
        return (f'<div class="pallas-lite-view">{picture}<pre '
                f'style="line-height:1.3;font-family:monospace;white-space:pre;overflow-x:auto">{html.escape(self.verdict)}\n\n'
                f"{html.escape(self.table)}</pre></div>")


@dataclass(frozen=True)
class NoView:
    """Stands where a view will be, while the loop still has a hole in it, or cannot be recorded."""

    why: str

    def __str__(self) -> str:
        return self.why

    __repr__ = __str__
    verdict = property(__str__, doc="Where a view says whether the schedule is race-free, this says why there is none.")


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


def svg(ax: Axes, label: str = "timeline of a pipeline") -> str:
    """The figure of `ax` as SVG text, to put into HTML: on a light card, so that dark themes can read it too.

    It shrinks with its column. `label` says in words what it shows, for screen readers.
    """
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text as text: half the time, half the bytes
        ax.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    # matplotlib's style sheet would reach the whole page: it becomes the drawing's own.
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg"):], count=1, flags=re.DOTALL)
    style = "max-width:100%;height:auto;stroke-linejoin:round;stroke-linecap:butt"
    text = text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label, quote=True)}" style="{style}" ', 1)
    return f'<div style="background:#fff;border-radius:6px;max-width:100%">{text}</div>'
