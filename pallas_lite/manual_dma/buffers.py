"""buffers: the memory that a stepped kernel works on, and the entries of its log, with their words. Next: step.py."""
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import SpecError
from ..races import Rectangles
from ..schedule import size_of

READ, WRITE, COPY, SEND, WAIT = "read", "write", "copy", "send", "wait"  # send: a remote copy reads its source


class Buffer:
    """Some memory of the machine. Refs are windows on it; a rectangle is a tuple of (start, stop)."""

    stepped = True  # all numbers have values, also those that a step computes: only a Python int is a constant

    def __init__(self, machine, name, value, written=False, is_semaphore=False, in_hbm=False, is_slots=False,
                 steers=False, is_input=False):
        self.machine, self.name, self.value, self.is_semaphore = machine, name, value, is_semaphore
        self.in_hbm = in_hbm  # a kernel computes on SRAM only
        self.is_slots = is_slots  # of a pipeline's operand: the first index is the slot
        self.steers = steers  # scalars that choose what is copied: reading them is no computing
        self.is_input = is_input  # nobody but its own pipeline may write it
        self.freed = False
        self.left_over = False  # of an output's slots: does one hold what an earlier visit left?
        self.shape, self.dtype = value.shape, value.dtype
        self.places = Rectangles(machine.races, value.shape)
        if written:  # an operand: its values were there before the kernel
            self.places.find(tuple((0, n) for n in self.shape))[0].last = -1

    @property
    def where(self) -> str:
        return self.machine.here()

    def rectangle(self, starts, sizes):
        if self.freed:
            raise SpecError(f"{self.name} is used after the run_scoped that made it has ended, when its memory may "
                            "belong to another buffer. Use it inside the function that run_scoped calls, or allocate "
                            "it in scratch_shapes.")
        return tuple((int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True))

    def load(self, starts, sizes):
        self._in_reach(READ)
        rectangle = self.rectangle(starts, sizes)
        self.machine.read(self, rectangle)
        return jnp.asarray(self.value[part(rectangle)].copy())

    def store(self, starts, sizes, value):
        self._in_reach(WRITE)
        rectangle = self.rectangle(starts, sizes)
        self.machine.write(self, rectangle)
        self.value[part(rectangle)] = np.asarray(value)

    def _in_reach(self, what):
        if self.in_hbm:
            raise SpecError(f"{self.name} is in HBM, where a kernel cannot {what} directly. Copy the part that you "
                            "want to or from a VMEM buffer with make_async_copy, or give it a BlockSpec with a "
                            "block_shape.")

    def slot_of(self, rectangle) -> int:
        """The slot that a window lies in: its leading index, where it takes one of several; else -1."""
        one = len(self.shape) > 1 and self.shape[0] > 1 and rectangle[0][1] - rectangle[0][0] == 1
        return rectangle[0][0] if one or self.is_slots else -1

    def show(self, rectangle, at="", kept=None) -> str:
        """A window as it is written: x_buf[1, 0:4]. Dimensions at the end that it covers are left out.

        With `kept`, as the kernel writes a ref that sees these dimensions: an index in the others, and no slot.
        """
        if kept is not None:
            spans = [(d, f"{a}:{b}" if d in kept else str(a)) for d, (a, b) in enumerate(rectangle)
                     if not self.is_slots or d and (d in kept or self.shape[d] > 1)]
            while spans and spans[-1][0] in kept and rectangle[spans[-1][0]] == (0, self.shape[spans[-1][0]]):
                spans.pop()
            return f"{self.name}{at}[{', '.join(s for _, s in spans)}]" if spans else self.name
        spans = [str(a) if b - a == 1 and n > 1 or self.is_slots and d == 0 else f"{a}:{b}"
                 for d, ((a, b), n) in enumerate(zip(rectangle, self.shape, strict=True))]
        if self.is_slots:
            spans[0] = f"slot {spans[0]}"
        while spans and not (self.is_slots and len(spans) == 1) and rectangle[len(spans) - 1] == (
                0, self.shape[len(spans) - 1]):
            spans.pop()
        return f"{self.name}{at}[{', '.join(spans)}]" if spans else self.name


class Access(NamedTuple):
    """One entry of the log. It becomes text only when somebody asks."""

    verb: str  # READ, WRITE, COPY, SEND or WAIT
    step: int
    windows: tuple[tuple[Buffer, tuple], ...]  # what is read or written; a copy's source and target
    line: tuple[str, int] | None = None  # file and line of the kernel; None for a pipeline's own copies
    time: int = 0  # how often that line had done it, this time included
    semaphore: str = ""
    remote: bool = False
    block: Any = None  # of a pipeline's own copy: (its OperandInfo, block, slot)
    copies: tuple[int, ...] = ()  # which copies a wait completes
    kept: tuple = (None, None)  # of a copy: the dimensions that its two refs see

    @property
    def wait(self) -> str:
        """The wait for a copy, as the kernel writes it: make_async_copy(x.at[0], buf, sem).wait()."""
        source, target = (buffer.show(r, ".at", k) for (buffer, r), k in zip(self.windows, self.kept, strict=True))
        name = "make_async_remote_copy" if self.remote else "make_async_copy"
        half = "" if not self.remote else "_send" if self.verb == SEND else "_recv"
        return f"{name}({source}, {target}, {self.semaphore.replace('[', '.at[')}).wait{half}()"


def rectangle_of(ref):
    """The buffer of a ref, and the rectangle that it is a window on."""
    return ref.memory, ref.memory.rectangle(*ref.window[1:])


def bytes_of(window) -> int:
    """Of a buffer and a rectangle."""
    return size_of(window[1]) * window[0].dtype.itemsize


def part(rectangle):
    return tuple(slice(a, b) for a, b in rectangle)


def common(a: Access, b: Access):
    """The windows of `b` that lie where `a` has one too."""
    return [(m, r) for m, r in b.windows for n, q in a.windows
            if m is n and all(max(u[0], v[0]) < min(u[1], v[1]) for u, v in zip(r, q, strict=True))]


def nth(n: int) -> str:
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def spot(line: tuple[str, int], home: str | None) -> str:
    """A line of a file, with the file if that is not the kernel's, `home`. Cells of a notebook are no files."""
    return f"line {line[1]}" + f" of {Path(line[0]).name}" * (home not in (None, line[0]) and Path(line[0]).exists())


def merged(rectangles):
    """Neighbours along the first dimension as one."""
    found = []
    for r in sorted(rectangles):
        last = found[-1] if found else None
        if last and r and last[1:] == r[1:] and last[0][1] == r[0][0]:
            found[-1] = ((last[0][0], r[0][1]), *r[1:])
        else:
            found.append(r)
    return found
