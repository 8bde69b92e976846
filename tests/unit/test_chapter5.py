"""Chapter 5's personal exercise: notebook and check draw the same sizes, and no slip is right by chance."""
import base64
from pathlib import Path
from random import Random

import numpy as np
import pytest

import pallas_lite as pl
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


def test_a_prediction_has_one_case_and_may_be_an_array():
    m, n, bm, bn = puzzle("s1")
    right = np.array([m // bm * (n // bn), n // bn, (2 * bm * bn + bn) * 8 / 1024])
    assert check("5.4", right, student="s1").verdict == "right"
    result = check("5.4", right + 1, student="s1")
    assert "your case: x is" in str(result) and "smallest" not in str(result)
    assert "None" in str(check("5.4", None)) and "NoneType" not in str(check("5.4", None))


def test_a_grid_that_does_not_fit_names_the_case_and_how_it_is_cut():
    def add(x, y):
        def kernel(x_ref, y_ref, o_ref):
            o_ref[...] = x_ref[...] + y_ref[...]
        spec = pl.BlockSpec((64, 128), lambda i, j: (i, j))
        return pl.pallas_call(kernel, x, grid=(64, 32), in_specs=[spec, spec], out_specs=spec)(x, y)
    result = check("5.1", add)
    assert result.verdict == "error" and result.line  # the learner's own line stays
    assert "f32[128, 256]" in result.case and "2 × 2 blocks of 64 × 128" in result.nudge


def test_the_picture_names_the_machine_and_no_bound():
    def add(x, y):
        def kernel(x_ref, y_ref, o_ref):
            o_ref[...] = x_ref[...] + x_ref[...]
        spec = pl.BlockSpec((64, 128), lambda i, j: (i, j))
        return pl.pallas_call(kernel, x, grid=(x.shape[0] // 64, x.shape[1] // 128), in_specs=[spec, spec],
                              out_specs=spec)(x, y)
    card = check("5.1", add).html()
    svg = base64.b64decode(card.partition("base64,")[2].partition('"')[0]).decode()
    assert f"kernel on {pl.hardware.TOY.name}: " in svg and "-bound" not in svg and "core busy" in card
    assert "white-space:pre;" in card.partition("<pre")[2]


def test_sizes_differ_between_students():
    assert len({puzzle(student) for student in STUDENTS}) > 20
