"""personal: the numbers of a prediction, drawn for one learner. In: exercise and student id. Out: the numbers.

Both sides draw with these lines: the notebook shows the numbers, the check (judge/predict.py) knows the answer to them.
What there is to draw stands in draws/, one file a chapter.
"""
import unicodedata
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any


def personal(number: str, student: Any = "") -> SimpleNamespace:
    """The numbers that exercise `number` gives to `student`: the same each time, others for another student.

    Upper or lower case and blanks around an id do not matter. Raises ValueError if the exercise draws nothing.
    """
    if not isinstance(number, str):
        raise ValueError(f'the number of the exercise is in quotes: personal("{number}", STUDENT)')
    chapter, draws = number.partition(".")[0], drawn(number)
    if number not in draws:
        raise ValueError(f"exercise {number} has no numbers of your own" +
                         (f"; in chapter {chapter}, these have: {', '.join(draws)}" if draws else ""))
    return SimpleNamespace(**draws[number](Random(f"{normalise(student)}/{number}")))


def drawn(number: str) -> dict[str, Any]:
    """What there is to draw in the chapter of an exercise: number -> function of a random generator."""
    try:
        return import_module(f".draws.chapter{number.partition('.')[0]}", __package__).DRAWS
    except ModuleNotFoundError:
        return {}


def normalise(student: Any) -> str:
    """A student's id as it is compared: no blanks around, lower case.  >>> normalise(" S123 ")
    's123'

    An accent may be a part of its letter or a sign behind it, as in names of folders from macOS: that is one id.
    """
    text = unicodedata.normalize("NFD", str(student).strip()).casefold() if student else ""
    # Half of a surrogate pair is a text that nothing can be drawn from.
    return unicodedata.normalize("NFC", text).encode("utf-8", "replace").decode()
