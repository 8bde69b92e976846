"""Our pipeline against upstream's emit_pipeline, whose copies are noted down as its interpreter makes them."""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as interpreter
from jax.experimental import pallas as upstream_pl
from jax.experimental.pallas import tpu as upstream_pltpu

import pallas_lite
from pallas_lite import tpu as pallas_lite_tpu
from pallas_lite.schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN

from ..corpus.test_corpus import A_TPU

# Blocks of 8 × 128: grid, index maps of the inputs, index map of the output.
MAPS = {
    "one axis": ((4,), [lambda i: (i, 0)], lambda i: (i, 0)),
    "an operand that stays": ((2, 3), [lambda i, j: (i, 0), lambda i, j: (j, i)], lambda i, j: (i, j)),
    "an output that accumulates": ((2, 3), [lambda i, j: (i, j), lambda i, j: (j, 0)], lambda i, j: (i, 0)),
    "inputs that come back": ((6,), [lambda i: (i % 2, 0), lambda i: (jnp.minimum(i, 5 - i), 0)], lambda i: (i, 0)),
    "one block of two": ((3,), [lambda i: (1, 0), lambda i: (i // 2, 0)], lambda i: (0, 1)),
}


def build(pl, pltpu, name, depth, **interpret):
    grid, maps, out_map = MAPS[name]
    x_specs = [pl.BlockSpec((8, 128), m, pipeline_mode=pl.Buffered(depth)) for m in maps]

    def kernel(*refs):
        def body(*blocks):
            blocks[-1][...] = blocks[0][...] + 1
        # Output depths above 2 are ours only.
        pltpu.emit_pipeline(body, grid=grid, in_specs=x_specs, out_specs=[
            pl.BlockSpec((8, 128), out_map, pipeline_mode=pl.Buffered(min(depth, 2)))])(*refs)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    sizes = [tuple((1 + np.max([int(m(*i)[d]) for i in itertools.product(*map(range, grid))])) * n
                   for d, n in enumerate((8, 128))) for m in [*maps, out_map]]
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(sizes[-1], jnp.float32), in_specs=[anywhere] * len(maps),
                          out_specs=anywhere, **interpret), [np.ones(s, np.float32) for s in sizes[:-1]]


def upstream_copies(monkeypatch, name, depth):
    """[(start or wait, operand, slot)] as upstream makes them; the operands are numbered, the output is the last."""
    noted, semaphores, arrays = [], {}, {}
    start, wait = interpreter.dma_start, interpreter.dma_wait

    def dma_start(*a, **kw):
        (here, source, at), (there, target, to) = (
            (int(a[i]), int(a[i + 1]), [int(k) for k in jax.tree.leaves(a[i + 2])]) for i in (3, 6))
        slots = at if here == VMEM else to
        array = target if here == VMEM else source
        semaphores[int(a[9])] = arrays.setdefault(array, len(arrays)), slots[0] if slots else 0
        noted.append(("start", *semaphores[int(a[9])]))
        return start(*a, **kw)

    def dma_wait(*a, **kw):
        noted.append(("wait", *semaphores[int(a[3])]))
        return wait(*a, **kw)
    VMEM = interpreter.TPU_MEMORY_SPACE_IDXS[upstream_pltpu.VMEM]
    monkeypatch.setattr(interpreter, "dma_start", dma_start)
    monkeypatch.setattr(interpreter, "dma_wait", dma_wait)
    call, arrays_in = build(upstream_pl, upstream_pltpu, name, depth, interpret=upstream_pltpu.InterpretParams())
    with A_TPU:
        call(*arrays_in)
    return noted


def our_schedule(name, depth):
    call, arrays = build(pallas_lite, pallas_lite_tpu, name, depth)
    return call.trace(*arrays).schedule


def ours_and_theirs(monkeypatch, name, depth):
    theirs = upstream_copies(monkeypatch, name, depth)
    schedule = our_schedule(name, depth)
    numbers = {x.name: i for i, x in enumerate(schedule.operands)}
    for x, i in numbers.items():
        assert schedule.copies(x) == sum(what == "start" and operand == i for what, operand, _ in theirs) > 0
    kinds = {IN_START: "start", OUT_START: "start", IN_WAIT: "wait", OUT_WAIT: "wait"}
    return [(kinds[e.verb], numbers[e.operand], e.slot) for e in schedule if e.verb != RUN], theirs


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MAPS)
def test_copies_waits_and_slots_are_upstreams_in_the_same_order(monkeypatch, name, depth):
    ours, theirs = ours_and_theirs(monkeypatch, name, depth)
    assert ours == theirs


def test_upstream_copies_an_operand_of_one_block_before_its_pipeline_begins(monkeypatch):
    monkeypatch.setitem(MAPS, "whole", ((3,), [lambda i: (0, 0), lambda i: (i, 0)], lambda i: (i, 0)))
    ours, theirs = ours_and_theirs(monkeypatch, "whole", 2)
    assert theirs[:2] == [("start", 0, 0), ("wait", 0, 0)]  # in our pipeline it overlaps the others
    assert ours[:3] == [("start", 0, 0), ("start", 1, 0), ("start", 1, 1)]
    assert [e for e in ours if e[1]] == [e for e in theirs if e[1]]
