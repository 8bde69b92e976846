"""selftest tells the author of a check what is wrong with it: once, and as the author's own fault."""
import re
import sys
from types import ModuleType

import pytest

from autograder.exercise import EXERCISES, exercise
from autograder.judge.handle import close
from autograder.judge.selftest import selftest

from .test_grading import ROOT

CHECKS = ("tests.autograder.little_course",)


@pytest.fixture
def planted(monkeypatch):
    """A package of mutants, empty; and no exercise 91.7 afterwards."""
    package = ModuleType("planted_here")
    package.__path__, package.WRONG, package.RIGHT = [], {}, {}
    monkeypatch.setitem(sys.modules, package.__name__, package)
    yield package
    EXERCISES.pop("91.7", None)


def test_a_check_that_fails_by_itself_is_told_once_and_as_its_authors_fault(planted):
    @exercise("91.7", "Twice", points=1)
    def twice(answer, trial):
        close(answer(3), 6)  # for answer.call(3)
    planted.WRONG["91.7"] = [(how, lambda n: 3 * n, "too high") for how in ("thrice", "n and 2 n", "4 n − n")]
    planted.RIGHT["91.7"] = [("a sum", lambda n: n + n)]
    (problem,) = selftest(CHECKS, "planted_here", ["91.7"])
    line = twice.__code__.co_firstlineno + 2
    assert problem == ('91.7: the check itself fails, on "nothing" and 24 more answers: '
                       f"TypeError: 'LocalHandle' object is not callable (twice, line {line})")


def test_what_passes_and_should_not_and_what_should_and_does_not_is_named_once(planted):
    @exercise("91.7", "Twice", points=1)
    def twice(answer, trial):
        answer.call(3)  # and never looks at what came
    planted.WRONG["91.7"] = [("thrice", lambda n: 3 * n, "too high"), ("a text", lambda: "6", "no such word")]
    planted.RIGHT["91.7"] = [("a value", 6)]
    problems = selftest(CHECKS, "planted_here", ["91.7"])
    assert "91.7: nonsense passes as an answer: a function that gives a text" in problems
    assert '91.7: "thrice" is right (Well done.)' in problems
    assert any(p.startswith('91.7: on "a text" the message does not speak of \'no such word\': ') for p in problems)
    assert any(p.startswith('91.7: "a value" is right, and was called error: ') for p in problems)
    assert len(set(problems)) == len(problems) and not any("not your fault" in p for p in problems)


@pytest.mark.parametrize("wrong, right, told", [
    (3, 1, None), (2, 1, "2 wrong answers, 1 right one"), (4, 0, "4 wrong answers, 0 right ones"),
    (0, 1, "0 wrong answers, 1 right one")])
def test_an_exercise_has_three_planted_wrong_answers_and_a_right_one(planted, wrong, right, told):
    @exercise("91.7", "Twice", points=1)
    def twice(answer, trial):
        close(answer.call(3), 6)
    planted.WRONG["91.7"] = [(f"{n} times", lambda x, n=n: n * x, "too high") for n in range(3, 3 + wrong)]
    planted.RIGHT["91.7"] = [("a sum", lambda n: n + n)] * right
    problems = selftest(CHECKS, "planted_here", ["91.7"])
    assert bool(problems) is bool(told) and all(f"too few answers are planted in planted_here: {told}. " in p
                                                for p in problems), problems


def test_the_check_that_the_page_on_adding_one_shows_is_a_sound_one(planted):
    page = (ROOT / "docs" / "adding-an-exercise.md").read_text(encoding="utf-8")
    source = re.search(r"^```python\n(from .*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    exec(compile(source.replace('"2.2"', '"91.7"'), "adding-an-exercise.md", "exec"), {"__name__": __name__})
    planted.WRONG["91.7"] = [("always busy", lambda n, stages: 1, "all the time"),
                             ("a bubble too many", lambda n, stages: n / (n + stages), "too low"),
                             ("percent", lambda n, stages: 100 * n / (n + stages - 1), "too high")]
    planted.RIGHT["91.7"] = [("as it is", lambda n, stages: n / (n + stages - 1))]
    assert selftest(CHECKS, "planted_here", ["91.7"]) == []
