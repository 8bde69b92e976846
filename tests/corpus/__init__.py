"""The corpus: kernels as their authors write them, run unchanged under real Pallas and under pallas_lite.

A case is a function of the two modules that returns a call and its operands (NumPy arrays, random and not symmetric):

    @case
    def add(pl, pltpu):
        def kernel(x_ref, y_ref, o_ref):
            o_ref[...] = x_ref[...] + y_ref[...]
        return pl.pallas_call(kernel, ...), (normal(8, 128), normal(8, 128, seed=1))

test_corpus.py runs it under both and compares values, shapes, dtypes and containers; pallas_lite must report no hazard.
Where upstream's interpreter is wrong or silent, the registration says so:

    @case(expected=f)          f(*operands) is a NumPy account of the contract; upstream must still run the kernel.
                               Cells that the contract leaves open are masked (np.ma).
    @case(hazard="text")       pallas_lite must warn of a hazard with this text (a regular expression)
    @case(upstream=...)        "interpret": interpret=True (the default); "tpu": interpret=pltpu.InterpretParams();
                               "lower": only lowered for a TPU, so it needs `expected`
"""
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

CASES: dict[str, "Case"] = {}


@dataclass(frozen=True)
class Case:
    build: Callable  # (pl, pltpu) -> (callable, operands)
    expected: Callable | None = None
    hazard: str | None = None
    upstream: str = "interpret"


def case(build=None, *, expected=None, hazard=None, upstream="interpret"):
    """Register a kernel (see the module's text)."""
    assert upstream in ("interpret", "tpu") or upstream == "lower" and expected

    def register(build):
        name = f"{build.__module__.rpartition('.')[2]}.{build.__name__}"
        assert name not in CASES, f"two cases are called {name}"
        CASES[name] = Case(build, expected, hazard, upstream)
        return build
    return register(build) if build is not None else register


def shape(*dims, dtype=np.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(low, high, *shape, dtype=np.int32, seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def load_all() -> dict[str, Case]:
    """Import every file of cases in this package."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        if not module.name.rpartition(".")[2].startswith("test_"):
            importlib.import_module(module.name)
    return CASES
