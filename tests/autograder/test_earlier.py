"""Grading other PATHs into the same results: a part of the class leaves the others' rows, and nothing goes unsaid."""
import json

import nbformat
import pytest

from autograder.__main__ import main
from autograder.commands import grade as grading
from autograder.grading.grade import Mark, Report
from autograder.grading.report import read
from autograder.grading.submissions import pack

from . import little_course as little
from .test_grading import options  # noqa: F401  (a fixture)

CLASS = ["ann", "bob", "s2", "s10"]


@pytest.fixture
def graded(tmp_path, options, monkeypatch, capsys):  # noqa: F811
    """Grades paths; returns what was said. A submission has 2 points, whatever it holds; an empty file has none."""
    def all_right(order, submissions, pool):
        for s in submissions:
            parcel = pack(s)
            marks = {"90.1": Mark(2.0, 2.0, "right")} if any(text for _, text in parcel.files) else {}
            yield s, parcel, Report(s.student, [n for n, _ in parcel.files], parcel.digest,
                                    "graded" if marks else "unreadable", marks)
    monkeypatch.setattr(grading, "grade_all", all_right)
    monkeypatch.setattr(grading, "_pool", lambda *_: ())
    monkeypatch.chdir(tmp_path)
    for student in CLASS:
        put(tmp_path / "class" / student)

    of_course, timeout = list(map(str, options[:-2])), options[-2:]

    def run(*words, command="grade", out="out"):
        where = ["--out", out, *of_course, *timeout] if command == "grade" else ["--results", out, *of_course]
        main([command, *words, *where, "--gradebook", "none"])
        return capsys.readouterr().err
    run("class")
    return run


def put(folder, text=""):
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(little.notebook({"90.2": text}), folder / f"{little.NAME}.ipynb")


def students(out="out"):
    return [r.student for r in read(out)]


def test_one_student_again_leaves_the_others_rows(graded, tmp_path):
    before = {r.student: r for r in read("out")}
    put(tmp_path / "class" / "bob", "time = 3")
    said = graded("class/bob")
    assert "1 graded, 0 unchanged\n! 3 other submissions keep the marks of the run before, in the results\n" in said
    after = {r.student: r for r in read("out")}
    assert list(after) == CLASS and after["bob"].digest != before["bob"].digest
    assert all(after[s] == before[s] for s in CLASS if s != "bob")
    plain = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (plain["complete"], plain["of"], plain["remark"], plain["paths"]) == (True, 4, "", [str(tmp_path / "class")])
    assert (tmp_path / "out" / "results.csv").read_text(encoding="utf-8-sig").count("\n") == 1 + 4
    assert "! " not in graded("--format", "canvas", command="export")
    assert "going on with " + str(tmp_path / "class") in graded("--resume")  # the class is what the results are of


def test_who_is_gone_has_no_row_any_more_and_who_is_new_is_missed(graded, tmp_path):
    (tmp_path / "class" / "s2" / f"{little.NAME}.ipynb").unlink()
    (tmp_path / "class" / "s2").rmdir()
    put(tmp_path / "class" / "dan")
    graded("class/ann")
    assert students() == ["ann", "bob", "s10"]
    said = []
    read("out", said.append)
    assert said == ["3 of 4 submissions: the last run did not come to its end. `autograder grade --resume --out out` "
                    "goes on"]
    assert "! " not in graded("class")
    assert students() == ["ann", "bob", "dan", "s10"]


def test_a_student_who_came_in_twice_keeps_the_other_row(graded, tmp_path):
    nbformat.write(little.notebook(), tmp_path / "class" / "bob.ipynb")
    graded("class")
    files = [r.files for r in read("out") if r.student == "bob"]
    graded("class/bob.ipynb")
    assert [r.files for r in read("out") if r.student == "bob"] == files and len(files) == 2


def test_the_marks_that_stay_are_still_those_of_earlier_checks(graded, tmp_path):
    path = tmp_path / "out" / "results.json"
    plain = path.read_text()
    version = json.loads(plain)["course"]["checks"]
    path.write_text(plain.replace(version, "earlier"))
    graded("class/bob")
    assert json.loads(path.read_text())["course"]["checks"] == "earlier"


def test_other_paths_take_the_place_and_say_so_until_the_class_is_graded_again(graded, tmp_path):
    put(tmp_path / "trial" / "me")
    note = ("! these results took the place of those of 4 submissions in class; `autograder grade "
            f"{tmp_path / 'class'} --out out` brings those back, from what is kept of them")
    assert note in graded("trial") and students() == ["me"]
    assert note in graded(command="export")
    assert note in graded("trial")  # again: it is still so
    said = graded("class")
    assert "0 graded, 4 unchanged" in said and "took the place of those of 1 submission in trial" in said
    assert students() == CLASS and "! " not in graded(command="export")


def test_damaged_results_are_replaced(graded, tmp_path):
    path = tmp_path / "out" / "results.json"
    for text in (path.read_text()[:300], "{", "[]\n", '{"paths": [], "remark": 1,\n'):
        path.write_text(text)
        graded("class/bob")
        assert students() == ["bob"]


def test_a_wider_path_covers_what_was_there(graded):
    graded("class/ann", out="small")
    assert "! " not in graded("class", out="small") and students("small") == CLASS


def test_what_has_no_mark_takes_nobodys_place(graded, tmp_path):
    (tmp_path / "README.md").write_text("")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in ("run.json", "results.json", "results.csv")}
    assert "! no mark here, so the results of 4 submissions stay as they were\n" in graded("README.md")
    (tmp_path / "empty").mkdir()
    assert "stay as they were" in graded("empty")
    assert before == {name: (tmp_path / "out" / name).read_bytes() for name in before}
    graded("README.md", out="new")
    assert students("new") == ["README"]
