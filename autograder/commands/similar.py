"""autograder similar: submissions -> pairs that share more than the task has. The work is in ../pages/similar.py."""
from pathlib import Path

from ..course.release import ROOT
from ..grading.report import write_atomic
from ..grading.submissions import find
from . import OK, RESULTS, UNREADABLE, command, course_of, refuse_missing, release_options, writing


def add(commands) -> None:
    p = command(commands, "similar", "pairs of submissions that are alike",
                "Compares the answer cells of all submissions, without running them, and shows pairs that have more\n"
                "in common than the skeleton, our own solution and the rest of the class explain. Names, comments,\n"
                "layout and the order of statements do not count. Prints a table, and writes a page with both side\n"
                "by side. It gives you pairs to read, and no verdict.", run, """
  autograder similar .nbgrader/submitted              all that was collected
  autograder similar .nbgrader/submitted --near 0.1   also those that come within 10 % of being shown""")
    p.add_argument("paths", nargs="+", metavar="PATH", help="as for `grade`")
    p.add_argument("--out", type=Path, metavar="FILE", help="where the page goes (default: similar.html in --results)")
    p.add_argument("--results", type=Path, default=RESULTS, metavar="DIR",
                   help="the folder of these submissions' results (default: .nbgrader/results); it is not read")
    p.add_argument("--near", type=float, default=0.0, metavar="PART", help="show pairs this far below the limit too")
    p.add_argument("--root", type=Path, default=ROOT, metavar="DIR",
                   help="the repository with solutions/ (default: ours)")
    release_options(p)


def run(options, console, errors) -> int:
    from ..pages import alike, similar
    refuse_missing(options)
    course = course_of(options)
    answers, problems = similar.answers_of(find(options.paths, course), course)
    solutions = similar.solutions_of(options.root)
    if not answers:
        errors.print("! nothing to compare: these submissions have no answers, only what was handed out", markup=False,
                     highlight=False)
    elif not solutions.keys() & answers.keys():
        errors.print(f"! no solutions to these exercises in {options.root / 'solutions'}: who writes as our solution "
                     "does is taken for alike. Name the course's repository with --root", markup=False, highlight=False)
    known, names = similar.explained(course, solutions), similar.imported(course.notebooks)
    home = {number: n.name for n in course.notebooks for number in n.answers.values()}
    found = similar.pairs(answers, known, home, names, above=options.near)
    console.print(alike.table(found) if found else alike.NONE, highlight=False)
    for problem in problems:
        errors.print(f"! not compared: {problem}", markup=False, highlight=False)
    out = options.out or options.results / "similar.html"
    text = alike.page(found, answers, known, names)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        path = write_atomic(out, text)
    errors.print(f"written: {path}", markup=False, highlight=False, soft_wrap=True)
    return UNREADABLE if problems else OK
