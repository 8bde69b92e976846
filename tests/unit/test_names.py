"""Every public name of Pallas is here, or its absence says the nearest way; and nothing else is here by accident."""
import pkgutil
import subprocess
import sys

import pytest
from jax.experimental import pallas as upstream_pl
from jax.experimental.pallas import tpu as upstream_pltpu

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.errors import MissingError, MissingModule

# What pallas_lite has and Pallas has not, on purpose.
OURS = {
    "pl": {"BlockIndexError", "Event", "Hazard", "HazardWarning", "InterpretParams", "NotSupportedError",
           "PallasLiteError", "PipelineError", "Rolled", "Schedule", "SpecError", "Timeline", "View", "block_tuner",
           "compute", "copy_in_start", "copy_in_wait", "copy_out_start", "copy_out_wait", "derivation_stepper",
           "execute", "explore", "hardware", "observe_calls", "plot_grid", "plot_listing", "plot_roofline",
           "plot_slots", "plot_sweep", "plot_timeline", "provenance", "record", "schedule_explorer", "show", "timeline",
           "verify"},
    "pltpu": {"AsyncCopy"},
}
PAIRS = {"pl": (pl, upstream_pl), "pltpu": (pltpu, upstream_pltpu)}
# Names of older and newer versions of Pallas than the one that is installed.
OTHER_VERSIONS = {"pl": ["load", "store", "dot", "core_map", "DeviceIdType", "Unblocked", "unblocked", "atomic_add",
                         "atomic_cas", "max_contiguous", "swap", "gpu"],
                  "pltpu": ["ANY", "TPUCompilerParams", "TPUInterpretParams", "TPUMemorySpace", "repeat", "conv",
                            "DeviceIdType", "run_scoped", "delay", "semaphore_read", "semaphore_signal", "trace",
                            "strided_load", "rotate", "HOST", "device_id", "get_pipeline_schedule"]}


def public(module):
    return {name for name in dir(module) if not name.startswith("_")}


@pytest.mark.parametrize("module, name", [
    (m, name) for m, (_, upstream) in PAIRS.items() for name in sorted({*public(upstream), *OTHER_VERSIONS[m]})])
def test_every_name_of_pallas_is_here_or_says_the_nearest_way(module, name):
    try:
        assert getattr(PAIRS[module][0], name) is not None
    except (MissingError, MissingModule) as e:
        text = str(e)
        assert text.startswith(f"pallas_lite{'.tpu' if module == 'pltpu' else ''}.{name} is not supported here. ")
        assert text.endswith(".") and len(text.partition(" here. ")[2].split()) > 1


@pytest.mark.parametrize("module", PAIRS)
def test_no_stray_names(module):
    ours, upstream = PAIRS[module]
    rooms = {m.name for m in pkgutil.iter_modules(pl.__path__)} if module == "pl" else set()
    assert public(ours) - public(upstream) - rooms - set(OTHER_VERSIONS[module]) == OURS[module] - rooms, \
        "a public name that Pallas has not: give it Pallas' name, hide it behind a _, or put it into OURS"


def test_what_draws_is_imported_when_something_is_drawn():
    """matplotlib takes half a second, which who debugs a kernel, and each sandbox, would wait for."""
    code = """if True:
        import sys, pallas_lite as pl
        drawing = {"matplotlib", "ipywidgets", "IPython"}
        assert not drawing & {*sys.modules}, drawing & {*sys.modules}
        pl.plot_grid, pl.explore
        assert "matplotlib" in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_nobody_has_is_an_ordinary_error():
    for module in (pl, pltpu):
        with pytest.raises(AttributeError, match="has no attribute 'no_such_name'") as e:
            _ = module.no_such_name
        assert not isinstance(e.value, MissingError)


@pytest.mark.parametrize("name", ["triton", "mosaic_gpu", "gpu"])
def test_the_import_of_a_gpu_half_says_what_there_is(name):
    with pytest.raises(ImportError, match=f"pallas_lite.{name} is not supported here. Kernels of one TPU core are "
                                          r'simulated: .* f\.trace\(x\)\.lower\("triton"\)'):
        exec(f"from pallas_lite import {name} as plgpu")
