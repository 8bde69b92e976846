"""The examples in docstrings run."""
import doctest
import importlib
import pkgutil

import pytest

import pallas_lite

MODULES = ["pallas_lite", *(m.name for m in pkgutil.walk_packages(pallas_lite.__path__, "pallas_lite."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if name in ("pallas_lite.lowering.mosaic_gpu", "pallas_lite.lowering.replay"):
        pytest.importorskip("absl")  # of the [gpu] extra
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs={"TOY": pallas_lite.hardware.TOY}).failed == 0
