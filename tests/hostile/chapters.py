"""The little course twenty times over, as chapters 90 to 109, so that one student can hand in twenty notebooks.

A sandbox takes longer to start than a notebook to grade, and each student has one. The grader imports this as checks.

Chapter 89 has exercises of the real course many times over, for the answers of knowing.py.
"""
from pathlib import Path

import nbformat

from autograder.exercise import EXERCISES, exercise, load

from ..autograder import little_course as little
from . import knowing

CHAPTERS = range(90, 110)


def as_chapter(data: bytes, chapter: int) -> bytes:
    """A notebook of chapter 90 as one of another chapter, whatever its encoding: ids, test cells, and its name."""
    for before in ("-90-", '(\\"90.', "90_little"):
        after = before.replace("90", str(chapter))
        for encoding in ("utf-8", "utf-16-le"):
            data = data.replace(before.encode(encoding), after.encode(encoding))
    return data


def number_in(number: str, chapter: int) -> str:
    return number.replace("90", str(chapter), 1)


def release(folder: Path) -> None:
    """Writes the released notebooks, each in a unit of its own, so that none is missed where one is handed in."""
    data = nbformat.writes(little.notebook()).encode()
    for chapter in CHAPTERS:
        path = folder / f"unit{chapter}" / as_chapter(f"{little.NAME}.ipynb".encode(), chapter).decode()
        path.parent.mkdir()
        path.write_bytes(as_chapter(data, chapter))
    knowing.write({}, folder / "unit89" / f"{knowing.NAME}.ipynb")


def _register(number: str, like: str, points: float | None = None) -> None:
    """Another exercise with the check of one that there is. It belongs to this module, and not to the course."""
    found = EXERCISES[like]

    def run(answer, trial):
        found.run(answer, trial)
    exercise(number, found.title, points=points or found.points)(run)


load("autograder.checks.chapter1", "autograder.checks.chapter3")
for _number, _like in knowing.NUMBERS.items():
    _register(_number, _like, 1)
for _chapter in CHAPTERS[1:]:
    for _like in little.STUBS:
        _register(number_in(_like, _chapter), _like)
