"""rolled: the events of a schedule -> the loop that a person would write: prologue, steady state, epilogue.

The loop is inferred from the events, so a learner's own loop rolls up as ours does. It is exact: `Rolled.events` runs
the printed expressions, and a schedule that no loop found here gives back, event for event, is printed unrolled.
"""
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

import numpy as np

from .schedule import IN_START, IN_WAIT, OUT_START, RUN, VERBS, Event, OperandInfo, Schedule

QUESTIONS = {  # conditions for blocks that follow no formula: how they are printed, and what they mean
    "begins": (lambda x, t: t < len(x) and (t == 0 or x[t] != x[t - 1]),
               "begins(x, t): there is a step t, and its block of x is not that of step t - 1"),
    "ends": (lambda x, t: t == len(x) - 1 or x[t] != x[t + 1],
             "ends(x, t): step t is the last, or its block of x is not that of step t + 1")}


@dataclass(frozen=True)
class Rolled:
    """A schedule as a loop: print it, or get its events back.

    `body`: for each line its condition ("" is always) and its event, with Python expressions in the step t as numbers.
    `tables`: by step, the numbers that follow no formula. `blocks`: by step, the block of each operand.
    """

    operands: tuple[OperandInfo, ...]
    prologue: tuple[Event, ...]
    body: tuple[tuple[str, Event], ...] = ()
    steps: int = 0
    epilogue: tuple[Event, ...] = ()
    tables: dict[str, tuple] = field(default_factory=dict)
    blocks: dict[str, tuple] = field(default_factory=dict)

    def events(self) -> list[Event]:
        """Every event, in order, as the printed loop has them."""
        names = {**self.blocks, **self.tables, **{word: ask for word, (ask, _) in QUESTIONS.items()}, "Event": Event}
        lines = [eval(f"lambda t: {_code(e)} if {when or True} else None", names) for when, e in self.body]
        loop = [e for t in range(self.steps) for line in lines if (e := line(t))]
        started = defaultdict(deque)  # a wait takes the block of the copy that it waits for
        for i, e in enumerate(found := [*self.prologue, *loop, *self.epilogue]):
            queue = started[e.operand, e.slot, e.verb in (IN_START, IN_WAIT)]
            if e.verb in (IN_START, OUT_START):
                queue.append(e.block)
            elif e.verb != RUN:
                found[i] = e._replace(block=queue.popleft() if queue else None)
        return found

    def __str__(self) -> str:
        show = Schedule((), self.operands).describe
        lines = [f"{name} = [{', '.join(map(str, v[:32]))}{', …' * (len(v) > 32)}]" for name, v in self.tables.items()]
        lines += [f"# {text}" for word, (_, text) in QUESTIONS.items() if any(word in when for when, _ in self.body)]
        lines += map(show, self.prologue)
        if self.body:
            lines.append(f"for t in range({self.steps}):")
        elif sum(e.verb == RUN for e in self.prologue) > 1:
            lines.insert(0, "# the steps do not repeat one pattern: no loop, only what happens")
        for condition, group in groupby(self.body, key=lambda line: line[0]):
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
    events = list(schedule)
    straight = Rolled(schedule.operands, tuple(events))
    groups = _iterations(events)
    names = {x.name for x in schedule.operands}
    if len(groups) < 2 or not all(map(str.isidentifier, names)) or names & {"t", *QUESTIONS}:
        return straight
    # The prologue is a part of the first step's events, the epilogue of the last one's: the shortest text decides.
    infer, last = _Inference(schedule, groups), groups[-1]
    first, end = (next(i for i, e in enumerate(g) if e.verb == RUN) for g in (groups[0], last))
    cuts = range(max(first - infer.longest, 0), first + 1)
    ends = range(min(end + infer.longest, len(last)), end, -1)
    loops = next(filter(None, ([*filter(None, (infer.loop(cut, end) for cut in cuts))] for end in ends)), [])
    best = min(loops, key=_cost, default=straight)
    if best.body:
        best = min(filter(None, [best, *(infer.loop(len(best.prologue), end) for end in ends)]), key=_cost)
    return best if best.events() == events else straight


def _cost(rolled):
    text = str(rolled)
    return text.count(" in {"), len(text)


def _iterations(events) -> list[list[Event]]:
    """The events of each step, cut where all that follows belongs to later steps; [] where that cannot be done."""
    runs = [e.step for e in events if e.verb == RUN]
    groups, least = [[] for _ in runs], len(runs) - 1
    for e in reversed(events):
        least = min(least, e.step)
        groups[least].append(e) if least >= 0 else None
    good = runs == list(range(len(runs))) and all(sum(e.verb == RUN for e in g) == 1 for g in groups)
    return [g[::-1] for g in groups] if good else []


class _NoLoop(Exception):
    """Something has no expression."""


class _Inference:
    """Fits one line to each verb and operand of the steady state."""

    def __init__(self, schedule, groups):
        self.schedule, self.groups, self.steps = schedule, groups, len(groups)
        self.operands = {x.name: x for x in schedule.operands}
        self.longest = max(map(len, groups[1:-1]), default=0) + 2 * len(self.operands) + 1
        self.middle = self._columns(groups[1:-1], 1)
        self.blocks = _blocks(schedule, self.steps)
        self.tables = {}  # (operand, what) -> a number for each step
        slots = zip(*(e.slots for e in schedule if e.verb == RUN), strict=True)
        for name, column in zip(self.operands, slots, strict=True):
            columns = list(zip(*self.blocks.get(name, ()), strict=True))
            self.tables |= {(name, f"block{d}" if len(columns) > 1 else "block"): c for d, c in enumerate(columns)}
            self.tables[name, "slot"] = column
        # How far apart values change, and lines happen, most frequent first.
        found, t = Counter(), np.arange(self.steps)
        for column in self.tables.values():
            found.update(np.diff([0, *(np.flatnonzero(np.diff(column)) + 1)[:3]]).tolist())
        for rows in self.middle[0].values():
            found.update(np.diff(rows[:4, 0]).tolist())
        self.periods = [p for p, _ in found.most_common(8) if p > 1]
        # What has no expression over all steps must not get one by chance on the few steps of a line.
        self.irregular = {key for key, c in self.tables.items() if not self._fit(t, np.array(c), key, 0)}

    def _columns(self, groups, first):
        """(verb, operand, number in the step) -> rows of [t, step, slots…, block…]; and the orders that occur."""
        columns, orders = defaultdict(list), set()
        place = {name: i for i, name in enumerate(self.operands)}
        for t, g in enumerate(groups, first):
            order = []
            for e in g:
                kind = VERBS.index(e.verb), place.get(e.operand, -1)
                key = *kind, sum(k[:2] == kind for k in order)
                block = e.block if e.verb in (IN_START, OUT_START) else ()
                columns[key].append([t, e.step, *(e.slots if e.verb == RUN else (e.slot,)), *(block or ())])
                order.append(key)
            orders.add(tuple(order))
        return {key: np.array(rows) for key, rows in columns.items()}, orders

    def loop(self, cut, end) -> Rolled | None:
        """The loop when the first step's events before `cut` are prologue, the last one's from `end` on epilogue."""
        parts, orders, (head, *_, tail) = defaultdict(list), set(), self.groups
        for columns, found in self._columns([head[cut:]], 0), self.middle, self._columns([tail[:end]], self.steps - 1):
            orders |= found
            for key, rows in columns.items():
                parts[key].append(rows)
        graph = TopologicalSorter({key: () for key in parts})
        for order in orders:
            for before, after in zip(order, order[1:], strict=False):
                graph.add(after, before)
        body, ready, self.used = [], [], set()
        try:
            graph.prepare()
            while graph.is_active():
                ready = sorted([*ready, *graph.get_ready()])
                key = ready.pop(0)
                graph.done(key)
                body.append(self._line(VERBS[key[0]], key[1], np.concatenate(parts[key])))
        except (CycleError, _NoLoop):
            return None
        tables = {"_".join(key): table for key, table in self.tables.items() if key in self.used}
        return Rolled(self.schedule.operands, tuple(head[:cut]), tuple(body), self.steps, tuple(tail[end:]), tables,
                      self.blocks)

    def _line(self, verb, x, rows) -> tuple[str, Event]:
        t, (step, *values) = rows[:, 0], rows[:, 1:].T
        step = self._number(t, step, ("", "step"), 0)
        if verb == RUN:
            slots = [self._number(t, v, (x, "slot"), 0) for x, v in zip(self.operands, values, strict=True)]
            return self._when(t, "", 0), Event(RUN, step, slots=tuple(slots))
        x = self.schedule.operands[x]
        ahead = x.depth - 1 if verb == IN_START else 0
        keys = ["slot", *(f"block{d}" if len(values) > 2 else "block" for d in range(len(values) - 1))]
        slot, *block = [self._number(t, v, (x.name, key), ahead) for key, v in zip(keys, values, strict=True)]
        return self._when(t, x.name, ahead), Event(verb, step, x.name, tuple(block), slot)

    def _number(self, t, v, key, ahead) -> str:
        """An expression for the values v at the steps t: a formula, or else an entry of the table."""
        text = self._fit(t, v, key, ahead) if key not in self.irregular else None
        table, depth = np.array(self.tables.get(key, ())), self._depth(key)
        for shift, add in ((s, a) for a in range(depth or 1) for s in dict.fromkeys((ahead, 0, -1, 1))):
            if text is None and 0 <= t[0] + shift and t[-1] + shift < len(table):
                found = table[t + shift]
                if ((found + add) % depth if add else found).tolist() == v.tolist():
                    self.used.add(key)
                    entry = f"{'_'.join(key)}[{_plus('t', shift)}]"
                    text = f"({entry} + {add}) % {depth}" if add else entry
        if text is None:
            raise _NoLoop
        return text

    def _depth(self, key):
        return self.operands[key[0]].depth if key[1] == "slot" else 0

    def _fit(self, t, v, key, ahead) -> str | None:
        """The first formula that gives v at the steps t, in the order in which a reader knows them."""
        depth = self._depth(key)
        modulo, table, every = depth or int(v.max()) + 1, self.tables.get(key), np.arange(self.steps)
        of_step, moved = [], []
        for p in (1, *self.periods):
            for shift in dict.fromkeys((ahead, 0)):
                w = _over(_plus("t", shift), p)
                of_step += [(text, shift) for text in (w, _modulo(w, modulo))]
            w, add = _over("t", p), int(v[0] - t[0] // p)
            moved += [_plus(w, add), _modulo(_plus(w, add % modulo), modulo)]
        if len(t) > 1:
            scale = int(v[1] - v[0]) // int(t[1] - t[0])
            start = int(v[0] - scale * t[0])
            moved += [f"{start} - t" if scale == -1 else _plus(f"{scale} * t", start)]
        # A number that belongs to step t + shift holds for all steps, not by chance for those of one line.
        texts = [w for w, shift in of_step if not table or _gives(w, every[:self.steps - shift], table[shift:])]
        texts = [text for text in [*texts, *moved] if not depth or "%" in text]
        return next((text for text in [str(v[0]), *texts] if _gives(text, t, v)), None)

    def _when(self, t, name, ahead) -> str:
        """The simplest condition that holds at the steps t and at no others."""
        n, low, high = self.steps, int(t[0]), int(t[-1]) + 1
        if high - low == len(t):
            return _bounds(low, high, n)
        every = [_bounds(low - min(p - 1, low), min(high + p - 1, n), n, f"t % {p} == {low % p}")
                 for p in self.periods if (np.diff(t) == p).all()]  # the bounds as wide as they may be
        blocks = self.blocks.get(name, ())
        changes = [u for u in range(1, len(blocks)) if blocks[u] != blocks[u - 1]]
        begins, ends, asks = [0, *changes], [*(u - 1 for u in changes), n - 1], []
        for word, shift, steps in ("begins", ahead, begins), ("begins", 0, begins), ("ends", 0, ends):
            before = [u - shift for u in steps if u - shift < low]
            if [u - shift for u in steps[len(before):]] == t.tolist():
                question = f"{word}({name}, {_plus('t', shift)})"
                asks.append(_bounds(max(before[-1] + 1, 0) if before else 0, n, n, question))
        irregular = any(key[0] == name for key in self.irregular)
        return [*(asks + every if irregular else every + asks), f"t in {{{', '.join(map(str, t))}}}"][0]


def _blocks(schedule, steps) -> dict:
    """The block of each step, for each operand where that is clear: the one waited for last, or copied out next."""
    blocks = {x.name: [None] * steps for x in schedule.operands}
    now, done = {}, Counter()
    for e in schedule:
        if e.verb == IN_WAIT:
            now[e.operand] = e.block
        elif e.verb == OUT_START:
            blocks[e.operand][done[e.operand]:e.step + 1] = [e.block] * (e.step + 1 - done[e.operand])
            done[e.operand] = e.step + 1
        elif e.verb == RUN:
            for name, block in now.items():
                blocks[name][e.step] = block
    return {name: tuple(table) for name, table in blocks.items() if None not in table}


def _gives(text, t, v) -> bool:
    """Is that what the expression gives at the steps t? A few of them settle most cases."""
    return all(np.array_equal(np.broadcast_to(eval(text, {"t": t[:n]}), len(t[:n])), v[:n]) for n in (50, len(t)))


def _plus(text: str, n: int) -> str:
    return f"{text} {'+' if n > 0 else '-'} {abs(n)}" if n else text


def _over(text: str, n: int) -> str:
    return text if n == 1 else f"({text}) // {n}" if " " in text else f"{text} // {n}"


def _modulo(text: str, n: int) -> str:
    return f"({text}) % {n}" if text[0] != "(" and (" + " in text or " - " in text) else f"{text} % {n}"


def _bounds(low: int, high: int, n: int, first: str = "") -> str:
    """`first`, and low <= t < high as short as it may be for 0 <= t < n.  >>> _bounds(1, 9, 9, "t % 2 == 0")
    't % 2 == 0 and t > 0'
    """
    if high - low == 1:
        return f"t == {low}"
    left = "" if not low else "0 < " if low == 1 else f"{low} <= "
    bounds = f"{left}t < {high}" if high < n else "" if not low else "t > 0" if low == 1 else f"t >= {low}"
    return " and ".join(filter(None, [first, bounds]))


Schedule.rolled = roll  # `schedule.rolled()`. It is put there from here, because imports point one way
