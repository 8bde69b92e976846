"""The real course through the real grader: its own solutions earn everything, its release nothing, its checks hold."""
import copy
import json
import re

import nbformat
import pytest

from .test_grading import ROOT, run

pytestmark = pytest.mark.classroom


@pytest.mark.campaign
def test_the_checks_hold_against_planted_answers():
    done = run("selftest")
    assert done.returncode == 0, done.stderr


# All chapters are graded once, with all answers; these two also half answered, untouched, and with harm in them.
SOME = {"03_double_buffer", "05_pallas_call"}


@pytest.mark.usefixtures("sandbox")
def test_solutions_earn_everything_half_of_them_half_the_release_nothing_and_harm_costs_only_itself(tmp_path):
    from autograder.course.build import read_course, registered
    for chapter in read_course(ROOT, registered()):
        path = ROOT / "notebooks" / chapter.file
        answers = {c.id: c.source for c in chapter.notebook.cells if c.metadata.get("nbgrader", {}).get("solution")}
        loops = re.search(r"^def .*:$", answers.get("ex-3-4", ""), re.MULTILINE)
        harm = {"ex-3-2": "1 / 0", "ex-3-4": f"{loops and loops[0]}\n    while True:\n        pass",
                "ex-5-1": "import os\nos._exit(0)"}
        ids = list(answers)
        some = (("half", ids[::2]), ("none", []), ("harm", ids)) if path.stem in SOME else ()
        for student, kept in (("all", ids), *some):
            notebook = copy.deepcopy(nbformat.read(path, as_version=4))
            for cell in notebook.cells:
                if student == "half":
                    cell.source = cell.source.replace('STUDENT = ""', 'STUDENT = "nick"')
                if cell.id in kept:
                    cell.source = harm.get(cell.id, answers[cell.id]) if student == "harm" else answers[cell.id]
            (tmp_path / student / chapter.unit).mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, tmp_path / student / chapter.file)
    done = run("grade", tmp_path, "--out", tmp_path / "results", "--jobs", 2, "--timeout", 12)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))["submissions"]
    found = {r["student"]: r for r in reports}
    assert found["all"]["points"] == found["all"]["max_points"] and found["none"]["points"] == 0, done.stdout
    for report in (found[student] for student in ("half", "none", "harm")):
        missing = [w for w in report["warnings"] if w.endswith("was not handed in")]
        report["warnings"] = [w for w in report["warnings"] if w not in missing]
        report["marks"] = {n: m for n, m in report["marks"].items() if m["verdict"] != "missing"}
        assert {n.partition(".")[0] for n in report["marks"]} == {"3", "5"}
    assert {n for n in found["all"]["marks"] if n.startswith(("3.", "5."))} == set(found["none"]["marks"])
    for number, mark in found["half"]["marks"].items():
        assert mark["points"] in (0, mark["max_points"]), number
    # A cell that crashes, one that loops for ever and one that ends the process cost their own exercises alone.
    lost = {number for number, mark in found["harm"]["marks"].items() if mark["points"] < mark["max_points"]}
    assert lost == {"3.2", "3.4", "5.1"}, found["harm"]["marks"]
    assert all(found["harm"]["marks"][number]["points"] == 0 for number in lost)
    # Another name in the notebook is said, and the predictions count with the numbers that this name drew.
    files = r"\S+\.ipynb(, \S+\.ipynb)*"
    for student, words in (("half", f"STUDENT is 'nick' in {files}, and that came in as 'half': .* of that id"),
                           ("all", f"STUDENT is blank in {files}, and that came in as 'all': .* the demo's numbers")):
        said, mend = found[student]["warnings"]
        assert re.fullmatch(words, said) and mend.startswith("Where STUDENT is not your course id, put that there")
    assert {m["verdict"] for m in found["half"]["marks"].values()} == {"right", "not done"}
