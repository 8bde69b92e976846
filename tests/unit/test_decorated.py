"""Functions in wrappers: what is called decides whether it fits, not what functools.wraps says of it. As upstream."""
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as upstream

import pallas_lite as pl
from pallas_lite.call import first_call

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def scaled(scale, x_ref, o_ref):
    o_ref[...] = x_ref[...] * scale


def double(x_ref, o_ref):
    scaled(2.0, x_ref, o_ref)


def by_keyword(x_ref, o_ref, *, scale=2.0):
    scaled(scale, x_ref, o_ref)


@functools.wraps(scaled)
def star(*refs):
    scaled(2.0, *refs)


@functools.wraps(scaled)
def named(a_ref, b_ref):
    scaled(2.0, a_ref, b_ref)


@functools.wraps(scaled)
def signed(*refs):
    scaled(2.0, *refs)


signed.__signature__ = inspect.signature(scaled)


class Scale:
    def __init__(self):
        functools.update_wrapper(self, scaled)

    def __call__(self, *refs):
        scaled(2.0, *refs)

    @functools.wraps(scaled)
    def method(self, *refs):
        scaled(2.0, *refs)

    @staticmethod
    def static(x_ref, o_ref):
        double(x_ref, o_ref)

    partial = functools.partialmethod(lambda self, *a: scaled(*a), 2.0)


KERNELS = {
    "wraps, *refs": star, "wraps, its own names": named, "a signature that somebody wrote": signed,
    "a callable object": Scale(), "a bound method": Scale().method, "a static method": Scale.static,
    "a partialmethod": Scale().partial, "a partial": functools.partial(scaled, 2.0),
    "a partial by keyword": functools.partial(by_keyword, scale=2.0), "keyword-only": by_keyword,
    "wraps of a partial": functools.wraps(functools.partial(scaled, 2.0))(lambda *refs: double(*refs)),
    "wraps of a jit": functools.wraps(jax.jit(scaled))(lambda *refs: double(*refs)),
    "a jit": jax.jit(double), "a jit of wraps": jax.jit(star),
    "a partial of a jit": functools.partial(jax.jit(scaled), 2.0),
}


def call_of(pallas, kernel, index_map=lambda i: (i, 0)):
    spec = pallas.BlockSpec((4, 4), index_map)
    return pallas.pallas_call(kernel, jax.ShapeDtypeStruct((8, 4), jnp.float32), grid=(2,), in_specs=[spec],
                              out_specs=spec, interpret=True)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_is_what_is_called(kernel):
    got = call_of(pl, kernel)(X)
    np.testing.assert_array_equal(got, 2 * X)
    np.testing.assert_array_equal(got, call_of(upstream, kernel)(X))


@pytest.mark.parametrize("kernel", [scaled, functools.wraps(double)(lambda x_ref: None), jax.jit(scaled),
                                    functools.partial(scaled, 1.0, 2.0)])
def test_what_does_not_fit_is_refused_by_its_own_parameters(kernel):
    with pytest.raises(pl.SpecError, match=r"\((scale, x_ref, o_ref|x_ref|o_ref)\) does not fit the call, which gives "
                                           "it 2 refs"):
        call_of(pl, kernel).trace(X)


def test_names_are_those_of_what_is_called_or_else_of_what_it_wraps():
    names = [call_of(pl, kernel).trace(X).names for kernel in (
        named, functools.wraps(double)(lambda *refs: double(*refs)), star)]
    assert names == [("a", "b"), ("x", "o"), ("in0", "out0")]


def test_index_maps_too_are_what_is_called():
    def general(j, i):
        return i, j
    maps = [functools.wraps(general)(lambda *i: general(0, *i)), functools.partial(general, 0),
            functools.partial(jax.jit(general), 0)]
    for index_map in maps:
        for pallas in (pl, upstream):
            np.testing.assert_array_equal(call_of(pallas, double, index_map)(X), 2 * X)


def test_a_helper_under_jit_is_named():
    @jax.jit
    def helper(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    def kernel(x_ref, o_ref):
        helper(x_ref, o_ref)
    with pytest.raises(pl.SpecError, match=r"helper is under jax.jit, which takes values, and no refs of this package. "
                                           r"Read them first, x_ref\[...\], or call helper.__wrapped__ on the refs"):
        call_of(pl, kernel)(X)

    def mended(x_ref, o_ref):
        helper.__wrapped__(x_ref, o_ref)
    np.testing.assert_array_equal(call_of(pl, mended)(X), X)


def test_a_function_that_makes_a_call_is_what_is_called():
    def model(n, x, *, bm=4):
        return n * pl.pallas_call(double, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(len(x) // bm,),
                                  in_specs=[pl.BlockSpec((bm, 4), lambda i: (i, 0))],
                                  out_specs=pl.BlockSpec((bm, 4), lambda i: (i, 0)))(x)

    def timed(f):
        @functools.wraps(f)
        def around(*args, **kwargs):
            return f(*args, **kwargs)
        return around

    class Layer:
        @timed
        def method(self, x, *, bm=4):
            return model(2, x, bm=bm)

    ran = timed(jax.jit(lambda x, *, bm=4: model(2, x, bm=bm), static_argnames="bm"))
    ran(X)  # jax.jit does not make the call again
    for f in (functools.wraps(model)(lambda x, *, bm=4: model(2, x, bm=bm)), Layer().method, ran,
              functools.partial(jax.jit(model, static_argnums=0, static_argnames="bm"), 2)):
        assert first_call(f, X, bm=2)[0].grid == (4,)
        assert pl.explore(f, X, bm=2).trace.call.grid == (4,)
        assert pl.explore(f, X, view="tuner", bm=(2, 4)).best
