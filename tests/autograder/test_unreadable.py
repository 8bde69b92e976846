"""One unreadable file among several: no mark for what is in it, the others' marks, nothing lost in the gradebook."""
import csv
import json

import nbformat
import pytest

from autograder.course.release import Course
from autograder.grading.grade import Grader, Mark, Report
from autograder.grading.report import note, read
from autograder.grading.submissions import Submission, find
from autograder.nbgrader import gradebook, shown
from autograder.pages.export import FORMATS, Roster
from autograder.pages.feedback import page
from autograder.sandbox.bubblewrap import Sandbox

from ..hostile.chapters import as_chapter, number_in
from . import little_course as little
from .test_grading import run

UNIT, CHECKS = "unit9", "tests.hostile.chapters"
NAMES = ["90_little", "91_little", "92_little"]
CUT = "the file is cut off: it was not saved or uploaded to its end"
LATER = "until it is handed in again; the other notebooks are graded"


def of(chapter, answers=None):
    return as_chapter(nbformat.writes(little.notebook(answers or {})).encode(), chapter)


def numbers(chapter):
    return [number_in(n, chapter) for n in little.STUBS]


def put(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.ipynb").write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    put(folder / UNIT, **{name: of(90 + i) for i, name in enumerate(NAMES)})
    return folder


@pytest.fixture
def grade(release, tmp_path, monkeypatch):
    """A submission's report, with full marks for each notebook that is read."""
    def full(self):
        return {s.test.number: Mark(s.test.points, s.test.points, "right") for s in self.steps if s.test}
    monkeypatch.setattr("autograder.grading.grade._Run.marks", full)

    def grade(**files):
        put(tmp_path / "submitted" / "ann", **files)
        (submission,) = find([str(tmp_path / "submitted")], Course(str(release), (CHECKS,)))
        return Grader(Course(str(release), (CHECKS,)), Sandbox("", "none")).grade(submission)
    return grade


def verdicts(report):
    """Notebook -> its verdict, which all its exercises have."""
    found = {name: {report.marks[n].verdict for n in numbers(90 + i) if n in report.marks}
             for i, name in enumerate(NAMES)}
    return {name[:2]: verdict.pop() for name, verdict in found.items() if len(verdict) == 1}


def test_a_file_with_a_released_name_is_that_notebook(grade):
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(91)[:1500]})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "missing"}
    assert (report.status, report.points, report.max_points) == ("unreadable", None, 30)
    assert report.warnings == [f"91_little.ipynb: {CUT}. No mark for 91_little {LATER}",
                               "92_little.ipynb was not handed in"]
    assert report.marks["91.1"].message == f"91_little.ipynb: {CUT}"


def test_a_file_with_another_name_may_be_any_that_is_not_there(grade):
    report = grade(**{NAMES[0]: of(90), "mine": of(91)[:1500]})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "unreadable"}
    assert note(report) == f"mine.ipynb: {CUT}. No mark for 91_little, 92_little {LATER}"


def test_a_spare_file_that_cannot_be_read_costs_nothing(grade):
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(91), NAMES[2]: of(92), "mine": b""})
    assert (report.status, report.points) == ("graded", 30) and report.warnings == ["mine.ipynb: the file is empty"]


def test_the_cause_stands_before_what_was_seen_in_the_other_files(grade):
    text = of(90).replace(b'"ex-90-2"', b'"gone"').replace(b'time = ...', b'time = 1')  # neither by id nor by text
    report = grade(**{NAMES[0]: text, NAMES[1]: of(91)[:1500], NAMES[2]: of(92)})
    assert len(report.warnings) > 1 and report.warnings[0] == f"91_little.ipynb: {CUT}. No mark for 91_little {LATER}"
    assert note(report).startswith("91_little.ipynb: ")


def test_without_any_that_can_be_read_nothing_is_known(grade):
    report = grade(**{NAMES[0]: b"", "mine": b"{"})
    assert (report.status, report.marks) == ("unreadable", {})
    assert report.warnings == ["90_little.ipynb: the file is empty", f"mine.ipynb: {CUT}"]


def test_what_the_disk_does_not_give_is_unreadable_too(release, tmp_path, monkeypatch):
    monkeypatch.setattr("autograder.grading.grade._Run.marks", lambda self: {})
    submission = Submission("ann", (str(put(tmp_path, **{NAMES[0]: of(90)}) / f"{NAMES[0]}.ipynb"),), whole=True,
                            lost=((f"{NAMES[2]}.ipynb", "larger than 50 MiB"),))
    report = Grader(Course(str(release), (CHECKS,)), Sandbox("", "none")).grade(submission)
    assert verdicts(report) == {"91": "missing", "92": "unreadable"} and report.status == "unreadable"


def test_a_link_among_the_notebooks_is_unreadable_too(grade, tmp_path):
    other = put(tmp_path / "other", **{NAMES[1]: of(91)})
    put(tmp_path / "submitted" / "ann")
    (tmp_path / "submitted" / "ann" / f"{NAMES[1]}.ipynb").symlink_to(other / f"{NAMES[1]}.ipynb")
    (tmp_path / "submitted" / "ann" / "a folder.ipynb").mkdir()
    report = grade(**{NAMES[0]: of(90)})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "missing"}
    said = "91_little.ipynb: this is a link to another one: hand in the notebook itself. No mark for 91_little "
    assert report.warnings[0].startswith(said)


@pytest.mark.parametrize("file, what", [
    ("91_little.docx", "no notebook"), ("Ann 91_Little (1).PDF", "no notebook"), ("91_little.ipynb.zip", "an archive"),
    ("deeper/91_little.py", "no notebook")])
def test_a_chapter_in_another_format_is_named_and_gets_no_mark(grade, tmp_path, release, file, what):
    path = tmp_path / "submitted" / "ann" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK")
    report = grade(**{NAMES[0]: of(90)})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "missing"}
    assert (report.status, report.points) == ("unreadable", None)
    assert report.warnings == [f"{path.name}: this is {what}. Hand in 91_little.ipynb itself. No mark for 91_little "
                               f"{LATER}", "92_little.ipynb was not handed in"]
    text = page(report, Course(str(release), (CHECKS,)))
    assert f"{path.name} could not be marked as it is, so 4 exercises have no mark yet. What to hand in stands" in text


def test_another_format_beside_its_notebook_changes_nothing(grade, tmp_path):
    for file in ("90_little.html", "91_little.pdf", "notes.docx", "92_little_files/92_little_3_0.png"):
        (tmp_path / "submitted" / "ann" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "submitted" / "ann" / file).write_bytes(b"PK")
    report = grade(**{NAMES[0]: of(90), f"my {NAMES[1]} (1)": of(91), NAMES[2]: of(92)})
    assert (report.status, report.points, report.warnings) == ("graded", 30, [])
    report = grade(**{NAMES[0]: of(90)[:1500]})  # cut off: that is said, and not of the page beside it
    assert report.warnings == [f"90_little.ipynb: {CUT}. No mark for 90_little {LATER}"]
    report = grade(**{NAMES[0]: of(90), f"my {NAMES[1]} (1)": of(91)[:1500]})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "right"}


def test_a_notebook_under_the_name_of_another_is_said_to_be_that(grade, release):
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(92)})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "right"}
    assert report.warnings == ["91_little.ipynb: this is 92_little, under the name of another notebook. Hand in the "
                               f"one that the name says. No mark for 91_little {LATER}"]
    text = page(report, Course(str(release), (CHECKS,)))
    assert "91_little.ipynb could not be marked as it is, so 4 exercises" in text and "Save it again" not in text
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(92), NAMES[2]: of(92)})  # a copy of what is there, too
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "right"}
    assert f"that the name says. No mark for 91_little {LATER}" in report.warnings[0] and len(report.warnings) == 2
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(92), NAMES[2]: of(91)})  # exchanged: all that is asked is there
    assert (report.status, report.points) == ("graded", 30)


def test_a_notebook_under_the_name_of_another_makes_no_unit_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("autograder.grading.grade._Run.marks", lambda self: {
        s.test.number: Mark(s.test.points, s.test.points, "right") for s in self.steps if s.test})
    put(tmp_path / "release" / "unit8", **{NAMES[0]: of(90)})
    put(tmp_path / "release" / UNIT, **{NAMES[1]: of(91), NAMES[2]: of(92)})
    course = Course(str(tmp_path / "release"), (CHECKS,))
    put(tmp_path / "submitted" / "ann" / "unit8", **{NAMES[0]: of(91)})
    (submission,) = find([str(tmp_path / "submitted")], course)
    report = Grader(course, Sandbox("", "none")).grade(submission)
    assert verdicts(report) == {"90": "unreadable", "91": "right"}  # and nothing of 92, which nobody asked for yet


def test_a_notebook_of_another_year_is_said_to_be_that(grade, release):
    text = of(91).replace(b'"ex-', b'"old-').replace(b'"test-', b'"was-')
    report = grade(**{NAMES[0]: of(90), NAMES[1]: text})
    assert verdicts(report) == {"90": "right", "91": "unreadable", "92": "missing"}
    advice = "Put your answers into the notebook that was handed out now, and hand in that one"
    assert report.warnings[0] == (
        "91_little.ipynb: this is not a notebook of this course: it has none of its exercises. It is of another "
        f"course, or of another year. {advice}. No mark for 91_little {LATER}")
    shown = page(report, Course(str(release), (CHECKS,)))
    assert "91_little.ipynb could not be marked as it is" in shown and advice in shown and "Save it" not in shown


def test_a_notebook_that_a_program_left_no_ids_in_is_known_by_its_checks(grade):
    notebook = json.loads(of(91))
    for number, cell in enumerate(notebook["cells"]):
        cell.update(metadata={}, id=f"fresh{number}")
    report = grade(**{NAMES[0]: of(90), NAMES[1]: json.dumps(notebook).encode(), NAMES[2]: of(92)})
    assert verdicts(report) == {"90": "right", "91": "right", "92": "right"}


def test_a_page_has_no_notes_on_notebooks_of_other_pages(grade, release):
    course = Course(str(release), (CHECKS,))
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(91)[:1500]})
    first, second, third = (page(report, course, [n]) for n in course.notebooks)
    assert "91_little.ipynb: " in second and "92_little.ipynb was not handed in" in third
    assert "91_little" not in first + third and "92_little" not in first + second


def test_the_page_says_why_and_what_to_do(release, grade):
    course = Course(str(release), (CHECKS,))
    report = grade(**{NAMES[0]: of(90), NAMES[1]: of(91)[:1500], NAMES[2]: of(92)})
    text = page(report, course)
    assert "so 4 exercises have no mark yet" in text and "8 of 12 exercises are right." in text
    assert "to mend" not in text and "not handed in" not in text and "points</p>" not in text
    assert text.count(f"91_little.ipynb: {CUT}") == 1 + 4  # why, once for the file, and for each exercise
    alone = page(report, course, [course.notebooks[0]])
    assert "All exercises are right" in alone and "10 of 10 points" in alone


def test_notebooks_shown_beside_earlier_marks_stay(release, tmp_path):
    course = Course(str(release), (CHECKS,))
    submission = Submission("ann", (str(put(tmp_path / "ann", **{NAMES[0]: of(90)}) / f"{NAMES[0]}.ipynb"),))
    old = put(tmp_path / "shown" / UNIT, **{NAMES[1]: of(91), NAMES[2]: of(92)})
    unknown = {n: Mark(None, 1, "unreadable") for n in numbers(91)}
    shown.write(submission, Report("ann", [], "", "unreadable", unknown), course, tmp_path / "shown")
    assert sorted(p.stem for p in old.iterdir()) == NAMES[:2]


@pytest.mark.classroom
@pytest.mark.usefixtures("sandbox")
def test_earlier_points_stay_and_no_cell_is_zero(release, tmp_path):
    course, out, url = Course(str(release), (CHECKS,)), tmp_path / "out", f"sqlite:///{tmp_path}/gradebook.db"
    folder = put(tmp_path / "submitted" / "ann" / UNIT, **{n: of(90 + i, {"90.2": "time = 2.5"})
                                                           for i, n in enumerate(NAMES)})
    command = ["grade", tmp_path / "submitted", "--out", out, "--release", release, "--checks", CHECKS,
               "--timeout", "3", "--gradebook", url]
    assert run(*command).returncode == 0
    before = gradebook.scores(url)
    assert sum(before["ann", UNIT].values()) == 3
    (folder / f"{NAMES[1]}.ipynb").write_bytes(of(91)[:1500])
    done = run(*command)
    assert done.returncode == 2 and "cut off" in done.stdout and "was not handed in" not in done.stdout, done.stderr
    assert "no marks to write: ann, exercises 91.1, 91.2, 91.3, 91.4 (unreadable: 91_little.ipynb" in done.stderr
    assert gradebook.scores(url) == before
    (row,) = csv.DictReader((out / "results.csv").read_text(encoding="utf-8-sig").splitlines())
    assert (row["points"], row["status"]) == ("", "unreadable")
    assert [row[n] for n in ("90.2", "91.1", "91.2", "92.1", "92.2")] == ["1.0", "", "", "0.0", "1.0"]
    (report,) = read(out)
    assert report.files == [f"{n}.ipynb" for n in NAMES]
    for format, column in (("canvas", UNIT), ("nbgrader", "score")):
        (text,) = FORMATS[format]([report], course, Roster({})).values()
        assert list(csv.DictReader(text.splitlines()))[-1][column] == ""
    (text,) = FORMATS["csv"]([report], course, Roster({})).values()
    assert {r["points"] for r in csv.DictReader(text.splitlines()) if r["notebook"] == NAMES[1]} == {""}
