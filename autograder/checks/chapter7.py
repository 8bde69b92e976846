"""Checks of chapter 7, the cost model. What is right is what the event simulation of pallas_lite gives, always.

Formulas and depths are compared with it; loops are timed on several machines; chosen block sizes are traced here.
"""
import math

import jax
import jax.numpy as jnp

import pallas_lite as pl
from pallas_lite.hardware import TOY, TPU_V5E, Machine

from ..exercise import Trial, Wrong, exercise
from ..judge.handle import Handle, kind_of, number, so_many
from ..judge.predict import Asked, predict
from .chapter3 import FAR, contract_time, judge_loop, sizes
from .formulas import known_slip
from .tuning import TRIPS, largest_excess, what_helps

US, MIB = 1e-6, 2**20


def stream(n, A, X, Y, B) -> None:
    """The loop of the chapter: reads n blocks through len(X) slots."""
    depth = len(X)
    for i in range(min(depth - 1, n)):
        pl.copy_in_start(A[i], X[i])
    for i in range(n):
        if i + depth - 1 < n:
            pl.copy_in_start(A[i + depth - 1], X[(i + depth - 1) % depth])
        pl.copy_in_wait(X[i % depth])
        pl.compute(X[i % depth], Y[0])


def stream_timeline(n: int, alpha: float, copy: float, step: float, depth: int) -> pl.Timeline:
    """Of `stream`; alpha, copy = X/β and step = Y/F in µs, copy in steps of a nanosecond."""
    schedule = pl.record(stream, n, depth=depth, block_bytes=round(copy * 1000), flops=step * 1000)
    return pl.timeline(schedule, TOY.with_(name="toy", alpha=alpha * US))


def exact(n: int, alpha: float, copy: float, step: float, depth: int) -> float:
    """The time of `stream_timeline` as a formula (see the chapter; test_chapter7 holds the two together)."""
    pace, trip = max(copy, step), alpha + copy + step
    rounds, rest = divmod(n - 1, depth)
    return rounds * max(trip, depth * pace) + rest * pace + trip


BOUNDS = {
    "compute": "Compute-bound means that Y/F is the longest part of a step, and that two slots are enough to hide α.",
    "bandwidth": "Bandwidth-bound means that X/β is the longest part of a step, and that two slots are enough to hide "
                 "α.",
    "latency": "Latency-bound means that half a round trip, (α + X/β + Y/F)/2, is longer than X/β and Y/F."}


@predict("7.1", "Time and bound", points=3, show=lambda p: f"N = {p.N}, X = {p.X:g} bytes, Y = {p.Y:g} operations")
def time_and_bound(p) -> list[Asked]:
    asked = []
    for name, m in ("A", p.A), ("B", p.B), ("C", p.C):
        alpha, copy, step = (round(t, 6) for t in (m["alpha"] / US, p.X / m["beta"] / US, p.Y / m["F"] / US))
        pace, trip = max(copy, step), alpha + copy + step
        bound = "latency" if trip / 2 > pace else "compute" if step > copy else "bandwidth"
        slips = [("nothing overlaps", p.N * trip, "That is the blocking loop: it has no copy beside a step."),
                 ("only latency is hidden", p.N * (copy + step),
                  "Copying and computing run side by side, so their times do not add up.")]
        if bound == "latency":
            slips += [("overlap hides everything", p.N * pace,
                       "That needs slots enough to hide α. How many copies can be on the way with two?"),
                      ("each step waits for α", p.N * (alpha + pace),
                       "Two slots have two round trips going at the same time, so α is not paid at each step.")]
        else:
            slips += [("two slots, half a round trip", p.N * trip / 2,
                       "That is the latency bound. Is it the largest of the three?"),
                      ("the shorter part decides", p.N * min(copy, step),
                       "The longer of X/β and Y/F sets the pace; the shorter one hides behind it.")]
        asked += [
            Asked(f"The time on {name}", "µs", exact(p.N, alpha, copy, step, 2), slips, 0.04,
                  nudge="Work out α, X/β and Y/F in µs, then the three bounds; the largest is the answer."),
            Asked(f"The bound on {name}", "", bound,
                  [(f"{other}-bound instead", other, BOUNDS[other]) for other in BOUNDS if other != bound],
                  nudge='It is one of "compute", "bandwidth" and "latency".')]
    return asked


@exercise("7.2", "The missing term", points=2)
def missing_term(answer: Handle, trial: Trial) -> None:
    cases = visible = [(1, 3, 6, 1), (2, 3, 1, 6), (2, 3, 6, 1), (5, 3, 6, 4), (3, 12, 2, 1), (12, 2, 1.25, 5),
                       (9, 0, 4, 4)]
    if trial.hidden:
        cases = [(int(trial.rng.integers(1, 30)), *(int(q) / 4 for q in trial.rng.integers(1, 40, 3)))
                 for _ in range(20)]
        # Where two times are alike, or the port is slower by so little that the core's formula gives more, two slips
        # look alike.
        cases = [(n, a, c, s) for n, a, c, s in cases if len({a, c, s}) == 3 and (c <= s or n * (c - s) > c)]
        cases = sorted([*cases, (1, 2.5, 7, 0.5), (17, 0, 3.25, 1), (17, 0, 1, 3.25), (6, 14, 1.5, 2.5)])
    for n, alpha, copy, step in cases:
        case = f"n = {n}, alpha = {alpha:g}, copy = {copy:g}, step = {step:g} µs"
        t = stream_timeline(n, alpha, copy, step, n)
        given, right = _number(answer.call(n, alpha, copy, step), case), t.total / US
        if abs(given - right) <= 1e-6 * right:
            continue
        unit = "The time is wanted in µs, as alpha, copy and step are." * (abs(given / US - right) <= 1e-6 * right)
        nudge = unit or known_slip(answer, visible, (n, alpha, copy, step), term_slips) or (
            "Follow the first block from its start to the end of its step; then count what follows, and at which pace.")
        raise Wrong(f"The formula is too {'high' if given > right else 'low'} here.", case=case, got=f"{given:.6g} µs",
                    expected=f"{right:.6g} µs", timeline=t if n <= 6 else None, nudge=nudge)


def term_slips(n: int, alpha: float, copy: float, step: float) -> list[tuple[float, str]]:
    pace, trip = max(copy, step), alpha + copy + step
    at_every_step = "With slots enough, the next blocks leave while the first is on its way, so α is paid once."
    return [
        (n * trip, "That has nothing side by side. With slots enough, copies and steps overlap."),
        (max(alpha + copy + n * step, alpha + n * copy),
         "That is the larger of the two short formulas. Where the port sets the pace, what happens after the last "
         "block has arrived?"),
        (alpha + n * copy, "That is when the last block has arrived. It still has to be used."),
        (alpha + copy + n * step, "That lets the core set the pace. Is it always slower than the port?"),
        (alpha + n * copy + step, "That lets the port set the pace. Is it always slower than the core?"),
        (alpha + n * pace, "Before the first step the first block has to leave and arrive, after the last copy the "
                           "last block is used: only one of these two is in it."),
        (trip + n * pace, "That has one step too many: n − 1 of them follow the first."),
        (trip + (n - 1) * max(alpha, pace), at_every_step),
        (trip + (n - 1) * (alpha + pace), at_every_step),
        (max(alpha + copy + n * step, alpha + n * copy + step, n * trip / 2),
         "n·(α + X/β + Y/F)/2 is the bound of two slots. Here there are slots enough."),
    ]


@exercise("7.3", "The smallest depth that hides latency", points=2)
def smallest_depth(answer: Handle, trial: Trial) -> None:
    cases = visible = [(0, 1000, 1000), (0, 1000, 250), (3000, 1000, 1000), (3000, 2000, 1000), (3000, 1000, 2500),
                       (5000, 1500, 500), (5000, 700, 1300), (10500, 1000, 1000)]
    if trial.hidden:
        cases = [(0, 800, 800), (4000, 1000, 1000), (5000, 1000, 3000)]  # round trip / pace: whole numbers
        cases += [(int(a) * 50, int(c) * 50, int(s) * 50) for a, c, s in
                  zip(trial.rng.integers(0, 160, 12), trial.rng.integers(12, 50, 12), trial.rng.integers(12, 50, 12),
                      strict=True)]
    for alpha, copy, step in cases:
        case = f"alpha = {alpha}, copy = {copy}, step = {step} ns"
        given, n = _number(answer.call(alpha, copy, step), case), 40

        def time(depth, n=n, alpha=alpha, copy=copy, step=step):
            return stream_timeline(n, alpha / 1000, copy / 1000, step / 1000, depth).total
        least = time(n)
        right = next(d for d in range(1, n) if time(d) <= least * (1 + 1e-9))
        if given == right:
            continue
        if given != int(given) or given < 1:
            raise Wrong("A depth is a whole number, 1 or more.", case=case, got=f"{given:g}",
                        nudge="Half a slot hides nothing: round up, with math.ceil." if given > 0 else
                              "Even where α is 0 a block takes up a slot: from the start of its copy to the end of its "
                              "step.")
        depth, told = int(given), known_slip(answer, visible, (alpha, copy, step), depth_slips)
        if depth > right:
            raise Wrong(f"{depth} slots hide the latency, but fewer do, too.", case=case, got=f"{depth} slots",
                        timeline=_few(alpha, copy, step, depth), nudge=told or "Compare with one slot less.")
        nudge = told or "How long is a slot taken, from the start of the copy to the end of the step?"
        raise Wrong(f"With {depth} slot{'s' * (depth > 1)} the pipeline is still held up by latency.", case=case,
                    got=f"{depth} slot{'s' * (depth > 1)}", timeline=_few(alpha, copy, step, depth), nudge=nudge)


def depth_slips(alpha: int, copy: int, step: int) -> list[tuple[float, str]]:
    pace, trip = max(copy, step), alpha + copy + step
    once = "a slot is taken for α + X/β + Y/F, once each."
    busy = "A slot is not free again when its block has arrived: the kernel still has to use it."

    def slots(time: float, at: float = pace) -> int:
        return max(1, math.ceil(time / at))
    return [
        (trip // pace, "Rounded down. With that many slots the core still waits a little in every round: round up."),
        (trip // pace + 1, "That is rounded down, and one more: one too many where the round trip is a whole number of "
                           "paces. Round up."),
        (slots(trip) + 1, "That is one more than are needed."),
        (slots(alpha), busy),
        (slots(alpha + copy), busy),
        (slots(alpha + step), f"The copy takes its time, too: {once}"),
        (slots(alpha + copy + 2 * step), f"That counts the step twice: {once}"),
        (slots(alpha + 2 * copy + step), f"That counts the copy twice: {once}"),
        (slots(trip, min(copy, step)), "That counts the round trip at the pace of the faster part. The slower one sets "
                                       "the pace."),
        (slots(trip, copy + step), "Copies and steps run side by side, so a block is done every max(X/β, Y/F), not "
                                   "every X/β + Y/F."),
        (slots(trip, copy), "Where the step takes longer than the copy, the step sets the pace."),
        (slots(trip, step), "Where the copy takes longer than the step, the copy sets the pace."),
    ]


def _few(alpha: int, copy: int, step: int, depth: int) -> pl.Timeline | None:
    """A picture of the first rounds; None where there would be too much in it."""
    n = max(2 * depth, 6)
    return stream_timeline(n, alpha / 1000, copy / 1000, step / 1000, depth) if n <= 24 else None


CAUSES = {
    "wait-out": "The largest cause is wait-out: the core waits for a copy out that nobody needs to be over yet. Only "
                "the step that writes the same slot of Y again does, depth steps later.",
    "order": "The largest cause is order: the fetches start later than the slots allow. With depth slots, depth − 1 "
             "blocks can be on the way before the first step.",
}


@exercise("7.4", "Five slots and none the faster", points=3)
def patient(answer: Handle, trial: Trial) -> None:
    shapes = trial.pick([(n, depth) for depth in (1, 2, 3, 5, 7) for n in (0, 1, 2, 3, 12)],
                        [(n, depth) for n in sizes(trial, (), 0, 8) for depth in (1, 2, 3, 4, 5, 7)])
    several, single = ([s for s in shapes if (s[1] > 1) is more] for more in (True, False))
    more = [FAR.with_(name=f"toy, α = {a:g} µs", alpha=a * US)
            for a in trial.pick((5,), trial.rng.choice(range(4, 12), 2, False) / 2)]
    for group in several, single:  # impatient is wrong with one slot; first comes what it is slow with
        recordings = judge_loop(answer, trial, sorted(group, key=lambda s: (s[0] + s[1], s)))
        for machine in (FAR, TOY, *more):
            for case, n, depth, schedule in recordings:
                _in_time(schedule, n, depth, machine, case)


def _in_time(schedule: pl.Schedule, n: int, depth: int, machine: Machine, case: str) -> None:
    t, limit = pl.timeline(schedule, machine), contract_time(n, depth, machine)
    if t.total <= limit * (1 + 1e-9):
        return
    cause = max(CAUSES, key=lambda name: t.excess[name])
    nudge = CAUSES[cause] if t.excess[cause] > 1e-12 else "What does it wait for that pallas_call need not wait for?"
    account = ", ".join(f"{name} {seconds / US:.4g}" for name, seconds in t.excess.items() if seconds > 1e-12)
    raise Wrong(f"Right, but slower than pallas_call on the {machine.name}.", case=case,
                got=f"{t.total / US:.4g} µs (above its bounds: {account} µs)", expected=f"at most {limit / US:.4g} µs",
                timeline=t, nudge=nudge)


def horner_kernel(x_ref, y_ref, o_ref) -> None:
    x, y = x_ref[...], y_ref[...]
    value = y
    for _ in range(45):
        value = value * x + y
    o_ref[...] = value


SIDE, TARGET = 2048, 66.0  # the array is f32[SIDE, SIDE]; µs


@exercise("7.5", "Hit the target", points=3)
def hit_the_target(answer: Handle, trial: Trial) -> None:
    given = answer.value()
    choice = so_many(given, 3)
    if choice is None:
        raise Wrong("The choice should be three numbers in a row: block height, block width, depth.",
                    got=kind_of(given))
    names = "The height", "The width", "The depth"
    bm, bn, depth = (_number(x, "", what) for x, what in zip(choice, names, strict=True))
    if any(x != int(x) or x < 1 for x in (bm, bn, depth)):
        raise Wrong("Block sizes and depth are whole numbers, 1 or more.", got=f"{bm:g} × {bn:g}, depth {depth:g}")
    bm, bn, depth = int(bm), int(bn), int(depth)
    case = f"blocks of {bm} × {bn}, depth {depth}"
    if bm % 8 or bn % 128 or SIDE % bm or SIDE % bn:
        raise Wrong(f"Blocks of {bm} × {bn} will not do for a TPU and f32[{SIDE}, {SIDE}].", got=case,
                    nudge="The height should be a multiple of 8, the width one of 128, and both should divide "
                          f"{SIDE}.")
    slots = 3 * depth * bm * bn * 4
    if slots > TPU_V5E.sram_bytes:
        raise Wrong("That does not fit into the SRAM.", got=f"{case}: {slots / MIB:g} MiB",
                    expected=f"at most {TPU_V5E.sram_bytes / MIB:g} MiB",
                    nudge="Three operands, each with depth slots of bm · bn numbers of 4 bytes.")
    t = horner_timeline(bm, bn, depth)
    if t.total > TARGET * US:
        helps, _ = what_helps((bm, bn, depth), ("height", "width"), lambda c: horner_timeline(*c).total, may_be_chosen)
        raise Wrong("Right, but too slow.", got=f"{case}: {t.total / US:.1f} µs", expected=f"at most {TARGET:g} µs",
                    nudge=f"{why_slow(t)} {helps}".strip())


def may_be_chosen(choice: tuple[int, ...]) -> bool:
    bm, bn, depth = choice
    return not (bm % 8 or bn % 128 or SIDE % bm or SIDE % bn) and 3 * depth * bm * bn * 4 <= TPU_V5E.sram_bytes


def why_slow(t: pl.Timeline) -> str:
    """What the time of a choice is made of, where that is above the target."""
    least, (cause, above) = max(t.terms.values()) / US, largest_excess(t)
    if t.bound == "latency":
        return f"It is latency-bound: {least:.1f} µs."
    said = f"Its bounds would allow {least:.1f} µs."
    if cause == TRIPS:
        return f"{said} First and last trip, before the first step and after the last, cost {above / US:.1f} µs more."
    why = ": copies in come too late, behind copies out" * (cause == "port queue")
    return f"{said} The largest cause above them is {cause}, {above / US:.1f} µs{why}."


def horner_timeline(bm: int, bn: int, depth: int) -> pl.Timeline:
    x = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32)
    block = pl.BlockSpec((bm, bn), lambda i, j: (i, j), pipeline_mode=pl.Buffered(depth))
    call = pl.pallas_call(horner_kernel, x, grid=(SIDE // bm, SIDE // bn), in_specs=[block, block], out_specs=block)
    return call.trace(x, x).timeline(TPU_V5E)


@predict("7.6", "Is it worth more slots?", points=3,
         show=lambda p: f"N = {p.N} blocks of {p.kib} KiB, α = {p.alpha}, X/β = {p.copy}, Y/F = {p.step} µs")
def more_slots(p) -> list[Asked]:
    pace, trip = max(p.copy, p.step), p.alpha + p.copy + p.step
    two, four, eight = (exact(p.N, p.alpha, p.copy, p.step, depth) for depth in (2, 4, 8))
    enough = math.ceil(trip / pace)
    return [
        Asked("The time with 2 slots", "µs", two, [
            ("two slots hide everything", p.N * pace,
             "That is the pace once latency is hidden. Two slots do not hide it."),
            ("nothing overlaps", p.N * trip, "That is one slot: a single round trip at a time."),
            ("latency is hidden, nothing else", p.N * (p.copy + p.step),
             "That has copies and steps one after the other, and no α. Compare the three bounds."),
            ("only α is shared out", p.N * (p.alpha / 2 + p.copy + p.step),
             "Two whole round trips go at a time, copy and step included."),
            ("a slot is free when its block has arrived", p.N * (p.alpha + p.copy) / 2,
             "A slot is taken until its block has been used: Y/F belongs to the round trip."),
            ("two slots are four", p.N * trip / 4,
             "That is a quarter of a round trip a block. How many round trips go at a time with two slots?")], 0.04),
        Asked("The time with 4 slots", "µs", four, [
            ("more slots change nothing", two, "That is the time with two. Four have twice as many round trips going."),
            ("nothing overlaps", p.N * trip, "That is one slot: a single round trip at a time."),
            ("four slots hide everything", p.N * pace, "Is the latency hidden with four? Compare a quarter of a round "
                                                       "trip with X/β and Y/F.")], 0.04),
        Asked("The time with 8 slots", "µs", eight, [
            ("the time goes on falling with 1/depth", p.N * trip / 8,
             "With eight slots, latency is no longer what holds it up. What is?"),
            ("eight slots are as four", four, "Four still leave a part of the latency to be seen.")], 0.04),
        Asked("The SRAM", "KiB", enough * p.kib, [
            ("all eight slots", 8 * p.kib, "Eight are fast, but fewer are as fast."),
            ("rounded down", (enough - 1) * p.kib, "One slot more is needed: round up."),
            ("one more, to be sure", (enough + 1) * p.kib, "One slot fewer is as fast."),
            ("one slot", p.kib, "That is one block. Each slot holds one."),
            ("slots are KiB", enough, "That is the number of slots. How much does each of them take?"),
            ("bytes are KiB", enough * p.kib * 1024, "Those are bytes; a KiB has 1024 of them.")], 0),
    ]


def _number(given, case: str, what: str = "Your answer") -> float:
    try:
        return number(given, what)
    except Wrong as wrong:
        wrong.case = case
        raise
