"""tpu: Pallas' TPU names.

    from pallas_lite import tpu as pltpu     # in place of: from jax.experimental.pallas import tpu as pltpu
"""
import enum as _enum
import typing as _typing
from collections.abc import Sequence as _Sequence
from dataclasses import dataclass as _dataclass

from .errors import missing_names as _missing_names
from .manual_dma.copies import AsyncCopy as AsyncCopy
from .manual_dma.copies import async_copy as async_copy
from .manual_dma.copies import emit_pipeline as emit_pipeline
from .manual_dma.copies import make_async_copy as make_async_copy
from .manual_dma.copies import make_async_remote_copy as make_async_remote_copy
from .manual_dma.copies import sync_copy as sync_copy
from .memory import InterpretParams as InterpretParams
from .specs import HBM as HBM
from .specs import SMEM as SMEM
from .specs import VMEM as VMEM
from .specs import Grid as _Grid
from .specs import GridSpec as _GridSpec
from .specs import MemorySpace as MemorySpace
from .specs import ScratchShapes as _ScratchShapes
from .specs import SemaphoreType as SemaphoreType
from .specs import SpecError as _SpecError
from .specs import Specs as _Specs


class PrefetchScalarGridSpec(_GridSpec):
    """A GridSpec whose first `num_scalar_prefetch` operands are integers in SMEM that index maps may read.

    Index maps take them as refs after the grid indices, and so does the kernel, before its other refs. Under jax.jit,
    where the scalars are traced, the blocks are known only when the call runs: indices and races are then unchecked.
    """

    def __init__(self, num_scalar_prefetch: int, grid: _Grid = (), in_specs: _Specs = None, out_specs: _Specs = None,
                 scratch_shapes: _ScratchShapes = ()) -> None:
        if not isinstance(num_scalar_prefetch, int) or num_scalar_prefetch < 0:
            raise _SpecError(f"num_scalar_prefetch={num_scalar_prefetch!r}: how many of the first operands are "
                            "prefetched.")
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        object.__setattr__(self, "num_scalar_prefetch", num_scalar_prefetch)


# What `dimension_semantics` says of a grid axis: may its steps run in any order, or be split over cores?
GridDimensionSemantics = _enum.Enum("GridDimensionSemantics", "PARALLEL CORE_PARALLEL SUBCORE_PARALLEL ARBITRARY")
PARALLEL, CORE_PARALLEL, SUBCORE_PARALLEL, ARBITRARY = GridDimensionSemantics


@_dataclass(frozen=True)
class CompilerParams:
    """What to tell the TPU compiler.

    `dimension_semantics`: "parallel" or "arbitrary" for each grid axis. `vmem_limit_bytes`: how much VMEM the kernel
    may take. Upstream's other settings are taken, and change nothing here.
    """

    dimension_semantics: _Sequence[str | GridDimensionSemantics] | None = None
    allow_input_fusion: object = None
    vmem_limit_bytes: int | None = None
    collective_id: object = None
    has_side_effects: object = None
    flags: object = None
    internal_scratch_in_bytes: object = None
    serialization_format: object = None
    disable_bounds_checks: object = None
    disable_semaphore_checks: object = None
    skip_device_barrier: object = None
    allow_collective_id_without_custom_barrier: object = None
    shape_invariant_numerics: object = None
    use_tc_tiling_on_sc: object = None
    needs_layout_passes: object = None
    fuse_transposed_lhs_in_matmul: object = None
    opt_level: object = None


_ELSEWHERE = {
    "ANY": "It is pl.ANY.",
    "DeviceIdType": "It is pl.DeviceIdType.",
    "run_scoped": "It is pl.run_scoped.",
    "HOST": "Operands are in HBM: pl.ANY, or HBM.",
    "delay": "Give pallas_call a CostEstimate: a timeline follows it.",
    "trace": "Use jax.named_scope.",
    "device_id": "One chip is simulated, and it is 0.",
    "strided_load strided_store": "Index the ref with pl.ds(start, size, stride).",
    "get_pipeline_schedule make_pipeline_allocations": "Use emit_pipeline.",
    "TPUInterpretParams": "It is InterpretParams.",
    "TPUCompilerParams": "It is CompilerParams.",
    "TPUMemorySpace": "It is MemorySpace.",
    "CMEM SEMAPHORE VMEM_SHARED ACC Tiling": "Memory is VMEM, SMEM or HBM here, in the array's own layout.",
    "dma_semaphore": "It is SemaphoreType.DMA.",
    "semaphore semaphore_read semaphore_signal semaphore_wait get_barrier_semaphore core_barrier":
        "Only DMA semaphores are simulated (SemaphoreType.DMA): make_async_copy signals them, and its .wait() waits "
        "for them.",
    "async_remote_copy": "Use make_async_remote_copy(...).start().",
    "load store": "Index the ref: x_ref[...], o_ref[...] = value; jnp.where takes the place of a mask.",
    "roll rotate dynamic_rotate": "Use jnp.roll.",
    "repeat": "Use jnp.tile.",
    "reciprocal": "Divide: 1 / x.",
    "einshape": "Use jnp.reshape and jnp.transpose.",
    "bitcast pack_elementwise unpack_elementwise join_bits split_bits pack_fp6 unpack_fp6":
        "Use jax.lax.bitcast_convert_type, shifts and masks.",
    "conv matmul_acc_lhs matmul_lhs_fifo matmul_pop matmul_pop_fifo matmul_push_rhs":
        "Use jnp.dot, or jax.lax.conv_general_dilated.",
    "prng_random_bits prng_seed stateful_bernoulli stateful_bits stateful_normal stateful_uniform sample_block "
    "stochastic_round to_pallas_key": "Make random numbers with jax.random outside, and pass them as an input.",
    "BufferType BufferedRef BufferedRefBase PipelineStep emit_pipeline_with_allocations "
    "emit_pipeline_with_async_prefetch": "Use emit_pipeline, or a pipeline of your own with make_async_copy.",
    "TensorCoreMesh create_tensorcore_mesh CoreType run_on_first_core core":
        'One core is simulated: use pallas_call, and mark the grid axes that cores may share "parallel" in '
        "dimension_semantics.",
    "ChipVersion TpuInfo get_tpu_info get_tpu_info_for_chip is_tpu_device":
        "Machines are in pl.hardware, as pl.hardware.TPU_V5E.",
    "force_tpu_interpret_mode set_tpu_interpret_mode reset_tpu_interpret_mode_state":
        "Calls are always simulated; pallas_call(..., interpret=pltpu.InterpretParams(...)) sets how.",
    "LoweringException SideEffectType annotate touch trace_value has_memory_space with_memory_space_constraint":
        "It tells the TPU compiler something, and values do not depend on it: leave it out.",
}
if not _typing.TYPE_CHECKING:  # a type checker says itself that a name is not here
    __getattr__ = _missing_names("pallas_lite.tpu", _ELSEWHERE)
