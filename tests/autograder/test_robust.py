"""What a student's process may send, and what an instructor's terminal may be: neither breaks the grader."""
import pytest

from autograder.exercise import load
from autograder.grading.grade import Mark, Report
from autograder.grading.report import MOST_ROWS, table, twice
from autograder.sandbox.inside import wire


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


def test_two_marks_of_a_student_for_one_exercise_are_said_and_those_for_others_are_not():
    def report(student, *numbers):
        return Report(student, ["a.ipynb"], "0", marks=dict.fromkeys(numbers, Mark(2, 2, "right")))
    once = [report("bob", "1.1", "1.2"), report("bob", "2.1"), report("ann", "1.1"), report("eve"), report("eve")]
    assert twice(once) == []
    line, = twice([*once, report("bob", "1.2", "2.2"), report("bob", "1.2")])
    assert line.startswith("bob handed in the same exercises more than once")


def test_of_very_many_submissions_the_table_has_those_that_need_a_look_and_says_where_the_others_are():
    reports = [Report(f"s{i}", [], "", "fault" if i == 600 else "graded") for i in range(MOST_ROWS + 200)]
    shown = table(reports, 80)
    assert next(iter(shown.columns[0].cells)) == "s600" and shown.row_count == MOST_ROWS
    assert shown.caption == "200 more, all graded, are in results.csv"
    assert table(reports[:9], 80).caption is None
