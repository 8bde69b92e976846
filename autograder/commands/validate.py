"""autograder validate: what the visible checks of one notebook say, run as grading runs them."""
from pathlib import Path

from ..grading.grade import Grader
from ..grading.report import print_lines
from ..grading.submissions import Submission
from . import FAIL, OK, command, course_of, exit_code, grading_options, sandbox_of


def add(commands) -> None:
    p = command(commands, "validate", "check one notebook as its own checks do",
                "Runs a notebook's visible checks the way grading would, and prints a line for each exercise.", run, """
  autograder validate work/unit1/03_double_buffer.ipynb    before handing it in""")
    p.add_argument("path", metavar="NOTEBOOK")
    grading_options(p)


def run(options, console, errors) -> int:
    course = course_of(options)
    with sandbox_of(options, errors) as sandbox:
        report = Grader(course, sandbox, options.timeout, hidden=False).grade(
            Submission(Path(options.path).stem, (options.path,)))
    print_lines(report, console)
    if report.status != "graded":
        return exit_code([report])
    passed = report.points == report.max_points
    console.print(f"{report.points:g} of {report.max_points:g} points in the visible checks", highlight=False)
    return OK if passed else FAIL
