"""Long pipelines stay quick: how many Python functions a step enters is counted, as seconds differ between machines."""
import sys
from collections.abc import Callable

import jax

import pallas_lite as pl
from pallas_lite import tpu as pltpu


def calls_of(function: Callable) -> int:
    """How many Python functions are entered while it runs."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def calls_on_the_way(steps: int) -> dict[str, int]:
    """The same of each part of the way from a call of this many steps to its modelled time."""
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((8 * steps, 128), "float32")
    call = pl.pallas_call(add, shape, grid=steps, in_specs=[spec, spec], out_specs=spec)
    specs = calls_of(lambda: call.trace(shape, shape))
    traced = call.trace(shape, shape)  # which the call has kept
    return {"specs": specs, "kernel": calls_of(lambda: traced.body),
            "schedule": calls_of(lambda: traced.schedule), "verdict": calls_of(lambda: traced.hazards),
            "timeline": calls_of(lambda: traced.timeline(pl.hardware.TPU_V5E))}


def test_a_step_enters_few_python_functions():
    calls_on_the_way(2)  # JAX's own first-time work
    short, long = calls_on_the_way(500), calls_on_the_way(1500)
    each = {part: round((long[part] - short[part]) / 1000) for part in long}
    # The index of each of the three operands: its map, and who asks it. Recording: who yields the step, and what.
    assert each == {"specs": 6, "kernel": 0, "schedule": 3, "verdict": 0, "timeline": 0}


def test_twice_as_many_copies_of_a_kernels_own_enter_twice_as_many():
    def calls_with(n):
        def kernel(x_hbm, o_hbm, buffer, sem):
            for i in range(n):
                pltpu.sync_copy(x_hbm.at[pl.ds(8 * i, 8)], buffer)
                pltpu.sync_copy(buffer, o_hbm.at[pl.ds(8 * i, 8)])
        in_hbm = pl.BlockSpec(memory_space=pl.ANY)
        x = jax.ShapeDtypeStruct((8 * n, 128), "float32")
        call = pl.pallas_call(kernel, x, in_specs=[in_hbm], out_specs=in_hbm,
                              scratch_shapes=[pltpu.VMEM((8, 128), "float32"), pltpu.SemaphoreType.DMA])
        return calls_of(lambda: call.trace(x).schedule)
    calls_with(2)
    few, some, many = map(calls_with, (20, 40, 80))
    assert many - some < 2.2 * (some - few)
