"""export: reports -> the files that others read: a plain CSV, Canvas, Gradescope, nbgrader's own export.

Each format is a function from reports to file name -> text, and FORMATS names them. A mark that is not known (the
grader's fault, a file that could not be read) is an empty cell everywhere, never a 0. All that a student may have
written is a text in a spreadsheet, never a formula.
"""
import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..commandline import typed
from ..course.release import Course
from ..exercise import EXERCISES
from ..grading.by_hand import ByHand
from ..grading.grade import Mark, Report, clean
from ..grading.report import cell, exercises_of, in_a_row, note
from ..grading.submissions import some
from ..grading.transplant import TWO_COPIES
from ..sandbox.inside.personal import normalise
from .feedback import folder_name, said

Files = dict[str, str]  # relative path -> text
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
NBGRADER = ("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
            "late_submission_penalty", "score", "max_score")


class RosterError(Exception):
    """The roster cannot be used. The text says why."""


@dataclass(frozen=True)
class Roster:
    """Who is who: the name under which a student's work came in -> that student's row in a CSV file."""

    rows: dict[str, dict[str, str]]

    def of(self, students: Iterable[str]) -> "Roster":
        """That of these students. Upper or lower case, or how an accent is written, makes no other student of one.

        But where two rows or two students could be meant, only a row with the very name is a student's.
        """
        alike: dict[str, list[str]] = {}
        for name in self.rows:
            alike.setdefault(normalise(name), []).append(name)
        students = set(students)
        several = Counter(map(normalise, students))
        found = {}
        for s in students:
            names = [s] if several[normalise(s)] > 1 or s in self.rows else alike.get(normalise(s), [])
            if len(names) == 1 and names[0] in self.rows:
                found[s] = self.rows[names[0]]
        return Roster(found)

    def get(self, student: str, *columns: str) -> str:
        """The first of these columns that the student's row has."""
        row = self.rows.get(student, {})
        return next((row[c] for c in columns if row.get(c)), "")


def read_roster(path: Path | None) -> Roster:
    """A CSV file with a column `student`, the name under which work came in; in Canvas's own export, `SIS Login ID`.

    The columns that a format names are used: Canvas's five, or last_name, first_name and email.
    """
    if path is None:
        return Roster({})
    try:
        text = path.read_text(encoding="utf-8-sig")
        first = text.partition("\n")[0]
        between = ";" if first.count(";") > first.count(",") else ","  # as Excel has it where , is in numbers
        rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True, delimiter=between))
        key = next((k for k in ("student", "SIS Login ID") if rows and k in rows[0]), "")
    except FileNotFoundError:
        raise RosterError(f"there is no file {path}, which should be the roster") from None
    except UnicodeDecodeError:
        raise RosterError(f"the roster {path} cannot be read: it is no text in UTF-8. Save it as CSV in "
                          "UTF-8") from None
    except (OSError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RosterError(f"the roster {path} cannot be read: {reason}") from None
    if not key:
        raise RosterError(f"the roster {path} needs a column `student` (or Canvas's `SIS Login ID`) with the names "
                          "under which work came in, and at least one row")
    found = [(row.get(key) or "").strip() for row in rows]
    twice = sorted({name for name in found if name and found.count(name) > 1})
    if twice:
        raise RosterError(f"the roster {path} has {', '.join(twice)} more than once")
    return Roster({name: {k: (v or "").strip() for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
                   for name, row in zip(found, rows, strict=True) if name})


def as_csv(reports: list[Report], course: Course, roster: Roster) -> Files:
    """A row for each student and exercise: to be sorted, filtered and summed in any program."""
    where = {t.number: (n.unit, n.name) for n in course.notebooks for t in n.tests.values()}
    rows = [["student", "unit", "notebook", "exercise", "title", "points", "max_points", "verdict", "message",
             "status", "files"]]
    for r in reports:
        for number, m in r.marks.items():
            by_hand = [m.said()] if isinstance(m, ByHand) else []
            message = in_a_row(filter(None, [*by_hand, m.message if m.verdict != "right" else ""]))
            rows.append([r.student, *where.get(number, ("", "")), number, _title(number), _points(m.points),
                         f"{m.max_points:g}", m.verdict, message, r.status, " ".join(r.files)])
        if not r.marks:
            rows.append([r.student, "", "", "", "", "", "", "", note(r), r.status, " ".join(r.files)])
    return {"grades.csv": "\ufeff" + _rows(rows)}  # the mark by which Excel knows UTF-8


def as_canvas(reports: list[Report], course: Course, roster: Roster) -> Files:
    """Canvas's gradebook import: a column for each unit, and the row `Points Possible` below the header.

    Possible are the points of the notebooks that anyone handed in. Canvas finds a student by ID, SIS User ID or SIS
    Login ID. Without a roster the student's name is the login. An empty cell leaves the grade in Canvas as it is.
    """
    units = _units(reports, course, set(exercises_of(reports)))
    rows = [[*CANVAS, *units], ["    Points Possible", "", "", "", "", *(f"{most:g}" for most in units.values())]]
    for r in reports:
        ids = {c: roster.get(r.student, c) for c in CANVAS}
        ids["Student"] = ids["Student"] or r.student
        if not (ids["ID"] or ids["SIS User ID"]):
            ids["SIS Login ID"] = ids["SIS Login ID"] or r.student
        rows.append([*ids.values(), *(_points(_sum(r, course, unit)) for unit in units)])
    return {"canvas.csv": _rows(rows)}


def as_gradescope(reports: list[Report], course: Course, roster: Roster) -> Files:
    """Gradescope's results.json for each student: what its autograder harness expects in /autograder/results.

    A student sees there what the feedback page says without --reveal; the hidden trial itself stays with the teacher.
    Gradescope takes the sum of the tests for the score. Where a mark is not known, the text says that it is not in it.
    """
    files = {}
    for r in reports:
        tests = [{"number": number, "name": _title(number), "score": m.points, "max_score": m.max_points,
                  "output": said(m), "output_format": "text", "visibility": "visible",
                  "status": "passed" if m.verdict == "right" else "failed"}
                 for number, m in r.marks.items() if m.points is not None]
        plain = {"output": "\n".join(map(clean, r.warnings)), "execution_time": r.seconds, "visibility": "visible",
                 "stdout_visibility": "hidden", "tests": tests}
        if tests and (unknown := _unknown(r)):
            plain["output"] += f"\nNo mark yet for {', '.join(unknown)}: the score is the sum of the others."
        if not tests:  # Gradescope wants a score, and nothing is known: it shows the text to the teacher alone
            plain |= {"score": 0.0, "visibility": "hidden", "output": f"not graded ({r.status}): {plain['output']}"}
        name = folder_name(r.student)
        while f"{name}/results.json" in files:
            name += "_"
        files[f"{name}/results.json"] = json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    return files


def as_nbgrader(reports: list[Report], course: Course, roster: Roster) -> Files:
    """The columns of `nbgrader export`, a row for each unit and student, in its order.

    What only the gradebook knows is empty or 0 here: dates and penalties. `nbgrader export` has those.
    """
    rows = [list(NBGRADER)]
    for unit, most in _units(reports, course).items():
        for r in sorted(reports, key=lambda r: r.student):
            score = _sum(r, course, unit)
            shown = "" if score is None else str(float(score))
            rows.append([unit, "", "", r.student, roster.get(r.student, "last_name"),
                         roster.get(r.student, "first_name"), roster.get(r.student, "email"), shown,
                         "" if score is None else "0.0", shown, str(float(most))])
    return {"nbgrader.csv": _rows(rows)}


FORMATS: dict[str, Callable[[list[Report], Course, Roster], Files]] = {
    "csv": as_csv, "canvas": as_canvas, "gradescope": as_gradescope, "nbgrader": as_nbgrader}


def _title(number: str) -> str:
    """The exercise's title; its number, if the course has lost it since it was graded."""
    return EXERCISES[number].title if number in EXERCISES else number


def _unknown(report: Report) -> list[str]:
    return [number for number, m in report.marks.items() if m.points is None]


def _why(report: Report) -> str:
    """Why marks of a report are not known, and how to go on."""
    causes = [m.message for m in report.marks.values() if m.points is None] or report.warnings
    do = ("Ask for the file once more, grade it and export again" if report.status == "unreadable" else
          f"That is the grader's own fault: see `{typed('doctor')}`, grade and export again")
    why = in_a_row(clean(c, 200) for c in dict.fromkeys(causes)) or report.status
    return f"{why.removesuffix('.')}. {do}"


def summed(reports: list[Report]) -> list[str]:
    """Whose score in Gradescope will be a sum of some marks only, or of none, since others are not known, in words."""
    return [f"{clean(r.student)}: no mark is known for {', '.join(unknown)}. Gradescope will show the sum of the "
            f"others as the score. {_why(r)}" if len(unknown) < len(r.marks) else
            f"{clean(r.student)}: no mark is known. Gradescope gets a 0, which it shows to you alone. {_why(r)}"
            for r in reports if (unknown := _unknown(r)) or not r.marks]


def empty(reports: list[Report], course: Course) -> list[str]:
    """Whose cells are empty because a mark is not known, in words: else nobody would see it among hundreds."""
    found, all_units = [], _units(reports, course)
    for r in reports:
        units = [unit for unit in all_units for n in course.notebooks if n.unit == unit and any(
            t.number in r.marks and r.marks[t.number].points is None for t in n.tests.values())]
        if units or not r.marks:
            where = (f"the cell of {' and of '.join(dict.fromkeys(units))} is empty, since not all its marks are known"
                     if units else "every cell is empty, since no mark is known")
            found.append(f"{clean(r.student)}: {where}. {_why(r)}")
    return found


def partial(reports: list[Report], course: Course) -> list[str]:
    """Who handed in some notebooks of a unit alone, so that no mark is known of the others, in words."""
    found: dict[tuple[str, str], list[str]] = {}
    for unit in _units(reports, course):
        notebooks = {n.name: {t.number for t in n.tests.values()} for n in course.notebooks if n.unit == unit}
        for r in reports:
            here = [name for name, numbers in notebooks.items() if numbers & r.marks.keys()]
            if here and any(numbers and not numbers & r.marks.keys() for numbers in notebooks.values()):
                found.setdefault((unit, " and ".join(here)), []).append(clean(r.student))
    return [f"{', '.join(who[:3])}{f' and {len(who) - 3} more' * (len(who) > 3)}: only {what} of {unit} was handed in, "
            "and the points are of that alone" for (unit, what), who in found.items()]


def uneven(reports: list[Report]) -> list[str]:
    """The exercises that are worth more to some than to others, in words: these were graded on different releases."""
    worth: dict[str, dict[float, list[str]]] = {}
    for r in reports:
        for number, m in r.marks.items():
            worth.setdefault(number, {}).setdefault(m.max_points, []).append(clean(r.student))
    return [f"{number} is worth {' and '.join(f'{p:g} to {some(who)}' for p, who in sorted(found.items()))}: they were "
            f"graded on different releases, and {max(found):g} is what counts as possible. Grade all again for marks "
            "that can be compared" for number, found in worth.items() if len(found) > 1]


def copies(reports: list[Report]) -> list[str]:
    """Who handed in a notebook twice, so that one of the two has no mark, in words."""
    return [f"{clean(r.student)}: {clean(w)}. If another one counts, take this one away, and grade again"
            for r in reports for w in r.warnings if TWO_COPIES.split("{}")[2] in w]


def _units(reports: list[Report], course: Course, among: set[str] | None = None) -> dict[str, float]:
    """The units that any report has marks of -> the points of all their exercises, or of those `among` these.

    They are the points that these marks are out of, which may be an earlier release's: nobody has more than all.
    """
    seen = set(exercises_of(reports))
    worth: dict[str, float] = {}
    for r in reports:
        for number, m in r.marks.items():
            worth[number] = max(m.max_points, worth.get(number, 0.0))
    found: dict[str, float] = {}
    for n in course.notebooks:
        if any(t.number in seen for m in course.notebooks if m.unit == n.unit for t in m.tests.values()):
            found[n.unit] = found.get(n.unit, 0.0) + sum(
                worth.get(t.number, t.points) for t in n.tests.values() if among is None or t.number in among)
    return found


def _sum(report: Report, course: Course, unit: str) -> float | None:
    """The points of a unit; None if there are none, or if one is not known."""
    marks: list[Mark] = [report.marks[t.number] for n in course.notebooks if n.unit == unit
                         for t in n.tests.values() if t.number in report.marks]
    points = [m.points for m in marks]
    return None if not points or None in points else sum(points)


def _points(points: float | None) -> str:
    return "" if points is None else f"{points:g}"


def _rows(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([list(map(cell, row)) for row in rows])
    return out.getvalue()
