"""What every page of the course keeps to: cells that fit a screen, references that resolve, planted answers enough."""
import re
from itertools import combinations

import numpy as np
import pytest

from autograder.exercise import EXERCISES, Trial, load
from autograder.judge.handle import LocalHandle
from autograder.judge.predict import PREDICTIONS, slips
from autograder.judge.selftest import planted
from autograder.sandbox.inside.personal import personal

from .test_course import SOURCES, every_chapter, released

SCREEN = 45  # lines of a cell, hints not counted: they are folded
MARGIN = 105  # letters that JupyterLab shows beside its list of files, on a screen that is 1280 wide
load("autograder.checks")
WRONG, RIGHT = planted("autograder.mutants")
# Other tests register exercises of their own.
COURSE = [number for number, found in EXERCISES.items() if found.run.__module__.startswith("autograder.checks.")]
NUMBERS = {source: int(source.stem.partition("_")[0]) for source in SOURCES}


def unfolded(cell):
    return re.sub(r"<details>.*?</details>", "", cell.source, flags=re.DOTALL)


@every_chapter
def test_no_cell_is_longer_than_a_screen(source):
    lengths = {cell.source[:50]: len(unfolded(cell).strip().split("\n")) for cell in released(source).cells}
    assert {start: n for start, n in lengths.items() if n > SCREEN} == {}


@every_chapter
def test_no_line_of_code_is_cut_at_the_margin(source):
    lines = [line for cell in released(source).cells if cell.cell_type == "code" for line in cell.source.split("\n")]
    assert [line for line in lines if len(line) > MARGIN] == []


@every_chapter
def test_chapters_and_exercises_that_are_named_exist(source):
    text = "\n".join(cell.source for cell in released(source).cells)
    exercises = set(re.findall(r"[Ee]xercises? (\d+\.\d+)", text))
    assert exercises and exercises <= set(COURSE)
    assert {int(n) for n in re.findall(r"[Cc]hapter (\d+)", text)} <= set(range(1, 12))


@every_chapter
def test_exercises_are_numbered_in_order_and_titled_as_their_checks(source):
    text = "\n".join(cell.source for cell in released(source).cells)
    headings = re.findall(r"^### Exercise (\d+\.\d+) · (.+)$", text, re.MULTILINE)
    own = [number for number in COURSE if number.startswith(f"{NUMBERS[source]}.")]
    assert [number for number, _ in headings] == own == [f"{NUMBERS[source]}.{i + 1}" for i in range(len(own))]


@every_chapter
def test_code_on_a_page_stands_in_a_cell_that_runs(source):
    for cell in released(source).cells:
        if cell.cell_type == "markdown":
            assert "```" not in cell.source, cell.source[:80]


@every_chapter
def test_a_prediction_comes_before_its_answer(source):
    """A learner is asked to predict again and again, not once at the start."""
    cells = [cell.source for cell in released(source).cells if cell.cell_type == "markdown"]
    assert sum("redict" in text for text in cells) >= 3


def written(number):
    """Whether an exercise asks for code: a prediction has slips instead of alternatives."""
    return number not in PREDICTIONS


@pytest.mark.parametrize("number", COURSE)
def test_each_check_has_wrong_answers_planted_and_each_written_one_a_right_alternative(number):
    wrong = WRONG.get(number, []) + (slips(PREDICTIONS[number](personal(number))) if not written(number) else [])
    assert len({misconception for misconception, *_ in wrong}) >= 3
    assert RIGHT.get(number) or not written(number)


def test_the_course_has_enough_planted_wrong_answers():
    count = sum(map(len, WRONG.values())) + sum(len(slips(ask(personal(n)))) for n, ask in PREDICTIONS.items())
    assert count >= 180 and len(COURSE) >= 45


class Watched(LocalHandle):
    """Notes every array that a check hands to an answer."""

    def __init__(self, target):
        super().__init__(target)
        self.arrays = []

    def _ask(self, op, args):
        self.arrays += [a for a in args if isinstance(a, np.ndarray) and a.size > 1]
        return super()._ask(op, args)


def lopsided(array):
    """Whether no axis could be reversed or swapped with another without a change."""
    values = np.asarray(array, np.float64)
    axes = [axis for axis, n in enumerate(values.shape) if n > 1]
    moved = [np.flip(values, axis) for axis in axes]
    moved += [np.swapaxes(values, a, b) for a, b in combinations(axes, 2) if values.shape[a] == values.shape[b]]
    return not any(np.array_equal(values, other) for other in moved)


@pytest.mark.parametrize("number", [n for n in COURSE if RIGHT.get(n) and written(n)])
def test_no_check_rests_on_constant_or_symmetric_data(number):
    handle = Watched(RIGHT[number][0][1])
    EXERCISES[number].run(handle, Trial(number, hidden=True))
    nothing_yet = [np.all(a == 0) or np.all(np.isneginf(a)) for a in handle.arrays]  # a sum's, a maximum's start
    for array in (a for a, nothing in zip(handle.arrays, nothing_yet, strict=True) if not nothing):
        assert lopsided(array), (number, array)


@pytest.mark.parametrize("array, expected", [
    (np.ones((2, 3)), False), (np.eye(3), False), (np.arange(6.0).reshape(2, 3), True),
    (np.arange(9.0).reshape(3, 3), True), (np.array([1.0, 2.0, 1.0]), False),
    (np.tile([[1.0], [2.0]], 3), False), (np.arange(3.0)[None], True)])
def test_what_counts_as_lopsided(array, expected):
    assert lopsided(array) is expected


def test_the_readme_names_every_chapter_and_counts_the_exercises():
    page = (SOURCES[0].parents[2] / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(notebooks/([\w/]+)\.ipynb\)", page) == [f"{s.parent.name}/{s.stem}" for s in SOURCES]
    counted = re.search(r"There are\s+(\d+) exercises", page)[1]
    assert counted == str(len(COURSE)), f"README.md counts {counted} exercises of {len(COURSE)}. To go on:  make build"
