"""An index that a running step computes is an error where it is below 0 or past the end, wherever it stands.

A static index, a Python int, counts from the end as NumPy's does; upstream's interpreters let a computed one do so too,
and hardware does not.
"""
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as upstream

import pallas_lite as pl
from pallas_lite import tpu as pltpu

ANY, TILE = pl.BlockSpec(memory_space=pl.ANY), (8, 128)
X = jnp.arange(3.0)[:, None, None] * jnp.ones((3, *TILE))
OUT = jax.ShapeDtypeStruct(X.shape, X.dtype)
TABLE = jnp.array([0, 1, 2], jnp.int32)
AROUND = pytest.mark.parametrize("around", [lambda f: f, jax.jit], ids=["a call", "jit"])
NEGATIVE = ("Only a Python int counts from the end. Guard it, with pl.when in a kernel and jnp.clip in an index map; "
            "lax.rem keeps the sign, so to go round, add the size first.")
PAST = "A slice past the end does not shift. Guard it, with pl.when in a kernel and jnp.clip in an index map."


def call(kernel, *scratch, grid=(), tables=0):
    return pl.pallas_call(kernel, OUT, grid=grid, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)] * tables + [ANY],
                          out_specs=ANY, scratch_shapes=scratch)


def said(f, *operands):
    """The error, without the number of the line and what is said of stand-ins."""
    with pytest.raises(pl.BlockIndexError) as error:
        f(*operands)
    return re.sub(r"line \d+", "line", str(error.value).partition("\n")[0])


def row(copy):
    """A kernel that copies row after row through a buffer: `copy(i, x, o, buf, sem)`."""
    def kernel(x, o, buf, sem):
        copy(pl.program_id(0), x, o, buf, sem)
    return call(kernel, pltpu.VMEM((2, *TILE), X.dtype), pltpu.SemaphoreType.DMA((2,)), grid=(3,))


def moved(source, target, sem):
    pltpu.async_copy(source, target, sem).wait()


PLACES = {
    "a source": (lambda i, x, o, buf, sem: moved(x.at[i - 1], o.at[i], sem.at[0]), "x: index -1", 3, NEGATIVE),
    "a source past the end": (lambda i, x, o, buf, sem: moved(x.at[i + 3], o.at[i], sem.at[0]), "x: index 3", 3, PAST),
    "a target": (lambda i, x, o, buf, sem: moved(x.at[i], o.at[i - 1], sem.at[0]), "o: index -1", 3, NEGATIVE),
    "a slot": (lambda i, x, o, buf, sem: moved(x.at[i], buf.at[lax.rem(i - 1, 2)], sem.at[0]), "buf: index -1", 2,
               NEGATIVE),
    "a slot of a part": (lambda i, x, o, buf, sem: moved(x.at[0].at[i - 1], buf.at[1].at[i], sem.at[0]), "x: index -1",
                         8, NEGATIVE),
    "a semaphore": (lambda i, x, o, buf, sem: moved(x.at[i], o.at[i], sem.at[lax.rem(i - 1, 2)]), "sem: index -1", 2,
                    NEGATIVE),
    "a read": (lambda i, x, o, buf, sem: [moved(x.at[i], buf.at[1], sem.at[0]), buf[lax.rem(i - 1, 2)]],
               "buf: index -1", 2, NEGATIVE),
    "a write": (lambda i, x, o, buf, sem: buf.__setitem__(i - 1, jnp.ones(TILE)), "buf: index -1", 2, NEGATIVE),
    "a start": (lambda i, x, o, buf, sem: moved(x.at[pl.ds(i - 1, 1)], o.at[pl.ds(i, 1)], sem.at[0]), "x: index -1", 3,
                NEGATIVE.replace("Only a Python int counts", "A start does not count")),
}


@AROUND
@pytest.mark.parametrize("place", PLACES)
def test_a_computed_index_outside_names_ref_step_and_mend(place, around):
    copy, what, n, mend = PLACES[place]
    assert said(around(row(copy)), X) == f"step 0, line: {what} is out of range in dimension 0, which has {n} " \
                                         f"elements. {mend}"
    with pytest.raises(pl.BlockIndexError, match=what):
        row(copy).trace(OUT).hazards  # noqa: B018


LOOPS = {
    "fori_loop": lambda body: lax.fori_loop(0, 3, lambda i, c: (body(i), c)[1], 0),
    "pl.loop": lambda body: pl.loop(0, 3)(body),
    "while_loop": lambda body: lax.while_loop(lambda i: i < 3, lambda i: (body(i), i + 1)[1], 0),
    "scan": lambda body: lax.scan(lambda i, _: ((body(i), i + 1)[1], None), 0, None, length=3),
    "scan over": lambda body: lax.scan(lambda c, i: ((body(i), 0)[1], None), 0, jnp.arange(3)),
}


@AROUND
@pytest.mark.parametrize("loop", LOOPS)
def test_the_index_of_a_loop_is_computed(loop, around):
    def shifted(by):
        def kernel(x, o):
            LOOPS[loop](lambda i: pltpu.sync_copy(x.at[i + by], o.at[i]))
        return around(call(kernel))
    np.testing.assert_array_equal(shifted(0)(X), X)
    assert "x: index -1 is out of range" in said(shifted(-1), X)
    assert "x: index 3 is out of range" in said(shifted(1), X)


@AROUND
def test_a_static_index_counts_from_the_end_as_upstream(around):
    def kernel(x, o):
        for i in range(3):
            pltpu.sync_copy(x.at[i - 1], o.at[-i])
    np.testing.assert_array_equal(around(call(kernel))(X), X[jnp.array([2, 1, 0])])

    def computes(x_ref, o_ref):
        o_ref[...] = x_ref[-1] + x_ref[-3]
    ours, theirs = (package.pallas_call(computes, jax.ShapeDtypeStruct(TILE, X.dtype), interpret=True)
                    for package in (pl, upstream))
    np.testing.assert_array_equal(around(ours)(X), theirs(X))


@AROUND
def test_a_slot_that_goes_round_is_right(around):
    def copy(i, x, o, buf, sem):
        slot = lax.rem(i + 1, 2)
        moved(x.at[i], buf.at[slot], sem.at[slot])
        moved(buf.at[slot], o.at[i], sem.at[slot])
    np.testing.assert_array_equal(around(row(copy))(X), X)


def test_a_table_that_counts_from_1_is_right_under_jit_too():
    def kernel(table, x, o):
        @pl.loop(0, 3)
        def _(i):
            pltpu.sync_copy(x.at[table[i] - 1], o.at[i])
    f = call(kernel, tables=1)
    for run in (f, jax.jit(f)):
        np.testing.assert_array_equal(run(TABLE + 1, X), X)
    assert f.trace(jax.ShapeDtypeStruct((3,), jnp.int32), OUT).hazards == []
    assert "step 0, line: x: index -1 is out of range" in said(f, TABLE, X)
    # Compiled, nobody looks: a read outside gives what memory held.
    assert np.asarray(jax.jit(f)(TABLE, X))[:, 0, 0].tolist()[1:] == [0, 1]
    assert np.isnan(jax.jit(f)(TABLE, X)[0]).all()


def test_an_index_out_of_memory_that_nobody_wrote_says_so():
    def kernel(x, o, slot):
        pltpu.sync_copy(x.at[slot[0]], o.at[0])
    with pytest.raises(pl.BlockIndexError, match="index 2147483647 is out of range(.|\n)*Before that, step 0: the "
                                                 "kernel reads slot .*, part of which nobody has written"):
        call(kernel, pltpu.SMEM((1,), jnp.int32))(X)


def test_the_index_map_of_a_pipeline_inside_a_kernel_reads_a_table():
    def kernel(by):
        def kernel(table, x, o):
            def body(x_ref, o_ref):
                o_ref[...] = x_ref[...]
            pltpu.emit_pipeline(body, grid=(3,), in_specs=[pl.BlockSpec((1, *TILE), lambda i: (table[i + by], 0, 0))],
                                out_specs=[pl.BlockSpec((1, *TILE), lambda i: (i, 0, 0))])(x, o)
        return call(kernel, tables=1)
    for around in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(around(kernel(0))(TABLE, X), X)
        assert said(around(kernel(-1)), TABLE, X) == (
            "step 0, line: in emit_pipeline, operand x, step 0, in its index_map: step 0, line: table: index -1 is out "
            f"of range in dimension 0, which has 3 elements. {NEGATIVE}")
        assert "step 2, in its index_map: step 0, line: table: index 3 is out" in said(around(kernel(1)), TABLE, X)


# -- index maps of a call

def mapped(read, write=lambda i, t: (i, 0, 0)):
    blocks = [pl.BlockSpec((1, *TILE), m) for m in (read, write)]

    def kernel(t, x_ref, o_ref):
        o_ref[...] = x_ref[...]
    return pl.pallas_call(kernel, OUT, grid_spec=pltpu.PrefetchScalarGridSpec(1, (3,), blocks[:1], blocks[1]))


@AROUND
@pytest.mark.parametrize("read, step, index", [
    (lambda i, t: (t[i - 1], 0, 0), 0, -1),
    (lambda i, t: (t[i + 1], 0, 0), 2, 3),
    (lambda i, t: (t[i + t.shape[0]], 0, 0), 0, 3),
    (lambda i, t: (jnp.maximum(t[i - 1], 0), 0, 0), 0, -1),
    (lambda i, t: (t[lax.rem(i - 2, 3)], 0, 0), 0, -2),
    (lambda i, t: (t[pl.ds(i - 1, 1)][0], 0, 0), 0, -1),
    (lambda i, t: (jnp.where(i < 2, t[i], t[i + 1]), 0, 0), 2, 3)])
def test_an_index_map_that_reads_outside_of_its_table_names_operand_step_and_index(read, step, index, around):
    text = said(around(mapped(read)), TABLE, X)
    assert text.startswith(f"operand x, step {step}, in its index_map: t: index {index} is out of range in dimension "
                           "0, which has 3 elements. ")
    assert text.endswith(PAST if index > 0 else NEGATIVE.partition(". ")[2])


@AROUND
@pytest.mark.parametrize("read", [
    lambda i, t: (t[-1 - 2], 0, 0), lambda i, t: (t[...][0], 0, 0), lambda i, t: (t[jnp.maximum(i - 3, 0)], 0, 0),
    lambda i, t: (lax.cond(i > 2, lambda: t[i - 1], lambda: t[0]), 0, 0), jax.jit(lambda i, t: (t[i // 3], 0, 0)),
    lambda i, t: (t[t[t[i]] // 4], 0, 0)])
def test_an_index_map_that_reads_inside_is_right(read, around):
    np.testing.assert_array_equal(around(mapped(read))(TABLE, X), X[jnp.zeros(3, int)])


def test_a_branch_of_an_index_map_that_is_taken_is_read():
    read = mapped(lambda i, t: (lax.cond(i > 0, lambda: t[i - 1], lambda: t[i - 1]), 0, 0))
    assert said(read, TABLE, X).startswith("operand x, step 0, in its index_map: t: index -1 is out of range")


def test_what_only_traced_scalars_tell_gives_a_block_that_is_not_there():
    """A call says so; under jax.jit the block reads as memory that nobody wrote, and is written nowhere."""
    lengths, first = jnp.array([2, 0, 3], jnp.int32), lambda v: np.asarray(v)[:, 0, 0]  # noqa: E731
    paged = mapped(lambda i, t: (t[t[i] - 1], 0, 0))
    assert said(paged, lengths, X).startswith("operand x, step 1, in its index_map: t: index -1 is out of range")
    np.testing.assert_array_equal(first(jax.jit(paged)(lengths, X)), [0, np.nan, np.nan])  # t[2] is 3: no block either
    into = mapped(lambda i, t: (i, 0, 0), lambda i, t: (t[i] - 1, 0, 0))
    assert said(into, TABLE, X).startswith("output o, step 0: index_map gives (-1, 0, 0), but block index -1 is out")
    np.testing.assert_array_equal(first(jax.jit(into)(TABLE, X)), [1, 2, np.nan])


def test_an_index_map_does_not_write_its_table():
    with pytest.raises(pl.SpecError, match="t: an index map reads its scalars, and writes nothing"):
        mapped(lambda i, t: (t.__setitem__(0, 1) or 0, 0, 0))(TABLE, X)
