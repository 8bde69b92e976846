"""autograder grade: submissions -> marks, as files and as a table. The work is in ../batch.py and ../grade.py."""
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..batch import grade_all
from ..grade import Grader
from ..report import table, write
from ..submissions import find
from . import RESULTS, command, course_of, exit_code, gradebook, grading_options, sandbox_of


def add(commands) -> None:
    p = command(commands, "grade", "grade submissions",
                "Grades submissions on hidden trials, in a sandbox. PATH is a notebook, one student's folder,\n"
                "or a folder of either: submitted/<student>/<unit>/<notebook>.ipynb, <student>/<notebook>.ipynb, or\n"
                "loose notebooks, each named after its student. Writes results.json and results.csv, prints a table.",
                run, """
  autograder grade .nbgrader/submitted --jobs 2    everything that was collected, two at once
  autograder grade ada.ipynb --timeout 5           one notebook, 5 s for each cell and check""")
    p.add_argument("paths", nargs="+", metavar="PATH")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="how many submissions at once (default: 1)")
    p.add_argument("--out", default=str(RESULTS), metavar="DIR",
                   help="where the results go (default: .nbgrader/results)")
    gradebook.option(p, "the course's own, if the submissions lie where nbgrader has them")
    grading_options(p)


def run(options, console, errors) -> int:
    course = course_of(options)
    submissions = find(options.paths, course)
    reports = []
    with sandbox_of(options, errors) as sandbox:
        grader = Grader(course, sandbox, options.timeout)
        progress = Progress(TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                            TextColumn("{task.description}"), console=errors, transient=True)
        with progress:
            bar = progress.add_task("", total=len(submissions))
            try:
                for report in grade_all(grader, submissions, max(1, min(options.jobs, len(submissions)))):
                    reports.append(report)
                    progress.update(bar, advance=1)
            finally:  # also when it is interrupted: what is known is kept
                order = {(s.student, s.digest): i for i, s in enumerate(submissions)}
                reports.sort(key=lambda r: order[r.student, r.digest])
                written = write(reports, Path(options.out))
    console.print(table(reports, console.width))
    for path in written:
        errors.print(f"written: {path}", markup=False, highlight=False)
    return max(exit_code(reports), gradebook.after_grading(options, reports, submissions, course, errors))
