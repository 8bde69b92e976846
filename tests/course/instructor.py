"""A course as an instructor has it: the little course released, submissions collected, settings of its own."""
import copy
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import nbformat

from tests.autograder import little_course as little

ROOT = Path(__file__).resolve().parents[2]
CHECKS = "tests.autograder.little_course"
RIGHT = little.RIGHT


def hostile():
    """Ends Python, is equal to everything, never ends; and a page that would act with the instructor's rights."""
    notebook = little.notebook({
        "90.1": "import os\nos._exit(1)", "90.3": "def double(x):\n    while True: pass",
        "90.2": "class Any:\n    def __eq__(self, other): return True\nprint('<script>alert(1)</script>')\n"
                "time = Any()"})
    notebook.cells.append(nbformat.v4.new_markdown_cell("<script>alert(2)</script>Hello <b>there</b>"))
    return notebook


def deleted():
    notebook = little.notebook(RIGHT)
    notebook.cells = [c for c in notebook.cells if c.id not in ("test-90-1", "ex-90-3", "test-90-3")]
    return notebook


def twice():
    notebook = little.notebook(RIGHT)
    for name in ("ex-90-4", "test-90-4"):  # as JupyterLab copies a cell: nbgrader's id too, but another id
        cell = copy.deepcopy(next(c for c in notebook.cells if c.id == name))
        cell.id += "-copy"
        notebook.cells.append(cell)
    return notebook


# student -> notebook, and marks in the order of the little course's exercises: 90.1 (2), 90.2 (1), 90.3 (3), 90.4 (4)
SUBMISSIONS = {
    "right": (little.notebook(RIGHT), [2, 1, 3, 4]),
    "half": (little.notebook({"90.2": "time = 5.0", "90.3": RIGHT["90.3"]}), [0, 0, 3, 0]),
    "hostile": (hostile(), [0, 0, 0, 0]),
    "deleted": (deleted(), [2, 1, 0, 4]),
    "twice": (twice(), [2, 1, 3, 4]),
    "renamed": (little.notebook({"90.2": "time = 2.5"}), [0, 1, 0, 0]),
}


@dataclass
class Instructor:
    root: Path
    url: str = ""

    def __post_init__(self):
        self.url = self.url or f"sqlite:///{self.root}/.nbgrader/gradebook.db"
        for step in ("notebooks", ".nbgrader/source"):
            put(self.root / step / little.UNIT / f"{little.NAME}.ipynb", little.notebook())
        (self.root / "config").mkdir()
        (self.root / "config" / "nbgrader_config.py").write_text(
            f"c.CourseDirectory.root = {str(self.root)!r}\nc.CourseDirectory.db_url = {self.url!r}\n"
            f"c.Submissions.checks = [{CHECKS!r}]\nc.Submissions.timeout = 3.0\n")

    @property
    def submitted(self) -> Path:
        return self.root / ".nbgrader" / "submitted"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def options(self) -> list[str]:
        return ["--release", str(self.root / "notebooks"), "--checks", CHECKS]

    def submit(self, student: str, notebook, name: str = little.NAME) -> Path:
        return put(self.submitted / student / little.UNIT / f"{name}.ipynb", notebook)

    def submit_all(self) -> None:
        for student, (notebook, _) in SUBMISSIONS.items():
            self.submit(student, notebook, "my copy (1)" if student == "renamed" else little.NAME)
        self.submit("cut_off", '{"cells": [')

    def shown(self, student: str):
        return nbformat.read(self.root / ".nbgrader/autograded" / student / little.UNIT / f"{little.NAME}.ipynb", 4)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", *map(str, command)], cwd=self.root, capture_output=True, text=True,
                              timeout=600, env=self.environment | environment)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "JUPYTER_CONFIG_DIR": str(self.root / "config"), "JUPYTER_CONFIG_PATH": str(ROOT / "autograder"),
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]), "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])), "COLUMNS": "200"}


def put(path: Path, notebook) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook if isinstance(notebook, str) else nbformat.writes(notebook), encoding="utf-8")
    return path
