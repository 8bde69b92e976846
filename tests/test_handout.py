"""What docs/grading.md tells a teacher to hand out is enough to learn with, and has no answers in it."""
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autograder.course import release

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git's")
def test_the_file_for_students_is_enough_to_learn_with_and_has_no_answers(tmp_path):
    page = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    command = re.search(r"^```sh\n(git archive .*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    made = tmp_path / "course.zip"
    subprocess.run(command.replace("course.zip", str(made)), shell=True, check=True, cwd=ROOT)
    zipfile.ZipFile(made).extractall(tmp_path)
    course = tmp_path / "pallas-course"
    assert not (course / "solutions").exists() and not (course / "autograder" / "mutants").exists()
    done = subprocess.run([sys.executable, "-P", "-m", "autograder", "doctor", "--student"], cwd=course, text=True,
                          env={**os.environ, "PYTHONPATH": str(course)}, capture_output=True)
    released = len(list((ROOT / "notebooks").rglob("*.ipynb")))
    assert f"✓ course: {released} notebooks, " in done.stdout, done.stdout + done.stderr
    # `make lab` there does not want to build, and fills work/.
    spec = importlib.util.spec_from_file_location("handed_out", course / "tools" / "bootstrap.py")
    spec.loader.exec_module(bootstrap := importlib.util.module_from_spec(spec))
    opened = []
    bootstrap.jupyterlab = lambda venv, root, arguments: opened.append(root)
    bootstrap.lab(tmp_path / "no environment", [])
    assert opened == [course / "work"] and len(list((course / "work").rglob("*.ipynb"))) == released


def test_planted_answers_are_no_part_of_what_marks_depend_on(tmp_path, monkeypatch):
    """So a course without them has the same course id; and who plants one need not grade again."""
    for name in ("mutants/chapter1.py", "commands/grade.py", "judge/checking.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(release, "PACKAGE", tmp_path)

    def version():
        return release.Course().version["autograder"]
    before = version()
    (tmp_path / "mutants/chapter1.py").unlink()
    (tmp_path / "commands/grade.py").write_text("2")
    assert version() == before
    (tmp_path / "judge/checking.py").write_text("2")
    assert version() != before
