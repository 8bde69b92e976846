"""autograder feedback: results -> a page for each student. The work is in ../pages/feedback.py."""
from pathlib import Path

from ..course.release import ROOT
from . import (
    OK,
    RESULTS,
    command,
    course_of,
    gradebook,
    many,
    release_options,
    results_of,
    results_option,
    some_files,
    writing,
)

FEEDBACK = ROOT / ".nbgrader" / "feedback"


def add(commands) -> None:
    p = command(commands, "feedback", "write a page for each student",
                "Writes one HTML page for each student and unit: mark and verdict of each exercise, what failed, the\n"
                "smallest failing case, the marked timeline and a hint, and what was given by hand in the gradebook.\n"
                "A page is one file and needs no network.\n"
                "Hidden trials are not shown: a page says what the notebook's own check says of the same answer.", run,
                """
  autograder feedback                  .nbgrader/results/feedback/<student>/<unit>/feedback.html, from the last grading
  autograder feedback --by-notebook    one page a notebook, in .nbgrader/feedback, for `nbgrader release_feedback`
  autograder feedback --reveal         with what happened in the hidden trials, once they may be known""")
    results_option(p)
    p.add_argument("--out", type=Path, metavar="DIR",
                   help="where the pages go (default: feedback/ in --results; with --by-notebook, of the course's own "
                        "results, .nbgrader/feedback)")
    p.add_argument("--reveal", action="store_true", help="show the hidden trials too")
    p.add_argument("--by-notebook", action="store_true", help="a page for each notebook, named after it")
    p.add_argument("--submitted", type=Path, default=ROOT / ".nbgrader" / "submitted", metavar="DIR",
                   help="for --by-notebook: where nbgrader collected the work (default: .nbgrader/submitted)")
    gradebook.given_option(p)
    release_options(p)


def run(options, console, errors) -> int:
    from ..pages.feedback import older, write_pages
    course = course_of(options)
    submitted = options.submitted if options.by_notebook else None
    out = options.out or _folder(options.results, options.by_notebook)
    reports = gradebook.with_given(options, results_of(options, errors, course, each=False), course, errors)
    with writing(out):
        written = write_pages(reports, course, out, options.reveal, submitted)
    said = f"{many(len(written), 'page')} in {out}"
    if options.reveal:
        revealed = sum(written.values())
        said += f"; {revealed or 'none'} {'show' if revealed > 1 else 'shows'} hidden trials"
        if revealed < len(written):
            said += f":{' on the others' * bool(revealed)} they tell nothing more than the page"
    if left := older(out, written):
        as_before = "it is" if len(left) == 1 else "they are"
        said += f"\n{many(len(left), 'older page')} left as {as_before}: {some_files(left, out)}"
    console.print(said, markup=False, highlight=False, soft_wrap=True)
    return OK


def _folder(results: Path, by_notebook: bool) -> Path:
    """Beside the results: a trial is not the class, and nbgrader deletes folders in its own before it writes there.

    Only pages that stand for nbgrader's own go into nbgrader's folder.
    """
    return FEEDBACK if by_notebook and results.resolve() == RESULTS.resolve() else results / "feedback"
