"""causes: why a pipeline takes as long as it does: lower bounds that nothing beats, and what makes up the rest.

`bounds` are the tutorial's three regimes. `excess` splits the time above the largest of them, M, exactly: the schedule
is played again without one constraint after the other, and each is charged with what the time falls by (never below M).

    last trip    the end without what follows the last run: the copies out that nothing overlaps
    wait-out     … if the core never waits for a copy out: it held up the fetches and runs that come after the wait
    port queue   … if copies out do not pass through the port of the copies in (nothing, with one port each way)
    order        … if each fetch starts as early, and each wait comes as late, as the operand's slots allow
    first trip   of what is left: a step's way in that nothing overlaps, at most α + X/β + Y/F of the first step
    uneven       the rest: stretches in which one engine has more to do than M's average tells

A program with less of something never takes longer here (copies keep their order in the port), so no charge is
negative; where two hold the same thing up, the later of the list is charged. `order` alone moves copies, and is charged
only with what that gains. A trip is not a Timeline's whole fill or drain: a bound may cover part of it.
"""
import numpy as np

from .clock import Play
from .schedule import CODE, IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN


def bounds(t) -> dict[str, float]:
    """Of a Timeline: seconds below which no order of these copies and runs can go.

    compute: the core runs N steps, N·Y/F. bandwidth: the busier port moves all its bytes, N·X/β. latency: a slot is
    filled for α+X/β, then used for its visit's steps, then free for the next, so the d slots of an operand are occupied
    for V·(α+X/β) + N·Y/F over V visits, and no less than a d-th of that passes: N·(α+X/β+Y/F)/d where each step is a
    visit. Outputs likewise (used, then emptied). Operands of one depth that change together fill a slot together, with
    X all their bytes. The largest over the operands counts. Source: the tutorial's regimes; the slots are ours.
    """
    play, ports = t.play, [float(t.play.seconds[t.play.verb == CODE[v]].sum()) for v in (IN_START, OUT_START)]
    slots = {}  # operands that change together -> [depth, copies, seconds in the port]
    for i, x in enumerate(t.schedule.operands):
        if uses := _uses(t, i):
            group = slots.setdefault((x.is_output, x.depth, np.diff(uses[2]).astype(bool).tobytes()), [x.depth, 0, 0.0])
            group[1:] = len(uses[0]), group[2] + float(play.seconds[uses[0]].sum())
    latency = max([(n * t.machine.alpha + port + t.busy) / depth for depth, n, port in slots.values()], default=0.0)
    return {"compute": t.busy, "bandwidth": max(ports) if t.machine.duplex else sum(ports), "latency": latency}


def excess(t) -> dict[str, float]:
    """Of a Timeline: cause -> seconds, 0 or more, that sum to its total less the largest of its bounds."""
    play, least = t.play, max(t.terms.values())
    runs, out = play.verb == CODE[RUN], np.isin(play.verb, (CODE[OUT_START], CODE[OUT_WAIT]))
    inputs = [(x.depth, _uses(t, i)) for i, x in enumerate(t.schedule.operands) if not x.is_output]
    ends = {"last trip": t.runs[-1] + t.step_seconds if len(t.runs) else 0.0,  # when the last run is over, if …
            "wait-out": _last_run(t, play.where(play.verb != CODE[OUT_WAIT])),
            "port queue": _last_run(t, play.where(~out)),
            "order": _last_run(t, _early(play, inputs)) if all(uses for _, uses in inputs) else t.total}
    left = np.minimum.accumulate([t.total, *ends.values()])
    left = np.where(left > least * (1 + 1e-12), left, least)  # rounding is no cause
    first = sum(float(play.seconds[u[0][u[2][0]]]) for _, u in inputs if u and runs.any() and u[2][0] >= 0)
    over, trip = float(left[-1]) - least, t.machine.alpha + first + t.step_seconds
    way_in = over if over <= trip * (1 + 1e-9) else trip
    return {"first trip": way_in, **dict(zip(ends, (left[:-1] - left[1:]).tolist(), strict=True)),
            "uneven": over - way_in}


def _last_run(t, play: Play) -> float:
    """When the last step is over, if this is what happens."""
    times, runs = play.times(t.machine)[0], np.flatnonzero(play.verb == CODE[RUN])
    return times[runs[-1]] + t.step_seconds if len(runs) else 0.0


def _early(play: Play, inputs) -> Play:
    """Copies in and runs alone: fetches as soon as a slot is free, those needed first in front; waits right before use.

    A copy may use any slot of its operand here, not only the one that the program gave it.
    """
    runs = np.flatnonzero(play.verb == CODE[RUN])
    # Rows: event, and what it is sorted by: the step before which it happens, phase, step that needs it, operand.
    rows = [np.stack([runs, np.arange(len(runs)), np.full(len(runs), 2), runs, runs])]
    for i, (depth, (starts, waits, visit)) in enumerate(inputs):
        n, used = len(starts), np.flatnonzero(visit >= 0)
        first, last = np.full(n, len(runs)), np.full(n, -1)
        np.minimum.at(first, visit[used], used)
        np.maximum.at(last, visit[used], used)
        free = np.concatenate([np.zeros(depth, int), 1 + np.maximum.accumulate(last)])[:n]
        rows += [np.stack([starts, free, np.full(n, 0), first, np.full(n, i)]),
                 np.stack([waits, first, np.full(n, 1), first, np.full(n, i)])]
    event, step, phase, need, operand = np.concatenate(rows, 1)
    return play.where(event[np.lexsort((operand, need, phase, step))])


def _uses(t, i: int):
    """What the copies of one operand are for: their starts and waits (events), and the copy of each run, or -1.

    A run reads the last copy into its slot, or fills the next copy out of it. None if a start is not followed by its
    wait on its slot: copies then meet each other, or a run.
    """
    c, is_output = t.schedule.columns, t.schedule.operands[i].is_output
    mine, runs = np.flatnonzero(c.operand == i), np.flatnonzero(c.operand < 0)
    event, slot = np.concatenate([mine, runs]), np.concatenate([c.slot[mine], c.slots[:, i]])
    line = np.lexsort((event, slot))  # the events of slot 0, then those of slot 1, …
    event, slot, verb = event[line], np.append(slot[line], -1), np.append(c.verb[event[line]], -1)
    start, run = np.isin(verb, (CODE[IN_START], CODE[OUT_START])), np.flatnonzero(verb == CODE[RUN])
    at = np.flatnonzero(start)
    if not np.isin(verb[at + 1], (CODE[IN_WAIT], CODE[OUT_WAIT])).all() or (slot[at] != slot[at + 1]).any():
        return None
    near = np.cumsum(start)[run] - (0 if is_output else 1)
    known = (near >= 0) & (near < len(at))
    known[known] = slot[at[near[known]]] == slot[run[known]]
    starts, visit = np.sort(event[at]), np.full(len(runs), -1)
    visit[np.searchsorted(runs, event[run[known]])] = np.searchsorted(starts, event[at[near[known]]])
    return starts, event[at + 1][np.argsort(event[at])], visit
