"""release: the released notebooks, read for grading: which exercises they hold, and how each test cell calls its check.

Test cells are read from the release, which is ours, never from a submission. Next: grading/transplant.py.
"""
import ast
import hashlib
import platform
import site
import socket
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata, util
from pathlib import Path
from typing import Any

import nbformat

from ..commandline import typed
from ..exercise import EXERCISES, load

PACKAGE = Path(__file__).resolve().parents[1]  # the folder autograder/
REPOSITORY = PACKAGE.parent
# Installed from a wheel, we have no repository: the release lies with Python's data, and results go to where one is.
RELEASE = next((p for p in (REPOSITORY / "notebooks", *(Path(base, "share", "pallas-course", "notebooks") for base in
                                                        (sysconfig.get_path("data"), site.getuserbase())))
                if p.is_dir()), REPOSITORY / "notebooks")
ROOT = REPOSITORY if RELEASE.parent == REPOSITORY else Path.cwd()


class CourseError(Exception):
    """The release or the checks are not as they should be: the grader's own fault."""


@dataclass(frozen=True)
class Test:
    """One test cell: `check("3.2", split)` -> number 3.2, expression `split`."""

    number: str
    expression: str
    student: str  # an expression too, of the student's id; empty if the test does not ask for it
    points: float
    answer_id: str


@dataclass(frozen=True, eq=False)
class Notebook:
    """One released notebook."""

    unit: str
    name: str
    cells: tuple[Any, ...]
    tests: dict[str, Test]  # by the test cell's id

    @property
    def answers(self) -> dict[str, str]:
        """Id of an answer cell -> its exercise."""
        return {t.answer_id: t.number for t in self.tests.values()}


@dataclass(frozen=True)
class Course:
    """Where the release and the checks are. Small, so that it can be sent to another process."""

    release: str = str(RELEASE)
    checks: tuple[str, ...] = ("autograder.checks",)

    def __reduce__(self):  # without what was read: another process, maybe elsewhere, has to load the checks itself
        # The course's own release is wherever it lies over there.
        return Course, ("" if self.release == str(RELEASE) else self.release, self.checks)

    def __post_init__(self):
        object.__setattr__(self, "release", self.release or str(RELEASE))

    @cached_property
    def notebooks(self) -> tuple[Notebook, ...]:
        """All released notebooks, in order. Loads the checks. Raises CourseError."""
        load(*self.checks)
        paths = sorted(p for p in Path(self.release).glob("*/*.ipynb") if not p.parent.name.startswith("."))
        if not paths:
            raise CourseError(f"no released notebook in {self.release}. Build the course first: {typed('build')}")
        return tuple(_read(path) for path in paths)

    @cached_property
    def version(self) -> dict[str, str]:
        """Part -> a hash, or versions: whatever marks depend on beside submission and settings."""
        release = Path(self.release)
        checks = [path for name in self.checks for path in _sources(name)]
        grader = [p for kind in ("*.py", "*.txt") for p in PACKAGE.rglob(kind)
                  if p.relative_to(PACKAGE).parts[0] not in ("commands", "mutants")]
        packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "numpy", "ipython"))
        return {"release": _hash(release.glob("*/*.ipynb"), release), "checks": _hash(checks),
                "autograder": _hash(grader, PACKAGE), "pallas_lite": _hash(_sources("pallas_lite")),
                "packages": f"Python {'.'.join(platform.python_version_tuple()[:2])}, {packages}"}

    def check_version(self, expected: dict[str, str]) -> None:
        """Raises CourseError if this machine, or this process, has another version of the course."""
        differ = [part for part, value in self.version.items() if expected.get(part) != value]
        if differ:
            parts = "; ".join(f"{part}: {self.version[part][:70]} here, {expected.get(part, 'none')[:70]} where the "
                              "batch was started" for part in differ)
            raise CourseError(f"{socket.gethostname()} has another version of the course ({parts}). Marks would not be "
                              "comparable: bring both to the same commit and the same requirements.lock")

    @property
    def units(self) -> set[str]:
        return {n.unit for n in self.notebooks}


def _sources(module: str) -> list[Path]:
    """The source files of a module, or of all modules of a package."""
    try:
        found = util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise CourseError(f"there is no module {module} with checks")
    folders = found.submodule_search_locations
    return sorted(p for f in folders for p in Path(f).rglob("*.py")) if folders else [Path(found.origin)]


def _hash(paths: Iterable[Path], base: Path | None = None) -> str:
    """Of names, below `base` if it is given, and contents; Windows' line ends make no other course."""
    total = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(base).as_posix() if base else path.name
        content = path.read_bytes().replace(b"\r\n", b"\n")
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def cell_ids(cell: Any) -> list[str]:
    """The ids that a cell goes by: nbgrader's, the notebook format's, Colab's."""
    nbgrader = cell.metadata.get("nbgrader")
    found = [nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None, cell.get("id"), cell.metadata.get("id")]
    return [i for i in found if isinstance(i, str)]


def _read(path: Path) -> Notebook:
    where = f"{path.parent.name}/{path.name}"
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:
        raise CourseError(f"the released notebook {where} cannot be read: {error}. {_built_again()}") from None
    tests, answers = {}, []
    for cell in notebook.cells:
        nbgrader = cell.metadata.get("nbgrader", {})
        if nbgrader.get("solution") and cell.cell_type == "code":
            answers.append(nbgrader["grade_id"])
        elif nbgrader.get("grade"):
            found = _test(cell.source, nbgrader.get("points", 0), where)
            if found.answer_id not in answers:
                raise CourseError(f"{where}: exercise {found.number} has no answer cell {found.answer_id} "
                                  f"above its test. {_built_again()}")
            tests[nbgrader["grade_id"]] = found
    return Notebook(path.parent.name, path.stem, tuple(notebook.cells), tests)


def _test(source: str, points: float, where: str) -> Test:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "check" and len(node.args) == 2:
            number = getattr(node.args[0], "value", None)
            student = next((ast.unparse(k.value) for k in node.keywords if k.arg == "student"), "")
            found = EXERCISES.get(number)
            if found is None:
                raise CourseError(f"{where}: no check is registered for exercise {number!r}. {_built_again()}")
            if found.points != points:
                raise CourseError(f"{where}: the points of exercise {number} are {points:g} in the notebook and "
                                  f"{found.points:g} in its check. {_built_again()}")
            return Test(number, ast.unparse(node.args[1]), student, found.points, found.answer_id)
    raise CourseError(f'{where}: a test cell calls no check("3.2", answer): {source[:80]!r}. {_built_again()}')


def _built_again() -> str:
    return f"If the checks or solutions/ have changed since it was built, build it again: {typed('build')}"
