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

    def times(self, alpha: float, duplex: bool) -> tuple[list[float], float]:
        """When each event happens (a run starts, a port begins with a copy, a wait is over), and when all is over."""
        # With one port for both ways, a copy out is one more copy in.
        verb = self.verb if duplex else np.where(self.verb == CODE[OUT_START], CODE[IN_START], self.verb)
        arrives = [0.0] * (int(self.copy.max(initial=-1)) + 1)
        in_start, run, out_start = CODE[IN_START], CODE[RUN], CODE[OUT_START]
        now = in_free = out_free = last = 0.0
        times = []
        for what, seconds, copy in zip(verb.tolist(), self.seconds.tolist(), self.copy.tolist(), strict=True):
            if what == in_start:
                start = now if now > in_free else in_free
                in_free = start + seconds
                arrives[copy] = last_in = in_free + alpha
                last = last_in if last_in > last else last
                times.append(start)
            elif what == run:
                times.append(now)
                now += seconds
            elif what == out_start:
                start = now if now > out_free else out_free
                out_free = start + seconds
                arrives[copy] = last_out = out_free + alpha
                last = last_out if last_out > last else last
                times.append(start)
            else:
                if copy >= 0 and arrives[copy] > now:
                    now = arrives[copy]
                times.append(now)
        return times, max(now, last)


def seconds_of(schedule: Schedule, machine: Machine) -> float:
    """Seconds of a step in the core, Y/F: each unit's work at its own rate, one after the other."""
    by_unit = sum(n / machine.rate(unit, dtype) for unit, dtype, n in schedule.work)
    return by_unit + (schedule.flops - sum(n for *_, n in schedule.work)) / machine.flops


def play_of(schedule: Schedule, machine: Machine, step_seconds: float) -> Play:
    """All events of a schedule, in program order."""
    verb = schedule.columns.verb
    seconds = np.where(verb == CODE[RUN], step_seconds, schedule.copied_bytes / machine.beta)
    return Play(verb, seconds, _paired(schedule))


def _paired(schedule: Schedule) -> np.ndarray:
    """For each start the number of its copy, for each wait the number of the copy it waits for; else -1."""
    c = schedule.columns
    starts = (c.verb == CODE[IN_START]) | (c.verb == CODE[OUT_START])
    copy = np.where(starts, np.cumsum(starts) - 1, -1)
    # Copies of one slot and direction arrive in order of start, and are waited for in that order.
    deep = c.slot.max(initial=0) + 1
    place = (c.operand * deep + c.slot) * 2 + ((c.verb == CODE[OUT_START]) | (c.verb == CODE[OUT_WAIT]))
    events = np.flatnonzero(c.verb != CODE[RUN])
    order = events[np.argsort(place[events], kind="stable")]
    first, second = order[0::2], order[1::2]
    if len(first) == len(second) and (place[first] == place[second]).all() and starts[first].all() and not (
            starts[second].any()):
        copy[second] = copy[first]  # they take turns, as in any pipeline of ours
        return copy
    waiting = defaultdict(deque)
    for i in events.tolist():
        if starts[i]:
            waiting[place[i]].append(copy[i])
        elif waiting[place[i]]:
            copy[i] = waiting[place[i]].popleft()
    return copy
