"""What a student's process may send, and what an instructor's terminal may be: neither breaks the grader."""
import pytest

from autograder.exercise import load
from autograder.grade import Mark, Report
from autograder.inside import wire
from autograder.report import table


@pytest.mark.parametrize("data", [10**400, {"t": [1, -(2**63)]}, [[2**63]], {"d": [["k", 10**30]]}])
def test_numbers_beyond_64_bits_are_refused(data):
    with pytest.raises(wire.WireError, match="beyond 64 bits"):
        wire.unpack(data, [])
    assert wire.unpack({"t": [2**63 - 1, True]}, []) == (2**63 - 1, True)


def test_a_narrow_terminal_shows_totals_and_a_wide_one_every_mark():
    marks = {number: Mark(2, 2, "right") for number in load("autograder.checks")}
    reports = [Report("Ada", ["a.ipynb"], "0", marks=marks)]
    assert [c.header for c in table(reports, 80).columns] == ["student", "total", "s", "note"]
    assert len(table(reports, 240).columns) == 4 + len(marks) > 10
