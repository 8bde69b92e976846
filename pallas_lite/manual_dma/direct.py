"""direct: a kernel with copies of its own as one compiled program, for jax.jit and jax.vmap.

For kernels that step.py found free of hazards: then it does not matter when a copy happens, so it moves at its
start, and waits do nothing. Loops stay JAX's, so the kernel is traced once.
"""
import math
from dataclasses import replace
from functools import partial, reduce
from operator import or_

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from .. import specs as _specs
from ..body import OWN_COPIES, at_position, when
from ..engines.xla import inside, without_derivative
from ..errors import NotSupportedError
from ..memory import garbage_value
from ..refs import Ref, TracedMemory, ds, no_arithmetic
from ..schedule import origin
from .copies import block_ref, play


class Direct:
    """The machine: every memory is a JAX ref. `fill`: what memory holds before it is written."""

    def __init__(self, fill):
        self.garbage = partial(garbage_value, fill)

    def memory(self, name, value, is_semaphore=False):
        garbage = self.garbage(np.dtype(value.dtype))
        memory = TracedMemory(name, jax.new_ref(jnp.asarray(value)), jax.new_ref(False), garbage)
        memory.is_semaphore = is_semaphore
        return Ref(memory)

    scalars = memory

    def _unwritten(self, name, shape, dtype, is_semaphore=False):
        return self.memory(name, jnp.full(shape, self.garbage(np.dtype(dtype)), dtype), is_semaphore)

    def home(self, name, shape, dtype, given, is_input=False):
        return self._unwritten(name, shape, dtype) if given is None else self.memory(name, given)

    def allocate(self, kind, name=None):
        return self._unwritten(name or "scoped", kind.shape, kind.dtype, _specs.is_semaphore(kind))

    def scoped(self, kinds, f):
        return f(*(self.allocate(kind, name) for name, kind in kinds))

    def copy_start(self, copy):
        copy.target[...] = copy.source[...]

    def copy_wait(self, copy, semaphore):
        """The copy is over since its start."""

    def resolve(self, spec, name, ref, grid, is_output):
        """An operand whose blocks are a function of the grid's indices, which may be traced."""
        x = _specs.resolve(replace(spec, index_map=None), name, ref, grid, is_output)
        return replace(x, blocks=spec.index_map) if spec.index_map else x

    def pipeline(self, operands, refs, grid, body, outer=False):
        """A loop over the steps. A block is taken where its visit begins, or sent where it ends; slots keep theirs."""
        steps = math.prod(grid)
        slots = [self._unwritten(x.name, (x.depth, *x.block_shape), x.dtype) for x in operands]
        visit = [jax.new_ref(jnp.int32(-1)) for _ in operands]

        def ids(t):
            return [lax.rem(lax.div(t, jnp.int32(math.prod(grid[a + 1:]))), jnp.int32(n)) for a, n in enumerate(grid)]

        def block(x, t):
            if callable(x.blocks):
                found = x.blocks(*ids(t))
                return found if isinstance(found, (tuple, list)) else (found,)
            row = jnp.asarray(np.asarray(x.blocks, np.int32).reshape(steps, len(x.shape)))[t]
            return [row[d] for d in range(len(x.shape))]

        def changes(x, t, other):
            return reduce(or_, [a != b for a, b in zip(block(x, t), block(x, other), strict=True)], jnp.bool_(False))

        def step(t, _):
            views = []
            for x, home, slot, v in zip(operands, refs, slots, visit, strict=True):
                begins = (t == 0) | changes(x, t, jnp.maximum(t - 1, 0))
                v[...] = v[...] + begins
                views.append(slot.at[lax.rem(v[...], jnp.int32(x.depth))])
                if not x.is_output:
                    when(begins)(partial(move, x, block(x, t), home, views[-1], True))
            with at_position(ids(t), grid):
                body([block_ref(view, x) for view, x in zip(views, operands, strict=True)])
            for x, home, view in zip(operands, refs, views, strict=True):
                if x.is_output:
                    ends = (t == steps - 1) | changes(x, t, jnp.minimum(t + 1, steps - 1))
                    when(ends)(partial(move, x, block(x, t), home, view, False))
        lax.fori_loop(0, steps, step, None)


def move(x, block, home, slot, into_slot: bool):
    """Copy a block between its array and its slot; of an edge block, what lies inside."""
    starts = origin(x, block)
    window = home.at[tuple(ds(s, n) for s, n in zip(starts, x.block_shape, strict=True))]
    source, target = (window, slot) if into_slot else (slot, window)
    value = source[...]
    if x.info.ragged:
        value = no_arithmetic(lambda new, old: jnp.where(inside(starts, x), new, old))(value, target[...])
    target[...] = value


def program(kernel, operands, free, extras, grid, unflatten, fill):
    """The kernel as a function on the arrays in HBM, by name: the same after it ran."""
    def go(inputs):
        homes = play(Direct(fill), kernel, operands, free, extras, grid, inputs, unflatten)
        return {name: jax.freeze(ref.memory.ref) for name, ref in homes.items()}
    return go


def compiled(go, shapes):
    """A program for inputs of these shapes, which may be traced.

    JAX does not vmap a cond that writes refs, which is what pl.when is. So a batch runs one by one, on a program from
    which the refs are gone (jax.export). A program that prints is not exported, and is compiled as it is.
    """
    platforms, go = sorted({"cpu", export.default_export_platform()}), jax.jit(go)
    if "Debug" not in str(go.trace(shapes).jaxpr.effects):
        return without_derivative(export.export(go, platforms=platforms)(shapes).call)

    def printing(inputs):
        try:
            return go(inputs)
        except NotImplementedError as error:
            raise NotSupportedError(f"{OWN_COPIES} and prints has no jax.vmap and no derivative. Take the print out, "
                                    "or call it on one operand after the other (jax.lax.map).") from error
    return printing
