"""mosaic_gpu: the pipeline as a real Pallas kernel for Mosaic GPU: refs in global memory, slots in shared memory.

A copy in is a bulk tensor copy that arrives on its slot's barrier; copies out are counted, newest first. Each CUDA
block runs the pipeline over its own steps, so a visit is one of the block's, and all CUDA blocks have the same visits.
"""
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pallas
from jax.experimental.pallas import mosaic_gpu as plgpu

from ..body import run_kernel
from ..errors import NotSupportedError, SpecError
from ..pipeline import pipeline
from ..refs import Ref
from ..schedule import origin
from . import gpu
from .mosaic_tpu import Memory, Window
from .replay import added_up, replay

THREADS = 128  # of a warpgroup, which runs the kernel
ALIGNMENT = 1024  # bytes, of a buffer in shared memory
_number = itertools.count()


class MosaicGpu:
    """The engine: each verb becomes instructions of the kernel that is being traced."""

    def __init__(self, operands, steps, periods, block, homes, slots, barriers, kernel, values):
        self.operands, self.steps, self.periods, self.block = operands, steps, periods, block
        self.homes, self.slots, self.barriers, self.kernel = homes, slots, barriers, kernel
        self.values = values  # name -> what a step hands on to the next in registers
        self.now = None  # the running step

    # -- questions: a visit lasts `period` steps
    def begins(self, x, t):
        if isinstance(t, int):
            return t < self.steps and t % self.periods[x.name] == 0
        begins = _is_multiple(t, self.periods[x.name])
        return begins if t is self.now else begins & (t < self.steps)  # a step ahead may be past the end

    def ends(self, x, t):
        ends = _is_multiple(t + 1, self.periods[x.name])
        return ends if self.steps % self.periods[x.name] == 0 else ends | (t == self.steps - 1)

    def visit(self, x, t):
        period = self.periods[x.name]
        return t // period if isinstance(t, int) else lax.div(t, jnp.int32(period))

    def visits(self, x):
        return -(-self.steps // self.periods[x.name])

    def when(self, condition, verb, x, at):
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                verb(x, at)
        else:
            pallas.when(condition)(lambda: verb(x, at))

    def loop(self, steps, body):
        def once(t, values):
            self.now, self.values = t, values
            body(t)
            return self.values
        lax.fori_loop(0, steps, once, self.values)

    # -- verbs
    def _slot(self, x, visit):
        return visit % x.depth if isinstance(visit, int) else lax.rem(visit, jnp.int32(x.depth))

    def copy_in_start(self, x, t):
        slot = self._slot(x, self.visit(x, t))
        plgpu.copy_gmem_to_smem(self._home(x, t), self.slots[x.name].at[slot], self.barriers[x.name].at[slot])

    def copy_in_wait(self, x, visit):
        plgpu.barrier_wait(self.barriers[x.name].at[self._slot(x, visit)])

    def run(self, t):
        slots = {x.name: self.slots[x.name].at[self._slot(x, self.visit(x, t))] for x in self.operands}
        self.values = self.kernel(t, slots, self.values)
        for y in (y for y in self.operands if y.name in self.values):  # outputs that were added up in registers
            self.when(self.ends(y, t), self._put, y, slots)
        plgpu.commit_smem()  # all threads are done with the slots, and what they wrote is there for the copies out

    def _put(self, y, slots):
        slots[y.name][...] = self.values[y.name]

    def copy_out_start(self, y, t):
        plgpu.copy_smem_to_gmem(self.slots[y.name].at[self._slot(y, self.visit(y, t))], self._home(y, t))

    def copy_out_wait(self, y, visit):
        # Later copies of this output may stay in flight. Copies of other outputs are not told apart.
        later = 0 if isinstance(visit, int) else y.depth - (1 if self.periods[y.name] == 1 or y.depth == 1 else 2)
        plgpu.wait_smem_to_gmem(later)

    def _home(self, x, t):
        at = gpu.origin(x, self.block(x, jnp.int32(t)))
        return self.homes[x.name].at[tuple(a if d in x.squeeze else pallas.ds(a, n)
                                           for d, (a, n) in enumerate(zip(at, x.block_shape, strict=True)))]


def _is_multiple(t, n):
    """A bool, traced unless n is 1."""
    return True if n == 1 else lax.rem(t, jnp.int32(n)) == 0


class SharedRef(Window):
    """A kernel's ref on shared memory."""

    def _load(self):
        self._check_size()
        whole = self.pallas is self.memory.ref and hasattr(self.memory, "value")  # it stands for the block (replay.py)
        return self.memory.value if whole else super()._load()

    def _store(self, value):
        self._check_size()
        super()._store(value)

    def _check_size(self):
        if self.size % THREADS and self.shape:  # one element is for all threads
            raise SpecError(f"{self.memory.name}: the kernel uses {self.shape} of it, {self.size} elements, and Mosaic "
                            f"GPU spreads a value evenly over the {THREADS} threads of a warpgroup. Choose blocks (and "
                            f"parts of them) with a multiple of {THREADS} elements.")


def shared_memory(traced) -> dict[str, int]:
    """Bytes of shared memory: each operand's slots, scratch, and a barrier of 8 bytes for each slot of an input.

    Scratch that matmuls are added up in lies in registers.
    """
    grid, totals = gpu.Grid(traced), added_up(traced)
    slots = {x.name: slots_of(x, grid) for x in traced.operands}
    found = {x.name: slots[x.name] * x.info.block_bytes for x in traced.operands}
    for i, e in enumerate(traced.extras[len(traced.scalars):]):
        if f"scratch{i}" not in totals:
            found[f"scratch{i}"] = math.prod(e.shape) * np.dtype(e.dtype).itemsize
    found = {name: -(-n // ALIGNMENT) * ALIGNMENT for name, n in found.items()}
    return found | {"barriers": 8 * sum(slots[x.name] for x in traced.operands if not x.is_output)}


def check(traced):
    """Raises SpecError for blocks that bulk tensor copies cannot move."""
    for x in traced.operands:
        where = f"{'output' if x.is_output else 'operand'} {x.name}"
        size, row = x.info.block_bytes, x.shape[-1] * x.dtype.itemsize if x.shape else 0
        if x.dtype == bool:
            raise NotSupportedError(f"{where}: bulk tensor copies move whole bytes, and Mosaic GPU keeps a bool in a "
                                    'bit. Give an int8 array and compare inside the kernel, or lower to "triton".')
        if size % THREADS:
            raise SpecError(f"{where}: a block of {x.block_shape} {x.dtype} is {size} bytes, and a bulk tensor copy "
                            f"moves a multiple of {THREADS}. Choose a larger block_shape.")
        if len(x.shape) > 1 and row % 16:
            raise SpecError(f"{where}: the rows of the array {x.shape} {x.dtype} are {row} bytes, and bulk tensor "
                            "copies want a multiple of 16. Pad the last dimension of the array.")
        if max(x.ref_shape, default=0) > 256:
            raise SpecError(f"{where}: a bulk tensor copy has at most 256 elements in a dimension, and the block is "
                            f"{x.block_shape}. Choose a smaller block_shape.")


def period(x, grid) -> int:
    """How many loop steps a visit of the operand lasts, the same in every CUDA block."""
    along = grid.along(x)
    changes = (along[:, 1:] != along[:, :-1]).any(2)
    where = np.flatnonzero(changes.any(0)) + 1
    if not len(where):
        return grid.steps
    lasts = int(where[0])
    regular = len(where) == len(range(lasts, grid.steps, lasts)) and (where % lasts == 0).all()
    if regular and changes[:, where - 1].all():
        return lasts
    if not x.is_output:
        return 1  # a block that is fetched again is the same block
    raise NotSupportedError(f"output {x.name}: its visits last one step here and several there, or differ between CUDA "
                            'blocks; Mosaic GPU counts its copies out, so all visits are of one length. Lower it to '
                            '"triton".')


def slots_of(x, grid) -> int:
    """An operand's slots: its depth, or as many as it has visits in a CUDA block."""
    return min(x.depth, -(-grid.steps // period(x, grid)))


def kernel_call(traced, interpret=False):
    """The call as a real Pallas kernel for Mosaic GPU: a function of the flat arrays, prefetched scalars first.

    `interpret`: parameters of Mosaic GPU's interpreter, which runs the kernel on a CPU.
    """
    _refuse_unvisited(traced)
    if not interpret:
        check(traced)
    grid, operands, tables = gpu.Grid(traced), traced.operands, []
    blocks = {x.name: gpu.Blocks(x, grid, tables) for x in operands}
    periods = {x.name: period(x, grid) for x in operands}
    inputs, outputs = ([x for x in operands if x.is_output == out] for out in (False, True))
    n_scalars, totals, (uses, matmuls) = len(traced.scalars), added_up(traced), gpu.look(traced)
    whole = [x.name for x in inputs if matmuls and not uses[x.name].is_written]
    in_memory = [f"scratch{i}" for i in range(len(traced.extras) - n_scalars) if f"scratch{i}" not in totals]

    def kernel(*refs):
        refs = iter(refs)
        take = lambda names: {name: next(refs) for name in names}  # noqa: E731
        rows, scalars = take(range(len(tables))), take(f"scalar{i}" for i in range(n_scalars))
        homes = take(x.name for x in (*inputs, *outputs))
        slots, barriers = take(x.name for x in operands), take(x.name for x in inputs)
        extras = scalars | take(in_memory)
        block_ids = [lax.axis_index(name) for name in names]

        def block(x, t):
            return blocks[x.name].at(grid.ids(block_ids, t), lambda i, at: rows[i][at])

        def body(t, here, values):
            ours = {name: gpu.InRegisters(name, m) if name in totals else Memory(name, (here | extras)[name])
                    for name, m in uses.items()}

            def run():
                refs = [Ref(m) if name in totals else SharedRef(m) for name, m in ours.items()]
                run_kernel(traced.call.kernel, traced.unflatten, refs, grid.ids(block_ids, t), grid.sizes)
            new = replay(run, traced.call.name, [ours[name] for name in whole], [ours[name] for name in totals],
                         [*values.values()], interpret)
            return dict(zip(totals, new, strict=True))
        engine = MosaicGpu(operands, grid.steps, periods, block, homes, slots, barriers, body,
                           {name: jnp.zeros(m.shape, m.dtype) for name, m in totals.items()})
        pipeline(engine, grid.steps, operands)

    scratch = [*(plgpu.SMEM((slots_of(x, grid), *x.ref_shape), x.dtype) for x in operands),
               *(plgpu.Barrier(num_barriers=slots_of(x, grid)) for x in inputs),
               *(plgpu.SMEM(uses[name].shape, uses[name].dtype) for name in in_memory)]
    # The compiler keeps what it compiled by text, and says nothing of it the next time: so no text comes twice.
    kernel.__name__ = f"{traced.call.name}_{next(_number)}"
    names = tuple(f"axis{a}" for a in grid.parallel)
    room = _whole_blocks if interpret else (lambda x: x.shape)  # the hardware cuts a copy at the array's edge
    f = plgpu.kernel(kernel, out_type=[jax.ShapeDtypeStruct(room(y), y.dtype) for y in outputs], grid=grid.blocks,
                     grid_names=names, scratch_types=scratch, interpret=interpret,
                     compiler_params=plgpu.CompilerParams(
                         lowering_semantics=plgpu.LoweringSemantics.Warpgroup))  # infers how values lie in registers

    def run(*given):
        arrays = [jnp.pad(a, [(0, n - m) for n, m in zip(room(x), x.shape, strict=True)])
                  for x, a in zip((x for x in traced.arrays if not x.is_output), given[n_scalars:], strict=True)
                  if not x.stays_in_hbm]
        with gpu.values_stay(traced.call.name, "Mosaic GPU"):
            results = f(*tables, *given[:n_scalars], *arrays)
        return [r[tuple(map(slice, y.shape))] for y, r in zip(outputs, results, strict=True)]
    return run


def _whole_blocks(x):
    """The array's shape, with room for all of each block."""
    table = np.asarray(x.blocks, np.int64).reshape(len(x.blocks), len(x.shape))
    if any(at < 0 for at in origin(x, table.min(0))):
        raise NotSupportedError(f"{x.name}: a window begins before its array, which Mosaic GPU's interpreter does not "
                                "have. Compile it, or run the call itself.")
    last = origin(x, table.max(0).tolist())
    return tuple(max(m, at + n) for m, at, n in zip(x.shape, last, x.block_shape, strict=True))


def _refuse_unvisited(traced):
    for y in traced.operands:
        aliased = any(x.array == y.array for x in traced.arrays if not x.is_output)
        blocks = math.prod(-(-n // b) for n, b in zip(y.shape, y.block_shape, strict=True))
        if y.is_output and aliased and (y.starts or len(set(y.blocks)) < blocks):
            raise NotSupportedError(f"{traced.call.name}: {y.name} shares the memory of an operand and keeps the "
                                    "blocks that no step visits; a Mosaic GPU kernel shares no memory. Visit every "
                                    'block, or lower to "triton".')
