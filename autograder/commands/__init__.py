"""commands: one module for each verb of `autograder`. Each has `add(commands)`, which declares its options
with `command()` below, and `run(options, console, errors)`, which returns an exit code. ../__main__.py lists them.
"""
import argparse
import contextlib
import os
import shlex
import tempfile
from pathlib import Path

from rich.console import Console

from pallas_lite.errors import many as many

from ..commandline import typed
from ..course.release import ROOT, Course
from ..grading.grade import Report
from ..grading.report import per_student, read, twice
from ..grading.report import writing as writing
from ..grading.submissions import some
from ..sandbox.bubblewrap import Sandbox, find_sandbox, make_stage

OK, FAIL, UNREADABLE, FAULT = range(4)
EXIT_CODES = """exit codes:
  0  grade: every submission has its marks, whatever they are. validate: the notebook passes. Others: all is well
  1  validate: the notebook does not pass. selftest, build, doctor: something is to mend
  2  something handed in could not be read; everything else was graded. Also: a wrong command line, no results
  3  the grader's own fault (no sandbox, no release, a check that failed): no mark was given for it. Also: a full
     disk, or a place that cannot be written
"""
OWN_FAULT = "the grader's own fault (no release, a check that failed"
CODES = {  # verb -> what its exit codes mean; 2 may always be a wrong command line too
    "build": ["built, or up to date", "an error in solutions/; with --check: out of date", ""],
    "selftest": ["all checks are right", "a check is at fault", "", OWN_FAULT + " to load)"],
    "validate": ["the notebook passes", "it does not", "it could not be read", OWN_FAULT + ", no sandbox)"],
    "grade": ["every submission has its marks, whatever they are", "",
              "something handed in could not be read, and everything else was graded", OWN_FAULT + ", no sandbox, no "
              "cluster,\n     results or a gradebook that cannot be written): what is not known has no mark. Or "
              "interrupted"],
    "gradebook": ["written", "", "no results", "the gradebook could not be written"],
    "feedback": ["written", "", "no results, or a gradebook that cannot be read",
                 "no release, or a place that cannot be written"],
    "export": ["written", "", "no results, or a gradebook or a roster that cannot be used",
               "no release, or a place that cannot be written"],
    "similar": ["everything was compared", "", "something handed in could not be read; the rest was compared",
                "no release, or a place that cannot be written"],
    "doctor": ["all is there", "something is to mend", "", "there is no course, or the doctor itself failed"],
}
RESULTS = ROOT / ".nbgrader" / "results"


def command(commands, name: str, help: str, description: str, run, examples: str = "") -> argparse.ArgumentParser:
    """A parser for one verb. `examples`: command lines, each with what it does; shown by --help."""
    meanings = [*CODES[name]]
    meanings[UNREADABLE] += "; or a wrong command line" if meanings[UNREADABLE] else "a wrong command line"
    codes = [f"  {code}  {meaning}" for code, meaning in enumerate(meanings) if meaning]
    epilog = "\n".join([*(["examples:", examples.strip("\n"), ""] * bool(examples)), "exit codes:", *codes])
    p = commands.add_parser(name, help=help, description=description, epilog=epilog,
                            formatter_class=argparse.RawDescriptionHelpFormatter)
    # `instead`: a word that this verb does not take -> what was meant by it, perhaps; "": by any other
    p.set_defaults(run=run, refuse=p.error, instead={})
    return p


def checks_option(p) -> None:
    p.add_argument("--checks", action="append", metavar="MODULE",
                   help="module or package with checks; may be repeated (default: the course's)")


def release_options(p) -> None:
    """Which course it is: what `course_of` takes."""
    p.add_argument("--release", default=Course().release, metavar="DIR", help="the released notebooks, by unit")
    checks_option(p)


def grading_options(p) -> None:
    """The options of all that runs student code."""
    p.add_argument("--timeout", type=_seconds, default=20.0, metavar="S",
                   help="seconds of processor time for each cell and each check (default: 20), four times "
                        "that by the clock")
    release_options(p)
    p.add_argument("--unsafe-no-sandbox", action="store_true",
                   help="run student code with all your rights; only for notebooks that you wrote yourself")


def results_option(p) -> None:
    """Where `grade` has put its results, for the verbs that read them with `results_of`."""
    p.set_defaults(instead={"": "It takes no PATH: it reads the results of the last grading, or --results DIR"})
    p.add_argument("--results", type=Path, default=RESULTS, metavar="DIR",
                   help="the folder that `grade` wrote (default: .nbgrader/results)")


def results_of(options, errors: Console, course: Course, each: bool = True) -> list[Report]:
    """The last results: `each` submission's, or one report for each student. Raises ResultsError.

    That they are not all, or of another course, or somebody's twice, is said.
    """
    def say(text: str) -> None:
        errors.print(f"! {text}", markup=False, highlight=False, soft_wrap=True)
    found = read(options.results, say, course)
    for text in twice(found):
        say(text)
    return found if each else list(per_student(found))


def refuse_missing(options) -> None:
    """Ends with an error of the command line if a PATH does not exist: a slip in its name is no student."""
    if missing := [path for path in options.paths if not os.path.lexists(path)]:
        said = f"there is no such file or folder: {', '.join(missing)}. You are in {Path.cwd()}"
        if (ROOT / missing[0]).exists():
            said += f". There is one in the course's folder: cd {shlex.quote(str(ROOT))}"
        elif Path(missing[0]).name == "submitted":
            said += ". Make it, and put there what was handed in, as <student>/<unit>/<notebook>.ipynb"
        options.refuse(said)


def some_files(paths: list[Path], folder: Path) -> str:
    """Some files, named as seen from a folder, and how many more there are."""
    return some([str(p.relative_to(folder)) for p in paths], 5)


def course_of(options) -> Course:
    """The course that the options name. A release that cannot be read is said before anything starts."""
    if options.release != Course().release and not Path(options.release).is_dir():
        options.refuse(f"--release: there is no folder {options.release}. The course's own is notebooks/, which "
                       f"`{typed('build')}` makes")
    course = Course(str(Path(options.release).resolve()), tuple(options.checks or Course().checks))
    _ = course.notebooks
    return course


@contextlib.contextmanager
def sandbox_of(options, errors: Console):
    """The sandbox that the options ask for, while the block runs. Raises SandboxError."""
    with tempfile.TemporaryDirectory(prefix="autograder-") as folder:
        stage = make_stage(Path(folder, "course"))
        Path(folder).chmod(0o755)
        if options.unsafe_no_sandbox:
            errors.print("autograder: WITHOUT A SANDBOX, student code runs with all your rights.", style="bold")
            yield Sandbox(stage, "none")
        else:
            yield find_sandbox(stage)


def exit_code(reports: list[Report]) -> int:
    status = {r.status for r in reports}
    return FAULT if "fault" in status else UNREADABLE if "unreadable" in status else OK


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("a positive number of seconds")
    return value
