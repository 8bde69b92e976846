"""Handles and wire: what comes back from an answer is plain data or a message, never a crash."""
import io
import json
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pallas_lite as pl
from autograder.exercise import AnswerFailed, NotDone, Wrong
from autograder.judge.handle import Handle, LocalHandle, close, same_array
from autograder.sandbox.inside import wire

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2**62, 2**62) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda x: st.lists(x, max_size=4) | st.lists(x, max_size=4).map(tuple)
    | st.dictionaries(st.text(max_size=5), x, max_size=4),
    max_leaves=20)


def reader(data):
    source = io.BytesIO(data)

    def read(n):
        part = source.read(n)
        if len(part) < n:
            raise EOFError
        return part
    return read


@given(PLAIN)
def test_plain_data_survives_the_wire(value):
    assert wire.decode(reader(wire.encode("ok", value))) == ("ok", value)


@pytest.mark.parametrize("dtype", sorted(wire.DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_survive_the_wire(dtype, shape):
    array = np.ones(shape, wire.dtype_of(dtype))
    _, back = wire.decode(reader(wire.encode("ok", [array])))
    assert back[0].dtype == array.dtype and back[0].shape == shape and (back[0] == array).all()


@pytest.mark.parametrize("value", [object(), {1}, 2**64, 1j, np.array(["a"]), np.array([object()]),
                                   np.zeros(2, "M8[s]"), print])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(wire.NotPlain):
        wire.encode("ok", value)


def test_fractions_and_decimals_are_numbers():
    assert LocalHandle([Fraction(3, 4), Decimal("0.75")]).value() == [0.75, 0.75]
    with pytest.raises(wire.NotPlain, match="Fraction"):
        wire.encode("ok", Fraction(10**400))


def test_a_short_range_is_the_list_that_it_means():
    assert LocalHandle({"when": range(1, 5)}).value() == {"when": [1, 2, 3, 4]}


@pytest.mark.parametrize("value, words", [({"a": {"b": range(10**30)}}, "type range under 'b'"),
                                          ({"a": [map(int, "12")]}, "type map under 'a'")])
def test_what_is_not_plain_is_named_with_its_key(value, words):
    with pytest.raises(Wrong, match=words):
        LocalHandle(value).value()


class Key(list):
    __hash__ = object.__hash__


@pytest.mark.parametrize("value, words", [
    (np.zeros((10**12, 0)), r"an array of shape \(1000000000000, 0\), more than a message may hold"),
    (np.zeros((0, 2**30, 2)), "an array of shape"), (np.zeros((1,) * 9), "an array of shape"),
    (np.broadcast_to(np.int8(0), 2**29 + 1), "an array of shape"), ([np.zeros(0)] * 1001, "1001 arrays, more than"),
    ([np.broadcast_to(np.int8(0), 2**29)] * 3, "1536 MiB of data, more than"),
    ({(i, 0): 1 for i in range(101)}, "a dict with more than 100 tuples as its keys"),
    ({Key(): 1}, "a dict with lists as its keys")])
def test_what_the_other_end_would_refuse_is_never_sent_and_the_notebook_says_the_same(value, words):
    with pytest.raises(wire.NotPlain, match=words):
        wire.encode("ok", value)
    with pytest.raises(Wrong, match=f"Your answer gives {words}"):
        LocalHandle(value).value()


def test_an_endless_structure_is_refused():
    ring = []
    ring.append(ring)
    with pytest.raises(wire.NotPlain, match="too deeply"):
        wire.encode("ok", ring)


def framed(header, rest=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + rest


@pytest.mark.parametrize("data", [
    b"\xff\xff\xff\xff", framed(b"{"), framed(b"[" * 100_000), framed([]),
    framed({"kind": 1, "body": None, "arrays": []}),
    framed({"kind": "ok"}), framed({"kind": "ok", "body": {"a": 0}, "arrays": []}),
    framed({"kind": "ok", "body": {"x": 1}, "arrays": []}),
    framed({"kind": "ok", "body": {"d": [[[], 1]]}, "arrays": []}),
    framed({"kind": "ok", "body": None, "arrays": [["object", [1]]]}),
    framed({"kind": "ok", "body": None, "arrays": [["float64", [2**40]]]}),
    framed({"kind": "ok", "body": None, "arrays": [["float64", [2**20, 2**20]]]}),
    framed({"kind": "ok", "body": None, "arrays": [["float64", [-1]]]}),
    framed({"kind": "ok", "body": None, "arrays": [["float64", "12"]]}),
    framed({"kind": "ok", "body": None, "arrays": 3}),
    framed({"kind": "ok", "body": {"t": {"t": 3}}, "arrays": []}),
    framed({"kind": "ok", "body": {"a": 0}, "arrays": [["float32", [2**31 - 1] * 3 + [0]]]}),
    framed({"kind": "ok", "body": {"d": [[{"t": [i, 0]}, 0] for i in range(101)]}, "arrays": []}),
], ids=range(18))
def test_junk_on_the_wire_is_an_error_of_the_wire(data):
    with pytest.raises(wire.WireError):
        wire.decode(reader(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data):
    try:
        wire.decode(reader(data))
    except (wire.WireError, EOFError):
        pass


def test_a_byte_that_is_no_truth_value_becomes_one():
    data = framed({"kind": "ok", "body": {"a": 0}, "arrays": [["bool", [2]]]}, b"\x07\x00")
    assert wire.decode(reader(data))[1].tolist() == [True, False]


def test_a_function_gets_copies():
    def spoil(x):
        x[:] = 9
        return x
    x = np.zeros(3)
    assert LocalHandle(spoil).call(x).tolist() == [9, 9, 9] and x.tolist() == [0, 0, 0]


def test_jax_arrays_come_back_as_numpy():
    import jax.numpy as jnp
    back = LocalHandle(lambda x: (jnp.asarray(x) + 1, {"n": np.float32(2)})).call(np.ones(2, np.float32))
    assert type(back[0]) is np.ndarray and back[1] == {"n": 2.0}


@pytest.mark.parametrize("hole", [..., (1, ...), {"a": ...}, [[...]]])
def test_a_hole_in_a_value_is_not_done(hole):
    with pytest.raises(NotDone):
        LocalHandle(hole).value()


def test_an_object_equal_to_everything_is_not_plain():
    class Equal:
        def __eq__(self, other):
            return True
    with pytest.raises(Wrong, match="a value of type Equal"):
        LocalHandle(Equal()).value()


class Told(Handle):
    """A sandbox that says what it likes."""

    def __init__(self, *reply):
        self.reply = reply

    def _ask(self, op, args):
        return self.reply


GOOD = pl.record(lambda N, A, X, Y, B: pl.compute(X[0], Y[0]), 1, depth=1).to_plain()


@pytest.mark.parametrize("reply", [
    ("ok", None), ("ok", 3), ("ok", []), ("ok", {}), ("ok", GOOD | {"events": None}), ("ok", GOOD | {"operands": []}),
    ("ok", GOOD | {"events": [["run", 0, "", None, -1, [0, 5]]]}),
    ("ok", GOOD | {"events": [["run", 0, "", None, -1, []]]}),
    ("ok", GOOD | {"events": [["copy_in_start", 0, "Z", [0], 0, []]]}),
    ("ok", GOOD | {"events": [["copy_in_start", 0, "X", None, 0, []]]}),
    ("ok", GOOD | {"events": [["copy_in_start", 0, "X", [7], 0, []]]}),
    ("ok", GOOD | {"events": [["copy_out_start", 0, "X", [0], 0, []]]}),
    ("ok", GOOD | {"events": [["copy_in_start", 0, "X", [], 0, []]]}),
    ("ok", GOOD | {"events": [["__class__", 0, "X", [0], 0, []]]}),
    ("ok", GOOD | {"events": GOOD["events"] * 1000}),
    ("junk", 1), ("failed", None), ("not plain", 3),
], ids=range(18))
def test_a_forged_schedule_is_a_wrong_answer(reply):
    with pytest.raises(Wrong):
        Told(*reply).schedule(1, depth=1)


@pytest.mark.parametrize("reply", [None, 3, [], {}, {"schedule": 3, "values": 1}, {"values": np.ones(2)},
                                   {"schedule": GOOD | {"events": None}}])
def test_a_forged_pipeline_is_a_wrong_answer(reply):
    with pytest.raises(Wrong):
        Told("ok", reply).pipeline((1,), (2, 1, False), [0], [0], np.ones((1, 2), np.float32))


def test_a_pipeline_is_asked_with_slices_and_a_kernel_and_may_be_wrong():
    def gather(grid, kernel, in_slices, out_slices):
        def loop(N, A, X, Y, B):
            for i in range(*grid):
                pl.copy_in_start(A[in_slices(i)], X[0])
                pl.copy_in_wait(X[0])
                pl.compute(X[0], Y[0], kernel)
                pl.copy_out_start(Y[0], B[out_slices(i)])
                if grid[0] < 3:
                    pl.copy_out_wait(Y[0])
        return loop
    blocks = np.arange(4, dtype=np.float32).reshape(2, 2)
    schedule, values = LocalHandle(gather).pipeline((2,), (2, 1, True), [1, 1], [1, 0], blocks)
    assert schedule.steps == 2 and pl.verify(schedule) == []
    np.testing.assert_array_equal(values, [[7, 5], [7, 5]])
    schedule, _ = LocalHandle(gather).pipeline((3,), (2, 1, True), [0] * 3, [0] * 3, np.ones((3, 2), np.float32))
    assert pl.verify(schedule)[0].kind == "never waited"
    with pytest.raises(AnswerFailed, match=r"in_slices\(2\): the grid \(3,\) has no step 2"):
        LocalHandle(gather).pipeline((3,), (2, 1, True), [0] * 2, [0] * 2, blocks)


def test_a_schedule_takes_only_its_events_from_the_sandbox():
    forged = GOOD | {"flops": 1e-9, "name": "$\\bad",
                     "operands": [["X", "A", False, 1, 1, [1], None, None], ["Y", "B", True, 1, 1, [1], None, None]]}
    schedule = Told("ok", forged).schedule(1, depth=1)
    assert schedule.flops == 1000 and schedule.name == "loop" and schedule.operand("X").block_bytes == 1000


def test_local_and_replayed_schedules_agree():
    def loop(N, A, X, Y, B):
        for i in range(N):
            pl.copy_in_start(A[i], X[i % 2])
            pl.copy_in_wait(X[i % 2])
            pl.compute(X[i % 2], Y[0])
            pl.copy_out_start(Y[0], B[i])
            pl.copy_out_wait(Y[0])
    assert LocalHandle(loop).schedule(3, depth=2) == pl.record(loop, 3, depth=2)


@pytest.mark.parametrize("data", [None, {}, {"result": 1, "calls": 3, "made": 1},
                                  {"result": 1, "calls": [{}], "made": 1},
                                  {"result": 1, "calls": [], "made": True}, {"result": 1, "calls": [], "made": "x"},
                                  {"result": 1, "made": 1, "calls": [{"name": "k", "grid": [2], "operands": [
                                      {"name": "x", "is_output": False, "depth": 2, "shape": [4], "dtype": "float32",
                                       "block_shape": [2], "blocks": [[0]]}]}]}])
def test_forged_calls_are_a_wrong_answer(data):
    with pytest.raises(Wrong):
        Told("ok", data).kernel(np.ones(2))


def test_a_kernels_calls_are_told():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    def add_one(x):
        block = pl.BlockSpec((2,), lambda i: (i // 2,))
        return pl.pallas_call(kernel, x[:4], grid=(4,), in_specs=[block], out_specs=block)(x)
    run = LocalHandle(add_one).kernel(np.arange(4, dtype=np.float32))
    call, = run.calls
    assert run.made == 1 and call.steps == 4 and call.inputs[0].copies == 2
    assert call.inputs[0].blocks == ((0,), (0,), (1,), (1,)) and call.outputs[0].block_shape == (2,)


@pytest.mark.parametrize("answer, words", [
    (3, "too high"), (2, "too low"), ("2.5", "a text"), (True, "True or False"), (float("nan"), "finite"),
    (float("inf"), "finite"), (None, "None"), ([2.5], "a list of length 1"), (np.ones(2), "an array of shape"),
    (np.array([3.0]), "too high")])
def test_close_says_the_way_but_not_the_value(answer, words):
    with pytest.raises(Wrong, match=words) as error:
        close(answer, 2.5, "µs")
    assert error.value.expected is None


def test_close_takes_numbers_within_the_tolerance_and_names_slips():
    close(2.51, 2.5)
    close(np.float64(2.5), 2.5)
    close(0, 0.0)
    with pytest.raises(Wrong) as error:
        close(5, 2.5, slips={5.0: "Twice."})
    assert error.value.nudge == "Twice."


@pytest.mark.parametrize("answer, nudge", [
    (2.5e-6, "in µs"), (2.5 * 1024, "in µs"), (2500, "in µs"), (2.6e-6, "Look again."), (25, "Look again.")])
def test_close_asks_for_the_unit_where_only_that_is_wrong(answer, nudge):
    with pytest.raises(Wrong) as error:
        close(answer, 2.5, "µs", nudge="Look again.")
    assert nudge in error.value.nudge
    with pytest.raises(Wrong) as error:
        close(2500, 2.5, "µs", slips={2500.0: "A slip of its own."})
    assert error.value.nudge == "A slip of its own."


@pytest.mark.parametrize("result", [None, 3, [1.0, 2.0], np.ones(3), np.ones((2, 1)), np.array([1.0, np.nan]),
                                    np.array([1.0, 3.0])])
def test_same_array_refuses(result):
    with pytest.raises(Wrong):
        same_array(result, np.array([1.0, 2.0]))


def test_same_array_accepts():
    same_array(np.array([1, 2]), np.array([1.0, 2.0]))


def test_a_failure_of_the_sandbox_is_told_in_its_words():
    with pytest.raises(AnswerFailed, match="ValueError: no"):
        Told("failed", {"kind": "ValueError", "message": "no", "line": 3, "lineno": "x"}).value()


@pytest.mark.parametrize("raised, message, line", [
    (lambda: compile("x = 1\ndef broken(:", "<ipython-input-1-9f0a>", "exec"), "invalid syntax, in line 2",
     "def broken(:"),
    (lambda: (_ for _ in ()).throw(SyntaxError("odd", ("file", 1, 1, 5))), "odd", "")])  # whatever a learner raises
def test_a_syntax_error_names_its_line_and_no_file_of_ipythons(raised, message, line):
    with pytest.raises(AnswerFailed) as failed:
        LocalHandle(lambda: raised()).call()
    assert str(failed.value).startswith(f"SyntaxError: {message}") and "ipython-input" not in str(failed.value)
    assert not line or failed.value.line == line


def test_what_jax_adds_about_its_tracers_is_left_out():
    import jax
    import jax.numpy as jnp

    def sized(n):
        return jax.jit(lambda n: jnp.zeros(n) if n > -1 else jnp.zeros(n))(n)
    with pytest.raises(AnswerFailed) as failed:
        LocalHandle(sized).call(3)
    assert failed.value.message.startswith("Attempted boolean conversion of traced array")
    assert not any(word in failed.value.message for word in ("\x1b", "error occurred while tracing", "\n"))
    with pytest.raises(AnswerFailed, match=r"Shapes must be 1D sequences .*\(JitTracer\S*\)\.$"):
        LocalHandle(lambda n: jax.jit(jnp.zeros)(n)).call(3)


@pytest.mark.parametrize("reads, index_map, inside", [
    (lambda x_ref: x_ref[...] * x_ref[0:3], lambda i: i, True), (lambda x_ref: x_ref[...], lambda i: (i, i), False)])
def test_a_fault_of_the_kernel_is_told_from_one_of_its_call(reads, index_map, inside):
    def called(x):
        def kernel(x_ref, o_ref):
            o_ref[...] = reads(x_ref)
        spec = pl.BlockSpec((4,), index_map)
        return pl.pallas_call(kernel, x, grid=(2,), in_specs=[spec], out_specs=spec)(x)
    with pytest.raises(AnswerFailed) as failed:
        LocalHandle(called).kernel(np.ones(8, np.float32))
    assert failed.value.in_kernel is inside
