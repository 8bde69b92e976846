"""What a learner has done is kept, shown by unit, and never in the way."""
import json
import stat
import subprocess
import sys

import pytest

from autograder import check, progress
from autograder.exercise import Exercise, load
from autograder.judge import progress as MODULE


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("PALLAS_LITE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(MODULE, "_in_notebook", lambda: True)
    load("tests.autograder.little_course", "autograder.checks")
    return tmp_path / "state" / "progress.json"


RIGHT = {"a": "read before wait", "b": "overwrite in flight", "c": "wrong slot", "d": "fine", "e": "never waited"}
WRONG = {**RIGHT, "a": "fine"}


def test_a_right_answer_is_noted_once_and_a_wrong_one_is_not(state):
    check("3.3", WRONG)
    assert not state.exists()
    check("3.3", RIGHT)
    check("3.3", RIGHT)
    assert json.loads(state.read_text()) == {"done": ["3.3"]}
    check("3.3", WRONG)  # what was right once stays done
    assert progress().done == {"3.3"}


def test_it_shows_units_signs_and_what_comes_next(state):
    state.parent.mkdir()
    state.write_text('{"done": ["3.1", "5.1"]}')
    rows = {unit: (signs, count) for unit, signs, count in progress().rows()}
    assert all("■" in signs for unit, (signs, _) in rows.items() if unit in ("unit1", "unit2"))
    assert "Next: exercise" in repr(progress()) and progress().next.number not in ("3.1", "5.1")
    assert "■" in progress()._repr_html_() and "<script" not in progress()._repr_html_()


@pytest.mark.parametrize("done, following", [
    ([], "1.1"), (["2.1", "2.3"], "2.2"), (["2.1", "2.2", "2.3"], "3.1"), (["3.1"], "1.1"),
    (["1.1", "2.1", "2.2", "2.3"], "1.2"), (["1.1", "2.1"], "2.2"), (["1.1", "1.2", "2.1", "2.2", "2.3", "3.1"], None)])
def test_what_comes_next_is_near_to_what_is_done(done, following):
    units = {"one": ("1.1", "1.2", "2.1"), "two": ("2.2", "2.3", "3.1")}
    table = MODULE.Progress({unit: [Exercise(n, "", 1.0, lambda *_: None) for n in numbers]
                             for unit, numbers in units.items()}, set(done))
    assert (table.next.number if table.next else None) == following


@pytest.mark.parametrize("told", ["", "{", "[]", '{"done": 3}', '{"done": [1, null]}', "\udcff"])
def test_a_broken_file_counts_as_none_and_is_replaced(state, told):
    state.parent.mkdir()
    state.write_bytes(told.encode("utf-8", "surrogateescape"))
    assert progress().done == set()
    check("3.3", RIGHT)
    assert progress().done == {"3.3"}


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(state):
    state.parent.write_text("a file where the folder should be")
    assert check("3.3", RIGHT).verdict == "right"
    assert progress().done == set() and stat.S_ISREG(state.parent.stat().st_mode)


def test_grading_and_terminals_note_nothing(state, monkeypatch):
    monkeypatch.setattr(MODULE, "_in_notebook", lambda: False)
    check("3.3", RIGHT)
    assert not state.exists()


def test_a_chapter_starts_without_what_only_progress_needs():
    code = "import sys, autograder; sys.exit('nbformat' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
