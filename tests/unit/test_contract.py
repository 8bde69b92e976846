"""The recorded schedule is the contract's (tests/unit/naive.py), event for event and in order."""
import itertools
import math

import jax
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.specs import Operand, resolve
from tests.unit import naive


def operand(name, blocks, depth=2, is_output=False):
    rank = len(blocks[0]) if blocks else 1
    return Operand(name, name, is_output, depth, (8,) * rank, np.dtype(np.float32), (1,) * rank, (), blocks)


def same(steps, operands):
    wanted = naive.schedule(steps, [(x.name, x.is_output, x.depth, list(x.blocks)) for x in operands])
    got = [tuple(e) for e in record(steps, operands)]
    assert got == wanted


@st.composite
def tables(draw):
    """Up to four operands with any block at any step: kept, coming back, changing always."""
    steps = draw(st.integers(0, 12))
    rank = draw(st.integers(1, 3))
    blocks = st.lists(st.tuples(*[st.integers(0, 2)] * rank), min_size=steps, max_size=steps)
    count = draw(st.integers(0, 4))
    return steps, [operand(f"x{i}", draw(blocks), draw(st.integers(1, 5)), draw(st.booleans())) for i in range(count)]


@settings(max_examples=400)
@given(tables())
@example((0, [operand("x0", [], 3), operand("x1", [], 2, True)]))
@example((1, [operand("x0", [(0,)], 5), operand("x1", [(0,)], 5, True)]))
def test_any_blocks(case):
    same(*case)


def test_every_small_program():
    """Depths 1 to 3, all index sequences over three blocks of up to four steps, as input and as output."""
    for steps in range(5):
        for blocks in itertools.product([(0,), (1,), (2,)], repeat=steps):
            for depth, is_output in itertools.product((1, 2, 3), (False, True)):
                same(steps, [operand("x", list(blocks), depth, is_output)])


def test_every_mix_of_two_depths():
    """Prologue and epilogue interleave operands of different depths."""
    changing, kept, mixed = [(t,) for t in range(6)], [(0,)] * 6, [(0,), (0,), (1,), (1,), (1,), (0,)]
    for a, b in itertools.product((changing, kept, mixed), repeat=2):
        for da, db in itertools.product(range(1, 6), repeat=2):
            for oa, ob in itertools.product((False, True), repeat=2):
                same(6, [operand("a", a, da, oa), operand("b", b, db, ob)])


@settings(max_examples=100)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_any_grid_and_index_map(grid, data):
    """From the grid and the index maps on: steps are in row-major order."""
    specs, wanted = [], []
    for i in range(data.draw(st.integers(1, 4))):
        used = data.draw(st.sets(st.integers(0, len(grid) - 1)))
        shift = data.draw(st.integers(0, 3))
        depth, is_output = data.draw(st.integers(1, 5)), data.draw(st.booleans())

        def index_map(*ids, used=used, shift=shift):
            return sum(ids[a] for a in used) + shift, sum(ids[a] for a in sorted(used)[:1]) // 2
        specs.append((pl.BlockSpec((1, 1), index_map, pl.Buffered(depth)), is_output))
        wanted.append((f"x{i}", is_output, depth, [index_map(*p) for p in naive.row_major(grid)]))
    array = jax.ShapeDtypeStruct((16, 4), np.float32)
    operands = [resolve(spec, f"x{i}", array, tuple(grid), is_output) for i, (spec, is_output) in enumerate(specs)]
    got = record(math.prod(grid), operands)
    assert [tuple(e) for e in got] == naive.schedule(math.prod(grid), wanted)


def test_the_model_by_hand():
    """The naive model itself, against a program written out by hand: depth 2, an output kept for two steps."""
    program = naive.schedule(2, [("x", False, 2, [(0,), (1,)]), ("o", True, 2, [(0,), (0,)])])
    assert [(verb, step, block) for verb, step, _, block, _, _ in program] == [
        ("copy_in_start", 0, (0,)), ("copy_in_start", 0, (1,)), ("copy_in_wait", 0, (0,)), ("run", 0, None),
        ("copy_in_wait", 1, (1,)), ("run", 1, None), ("copy_out_start", 1, (0,)), ("copy_out_wait", 1, (0,))]
