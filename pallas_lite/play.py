"""play: a Schedule and a machine -> the second at which each event happens. Next: causes.py and timeline.py.

The rules are those of timeline.py. The events are arrays here, so that a part of them can be left out, or moved, and
played again.
"""
from collections import defaultdict, deque
from typing import NamedTuple

import numpy as np

from .hardware import Machine
from .schedule import IN_START, OUT_START, OUT_WAIT, RUN, VERBS, Schedule

CODE = {verb: i for i, verb in enumerate(VERBS)}


class Play(NamedTuple):
    """What there is to play, one entry an event. Leaving entries out, or moving them, asks "what if?"."""

    verb: np.ndarray  # number in VERBS
    seconds: np.ndarray  # a run's in the core, a copy's in the port, 0 for a wait
    copy: np.ndarray  # number of the copy that is started or waited for; -1 for a run and for a wait that would hang

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
    """All events of a schedule, in program order. Copies of one slot and direction are waited for in order of start."""
    c = schedule.columns
    out = np.isin(c.verb, (CODE[OUT_START], CODE[OUT_WAIT]))
    place = np.where(c.operand < 0, -1, (c.operand * (c.slot.max(initial=0) + 1) + c.slot) * 2 + out)
    copy, waiting, started = [], defaultdict(deque), 0
    for verb, where in zip(c.verb.tolist(), place.tolist(), strict=True):
        if verb in (CODE[IN_START], CODE[OUT_START]):
            copy.append(started)
            waiting[where].append(started)
            started += 1
        else:  # nothing is ever started at a run's place, -1
            copy.append(waiting[where].popleft() if waiting[where] else -1)
    seconds = np.where(c.operand < 0, step_seconds, schedule.copied_bytes / machine.beta)
    return Play(c.verb, seconds, np.array(copy, int))
