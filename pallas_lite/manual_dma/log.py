"""log: what a stepped kernel did (step.py) -> a Schedule, to print, to draw and to time like any other.

A buffer that a copy fills or empties is an operand. Where copies take one leading index of it, that is the slot; the
window of the array on the other side is the block. Copies between two arrays, or two buffers, are listed as copies in.
"""
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..schedule import IN_START, IN_WAIT, OUT_START, OUT_WAIT, RUN, Event, OperandInfo, Schedule
from ..verify import Hazard
from .buffers import COPY, SEND, WAIT


def schedule_of(log, name: str, hazards: Sequence[Hazard] = ()) -> Schedule:
    """The schedule of a log. It has the hazards found on the way, their events numbered as its own are.

    A run is a stretch of computing between copies, on the slots that it touches (the last one, where it touches several
    slots of a buffer; -1 for an operand that it leaves alone).
    """
    copies = {number: _ends(a) for number, a in enumerate(log) if a.verb == COPY}
    windows = defaultdict(set)  # operand -> the windows that it takes in HBM
    buffers, shapes = defaultdict(set), {}
    for key, _, near, far in copies.values():
        windows[key].add(far[1])
        buffers[key].add(near[0])
        shapes[key] = far[0].shape
    cuts = {key: _cut(mine, shapes[key]) for key, mine in windows.items()}
    infos = _infos(copies, log, cuts)
    keys, events, touched, step = list(infos), [], {}, 0
    places, accesses = {}, []  # number in the log -> in the schedule; the accesses since the last copy

    def run():
        slots = tuple(next((s for m, s in touched.items() if m in buffers[key]), -1) for key in keys)
        if any(s >= 0 for s in slots):
            places.update(dict.fromkeys(accesses, len(events)))
            events.append(Event(RUN, step, slots=slots))
        touched.clear()
        accesses.clear()

    def copy(number, is_wait, step):
        key, is_out, (buffer, near), (array, far) = copies[number]
        verb = (OUT_WAIT if is_wait else OUT_START) if is_out else IN_WAIT if is_wait else IN_START
        # A late wait for a copy out is on behalf of the next step, as in a hand-written loop.
        step = max(step, events[-1].step if verb == OUT_WAIT and events else 0)
        given = log[number].block
        block = given[1] if given else _block(far, *cuts[key])
        events.append(Event(verb, step, infos[key].name, block, max(buffer.slot_of(near), 0)))

    for number, a in enumerate(log):
        if a.verb in (COPY, WAIT):
            run()
            for n in [number] if a.verb == COPY else a.copies:
                if n in copies:
                    places[number] = len(events)
                    copy(n, a.verb == WAIT, a.step)
        elif a.verb != SEND and not a.windows[0][0].steers:
            (buffer, rectangle), step = a.windows[0], a.step
            touched[buffer] = max(buffer.slot_of(rectangle), 0)
            accesses.append(number)
    run()
    seen = tuple(replace(h, events=tuple(places[n] for n in h.events if n in places)) for h in hazards)
    return Schedule(tuple(events), tuple(infos.values()), name=name, hazards=seen)


def _ends(a):
    """(operand, is it a copy out?, window of the buffer, window of the array) of a copy."""
    source, target = a.windows
    is_out = target[0].in_hbm and not source[0].in_hbm
    near, far = (source, target) if is_out else (target, source)
    sizes = tuple(b - a for a, b in far[1])
    return (a.block[0] if a.block else (near[0], is_out, far[0], sizes)), is_out, near, far


def _infos(copies, log, cuts) -> dict:
    """What a schedule knows of each operand, under a name of its own."""
    infos, names = {}, set()
    for number, (key, is_out, (buffer, near), (array, far)) in copies.items():
        if key in infos:
            continue
        info = log[number].block and log[number].block[0]
        if not info:
            depth = buffer.shape[0] if buffer.slot_of(near) >= 0 else 1
            sizes = tuple(b - a for a, b in far)
            shape = tuple(sizes[d] for d in cuts[key][0])
            info = OperandInfo(buffer.name, array.name, is_out, depth, math.prod(sizes) * array.dtype.itemsize, shape)
        # A buffer may be filled from one array and sent to another, or in parts; emit_pipeline numbers its own "x (2)".
        base = info.name.partition(" (")[0]
        name = next(n for n in [base, *(f"{base}_{k}" for k in range(2, len(names) + 2))] if n not in names)
        names.add(name)
        infos[key] = replace(info, name=name)
    return infos


def _cut(windows, shape) -> tuple[list[int], bool]:
    """The dimensions in which an array is cut, and whether each window lies at a multiple of its size."""
    return ([d for d, n in enumerate(shape) if any(w[d] != (0, n) for w in windows)],
            all(a % (b - a) == 0 for w in windows for a, b in w if a))


def _block(window, dims, even) -> tuple[int, ...]:
    """The block index of a window: its place in units of its size, or in elements where windows lie otherwise."""
    return tuple(window[d][0] // (window[d][1] - window[d][0]) if even else window[d][0] for d in dims)
