"""record: the pipeline's verbs become events in a list: the Schedule. Next: schedule.py, then verify and timeline."""
from ..pipeline import pipeline
from ..schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, Schedule


class Record:
    """An engine with concrete steps: each operand's block of every step is known before the pipeline runs."""

    def __init__(self, steps, operands):
        self.steps, self.operands, self.events, self.now = steps, operands, [], 0
        self.tables = {x.name: visits_of(x.blocks) for x in operands}

    # -- questions: is there a step t, and does its block begin or end a visit?
    def begins(self, x, t):
        visit = self.tables[x.name][0]
        return t < self.steps and (t == 0 or visit[t] != visit[t - 1])

    def ends(self, x, t):
        visit = self.tables[x.name][0]
        return t == self.steps - 1 or visit[t] != visit[t + 1]

    def visit(self, x, t):
        return self.tables[x.name][0][t]

    def visits(self, x):
        return len(self.tables[x.name][1])

    def when(self, condition, verb, *arguments):
        if condition:
            verb(*arguments)

    def loop(self, steps, body):
        for self.now in range(steps):
            body(self.now)

    # -- verbs
    def copy_in_start(self, x, t):
        self._copy(IN_START, x, self.visit(x, t))

    def copy_in_wait(self, x, visit):
        self._copy(IN_WAIT, x, visit)

    def run(self, t):
        self.events.append(Event(RUN, t, slots=tuple(self.visit(x, t) % x.depth for x in self.operands)))

    def copy_out_start(self, y, t):
        self._copy(OUT_START, y, self.visit(y, t))

    def copy_out_wait(self, y, visit):
        self._copy(OUT_WAIT, y, visit)

    def _copy(self, verb, x, visit):
        block = self.tables[x.name][1][visit]
        self.events.append(Event(verb, self.now, x.name, block, visit % x.depth))


def visits_of(blocks):
    """The visit number of each step, and the block of each visit.  [a, a, b, a] -> [0, 0, 1, 2], [a, b, a]"""
    numbers, starts = [], []
    for block in blocks:
        if not starts or block != starts[-1]:
            starts.append(block)
        numbers.append(len(starts) - 1)
    return numbers, starts


def record(steps, operands, flops=0.0, name="pipeline") -> Schedule:
    """The schedule of `steps` steps over resolved operands (specs.py)."""
    engine = Record(steps, operands)
    pipeline(engine, steps, operands)
    return Schedule(tuple(engine.events), tuple(x.info for x in operands), flops, name)
