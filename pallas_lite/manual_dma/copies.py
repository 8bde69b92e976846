"""copies: copies that a kernel starts itself, buffers that it allocates, and pipelines inside it.

These need a machine. step.py runs a kernel step by step and sees every access; direct.py makes a
compiled program of it. While a kernel is only traced there is none: NeedsStepping is raised, and traced.py takes one.
"""
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import jax

from .. import specs as _specs
from ..body import NeedsStepping, position, ref_names, run_kernel
from ..errors import NotSupportedError, PallasLiteError, SpecError, expect, many
from ..refs import Ref, is_static

T = TypeVar("T")
Allocation: TypeAlias = _specs.Scratch | _specs.SemaphoreType
machine: contextvars.ContextVar[Any] = contextvars.ContextVar("the machine that runs the kernel", default=None)


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
    sender: Ref | None = None  # of a remote copy: the semaphore that tells when the source has been read

    def start(self, priority: int = 0) -> None:
        """Start the copy: from now on it is in flight."""
        _machine("start").copy_start(self)

    def wait(self) -> None:
        """Wait until the semaphore has had as many bytes as the target holds, and take them from it."""
        if self.sender is not None:
            self.wait_send()
        self.wait_recv()

    def wait_send(self) -> None:
        """Of a remote copy: wait until the source has been read."""
        if self.sender is None:
            raise SpecError("wait_send: this is a local copy, which has one semaphore. Call wait().")
        _machine("wait_send").copy_wait(self, self.sender)

    def wait_recv(self) -> None:
        """Of a remote copy: wait until the target has been written."""
        _machine("wait_recv").copy_wait(self, self.semaphore)


def make_async_copy(src_ref: Ref, dst_ref: Ref, sem: Ref) -> AsyncCopy:
    """A copy that is not started yet. Raises SpecError where the two refs differ in shape or dtype."""
    _machine("make_async_copy")
    for what, ref in (("source", src_ref), ("target", dst_ref), ("semaphore", sem)):
        if not isinstance(ref, Ref):
            raise SpecError(f"make_async_copy: the {what} is {ref!r}; give a ref (x_ref or x_ref.at[...]), not a "
                            "value.")
    if src_ref.shape != dst_ref.shape or src_ref.dtype != dst_ref.dtype:
        raise SpecError(f"make_async_copy: the source is {src_ref!r} and the target {dst_ref!r}; a copy needs the same "
                        "shape and dtype on both sides. Select the part with .at[...].")
    if sem.size != 1 or sem.memory.is_semaphore is not _specs.SemaphoreType.DMA:
        what = ("one semaphore" if sem.size != 1 or not sem.memory.is_semaphore else
                f"for copies: it is a SemaphoreType.{sem.memory.is_semaphore.name}")
        raise SpecError(f"make_async_copy: {sem!r} is not {what}. Give SemaphoreType.DMA in scratch_shapes, or one of "
                        "several with sem.at[i].")
    return AsyncCopy(src_ref, dst_ref, sem)


def async_copy(src_ref: Ref, dst_ref: Ref, sem: Ref, *, priority: int = 0) -> AsyncCopy:
    """A copy that is started at once."""
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start()
    return copy


def sync_copy(src_ref: Ref, dst_ref: Ref) -> None:
    """A copy that is over when this returns."""
    run_scoped(lambda sem: async_copy(src_ref, dst_ref, sem).wait(), _specs.SemaphoreType.DMA)


class DeviceIdType(Enum):
    """How `device_id` names a chip: by its place in the mesh, or by its number."""

    MESH = "mesh"
    LOGICAL = "logical"


def make_async_remote_copy(src_ref: Ref, dst_ref: Ref, send_sem: Ref, recv_sem: Ref, device_id: Any,
                           device_id_type: DeviceIdType = DeviceIdType.MESH) -> AsyncCopy:
    """A copy to a ref of another chip: `wait_send` tells that the source was read, `wait_recv` that it arrived here.

    One chip is simulated, so the chip can send to itself only: every part of `device_id` is 0. Raises NotSupportedError
    for another.
    """
    copy = make_async_copy(src_ref, dst_ref, recv_sem)
    make_async_copy(src_ref, dst_ref, send_sem)
    if not all(is_static(i) and int(i) == 0 for i in jax.tree.leaves(device_id)):
        raise NotSupportedError(f"make_async_remote_copy: device_id={device_id}, but one chip is simulated, and it is "
                                "0. Model the neighbour's buffer as another operand, and send to device 0 or copy "
                                "to it with make_async_copy.")
    return replace(copy, sender=send_sem)


def run_scoped(f: Callable[..., T], *types: Allocation, **kw_types: Allocation) -> T:
    """Allocate buffers and semaphores, call `f` on their refs, and free them. Returns what `f` returns.

    A ref that is used after that raises SpecError; a copy still in flight then is reported as a hazard.
    """
    here = _machine("run_scoped")
    for kind in (*types, *kw_types.values()):
        expect((_specs.Scratch, _specs.SemaphoreType), kind, "run_scoped allocates pltpu.VMEM(shape, dtype), "
                                                             "pltpu.SMEM(…) or pltpu.SemaphoreType.DMA")
    n = len(types)
    names = [*ref_names(f, [*range(n)], dict.fromkeys(kw_types, n)), *[None] * n][:n]
    return here.scoped([*zip(names, types, strict=True), *kw_types.items()],
                       lambda *refs: f(*refs[:len(types)], **dict(zip(kw_types, refs[len(types):], strict=True))))


def emit_pipeline(body: Callable[..., None], *, grid: _specs.Grid, in_specs: _specs.Specs = (),
                  out_specs: _specs.Specs = (), dimension_semantics: Sequence[object] | None = None,
                  core_axis: object = None, core_axis_name: object = None, tiling: object = None,
                  trace_scopes: bool = True, no_pipelining: bool = False) -> Callable[..., None]:
    """A pipeline inside a kernel: call the result on HBM refs, inputs first. Its body gets refs of blocks in SRAM.

    The same pipeline as pallas_call's; program_id and num_programs inside the body are this pipeline's. `scratches` of
    the call are refs that the body gets after the blocks. Input depths of any Buffered(n); index maps may use values
    of the kernel around them, and read its scalars. A grid with 0 steps does nothing. There is one core, and no tiling
    to choose: `dimension_semantics`, `core_axis`, `core_axis_name`, `tiling` and `trace_scopes` change nothing.
    """
    _machine("emit_pipeline")
    if no_pipelining:
        raise NotSupportedError("emit_pipeline: no_pipelining=True is not supported here. Give each BlockSpec "
                                "pipeline_mode=pl.Buffered(1), or copy with sync_copy in a loop.")
    grid = tuple(int(g) if is_static(g) else g for g in (grid if isinstance(grid, (tuple, list)) else (grid,)))
    if any(is_static(g) and g == 0 for g in grid):
        return lambda *refs, scratches=(): None
    if any(isinstance(g, jax.core.Tracer) for g in grid):
        raise NotSupportedError("emit_pipeline under jax.jit: its grid must be Python ints.")
    grid = _specs.normalize_grid(grid)
    in_specs, out_specs = ([*s] if isinstance(s, (list, tuple)) else [s] for s in (in_specs, out_specs))

    def run(*refs, scratches=()):
        here = _machine("emit_pipeline")
        if len(refs) != len(in_specs) + len(out_specs):
            raise SpecError(f"emit_pipeline: {many(len(refs), 'ref')}, but {len(in_specs)} in_specs and "
                            f"{len(out_specs)} out_specs.")
        operands = []
        for i, (spec, ref) in enumerate(zip(in_specs + out_specs, refs, strict=True)):
            name, others = ref.memory.name, sum(r.memory is ref.memory for r in refs[:i])
            x = here.resolve(spec, name, ref, grid, i >= len(in_specs))
            operands.append(replace(x, name=f"{name} ({others + 1})") if others else x)
        here.pipeline(operands, refs, grid, lambda blocks: body(*blocks, *scratches))
    return run


def play(here, kernel, operands, free, extras, grid, inputs, unflatten) -> dict[str, Ref]:
    """Run a kernel over its grid on a machine; returns the refs of the arrays in HBM.

    `free`: the operands that stay in HBM, as (name, array, shape, dtype). `extras`: (name, scalars by value or scratch
    by kind). `unflatten`: traced.py. `inputs`: array name -> value.
    """
    token = machine.set(here)
    try:
        homes, arrays = {}, [*((x.name, x.array, x.shape, x.dtype) for x in operands), *free]
        aliased = {array for name, array, _, _ in arrays if name != array}
        for name, array, shape, dtype in arrays:
            if array not in homes:
                is_input = array in inputs and array not in aliased
                homes[array] = here.home(name, shape, dtype, inputs.get(array), is_input)
        rest = [here.allocate(e, name) if hasattr(e, "memory_space") else here.scalars(name, e) for name, e in extras]
        others = [homes[array] for _, array, _, _ in free]

        def body(blocks):
            run_kernel(kernel, unflatten, [*blocks, *others, *rest], *position())
        here.pipeline(operands, [homes[x.array] for x in operands], grid, body, outer=True)
        return homes
    finally:
        machine.reset(token)


def block_ref(slot: Ref, x) -> Ref:
    """A slot as the kernel sees it: without the squeezed dimensions."""
    return slot.at[tuple(0 if d in x.squeeze else slice(None) for d in range(len(x.block_shape)))]
