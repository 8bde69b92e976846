"""timeline: a Schedule and a machine's α, β, F -> when each engine is busy. Modelled time, in seconds, never measured.

A transfer of X bytes occupies the HBM port for X/β and completes α after it leaves the port; a port serves in order of
start; the core takes Y/F a step and stands still at a wait until its copy has arrived. Source: the tutorial's α/β/F
model; the port queue is ours.
"""
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

from .hardware import TOY, Machine
from .schedule import IN_START, IN_WAIT, OUT_START, RUN, Schedule

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


@dataclass(frozen=True)
class Timeline:
    """When everything happens. `total`, `utilisation`, `bound` and the three `terms` are modelled from α, β and F."""

    schedule: Schedule
    machine: Machine
    spans: tuple[Span, ...]
    total: float  # seconds from the first start to the last arrival

    @property
    def busy(self) -> float:
        """Seconds in which the core computes."""
        return sum(s.end - s.start for s in self.spans if s.lane == CORE and not s.waiting)

    @property
    def utilisation(self) -> float:
        """The fraction of the total time in which the core computes."""
        return self.busy / self.total if self.total else 0.0

    @property
    def fill(self) -> float:
        """Seconds until the first step runs."""
        return min((s.start for s in self.spans if s.lane == CORE and not s.waiting), default=self.total)

    @property
    def drain(self) -> float:
        """Seconds after the last step has run."""
        return self.total - max((s.end for s in self.spans if s.lane == CORE and not s.waiting), default=0.0)

    @property
    def terms(self) -> dict[str, float]:
        """The lower bounds on the total, in seconds: compute N·Y/F, bandwidth N·X/β, latency N·(α+X/β+Y/F)/depth.

        X is the bytes of a step: all of them where one port serves both ways, else those of the busier port. The
        schedule's own copies are counted, so a block that is kept costs nothing. Source: the tutorial's regimes.
        """
        m, n = self.machine, max(self.schedule.steps, 1)
        lanes = defaultdict(float)
        for s in self.spans:
            if s.lane != CORE:
                lanes[s.lane if m.duplex else "both"] += s.end - s.start
        bandwidth = max(lanes.values(), default=0.0)
        depth = min((x.depth for x in self.schedule.operands if not x.is_output), default=1)
        fetch = sum(s.end - s.start for s in self.spans if s.lane == DMA_IN) / n
        compute = self.schedule.flops / m.flops
        return {"compute": n * compute, "bandwidth": bandwidth, "latency": n * (m.alpha + fetch + compute) / depth}

    @property
    def bound(self) -> str:
        """Which of the terms is the largest: what limits this pipeline."""
        terms = self.terms
        return max(terms, key=terms.get)

    def __str__(self) -> str:
        unit, name = unit_of(self.total)
        terms = ", ".join(f"{k} {v / unit:.4g}" for k, v in self.terms.items())
        return (f"{self.schedule.name} on {self.machine.name}: {self.total / unit:.4g} {name} modelled, core busy "
                f"{self.utilisation:.0%}, {self.bound}-bound (lower bounds: {terms} {name}), fill "
                f"{self.fill / unit:.4g}, "
                f"drain {self.drain / unit:.4g} {name}{self._sram}")

    @property
    def _sram(self) -> str:
        need, has = self.schedule.sram_bytes, self.machine.sram_bytes
        if need <= has:
            return ""
        return f". It needs {need:,} bytes of SRAM; one kernel has {has:,}: use smaller blocks or depths"

    __repr__ = __str__


def unit_of(seconds: float) -> tuple[float, str]:
    """A unit in which a time reads well.  >>> unit_of(3e-6)
    (1e-06, 'µs')
    """
    return next(((u, n) for u, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= u), (1e-9, "ns"))


def timeline(schedule: Schedule, machine: Machine = TOY) -> Timeline:
    """Play a schedule in time on a machine. A wait that would hang (verify reports it) takes no time here."""
    operands = {x.name: x for x in schedule.operands}
    port = defaultdict(float)  # when a port is next free
    arrivals = defaultdict(deque)  # (operand, slot, direction) -> arrival times of its copies in flight
    spans, now, last = [], 0.0, 0.0
    for number, e in enumerate(schedule.events):
        if e.verb == RUN:
            end = now + schedule.flops / machine.flops
            spans.append(Span(CORE, now, end, end, number, e.step, str(e.step)))
            now = end
        elif e.verb in (IN_START, OUT_START):
            x = operands[e.operand]
            lane = DMA_IN if e.verb == IN_START else DMA_OUT
            way = lane if machine.duplex else "both"
            start = max(now, port[way])
            port[way] = end = start + x.block_bytes / machine.beta
            spans.append(Span(lane, start, end, end + machine.alpha, number, e.step, x.show(e.block)))
            arrivals[e.operand, e.slot, lane].append(end + machine.alpha)
            last = max(last, end + machine.alpha)
        else:
            queue = arrivals[e.operand, e.slot, DMA_IN if e.verb == IN_WAIT else DMA_OUT]
            hangs = not queue
            arrival = now if hangs else queue.popleft()
            if arrival > now or hangs:
                spans.append(Span(CORE, now, arrival, arrival, number, e.step, f"wait {e.operand}[{e.slot}]", True))
                now = arrival
    return Timeline(schedule, machine, tuple(spans), max(now, last))
