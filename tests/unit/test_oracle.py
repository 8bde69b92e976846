"""The verifier against the oracle, on correct pipelines, on mutants of them, and on programs with copies of their own:
no race missed, none invented."""
import itertools
import os
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pallas_lite.engines.record import record
from pallas_lite.races import Races, Rectangles
from pallas_lite.schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event
from pallas_lite.specs import Operand
from pallas_lite.verify import verify
from tests.unit.oracle import judge, judge_all_at_once

SEEDS = range(int(os.environ.get("ORACLE_SEEDS", 8)))  # 40: 20,000 schedules and 20,000 kernels
RACES = {"read before wait", "overwrite in flight", "hbm race"}


def verdict(schedule):
    kinds = {h.kind for h in verify(schedule)}
    return ("hang" if "hang" in kinds else "never waited" if "never waited" in kinds
            else "race" if kinds & RACES else "ok")


# -- schedules

def as_program(schedule):
    """A schedule as the oracle reads it, a byte an element: written from the contract's words, not from verify.py."""
    operands = {x.name: x for x in schedule.operands}

    def box(corner, sizes):
        return itertools.product(*(range(c, c + n) for c, n in zip(corner, sizes, strict=True)))

    def pairs(e):
        """The bytes of a copy: (in HBM, in the slot), those outside of the array left out."""
        x = operands[e.operand]
        scale = x.starts or [(n, 0) for n in x.block_shape]
        corner = [a * b + c for b, (a, c) in zip(e.block, scale, strict=True)]
        for i in box([0] * len(corner), x.block_shape):
            at = tuple(c + k for c, k in zip(corner, i, strict=True))
            if all(0 <= k < n for k, n in zip(at, x.array_shape, strict=True)):
                yield (x.array, at), (x.name, e.slot, i)

    program = []
    for e in schedule:
        if e.verb == RUN:
            slots = [(x, [(x.name, s, i) for i in box([0] * len(x.block_shape), x.block_shape)])
                     for x, s in zip(schedule.operands, e.slots, strict=True)]
            program += [("write" if x.is_output else "read", cells) for x, cells in
                        sorted(slots, key=lambda s: s[0].is_output)]
            continue
        semaphore = e.operand, e.slot, "copy_in" in e.verb
        if "wait" in e.verb:
            program.append(("wait", semaphore, len(list(pairs(e)))))
        else:
            program.append(("start", [p if "copy_in" in e.verb else p[::-1] for p in pairs(e)], semaphore))
    return program, {(x.array, i) for x in schedule.operands for i in box([0] * len(x.array_shape), x.array_shape)}


def some_operand(rng, name, steps, array, is_output):
    """Blocks of any size on an array: some reach past its edge, some start at elements and overlap."""
    shape = tuple(min(n, rng.choice([1, 2, 2, 3])) for n in array) if rng.random() < 0.7 else (1,) * len(array)
    starts, counts = None, [-(-n // b) for n, b in zip(array, shape, strict=True)]
    if rng.random() < 0.25:
        starts = tuple((1, -rng.choice([0, 0, 1])) if b > 1 else (b, 0) for b in shape)
        counts = list(array)
    choices = list(itertools.product(*map(range, counts)))
    blocks = [rng.choice(choices) for _ in range(steps)]
    if is_output and rng.random() < 0.8:
        blocks = [choices[min(t, len(choices) - 1)] for t in range(steps)]
    x = Operand(name, name, is_output, rng.randint(1, 3), array, np.dtype(np.int8), shape, (), blocks, starts=starts)
    return x, choices


def some_schedule(rng):
    """A small pipeline of ours, or events by chance; then up to three mutations."""
    steps = rng.randint(1, 4)
    array = rng.choice([(3,), (3,), (4,), (5,), (2, 2), (2, 3)])
    made = [some_operand(rng, f"x{i}", steps, array, False) for i in range(rng.randint(1, 2))]
    made.append(some_operand(rng, "o", steps, array, True))
    operands, choices = [x for x, _ in made], {x.name: c for x, c in made}
    if rng.random() < 0.3:
        operands[-1] = replace(operands[-1], array="x0")  # in place
    schedule = record(steps, operands)
    if rng.random() < 0.3:
        schedule = replace(schedule, events=tuple(by_chance(rng, operands, choices)))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        if schedule.events:
            schedule = replace(schedule, events=tuple(mutate(rng, schedule, list(schedule.events), choices)))
    return schedule


def by_chance(rng, operands, choices):
    """Copies of any blocks on few slots, some in flight together; every copy is waited for in the end."""
    open_copies, runs = [], 0

    def start(x, slot):
        open_copies.append(Event(OUT_WAIT if x.is_output else IN_WAIT, runs, x.name, rng.choice(choices[x.name]), slot))
        return open_copies[-1]._replace(verb=OUT_START if x.is_output else IN_START)

    busy, often = rng.choice(operands), rng.random()
    for _ in range(rng.randint(2, 7)):
        x = busy if rng.random() < 0.8 else rng.choice(operands)
        slot = rng.choice([0, 0, x.depth - 1])
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            yield start(x, slot)
        # Now and then all are waited for, so that what the next ones do is seen by itself.
        for _ in range(len(open_copies) if rng.random() < often else rng.randint(0, len(open_copies))):
            yield open_copies.pop(rng.randrange(len(open_copies)))
        if rng.random() < 0.3:
            yield Event(RUN, runs, slots=tuple(rng.choice([0, 0, x.depth - 1]) for x in operands))
            runs += 1
    yield from open_copies
    yield Event(RUN, runs, slots=(0,) * len(operands))


def mutate(rng, schedule, events, choices):
    """Drop, move, double; another slot, another block; two slots swapped from here on; a smaller depth."""
    i = rng.randrange(len(events))
    e = events[i]
    at = rng.randrange(len(schedule.operands))
    x = schedule.operands[at]
    how = rng.choice(["drop", "move", "move", "double", "slot", "block", "swap", "shrink"])
    if how == "drop":
        del events[i]
    elif how == "move":
        events.insert(rng.randrange(len(events)), events.pop(i))
    elif how == "double":
        events.insert(rng.randrange(len(events)), e)
    elif how in ("swap", "shrink"):
        new = list(range(x.depth))
        if how == "swap":
            a, b = rng.randrange(x.depth), rng.randrange(x.depth)
            new[a], new[b] = new[b], new[a]
        else:
            i, smaller = 0, rng.randint(1, x.depth)
            new = [s % smaller for s in new]
        events[i:] = [e._replace(slots=(*e.slots[:at], new[e.slots[at]], *e.slots[at + 1:])) if e.verb == RUN else
                      e._replace(slot=new[e.slot]) if e.operand == x.name else e for e in events[i:]]
    elif e.verb == RUN:
        events[i] = e._replace(slots=(*e.slots[:at], rng.randrange(x.depth), *e.slots[at + 1:]))
    elif how == "slot":
        events[i] = e._replace(slot=rng.randrange(schedule.operand(e.operand).depth))
    else:
        events[i] = e._replace(block=rng.choice(choices[e.operand]))
    return events


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_on_schedules_is_the_oracles(seed):
    """500 programs a seed."""
    rng = random.Random(seed)
    seen = Counter()
    for _ in range(500):
        schedule = some_schedule(rng)
        want = judge(*as_program(schedule))
        seen[want] += 1
        assert verdict(schedule) == want, f"{schedule.operands}\n{schedule.listing()}"
    assert min(seen[v] for v in ("ok", "race", "hang", "never waited")) > 25, seen  # each verdict is really tried


@pytest.mark.parametrize("last, want", [((0,), "ok"), ((1,), "race")])
def test_an_edge_block_does_not_settle_the_tail_of_a_slot(last, want):
    x = Operand("x", "x", False, 1, (3,), np.dtype(np.int8), (2,), (), [(0,)])
    start, wait = (Event(verb, 0, "x", (0,), 0) for verb in (IN_START, IN_WAIT))
    again = [start._replace(block=last), wait._replace(block=last), Event(RUN, 0, slots=(0,))]
    schedule = replace(record(1, [x]), events=(start, start, wait, wait, *again))  # nobody reads what the two wrote
    assert judge(*as_program(schedule)) == verdict(schedule) == want


# -- kernels with copies of their own

def some_kernel(rng):
    """Reads, writes, copies and waits on a few small buffers: mostly in an order that makes sense, not always."""
    sizes = {name: rng.randint(2, 4) for name in "abc"[:rng.randint(2, 3)]}
    semaphores = range(rng.randint(1, 3))

    def span(name, n=None):
        n = n or rng.randint(1, min(3, sizes[name]))
        start = rng.randint(0, sizes[name] - n)
        return name, start, start + n

    program, open_bytes = [], Counter()
    for _ in range(rng.randint(4, 14)):
        what = rng.choice(["start", "start", "start", "wait", "wait", "read", "write"])
        if what == "start" and sum(open_bytes.values()) < 8:
            source = span(rng.choice([*sizes]))
            n, other = source[2] - source[1], rng.choice([*sizes])
            if n <= sizes[other]:
                semaphore = rng.choice(semaphores)
                program.append(("start", source, span(other, n), semaphore))
                open_bytes[semaphore] += n
        elif what == "wait" and +open_bytes:
            semaphore = rng.choice([*+open_bytes])
            amount = rng.randint(1, open_bytes[semaphore]) if rng.random() < 0.5 else open_bytes[semaphore]
            program.append(("wait", semaphore, amount + (rng.random() < 0.02)))
            open_bytes[semaphore] -= amount
        elif what in ("read", "write"):
            program.append((what, span(rng.choice([*sizes]))))
    rest = [("wait", semaphore, n) for semaphore, n in (+open_bytes).items()]
    rng.shuffle(rest)
    program += rest
    if rng.random() < 0.3 and program:
        i = rng.randrange(len(program))
        program.insert(rng.randrange(len(program)), program.pop(i))
    if rng.random() < 0.15 and program:
        del program[rng.randrange(len(program))]
    return sizes, program


def played(sizes, program, in_hbm):
    """The verdict of races.py, fed as manual_dma/step.py feeds it."""
    found = set()
    races = Races(lambda kind, first, second: found.add("race"))
    buffers = {name: Rectangles(races, (n,)) for name, n in sizes.items()}

    def find(window):
        name, start, stop = window
        return buffers[name].find(((start, stop),))

    for number, (what, *rest) in enumerate(program):
        if what == "start":
            source, target, semaphore = rest
            races.start(number, find(source), find(target), semaphore, target[2] - target[1])
        elif what == "wait":
            if not races.wait(*rest):
                return "hang"
        else:
            getattr(races, what)(number, find(*rest))
    if any(races.in_flight.values()):
        return "never waited"
    for name in in_hbm:
        races.final(buffers[name].places.values())
    return "race" if found else "ok"


def in_cells(sizes, program, in_hbm):
    """The same program as the oracle reads it."""
    def cells(window):
        name, start, stop = window
        return [(name, i) for i in range(start, stop)]
    spelled = [(what, cells(rest[0])) if what in ("read", "write") else
               ("start", [*zip(cells(rest[0]), cells(rest[1]), strict=True)], rest[2]) if what == "start" else
               (what, *rest) for what, *rest in program]
    return spelled, {(name, i) for name in in_hbm for i in range(sizes[name])}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_on_kernels_is_the_oracles(seed):
    """500 programs a seed."""
    rng = random.Random(1000 + seed)
    seen = Counter()
    for _ in range(500):
        sizes, program = some_kernel(rng)
        in_hbm = rng.sample([*sizes], rng.randint(0, len(sizes)))
        want = judge(*in_cells(sizes, program, in_hbm))
        seen[want] += 1
        assert played(sizes, program, in_hbm) == want, program
    assert min(seen[v] for v in ("ok", "race", "hang", "never waited")) > 10, seen


def test_trying_each_cell_by_itself_decides_as_trying_all_at_once():
    rng = random.Random(7)
    seen = Counter()
    for _ in range(600):
        if rng.random() < 0.5:
            program, final = as_program(some_schedule(rng))
        else:
            sizes, program = some_kernel(rng)
            program, final = in_cells(sizes, program, [*sizes][:1])
        want = judge_all_at_once(program, final, most=3000)
        seen[want] += 1
        assert want in (None, judge(program, final)), program
    assert min(seen["ok"], seen["race"]) > 100, seen
