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
from ..errors import SpecError
from ..refs import Ref
from . import gpu
from .mosaic_tpu import Memory

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


def shared_memory(traced) -> dict[str, int]:
    """Bytes of shared memory that Triton's pipelining of the matmul operands takes, by operand (measured, docs/gpu.md).

    Triton copies ahead only what a matmul reads. On Hopper's matrix unit (results of 64 rows or more) the operands stay
    in shared memory until it is done: `depth` blocks of each; f32 operands, and small results, are read to registers
    first: one block less, and f32 takes one more of the right-hand side, transposed. Without a pipeline (depth 1) f32
    operands go through one after the other. The result is rearranged there before it is stored, once the operands are
    gone; beside them, where it is stored in the loop. Not in it: what Triton needs to rearrange other values, in
    kernels that mix layouts.
    """
    grid, stages, found = gpu.Grid(traced), _stages(traced), {}
    moving = {x.name: x for x in traced.operands if not x.is_output and (grid.along(x) != grid.along(x)[:, :1]).any()}
    for lhs, rhs, shape in gpu.look(traced)[1]:
        on_matrix_unit = len(shape) == 2 and shape[0] >= 64
        for side, names in (("lhs", lhs), ("rhs", rhs)):
            for x in (moving[name] for name in names if name in moving):
                wide = x.dtype.itemsize >= 4
                blocks = max(stages - (wide or not on_matrix_unit), 1)
                blocks += wide and on_matrix_unit and side == "rhs" and stages > 1
                found[x.name] = max(found.get(x.name, 0), blocks * x.info.block_bytes)
    if stages == 1:
        wide = [name for name in found if moving[name].dtype.itemsize >= 4]
        for name in sorted(wide, key=found.get)[:-1]:
            found[name] = 0
    warps = _warps(traced)
    results = [x for x in traced.operands if found and x.is_output]
    in_loop = any((grid.along(x) != grid.along(x)[:, :1]).any() for x in results)
    more = max((_rearranged(x, warps) for x in results), default=0) - (0 if in_loop else sum(found.values()))
    return found | {"to rearrange the result": more} if more > 0 else found


def _rearranged(x, warps) -> int:
    """Bytes in which a matmul's result is rearranged for the store (measured, docs/gpu.md).

    The matrix unit leaves 16 rows to a warp, or 16 columns where there are few rows; a store takes 16 bytes a thread.
    Rows beyond what the warps take at once lie in registers on both sides, and go through the same memory in turns.
    """
    *_, rows, columns = (1, *x.block_shape)
    multiplied = 16 * (warps if rows >= 64 else max(warps * 16 // columns, 1))  # rows at once
    stored = warps * 32 * 16 // (columns * x.dtype.itemsize)
    turns = max(rows // multiplied, 1) * (2 if stored <= 8 else 1) // (2 if x.dtype.itemsize == 4 else 1)
    return rows * columns * x.dtype.itemsize // max(turns, 1)


def _warps(traced):
    """How many warps run a CUDA block: the call's compiler_params say it, or the size of its largest output block."""
    most = max((math.prod(x.ref_shape) for x in traced.operands if x.is_output), default=0)
    return getattr(traced.call.compiler_params, "num_warps", None) or (8 if most >= 2**14 else 4)


def _stages(traced):
    return max((x.depth for x in traced.operands if not x.is_output), default=1)


def check_size(name, sizes):
    n = math.prod(sizes)
    if not _any_size.get() and (n & (n - 1) or n > MOST_ELEMENTS):
        raise SpecError(f"{name}: Triton takes arrays of a power of two elements, {MOST_ELEMENTS:,} at most, and the "
                        f"kernel asks for {tuple(sizes)}, which is {n:,}. Choose such a block_shape (an array's edge "
                        'may cut a block), or try to lower it to "mosaic_gpu".')


def in_registers(name, like):
    check_size(name, like.shape)
    return gpu.InRegisters(name, like)


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
    uses, _ = gpu.look(traced)
    inputs, outputs = ([x for x in traced.arrays if x.is_output == out] for out in (False, True))
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
        values = {y.name: in_registers(y.name, uses[y.name]) for y in kept}
        scratch = [in_registers(f"scratch{i}", e) for i, e in enumerate(traced.extras[n_scalars:])]
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
    f = pallas.pallas_call(kernel, [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in outputs], grid=grid.blocks,
                           input_output_aliases=aliases, name=traced.call.name, interpret=interpret,
                           compiler_params=plgpu.CompilerParams(num_stages=_stages(traced), num_warps=_warps(traced)))

    def run(*given):
        token = _any_size.set(bool(interpret))
        try:
            with gpu.values_stay(traced.call.name, "Triton"):
                return f(*tables, *given)
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
