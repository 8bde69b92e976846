"""Loops whose number of rounds comes from memory that nobody had written: the call comes to an end, and says so."""
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.jaxprs import decides_loops
from pallas_lite.manual_dma import loops

X = np.ones((32, 128), np.float32)


def fori(x_ref, o_ref, n):
    o_ref[...] = jax.lax.fori_loop(0, n[0], lambda i, a: a + 1, x_ref[...])


def decorated(x_ref, o_ref, n):
    o_ref[...] = x_ref[...]

    @pl.loop(0, n[0])
    def _(i):
        o_ref[...] += 1


def while_(x_ref, o_ref, n):
    o_ref[...] = jax.lax.while_loop(lambda c: c[0] < n[0], lambda c: (c[0] + 1, c[1] + 1), (0, x_ref[...]))[1]


def handed_on(x_ref, o_ref, n):
    n[1] = n[0]
    o_ref[...] = jax.lax.fori_loop(0, n[1], lambda i, a: a + 1, x_ref[...])


def inside_another(x_ref, o_ref, n):
    def rows(j, a):
        return jax.lax.fori_loop(0, n[0], lambda i, a: a + 1, a)
    o_ref[...] = jax.lax.fori_loop(0, 3, rows, x_ref[...])


def added(x_ref, o_ref, n):
    o_ref[...] = jax.lax.fori_loop(0, pl.program_id(0), lambda i, a: a + n[0], x_ref[...])


def call(kernel, **more):
    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(X.shape, X.dtype), grid=(4,), in_specs=[block], out_specs=block,
                          scratch_shapes=[pltpu.SMEM((2,), jnp.int32)], **more)


@pytest.mark.parametrize("kernel", [fori, decorated, while_, handed_on, inside_another])
@pytest.mark.parametrize("more", [{}, {"backend": "simulate"}], ids=str)
def test_a_loop_of_rounds_that_nobody_wrote_is_named(kernel, more):
    with pytest.warns(pl.HazardWarning, match="the kernel reads n before it has written it"):
        call(kernel, **more)(X)


@pytest.mark.parametrize("kernel", [fori, decorated, while_])
def test_nor_does_it_hang_where_nobody_looks(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for got in (jax.jit(call(kernel))(X), call(kernel, on_hazard="ignore")(X)):
            np.testing.assert_array_equal(got, X)


def test_only_what_decides_a_loop_holds_small_numbers():
    def decides(kernel):
        body = call(kernel).trace(X).body
        assert body.counts == decides_loops(body._kernel, body._refs) - {0, 1}  # these are no integers
        return body.counts
    assert [decides(k) for k in (fori, decorated, while_, handed_on, inside_another)] == [{2}] * 5
    assert decides(added) == set()
    got = call(added, on_hazard="ignore")(X)
    assert got[8, 0] > 2**30, "as before: the largest integer"


def test_rounds_that_are_written_first_are_right():
    def kernel(x_ref, o_ref, n):
        @pl.when(pl.program_id(0) == 0)
        def _():
            n[0] = 3
        fori(x_ref, o_ref, n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(call(kernel)(X), X + 3)


@pytest.mark.parametrize("kernel, most", [(fori, 8192), (decorated, 8192), (while_, 100)])
def test_a_kernel_with_copies_of_its_own_stops(monkeypatch, kernel, most):
    assert loops.MOST == 8192  # of a while_loop's rounds each takes milliseconds
    monkeypatch.setattr(loops, "MOST", most)

    def copies(x_hbm, o_ref, n, buf, sem):
        pltpu.async_copy(x_hbm, buf, sem).wait()
        kernel(buf, o_ref, n)
    f = pl.pallas_call(copies, jax.ShapeDtypeStruct((8, 128), X.dtype), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                       scratch_shapes=[pltpu.SMEM((1,), jnp.int32), pltpu.VMEM((8, 128), X.dtype),
                                       pltpu.SemaphoreType.DMA])
    what = f"a loop runs more than {most:,} times after the kernel has read memory that nobody had written"
    with pytest.raises(pl.PipelineError, match=f"(?s){what}.*the kernel reads n .*Write it, or copy something into it"):
        f(X[:8])
    assert f.trace(X[:8]).hazards[-1].kind == "hang"
    with pytest.raises(pl.PallasLiteError, match=what):
        jax.jit(f)(X[:8])
