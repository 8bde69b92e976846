"""A slip in a formula is told where it is the answer's own, in every case."""
import pytest

from autograder.checks.formulas import known_slip
from autograder.judge.handle import LocalHandle

CASES = [(1, 1), (1, 3), (6, 3)]


def slips(n, stages):
    return [((stages - 1) / (n + stages - 1), "the bubbles"), (1 / stages, "in turns"), (n, "busy"), (n, "busy")]


def refuses_one(n, stages):
    return (stages - 1) / (n + stages - 1) if n > 1 else [][n]


@pytest.mark.parametrize("answer, at, says", [
    (lambda n, stages: (stages - 1) / (n + stages - 1), (1, 1), "the bubbles"),
    (lambda n, stages: (n - 1) / (n + stages - 1), (1, 1), ""),  # 0 there as well
    (lambda n, stages: 1 / stages, (1, 3), "in turns"),
    (lambda n, stages: 1 if n == 1 else 0, (1, 1), ""),
    (lambda n, stages: n, (6, 3), "busy"),  # two slips of which the same is said
    (refuses_one, (6, 3), "the bubbles")])  # where it gives nothing, nothing is against it
def test_a_slip_is_told_where_the_answer_agrees_with_it_in_every_case(answer, at, says):
    assert known_slip(LocalHandle(answer), CASES, at, slips) == says


def test_nothing_is_told_where_two_slips_agree_with_all_that_the_answer_gives():
    two = lambda n, stages: [(n, "one"), (n * stages, "other")]  # noqa: E731
    assert known_slip(LocalHandle(lambda n, stages: n), [(2, 1)], (1, 1), two) == ""
