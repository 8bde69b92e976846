"""Checks of chapter 2: plans in time slots, and times of ideal pipelines. In: a handle on the answer. Out: or Wrong.

Next: ../mutants/chapter2.py.
"""
from functools import cache

import numpy as np

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.errors import many
from pallas_lite.hardware import TOY
from pallas_lite.specs import Operand

from ..exercise import Trial, Wrong, exercise
from ..judge.handle import Handle, kind_of, number, so_many
from ..judge.predict import Asked, predict
from ..sandbox.inside.personal import personal
from .formulas import right_or_told
from .naming import insist_names

ENGINES = ("copy_in", "compute", "copy_out")


def table(plan: dict[str, list[int]]) -> str:
    """A plan as the notebook draws it: a row for each engine, with the blocks that it has in each time slot."""
    slots = 1 + max(map(max, plan.values()))

    def blocks(when, slot):
        return "+".join(str(i) for i, t in enumerate(when) if t == slot) or "·"
    rows = [["time slot", *map(str, range(slots))]]
    rows += [[engine, *(blocks(plan[engine], slot) for slot in range(slots))] for engine in ENGINES]
    wide = 1 + max(3, *(len(cell) for row in rows for cell in row[1:]))
    if slots * wide > 96:  # more than a card shows in one line
        return f"{slots} time slots"
    return "\n".join(["", *(f"{row[0]:9}" + "".join(f"{cell:>{wide}}" for cell in row[1:]) for row in rows)])


@exercise("2.1", "Place the stages", points=2)
def place(answer: Handle, trial: Trial) -> None:
    given = answer.value()
    if not isinstance(given, dict) or set(given) != set(ENGINES):
        got = f"a dict with the keys {sorted(map(str, given))}" if isinstance(given, dict) else kind_of(given)
        raise Wrong('The plan should be a dict with three lists: "copy_in", "compute" and "copy_out".', got=got)
    plan = {}
    for engine in ENGINES:
        when = so_many(given[engine], 4)
        if when is None:
            several = isinstance(given[engine], (list, tuple))
            raise Wrong(f"{engine} should be a list of four time slots, one for each block.",
                        got=f"{len(given[engine])} of them" if several else kind_of(given[engine]))
        plan[engine] = [number(slot, f"A time slot of {engine}") for slot in when]
        if any(slot != int(slot) or not 0 <= slot < 1000 for slot in plan[engine]):
            raise Wrong("Time slots are counted 0, 1, 2, …", case=engine, got=str(when))
        plan[engine] = list(map(int, plan[engine]))
    judge_plan(plan)


def judge_plan(plan) -> None:
    for engine, when in plan.items():
        for block in range(1, 4):
            if when[block] in when[:block]:
                other = when.index(when[block])
                raise Wrong(f"In time slot {when[block]}, {engine} has two blocks at once: {other} and {block}.",
                            got=table(plan), nudge="Each engine does one thing at a time.")
    for block in range(4):
        for before, after in ("copy_in", "compute"), ("compute", "copy_out"):
            if plan[after][block] <= plan[before][block]:
                raise Wrong(f"Block {block} is in {after} in time slot {plan[after][block]}, and in {before} in "
                            f"time slot {plan[before][block]}.", got=table(plan),
                            nudge=f"Within a block each stage needs the one before: {after} comes at least a time slot "
                                  f"after {before}.")
    slots = 1 + max(map(max, plan.values()))
    if slots > 6:
        raise Wrong(f"The plan holds, but takes {slots} time slots. There is a shorter one.", got=table(plan),
                    nudge=earlier(plan))


def earlier(plan) -> str:
    """A nudge: the first place in a plan that could be moved forward."""
    for slot, engine, block in sorted((slot, ENGINES.index(e), b) for e in plan for b, slot in enumerate(plan[e])):
        ready = plan[ENGINES[engine - 1]][block] + 1 if engine else 0
        if ready < slot and slot - 1 not in plan[ENGINES[engine]]:
            return f"Look at time slot {slot}: {ENGINES[engine]} could have block {block} one earlier."
    return "No stage could be earlier by itself. Give all engines the blocks in the same order."


def utilisation_slips(n: int, stages: int) -> list[tuple[float, str]]:
    slots = n + stages - 1
    return [
        (100 * n / slots, "Between 0 and 1, please: 0.75, not 75."),
        (n / (n + stages), "Check it with one block and one stage: then the core is always busy."),
        (n / (n + 2), "That holds for three stages, whose fill and drain take two slots together. How many do they "
                      f"take with {many(stages, 'stage')}?"),
        (1 / stages, "That is in turns. Overlapped, the core works on one block while others are copied."),
        (1.0, "At both ends the core stands still: during fill, and during drain."),
        (n / (n + 2 * (stages - 1)), "Fill and drain together have stages − 1 slots: not so many each."),
        (slots / n, "That is the other way round."),
        ((stages - 1) / slots, "That is the part of the bubbles."),
        ((n - 1) / slots, "The core is busy once for each block, the first one too: blocks, and not one less."),
        (slots, "That is how many slots there are. In how many of them is the core busy?"),
        (n, "That is in how many slots the core is busy. How many are there?"),
    ]


@exercise("2.2", "Utilisation", points=1)
def utilisation(answer: Handle, trial: Trial) -> None:
    cases = visible = [(1, 1), (1, 3), (6, 3), (6, 5), (100, 4)]
    if trial.hidden:
        cases = visible + [(int(trial.rng.integers(2, 60)), int(trial.rng.integers(2, 9))) for _ in range(6)]
    for n, stages in cases:
        right_or_told(answer, visible, (n, stages), n / (n + stages - 1), utilisation_slips, what="The utilisation",
                      case=f"blocks = {n}, stages = {stages}",
                      nudge="Busy slots over all slots. Draw a small one with draw().")


@predict("2.3", "Enough blocks", points=2,
         show=lambda p: f"{p.stages} stages of one time slot each; the core should be busy for {p.percent} %")
def enough(p) -> list[Asked]:
    bubbles, rest = p.stages - 1, 100 - p.percent
    n = bubbles * p.percent // rest  # exact for all that is drawn
    return [
        Asked("The number of blocks", "blocks", n, [
            ("there are as many bubbles as stages", p.stages * p.percent // rest,
             "That would be right if there was a bubble for each stage. Count them with few blocks."),
            ("only the fill is a bubble, of one slot", p.percent // rest,
             "That is right for a single bubble. How many are there with your number of stages?"),
            ("fill and drain have stages − 1 bubbles each", 2 * n,
             "Fill and drain have stages − 1 bubbles together, not each."),
            ("blocks and slots are the same", bubbles * 100 // rest,
             "That is how many time slots there are. Blocks are fewer, by the bubbles."),
            ("the last digit of a float is a block", n + 1,
             "One too many. Was a float rounded up, as 20.000000000000004 is? 100 - percent is a whole number."),
        ], 0, "How many bubbles has a pipeline of your stages? They are a known part of all time slots: which one?"),
        Asked("The number of time slots", "time slots", n + bubbles, [
            ("steady state is all", n, "That leaves no room for fill and drain."),
            ("a bubble for each stage", n + p.stages, "One bubble too many: the core is one of the stages."),
            ("the stages come one after the other", n * p.stages, "That is in turns, without any overlap."),
        ], 0, "All blocks, and the bubbles."),
    ]


def time_slips(n: int, times: list[float]) -> list[tuple[float, str]]:
    total, slowest = sum(times), max(times)
    return [
        (n * total, "That is in turns. While one block is in a stage, the next may be in the stage before."),
        (n * slowest, "The slowest stage sets the beat, but the first block has to reach it, and the last to leave "
                      "it."),
        (total + n * slowest, "The first block is counted twice: its slowest stage is in the sum already."),
        ((n + len(times) - 1) * slowest, "That is as if all stages took as long as the slowest. Fill and drain are "
                                         "made of the others."),
        (n + len(times) - 1, "That counts time slots, as if each stage took 1 µs."),
        (total + (n - 1) * times[len(times) // 2], "Which stage sets the beat? It need not be the middle one."),
        (total + (n - 1) * times[0], "Which stage sets the beat? It need not be the first."),
        (total + (n - 1) * times[-1], "Which stage sets the beat? It need not be the last."),
        (total + (n - 1) * min(times), "Which stage sets the beat? Not the fastest: the others hold it up."),
        (total + (n - 1), "A further block takes 1 µs only if no stage takes longer."),
        (total + (n - 1) * total / len(times), "Not the average: the slowest stage holds all others up."),
    ]


@exercise("2.4", "Time of a pipeline", points=2)
def pipeline_time(answer: Handle, trial: Trial) -> None:
    cases = visible = [(1, [2.0, 5.0, 0.5]), (5, [2.0, 5.0, 0.5]), (6, [3.0, 1.5, 4.0]), (5, [1.0] * 4),
                       (7, [1.0, 2.0, 6.0])]
    if trial.hidden:
        cases = visible + [(int(trial.rng.integers(2, 40)), [int(t) / 4 for t in trial.rng.integers(1, 30, stages)])
                           for stages in (1, 2, 3, 4, 5, 3, 3)]
    for n, times in cases:
        right_or_told(answer, visible, (n, times), sum(times) + (n - 1) * max(times), time_slips, unit="µs",
                      what="The time", case=f"blocks = {n}, times = {[f'{t:g}' for t in times]}".replace("'", ""),
                      nudge="How long for the first block, and how much later is each further one through?")


LOOPS = {"a": "overlap", "b": "in turns", "c": "overlap", "d": "overlap", "e": "in turns", "f": "overlap"}
ABOUT = {
    "a": "No step reads what another writes. What should the next copy wait for?",
    "b": "Step i reads A[i - 1]. Who wrote it, and has it reached HBM when step i's copy in starts?",
    "c": "The running total does hand something from step to step. But does it ever leave the core?",
    "d": "Each step reads three blocks. Does any step write one of them?",
    "e": "Which block does step i + 1 fetch, and when is that known?",
    "f": "Step i writes A[i], in place. Does any later step read that block?",
}


@exercise("2.5", "Real or not", points=2)
def real_or_not(answer: Handle, trial: Trial) -> None:
    insist_names(answer, LOOPS, ABOUT, "loop", "verdict", ("overlap", "in turns"))


@cache
def cut(blocks: int, alpha: float, kilobytes: int) -> float:
    """Seconds of the notebook's `cut`, made on this side: x + 1 on an array of so many kB, cut so, two slots each."""
    cells = 1000 * kilobytes
    size = pl.cdiv(cells, blocks)
    order = [(i,) for i in range(pl.cdiv(cells, size))]
    operands = [Operand(name, name, name == "o", 2, (cells,), np.dtype(np.int8), (size,), (), order) for name in "xo"]
    return pl.timeline(record(len(order), operands, float(size), "x + 1"), TOY.with_(alpha=alpha)).total


@exercise("2.6", "The best cut", points=2)
def best_cut(answer: Handle, trial: Trial) -> None:
    p = personal("2.6", trial.student)
    case = f"{p.kilobytes} kB, α = {p.alpha * 1e6:g} µs"
    given = number(answer.value(), "The number of blocks")
    if given != int(given) or not 1 <= given <= 1000 * p.kilobytes:
        raise Wrong("The number of blocks should be a whole number, 1 or more, and no more than there are bytes.",
                    case=case, got=f"{given:g}")
    times = {n: cut(n, p.alpha, p.kilobytes) for n in range(1, 200)}
    best, blocks = min(times, key=times.get), int(given)
    total = cut(min(blocks, 2000), p.alpha, p.kilobytes)  # beyond that, more are worse still
    if total > 1.01 * times[best] or blocks > 2000:
        finer = blocks < best
        raise Wrong("A " + ("finer" if finer else "coarser") + " cut is faster.", case=case,
                    got=many(blocks, "block") + (f": {total * 1e6:.4g} µs" if blocks <= 2000 else ""),
                    expected="at most 1 % more than the best",
                    nudge="With so few blocks, the first takes long to come in, and the last to go out." if finer else
                          "With so many blocks, each one's α shows: with two slots only so many are on their way.")
