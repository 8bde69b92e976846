"""step: a kernel run step by step, in Python, on buffers that watch every access. For kernels with copies of their own.

Slower than the other engines, and it sees everything: each read, write, copy and wait goes through races.py, and into a
log, which log.py reads as a Schedule.
"""
import math
from collections import Counter, defaultdict, deque
from typing import NamedTuple

import jax
import numpy as np

from .. import specs as _specs
from ..body import at_position
from ..engines.record import record
from ..errors import BlockIndexError, PipelineError, many
from ..memory import FILLINGS, InterpretParams, filling, garbage
from ..races import Races
from ..refs import Ref
from ..reports import differ, where, written_input
from ..schedule import IN_START, OUT_START, RUN, size_of
from ..tracer_errors import first_outside
from ..verify import Hazard, verify
from . import mends
from .buffers import COPY, READ, SEND, WAIT, WRITE, Access, Buffer, common, merged, nth, part, rectangle_of, spot
from .copies import block_ref, play
from .loops import loops_count_as_jax


class Outcome(NamedTuple):
    """What a run gives. `stopped` is why it came to no end."""

    values: dict[str, np.ndarray]  # of the arrays in HBM
    hazards: list[Hazard]
    log: list[Access]
    stopped: PipelineError | BlockIndexError | None
    unspecified: dict[str, np.ndarray] = {}  # array -> a mask of what reported garbage has reached


class Step:
    """The machine: buffers, semaphores, copies in flight, and the log of what happened."""

    def __init__(self, params: InterpretParams, filling: int | None = None, indices=(), like=()):
        self.params, self.rng, self.filling, self.like = params, params.rng, filling, like  # like: see memory.filling
        self.indices = indices  # the grid position of each step of the call
        self.races = Races(self.clash)
        self.log: list[Access] = []
        self.found: dict[tuple, Hazard] = {}  # by kind and events
        self.pending = defaultdict(deque)  # semaphore -> (number, bytes, move or None) of copies in flight
        self.had = defaultdict(int)  # semaphore -> bytes taken by waits and not yet matched to a finished copy
        self.key = {}  # number of a copy -> its semaphore
        self.waits = defaultdict(list)  # semaphore -> numbers of the waits on it
        self.names = {}  # semaphore -> how the kernel calls it
        self.lines = Counter()  # (line, verb, buffer) -> times
        self.at = None  # the step of the outermost pipeline that has more than one
        self.runs, self.computing = 0, False  # stretches of computing between copies: they count the steps otherwise
        self.scopes = 0
        self.unwritten = []  # (array, rectangle): what an output keeps of the garbage that it held
        self.in_blocks = set()  # the outputs of the call's own pipeline
        self.file = None  # of the kernel, if known

    # -- what the kernel does

    def read(self, buffer, rectangle):
        number = self._note(READ, (buffer, rectangle))
        if self.races.read(number, buffer.places.find(rectangle)) and not buffer.is_semaphore:
            what, mend = mends.of_unwritten(buffer)
            self.report("uninitialised", f"{self.show(number)}, {what}", mend, number)

    def write(self, buffer, rectangle):
        number = self._note(WRITE, (buffer, rectangle))
        self._write_input(number, buffer, rectangle)
        self.races.write(number, buffer.places.find(rectangle))

    def _write_input(self, number, buffer, rectangle):
        """A report if that is an input, once for each."""
        if buffer.is_input:
            what, mend = written_input(buffer.name)
            if buffer.in_hbm:
                what = (f"{self.show(number)} writes to the input {buffer.name}: the array belongs to the caller, who "
                        "may see it change, or not.")
                mend = "Copy to an output, or let one share the input's memory with input_output_aliases."
            self.report("written input", what, mend, number, window=(buffer, rectangle), once=buffer.name)

    def home(self, name, shape, dtype, given, is_input=False):
        value = np.array(given) if given is not None else self.garbage(shape, dtype)
        return Ref(Buffer(self, name, value, written=given is not None, in_hbm=True, is_input=is_input))

    def garbage(self, shape, dtype):
        if self.filling is not None:
            return np.resize(filling(self.filling, dtype, False, self.like), shape)
        return garbage(self.params, shape, dtype, self.rng)

    def scalars(self, name, value):
        return Ref(Buffer(self, name, value.copy(), written=True, steers=True))

    def allocate(self, kind, name=None):
        self.scopes += 1
        semaphore = _specs.is_semaphore(kind)
        value = np.zeros(kind.shape, np.int32) if semaphore else self.garbage(kind.shape, kind.dtype)
        return Ref(Buffer(self, name or f"scoped{self.scopes}", value, is_semaphore=semaphore,
                          steers=kind.memory_space is _specs.SMEM))

    def scoped(self, kinds, f):
        refs = [self.allocate(kind, name) for name, kind in kinds]
        result = f(*refs)
        self.free(refs)
        return result

    def free(self, refs):
        """The end of a scope: what is still in flight there would land in memory that belongs to somebody else."""
        gone = {r.memory for r in refs}
        for (semaphore, _), copies in self.races.in_flight.items():
            for number in copies:
                a = self.log[number]
                if semaphore in gone or any(buffer in gone for buffer, _ in a.windows):
                    names = ", ".join(r.memory.name for r in refs)
                    self.report("never waited",
                                f"{self.show(number)} is still in flight where the scope of {names} ends.",
                                f"Call {a.wait} inside the function that run_scoped calls.", number)
        for buffer in gone:
            buffer.freed = True

    def copy_start(self, copy):
        sender = self._key(copy.sender) if copy.sender is not None else None
        self.start(copy.source, copy.target, self._key(copy.semaphore), sender=sender)

    def copy_wait(self, copy, semaphore):
        refs = copy.source, copy.target
        ends = [rectangle_of(ref) for ref in refs]
        text = " → ".join(b.show(r, kept=ref.kept) for ref, (b, r) in zip(refs, ends, strict=True))
        self.wait(copy.target, self._key(semaphore), text, ends=ends)

    def _key(self, semaphore):
        key = buffer, rectangle = rectangle_of(semaphore)
        self.names[key] = buffer.show(rectangle, kept=semaphore.kept)
        return key

    # -- copies

    def start(self, source, target, key, block=None, sender=None):
        ends = rectangle_of(source), rectangle_of(target)
        names = ", ".join(self.names[k] for k in (sender, key) if k in self.names)
        more = {"semaphore": names, "block": block, "remote": sender is not None,
                "kept": (source.kept, target.kept)}
        sources, targets = (buffer.places.find(rectangle) for buffer, rectangle in ends)
        number = self._note(SEND if sender else COPY, *ends, **more)
        if any(p.last is None and not p.writes and not p.clash for p in sources):
            what, mend = mends.of_unwritten(ends[0][0], sent=True)
            self.report("uninitialised", f"{self.show(number)} sends {what}", mend, number)
        (source, this), (target, that) = ends
        if target.in_hbm or not block:
            self._write_input(number, target, that)
        values = []

        def read():
            values.append(source.value[part(this)].reshape([b - a for a, b in that]).copy())

        def move():
            if not values:
                read()
            target.value[part(that)] = values[0]
        amount = size_of(that) * target.dtype.itemsize
        if sender:  # its two semaphores tell of its two halves
            self._launch(number, sources, [], sender, amount, read)
            number, sources = self._note(COPY, *ends, **more), []
        self._launch(number, sources, targets, key, amount, move)

    def _launch(self, number, sources, targets, key, amount, move):
        self.key[number] = key  # first, as to start may be to clash
        self.races.start(number, sources, targets, key, amount)
        if self.params.lands_at_once(self.rng):
            move()
            move = None
        self.pending[key].append((number, amount, move))

    def wait(self, target, key, text, block=None, ends=()):
        amount, left = _bytes(target), self.races.owed[key] - self.races.taken[key]
        flying = tuple(self.races.in_flight[key])
        if not self.races.wait(key, amount):
            number = self._note(WAIT, rectangle_of(target), block=block)
            what = (f"the wait for {text}{self.where(number)} asks its semaphore {self.names.get(key, '')} for more "
                    f"than the copies started on it bring ({amount} bytes, of which {left} can come): the program "
                    "would hang here.").replace("  ", " ")
            mend = mends.of_hang(self, key, ends)
            cause = "".join(f"\n  Before that, {h}" for h in self.hazards[:1])
            self.report("hang", what, mend, number)
            raise PipelineError(f"step {self.log[number].step}: {what} {mend}{cause}")
        self.had[key] += amount
        while self.pending[key] and self.had[key] >= self.pending[key][0][1]:
            _, size, move = self.pending[key].popleft()
            self.had[key] -= size
            if move:
                move()
        # In the schedule a copy is waited for where it is guaranteed, and on a shared semaphore that may be later.
        done = () if self.races.in_flight[key] else flying
        self.waits[key].append(self._note(WAIT, rectangle_of(target), block=block, copies=done))

    # -- pipelines: pallas_call's own, and emit_pipeline's

    def resolve(self, *given):
        return _specs.resolve(*given, in_kernel=f"{self.here()}in emit_pipeline, ")

    def pipeline(self, operands, refs, grid, body, outer=False):
        """Play the pipeline of resolved operands on HBM refs; `body(block refs)` runs a step at its position."""
        steps = math.prod(grid)
        slots = {x.name: Ref(Buffer(self, x.name, self.garbage((x.depth, *x.block_shape), x.dtype), is_slots=True,
                                    steers=x.steers, is_input=not x.is_output)) for x in operands}
        homes = {x.name: ref for x, ref in zip(operands, refs, strict=True)}
        known = {x.name: x for x in operands}
        if outer:
            self.in_blocks = {x.array for x in operands if x.is_output}
        scope, counts = object(), self.at is None and steps > 1
        self.runs, self.computing = self.runs + self.computing, False
        first = self.runs
        schedule, numbers = record(steps, operands), []
        for e in schedule:
            numbers.append(len(self.log))
            if counts:
                self.at = first + e.step
            if e.verb == RUN:
                for x, s in zip(operands, e.slots, strict=True):
                    if x.is_output and (e.step == 0 or x.blocks[e.step] != x.blocks[e.step - 1]):
                        self.forget(slots[x.name].at[s], left_over=e.step > 0)
                blocks = [block_ref(slots[x.name].at[s], x) for x, s in zip(operands, e.slots, strict=True)]
                ids = self.indices[e.step] if outer else np.unravel_index(e.step, grid) if grid else ()
                with at_position([np.int32(i) for i in ids], grid), jax.disable_jit(), loops_count_as_jax():
                    body(blocks)
                continue
            x = known[e.operand]
            array, inside = x.window(e.block)
            ends = homes[e.operand].at[array], slots[e.operand].at[e.slot].at[inside]
            source, target = ends[::-1] if x.is_output else ends
            key, block = (scope, (e.operand, e.slot, x.is_output)), (x.info, e.block, e.slot)
            if e.verb == IN_START:
                self.forget(slots[e.operand].at[e.slot])
            if e.verb in (IN_START, OUT_START):
                self.start(source, target, key, block)
            else:
                self.wait(target, key, f"{x.info.show(e.block)} in slot {e.slot}", block)
        if counts:
            self.at, self.runs, self.computing = None, first + steps, False
        for h in verify(schedule):  # what the kernel did with the slots and HBM itself was seen on the way
            before, again = (numbers[n] for n in (h.events[0], h.events[-1]))
            home = homes[h.operand].memory
            read_back = any(a.verb in (COPY, SEND) and a.windows[0][0] is home for a in self.log[before:again])
            if h.kind == "revisit" and not read_back:
                self.report(h.kind, h.message, h.mend, before, again)

    def forget(self, slot, left_over=False):
        """A visit begins: what the last one left in its slot is nothing that a program may count on."""
        buffer, rectangle = rectangle_of(slot)
        buffer.left_over |= left_over
        for place in buffer.places.find(rectangle):
            if not place.reads and not place.writes:
                place.last = None
        if self.filling is not None:
            window = part(rectangle)
            buffer.value[window] = self.garbage(buffer.value[window].shape, buffer.dtype)

    # -- the log and its words

    def _note(self, verb, *windows, **more) -> int:
        if verb in (READ, WRITE):
            self.computing |= not windows[0][0].steers
            out = False
        else:
            self.runs, self.computing = self.runs + self.computing, False
            out = windows[-1][0].in_hbm  # sending a result belongs to the step that made it
        step = self._step(out)
        line = None if more.get("block") else self._line()
        self.lines[line, verb, windows[0][0]] += 1
        self.log.append(Access(verb, step, windows, line, self.lines[line, verb, windows[0][0]], **more))
        return len(self.log) - 1

    def _step(self, out=False) -> int:
        return self.at if self.at is not None else max(self.runs - out, 0)

    def here(self) -> str:
        """Where the kernel is, before something goes wrong there:  step 3, line 12:  or, behind it,  after step 3, …"""
        after = self.at is None and self.runs and not self.computing
        return f"{'after ' * bool(after)}step {self._step(out=after)}, {spot(self._line(), self.file)}: "

    @staticmethod
    def _line() -> tuple[str, int]:
        """The line of the kernel that is at work."""
        frame = first_outside()[1]
        return frame.f_code.co_filename, frame.f_lineno

    def where(self, number) -> str:
        """The place in the kernel's source:  (line 12, 3rd time)."""
        a = self.log[number]
        if a.line is None:
            return ""
        times = f", {nth(a.time)} time" if self.lines[a.line, a.verb, a.windows[0][0]] > 1 else ""
        return f" ({spot(a.line, self.file)}{times})"

    def show(self, number) -> str:
        a = self.log[number]
        if a.verb in (COPY, SEND):
            whose = "the pipeline's copy" if a.block else "the copy"
            return f"{whose} {' → '.join(buffer.show(r) for buffer, r in a.windows)}{self.where(number)}"
        return f"the kernel {a.verb}s {a.windows[0][0].show(a.windows[0][1])}{self.where(number)}"

    def clash(self, kind, first, second):
        a, b = self.log[first], self.log[second]
        in_hbm = b.verb in (COPY, SEND) and any(buffer.in_hbm for buffer, _ in common(a, b))
        name = "hbm race" if in_hbm else "read before wait" if kind == "read" else "overwrite in flight"
        starts = " starts" * (b.verb in (COPY, SEND))
        said = (f"{self.show(first)} overwrites a part of its own source." if first == second else
                f"{self.show(second)}{starts} while {self.show(first)} of step {a.step} is still in flight.")
        self.report(name, said, mends.of_clash(self, kind, first, second), first, second)

    def report(self, kind, message, mend, *events, window=None, once=None):
        a, b = self.log[events[0]], self.log[events[-1]]
        buffer, rectangle = window or min(common(a, b) or b.windows, key=lambda window: window[0].in_hbm)
        hazard = Hazard(kind, message, mend, buffer.name, b.step, buffer.slot_of(rectangle), events)
        self.found.setdefault((kind, once or events), hazard)

    @property
    def hazards(self) -> list[Hazard]:
        """What was found, in program order."""
        return sorted(self.found.values(), key=lambda h: h.events[-1])

    def finish(self, outputs: dict[str, Buffer]):
        for key, copies in self.races.in_flight.items():
            taken, owed = self.races.taken[key], self.races.owed[key]
            for number in copies:
                what, call = "is never waited for: nobody knows whether it arrived.", "Call"
                if taken and len(copies) == 1:
                    what = f"is waited for in part: waits take {taken} of its {owed} bytes."
                    call = "In place of the wait for a part of it, call"
                elif taken:  # some were waited for; the semaphore does not tell which
                    what = (f"may be the one that is not waited for: semaphore {self.names.get(key)} gets {owed} bytes "
                            f"from {many(len(copies), 'copy', 'copies')}, and waits take {taken}. {owed - taken} are "
                            "left in it.")
                self.report("never waited", f"{self.show(number)} {what}",
                            f"{call} {self.log[number].wait} before the kernel ends.", number)
        for array, buffer in outputs.items():
            self.races.final(buffer.places.places.values())
            lost = merged(r for r, p in buffer.places.places.items() if p.last is None and not p.writes and not p.clash)
            self.unwritten += [(array, rectangle) for rectangle in lost]
            if lost and array not in self.in_blocks:  # there no step visits it, as verify.grid_hazards says
                mask = np.zeros(buffer.shape, bool)
                for rectangle in lost:
                    mask[part(rectangle)] = True
                number = self._note(READ, (buffer, lost[0]))
                extent = buffer.show(lost[0]) if len(lost) == 1 else where(buffer.name, mask)
                self.report("unwritten", f"output {extent} is never written: whatever memory held stays there.",
                            "Copy the whole of it out.", number)
                self.log.pop()


def run(kernel, operands, free, extras, grid, indices, inputs, params, unflatten) -> Outcome:
    """A kernel's values, hazards and log. Parameters: as for copies.play; `indices`: the grid position of each step.

    Memory that nobody had written may be read, and left out of the results: that is reported only where runs on other
    garbage give other results.
    """
    def go(filling=None):
        here, stopped, homes = Step(params, filling, indices, inputs.values()), None, {}
        here.file = getattr(getattr(getattr(kernel, "func", kernel), "__code__", None), "co_filename", None)
        try:
            with jax.ensure_compile_time_eval():  # also where the call itself is being traced
                homes = play(here, kernel, operands, free, extras, grid, inputs, unflatten)
            here.finish({array: ref.memory for array, ref in homes.items()})
        except PipelineError as error:
            stopped = error
        except BlockIndexError as error:
            stopped = BlockIndexError("\n  Before that, ".join(map(str, [error, *here.hazards[:1]])))
            stopped.with_traceback(error.__traceback__)  # whose lines tell where in the kernel
            if filling is None:  # else: what memory held decides
                raise stopped from None
        return here, Outcome({a: r.memory.value for a, r in homes.items()}, here.hazards, here.log, stopped)

    outcome = go()[1]
    if any(h.kind == "uninitialised" for h in outcome.hazards) and not outcome.stopped:
        runs = [go(k) for k in range(FILLINGS)]
        if any(run.stopped for _, run in runs):  # garbage decides whether it comes to an end
            return outcome._replace(unspecified={a: np.ones(v.shape, bool) for a, v in outcome.values.items()})
        values = [_written(*run) for run in runs]
        masks = {array: differ(each[array] for each in values) for array in outcome.values}
        if any(mask.any() for mask in masks.values()):
            return outcome._replace(unspecified=masks)
        return outcome._replace(hazards=[h for h in outcome.hazards if h.kind != "uninitialised"])
    return outcome


def _written(here, outcome):
    """The arrays, with zeros in the cells that nobody wrote."""
    values = {array: value.copy() for array, value in outcome.values.items()}
    for array, rectangle in here.unwritten:
        values[array][part(rectangle)] = 0
    return values


def _bytes(ref) -> int:
    return ref.size * np.dtype(ref.dtype).itemsize
