"""autograder gradebook: results -> nbgrader's gradebook. The work is in ../nbgrader/."""
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from ..commandline import typed
from ..course.release import Course
from ..grading.by_hand import take
from ..grading.grade import Report
from ..grading.report import ResultsError
from ..grading.submissions import Submission, find, some
from ..grading.whose import one_name
from . import FAULT, OK, RESULTS, command, course_of, many, release_options, results_of, results_option

ADDRESSES = "sqlite:////path/gradebook.db or postgresql+psycopg://user:password@host/name"


def add(commands) -> None:
    p = command(commands, "gradebook", "write results into nbgrader's gradebook",
                "Writes what `grade` found into nbgrader's gradebook, for Formgrader and `nbgrader export`. What was\n"
                "given by hand stays: points, extra credit, comments. `grade` does this by itself for submissions in\n"
                ".nbgrader/submitted; this is for another gradebook, and for when it could not be written.", run, """
  autograder gradebook                                                the last results, into the course's gradebook
  autograder gradebook --gradebook postgresql+psycopg:///course       into a PostgreSQL database""")
    results_option(p)
    option(p, "the course's own")
    release_options(p)


def option(p, default: str) -> None:
    p.add_argument("--gradebook", metavar="URL", default="",
                   help=f"nbgrader's gradebook: {ADDRESSES}; `none`: leave it alone (default: {default})")


def given_option(p) -> None:
    """Where `with_given` looks, for the verbs that show marks to others."""
    p.add_argument("--gradebook", metavar="URL", default="",
                   help=f"where points and comments were given by hand: {ADDRESSES}; `none`: take none (default: the "
                        "course's own gradebook)")


def with_given(options, reports: list[Report], course: Course, errors: Console) -> list[Report]:
    """The reports with what was given by hand in Formgrader, which is said. Raises ResultsError."""
    if options.gradebook == "none":
        return reports
    try:
        from ..nbgrader import gradebook
    except ImportError:  # no nbgrader here, so nobody gave anything in it
        return reports
    try:
        given, late = gradebook.given_by_hand(options.gradebook or gradebook.settings().db_url, course)
    except gradebook.GradebookError as error:
        raise ResultsError(f"{error}. So nobody knows what was given by hand, and nothing was written. To leave that "
                           "out: --gradebook none") from None
    taken, lines = take(reports, given)
    names = {one_name(r.student) for r in reports}
    if late := [student for student in late if one_name(student) in names]:
        lines.append("the gradebook takes points off for being late, which is not done here; `nbgrader export` has "
                     f"those marks: {some(late, 20)}")
    for line in lines:
        errors.print(f"! {line}", markup=False, highlight=False, soft_wrap=True)
    return taken


def run(options, console, errors) -> int:
    from ..nbgrader import gradebook  # needs nbgrader, which grading does not
    course = course_of(options)
    reports, where = results_of(options, errors, course), gradebook.settings()
    submitted = Path(where.root, where.submitted_directory)
    submissions = find([str(submitted)], course) if submitted.is_dir() else []
    return _write(options.gradebook or where.db_url, reports, submissions, course, errors, where, options.results)


def after_grading(options, reports: Iterable[Report], submissions: list[Submission], course: Course,
                  errors: Console) -> int:
    """What `grade` does last: OK, or FAULT if the gradebook could not be written."""
    if options.gradebook == "none" or submissions and all(s.problem for s in submissions):  # no mark to write
        return OK
    where = None
    if not options.gradebook:
        try:
            from ..nbgrader import gradebook
        except ImportError:  # no nbgrader here: a worker's machine, say
            return OK
        where = gradebook.settings()
        submitted = Path(where.root, where.submitted_directory).resolve()
        if not submissions or not all(Path(p).resolve().is_relative_to(submitted)
                                      for s in submissions for p in s.paths):
            results = [] if Path(options.out) == RESULTS else ["--results", options.out]
            errors.print(f"not in nbgrader's gradebook, since they do not lie in {submitted}; to write these marks "
                         f"too:  {typed('gradebook', *results)}", markup=False, highlight=False, soft_wrap=True)
            return OK
    from ..nbgrader import gradebook
    where = where or gradebook.settings()
    return _write(options.gradebook or where.db_url, reports, submissions, course, errors, where, options.out)


def _write(url: str, reports: Iterable[Report], submissions: list[Submission], course: Course, errors: Console, where,
           results: Path) -> int:
    from ..nbgrader import gradebook
    folders = {Path(p).parent for s in submissions for p in s.paths}
    try:
        written = gradebook.write(reports, url, course, gradebook.times_of(folders), where.config)
    except gradebook.GradebookError as error:
        again = [] if url == where.db_url else ["--gradebook", gradebook.shown(url)]
        kept = (f"The marks of the checks are all in {results}; what was given by hand is not." if error.lost else
                f"No mark is lost: all are in {results}.")
        errors.print(f"autograder: {error}\n{kept} When it can be written again:\n"
                     f"  {typed('gradebook', '--results', results, *again)}", markup=False, highlight=False,
                     style="bold", soft_wrap=True)
        return FAULT
    errors.print(f"written: marks of {many(written.students, 'student')} into {gradebook.shown(url)} "
                 f"({written.changed} new or changed)", markup=False, highlight=False, soft_wrap=True)
    for line in written.left_out:
        errors.print(f"no marks to write: {line}", markup=False, highlight=False, soft_wrap=True)
    return _show(reports, submissions, course, errors, where) if url == where.db_url else OK


def _show(reports: Iterable[Report], submissions: list[Submission], course: Course, errors: Console, where) -> int:
    """The notebooks beside the marks, for submissions of which there are both."""
    from ..nbgrader import shown
    submitted, code = Path(where.root, where.submitted_directory).resolve(), OK
    handed_in = {(s.student, s.digest): s for s in submissions}
    for report in reports:
        s = handed_in.get((report.student, report.digest))
        if s is None or report.status == "fault" or not any(m.points is not None for m in report.marks.values()) or \
                not all(Path(p).resolve().is_relative_to(submitted) for p in s.paths):
            continue
        try:
            shown.write(s, report, course, Path(where.root, where.autograded_directory, s.student))
        except Exception as error:  # one that cannot be shown has its marks all the same
            errors.print(f"{s.student} has marks, but no notebook to show: {type(error).__name__}: {error}",
                         markup=False, highlight=False, soft_wrap=True)
            code = FAULT
    return code
