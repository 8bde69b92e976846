"""progress: which exercises are done, by unit. `check` notes what it found right; `progress()` shows it.

Kept in one small file of the user's state directory, so that a restart, another copy of the notebook or a new kernel
changes nothing. Only the learner's own view: no mark comes from here.
"""
import contextlib
import html
import json
import os
import tempfile
from pathlib import Path

import platformdirs

from ..exercise import EXERCISES, Exercise, ended
from .result import shell


def file() -> Path:
    """Where it is kept; PALLAS_LITE_STATE names another folder."""
    return Path(os.environ.get("PALLAS_LITE_STATE") or platformdirs.user_state_dir("pallas_lite")) / "progress.json"


def done() -> set[str]:
    """The numbers of the exercises that were right once. A file that cannot be read counts as none."""
    try:
        told = json.loads(file().read_text(encoding="utf-8"))
        return {number for number in told["done"] if isinstance(number, str)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def note(number: str) -> None:
    """Remembers that an exercise is right. Nothing that goes wrong here may reach the learner."""
    if not _in_notebook():
        return
    with contextlib.suppress(OSError):
        known = done()
        if number in known:
            return
        file().parent.mkdir(parents=True, exist_ok=True)
        # Written beside it and moved: two notebooks at once may lose a note, never the file.
        with tempfile.NamedTemporaryFile("w", dir=file().parent, delete=False, encoding="utf-8") as fresh:
            json.dump({"done": sorted(known | {number}, key=_place)}, fresh)
        os.replace(fresh.name, file())


def chapter(e: Exercise) -> str:
    return e.number.partition(".")[0]


def progress() -> "Progress":
    """What is done and what comes next, by unit and chapter; shows itself as the last line of a cell."""
    # Late: it reads notebooks, and what that takes would add half as much again to the start of every chapter.
    from ..course.release import Course, CourseError
    try:
        units: dict[str, list[Exercise]] = {n.unit: [] for n in Course().notebooks}
        for notebook in Course().notebooks:
            units[notebook.unit] += [EXERCISES[t.number] for t in notebook.tests.values()]
    except CourseError:  # no release at hand: by chapter
        units = {}
        for found in EXERCISES.values():
            units.setdefault(f"chapter {chapter(found)}", []).append(found)
    return Progress(units, done())


class Progress:
    """The table that `progress()` returns. `units`: name -> its exercises; `done`: numbers."""

    def __init__(self, units: dict[str, list[Exercise]], done: set[str]):
        self.units, self.done = units, done

    @property
    def next(self) -> Exercise | None:
        """The first that is not done, of the last chapter that is begun; else after the last that is done; else of all.

        Each chapter stands alone, and whoever began with a late one does not want to be sent to the first.
        """
        every = [e for exercises in self.units.values() for e in exercises]
        done = [e.number in self.done for e in every]
        begun = {chapter(e) for e, is_done in zip(every, done, strict=True) if is_done}
        left = [e for e, is_done in zip(every, done, strict=True) if not is_done]
        if here := [e for e in left if chapter(e) in begun]:
            return next(e for e in here if chapter(e) == chapter(here[-1]))
        later = every[max((i + 1 for i, is_done in enumerate(done) if is_done), default=0):]
        return next(iter(later or left), None)

    def rows(self) -> list[tuple[str, str, str]]:
        """Unit, one sign for each exercise (chapters parted by a blank), and how many of them are done."""
        found = []
        for unit, exercises in self.units.items():
            signs, now = "", ""
            for e in exercises:
                before, now = now, chapter(e)
                signs += (" " if before not in ("", now) else "") + "□■"[e.number in self.done]
            found.append((unit, signs, f"{sum(e.number in self.done for e in exercises)} of {len(exercises)}"))
        return found

    def words(self) -> str:
        if self.next is None:
            return "All done. Well done!"
        return f"Next: exercise {self.next.number}, {ended(self.next.title, '.')}"

    def __repr__(self) -> str:
        rows = self.rows()
        wide = [max(len(row[i]) for row in rows) for i in range(2)] if rows else [0, 0]
        return "\n".join([f"{unit:{wide[0]}}  {signs:{wide[1]}}  {count}" for unit, signs, count in rows]
                         + [self.words()])

    def _repr_html_(self) -> str:
        cell = '<td style="text-align:left;padding:2px 12px 2px 0'
        rows = "".join(f'<tr>{cell}">{html.escape(unit)}</td>{cell};letter-spacing:2px" aria-hidden="true">{signs}</td>'
                       f'{cell}">{count} done</td></tr>' for unit, signs, count in self.rows())
        return f'<table style="margin:0;color:inherit">{rows}</table><p style="margin:4px 0">{self.words()}</p>'


def _place(number: str) -> tuple:
    return tuple(int(part) if part.isdigit() else 0 for part in number.split("."))


def _in_notebook() -> bool:
    """Whether a learner's kernel runs this: grading, tests and terminals note nothing."""
    return hasattr(shell(), "kernel")
