"""Grades for others to read: each format as its reader wants it, the same numbers in all, and no formula anywhere."""
import csv
import io
import json
import logging
from types import SimpleNamespace

import pytest

from autograder.__main__ import main
from autograder.course.release import Notebook
from autograder.grading.grade import Mark, Report
from autograder.grading.report import cell, read, write
from autograder.grading.transplant import TWO_COPIES
from autograder.pages.export import (
    CANVAS,
    FORMATS,
    NBGRADER,
    Roster,
    RosterError,
    empty,
    partial,
    read_roster,
    summed,
    uneven,
)

from . import little_course as little

EVIL = '=HYPERLINK("http://evil.example","张伟")'
NOBODY = Roster({})
CUT = "the file is cut off. Ask for the file once more, grade it and export again"
OOPS = "oops. That is the grader's own fault: see `autograder doctor`, grade and export again"


def reports():
    full = {n: Mark(float(p), p, "right", "All hidden trials passed.") for n, p in little.POINTS.items()}
    secret = {"smallest failing case": "N = 5"}
    half = full | {"90.1": Mark(0.0, 2, "wrong", "a\nb", secret, {"message": "seen", "got": "3"}),
                   "90.4": Mark(0.5, 4, "wrong", "-1+cmd", secret, {})}
    fault = full | {"90.2": Mark(None, 1, "broken", "oops")}
    return [Report("ada", ["a"], "0", marks=full, seconds=1.5), Report(EVIL, ["b"], "1", marks=half, warnings=["@x"]),
            Report("cut", ["c"], "2", "unreadable", warnings=["the file is cut off"]),
            Report("dan", ["d"], "3", "fault", fault)]


def rows(text):
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))


@pytest.mark.parametrize("format", ["csv", "canvas", "nbgrader"])
def test_nothing_that_a_student_wrote_is_a_formula(course, format):
    (text,) = FORMATS[format](reports(), course, NOBODY).values()
    cells = [cell for row in rows(text) for cell in row]
    assert not any(c.lstrip().startswith(("=", "+", "-", "@")) for c in cells)
    assert "'" + EVIL in cells
    assert len({len(row) for row in rows(text)}) == 1


def test_csv_has_a_row_for_each_mark_and_one_for_who_has_none(course):
    head, *body = rows(FORMATS["csv"](reports(), course, NOBODY)["grades.csv"])
    table = [dict(zip(head, row, strict=True)) for row in body]
    assert len(table) == 4 * 3 + 1
    assert [r["points"] for r in table[:4]] == ["2", "1", "3", "4"] and table[3]["exercise"] == "90.4"
    assert (table[0]["unit"], table[0]["notebook"], table[0]["title"]) == (little.UNIT, little.NAME, "A loop")
    assert table[4]["message"] == "a b" and table[8]["status"] == "unreadable" and table[8]["points"] == ""
    assert table[10]["points"] == "" and table[10]["verdict"] == "broken"


def test_canvas_finds_its_columns_its_points_and_its_students(course, tmp_path):
    (text,) = FORMATS["canvas"](reports(), course, NOBODY).values()
    head, most, *body = rows(text)
    assert tuple(head) == (*CANVAS, little.UNIT) and not text.startswith("\ufeff")
    assert most == ["    Points Possible", "", "", "", "", "10"]
    assert [(r[0], r[3], r[5]) for r in body] == [("ada", "ada", "10"), ("'" + EVIL, "'" + EVIL, "4.5"),
                                                  ("cut", "cut", ""), ("dan", "dan", "")]
    roster = tmp_path / "roster.csv"  # Canvas's own export, with its row of points
    roster.write_text('Student,ID,SIS User ID,SIS Login ID,Section,unit9 (7)\n    Points Possible,,,,,10\n'
                      '"Lovelace, Ada",17,u17,ada,A-1,\n', encoding="utf-8-sig")
    (text,) = FORMATS["canvas"](reports(), course, read_roster(roster)).values()
    assert rows(text)[2] == ["Lovelace, Ada", "17", "u17", "ada", "A-1", "10"]


def test_gradescope_gets_a_results_file_for_each_and_no_hidden_trial(course):
    files = FORMATS["gradescope"](reports(), course, NOBODY)
    assert len(files) == 4 and all(name.endswith("/results.json") for name in files)
    ada, evil, cut, dan = map(json.loads, files.values())
    assert [(t["number"], t["name"], t["score"], t["max_score"], t["visibility"]) for t in ada["tests"]][0] == (
        "90.1", "A loop", 2.0, 2, "visible")
    assert sum(t["score"] for t in evil["tests"]) == 4.5 and evil["execution_time"] == 0.0
    assert "seen" in evil["tests"][0]["output"] and "got: 3" in evil["tests"][0]["output"]
    assert "N = 5" not in json.dumps([ada, evil, cut, dan]) and "cmd" not in json.dumps(evil)
    assert cut["visibility"] == "hidden" and "cut off" in cut["output"] and cut["score"] == 0
    assert [t["number"] for t in dan["tests"]] == ["90.1", "90.3", "90.4"]  # what is not known is no 0
    assert "No mark yet for 90.2: the score is the sum of the others." in dan["output"] and "yet" not in evil["output"]
    assert all(p["stdout_visibility"] == "hidden" for p in (ada, evil, cut, dan))
    assert summed(reports()) == [
        f"cut: no mark is known. Gradescope gets a 0, which it shows to you alone. {CUT}",
        f"dan: no mark is known for 90.2. Gradescope will show the sum of the others as the score. {OOPS}"]


@pytest.mark.parametrize("text", ["=1+1", " +1", "-cmd", "@x", "\t=1", "\r=1", "\u200b=1", "＝1", "a\n=1"])
def test_a_cell_is_one_line_and_no_formula(text):
    made = cell(text)
    assert "\n" not in made and not made.lstrip().startswith(tuple("=+-@＝")) and (made[0] == "'") != (text[0] == "a")


@pytest.mark.classroom
def test_nbgraders_own_export_says_the_same(course, tmp_path):
    from nbgrader.plugins import CsvExportPlugin

    from autograder.nbgrader.gradebook import opened
    from autograder.nbgrader.gradebook import write as enter
    known = [r for r in reports() if r.status == "graded" and r.student == "ada"]
    known += [Report("bea", ["b"], "1", marks=reports()[1].marks)]
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    enter(known, url, course)
    plugin = CsvExportPlugin(to=str(tmp_path / "theirs.csv"))
    plugin.log = logging.getLogger("test")
    with opened(url) as gradebook:
        plugin.export(gradebook)
    theirs = rows((tmp_path / "theirs.csv").read_text())
    ours = rows(FORMATS["nbgrader"](known, course, NOBODY)["nbgrader.csv"])
    assert tuple(ours[0]) == NBGRADER and ours[0] == theirs[0]
    assert sorted(ours[1:]) == sorted(theirs[1:]) and len(ours) == 3
    assert [(r[3], r[7], r[10]) for r in ours[1:]] == [("ada", "10.0", "10.0"), ("bea", "4.5", "10.0")]


def test_nbgraders_columns_leave_empty_what_is_not_known(course):
    roster = Roster({"ada": {"last_name": "Lovelace", "email": "ada@example.org"}})
    body = rows(FORMATS["nbgrader"](reports(), course, roster)["nbgrader.csv"])[1:]
    found = {r[3]: r for r in body}
    assert found["ada"][4:7] == ["Lovelace", "", "ada@example.org"] and found["ada"][9] == "10.0"
    assert found["cut"][7:] == found["dan"][7:] == ["", "", "", "10.0"]


def test_a_roster_may_be_parted_by_semicolons(tmp_path):
    (tmp_path / "roster.csv").write_text("student;ID\nada;7\n")
    assert read_roster(tmp_path / "roster.csv").get("ada", "ID") == "7"


@pytest.mark.parametrize("text, words", [
    ("", "needs a column `student`"), ("name,ID\nada,1\n", "needs a column `student`"),
    ("student,ID\nada,1\nada,2\n", "ada more than once"), (b"\xff\xfe\x00", "no text in UTF-8"),
    (None, r"^there is no file \S+roster.csv, which")])
def test_a_roster_that_cannot_be_used_says_why(tmp_path, text, words):
    path = tmp_path / "roster.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RosterError, match=words):
        read_roster(path)


def test_the_command(course, tmp_path, capsys):
    given = ["--release", course.release, "--checks", *course.checks, "--results", str(tmp_path / "results")]
    assert main(["export", *given]) == 2
    write(reports(), tmp_path / "results")
    for name, file in {"csv": "grades.csv", "canvas": "canvas.csv", "nbgrader": "nbgrader.csv",
                       "gradescope": "ada/results.json"}.items():
        assert main(["export", "--format", name, "--out", str(tmp_path / "out"), *given]) == 0
        written = (tmp_path / "out" / file).read_bytes()
        assert main(["export", "--format", name, "--out", str(tmp_path / "out"), *given]) == 0
        assert (tmp_path / "out" / file).read_bytes() == written  # the same each time
    for name in "efghijk":
        (tmp_path / "out" / name).mkdir()
        (tmp_path / "out" / name / "results.json").touch()
    capsys.readouterr()
    assert main(["export", "--format", "gradescope", "--out", str(tmp_path / "out"), *given]) == 0
    names = ", ".join(f"{name}/results.json" for name in "efghi")
    assert f"7 older files left as they are: {names} and 2 more\n" in capsys.readouterr().out
    (tmp_path / "roster.csv").write_text("student,ID\nada,1\n")
    assert main(["export", "--roster", str(tmp_path / "roster.csv"), "--out", str(tmp_path / "out"), *given]) == 0
    assert "not in the roster" in capsys.readouterr().err
    assert main(["export", "--roster", str(tmp_path / "none.csv"), *given]) == 2
    capsys.readouterr()
    there = tmp_path / "roster.csv" / "out"  # a file is where the folder should be
    assert main(["export", "--out", str(there), *given]) == 3
    assert f"{there} cannot be written: Not a directory. Name another" in capsys.readouterr().err


def test_other_results_are_exported_into_their_own_folder(course, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--release", course.release, "--checks", *course.checks, "--results", "trial"]
    write(reports(), tmp_path / "trial")
    assert main(["export", "--format", "canvas", *given]) == 0
    err = capsys.readouterr().err
    assert "handed in" not in err
    assert err == (f"! cut: every cell is empty, since no mark is known. {CUT}\n"
                   f"! dan: the cell of {little.UNIT} is empty, since not all its marks are known. {OOPS}\n")
    monkeypatch.setattr("autograder.pages.export.partial", lambda reports, course: ["ada: only first"])
    assert main(["export", "--format", "canvas", *given]) == 0
    assert "! ada: only first" in capsys.readouterr().err
    assert (tmp_path / "trial" / "export" / "canvas.csv").is_file()


def test_an_exercise_that_the_course_has_lost_keeps_its_mark(course):
    old = Report("ada", ["a"], "0", marks=reports()[0].marks | {"90.9": Mark(1.0, 1, "right")})
    table = rows(FORMATS["csv"]([old], course, NOBODY)["grades.csv"])
    assert table[-1][3:7] == ["90.9", "90.9", "1", "1"]
    (told,) = FORMATS["gradescope"]([old], course, NOBODY).values()
    assert sum(t["score"] for t in json.loads(told)["tests"]) == 11


def test_one_notebook_alone_is_marked_out_of_its_own_points_and_named(course):
    (whole,) = course.notebooks
    tests = list(whole.tests.items())
    two = SimpleNamespace(notebooks=[Notebook(whole.unit, "first", (), dict(tests[:2])),
                                     Notebook(whole.unit, "second", (), dict(tests[2:]))])
    full = reports()[0]
    loose = [Report(name, ["a"], "0", marks={n: full.marks[n] for n in ("90.1", "90.2")}) for name in "abcde"]

    def canvas(some):
        return [row[5] for row in rows(FORMATS["canvas"](some, two, NOBODY)["canvas.csv"])[1:]]
    assert canvas(loose[:2]) == ["3", "3", "3"]
    assert canvas([full, *loose[:2]]) == ["10", "10", "3", "3"]
    unread = {n: Mark(None, p, "unreadable", "first.ipynb: empty") for n, p in little.POINTS.items()}
    (line,) = empty([Report("cy", ["a"], "0", "unreadable", unread), full], two)
    assert line.startswith(f"cy: the cell of {whole.unit} is empty, since not all its marks are known. "
                           "first.ipynb: empty. Ask for the file once more")
    (line,) = partial([full, *loose], two)
    assert line.startswith(f"a, b, c and 2 more: only first of {whole.unit} was handed in")
    assert not partial(reports(), two)


def test_nobody_has_more_than_is_possible_where_points_were_others_in_an_earlier_release(course):
    now, then = reports()[0], reports()[0]
    then = Report("then", ["a"], "0", marks=then.marks | {"90.3": Mark(5.0, 5, "right")})
    assert [row[5] for row in rows(FORMATS["canvas"]([now, then], course, NOBODY)["canvas.csv"])[1:]] == [
        "12", "10", "12"]
    assert [row[-1] for row in rows(FORMATS["nbgrader"]([now, then], course, NOBODY)["nbgrader.csv"])[1:]] == [
        "12.0", "12.0"]
    assert uneven([now, then]) == ["90.3 is worth 3 to ada and 5 to then: they were graded on different releases, and "
                                   "5 is what counts as possible. Grade all again for marks that can be compared"]
    assert uneven([now, now]) == [] and [
        row[5] for row in rows(FORMATS["canvas"]([then], course, NOBODY)["canvas.csv"])[1:]] == ["12", "12"]


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_that_a_notebook_came_in_twice_is_said_with_its_marks(course, tmp_path, capsys, format):
    ada = reports()[0]
    ada.warnings = [TWO_COPIES.format("x (1).ipynb", "x.ipynb", "x.ipynb")]
    write([ada], tmp_path)
    assert main(["export", "--format", format, "--results", str(tmp_path), "--release", course.release, "--checks",
                 *course.checks, "--gradebook", "none"]) == 0
    assert ("! ada: x (1).ipynb and x.ipynb are the same notebook of the course; x.ipynb was graded. If another one "
            "counts, take this one away, and grade again\n") in capsys.readouterr().err


def test_a_name_is_one_folder(course):
    twice = [SimpleNamespace(**vars(r)) for r in (reports()[0], reports()[0])]
    assert list(FORMATS["gradescope"](twice, course, NOBODY)) == ["ada/results.json", "ada_/results.json"]


@pytest.mark.parametrize("part, words", [("release", "an earlier release"), ("checks", "earlier checks")])
def test_marks_of_an_earlier_course_are_called_so(course, tmp_path, part, words):
    given, said, out = reports(), [], tmp_path / "out"
    write(given, out, course=course.version)
    assert read(out, said.append, course) == given and said == []
    write(given, out, course=course.version | {"autograder": "another", "packages": "others"})  # give the same marks
    assert read(out, said.append, course) == given and said == []
    write(given, out, course=course.version | {part: "another"})
    assert read(out, said.append, course) == given
    assert said == [f"these marks are of {words}: `autograder grade --resume --out {out}` grades again"]


def test_marks_whose_points_were_others_are_named_by_each_verb_that_reads_them(course, tmp_path, capsys):
    given = reports()[:1]
    given[0].marks |= {"90.1": Mark(5.0, 5, "right"), "91.1": Mark(1.0, 1, "right")}
    out, release = tmp_path / "out", ["--release", course.release, "--checks", *course.checks]
    write(given, out)  # as an older grader did, which did not say of which course
    words = ("! these marks are of an earlier release (points of 90.1: 5 then, 2 now; 91.1 is gone): `autograder grade "
             f"--resume --out {out}` grades again\n")
    for verb, where in (("export", ["--out", tmp_path / "e"]), ("feedback", ["--out", tmp_path / "f"]),
                        ("gradebook", ["--gradebook", f"sqlite:///{tmp_path}/gradebook.db"])):
        main([verb, "--results", str(out), *map(str, where), *release])
        assert words in capsys.readouterr().err, verb
