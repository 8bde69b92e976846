"""Chapter 7: the formula that its predictions are judged by is the event simulation, at any depth."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder import check, personal
from autograder.checks.chapter7 import TARGET, exact, horner_timeline, stream_timeline
from pallas_lite.hardware import TPU_V5E


@given(n=st.integers(1, 30), alpha=st.integers(0, 12), copy=st.integers(1, 8), step=st.integers(0, 8),
       depth=st.integers(1, 8))
def test_the_exact_formula_is_the_simulation(n, alpha, copy, step, depth):
    simulated = stream_timeline(n, alpha, copy, step, depth).total * 1e6
    assert simulated == pytest.approx(exact(n, alpha, copy, step, depth))


def test_the_target_of_the_sweep_is_met_in_the_middle_alone():
    assert TPU_V5E.sram_bytes == 16 * 2**20
    met = {(b, depth) for b in (128, 256, 512) for depth in (2, 3, 4)
           if horner_timeline(b, b, depth).total <= TARGET * 1e-6}
    assert met == {(256, 3), (256, 4)}


@pytest.mark.parametrize("student", ["", *(f"id{i}" for i in range(30))])
def test_an_answer_to_7_1_that_leaves_out_a_bound_is_wrong_for_everybody(student):
    p = personal("7.1", student)
    seconds = [{"compute": m["alpha"] + p.X / m["beta"] + p.N * p.Y / m["F"],
                "bandwidth": m["alpha"] + p.N * p.X / m["beta"],
                "latency": p.N * (m["alpha"] + p.X / m["beta"] + p.Y / m["F"]) / 2} for m in (p.A, p.B, p.C)]

    def answer(bounds):
        return [part for of in seconds for part in max((1e6 * of[bound], bound) for bound in bounds)]
    assert check("7.1", answer(seconds[0]), student=student).verdict == "right"
    for left_out in seconds[0]:
        assert check("7.1", answer({*seconds[0]} - {left_out}), student=student).verdict == "wrong"
