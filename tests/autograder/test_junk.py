"""Junk is a wrong answer with a message: at no place of what an answer gives does it make a check stumble.

The replies of a right answer are recorded. Then the check is asked again, and gets the same replies, with junk at one
place of one of them: what a learner's process could send in place of what it should.
"""
import functools
import math
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from autograder.exercise import EXERCISES, Trial, load
from autograder.judge.checking import judge
from autograder.judge.handle import Handle, LocalHandle
from autograder.judge.predict import PREDICTIONS
from autograder.judge.selftest import planted
from autograder.sandbox.inside import wire
from autograder.sandbox.inside.personal import personal

load("autograder.checks")
NESTED = functools.reduce(lambda inside, _: [inside], range(15), 0)
JUNK = [None, True, "", "x", "parallel", "copy_in_start", "a" * 5000, "\ud800", -1, 0, 1, 1.5, -0.0, 3, 10**6, 2**62,
        -2**62, math.nan, math.inf, -math.inf, 1e308, 5e-324, [], (), {}, [[]], [None], ["a", "b"], [1, 2], (1, "2", 3),
        {"a": 1}, {1: 2}, {(1, 2): [3]}, {None: None}, NESTED, np.zeros(0), np.ones(3), np.zeros((2, 0, 3)),
        np.array(True), np.array(math.nan), np.zeros((), np.int64), np.full((2, 2), math.inf), np.ones(4, bool),
        np.ones((1, 1), wire.dtype_of("bfloat16")), np.zeros((1,) * 8), [np.zeros(0)] * 2, (np.ones((2, 3)), None)]
CHANGES = [lambda v: [v], lambda v: (v, v), lambda v: {"a": v}, lambda v: v[:-1], lambda v: v[::-1], lambda v: v + v,
           lambda v: v[None], lambda v: v.ravel(), lambda v: v.astype(np.int8), lambda v: v.astype(bool),
           lambda v: v.astype(np.float16), lambda v: v * math.nan, lambda v: v.T, lambda v: -v, lambda v: v + 0.5,
           lambda v: v * 1000, lambda v: str(v), lambda v: tuple(v), lambda v: list(v), lambda v: dict(enumerate(v))]
MOST = {"value": 60, "call": 60, "schedule": 200}  # of those that a question is tried with
MOST_OF_A_KERNEL = 6  # its plan has thousands, and each may be followed to its end


class Recorded(LocalHandle):
    """Notes what is answered."""

    def __init__(self, target):
        super().__init__(target)
        self.replies = []

    def _ask(self, op, args):
        self.replies.append((op, *super()._ask(op, args)))
        return self.replies[-1][1:]


class Replayed(Handle):
    """Answers as it was answered before, but for question `which`, whatever it is asked."""

    def __init__(self, replies, which, body):
        self._replies = [body if k == which else old for k, (_, _, old) in enumerate(replies)][::-1]

    def _ask(self, op, args):
        return ("ok", self._replies.pop()) if self._replies else ("failed", {})


def places(value: Any, path=()):
    """The paths to all parts of a value; of many in a row, to the first and the last."""
    yield path
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, (list, tuple)) else ()
    for key in keys if isinstance(value, dict) else sorted({*keys[:1], *keys[-1:]}):
        yield from places(value[key], (*path, key))


def changed(value: Any, path, new):
    """A copy with new(old) at a path."""
    if not path:
        return new(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return tuple(copy) if isinstance(value, tuple) else copy


def right_answer(number: str):
    if number in PREDICTIONS:
        values = [a.value for a in PREDICTIONS[number](personal(number))]
        return tuple(values) if len(values) > 1 else values[0]
    return RIGHT[number][0][1]


RIGHT = planted("autograder.mutants")[1]
NUMBERS = [n for n in EXERCISES if n in PREDICTIONS or n in RIGHT]


@functools.cache
def replies_of(number: str):
    recorded = Recorded(right_answer(number))
    assert judge(EXERCISES[number], recorded, Trial(number)).verdict == "right"
    return recorded.replies


def judged(number: str, which: int, junk: Any):
    return judge(EXERCISES[number], Replayed(replies_of(number), which, junk), Trial(number))


@pytest.mark.parametrize("number", NUMBERS)
def test_no_junk_makes_a_check_stumble(number):
    ops, draw = [op for op, _, _ in replies_of(number)], random.Random(number)
    # The last call, too: what came before may be a part of what it is compared with.
    for which in sorted({ops.index(op) for op in ops} | {k for k in [len(ops) - 1] if ops[k] == "call"}):
        body = replies_of(number)[which][2]
        tried = [(path, new) for path in places(body) for new in (*[lambda _, j=j: j for j in JUNK], *CHANGES)]
        for path, new in draw.sample(tried, min(MOST.get(ops[which], MOST_OF_A_KERNEL), len(tried))):
            try:
                junk = changed(body, path, new)
            except Exception:  # a text has no transpose
                continue
            result = judged(number, which, junk)
            assert result.verdict != "broken", (ops[which], path, result.message)
            assert result.message and len(str(result)) < 20_000, (ops[which], path)


@pytest.mark.parametrize("number, answer, words", [
    ("11.2", lambda m, _l, _acc, s, v: (top := s.max(1, keepdims=True), np.exp(s - top).sum(1, keepdims=True), "todo"),
     "acc should be an array of shape (3, 5)"),
    ("10.1", {"scale": (np.zeros(0),) * 2}, 'Each axis is either "parallel" or "arbitrary"'),
    ("11.5", (128, 0, 2), "bk should be a whole number"),
    ("8.4", (512, 1024, 2048, 1e308), "none that no chip could hold"),
    ("2.5", {"a": "x" * 10**6}, "is none of the two verdicts")])
def test_what_made_checks_stumble_or_say_too_much(number, answer, words):
    result = judge(EXERCISES[number], LocalHandle(answer), Trial(number))
    assert result.verdict == "wrong" and words in str(result) and len(str(result)) < 2000


@pytest.mark.parametrize("number, op, path, junk", [
    ("3.2", "schedule", ("own",), [1]), ("3.7", "schedule", ("own",), [[0, None, 1], "ab"]),
    ("4.5", "plan", ("calls", 0, "operands", 1, "name"), "x"),  # of another operand
    ("5.7", "real", (), np.ones(4, bool))])
def test_what_chance_did_not_find(number, op, path, junk):
    which = [o for o, *_ in replies_of(number)].index(op)
    result = judged(number, which, changed(replies_of(number)[which][2], path, lambda _: junk))
    assert result.verdict == "wrong" and result.message


@pytest.mark.parametrize("number", NUMBERS)
def test_nothing_is_made_of_an_array_before_it_is_known_to_be_right(number):
    """As far as memory goes: an array of 128 MiB in each place where a part of an answer is."""
    large = np.broadcast_to(np.int8(0), 2**27)  # takes none itself
    op, _, body = replies_of(number)[0]
    for path in places(body) if op in ("value", "call") else ():
        tracemalloc.start()
        result = judged(number, 0, changed(body, path, lambda _: large))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert result.verdict == "wrong" and most < 2**24, path
