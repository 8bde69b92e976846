"""selftest: are the checks themselves right? Each planted wrong answer must fail and be told so in fitting words.

Mutants are modules with `WRONG[number]`: (misconception, answer, word that the message must contain), and
`RIGHT[number]`: (style, answer). A prediction's slips (predict.py) are planted wrong answers too. Answers that are
nonsense are tried on every check: a check may not stumble over them.
"""
import importlib
import pkgutil
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from pallas_lite.errors import many

from ..exercise import EXERCISES, Trial, ended, load
from ..sandbox.inside.personal import personal
from .checking import judge
from .handle import LocalHandle
from .predict import PREDICTIONS, collisions, slips
from .result import Result

NONSENSE: dict[str, Any] = {
    "nothing": None, "a hole": ..., "a number": 1, "a negative number": -1.5, "NaN": float("nan"), "true": True,
    "a text": "3",
    "an empty list": [], "an empty tuple": (), "an empty dict": {}, "an array": np.zeros((2, 3)), "an object": object(),
    "a function that does nothing": lambda *_: None, "a function that gives a text": lambda *_: "3",
    "a function that gives NaN": lambda *_: float("nan"), "a function that gives an array": lambda *_: np.zeros((3, 2)),
    "a function that gives its arguments": lambda *a: a, "a function without arguments": lambda: 1,
    "a list of texts": ["a", "b"], "a dict of texts": {"a": "b"}, "a dict of numbers": {"a": 1, 2: 3},
}

LEAST = 3, 1  # planted answers of an exercise: wrong ones, and right ones in another style


def selftest(checks: tuple[str, ...], mutants: str, only: Collection[str] = (),
             say: Callable[[str], None] = lambda line: None) -> list[str]:
    """What is wrong with the checks, or `only` with those of these exercises; one line each."""
    load(*checks)
    wrong, right = planted(mutants)
    problems = [f"planted answers for {n}, which is no exercise" for n in (wrong | right) if n not in EXERCISES]
    if only:
        problems = [f"{n} is no exercise" for n in only if n not in EXERCISES]
    for number, found in EXERCISES.items():
        if only and number not in only:
            continue
        stumbles: dict[str, dict[str, None]] = {}  # how the check itself failed -> on which answers
        found_here: dict[str, None] = {}  # in the notebook's trials and in hidden ones alike: told once
        for hidden in (False, True):
            for what, answer in NONSENSE.items():
                result = _judge(number, answer, hidden)
                if result.verdict == "right":
                    found_here[f"{number}: nonsense passes as an answer: {what}"] = None
                _note(stumbles, result, what)
            for misconception, answer, word in wrong.get(number, []):
                result = _judge(number, answer, hidden)
                if result.verdict not in ("wrong", "error", "broken"):
                    found_here[f"{number}: \"{misconception}\" is {result.verdict} ({result.message})"] = None
                elif result.verdict != "broken" and word.casefold() not in str(result).casefold():
                    found_here[f"{number}: on \"{misconception}\" the message does not speak of {word!r}: "
                               f"{result}"] = None
                _note(stumbles, result, misconception)
            for style, answer in right.get(number, []):
                result = _judge(number, answer, hidden)
                if result.verdict not in ("right", "broken"):
                    found_here[f"{number}: \"{style}\" is right, and was called {result.verdict}: {result}"] = None
                _note(stumbles, result, style)
        problems += [f"{number}: the check itself fails, on {_some(list(on))}: {how}" for how, on in stumbles.items()]
        problems += found_here
        planted_slips = slips(PREDICTIONS[number](personal(number))) if number in PREDICTIONS else []
        problems += [f"{number}: {problem}" for problem in prediction_problems(number)] if planted_slips else []
        counts = len(wrong.get(number, [])) + len(planted_slips), len(right.get(number, []))
        told = f"{many(counts[0], 'wrong answer')}, {many(counts[1], 'right one')}"
        if counts[0] < LEAST[0] or counts[1] < LEAST[1]:
            problems.append(f"{number}: too few answers are planted in {mutants}: {told}. It takes {LEAST[0]} wrong "
                            "ones, each with its misconception, and a right one in another style than the solution's")
        say(f"{number} {ended(found.title)} {told}")
    return problems


def _note(stumbles: dict[str, dict[str, None]], result: Result, what: str) -> None:
    if result.verdict == "broken":  # whose fault that is not, is said to learners; here it is the reader's
        stumbles.setdefault(result.message.partition("fault: ")[2] or result.message, {})[what] = None


def _some(names: list[str]) -> str:
    """>>> _some(["a", "b", "c"])
    '"a" and 2 more answers'
    """
    more = len(names) - 1
    return f'"{names[0]}"' + f" and {many(more, 'more answer')}" * bool(more)


def prediction_problems(number: str, students: int = 300) -> list[str]:
    """What is wrong with a prediction: for many students, no slip is right by chance or is told something else."""
    found = []
    for student in ("", *(f"student {i}" for i in range(students))):
        asked = PREDICTIONS[number](personal(number, student))
        found += [f"for {student!r}, {problem}" for problem in collisions(asked)]
        if student in ("", "student 0", "student 1"):
            found += _judged(number, student, asked)
    return found[:10]  # what one draw has, many have


def _judged(number, student, asked):
    right = [a.value for a in asked]
    tried = _judge(number, right if len(right) > 1 else right[0], True, student)
    if tried.verdict != "right":
        yield f"for {student!r}, the right answer {right} is {tried.verdict}: {tried}"
    for misconception, answer, says in slips(asked):
        tried = _judge(number, answer, False, student)
        if tried.verdict != "wrong" or tried.nudge != says:
            yield f"for {student!r}, \"{misconception}\" is {tried.verdict} ({tried.message} {tried.nudge})"


def planted(package: str) -> tuple[dict[str, list], dict[str, list]]:
    """WRONG and RIGHT of all modules in a package; those of a number that stands in several, together."""
    home = importlib.import_module(package)
    wrong, right = {}, {}
    for name in [package, *(m.name for m in pkgutil.iter_modules(home.__path__, f"{package}."))]:
        module = importlib.import_module(name)
        for all_of, here in (wrong, getattr(module, "WRONG", {})), (right, getattr(module, "RIGHT", {})):
            for number, answers in here.items():
                all_of[number] = [*all_of.get(number, []), *answers]
    return wrong, right


def _judge(number: str, answer: Any, hidden: bool, student: str = "") -> Result:
    return judge(EXERCISES[number], LocalHandle(answer), Trial(number, hidden, student))
