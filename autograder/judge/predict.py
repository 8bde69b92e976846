"""predict: exercises that ask for numbers or words, with numbers drawn for each learner.

    @predict("7.1", "Time and bound", points=2)
    def time_and_bound(p):                                   # p: what draws/chapter7.py drew
        fill, steps = p.alpha + p.X / p.beta, p.N * p.Y / p.F
        return [Asked("The time", "µs", (fill + steps) * 1e6, [
                    ("the first copy costs nothing", steps * 1e6, "Before the first step can run, its block …")]),
                Asked("The bound", "", "compute", [("more bytes mean bandwidth-bound", "bandwidth", "Compare …")])]

Each slip is a planted wrong answer: its misconception, the value that it gives, and the sentence that helps. A failing
prediction says high or low, and that sentence, never the value. selftest.py proves, for many students, that no slip
comes near the right answer or another slip. Next: sandbox/inside/personal.py.
"""
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ..exercise import Trial, Wrong, exercise
from ..sandbox.inside.personal import personal
from .handle import Handle, close, kind_of, so_many, word

Ask = Callable[[SimpleNamespace], "list[Asked]"]
PREDICTIONS: dict[str, Ask] = {}


@dataclass(frozen=True)
class Asked:
    """One thing to predict. `value`: a number in `unit`, or a word. `slips`: (misconception, value, what to say)."""

    what: str
    unit: str
    value: float | str
    slips: list[tuple[str, float | str, str]] = field(default_factory=list)
    tolerance: float = 0.01  # relative; 0: exact
    nudge: str = ""  # for a wrong answer that is no known slip


def predict(number: str, title: str, *, points: float,
            show: Callable[[SimpleNamespace], str] | None = None) -> Callable[[Ask], Ask]:
    """Registers the decorated function, from personal numbers to what is asked, as the check of an exercise.

    `show` puts the numbers into words for a failing check; by default it lists them by name.
    """
    def register(ask: Ask) -> Ask:
        def run(answer: Handle, trial: Trial) -> None:
            p = personal(number, trial.student)
            case = show(p) if show else ", ".join(f"{k} = {_text(v)}" for k, v in vars(p).items())
            judge(answer.value(), ask(p), case)
        run.__module__ = ask.__module__  # an exercise belongs to the module that declares it
        exercise(number, title, points=points)(run)
        PREDICTIONS[number] = ask
        return ask
    return register


def judge(given: Any, asked: list[Asked], case: str) -> None:
    """Raises Wrong for the first part of a prediction that is not right."""
    parts = so_many(given, len(asked))
    if parts is None and len(asked) == 1 and not isinstance(given, (tuple, list)):
        parts = [given]
    if parts is None:
        units = [f" ({a.unit})" if a.unit and a.unit not in a.what else "" for a in asked]
        wanted = ", then ".join(a.what[0].lower() + a.what[1:] + unit for a, unit in zip(asked, units, strict=True))
        how_many = f"{len(asked)} answers in a row" if len(asked) > 1 else "one answer"
        raise Wrong(f"The prediction should hold {how_many}: {wanted}.", case=case, got=kind_of(given))
    for part, a in zip(parts, asked, strict=True):
        if isinstance(a.value, str):
            _word(part, a, case)
        else:
            close(part, a.value, a.unit, a.tolerance or 1e-9, what=a.what, case=case, nudge=a.nudge,
                  slips={value: says for _, value, says in a.slips if not isinstance(value, str)})


def _word(given: Any, a: Asked, case: str) -> None:
    if not isinstance(given, str):
        raise Wrong(f"{a.what} should be a word in quotes; it is {kind_of(given)}.", case=case)
    if word(given) != a.value:
        nudge = next((says for _, value, says in a.slips if value == word(given)), a.nudge)
        raise Wrong(f"{a.what} is not right.", got=given, case=case, nudge=nudge)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def slips(asked: list[Asked]) -> list[tuple[str, Any, str]]:
    """Every planted wrong answer: (misconception, the whole answer with that one slip in it, what is said of it)."""
    right = [a.value for a in asked]
    found = []
    for place, a in enumerate(asked):
        for misconception, value, says in a.slips:
            parts = [*right[:place], value, *right[place + 1:]]
            found.append((misconception, parts[0] if len(parts) == 1 else tuple(parts), says))
    return found


def collisions(asked: list[Asked]) -> list[str]:
    """The slips that come too near to the right answer, or to a slip of which something else is said."""
    found = []
    for a in asked:
        known = [("the right answer", a.value, "")]
        for slip in a.slips:
            for name, value, says in known:
                near = value == slip[1] if isinstance(value, str) or isinstance(slip[1], str) else \
                    abs(value - slip[1]) <= 2 * a.tolerance * max(abs(value), abs(slip[1])) + 1e-9
                if near and says != slip[2]:
                    found.append(f"{a.what}: {slip[0]!r} gives {slip[1]:.6g}, as does {name!r}"
                                 if not isinstance(slip[1], str) else f"{a.what}: {slip[0]!r} is {name!r}")
            known.append(slip)
    return found
