"""Transplanting, finding submissions, writing results: everything that needs no sandbox."""
import copy
import csv
import functools
import json

import nbformat
import pytest

from autograder.course.online import install_cell
from autograder.course.release import Course, CourseError
from autograder.grading.grade import Grader, Mark, Report, clean
from autograder.grading.report import ResultsError, note, read, write
from autograder.grading.submissions import Submission, find
from autograder.grading.transplant import Unreadable, collect, read_notebook, recognise, transplant
from autograder.nbgrader.shown import show
from autograder.sandbox.bubblewrap import Sandbox

from . import little_course as little

# What these answers need of the first cell: not numpy, and not `check`, which a test cell of the notebook calls.
USED = "\n".join(line for line in little.SETUP.split("\n") if line and "numpy" not in line and "check" not in line)
CHECKS = ("tests.autograder.little_course",)


@pytest.fixture
def course(tmp_path):
    return little.released(tmp_path / "release")


@pytest.fixture
def save(tmp_path):
    def save(notebook, path):
        path = tmp_path / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(notebook, (str, bytes)):
            path.write_bytes(notebook.encode() if isinstance(notebook, str) else notebook)
        else:
            nbformat.write(notebook, path)
        return path
    return save


def sources(course, notebook):
    steps, warnings = transplant(course.notebooks[0], notebook)
    return [s.source for s in steps if not s.test], warnings


def test_the_answers_of_a_notebook_stand_in_our_skeleton(course):
    found, warnings = sources(course, little.notebook(little.RIGHT))
    assert found == [USED, *little.RIGHT.values()] and not warnings


def test_a_cell_of_ours_that_only_shows_something_is_left_out_unless_it_was_changed(course):
    notebook = little.notebook()
    notebook.cells[2].source = "print(2)"
    assert "print(2)" in sources(course, notebook)[0]


def test_extra_cells_run_where_they_were_put_and_none_after_the_last_test(course):
    notebook = little.notebook(little.RIGHT)
    notebook.cells.insert(5, nbformat.v4.new_code_cell("helper = 1"))
    notebook.cells.append(nbformat.v4.new_code_cell("too_late = 1"))
    found, _ = sources(course, notebook)
    assert found.index("helper = 1") == found.index(little.RIGHT["90.1"]) + 1 and "too_late = 1" not in found


def test_the_last_of_two_answers_counts_and_it_is_said(course):
    notebook = little.notebook(little.RIGHT)
    notebook.cells.append(little.answer_cell("90.2", "time = 7"))
    found, warnings = sources(course, notebook)
    assert "time = 7" in found and little.RIGHT["90.2"] not in found
    assert warnings == ["exercise 90.2: its cell is there 2 times; the last one was graded"]


def test_an_untouched_copy_of_the_hole_does_not_undo_an_answer(course):
    notebook = little.notebook(little.RIGHT)
    notebook.cells.append(little.answer_cell("90.2", little.STUBS["90.2"]))
    assert little.RIGHT["90.2"] in sources(course, notebook)[0]


def test_moved_flipped_and_deleted_cells_make_no_difference(course):
    notebook = little.notebook(little.RIGHT)
    notebook.cells = [c for c in notebook.cells if not c.id.startswith("test")][::-1]
    for cell in notebook.cells:
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader |= {"points": 100, "grade": True, "solution": False}
    assert sources(course, notebook)[0] == [USED, *little.RIGHT.values()]


def test_a_test_cell_of_a_student_is_never_run(course):
    notebook = little.notebook(little.RIGHT)
    for cell in notebook.cells:
        if cell.id.startswith("test"):
            cell.source = "forged = 1"
    found, warnings = sources(course, notebook)
    assert "forged = 1" not in found
    assert warnings[1] == "exercise 90.2: its check was changed; what counts is time, as the cells above give it"
    assert [t.expression for t in course.notebooks[0].tests.values()] == ["loop", "time", "double", "add_one"]


def test_an_answer_in_the_cell_of_its_check_counts(course):
    """Where a program lets people write there, it is right in their notebook too."""
    notebook = little.notebook({n: answer for n, answer in little.RIGHT.items() if n != "90.2"})
    test = next(c for c in notebook.cells if c.id == "test-90-2")
    test.source = f"# here?\n{test.source}"
    assert sources(course, notebook) == sources(course, little.notebook(
        {n: answer for n, answer in little.RIGHT.items() if n != "90.2"}))
    test.source = f"{little.RIGHT['90.2']}\n{test.source}"
    found, warnings = sources(course, notebook)
    assert found.index(test.source) == found.index(little.STUBS["90.2"]) + 1 and not warnings


def test_locked_cells_are_ours(course, tmp_path):
    release = little.notebook()
    release.cells[1].metadata.nbgrader = {"grade": False, "grade_id": "setup", "locked": True, "schema_version": 3,
                                          "solution": False, "task": False}
    nbformat.write(release, tmp_path / "release" / little.UNIT / f"{little.NAME}.ipynb")
    notebook = copy.deepcopy(release)
    notebook.cells[1].source = "BASE = 7"
    assert "BASE = 7" not in sources(course, notebook)[0]


def test_the_cell_that_installs_the_course_is_left_out_whatever_became_of_it(course, tmp_path):
    release = little.notebook(little.RIGHT)
    release.cells.insert(0, install_cell("https://example.org/course"))
    nbformat.write(release, tmp_path / "release" / little.UNIT / f"{little.NAME}.ipynb")
    notebook = copy.deepcopy(release)
    for source in (release.cells[0].source, "!pip install something"):
        notebook.cells[0].source = source
        assert sources(course, notebook) == sources(course, little.notebook(little.RIGHT))


def test_ids_are_found_without_nbgrader_metadata_and_in_colabs_place(course):
    bare = little.notebook(little.RIGHT)
    for cell in bare.cells:
        cell.metadata.pop("nbgrader", None)
    colab = copy.deepcopy(bare)
    for cell in colab.cells:
        cell.metadata["id"], cell["id"] = cell.id, f"c{cell.id}"
    for notebook in (bare, colab):
        assert sources(course, notebook)[0][1:] == list(little.RIGHT.values())


def test_a_deleted_answer_cell_is_said(course):
    notebook = little.notebook(little.RIGHT)
    notebook.cells = [c for c in notebook.cells if c.id != "ex-90-2"]
    assert sources(course, notebook)[1] == ["exercise 90.2: its cell is not in the notebook: deleted, or newer than it"]


def test_an_answer_that_became_markdown_is_run_as_code(course):
    notebook = little.notebook(little.RIGHT)
    place = next(i for i, c in enumerate(notebook.cells) if c.id == "ex-90-2")
    notebook.cells[place] = nbformat.v4.new_markdown_cell("time = 2.5", id="ex-90-2")
    found, warnings = sources(course, notebook)
    assert "time = 2.5" in found and "no code cell any more" in warnings[0]


@pytest.mark.parametrize("content, words", [
    (b"", "empty"), (b"   \n", "empty"), (b"\x89PNG\r\n\xff\xfe", "not text"),
    ("hello", "not a notebook"), ("[]", "no nbformat"),
    ('{"cells": []}', "no nbformat"), ('{"nbformat": 9, "metadata": {}, "cells": []}', "nbformat 9"),
    ('{"nbformat": 4, "cells": [{"x": 1}]}', "damaged"), ("[" * 100_000, "not a notebook"),
    (json.dumps(little.notebook())[:900], "cut off")])
def test_an_unreadable_file_is_told_apart(save, content, words):
    with pytest.raises(Unreadable, match=words):
        read_notebook(save(content, "x.ipynb"))


JUNK = (None, True, -1, 1e308, float("nan"), 10**30, "", "raw", "\ud800", "ex-90-2", [], {}, [1], ["a", "b"], {"a": 1},
        {"grade_id": []}, {"nbgrader": []}, {"nbgrader": {"grade_id": "ex-90-2", "solution": True}})


@pytest.mark.parametrize("where", [(), ("cells",), ("metadata",), ("nbformat",), ("nbformat_minor",), *(
    ("cells", 3, *more) for more in ((), ("id",), ("cell_type",), ("source",), ("outputs",), ("metadata",),
                                     ("metadata", "nbgrader"), ("metadata", "nbgrader", "grade_id")))], ids=str)
def test_whatever_stands_in_a_notebook_it_is_read_or_refused(save, course, where):
    graded = Report("ann", [], "", marks={n: Mark(1.0, 1, "right") for n in little.STUBS})
    plain = json.loads(nbformat.writes(little.notebook(little.RIGHT)))
    *path, last = where or ("cells",)
    for junk in (*JUNK, "nothing at all"):
        changed = copy.deepcopy(plain)
        place = functools.reduce(lambda at, key: at[key], path, changed)
        place[last] = junk
        if junk == "nothing at all":
            del place[last]
        read, _, unread = collect([save(json.dumps(changed if where else junk), "s.ipynb")], course)
        assert len(read) + len(unread) == 1
        for released, (_, notebook) in read.items():
            steps, _ = transplant(released, notebook)
            assert all(isinstance(s.source, str) for s in steps)
            nbformat.writes(show(released, notebook, graded))


def test_windows_line_ends_a_byte_order_mark_and_old_formats_are_read(save, course):
    text = nbformat.writes(little.notebook(little.RIGHT))
    old = nbformat.writes(little.notebook(little.RIGHT), version=3)
    for content in ("\ufeff" + text, text.replace("\n", "\r\n"), old):
        notebook = read_notebook(save(content, "x.ipynb"))
        assert recognise(notebook, course).name == little.NAME


def test_a_notebook_of_another_course_is_refused(course):
    with pytest.raises(Unreadable, match="not a notebook of this course"):
        recognise(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), course)


def test_a_release_at_odds_with_its_checks_is_the_graders_fault(tmp_path, course):
    for change, words in ((lambda n: n.cells[4].metadata.nbgrader.update(points=9), "are 9 in the notebook and 2 in"),
                          (lambda n: n.cells[4].update(source="1"), "calls no check"),
                          (lambda n: n.cells[4].update(source='check("90.9", x)'), "no check is registered")):
        notebook = little.notebook()
        change(notebook)
        nbformat.write(notebook, tmp_path / "release" / little.UNIT / f"{little.NAME}.ipynb")
        with pytest.raises(CourseError, match=words):
            _ = Course(course.release, CHECKS).notebooks
    with pytest.raises(CourseError, match="autograder build"):
        _ = Course(str(tmp_path / "nothing"), CHECKS).notebooks


LAYOUTS = {
    "nbgrader's": (["sub/ann/unit9/90_little.ipynb", "sub/bob/unit9/90_little.ipynb"], "sub",
                   {"ann": True, "bob": True}),
    "a folder a student": (["sub/ann/90_little.ipynb", "sub/bob/other name.ipynb"], "sub", {"ann": True, "bob": True}),
    "loose notebooks": (["sub/ann.ipynb", "sub/bob.ipynb"], "sub", {"ann": False, "bob": False}),
    "both": (["sub/ann.ipynb", "sub/bob/x.ipynb"], "sub", {"ann": False, "bob": True}),
    "one student": (["sub/ann/90_little.ipynb"], "sub/ann", {"ann": True}),
    "one student by unit": (["sub/ann/unit9/90_little.ipynb"], "sub/ann", {"ann": True}),
    "one unit of a student": (["sub/ann/unit9/90_little.ipynb"], "sub/ann/unit9", {"ann": True}),
    "one file": (["sub/ann.ipynb"], "sub/ann.ipynb", {"ann": False}),
    "checkpoints": (["sub/ann/.ipynb_checkpoints/a.ipynb", "sub/ann/a.ipynb"], "sub", {"ann": True}),
    "natural order": (["sub/s10.ipynb", "sub/s2.ipynb", "sub/S1.ipynb"], "sub",
                      {"S1": False, "s2": False, "s10": False}),
}


@pytest.mark.parametrize("files, path, students", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(save, course, tmp_path, files, path, students):
    for file in files:
        save("x", file)
    found = find([str(tmp_path / path)], course)
    assert [(s.student, s.whole) for s in found] == list(students.items())
    assert all(len(s.paths) == 1 and not s.problem for s in found)


def test_what_holds_no_notebook_has_a_row_that_says_so(course, tmp_path):
    (tmp_path / "sub" / "ann").mkdir(parents=True)
    (tmp_path / "nothing").mkdir()
    for path in ("sub", "nothing"):
        assert [s.problem for s in find([str(tmp_path / path)], course)] == [
            "there is no notebook in this folder: it is empty"]
    assert find([str(tmp_path / "absent")], course)[0].problem == "there is no such file or folder"


def test_a_link_to_another_student_is_not_followed(save, course, tmp_path):
    save("x", "sub/ann/90_little.ipynb")
    (tmp_path / "sub" / "bob").mkdir()
    (tmp_path / "sub" / "bob" / "90_little.ipynb").symlink_to(tmp_path / "sub" / "ann" / "90_little.ipynb")
    assert find([str(tmp_path / "sub")], course)[1].problem


def test_the_digest_is_of_the_contents(save):
    a, b, c = (Submission("x", (str(save(text, name)),)).digest for text, name in (("1", "a"), ("1", "b"), ("2", "c")))
    assert a == b != c


def test_results_are_stable_and_safe_for_spreadsheets(tmp_path):
    marks = {"90.1": Mark(2.0, 2.0, "right"), "90.2": Mark(None, 1.0, "broken", "x")}
    reports = [Report("=cmd()", ["a.ipynb"], "d", "fault", marks),
               Report("bob", [], "e", "unreadable", warnings=["-1 is\nno notebook"])]
    write(reports, tmp_path)
    rows = list(csv.reader((tmp_path / "results.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert rows[0] == ["student", "status", "points", "max_points", "90.1", "90.2", "seconds", "files", "note"]
    assert rows[1][:6] == ["'=cmd()", "fault", "", "3.0", "2.0", ""]
    assert rows[2][0] == "bob" and rows[2][-1] == "'-1 is no notebook"
    plain = json.loads((tmp_path / "results.json").read_text())
    assert plain["submissions"][0]["marks"]["90.2"]["points"] is None
    assert read(tmp_path) == reports
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("text, words", {
    "none": "nothing was graded yet", "{": "is damaged", "[]": "is damaged", '{"version": 1}': "is damaged",
    '{"version": 1, "submissions": [{"student": "ann"}]}': "is damaged",
    '{"version": 7, "submissions": 0}': "version 7",
}.items())
def test_results_that_cannot_be_read_say_so(tmp_path, text, words):
    if text != "none":
        (tmp_path / "results.json").write_text(text)
    with pytest.raises(ResultsError, match=words):
        read(tmp_path)


def test_control_characters_of_a_student_reach_no_terminal():
    assert clean("a\x1b[2Jb\x07\u202ec\td\ne") == "a [2Jb  c d\ne"
    assert "\n" not in note(Report("x", [], "", warnings=["a\nb"]))


def test_a_bug_in_the_grader_is_a_fault_and_no_mark(course, save, monkeypatch):
    monkeypatch.setattr("autograder.grading.transplant.read_notebook", lambda path: 1 / 0)
    report = Grader(course, Sandbox("", "none")).grade(Submission("ann", (str(save("x", "a.ipynb")),)))
    assert report.status == "fault" and report.points is None and "ZeroDivisionError" in report.warnings[0]
