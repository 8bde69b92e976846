"""Real nbgrader on a release: `validate`, and `autograde` of a real chapter. More of it: test_gradebook.py."""
import importlib
import logging

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import LoggingConfigurable
from traitlets.config.loader import PyFileConfigLoader

from autograder.course.build import build, registered

from .conftest import ROOT, Course, nbgrader

pytestmark = pytest.mark.classroom

RIGHT = {"ex-2-1": "utilisation = 6 / 8", "ex-2-2": "def slot(step, depth):\n    return step % depth"}
HALF = {"ex-2-1": "utilisation = 75", "ex-2-2": "def slot(step, depth):\n    return 0"}


def answered(course: Course, answers: dict):
    notebook = nbformat.read(course.released, as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    return notebook


def scores(course: Course, student: str, unit: str = "unit1") -> dict[str, float]:
    with Gradebook(f"sqlite:///{course.root}/.nbgrader/gradebook.db") as gradebook:
        submission = gradebook.find_submission(unit, student)
        assert not submission.needs_manual_grade
        return {grade.name: grade.score for notebook in submission.notebooks for grade in notebook.grades}


def test_validate_tells_right_from_unfinished(tmp_path):
    course = Course(tmp_path / "course")
    course.write()
    course.build()
    for answers, passes in ((RIGHT, True), (HALF, False), ({}, False)):
        path = tmp_path / "02_overlap.ipynb"
        nbformat.write(answered(course, answers), path)
        done = course.nbgrader("validate", str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stderr  # nbgrader's own way: the verdict is in the text alone
        assert ("Success! Your notebook passes all the tests." in done.stdout) is passes, done.stdout


@pytest.mark.parametrize("there, level", [(False, "INFO"), (True, "CRITICAL")])
def test_formgrader_takes_a_machine_without_an_exchange_for_no_fault(tmp_path, monkeypatch, caplog, there, level):
    """As it does for each of its pages. An exchange that cannot be used is one still."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    config = PyFileConfigLoader("nbgrader_config.py", path=str(ROOT / "autograder")).load_config()
    config.Exchange.root = str(tmp_path / "exchange")
    (tmp_path / ("exchange" if there else "none")).touch()  # a file is no folder
    log = logging.getLogger("formgrader")
    with caplog.at_level("INFO", log.name):
        server = LoggingConfigurable(config=config, log=log)
        api = NbGraderAPI(CourseDirectory(parent=server), parent=server)
    assert api.exchange_missing
    assert [r.levelname for r in caplog.records if "exchange" in r.getMessage()] == [level]


# The real course

@pytest.fixture(scope="module")
def real(tmp_path_factory, sandbox):
    """Chapter 3, built and graded in a folder of its own, the repository's gradebook left alone.

    Every chapter runs in test_course.py, and is graded in tests/autograder/test_real_chapters.py.
    """
    root = tmp_path_factory.mktemp("real")
    chapter = root / "solutions" / "unit1" / "03_double_buffer.py"
    chapter.parent.mkdir(parents=True)
    chapter.symlink_to(ROOT / "solutions" / "unit1" / chapter.name)
    build(root, exercises={n: e for n, e in registered().items() if n.startswith("3.")})
    course = Course(root)
    units = ["unit1"]
    for unit in units:
        for student, step in (("right", ".nbgrader/source"), ("untouched", "notebooks")):
            folder = root / ".nbgrader" / "submitted" / student / unit
            folder.mkdir(parents=True)
            for path in (root / "notebooks" / unit).glob("*.ipynb"):
                notebook = nbformat.read(path, as_version=4)
                full = {c.id: c for c in nbformat.read(root / step / unit / path.name, as_version=4).cells}
                for each in notebook.cells:
                    if each.id.startswith("ex-"):
                        each.source = full[each.id].source
                nbformat.write(notebook, folder / path.name)
        done = course.nbgrader("autograde", unit)
        assert done.returncode == 0, done.stderr[-3000:]
    return course, units


def test_real_solutions_earn_full_marks_and_untouched_notebooks_none(real):
    course, units = real
    for unit in units:
        with Gradebook(f"sqlite:///{course.root}/.nbgrader/gradebook.db") as gradebook:
            possible = {grade.name: grade.max_score for notebook in gradebook.find_assignment(unit).notebooks
                        for grade in notebook.grade_cells}
        assert scores(course, "right", unit) == possible
        assert scores(course, "untouched", unit) == dict.fromkeys(possible, 0)


def test_validate_passes_on_a_real_solution(real):
    course, units = real
    path = next((course.root / ".nbgrader" / "submitted" / "right" / units[0]).glob("*.ipynb"))
    done = nbgrader("validate", str(path), cwd=path.parent)
    assert "Success!" in done.stdout, done.stdout + done.stderr


def test_the_grader_that_ours_is_measured_against_has_nothing_of_our_configuration(tmp_path, monkeypatch):
    """Also under `make bench`, which names that in JUPYTER_CONFIG_PATH."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(ROOT / "autograder"))
    grading = importlib.reload(importlib.import_module("benchmarks.grading"))
    grading.stock_course(tmp_path, "unit1")
    assert len(list((tmp_path / "release" / "unit1").glob("*.ipynb"))) == 3
