"""Planted answers of chapter 7: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import math

import numpy as np

from autograder import personal
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait


def loop(ahead=lambda depth: depth - 1, behind=lambda depth: depth, first=True, last=True, slots=len, since=0,
         waited=0, ends=lambda N, late: range(max(0, N - late), N)):
    """A pipeline with one part replaced: how far the fetches run ahead, how far the waits for copies out lag behind.

    `since`: steps by which the first of these waits is late. `waited`: how far off its slot is. `ends`: the epilogue's.
    """
    def pipelined(N, A, X, Y, B):
        depth = slots(X)
        far, late = ahead(depth), behind(depth)
        for i in range(min(far, N) if first else 0):
            copy_in_start(A[i], X[i % depth])
        for i in range(N):
            if i + far < N:
                copy_in_start(A[i + far], X[(i + far) % depth])
            copy_in_wait(X[i % depth])
            if i - since >= late > 0:
                copy_out_wait(Y[(i - late + waited) % depth])
            compute(X[i % depth], Y[i % depth])
            copy_out_start(Y[i % depth], B[i])
            if not late:
                copy_out_wait(Y[i % depth])
        for i in ends(N, late) if last else ():
            copy_out_wait(Y[i % depth])
    return pipelined


def fetches_after_the_step(N, A, X, Y, B):
    depth = len(X)
    for i in range(min(depth, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        copy_in_wait(X[i % depth])
        if i >= depth:
            copy_out_wait(Y[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        if i + depth < N:
            copy_in_start(A[i + depth], X[i % depth])
    for i in range(max(0, N - depth), N):
        copy_out_wait(Y[i % depth])


def impatient(N, A, X, Y, B):
    """The loop as the page gives it."""
    depth = len(X)
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        copy_out_wait(Y[i % depth])


def one_ahead(N, A, X, Y, B):
    """Waits for copies out as late as can be, but fetches as impatient does: one block ahead, with one slot, too."""
    depth = len(X)
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % depth])
        copy_in_wait(X[i % depth])
        if i >= depth:
            copy_out_wait(Y[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
    for i in range(max(0, N - depth), N):
        copy_out_wait(Y[i % depth])


def depth_of_two(N, A, X, Y, B):
    return loop(slots=lambda X: min(2, len(X)))(N, A, X, Y, B)


def by_counting(n, alpha, copy, step):
    """Block by block, as the clock does it."""
    over = 0.0
    for i in range(n):
        over = max(over, alpha + (i + 1) * copy) + step
    return over


def depth_by_trying(alpha, copy, step):
    depth = 1
    while depth * max(copy, step) < alpha + copy + step:
        depth += 1
    return depth


p = personal("7.6")
TRIP, PACE = p.alpha + p.copy + p.step, max(p.copy, p.step)
q = personal("7.1")


def regimes(m):
    return {"compute": m["alpha"] + q.X / m["beta"] + q.N * q.Y / m["F"],
            "bandwidth": m["alpha"] + q.N * q.X / m["beta"],
            "latency": q.N * (m["alpha"] + q.X / m["beta"] + q.Y / m["F"]) / 2}


def answers(unit=1e6, but=""):
    """By the largest of the bounds, `but` for one of them."""
    found = []
    for m in (q.A, q.B, q.C):
        seconds, bound = max((seconds, bound) for bound, seconds in regimes(m).items() if bound != but)
        found += [unit * seconds, bound]
    return found


WRONG = {
    "7.1": [
        ("one machine answers for all", (100.0, "compute"), "6 answers in a row"),
        ("seconds are µs", answers(1), "too low"),
        *((f"nothing is {bound}-bound", answers(but=bound), "is too") for bound in ("compute", "bandwidth", "latency")),
        ("a bound is a number", [answers()[0], 1.0, *answers()[2:]], "a word in quotes"),
    ],
    "7.2": [
        ("printing is returning", lambda *_: print(end=""), "write return"),
        ("seconds", lambda n, a, c, s: 1e-6 * (a + c + s + (n - 1) * max(c, s)), "in µs"),
        ("nothing overlaps", lambda n, a, c, s: n * (a + c + s), "side by side"),
        ("the core always sets the pace", lambda n, a, c, s: a + c + n * s, "port"),
        ("the port always sets the pace", lambda n, a, c, s: a + n * c, "has to be used"),
        ("the larger of the two short formulas", lambda n, a, c, s: max(a + c + n * s, a + n * c), "short formulas"),
        ("one step too many", lambda n, a, c, s: a + c + s + n * max(c, s), "n − 1"),
        ("α at every step", lambda n, a, c, s: n * (a + max(c, s)) + min(c, s), "paid once"),
        ("the first trip is free", lambda n, a, c, s: n * max(c, s), "Follow the first block"),
        ("α once and the pace", lambda n, a, c, s: a + n * max(c, s), "last block"),
        ("α is a pace, too", lambda n, a, c, s: a + c + s + (n - 1) * max(a, c, s), "paid once"),
        ("α between any two steps", lambda n, a, c, s: a + c + s + (n - 1) * (a + max(c, s)), "paid once"),
        ("two slots are all that there are",
         lambda n, a, c, s: max(a + c + n * s, a + n * c + s, n * (a + c + s) / 2), "bound of two slots"),
        ("the port, and the last step", lambda n, a, c, s: a + n * c + s, "slower than the core"),
        ("the core's formula, but for one block", lambda n, a, c, s: a + c + n * s if n > 1 else a + c,
         "Follow the first block"),
        ("a loop in place of a number", lambda n, a, c, s: [a, c, s], "should be a number"),
    ],
    "7.3": [
        ("printing is returning", lambda *_: print(end=""), "write return"),
        ("rounded down", lambda a, c, s: (a + c + s) // max(c, s), "round up"),
        ("a slot is free when its block has arrived", lambda a, c, s: max(1, math.ceil((a + c) / max(c, s))),
         "still has to use it"),
        ("latency alone counts", lambda a, c, s: max(1, math.ceil(a / max(c, s))), "still has to use it"),
        ("one more, to be sure", lambda a, c, s: math.ceil((a + c + s) / max(c, s)) + 1, "fewer do, too"),
        ("at the pace of the faster part", lambda a, c, s: math.ceil((a + c + s) / min(c, s)),
         "slower one sets the pace"),
        ("rounded down, and one more", lambda a, c, s: (a + c + s) // max(c, s) + 1, "rounded down, and one more"),
        ("the copy is forgotten", lambda a, c, s: max(1, math.ceil((a + s) / max(c, s))), "The copy takes its time"),
        ("copies and steps take turns", lambda a, c, s: math.ceil((a + c + s) / (c + s)), "side by side"),
        ("the step counts twice", lambda a, c, s: math.ceil((a + c + 2 * s) / max(c, s)), "counts the step twice"),
        ("the copy counts twice", lambda a, c, s: math.ceil((a + 2 * c + s) / max(c, s)), "counts the copy twice"),
        ("the step alone sets the pace", lambda a, c, s: math.ceil((a + c + s) / s), "fewer do, too"),
        ("half a slot", lambda a, c, s: (a + c + s) / max(c, s), "whole number"),
        ("without latency no slot is needed", lambda a, c, s: math.ceil(a / max(c, s)), "end of its step"),
        ("two are always enough", lambda a, c, s: 2, "slots"),
        ("the copy alone sets the pace", lambda a, c, s: math.ceil((a + c + s) / c), "fewer do, too"),
    ],
    "7.4": [
        ("waiting at once is harmless", loop(behind=lambda depth: 0), "wait-out"),
        ("one block ahead is enough", loop(ahead=lambda depth: min(1, depth - 1)), "order"),
        ("the copy out of the step before must be over", loop(behind=lambda depth: min(1, depth)), "wait-out"),
        ("nothing needs to change", impatient, "wait-out"),
        ("waiting later is enough", one_ahead, "order"),
        ("five slots are two", depth_of_two, "slower than pallas_call"),
        ("five slots are all that there are", loop(ahead=lambda depth: min(depth, 5) - 1), "order"),
        ("no copy out needs more than five steps", loop(behind=lambda depth: min(depth, 5)), "wait-out"),
        ("depth blocks ahead", loop(ahead=lambda depth: depth), "slot"),
        ("as many copies are left as there are slots",
         loop(ends=lambda N, late: range(N - late, N)), "outside the loop"),
        ("each slot has a copy left", loop(ends=lambda N, late: range(late)), "fewer steps"),
        ("the slot of the step before must be free", loop(waited=-1),
         "waits for Y[1], and the kernel then writes Y[0]"),
        ("step depth has nothing to wait for", loop(since=1), "From which step on"),
        ("nobody needs to wait in the end", loop(last=False), "each start needs one wait"),
        ("the loop fetches the first blocks, too", loop(first=False), "Which line starts the copy"),
        ("copies out may lag further behind", loop(behind=lambda depth: depth + 1), "copy out"),
    ],
    "7.5": [
        ("the largest that fits", (512, 512, 2), "port queue"),
        ("large blocks and one more slot", (512, 512, 3), "a smaller height gains most"),
        ("larger still", (1024, 1024, 2), "does not fit"),
        ("small blocks", (128, 128, 2), "latency-bound"),
        ("one slot has the shortest fill", (512, 512, 1), "latency-bound"),
        ("depth without end", (256, 512, 16), "does not fit"),
        ("a width of any size", (256, 64, 8), "one of 128"),
        ("blocks need not divide", (384, 384, 3), "both should divide"),
        ("height and width only", (256, 256), "three numbers"),
        ("half a block", (256, 256, 2.5), "whole numbers"),
    ],
    "7.6": [
        ("one number answers all", 12, "4 answers in a row"),
        ("bytes are KiB", [p.N * TRIP / 2, p.N * TRIP / 4, p.N * PACE, math.ceil(TRIP / PACE) * p.kib * 1024],
         "too high"),
    ],
}

RIGHT = {
    "7.1": [("by a table of regimes", answers())],
    "7.2": [("block by block, as a clock", by_counting),
            ("both formulas, mended", lambda n, a, c, s: max(a + c + n * s, a + n * c + s)),
            ("as an array", lambda n, a, c, s: np.array([a + c + s + (n - 1) * max(c, s)]))],
    "7.3": [("by trying", depth_by_trying), ("with whole numbers only", lambda a, c, s: -(-(a + c + s) // max(c, s)))],
    "7.4": [("fetches after the step, all slots full", fetches_after_the_step),
            ("each wait is for the copy of `depth` steps ago", loop())],
    "7.5": [("smaller blocks, more slots", [128, 128, 6]), ("wide and low", (128, 512, 4)),
            ("as an array", np.array([256, 256, 3]))],
    "7.6": [("by the short formulas", [p.N * TRIP / 2, p.N * TRIP / 4, p.N * PACE, math.ceil(TRIP / PACE) * p.kib])],
}
