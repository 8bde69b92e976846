"""Whose work it is: STUDENT, names of students, and answers, in notebooks that lost ids or are of another release."""
import copy
import json
import unicodedata

import nbformat
import pytest

from autograder.checks.chapter2 import cut
from autograder.commands import grade as grading
from autograder.course.release import Course
from autograder.grading.by_hand import Given, take
from autograder.grading.grade import Grader, Mark, Report, clean
from autograder.grading.report import per_student, table, twice
from autograder.grading.submissions import Submission, find
from autograder.grading.transplant import transplant
from autograder.grading.whose import ALIKE, ANOTHER, MEND, identity, told
from autograder.judge.predict import PREDICTIONS
from autograder.pages.export import Roster
from autograder.sandbox.inside.personal import normalise, personal

NFC, NFD = (unicodedata.normalize(form, "Zo\u00eb") for form in ("NFC", "NFD"))
HERE = "02_overlap.ipynb"


def test_who_has_the_numbers_of_another_one_is_named_if_that_one_handed_in_too():
    def report(student, *ids):
        return Report(student, [], "", warnings=[ANOTHER.format(i, "a.ipynb, b.ipynb", student) for i in ids])
    class_ = [report("ada"), report("bea", " ADA", "ada", "a 'nick"), report("o'cy", "nobody"), report("dan", "o'cy")]
    assert [r.drawn_for() for r in class_] == [[], [" ADA", "ada", "a 'nick"], ["nobody"], ["o'cy"]]
    said = ("'s notebook has the STUDENT of {}, who handed in too: its predictions were marked with that student's "
            "numbers")
    assert grading.borrowed(class_) == ["bea" + said.format("ada"), "dan" + said.format("o'cy")]


def test_a_note_on_student_names_the_notebooks_and_says_what_to_do():
    said = told({"bob": ["1.ipynb", "2.ipynb"], "": ["3.ipynb"], None: ["4.ipynb"]}, "s1", clean)
    assert said == [
        "STUDENT is 'bob' in 1.ipynb, 2.ipynb, and that came in as 's1': predictions count with the numbers of that id",
        "STUDENT is blank in 3.ipynb, and that came in as 's1': predictions count with the demo's numbers",
        "STUDENT has no value in 4.ipynb, and that came in as 's1': predictions count with the numbers of that id, "
        "or with the demo's",
        "Where STUDENT is not your course id, put that there, predict again, and hand it in again"]
    assert Report("s1", [], "", warnings=said).drawn_for() == ["bob"] and told({}, "s1", clean) == []


def test_a_folder_of_canvas_or_moodle_names_nobody_and_one_student_in_several_is_told():
    def report(student, *ids):
        return Report(student, [], "", warnings=told({i: ["a.ipynb"] for i in ids}, student, clean))
    honest = report("wangfang_1234", "wf17")
    assert honest.warnings == [
        "STUDENT is 'wf17' in a.ipynb, and that came in as 'wangfang_1234': predictions count with the numbers of that "
        "id", "Where that is your course id, nothing is to mend; where not, put that there, predict again, and hand it "
        "in again"]
    assert report("wangfang", "wf17").warnings[-1] == report("wangfang_1234", "wf17", "").warnings[-1] == MEND
    same = "Max Muster_5, Zo\u00eb_7 have one STUDENT in their notebooks, 'm': their predictions were marked with the "
    class_ = [honest, report("Max Muster_5", "m"), report(f"{NFD}_7", " M"), report("Ana_8", "ana8")]
    assert grading.borrowed(class_) == [f"{same}same numbers"]
    of = "'s notebook has the STUDENT of wangfang_1234, who handed in too: its predictions were marked with that " \
         "student's numbers"
    assert grading.borrowed([report("wangfang_1234", "wangfang"), report("eve_7", "Wangfang")]) == [f"eve_7{of}"]
    twins = [report(f"wangfang_{n}", "wangfang") for n in (1, 2)]  # two of one name: whose it is, nobody knows
    assert grading.borrowed(twins)[0].startswith("wangfang_1, wangfang_2 have one STUDENT in their notebooks, 'wang")
    ids = [report("ada"), report("ada_1", "ada")]  # where the number is a part of the id
    assert grading.borrowed(ids)[0].startswith("ada_1's notebook has the STUDENT of ada,")
    assert grading.borrowed([report(s, "m") for s in ("x", "x")]) == []  # one student's two submissions


@pytest.mark.parametrize("given", [" " * 150 + "ada", "\t" * 120 + "ADA\n", "\u3000\xa0" * 100 + "Ada" + " " * 200])
def test_blanks_around_student_hide_nobody(given):
    assert normalise(given) == "ada"  # so the numbers are ada's
    said = told({given: ["1.ipynb"]}, "s1", clean)
    class_ = [Report("ada", [], ""), Report("s1", [], "", warnings=said)]
    assert len(grading.borrowed(class_)) == 1 and "has the STUDENT of ada" in grading.borrowed(class_)[0]


def test_an_accent_is_one_with_its_letter_wherever_students_are_compared(tmp_path):
    assert NFC != NFD and normalise(NFC) == normalise(NFD) == normalise(NFD.upper()) and normalise("\udcff")
    assert vars(personal("2.3", NFC)) == vars(personal("2.3", NFD))
    both = [Report(name, [f"{i}.ipynb"], "", marks={"2.1": Mark(float(i), 1.0, "right")})
            for i, name in enumerate((NFC, NFD))]
    assert [r.points for r in per_student(both)] == [1.0] and len(twice(both)) == 1
    rows = [Report(name, [f"{name}/{HERE}"], "", marks={"2.1": Mark(1.0, 1.0, "right")}) for name in (NFC, NFD)]
    (said,), apart = twice(rows), [f"{NFC}/{HERE} (NFC)", f"{NFD}/{HERE} (NFD)"]
    assert f"more than once: {'; '.join(apart)}. Each" in said and f"marks ({apart[1]}): take" in said
    assert said.endswith(ALIKE) and ALIKE not in twice(both)[0]
    assert list(table(rows).columns[0].cells) == [f"{NFC}: {apart[0]}", f"{NFD}: {apart[1]}"]
    assert f"more than once: {'; '.join(apart)}. Of" in list(per_student(rows))[0].warnings[0]
    taken, _ = take(both, {NFC: {"2.1": Given(0.5)}})
    assert [r.points for r in taken] == [0.5, 0.5]
    assert Roster({NFC: {"ID": "7"}, "bert": {"ID": "8"}}).of([NFD]).get(NFD, "ID") == "7"
    for name in (NFC, NFD):
        (tmp_path / name).mkdir()
        (tmp_path / name / HERE).write_text("{}")
    assert [len(s.names) for s in find([str(tmp_path)], Course())] == [1, 1]  # told apart by their files


def test_a_roster_has_a_student_in_other_case_where_nobody_else_can_be_meant():
    roster = Roster({"bert": {"ID": "1"}, "ADA": {"ID": "2"}, "ada": {"ID": "3"}})

    def ids(*students):
        return [roster.of(students).get(name, "ID") for name in students]
    assert ids("BERT", "ada", "ADA", "bo") == ["1", "3", "2", ""] and ids("Ada") == [""]
    assert ids("bert", "BERT") == ["1", ""] and ids("Bert", "BERT") == ["", ""]  # nobody gets another one's marks


@pytest.mark.parametrize("value", ["s1", " s1 ", 123, ("s1",), "", None, 0, [], "  "])
def test_a_student_draws_in_grading_what_personal_draws_in_the_notebook(value):
    assert vars(personal("2.3", identity(value))) == vars(personal("2.3", value))


# ---- for real, on chapter 2: exercise 2.3 is predicted, 2.6 found, both with numbers of the student's own

def released():
    return next(n for n in Course().notebooks if n.name == "02_overlap")


def best(student):
    p = personal("2.6", student)
    return min(range(1, 200), key=lambda n: cut(n, p.alpha, p.kilobytes))


def answered(student="s2"):
    """Chapter 2, with the right numbers of this student in 2.3 and 2.6."""
    notebook = nbformat.v4.new_notebook(cells=[copy.deepcopy(c) for c in released().cells])
    p = personal("2.3", student)
    answers = {"ex-2-3": f"prediction = {tuple(a.value for a in PREDICTIONS['2.3'](p))}",
               "ex-2-6": f"blocks = {best(student)}"}
    for cell in notebook.cells:
        cell.source = cell.source.replace('STUDENT = ""', f"STUDENT = {student!r}") if student else cell.source
        cell.source = answers.get(cell.id, cell.source)
    return notebook


def lost(notebook, keep=lambda cell: None):
    """As a program leaves it that does not know ids of cells: nbgrader's metadata stays."""
    plain = json.loads(nbformat.writes(notebook))
    for number, cell in enumerate(plain["cells"]):
        cell.pop("id", None)
        keep((number, cell))
    return json.dumps(plain | {"nbformat_minor": 2})


def renumbered(notebook):
    for number, cell in enumerate(notebook.cells):
        cell.id = str(number)
    return nbformat.writes(notebook)


def from_colab(notebook):
    return lost(notebook, lambda it: it[1]["metadata"].update(id=f"kX{it[0]}_a"))


def earlier(notebook):
    """The cell with STUDENT is of an earlier release: one word is another, and so is its id."""
    cell = next(c for c in notebook.cells if "STUDENT = " in c.source)
    cell.id, cell.source = "00c0ffee", cell.source.replace("Your pipeline", "Your own pipeline")
    return nbformat.writes(notebook)


def elsewhere(notebook):
    """STUDENT stands in a cell of the student's own, far above ours, which is of an earlier release."""
    cell = next(c for c in notebook.cells if "STUDENT = " in c.source)
    line, cell.source = cell.source.split("\n", 1)
    cell.id = "00c0ffee"
    notebook.cells.insert(2, nbformat.v4.new_code_cell(line))
    return nbformat.writes(notebook)


def without(*ids, more=()):
    def made(notebook):
        notebook.cells = [c for c in notebook.cells if c.id not in ids]
        for before, source in more:
            place = next(i for i, c in enumerate(notebook.cells) if c.id == before)
            notebook.cells.insert(place, nbformat.v4.new_code_cell(source))
        return nbformat.writes(notebook)
    return made


@pytest.fixture(scope="module")
def graded(tmp_path_factory, sandbox):
    def graded(text, student="s2"):
        path = tmp_path_factory.mktemp("handed_in") / HERE
        path.write_text(text, encoding="utf-8")
        return Grader(Course(), sandbox).grade(Submission(student, (str(path),)))
    return graded


def mark(report, number):
    return report.marks[number].verdict, report.marks[number].points


@pytest.mark.classroom
@pytest.mark.parametrize("change", [lost, renumbered, from_colab, earlier, elsewhere])
def test_student_counts_in_a_notebook_that_lost_its_ids_or_is_of_an_earlier_release(graded, change):
    report = graded(change(answered()))
    assert mark(report, "2.3") == mark(report, "2.6") == ("right", 2.0) and not report.warnings, report


@pytest.mark.classroom
@pytest.mark.parametrize("id_, given", [(NFC, NFC), (NFD, NFC), ("123", 123), ("ada", ("ada",))])
def test_who_it_is_and_student_may_be_written_otherwise(graded, id_, given):
    report = graded(nbformat.writes(answered(given)), id_)
    assert mark(report, "2.3") == mark(report, "2.6") == ("right", 2.0)
    assert bool(report.warnings) == isinstance(given, tuple), report.warnings  # ("ada",) is another id in the notebook


@pytest.mark.classroom
def test_where_student_is_gone_predictions_count_with_the_id_that_they_came_in_as_or_the_demos(graded):
    gone = without(next(c.id for c in released().cells if "STUDENT = " in c.source))
    for student, came_in_as, points in (("s2", "s2", 2.0), ("", "s2", 2.0), ("s2", "s9", 0.0)):
        report = graded(gone(answered(student)), came_in_as)
        assert [report.marks[n].points for n in ("2.3", "2.6")] == [points] * 2, (student, report)
        assert report.warnings == told({None: [HERE]}, came_in_as, clean)
    blank = graded(nbformat.writes(answered("")))
    assert mark(blank, "2.3") == mark(blank, "2.6") == ("right", 2.0) and "STUDENT is blank" in blank.warnings[0]


@pytest.mark.classroom
def test_names_that_other_cells_leave_behind_are_no_answer_to_an_exercise_whose_cell_is_gone(graded):
    gone = "its cell is not in the notebook"
    report = graded(without("ex-2-6", "test-2-6")(answered()))
    assert mark(report, "2.6") == ("missing", 0.0) and report.marks["2.6"].message == gone
    assert report.warnings == [f"exercise 2.6: {gone}: deleted, or newer than it"]
    by_hand = f"blocks = {best('s2')}"
    own = graded(without("ex-2-6", more=[("test-2-6", by_hand)])(answered()))
    assert mark(own, "2.6") == ("right", 2.0)
    in_another = answered()
    next(c for c in in_another.cells if c.source.startswith('mine = personal("2.6"')).source += f"\n{by_hand}"
    assert mark(graded(without("ex-2-6")(in_another)), "2.6") == ("right", 2.0)


def test_an_empty_answer_cell_is_no_answer():
    notebook = answered()
    next(c for c in notebook.cells if c.id == "ex-2-6").source = " \n"
    steps, warnings = transplant(released(), notebook)
    assert [s.missing for s in steps if s.test] == [""] * 5 + ["its cell is empty"] and not warnings
