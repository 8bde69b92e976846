"""A pallas_call is replayed from what it asked for: honest calls give their own values, and liars gain nothing."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from autograder.checks.kernels import insist_made_by
from autograder.exercise import Wrong
from autograder.judge.handle import KernelCall, LocalHandle
from autograder.judge.replay import replay
from autograder.sandbox.inside import wire
from pallas_lite import tpu as pltpu

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
BLOCK = pl.BlockSpec((4, 4), lambda i: (i, 0))


def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def add_one_call(x):
    return pl.pallas_call(add_one, x, grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)(x)


def sums(x_ref, o_ref, total_ref):
    @pl.when(pl.program_id(1) == 0)
    def _():
        total_ref[...] = jnp.zeros_like(total_ref)
    total_ref[...] += x_ref[...].sum(1, keepdims=True)
    o_ref[...] = total_ref[...]


def rows(x):
    return pl.pallas_call(
        sums, jax.ShapeDtypeStruct((8, 1), x.dtype), grid=(2, 4), out_specs=pl.BlockSpec((4, 1), lambda i, j: (i, 0)),
        in_specs=[pl.BlockSpec((4, 1), lambda i, j: (i, j))], scratch_shapes=[pltpu.VMEM((4, 1), jnp.float32)])(x)


@pytest.mark.parametrize("answer, right", [
    (add_one_call, X + 1), (jax.jit(add_one_call), X + 1), (rows, X.sum(1, keepdims=True)),
    (lambda x: add_one_call(add_one_call(x)), X + 2), (lambda x: add_one_call(x) * 2, X + 1)],
    ids=["a call", "under jit", "scratch", "a call on a call", "more behind it"])
def test_a_call_gives_what_it_gives(answer, right):
    run = LocalHandle(answer).kernel(X)
    np.testing.assert_allclose(run.calls[-1].results[0], right, 1e-6)
    np.testing.assert_allclose(run.result, answer(X), 1e-6)
    insist_made_by(run.calls[-1], 0, right, "")


def half_written(x_ref, o_ref):
    @pl.when(pl.program_id(0) == 1)
    def _():
        o_ref[...] = x_ref[...] + 1


@pytest.mark.parametrize("filling", ["nan", 7.0])
def test_what_nobody_writes_holds_the_filling(filling):
    run = LocalHandle(lambda x: pl.pallas_call(half_written, x, grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)(x))
    np.testing.assert_array_equal(run.kernel(X, filling=filling).calls[0].results[0][:4], float(filling))
    np.testing.assert_array_equal(run.kernel(X, filling=filling).calls[0].results[0][4:], X[4:] + 1)


def beside(x):
    add_one_call(x * 0)
    return x + 1


def prepared(x):
    return add_one_call(x + 1 - 1.5)


@pytest.mark.parametrize("answer", [beside, prepared])
def test_values_that_the_call_did_not_make_are_refused(answer):
    run = LocalHandle(answer).kernel(X)
    with pytest.raises(Wrong, match="did not make"):
        insist_made_by(run.calls[-1], 0, np.asarray(answer(X)), "")


class Liar(LocalHandle):
    """The learner's side after the learner's code took it over: it may answer anything."""

    def __init__(self, lie, **changes):
        super().__init__(add_one_call)
        self.lie, self.changes = lie, changes

    def _ask(self, op, args):
        kind, body = super()._ask(op, args)
        if op == "plan":
            body["calls"][0] |= self.changes
        return kind, self.lie(body) if op == "body" else body


@pytest.mark.parametrize("lie, changes, words", [
    (lambda body: [], {}, "did not make"), (lambda body: [(1, 7)], {}, "cannot be followed"),
    (lambda body: body, {"takes": [("value", X * 0)]}, "did not make"),
    (lambda body: [(9, np.zeros((4, 4), np.float32))], {}, "cannot be followed"),
    (lambda body: [(1, np.zeros((4, 5), np.float32))], {}, "cannot be followed"), (lambda body: None, {}, "cannot be"),
    (lambda body: body, {"takes": [("made", 0, 0)]}, "cannot be followed"),
    (lambda body: body, {"extras": [{"shape": [2**30, 2**30], "dtype": "float32"}]}, "cannot be followed"),
    (lambda body: body, {"extras": [{"shape": [2], "dtype": "O"}]}, "cannot be followed")])
def test_a_side_that_lies_gains_nothing(lie, changes, words):
    run = Liar(lie, **changes).kernel(X)
    with pytest.raises(Wrong, match=words):
        insist_made_by(run.calls[0], 0, X + 1, "")


def call_of(steps, inputs, extras=(), depth=2):
    x = {"name": "x", "is_output": False, "depth": depth, "dtype": "float32", "shares": None, "starts": None,
         "shape": [2], "block_shape": [1], "blocks": [[i % 2] for i in range(steps)]}
    return {"name": "k", "grid": [steps],
            "operands": [*(x | {"name": f"x{i}"} for i in range(inputs)), x | {"is_output": True}],
            "extras": list(extras), "takes": [("value", np.zeros(2))] * inputs}


@pytest.mark.parametrize("told", [call_of(1000, 40), call_of(1, 2, depth=1000), call_of(1, 1, [{"value": "text"}]),
                                  call_of(1, 1, [{"shape": [], "dtype": "bool"}] * 1001)],
                         ids=["operands", "slots", "no array", "refs"])
def test_what_is_told_is_followed_only_as_far_as_a_task_goes(told):
    def ask(k, step, values):
        wire.encode("ask", values)
        return []
    began = time.process_time()
    assert replay([told], (KernelCall.from_plain(told),), (), ask) == [()]
    assert time.process_time() - began < 1


@pytest.mark.parametrize("told", [call_of(1000, 200), call_of(1, 1, depth=2**31 - 1)], ids=["blocks", "depth"])
def test_a_call_that_would_keep_checks_busy_is_no_call(told):
    with pytest.raises(ValueError, match="many|more"):
        KernelCall.from_plain(told)


def test_nobody_sees_the_arrays_before_the_last_step():
    seen = []

    class Watch(LocalHandle):
        def _ask(self, op, args):
            seen.append((op, [a for a in args if isinstance(a, np.ndarray)]))
            return super()._ask(op, args)
    Watch(add_one_call).kernel(X)
    assert [op for op, _ in seen] == ["plan", "body", "body"]
    assert not np.isin(X, seen[0][1][0]).any()
