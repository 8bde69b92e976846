"""mosaic: the TPU program of a call: its text beside the schedule, its windows in VMEM, and the TPU compiler."""
import contextlib
import functools
import io
import re
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from .engines import tpu
from .errors import NotSupportedError, PallasLiteError
from .schedule import RUN
from .stages import Lowered


class Chip(NamedTuple):
    """A TPU that can be compiled for. `vmem`: bytes that one kernel may use, the compiler's own limit."""

    topology: str
    kind: str
    vmem: int


CHIPS = {"v5e": Chip("v5e:2x2", "TPU v5 lite", 16 * 2**20), "v5p": Chip("v5p:2x2x1", "TPU v5", 16 * 2**20),
         "v6e": Chip("v6e:2x2", "TPU v6 lite", 32 * 2**20)}


@dataclass(frozen=True)
class Window:
    """What the slots of an operand, or a scratch buffer, take of VMEM."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    depth: int
    bytes: int  # of all slots, tiled

    def __str__(self) -> str:
        return f"{self.name}: {self.depth} × {self.dtype}{list(self.shape)} = {self.bytes:,} bytes"


class TpuLowered(Lowered):
    """A Mosaic program."""

    def function(self, interpret=False, debug=False, target="v5e"):
        """The program as a JAX function: a `pallas_call` of upstream, which its `InterpretParams` run on a CPU."""
        call = tpu.kernel_call(self.traced, interpret, debug)

        def on_a_tpu(*operands):  # index arithmetic and scopes ask jax which TPU this is for
            device = AbstractDevice(device_kind=CHIPS[target].kind, num_cores=1, platform="tpu")
            with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
                return call(*operands)
        return on_a_tpu

    @functools.cached_property
    def _text(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed, _refused(self, "Pallas"):
            # To print it is jax's only public way to show it.
            jax.jit(self.function(debug=True)).trace(*self.avals).lower(lowering_platforms=("tpu",))
        return printed.getvalue()

    def as_text(self) -> str:
        """The Mosaic program (MLIR). A `trace_start` names the entry of the schedule that the next DMA stands for."""
        return self._text[self._text.index("\nmodule") + 1:].strip()

    @functools.cached_property
    def instructions(self) -> list["Instruction"]:
        """Each DMA instruction, with the events of the schedule that it stands for."""
        found, name = [], ""
        for number, line in enumerate(self.as_text().splitlines(), 1):
            if scope := re.search(r'tpu.trace_start.*message = "(.*)"', line):
                name = scope[1]
            elif dma := re.search(r"tpu\.(enqueue_dma|wait_dma)", line):
                found.append(Instruction(number, dma[1], name, []))
        if self.traced.manual:  # the schedule is one run of the kernel, and the program its text
            return found
        before, after = ([n for n, i in enumerate(found) if i.entry.startswith(where)] for where in ("pro", "epi"))
        schedule, operands = self.traced.schedule, {x.name: x for x in self.traced.operands}
        end, events = len(schedule) - len(after), {}
        for number, e in enumerate(schedule[len(before):end], len(before)):
            if e.verb != RUN:
                sizes = [part.stop - part.start for part in operands[e.operand].window(e.block)[1]]
                entry = tpu.entry("loop", e.verb, operands[e.operand], sizes)
                events.setdefault(entry, []).append(number)
        found = [i._replace(events=events.get(i.entry, [])) for i in found]
        for once, number in zip(before + after, [*range(len(before)), *range(end, len(schedule))], strict=True):
            found[once] = found[once]._replace(events=[number])
        return found

    def summary(self) -> str:
        """Each DMA instruction of the program, by its line in `as_text()`, beside its entry in the schedule."""
        schedule, lines = self.traced.schedule, []
        body = {} if self.traced.manual else {(e.verb, e.operand): (when, e) for when, e in schedule.rolled().body}
        for line, op, entry, events in self.instructions:
            place, _, text = entry.partition(": ")
            if events:
                e = schedule[events[0]]
                when, e = body.get((e.verb, e.operand), ("", e)) if place == "loop" else ("", e)
                text = schedule.describe(e) + f" if {when}" * bool(when) + text[text.index(")") + 1:]
            steps = "" if self.traced.manual else f": {_steps([schedule[n].step for n in events])}"
            lines.append(f"line {line:4}  {op:11}  {place:8}  {text}{steps}")
        return "\n".join(lines)


@contextlib.contextmanager
def _refused(lowered, who, remark=""):
    """What upstream's lowering or compiler cannot do is passed on, as an error of ours."""
    try:
        yield
    except PallasLiteError:
        raise
    except Exception as error:  # noqa: BLE001  upstream raises many kinds, private ones among them
        raise NotSupportedError(f"{lowered.traced.call.name}: {who} refuses the kernel for a TPU.{remark} It "
                                f"says:\n{error}") from error


class Instruction(NamedTuple):
    """A DMA instruction of the program: its line in the text, `enqueue_dma` or `wait_dma`, and what it stands for."""

    line: int
    op: str
    entry: str
    events: list[int]  # numbers in the schedule


def _steps(steps: list[int]) -> str:
    """Numbers in short.  >>> _steps([0, 1, 2, 5])
    'steps 0-2, 5'
    """
    runs = [[t for _, t in run] for _, run in groupby(enumerate(steps), key=lambda pair: pair[1] - pair[0])]
    text = ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs[:4]) + ", …" * (len(runs) > 4)
    return f"step{'s' * (len(steps) > 1)} {text}" if steps else "at no step"
