"""Where `autograder` is run: a second copy of the course, which a student may have handed in, is not taken for ours."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = "has an autograder of its own, and that is not the one that is installed, in"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A submission that is a whole course: the parts that Python would import, cut short."""
    folder = tmp_path_factory.mktemp("ada")
    (folder / "autograder").mkdir()
    shutil.copy(ROOT / "autograder" / "_cwd.py", folder / "autograder")
    (folder / "autograder" / "__init__.py").write_text("from . import _cwd\nprint('the copy runs')\n")
    (folder / "autograder" / "__main__.py").write_text("")
    return folder


def start(copy, *how, path):
    return subprocess.run([sys.executable, *how], cwd=copy, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path})


@pytest.mark.parametrize("how, path", [(["-m", "autograder"], "{root}"), (["-P", "-m", "autograder"], ":{root}"),
                                       (["bin/autograder"], ":{root}"), (["bin/autograder"], ".:{root}")])
def test_a_copy_in_this_folder_says_that_it_is_not_the_installed_one(copy, how, path):
    (copy / "bin").mkdir(exist_ok=True)
    (copy / "bin" / "autograder").write_text("import autograder.__main__\n")
    done = start(copy, *how, path=path.format(root=ROOT))
    assert done.returncode == 3 and "the copy runs" not in done.stdout
    assert f"{copy}, {REFUSED} {ROOT}" in done.stderr and f"PYTHONPATH={copy} python -m" in done.stderr


def test_a_copy_that_was_asked_for_or_is_the_only_one_runs(copy):
    assert start(copy, "-m", "autograder", path=str(copy)).stdout == "the copy runs\n"
    assert start(copy, "-m", "autograder", path=f"{copy}{os.pathsep}{ROOT}").stdout == "the copy runs\n"
    assert start(copy, "-S", "-m", "autograder", path="").stdout == "the copy runs\n"  # without what is installed


@pytest.fixture
def courses(tmp_path):
    """Last year's course with its environment, and a copy of both, as `cp -r` makes it: its command runs the first."""
    first, second = tmp_path / "课程 2025", tmp_path / "课程 2026"
    (first / "autograder" / "grading").mkdir(parents=True)
    (first / "autograder" / "grading" / "child.py").touch()
    shutil.copy(ROOT / "autograder" / "_cwd.py", first / "autograder")
    (first / "autograder" / "__init__.py").write_text("from . import _cwd\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", first / ".venv"], check=True)
    next((first / ".venv" / "lib").glob("python3*/site-packages")).joinpath("course.pth").write_text(f"{first}\n")
    script = first / ".venv" / "bin" / "autograder"
    script.write_text(f"#!/bin/sh\n'''exec' \"{first}/.venv/bin/python\" \"$0\" \"$@\"\n' '''\n"
                      "import autograder, subprocess, sys\n"
                      "subprocess.run([sys.executable, '-P', '-m', 'autograder.grading.child'], check=True)\n"
                      "print('graded')\n")
    script.chmod(0o755)
    shutil.copytree(first, second, symlinks=True)
    return first, second


def run_in(folder, *command):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})


def test_the_command_of_a_copied_course_does_not_work_on_the_original(courses):
    first, second = courses
    assert run_in(first, ".venv/bin/autograder").stdout == "graded\n"
    (second / "docs").mkdir()
    for place, command in ((second, ".venv/bin/autograder"), (second / "docs", "../.venv/bin/autograder"),
                           (first, second / ".venv" / "bin" / "autograder")):
        done = run_in(place, command)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == (
            f"autograder: the environment of {second} was copied, and still runs the course in {first}. Nothing was "
            f"done.\nThis makes it anew, for the copy:  make -C '{second}' build\nThen give the same command again.\n")
    done = run_in(first, second / ".venv" / "bin" / "python", "-P", "-m", "autograder")
    assert done.returncode == 3 and f"the environment of {second} was copied" in done.stderr


def test_another_courses_command_says_whose_it_is(courses):
    first, second = courses
    command = first / ".venv" / "bin" / "autograder"  # on the PATH, as after a copied `activate`
    whose = f"autograder: {second} has a course of its own, and this is the command of {first}\n"
    done = run_in(second, command)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (f"{whose}Nothing was done. If the course here is yours, give its own command: "
                           ".venv/bin/autograder. If a student handed it in, leave this folder first.\n")
    shutil.rmtree(second / ".venv")  # handed in, say
    done = run_in(second, command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "graded\n", whose)
