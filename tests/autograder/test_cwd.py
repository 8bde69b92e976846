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
