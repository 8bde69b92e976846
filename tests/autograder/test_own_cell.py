"""The answer of an exercise comes from its own cell, or from one of the student's: not from what others left.

In chapter 1 two predictions have one name, and in chapter 2 loops of the notebook's leave a `blocks`.
"""
import copy

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from autograder.checks import chapter1  # noqa: F401  registers 1.3 and 1.4
from autograder.checks.chapter2 import cut
from autograder.course.release import Course
from autograder.exercise import EXERCISES, Trial
from autograder.grading.grade import Grader
from autograder.grading.needed import changed_in_place
from autograder.grading.submissions import Submission
from autograder.grading.transplant import transplant
from autograder.judge.before import NOT_GIVEN as NO_VALUE
from autograder.judge.before import NOTHING_RAN, STOPPED, with_the_cell_before
from autograder.judge.checking import judge
from autograder.judge.handle import LocalHandle
from autograder.judge.predict import PREDICTIONS
from autograder.sandbox.inside.answers import describe, for_a_file
from autograder.sandbox.inside.personal import personal

RIGHT = {n: f"prediction = {tuple(a.value for a in PREDICTIONS[n](personal(n, 's1')))}" for n in ("1.3", "1.4")}
BLOCKS = min(range(1, 200), key=lambda n: cut(n, personal("2.6", "s1").alpha, personal("2.6", "s1").kilobytes))
RIGHT["2.6"] = f"blocks = {BLOCKS}"
NOT_GIVEN = "NameError: your answer gives {} no value, and what other cells left in it does not count"


def released(number):
    return next(n for n in Course().notebooks if f"ex-{number.replace('.', '-')}" in n.answers)


@pytest.fixture(scope="module")
def marks(tmp_path_factory, sandbox):
    def graded(number, answer, *, before="", after="", hidden=True):
        """The marks of a notebook with this answer to an exercise, and with cells of the student's around it."""
        cells = []
        for cell in map(copy.deepcopy, released(number).cells):
            its = cell.id == f"ex-{number.replace('.', '-')}"
            cell.source = RIGHT.get(cell.id[3:].replace("-", "."), cell.source) if cell.id[:3] == "ex-" else cell.source
            cell.source = answer if its else cell.source.replace('STUDENT = ""', 'STUDENT = "s1"')
            around = [[nbformat.v4.new_code_cell(text)] if its and text else [] for text in (before, after)]
            cells += [*around[0], cell, *around[1]]
        path = tmp_path_factory.mktemp("handed_in") / f"{released(number).name}.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        report = Grader(Course(), sandbox, hidden=hidden).grade(Submission("s1", (str(path),)))
        assert not report.warnings and report.status == "graded", report
        return report.marks
    return graded


@pytest.mark.classroom
@pytest.mark.parametrize("number, answer, message, line", [
    ("1.4", "prediction = (3, 4", "SyntaxError: '(' was never closed, in line 1", "prediction = (3, 4"),
    ("1.4", "x = 1\nprediction = 3 4", "SyntaxError: invalid syntax", "prediction = 3 4"),
    ("1.4", "predicton = (3, 4)", NOT_GIVEN.format("prediction"), ""),
    ("1.4", "prediction = (3, 4 / 0)", "ZeroDivisionError: division by zero", "prediction = (3, 4 / 0)"),
    ("1.4", "import os\nos._exit(3)", "your code ended Python (exit status 3)", ""),
    ("2.6", "blocks = (3", "SyntaxError: '(' was never closed, in line 1", "blocks = (3"),
    ("2.6", "block = 24", NOT_GIVEN.format("blocks"), ""),
    ("2.6", "# blocks = 24", NOT_GIVEN.format("blocks"), ""),
    ("2.6", "print(blocks)", NOT_GIVEN.format("blocks"), ""),
])
def test_what_other_cells_left_is_no_answer_and_the_message_says_what_happened(marks, number, answer, message, line):
    for hidden in (True, False):  # as in grading, and as `validate` does
        found = marks(number, answer, hidden=hidden)
        mark = found[number]
        assert (mark.verdict, mark.points) == ("error", 0.0) and mark.message.startswith(message), mark
        assert line in mark.details.get("your line", "")
        assert all(found[n].verdict == "right" for n in RIGHT if n in found and n != number), found


@pytest.mark.classroom
@pytest.mark.parametrize("number, answer, more", [
    ("2.6", f"best = {BLOCKS}", {"after": "blocks = best"}),  # the answer in a cell of one's own, above or below
    ("2.6", "# see above", {"before": RIGHT["2.6"]}),
    ("2.6", "blocks = (3", {"after": RIGHT["2.6"]}),
    ("2.6", f"{RIGHT['2.6']}\n1 / 0", {}),  # what stops came later
    ("2.6", f"%%time\nblocks = {BLOCKS} + 0 * blocks", {}),  # what others left can be used
    ("2.6", f"def best():\n    return {BLOCKS} + 0 * blocks\nblocks = best()", {"before": "print(blocks)"}),
    ("2.6", f"blocks -= blocks - {BLOCKS}", {}),
    ("2.6", f"del blocks\n{RIGHT['2.6']}", {}),
    ("1.4", RIGHT["1.4"].replace("prediction", "mine_too"), {"after": "prediction = mine_too"}),
    ("1.3", RIGHT["1.3"], {"before": "prediction = 0"}),
])
def test_an_honest_way_to_give_an_answer_costs_nothing(marks, number, answer, more):
    found = marks(number, answer, **more)
    assert [n for n in RIGHT if n in found and found[n].verdict != "right"] == [], found[number]


@pytest.mark.classroom
def test_an_own_answer_that_is_wrong_is_judged_unless_its_cell_could_not_run(marks):
    wrong = marks("2.6", "# above", before="blocks = 3")["2.6"]
    assert wrong.verdict == "wrong" and "3 blocks" in wrong.details["got"]
    assert marks("2.6", "blocks = 3\n1 / 0")["2.6"].verdict == "wrong"
    broken = marks("2.6", "blocks = = 24", before="blocks = 3")["2.6"]
    assert broken.verdict == "error" and broken.message.startswith("SyntaxError: invalid syntax")
    assert broken.visible == {"message": broken.message, **broken.details}


def test_which_names_the_chapters_leave_before_an_answer_of_that_name():
    left = {n.name: [s.leaves for s in transplant(n, nbformat.v4.new_notebook(cells=list(n.cells)))[0] if s.leaves]
            for n in Course().notebooks}
    assert {name: found for name, found in left.items() if found} == {
        "01_memory_hierarchy": [("prediction",)], "02_overlap": [("blocks",)] * 3,
        "07_cost_model": [("prediction",)], "11_attention": [("prediction",)]}


def test_an_error_has_the_name_that_people_know():
    incomplete = type("_IncompleteInputError", (SyntaxError,), {"__module__": "builtins"})  # as Python 3.13 has it
    error = incomplete("incomplete input", ("<cell>", 2, 1, "x = (3", 2, 0))
    assert describe(error)["kind"] == "SyntaxError"
    assert describe(for_a_file(error, "y = 1\nx = (3"))["message"] == "'(' was never closed, in line 2"
    assert for_a_file(error, "x = 3") is error
    assert describe(type("_Mine", (ValueError,), {})())["kind"] == "_Mine"  # a learner's own


def test_a_name_whose_value_a_cell_may_change_in_place_is_known():
    assert changed_in_place("a[0] = 1\nb.append(2)\ndel c\nd = 3\nprint(e)") == {"a", "b", "c"}
    assert changed_in_place("a = (3") == set()


# ---- in a notebook, where the name holds what it held before

def checked(source, *, cell_id="ex-1-4", left=(3, 4), checking='check("1.4", prediction, student=STUDENT)'):
    """What a notebook says where this cell ran last, and the name that the check takes holds what is `left`."""
    shell = InteractiveShell()
    try:
        shell.showtraceback = shell.showsyntaxerror = lambda *_, **__: None
        shell.run_cell(source, store_history=True, cell_id=cell_id)
        shell.history_manager.store_inputs(99, checking, checking)
        return with_the_cell_before(judge(EXERCISES["1.4"], LocalHandle(left), Trial("1.4")), EXERCISES["1.4"], shell)
    finally:
        shell.history_manager.end_session()


PLAIN = judge(EXERCISES["1.4"], LocalHandle((3, 4)), Trial("1.4"))


@pytest.mark.parametrize("cell_id", ["ex-1-4", None])  # JupyterLab tells the id of a cell, other programs do not
def test_a_notebooks_check_says_that_the_cell_before_it_could_not_run(cell_id):
    for source, message in (("prediction = (3, 4", "SyntaxError: '(' was never closed, in line 1"),
                            ("prediction = 3 4", "SyntaxError: invalid syntax, in line 1"),
                            ("if 1:\nprediction = 3", "IndentationError: expected an indented block")):
        said = checked(source, cell_id=cell_id)
        assert (said.verdict, said.points, said.nudge) == ("error", 0.0, NOTHING_RAN) and not said.got
        assert said.message.startswith(message) and said.line == source.split("\n")[-1]


def test_a_notebooks_check_says_that_the_cell_before_it_stopped_or_gives_another_name():
    stopped = checked("prediction = (3, 4 / 0)", cell_id=None)
    assert (stopped.verdict, stopped.got, stopped.nudge) == (
        "wrong", PLAIN.got, f"{STOPPED.format('ZeroDivisionError')} {PLAIN.nudge}".strip())
    for source in ("predicton = (3, 4)", "# prediction = 3", "print(1)", ""):
        assert checked(source).nudge == f"{NO_VALUE.format('prediction')} {PLAIN.nudge}".strip()


@pytest.mark.parametrize("source, more", [
    ("prediction = (3, 4)", {}), ("x = (3", {"cell_id": None}), ("1 / 0", {"cell_id": None}), ("predicton = 3", {
        "cell_id": None}), ("%%time\nx = 1", {}), ("prediction = (3", {"checking": 'check("1.4", (3, 4))'}),
    ("prediction = (3", {"checking": 'prediction = 3\ncheck("1.4", prediction)'}),
    ("prediction = (3", {"checking": 'print(check("1.3", prediction))'})])
def test_and_says_nothing_where_another_cell_ran_or_it_is_not_known(source, more):
    assert checked(source, **more) == PLAIN
    assert with_the_cell_before(PLAIN, EXERCISES["1.4"], None) is PLAIN
    right = tuple(a.value for a in PREDICTIONS["1.4"](personal("1.4", "")))
    assert checked("prediction = (3", left=right).verdict == "right"
