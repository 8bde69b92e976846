"""Every shell command of README, CONTRIBUTING and docs is known here, with what runs it; and none has a slip in it.

A new command in a page fails until it has a line in RUN_BY: the file of CI's that runs it, or why CI cannot.
"""
import contextlib
import functools
import io
import re
import shlex
from pathlib import Path

import pytest

from autograder.__main__ import parser
from benchmarks.__main__ import NAMES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = set("""apt autograder cd conda cp createdb dask docker echo export for git helm jupyter kubectl make mkdir
    nbgrader pip pre-commit pytest python python3 ruff sbatch .ci/run""".split())
RUN_BY = {  # a command, from its beginning -> what runs it
    r"make test|\.ci/run|ruff|pytest": ".ci/run",
    r"make (check|hooks)": "tests/test_habits.py",
    r"make lab|mkdir work|cp -rn notebooks": "tests/test_environment.py",
    r"make formgrader|jupyter lab": "tests/browser/test_formgrader.py",
    r"make build": "tests/course/test_build.py",
    r"make (bench|tables)|python -m benchmarks": "not in CI: they measure for minutes. That they exist is tested below",
    r"make lock": "tests/test_environment.py",
    r"python3 -m venv|\. \.venv/bin/activate": "tools/bootstrap.py",
    r"pip install (-r requirements\.lock|-e \.)$": "tools/bootstrap.py",
    r"pip install( \.)?$|pip wheel": "tests/test_wheel.py",
    r"pip install -e '\.\[|pip install \"pallas_lite\[(tpu|gpu)\]\"|apt install bubblewrap": ".ci/run",
    r"conda": "not in CI, which has no conda: tests/test_environment.py compares environment.yml with the lock",
    r"autograder selftest": "tests/autograder/test_real_chapters.py",
    r"autograder grade .*--scheduler|dask (scheduler|worker)": "tests/autograder/test_cluster.py",
    r"autograder grade\b": "tests/autograder/test_batch.py",
    r"autograder gradebook": "tests/course/test_gradebook.py",
    r"autograder feedback": "tests/autograder/test_feedback.py",
    r"autograder export": "tests/autograder/test_export.py",
    r"autograder similar": "tests/autograder/test_similar.py",
    r"autograder doctor": "tests/autograder/test_doctor.py",
    r"autograder (validate|COMMAND --help)|python (-P )?-m autograder": "tests/autograder/test_grading.py",
    r"export JUPYTER_CONFIG_PATH|nbgrader (validate|autograde)": "tests/course/test_nbgrader.py",
    r"nbgrader (export|db student remove)": "tests/course/test_gradebook.py",
    r"nbgrader generate_feedback": "tests/course/test_gradebook.py",
    r"createdb|echo 'c\.CourseDirectory": "tests/course/test_postgres.py",
    r"python tools/figures\.py": "tests/test_docs.py",
    r"python -m tools\.record_ptx": "not in CI: it writes a file, which tests/unit/test_chapter10.py reads",
    r"nbgrader (collect|release_feedback|fetch_feedback)": "not in CI: nbgrader's exchange, as docs/grading.md says",
    r"for (unit|student|file) in": "tests/autograder/test_layouts.py",
    r"git archive": "tests/test_handout.py",
    r"docker|sbatch|helm|kubectl|for home|mkdir -p|cp -r \$home": "not in CI: docs/grading.md says so beside it",
}


@functools.cache
def commands(page: Path) -> list[str]:
    """The commands of a page: lines of its blocks, and `code` in its text, without comments and paths of programs."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"^ {4,}(\S.*)", text, re.MULTILINE)
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^ {4,}.*", "", text, flags=re.MULTILINE))
    found = []
    for line in lines:
        for part in re.sub(r"\s+# .*", "", line).split(" && "):
            part = re.sub(r"^(\w+=\S+ +)*(\.venv/bin/)?", "", part).strip()
            if part.split() and part.split()[0] in PROGRAMS and (" " in part or part.startswith(".")):
                found.append(part)
    return found


ALL = sorted({command for page in PAGES for command in commands(page)})


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_something_that_runs_it(command):
    found = [by for pattern, by in RUN_BY.items() if re.match(pattern, command)]
    assert found, f"which test runs it? Give {command!r} a line in RUN_BY"
    assert found[0].startswith("not in CI") or (ROOT / found[0]).exists()


def test_the_table_has_no_commands_that_no_page_has():
    assert not [pattern for pattern in RUN_BY if not any(re.match(pattern, command) for command in ALL)]


def loose(page: str) -> list[str]:
    """The lines of a page's blocks with a program of the course's environment that only an activated one would find."""
    return re.findall(r"^ {4}((?:\w+=\S+ +)*(?:autograder|nbgrader|dask) .*)", page, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_to_be_typed_says_where_its_program_is(page):
    assert loose(page.read_text(encoding="utf-8")) == []
    assert loose("x\n\n    make\n    A=b autograder grade .\n") == ["A=b autograder grade ."]


def ready(command: str) -> list[str]:
    """Its words, with something in place of what a reader has to fill in."""
    return shlex.split(re.sub(r"\$\(.*\)", "tcp://head:8786", command.replace("PATH...", "some/path")))


@pytest.mark.parametrize("command", [c for c in ALL if c.startswith("autograder ") and "COMMAND" not in c])
def test_autograder_takes_the_options_that_the_pages_name(command):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser().parse_args(ready(command)[1:])
        except SystemExit as left:
            # `autograder grade` in a sentence names the verb; what is missing is a path, not a word that is wrong
            assert left.code == 0 or "the following arguments are required" in said.getvalue(), said.getvalue()


@pytest.mark.parametrize("command", [c for c in ALL if c.startswith(("make ", "python -m benchmarks"))])
def test_targets_benchmarks_and_paths_are_there(command):
    words = ready(command)
    if words[0] == "make":
        assert re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    arguments = shlex.split(next((w.removeprefix("ARGS=") for w in words if w.startswith("ARGS=")), ""))
    if words[0] == "python" or words[1] in ("bench", "tables"):
        assert set(a for a in (arguments or words[3:])[:1] if a.isidentifier() and a.islower()) <= set(NAMES)
    assert not [a for a in arguments if a.startswith("tests/") and not (ROOT / a.split("::")[0]).exists()]
