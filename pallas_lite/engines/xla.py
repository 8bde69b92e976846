"""xla: the pipeline as one compiled loop over the steps. For schedules proven free of races.

Without races it does not matter when a copy happens, so each step takes its blocks from HBM itself, and slots are kept
only where they can be seen: outputs that a kernel does not surely overwrite, inputs it writes, edge blocks, scratch.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import NotSupportedError
from ..specs import Scratch


def tables(operands, steps, traced):
    """For each operand, over the steps: the start of its block, its slot, and whether a visit begins."""
    found = []
    for x in operands:
        xp = jnp if x.name in traced else np
        blocks = xp.asarray(traced.get(x.name, x.blocks), np.int32).reshape(steps, len(x.block_shape))
        begins = xp.concatenate([xp.ones(1, bool), (blocks[1:] != blocks[:-1]).any(1)])
        visits = (xp.cumsum(begins) - 1).astype(np.int32)
        scale, offset = np.asarray(x.starts or [(n, 0) for n in x.block_shape], np.int32).reshape(-1, 2).T
        found.append((blocks * scale + offset, visits % x.depth, begins))
    return found


def room(operands, array):
    """How far blocks may reach past an array's edges: (before, after) in each dimension."""
    same = [x for x in operands if x.array == array]
    found = []
    for d, size in enumerate(same[0].shape):
        # Windows by element start before the array's end, so room for one block holds whatever reaches past it.
        past = [x.block_shape[d] * x.ragged if x.starts and x.starts[d][0] == 1 else -size % x.block_shape[d]
                for x in same]
        found.append((max(-x.starts[d][1] if x.starts else 0 for x in same), max(past)))
    return found


def homes(operands, inputs, empty):
    """The arrays in HBM, with room for blocks that reach past an edge, and where in it each array begins."""
    hbm, lows = {}, {}
    for x in operands:
        if x.array not in hbm:
            value = jnp.asarray(inputs[x.array]) if x.array in inputs else empty(x.shape, x.dtype, x.is_output)
            past = room(operands, x.array)
            if any(map(any, past)):
                value = jnp.pad(value, past, constant_values=empty((), x.dtype, x.is_output))
            hbm[x.array], lows[x.array] = value, np.asarray([before for before, _ in past], np.int32)
    return hbm, lows


def run(operands, extras, body, grid, inputs, filling, every_visit, traced):
    """The outputs, and for each ref the first step at which an access went past its end (else the number of steps).

    `inputs`: array name -> value; aliased operands share a name. `extras`: the refs after the operands, each as its
    value (prefetched scalars) or as a shape and dtype (scratch). `traced`: operand name -> its block of each step, for
    those that depend on traced scalars. `filling`: (dtype, is it an output's?) -> what memory holds at first.
    `every_visit`: are slots filled so again when a visit begins? May be traced, so that one program serves both; None:
    never.
    """
    steps = int(np.prod(grid, dtype=np.int64))
    ids = np.asarray(body.indices, np.int32).reshape(steps, len(grid))
    rows = tables(operands, steps, traced)
    changing = {x.array for x in operands if x.is_output}
    keeps = [not body.fresh[i] if x.is_output else x.ragged or body.written[i] or x.array in changing
             for i, x in enumerate(operands)]

    def empty(shape, dtype, is_output=False):
        return jnp.full(shape, filling(np.dtype(dtype), is_output), dtype)

    hbm, lows = homes(operands, inputs, empty)
    fixed = {a: v for a, v in hbm.items() if a not in changing}
    slots = [empty((x.depth, *x.block_shape), x.dtype, x.is_output) if keep else None
             for x, keep in zip(operands, keeps, strict=True)]

    def step(t, carry):
        moving, slots, kept, bad = carry
        values, slots, moving = [], list(slots), dict(moving)
        here = [[jnp.asarray(r)[t] for r in row] for row in rows]
        for i, (x, (starts, slot, begins)) in enumerate(zip(operands, here, strict=True)):
            value = empty(x.block_shape, x.dtype, x.is_output)
            if keeps[i]:
                value = lax.dynamic_index_in_dim(slots[i], slot, keepdims=False)
                if every_visit is not None:
                    value = jnp.where(begins & every_visit, empty(x.block_shape, x.dtype, x.is_output), value)
            if not x.is_output:
                block = lax.dynamic_slice(fixed.get(x.array, moving.get(x.array)), starts + lows[x.array],
                                          x.block_shape)
                if x.ragged:
                    block = jnp.where(inside(starts, x), block, value)
                value = jnp.where(begins, block, value) if keeps[i] else block
            values.append(value.reshape(x.ref_shape))
        new, past_end = body.apply([jnp.asarray(ids)[t, a] for a in range(len(grid))], [*values, *kept], every_visit)
        for i, (x, (starts, slot, _)) in enumerate(zip(operands, here, strict=True)):
            value = new[i].reshape(x.block_shape)
            if keeps[i]:
                slots[i] = lax.dynamic_update_index_in_dim(slots[i], value, slot, 0)
            if x.is_output:
                # Each step of a visit writes; the visit's last one stays.
                moving[x.array] = lax.dynamic_update_slice(moving[x.array], value, starts + lows[x.array])
        first_bad = jnp.where((bad == steps) & jnp.asarray(past_end), t, bad) if past_end else bad
        return moving, slots, new[len(operands):], first_bad

    kept = [empty(e.shape, e.dtype) if isinstance(e, Scratch) else jnp.asarray(e) for e in extras]
    carry = {a: v for a, v in hbm.items() if a in changing}, slots, kept, jnp.full(len(body.avals), steps, jnp.int32)
    moving, _, _, bad = lax.fori_loop(0, steps, step, carry)
    return {x.array: lax.dynamic_slice(moving[x.array], lows[x.array], x.shape) for x in operands if x.is_output}, bad


def inside(starts, x):
    """The cells of a block that lie inside its array, as a mask."""
    mask = jnp.ones(x.block_shape, bool)
    for d, (n, size) in enumerate(zip(x.block_shape, x.shape, strict=True)):
        if x.starts or size % n:
            at = lax.broadcasted_iota(jnp.int32, x.block_shape, d) + starts[d]
            mask &= (at >= 0) & (at < size)
    return mask


def _no_derivative(primals, tangents):
    raise NotSupportedError("a pallas_call has no derivative, here as in Pallas. Give one to the function that calls "
                            "it, with jax.custom_vjp; its backward pass may be a kernel too.")


def without_derivative(f):
    """`f` of a call: a batch runs one by one under jax.vmap, and jax.grad says that there is no derivative."""
    f = jax.custom_jvp(jax.custom_batching.sequential_vmap(f))
    f.defjvp(_no_derivative)
    return f


def compiled(operands, extras, body, grid):
    """`run` jitted: (inputs, prefetched scalars, what memory holds, traced blocks, refill every visit?).

    What memory holds: dtype name -> element, for inputs and scratch and then for outputs.
    Under jax.vmap the calls of a batch run one after the other.
    """
    def one(inputs, scalars, fill, traced, every_visit):
        def value(dtype, is_output):
            return fill[is_output][str(dtype)]
        given = [*scalars, *extras[len(scalars):]]
        return run(operands, given, body, grid, inputs, value, every_visit, traced)
    return jax.jit(without_derivative(one))
