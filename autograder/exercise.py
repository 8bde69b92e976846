"""exercise: what an exercise is. A check is one function, used in the notebook and in grading.

    @exercise("3.2", "Split each copy", points=2)
    def split(answer: Handle, trial: Trial) -> None:
        for n in trial.pick(visible=(1, 2, 4), hidden=(0, 1, 2, 3, 5, 8)):
            schedule = answer.schedule(n, depth=1)
            if hazards := verify(schedule):
                raise Wrong("…", case=f"N = {n}", schedule=schedule, hazard=hazards[0])

Returning means right. `Wrong` carries what the learner sees; write the smallest cases first, since the first failing
one is shown. A check reaches the learner's object only through its handle, because in grading that object lives in
another process. Next, in judge/: handle.py (what a check may ask), checking.py (runs a check), result.py (the verdict).
"""
import hashlib
import importlib
import pkgutil
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from pallas_lite import Hazard, Schedule, Timeline

from .sandbox.inside.personal import drawn, normalise


class Wrong(Exception):
    """A right verdict was not earned. `what` says so in one sentence; the rest is shown when it is given.

    `hazard`: a Hazard of pallas_lite.verify, or a list of them; its spots are marked in the schedule and the picture.
    `timeline`: a pallas_lite.Timeline to draw instead of the schedule's own on the toy machine.
    """

    def __init__(self, what: str, *, case: str = "", got: Any = None, expected: Any = None,
                 schedule: Schedule | None = None, hazard: Hazard | Sequence[Hazard] | None = None,
                 timeline: Timeline | None = None, nudge: str = "") -> None:
        super().__init__(what)
        self.what, self.case, self.got, self.expected, self.nudge = what, case, got, expected, nudge
        self.timeline = timeline
        self.schedule = schedule if schedule is not None or timeline is None else timeline.schedule
        self.hazards = [] if hazard is None else [hazard] if isinstance(hazard, Hazard) else list(hazard)


class NotDone(Exception):
    """The hole is still empty: the answer is `...`, or raises NotImplementedError."""


class AnswerFailed(Exception):
    """The learner's own code raised, ended or overran. `line` is the learner's own source line, if it is known.

    A check that knows on what it stopped, and why, sets `case` and `nudge`. `in_kernel`: in a kernel.
    """

    case = nudge = ""

    def __init__(self, kind: str, message: str, line: str = "", lineno: int = 0, in_kernel: bool = False) -> None:
        super().__init__(": ".join(filter(None, (kind, message))))
        self.kind, self.message, self.line, self.lineno, self.in_kernel = kind, message, line, lineno, in_kernel


@dataclass
class Trial:
    """One run of a check: how hard to look, and where its numbers come from.

    The visible check uses the same numbers each time, so that a learner can work on a failing case. Hidden trials take
    fresh secret ones, so that knowing this file does not help. Whoever passes them is asked the visible ones, too.
    """

    number: str
    hidden: bool = False
    student: str = ""  # normalised id, for personal parameters; blank: the demo parameters
    seed: int | None = None
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        if self.seed is None:
            self.seed = secrets.randbits(64) if self.hidden else _seed(self.number)
        self.student = normalise(self.student)
        self.rng = np.random.default_rng(self.seed)

    def pick(self, visible: Any, hidden: Any) -> Any:
        """`hidden` in a hidden trial, else `visible`."""
        return hidden if self.hidden else visible


@dataclass(frozen=True)
class Exercise:
    """A registered check. `number` is "chapter.exercise"; the cells of the notebook are `ex-3-2` and `test-3-2`."""

    number: str
    title: str
    points: float
    run: Callable[[Any, Trial], None]  # the handle on an answer, and the trial

    @property
    def answer_id(self) -> str:
        return f"ex-{self.number.replace('.', '-')}"

    @property
    def test_id(self) -> str:
        return id_of_test(self.number)

    @property
    def draws(self) -> bool:
        """Has each learner numbers of their own in it?"""
        return self.number in drawn(self.number)


def id_of_test(number: str) -> str:
    """The id of the cell that asks for an exercise's check.  >>> id_of_test("3.2")
    'test-3-2'
    """
    return f"test-{number.replace('.', '-')}"


def ended(text: str, mark: str = ":") -> str:
    """A title with a mark behind it; one that asks keeps its own, and is not answered by what follows.

    >>> ended("Is it free?") + " right", ended("Is it free?", ".")
    ('Is it free? – right', 'Is it free?')
    """
    return text + (mark if not text.endswith(("?", "!")) else " –" if mark == ":" else "")


Check = TypeVar("Check", bound=Callable[[Any, Trial], None])
EXERCISES: dict[str, Exercise] = {}  # in course order, whatever the order of registration


def exercise(number: str, title: str, *, points: float) -> Callable[[Check], Check]:
    """Registers the decorated function as the check of an exercise."""
    if not all(part.isdigit() for part in number.split(".")) or number.count(".") != 1:
        raise ValueError(f"exercise {number!r}: its number must be chapter.exercise, such as 3.2")

    def register(run: Check) -> Check:
        if number in EXERCISES and EXERCISES[number].run.__module__ != run.__module__:
            raise ValueError(f"exercise {number} is in {EXERCISES[number].run.__module__} and in {run.__module__}")
        EXERCISES[number] = Exercise(number, title, float(points), run)
        ordered = sorted(EXERCISES.items(), key=lambda item: tuple(map(int, item[0].split("."))))
        EXERCISES.clear()
        EXERCISES.update(ordered)
        return run
    return register


def load(*modules: str) -> dict[str, Exercise]:
    """Imports the modules that register exercises; a package stands for all modules in it. Returns EXERCISES."""
    for name in modules:
        module = importlib.import_module(name)
        for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
            importlib.import_module(found.name)
    return EXERCISES


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
