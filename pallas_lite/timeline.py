"""timeline: a Schedule and a machine's α, β, F -> when each engine is busy. Modelled time, in seconds, never measured.

A transfer of X bytes occupies the HBM port for X/β and completes α after it leaves the port; a port serves in order of
start; the core takes Y/F a step and stands still at a wait until its copy has arrived. Source: the tutorial's α/β/F
model; the port queue is ours. The clock itself is clock.py; why it takes as long as it does is in causes.py.
"""
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import causes, perfetto
from .clock import Play, play_of
from .errors import expect
from .hardware import TOY, Machine
from .schedule import CODE, IN_START, OUT_START, RUN, Schedule
from .verify import Hazard

DMA_IN, CORE, DMA_OUT = LANES = ("DMA in", "core", "DMA out")


class Span(NamedTuple):
    """One stretch of work (or of waiting, in the core's lane), in seconds."""

    lane: str
    start: float
    end: float
    arrives: float  # a copy completes here, α after it left the port; else the same as `end`
    event: int  # number of the event in the schedule
    step: int
    label: str
    waiting: bool = False  # the core stands still for a copy: a bubble

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Timeline:
    """When everything happens. `total`, `utilisation`, `bound`, `terms` and `excess` are modelled from α, β and F."""

    schedule: Schedule
    machine: Machine
    step_seconds: float
    total: float  # seconds from the first start to the last arrival
    play: Play = field(repr=False, compare=False)
    times: list[float] = field(repr=False, compare=False)  # of each event, as Play.times has them

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """All stretches of work and of waiting, in program order: made when somebody looks."""
        spans, now, alpha, operands, c = [], 0.0, self.machine.alpha, self.schedule.operands, self.schedule.columns
        columns = c.verb, c.step, c.operand, c.block, c.slot, np.array(self.times), self.play.seconds, self.play.copy
        for number, (verb, step, x, block, slot, time, seconds, copy) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True)):
            if verb == CODE[RUN]:
                now = time + seconds
                spans.append(Span(CORE, time, now, now, number, step, str(step)))
            elif verb in (CODE[IN_START], CODE[OUT_START]):
                lane = DMA_IN if verb == CODE[IN_START] else DMA_OUT
                label = operands[x].show(c.blocks[block] if block >= 0 else None)
                spans.append(Span(lane, time, time + seconds, time + seconds + alpha, number, step, label))
            else:
                if time > now * (1 + 1e-12) or copy < 0:  # sums of the same times may round apart: no bubble
                    spans.append(Span(CORE, now, time, time, number, step, f"wait {operands[x].name}[{slot}]", True))
                now = time
        return tuple(spans)

    @property
    def bubbles(self) -> list[Span]:
        """The core's waits: `seconds` long, for the copy of `schedule[event]`; the first of them fills the pipeline."""
        return [s for s in self.spans if s.waiting]

    @cached_property
    def runs(self) -> np.ndarray:
        """When each step starts, in seconds."""
        return np.array(self.times)[self.play.verb == CODE[RUN]]

    @property
    def busy(self) -> float:
        """Seconds in which the core computes."""
        return len(self.runs) * self.step_seconds

    @property
    def utilisation(self) -> float:
        """The fraction of the total time in which the core computes."""
        return self.busy / self.total if self.total else 0.0

    @property
    def fill(self) -> float:
        """Seconds until the first step runs."""
        return float(self.runs[0]) if len(self.runs) else self.total

    @property
    def drain(self) -> float:
        """Seconds after the last step has run."""
        return self.total - (float(self.runs[-1]) + self.step_seconds if len(self.runs) else 0.0)

    @cached_property
    def hangs(self) -> str:
        """Of a program in which a wait has no copy to wait for, and so never ends: when; else "".

        Here such a wait takes no time, and what follows is played as if it had ended.
        """
        lost = np.flatnonzero((self.play.copy < 0) & (self.play.verb != CODE[RUN]))
        unit, name = unit_of(self.total)
        return f"✗ hangs at {self.times[lost[0]] / unit:.4g} {name} modelled" if len(lost) else ""

    @property
    def hbm_bytes(self) -> dict[str, int]:
        """Bytes that the copies move: in, out and in total."""
        return self.schedule.hbm_bytes

    @property
    def sram_bytes(self) -> int:
        """Bytes of all slots and of the scratch buffers."""
        return self.schedule.sram_bytes

    @property
    def intensity(self) -> float:
        """Operations for each byte that the copies move."""
        return self.schedule.intensity

    # -- why it takes that long

    @cached_property
    def terms(self) -> dict[str, float]:
        """The lower bounds on the total, in seconds: compute N·Y/F, bandwidth N·X/β, latency N·(α+X/β+Y/F)/depth.

        X: the bytes that a step copies, in the latency those of the operands whose slots fill together. The schedule's
        own copies are counted, so a block that is kept costs nothing: see causes.bounds.
        """
        return causes.bounds(self)

    @cached_property
    def excess(self) -> dict[str, float]:
        """The time above the largest of the terms, in seconds, split exactly into its causes: see causes.excess."""
        return causes.excess(self)

    @property
    def bound(self) -> str:
        """What limits this pipeline: the largest of the terms, or a cause of `excess`.

        A cause is named where the terms explain less than what the order of the program costs on top of them (first and
        last trip aside, which more steps make small): a loop that waits for each copy is not bound by its port.
        """
        costs = {k: v for k, v in self.excess.items() if k not in ("first trip", "last trip")}
        least = max(self.terms.values())
        largest = costs if sum(costs.values()) > least else self.terms
        return max(largest, key=largest.__getitem__)

    bottleneck = bound

    # -- SRAM

    @property
    def sram_report(self) -> str:
        """The SRAM that the kernel needs, item by item, and whether the machine has as much."""
        need, has = self.sram_bytes, self.machine.sram_bytes
        rest = f"over by {need - has:,}" if need > has else f"{has - need:,} are left for the body's temporaries"
        rows = [f"  {x.name}: {x.depth} × {x.block_bytes:,}{f' ({x.dtype}{list(x.block_shape)})' if x.dtype else ''} = "
                f"{x.depth * x.block_bytes:,} bytes" for x in self.schedule.operands]
        rows += [f"  {name}: scratch ({what}) = {size:,} bytes" for name, what, size in self.schedule.scratch]
        head = f"It needs {need:,} bytes of SRAM; one kernel has {has:,} on {self.machine.name}, {rest}."
        return "\n".join([head, *rows])

    @property
    def hazards(self) -> list[Hazard]:
        """[] or one hazard: the slots and the scratch do not fit into the SRAM, so a compiler refuses the kernel."""
        if self.sram_bytes <= self.machine.sram_bytes:
            return []
        sizes = {x.name: x.depth * x.block_bytes for x in self.schedule.operands}
        largest, most = max(sizes, key=sizes.__getitem__, default=""), self.machine.physical_sram_bytes
        lift = f"; on a TPU, CompilerParams(vmem_limit_bytes=…) gives up to {most:,}" if most >= self.sram_bytes else ""
        lift += "; or give a real machine, such as pl.hardware.TPU_V5E" * (self.machine.name == TOY.name)
        mend = f"Use smaller blocks or fewer slots (Buffered(n)), first of all for {largest}{lift}."
        return [Hazard("sram", self.sram_report, mend, largest, 0, -1, ())]

    def to_perfetto(self, path: str | os.PathLike) -> Path:
        """Writes a trace for the Perfetto viewer (ui.perfetto.dev) and Chrome's tracing page; returns its path."""
        return perfetto.write(self, path)

    def __str__(self) -> str:
        unit, name = unit_of(self.total)
        terms, excess = (", ".join(f"{k} {v / unit:.4g}" for k, v in times.items() if k in self.terms or v)
                         for times in (self.terms, self.excess))
        refused = "".join(f"\n{h.message}\n  {h.mend}" for h in self.hazards)
        hangs = f"{self.hangs}; if it went on: " if self.hangs else ""
        return (f"{self.schedule.name} on {self.machine.name}: {hangs}{self.total / unit:.4g} {name} modelled, core "
                f"busy {self.utilisation:.0%}, {self.bound}-bound (lower bounds: {terms} {name}; above them: "
                f"{excess or 'nothing'}); fill {self.fill / unit:.4g}, drain {self.drain / unit:.4g} {name}{refused}")


def unit_of(seconds: float) -> tuple[float, str]:
    """A unit in which a time reads well.  >>> unit_of(3e-6)
    (1e-06, 'µs')
    """
    return next(((u, n) for u, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= u), (1e-9, "ns"))


def timeline(schedule: Schedule, machine: Machine = TOY, *, step_seconds: float | None = None) -> Timeline:
    """Play a schedule in time on a machine. A wait that would hang (verify reports it) takes no time here.

    `step_seconds`: how long the core takes for a step, where that is known better than Y/F has it.
    """
    expect(Schedule, schedule, "timeline takes a schedule: f.trace(x).schedule, or call f.trace(x).timeline(machine)")
    expect(Machine, machine, "timeline takes a machine: one of pl.hardware, such as pl.hardware.TPU_V5E")
    if step_seconds is None:  # Y/F: each unit's work at its own rate, one after the other
        rest = schedule.flops - sum(n for *_, n in schedule.work)
        step_seconds = rest / machine.flops + sum(n / machine.rate(unit, dtype) for unit, dtype, n in schedule.work)
    play = play_of(schedule, machine, step_seconds)
    times, total = play.times(machine)
    return Timeline(schedule, machine, step_seconds, total, play, times)
