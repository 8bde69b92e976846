"""triton: a call as a real Pallas kernel for Triton. The compiler pipelines its loop: num_stages is the depth.

An input is read from global memory where the kernel reads its ref, and an output written where the kernel writes it.
What a step leaves for the next one (an output that the kernel reads back, and scratch) is a value in registers.
"""
import contextvars
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pallas
from jax.experimental.pallas import triton as plgpu

from ..body import handing_on, run_kernel
from ..errors import NotSupportedError, SpecError
from ..jaxprs import inner_jaxprs
from ..refs import Ref
from . import gpu
from .tpu import Memory

MOST_ELEMENTS = 2**20  # of a Triton tensor
_any_size = contextvars.ContextVar("interpreted, where every size will do", default=False)


class InHbm(Memory):
    """A block in global memory. `beyond`: the dimensions in which some block reaches over the array's edge."""

    def __init__(self, x, ref, block, beyond):
        super().__init__(x.name, ref)
        self.x, self.shape, self.block, self.beyond = x, x.ref_shape, block, beyond

    def _place(self, starts, sizes):
        """The part of the array, and a mask of what lies inside it (None: everything)."""
        check_size(self.name, sizes)
        index, mask = gpu.origin(self.x, self.block), None
        seen = [d for d in range(len(index)) if d not in self.x.squeeze]
        for i, (d, start, n) in enumerate(zip(seen, starts, sizes, strict=True)):
            at = index[d] if isinstance(start, int) and start == 0 else index[d] + start
            index[d] = pallas.ds(at, n)
            if d in self.beyond:
                place = at + lax.broadcasted_iota(jnp.int32, sizes, i)
                inside = (place >= 0) & (place < self.x.shape[d])
                mask = inside if mask is None else mask & inside
        return self.ref.at[tuple(index)] if index else self.ref, mask

    def load(self, starts, sizes):
        place, mask = self._place(starts, sizes)
        return plgpu.load(place, mask=mask)

    def store(self, starts, sizes, value):
        place, mask = self._place(starts, sizes)
        plgpu.store(place, value, mask=mask)


class InRegisters(Memory):
    """A value that one step hands on to the next. Registers have no addresses, so it is read and written whole."""

    def __init__(self, name, like):
        super().__init__(name, like)
        check_size(name, self.shape)
        self.value = None

    def _whole(self, sizes):
        if tuple(sizes) != self.shape:
            raise NotSupportedError(f"{self.name}: the kernel reads it back, so Triton keeps it in registers, which "
                                    f"have no addresses: {tuple(sizes)} of {self.shape} cannot be taken out. Read and "
                                    f'write it whole, {self.name}[...], or lower to "mosaic_gpu".')

    def load(self, starts, sizes):
        self._whole(sizes)
        return self.value

    def store(self, starts, sizes, value):
        self._whole(sizes)
        self.value = value


class Looking(Memory):
    """A memory that notes how it is used. What is read from it is computed from `probe`, so that it can be followed."""

    def __init__(self, name, like, probe):
        super().__init__(name, like)
        self.probe, self.is_read, self.in_parts = probe, False, False

    def load(self, starts, sizes):
        self.is_read, self.in_parts = True, self.in_parts or tuple(sizes) != self.shape
        return jnp.broadcast_to(self.probe.astype(self.dtype), sizes)

    def store(self, starts, sizes, value):
        self.in_parts |= tuple(sizes) != self.shape


def look(traced):
    """How the kernel uses the memories of its operands, and the matmuls that it asks for, as (lhs, rhs, shape):

    the names of the operands that each side is computed from, and the shape of the result.
    """
    memories = []

    def run(ids, probes):
        likes = [(x.name, block_of(x)) for x in traced.operands]
        likes += [(f"extra{i}", e) for i, e in enumerate(traced.extras)]
        memories[:] = [Looking(*like, probe) for like, probe in zip(likes, probes, strict=True)]
        run_kernel(traced.call.kernel, traced.unflatten, [Ref(m) for m in memories], ids, traced.call.grid)
    scalar = jax.ShapeDtypeStruct((), jnp.int32)
    n = len(traced.operands) + len(traced.extras)
    jaxpr = jax.make_jaxpr(run)([scalar] * len(traced.call.grid), [scalar] * n).jaxpr
    from_ = dict(zip(jaxpr.invars[len(traced.call.grid):], ({m.name} for m in memories), strict=True))
    return memories, list(_matmuls(jaxpr, from_))


def _matmuls(jaxpr, from_):
    for e in jaxpr.eqns:
        sides = [from_.get(v, set()) if not hasattr(v, "val") else set() for v in e.invars]
        if e.primitive.name == "dot_general":
            yield *sides, e.outvars[0].aval.shape
        for inner, outer in inner_jaxprs(e):
            given = {v: from_.get(o, set()) for v, o in zip(inner.invars, outer or (), strict=False)
                     if not hasattr(o, "val")}
            yield from _matmuls(inner, given)
        from_.update({v: set().union(*sides) for v in e.outvars})


def shared_memory(traced) -> dict[str, int]:
    """Bytes of shared memory that Triton's pipelining of the matmul operands takes, by operand (measured, docs/gpu.md).

    Triton copies ahead only what a matmul reads. On Hopper's matrix unit (results of 64 rows or more) the operands stay
    in shared memory until it is done: `depth` blocks of each; f32 operands, and small results, are read to registers
    first: one block less, and f32 takes one more of the right-hand side, transposed. Not in it: what Triton needs to
    rearrange a value, in kernels that mix layouts.
    """
    grid, stages, found = gpu.Grid(traced), _stages(traced), {}
    moving = {x.name: x for x in traced.operands if not x.is_output and (grid.along(x) != grid.along(x)[:, :1]).any()}
    for lhs, rhs, shape in look(traced)[1]:
        on_matrix_unit = len(shape) == 2 and shape[0] >= 64
        for side, names in (("lhs", lhs), ("rhs", rhs)):
            for x in (moving[name] for name in names if name in moving):
                wide = x.dtype.itemsize >= 4
                blocks = max(stages - (wide or not on_matrix_unit), 1)
                blocks += wide and on_matrix_unit and side == "rhs" and stages > 1
                found[x.name] = max(found.get(x.name, 0), blocks * math.prod(x.block_shape) * x.dtype.itemsize)
    return found


def block_of(x):
    """What the kernel sees of an operand."""
    return jax.ShapeDtypeStruct(x.ref_shape, x.dtype)


def _stages(traced):
    return max((x.depth for x in traced.operands if not x.is_output), default=1)


def check_size(name, sizes):
    n = math.prod(sizes)
    if not _any_size.get() and (n & (n - 1) or n > MOST_ELEMENTS):
        raise SpecError(f"{name}: Triton takes arrays of a power of two elements, {MOST_ELEMENTS:,} at most, and the "
                        f"kernel asks for {tuple(sizes)}, which is {n:,}. Choose such a block_shape (an array's edge "
                        'may cut a block), or lower to "mosaic_gpu".')


def kernel_call(traced, interpret=False):
    """The call as a real `pallas_call` for Triton: a function of the arrays, prefetched scalars first, in flat order.

    `num_warps` of the call's compiler_params, if they have it (jax.experimental.pallas.triton.CompilerParams), is how
    many warps run a CUDA block; else 4, or 8 where an output block has 2^14 elements or more.
    """
    grid, operands, tables = gpu.Grid(traced), traced.operands, []
    blocks = {x.name: gpu.Blocks(x, grid, tables) for x in operands}
    # In which dimensions some block reaches over the array's edge.
    beyond = {x.name: {d for b in set(x.blocks) for d, (part, n) in enumerate(
        zip(x.window(b)[1], x.block_shape, strict=True)) if (part.start, part.stop) != (0, n)} for x in operands}
    uses = {m.name: m for m in look(traced)[0]}
    inputs, outputs = ([x for x in operands if x.is_output == out] for out in (False, True))
    # An output that keeps its block along the loop is stored once, after it; one that is read back is carried too.
    one_visit = {y.name: (grid.along(y) == grid.along(y)[:, :1]).all() for y in outputs}
    kept = [y for y in outputs if uses[y.name].is_read
            or grid.steps > 1 and one_visit[y.name] and not uses[y.name].in_parts]
    n_scalars = len(traced.scalars)

    def kernel(*refs):
        rows, refs = refs[:len(tables)], refs[len(tables):]
        scalars, refs = refs[:n_scalars], refs[n_scalars:]
        homes = {x.name: ref for x, ref in zip((*inputs, *outputs), refs, strict=True)}
        block_ids = [pallas.program_id(i) for i in range(len(grid.blocks))]
        values = {y.name: InRegisters(y.name, block_of(y)) for y in kept}
        scratch = [InRegisters(f"scratch{i}", e) for i, e in enumerate(traced.extras[n_scalars:])]
        carried = [*values.values(), *scratch]

        def block(x, ids):
            return blocks[x.name].at(ids, lambda i, t: plgpu.load(rows[i].at[t]))

        def place(x, ids):
            return InHbm(x, homes[x.name], block(x, ids), beyond[x.name])

        def store(y, ids):
            place(y, ids).store((0,) * len(y.ref_shape), y.ref_shape, values[y.name].value)

        def step(t, state):
            for memory, value in zip(carried, state, strict=True):
                memory.value = value
            ids = grid.ids(block_ids, t)
            memories = [values.get(x.name) or place(x, ids) for x in operands]
            extras = [*(Scalars("a prefetched operand", ref) for ref in scalars), *scratch]
            with handing_on(carried):
                run_kernel(traced.call.kernel, traced.unflatten, [Ref(m) for m in (*memories, *extras)], ids,
                           grid.sizes)
            for y in kept:
                if not one_visit[y.name]:
                    after = block(y, grid.ids(block_ids, jnp.minimum(t + 1, grid.steps - 1)))
                    ends = t == grid.steps - 1
                    for a, b in zip(block(y, ids), after, strict=True):
                        ends |= a != b
                    pallas.when(ends)(lambda y=y, ids=ids: store(y, ids))
            return [m.value for m in carried]

        start = [jnp.zeros(m.shape, m.dtype) for m in carried]
        end = lax.fori_loop(0, grid.steps, step, start) if grid.steps > 1 else step(jnp.int32(0), start)
        for memory, value in zip(carried, end, strict=True):
            memory.value = value
        for y in kept:
            if one_visit[y.name]:
                store(y, grid.ids(block_ids, jnp.int32(0)))

    before = len(tables) + n_scalars
    aliases = {before + i: o for i, x in enumerate(inputs) for o, y in enumerate(outputs) if x.array == y.array}
    num_warps = getattr(traced.call.compiler_params, "num_warps", None)
    if num_warps is None:
        num_warps = 8 if max((math.prod(y.ref_shape) for y in outputs), default=0) >= 2**14 else 4
    f = pallas.pallas_call(kernel, [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in outputs], grid=grid.blocks,
                           input_output_aliases=aliases, name=traced.call.name, interpret=interpret,
                           compiler_params=plgpu.CompilerParams(num_stages=_stages(traced), num_warps=num_warps))

    def run(*given):
        token = _any_size.set(bool(interpret))
        try:
            return f(*tables, *given)
        except (jax.errors.UnexpectedTracerError, ValueError) as error:  # a value has left its branch or loop
            if isinstance(error, ValueError) and "captures constants" not in str(error):
                raise
            raise NotSupportedError(
                f"{traced.call.name}: it writes a ref that it also reads inside lax.cond, lax.fori_loop or their like. "
                "Triton keeps such a ref in registers, and there is no handing it on there: use pl.when and pl.loop, "
                'or lower to "mosaic_gpu".') from error
        finally:
            _any_size.reset(token)
    return run


class Scalars(Memory):
    """A prefetched scalar array, in global memory."""

    def load(self, starts, sizes):
        check_size(self.name, sizes)
        return plgpu.load(self.ref.at[tuple(pallas.ds(s, n) for s, n in zip(starts, sizes, strict=True))])

    def store(self, starts, sizes, value):
        raise SpecError(f"{self.name} is read-only: write to an output or to scratch.")
