"""gpu: what both GPU engines share: which grid axes become CUDA blocks, and where the blocks of a step lie.

A grid's parallel axes become the CUDA grid, its other axes a loop inside each CUDA block. Next: triton.py, then
mosaic_gpu.py.
"""
import contextlib
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..body import run_kernel
from ..errors import NotSupportedError, PallasLiteError
from ..jaxprs import inner_jaxprs
from ..refs import Ref
from ..schedule import origin as origin
from ..verify import two_on_a_block
from .mosaic_tpu import Memory


def parallel_axes(traced) -> tuple[int, ...]:
    """The grid axes that become the CUDA grid: those marked "parallel" in dimension_semantics.

    Where nothing is marked: those along which no two steps share an output block, and none if there is scratch, which
    may carry a value from any step to the next. Raises PallasLiteError where a marked axis does share a block.
    """
    if getattr(traced.call.compiler_params, "dimension_semantics", None) is None:
        free = [] if jax.tree.leaves(traced.call.scratch_shapes) else range(len(traced.call.grid))
        return tuple(a for a in free if not _shared(traced, a))
    for axis, found in ((a, _shared(traced, a)) for a in traced.parallel):
        if found:
            raise PallasLiteError(
                f"{traced.call.name}: grid axis {axis} is marked parallel, so its steps become different CUDA blocks, "
                f"but steps {found[1]} and {found[2]} both write block {found[3]} of output {found[0]}. Mark axis "
                f'{axis} "arbitrary" in dimension_semantics, which makes it a loop inside a CUDA block, or give each '
                "of its steps an output block of its own and add them up afterwards.")
    return tuple(traced.parallel)


def _shared(traced, axis):
    """(output, step, step, block) of two steps that differ along the axis and write one block; None without any."""
    outputs = (y for y in traced.operands if y.is_output)
    return next(((y.name, *two, y.blocks[two[1]]) for y in outputs
                 if (two := two_on_a_block(y, traced.indices, axis))), None)


class Grid:
    """Splits a grid: `parallel` axes are asked of the CUDA grid, `loop` axes are counted by a step number."""

    def __init__(self, traced):
        self.sizes = traced.call.grid
        self.parallel = parallel_axes(traced)
        self.loop = tuple(a for a in range(len(self.sizes)) if a not in self.parallel)
        self.blocks = tuple(self.sizes[a] for a in self.parallel)  # the CUDA grid
        self.steps = math.prod(self.sizes[a] for a in self.loop)
        self.weight = [math.prod(self.sizes[a + 1:]) for a in range(len(self.sizes))]  # of an axis in the step number

    def ids(self, block_ids, t):
        """The grid indices of loop step t in the CUDA block with these indices."""
        ids = dict(zip(self.parallel, block_ids, strict=True))
        rest = t
        for i, a in reversed(list(enumerate(self.loop))):
            outer = math.prod(self.sizes[b] for b in self.loop[:i])
            ids[a] = rest if outer == 1 else lax.rem(rest, jnp.int32(self.sizes[a]))
            rest = rest if outer == 1 else lax.div(rest, jnp.int32(self.sizes[a]))
        return [jnp.int32(0) if self.sizes[a] == 1 else jnp.int32(ids[a]) for a in range(len(self.sizes))]

    def along(self, x) -> np.ndarray:
        """An operand's blocks as [CUDA block, loop step, dimension]."""
        table = np.asarray(x.blocks, np.int32).reshape(*self.sizes, len(x.block_shape))
        return np.transpose(table, (*self.parallel, *self.loop, len(self.sizes))).reshape(
            math.prod(self.blocks), self.steps, len(x.block_shape))


class Blocks:
    """An operand's block index in each dimension, as a + b·ids where it is such a sum, else from a table in memory."""

    def __init__(self, x, grid: Grid, tables: list):
        self.x, self.grid, self.sums = x, grid, []
        ids = np.indices(grid.sizes).reshape(len(grid.sizes), math.prod(grid.sizes))
        for column in np.asarray(x.blocks, np.int32).reshape(ids.shape[1], len(x.block_shape)).T:
            first = int(column[0])
            slopes = [int(column[w]) - first if n > 1 else 0 for n, w in zip(grid.sizes, grid.weight, strict=True)]
            if (first + np.asarray(slopes, np.int64) @ ids == column).all():
                self.sums.append((first, slopes))
            else:
                self.sums.append(len(tables))
                tables.append(column)

    def at(self, ids, tables):
        """The block index at these grid indices; `tables(number, step)` reads a table."""
        found = []
        for how in self.sums:
            if isinstance(how, int):
                step = sum((i * w for i, w in zip(ids, self.grid.weight, strict=True)), jnp.int32(0))
                found.append(tables(how, step))
            else:
                first, slopes = how
                terms = [i if b == 1 else i * b for i, b in zip(ids, slopes, strict=True) if b]
                found.append(sum(terms[1:], terms[0] + first if first else terms[0]) if terms else jnp.int32(first))
        return found


class InRegisters(Memory):
    """A value that one step hands on to the next. Registers have no addresses, so it is read and written whole."""

    value = None

    def load(self, starts, sizes):
        self.whole(sizes)
        return self.value

    def store(self, starts, sizes, value):
        self.whole(sizes)
        self.value = value

    def whole(self, sizes):
        if tuple(sizes) != self.shape:
            raise NotSupportedError(f"{self.name}: the kernel reads it back, so Triton keeps it in registers, which "
                                    f"have no addresses: {tuple(sizes)} of {self.shape} cannot be taken out. Read and "
                                    f'write it whole, {self.name}[...], or try to lower it to "mosaic_gpu".')


@contextlib.contextmanager
def values_stay(name, dialect):
    """Inside, a value that leaves the branch or loop in which a kernel wrote it is an error in words."""
    try:
        yield
    except (jax.errors.UnexpectedTracerError, ValueError) as error:
        if isinstance(error, ValueError) and not re.search(r"captures [\w -]*constants", str(error)):
            raise
        other = ', or lower to "mosaic_gpu", where outputs have slots in shared memory' if dialect == "Triton" else ""
        raise NotSupportedError(
            f"{name}: it writes a ref that it also reads inside lax.cond, lax.fori_loop or their like. {dialect} keeps "
            f"such a ref in registers, and there is no handing it on there: use pl.when and pl.loop{other}.") from error


class Looking(Memory):
    """A memory that notes how it is used. What is read from it is computed from `probe`, so that it can be followed."""

    def __init__(self, name, like, probe):
        super().__init__(name, like)
        self.probe, self.is_read, self.is_written, self.in_parts = probe, False, False, False

    def load(self, starts, sizes):
        self.is_read, self.in_parts = True, self.in_parts or tuple(sizes) != self.shape
        return jnp.broadcast_to(self.probe.astype(self.dtype), sizes)

    def store(self, starts, sizes, value):
        self.is_written, self.in_parts = True, self.in_parts or tuple(sizes) != self.shape


def look(traced) -> tuple[dict[str, Looking], list]:
    """How the kernel uses its memories, by name, and the matmuls that it asks for, as (lhs, rhs, shape):

    the names of the operands that each side is computed from, and the shape of the result.
    """
    n = len(traced.scalars)
    like = {x.name: jax.ShapeDtypeStruct(x.ref_shape, x.dtype) for x in traced.operands}
    like |= {f"scalar{i}" if i < n else f"scratch{i - n}": e for i, e in enumerate(traced.extras)}
    memories = {}

    def run(ids, probes):
        memories.update({name: Looking(name, like[name], probe) for name, probe in zip(like, probes, strict=True)})
        run_kernel(traced.call.kernel, traced.unflatten, [Ref(m) for m in memories.values()], ids, traced.call.grid)
    scalar = jax.ShapeDtypeStruct((), jnp.int32)
    jaxpr = jax.make_jaxpr(run)([scalar] * len(traced.call.grid), [scalar] * len(like)).jaxpr
    from_ = dict(zip(jaxpr.invars[len(traced.call.grid):], ({name} for name in like), strict=True))
    return memories, list(matmuls(jaxpr, from_))


def matmuls(jaxpr, from_):
    """The matmuls of a jaxpr, as `look` gives them. `from_`: variable -> the operands that it is computed from."""
    for e in jaxpr.eqns:
        sides = [from_.get(v, set()) if not hasattr(v, "val") else set() for v in e.invars]
        if e.primitive.name == "dot_general":
            yield *sides, e.outvars[0].aval.shape
        for inner, outer in inner_jaxprs(e):
            given = {v: from_.get(o, set()) for v, o in zip(inner.invars, outer or (), strict=False)
                     if not hasattr(o, "val")}
            yield from matmuls(inner, given)
        from_.update({v: set().union(*sides) for v in e.outvars})
