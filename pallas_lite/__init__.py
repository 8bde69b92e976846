"""pallas_lite: Pallas' grid, BlockSpec and pipelines, to see, check and time on a laptop.

    import pallas_lite as pl      # in place of: from jax.experimental import pallas as pl

One call, from top to bottom: call.py (what is asked for), specs.py (operands, with a block for every step), traced.py
(what follows from them), pipeline.py on engines/record.py (the Schedule, schedule.py), verify.py and races.py
(hazards), timeline.py on clock.py (time), body.py (the kernel, traced), engines/xla.py or engines/simulate.py
(values).

Beside that: reports.py (hazards that only values tell), causes.py (why it takes so long), rolled.py (a schedule as a
loop), plot/, show.py, display.py and explorers/ (pictures), by_hand.py (pipelines written as loops), manual_dma/
(kernels with copies of their own), lowering/ (programs for TPU and GPU), tpu.py (Pallas' TPU names, nothing else).
"""
import typing as _typing
from importlib import import_module as _import_module

from jax.experimental.pallas import estimate_cost as _estimate_cost

from . import display as display
from . import hardware as hardware
from .body import debug_print as debug_print
from .body import loop as loop
from .body import multiple_of as multiple_of
from .body import num_programs as num_programs
from .body import program_id as program_id
from .body import when as when
from .by_hand import compute as compute
from .by_hand import copy_in_start as copy_in_start
from .by_hand import copy_in_wait as copy_in_wait
from .by_hand import copy_out_start as copy_out_start
from .by_hand import copy_out_wait as copy_out_wait
from .by_hand import execute as execute
from .by_hand import record as record
from .call import CostEstimate as CostEstimate
from .call import observe_calls as observe_calls
from .call import pallas_call as pallas_call
from .errors import BlockIndexError as BlockIndexError
from .errors import HazardWarning as HazardWarning
from .errors import NotSupportedError as NotSupportedError
from .errors import PallasLiteError as PallasLiteError
from .errors import PipelineError as PipelineError
from .errors import SpecError as SpecError
from .errors import missing_names as _missing_names
from .manual_dma.copies import DeviceIdType as DeviceIdType
from .manual_dma.copies import run_scoped as run_scoped
from .memory import InterpretParams as InterpretParams
from .refs import Slice as Slice
from .refs import ds as ds
from .refs import ds as dslice  # noqa: F401  (Pallas has both names)
from .rolled import Rolled as Rolled
from .schedule import Event as Event
from .schedule import Schedule as Schedule
from .show import View as View
from .show import show as show
from .specs import ANY as ANY
from .specs import Blocked as Blocked
from .specs import BlockSpec as BlockSpec
from .specs import Buffered as Buffered
from .specs import Element as Element
from .specs import GridSpec as GridSpec
from .specs import MemorySpace as MemorySpace
from .specs import Squeezed as Squeezed
from .specs import no_block_spec as no_block_spec
from .specs import squeezed as squeezed
from .timeline import Timeline as Timeline
from .timeline import timeline as timeline
from .verify import Hazard as Hazard
from .verify import provenance as provenance
from .verify import verify as verify


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up: how many blocks of b cover a."""
    return -(-a // b)


def estimate_cost(fun: _typing.Callable[..., _typing.Any], *args: _typing.Any, **kwargs: _typing.Any) -> CostEstimate:
    """What a JAX function costs on arrays or ShapeDtypeStructs, in operations and bytes: upstream counts, nothing runs.

    For `pallas_call(cost_estimate=...)`.
    """
    found = _estimate_cost(fun, *args, **kwargs)
    return CostEstimate(found.flops, found.transcendentals, found.bytes_accessed)


# Imported when they are first asked for: matplotlib takes as long as jax, and who debugs a kernel draws nothing.
_PICTURES = {"block_tuner": "explorers", "derivation_stepper": "explorers", "explore": "explorers",
             "schedule_explorer": "explorers", "plot_grid": "plot", "plot_listing": "plot", "plot_roofline": "plot",
             "plot_slots": "plot", "plot_sweep": "plot", "plot_timeline": "plot"}
_ELSEWHERE = {
    "load": "Index the ref: x_ref[...] or x_ref[pl.ds(start, size)].",
    "store": "Index the ref: o_ref[...] = value.",
    "dot": "Use jnp.dot.",
    "broadcast_to empty empty_like": "Use the function of that name in jax.numpy.",
    "reciprocal": "Divide: 1 / x.",
    "align_to next_power_of_2 strides_from_shape": "Compute it with Python integers; pl.cdiv(a, b) rounds up.",
    "semaphore semaphore_read semaphore_signal semaphore_wait":
        "Only DMA semaphores are simulated (pltpu.SemaphoreType.DMA): make_async_copy signals them, and its .wait() "
        "waits for them.",
    "core_map kernel run_state": "Use pallas_call with a grid.",
    "with_scoped empty_ref_like get_global": "Use run_scoped, or scratch_shapes of pallas_call.",
    "BoundedSlice Indirect select_ref":
        "Give Element dimensions or prefetched scalars in an index map, or keep the array in HBM "
        "(memory_space=pl.ANY) and copy what you want with make_async_copy.",
    "BlockDim": "A block dimension is an int, None, Blocked, Squeezed or Element.",
    "RevisitMode": "Blocks are copied when their index changes, whatever the mode; Buffered(n) is there.",
    "MemoryRef": "Use pltpu.VMEM(shape, dtype) or pltpu.SMEM(shape, dtype).",
    "HOST": "Operands are in HBM: pl.ANY, or pltpu.HBM.",
    "CompilerParams": "It is pltpu.CompilerParams.",
    "debug_check": "Write a flag to an output and look at it after the call, or print it: pl.debug_print(\"{}\", ok).",
    "enable_debug_checks enable_poison_buffers":
        "Unwritten memory is NaN and reads are checked, always (pltpu.InterpretParams). To look at values, use "
        "pl.debug_print.",
    "delay": "Give pallas_call a CostEstimate: a timeline follows it.",
    "lower_as_mlir pallas_export_experimental pallas_call_p":
        "Compile with jax.experimental.pallas; here, look at f.trace(x).schedule.",
    "triton mosaic_gpu gpu fuser":
        "Kernels of one TPU core are simulated: write the kernel with pallas_lite.tpu. A call without copies of its "
        'own has a program for a GPU: f.trace(x).lower("triton").',
    # Names of older versions, which published kernels use.
    "Unblocked unblocked":
        "Give Element dimensions in the block_shape, whose index is an offset: (pl.Element(8), 128).",
    "atomic_add atomic_and atomic_or atomic_xor atomic_max atomic_min atomic_cas atomic_xchg":
        'Steps along an "arbitrary" axis run one after the other: o_ref[...] += value.',
    "swap": "Read the ref, old = x_ref[...], then write it, x_ref[...] = new.",
    "max_contiguous": "It tells a compiler something, and values do not depend on it: leave it out.",
}
if _typing.TYPE_CHECKING:  # a type checker reads the names here, and says itself where one is not here
    from .explorers import block_tuner as block_tuner
    from .explorers import derivation_stepper as derivation_stepper
    from .explorers import explore as explore
    from .explorers import schedule_explorer as schedule_explorer
    from .plot import plot_grid as plot_grid
    from .plot import plot_listing as plot_listing
    from .plot import plot_roofline as plot_roofline
    from .plot import plot_slots as plot_slots
    from .plot import plot_sweep as plot_sweep
    from .plot import plot_timeline as plot_timeline
else:
    _missing = _missing_names(__name__, _ELSEWHERE)

    def __getattr__(name: str):
        if name in _PICTURES:
            globals()[name] = found = getattr(_import_module(f".{_PICTURES[name]}", __name__), name)
            return found
        return _missing(name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PICTURES})
