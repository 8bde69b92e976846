"""handle: how a check reaches the learner's object. Local in a notebook, remote (grade.py) in grading; asked alike.

Whatever comes back is plain data, and it is checked here: junk is a wrong answer with a message, never a crash. A check
takes apart what it was given by `so_many`, `word`, `number` and `array` alone. They look at what it is, and how large,
before they make anything of it: 512 MiB of small numbers are ten times that as a list.
"""
import contextlib
import dataclasses
import math
from typing import Any

import numpy as np

import pallas_lite
from pallas_lite.errors import many

from ..exercise import AnswerFailed, NotDone, Wrong
from ..sandbox.inside import wire
from ..sandbox.inside.answers import TimeUp, answer
from .replay import decoys, replay

MOST_EVENTS = 2000  # of a kernel with copies of its own: checks call it on a few blocks
MOST_BLOCKS = 200_000  # of all operands of a call: what checks do with them takes seconds
MOST_DEPTH = 1000  # slots: the pipeline starts as many copies before its first step


class Handle:
    """A learner's object. Subclasses say how a question reaches it: `_ask(op, args)` returns a kind and a body."""

    asked: frozenset[str] = frozenset()  # the kinds of question so far
    gave_none = False  # did the learner's function return nothing, when it was last called?

    def _ask(self, op: str, args: tuple) -> tuple[str, Any]:
        raise NotImplementedError

    def ask(self, op: str, *args: Any) -> Any:
        """The answer to a question, as plain data. Raises NotDone, AnswerFailed or Wrong."""
        self.asked |= {op}
        kind, body = self._ask(op, args)
        if kind == "ok":
            given = body.get("result") if op == "kernel" and isinstance(body, dict) else body
            self.gave_none = op in ("call", "kernel") and given is None
            return body
        if kind == "not done":
            raise NotDone
        if kind == "not plain":
            raise Wrong(f"Your answer gives {text(body)}. It should be numbers, texts or arrays, or lists of them.")
        if kind == "failed" and isinstance(body, dict):
            lineno = body.get("lineno")
            raise AnswerFailed(text(body.get("kind"), 100), text(body.get("message")), text(body.get("line"), 400),
                               lineno if type(lineno) is int else 0, body.get("in_kernel") is True)
        raise Wrong("Your answer came back as something that is not an answer.")

    def renew(self) -> None:
        """The next trial begins: it has the whole time limit again."""

    def value(self) -> Any:
        """The object itself: a number, text, array, or a tuple, list or dict of them."""
        return self.ask("value")

    def call(self, *args: Any) -> Any:
        """What the learner's function returns for this plain data. JAX arrays come back as NumPy arrays."""
        try:
            return self.ask("call", *args)
        except AnswerFailed as failed:
            if len(case := f"called with {', '.join(map(repr, args))}") <= 120:
                failed.case = case  # on what it stopped
            raise

    def schedule(self, n: int, depth: int = 2, *, block_bytes: int = 1000,
                 flops: float = 1000.0) -> pallas_lite.Schedule:
        """The schedule of the learner's loop(N, A, X, Y, B) over `n` blocks, as pallas_lite.record gives it.

        Raises Wrong if it hands another kernel than x + 1 to compute: the schedule has no kernels, so nobody else sees.
        """
        cost = {"block_bytes": block_bytes, "flops": flops}
        data = self.ask("schedule", n, depth, cost)
        schedule = _believed(data, n, depth, cost)
        _the_given_kernel(data.get("own"), n, depth)
        return schedule

    def pipeline(self, grid: tuple[int, ...], kernel: tuple, into: Any, out: Any,
                 blocks: np.ndarray) -> tuple[pallas_lite.Schedule, Any]:
        """The learner's double_buffered_pipeline, called with these slices: its loop's schedule, and B from `blocks`.

        `kernel`: factor, summand and whether it turns a block upside down. `into`, `out`: the block of each step.
        """
        data = self.ask("pipeline", grid, kernel, into, out, blocks)
        told, values = (data.get("schedule"), data.get("values")) if isinstance(data, dict) else (None, None)
        return _believed(told, len(blocks), 2, {}), values

    def kernel(self, *arrays: Any, filling: str | float = "nan") -> "KernelRun":
        """Calls the learner's function on jax arrays; returns its result and every pallas_call that it made.

        The calls are replayed (replay.py): their results are what the kernel makes of the blocks that it asked for.
        `filling`: what memory holds in a replay that nobody wrote; another one tells what came from there.
        """
        plan = self.ask("plan", *decoys(arrays))
        with _reading_calls():
            if plan.get("manual") is True:
                data = self.ask("kernel", *arrays)
                return KernelRun(data["result"], tuple(map(KernelCall.from_plain, data["calls"])), _count(data["made"]))
            if any(source is None for call in plan["calls"] for source in call["takes"]):
                raise Wrong("Your pallas_call takes an array that is only known inside jax.vmap, jax.jit or jax.grad.",
                            nudge="Call it on the arrays as they came. What vmap would add is one more axis of the "
                                  "grid.")
            calls, made = tuple(map(KernelCall.from_plain, plan["calls"])), _count(plan["made"])
        left_by: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        results = replay(plan["calls"], calls, arrays, lambda *step: self.ask("body", *step), left_by,
                         filling)
        with _reading_calls():
            calls = tuple(dataclasses.replace(c, results=r, replayed=bool(r), left_by=tuple(
                left_by[k, t] for t in range(c.steps) if (k, t) in left_by), takes=tuple(
                s[1] if s[0] == "given" and type(s[1]) is int else -1 for s in plan["calls"][k]["takes"]))
                for k, (c, r) in enumerate(zip(calls, results, strict=True)))
            # Where something was made of the arrays before the call, only a run on the real ones tells what came of it.
            as_they_came = all(source[0] != "value" for c in plan["calls"] for source in c["takes"])
            if plan["gives"] is not None and all(results) and as_they_came:
                given = [results[k][j] for k, j in plan["gives"]]
                return KernelRun(tuple(given) if plan["several"] is True else given[0], calls, made)
            return KernelRun(self.ask("kernel", *arrays)["result"], calls, made)


class LocalHandle(Handle):
    """The learner's object in this process, answered through the same packing as a remote one."""

    def __init__(self, target: Any):
        self._target = target

    def _ask(self, op, args):
        args = _through_the_wire(args)  # copies, so that a learner who writes to an input harms nothing
        # The learner's Ctrl-C ends the whole check.
        kind, body = answer(lambda: self._target, op, args, passing=(TimeUp, KeyboardInterrupt))
        try:
            return kind, _through_the_wire(body)
        except wire.NotPlain as error:
            return "not plain", str(error)


@contextlib.contextmanager
def _reading_calls():
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, pallas_lite.PallasLiteError):
        raise Wrong("What your function did could not be read as calls of pallas_call.") from None


def _count(value) -> int:
    if type(value) is not int:
        raise ValueError
    return value


def _through_the_wire(value):
    arrays = []
    packed = wire.pack(value, arrays)
    wire.refuse_too_much(arrays)
    return wire.unpack(packed, [np.array(a) for a in arrays])


def _believed(data, n: int, depth: int, cost: dict) -> pallas_lite.Schedule:
    """The schedule that came as plain data, recorded anew. Raises Wrong if it is none."""
    try:
        told = pallas_lite.Schedule.from_plain(data)
        # The verifier's time grows faster than the schedule; a right loop does about five things a step.
        if len(told) > 20 * (n + depth) + 100:
            raise Wrong(f"The loop does {len(told)} things for {many(n, 'step')}. Check its bounds.",
                        case=f"N = {n}, depth = {depth}")
        return _replay(told, n, depth, cost)
    except pallas_lite.PallasLiteError as error:
        raise Wrong(f"What your loop did is not a schedule: {text(str(error))}") from None


def _the_given_kernel(own, n: int, depth: int) -> None:
    """Raises Wrong if a step's own kernel makes anything but x + 1 of 0 to 5. `own`: from outside, (step, result)."""
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    told: list[Any] = own if isinstance(own, list) else []
    pairs: list[Any] = [one if isinstance(one, list) and len(one) == 2 else ("?", None) for one in told]
    for step, made in pairs:
        if isinstance(made, np.ndarray) and made.shape == given.shape and np.array_equal(made, given + 1):
            continue
        got = f"{given[0].tolist()} becomes {made[0].tolist()}" if kind_of(made) == kind_of(given) else kind_of(made)
        raise Wrong(f"Step {step} runs another kernel: its compute is given one that is not x + 1.",
                    case=f"N = {n}, depth = {depth}", got=got, expected=f"{given[0].tolist()} becomes "
                    f"{(given + 1)[0].tolist()}",
                    nudge="compute(X[…], Y[…]) runs the kernel of this chapter, x + 1, by itself. Leave the third "
                          "argument out.")


def _replay(told, n, depth, cost):
    """The same events, recorded anew by our own code: only verbs, blocks and slots are taken from what came in."""
    def loop(_, A, X, Y, B):
        rows = {"X": (A, X), "Y": (B, Y)}
        for e in told:
            if e.verb == "run":
                pallas_lite.compute(X[e.slots[0]], Y[e.slots[1]])
                continue
            hbm, sram = rows[e.operand]
            if e.verb in ("copy_in_start", "copy_out_start"):
                ends = hbm[e.block[0]], sram[e.slot]
                if e.verb == "copy_in_start":
                    pallas_lite.copy_in_start(*ends)
                else:
                    pallas_lite.copy_out_start(*ends[::-1])
            else:
                getattr(pallas_lite, e.verb)(sram[e.slot])
    try:
        replayed = pallas_lite.record(loop, n, depth=depth, **cost)
    except (TypeError, KeyError, IndexError):
        raise pallas_lite.PallasLiteError("an event names a block or slot that does not exist") from None
    return dataclasses.replace(replayed, name=told.name if told.name.isidentifier() else "loop")


@dataclasses.dataclass(frozen=True)
class KernelOperand:
    """One operand of a pallas_call: its array, its block, and which block it takes at each step of the grid."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    depth: int
    block_shape: tuple[int | None, ...]  # None: a squeezed dimension
    blocks: tuple[tuple[int, ...], ...]  # block indices, one a step

    @property
    def copies(self) -> int:
        """How often a block is copied: 1 + the number of index changes."""
        return sum(i == 0 or b != self.blocks[i - 1] for i, b in enumerate(self.blocks))


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """One pallas_call that the learner's function made.

    `schedule`: what a kernel with copies of its own did, None for any other; nothing in it is proven, so verify it.
    `hazards`: what the learner's side says of that kernel: a reason to refuse it, and never one to believe it.
    """

    name: str
    grid: tuple[int, ...]
    inputs: tuple[KernelOperand, ...]
    outputs: tuple[KernelOperand, ...]
    schedule: pallas_lite.Schedule | None = None
    hazards: tuple[str, ...] = ()
    results: tuple[np.ndarray, ...] = ()  # its outputs, where they are known
    replayed: bool = False  # were they made on this side, from the blocks that the call asked for?
    left_by: tuple[tuple[np.ndarray, ...], ...] = ()  # what each step left in its blocks of the outputs, if known
    takes: tuple[int, ...] = ()  # which argument of the function each input is, from 0; -1: none as it came

    @property
    def steps(self) -> int:
        return math.prod(self.grid)

    @staticmethod
    def from_plain(data: dict) -> "KernelCall":
        grid = _whole(data["grid"])
        sides: dict[bool, list[KernelOperand]] = {False: [], True: []}
        if max(1, math.prod(grid)) * len(data["operands"]) > MOST_BLOCKS:
            raise ValueError("more steps than a small case has")
        for x in data["operands"]:
            blocks = tuple(map(_whole, x["blocks"]))
            ranks = {len(b) for b in blocks} | {len(x["block_shape"])}
            if len(blocks) != math.prod(grid) or ranks != {len(x["shape"])}:
                raise ValueError("not one block a step, or not one index a dimension")
            if not 1 <= _whole([x["depth"]])[0] <= MOST_DEPTH or 0 in x["block_shape"]:
                raise ValueError("no slot, too many, or an empty block")
            block_shape = tuple(None if b is None else _whole([b])[0] for b in x["block_shape"])
            sides[x["is_output"] is True].append(KernelOperand(
                text(x["name"], 100), _whole(x["shape"]), text(x["dtype"], 20), _whole([x["depth"]])[0],
                block_shape, blocks))
        if len({x.name for side in sides.values() for x in side}) < len(data["operands"]):
            raise ValueError("two operands of one name")
        schedule, hazards = data.get("schedule"), tuple(text(h, 1000) for h in data.get("hazards", ())[:5])
        if schedule is not None and len(schedule["events"]) <= MOST_EVENTS:
            schedule = pallas_lite.Schedule.from_plain(schedule)
        elif schedule is not None:
            raise ValueError("more events than a small case has")
        return KernelCall(text(data["name"], 100), grid, tuple(sides[False]), tuple(sides[True]), schedule, hazards,
                          tuple(a for a in data.get("results", ()) if isinstance(a, np.ndarray)))


@dataclasses.dataclass(frozen=True)
class KernelRun:
    """What a learner's function returned, the pallas_calls that it made (the first 20), and how many there were."""

    result: Any
    calls: tuple[KernelCall, ...]
    made: int


def _whole(values) -> tuple[int, ...]:
    if not all(type(v) is int and 0 <= v < 2**31 for v in values):
        raise ValueError("whole numbers expected")
    return tuple(values)


def text(value: Any, most: int = 4000) -> str:
    """A text from outside, cut to a length; anything else becomes a question mark."""
    return value[:most] if isinstance(value, str) else "?"


def kind_of(value: Any) -> str:
    """What a value is, in a learner's words.  >>> kind_of("3")
    'a text'
    """
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    words = {bool: "True or False", type(None): "None", str: "a text", int: "a number", float: "a number"}
    name = type(value).__name__
    length = f" of length {len(value)}" if isinstance(value, (tuple, list)) else ""
    return words.get(type(value), f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{length}")


def so_many(answer: Any, count: int) -> list[Any] | None:
    """The `count` parts of a tuple, of a list, or of an array of one dimension; None for anything else.

    >>> so_many((1, 2), 2), so_many(np.zeros(2), 2), so_many(np.zeros((2, 9)), 2), so_many("ab", 2)
    ([1, 2], [0.0, 0.0], None, None)
    """
    if isinstance(answer, np.ndarray):
        return answer.tolist() if answer.shape == (count,) else None
    return list(answer) if isinstance(answer, (tuple, list)) and len(answer) == count else None


def word(answer: Any) -> str:
    """A text in small letters and with single blanks; "" for anything else.  >>> word(" In  turns")
    'in turns'
    """
    return " ".join(answer.lower().split()) if isinstance(answer, str) else ""


def number(answer: Any, what: str = "Your answer") -> float:
    """`answer`, or an array's only entry, as a finite number. Raises Wrong for NaN, True, "3" and all else."""
    if isinstance(answer, np.ndarray) and answer.size == 1:
        answer = answer.item()
    if type(answer) is bool or not isinstance(answer, (int, float)):
        raise Wrong(f"{what} should be a number; it is {kind_of(answer)}.")
    if not math.isfinite(answer):
        raise Wrong(f"{what} should be a finite number; it is {answer}.")
    return float(answer)


DECIMAL = {"KiB": (1.024, "kB, of 1000", "1024"), "MiB": (1.024**2, "MB, of 1000²", "1024²")}
OTHER_UNITS = [base**power for base in (1000.0, 1024.0) for power in (-4, -3, -2, -1, 1, 2, 3, 4)]  # s for µs


def close(answer: Any, expected: float, unit: str = "", tolerance: float = 0.01, *, what: str = "Your answer",
          slips: dict[float, str] | None = None, case: str = "", nudge: str = "") -> None:
    """Raises Wrong unless `answer` is within `tolerance` (relative) of `expected`. Says high or low, never the value.

    `slips` maps the numbers that typical slips give to a sentence on the slip, shown as the nudge.
    """
    try:
        x = number(answer, what)
    except Wrong as wrong:
        wrong.case = case
        raise
    if abs(x - expected) <= tolerance * abs(expected) + 1e-300:
        return
    if unit and any(abs(x - expected * factor) <= tolerance * abs(expected * factor) for factor in OTHER_UNITS):
        nudge = f"The answer is wanted in {unit}. Is yours?"
    factor, short, ours = DECIMAL.get(unit, (1.0, "", ""))
    if short and abs(x - expected * factor) <= 1e-3 * abs(expected * factor):
        nudge = f"That is in {short} bytes. A {unit} has {ours}."
    for slip, sentence in (slips or {}).items():
        if abs(x - slip) <= tolerance * abs(slip):
            nudge = sentence
    way = "too high" if x > expected else "too low"
    raise Wrong(f"{what} is {way}.", got=f"{x:.6g} {unit}".strip(), case=case, nudge=nudge)


def array(result: Any, shape: tuple[int, ...], *, what: str = "The result", case: str = "", nudge: str = "",
          **more: Any) -> np.ndarray:
    """`result` in float64. Raises Wrong unless it is an array of this shape."""
    if not isinstance(result, np.ndarray) or result.shape != shape:
        got = f"shape {result.shape}" if isinstance(result, np.ndarray) else kind_of(result)
        nudge = nudge if result is not None else ""  # then there is something better to say: checking.py
        raise Wrong(f"{what} should be an array of shape {shape}.", got=got, case=case, nudge=nudge, **more)
    return result.astype(np.float64)


def same_array(result: Any, expected: np.ndarray, *, rtol: float = 1e-5, atol: float = 1e-5, what: str = "The result",
               case: str = "", nudge: str = "", **more: Any) -> None:
    """Raises Wrong unless `result` is an array of the same shape and values. NaN equals nothing."""
    expected = np.asarray(expected)
    a = array(result, expected.shape, what=what, case=case, nudge=nudge, **more)
    b = expected.astype(np.float64)
    bad = np.argwhere(~(np.abs(a - b) <= atol + rtol * np.abs(b)))
    if len(bad):
        first = tuple(map(int, bad[0]))
        raise Wrong(f"{what} differs in {len(bad)} of {many(expected.size, 'place')}, first at {list(first)}.",
                    case=case,
                    got=f"{a[first]:.6g}", expected=f"{b[first]:.6g}", nudge=nudge, **more)
