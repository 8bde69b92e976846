"""The pipeline against the contract, on generated grids, depths and index maps."""
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pallas_lite.engines.record import record
from pallas_lite.engines.simulate import simulate
from pallas_lite.memory import InterpretParams
from pallas_lite.schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN
from pallas_lite.specs import Operand
from pallas_lite.verify import verify


def operand(name, blocks, depth=2, is_output=False, count=8):
    return Operand(name, name, is_output, depth, (count,), np.dtype(np.float32), (1,), (), [(b,) for b in blocks])


@st.composite
def pipelines(draw):
    """Steps, inputs with any block order, and outputs that never come back to a block they have left."""
    steps = draw(st.integers(0, 9))
    blocks = st.lists(st.integers(0, 3), min_size=steps, max_size=steps)
    inputs = [operand(f"x{i}", draw(blocks), draw(st.integers(1, 4))) for i in range(draw(st.integers(0, 3)))]
    rising = blocks.map(lambda b: [int(v) for v in np.cumsum(np.minimum(b, 1))])
    outputs = [operand(f"o{i}", draw(rising), draw(st.integers(1, 4)), True, 10)
               for i in range(draw(st.integers(0, 2)))]
    return steps, inputs + outputs


@given(pipelines())
def test_copies_are_one_more_than_the_index_changes(case):
    steps, operands = case
    schedule = record(steps, operands)
    for x in operands:
        changes = sum(a != b for a, b in zip(x.blocks, x.blocks[1:], strict=False))
        assert schedule.copies(x.name) == (1 + changes if steps else 0)


@given(pipelines())
def test_every_step_runs_once_on_slot_visit_mod_depth(case):
    steps, operands = case
    runs = [e for e in record(steps, operands) if e.verb == RUN]
    assert [e.step for e in runs] == list(range(steps))
    for i, x in enumerate(operands):
        visit = 0
        for t, e in enumerate(runs):
            visit += t > 0 and x.blocks[t] != x.blocks[t - 1]
            assert e.slots[i] == visit % x.depth


@given(pipelines())
def test_every_copy_is_started_and_waited_for_once(case):
    schedule = record(*case)
    count = Counter((e.verb, e.operand, e.block) for e in schedule if e.verb != RUN)
    for (verb, operand, block), n in count.items():
        partner = {IN_START: IN_WAIT, IN_WAIT: IN_START, OUT_START: OUT_WAIT, OUT_WAIT: OUT_START}[verb]
        assert count[partner, operand, block] == n


@given(pipelines())
def test_no_schedule_of_ours_has_a_hazard(case):
    assert verify(record(*case)) == []


@given(pipelines(), st.data())
def test_dropping_any_copy_or_wait_is_a_hazard(case, data):
    from dataclasses import replace
    schedule = record(*case)
    droppable = [i for i, e in enumerate(schedule) if e.verb != RUN]
    if not droppable:
        return
    gone = data.draw(st.sampled_from(droppable))
    events = schedule.events[:gone] + schedule.events[gone + 1:]
    assert verify(replace(schedule, events=events))


@given(pipelines(), st.sampled_from(["eager", "on_wait", "random"]), st.integers(0, 99))
def test_values_match_a_plain_loop_whatever_the_copies_do(case, mode, seed):
    steps, operands = case
    inputs = [x for x in operands if not x.is_output]
    outputs = [x for x in operands if x.is_output]
    arrays = {x.name: np.arange(8, dtype=np.float32) * (i + 1) + 1 for i, x in enumerate(inputs)}

    def body(t, slots):
        # Each step writes a number of its own, so a block that lands late or twice shows.
        total = sum((s for s in slots[:len(inputs)]), np.zeros(1, np.float32))
        return [*slots[:len(inputs)], *[total + 100 * t + 1000 * i for i in range(len(outputs))]]

    params = InterpretParams(dma_execution_mode=mode, random_seed=seed)
    got = simulate(record(steps, operands), operands, arrays, body, params)
    for i, y in enumerate(outputs):
        want = np.full(10, np.nan, np.float32)
        for t in range(steps):
            want[y.blocks[t][0]] = sum(arrays[x.name][x.blocks[t][0]] for x in inputs) + 100 * t + 1000 * i
        np.testing.assert_array_equal(got[y.name], want)


def test_the_tutorials_loop_event_for_event(golden):
    blocks = list(range(4))
    golden("double_buffer_listing", record(4, [operand("x", blocks), operand("o", blocks, 2, True)]).listing())


def test_depth_one_never_overlaps():
    blocks = list(range(4))
    verbs = [e.verb for e in record(4, [operand("x", blocks, 1), operand("o", blocks, 1, True)])]
    assert verbs == [IN_START, IN_WAIT, RUN, OUT_START, OUT_WAIT] * 4


def test_depth_three_fetches_two_steps_ahead():
    schedule = record(5, [operand("x", range(5), 3)])
    ahead = [(e.step, e.block[0]) for e in schedule if e.verb == IN_START]
    assert ahead == [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4)]
