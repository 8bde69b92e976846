"""tpu: Pallas' TPU names.

    from pallas_lite import tpu as pltpu     # in place of: from jax.experimental.pallas import tpu as pltpu
"""
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import missing_names as _missing_names
from .manual import AsyncCopy as AsyncCopy
from .manual import async_copy as async_copy
from .manual import emit_pipeline as emit_pipeline
from .manual import make_async_copy as make_async_copy
from .manual import make_async_remote_copy as make_async_remote_copy
from .manual import sync_copy as sync_copy
from .memory import InterpretParams as InterpretParams
from .specs import HBM as HBM
from .specs import SMEM as SMEM
from .specs import VMEM as VMEM
from .specs import GridSpec, SpecError
from .specs import MemorySpace as MemorySpace
from .specs import SemaphoreType as SemaphoreType


class PrefetchScalarGridSpec(GridSpec):
    """A GridSpec whose first `num_scalar_prefetch` operands are integers in SMEM that index maps may read.

    Index maps take them as refs after the grid indices, and so does the kernel, before its other refs.
    """

    def __init__(self, num_scalar_prefetch: int, grid=(), in_specs=None, out_specs=None, scratch_shapes=()):
        if not isinstance(num_scalar_prefetch, int) or num_scalar_prefetch < 0:
            raise SpecError(f"num_scalar_prefetch={num_scalar_prefetch!r}: how many of the first operands are "
                            "prefetched.")
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        object.__setattr__(self, "num_scalar_prefetch", num_scalar_prefetch)


class GridDimensionSemantics(enum.Enum):
    """What `dimension_semantics` says of a grid axis: may its steps run in any order, or split over cores?"""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"

    def __str__(self) -> str:
        return self.value


PARALLEL, CORE_PARALLEL, SUBCORE_PARALLEL, ARBITRARY = GridDimensionSemantics


@dataclass(frozen=True)
class CompilerParams:
    """What to tell the TPU compiler. `dimension_semantics`: "parallel" or "arbitrary" for each grid axis.

    All of upstream's settings are taken; those below "vmem_limit_bytes" change nothing here.
    """

    dimension_semantics: Sequence[str | GridDimensionSemantics] | None = None
    allow_input_fusion: Sequence[bool] | None = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: Any = False
    flags: Mapping[str, Any] | None = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False
    opt_level: Any = None


__getattr__ = _missing_names("pallas_lite.tpu", {
    "ANY": "It is pl.ANY.",
    "TPUInterpretParams": "It is InterpretParams.",
    "TPUCompilerParams": "It is CompilerParams.",
    "TPUMemorySpace": "It is MemorySpace.",
    "get_barrier_semaphore": "Several chips are not simulated.",
    "semaphore_signal": "Only DMA semaphores are simulated, and make_async_copy signals them.",
    "semaphore_wait": "Only DMA semaphores are simulated: make_async_copy(...).wait().",
    "repeat": "Use jnp.tile.",
    "roll": "Use jnp.roll.",
})
