"""Every kind of hazard by its smallest program: who, where, when and the words. And what reports about values must
see, and must not."""
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.verify import RULES, verify

BLOCK = pl.BlockSpec((4,), lambda i: (i,))
FIRST = pl.BlockSpec((4,), lambda i: (0,))
X8 = jnp.arange(8.0) + 1


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def said(f, *args):
    """The result of a call, and the hazards that it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = f(*args)
    return value, [h for w in caught for h in w.message.hazards]


# -- the smallest program of each kind

def by_hand(loop, steps=1):
    return verify(pl.record(loop, steps))


def no_wait_in(N, A, X, Y, B):
    pl.copy_in_start(A[0], X[0])
    pl.compute(X[0], Y[0])
    pl.copy_in_wait(X[0])
    pl.copy_out_start(Y[0], B[0])
    pl.copy_out_wait(Y[0])


def no_wait_out(N, A, X, Y, B):
    for i in range(2):
        pl.copy_in_start(A[i], X[0])
        pl.copy_in_wait(X[0])
        pl.compute(X[0], Y[0])
        pl.copy_out_start(Y[0], B[i])
    pl.copy_out_wait(Y[0])
    pl.copy_out_wait(Y[0])


def never_filled(N, A, X, Y, B):
    pl.compute(X[0], Y[0])
    pl.copy_out_start(Y[0], B[0])
    pl.copy_out_wait(Y[0])


def never_run(N, A, X, Y, B):
    pl.copy_out_start(Y[0], B[0])
    pl.copy_out_wait(Y[0])


def two_fills(N, A, X, Y, B):
    pl.copy_in_start(A[0], X[0])
    pl.copy_in_start(A[1], X[0])
    pl.copy_in_wait(X[0])
    pl.copy_in_wait(X[0])
    pl.compute(X[0], Y[0])
    pl.copy_out_start(Y[0], B[0])
    pl.copy_out_wait(Y[0])


def waits_for_nothing(N, A, X, Y, B):
    pl.copy_in_wait(X[0])


def no_last_wait(N, A, X, Y, B):
    pl.copy_in_start(A[0], X[0])
    pl.copy_in_wait(X[0])
    pl.compute(X[0], Y[0])
    pl.copy_out_start(Y[0], B[0])


def call(kernel, out, *args, **options):
    options.setdefault("in_specs", [BLOCK])
    options.setdefault("out_specs", BLOCK)
    return said(pl.pallas_call(kernel, out, **options), *args)[1]


def adds_up(x_ref, o_ref):
    o_ref[...] += x_ref[...]


def times_zero(x_ref, o_ref):
    o_ref[...] = o_ref[...] * 0.0 + x_ref[...]


def half(x_ref, o_ref):
    o_ref[0:2] = x_ref[0:2]


def writes_its_input(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    x_ref[...] = x_ref[...] + 1


PARALLEL = pltpu.CompilerParams(dimension_semantics=("parallel",))
SMALLEST = {  # what it shows -> its hazards
    "a wait for a copy that nobody started": lambda: by_hand(waits_for_nothing),
    "a kernel reads a slot too early": lambda: by_hand(no_wait_in),
    "a kernel writes a slot that is on its way out": lambda: by_hand(no_wait_out, 2),
    "two copies fill one slot": lambda: by_hand(two_fills, 2),
    "a kernel reads a slot that nobody filled": lambda: by_hand(never_filled),
    "a slot goes out that no step wrote": lambda: by_hand(never_run),
    "a copy that nobody waits for": lambda: by_hand(no_last_wait),
    "in place: a copy out overtakes a prefetch": lambda: call(
        copy, shape(2), jnp.arange(2.0), grid=(2,), in_specs=[pl.BlockSpec((1,), lambda i: (1 - i,))],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)), input_output_aliases={0: 0}),
    "an output block is left and written again": lambda: call(
        copy, shape(8), X8, grid=(3,), in_specs=[FIRST], out_specs=pl.BlockSpec((4,), lambda i: (i % 2,))),
    "an output block that no step visits": lambda: call(copy, shape(12), X8, grid=(2,)),
    "parallel steps share an output block": lambda: call(copy, shape(4), X8, grid=(2,), out_specs=FIRST,
                                                         compiler_params=PARALLEL),
    "part of a block is not written": lambda: call(half, shape(8), X8, grid=(2,)),
    "an accumulator without a first value": lambda: call(adds_up, shape(4), X8, grid=(2,), out_specs=FIRST),
    "garbage times zero": lambda: call(times_zero, shape(4), X8, grid=(2,), out_specs=FIRST),
    "an input is written": lambda: call(writes_its_input, shape(8), X8, grid=(2,),
                                        in_specs=[pl.BlockSpec((4,), lambda i: (i,), pipeline_mode=pl.Buffered(1))]),
    "a grid whose steps all do the same": lambda: call(copy, shape(4), X8, grid=(2,), in_specs=[FIRST],
                                                       out_specs=FIRST),
    "slots that do not fit into SRAM": lambda: pl.pallas_call(
        copy, shape(8000), grid=(8,), in_specs=[pl.BlockSpec((1000,), lambda i: (i,), pipeline_mode=pl.Buffered(3))],
        out_specs=pl.BlockSpec((1000,), lambda i: (i,))).trace(shape(8000)).timeline(pl.hardware.TOY).hazards,
}


def test_every_kind_by_its_smallest_program(golden):
    text, kinds = [], set()
    for name, hazards in SMALLEST.items():
        [h] = hazards()
        kinds.add(h.kind)
        text += [f"# {name}", f"{h.kind}: {h.operand}, step {h.step}, slot {h.slot}, events {h.events}", str(h), ""]
    assert kinds == set(RULES)
    golden("hazards", "\n".join(text))


# -- reports about values

def accumulate(step, dtype=jnp.float32, first=None):
    """o = step(o, x) over two steps, after o = 0 in step `first`."""
    def kernel(x_ref, o_ref):
        if first is not None:
            @pl.when(pl.program_id(0) == first)
            def _():
                o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] = step(o_ref[...], x_ref[...])
    return lambda x: call(kernel, shape(4, dtype=dtype), x.astype(dtype), grid=(2,), out_specs=FIRST)


def with_scratch(kernel, dtype=jnp.float32):
    """kernel(x, o, scratch) over two blocks of four."""
    return lambda x: call(kernel, shape(8, dtype=dtype), x, grid=(2,),
                          scratch_shapes=[pltpu.VMEM((4,), jnp.float32)])


def blockwise(kernel, dtype=jnp.float32, depth=2, steps=2):
    spec = pl.BlockSpec((4,), lambda i: (i,), pipeline_mode=pl.Buffered(depth))
    return lambda x: call(kernel, shape(4 * steps, dtype=dtype), x, grid=(steps,), in_specs=[spec], out_specs=spec)


def add(a, b):
    return a + b


def stores(value):
    """A kernel that stores value(x, scratch)."""
    def kernel(x_ref, o_ref, s_ref):
        o_ref[...] = value(x_ref[...], s_ref[...])
    return kernel


def fills(value):
    """A kernel that stores one number, value(x), everywhere."""
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.full(4, value(x_ref[...]), o_ref.dtype)
    return kernel


def first_two_visits(x_ref, o_ref):
    @pl.when(pl.program_id(0) < 2)
    def _():
        o_ref[...] = x_ref[...]


def half_from_scratch(x_ref, o_ref, s_ref):
    o_ref[0:2] = x_ref[0:2] + s_ref[0:2]


def reads_what_it_wrote(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    o_ref[...] = o_ref[...] + 1


def delay_line(x_ref, o_ref, s_ref):
    o_ref[...] = x_ref[...] + s_ref[...]
    s_ref[...] = x_ref[...]


def keeps_garbage_to_itself(x_ref, o_ref, s_ref):
    s_ref[...] = s_ref[...] + 1
    o_ref[...] = x_ref[...]


UNINITIALISED, UNWRITTEN = "uninitialised", "unwritten"
VALUES = {
    "+=": (accumulate(add), X8, [UNINITIALISED]),
    "+= 0, which leaves memory as it is": (accumulate(add), X8 * 0, [UNINITIALISED]),
    "+= in bfloat16, which rounds": (accumulate(add, jnp.bfloat16), X8, [UNINITIALISED]),
    "+= in int8, which wraps": (accumulate(add, jnp.int8), X8, [UNINITIALISED]),
    "|= in bool": (accumulate(jnp.logical_or, jnp.bool_), X8 % 2, [UNINITIALISED]),
    "max of what is larger than any filling": (accumulate(jnp.maximum), X8 + 1e6, [UNINITIALISED]),
    "integer max near the top": (accumulate(jnp.maximum, jnp.int32), jnp.full(8, 2**31 - 2), [UNINITIALISED]),
    "integer min near the bottom": (accumulate(jnp.minimum, jnp.int8), jnp.full(8, -127), [UNINITIALISED]),
    "one bit of garbage": (accumulate(lambda a, b: a % 2 + b, jnp.int32), X8, [UNINITIALISED]),
    "0 * garbage, as a constant": (accumulate(lambda a, b: a * 0.0 + b), X8, [UNINITIALISED]),
    "garbage - garbage": (accumulate(lambda a, b: a - a + b), X8, [UNINITIALISED]),
    "garbage near 0": (with_scratch(stores(lambda x, s: jnp.where(jnp.abs(s) < 0.5, -x, x))), 1 + X8, [UNINITIALISED]),
    "garbage in a range": (with_scratch(stores(lambda x, s: jnp.where((s > 0) & (s < 9), -1, x))), X8, [UNINITIALISED]),
    "a flag that nobody set": (with_scratch(stores(lambda x, s: jnp.where(s[0] == 0, -1, x))), X8, [UNINITIALISED]),
    "integer 0 * garbage is 0": (accumulate(lambda a, b: a * 0 + b, jnp.int32), X8, []),
    "initialised": (accumulate(add, first=0), X8, []),
    "initialised a step late": (accumulate(lambda a, b: a + b, first=1), X8, []),
    "0 * garbage decides a bool": (with_scratch(stores(lambda x, s: s * 0 + x > 0), jnp.bool_), X8, [UNINITIALISED]),
    "0 * garbage decides an int": (with_scratch(stores(lambda x, s: jnp.where(s * 0 + x > 0, 1, 2)), jnp.int32), X8,
                                   [UNINITIALISED]),
    "garbage decides a sign of 0": (with_scratch(stores(lambda x, s: jnp.where(s > 0, 0.0, -0.0) * x)), X8,
                                    [UNINITIALISED]),
    "garbage chooses between equals": (with_scratch(stores(lambda x, s: jnp.where(s > 0, x, x))), X8, []),
    "scratch read before written, in step 0 only": (with_scratch(delay_line), X8, [UNINITIALISED]),
    "garbage that stays in scratch": (with_scratch(keeps_garbage_to_itself), X8, []),
    "half unwritten, half garbage": (with_scratch(half_from_scratch), X8, [UNWRITTEN, UNINITIALISED]),
    "half unwritten in bool": (blockwise(half, jnp.bool_), X8 > 3, [UNWRITTEN]),
    "half unwritten in int8": (blockwise(half, jnp.int8), X8.astype(jnp.int8), [UNWRITTEN]),
    "a tail that is copied on": (blockwise(copy), X8[:6], [UNINITIALISED]),
    "a tail that is counted": (blockwise(fills(lambda x: jnp.sum(jnp.abs(x) < 9))), X8[:6], [UNINITIALISED]),
    "a tail's smallest square": (blockwise(fills(lambda x: jnp.min(x * x))), 2 + X8[:6], [UNINITIALISED]),
    "a tail has one of the ids": (blockwise(fills(lambda x: jnp.sum(x == 3)), jnp.int32), X8[:6].astype(int) // 6 + 3,
                                  [UNINITIALISED]),
    "a tail that is copied on in bool": (blockwise(copy, jnp.bool_), X8[:6] > 3, [UNINITIALISED]),
    "an output read after it was written": (blockwise(reads_what_it_wrote), X8, []),
    **{f"forgotten in later visits, depth {d}": (blockwise(first_two_visits, depth=d, steps=5), jnp.arange(20.0),
                                                 [UNWRITTEN]) for d in (1, 2, 3)},
    **{f"right, depth {d}": (blockwise(copy, depth=d, steps=5), jnp.arange(20.0), []) for d in (1, 3)},
}


@pytest.mark.parametrize("name", VALUES)
def test_reports_about_values(name):
    hazards, x, kinds = VALUES[name]
    assert [h.kind for h in hazards(x)] == kinds


@pytest.mark.parametrize("mask, kinds", [(False, [UNINITIALISED]), (True, [])])
def test_an_edge_in_two_dimensions(mask, kinds):
    def kernel(x_ref, o_ref):
        column = jax.lax.broadcasted_iota(jnp.int32, (4, 4), 1) + 4 * pl.program_id(1)
        x = jnp.where(column < 6, x_ref[...], 0) if mask else x_ref[...]
        o_ref[...] = jnp.sum(x, axis=1, keepdims=True)
    block = pl.BlockSpec((4, 4), lambda i, j: (i, j))
    found = call(kernel, shape(5, 2), jnp.ones((5, 6)), grid=(2, 2), in_specs=[block],
                 out_specs=pl.BlockSpec((4, 1), lambda i, j: (i, j)))
    assert [h.kind for h in found] == kinds
    assert all("o[0:5, 1:2]" in h.message for h in found)


def test_hazards_print_as_words_and_not_without_end():
    def reads_too_early(N, A, X, Y, B):
        for i in range(N):
            pl.copy_in_start(A[i], X[0])
            pl.compute(X[0], Y[0])
            pl.copy_in_wait(X[0])
    found = by_hand(reads_too_early, 300)
    assert len(found) == 300 and repr(found[0]) == str(found[0])
    assert str(found) == repr(found) == "\n".join([*map(str, found[:5]), "… and 295 more"])
    assert repr(by_hand(reads_too_early, 0)) == "[]"
    f = pl.pallas_call(copy, shape(8), grid=(8,), in_specs=[pl.BlockSpec((1,), lambda i: (i,))],
                       out_specs=pl.BlockSpec((1,), lambda i: (0,)))
    [unvisited] = found = f.trace(shape(8)).hazards
    assert repr(found) == str(unvisited)


@pytest.mark.parametrize("table, axes, mend", [
    ([0, 1, 0, 2], 1, "sort"), ([0, 0, 1, 2], 1, None), ([0, 1, 2], 2, "innermost"), ([0, 1, 0], 2, "sort")])
@pytest.mark.parametrize("copies", [False, True])
def test_a_table_that_comes_back_to_a_block_is_to_be_sorted(table, axes, mend, copies):
    """Where another order of the axes would not help. With two axes the outer one is that which is reduced over."""
    def kernel(table_ref, x_ref, o_ref, *buf):
        for b in buf:
            pltpu.sync_copy(x_ref, b)
        o_ref[...] = x_ref[...]
    n, spec = len(table), pl.BlockSpec((8, 128), lambda *i: (i[-2] if axes == 1 else i[0] * n + i[1], 0))
    f = pl.pallas_call(kernel, jax.ShapeDtypeStruct((24, 128), jnp.float32), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,) * (axes - 1) + (n,), in_specs=[spec], out_specs=pl.BlockSpec(
            (8, 128), lambda *i: (i[-1][i[-2]], 0)), scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)] * copies))
    x = jnp.ones((16 * n, 128))
    for found in (f.trace(np.array(table, np.int32), x).hazards, raised(f, np.array(table, np.int32), x)):
        mends = [h.mend for h in found if h.kind == "revisit"]
        assert len(mends) == (mend is not None)
        for text in mends:
            assert ("sort the scalars that choose the blocks of" in text) == (mend == "sort")
            assert ("the innermost (last) axis of the grid" in text) == (mend == "innermost")


def raised(f, *operands):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        f(*operands)
    return said[0].message.hazards if said else []
