"""autograder selftest: are the checks themselves right? The work is in ../judge/selftest.py."""
import tempfile

import jax

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
    # Many of an exercise's answers are the same program to XLA: each is compiled once. In a folder of this run alone,
    # where nobody else can put a program.
    with tempfile.TemporaryDirectory(prefix="pallas-lite-selftest-") as programs:
        if not jax.config.jax_compilation_cache_dir:
            jax.config.update("jax_compilation_cache_dir", programs)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        problems = selftest(tuple(options.checks or Course().checks), options.mutants, options.numbers, console.print)
    for problem in problems:
        errors.print(f"✗ {problem}", markup=False, highlight=False)
    return FAIL if problems else OK
