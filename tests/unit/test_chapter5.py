"""Chapter 5's personal exercise: notebook and check draw the same sizes, and no slip is right by chance."""
from pathlib import Path
from random import Random

import pytest

from autograder import check
from autograder.checks.chapter5 import puzzle

SOURCE = Path(__file__).parents[2] / "solutions" / "unit2" / "05_pallas_call.py"
STUDENTS = [f"s{i}" for i in range(60)]


@pytest.mark.parametrize("student", ["", "s123", " Ann "])
def test_the_notebook_draws_the_sizes_that_the_check_expects(student):
    lines = SOURCE.read_text(encoding="utf-8").split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("mine = Random"))
    names = {"STUDENT": student, "Random": Random}
    exec("\n".join(lines[first:first + 3]), names)
    assert tuple(names[k] for k in ("m", "n", "bm", "bn")) == puzzle(student.strip().casefold())


@pytest.mark.parametrize("student", STUDENTS)
def test_only_the_right_numbers_pass_whoever_asks(student):
    m, n, bm, bn = puzzle(student)
    p, q, tile = m // bm, n // bn, bm * bn
    right = p * q, q, (2 * tile + bn) * 8 / 1024
    assert check("5.4", right, student=student).verdict == "right"
    slips = {0: [q, p, 1, m * n, 2 * p * q], 1: [p * q, p, q - 1, 1],
             2: [x / 1024 for x in (4 * (2 * tile + bn), 2 * (2 * tile + bn), 24 * tile, 16 * tile, 8 * (tile + bn),
                                    8 * (2 * tile + n), 8192 * (2 * tile + bn))]}
    for place, numbers in slips.items():
        for number in numbers:
            result = check("5.4", [number if i == place else x for i, x in enumerate(right)], student=student)
            assert result.verdict == "wrong" and result.nudge, (place, number)


def test_sizes_differ_between_students():
    assert len({puzzle(student) for student in STUDENTS}) > 20
