"""record: the pipeline's verbs become the rows of a table: the Schedule. Next: schedule.py, then verify and timeline.

All steps are recorded at once: a step number is an array of numbers, a condition an array of bools, and the pipeline
runs once on them. What each verb call notes down is then sorted by step.
"""
import numpy as np

from ..pipeline import pipeline
from ..schedule import CODE, IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Columns, Events, Schedule


class Visits:
    """Of one operand: the visit of each step, whether a step begins or ends one, and the block of each visit."""

    def __init__(self, blocks, ahead: int):
        changes = np.fromiter((a != b for a, b in zip(blocks, blocks[1:], strict=False)), bool, max(len(blocks) - 1, 0))
        edge = np.ones(min(len(blocks), 1), bool)
        begins = np.concatenate([edge, changes])
        self.of = np.cumsum(begins) - 1
        self.begins = np.concatenate([begins, np.zeros(ahead, bool)])  # steps past the end begin nothing
        self.ends = np.concatenate([changes, edge])
        self.blocks = [blocks[t] for t in np.flatnonzero(begins)]


class Record:
    """An engine with concrete steps: each operand's block of every step is known before the pipeline runs."""

    def __init__(self, steps, operands):
        self.steps, self.operands, self.ids = steps, operands, {}
        self.visits_of = {x.name: Visits(x.blocks, x.depth) for x in operands}
        self.number = {x.name: i for i, x in enumerate(operands)}
        self.block_ids = {name: np.array([self.ids.setdefault(b, len(self.ids)) for b in v.blocks], np.int64)
                          for name, v in self.visits_of.items()}
        self.rows = []  # what each call of a verb notes: (verb, step, operand, block, slot), arrays or numbers
        self.now = np.zeros(1, np.int64)

    # -- questions: is there a step t, and does its block begin or end a visit?
    def begins(self, x, t):
        return self.visits_of[x.name].begins[t]

    def ends(self, x, t):
        return self.visits_of[x.name].ends[t]

    def visit(self, x, t):
        return self.visits_of[x.name].of[t]

    def visits(self, x):
        return len(self.visits_of[x.name].blocks)

    def when(self, condition, verb, x, at):
        if np.ndim(condition):
            everywhere, self.now = self.now, self.now[condition]
            verb(x, at[condition])
            self.now = everywhere
        elif condition:
            verb(x, at)

    def loop(self, steps, body):
        before, self.now = len(self.rows), np.arange(steps)
        body(self.now)
        inside = np.concatenate(self.rows[before:], 1)
        self.rows[before:] = [inside[:, np.argsort(inside[1], kind="stable")]]  # by step, then in the body's order
        self.now = np.full(1, max(steps - 1, 0))

    # -- verbs
    def copy_in_start(self, x, t):
        self._copy(IN_START, x, self.visit(x, t))

    def copy_in_wait(self, x, visit):
        self._copy(IN_WAIT, x, visit)

    def run(self, t):
        self._note(RUN, -1, -1, -1)

    def copy_out_start(self, y, t):
        self._copy(OUT_START, y, self.visit(y, t))

    def copy_out_wait(self, y, visit):
        self._copy(OUT_WAIT, y, visit)

    def _copy(self, verb, x, visit):
        self._note(verb, self.number[x.name], self.block_ids[x.name][visit], visit % x.depth)

    def _note(self, verb, operand, block, slot):
        row = np.empty((5, len(self.now)), np.int64)
        for i, value in enumerate((CODE[verb], self.now, operand, block, slot)):
            row[i] = value
        self.rows.append(row)

    def events(self) -> Events:
        """Everything noted down."""
        runs = np.empty((self.steps, len(self.operands)), np.int64)
        for i, x in enumerate(self.operands):
            runs[:, i] = self.visits_of[x.name].of % x.depth
        return Events(Columns(*np.concatenate(self.rows, 1), runs, list(self.ids)), [x.name for x in self.operands])


def record(steps, operands, flops=0.0, name="pipeline") -> Schedule:
    """The schedule of `steps` steps over resolved operands (specs.py)."""
    engine = Record(steps, operands)
    pipeline(engine, steps, operands)
    return Schedule(engine.events(), tuple(x.info for x in operands), flops, name)
