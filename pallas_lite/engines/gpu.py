"""gpu: what both GPU engines share: which grid axes become CUDA blocks, and where the blocks of a step lie.

A grid's parallel axes become the CUDA grid, its other axes a loop inside each CUDA block. Next: triton.py, then
mosaic_gpu.py.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import PallasLiteError
from ..schedule import origin as origin
from ..verify import two_on_a_block


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
