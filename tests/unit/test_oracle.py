"""The verifier against the oracle, on correct pipelines and on mutants of them: no race missed, none invented."""
import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from pallas_lite.engines.record import record
from pallas_lite.schedule import RUN
from pallas_lite.verify import verify
from tests.unit.oracle import judge
from tests.unit.test_pipeline import operand

RACES = {"read before wait", "overwrite in flight", "hbm race"}


def verdict(schedule):
    kinds = {h.kind for h in verify(schedule)}
    return ("hang" if "hang" in kinds else "never waited" if "never waited" in kinds
            else "race" if kinds & RACES else "ok")


def program(rng):
    """A small pipeline of ours, then up to three mutations: drop, move, double, other slot, other block, alias."""
    steps = rng.randint(1, 4)
    operands = [operand(f"x{i}", [rng.randint(0, 2) for _ in range(steps)], rng.randint(1, 3))
                for i in range(rng.randint(1, 2))]
    operands.append(operand("o", [min(t, 2) if rng.random() < 0.8 else rng.randint(0, 2) for t in range(steps)],
                            rng.randint(1, 2), True))
    if rng.random() < 0.3:
        operands[-1] = replace(operands[-1], array="x0")  # in place
    schedule = record(steps, operands)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        events = list(schedule.events)
        i = rng.randrange(len(events))
        e = events[i]
        how = rng.choice(["drop", "move", "move", "double", "slot", "block"])
        if how == "drop":
            del events[i]
        elif how == "move":
            events.insert(rng.randrange(len(events)), events.pop(i))
        elif how == "double":
            events.insert(rng.randrange(len(events)), e)
        elif e.verb == RUN:
            at = rng.randrange(len(e.slots))
            depth = operands[at].depth
            events[i] = e._replace(slots=tuple(rng.randrange(depth) if j == at else s for j, s in enumerate(e.slots)))
        elif how == "slot":
            events[i] = e._replace(slot=rng.randrange(schedule.operand(e.operand).depth))
        else:
            events[i] = e._replace(block=(rng.randint(0, 2),))
        if not events:
            break
        schedule = replace(schedule, events=tuple(events))
    return schedule


@pytest.mark.parametrize("seed", range(int(os.environ.get("ORACLE_SEEDS", 4))))
def test_the_verdict_is_the_oracles(seed):
    """500 programs a seed; ORACLE_SEEDS=40 tries 20,000."""
    rng = random.Random(seed)
    seen = Counter()
    for _ in range(500):
        schedule = program(rng)
        want = judge(schedule)
        seen[want] += 1
        assert verdict(schedule) == want, schedule.listing()
    assert min(seen[v] for v in ("ok", "race", "hang", "never waited")) > 25  # each verdict is really tried
