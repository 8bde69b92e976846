"""causes: why a pipeline takes as long as it does: lower bounds that nothing beats, and what makes up the rest.

`bounds` are the tutorial's three regimes. `excess` splits the time above the largest of them, M, exactly: the schedule
is played again without one constraint after the other, and each is charged with what the time falls by (never below M).

    drain        the end without what follows the last run: the copies out that nothing overlaps
    wait-out     … if the core never waits for a copy out: it held up the fetches and runs that come after the wait
    port queue   … if copies out do not pass through the port of the copies in (nothing, with one port each way)
    order        … if each fetch starts as early, and each wait comes as late, as the operand's slots allow
    fill         of what is left: a step's way in that nothing overlaps, at most α + X/β + Y/F of the first step
    uneven       the rest: stretches in which one engine has more to do than M's average tells

A program with less of something never takes longer here (copies keep their order in the port), so no charge is
negative; where two hold the same thing up, the later of the list is charged. `order` alone moves copies, and is charged
only with what that gains.
"""
import numpy as np

from .play import CODE, Play
from .schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN

NEVER = np.iinfo(np.int64).max // 4


def bounds(t) -> dict[str, float]:
    """Of a Timeline: seconds below which no order of these copies and runs can go.

    compute: the core runs N steps, N·Y/F. bandwidth: the busier port moves all its bytes, N·X/β. latency: a slot is
    filled for α+X/β, then used for its visit's steps, then free for the next, so the d slots of an operand are occupied
    for V·(α+X/β) + N·Y/F over V visits, and no less than a d-th of that passes: N·(α+X/β+Y/F)/d where each step is a
    visit. Outputs likewise (used, then emptied). Operands of one depth that change together fill a slot together, with
    X all their bytes. The largest over the operands counts. Source: the tutorial's regimes; the slots are ours.
    """
    play, machine = t.play, t.machine
    ways = [float(play.seconds[play.verb == CODE[v]].sum()) for v in (IN_START, OUT_START)]
    occupied = {}  # operands that change together -> [depth, copies, seconds in the port]
    for i, x in enumerate(t.schedule.operands):
        uses = _Uses(t, i)
        alone = () if uses.in_turn.all() else (i,)  # a racy copy shares its slot: those in turn still count
        group = occupied.setdefault((x.is_output, x.depth, uses.visit.tobytes(), *alone), [x.depth, 0, 0.0])
        group[1] = int(uses.in_turn.sum())
        group[2] += float(play.seconds[uses.starts[uses.in_turn]].sum())
    latency = max(((n * machine.alpha + seconds + t.busy) / depth for depth, n, seconds in occupied.values()),
                  default=0.0)
    return {"compute": t.busy, "bandwidth": max(ways) if machine.duplex else sum(ways), "latency": latency}


def excess(t) -> dict[str, float]:
    """Of a Timeline: cause -> seconds, 0 or more, that sum to its total less the largest of its bounds."""
    play, least = t.play, max(t.terms.values())
    inputs = [_Uses(t, i) for i, x in enumerate(t.schedule.operands) if not x.is_output]

    def last_run(play):
        runs = np.flatnonzero(play.verb == CODE[RUN])
        return play.times(t.machine.alpha, t.machine.duplex)[0][runs[-1]] + t.step_seconds if len(runs) else 0.0

    without = {"drain": lambda: t.runs[-1] + t.step_seconds if len(t.runs) else 0.0,
               "wait-out": lambda: last_run(play.where(play.verb != CODE[OUT_WAIT])),
               "port queue": lambda: last_run(play.where(~np.isin(play.verb, (CODE[OUT_START], CODE[OUT_WAIT])))),
               "order": lambda: last_run(_early(play, inputs))}
    causes, left = {}, t.total
    for cause, time in {"": lambda: t.total, **without}.items():
        before, left = left, min(left, time())
        left = left if left > least * (1 + 1e-12) else least  # rounding is no cause
        causes[cause] = float(before - left)
    del causes[""]
    first = (play.seconds[u.starts[u.visit[0]]] for u in inputs if len(u.visit) and u.visit[0] >= 0)
    trip = t.machine.alpha + float(sum(first)) + t.step_seconds
    fill = left - least if left - least <= trip * (1 + 1e-9) else trip
    return {"fill": float(fill), **causes, "uneven": float(left - least - fill)}


def _early(play: Play, inputs: list["_Uses"]) -> Play:
    """Copies in and runs alone: fetches as soon as a slot is free, those needed first in front; waits right before use.

    A copy may use any slot of its operand here, not only the one that the program gave it.
    """
    runs = np.flatnonzero(play.verb == CODE[RUN])
    waits = np.full(int(play.copy.max(initial=-1)) + 1, -1)
    waiting = np.flatnonzero((play.verb == CODE[IN_WAIT]) & (play.copy >= 0))
    waits[play.copy[waiting]] = waiting
    # Events, and what they are sorted by: the step before which they happen, phase, step that needs them, operand.
    events, keys = [runs], [np.stack([np.arange(len(runs)), np.full(len(runs), 2), runs, runs])]
    for i, uses in enumerate(inputs):
        n = len(uses.starts)
        first, last, used = np.full(n, len(runs)), np.full(n, -1), np.flatnonzero(uses.visit >= 0)
        np.minimum.at(first, uses.visit[used], used)
        np.maximum.at(last, uses.visit[used], used)
        free = np.concatenate([np.zeros(uses.depth, np.int64), 1 + np.maximum.accumulate(last)])[:n]
        wait = waits[play.copy[uses.starts]]
        events += [uses.starts, wait[wait >= 0]]
        keys += [np.stack([free, np.full(n, 0), first, np.full(n, i)]),
                 np.stack([first, np.full(n, 1), first, np.full(n, i)])[:, wait >= 0]]
    step, phase, need, operand = np.concatenate(keys, 1)
    return play.where(np.concatenate(events)[np.lexsort((operand, need, phase, step))])


class _Uses:
    """What one operand's copies are for: `starts` (their events), and `visit`, the copy that each run reads or fills.

    `in_turn`: is a copy waited for before its slot is copied or used again? `visit` is -1 where there is no copy.
    """

    def __init__(self, t, i: int):
        c, x, play = t.schedule.columns, t.schedule.operands[i], t.play
        start, wait = (OUT_START, OUT_WAIT) if x.is_output else (IN_START, IN_WAIT)
        self.depth = x.depth
        self.starts = np.flatnonzero((c.verb == CODE[start]) & (c.operand == i))
        runs, end = np.flatnonzero(c.verb == CODE[RUN]), len(c.verb) + 1
        at = c.slot[self.starts] * end + self.starts  # one long line: the events of slot 0, then those of slot 1, …
        order = np.argsort(at)
        at, use = at[order], c.runs[:, i] * end + runs
        near = np.searchsorted(at, use) - (0 if x.is_output else 1)  # the next copy out, or the last copy in
        ok = (near >= 0) & (near < len(at))
        ok[ok] = at[near[ok]] // end == c.runs[ok, i]
        self.visit = np.full(len(runs), -1)
        self.visit[ok] = order[near[ok]]
        waited = np.full(int(play.copy.max(initial=-1)) + 1, NEVER)
        waits = (c.verb == CODE[wait]) & (c.operand == i) & (play.copy >= 0)
        waited[play.copy[waits]] = np.flatnonzero(waits)
        until = np.minimum(_following(at, np.sort(use), end), _following(at, at, end))
        self.in_turn = np.empty(len(at), bool)
        self.in_turn[order] = waited[play.copy[self.starts[order]]] <= until


def _following(at, events, end):
    """For each place on the line the next event of the same slot, or NEVER."""
    k = np.searchsorted(events, at, "right")
    found = np.full(len(at), NEVER)
    inside = k < len(events)
    inside[inside] = events[k[inside]] // end == at[inside] // end
    found[inside] = events[k[inside]] % end
    return found
