"""Chapter 5's personal exercise: notebook and check draw the same sizes, and no slip is right by chance."""
import base64

import numpy as np

import pallas_lite as pl
from autograder import check, personal
from autograder.checks.chapter5 import SLACK, packed_add
from pallas_lite.hardware import TPU_V5E

STUDENTS = [f"s{i}" for i in range(60)]


def test_a_prediction_has_one_case_and_may_be_an_array():
    p = personal("5.4", "s1")
    m, n, bm, bn = p.m, p.n, p.bm, p.bn
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
    picture = base64.b64decode(card.partition("base64,")[2].partition('"')[0])
    said = card.partition('alt="')[2].partition('"')[0]  # the picture's title
    assert picture.startswith(b"\x89PNG") and f"kernel on {pl.hardware.TOY.name}: " in said and "core busy" in said
    assert "-bound" not in said
    assert "white-space:pre;" in card.partition("<pre")[2]


def test_sizes_differ_between_students():
    assert len({str(personal('5.4', student)) for student in STUDENTS}) > 20


def test_every_budget_can_be_met_and_not_by_the_blocks_that_the_page_has_praised():
    for student in ["", *STUDENTS]:
        p = personal("5.6", student)
        row = 2 * p.width * (np.dtype(p.dtype if p.dtype != "bfloat16" else "int16").itemsize + 8)
        wide = p.budget_kib * 1024 // row // 8 * 8, p.width
        assert check("5.6", wide, student=student).verdict == "right", (student, p)
        assert packed_add(p, 512, 512).schedule.sram_bytes > p.budget_kib * 1024
        square = packed_add(p, 256, 256)
        assert square.schedule.sram_bytes < p.budget_kib * 1024
        least = square.schedule.hbm_bytes["total"] / TPU_V5E.beta
        assert square.timeline(TPU_V5E).total > (1 + SLACK) * least * 1.02, (student, p)
