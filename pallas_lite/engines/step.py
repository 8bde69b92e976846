"""step: a kernel run step by step, in Python, on buffers that watch every access. For kernels with copies of their own.

Slower than the other engines, and it sees everything: each read, write, copy and wait goes through races.py.
"""
import itertools
import math
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np

from .. import manual
from ..body import at_position, run_kernel
from ..errors import PipelineError, SpecError
from ..memory import InterpretParams, garbage
from ..races import Races, Rectangles
from ..refs import Ref
from ..schedule import IN_START, OUT_START, RUN
from ..specs import is_semaphore
from ..verify import Hazard
from .record import record


class Buffer:
    """Some memory of the machine. Refs are windows on it."""

    def __init__(self, machine, name, value, written=False, is_semaphore=False, in_hbm=False):
        self.machine, self.name, self.value, self.is_semaphore = machine, name, value, is_semaphore
        self.in_hbm = in_hbm  # a kernel computes on SRAM only
        self.shape, self.dtype = value.shape, value.dtype
        self.places = Rectangles(machine.races, value.shape)
        if written:  # an operand: its values were there before the kernel
            for place in self.find((0,) * value.ndim, value.shape):
                place.last = -1

    def find(self, starts, sizes):
        return self.places.find(tuple((int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True)))

    def part(self, starts, sizes):
        return tuple(slice(int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True))

    def load(self, starts, sizes):
        self._in_reach("read")
        self.machine.read(self, starts, sizes)
        return jnp.asarray(self.value[self.part(starts, sizes)].copy())

    def _in_reach(self, what):
        if self.in_hbm:
            raise SpecError(f"{self.name} is in HBM, where a kernel cannot {what} directly. Copy the part that you "
                            "want to or from a VMEM buffer with make_async_copy, or give it a BlockSpec with a "
                            "block_shape.")

    def store(self, starts, sizes, value):
        self._in_reach("write")
        self.machine.write(self, starts, sizes)
        self.value[self.part(starts, sizes)] = np.asarray(value)


class Step:
    """The machine: buffers, semaphores, copies in flight, and the log of what happened."""

    def __init__(self, params: InterpretParams):
        self.params, self.rng = params, params.rng
        self.races = Races(self.clash)
        self.log: list[tuple[int, str]] = []  # (step, what) of each access
        self.hazards: list[Hazard] = []
        self.seen = set()
        self.pending = defaultdict(list)  # semaphore -> (bytes, move or None) of copies in flight
        self.had = defaultdict(int)  # semaphore -> bytes taken by waits and not yet matched to a finished copy
        self.now, self.scopes = 0, 0

    # -- what the kernel does

    def read(self, buffer, starts, sizes):
        number = self._note(f"the kernel reads {_window(buffer, starts, sizes)}")
        if self.races.read(number, buffer.find(starts, sizes)) and not buffer.is_semaphore:
            self.report("uninitialised", f"the kernel reads {_window(buffer, starts, sizes)}, part of which nobody has "
                                         "written.",
                        "Write it, or copy something into it and wait, before reading it.", buffer.name, number)

    def write(self, buffer, starts, sizes):
        number = self._note(f"the kernel writes {_window(buffer, starts, sizes)}")
        self.races.write(number, buffer.find(starts, sizes))

    def allocate(self, kind, name=None):
        self.scopes += 1
        value = (np.zeros(kind.shape, np.int32) if is_semaphore(kind)
                 else garbage(self.params, kind.shape, kind.dtype, self.rng))
        return Ref(Buffer(self, name or f"scoped{self.scopes}", value, is_semaphore=is_semaphore(kind)))

    def copy_start(self, copy):
        self.start(copy.source, copy.target, _key(copy.semaphore))

    def copy_wait(self, copy):
        self.wait(_key(copy.semaphore), _bytes(copy.target), f"{copy.source.memory.name} → {copy.target.memory.name}")

    # -- copies

    def start(self, source, target, key):
        text = f"{_show(source)} → {_show(target)}"
        number = self._note(f"the copy {text}")
        sources, targets = (r.memory.find(r._starts, r._sizes) for r in (source, target))
        if any(p.last is None and not p.writes for p in sources):
            self.report("uninitialised", f"the copy {text} sends memory that nobody has written.",
                        "Write the whole of it first, or copy only what was written.", source.memory.name, number)
        self.races.start(number, sources, targets, key, _bytes(target))

        def move():
            part = source.memory.value[source.memory.part(source._starts, source._sizes)]
            target.memory.value[target.memory.part(target._starts, target._sizes)] = part.reshape(target._sizes)
        mode = self.params.dma_execution_mode
        if mode == "eager" or mode == "random" and self.rng.random() < 0.5:
            move()
            move = None
        self.pending[key].append((_bytes(target), move))

    def wait(self, key, amount, text):
        if not self.races.wait(key, amount):
            raise PipelineError(f"step {self.now}: the wait for {text} asks its semaphore for more than the copies "
                                "started on it bring: the program would hang here. Start the copy before this wait, or "
                                "drop the wait.")
        self.had[key] += amount
        while self.pending[key] and self.had[key] >= self.pending[key][0][0]:
            size, move = self.pending[key].pop(0)
            self.had[key] -= size
            if move:
                move()

    # -- pipelines: pallas_call's own, and emit_pipeline's

    def pipeline(self, operands, refs, steps, grid, body, outer=False):
        """Play the pipeline of resolved operands on HBM refs; `body(t, block refs)` runs a step."""
        slots = {x.name: [self._slot(x, s) for s in range(x.depth)] for x in operands}
        homes = {x.name: ref for x, ref in zip(operands, refs, strict=True)}
        known = {x.name: x for x in operands}
        indices = list(itertools.product(*map(range, grid)))
        scope = object()
        for e in record(steps, operands):
            if outer:
                self.now = e.step
            if e.verb == RUN:
                blocks = [_block(slots[x.name][s], x) for x, s in zip(operands, e.slots, strict=True)]
                with at_position([np.int32(i) for i in indices[e.step]], grid):
                    body(e.step, blocks)
                continue
            x, slot = known[e.operand], slots[e.operand][e.slot]
            array, part = x.window(e.block)
            home = homes[e.operand].at[array]
            inside = slot.at[part]
            ends = (home, inside) if not x.is_output else (inside, home)
            key = scope, e.operand, e.slot, x.is_output
            if e.verb in (IN_START, OUT_START):
                self.start(*ends, key)
            else:
                self.wait(key, _bytes(ends[1]), f"{x.info.show(e.block)} in slot {e.slot}")

    def _slot(self, x, s):
        return Ref(Buffer(self, f"{x.name}[slot {s}]", garbage(self.params, x.block_shape, x.dtype, self.rng)))

    # -- reports

    def _note(self, text) -> int:
        self.log.append((self.now, text))
        return len(self.log) - 1

    def clash(self, kind, first, second):
        (then, a), (_, b) = self.log[first], self.log[second]
        names = {"read": ("read before wait", "Wait for that copy first."),
                 "write": ("overwrite in flight", "Wait for that copy first, or use another slot."),
                 "order": ("overwrite in flight", "Wait for the first before the second begins.")}
        name, mend = names[kind]
        self.report(name, f"{b} while {a} (of step {then}) is still in flight.", mend, "", first, second)

    def report(self, kind, message, mend, operand, *events):
        if (kind, message) not in self.seen:
            self.seen.add((kind, message))
            self.hazards.append(Hazard(kind, message, mend, operand, self.log[events[-1]][0], -1, events))

    def finish(self, outputs):
        for copies in self.races.in_flight.values():
            for number in copies:
                self.report("never waited", f"{self.log[number][1]} is never waited for: nobody knows whether it "
                                            "arrived.",
                            "Wait for it before the kernel ends.", "", number)
        for buffer in outputs:
            self.races.final(buffer.places.places.values())
            for rectangle, place in buffer.places.places.items():
                if place.last is None and not place.writes and not place.clash:
                    part = _window(buffer, [a for a, _ in rectangle], [b - a for a, b in rectangle])
                    self.report("unwritten", f"output {part} is never written: whatever memory held stays there.",
                                "Copy the whole of it out.", buffer.name, self._note("the end"))
        return self.hazards


def run(kernel, operands, any_refs, extras, grid, inputs, params, unflatten):
    """The outputs by array name, and the hazards. `extras`: scalars by value, scratch by kind. `unflatten`: traced.py.

    `any_refs`: the operands that stay in HBM, as (name, array, shape, dtype, is_output).
    """
    machine = Step(params)
    token = manual.machine.set(machine)
    try:
        homes = {}
        for name, array, shape, dtype in [*((x.name, x.array, x.shape, x.dtype) for x in operands), *any_refs]:
            if array not in homes:
                given = array in inputs
                value = np.array(inputs[array]) if given else garbage(params, shape, dtype, machine.rng)
                homes[array] = Buffer(machine, name, value, written=given, in_hbm=True)
        rest = [_extra(machine, e, name) for name, e in extras]
        free = [Ref(homes[array]) for _, array, _, _ in any_refs]

        def body(t, blocks):
            ids, size = [np.int32(i) for i in np.unravel_index(t, grid)] if grid else [], grid
            with jax.disable_jit():
                run_kernel(kernel, unflatten, [*blocks, *free, *rest], ids, size)
        machine.pipeline(operands, [Ref(homes[x.array]) for x in operands], math.prod(grid), grid, body, outer=True)
        return {a: b.value for a, b in homes.items()}, machine.finish(homes.values())
    finally:
        manual.machine.reset(token)


def _extra(machine, e, name):
    if isinstance(e, np.ndarray):
        return Ref(Buffer(machine, name, e.copy(), written=True))
    return machine.allocate(e, name)


def _block(ref, x):
    """A slot as the kernel sees it: without the squeezed dimensions."""
    return ref.at[tuple(0 if d in x.squeeze else slice(None) for d in range(len(x.block_shape)))] if x.squeeze else ref


def _bytes(ref) -> int:
    return math.prod(ref._sizes) * np.dtype(ref.dtype).itemsize


def _key(semaphore):
    return id(semaphore.memory), tuple(int(s) for s in semaphore._starts)


def _window(buffer, starts, sizes) -> str:
    whole = all(int(s) == 0 for s in starts) and tuple(sizes) == tuple(buffer.shape)
    spans = [str(int(s)) if n == 1 and size > 1 else f"{int(s)}:{int(s) + n}"
             for s, n, size in zip(starts, sizes, buffer.shape, strict=True)]
    return buffer.name if whole else f"{buffer.name}[{', '.join(spans)}]"


def _show(ref) -> str:
    return _window(ref.memory, ref._starts, ref._sizes)
