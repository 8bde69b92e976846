"""gradebook: reports -> nbgrader's gradebook, by nbgrader's own API. What Formgrader and `nbgrader export` then read.

One writer, and a student's marks are there whole or not at all. What a person gave in Formgrader stays: points, extra
credit, comments. Next: shown.py, the notebooks that Formgrader shows beside the marks.
"""
import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy
from nbformat import v4
from nbgrader.api import (
    Assignment,
    Comment,
    Grade,
    Gradebook,
    InvalidEntry,
    MissingEntry,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.apps import NbGrader
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties, SaveCells
from nbgrader.utils import parse_utc
from traitlets.config import Application

from ..course.environment import PUT_BACK, Emptied, environment, make_private, scripts_on_path
from ..course.release import PACKAGE, Course, Notebook
from ..grading.by_hand import Given
from ..grading.grade import Mark, Report, clean
from ..grading.report import in_a_row, per_student
from ..grading.transplant import MOST_STAMP, Unreadable, load

Times = dict[tuple[str, str], datetime]  # when a student handed in a unit: UTC, without a time zone, as nbgrader has it


class GradebookError(Exception):
    """The gradebook cannot be opened or written. The text says why; nothing but the gradebook is concerned.

    `do`: what to do before it is tried again. `lost`: whether what was given by hand may be gone.
    """

    def __init__(self, why: str, do: str = "", lost: bool = False):
        super().__init__(why)
        self.do, self.lost = do, lost


@dataclass
class Written:
    """What became of the reports. `left_out`: those without marks, or without some, and why they have none."""

    students: int = 0
    changed: int = 0
    left_out: list[str] = field(default_factory=list)


def write(reports: list[Report], url: str, course: Course, times: Times | None = None, config: Any = None) -> Written:
    """Writes all marks that are known. Twice the same changes nothing. Raises GradebookError.

    `config`: nbgrader's settings, for the penalty that a late submission gets.
    """
    written, late = Written(), []
    with opened(url) as gradebook:
        enter(gradebook, url, course, {n for r in reports for n in r.marks})
        gradebook.db().expire_on_commit = False  # nobody else changes the release's cells meanwhile
        for report in per_student(reports):
            unknown = [number for number, m in report.marks.items() if m.points is None]
            if len(unknown) < len(report.marks):
                written.students += 1
                written.changed += _write(gradebook, report, course, times or {}, late)
            if unknown or not report.marks:
                some = f", exercises {', '.join(unknown)}" if 0 < len(unknown) < len(report.marks) else ""
                causes = [m.message for m in report.marks.values() if m.points is None] or report.warnings
                why = in_a_row(clean(cause, 200) for cause in dict.fromkeys(causes))
                written.left_out.append(f"{report.student}{some} ({report.status}: {why})")
    for resources in late:  # by nbgrader's own step and the instructor's own rule; it opens the gradebook itself
        AssignLatePenalties(config=config).preprocess(v4.new_notebook(), {"nbgrader": {**resources, "db_url": url}})
    return written


def _write(gradebook: Gradebook, report: Report, course: Course, times: Times, late: list[dict]) -> bool:
    """One student's marks, a unit in one transaction. Whether anything changed; adds what was handed in late."""
    student, changed = name_of(report.student), False
    try:
        gradebook.find_student(student)
    except MissingEntry:
        gradebook.add_student(student)
    for unit in sorted({n.unit for n in course.notebooks if _has(n, report)}):
        try:
            submission, fresh = gradebook.find_submission(unit, student), False
        except MissingEntry:
            with gradebook.db.no_autoflush:  # what nbgrader adds is not whole yet when it looks at it
                submission, fresh = gradebook.add_submission(unit, student), True
        released = {n.name: n for n in course.notebooks if n.unit == unit and _has(n, report)}
        with gradebook.db.no_autoflush:
            submission.timestamp = times.get((report.student, unit), submission.timestamp)
            for notebook in submission.notebooks:
                if notebook.name in released:
                    enter_marks(notebook, released[notebook.name], report.marks)
                elif fresh:  # not handed in, or not yet: there is nothing to look at
                    for grade in notebook.grades:
                        grade.needs_manual_grade = False
            changed |= fresh or any(map(gradebook.db.is_modified, gradebook.db.dirty))
        gradebook.db.commit()
        if submission.total_seconds_late > 0 or any(n.late_submission_penalty for n in submission.notebooks):
            late += [{"notebook": n.name, "assignment": unit, "student": student} for n in submission.notebooks]
    return changed


def _has(notebook: Notebook, report: Report) -> bool:
    return any(test.number in report.marks for test in notebook.tests.values())


def enter_marks(notebook: Any, released: Notebook, marks: dict[str, Mark]) -> None:
    """The marks of one SubmittedNotebook. One that is not known (unreadable, our fault) leaves what was there."""
    grades = {grade.name: grade for grade in notebook.grades}
    comments = {comment.name: comment for comment in notebook.comments}
    for cell, test in released.tests.items():
        mark = marks.get(test.number)
        if mark is None or mark.points is None:
            continue
        grade, comment = grades[cell], comments.get(test.answer_id)
        changed, grade.auto_score = grade.auto_score != mark.points, mark.points
        # A person's points count. They are looked at again only if what they were given for is not what it was.
        if grade.manual_score is None:
            grade.needs_manual_grade = False
        elif changed:
            grade.needs_manual_grade = True
        if comment is not None:
            comment.auto_comment = "No response." if mark.verdict in ("not done", "missing") else None


def enter(gradebook: Gradebook, url: str, course: Course, numbers: set[str]) -> None:
    """Makes sure that the gradebook knows these exercises: a new database is filled from the release."""
    for notebook in course.notebooks:
        tests = {cell for cell, test in notebook.tests.items() if test.number in numbers}
        with contextlib.suppress(MissingEntry):
            found = gradebook.find_notebook(notebook.name, notebook.unit)
            if tests <= {cell.name for cell in found.grade_cells}:
                continue
        resources = {"nbgrader": {"notebook": notebook.name, "assignment": notebook.unit, "db_url": url}}
        gradebook.update_or_create_assignment(notebook.unit)
        try:
            SaveCells().preprocess(v4.new_notebook(cells=list(notebook.cells)), resources)
        except RuntimeError as error:
            raise GradebookError(f"the gradebook has another {notebook.unit}/{notebook.name} than the release: {error}."
                                 " Export its grades, move it aside, and build the course again") from None
        gradebook.db.expire_all()


def scores(url: str) -> dict[tuple[str, str], dict[str, float | None]]:
    """(student, unit) -> the score of each test cell as the gradebook has it, a person's points included."""
    with opened(url) as gradebook:
        return {(s.student.id, s.assignment.name): {g.name: g.score for n in s.notebooks for g in n.grades}
                for s in gradebook.db.query(SubmittedAssignment).join(Assignment).all()}


def given_by_hand(url: str, course: Course) -> tuple[dict[str, dict[str, Given]], list[str]]:
    """What people gave in Formgrader: student -> exercise -> that; and from whom points are taken for being late."""
    found: dict[str, dict[str, Given]] = {}
    if url.startswith("sqlite:///") and not os.path.exists(url.removeprefix("sqlite:///")):
        return found, []  # to look into it would make it
    numbers = {(n.unit, n.name, cell): t.number for n in course.notebooks for c, t in n.tests.items()
               for cell in (c, t.answer_id)}

    def enter_given(of: Grade | Comment, **what: Any) -> None:
        notebook = of.notebook
        if number := numbers.get((notebook.assignment.assignment.name, notebook.name, of.name)):
            here = found.setdefault(notebook.assignment.student.id, {})
            here[number] = replace(here.get(number, Given()), **what)
    with opened(url, "read") as gradebook:
        for g in gradebook.db.query(Grade).filter(Grade.manual_score.isnot(None) | (Grade.extra_credit != 0)):
            enter_given(g, points=g.manual_score, extra=g.extra_credit or 0.0)
        for c in gradebook.db.query(Comment).filter(Comment.manual_comment.isnot(None)):
            enter_given(c, comment=c.manual_comment)
        late = {n.assignment.student.id for n in gradebook.db.query(SubmittedNotebook).filter(
            SubmittedNotebook.late_submission_penalty > 0)}
    return found, sorted(late)


def name_of(student: str) -> str:
    """The student's id in the gradebook: a folder's name may hold bytes that no database takes."""
    return student.encode("utf-8", "replace").decode()


@contextlib.contextmanager
def opened(url: str, what: str = "written") -> Iterator[Gradebook]:
    """nbgrader's gradebook, to be read or written; whatever is wrong with it is a GradebookError."""
    loud = logging.getLogger("tornado.application")  # nbgrader logs a traceback before it raises
    with scripts_on_path(), _quiet(loud):
        try:
            make_private(url)
            with Gradebook(url) as gradebook:
                yield gradebook
        except Emptied as error:
            raise GradebookError(f"the gradebook could not be {what}: {error}", lost=True) from None
        except (sqlalchemy.exc.SQLAlchemyError, InvalidEntry, OSError, ImportError) as error:
            raise _why(url, error, what) from error


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


DAMAGED = "malformed", "not a database", "disk image"  # as SQLite says it


def _why(url: str, error: Exception, what: str) -> GradebookError:
    text = str(error).split("\n")[0]
    if isinstance(error, ImportError):
        return GradebookError(
            f"{shown(url)} needs a driver that is not installed ({error.name}). PostgreSQL's, in the course's "
            "repository: pip install -e '.[postgres]', and an address that begins with postgresql+psycopg://")
    if isinstance(error, sqlalchemy.exc.ArgumentError):
        return GradebookError(f"{url!r} is no address of a database. Two that are: sqlite:////course/gradebook.db and "
                              "postgresql+psycopg://user:password@host/gradebook")
    local = url.startswith("sqlite:")
    if lost := local and any(words in text for words in DAMAGED):
        text = f"the file is damaged ({text.rpartition(') ')[2]}). {PUT_BACK}"
    elif "database is locked" in text:
        text = "another program is writing to it (database is locked)"
    do = "" if lost else "Is the file yours to write, and its folder?" if local else \
        "Is the server up, and the address right?"
    return GradebookError(f"the gradebook {shown(url)} could not be {what}: {text}", do, lost)


def shown(url: str) -> str:
    """The address without its password. One that has none stays as it is: SQLAlchemy writes 课 as %E8%AF%BE."""
    with contextlib.suppress(sqlalchemy.exc.ArgumentError):
        made = sqlalchemy.make_url(url)
        return url if made.password is None else made.render_as_string(hide_password=True)
    return url


# Where nbgrader's own settings say that things are


def settings() -> CourseDirectory:
    """The course's folders and gradebook, as nbgrader_config.py and the instructor's own settings have them."""
    paths = filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), str(PACKAGE)])
    with environment("JUPYTER_CONFIG_PATH", os.pathsep.join(paths)):
        app = NbGrader()
        app.load_cwd_config, app.raise_config_file_errors = False, True
        app.load_config_file()
    Application.load_config_file(app, "nbgrader_config.py", path=CourseDirectory(parent=app).root)  # as nbgrader does
    return CourseDirectory(parent=app)


def times_of(folders: Any) -> Times:
    """When each <student>/<unit> folder was handed in, if its timestamp.txt says so."""
    found: Times = {}
    for folder in map(Path, folders):
        with contextlib.suppress(Unreadable, ValueError, OverflowError):
            text = load(folder / "timestamp.txt", MOST_STAMP, follow=False).decode().strip()
            if text:
                found[folder.parent.name, folder.name] = parse_utc(text)
    return found
