"""A class as it really comes in: one folder laid wrongly is named, and costs the others nothing; no row is a puzzle.

The layouts that are right are in test_transplant.py; what files may be, in test_submissions.py.
"""
import re
import subprocess
from pathlib import Path

import nbformat
import pytest

from autograder.__main__ import main
from autograder.commands.grade import downloads, from_moodle, inbound, passed_over
from autograder.grading import submissions
from autograder.grading.child import grade_parcel
from autograder.grading.grade import Grader, Report
from autograder.grading.submissions import find, pack
from autograder.grading.transplant import collect, tails
from autograder.pages.feedback import page
from autograder.pages.similar import answers_of
from autograder.sandbox.bubblewrap import Sandbox

from . import little_course as little

FILE = f"{little.NAME}.ipynb"
RIGHT = f"{little.UNIT}/{FILE}"
TURNED = f"{little.UNIT} holds folders ({{}}), so it is laid as unit/student. Lay it as "


@pytest.fixture
def lay(tmp_path, course):
    """Puts files below a folder `class`, and says what is found there: student -> the problem, or the files' number."""
    def laid(*files, path="class"):
        for file in files:
            (tmp_path / "class" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "class" / file).write_text("{}")
        found = find([str(tmp_path / path)], course)
        assert len({s.student for s in found}) == len(found)
        return {s.student: s.problem or len(s.paths) for s in found}
    return laid


def test_a_folder_laid_unit_first_is_named_and_the_others_are_students(lay):
    assert lay(*(f"{s}/{RIGHT}" for s in ("ann", "bob", "cy")), f"{little.UNIT}/zhao/{FILE}") == {
        "ann": 1, "bob": 1, "cy": 1, little.UNIT: TURNED.format("zhao") + f"student/unit: zhao/{little.UNIT}"}


@pytest.mark.parametrize("others", [["ann"], ["ann", "bob"]])
def test_a_unit_or_a_notebook_among_students_is_named(lay, others):
    rest = {s: 1 for s in others}
    assert lay(*(f"{s}/{RIGHT}" for s in others), RIGHT) == rest | {
        little.UNIT: f"{little.UNIT} lies among students' folders, and is no student's: move it into its student's "
                     "folder"}
    assert lay(f"{others[0]}/mine.ipynb", FILE)[FILE] == (
        "it has the name of a notebook, and no student's: put it into its student's folder, or name it after its "
        "student")


def test_a_notebook_without_a_name_among_named_ones_is_nobodys(lay):
    found = lay("ann.ipynb", FILE)
    assert found["ann"] == 1 and "no student's" in found[FILE]


def test_a_whole_class_laid_unit_first_is_refused_with_the_mend(lay):
    assert lay(*(f"{little.UNIT}/{s}/{FILE}" for s in ("ann", "bob", "cy", "dan", "eve"))) == {
        little.UNIT: TURNED.format("ann, bob, cy and 2 more") + f"student/unit: ann/{little.UNIT}"}


def test_sections_of_a_class_are_no_students(lay):
    found = lay(*(f"section {i}/{s}/{RIGHT}" for i in (1, 2) for s in (f"ann{i}", f"bob{i}")), f"section 2/{RIGHT}")
    assert found["section 1"] == ("ann1, bob1 in this folder have the same notebook. If they are students' folders, "
                                  "grade this one by itself; if not, keep the one that counts")
    assert lay(path="class/section 1") == {"ann1": 1, "bob1": 1}


@pytest.mark.parametrize("files", [
    [RIGHT, f"backup/{FILE}"], [FILE, f"old/{FILE}"], [RIGHT, f"{little.UNIT}/old/{FILE}"],
    [f"course/work/{RIGHT}", f"course/notebooks/{RIGHT}"], [f"one/{FILE}", "two/other.ipynb"]])
def test_a_students_own_copies_are_one_submission(lay, files):
    assert lay(*(f"ann/{f}" for f in files), "bob/x.ipynb") == {"ann": 2, "bob": 1}


@pytest.mark.parametrize("files", [[RIGHT, f"backup/{FILE}"], [FILE, f"old/{FILE}"], [RIGHT, "unit8/draft/x.ipynb"]])
def test_also_where_the_student_is_named_alone(lay, files):
    assert lay(*files) == {"class": 2}


def test_two_files_of_one_name_are_told_apart(tmp_path, course):
    for folder in ("one", "two"):
        (tmp_path / "ann" / folder).mkdir(parents=True)
        nbformat.write(little.notebook(), tmp_path / "ann" / folder / FILE)
    paths = [str(tmp_path / "ann" / folder / FILE) for folder in ("one", "two")]
    said = f"two/{FILE} and one/{FILE} are the same notebook of the course; two/{FILE} was graded"
    assert collect(paths, course)[1] == [said]
    assert tails(["a/u/x", "b/u/x", "b/y"]) == ["a/u/x", "b/u/x", "y"]
    assert tails(["/a/x", "/a/x"]) == ["x", "x"]  # and never a path that would lead out of a folder
    assert not [t for t in tails(["../x", "../../x"]) if t.startswith((".", "/"))]


@pytest.mark.parametrize("plain, copy, graded", [
    ({}, {"90.2": "time = 2.5"}, "copy"), ({"90.2": "time = 2.5"}, {}, "plain"),
    ({"90.2": "time = 1.5"}, {"90.2": "time = 2.5"}, "plain"), ({}, {}, "plain")])
def test_an_untouched_copy_of_a_notebook_does_not_undo_the_answers_in_another(tmp_path, course, plain, copy, graded):
    """A browser calls the second download, and Moodle the later upload, "name (1)"."""
    files = {"plain": tmp_path / FILE, "copy": tmp_path / FILE.replace(".ipynb", " (1).ipynb")}
    nbformat.write(little.notebook(plain), files["plain"])
    nbformat.write(little.notebook(copy), files["copy"])
    for paths in (files.values(), reversed(files.values())):
        read, (said,), _ = collect(map(str, paths), course)
        assert [path for path, _ in read.values()] == [files[graded]]
        assert f"{files[graded].name} was graded" in said and ("no answer in it" in said) == (bool(plain) != bool(copy))


def test_files_of_two_submissions_under_one_name_are_told_apart_and_unpacked(tmp_path, course, monkeypatch):
    for folder in ("a/bob", "b/bob"):
        (tmp_path / folder).mkdir(parents=True)
        nbformat.write(little.notebook(), tmp_path / folder / FILE)
    found = find([str(tmp_path / "a"), str(tmp_path / "b")], course)
    names = [[name for name, _ in pack(s).files] for s in found]
    assert names == [[f"a/bob/{FILE}"], [f"b/bob/{FILE}"]]
    (tmp_path / "stage").mkdir()
    monkeypatch.setattr("autograder.grading.grade._Run.marks", lambda self: {})
    report = grade_parcel(Grader(course, Sandbox(str(tmp_path / "stage"), "none")), pack(found[1]))
    assert report.files == [f"b/bob/{FILE}"] and report.status == "graded", report


def test_what_was_handed_out_is_nobodys_work(tmp_path, course, monkeypatch):
    def problems(path):
        return {s.student: s.problem for s in find([str(path)], course)}
    home = Path(course.release)
    assert problems(home) == {home.name: "this is the release, and nobody's work"}
    assert problems(home / little.UNIT) == {home.name: "this is the release, and nobody's work"}
    monkeypatch.setattr(submissions, "REPOSITORY", tmp_path)
    monkeypatch.setattr(submissions, "ROOT", tmp_path)
    for folder in ("work", ".nbgrader/source", ".nbgrader/submitted/ann"):
        (tmp_path / folder / little.UNIT).mkdir(parents=True)
        nbformat.write(little.notebook(), tmp_path / folder / little.UNIT / FILE)
    assert problems(tmp_path / "work") == {"work": "this is what `make lab` opens, and nobody's work"}
    assert problems(tmp_path / ".nbgrader") == {
        "source": "this is nbgrader's source, with the answers, and nobody's work", "submitted": ""}
    assert problems(tmp_path / ".nbgrader" / "submitted") == {"ann": ""}


@pytest.mark.parametrize("files, words", [
    ([], "there is no notebook in this folder: it is empty"),
    ([f"{little.UNIT}/report.docx", "hw.zip"], "there is no notebook in this folder, only hw.zip, report.docx"),
    (["a", "b", "c", "d", ".hidden"], "there is no notebook in this folder, only a, b, c and 1 more")])
def test_who_handed_in_no_notebook_is_told_what_is_there(tmp_path, course, files, words):
    (tmp_path / "class" / "ann").mkdir(parents=True)
    for file in files:
        (tmp_path / "class" / "ann" / file).parent.mkdir(exist_ok=True)
        (tmp_path / "class" / "ann" / file).touch()
    (ann,) = find([str(tmp_path / "class")], course)
    assert (ann.student, ann.problem) == ("ann", words)
    assert answers_of([ann], course) == ({}, [f"ann: {words}"])
    text = page(Report("ann", [], "0", "unreadable", warnings=[words]), course)
    assert "Nothing could be marked. Hand in the notebook itself, the file that ends in .ipynb." in text
    assert words in text and "opens in Jupyter" not in text


def lines_of_the_docs(begin):
    """The shell loop in docs/grading.md that begins so."""
    text = (Path(__file__).parents[2] / "docs" / "grading.md").read_text(encoding="utf-8")
    (loop,) = re.findall(rf"^    {re.escape(begin)}.*?^    done$", text, re.MULTILINE | re.DOTALL)
    return loop


def test_the_docs_lines_turn_a_tree_round(lay, tmp_path):
    lay(f"{little.UNIT}/zhao li/{FILE}", f"{little.UNIT}/ann/{FILE}", f"ann/unit8/{FILE}")
    subprocess.run(["bash", "-euc", lines_of_the_docs("for unit in").replace("unit1", little.UNIT)], check=True,
                   cwd=tmp_path / "class")
    assert lay() == {"ann": 2, "zhao li": 1}


def test_the_docs_lines_put_a_download_from_canvas_into_folders(lay, tmp_path, course):
    names = ["wangfang_LATE_12_77", "wangfang_12_78", "wangfang_13_79", "lovelaceada_14_80"]
    assert lay(*(f"{n}_{FILE}" for n in names[:1]), *(f"{n}_mine-1.ipynb" for n in names[1:]))
    assert downloads([r.student for r in find([str(tmp_path / "class")], course)]) == [
        "lovelaceada_14_80_mine-1.ipynb and 3 more are named as Canvas names downloads, and each counts as a student "
        "of its own. To put each student's into a folder, see \"What is handed in\" in docs/grading.md"]
    subprocess.run(["bash", "-euc", lines_of_the_docs("for file in")], check=True, cwd=tmp_path / "class")
    assert lay() == {"lovelaceada_14": 1, "wangfang_12": 2, "wangfang_13": 1}


def test_the_docs_lines_make_a_students_folder_of_a_download_from_moodle(lay, tmp_path, course):
    lay(f"Max Muster_555_assignsubmission_file_/{FILE}", f"Ada O'Neil_56_assignsubmission_file/{FILE}",
        f"Zo\u00eb_7_assignsubmission_file_{FILE}")
    assert from_moodle([r.student for r in find([str(tmp_path / "class")], course)]) == [
        "Ada O'Neil_56_assignsubmission_file and 2 more are named as Moodle names downloads, and each counts as a "
        "student of its own. To put each student's into a folder, see \"What is handed in\" in docs/grading.md"]
    (tmp_path / "class" / "Leer Nix_558_assignsubmission_file_").mkdir()  # who handed in no file
    said = subprocess.run(["bash", "-euc", lines_of_the_docs("for student in")], check=True, cwd=tmp_path / "class",
                          capture_output=True, text=True)
    assert lay() == {"Ada O'Neil_56": 1, "Leer Nix_558": "there is no notebook in this folder: it is empty",
                     "Max Muster_555": 1, "Zo\u00eb_7": 1} and not said.stdout + said.stderr


def test_documents_among_students_are_named_and_not_those_of_one_student(lay, tmp_path, course):
    lay(f"ann/{RIGHT}", "bob.ipynb")
    home = tmp_path / "class"
    for name in ("carl.docx", "dan.ipynb.zip", "README.md", "ann/essay.pdf", f"ann/{little.UNIT}/essay.pdf"):
        (home / name).write_bytes(b"PK")

    def named(path):
        return passed_over([str(path)], find([str(path)], course))
    assert named(home) == [f"carl.docx, dan.ipynb.zip in {home}: no notebook, so nobody has a mark for that. If it is "
                           "a student's work, ask for the notebook"]
    assert named(home / "ann") == named(home / "ann" / little.UNIT) == named(home / "bob.ipynb") == []
    (home / "carl.docx").rename(home / "dan.ipynb.zip")
    lay(f".eve/{RIGHT}", f".ipynb_checkpoints/{FILE}", ".git/config")
    assert named(home)[0] == (f".eve in {home}: what begins with a dot is passed over. If it is a student's folder, "
                              "give it another name") and len(named(home)) == 2


def test_folders_of_nbgraders_exchange_are_named(lay, tmp_path, course):
    lay(*(f"pia+{little.UNIT}+2026-11-{day} 10:00:00 UTC/{RIGHT}" for day in (28, 29)), f"a+b/{RIGHT}")
    assert inbound([s.student for s in find([str(tmp_path / "class")], course)]) == [
        f"pia+{little.UNIT}+2026-11-28 10:00:00 UTC and 1 more are named as nbgrader's exchange names what comes in, "
        f"and each counts as a student of its own. `nbgrader collect {little.UNIT}` puts the last of each student into "
        "nbgrader's submitted folder"]


def test_the_command_names_what_is_nobodys_and_ends_with_2(tmp_path, course, capsys):
    given = ["--release", course.release, "--checks", *course.checks, "--out", str(tmp_path / "out"),
             "--unsafe-no-sandbox"]
    assert main(["grade", course.release, *given]) == 2  # and no word of how to get this into the gradebook
    told = capsys.readouterr()
    assert "the release, and nobody's work" in told.out and "gradebook" not in told.err
    (tmp_path / "class" / little.UNIT / "zhao").mkdir(parents=True)
    nbformat.write(little.notebook(), tmp_path / "class" / little.UNIT / "zhao" / FILE)
    (tmp_path / "class" / "bob_1_2_x.ipynb").write_text("{")
    assert main(["grade", str(tmp_path / "class"), *given]) == 2
    told = capsys.readouterr()
    assert "! bob_1_2_x.ipynb is named as Canvas names downloads, and counts as a student of its own." in told.err
    assert TURNED.format("zhao") in " ".join(told.out.split())  # a table breaks its lines by the width that there is
