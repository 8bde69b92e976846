"""xla: the pipeline as one compiled loop over the steps. For schedules proven free of races.

Without races it does not matter when a copy happens, so each step takes its blocks from HBM itself, and slots are kept
only where they can be seen: outputs that a kernel does not surely overwrite, inputs it writes, edge blocks, scratch.
Where nothing is kept, steps along a grid axis may be independent: then some of them, whose blocks lie side by side, run
at once (jax.vmap) on a window of all their blocks, which gives XLA larger pieces to share out among the cores.
"""
import math
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import NotSupportedError
from ..schedule import starts_of
from ..specs import Scratch
from ..verify import two_on_a_block

SHARE = 8  # steps that run at once have windows of at most this part of all operands and results


def tables(operands, steps, traced):
    """For each operand, over the steps: the start of its block, its slot, and whether a visit begins."""
    found = []
    for x in operands:
        xp = jnp if x.name in traced else np
        blocks = xp.asarray(traced.get(x.name, x.blocks), np.int32).reshape(steps, len(x.block_shape))
        begins = xp.concatenate([xp.ones(1, bool), (blocks[1:] != blocks[:-1]).any(1)])
        scale, offset = np.asarray(starts_of(x), np.int32).reshape(-1, 2).T
        found.append((blocks * scale + offset, (begins.cumsum() - 1).astype(np.int32) % x.depth, begins))
    return found


def homes(operands, inputs, empty):
    """The arrays in HBM, with room for blocks that reach past an edge, and where in it each array begins."""
    hbm, lows = {}, {}
    for i, x in enumerate(operands):
        if x.array not in hbm:
            value = jnp.asarray(inputs[x.array]) if x.array in inputs else empty(i, x.shape)
            same = [(y, starts_of(y)) for y in operands if y.array == x.array]
            lows[x.array] = np.array([max(-starts[d][1] for _, starts in same) for d in range(value.ndim)], np.int32)
            # Windows by element start before the array's end, so room for one block holds whatever reaches past it.
            past = [max(y.block_shape[d] * y.ragged if y.starts and y.starts[d][0] == 1 else -size % y.block_shape[d]
                        for y, _ in same) for d, size in enumerate(x.shape)]
            both = np.array([lows[x.array], past], np.int32).T  # before and after, also of no dimension at all
            hbm[x.array] = jnp.pad(value, both, constant_values=empty(i))
    return hbm, lows


def side_by_side(x, grid, axis) -> int | None:
    """The dimension in which an operand's block moves by one with each step along a grid axis.

    None: it stays where it is. -1: it does something else.
    """
    moves = np.diff(np.asarray(x.blocks, np.int32).reshape(*grid, len(x.block_shape)), axis=axis)
    first = moves[(0,) * len(grid)]
    alike = (moves == first).all() and list(first[first != 0]) == [1] and not x.starts
    return int(first.argmax()) if alike else -1 if moves.any() else None


def at_once(operands, body, grid):
    """(n, grid axis, dimensions): n steps along the axis can run at once, with blocks side by side in these dimensions.

    Such steps share no block of an output, and the kernel does the same in all of them. None: they share the block.
    """
    best = 1, 0, [None] * len(operands)
    alike = not any(body.written[len(operands):]) and min(body.moving, default=len(operands)) >= len(operands)
    total = sum(math.prod(x.shape) * x.dtype.itemsize for x in operands)
    for axis in (a for a, size in enumerate(grid) if alike and body.straight and size > 1 and a not in body.asks):
        dims = [side_by_side(x, grid, axis) for x in operands]
        if -1 not in dims and not any(x.is_output and two_on_a_block(x, body.indices, axis) for x in operands):
            fits = [n for n in range(1, grid[axis] + 1) if grid[axis] % n == 0 and total >= SHARE * sum(
                x.info.block_bytes * (1 if d is None else n) for x, d in zip(operands, dims, strict=True))]
            best = max(best, (max(fits, default=1), axis, dims), key=lambda b: b[:2])
    return best


def run(operands, extras, body, grid, inputs, held, every_visit, traced):
    """The outputs, and for each ref the first step at which an access went past its end (else the number of steps).

    `inputs`: array name -> value; aliased operands share a name. `extras`: the refs after the operands, each as its
    value (prefetched scalars) or as a shape and dtype (scratch). `traced`: operand name -> its block of each step, for
    those that depend on traced scalars. `held`: for each ref, the values that its memory holds at first, over and over.
    `every_visit`: are slots filled so again when a visit begins? May be traced, so that one program serves both; None:
    never.
    """
    steps = int(np.prod(grid, dtype=np.int64))
    ids = np.asarray(body.indices, np.int32).reshape(steps, len(grid))
    rows = tables(operands, steps, traced)
    changing = {x.array for x in operands if x.is_output}
    keeps = [not body.overwrites(i, slice(None) if x.name in traced else rows[i][2]) if x.is_output
             else x.ragged or body.written[i] or x.array in changing for i, x in enumerate(operands)]
    alone = any(keeps) or traced or body.indices != sorted(body.indices)
    n, axis, dims = (1, 0, [None] * len(operands)) if alone else at_once(operands, body, grid)
    # Of n blocks side by side: their window in the array, and the same with a dimension that counts them.
    shapes = [((*b[:d], n * b[d], *b[d + 1:]), (*b[:d], n, *b[d:])) if d is not None else (b, b)
              for b, d in zip((x.block_shape for x in operands), dims, strict=True)]
    first = np.flatnonzero(ids[:, axis] % n == 0).astype(np.int32) if n > 1 else np.arange(steps, dtype=np.int32)
    ids, rows = ids[first], [[r[first] for r in row] for row in rows]

    def one(ids, blocks, kept, through_refs=True):
        values = [b.reshape(x.ref_shape) for x, b in zip(operands, blocks, strict=True)]
        new, past_end = body.apply(ids, [*values, *kept], every_visit, through_refs)
        blocks = [v.reshape(x.block_shape) for x, v in zip(operands, new, strict=False)]
        return blocks, new[len(operands):], past_end
    many = jax.vmap(partial(one, through_refs=False), (None, dims, None), (dims, None, None)) if n > 1 else one

    def empty(i, shape=()):  # in HBM: one value everywhere, which costs no time
        return jnp.full(shape, jnp.ravel(held[i])[0], body.avals[i][2])

    def in_sram(i, shape):
        return jnp.resize(jnp.asarray(held[i], body.avals[i][2]), shape)

    hbm, lows = homes(operands, inputs, empty)
    fresh = [in_sram(i, x.block_shape) for i, x in enumerate(operands)]
    slots = [in_sram(i, (x.depth, *x.block_shape)) if keep else None
             for i, (x, keep) in enumerate(zip(operands, keeps, strict=True))]

    def step(t, carry):
        hbm, slots, kept, bad = carry
        values, slots, hbm = [], list(slots), dict(hbm)
        here = [[jnp.asarray(r)[t] for r in row] for row in rows]
        for i, (x, (starts, slot, begins)) in enumerate(zip(operands, here, strict=True)):
            value = lax.dynamic_slice(hbm[x.array], starts + lows[x.array], shapes[i][0])
            if x.name in traced:
                value = jnp.where(missing(starts, x), empty(i), value)
            if keeps[i]:
                old = lax.dynamic_index_in_dim(slots[i], slot, keepdims=False)
                if every_visit is not None:
                    old = jnp.where(begins & every_visit, fresh[i], old)
                arrived = begins & (not x.is_output) & (inside(starts, x) if x.ragged else True)
                value = jnp.where(arrived, value, old)
            values.append(value.reshape(shapes[i][1]))
        new, kept, past_end = many([jnp.asarray(ids)[t, a] for a in range(len(grid))], values, kept)
        for i, (x, (starts, slot, _)) in enumerate(zip(operands, here, strict=True)):
            value = new[i].reshape(shapes[i][0])
            if keeps[i]:
                slots[i] = lax.dynamic_update_index_in_dim(slots[i], value, slot, 0)
            if x.is_output:
                # Each step of a visit writes; the visit's last one stays.
                if x.name in traced:
                    before = lax.dynamic_slice(hbm[x.array], starts + lows[x.array], shapes[i][0])
                    value = jnp.where(missing(starts, x), before, value)
                hbm[x.array] = lax.dynamic_update_slice(hbm[x.array], value, starts + lows[x.array])
        return hbm, slots, kept, jnp.where((bad == steps) & jnp.asarray(past_end, bool), jnp.asarray(first)[t], bad)

    kept = [in_sram(i, e.shape) if isinstance(e, Scratch) else jnp.asarray(e)
            for i, e in enumerate(extras, len(operands))]
    hbm, *_, bad = lax.fori_loop(0, len(ids), step, (hbm, slots, kept, jnp.full(len(body.avals), steps, jnp.int32)))
    return {x.array: lax.dynamic_slice(hbm[x.array], lows[x.array], x.shape) for x in operands if x.is_output}, bad


def inside(starts, x):
    """The cells of a block that lie inside its array, as a mask."""
    at = [lax.broadcasted_iota(jnp.int32, x.block_shape, d) + starts[d] for d in range(len(x.shape))]
    return reduce(jnp.logical_and, [(i >= 0) & (i < size) for i, size in zip(at, x.shape, strict=True)], True)


def missing(starts, x):
    """Does a block lie wholly outside of its array? Only where traced scalars choose it, which nobody could check."""
    spans = zip(starts, x.block_shape, x.shape, strict=True)
    return reduce(jnp.logical_or, [(at + n <= 0) | (at >= size) for at, n, size in spans], False)


def _no_derivative(primals, tangents):
    raise NotSupportedError("a pallas_call has no derivative here; in Pallas it has one for jax.jvp, and none for "
                            "jax.grad. Give one to the function that calls it: for jax.grad with jax.custom_vjp, whose "
                            "backward pass may be a kernel too, for jax.jvp with jax.custom_jvp.")


def without_derivative(f):
    """`f` of a call: a batch runs one by one under jax.vmap, and who asks for a derivative is told that it has none."""
    f = jax.custom_jvp(jax.custom_batching.sequential_vmap(f))
    f.defjvp(_no_derivative)
    return f


def compiled(operands, extras, body, grid):
    """`run` jitted: (inputs, prefetched scalars, what memory holds, traced blocks, refill every visit?).

    Under jax.vmap the calls of a batch run one after the other.
    """
    def one(inputs, scalars, held, traced, every_visit):
        given = [*scalars, *extras[len(scalars):]]
        return run(operands, given, body, grid, inputs, held, every_visit, traced)
    return jax.jit(without_derivative(one))
