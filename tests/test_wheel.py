"""A wheel, installed away from the repository by a notebook's first code cell, is the package, and the grader."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.classroom
ROOT = Path(__file__).resolve().parent.parent
FIRST = ROOT / "notebooks" / "unit1" / "01_memory_hierarchy.ipynb"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment over the packages of this one, in which a notebook's first cell installed the
    wheel: as on Colab, where beside the notebook there is nothing of the course."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in ("pallas_lite", "autograder", "notebooks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                          capture_output=True, text=True).stdout.strip()
    Path(site, "under.pth").write_text("\n".join(p for p in sys.path if Path(p).name == "site-packages"))
    [wheel] = folder.glob("*.whl")
    missing = subprocess.run([python, "-c", "import pallas_lite"], cwd=folder, env=without_us(), capture_output=True)
    assert b"No module named 'pallas_lite'" in missing.stderr
    # The packages below hold a pallas-lite too, which pip would take for this one.
    said = {"PALLAS_COURSE": str(wheel), "PIP_NO_DEPS": "1", "PIP_FORCE_REINSTALL": "1"}
    install = nbformat.read(FIRST, as_version=4).cells[1].source
    subprocess.run([python, "-c", install], cwd=folder, env=without_us() | said, check=True)
    return python


def without_us():
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def run(python, folder, *command):
    return subprocess.run([python, *command], cwd=folder, env=without_us(), capture_output=True, text=True, timeout=300)


def test_both_packages_come_from_the_wheel(python, tmp_path):
    done = run(python, tmp_path, "-c", "import autograder as a, pallas_lite as p; print(a.__file__, p.__file__)")
    assert done.stdout.count(str(python.parent.parent)) == 2, done.stderr


def test_type_checkers_may_read_both(python, tmp_path):
    done = run(python, tmp_path, "-c", "import autograder, pallas_lite; from importlib.resources import files; "
               "print([files(p).joinpath('py.typed').is_file() for p in (autograder, pallas_lite)])")
    assert done.stdout == "[True, True]\n", done.stderr


def test_the_first_chapter_runs_to_its_end_beside_nothing_else(python, tmp_path):
    shutil.copy(FIRST, tmp_path / "a.ipynb")
    execute = "from nbclient.cli import main; main()"
    done = run(python, tmp_path, "-c", execute, "a.ipynb", "--output=b.ipynb", "--kernel_name=python3")
    assert done.returncode == 0, done.stderr
    cells = [c for c in nbformat.read(tmp_path / "b.ipynb", as_version=4).cells if c.cell_type == "code"]
    assert all(c.execution_count for c in cells) and not cells[0].outputs
    wrong = [o for c in cells for o in c.outputs if o.output_type == "error" and o.ename != "NotImplementedError"]
    assert not wrong


@pytest.mark.usefixtures("sandbox")
def test_it_grades_where_one_is(python, tmp_path):
    (tmp_path / "collected" / "ann").mkdir(parents=True)
    shutil.copy(FIRST, tmp_path / "collected" / "ann")
    done = run(python, tmp_path, "-m", "autograder", "grade", "collected")
    assert done.returncode == 0, done.stderr
    assert "ann" in (tmp_path / ".nbgrader" / "results" / "results.csv").read_text()


LOOK = """
import os, subprocess, tempfile
import autograder
from autograder.sandbox.bubblewrap import find_sandbox, make_stage
ours = os.path.dirname(autograder.__file__)
with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)
    command = find_sandbox(make_stage(f"{folder}/course")).command()
    code = f"import os; print(os.listdir({ours!r}), 'pallas_lite' in os.listdir({os.path.dirname(ours)!r}))"
    subprocess.run([*command[:command.index("-m")], "-c", code], check=True)
"""


@pytest.mark.usefixtures("sandbox")
def test_student_code_sees_nothing_of_the_grader_that_lies_among_the_packages(python, tmp_path):
    done = run(python, tmp_path, "-c", LOOK)
    assert done.stdout == "[] True\n", done.stdout + done.stderr


def test_build_says_that_it_needs_the_repository(python, tmp_path):
    done = run(python, tmp_path, "-m", "autograder", "build", "--check")
    assert done.returncode == 1 and "run this in the course's repository" in done.stdout + done.stderr
