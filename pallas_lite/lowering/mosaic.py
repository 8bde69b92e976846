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

from ..errors import NotSupportedError, PallasLiteError
from ..hardware import TPU_V5E, TPU_V5P, TPU_V6E, Machine
from ..schedule import RUN
from . import libtpu, mosaic_tpu
from .stages import Compiled, Lowered, blamed, unknown
from .tiles import Held, check, slot_bytes


class Chip(NamedTuple):
    """A TPU that can be compiled for. `machine` says how much VMEM there is, and how much one kernel may use of it."""

    topology: str
    kind: str
    machine: Machine


CHIPS = {"v5e": Chip("v5e:2x2", "TPU v5 lite", TPU_V5E), "v5p": Chip("v5p:2x2x1", "TPU v5", TPU_V5P),
         "v6e": Chip("v6e:2x2", "TPU v6 lite", TPU_V6E)}
ESCAPED = re.compile(r"(?:\\[0-9A-F]{2})+")  # how MLIR prints letters beyond ASCII


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

    def function(self, interpret=False, debug=False, target="v5e", held=None):
        """The program as a JAX function: a `pallas_call` of upstream, which its `InterpretParams` run on a CPU.

        Raises SpecError for prefetched scalars that choose other blocks than those of the trace.
        """
        call = mosaic_tpu.kernel_call(self.traced, interpret, debug, held)

        def on_a_tpu(*operands):
            self.check_scalars(operands)
            # Index arithmetic and scopes ask jax which TPU this is for.
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

    def windows(self) -> list["Window"]:
        """The VMEM that the program asks for: scratch, the slots of each operand, and what the kernel allocates itself.

        Of scopes that follow each other, the larger one counts: they share their place.
        """
        return self._windows

    @functools.cached_property
    def _windows(self):
        held = Held()
        with _refused(self, "Pallas"):
            jax.jit(self.function(held=held)).trace(*self.avals)
        return [Window(name, shape, np.dtype(dtype), depth, slot_bytes(shape, dtype, depth))
                for name, shape, dtype, depth in held.most]

    def compile(self, target: str = "v5e") -> Compiled:
        """The program compiled for a TPU ("v5e", "v5p" or "v6e") on this machine, which needs no TPU.

        Raises PallasLiteError where a copy would cut a tile (tiles.py), or where the windows alone do not fit; and
        NotSupportedError without the compiler, or with what the compiler says where it refuses the kernel.
        """
        name = self.traced.call.name
        if target not in CHIPS:
            raise unknown(name, "a TPU called", target, CHIPS)
        for x in self.traced.operands:
            check(name, x)
        windows = self.windows()
        chosen = getattr(self.traced.call.compiler_params, "vmem_limit_bytes", None)
        limit = min(chosen or CHIPS[target].machine.sram_bytes, CHIPS[target].machine.physical_sram_bytes)
        taken = sum(w.bytes for w in windows)
        items = "\n".join(f"  {w}" for w in windows)
        if taken > limit:
            raise PallasLiteError(f"{name}: its windows take {taken:,} bytes of VMEM, {taken - limit:,} more than the "
                                  f"{limit:,} that one kernel may use on a TPU {target}:\n{items}\nTake smaller blocks "
                                  "or depths, or raise CompilerParams(vmem_limit_bytes=…) if the chip has more.")
        left = (f" Its windows take {taken:,} of {limit:,} bytes of VMEM, which leaves {limit - taken:,} for what the "
                f"kernel itself needs:\n{items}\n")
        with _refused(self, "the TPU compiler", left):
            return Compiled(self, target, self.compile_unchecked(target))

    def compile_unchecked(self, target: str, function=None) -> jax.stages.Compiled:
        """What the compiler alone makes of the program, or of another function of the same operands."""
        return libtpu.compiled(function or self.function(target=target), self.avals, CHIPS[target].topology)

    @functools.cached_property
    def instructions(self) -> list["Instruction"]:
        """Each DMA instruction, with the events of the schedule that it stands for."""
        found, name = [], ""
        for number, line in enumerate(self.as_text().splitlines(), 1):
            if scope := re.search(r'tpu.trace_start.*message = "(.*)"', line):
                name = ESCAPED.sub(lambda m: bytes.fromhex(m[0].replace("\\", "")).decode(), scope[1])
            elif dma := re.search(r"tpu\.(enqueue_dma|wait_dma)", line):
                found.append(Instruction(number, dma[1], name, []))
        if self.traced.manual:  # the schedule is one run of the kernel, and the program its text
            return found
        before, after = ([n for n, i in enumerate(found) if i.entry.startswith(where)] for where in ("pro", "epi"))
        schedule, operands = self.traced.schedule, {x.name: x for x in self.traced.operands}
        end, events = len(schedule) - len(after), {}
        for number, e in enumerate(schedule[len(before):end], len(before)):
            if e.verb != RUN:
                part = [(p.start, p.stop - p.start) for p in operands[e.operand].window(e.block)[1]]
                entry = mosaic_tpu.entry("loop", e.verb, operands[e.operand], part)
                events.setdefault(entry, []).append(number)
        found = [i._replace(events=events.get(i.entry, [])) for i in found]
        for once, number in zip(before + after, [*range(len(before)), *range(end, len(schedule))], strict=True):
            found[once] = found[once]._replace(events=[number])
        return found

    def summary(self) -> str:
        """Each DMA instruction of the program, by its line in `as_text()`, beside its entry in the schedule."""
        schedule, lines, body = self.traced.schedule, [], {}
        for when, e in () if self.traced.manual else schedule.rolled().body:
            body.setdefault((e.verb, e.operand), []).append((when, e))
        for line, op, entry, events in self.instructions:
            place, _, text = entry.partition(": ")
            once = [("", schedule[n]) for n in events]
            rolled = body.get((once[0][1].verb, once[0][1].operand), []) if events and place == "loop" else []
            for when, e in next((said for said in (once, rolled) if len(said) == 1), []):
                text = schedule.describe(e) + f" if {when}" * bool(when) + text[text.index(")") + 1:]
            steps = "" if self.traced.manual else f": {_steps([schedule[n].step for n in events])}"
            lines.append(f"line {line:4}  {op:11}  {place:8}  {text}{steps}")
        return "\n".join(lines)


@contextlib.contextmanager
def _refused(lowered, who, remark=""):
    """What upstream's lowering or compiler cannot do is passed on, as an error of ours."""
    if wide := [x for x in lowered.traced.arrays if x.dtype.itemsize > 4]:
        raise NotSupportedError(f"{lowered.traced.call.name}: {wide[0].name} is {wide[0].dtype}, and a TPU's numbers "
                                "have 32 bits at most. Cast the operands and the shapes of the outputs.")
    try:
        with jax.enable_x64(False):  # its indices too
            yield
    except PallasLiteError:
        raise
    except Exception as error:  # noqa: BLE001  upstream raises many kinds, private ones among them
        # How much VMEM is left explains a refusal only where the compiler asked for more of it.
        short = remark if re.search("memory|allocation|vmem", str(error), re.IGNORECASE) else ""
        raise NotSupportedError(f"{lowered.traced.call.name}: {who} refuses the kernel for a TPU"
                                f"{blamed(error, lowered.traced.call.kernel)}.{short} It says:\n"
                                f"{error}{libtpu.mismatch() if remark else ''}") from error


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
