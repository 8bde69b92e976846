"""autograder selftest: are the checks themselves right? The work is in ../judge/selftest.py."""
from ..course.release import Course
from ..judge.selftest import selftest
from . import FAIL, OK, checks_option, command


def add(commands) -> None:
    p = command(commands, "selftest", "test the checks on planted answers",
                "Each planted wrong answer must fail with a message that speaks of its mistake, each right\n"
                "alternative must pass, and nonsense may not make a check stumble.", run, """
  autograder selftest        all checks of the course, on all planted answers
  autograder selftest 3.2    one check""")
    p.add_argument("numbers", nargs="*", metavar="N", help="exercises (default: all)")
    checks_option(p)
    p.add_argument("--mutants", default="autograder.mutants", metavar="MODULE",
                   help="package with planted answers (default: autograder.mutants)")


def run(options, console, errors) -> int:
    problems = selftest(tuple(options.checks or Course().checks), options.mutants, options.numbers, console.print)
    for problem in problems:
        errors.print(f"✗ {problem}", markup=False, highlight=False)
    return FAIL if problems else OK
