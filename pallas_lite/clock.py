"""clock: a Schedule and a machine -> the second at which each event happens. Next: causes.py and timeline.py.

The rules are those of timeline.py. The events are arrays here, so that a part of them can be left out, or moved, and
played again.
"""
from typing import NamedTuple

import numpy as np

from .hardware import Machine
from .schedule import CODE, IN_START, OUT_START, RUN, Schedule


class Play(NamedTuple):
    """What there is to play, one entry an event. Leaving entries out, or moving them, asks "what if?"."""

    verb: np.ndarray  # CODE of it
    seconds: np.ndarray  # a run's in the core, a copy's in the port, 0 for a wait
    copy: np.ndarray  # as in Schedule.copy_of: the copy that is started or waited for, by its number, or -1

    def where(self, chosen) -> "Play":
        """Some of the events, or all in another order."""
        return Play(*(column[chosen] for column in self))

    def times(self, machine: Machine) -> tuple[list[float], float]:
        """When each event happens (a run starts, a port begins with a copy, a wait is over), and when all is over."""
        ports = {CODE[IN_START]: 0, CODE[OUT_START]: int(machine.duplex)}
        run, alpha, now, free, times = CODE[RUN], machine.alpha, 0.0, [0.0, 0.0], []
        arrives = [0.0] * (1 + int(self.copy.max(initial=-1)))
        for verb, seconds, copy in zip(*(column.tolist() for column in self), strict=True):
            if verb in ports:
                port = ports[verb]
                start = now if now > free[port] else free[port]
                free[port] = start + seconds
                arrives[copy] = free[port] + alpha
                times.append(start)
            elif verb == run:
                times.append(now)
                now += seconds
            else:
                if copy >= 0 and arrives[copy] > now:
                    now = arrives[copy]
                times.append(now)
        return times, max(now, *arrives, 0.0)


def play_of(schedule: Schedule, machine: Machine, step_seconds: float) -> Play:
    """All events of a schedule, in program order."""
    c = schedule.columns
    seconds = np.where(c.operand < 0, step_seconds, schedule.copied_bytes / machine.beta)
    return Play(c.verb, seconds, schedule.copy_of)
