"""Fixtures: what the tests of GPU programs ask of the machine."""
import importlib.util

import pytest
from jax.experimental import topologies

from pallas_lite.lowering import cuda
from tests.conftest import require

from .gpu import looking_for_races, races


@pytest.fixture(scope="module")
def compiler():
    """The CUDA compiler: skip where it is missing, fail in CI."""
    try:
        topologies.get_topology_desc(platform="cuda", target_config=cuda.CHIPS["h200"], topology="1x1x1")
        found = True
    except Exception:  # noqa: BLE001
        found = False
    return require(found, "the CUDA compiler, pallas_lite[gpu],")


@pytest.fixture(scope="module")
def dialect():
    """Mosaic GPU: a part of jax that needs absl-py."""
    require(importlib.util.find_spec("absl"), "absl-py, of pallas_lite[gpu],")


@pytest.fixture
def interpreter(dialect):
    """Mosaic GPU's interpreter. A race that it finds fails the test."""
    yield looking_for_races()
    assert races() is False
