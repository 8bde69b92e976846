"""earlier: what a results folder has of other PATHs than those that a run grades, and what becomes of that.

Of a part of the same PATHs (one student of a class), the other rows stay. Others give way, and nobody has to find that
out alone: it is said then, and whenever these results are read. Next: report.py, which reads and writes them.
"""
import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pallas_lite.errors import many

from ..commandline import typed
from ..course.release import Course
from .grade import Report
from .submissions import Submission, find, natural, some
from .transplant import tails


@dataclass(frozen=True)
class Earlier:
    """What a run finds, and leaves. `remark`: whose results give way to its own, in words; `gives_way`: how many."""

    paths: list[str]  # what the results are of, once the run has written them
    kept: list[Report] = field(default_factory=list)
    missing: int = 0  # submissions beside this run's that have no row
    course: dict[str, str] | None = None  # what the kept rows are marks of
    remark: str = ""
    gives_way: int = 0

    def among(self, reports: Iterable[Report]) -> Iterable[Report]:
        """These reports with the rows that stay, in order."""
        return sorted([*self.kept, *reports], key=lambda r: natural(r.student)) if self.kept else reports


def look(folder: Path, paths: list[str], submissions: list[Submission],
         course: Course) -> tuple[Earlier, list[Submission]]:
    """What is in a results folder, for a run on these paths; and its submissions, called as among all others there."""
    asked = sorted({os.path.abspath(path) for path in paths})
    before, remark = _head(folder)
    if not before or before == asked:
        return Earlier(asked, remark=remark), submissions
    if all(_inside(path, asked) for path in before):  # a student before, the class now
        return Earlier(asked), submissions
    try:
        data = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        old = [Report.from_plain(r) for r in data["submissions"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged: there is nothing to keep
        return Earlier(asked), submissions
    there = all(map(os.path.lexists, before))
    everybody = find(before, course) if there else []
    now = {_key(s) for s in submissions}
    here, others = ([s for s in everybody if (_key(s) in now) is among] for among in (True, False))
    if len(here) == len(now) and all(_inside(path, before) for path in asked):
        rows = {(s.student, *_files(s)) for s in others}
        twice = {s.student for s in here}
        students = {s.student for s in others}
        kept = [r for r in old if r.student in students - twice or (r.student, *r.files) in rows]
        missing = len(students - {r.student for r in kept})
        return Earlier(before, kept, missing, dict(data.get("course", {}))), here
    where = some([os.path.relpath(p) if _inside(p, [os.getcwd()]) else p for p in before])
    remark = f"these results took the place of those of {many(len(old), 'submission')} in {where}"
    if there:
        remark += f"; `{typed('grade', *before, '--out', folder)}` brings those back, from what is kept of them"
    return Earlier(asked, remark=remark, gives_way=len(old)), submissions


def _head(folder: Path) -> tuple[list[str], str]:
    """The paths that results are of, and their remark; nothing if there are none. Reads their first line alone."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        with (folder / "results.json").open(encoding="utf-8") as file:
            head = json.loads(file.readline().rstrip().removesuffix(",") + "}")
        return sorted(map(str, head["paths"])), str(head["remark"])
    return [], ""


def _inside(path: str, places: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(place) for place in places)


def _key(submission: Submission) -> tuple[str, ...]:
    return submission.student, *map(os.path.abspath, submission.paths)


def _files(submission: Submission) -> list[str]:
    """What a report calls the files of a submission."""
    own = [] if submission.problem else submission.names or tails(submission.paths)
    return [*own, *(name for name, _ in submission.lost)]
