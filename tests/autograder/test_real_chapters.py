"""The real course through the real grader: its own solutions earn everything, its release nothing, its checks hold."""
import copy
import json

import nbformat
import pytest

from .test_grading import ROOT, run

pytestmark = pytest.mark.classroom


def test_the_checks_hold_against_planted_answers():
    done = run("selftest")
    assert done.returncode == 0, done.stderr


def test_solutions_earn_everything_half_of_them_half_and_the_release_nothing(tmp_path):
    from autograder.build import read_course, registered
    for chapter in read_course(ROOT, registered()):
        path = ROOT / "notebooks" / chapter.file
        answers = {c.id: c.source for c in chapter.notebook.cells if c.metadata.get("nbgrader", {}).get("solution")}
        for student, kept in (("all", list(answers)), ("half", list(answers)[::2]), ("none", [])):
            notebook = copy.deepcopy(nbformat.read(path, as_version=4))
            for cell in notebook.cells:
                if cell.id in kept:
                    cell.source = answers[cell.id]
            (tmp_path / student / chapter.unit).mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, tmp_path / student / chapter.file)
    done = run("grade", tmp_path, "--out", tmp_path / "results", "--jobs", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))["submissions"]
    found = {r["student"]: r for r in reports}
    assert found["all"]["points"] == found["all"]["max_points"] and found["none"]["points"] == 0, done.stdout
    assert set(found["none"]["marks"]) == set(found["all"]["marks"])
    for number, mark in found["half"]["marks"].items():
        assert mark["points"] in (0, mark["max_points"]), number
    assert {m["verdict"] for m in found["half"]["marks"].values()} == {"right", "not done"}
