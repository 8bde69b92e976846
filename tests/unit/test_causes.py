"""Why a pipeline takes as long as it does: bounds and causes, over a sweep of random machines, pipelines and loops."""
import math
from collections import Counter, defaultdict, deque

import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.hardware import TOY
from pallas_lite.schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, OperandInfo, Schedule
from pallas_lite.specs import Operand
from tests.unit import loops

US, CONFIGURATIONS = 1e-6, 1000
CAUSES = {"first trip", "last trip", "wait-out", "port queue", "order", "uneven"}


def inside(x, block):
    """Bytes of the part of a one-dimensional block that lies in its array."""
    (n,), size = x.block_shape, (x.array_shape or [10**9])[0]
    return x.block_bytes // n * (min(block[0] * n + n, size) - block[0] * n)


def naive(schedule, machine, step_seconds):
    """The time model, event by event, as the contract words it: when all is over."""
    operands = {x.name: x for x in schedule.operands}
    port, in_flight, now, last = defaultdict(float), defaultdict(deque), 0.0, 0.0
    for e in schedule:
        if e.verb == RUN:
            now += step_seconds
        elif e.verb in (IN_START, OUT_START):
            way = e.verb if machine.duplex else "both"
            port[way] = max(now, port[way]) + inside(operands[e.operand], e.block) / machine.beta
            in_flight[e.operand, e.slot, e.verb].append(port[way] + machine.alpha)
            last = max(last, port[way] + machine.alpha)
        else:
            queue = in_flight[e.operand, e.slot, IN_START if e.verb == IN_WAIT else OUT_START]
            now = max(now, queue.popleft()) if queue else now
    return max(now, last)


def operand(name, blocks, depth, is_output, elements, missing=0):
    count = (max(blocks) + 1) * elements - missing  # of the last block
    return Operand(name, name, is_output, depth, (count,), np.dtype("float32"), (elements,), (), [(b,) for b in blocks])


def block_order(rng, steps):
    """Blocks that change at every step, every k steps, in the second half, now and then, or never."""
    kind = rng.integers(6)
    if kind < 2:
        return list(range(steps))
    if kind == 2:
        k = rng.integers(1, 9)
        return [t // k for t in range(steps)]
    if kind == 5:
        return [max(t - steps // 2, 0) for t in range(steps)]
    return np.cumsum(rng.random(steps) < (0.0 if kind == 3 else rng.random())).tolist()


def configuration(seed):
    """A machine and a pipeline: α, X/β and Y/F each over four orders of magnitude, or zero."""
    rng = np.random.default_rng(seed)
    steps, inputs = int(rng.choice([1, 2, 3, 10, 50, 200])), int(rng.integers(1, 5))
    outputs = int(rng.integers(0, 3)) * (seed % 2)  # every other one has inputs only
    even = rng.random() < 0.4  # all inputs alike, and new at every step
    depth = int(rng.integers(1, 6))
    operands = [operand(f"x{i}", list(range(steps)) if even else block_order(rng, steps),
                        depth if even else int(rng.integers(1, 6)), False, int(rng.integers(1, 100)))
                for i in range(inputs)]
    operands += [operand(f"o{i}", block_order(rng, steps), int(rng.integers(1, 5)), True, n, int(rng.integers(n)))
                 for i, n in enumerate(rng.integers(1, 100, outputs).tolist())]
    alpha, copy, work = 10.0 ** rng.uniform(-2, 2, 3) * (rng.random(3) > 0.1)
    machine = TOY.with_(alpha=alpha, beta=400 / max(copy, 1e-2), flops=1.0, duplex=bool(rng.integers(2)))
    return machine, record(steps, operands, flops=float(work)), even and not outputs


def in_all(schedule, machine):
    """Seconds if nothing overlapped."""
    copies = sum(schedule.copies(x.name) for x in schedule.operands)
    return schedule.steps * schedule.flops + copies * machine.alpha + schedule.hbm_bytes["total"] / machine.beta


def check_split(t):
    least = max(t.terms.values())
    assert least <= t.total * (1 + 1e-9)
    assert set(t.excess) == CAUSES
    assert min(t.excess.values()) >= 0
    assert sum(t.excess.values()) == pytest.approx(t.total - least, rel=1e-9, abs=1e-9 * t.total)


def test_bounds_hold_and_the_excess_is_split_exactly_over_a_thousand_configurations():
    seen = Counter()
    for seed in range(CONFIGURATIONS):
        machine, schedule, even = configuration(seed)
        t = pl.timeline(schedule, machine)
        check_split(t)
        least, excess = max(t.terms.values()), t.excess
        assert t.total <= in_all(schedule, machine) * (1 + 1e-9)
        if not any(x.is_output for x in schedule.operands):
            assert excess["last trip"] == excess["wait-out"] == excess["port queue"] == 0
            seen["inputs only"] += 1
        if machine.duplex:
            assert excess["port queue"] == 0
        if even:
            # The contract's bracket holds where all inputs have one depth, new blocks at every step, and no output
            # shares their time: the longest chain goes once through a step's copies and run, and then advances at a
            # rate that is one of the terms.
            step = machine.alpha + schedule.hbm_bytes["in"] / schedule.steps / machine.beta + schedule.flops
            assert t.total <= (least + step) * (1 + 1e-9)
            assert excess["order"] == excess["uneven"] == 0
            seen["even"] += 1
        seen.update(cause for cause, seconds in excess.items() if seconds > 1e-9 * t.total)
        seen[max(t.terms, key=t.terms.get)] += 1
    # The sweep reaches everything that it is about.
    assert min(seen[k] for k in (*CAUSES, "compute", "bandwidth", "latency", "even", "inputs only")) >= 20, seen


def test_outside_of_that_the_excess_is_larger_and_named():
    # A block that is kept for four steps is fetched one step ahead, not one visit: α shows at every visit.
    kept = record(40, [operand("x", [t // 4 for t in range(40)], 2, False, 1)], flops=1.0)
    t = pl.timeline(kept, TOY.with_(alpha=10.0, beta=4.0, flops=1.0))
    assert t.terms == {"compute": 40, "bandwidth": 10, "latency": (10 * 11 + 40) / 2}
    step = 10 + 1 + 1
    assert t.total > max(t.terms.values()) + step
    assert t.excess["order"] == pytest.approx(t.total - max(t.terms.values()) - t.excess["first trip"])
    assert t.excess["uneven"] == 0


@pytest.mark.parametrize("kept", [1, 2, 3, 5])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("times", [(0, 1, 1), (9, 1, 1), (0, 5, 1), (3, 1, 7), (40, 2, 1)])
def test_with_visits_of_one_length_all_but_the_order_is_within_one_fill(kept, depth, times):
    alpha, copy, work = times
    blocks = [t // kept for t in range(12 * kept)]
    schedule = record(len(blocks), [operand("x", blocks, depth, False, 1)], flops=float(work))
    t = pl.timeline(schedule, TOY.with_(alpha=float(alpha), beta=4 / copy, flops=1.0))
    check_split(t)
    assert t.total - t.excess["order"] <= max(t.terms.values()) + alpha + copy + work
    assert t.excess["uneven"] == 0


def test_the_clock_is_the_contracts_to_the_bit():
    for seed in range(0, CONFIGURATIONS, 20):
        machine, schedule, _ = configuration(seed)
        assert pl.timeline(schedule, machine).total == naive(schedule, machine, schedule.flops)


def any_events(rng, steps):
    """A loop that nobody would write: verbs, slots and waits in any order."""
    operands = tuple(OperandInfo(n, n, n == "Y", int(rng.integers(1, 4)), int(rng.integers(1, 9))) for n in "XZY")
    events, runs = [], 0
    for _ in range(steps):
        verb, x = rng.choice([IN_START, IN_WAIT, RUN, OUT_START, OUT_WAIT]), operands[rng.integers(2)]
        if verb == RUN:
            events.append(Event(RUN, runs, slots=tuple(int(rng.integers(x.depth)) for x in operands)))
            runs += 1
        else:
            x = operands[2] if verb in (OUT_START, OUT_WAIT) else x
            events.append(Event(str(verb), runs, x.name, (int(rng.integers(4)),), int(rng.integers(x.depth))))
    return Schedule(tuple(events), operands, float(rng.integers(0, 4)))


def test_bounds_split_and_clock_hold_for_any_program_at_all():
    rng = np.random.default_rng(1)
    for _ in range(400):
        schedule = any_events(rng, int(rng.integers(0, 60)))
        machine = TOY.with_(alpha=float(rng.integers(0, 9)), beta=1.0, flops=1.0, duplex=bool(rng.integers(2)))
        t = pl.timeline(schedule, machine)
        assert t.total == naive(schedule, machine, schedule.flops)
        check_split(t)
        assert t.busy == pytest.approx(sum(s.seconds for s in t.spans if s.lane == "core" and not s.waiting))
        assert t.fill == min((s.start for s in t.spans if s.lane == "core" and not s.waiting), default=t.total)


SPLITS = {
    "rolled": (loops.rolled, 2, {"first trip": 1, "last trip": 1}, "compute"),
    "blocking, one slot": (loops.blocking, 1, {"last trip": 1, "wait-out": 5}, "latency"),
    # Two slots, and nothing overlaps: neither port nor core is what limits it.
    "blocking, two slots": (loops.blocking, 2, {"first trip": 1, "last trip": 1, "wait-out": 5, "order": 5}, "order"),
    "waits for the copy out at once": (loops.one_slot, 2, {"first trip": 1, "last trip": 1, "wait-out": 5}, "compute"),
    "fetches late": (loops.no_wait_out, 2, {"first trip": 1, "last trip": 1, "order": 5}, "compute"),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_loops_excess_names_what_its_order_costs(name):
    loop, depth, expected, bound = SPLITS[name]
    t = pl.timeline(pl.record(loop, 6, depth=depth))
    assert {k: round(v / US, 6) for k, v in t.excess.items() if v} == expected
    assert t.bound == t.bottleneck == bound


def test_one_port_for_both_ways_makes_fetches_queue_behind_copies_out():
    t = pl.timeline(pl.record(loops.rolled, 20), TOY.with_(duplex=False, alpha=10 * US))
    assert t.excess["port queue"] > 0
    assert pl.timeline(pl.record(loops.rolled, 20), TOY.with_(alpha=10 * US)).excess["port queue"] == 0


def test_a_burst_of_copies_is_uneven():
    blocks = [0] * 50 + list(range(1, 51))  # 50 steps on one block, then a new one at every step
    t = pl.timeline(record(100, [operand("x", blocks, 2, False, 1)], flops=1.0), TOY.with_(beta=4 / 1.5, flops=1.0))
    assert max(t.terms.values()) == 100
    assert t.excess["uneven"] > 20 and math.isclose(sum(t.excess.values()), t.total - 100)


def test_mixed_depths_each_count_with_their_own_slots():
    x, y = (operand(n, list(range(30)), d, False, 1) for n, d in (("x", 1), ("y", 4)))
    machine = TOY.with_(alpha=10.0, beta=4.0, flops=1.0)
    t = pl.timeline(record(30, [x, y], flops=1.0), machine)
    assert t.terms["latency"] == 30 * (10 + 1 + 1)  # x alone: its one slot is filled and used in turn
    both = pl.timeline(record(30, [x, operand("y", list(range(30)), 1, False, 1)], flops=1.0), machine)
    assert both.terms["latency"] == 30 * (10 + 2 + 1)
    kept = pl.timeline(record(30, [x, operand("y", [t // 3 for t in range(30)], 1, False, 9)], flops=1.0), machine)
    assert kept.terms["latency"] == max(30 * (10 + 1) + 30, 10 * (10 + 9) + 30)  # each with its own visits
    check_split(t)
