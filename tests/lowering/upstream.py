"""Upstream's TPU interpreter, as the tests use it: a race that it finds is a failure, and DMAs are counted.

Its race flag and its callbacks have no public name, so this one file reaches into its module.
"""
import contextlib
import dataclasses
import sys
from unittest import mock

import jax
from jax.experimental.pallas import tpu as pltpu

# The clock must be large: at the default size the detector misses a missing wait-out. By default a copy happens when it
# is waited for, so what nobody waits for never happens: that shows in the values. EAGER shows it to the detector.
PARAMS = pltpu.InterpretParams(detect_races=True, vector_clock_size=64)
EAGER = dataclasses.replace(PARAMS, dma_execution_mode="eager")
# Interpreted programs run once, so that compiling is what takes time. jax 0.12 has the second choice no more.
OLDEST = jax.__version_info__ < (0, 11)
QUICK = {"xla_backend_optimization_level": 0} | ({"xla_cpu_use_fusion_emitters": False} if OLDEST else {})
RACE = "upstream's detector found a race"
_interpreter = sys.modules[pltpu.reset_tpu_interpret_mode_state.__module__]


@contextlib.contextmanager
def interpreter():
    """Programs run with PARAMS inside. Gives a list that grows by one with every DMA; raises if a race was found."""
    started, start = [], _interpreter.dma_start

    def dma_start(*arguments, **more):
        started.append(arguments)
        return start(*arguments, **more)
    try:
        with mock.patch.object(_interpreter, "dma_start", dma_start):
            yield started
        assert not started or not _interpreter.races.races_found, RACE
    except Exception as error:  # jax 0.12 raises
        if "RACE DETECTED" in str(error):
            raise AssertionError(RACE) from error
        raise
    finally:
        pltpu.reset_tpu_interpret_mode_state()
