"""specs: what you ask for (grid, BlockSpecs, shapes) -> operands with a block for every step. Next: traced.py."""
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Protocol, SupportsIndex, TypeAlias

import jax
import numpy as np
from jax.typing import DTypeLike

from .errors import BlockIndexError, SpecError, expect, many, mend_of
from .index_maps import index_table
from .schedule import OperandInfo, window


class MemorySpace(Enum):
    """Where an operand or a scratch buffer lives. `VMEM((8, 128), jnp.float32)` is a buffer of that shape there."""

    ANY = "any"
    HBM = "hbm"
    VMEM = "vmem"
    SMEM = "smem"

    def __str__(self) -> str:
        return self.value

    def __call__(self, shape: Sequence[int], dtype: DTypeLike) -> "Scratch":
        expect((tuple, list), shape, f"{self.name}: the shape is a tuple, such as (8, 128)")
        return Scratch(tuple(shape), np.dtype(dtype), self)


ANY, HBM, VMEM, SMEM = MemorySpace


class SemaphoreType(Enum):
    """Semaphores for scratch_shapes and run_scoped: `SemaphoreType.DMA`, or `SemaphoreType.DMA((n,))` for n of them."""

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: Sequence[int]) -> "Scratch":
        expect((tuple, list), shape, f"SemaphoreType.{self.name}: the shape is a tuple, such as (2,)")
        return Scratch(tuple(shape), self.dtype, self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one semaphore: ()."""
        return ()

    @property
    def dtype(self) -> np.dtype:
        """A semaphore counts in int32."""
        return np.dtype(np.int32)

    @property
    def memory_space(self) -> "SemaphoreType":
        """Semaphores live in a memory of their own."""
        return self


@dataclass(frozen=True)
class Scratch:
    """A buffer, or some semaphores, that lives as long as the kernel (scratch_shapes) or a scope (run_scoped)."""

    shape: tuple[int, ...]
    dtype: np.dtype
    memory_space: MemorySpace | SemaphoreType


def is_semaphore(scratch) -> SemaphoreType | bool:
    """Of which kind, if it is one; else False."""
    return isinstance(scratch.memory_space, SemaphoreType) and scratch.memory_space


@dataclass(frozen=True)
class Buffered:
    """pipeline_mode: how many slots an operand has in SRAM (its depth). The default is 2."""

    buffer_count: int
    use_lookahead: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.buffer_count, int) or self.buffer_count < 1:
            raise SpecError(f"Buffered({self.buffer_count!r}): the number of buffers is a whole number, 1 or more.")


@dataclass(frozen=True)
class Squeezed:
    """A block dimension of size 1 that the kernel does not see; None is short for it."""


squeezed = Squeezed()


@dataclass(frozen=True)
class Blocked:
    """A block dimension of this size; a plain int is short for it."""

    block_size: int


@dataclass(frozen=True)
class Element:
    """A block dimension of this size whose index is an element offset, so that blocks may overlap (a halo, a stencil).

    `padding`: (before, after), how far blocks may reach past the array's ends. Offset 0 is where the padding starts.
    Nothing is copied there: that part of the slot keeps what it held.
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BlockSpec:
    """How an array is cut into blocks, and which block each step takes.

    `block_shape`: the size of a block in each dimension; None squeezes a dimension of size 1 out of the kernel's view.
    `index_map`: grid indices -> *block* indices (element offsets where the block's dimension is an `Element`). Without
    it each step takes block 0, 0, …
    `pipeline_mode`: Buffered(n), the operand's depth.
    """

    block_shape: Sequence[int | None | Squeezed | Blocked | Element] | None = None
    index_map: Callable[..., Any] | None = None
    pipeline_mode: Buffered | None = None
    memory_space: MemorySpace | None = field(default=None, kw_only=True)


no_block_spec = BlockSpec()


class HasShape(Protocol):
    """An array, or a jax.ShapeDtypeStruct."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""

    @property
    def dtype(self) -> Any:
        """The type of an element."""


# What users may write, for type checkers. Specs, shapes and scratch nest like JAX's trees.
Grid: TypeAlias = SupportsIndex | Sequence[SupportsIndex | tuple[str, SupportsIndex]]
Specs: TypeAlias = "BlockSpec | None | Sequence[Specs] | Mapping[str, Specs]"
Shapes: TypeAlias = "HasShape | None | Sequence[Shapes] | Mapping[str, Shapes]"
ScratchShapes: TypeAlias = "Scratch | SemaphoreType | Sequence[ScratchShapes] | Mapping[str, ScratchShapes]"
SEMANTICS = {"parallel", "arbitrary", "core_parallel", "subcore_parallel", "sequential"}  # the last on a GPU


@dataclass(frozen=True)
class GridSpec:
    """grid, in_specs and out_specs in one value, as `pallas_call(grid_spec=...)` takes it."""

    grid: "Grid" = ()
    in_specs: "Specs" = None
    out_specs: "Specs" = None
    scratch_shapes: "ScratchShapes" = ()
    num_scalar_prefetch = 0  # PrefetchScalarGridSpec (tpu.py) has a number of its own


@dataclass(frozen=True)
class Operand:
    """One array of a call, resolved: `blocks[t]` is its block index at step t."""

    name: str
    array: str
    is_output: bool
    depth: int
    shape: tuple[int, ...]  # of the array
    dtype: np.dtype
    block_shape: tuple[int, ...]  # with squeezed dimensions as 1
    squeeze: tuple[int, ...]  # the dimensions that the kernel does not see
    blocks: list[tuple[int, ...]] | jax.Array = field(repr=False)  # an array if they depend on traced scalars
    stays_in_hbm: bool = False  # memory_space ANY or HBM: no copies; the kernel gets a ref to the array itself
    starts: tuple[tuple[int, int], ...] | None = None  # as in OperandInfo: where block i starts
    index_map: Any = field(default=None, repr=False, compare=False)
    steers: bool = False  # memory_space SMEM: numbers that say what to do, rather than what to compute on

    @cached_property
    def info(self) -> OperandInfo:
        return OperandInfo(self.name, self.array, self.is_output, self.depth,
                           math.prod(self.block_shape) * self.dtype.itemsize, self.block_shape, self.shape, self.starts,
                           str(self.dtype))

    @cached_property
    def ragged(self) -> bool:
        """Does a copy move less than a block?"""
        if self.starts is None or isinstance(self.blocks, jax.Array):
            return self.info.ragged
        first = np.asarray(self.blocks) * [a for a, _ in self.starts] + [c for _, c in self.starts]
        return bool(((first < 0) | (first + self.block_shape > self.shape)).any())

    @property
    def ref_shape(self) -> tuple[int, ...]:
        """The shape that the kernel sees."""
        return tuple(n for d, n in enumerate(self.block_shape) if d not in self.squeeze)

    def window(self, block: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where a block lies in the array, and the part of the slot that it fills (less than all at the edge)."""
        array, slot = window(self.info, block)
        return tuple(slice(*a) for a in array), tuple(slice(*a) for a in slot)


def normalize_grid(grid) -> tuple[int, ...]:
    """An int, or a tuple of ints, as a tuple.  >>> normalize_grid(4)
    (4,)
    """
    grid = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    sizes = tuple(g[1] if isinstance(g, tuple) else g for g in grid)  # a named axis is a (name, size) pair
    for size in sizes:
        try:
            known = operator.index(size) >= 1
        except TypeError:  # no whole number, or a traced one
            known = False
        if not known:
            mend = (" A grid that only the running program knows is not supported: make its size static for jax.jit "
                    "(static_argnums), or take the most steps and skip with pl.when.")
            raise SpecError(f"grid={grid}: each entry must be a whole number of steps, 1 or more, not {size!r}."
                            f"{mend if isinstance(size, jax.core.Tracer) else ''}")
    return tuple(map(operator.index, sizes))


def check_compiler_params(params, grid: tuple[int, ...]) -> None:
    """Raises SpecError where `params` or its dimension_semantics would say nothing: a slip would go unseen."""
    if params is not None and (isinstance(params, type) or not is_dataclass(params)):
        raise SpecError(f"compiler_params={params!r}; give pltpu.CompilerParams(dimension_semantics=(…,)).")
    given = getattr(params, "dimension_semantics", None)
    words = [str(getattr(w, "name", w)).lower() for w in given] if isinstance(given, (tuple, list)) else [None]
    if given is not None and (len(words) != len(grid) or not set(words) <= SEMANTICS):
        raise SpecError(f'dimension_semantics={given!r}: give a tuple with one word for each axis of the grid {grid}: '
                        '"parallel" (its steps may run in any order) or "arbitrary" (in the order of the grid).')


def steps_in_order(grid: tuple[int, ...], parallel, rng=None) -> list[int]:
    """The steps of a grid, by number, with each parallel axis backwards, or shuffled by `rng`.

    >>> steps_in_order((2, 3), [0])
    [3, 4, 5, 0, 1, 2]
    """
    axes = [np.arange(n) if a not in parallel else rng.permutation(n) if rng else np.arange(n)[::-1]
            for a, n in enumerate(grid)]
    return np.arange(math.prod(grid)).reshape(grid)[np.ix_(*axes)].ravel().tolist()


def resolve(spec: BlockSpec, name: str, aval, grid: tuple[int, ...], is_output: bool, scalars=(),
            in_kernel="") -> Operand:
    """A BlockSpec on an array of a known shape and dtype, over a grid. `scalars` are passed to the index map, last.

    `in_kernel`: the index map may use values of the kernel around it, which is there.
    Raises SpecError where ranks disagree and BlockIndexError where a block lies wholly outside the array.
    """
    where = f"{in_kernel}{'output' if is_output else 'operand'} {name}"
    shape, dtype = tuple(aval.shape), np.dtype(aval.dtype)
    if not isinstance(spec, BlockSpec):
        raise SpecError(f"{where}: its spec is {spec!r}" + mend_of(
            spec, "; give a pl.BlockSpec(block_shape, index_map)."))
    expect((MemorySpace, type(None)), spec.memory_space, f"{where}: memory_space is pl.ANY, pltpu.VMEM, SMEM or HBM")
    if spec.memory_space in (ANY, HBM):
        if spec.block_shape is not None:
            raise SpecError(f"{where}: memory_space={spec.memory_space.name} keeps the whole array in HBM, so it takes "
                            "no block_shape. Drop one of them.")
        return Operand(name, name, is_output, 0, shape, dtype, shape, (), [], stays_in_hbm=True)
    if callable(spec.block_shape):
        raise SpecError(f"{where}: BlockSpec takes the block_shape first, then the index_map; here they are swapped.")
    if not isinstance(spec.block_shape, (tuple, list, type(None))):
        raise SpecError(f"{where}: block_shape={spec.block_shape!r}; give a tuple with one entry for each dimension of "
                        f"the array, such as ({spec.block_shape!r},).")
    dims = shape if spec.block_shape is None else tuple(spec.block_shape)
    if len(dims) != len(shape):
        raise SpecError(f"{where}: block_shape {dims} has {many(len(dims), 'dimension')}, but the array {shape} has "
                        f"{len(shape)}. Give one entry for each dimension of the array (None for one that the kernel "
                        "should not see).")
    squeeze = tuple(d for d, n in enumerate(dims) if n is None or isinstance(n, Squeezed))
    sizes = []
    for d, n in enumerate(dims):
        n = 1 if d in squeeze else n.block_size if isinstance(n, (Blocked, Element)) else n
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise SpecError(f"{where}: entry {d} of block_shape {dims} is {n!r}" + mend_of(
                n, "; give a whole number of elements, or None to squeeze the dimension."))
        sizes.append(int(n))
    blocks = index_table(spec.index_map, where, grid, len(dims), scalars, bool(in_kernel))
    padding = [n.padding if isinstance(n, Element) else None for n in dims]
    if not isinstance(blocks, jax.Array):
        _check_range(where, blocks, shape, sizes, padding)
    starts = tuple((1, -p[0]) if p else (n, 0) for n, p in zip(sizes, padding, strict=True)) if any(padding) else None
    mode = spec.pipeline_mode
    expect((Buffered, type(None)), mode, f"{where}: pipeline_mode is pl.Buffered(n), with n slots")
    return Operand(name, name, is_output, mode.buffer_count if mode else 2, shape, dtype, tuple(sizes), squeeze, blocks,
                   starts=starts, index_map=spec.index_map, steers=spec.memory_space is SMEM)


def _check_range(where, blocks, shape, sizes, padding):
    # How many indices there are in each dimension: blocks, or element offsets of windows not wholly outside.
    counts = [p[0] + size + p[1] if p else -(-size // n) for size, n, p in zip(shape, sizes, padding, strict=True)]
    table = np.asarray(blocks, np.int64).reshape(len(blocks), len(counts))
    outside = (table < 0) | (table >= np.asarray(counts, np.int64))
    if not outside.any():
        return
    step, d = (int(i) for i in np.argwhere(outside)[0])
    if padding[d]:
        raise BlockIndexError(f"{where}, step {step}: index_map gives {tuple(table[step].tolist())}, but element "
                              f"offset {table[step, d]} is out of range in dimension {d} ({shape[d]} elements with "
                              f"padding {tuple(padding[d])}, so 0 to {counts[d] - 1}). Change the index map, the grid "
                              "or the padding.")
    # All indices of a dimension have a common factor, and would be in range without it: the classic slip.
    factor = math.gcd(*table[:, d].tolist())
    slip = factor > 1 and np.ptp(table[:, d]) and table[:, d].max() // factor < counts[d]
    mend = ("Index maps return block indices, not element offsets." if slip else
            "Change the index map, the grid or the block shape.")
    raise BlockIndexError(f"{where}, step {step}: index_map gives {tuple(table[step].tolist())}, but block index "
                          f"{table[step, d]} is out of range in dimension {d} ({many(counts[d], 'block')} of "
                          f"{sizes[d]}, so 0 to {counts[d] - 1}). {mend}")
