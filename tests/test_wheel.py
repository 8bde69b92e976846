"""A wheel, installed away from the repository, is the package, and the grader with its release."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import require

pytestmark = pytest.mark.classroom
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment in which the wheel is installed, over the packages of this one."""
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
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--force-reinstall", wheel], check=True)
    return python


def run(python, folder, *command):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run([python, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_both_packages_come_from_the_wheel(python, tmp_path):
    done = run(python, tmp_path, "-c", "import autograder as a, pallas_lite as p; print(a.__file__, p.__file__)")
    assert done.stdout.count(str(python.parent.parent)) == 2, done.stderr


def test_type_checkers_may_read_both(python, tmp_path):
    done = run(python, tmp_path, "-c", "import autograder, pallas_lite; from importlib.resources import files; "
               "print([files(p).joinpath('py.typed').is_file() for p in (autograder, pallas_lite)])")
    assert done.stdout == "[True, True]\n", done.stderr


def test_it_grades_where_one_is(python, tmp_path):
    require(shutil.which("bwrap"), "bubblewrap")
    (tmp_path / "collected" / "ann").mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / "unit1" / "01_memory_hierarchy.ipynb", tmp_path / "collected" / "ann")
    done = run(python, tmp_path, "-m", "autograder", "grade", "collected")
    assert done.returncode == 0, done.stderr
    assert "ann" in (tmp_path / ".nbgrader" / "results" / "results.csv").read_text()


def test_build_says_that_it_needs_the_repository(python, tmp_path):
    done = run(python, tmp_path, "-m", "autograder", "build", "--check")
    assert done.returncode == 1 and "run this in the course's repository" in done.stdout + done.stderr
