"""Chapter 9: what its checks take for right is what the programs are, and a kernel's own copies are judged by us."""
import dataclasses
import linecache
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from autograder import check, personal
from autograder.exercise import Wrong
from autograder.judge.handle import Handle
from autograder.judge.predict import PREDICTIONS
from autograder.mutants.chapter9 import tiled
from autograder.mutants.chapter9_copies import buffered, call_on_hbm, right
from pallas_lite import tpu as pltpu

X = np.random.default_rng(0).normal(size=(32, 128)).astype(np.float32)


@pytest.mark.parametrize("student", ["", "s1", "s2", "s4"])
def test_the_counts_of_9_1_are_those_of_the_program(student):
    check("9.1")  # loads the checks
    p = personal("9.1", student)

    def kernel(x_ref, row_ref, o_ref):
        o_ref[...] = x_ref[...] - row_ref[...]
    x, row = (jax.ShapeDtypeStruct((rows, p.n), jnp.float32) for rows in (p.m, 1))
    tile = [pl.BlockSpec((p.bm, p.bn), lambda j, i: (i, j), pl.Buffered(d)) for d in (p.x_depth, p.o_depth)]
    trace = pl.pallas_call(kernel, x, grid=(p.n // p.bn, p.m // p.bm), out_specs=tile[1],
                           in_specs=[tile[0], pl.BlockSpec((1, p.bn), lambda j, i: (0, j))]).trace(x, row)
    text = trace.lower("tpu").as_text()
    found = [len(re.findall(rf"tpu\.{op}", text)) for op in ("enqueue_dma", "wait_dma")]
    assert [*found, sum(e.verb.endswith("start") for e in trace.schedule)] == [a.value for a in PREDICTIONS["9.1"](p)]


def test_on_a_shared_semaphore_the_schedule_waits_where_a_copy_is_certain():
    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        ins = [pltpu.make_async_copy(x_hbm.at[8 * i:8 * i + 8], x_vmem.at[i], x_sems.at[0]) for i in range(2)]
        for copy in ins:
            copy.start()
        for copy in ins:
            copy.wait()
        for i in range(2):
            o_vmem[i] = x_vmem[i]
            pltpu.sync_copy(o_vmem.at[i], o_hbm.at[8 * i:8 * i + 8])
    schedule = call_on_hbm(kernel, X[:16]).trace(X[:16]).schedule
    assert [e.verb for e in schedule][:4] == ["copy_in_start"] * 2 + ["copy_in_wait"] * 2
    assert pl.verify(schedule) == []


def test_a_race_on_a_shared_semaphore_shows_in_the_plain_schedule():
    with pl.observe_calls() as calls, pytest.warns(pl.HazardWarning):
        buffered(right, x_sem=lambda i: 0)(X)
    told = calls[0].to_plain()
    found = pl.verify(pl.Schedule.from_plain(told["schedule"]))
    assert found and found[0].kind == "read before wait" and told["hazards"]


class Told(Handle):
    """An answer that says what it likes."""

    def __init__(self, schedule):
        super().__init__()
        self.calls = [{"name": "kernel", "grid": [], "operands": [], "schedule": schedule, "hazards": []}]

    def _ask(self, op, args):
        return "ok", {"result": 3 * args[0] + 1, "calls": self.calls, "made": 1}


def test_what_the_answers_side_says_of_hazards_is_not_believed():
    """The right values, no hazard told, and a schedule with one wait too few: refused for what the schedule shows."""
    with pl.observe_calls() as calls:
        buffered(right)(X)
    good = calls[0].to_plain()["schedule"]
    from autograder.checks.chapter9 import in_blocks
    assert pl.verify(in_blocks(pl.Schedule.from_plain(good), 4, "")) == []
    bad = dict(good, events=[e for e in good["events"] if e[0] != "copy_in_wait"])
    assert pl.verify(in_blocks(pl.Schedule.from_plain(bad), 4, ""))


@pytest.mark.parametrize("junk", [1, "x", {}, {"events": 3}, {"events": [["run"]]}, {"events": [[]] * 5000}])
def test_junk_for_a_schedule_is_a_wrong_answer(junk):
    with pytest.raises(Wrong, match="could not be read"):
        Told(junk).kernel(X)


def test_the_names_of_a_kernels_own_copies_are_readable():
    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        pltpu.sync_copy(x_hbm, o_hbm)
    assert "x_hbm → o_hbm" in call_on_hbm(kernel, X).trace(X).lower("tpu").summary()


CELL = """def answer(x):
    n = x.shape[0] // 8

    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        def copy_in(i):
            return pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], x_vmem.at[i % 2], x_sems.at[i % 2])

        def copy_out(i):
            return pltpu.make_async_copy(o_vmem.at[i % 2], o_hbm.at[pl.ds(8 * i, 8)], o_sems.at[i % 2])
        copy_in(0).start()

        @pl.loop(0, n)
        def _(i):
            START
            copy_in(i).wait()
            o_vmem[i % 2] = 3 * x_vmem[i % 2] + 1
            copy_out(i).start()
            WAIT
        copy_out(n - 1).wait()
    return call_on_hbm(kernel, x)(x)
"""
GUARDED = "pl.when(i + 1 < n)(lambda: copy_in(i + 1).start())"


@pytest.mark.parametrize(("start", "wait", "line", "step"), [
    ("copy_in(i + 1).start()", "", "called in line 14: copy_in(i + 1).start()", "step 0, line 6: x_hbm"),
    (GUARDED, "copy_out(i - 1).wait()", "called in line 18: copy_out(i - 1).wait()", "after step 0, line 9: o_hbm"),
    (GUARDED, "x_vmem[0, pl.ds(0, 9)]", "line 18: x_vmem[0, pl.ds(0, 9)]", "after step 0, line 18")])
def test_an_error_in_a_kernels_loop_names_the_line_that_led_to_it(start, wait, line, step):
    source, name = CELL.replace("START", start).replace("WAIT", wait), "<a learner's cell>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    here = {"pl": pl, "pltpu": pltpu, "call_on_hbm": call_on_hbm}
    exec(compile(source, name, "exec"), here)
    result = check("9.2", here["answer"])
    assert line in result.line and result.message.startswith(f"BlockIndexError: {step}")


def test_the_advice_on_a_slow_choice_of_9_4_is_one_that_the_check_takes():
    """A learner who keeps doing what it says arrives."""
    rows = 32
    for _ in range(8):
        result = check("9.4", tiled(lambda m, n, rows=rows: (rows if n > 1000 else 1024, n)))
        if result.verdict == "right":
            break
        assert "a larger height gains most" in result.nudge
        rows *= 2
    assert result.verdict == "right" and rows <= 256


def test_a_refused_kernel_is_told_its_mend():
    result = check("9.2", buffered(right, x_sem=lambda i: 0))
    assert result.verdict == "wrong" and "share semaphore x_sems[0]" in result.nudge
    assert dataclasses.asdict(result)["points"] == 0
