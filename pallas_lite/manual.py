"""manual: copies that a kernel starts itself, buffers that it allocates, and pipelines inside it.

These need a machine that runs the kernel step by step (engines/step.py); while a kernel is only traced they raise
NeedsStepping, and call.py goes there.
"""
import contextvars
import itertools
from dataclasses import dataclass
from typing import Any

from . import specs as _specs
from .body import NeedsStepping, position
from .errors import NotSupportedError, PallasLiteError, SpecError
from .refs import Ref

machine = contextvars.ContextVar("the machine that steps through the running kernel", default=None)


def _machine(what):
    if machine.get() is None:
        if position() is None:
            raise PallasLiteError(f"{what} is only meaningful inside a kernel that pallas_call runs.")
        raise NeedsStepping(what)
    return machine.get()


@dataclass(frozen=True)
class AsyncCopy:
    """A copy between two refs, guarded by a DMA semaphore. In flight from `start()` until `wait()` returns."""

    source: Ref
    target: Ref
    semaphore: Ref

    def start(self) -> None:
        """Start the copy: from now on it is in flight."""
        _machine("start").copy_start(self)

    def wait(self) -> None:
        """Wait until the semaphore has had as many bytes as the target holds, and take them from it."""
        _machine("wait").copy_wait(self)


def make_async_copy(src_ref, dst_ref, sem) -> AsyncCopy:
    """A copy that is not started yet. Raises SpecError where the two refs differ in shape or dtype."""
    _machine("make_async_copy")
    for what, ref in (("source", src_ref), ("target", dst_ref), ("semaphore", sem)):
        if not isinstance(ref, Ref):
            raise SpecError(f"make_async_copy: the {what} is {ref!r}; give a ref (x_ref or x_ref.at[...]), not a "
                            "value.")
    if src_ref.shape != dst_ref.shape or src_ref.dtype != dst_ref.dtype:
        raise SpecError(f"make_async_copy: the source is {src_ref!r} and the target {dst_ref!r}; a copy needs the same "
                        "shape and dtype on both sides. Select the part with .at[...].")
    if sem.size != 1 or not sem.memory.is_semaphore:
        raise SpecError(f"make_async_copy: {sem!r} is not one semaphore. Give SemaphoreType.DMA in scratch_shapes, or "
                        "one of several with sem.at[i].")
    return AsyncCopy(src_ref, dst_ref, sem)


def async_copy(src_ref, dst_ref, sem, *, priority: int = 0) -> AsyncCopy:
    """A copy that is started at once."""
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start()
    return copy


def sync_copy(src_ref, dst_ref) -> None:
    """A copy that is over when this returns."""
    run_scoped(lambda sem: async_copy(src_ref, dst_ref, sem).wait(), _specs.SemaphoreType.DMA)


def make_async_remote_copy(*args, **kwargs):
    """Copies between chips are not simulated yet."""
    raise NotSupportedError("make_async_remote_copy is not supported yet. Model the neighbour's buffer as another "
                            "operand, and copy to it with make_async_copy.")


def run_scoped(f, *types, **kw_types) -> Any:
    """Allocate buffers and semaphores, call `f` on their refs, and free them. Returns what `f` returns."""
    here = _machine("run_scoped")
    return f(*(here.allocate(t) for t in types), **{name: here.allocate(t, name) for name, t in kw_types.items()})


def emit_pipeline(body, *, grid, in_specs=(), out_specs=(), **unused):
    """A pipeline inside a kernel: call the result on HBM refs, inputs first. Its body gets refs of blocks in SRAM.

    The same pipeline as pallas_call's; program_id and num_programs inside the body are this pipeline's.
    """
    _machine("emit_pipeline")
    grid = _specs.normalize_grid(grid)
    in_specs = list(in_specs) if isinstance(in_specs, (list, tuple)) else [in_specs]
    out_specs = list(out_specs) if isinstance(out_specs, (list, tuple)) else [out_specs]

    def run(*refs):
        if len(refs) != len(in_specs) + len(out_specs):
            raise SpecError(f"emit_pipeline: {len(refs)} refs, but {len(in_specs)} in_specs and {len(out_specs)} "
                            "out_specs.")
        operands = [_specs.resolve(spec, ref.memory.name, ref, grid, i >= len(in_specs))
                    for i, (spec, ref) in enumerate(zip(in_specs + out_specs, refs, strict=True))]
        indices = list(itertools.product(*map(range, grid)))
        _machine("emit_pipeline").pipeline(operands, refs, len(indices), grid,
                                           lambda t, blocks: body(*blocks))
    return run
