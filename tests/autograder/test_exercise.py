"""check: never raises, tells what happened, and prints the mark as nbgrader reads it."""
import sys
import time
import warnings

import pytest

import pallas_lite as pl
from autograder import Trial, check
from autograder.exercise import EXERCISES, Wrong, exercise, load
from autograder.judge import checking
from autograder.judge.result import Result

from . import little_course as little


@pytest.fixture(autouse=True)
def only_the_little_course():
    before = dict(EXERCISES)
    yield
    # Only what was registered here: the course's own checks register once, when they are first asked for.
    for number in [n for n, found in EXERCISES.items() if n not in before and found.run.__module__ == __name__]:
        del EXERCISES[number]


def right(number):
    names = {}
    exec(little.SETUP + "\n" + little.RIGHT[number], names)
    return names[little.NAMES[number]]


def raises(error):
    def loop(*_):
        raise error
    return loop


def for_ever(*_):
    while True:
        pass


def for_ever_stubbornly(*_):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            while True:
                time.sleep(0.01)
        except Exception:
            pass


@pytest.mark.parametrize("number", little.RIGHT)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_right_answer_gets_all_points(number, hidden):
    result = check(number, right(number), hidden=hidden)
    assert (result.verdict, result.points) == ("right", little.POINTS[number]), result


@pytest.mark.parametrize("answer, verdict, words", [
    (..., "not done", "not done yet"),
    (raises(NotImplementedError("hole")), "not done", "not done yet"),
    (raises(ZeroDivisionError("by nothing")), "error", "ZeroDivisionError: by nothing"),
    (raises(SystemExit(3)), "error", "SystemExit: 3"),
    (raises(KeyboardInterrupt()), "error", "interrupted"),
    (raises(GeneratorExit()), "error", "GeneratorExit"),
    (raises(BaseException("base")), "error", "base"),
    (raises(MemoryError()), "error", "MemoryError"),
    (lambda: None, "error", "positional argument"),
    (3, "error", "a function is expected"),
    (None, "error", "a function is expected"),
    (lambda N, A, X, Y, B: pl.copy_in_start(A[N], X[0]), "error", "does not exist"),
    (lambda N, A, X, Y, B: None, "wrong", "every step"),
], ids=lambda x: getattr(x, "__name__", str(x)))
def test_whatever_the_answer_does_check_returns_a_verdict(answer, verdict, words):
    result = check("90.1", answer)
    assert (result.verdict, result.points) == (verdict, 0.0)
    assert words in str(result)


@pytest.mark.parametrize("number", ["7.77", "", "no number", "90", "90.1.1", "../x.1"])
def test_an_unknown_exercise_is_said_so(number):
    assert "There is no exercise" in check(number, 1).message


def test_an_unknown_exercise_of_a_chapter_names_those_that_there_are():
    assert "Chapter 2 has 2.1, 2.2, " in check("2.77", 1).message


@pytest.mark.parametrize("number, answer, call", [
    (2.1, {}, 'check("2.1", …)'), ({"copy_in": [0]}, "2.1", 'check("2.1", …)'), (None, 1, 'check("3.2", …)')])
def test_a_number_without_quotes_or_after_the_answer_is_told_how_to_write_it(number, answer, call):
    result = check(number, answer)
    assert result.verdict == "broken" and result.message.endswith(f"{call}.")


def test_a_check_without_an_answer_says_that_none_is_given_not_that_it_is_not_done():
    assert "No answer is given" in check("2.2").message and check("2.2").verdict == "not done"
    assert check("2.2", ...).message == "Exercise 2.2 is not done yet."


def given_helper(i):
    return [0][i]


def test_an_error_in_a_helper_is_shown_with_the_line_that_calls_it():
    line = check("90.1", lambda *_: given_helper(1)).line
    assert "return [0][i], called in line " in line and "given_helper(1)" in line


@pytest.mark.parametrize("endless", [for_ever, for_ever_stubbornly])
def test_an_endless_loop_in_a_notebook_ends(endless):
    began = time.monotonic()
    result = check("90.1", endless, time_limit=0.5)
    assert time.monotonic() - began < 5
    assert result.verdict == "error" and "took longer than 0.5 s" in result.message and result.line


def test_the_learners_own_line_is_named():
    result = check("90.3", eval("lambda x: undefined_name", {}))
    assert "undefined_name" in result.message
    assert "raise error" in check("90.1", raises(ValueError("x"))).line


def test_a_failing_schedule_shows_case_step_slot_table_and_picture():
    def no_wait(N, A, X, Y, B):
        for i in range(N):
            pl.copy_in_start(A[i], X[0])
            pl.compute(X[0], Y[0])
            pl.copy_in_wait(X[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
    result = check("90.1", no_wait)
    for words in ("smallest failing case: N = 1", "first wrong step: step 0, slot X[0]", "✗ read before wait",
                  "→ Wait for it."):
        assert words in str(result)
    html = result.html()
    assert "data:image/png" in html and "svg" not in html and len(html) < 60_000
    assert "not right yet" in html and "✗" in html


@pytest.mark.parametrize("answer, mark", [(2.5, "1.0"), (2.6, "0.0"), (..., "0.0"), ("x", "0.0"),
                                          (float("nan"), "0.0")])
def test_plain_text_is_exactly_the_mark(answer, mark):
    assert check("90.2", answer)._repr_mimebundle_()["text/plain"] == mark


def test_text_of_a_learner_is_escaped_in_the_card():
    result = check("90.1", raises(ValueError("<script>alert(1)</script>")))
    assert "<script>" not in result.html()


def test_nothing_reaches_stderr(capfd):
    def noisy(x):
        warnings.warn("careful", stacklevel=1)
        print("to stderr", file=sys.stderr)
        return 2 * x
    result = check("90.3", noisy)
    assert result.verdict == "right" and "to stderr" in result.printed
    assert capfd.readouterr().err == ""


def test_nbgraders_validate_button_is_told_the_reason(monkeypatch, capsys):
    """It shows what a cell that does not pass wrote to stderr; else it says "Partial credit" of any answer."""
    monkeypatch.setenv("NBGRADER_VALIDATING", "1")
    Result("90.2", "A number", 0.0, 1.0, "wrong", "Too high.", nudge="Both ways at once.")._repr_mimebundle_()
    told = capsys.readouterr().err
    assert "Exercise 90.2 · A number: not right yet" in told and "Both ways at once." in told
    Result("90.2", "A number", 1.0, 1.0, "right", "Well done.")._repr_mimebundle_()
    assert capsys.readouterr().err == ""


def test_a_fault_of_the_check_is_not_the_learners():
    @exercise("88.1", "Broken", points=1)
    def broken(answer, trial):
        raise RuntimeError("oops")
    result = check("88.1", 3)
    assert result.verdict == "broken" and "not your fault" in result.message


def test_a_file_of_checks_that_cannot_be_imported_is_not_the_learners_fault_either(monkeypatch):
    def broken(_):
        raise SyntaxError("invalid syntax")
    monkeypatch.setattr(checking, "_find", broken)
    result = check("9.9", 3)
    assert (result.verdict, result.points) == ("broken", 0.0) and "SyntaxError" in result.message


def test_exercises_stand_in_course_order():
    for number in ("88.10", "88.2", "87.3"):
        exercise(number, "x", points=1)(lambda answer, trial: None)
    assert [n for n in EXERCISES if n in ("88.10", "88.2", "87.3")] == ["87.3", "88.2", "88.10"]


def test_an_exercise_number_is_not_given_twice():
    with pytest.raises(ValueError, match="exercise 90.1 is in"):
        exercise("90.1", "x", points=1)(lambda answer, trial: None)


def test_visible_trials_repeat_and_hidden_ones_do_not():
    assert Trial("90.1").rng.random() == Trial("90.1").rng.random() != Trial("90.2").rng.random()
    assert Trial("90.1", hidden=True).rng.random() != Trial("90.1", hidden=True).rng.random()


@pytest.mark.parametrize("most, verdict", [(1, "wrong"), (2, "wrong"), (3, "right")])
def test_a_hidden_trial_is_at_least_as_strict_as_the_visible_one(most, verdict):
    @exercise("88.4", "x", points=1)
    def largest(answer, trial):
        for n in trial.pick(visible=(1, 3), hidden=(2,)):
            if answer.value() < n:
                raise Wrong("Too small.", case=f"n = {n}")
    result = check("88.4", most, hidden=True)
    assert (result.verdict, result.case) == (verdict, {1: "n = 2", 2: "n = 3", 3: ""}[most])


def test_result_without_points_shows_none():
    assert Result("1.1", "", 0.0, 0.0, "broken", "x").heading == "! Exercise 1.1: could not be checked"


def test_a_title_that_asks_keeps_its_mark_and_is_not_answered():
    asks = Result("10.1", "Parallel or sequential?", 0.0, 2.0, "not done", "")
    assert asks.heading == "… Exercise 10.1 · Parallel or sequential? – not done yet (0 of 2 points)"
    plain = Result("8.1", "Matmul", 3.0, 3.0, "right", "")
    assert plain.heading == "✓ Exercise 8.1 · Matmul: right (3 of 3 points)"


def test_load_imports_a_module():
    assert "90.1" in load("tests.autograder.little_course")
