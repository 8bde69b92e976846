"""Planted answers of chapter 2: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
from decimal import Decimal
from fractions import Fraction

import numpy as np

from autograder import personal
from autograder.checks.chapter2 import cut


def plan(copy_in, compute, copy_out):
    return {"copy_in": copy_in, "compute": compute, "copy_out": copy_out}


VERDICTS = {"a": "overlap", "b": "in turns", "c": "overlap", "d": "overlap", "e": "in turns", "f": "overlap"}

WRONG = {
    "2.1": [
        ("one block after the other", plan([0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]), "takes 12 time slots"),
        ("only copies in overlap", plan([0, 1, 2, 3], [1, 3, 5, 7], [2, 4, 6, 8]), "takes 9 time slots"),
        ("everything overlaps", plan([0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]), "Within a block"),
        ("computing may run with its own copy in", plan([0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 4]), "Within a block"),
        ("a result may leave while it is made", plan([0, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]), "Within a block"),
        ("all blocks come in at once", plan([0, 0, 0, 0], [1, 2, 3, 4], [2, 3, 4, 5]), "one thing at a time"),
        ("a stage is a time slot", plan([0] * 4, [1] * 4, [2] * 4), "\ncopy_in   0+1+2+3       ·       ·\n"),
        ("all results leave at the end", plan([0, 1, 2, 3], [1, 2, 3, 4], [5, 5, 5, 5]), "one thing at a time"),
        ("a bubble between fill and steady state", plan([0, 1, 2, 3], [2, 3, 4, 5], [3, 4, 5, 6]), "7 time slots"),
        ("slots are counted from one", plan([1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]), "one earlier"),
        ("what makes a list is one", plan(map(int, "0123"), [1, 2, 3, 4], [2, 3, 4, 5]), "type map under 'copy_in'"),
        ("three blocks are enough", plan([0, 1, 2], [1, 2, 3], [2, 3, 4]), "one for each block"),
    ],
    "2.2": [
        ("in turns", lambda n, s: 1 / s, "in turns"),
        ("a bubble for each stage", lambda n, s: n / (n + s), "one block and one stage"),
        ("there are always three stages", lambda n, s: n / (n + 2), "take with 1 stage?"),
        ("percent", lambda n, s: 100 * n / (n + s - 1), "not 75"),
        ("two decimals will do", lambda n, s: round(n / (n + s - 1), 2), "do not round"),
        ("a pipeline keeps the core busy", lambda n, s: 1.0, "both ends"),
        ("stages − 1 bubbles at each end", lambda n, s: n / (n + 2 * (s - 1)), "not so many each"),
        ("slots over blocks", lambda n, s: (n + s - 1) / n, "other way round"),
        ("the part of the bubbles", lambda n, s: (s - 1) / (n + s - 1), "part of the bubbles"),
        ("whole numbers only", lambda n, s: n // (n + s - 1), "too low"),
        ("the first block is not counted", lambda n, s: (n - 1) / (n + s - 1), "and not one less"),
        ("the slots alone", lambda n, s: n + s - 1, "how many slots there are"),
        ("the busy slots alone", lambda n, s: n, "How many are there?"),
        ("one slot too many, by another way", lambda n, s: n / (n + s - 1) + (n - 1), "Busy slots over all slots"),
        ("printing is returning", lambda n, s: print(end=""), "write return"),
    ],
    "2.3": [("one number answers both", 38, "2 answers in a row"),
            ("95 blocks are 95 %", (95, 97), "How many bubbles")],
    "2.4": [
        ("in turns", lambda n, t: n * sum(t), "in turns"),
        ("the slowest stage is all", lambda n, t: n * max(t), "has to reach it"),
        ("the first block counts twice", lambda n, t: sum(t) + n * max(t), "counted twice"),
        ("all stages take as long as the slowest", lambda n, t: (n + len(t) - 1) * max(t), "as if all stages"),
        ("the core sets the beat", lambda n, t: sum(t) + (n - 1) * t[len(t) // 2], "the middle one"),
        ("the first stage sets the beat", lambda n, t: sum(t) + (n - 1) * t[0], "need not be the first"),
        ("the last stage sets the beat", lambda n, t: sum(t) + (n - 1) * t[-1], "need not be the last"),
        ("the fastest stage sets the beat", lambda n, t: sum(t) + (n - 1) * min(t), "Not the fastest"),
        ("the average sets the beat", lambda n, t: sum(t) + (n - 1) * sum(t) / len(t), "average"),
        ("a stage takes a slot", lambda n, t: n + len(t) - 1, "counts time slots"),
        ("one block at a time in the core, copies are free", lambda n, t: sum(t) + n - 1, "only if no stage"),
    ],
    "2.5": [
        ("a running total stops the copies", VERDICTS | {"c": "in turns"}, "leave the core"),
        ("reading neighbours is a dependence", VERDICTS | {"d": "in turns"}, "write one of them"),
        ("in place means in turns", VERDICTS | {"f": "in turns"}, "in place"),
        ("without B there is nothing to wait for", VERDICTS | {"b": "overlap"}, "reached HBM"),
        ("an index can always be known ahead", VERDICTS | {"e": "overlap"}, "when is that known"),
        ("loops go in turns", dict.fromkeys("abcdef", "in turns"), "loop a"),
        ("everything overlaps", dict.fromkeys("abcdef", "overlap"), "loop b"),
        ("words of one's own", VERDICTS | {"e": "maybe"}, "two verdicts"),
        ("yes or no", {k: v == "overlap" for k, v in VERDICTS.items()}, "True is none of the two verdicts"),
        ("five are enough", {k: v for k, v in VERDICTS.items() if k != "f"}, "no verdict"),
    ],
    "2.6": [
        ("one block has no copies in between", 1, "finer"),
        ("as fine as can be", 10_000, "coarser"),
        ("a block for each kB", 480, "coarser"),
        ("two halves", 2, "last to go out"),
        ("a cut may have parts", 7.5, "whole number"),
        ("what was best on the page is best for all arrays", 30, "cut is faster"),
        ("the second best on the page will do", 10, "cut is faster"),
    ],
}

p, q = personal("2.3"), personal("2.6")
N = (p.stages - 1) * p.percent // (100 - p.percent)
best = min(range(1, 200), key=lambda n: cut(n, q.alpha, q.kilobytes))
near = [n for n in range(1, 200) if cut(n, q.alpha, q.kilobytes) <= 1.008 * cut(best, q.alpha, q.kilobytes)]


def simulated(n, times):
    """Each stage takes a block when it is there and the stage is free."""
    free = [0.0] * len(times)
    for _ in range(n):
        now = 0.0
        for stage, seconds in enumerate(times):
            now = free[stage] = max(now, free[stage]) + seconds
    return free[-1]


def counted(blocks, stages):
    """Slot by slot: is some block in the middle stage?"""
    slots = [any(slot - i == stages // 2 for i in range(blocks)) for slot in range(blocks + stages - 1)]
    return np.mean(slots)


RIGHT = {
    "2.1": [("blocks backwards", plan([3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2])),
            ("arrays", plan(np.arange(4), np.arange(4) + 1, np.arange(4) + 2)),
            ("ranges", plan(range(4), range(1, 5), range(2, 6))),
            ("two out of order, as tuples", plan((1, 0, 2, 3), (2, 1, 3, 4), (3, 2, 4, 5)))],
    "2.2": [("counted, slot by slot", counted), ("from the bubbles", lambda n, s: 1 - (s - 1) / (n + s - 1)),
            ("as a fraction", lambda n, s: Fraction(n, n + s - 1)),
            ("in decimals", lambda n, s: Decimal(n) / (n + s - 1))],
    "2.3": [("a list of floats", [float(N), float(N + p.stages - 1)]),
            ("as an array", np.array([N, N + p.stages - 1]))],
    "2.4": [("simulated", simulated), ("the slowest for all, and the others once",
                                       lambda n, t: n * max(t) + sum(sorted(t)[:-1]))],
    "2.5": [("with names and capitals", {f"Loop {k}": v.upper() for k, v in VERDICTS.items()})],
    "2.6": [("not the best, but near: finer", max(near)), ("not the best, but near: coarser", min(near)),
            ("as an array", np.array(best))],
}
