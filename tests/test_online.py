"""What Colab and Binder need: the notebooks' first code cell, the README's buttons, .binder/."""
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from autograder.course import online

ROOT = Path(__file__).resolve().parent.parent
GITHUB = "https://github.com/someone/course"
FIRST = "unit1/01_memory_hierarchy.ipynb"


def run_cell(address, tmp_path, *, hidden=("pallas_lite",), before="", **environment):
    """The install cell in a Python that does not find `hidden`, and whose pip only notes its arguments."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pip.py").write_text("import os, sys\nprint(sys.argv[1:], file=open('asked', 'w'))\n"
                                  "sys.exit(os.environ.get('PIP_SAYS'))")
    hide = (f"import importlib.util as u\nreal = u.find_spec\n"
            f"u.find_spec = lambda name, *a: None if name in {hidden!r} else real(name, *a)\n")
    done = subprocess.run([sys.executable, "-c", hide + before + "\n" + online.install_cell(address).source],
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tools}{os.pathsep}{ROOT}", **environment},
                          capture_output=True, text=True)
    asked = tmp_path / "asked"
    return done, asked.read_text() if asked.exists() else ""


def test_where_the_course_is_the_first_cell_does_nothing_and_is_quiet(tmp_path):
    done, asked = run_cell(GITHUB, tmp_path, hidden=())
    assert (done.returncode, done.stdout, done.stderr, asked) == (0, "", "", "")


def test_elsewhere_it_installs_the_course_from_its_address_or_from_where_one_says(tmp_path):
    done, asked = run_cell(GITHUB, tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("Installing the course") and not done.stderr
    assert f"'git+{GITHUB}'" in asked
    (tmp_path / "again").mkdir()
    assert "'a.whl'" in run_cell(GITHUB, tmp_path / "again", PALLAS_COURSE="a.whl")[1]


@pytest.mark.parametrize("address, before, environment, message", [
    ("", "", {}, "make lab"),
    (GITHUB, "", {"PIP_SAYS": "No matching distribution"}, "pip says:\nNo matching distribution"),
    (GITHUB, "import numpy; numpy.__version__ = '1.0'", {}, "Restart the session"),
])
def test_what_is_left_to_do_is_said(tmp_path, address, before, environment, message):
    done, _ = run_cell(address, tmp_path, before=before, **environment)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_every_notebook_has_it_right_below_its_title():
    cell = online.install_cell(online.repository(ROOT))
    for path in (ROOT / "notebooks").glob("*/*.ipynb"):
        title, first, *others = nbformat.read(path, as_version=4).cells
        assert title.source.startswith("# ")
        assert (first.id, first.source, first.metadata) == (online.INSTALL, cell.source, cell.metadata)
        assert online.INSTALL not in {other.id for other in others}


def test_the_readme_has_the_buttons_of_the_address(tmp_path):
    released = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
    count = sum(cell.id.startswith("test-") for path in released for cell in nbformat.read(path, as_version=4).cells)
    text, made = online.readme(ROOT, [p.relative_to(ROOT / "notebooks").as_posix() for p in released], count)
    assert text == made, "make build"
    (tmp_path / "README.md").write_text("There are 3 exercises.\n<!-- buttons -->\nold\n<!-- /buttons -->\nz\n")
    project = '[project]\nname = "x"\n[project.urls]\nRepository = "{}"\n'
    (tmp_path / "pyproject.toml").write_text(project.format(f"{GITHUB}.git/"))
    made = online.readme(tmp_path, [FIRST, "unit4/11_attention.ipynb"], 12)[1]
    assert "old" not in made and made.startswith("There are 12 exercises.\n<!-- buttons -->\n")
    assert made.endswith("<!-- /buttons -->\nz\n")
    links = re.findall(r"\]\((https:[^)]+)\)(?!\])", made)
    colab = "https://colab.research.google.com/github/someone/course/blob/main/notebooks/"
    assert links == [
        f"https://mybinder.org/v2/gh/someone/course/main?urlpath=lab%2Ftree%2Fnotebooks%2F{FIRST.replace('/', '%2F')}",
        colab + FIRST, colab + FIRST, f"{colab}unit4/11_attention.ipynb"]
    (tmp_path / "pyproject.toml").write_text(project.format("https://example.org/course"))
    made = online.readme(tmp_path, [FIRST], 12)[1]  # Colab opens notebooks of GitHub alone
    assert "/v2/git/https%3A%2F%2Fexample.org%2Fcourse/main" in made and "colab" not in made


def test_binder_installs_what_make_lab_does_on_a_python_that_is_tested():
    lines = (ROOT / ".binder/requirements.txt").read_text().split("\n")
    assert lines == ["-r ../requirements.lock", "-e .", ""]
    python = (ROOT / ".binder/runtime.txt").read_text().strip().removeprefix("python-")
    assert f"find_python {python})" in (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".binder/start", os.X_OK)
    done = subprocess.run([ROOT / ".binder/start", "sh", "-c", "echo $JUPYTER_CONFIG_PATH"], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "JUPYTER_CONFIG_PATH": "mine"})
    assert done.stdout.strip() == f"{ROOT}/autograder:mine"


def test_the_address_stands_in_one_place():
    assert set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]) <= {"Repository"}
