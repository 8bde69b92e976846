"""python -m autograder: the instructor's commands. Each says with its exit code what happened; see --help."""
import argparse
import contextlib
import functools
import os
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .batch import grade_all
from .course import ROOT, Course, CourseError
from .grade import Grader
from .report import print_lines, table, write
from .sandbox import Sandbox, SandboxError, find_sandbox, make_stage
from .submissions import Submission, find

EXIT_CODES = """exit codes:
  0  grade: every submission has its marks, whatever they are. validate: the notebook passes. selftest: all is well
  1  validate: the notebook does not pass. selftest: a check is at fault
  2  something handed in could not be read; everything else was graded. Also: a wrong command line
  3  the grader's own fault (no sandbox, no release, a check that failed): no mark was given for it
"""
OK, FAIL, UNREADABLE, FAULT = range(4)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="autograder", description="Builds the course's notebooks and grades what students hand in.",
        epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, help, description):
        return commands.add_parser(name, help=help, description=description, epilog=EXIT_CODES,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)

    def common(p):
        p.add_argument("--timeout", type=_seconds, default=20.0, metavar="S",
                       help="seconds of processor time for each cell and each check (default: 20), four times "
                            "that by the clock")
        p.add_argument("--release", default=Course().release, metavar="DIR", help="the released notebooks, by unit")
        p.add_argument("--checks", action="append", metavar="MODULE",
                       help="module or package with checks; may be repeated")
        p.add_argument("--unsafe-no-sandbox", action="store_true",
                       help="run student code with all your rights; only for notebooks that you wrote yourself")

    p = command("grade", "grade submissions",
                "Grades submissions on hidden trials, in a sandbox. PATH is a notebook, one student's folder,\n"
                "or a folder of either: submitted/<student>/<unit>/<notebook>.ipynb, <student>/<notebook>.ipynb, or\n"
                "loose notebooks, each named after its student. Writes results.json and results.csv, prints a table.")
    p.add_argument("paths", nargs="+", metavar="PATH")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="how many submissions at once (default: 1)")
    p.add_argument("--out", default=str(ROOT / ".nbgrader" / "results"), metavar="DIR",
                   help="where the results go (default: .nbgrader/results)")
    common(p)
    p = command("validate", "check one notebook as its own checks do",
                "Runs a notebook's visible checks the way grading would, and prints a line for each exercise.")
    p.add_argument("path", metavar="NOTEBOOK")
    common(p)
    p = command("selftest", "test the checks on planted answers",
                "The release must earn nothing, each planted wrong answer must fail with a message that speaks of its\n"
                "mistake, each right alternative must pass.")
    p.add_argument("--checks", action="append", metavar="MODULE", help="module or package with checks")
    p.add_argument("--mutants", default="autograder.mutants", metavar="MODULE", help="package with planted answers")
    commands.add_parser("build", help="build the release from solutions/", add_help=False)
    return top


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["build"]:
        from . import build  # it needs jupytext and nbgrader, which grading does not
        return build.main(argv[1:]) or OK
    options = parser().parse_args(argv)
    # A file or a pipe has no width of its own: the table gets all that it needs.
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 240)
    errors = Console(stderr=True)
    # Whoever stops a batch politely gets what was graded so far, as after Ctrl-C.
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, functools.partial(_stop, os.getpid()))
    try:
        run = {"grade": _grade, "validate": _validate, "selftest": _selftest}[options.command]
        return run(options, console, errors)
    except (SandboxError, CourseError) as error:
        errors.print(f"autograder: {error}", markup=False, highlight=False, style="bold", soft_wrap=True)
        return FAULT
    except KeyboardInterrupt:
        errors.print("autograder: interrupted")
        return FAULT


def _stop(main_process, *_):
    if os.getpid() != main_process:  # a worker, which inherits this
        os._exit(1)
    raise KeyboardInterrupt


def _grade(options, console, errors) -> int:
    course = _course(options)
    submissions = find(options.paths, course)
    reports = []
    with _sandbox(options, errors) as sandbox:
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
    return _exit_code(reports)


def _exit_code(reports) -> int:
    status = {r.status for r in reports}
    return FAULT if "fault" in status else UNREADABLE if "unreadable" in status else OK


def _validate(options, console, errors) -> int:
    course = _course(options)
    with _sandbox(options, errors) as sandbox:
        report = Grader(course, sandbox, options.timeout, hidden=False).grade(
            Submission(Path(options.path).stem, (options.path,)))
    print_lines(report, console)
    if report.status != "graded":
        return _exit_code([report])
    passed = report.points == report.max_points
    console.print(f"{report.points:g} of {report.max_points:g} points in the visible checks", highlight=False)
    return OK if passed else FAIL


def _selftest(options, console, errors) -> int:
    from .selftest import selftest
    problems = selftest(tuple(options.checks or Course().checks), options.mutants, say=console.print)
    for problem in problems:
        errors.print(f"✗ {problem}", markup=False, highlight=False)
    return FAIL if problems else OK


def _course(options) -> Course:
    course = Course(str(Path(options.release).resolve()), tuple(options.checks or Course().checks))
    _ = course.notebooks  # a release that cannot be read is said before anything starts
    return course


@contextlib.contextmanager
def _sandbox(options, errors):
    with tempfile.TemporaryDirectory(prefix="autograder-") as folder:
        stage = make_stage(Path(folder, "course"))
        Path(folder).chmod(0o755)
        if options.unsafe_no_sandbox:
            errors.print("autograder: WITHOUT A SANDBOX, student code runs with all your rights.", style="bold")
            yield Sandbox(stage, "none")
        else:
            yield find_sandbox(stage)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("a positive number of seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
