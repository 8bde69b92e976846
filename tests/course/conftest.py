"""A course of one small chapter, with a check of its own, in a folder of its own; and real nbgrader commands on it."""
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbgrader.api import Gradebook

from autograder.course.build import build

ROOT = Path(__file__).resolve().parents[2]
POINTS = {"2.1": SimpleNamespace(points=1), "2.2": SimpleNamespace(points=2)}

# The check stands in the chapter, so that these tests are about the build alone. It shows the score and nothing else.
CHAPTER = '''\
# %% [markdown]
# # 2 · Overlap

# %%
class Score(float):
    """What nbgrader reads: its repr is the points."""


def check(number, answer, hidden=False):
    if number == "2.1":
        return Score(answer == 6 / 8)
    try:
        right = [answer(step, 2) == step % 2 for step in range(4)] + [answer(5, 3) == 2] * hidden
    except NotImplementedError:
        right = [False]
    return Score(2 * sum(right) / len(right))

# %% [markdown]
# ### Exercise 2.1 · Busy slots
# Six of eight slots are busy. What is the utilisation?

# %% exercise="2.1"
### BEGIN SOLUTION
utilisation = 6 / 8
### END SOLUTION

# %% check="2.1"
check("2.1", utilisation)

# %% [markdown]
# <details><summary>Hint 1: nudge</summary>Count.</details>
# <details><summary>Hint 2: pattern</summary>Busy slots over all slots.</details>
# <details><summary>Hint 3: almost the answer</summary>Six over what?</details>

# %% [markdown]
# ### Exercise 2.2 · The slot of a step
# Give the slot that a step uses.

# %% exercise="2.2"
def slot(step, depth):
    """The slot of `step` among `depth` of them."""
    ### BEGIN SOLUTION
    wrapped_step = step % depth
    return wrapped_step
    ### END SOLUTION

# %% check="2.2"
check("2.2", slot)

# %% [markdown]
# <details><summary>Hint 1: nudge</summary>Slots are used again.</details>
# <details><summary>Hint 2: pattern</summary>A remainder.</details>
# <details><summary>Hint 3: almost the answer</summary>The remainder of the step by what?</details>
'''


@dataclass
class Course:
    root: Path

    @property
    def source(self) -> Path:
        return self.root / "solutions" / "unit1" / "02_overlap.py"

    @property
    def released(self) -> Path:
        return self.root / "notebooks" / "unit1" / "02_overlap.ipynb"

    @property
    def held(self) -> Path:
        """nbgrader's source: with answers and hidden tests."""
        return self.root / ".nbgrader" / "source" / "unit1" / "02_overlap.ipynb"

    def write(self, text: str = CHAPTER) -> None:
        self.source.parent.mkdir(parents=True, exist_ok=True)
        self.source.write_text(text, encoding="utf-8")

    def edit(self, old: str, new: str) -> None:
        assert self.source.read_text("utf-8").count(old) == 1, f"{old!r} is not in the chapter exactly once"
        self.write(self.source.read_text("utf-8").replace(old, new))

    def build(self, **options):
        return build(self.root, **{"exercises": POINTS, **options})

    def nbgrader(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
        return nbgrader(*arguments, f"--CourseDirectory.root={self.root}",
                        f"--CourseDirectory.db_url=sqlite:///{self.root}/.nbgrader/gradebook.db", cwd=cwd or self.root)


def nbgrader(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "JUPYTER_CONFIG_PATH": str(ROOT / "autograder"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-m", "nbgrader", *arguments], cwd=cwd, env=environment,
                          capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="session")
def empty_gradebook(tmp_path_factory) -> Path:
    """Made once: nbgrader starts a process of alembic for each new gradebook, which takes seconds."""
    root = tmp_path_factory.mktemp("empty")
    course = Course(root)
    course.write()
    course.build()
    gradebook = root / ".nbgrader" / "gradebook.db"
    with Gradebook(f"sqlite:///{gradebook}") as open_gradebook:
        open_gradebook.remove_assignment("unit1")
    return gradebook


@pytest.fixture
def course(tmp_path, empty_gradebook) -> Course:
    course = Course(tmp_path / "course")
    course.write()
    (course.root / ".nbgrader").mkdir()
    shutil.copy(empty_gradebook, course.root / ".nbgrader")
    return course
