"""Checks of chapter 3. A loop is judged by what it does on many N and depths: races, provenance, values, copies, time.

Next: ../mutants/chapter3.py, planted wrong answers that these checks must refuse, and right ones that they must take.
"""
import contextlib
import itertools
import math
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

import pallas_lite as pl
from pallas_lite.errors import many
from pallas_lite.hardware import TOY, Machine

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, same_array
from .formulas import right_or_told
from .kernels import contract
from .loop_nudges import between_steps, first_hazard, loop_error, the_cause
from .naming import insist_names

FAR = TOY.with_(name="toy with far HBM", alpha=3e-6)
US = 1e-6

@contextlib.contextmanager
def asking(case: str, trial: Trial, n: int, depth: int, nudge: str = ""):
    """What a loop raises about blocks and slots becomes a wrong answer, with this nudge or its own."""
    try:
        yield
    except AnswerFailed as failed:
        if failed.kind == "SpecError" and "a loop is a function" in failed.message:
            raise Wrong(f"The loop should be a function of (N, A, X, Y, B); it is "
                        f"{failed.message.rpartition(' ')[2].rstrip('.')}.", case=case,
                        nudge="def only makes the loop. return loop gives it away, without calling it.") from None
        if failed.kind not in ("BlockIndexError", "PipelineError"):
            raise
        line = f" Your line: {failed.line.strip()}" if failed.line else ""
        raise Wrong(failed.message + line, case=case, nudge=nudge or loop_error(failed, trial, n, depth)) from None


def judge_loop(answer: Handle, trial: Trial, cases: Iterable[tuple[int, int]], *,
               source: Callable[[int, int], int] = lambda n, i: i) -> list[tuple[str, int, int, pl.Schedule]]:
    """Raises Wrong at the first (N, depth) where the loop is not right; else returns the recordings.

    `source(n, i)` is the block of A that block i of B is made from.
    """
    recordings = []
    for n, depth in cases:
        case = f"N = {n}, depth = {depth}"
        with asking(case, trial, n, depth):
            schedule = answer.schedule(n, depth)
        check_races(schedule, n, case)
        check_blocks(schedule, [source(n, i) for i in range(n)], range(n), case)
        check_values(schedule, n, case, source, trial)
        recordings.append((case, n, depth, schedule))
    return recordings


def check_races(schedule, n, case):
    if hazards := pl.verify(schedule):
        h = the_cause(hazards)
        raise Wrong(f"The loop has a hazard: {h.kind}.", case=case, schedule=schedule, hazard=h,
                    nudge=first_hazard(schedule, h, n))


def check_blocks(schedule, into, out, case, belongs="B[i]"):
    """No race, so provenance is certain: step i makes B[out[i]] from A[into[i]], and each block is copied once.

    `belongs`: where the result of step i belongs, in a learner's words.
    """
    n, source = len(into), dict(zip(out, into, strict=True))
    if schedule.steps != n:
        raise Wrong(f"The kernel should run once for each block: {_times(n)}.", case=case,
                    got=_times(schedule.steps), schedule=schedule,
                    nudge="Does every block of A pass through compute exactly once?")
    made = pl.provenance(schedule)
    for sent, e in enumerate(schedule):
        if e.verb != "copy_out_start":
            continue
        (block,), (step, read) = e.block, made["B", e.block]
        (a,) = read["X"]
        if source.get(block) == a:
            continue
        if into[step] == a:  # so the step is right, and its result goes astray
            mark = pl.Hazard("wrong block", f"the result of step {step} is sent to B[{block}].", "", "Y", step, e.slot,
                             (sent,))
            raise Wrong(f"No race, but the result of step {step} goes to the wrong block.", case=case,
                        got=f"B[{block}] made from A[{a}]", expected=f"B[{out[step]}] made from A[{a}]",
                        schedule=schedule, hazard=mark,
                        nudge=f"The kernel has read the right block. The result of step i belongs to {belongs}: look "
                              "at this copy out, at its slot and its block.")
        number, run = next((k, e) for k, e in enumerate(schedule) if e.verb == "run" and e.step == step)
        slot = run.slots[0]
        message = f"the kernel reads X[{slot}], which holds A[{a}]."
        mark = pl.Hazard("wrong block", message, "", "X", step, slot, (number,))
        raise Wrong(f"No race, but B[{block}] comes from the wrong block.", case=case,
                    got=f"B[{block}] made from A[{a}]", schedule=schedule, hazard=mark,
                    expected=f"B[{block}] made from A[{source[block]}]" if block in source else
                             f"no step writes B[{block}]",
                    nudge="Say aloud which slot the copy filled, which one compute reads, and which one is sent "
                          "out: a wrong slot or a wrong block is among them.")
    for block, a in source.items():
        if ("B", (block,)) not in made:
            raise Wrong(f"B[{block}] is never written.", case=case, got=f"B[{block}] keeps its garbage",
                        expected=f"B[{block}] made from A[{a}]", schedule=schedule,
                        nudge="Which step should send its slot of Y to this block?")
    for operand in "XY":
        if schedule.copies(operand) > n:
            copies = "1 copy" if n == 1 else f"{n} copies"
            raise Wrong(f"Each block should be copied once, so {copies} of {operand}.", case=case,
                        got=f"{schedule.copies(operand)} copies", schedule=schedule,
                        nudge="A copy that nobody needs costs time. Which block is copied twice?")


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def check_values(schedule, n, case, source, trial):
    """The same on values, with another kernel than the notebook's; data differ in every block and place."""
    if not n:
        return
    blocks = trial.rng.permutation(n * 6).reshape(n, 2, 3).astype(np.float32) + np.arange(3, dtype=np.float32) / 8
    expected = np.stack([3 * blocks[source(n, i)] - 1 for i in range(n)])
    for mode in ("on_wait", "eager"):
        got = pl.execute(schedule, blocks, lambda x: 3 * x - 1, pl.InterpretParams(dma_execution_mode=mode))
        if not np.array_equal(got, expected):
            bad = next(i for i in range(n) if not np.array_equal(got[i], expected[i]))
            raise Wrong(f"B[{bad}] has wrong values.", case=case, got=got[bad], expected=expected[bad],
                        schedule=schedule)


def check_time(recordings, most: Callable[[int, int], float], machine: Machine = TOY,
               nudge: str | dict[str, str] = "", strictly: bool = False):
    """Raises Wrong for the first recording that takes longer than `most(n, depth)` seconds; `strictly`: or as long.

    `nudge`: a sentence, or one for waits on X and one for waits on Y, where only these are to be won back.
    """
    for case, n, depth, schedule in recordings:
        t, limit = pl.timeline(schedule, machine), most(n, depth)
        if n and t.total > (limit - 0.1 * US if strictly else limit * (1 + 1e-9)):
            stands = [s for s in t.spans if s.waiting]
            waits = [s for s in stands if s.start > 0]
            spots, where = waits, ""
            if isinstance(nudge, dict):
                spots = [s for s in waits if schedule[s.event].operand in nudge]
                nudge = (nudge[schedule[spots[0].event].operand] if spots else
                         "The first step is kept waiting. Which block is copied first?")
            if spots:
                first = "first " * (spots[0] is waits[0])
                filled = "Once the first block is there, it" if first and waits != stands else "It"
                where = f" {filled} {first}stands still {between_steps(schedule, spots[0].event)}, at {spots[0].label}."
            raise Wrong(f"Right, but too slow on the {machine.name}: the core waits too much.{where}",
                        case=case, got=f"{t.total / US:.4g} µs", timeline=t, nudge=nudge,
                        expected=f"{'less than' if strictly else 'at most'} {limit / US:.4g} µs")


@cache
def contract_time(n: int, depth: int, machine: Machine) -> float:
    """Seconds of pallas_call's own order over n blocks, with `depth` slots for input and output."""
    return pl.timeline(contract(n, depth), machine).total


def sizes(trial: Trial, visible: Iterable[int], low: int, high: int, step: int = 1) -> list[int]:
    """The N to try: the visible ones, or every N of a range, then two larger ones that no one can know."""
    if not trial.hidden:
        return list(visible)
    larger = sorted(int(n) * step + low for n in trial.rng.choice(range(high, high + 12), 2, False))
    return [*range(low, high, step), *larger]


@exercise("3.1", "The price of blocking", points=1)
def blocking_time(answer: Handle, trial: Trial) -> None:
    cases = visible = [(1, 2.0, 5.0), (4, 2.0, 5.0), (7, 4.0, 0.5), (3, 0.25, 1.75)]
    if trial.hidden:
        cases = [_telling(trial.rng) for _ in range(6)]
    for n, copy, kernel in cases:
        right_or_told(answer, visible, (n, copy, kernel), n * (copy + kernel + copy), _slips, unit="µs",
                      what="Your answer", case=f"n = {n}, copy = {copy:g} µs, kernel = {kernel:g} µs",
                      nudge="Read the first picture from left to right: one block is copied in, computed on, copied "
                            "out; then the next.")


def _slips(n: int, copy: float, kernel: float) -> list[tuple[float, str]]:
    return [
        (3 * n, "That holds for 1 µs only. What if a copy takes another time, and a step of the kernel yet another?"),
        (n * (copy + kernel), "That is one copy a block. What becomes of the results?"),
        (2 * copy + n * kernel, "That is what it would take if the copies ran beside the kernel. Here they block."),
        (2 * copy + kernel, "That is one block. How many are there?"),
        (n * max(copy, kernel), "That would need copies and kernel to run side by side. In the picture, do they?"),
        (2 * n * copy, "That counts the copies only; the core takes its time, too."),
    ]


def _telling(rng: np.random.Generator) -> tuple[int, float, float]:
    """Numbers for which no slip gives the right answer, or another slip's."""
    while True:
        n, copy, kernel = int(rng.integers(2, 40)), int(rng.integers(1, 19)) / 4, int(rng.integers(1, 19)) / 4
        results = sorted([n * (copy + kernel + copy), *(value for value, _ in _slips(n, copy, kernel))])
        if all(b > 1.03 * a for a, b in itertools.pairwise(results)):
            return n, copy, kernel


@exercise("3.2", "Split", points=2)
def one_slot(answer: Handle, trial: Trial) -> None:
    cases = [(n, 1) for n in sizes(trial, (1, 2, 3, 4, 7), 1, 10)]
    recordings = judge_loop(answer, trial, cases)
    check_time(recordings, lambda n, depth: (2 * n + 1) * US,
               nudge={"Y": "The copy out reads Y; the next copy in writes X. They need not wait for each other, so let "
                           "the wait for the copy out slide behind the next start."})


LOOPS = {"a": "read before wait", "b": "overwrite in flight", "c": "wrong slot", "d": "fine", "e": "never waited"}
ABOUT = {
    "read before wait": "Find the wait for the copy in. Does it stand before or behind the compute that reads this "
                        "slot?",
    "overwrite in flight": "Take the second step. When the kernel writes Y, has the first step's copy out been "
                           "waited for?",
    "wrong slot": "Which slot did the copy in of step 1 fill, and which slot does compute read in step 1?",
    "fine": "Take the rules one by one, with N = 3: every copy in has its wait before compute, and every copy out? "
            "Strange is not wrong.",
    "never waited": "Count copy_out_start and copy_out_wait for N = 2. Is there a wait for each start?",
}


@exercise("3.3", "Name the hazard", points=2)
def hazards(answer: Handle, trial: Trial) -> None:
    insist_names(answer, LOOPS, ABOUT, "loop")


@exercise("3.4", "Hoist the starts", points=2)
def hoisted(answer: Handle, trial: Trial) -> None:
    recordings = judge_loop(answer, trial, [(n, 2) for n in sizes(trial, (1, 2, 3, 4, 7), 1, 10)])
    check_time(recordings, lambda n, depth: (2 * n + 1) * US,
               nudge={"X": "There the core waits for a copy in that could have run earlier: beside the step before. "
                           "Start block i + 1 before step i runs."})
    early_starts(recordings)


def early_starts(recordings):
    """Each copy in, but the first, is started before the step before it runs."""
    for case, _, _, schedule in recordings:
        ran, started = 0, 0
        for number, e in enumerate(schedule):
            if e.verb == "copy_in_start":
                started += 1
            elif e.verb == "run":
                ran += 1
                if ran < schedule.steps and started <= ran:
                    mark = pl.Hazard("starts too late", f"when this step runs, the copy of block {ran} has not been "
                                                        "started.",
                                     "", "X", e.step, ran % 2, (number,))
                    raise Wrong("Right, and no slower, but the copies in do not run beside the kernel.", case=case,
                                schedule=schedule, hazard=mark,
                                nudge="This time, start the copy of block i + 1 before step i runs; the other slot "
                                      "is free.")


@exercise("3.5", "Sink the waits", points=2)
def sunk(answer: Handle, trial: Trial) -> None:
    recordings = judge_loop(answer, trial, [(n, 2) for n in sizes(trial, (2, 4, 6), 2, 12, 2)])
    check_time(recordings, lambda n, depth: (n + 2) * US,
               nudge={"X": "There the core waits for a copy in. Is it started before the step before runs, as in "
                           "hoisted?",
                      "Y": "Could this wait stand later: behind the next start, just before the kernel writes its slot "
                           "again?"})


@exercise("3.6", "Both ends right", points=2)
def double_buffer(answer: Handle, trial: Trial) -> None:
    recordings = judge_loop(answer, trial, [(n, 2) for n in sizes(trial, (0, 1, 2, 3, 4, 7), 0, 12)])
    check_time(recordings, lambda n, depth: (n + 2) * US,
               nudge="Only the two ends need mending; between them, start early and wait late as before.")


@exercise("3.7", "Depth k", points=3)
def pipelined(answer: Handle, trial: Trial) -> None:
    shapes = trial.pick([(n, depth) for depth in (1, 2, 3, 4) for n in (0, 1, 2, 3, 8)],
                        list(itertools.product(sizes(trial, (), 0, 9), (1, 2, 3, 4, 5, 7))))
    # Smallest first, so that a learner sees the smallest failing case.
    recordings = judge_loop(answer, trial, sorted(shapes, key=lambda s: (s[0] + s[1], s)))
    alphas = trial.pick((), trial.rng.choice(range(4, 12), 2, False) / 2)
    for machine in (TOY, FAR, *(FAR.with_(alpha=a * US) for a in alphas)):
        check_time(recordings, lambda n, depth, m=machine: contract_time(n, depth, m), machine,
                   nudge="How many copies in are under way when a step runs? With depth slots, depth − 1 blocks can "
                         "be ahead; and the copies out may lag as far behind.")


@exercise("3.8", "One wait, even later", points=2)
def faster(answer: Handle, trial: Trial) -> None:
    recordings = judge_loop(answer, trial, [(n, 2) for n in sizes(trial, (0, 1, 2, 3, 6, 8), 0, 10)])
    check_time(recordings, lambda n, depth: contract_time(n, depth, FAR), FAR,
               nudge="This is slower than pallas_call. Begin with double_buffer, and move one wait only.")
    for alpha in trial.pick((3,), (2, 3, 5)):
        machine = FAR.with_(alpha=alpha * US)
        # Strictly faster; from N = 6 on there is always something to gain, at N = 5 there is not.
        check_time([r for r in recordings if r[1] >= 6],
                   lambda n, depth, m=machine: contract_time(n, depth, m), machine, strictly=True,
                   nudge="No faster than pallas_call yet. Which line could the old copy out of Y harm? Wait just "
                         "before that line, and no sooner: the next fetch will start earlier.")


# Grid, kernel (factor, summand, upside down), block of A and block of B for each step, and how many blocks there are.
# No grid's axes have a sum that is also their product; and once all is right with N steps, there are more blocks than
# steps, by an odd number: N is not even the same modulo 2.
PROGRAMS = [
    ((1,), (3, -1, False), [0], [0], 1),
    ((2,), (3, -1, False), [1, 0], [0, 1], 2),
    ((3,), (-2, 5, True), [0, 1, 2], [0, 2, 1], 3),
    ((2, 3), (4, 7, False), [0, 1, 2, 3, 5, 4], [0, 2, 4, 1, 3, 5], 6),
    ((5,), (1, 0, True), [0, 0, 2, 2, 4], [4, 3, 2, 1, 0], 5),
    ((2, 1, 2), (-1, 2, False), [3, 1, 2, 0], [0, 1, 2, 3], 4),
    ((0,), (2, 0, False), [], [], 0),
    ((2,), (3, -1, False), [3, 0], [1, 2], 5),
    ((2, 2), (2, 5, True), [5, 5, 0, 2], [6, 1, 3, 0], 7),
    ((0,), (2, 0, False), [], [], 3),
]


def some_programs(rng: np.random.Generator) -> list:
    """Programs that no one can know: slices are drawn, those of A with repeats, those of B without."""
    def program(grid, more=0):
        n, kernel = math.prod(grid), (int(rng.integers(2, 9)), int(rng.integers(-9, 9)), bool(rng.integers(2)))
        return grid, kernel, rng.integers(n + more, size=n).tolist(), rng.permutation(n + more)[:n].tolist(), n + more
    shapes = [(1,), (2,), (3,), (2, 3), (1, 4), (7,), (2, 2, 2), (3, 3), (0,), (2, 0)]
    all_blocks = [program(grid) for grid in (*shapes, (int(rng.integers(10, 20)),), (2, int(rng.integers(3, 9))))]
    return all_blocks + [program(grid, int(rng.choice([1, 3]))) for grid in ((1,), (2,), (2, 3), (4, 2), (0,))]


@exercise("3.9", "Grid, kernel and slices", points=3)
def general(answer: Handle, trial: Trial) -> None:
    for grid, kernel, into, out, total in trial.pick(PROGRAMS, some_programs(trial.rng)):
        n, (factor, summand, turned), source = math.prod(grid), kernel, dict(zip(out, into, strict=True))
        does = f"{factor}·x{' upside down' * turned} {summand:+}"
        case = f"grid {grid}, N = {total}, in_slices {into}, out_slices {out}, kernel {does}"
        blocks = (trial.rng.permutation(total * 6).reshape(total, 2, 3) + np.arange(3) / 8).astype(np.float32)
        more = f"Here are N = {total} blocks, and the grid has {many(n, 'step')}. N counts blocks, not steps."
        with asking(case, trial, n, 2, nudge=more * (total > n)):
            schedule, values = answer.pipeline(grid, kernel, into, out, blocks)
        check_races(schedule, n, case)
        if schedule.steps != n:
            nudge = more if schedule.steps == total else "The axes of a grid are multiplied." * (len(grid) > 1)
            raise Wrong(f"The kernel should run once for each point of the grid: {_times(n)}.", case=case,
                        got=_times(schedule.steps), schedule=schedule, nudge=nudge)
        check_blocks(schedule, into, out, case, "B[out_slices(i)]")
        expected = np.zeros_like(blocks)  # what no step writes is garbage, and stays so
        for b, a in source.items():
            expected[b] = factor * (blocks[a][::-1] if turned else blocks[a]) + summand
        slip = False
        if isinstance(values, np.ndarray) and values.shape == blocks.shape:
            values = np.where(np.isin(range(total), out)[:, None, None], values, 0)
            slip = n > 0 and all(np.array_equal(values[b], blocks[a] + 1) for b, a in source.items())
        same_array(values, expected, what="B", case=case, schedule=schedule,
                   nudge="That is x + 1, which runs when compute is given no kernel. Hand it yours: compute(x, y, "
                         "kernel)." if slip else "The right blocks, and not this kernel's values. Does compute get "
                         "`kernel` itself, as it came?")
        check_time([(case, n, 2, schedule)], lambda n, depth: (n + 2) * US,
                   nudge="The order of starts and waits should be that of double_buffer; only the blocks change.")
