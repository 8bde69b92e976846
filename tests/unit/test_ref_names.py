"""What messages and schedules call a kernel's refs: what the kernel calls them."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu

X = np.ones((8, 128), np.float32)
OUT = jax.ShapeDtypeStruct(X.shape, X.dtype)
VMEM = pltpu.VMEM((8, 128), jnp.float32)


def plain(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def keyword(x_ref, y_ref, o_ref, *, nk):
    plain(x_ref, y_ref, o_ref)


def default(x_ref, y_ref, o_ref, nk=3):
    plain(x_ref, y_ref, o_ref)


def in_front(nk, x_ref, y_ref, o_ref):
    plain(x_ref, y_ref, o_ref)


def any_number(*refs):
    plain(*refs)


def nameless(_, y_ref, o_ref):
    plain(_, y_ref, o_ref)


def twins(x_ref, x, o_ref):
    plain(x_ref, x, o_ref)


@pytest.mark.parametrize("kernel, names", [
    (plain, "x y o"), (partial(keyword, nk=3), "x y o"), (partial(default, nk=3), "x y o"), (default, "x y o"),
    (partial(in_front, 3), "x y o"), (any_number, "in0 in1 out0"), (nameless, "in0 in1 out0"), (twins, "in0 in1 out0"),
])
def test_refs_are_called_as_the_kernels_parameters(kernel, names):
    assert pl.pallas_call(kernel, OUT).trace(X, X).names == tuple(names.split())


def test_a_matmul_with_a_keyword_partial_is_spoken_of_in_its_own_names():
    def matmul(x_ref, w_ref, o_ref, acc_ref, *, nk):
        acc_ref[...] += x_ref[...] @ w_ref[...]
        o_ref[...] = acc_ref[...]

    f = pl.pallas_call(partial(matmul, nk=1), OUT, scratch_shapes=[VMEM])
    with pytest.warns(pl.HazardWarning, match=r"output o: o\[0:8, 0:128\].* the kernel reads acc before"):
        f(X, np.ones((128, 128), np.float32))


@pytest.mark.parametrize("scratch", [[VMEM, VMEM], {"b": VMEM, "a": VMEM}], ids=["list", "dict"])
def test_scratch_has_the_names_of_its_parameters(scratch):
    def kernel(x_ref, o_ref, a, b, *, n=1):
        o_ref[...] = x_ref[...]
    assert pl.pallas_call(kernel, OUT, scratch_shapes=scratch).trace(X).names == ("x", "o", "a", "b")


def test_the_parts_of_a_tree_have_the_names_of_their_ways():
    def kernel(p_ref, pair, o_ref):
        o_ref["sum"][...] = p_ref["k"][...] + p_ref["v"][...] + pair[0][...]
        o_ref["other"][...] = pair[1][...]

    f = pl.pallas_call(kernel, {"sum": OUT, "other": OUT})
    traced = f.trace({"v": X, "k": X}, (X, 2 * X))
    assert traced.names == ("p_k", "p_v", "pair_0", "pair_1", "o_other", "o_sum")
    assert "copy_in_start(p_k[0, 0] → p_k[0])" in str(traced.schedule.rolled())
    result = f({"v": X, "k": X}, (X, 2 * X))
    assert (result["sum"] == 3).all() and (result["other"] == 2).all()


def test_what_run_scoped_allocates_has_the_names_of_its_functions_parameters():
    def kernel(x_hbm, o_hbm):
        def inside(buf, sem, *, acc, n=3):
            pltpu.make_async_copy(x_hbm, buf, sem).start()
        pl.run_scoped(inside, VMEM, pltpu.SemaphoreType.DMA, acc=VMEM)

    hbm = pl.BlockSpec(memory_space=pl.ANY)
    found = pl.pallas_call(kernel, OUT, in_specs=[hbm], out_specs=hbm).trace(X).hazards
    assert "make_async_copy(x_hbm, buf, sem).wait()" in found[0].mend
