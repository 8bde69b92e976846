"""rolled: the events of a schedule -> the loop that a person would write: prologue, steady state, epilogue.

The loop is inferred from the events, so a learner's own loop rolls up as ours does. It is exact: `Rolled.events` runs
the printed expressions, and a schedule that no loop found here gives back, event for event, is printed unrolled.
"""
import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from .schedule import CODE, IN_START, IN_WAIT, OUT_START, RUN, VERBS, Event, OperandInfo, Schedule


@dataclass(frozen=True)
class Rolled:
    """A schedule as a loop: print it, or get its events back.

    `body`: for each line its condition ("" is always) and its event, with Python expressions in the step t as numbers.
    `tables`: by step, what follows no formula. "x_begins[t]": is x's block at step t another than at step t - 1?
    """

    operands: tuple[OperandInfo, ...]
    prologue: list[Event]
    body: list[tuple[str, Event]] = field(default_factory=list)
    steps: int = 0
    epilogue: list[Event] = field(default_factory=list)
    tables: dict[str, list[int]] = field(default_factory=dict)

    def events(self) -> list[Event]:
        """Every event, in order, as the printed loop has them."""
        lines = [eval(f"lambda t: {_code(e)} if {when or True} else None", {"Event": Event, **self.tables})
                 for when, e in self.body]
        loop = [e for t in range(self.steps) for line in lines if (e := line(t))]
        return list(Schedule((*self.prologue, *loop, *self.epilogue), self.operands).with_waits_named())

    def __str__(self) -> str:
        show = Schedule((), self.operands).describe
        lines = [f"{name} = [{', '.join(map(str, v[:32]))}{', …' * (len(v) > 32)}]" for name, v in self.tables.items()]
        if sum(e.verb == RUN for e in self.prologue) > 1:
            lines.append("# the steps do not repeat one pattern: no loop, only what happens")
        lines += [*map(show, self.prologue), *[f"for t in range({self.steps}):"] * bool(self.body)]
        for condition, group in itertools.groupby(self.body, key=lambda line: line[0]):
            lines += [f"    if {condition}:"] * bool(condition)
            lines += ["    " * (2 if condition else 1) + show(e) for _, e in group]
        return "\n".join([*lines, *map(show, self.epilogue)])

    __repr__ = __str__


def _code(e) -> str:
    """The event of a line as a Python expression."""
    block, slots = (f"({''.join(f'{text}, ' for text in texts or ())})" for texts in (e.block, e.slots))
    return f"Event({e.verb!r}, {e.step}, {e.operand!r}, {block if e.verb != RUN else None}, {e.slot}, {slots})"


def roll(schedule: Schedule) -> Rolled:
    """The shortest loop that gives the schedule's events back; all of them, unrolled, where there is none."""
    events, names = list(schedule), [x.name for x in schedule.operands]
    straight, groups = Rolled(schedule.operands, events), _iterations(events)
    if len(groups) < 2 or not all(map(str.isidentifier, names)):
        return straight
    # The prologue is a part of the first step's events, the epilogue of the last one's: the shortest text decides.
    infer, last = _Inference(schedule, groups), groups[-1]
    first, end = ([e.verb for e in g].index(RUN) for g in (groups[0], last))
    reach = max(map(len, groups[1:-1]), default=1) + 2 * len(names)  # so much of a step may be in the loop

    def shortest(cuts):
        return min(filter(None, (infer.loop(*cut) for cut in cuts)), default=straight,
                   key=lambda rolled: (str(rolled).count(" in {"), len(str(rolled))))
    best = shortest((first, cut) for cut in range(min(end + reach, len(last)), end, -1))
    best = shortest((cut, len(last) - len(best.epilogue)) for cut in range(max(first - reach, 0), first + 1))
    return best if best.events() == events else straight


def _iterations(events) -> list[list[Event]]:
    """The events of each step, cut where all that follows belongs to later steps; [] where that cannot be done."""
    groups: list[list[Event]] = [[] for e in events if e.verb == RUN]
    least: Sequence[int] = np.minimum.accumulate([e.step for e in reversed(events)])[::-1].tolist() if groups else []
    for e, step in zip(events, least, strict=False):
        groups[min(step, len(groups) - 1)].append(e)
    return groups if all([e.step for e in g if e.verb == RUN] == [t] for t, g in enumerate(groups)) else []


class _Inference:
    """Fits one line to each verb and operand of the steady state."""

    def __init__(self, schedule, groups):
        self.operands, self.groups, self.steps = {x.name: x for x in schedule.operands}, groups, len(groups)
        self.tables = {name: np.array(table) for name, table in _tables(schedule, self.steps).items()}
        self.middle = self._columns(groups[1:-1], 1)
        found = Counter()  # how far apart values change, most frequent first
        numbers = {name: table for name, table in self.tables.items() if not name.endswith(("_begins", "_ends"))}
        for table in numbers.values():
            found.update(np.diff([0, *(np.flatnonzero(np.diff(table)) + 1)[:3]]).tolist())
        self.periods = [p for p, _ in found.most_common(8) if p > 1]
        # What has no formula over all steps must not get one by chance on the few steps of a line.
        self.irregular, t = {}, np.arange(self.steps)
        self.irregular = {name for name, table in numbers.items() if "[" in self._number(t, table, name, 0)}

    def _columns(self, groups, first):
        """(verb, operand, number in the step) -> rows of t, step, slots…, block…; and which keys follow which."""
        columns, pairs = defaultdict(list), set()
        for t, g in enumerate(groups, first):
            order = []
            for e in g:
                kind = CODE[e.verb], e.operand
                order.append((*kind, sum(k[:2] == kind for k in order)))
                block = e.block if e.verb in (IN_START, OUT_START) else ()
                columns[order[-1]].append([t, e.step, *(e.slots if e.verb == RUN else (e.slot,)), *(block or ())])
            pairs.update(zip(order, order[1:], strict=False))
        return {key: np.array(rows) for key, rows in columns.items()}, pairs

    def loop(self, cut, end) -> Rolled | None:
        """The loop when the first step's events before `cut` are prologue, the last one's from `end` on epilogue."""
        head, tail = self.groups[0], self.groups[-1]
        parts = self._columns([head[cut:]], 0), self.middle, self._columns([tail[:end]], self.steps - 1)
        columns = {key: np.concatenate([c[key] for c, _ in parts if key in c]) for c, _ in parts for key in c}
        graph = TopologicalSorter({key: () for key in columns})
        for before, after in (pair for _, pairs in parts for pair in pairs):
            graph.add(after, before)
        body: list[tuple[str, Event]] = []
        ready: list[tuple] = []
        try:
            graph.prepare()
        except CycleError:
            return None
        while graph.is_active():
            ready = sorted([*ready, *graph.get_ready()])
            graph.done(key := ready.pop(0))
            body.append(self._line(VERBS[key[0]], key[1], *columns[key].T))
        used = {name: table.tolist() for name, table in self.tables.items() if f"{name}[" in str(body)}
        rolled = Rolled(tuple(self.operands.values()), head[:cut], body, self.steps, tail[end:], used)
        return None if "?" in str(body) else rolled

    def _line(self, verb, name, t, step, *values) -> tuple[str, Event]:
        ahead = self.operands[name].depth - 1 if verb == IN_START else 0
        slots = [f"{x}_slot" for x in (self.operands if verb == RUN else [name])]
        tables = slots + [f"{name}_block{d or ''}" for d in range(len(values) - len(slots))]
        when, step = self._when(t, name, ahead), self._number(t, step, "", 0)
        numbers = [self._number(t, v, table, ahead) for table, v in zip(tables, values, strict=True)]
        if verb == RUN:
            return when, Event(RUN, step, slots=tuple(numbers))
        return when, Event(verb, step, name, tuple(numbers[1:]), numbers[0])

    def _number(self, t, v, table, ahead) -> Any:  # a text, which stands for a number in an Event
        """The first expression that gives v at the steps t, in the order in which a reader knows them; "?" for none."""
        depth = self.operands[table.removesuffix("_slot")].depth if table.endswith("_slot") else 0
        modulo, shifts = depth or int(v.max()) + 1, dict.fromkeys((ahead, 0))
        plain = [_over(_plus("t", shift), p) for p in (1, *self.periods) for shift in shifts]
        moved = [(_over("t", p), int(v[0] - t[0] // p)) for p in (1, *self.periods)]
        texts = [*plain, *(_modulo(w, modulo) for w in plain), f"{v[0] + t[0]} - t", *itertools.starmap(_plus, moved),
                 *(_modulo(_plus(w, add % modulo), modulo) for w, add in moved)]
        within = range(-t[0], len(self.tables.get(table, ())) - t[-1])
        entries = [f"{table}[{_plus('t', shift)}]" for shift in (*shifts, -1, 1) if shift in within]
        entries += [f"({entry} + {add}) % {depth}" for add in range(1, depth) for entry in entries]
        formulas = [] if table in self.irregular else [text for text in texts if not depth or "%" in text]
        names = {"t": t, **self.tables}
        texts = [str(v[0]), *formulas, *entries]
        return next((w for w in texts if np.array_equal(np.broadcast_to(eval(w, names), len(t)), v)), "?")

    def _when(self, t, name, ahead) -> str:
        """The simplest condition that holds at the steps t and at no others."""
        every = [(f"t % {p} == {t[0] % p}", np.arange(t[0] % p, self.steps, p)) for p in self.periods]
        asks = [(f"{name}_{what}[{_plus('t', shift)}]", np.flatnonzero(self.tables[f"{name}_{what}"]) - shift)
                for what, shift in (("begins", ahead), ("begins", 0), ("ends", 0)) if f"{name}_{what}" in self.tables]
        irregular = any(table.rpartition("_")[0] == name for table in self.irregular)
        for text, steps in [("", np.arange(self.steps)), *(asks + every if irregular else every + asks)]:
            i = np.searchsorted(steps, t[0])
            if np.array_equal(steps[i:i + len(t)], t):  # the bounds as wide as they may be
                after = steps[i + len(t)] if i + len(t) < len(steps) else self.steps
                return _bounds(max(steps[i - 1] + 1, 0) if i else 0, after, self.steps, text)
        return f"t in {{{', '.join(map(str, t))}}}"


def _tables(schedule, steps) -> dict[str, Sequence[int]]:
    """Slot and block of each operand by step: the block waited for last, or copied out next, where that is clear."""
    t, used = np.arange(steps), zip(*(e.slots for e in schedule if e.verb == RUN), strict=True)
    found: dict[str, Sequence[int]] = {}
    for x, slots in zip(schedule.operands, used, strict=True):
        marks = [e for e in schedule if e.operand == x.name and e.verb == (OUT_START if x.is_output else IN_WAIT)]
        at = np.searchsorted([e.step for e in marks], t if x.is_output else t + 1) - (not x.is_output)
        if 0 <= at[0] and at[-1] < len(marks) and all(e.block for e in marks):
            table = [marks[i].block for i in at]
            found |= {f"{x.name}_block{d or ''}": column for d, column in enumerate(zip(*table, strict=True))}
            changes = [int(a != b) for a, b in zip(table, table[1:], strict=False)]
            found |= {f"{x.name}_begins": [1, *changes, *[0] * x.depth], f"{x.name}_ends": [*changes, 1]}
        found[f"{x.name}_slot"] = slots
    return found


def _plus(text: str, n: int) -> str:
    return f"{text} {'+' if n > 0 else '-'} {abs(n)}" if n else text


def _over(text: str, n: int) -> str:
    return text if n == 1 else f"({text}) // {n}" if " " in text else f"{text} // {n}"


def _modulo(text: str, n: int) -> str:
    return f"({text}) % {n}" if text[0] != "(" and (" + " in text or " - " in text) else f"{text} % {n}"


def _bounds(low: int, high: int, n: int, first: str) -> str:
    """`first`, and low <= t < high as short as it may be for 0 <= t < n.  >>> _bounds(1, 9, 9, "t % 2 == 0")
    't % 2 == 0 and t > 0'
    """
    if high - low == 1:
        return f"t == {low}"
    left = "" if not low else "0 < " if low == 1 else f"{low} <= "
    bounds = f"{left}t < {high}" if high < n else "" if not low else "t > 0" if low == 1 else f"t >= {low}"
    return " and ".join(filter(None, [first, bounds]))


Schedule.rolled = roll  # put there from here, because imports point one way
