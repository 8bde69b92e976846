"""The page that a student gets: what is on it, what may not be, and where it lies."""
import re
from html.parser import HTMLParser

import nbformat
import pytest

import pallas_lite as pl
from autograder.__main__ import main
from autograder.exercise import EXERCISES, Trial, Wrong
from autograder.grading.grade import Mark, Report
from autograder.grading.report import write
from autograder.judge import predict
from autograder.judge.checking import judge
from autograder.judge.handle import LocalHandle
from autograder.judge.predict import Asked
from autograder.judge.result import draw
from autograder.nbgrader.shown import card
from autograder.pages.feedback import folder_name, page, said, write_pages
from autograder.sandbox.remote import OVERRUN

from . import little_course as little

HIDDEN = {"smallest failing case": "N = 5", "got": "777", "nudge": "Look at step 5."}
SEEN = {"message": "The loop has a hazard.", "smallest failing case": "N = 1", "got": "3", "nudge": "Wait for it."}
EVIL = "<script>alert(1)</script><img src=http://evil.example onerror=alert(2)>'\"&"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    notebook = little.notebook()
    hint = "<details><summary>Hint {0}: so</summary>\nhint <em>{0}</em>: 0 < i\n</details>\n"
    hints = "".join(hint.format(k) for k in (1, 2, 3))
    place = next(i for i, c in enumerate(notebook.cells) if c.id == "test-90-1")
    notebook.cells.insert(place + 1, nbformat.v4.new_markdown_cell(hints, id="hints"))
    return little.released(tmp_path_factory.mktemp("course"), notebook)


def marks(**changed):
    """Full marks, but for some: "90_1" -> a Mark."""
    full = {n: Mark(p, p, "right", "All hidden trials passed.") for n, p in little.POINTS.items()}
    return full | {n.replace("_", "."): mark for n, mark in changed.items()}


def wrong(visible, verdict="wrong", message="The loop took 5 steps.", details=HIDDEN):
    return Mark(0.0, 2, verdict, message, details, visible)


def report(student="ada", **more):
    return Report(student, ["a.ipynb"], "0", **more)


@pytest.mark.parametrize("given, right, withheld", [
    (8.0, 5.0, True), ("slow", "fast", True), ((1.0, 2.0), 5.0, False), (True, 5.0, False)])
def test_a_page_says_where_the_right_value_is_withheld(course, given, right, withheld):
    with pytest.raises(Wrong) as found:
        predict.judge(given, [Asked("The time", "µs", right)], "N = 3")
    seen = {"message": found.value.what, "your case": "N = 3", "got": str(found.value.got or "")}
    mark = wrong(seen)
    line = "the right value is not shown: it would be the answer"
    assert (line in page(report(marks=marks(**{"90_1": mark})), course)) == (line in said(mark)) == withheld


class Tags(HTMLParser):
    """All tags and addresses of a page; what is never closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.addresses = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href")]
        assert not any(k.startswith("on") for k, _ in attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_what_the_notebooks_check_says_is_shown_and_the_hidden_trial_only_when_revealed(course):
    told = report(marks=marks(**{"90_1": wrong(SEEN)}))
    shown, revealed = page(told, course), page(told, course, reveal=True)
    for words in ("8 of 10 points", "3 of 4 exercises are right. 1 to mend", "A loop: not right yet", "0 of 2",
                  "N = 1", "Wait for it.", "hint <em>1</em>: 0 &lt; i", "Hint 3: so"):
        assert words in shown and words in revealed
    for words in ("777", "N = 5", "step 5", "5 steps"):
        assert words not in shown and words in revealed


@pytest.mark.parametrize("mark, says", [
    (wrong({}), "passes the check in the notebook"),
    (wrong({}, message="The loop has a hazard: read before wait."), "a hazard: read before wait."),
    (wrong({}, message="Your answer gives a value of type Five."), "passes the check in the notebook"),
    (wrong({}, "error", "ZeroDivisionError: 5 / 0 in 777"), "Your code raised a ZeroDivisionError."),
    (wrong({}, "error", "FiveError: N = 5"), "Your code stopped."),
    (wrong({}, "error", OVERRUN), f"and of odd ones.\n{OVERRUN}"),
    (wrong(None, "error", OVERRUN), f"it may show it, too.\n{OVERRUN}"),
    (wrong(None, "error", "your code ended Python (exit status 5)"), "Your code stopped."),
    (wrong(None, "error", "FiveError: N = 5"), "Your code stopped."),
])
def test_of_a_hidden_trial_alone_no_number_is_told(course, mark, says):
    shown = page(report(marks=marks(**{"90_1": mark})), course)
    assert says in shown and "hint <em>1</em>" in shown
    assert ("hidden trial" in shown) == (mark.visible == {})  # else it may have been no hidden one
    for text in (shown, card("90.1", mark, for_student=True)):
        for words in ("777", "N = 5", "step 5", "5 steps", "Five", "status 5", "5 / 0"):
            assert words not in text


def test_what_does_not_end_in_the_notebook_either_is_told_as_that(course):
    mark = wrong({"message": OVERRUN}, "error", OVERRUN, {})
    shown = page(report(marks=marks(**{"90_1": mark})), course)
    assert OVERRUN in shown and "In the notebook it does not end in time either" in shown
    assert "hidden trial" not in shown
    assert "does not end in time either" not in page(report(marks=marks(**{"90_1": wrong(SEEN)})), course)


def test_a_student_can_write_nothing_into_the_page_but_text(course):
    evil = {label: EVIL for label in ("message", "smallest failing case", "your line", "got", "expected", "nudge",
                                      "schedule", "timeline", EVIL)}
    for told in (report(EVIL, marks=marks(**{"90_1": wrong(evil, message=EVIL, details=evil)}), warnings=[EVIL]),
                 report(EVIL, status="unreadable", warnings=[EVIL])):
        for reveal in (False, True):
            text = page(told, course, reveal=reveal)
            found = Tags(text)
            assert not found.open and not found.tags & {"script", "img", "link", "iframe", "object"}
            assert all(a.startswith("#ex-") for a in found.addresses)
            assert "default-src 'none'" in text and "&lt;script&gt;" in text


@pytest.mark.parametrize("told, words", [
    (report(marks=marks()), ["10 of 10 points", "Well done!"]),
    (report(marks={n: Mark(0.0, p, "not done") for n, p in little.POINTS.items()}), ["0 of 10 points", "Nothing is"]),
    (report(status="unreadable", warnings=["the file is cut off"]),
     ["a.ipynb could not be read, so nothing", "the file is cut off"]),
    (report(status="unreadable", marks=marks(**{"90_1": Mark(None, 2, "unreadable", "a.ipynb: the file is cut off")})),
     ["a.ipynb could not be read, so 1 exercise has no mark yet. Save it again", "3 of 4 exercises are right",
      "a.ipynb: the file is cut off"]),
    (report(status="unreadable", marks={n: Mark(None, p, "unreadable", "a.ipynb: empty")
                                        for n, p in little.POINTS.items()}),
     ["a.ipynb could not be read, so nothing in it was marked. Save it again"]),
    (report(status="fault", marks=marks(**{"90_1": Mark(None, 2, "broken", "KeyError: 'secret'")})),
     ["no mark", "not yours"]),
    (report(status="fault", warnings=["no memory"]), ["not yours"]),
])
def test_every_kind_of_submission_has_its_page(course, told, words):
    text = page(told, course)
    assert all(w in text for w in words) and "secret" not in text
    assert ("points</p>" in text) == (told.status == "graded")
    assert not Tags(text).open and not re.search(r"https?:", text)


def test_the_timeline_is_drawn_with_its_wrong_spot(course):
    def no_wait(N, A, X, Y, B):
        for i in range(N):
            pl.copy_in_start(A[i], X[0])
            pl.compute(X[0], Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
    _ = course.notebooks
    result = judge(EXERCISES["90.1"], LocalHandle(no_wait), Trial("90.1"))
    drawn = draw(result.drawing())
    assert re.sub('src=".*', "", drawn) == re.sub('src=".*', "", result.picture()) and "no_wait on toy" in drawn
    text = page(report(marks=marks(**{"90_1": wrong(SEEN | {
        "timeline": result.drawing(), "schedule": result.table()})})), course)
    assert drawn in text and "<b>" in text and "the wrong row marked" in text
    assert len(text) < 60_000
    assert draw("{") == draw("") == draw("[1]") == ""


def test_where_the_pages_lie(course, tmp_path):
    def lie(reports, **more):
        return [p.relative_to(tmp_path).as_posix() for p in write_pages(reports, course, tmp_path, **more)]
    ann, file = report("张伟", marks=marks()), f"{little.UNIT}/feedback.html"
    assert lie([ann, report(".."), report("a/../b", marks=marks()), ann]) == [
        f"张伟/{file}", "_../feedback.html", f"a_.._b/{file}", f"张伟_/{file}"]
    assert lie([ann], submitted=tmp_path) == [f"张伟/{little.UNIT}/{little.NAME}.html"]  # nbgrader's names
    assert folder_name("") == "_"


@pytest.mark.classroom
def test_nbgraders_exchange_releases_the_pages(course, tmp_path):
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.exchange.default import ExchangeReleaseFeedback
    from nbgrader.utils import notebook_hash
    from traitlets.config import Config
    handed_in = tmp_path / "submitted" / "ada" / little.UNIT
    handed_in.mkdir(parents=True)
    (handed_in / "timestamp.txt").write_text("2026-01-01 10:00:00 UTC")
    (handed_in / "submission_secret.txt").write_text("secret")
    write_pages([report(marks=marks())], course, tmp_path / "feedback", submitted=tmp_path / "submitted")
    config = Config()
    config.CourseDirectory.root, config.CourseDirectory.feedback_directory = str(tmp_path), "feedback"
    config.CourseDirectory.course_id, config.CourseDirectory.assignment_id = "pallas", little.UNIT
    config.Exchange.root = str(tmp_path / "exchange")
    (tmp_path / "exchange").mkdir(mode=0o777)
    (tmp_path / "exchange").chmod(0o777)
    ExchangeReleaseFeedback(coursedir=CourseDirectory(config=config), config=config).start()
    name = notebook_hash(secret="secret", notebook_id=little.NAME)
    released = tmp_path / "exchange" / "pallas" / "feedback" / f"{name}.html"
    assert "10 of 10 points" in released.read_text(encoding="utf-8")


def test_the_command(course, tmp_path, capsys):
    given = ["--release", course.release, "--checks", *course.checks, "--results", str(tmp_path / "results")]
    assert main(["feedback", *given]) == 2 and "grade PATH" in capsys.readouterr().err
    write([report(marks=marks(**{"90_1": wrong(SEEN)}))], tmp_path / "results")
    assert main(["feedback", *given, "--out", str(tmp_path / "pages")]) == 0
    text = (tmp_path / "pages" / "ada" / little.UNIT / "feedback.html").read_text(encoding="utf-8")
    assert "N = 1" in text and "777" not in text
    assert capsys.readouterr().out == f"1 page in {tmp_path / 'pages'}\n"
    assert main(["feedback", *given, "--out", str(tmp_path / "pages"), "--reveal"]) == 0
    assert "777" in (tmp_path / "pages" / "ada" / little.UNIT / "feedback.html").read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"1 page in {tmp_path / 'pages'}; 1 shows hidden trials\n"
    (tmp_path / "file").touch()
    assert main(["feedback", *given, "--out", str(tmp_path / "file")]) == 3
    assert "file cannot be written: " in capsys.readouterr().err
    same = wrong({"message": "The loop took 5 steps.", **HIDDEN})
    write([report("bea", marks=marks(**{"90_1": same})), report("cy", marks=marks())], tmp_path / "results")
    assert main(["feedback", *given, "--out", str(tmp_path / "pages"), "--reveal"]) == 0
    assert capsys.readouterr().out == (
        f"2 pages in {tmp_path / 'pages'}; none shows hidden trials: they tell nothing more than the page\n"
        f"1 older page left as it is: ada/{little.UNIT}/feedback.html\n")


def test_only_what_stands_for_nbgraders_pages_goes_where_nbgrader_deletes_folders(course, tmp_path, monkeypatch):
    from autograder.commands import feedback
    own, trial = tmp_path / "course" / "results", tmp_path / "trial"
    monkeypatch.setattr(feedback, "RESULTS", own)
    monkeypatch.setattr(feedback, "FEEDBACK", tmp_path / "course" / "feedback")
    monkeypatch.chdir(tmp_path)
    for results, more, pages in (("course/results", [], own / "feedback"), ("trial", [], trial / "feedback"),
                                 ("course/results", ["--by-notebook"], own.parent / "feedback"),
                                 ("trial", ["--by-notebook"], trial / "feedback")):
        write([report(marks=marks())], tmp_path / results)
        given = ["--release", course.release, "--checks", *course.checks, "--results", results]
        assert main(["feedback", *given, *more]) == 0
        (page,) = tmp_path.rglob("*.html")
        assert page.is_relative_to(pages)
        page.unlink()
