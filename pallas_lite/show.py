"""show: one schedule in several views from one recording: verdict, values, listing, timeline, table.

Verdict, values and table are text. In a notebook the listing and the timeline follow, side by side: display.py.
"""
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .alarm import time_limit
from .by_hand import execute, record, unwritten
from .call import Call
from .errors import HazardWarning, PallasLiteError, PipelineError, SpecError
from .hardware import TOY, TPU_V5E, Machine
from .memory import InterpretParams
from .schedule import Schedule
from .timeline import Timeline, timeline
from .traced import Traced
from .verify import Hazard, Hazards, verify

MOST_VALUES = 8  # of B
LONGEST = 10  # seconds, of a loop that is recorded


@dataclass(frozen=True)
class View:
    """The last line of a cell: what `show` makes of a schedule. `print` gives the same as text."""

    schedule: Schedule
    machine: Machine = TOY
    limit: float | None = None  # the end of the time axis, in seconds, to compare two views by eye
    known: list[Hazard] | None = None  # of a trace: what is wrong with its grid is not in its schedule

    @cached_property
    def timeline(self) -> Timeline:
        """When each engine is busy, on `machine`: modelled, not measured."""
        return timeline(self.schedule, self.machine)

    @cached_property
    def hazards(self) -> list[Hazard]:
        """What is wrong with the schedule; [] is nothing. Blocks that a hand-written loop never writes come last."""
        found = verify(self.schedule) + unwritten(self.schedule) if self.known is None else self.known
        return Hazards(found)

    @property
    def verdict(self) -> str:
        """One line: race-free, or the first hazard and its mend; of a trace, all that it prints."""
        if not self.hazards:
            return "✓ race-free: no choice of moments for the copies changes a result"
        if self.known:
            return f"✗ {self.hazards}"
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

    @property
    def words(self) -> str:
        """What stands above the picture in a notebook."""
        return "\n\n".join(filter(None, [self.verdict, self.values, self.table]))

    def __str__(self) -> str:
        return f"{self.words}\n\n{self.timeline}"


class NoView(str):
    """Stands where a view will be, while the loop still has a hole in it, or cannot be recorded: it says why."""

    __repr__ = str.__str__
    verdict = property(str.__str__, doc="Where a view says whether the schedule is race-free, this says why none is.")


def show(what: Schedule | Traced | Callable, steps: int = 4, *operands: object, depth: int = 2,
         machine: Machine | None = None, limit: float | None = None) -> View | NoView:
    """A view of a schedule, of a trace's schedule, or of a hand-written loop.

    A loop is recorded first, with `steps` blocks and `depth` slots. `operands` are refused: a call is traced first.
    Without a `machine` the times are TOY's; those of a trace that does not fit into TOY's SRAM are TPU_V5E's, as in
    `explore`.

    A loop that raises, or does not end within 10 s, gives a line that says so in place of the view, so that a notebook
    goes on; `record` raises. Raises SpecError for a call that is not traced: only on operands it has a schedule.
    """
    if isinstance(what, Call) or operands:
        raise SpecError("show takes a trace, a schedule or a loop written by hand. Of a call, show what it would do on "
                        f"its operands: pl.show(f.trace(x, y)). This is of type {type(what).__name__}.")
    known = None
    if isinstance(what, Traced):
        if machine is None and what.schedule.sram_bytes > TOY.sram_bytes:
            machine = TPU_V5E
        machine, known, what = what.limited(machine or TOY), what.hazards, what.schedule
    try:
        with time_limit(LONGEST, lambda: TimeoutError(f"it did not end within {LONGEST} s")):
            schedule = what if isinstance(what, Schedule) else record(what, steps, depth=depth)
    except NotImplementedError as hole:
        return NoView(f"… nothing to show: {str(hole) or 'the loop is not written yet'}")
    except Exception as error:
        kind = "" if isinstance(error, PallasLiteError) else f"{type(error).__name__}: "
        frames = reversed(traceback.extract_tb(error.__traceback__))
        at = next((f.lineno for f in frames if f.name == getattr(what, "__name__", None)), None)
        line = f" (line {at} of the cell)" if at else ""
        return NoView(f"✗ nothing to show, {getattr(what, '__name__', 'the loop')} stopped{line}: {kind}{error}")
    return View(schedule, machine or TOY, limit, known)


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
