"""index_maps: an index map and a grid -> the block of every step. Next: specs.py."""
import inspect
import itertools
import math
import operator
from functools import partial, reduce

import jax
import numpy as np

from .errors import BlockIndexError, SpecError, bound, many
from .jaxprs import count
from .refs import Cell, Table, TracedMemory, is_static


class Scalars(TracedMemory):
    """A table of prefetched scalars. `outside`: of each read at a traced index, does it lie past the end or below 0?

    `stepped`: indices are those of one step; else they are traced, those of all steps at once.
    """

    def __init__(self, name, value, stepped):
        super().__init__(name, Cell(value), None, None)
        self.stepped, self.outside = stepped, []

    def load(self, starts, sizes):
        if all(map(is_static, starts)):
            return super().load(starts, sizes)
        self.outside.append(self.past_end(starts, sizes))
        return jax.lax.dynamic_slice(self.ref[...], self.inside(starts, sizes), sizes)


def index_table(index_map, where: str, grid: tuple[int, ...], rank: int, scalars=(),
                in_kernel=False) -> list[tuple[int, ...]] | jax.Array:
    """The block index of every step, in row-major grid order. A traced array if it depends on traced scalars.

    An index into the scalars that is outside of them is an error, where the grid alone decides it also if they are
    traced. Where traced scalars decide it, the step gets a block that there is not: -1.
    """
    if index_map is None:
        return [(0,) * rank] * math.prod(grid)
    index_map = unjitted(index_map)  # JAX jits no refs
    _check_arity(index_map, where, grid, scalars)
    reads, branches = (False, False) if in_kernel else _check_traceable(index_map, where, grid, scalars)
    unknown = any(isinstance(s, jax.core.Tracer) for s in scalars)
    if unknown and not reads:
        unknown, scalars = False, [np.zeros(s.shape, s.dtype) for s in scalars]
    with jax.ensure_compile_time_eval():  # the indices are known, also where the call is being traced
        if not unknown:
            return _evaluate(index_map, where, grid, rank, scalars, branches, in_kernel)
        # What JAX can compute here and now does not depend on the scalars.
        outside = [] if branches else _on_all(index_map, grid, scalars, branches)[1]
        _refuse(index_map, where, grid, scalars, [bad for bad in outside if not isinstance(bad, jax.core.Tracer)])
    columns, outside = _columns(index_map, grid, scalars, branches)
    lost = reduce(operator.or_, outside, False)
    return jax.numpy.stack([jax.numpy.where(lost, -1, c) for c in columns], axis=1)


def unjitted(f):
    """What jax.jit was given, of a function under it, or in a functools.partial; its other decorators stay."""
    f = inspect.unwrap(f, stop=lambda f: not isinstance(f, jax.stages.Wrapped))
    if type(f) is partial:
        f, given = partial(unjitted(f.func), *f.args, **f.keywords), vars(f)
        vars(f).update(given)  # a name, perhaps
    return f


def _check_traceable(index_map, where, grid, scalars) -> tuple[bool, bool]:
    """Real Pallas traces index maps, so what cannot be traced, or holds an array, is refused here too.

    Does it read the scalars? Has it branches or loops of JAX's? Nobody outside of these can tell what is read there.
    """
    try:
        traced = jax.make_jaxpr(lambda *a: _traced(index_map, grid, *a)[0])(*[np.int32(0)] * len(grid), *scalars)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
            jax.errors.TracerIntegerConversionError) as e:
        raise SpecError(f"{where}: Pallas traces its index_map, which needs the value of a grid index where there is "
                        "none yet. In place of a Python if, min or max use jnp.where, jnp.minimum or jnp.maximum; in "
                        "place of indexing a NumPy array, a prefetched scalar.\n  "
                        f"{str(e).splitlines()[0]}") from None
    except Exception as error:
        order = ". It gets the grid's indices first, then the prefetched scalars." if scalars else ""
        said = str(error).partition("\n")[0].rstrip(".")  # JAX goes on about its tracers
        raise SpecError(f"{where}: its index_map raises {type(error).__name__}: {said}{order}") from error
    if held := traced.consts:
        raise SpecError(f"{where}: its index_map holds an array ({jax.typeof(held[0])}), which Pallas does not allow. "
                        "Pass it as a prefetched scalar (pltpu.PrefetchScalarGridSpec): the index map gets it as an "
                        "argument.")
    jaxpr = traced.jaxpr
    used = [v for e in jaxpr.eqns for v in e.invars] + jaxpr.outvars
    return (any(v is s for v in used for s in jaxpr.invars[len(grid):]),
            any(count(jaxpr, name) for name in ("cond", "while", "scan")))


def _evaluate(index_map, where, grid, rank, scalars, branches, in_kernel):
    table = []
    for step, indices in enumerate(itertools.product(*map(range, grid))):
        index = _at(index_map, where, grid, scalars, step, indices, np.int32 if scalars or in_kernel else int)
        if not table:
            _check_index(index, where, indices, rank)
            quick = in_kernel or all(isinstance(b, (int, np.integer)) for b in index)
            if not quick and not (scalars and branches):
                # It computes with jnp: one vectorised call is quicker.
                columns, outside = _columns(index_map, grid, scalars, branches)
                _refuse(index_map, where, grid, scalars, outside)
                return list(zip(*(c.tolist() for c in columns), strict=True))
        # In a kernel it may read refs, which have values, but only one after the other.
        table.append(tuple(map(int, index)))
    return table


def _at(index_map, where, grid, scalars, step, indices, number=np.int32):
    """The index of one step. `number`: of NumPy as a kernel has it, so that refs tell what a step computes."""
    if number is int:  # no table and no ref to look after, in many thousand steps
        index = index_map(*indices)
    else:
        tables = _tables(index_map, grid, scalars, stepped=True)
        try:
            with jax.disable_jit(bool(scalars)):  # of a lax.cond, run only the branch that is taken
                index = index_map(*map(number, indices), *map(Table, tables))
        except BlockIndexError as error:
            raise BlockIndexError(f"{where}, step {step}, in its index_map: {error}") from None
    return tuple(index) if isinstance(index, (tuple, list)) else (index,)


def _refuse(index_map, where, grid, scalars, outside):
    """Raises what is wrong at the first step that reads outside of a table."""
    lost = reduce(operator.or_, map(np.asarray, outside), np.zeros(math.prod(grid), bool))
    for step in np.flatnonzero(lost).tolist():
        _at(index_map, where, grid, scalars, step, np.unravel_index(step, grid))


def _tables(index_map, grid, scalars, stepped) -> list[Scalars]:
    """What an index map gets for its scalars, named as it calls them."""
    names = list(inspect.signature(index_map, follow_wrapped=False).parameters)[len(grid):] if scalars else []
    names = names if len(names) == len(scalars) else [f"scalars{i}" for i in range(len(scalars))]
    return [Scalars(name, s, stepped) for name, s in zip(names, scalars, strict=True)]


def _traced(index_map, grid, *arguments):
    """What an index map gives for traced indices and scalars, and which of its reads are outside."""
    tables = _tables(index_map, grid, [jax.numpy.asarray(s) for s in arguments[len(grid):]], stepped=False)
    return index_map(*arguments[:len(grid)], *map(Table, tables)), [bad for t in tables for bad in t.outside]


def _on_all(index_map, grid, scalars, branches):
    """The same for all steps, an array over the steps each; without the flags where branches hide them."""
    axes = np.indices(grid, dtype=np.int32).reshape(len(grid), -1)
    return jax.vmap(lambda *indices: _traced(index_map, grid, *indices, *scalars)[:2 - branches])(*axes)


def _columns(index_map, grid, scalars, branches) -> tuple[list, list]:
    """The block index of every step, an array for each dimension, and the flags."""
    out, *outside = jax.jit(lambda: _on_all(index_map, grid, scalars, branches))()
    columns = out if isinstance(out, (tuple, list)) else (out,)
    return [jax.numpy.broadcast_to(c, (math.prod(grid),)) for c in columns], sum(outside, [])


def _check_arity(index_map, where, grid, scalars):
    if bound(index_map, (*grid, *scalars), {}):
        return
    if not grid and not scalars:
        raise SpecError(f"{where}: its index_map takes grid indices, but the call has no grid. Give grid=(…,).")
    if not callable(index_map):
        raise SpecError(f"{where}: its index_map is of type {type(index_map).__name__}, not a function. Give one that "
                        f"takes {many(len(grid) + len(scalars), 'argument')}, and gives a block index.")
    also = ", then one for each prefetched scalar" if scalars else ""
    raise SpecError(f"{where}: its index_map does not take {many(len(grid) + len(scalars), 'argument')}, one for each "
                    f"axis of the grid {grid}{also}. Change the map's parameters or the grid.")


def _check_index(index, where, indices, rank):
    if len(index) != rank:
        raise SpecError(f"{where}: index_map{indices} returns {many(len(index), 'block index', 'block indices')} "
                        f"{index}, but block_shape has {many(rank, 'dimension')}. Return one block index for each of "
                        "them (0 for a dimension that is not cut).")
    for b in index:
        if not np.issubdtype(np.asarray(b).dtype, np.integer):
            raise SpecError(f"{where}: index_map{indices} returns {b!r}; block indices are whole numbers (use "
                            "// to divide).")
