"""Predictions: numbers that belong to a learner, slips that are known, and a selftest that notices bad ones."""
import subprocess
import sys
from types import ModuleType

import pytest

from autograder import check, personal
from autograder.exercise import EXERCISES
from autograder.judge.predict import PREDICTIONS, Asked, collisions, predict
from autograder.judge.selftest import prediction_problems
from autograder.sandbox.bubblewrap import make_stage


@pytest.fixture
def number(monkeypatch):
    """An exercise 86.1 for one test: two blocks of some bytes each, and the machine's word for it."""
    draws = ModuleType("autograder.sandbox.inside.draws.chapter86")
    draws.DRAWS = {"86.1": lambda rng: {"size": rng.randrange(10, 1000)}, "86.2": lambda rng: {"size": rng.random()}}
    monkeypatch.setitem(sys.modules, draws.__name__, draws)
    yield "86.1"
    for found in EXERCISES, PREDICTIONS:
        found.pop("86.1", None)


def ask(number, *slips):
    @predict(number, "Two blocks", points=1)
    def two(p):
        return [Asked("The time", "µs", 2 * p.size, [(name, factor * p.size, says) for name, factor, says in slips]),
                Asked("The bound", "", "bandwidth", [("the core is slow", "compute", "Is the core ever busy?")])]


def test_personal_numbers_belong_to_student_and_exercise(number):
    assert personal(number, " S12 ") == personal(number, "s12") != personal(number, "s13")
    assert personal(number, "s12").size != personal("86.2", "s12").size


@pytest.mark.parametrize("number, words", [("2.1", "these have: 2.3, 2.6"), (2.3, r'personal\("2.3", STUDENT\)'),
                                           ("99.1", "no numbers of your own$"), ("", "no numbers of your own$")])
def test_an_exercise_that_draws_nothing_is_said_so(number, words):
    with pytest.raises(ValueError, match=words):
        personal(number, "")


def test_a_name_that_is_no_text_draws_numbers_too(number):
    assert vars(personal(number, "\ud800")) == vars(personal(number, "?"))


def test_a_prediction_says_high_or_low_and_what_slipped_and_never_the_value(number):
    ask(number, ("one block is enough", 1, "There are two blocks."))
    size = personal(number, "ann").size
    assert check(number, (2 * size, " Bandwidth "), student="Ann").verdict == "right"
    low = check(number, (size, "bandwidth"), student="ann")
    assert low.message == "The time is too low." and low.nudge == "There are two blocks." and f"{size}" in low.case
    assert check(number, (3 * size, "bandwidth"), student="ann").message == "The time is too high."
    word = check(number, (2 * size, "compute"), student="ann")
    assert word.message == "The bound is not right." and word.nudge == "Is the core ever busy?"
    assert "in quotes" in check(number, (2 * size, 1), student="ann").message
    for result in low, word:
        assert f"{2 * size}" not in str(result) and "bandwidth" not in str(result)


@pytest.mark.parametrize("answer", [None, 5, (), (1, 2, 3), "compute", {"a": 1}])
def test_a_prediction_of_another_shape_says_what_is_wanted(number, answer):
    ask(number)
    result = check(number, answer)
    assert result.verdict == "wrong"
    assert "should hold 2 answers in a row: the time (µs), then the bound." in result.message


def test_selftest_passes_good_slips_and_notices_slips_that_are_right(number):
    ask(number, ("one block is enough", 1, "There are two blocks."))
    assert prediction_problems(number) == []
    ask(number, ("it is near enough", 2.01, "There are two blocks."))
    assert "as does 'the right answer'" in prediction_problems(number)[0]
    ask(number, ("one", 1, "There are two blocks."), ("one, too", 1.001, "Something else."))
    assert "as does 'one'" in prediction_problems(number)[0]


def test_slips_of_which_the_same_is_said_may_be_near_each_other():
    assert collisions([Asked("x", "", 9.0, [("a", 1.0, "same"), ("b", 1.0, "same")])]) == []
    assert collisions([Asked("x", "", "a", [("b", "a", "no")])]) != []


def test_the_sandbox_draws_the_same_numbers(tmp_path):
    stage = make_stage(tmp_path / "course")
    code = "from autograder import personal; print(personal('5.4', ' Ann '))"
    told = subprocess.run([sys.executable, "-P", "-c", code], env={"PYTHONPATH": stage}, capture_output=True, text=True)
    assert told.stdout.strip() == str(personal("5.4", "ann")), told.stderr
