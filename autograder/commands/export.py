"""autograder export: results -> grades for a spreadsheet or a learning platform. The work is in ../pages/export.py."""
from pathlib import Path

from ..grading.report import write_atomic
from . import (
    OK,
    UNREADABLE,
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

NAMES = ("csv", "canvas", "gradescope", "nbgrader")
SUMS = ("canvas", "nbgrader")  # these have one number for a unit


def add(commands) -> None:
    p = command(commands, "export", "grades for a spreadsheet, Canvas, Gradescope",
                "Writes the last results in a form that others read, with the points that were given by hand in\n"
                "the gradebook. A mark that is not known is an empty cell, and where the form has no place for the\n"
                "reason, that is said here.\n\n"
                "  csv         a row for each student and exercise\n"
                "  canvas      Canvas's gradebook import: a column for each unit\n"
                "  gradescope  a results.json for each student\n"
                "  nbgrader    the columns of `nbgrader export`, without what only the gradebook knows: dates\n"
                "              and penalties", run, """
  autograder export --format csv                           .nbgrader/results/export/grades.csv
  autograder export --format canvas --roster canvas.csv    names and numbers from Canvas's own export""")
    p.add_argument("--format", choices=NAMES, default="csv", help="which form (default: csv)")
    p.add_argument("--roster", type=Path, metavar="CSV",
                   help="who is who: a column `student` (or Canvas's `SIS Login ID`) with the names under which work "
                        "came in, and what the format wants beside: Student, ID, SIS User ID, SIS Login ID, Section "
                        "for canvas; last_name, first_name, email for nbgrader")
    p.add_argument("--out", type=Path, metavar="DIR", help="where the files go (default: export/ in --results)")
    results_option(p)
    p.set_defaults(instead=p.get_default("instead") | {name: f"Did you mean --format {name}?" for name in NAMES})
    gradebook.given_option(p)
    release_options(p)


def run(options, console, errors) -> int:
    from ..pages.export import FORMATS, RosterError, copies, empty, partial, read_roster, summed, uneven
    course = course_of(options)
    reports = results_of(options, errors, course, each=options.format == "csv")
    try:
        roster = read_roster(options.roster)
    except RosterError as error:
        errors.print(f"autograder: {error}", markup=False, highlight=False, style="bold", soft_wrap=True)
        return UNREADABLE
    reports = gradebook.with_given(options, reports, course, errors)
    roster = roster.of(r.student for r in reports)
    files = FORMATS[options.format](reports, course, roster)
    out = options.out or options.results / "export"
    with writing(out):
        for name, text in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
    where = out / next(iter(files)) if len(files) == 1 else f"{many(len(files), 'file')} in {out}"
    console.print(f"written: {where}", markup=False, highlight=False, soft_wrap=True)
    if options.format == "gradescope" and (left := sorted({*out.glob("*/results.json")} - {out / f for f in files})):
        console.print(f"{many(len(left), 'older file')} left as {'it is' if len(left) == 1 else 'they are'}: "
                      f"{some_files(left, out)}", markup=False, highlight=False, soft_wrap=True)
    notes = (summed(reports) if options.format == "gradescope" else
             [*empty(reports, course), *partial(reports, course), *uneven(reports)] if options.format in SUMS else ())
    for line in (*notes, *copies(reports)):
        errors.print(f"! {line}", markup=False, highlight=False, soft_wrap=True)
    unknown = [r.student for r in reports if options.roster and r.student not in roster.rows]
    if unknown:
        errors.print(f"! not in the roster: {', '.join(unknown)}", markup=False, highlight=False, soft_wrap=True)
    return OK
