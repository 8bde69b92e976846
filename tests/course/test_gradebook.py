"""nbgrader's gradebook after `autograder grade`, and after nbgrader's own autograde: the same marks in each."""
import contextlib
import csv
import json
import shlex
import shutil
import sqlite3
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder.__main__ import main
from autograder.course import release as courses
from autograder.course.release import Course
from autograder.grading import report
from autograder.grading.grade import Mark, Report
from autograder.nbgrader import gradebook, shown
from autograder.nbgrader.autograde import NotGraded, StudentView
from tests.autograder import little_course as little

from ..hostile.chapters import as_chapter
from .instructor import CHECKS, RIGHT, SUBMISSIONS, Instructor, put

pytestmark = pytest.mark.classroom
TESTS = ["test-90-1", "test-90-2", "test-90-3", "test-90-4"]
MARKS = {(student, little.UNIT): dict(zip(TESTS, marks, strict=True)) for student, (_, marks) in SUBMISSIONS.items()}


@pytest.fixture(scope="module")
def graded(tmp_path_factory, sandbox):
    """One `autograder grade` of everything that was collected."""
    course = Instructor(tmp_path_factory.mktemp("instructor") / "course")
    course.submit_all()
    (course.submitted / "half" / little.UNIT / "timestamp.txt").write_text("2026-03-01 10:30:00 CET\n")
    done = course.run("autograder", "grade", course.submitted, "--out", course.results, "--timeout", "3",
                      *course.options)
    assert done.returncode == 2, done.stderr  # one was cut off
    assert "written: marks of 6 students into sqlite:///" in done.stderr
    assert "no marks to write: cut_off (unreadable: the file is cut off" in done.stderr
    return course


@pytest.fixture
def course(graded, tmp_path, monkeypatch):
    """The same, in a gradebook of the test's own."""
    url = f"sqlite:///{tmp_path}/gradebook.db"
    shutil.copy(graded.root / ".nbgrader" / "gradebook.db", tmp_path)
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(graded.root / "config"))
    return graded, url, Course(str(graded.root / "notebooks"), (CHECKS,)), report.read(graded.results)


def contents(url: str) -> str:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return "\n".join(connection.iterdump())


def test_the_gradebook_has_the_marks_of_the_results(course):
    _, url, _, reports = course
    assert gradebook.scores(url) == MARKS
    assert {(r.student, little.UNIT): [m.points for m in r.marks.values()] for r in reports if r.marks} == \
        {student: list(marks.values()) for student, marks in MARKS.items()}


def test_writing_twice_changes_nothing(course):
    _, url, released, reports = course
    before = contents(url)
    written = gradebook.write(reports, url, released)
    assert (written.students, written.changed, len(written.left_out)) == (6, 0, 1)
    assert contents(url) == before


def test_what_was_given_by_hand_stays_and_is_looked_at_again_only_if_the_mark_changes(course):
    _, url, released, reports = course
    given = {"test-90-2": 0.5, "test-90-3": 2.0}
    with Gradebook(url) as book:
        for cell, points in given.items():
            grade = book.find_grade(cell, little.NAME, little.UNIT, "half")
            grade.manual_score, grade.extra_credit, grade.needs_manual_grade = points, 0.25, False
        book.find_comment("ex-90-2", little.NAME, little.UNIT, "half").manual_comment = "Nearly."
        book.db.commit()
    half = next(r for r in reports if r.student == "half")
    half.marks["90.3"].points = 0.0  # its answer got worse; 90.2 is what it was
    gradebook.write(reports, url, released)
    with Gradebook(url) as book:
        found = {c: book.find_grade(c, little.NAME, little.UNIT, "half") for c in TESTS}
        assert {c: (g.manual_score, g.extra_credit, g.score) for c, g in found.items() if c in given} == \
            {c: (points, 0.25, points + 0.25) for c, points in given.items()}
        assert [g.needs_manual_grade for g in found.values()] == [False, False, True, False]
        comment = book.find_comment("ex-90-2", little.NAME, little.UNIT, "half")
        assert comment.comment == "Nearly."
        assert book.find_comment("ex-90-4", little.NAME, little.UNIT, "half").comment == "No response."


def test_a_mark_that_is_not_known_leaves_what_was_there(course):
    _, url, released, reports = course
    for r in reports:
        for mark in r.marks.values():
            mark.points, r.status = None, "fault"
    written = gradebook.write(reports, url, released)
    assert written.students == 0 and len(written.left_out) == 7
    assert gradebook.scores(url) == MARKS


def test_when_it_was_handed_in_and_the_penalty_for_being_late(course):
    graded, url, released, reports = course
    from traitlets.config import Config
    with Gradebook(url) as book:
        assert str(book.find_submission(little.UNIT, "half").timestamp) == "2026-03-01 09:30:00"  # UTC
        book.update_or_create_assignment(little.UNIT, duedate="2026-03-01 08:00:00")
    config = Config()
    config.LateSubmissionPlugin.penalty_method = "zero"  # nothing for what is late
    times = gradebook.times_of(p.parent for p in graded.submitted.glob("*/*/*.ipynb"))
    for _ in range(2):
        gradebook.write(reports, url, released, times, config)
        with Gradebook(url) as book:
            late = book.find_submission(little.UNIT, "half")
            assert (late.score, late.late_submission_penalty) == (3, 3)
            assert book.find_submission(little.UNIT, "right").late_submission_penalty == 0


def test_nbgraders_export_agrees_with_ours(course, tmp_path):
    graded, url, _, reports = course
    done = graded.run("nbgrader", "export", "--to", tmp_path / "grades.csv", f"--CourseDirectory.db_url={url}")
    assert done.returncode == 0, done.stderr
    theirs = {row["student_id"]: (float(row["score"]), float(row["max_score"]))
              for row in csv.DictReader((tmp_path / "grades.csv").open())}
    ours = {row["student"]: (float(row["points"]), float(row["max_points"]))
            for row in csv.DictReader((graded.results / "results.csv").open(encoding="utf-8-sig")) if row["points"]}
    assert theirs == ours and len(ours) == 6


def test_export_and_pages_have_what_was_given_by_hand_and_say_so(course, tmp_path, capsys):
    graded, url, released, _ = course
    with Gradebook(url) as book:
        grade = book.find_grade("test-90-2", little.NAME, little.UNIT, "half")
        grade.manual_score, grade.extra_credit = 0.5, 0.25
        book.find_grade("test-90-1", little.NAME, little.UNIT, "right").manual_score = 1.5  # taken off a right answer
        book.find_comment("ex-90-3", little.NAME, little.UNIT, "half").manual_comment = "Nice <b>loop</b>."
        gone = book.add_submission(little.UNIT, book.add_student("gone").id)
        gone.notebooks[0].grades[0].manual_score = 1.0
        book.db.commit()
    here = ["--results", graded.results, "--gradebook", url, *graded.options]

    def run(*words):
        assert main([str(w) for w in (*words, *here)]) == 0
        return capsys.readouterr().err

    for format in ("csv", "canvas", "nbgrader", "gradescope"):
        said = run("export", "--format", format, "--out", tmp_path)
        assert ("! points given by hand in the gradebook count here: half 90.2: 0.75 (the check gave 0), right 90.1: "
                "1.5 (the check gave 2). Without them: --gradebook none") in said
        assert "not here, since these results have no such mark: gone 90.1" in said
    canvas = {row["Student"]: row[little.UNIT] for row in csv.DictReader((tmp_path / "canvas.csv").open())}
    assert (canvas["half"], canvas["right"], canvas["twice"]) == ("3.75", "9.5", "10")
    theirs = {s: sum(marks.values()) for (s, _), marks in gradebook.scores(url).items() if s != "gone"}
    ours = {row["student_id"]: float(row["score"]) for row in csv.DictReader((tmp_path / "nbgrader.csv").open())
            if row["score"]}
    assert ours == theirs
    found = {(row["student"], row["exercise"]): row for row in csv.DictReader(
        (tmp_path / "grades.csv").open(encoding="utf-8-sig"))}
    assert found["right", "90.1"]["message"] == "Your teacher gave 1.5 of 2 points by hand."
    assert found["half", "90.2"]["points"] == "0.75" and found["right", "90.2"]["message"] == ""
    tests = {t["number"]: t for t in json.loads((tmp_path / "half" / "results.json").read_text())["tests"]}
    assert tests["90.2"]["score"] == 0.75 and "Your teacher gave 0.75 of 1 points" in tests["90.2"]["output"]
    assert "Your teacher writes: Nice <b>loop</b>." in tests["90.3"]["output"]
    said = run("feedback", "--out", tmp_path / "pages")
    assert "half 90.2: 0.75 (the check gave 0)" in said
    page = (tmp_path / "pages" / "half" / little.UNIT / "feedback.html").read_text()
    assert "3.75 of 10 points" in page and "Your teacher gave 0.75 of 1 points by hand." in page
    assert "Your teacher writes: Nice &lt;b&gt;loop&lt;/b&gt;." in page
    page = (tmp_path / "pages" / "right" / little.UNIT / "feedback.html").read_text()
    assert "9.5 of 10 points" in page and "Your teacher gave 1.5 of 2 points by hand." in page
    assert main(["export", "--format", "canvas", "--out", str(tmp_path), "--gradebook", "none", "--results",
                 str(graded.results), *graded.options]) == 0
    assert "by hand" not in capsys.readouterr().err
    assert {row["Student"]: row[little.UNIT] for row in csv.DictReader((tmp_path / "canvas.csv").open())}["half"] == "3"


def test_a_gradebook_that_cannot_be_read_stops_an_export_and_none_is_made(course, tmp_path, capsys):
    graded, _, _, _ = course
    damaged, missing = tmp_path / "damaged.db", tmp_path / "missing.db"
    damaged.write_bytes(b"no database" * 1000)
    export = ["export", "--out", str(tmp_path / "out"), "--results", str(graded.results), *graded.options]
    assert main([*export, "--gradebook", f"sqlite:///{damaged}"]) == 2
    said = capsys.readouterr().err
    assert "could not be read" in said and "To leave that out: --gradebook none" in said
    assert not (tmp_path / "out").exists()
    assert main([*export, "--gradebook", f"sqlite:///{missing}"]) == 0 and not missing.exists()


@pytest.mark.parametrize("left, words", [(0, "gradebook.db has 0 bytes"), (5000, "the file is damaged (")])
def test_a_gradebook_that_lost_its_contents_is_not_filled_anew_without_a_word(course, tmp_path, capsys, left, words):
    graded, url, _, _ = course
    file = Path(url.removeprefix("sqlite:///"))
    file.write_bytes(file.read_bytes()[:left])
    results = ["--results", str(graded.results), "--gradebook", url, *graded.options]
    assert main(["gradebook", *results]) == 3
    told = capsys.readouterr().err
    assert words in told and "points and comments given by hand are in that file alone" in told
    assert "No mark is lost" not in told and "what was given by hand is not" in told and "autograder gradebook" in told
    assert main(["export", *results, "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err and file.stat().st_size == left
    file.rename(file.with_suffix(".aside"))
    assert main(["gradebook", *results]) == 0
    assert gradebook.scores(url) == MARKS


def test_points_taken_off_for_being_late_are_named_by_an_export(course, tmp_path, capsys):
    graded, url, released, reports = course
    with Gradebook(url) as book:
        book.find_submission(little.UNIT, "half").notebooks[0].late_submission_penalty = 2.0
        book.db.commit()
    assert main(["export", "--format", "canvas", "--out", str(tmp_path), "--gradebook", url, "--results",
                 str(graded.results), *graded.options]) == 0
    assert ("the gradebook takes points off for being late, which is not done here; `nbgrader export` has those "
            "marks: half\n") in capsys.readouterr().err


def test_a_student_who_is_none_can_be_taken_away(course):
    graded, url, _, _ = course
    done = graded.run("nbgrader", "db", "student", "remove", "half", "--force", "--db", url)
    assert done.returncode == 0, done.stderr
    assert gradebook.scores(url) == {key: marks for key, marks in MARKS.items() if key[0] != "half"}


def test_a_locked_gradebook_loses_nothing_and_the_message_says_how_to_go_on(course, capsys):
    graded, url, _, _ = course
    command = ["gradebook", "--results", str(graded.results), "--gradebook", url, *graded.options]
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("DELETE FROM grade")
        connection.execute("DELETE FROM comment")
        connection.execute("DELETE FROM submitted_notebook")
        connection.execute("DELETE FROM submitted_assignment")
        connection.commit()
        connection.execute("BEGIN EXCLUSIVE")
        assert main(command) == 3
        told = capsys.readouterr().err
        assert "another program is writing to it (database is locked)" in told and "No mark is lost" in told
        assert f"autograder gradebook --results {graded.results} --gradebook {shlex.quote(url)}" in told
        assert "Traceback" not in told
        connection.rollback()
    assert main(command) == 0
    assert gradebook.scores(url) == MARKS


@pytest.mark.parametrize("url, words", [
    ("sqlite:////no/such/folder/gradebook.db", "unable to open database file"),
    ("gradebook", "is no address of a database"),
    ("oracle://course@host/x", "needs a driver that is not installed"),
])
def test_what_is_no_gradebook_is_said(course, capsys, url, words):
    graded, _, _, _ = course
    assert main(["gradebook", "--results", str(graded.results), "--gradebook", url, *graded.options]) == 3
    assert words in capsys.readouterr().err


def test_a_release_with_other_exercises_than_the_gradebook_is_said(course):
    _, url, released, reports = course
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE base_cell SET name = 'test-90-9' WHERE name = 'test-90-4'")
        connection.commit()
    with pytest.raises(gradebook.GradebookError, match="another unit9/90_little than the release"):
        gradebook.write(reports, url, released)


# nbgrader's own autograde, which Formgrader's button runs too

@pytest.fixture(scope="module")
def autograded(graded, tmp_path_factory):
    """`nbgrader autograde` on the same submissions, after points were given by hand."""
    course = Instructor(tmp_path_factory.mktemp("autograded") / "course")
    shutil.copytree(graded.submitted, course.submitted)
    shutil.copy(graded.root / ".nbgrader" / "gradebook.db", course.root / ".nbgrader")
    with Gradebook(course.url) as book:
        grade = book.find_grade("test-90-2", little.NAME, little.UNIT, "half")
        grade.manual_score, grade.needs_manual_grade = 0.5, False
        for student in ("right", "twice"):
            book.remove_submission(little.UNIT, student)
        book.db.commit()
    return course, course.run("nbgrader", "autograde", little.UNIT)


def test_nbgraders_autograde_gives_the_same_marks(autograded):
    course, done = autograded
    assert gradebook.scores(course.url) == \
        MARKS | {("half", little.UNIT): MARKS["half", little.UNIT] | {"test-90-2": 0.5},
                 ("cut_off", little.UNIT): dict.fromkeys(TESTS, 0)}, done.stderr
    with Gradebook(course.url) as book:
        needs = {s.student.id: s.needs_manual_grade for s in book.assignment_submissions(little.UNIT)}
        assert needs == {**{student: False for student in SUBMISSIONS}, "cut_off": True}  # it has no mark, and not 0
        assert book.find_grade("test-90-2", little.NAME, little.UNIT, "cut_off").auto_score is None


def test_what_cannot_be_graded_is_said_and_the_others_are(autograded):
    _, done = autograded
    assert done.returncode == 1  # nbgrader's way to say that one of them failed
    assert "cut_off: unreadable: the file is cut off: it was not saved or uploaded to its end" in done.stderr
    assert "deleted: exercise 90.3: its cell is not in the notebook: deleted" in done.stderr


@pytest.mark.usefixtures("sandbox")
def test_nbgraders_autograde_books_no_0_for_what_may_be_in_an_unreadable_file(tmp_path):
    course, second = Instructor(tmp_path / "course"), "91_little"
    checks = ["--checks", "tests.hostile.chapters"]
    with (course.root / "config" / "nbgrader_config.py").open("a") as config:
        config.write(f"c.Submissions.checks = [{checks[1]!r}]\n")
    answered = nbformat.writes(little.notebook({"90.2": "time = 2.5"}))
    for step in ("notebooks", ".nbgrader/source"):
        put(course.root / step / little.UNIT / f"{second}.ipynb",
            as_chapter(nbformat.writes(little.notebook()).encode(), 91).decode())
    for student in ("ann", "bob", "cay"):
        course.submit(student, answered)
        course.submit(student, as_chapter(answered.encode(), 91).decode(), second)
    grade = "autograder", "grade", course.submitted, "--out", course.results, *course.options[:2], *checks
    done = course.run(*grade)
    before = gradebook.scores(course.url)
    assert done.returncode == 0 and {sum(scores.values()) for scores in before.values()} == {2}, done.stderr

    course.submit("ann", '{"cells": [', second)
    course.submit("bob", '{"cells": [', second).rename(course.submitted / "bob" / little.UNIT / "mine.ipynb")
    (course.submitted / "cay" / little.UNIT / f"{second}.ipynb").rename(
        course.submitted / "cay" / little.UNIT / f"{second}.ipynb.zip")  # what is in it does not matter
    done = course.run("nbgrader", "autograde", little.UNIT, "--force")
    assert gradebook.scores(course.url) == before, done.stderr
    assert f"{second}.ipynb.zip: this is an archive. Hand in {second}.ipynb itself" in done.stderr
    assert done.returncode == 1 and "bob has no marks here: mine.ipynb: the file is cut off" in done.stderr
    shown = course.root / ".nbgrader" / "autograded" / "ann" / little.UNIT
    assert sorted(p.stem for p in shown.glob("*.ipynb")) == [little.NAME, second]


def test_formgrader_has_our_notebook_with_the_answers_and_our_results(graded, autograded):
    for course in (graded, autograded[0]):
        for student, (_, marks) in SUBMISSIONS.items():
            shown = course.shown(student)
            added = [c for c in shown.cells if c.id.startswith("added-")]
            assert [c.id for c in shown.cells if c not in added] == [c.id for c in little.notebook().cells]
            outputs = {c.id: c.outputs for c in shown.cells if c.cell_type == "code" and c.outputs}
            assert [float(outputs[test][0].data["text/plain"]) for test in TESTS] == marks
            assert outputs.keys() == set(TESTS)  # nothing that the student's code printed
        cells = {c.id: c for c in course.shown("hostile").cells}
        card = cells["test-90-1"].outputs[0].data["text/html"]
        assert "the code stopped (0 of 2 points)" in card and "ended Python (exit status 1)" in card
        assert "os._exit(1)" in cells["ex-90-1"].source
        assert "<script>" not in "".join(c.source for c in cells.values() if c.cell_type == "markdown")
        assert "not in the notebook" in next(c for c in course.shown("deleted").cells if c.id == "ex-90-3").source


@pytest.mark.parametrize("visible, told", [
    ({"message": "Wrong for 2.", "case": "N = 2"}, ["Wrong for 2.", "N = 2"]),
    ({}, ["It passes the notebook", "but not on other sizes"]),
    (None, ["Exercise 90.1 · A loop: wrong"]),
])
def test_a_student_sees_nothing_of_hidden_trials_in_nbgraders_feedback(visible, told):
    mark = Mark(0.0, 2.0, "wrong", "Wrong for 7919.", {"case": "N = 7919"}, visible)
    made = Report("ann", ["a.ipynb"], "", marks={"90.1": mark})
    released = courses.Notebook(little.UNIT, little.NAME, tuple(little.notebook().cells), {
        "test-90-1": courses.Test("90.1", "loop", "", 2.0, "ex-90-1")})
    notebook = shown.show(released, little.notebook(RIGHT), made)
    card = StudentView().preprocess(notebook, {})[0].cells[4].outputs[0].data["text/html"]
    assert all(words in card for words in told) and "7919" not in str(notebook) and "points" not in card


def test_nbgraders_feedback_is_made_in_a_process_that_graded_nothing_and_takes_none_of_our_pages(graded):
    assert graded.run("autograder", "feedback", "--results", graded.results, *graded.options).returncode == 0
    ours = {p: p.read_bytes() for p in (graded.results / "feedback").rglob("*.html")}
    done = graded.run("nbgrader", "generate_feedback", little.UNIT)
    made = (graded.root / ".nbgrader" / "feedback").rglob("*.html")
    pages = {p.parts[-3]: p.read_text(encoding="utf-8") for p in made}
    assert done.returncode == 0 and pages.keys() == SUBMISSIONS.keys(), done.stderr
    assert "Exercise 90.2 \u00b7 A number: wrong" in pages["half"] and "Both ways at once." in pages["half"]
    assert ours and {p: p.read_bytes() for p in ours} == ours


def test_feedback_on_what_another_grader_left_is_refused():
    with pytest.raises(NotGraded, match="autograde it again"):
        StudentView().preprocess(little.notebook(RIGHT), {})


def test_without_a_sandbox_nbgrader_gives_no_mark_and_says_why(tmp_path):
    course = Instructor(tmp_path / "course")
    course.submit("ann", SUBMISSIONS["right"][0])
    course.submit("bob", SUBMISSIONS["renamed"][0], "renamed")
    gradebook.write([], course.url, Course(str(course.root / "notebooks"), (CHECKS,)))
    bare = tmp_path / "bin"
    bare.mkdir()
    done = course.run("nbgrader", "autograde", little.UNIT, PATH=str(bare))
    assert done.returncode == 1 and "bubblewrap (bwrap) is not installed" in done.stderr, done.stderr
    assert gradebook.scores(course.url) == {}  # nor did nbgrader book 0 for bob's file, which has another name
    assert not (course.root / ".nbgrader" / "autograded").exists()
