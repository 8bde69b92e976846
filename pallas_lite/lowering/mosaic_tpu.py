"""mosaic_tpu: a call as a real Pallas kernel: arrays in HBM, slots in VMEM, DMA semaphores, one loop over the steps.

`Engine` is the pipeline's (pipeline.py): each verb becomes instructions of the kernel that is being traced. `Machine`
is the kernel's (manual_dma/): its refs and its own copies. Next: mosaic.py, which prints and compiles the program.
"""
import math
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_, or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas
from jax.experimental.pallas import tpu as pltpu

from .. import specs as _specs
from ..body import at_position
from ..engines.record import Visits
from ..errors import NotSupportedError, SpecError
from ..manual_dma.copies import play
from ..pipeline import pipeline
from ..refs import Ref
from ..schedule import starts_of
from .tiles import Held, parts, slots


@dataclass(frozen=True)
class Step:
    """A step of the loop: the running one, or one some steps ahead of it. Its number is known when the program runs."""

    ahead: int = 0

    def __add__(self, n: int) -> "Step":
        return Step(self.ahead + n)

    def __sub__(self, n: int) -> "Step":
        return Step(self.ahead - n)


@dataclass(frozen=True)
class Visit:
    """A visit by its number, and its slot: number % depth, without the division."""

    number: Any
    slot: Any
    depth: int

    def __sub__(self, n: int) -> "Visit":
        slot = jnp.where(self.slot < n, self.slot + self.depth - n, self.slot - n) if n else self.slot
        return Visit(self.number - n, slot, self.depth)

    def __ge__(self, n: int):
        return self.number >= n

    def then(self, another) -> "Visit":
        """The next visit, if there is `another`; else this one."""
        slot = jnp.where(another, (self - (self.depth - 1)).slot, self.slot)
        return Visit(self.number + another, slot, self.depth)


class Engine:
    """The pipeline's engine. A question about a step of the loop is answered by the program; any other, at once.

    `scalars`: what index maps get after the grid indices. `homes`, `slots`, `semaphores`: refs, by operand. `sent`: for
    outputs whose copies are not all of one size, where the blocks on their way out are noted. `body(block refs)` runs
    the kernel. `label`: what the names of the copies begin with.
    """

    def __init__(self, operands, grid, scalars, homes, slots, semaphores, sent, body, label=""):
        self.operands, self.grid, self.scalars, self.steps = operands, grid, scalars, math.prod(grid)
        self.homes, self.slots, self.semaphores, self.sent, self.body = homes, slots, semaphores, sent, body
        self.visits_of = {x.name: Visits(x.blocks, self.steps + x.depth) for x in operands}
        self.inner = {x.name: _inner_axis(self.visits_of[x.name].begins[:self.steps], grid) for x in operands}
        self.parts = {x.name: parts(x) for x in operands}
        self.varies = {x.name: [len(set(column)) > 1 for column in zip(*x.blocks, strict=True)] for x in operands}
        self.label, self.where = label, "prologue"
        self.now, self.ids, self.seen = None, {}, {}  # the running step, and by steps ahead: grid indices, visits

    # -- questions

    def begins(self, x, t):
        if not isinstance(t, Step):
            return bool(self.visits_of[x.name].begins[t])
        return self._changes(x, t.ahead) & (self.now + t.ahead < self.steps) if t.ahead else self._changes(x, 0)

    def ends(self, x, t):
        return self._changes(x, t.ahead + 1)

    def visit(self, x, t):
        if isinstance(t, Step):
            return self.seen[x.name, t.ahead]
        number = int(self.visits_of[x.name].of[t])
        return Visit(number, number % x.depth, x.depth)

    def visits(self, x):
        return len(self.visits_of[x.name].blocks)

    def when(self, condition, verb, x, at):
        _when(condition, partial(verb, x, at))

    def _changes(self, x, ahead):
        """Does that step take another block than the step before? The first one does; it also follows the last."""
        inner = self.inner[x.name]
        first = [self.ids[ahead][a] == 0 for a in range(inner or 0, len(self.grid)) if self.grid[a] > 1]
        first = reduce(and_, first) if first else True
        if inner is not None:
            return first
        pairs = zip(self._block(x, Step(ahead)), self._block(x, Step(ahead - 1)), strict=True)
        return reduce(or_, [a != b for a, b in pairs], first)

    def _block(self, x, t):
        if not isinstance(t, Step):
            return x.blocks[t]
        block = x.index_map(*self.ids[t.ahead], *self.scalars) if x.index_map else x.blocks[0]
        return self._known(x, block if isinstance(block, (tuple, list)) else (block,))

    def _known(self, x, block):
        """An index that is always the same is said as a number: then the compiler knows how it is aligned."""
        return [b if v else first for b, v, first in zip(block, self.varies[x.name], x.blocks[0], strict=True)]

    # -- the loop: grid indices are counted, and visits and slots carried, which is cheaper than dividing step numbers

    def loop(self, steps, body):
        deepest = max([2, *(x.depth for x in self.operands if not x.is_output)])
        # Operands whose visits begin at the same steps, and which have as many slots, share what is carried.
        key = {x.name: (self.inner[x.name] if self.inner[x.name] is not None else x.name, x.depth)
               for x in self.operands}
        like = {key[x.name]: x for x in self.operands}

        def iteration(t, carried):
            self.now, self.ids, visits = t, {0: carried[0]}, {}
            self.ids[-1] = self._count(self.ids[0], -1)
            for ahead in range(1, deepest):
                self.ids[ahead] = self._count(self.ids[ahead - 1], 1)
            for (k, x), (number, slot) in zip(like.items(), carried[1], strict=True):
                visits[k, 0] = Visit(number, slot, x.depth)
                for ahead in range(1, deepest):
                    visits[k, ahead] = visits[k, ahead - 1].then(self._changes(x, ahead))
            self.seen = {(name, ahead): visits[k, ahead] for name, k in key.items() for ahead in range(deepest)}
            body(Step())
            return self.ids[1], [(visits[k, 1].number, visits[k, 1].slot) for k in like]

        self.where = "loop"
        zero = jnp.int32(0)
        lax.fori_loop(0, steps, iteration, ([zero] * len(self.grid), [(zero, zero)] * len(like)))
        self.where = "epilogue"

    def _count(self, ids, by):
        """The grid indices one step later (by = 1) or earlier (-1); the first step follows the last."""
        counted, carry = [], by
        for i, n in zip(reversed(ids), reversed(self.grid), strict=True):
            i, (limit, wrapped) = i + carry, (n, 0) if by == 1 else (-1, n - 1)
            counted, carry = [jnp.where(i == limit, wrapped, i), *counted], jnp.where(i == limit, by, 0)
        return counted

    # -- verbs

    def copy_in_start(self, x, t):
        self._copy("copy_in_start", x, self._block(x, t), self.visit(x, t).slot)

    def copy_in_wait(self, x, visit):
        self._copy("copy_in_wait", x, self._block(x, Step()), visit.slot)

    def run(self, t):
        with at_position(self.ids[0], self.grid):
            self.body([self._slot(x, self.seen[x.name, 0].slot) for x in self.operands])

    def copy_out_start(self, y, t):
        block, slot = self._block(y, t), self.visit(y, t).slot
        if y.name in self.sent:
            for d, b in enumerate(block):
                self.sent[y.name][slot, d] = b
        self._copy("copy_out_start", y, block, slot)

    def copy_out_wait(self, y, visit):
        if not isinstance(visit, Visit):  # after the loop
            block, slot = self.visits_of[y.name].blocks[visit], visit % y.depth
        elif y.name in self.sent:
            slot = visit.slot
            block = self._known(y, [self.sent[y.name][slot, d] for d in range(len(y.shape))])
        else:  # a wait takes the copy's bytes, and all copies have as many: any block will do
            block, slot = self.visits_of[y.name].blocks[0], visit.slot
        self._copy("copy_out_wait", y, block, slot)

    def _slot(self, x, number, part=()):
        """A slot, or a part of it (tiles.py lays them out)."""
        buffer, shape = self.slots[x.name], x.ref_shape
        if len(buffer.shape) > len(shape):
            return buffer.at[(number, *[0] * (len(buffer.shape) - len(shape) - 1), *part)]
        [part] = part or [pallas.ds(0, *shape)]
        start = number * shape[0] if isinstance(number, int) else pallas.multiple_of(number * shape[0], shape[0])
        return buffer.at[pallas.ds(start + part.start, part.size)]

    def _copy(self, verb, x, block, slot):
        """Start a block's copy, or wait for it. Of an edge block only the part inside the array is copied."""
        for condition, part in _kinds(block, self.parts[x.name]):
            _when(condition, partial(self._copy_part, verb, x, block, slot, part))

    def _copy_part(self, verb, x, block, slot, part):
        home, inside = [], []
        for d, ((a, c), (low, size)) in enumerate(zip(starts_of(x), part, strict=True)):
            at = block[d] * a if isinstance(block[d], int) or a == 1 else pallas.multiple_of(block[d] * a, a)
            at = at + (c + low) if c + low else at
            home.append(at if d in x.squeeze else pallas.ds(at, size))
            if d not in x.squeeze:
                inside.append(pallas.ds(low, size))
        sizes = tuple(size for _, size in part)
        whole = sizes == x.block_shape
        ends = self.homes[x.name].at[tuple(home)], self._slot(x, slot, () if whole else inside)
        dma(self.label + entry(self.where, verb, x, part), verb, *(ends[::-1] if x.is_output else ends),
            self.semaphores[x.name].at[slot])


def entry(where, verb, x, part) -> str:
    """What a copy is called in the program's text: its place, its entry in the schedule, and its part at an edge."""
    lows, sizes = zip(*part, strict=True) if part else ((), ())
    edge = "" if sizes == x.block_shape else f", {'x'.join(map(str, sizes))} of it"
    return f"{where}: {verb}({x.name}){edge}" + f" from {'x'.join(map(str, lows))}" * any(lows)


def _kinds(block, parts):
    """(condition, part of the slot) for each kind of block that this one may be."""
    kinds = [(True, ())]
    for b, choices in zip(block, parts, strict=True):
        if isinstance(b, int):
            choices = {part: blocks for part, blocks in choices.items() if b in blocks}
        usual = max(choices, key=lambda part: len(choices[part]))
        is_kind = {part: reduce(or_, [b == i for i in sorted(choices[part])]) for part in choices if part != usual}
        is_kind[usual] = ~reduce(or_, is_kind.values()) if is_kind else True
        kinds = [(c & is_kind[part], (*sofar, part)) for c, sofar in kinds for part in choices]
    return kinds


def _inner_axis(begins, grid) -> int | None:
    """The axis such that visits begin just where it and all axes inside it are at 0; None if there is no such axis."""
    ids = np.indices(grid).reshape(len(grid), len(begins))
    return next((a for a in range(len(grid), -1, -1) if ((ids[a:] == 0).all(0) == begins).all()), None)


def _when(condition, f):
    if condition is True:
        f()
    elif condition is not False:
        pallas.when(condition)(f)


def dma(text, verb, source, target, semaphore):
    with jax.named_scope(text):  # the Mosaic text shows it beside the instruction
        copy = pltpu.make_async_copy(source, target, semaphore)
        copy.start() if verb.endswith("start") else copy.wait()


class Memory:
    """A ref of real Pallas, named."""

    def __init__(self, name, ref, is_semaphore=False):
        self.name, self.ref, self.is_semaphore = name, ref, is_semaphore
        self.shape, self.dtype = tuple(ref.shape), ref.dtype


class Window(Ref):
    """A kernel's ref, on a ref of real Pallas."""

    @property
    def pallas(self):
        memory, starts, sizes = self.window
        if self._kept == tuple(range(len(sizes))) and tuple(sizes) == memory.shape:
            return memory.ref
        spans = enumerate(zip(starts, sizes, strict=True))
        return memory.ref.at[tuple(pallas.ds(start, n) if d in self._kept else start for d, (start, n) in spans)]

    def _load(self):
        return self.pallas[...]

    def _store(self, value):
        self.pallas[...] = value


class Machine:
    """The refs, copies and pipelines of a kernel being traced. `scalars`: what the call's index maps read."""

    def resolve(self, spec, name, *given):
        try:
            return _specs.resolve(spec, name, *given)
        except SpecError as error:
            if "holds an array" not in str(error):
                raise
            raise NotSupportedError(f"{name}: an index map of emit_pipeline that uses values of the kernel around it "
                                    "is not lowered to a TPU program yet. Give the pipeline's own grid the axis that "
                                    "it comes from, or copy the blocks with make_async_copy.") from None

    def __init__(self, scalars, held):
        self.index_scalars, self.held, self.pipelines = scalars, held, 0

    def home(self, name, shape, dtype, given, is_input=False):
        return Window(Memory(name, given))

    def scalars(self, name, memory):
        return Window(memory)

    def scoped(self, kinds, f):
        def inside(*refs):
            return f(*(Window(Memory(name or "scoped", ref, _specs.is_semaphore(kind)))
                       for (name, kind), ref in zip(kinds, refs, strict=True)))
        with self.held.more(in_vmem(kinds)):
            return pallas.run_scoped(inside, *(allocation(kind) for _, kind in kinds))

    def copy_start(self, copy):
        self._copy("copy_start", copy)

    def copy_wait(self, copy, semaphore):
        self._copy("copy_wait", copy)

    def _copy(self, verb, copy):
        if copy.sender is not None:
            raise NotSupportedError("make_async_remote_copy is not lowered to a TPU program yet. For a copy on one "
                                    "chip, call make_async_copy.")
        text = f"kernel: {verb}({copy.source.memory.name} → {copy.target.memory.name})"
        semaphore = copy.semaphore.pallas.at[(0,) * copy.semaphore.ndim]
        dma(text, verb, copy.source.pallas, copy.target.pallas, semaphore)

    def pipeline(self, operands, refs, grid, body, outer=False):
        """The pipeline of resolved operands on HBM refs; `body(block refs)` runs a step at its position."""
        uneven = [y for y in operands if y.is_output and any(len(choices) > 1 for choices in parts(y))]
        homes = {x.name: ref.pallas for x, ref in zip(operands, refs, strict=True)}
        self.pipelines += 1
        label, scalars = ("", self.index_scalars) if outer else (f"pipeline {self.pipelines}, ", ())

        def run(blocks):
            body([Window(Memory(x.name, block)) for x, block in zip(operands, blocks, strict=True)])

        def inside(*scratch):
            scratch = iter(scratch)
            slots, semaphores, sent = ({x.name: next(scratch) for x in xs} for xs in (operands, operands, uneven))
            engine = Engine(operands, grid, scalars, homes, slots, semaphores, sent, run, label)
            pipeline(engine, engine.steps, operands)
        buffers = (pltpu.SMEM((x.depth, *x.ref_shape), x.dtype) if x.steers else
                   pltpu.VMEM(slots(x.depth, x.ref_shape, x.dtype), x.dtype) for x in operands)
        with self.held.more((x.name, x.ref_shape, x.dtype, x.depth) for x in operands if not x.steers):
            pallas.run_scoped(inside, *buffers, *(pltpu.SemaphoreType.DMA((x.depth,)) for x in operands),
                              *(pltpu.SMEM((y.depth, len(y.shape)), jnp.int32) for y in uneven))


def in_vmem(kinds):
    """Of what a kernel allocates, as (name, kind): the buffers in VMEM, as Held takes them."""
    return [(name or "scoped", kind.shape, kind.dtype, 1) for name, kind in kinds
            if getattr(kind, "memory_space", None) is _specs.VMEM]


def allocation(kind):
    """Scratch, as upstream writes it."""
    if isinstance(kind, _specs.SemaphoreType):
        return getattr(pltpu.SemaphoreType, kind.name)
    if _specs.is_semaphore(kind):
        return getattr(pltpu.SemaphoreType, kind.memory_space.name)(kind.shape)
    return getattr(pltpu, kind.memory_space.name)(kind.shape, kind.dtype)


def kernel_call(traced, interpret=False, debug=False, held=None):
    """The call as upstream's `pallas_call`: a function of the arrays, prefetched scalars first, in flat order.

    When it is traced, `held` is told what it takes of VMEM.
    """
    held = held or Held()
    inputs, outputs = ([x for x in traced.arrays if x.is_output == out] for out in (False, True))
    operands, free, extras, grid = traced.parts
    n = len(traced.scalars)

    def kernel(*refs):
        arrays = inputs + outputs  # of arrays that share memory, the output's ref serves both
        scalars, homes, scratch = refs[:n], refs[n:n + len(arrays)], refs[n + len(arrays):]
        memories = [(name, Memory(name, ref, _specs.is_semaphore(e) if i >= n else False))
                    for i, ((name, e), ref) in enumerate(zip(extras, [*scalars, *scratch], strict=True))]
        machine = Machine([Window(memory) for _, memory in memories[:n]], held)
        with held.more(in_vmem(extras[n:])):
            play(machine, traced.call.kernel, operands, free, memories, grid,
                 {x.array: ref for x, ref in zip(arrays, homes, strict=True)}, traced.unflatten)

    in_hbm = pallas.BlockSpec(memory_space=pltpu.HBM)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=n, grid=(), in_specs=[in_hbm] * len(inputs), out_specs=[in_hbm] * len(outputs),
        scratch_shapes=[allocation(e) for _, e in extras[n:]])
    aliases = {n + i: o for i, x in enumerate(inputs) for o, y in enumerate(outputs) if x.array == y.array}
    # The copies lie inside their arrays and semaphores do not overflow (traced.hazards), so the program does not check
    # them again. A kernel that picks its elements as it runs, or copies by itself, keeps the checks.
    proven = not traced.manual and not traced.body.moving
    limit = getattr(traced.call.compiler_params, "vmem_limit_bytes", None)
    return pallas.pallas_call(
        kernel, [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in outputs], grid_spec=spec, interpret=interpret,
        input_output_aliases=aliases, name=traced.call.name, debug=debug, compiler_params=pltpu.CompilerParams(
            vmem_limit_bytes=limit, disable_bounds_checks=proven, disable_semaphore_checks=proven))
