"""A command in a message can be copied into the shell that it was read in: program, quotes and paths are right."""
import shlex
import shutil
import subprocess
import sys

import nbformat
import pytest

from autograder.__main__ import Plain, main
from autograder.commandline import typed
from autograder.course.release import Course, CourseError

from . import little_course as little


def test_the_program_is_named_as_it_was_called(monkeypatch, tmp_path):
    script = tmp_path / "my course" / ".venv" / "bin" / "autograder"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "doctor"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert typed("grade", "a b") == f"'{script}' grade 'a b'"
    monkeypatch.setattr(sys, "argv", [".venv/bin/autograder", "doctor"])
    assert typed("doctor") == ".venv/bin/autograder doctor"
    monkeypatch.setenv("PATH", str(script.parent))
    assert typed("doctor") == ".venv/bin/autograder doctor"  # what the PATH has is another one
    monkeypatch.chdir(script.parents[2])
    assert typed("doctor") == "autograder doctor"
    monkeypatch.setattr(sys, "argv", ["/somewhere/autograder/__main__.py", "doctor"])
    monkeypatch.setattr(sys, "orig_argv", ["my python/python3", "-m", "autograder", "doctor"])
    assert typed("doctor") == "'my python/python3' -P -m autograder doctor"


def test_a_command_out_of_a_message_runs(tmp_path):
    out = tmp_path / "结果 1"
    out.mkdir()
    (out / "run.json").write_text('{"version": 1, "run": "x", "paths": ["/nowhere"]}')
    command = [sys.executable, "-P", "-m", "autograder"]
    done = subprocess.run([*command, "export", "--results", out], capture_output=True, text=True)
    advice = done.stderr.split("`")[1]
    assert shlex.split(advice) == [*command, "grade", "--resume", "--out", str(out)]
    done = subprocess.run(advice, shell=True, capture_output=True, text=True)
    assert done.returncode == 2 and "there is no such file or folder: /nowhere" in done.stderr
    (out / "run.json").write_text('{"version": 1}')
    done = subprocess.run(advice, shell=True, capture_output=True, text=True)
    assert f"there is no run to go on with in {out}. Name the submissions: " in done.stderr
    assert f"grade PATH... --out '{out}'" in done.stderr


@pytest.mark.parametrize("line, said", [
    ("grad class", "there is no command grad. Did you mean grade?"),
    ("xyz", "there is no command xyz; there are doctor, build, selftest, "),
    ("export canvas", "unrecognized arguments: canvas. Did you mean --format canvas?"),
    ("export class", "unrecognized arguments: class. It takes no PATH: it reads the results of the last grading"),
    ("feedback class", "unrecognized arguments: class. It takes no PATH: it reads the results of the last grading"),
    ("export --colour", "unrecognized arguments: --colour\n"),
    ("grade class --jobs x", "argument --jobs: a whole number, at least 1\n"),
    ("grade class --jobs 0", "argument --jobs: a whole number, at least 1\n"),
    ("grade class --timeout x", "argument --timeout: a positive number of seconds\n"),
])
def test_a_slip_on_the_command_line_is_told_what_was_meant(line, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert said in capsys.readouterr().err


def test_help_and_version_are_there(capsys):
    for line, said in (("help", "COMMAND"), ("help grade", "usage: autograder grade"), ("--version", "pallas-lite")):
        with pytest.raises(SystemExit, match="0"):
            main(line.split())
        assert said in capsys.readouterr().out


def test_no_path_is_broken_in_a_message(capsys):
    path = "/home/teacher/" + "a long name 2026/" * 12
    Plain(stderr=True, width=80).print(f"written: {path}", markup=False, highlight=False)
    assert capsys.readouterr().err == f"written: {path}\n"


def test_a_release_that_does_not_fit_its_checks_says_how_to_build_it(tmp_path):
    """After a change of points, and before the build."""
    notebook = little.notebook()
    next(c for c in notebook.cells if c.id == "test-90-2").metadata.nbgrader["points"] = 3
    course = little.released(tmp_path / "release", notebook)
    with pytest.raises(CourseError) as found:
        _ = course.notebooks
    assert str(found.value) == (
        "unit9/90_little.ipynb: the points of exercise 90.2 are 3 in the notebook and 1 in its check. If the checks or "
        "solutions/ have changed since it was built, build it again: autograder build")
    path = tmp_path / "release" / "unit9" / "90_little.ipynb"
    for spoil in (lambda: path.write_text("{"), lambda: nbformat.write(_without_answers(), path)):
        spoil()
        with pytest.raises(CourseError, match=r"build it again: autograder build$"):
            _ = Course(course.release, course.checks).notebooks
    shutil.rmtree(path.parent)
    with pytest.raises(CourseError, match=r"no released notebook in .*\. Build the course first: autograder build$"):
        _ = Course(course.release, course.checks).notebooks


def _without_answers():
    notebook = little.notebook()
    notebook.cells = [c for c in notebook.cells if not c.get("metadata", {}).get("nbgrader", {}).get("solution")]
    return notebook
