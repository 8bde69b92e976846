"""What a student's process may send, and what an instructor's terminal may be: neither breaks the grader."""
import csv
import os
import signal
import stat
import subprocess
import sys

import pytest

from autograder import commands
from autograder.__main__ import main
from autograder.course.release import REPOSITORY as ROOT
from autograder.exercise import load
from autograder.grading.grade import Mark, Report
from autograder.grading.report import MOST_ROWS, in_a_row, note, per_student, table, twice, write
from autograder.nbgrader import gradebook
from autograder.pages.export import FORMATS
from autograder.sandbox.inside import wire

from . import little_course as little


@pytest.mark.parametrize("data", [10**400, {"t": [1, -(2**63)]}, [[2**63]], {"d": [["k", 10**30]]}])
def test_numbers_beyond_64_bits_are_refused(data):
    with pytest.raises(wire.WireError, match="beyond 64 bits"):
        wire.unpack(data, [])
    assert wire.unpack({"t": [2**63 - 1, True]}, []) == (2**63 - 1, True)


def test_a_narrow_terminal_shows_totals_a_wider_one_chapters_and_the_widest_every_mark():
    course = [n for n, e in load("autograder.checks").items() if e.run.__module__.startswith("autograder.")]
    marks = {number: Mark(2, 2, "right") for number in course}
    marks |= {"3.1": Mark(0, 2, "wrong"), "5.1": Mark(None, 2, "broken")}
    reports = [Report("Ada", ["a.ipynb"], "0", marks=marks)]
    assert [c.header for c in table(reports, 80).columns] == ["student", "total", "s", "note"]
    chapters = {c.header: next(iter(c.cells)) for c in table(reports, 240).columns[1:-3]}
    in_3 = 2 * sum(n.startswith("3.") for n in marks)
    assert chapters["ch 3"] == f"{in_3 - 2}/{in_3}" and chapters["ch 5"].startswith("?/") and len(chapters) >= 11
    assert len(table(reports, 1000).columns) == 4 + len(marks) > 10


def twofold(student, file, **marks):
    found = {n.replace("_", "."): mark for n, mark in marks.items()}
    return Report(student, [file, "x.ipynb"], file, "graded", found, [f"about {file}"])


RIGHT, WRONG = Mark(2, 2, "right"), Mark(0, 2, "wrong")
MISSING, UNKNOWN = Mark(0, 2, "missing"), Mark(None, 2, "broken")
MORE = "handed in more than once: bob.ipynb and 1 more; 02.ipynb and 1 more. Of the same exercises the last counts"


def test_two_marks_of_a_student_for_one_exercise_are_said_and_those_for_others_are_not():
    once = [twofold("bob", "a", e1_1=RIGHT), twofold("bob", "b", e2_1=RIGHT), twofold("ann", "c", e1_1=RIGHT),
            Report("eve", [], ""), Report("eve", [], "")]
    assert twice(once) == []
    line, = twice([*once, twofold("bob", "d", e1_1=WRONG)])
    assert line == ("bob handed in the same exercises more than once: a and 1 more; b and 1 more; d and 1 more. Each "
                    "has a row here. Gradebook, pages and exports have place for one, and get the last one's marks "
                    "(d and 1 more): take away what does not count, and grade again")


def test_a_student_has_one_report_where_there_is_place_for_one():
    loose = twofold("bob", "bob.ipynb", **{"90_1": RIGHT, "90_2": RIGHT, "90_3": MISSING, "90_4": RIGHT})
    folder = twofold("bob", "02.ipynb", **{"90_1": WRONG, "90_2": MISSING, "90_3": WRONG, "90_4": UNKNOWN})
    ann = twofold("ann", "ann.ipynb", **{"90_1": RIGHT})
    class_ = [ann, loose, folder]
    first, bob = per_student(class_)
    assert first is ann and (bob.student, bob.status) == ("bob", "graded")
    assert bob.marks == {"90.1": WRONG, "90.2": RIGHT, "90.3": WRONG, "90.4": RIGHT}
    assert bob.warnings == [MORE, "about bob.ipynb", "about 02.ipynb"]
    assert bob.files == ["bob.ipynb", "x.ipynb", "02.ipynb", "x.ipynb"]
    two = twofold("bob", "a", e1_1=RIGHT), Report("bob", [], "", "unreadable", warnings=["cut off"])
    (bob,) = per_student(two)
    assert (bob.status, bob.warnings, list(bob.marks)) == ("unreadable", ["about a", "cut off"], ["e1.1"])
    assert list(table(class_, 200).columns[0].cells) == ["ann", "bob: bob.ipynb and 1 more", "bob: 02.ipynb and 1 more"]


def test_page_exports_and_gradebook_agree_on_who_handed_in_twice(tmp_path, capsys):
    course = little.released(tmp_path / "release")
    marks = [{n: Mark(float(p) * right, p, "right" if right else "wrong") for n, p in little.POINTS.items()}
             for right in (1, 0)]
    reports = [Report("bob", ["bob.ipynb"], "0", marks=marks[0]), Report("bob", ["02.ipynb"], "1", marks=marks[1])]
    write(reports, tmp_path / "out")
    given = ["--release", course.release, "--checks", *course.checks, "--results", str(tmp_path / "out")]
    for format in FORMATS:
        assert main(["export", "--format", format, *given]) == 0
        assert "get the last one's marks (02.ipynb)" in capsys.readouterr().err
    rows = {name: list(csv.DictReader((tmp_path / "out" / file).read_text(encoding="utf-8-sig").splitlines()))
            for name, file in (("csv", "export/grades.csv"), ("canvas", "export/canvas.csv"),
                               ("nbgrader", "export/nbgrader.csv"), ("results", "results.csv"))}
    assert [r[little.UNIT] for r in rows["canvas"]] == ["10", "0"]
    assert [r["score"] for r in rows["nbgrader"]] == ["0.0"]
    assert [r["files"] for r in rows["csv"]] == ["bob.ipynb"] * 4 + ["02.ipynb"] * 4
    assert [(r["student"], r["files"], r["points"]) for r in rows["results"]] == [
        ("bob", "bob.ipynb", "10.0"), ("bob", "02.ipynb", "0.0")]
    assert [p.parent.name for p in (tmp_path / "out" / "export").glob("*/results.json")] == ["bob"]
    assert main(["feedback", *given, "--out", str(tmp_path / "pages")]) == 0
    (page,) = (tmp_path / "pages").rglob("*.html")
    text = page.read_text(encoding="utf-8")
    assert page.relative_to(tmp_path / "pages").parts[0] == "bob" and "0 of 10 points" in text
    assert "handed in more than once: bob.ipynb; 02.ipynb. Of the same exercises the last counts" in text
    url = f"sqlite:///{tmp_path}/gradebook.db"
    gradebook.write(reports, url, course)
    assert set(gradebook.scores(url)["bob", little.UNIT].values()) == {0.0}


def test_one_long_name_does_not_take_the_room_of_all_notes():
    class_ = [Report("x" * 200, ["a"], "0", warnings=["why"]), Report("ann", ["a"], "0")]
    assert list(table(class_, 240).columns[0].cells) == ["ann", "x" * 59 + "…"][::-1]


def test_of_very_many_submissions_the_table_has_those_that_need_a_look_and_says_where_the_others_are():
    reports = [Report(f"s{i}", [], "", "fault" if i == 600 else "graded") for i in range(MOST_ROWS + 200)]
    shown = table(reports, 80)
    assert next(iter(shown.columns[0].cells)) == "s600" and shown.row_count == MOST_ROWS
    assert shown.caption == "200 more, all graded, are in results.csv"
    assert table(reports[:9], 80).caption is None


def test_messages_in_a_row_have_no_full_stop_before_a_semicolon():
    marks = {"2.1": Mark(0, 2, "wrong", "n is too high."), "2.2": Mark(0, 2, "wrong", "It fails.")}
    assert note(Report("ann", [], "", marks=marks, warnings=["Odd."])) == "Odd; 2.1: n is too high; 2.2: It fails."
    assert in_a_row([]) == "" and in_a_row(["One."]) == "One."


def test_a_folder_that_is_not_there_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "ROOT", tmp_path / "the course")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")

    def said():
        for verb in ("grade", "similar"):
            with pytest.raises(SystemExit, match="2"):
                main([verb, ".nbgrader/submitted"])
        return capsys.readouterr().err
    here = f"there is no such file or folder: .nbgrader/submitted. You are in {tmp_path / 'docs'}. "
    make = "Make it, and put there what was handed in, as <student>/<unit>/<notebook>.ipynb"
    assert said().count(here + make) == 2
    (tmp_path / "the course" / ".nbgrader" / "submitted").mkdir(parents=True)
    assert said().count(f"{here}There is one in the course's folder: cd '{tmp_path}/the course'\n") == 2


def test_a_new_gradebook_is_its_owners_alone(tmp_path):
    url = f"sqlite:///{tmp_path}/gradebook.db"
    with gradebook.opened(url):
        assert stat.S_IMODE((tmp_path / "gradebook.db").stat().st_mode) == 0o600
    (tmp_path / "gradebook.db").chmod(0o660)  # several instructors share it
    with gradebook.opened(url):
        assert stat.S_IMODE((tmp_path / "gradebook.db").stat().st_mode) == 0o660
    with gradebook.opened(url.replace("gradebook.db", "other.db")):
        assert stat.S_IMODE((tmp_path / "other.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("command, code, said", [
    (["-m", "autograder", "doctor"], 3, "autograder: interrupted\n"), (["-m", "autograder.grading.child", "9"], 1, ""),
    (["-c", "import autograder"], -signal.SIGINT, "KeyboardInterrupt")])
def test_ctrl_c_while_it_starts_is_a_line_and_no_traceback(tmp_path, command, code, said):
    """numpy presses the key, as it is imported. A process that grades goes on, to the end of this import."""
    (tmp_path / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(1)\n")
    done = subprocess.run([sys.executable, "-P", *command], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])})
    assert done.returncode == code and said in done.stderr, done.stderr
    assert ("Traceback" in done.stderr) == (command[0] == "-c")
