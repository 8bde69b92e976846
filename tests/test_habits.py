"""`make check`, goldens and hooks do what CONTRIBUTING promises: a failing check says which command comes next."""
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
RUN = "sh tools/bootstrap.sh run "


def run(folder, *command, **environment):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_goldens_of_both_kinds_are_updated_by_one_flag_which_a_failing_one_names(tmp_path):
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_it.py").write_text(
        "from matplotlib.figure import Figure\n"
        "def test_text(golden): golden('words', WORD)\n"
        "def test_image(golden_image):\n"
        "    ax = Figure().add_subplot()\n"
        "    ax.bar([1], [len(WORD)])\n"
        "    golden_image('bar', ax)\n")

    def pytest_(word, *options):
        (tmp_path / "tests" / "__init__.py").write_text(f"import builtins; builtins.WORD = {word!r}")
        return run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", *options)
    assert pytest_("one", "--update-golden")[0] == 0
    assert pytest_("one")[0] == 0
    code, said = pytest_("three words")
    assert code == 1 and "2 failed" in said
    for test in "text", "image":
        assert f"make test ARGS='--update-golden \"tests/test_it.py::test_{test}\"'" in said
    assert "run it again:  make test ARGS='tests/test_it.py'\n2 failed" in said


def make(tmp_path, target, *failing):
    """What `make TARGET` says where these programs fail and the others do nothing."""
    (tmp_path / "tools").mkdir(exist_ok=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    fails = " ".join(f"{name}) echo {name} complains; exit 1;;" for name in failing)
    (tmp_path / "tools" / "bootstrap.sh").write_text(f'case "$2" in {fails} esac\necho "$@"\n')
    return run(tmp_path, "make", "--no-print-directory", target, MAKEFLAGS="", MAKELEVEL="")


@pytest.mark.parametrize("program, then", [("ruff", "make fix"), ("mypy", "make check")])
def test_a_failing_check_ends_with_the_command_that_comes_next(tmp_path, program, then):
    code, said = make(tmp_path, "check", program)
    assert code and f"{program} complains" in said and "pytest" not in said
    assert "To go on:" in said and then in said.partition("To go on:")[2]


def test_check_runs_lint_types_and_tests_that_there_are(tmp_path):
    code, said = make(tmp_path, "check")
    programs = [shlex.split(line) for line in said.splitlines()]
    assert code == 0 and [words[1] for words in programs] == ["ruff", "mypy", "pytest"]
    tests = [word for word in programs[-1] if word.startswith("tests/")]
    assert tests and all((ROOT / file).exists() for file in tests)


def test_what_the_hooks_run_passes_here():
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local" and len(repo["hooks"]) == 3
    for hook in repo["hooks"]:
        assert hook["language"] == "system" and hook["entry"].startswith(RUN)
        if "build --check" in hook["entry"] or "mypy" in hook["entry"]:
            continue  # tests/course and tests/test_types.py do, for longer
        code, said = run(ROOT, sys.executable, "-m", *hook["entry"].removeprefix(RUN).split(), "tests/test_habits.py")
        assert code == 0, said


@pytest.mark.parametrize("marker", ["browser", "campaign", "gpu"])
def test_what_make_test_leaves_out_is_called_by_ci(marker):
    """CI names folders, as reading all files for a few tests takes it a quarter of a minute each time."""
    called = [words for line in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
              if (words := line.replace("'", " ").split()) and f"-m {marker} " in line]
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")
             if re.search(rf"\bmark\.{marker}\b", path.read_text("utf-8"))]
    assert files
    for path in files:
        assert any(str(place) in words for words in called for place in (path, *path.parents)), f".ci/run lacks {path}"
