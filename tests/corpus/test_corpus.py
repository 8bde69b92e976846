"""Every kernel of the corpus, unchanged under real Pallas and under pallas_lite."""
import contextlib
import functools
import re
import types
import warnings

import jax
import numpy as np
import pytest
from jax.experimental import pallas as upstream_pl
from jax.experimental.pallas import tpu as upstream_pltpu

import pallas_lite
from pallas_lite import tpu as pallas_lite_tpu

from . import load_all

CASES = load_all()
ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}  # sums may be taken in another order; the rest is exact


# emit_pipeline asks which TPU it is for.
A_TPU = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=jax.sharding.AbstractDevice(
    platform="tpu", device_kind="TPU v5 lite", num_cores=1)))


@pytest.fixture(autouse=True, scope="module")
def compile_quickly():
    """Most of the time goes into compiling small programs that run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def upstream_modules(interpret):
    """Upstream's modules, with `interpret` given to each pallas_call: there is no TPU here to run it on."""
    pl = types.SimpleNamespace(**{n: getattr(upstream_pl, n) for n in dir(upstream_pl)})
    pl.pallas_call = functools.partial(upstream_pl.pallas_call, interpret=interpret)
    return pl, upstream_pltpu


@functools.cache
def upstream_result(case):
    """What real Pallas gives. Kept, since tests/lowering asks again."""
    interpret = {"interpret": True, "tpu": upstream_pltpu.InterpretParams(), "lower": False}[case.upstream]
    call, operands = case.build(*upstream_modules(interpret))
    if case.upstream == "lower":
        return jax.export.export(jax.jit(call), platforms=["tpu"])(*operands).out_avals
    with A_TPU if case.upstream == "tpu" else contextlib.nullcontext():
        return call(*operands)


def compare(got, want):
    unspecified = np.ma.getmaskarray(want)
    got, want = np.asarray(got)[~unspecified], np.asarray(np.ma.getdata(want))[~unspecified]
    tolerance = ROUNDING.get(str(got.dtype), 0)
    if got.dtype.kind not in "biu":
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_runs_unchanged(name):
    case = CASES[name]
    theirs = upstream_result(case)
    call, operands = case.build(pallas_lite, pallas_lite_tpu)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = call(*operands)
    hazards = "\n".join(str(w.message) for w in caught if issubclass(w.category, pallas_lite.HazardWarning))
    assert re.search(case.hazard, hazards) if case.hazard else not hazards, f"hazards reported: {hazards or 'none'}"

    want = case.expected(*operands) if case.expected else theirs
    if case.upstream != "lower":
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    ours, theirs, want = map(jax.tree.leaves, (ours, theirs, want))
    assert [(x.shape, str(x.dtype)) for x in ours] == [(x.shape, str(x.dtype)) for x in theirs]
    assert len(want) == len(ours)
    for a, b in zip(ours, want, strict=True):
        compare(a, b)
