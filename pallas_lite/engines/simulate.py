"""simulate: a Schedule played on values: HBM arrays, SRAM slots that start as garbage, copies in flight until waited for.

A slot holds a value (an array that nobody changes in place), so a copy moves a value and costs nothing until an edge
block or a kernel makes a new one.
"""
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ..errors import PipelineError, SpecError
from ..schedule import IN_START, IN_WAIT, OUT_START, RUN, Schedule


@dataclass(frozen=True)
class InterpretParams:
    """How the simulator behaves where hardware is free to choose. Names and meanings are upstream's.

    `uninitialized_memory`: "nan" (largest integer for ints, True for bools), "zero", "random" or a number.
    `dma_execution_mode`: when a copy in flight takes effect: "on_wait" (as late as it may), "eager" (at its start), or
    "random" (one or the other, by `random_seed`). A copy that nobody waits for never lands unless it is eager.
    """

    uninitialized_memory: str | float = "nan"
    dma_execution_mode: str = "on_wait"
    random_seed: int = 0

    def __post_init__(self):
        if self.dma_execution_mode not in ("eager", "on_wait", "random"):
            raise SpecError(f'dma_execution_mode={self.dma_execution_mode!r}: choose "eager", "on_wait" or "random".')
        if self.uninitialized_memory not in ("nan", "zero", "random") and not isinstance(
                self.uninitialized_memory, (int, float)):
            raise SpecError(f'uninitialized_memory={self.uninitialized_memory!r}: choose "nan", "zero", "random" or '
                            "a number.")


def garbage(params: InterpretParams, shape, dtype, rng) -> np.ndarray:
    """What memory holds before anybody writes it."""
    kind = params.uninitialized_memory
    if kind == "random":
        return rng.integers(0, 100, shape).astype(dtype)
    if kind == "nan":
        try:
            kind = np.nan if np.can_cast(np.float16, dtype) or "float" in str(dtype) else np.iinfo(dtype).max
        except ValueError:
            kind = True
    return np.full(shape, 0 if kind == "zero" else kind, dtype)


class Simulate:
    """Plays the events of a schedule. `body(step, slots)` gets the operands' values and returns the new ones."""

    def __init__(self, schedule: Schedule, operands, hbm: dict[str, np.ndarray], body, params: InterpretParams):
        self.schedule, self.hbm, self.body, self.params = schedule, hbm, body, params
        self.operands = {x.name: x for x in operands}
        self.rng = np.random.default_rng(params.random_seed)
        self.slots = {x.name: [garbage(params, x.block_shape, x.dtype, self.rng) for _ in range(x.depth)]
                      for x in operands}
        self.in_flight = defaultdict(list)  # (operand, slot, copies in?) -> copies started and not waited for

    def play(self) -> dict[str, np.ndarray]:
        """Run to the end; returns the HBM arrays. A wait for a copy that nobody started raises PipelineError."""
        for e in self.schedule:
            if e.verb == RUN:
                self.run(e)
            elif e.verb in (IN_START, OUT_START):
                self.start(e)
            else:
                self.wait(e)
        return self.hbm

    def start(self, e):
        x = self.operands[e.operand]
        move = (self._copy_in if e.verb == IN_START else self._copy_out), x, e.block, e.slot
        mode = self.params.dma_execution_mode
        if mode == "eager" or mode == "random" and self.rng.random() < 0.5:
            move[0](*move[1:])
            move = None
        self.in_flight[e.operand, e.slot, e.verb == IN_START].append(move)

    def wait(self, e):
        queue = self.in_flight[e.operand, e.slot, e.verb == IN_WAIT]
        if not queue:
            raise PipelineError(f"step {e.step}: {self.schedule.describe(e)} waits for a copy that nobody started: the "
                                "program would hang here. Start the copy before this wait, or drop the wait.")
        move = queue.pop(0)
        if move:
            move[0](*move[1:])

    def run(self, e):
        values = [self.slots[x.name][s] for x, s in zip(self.operands.values(), e.slots, strict=True)]
        for x, s, new in zip(self.operands.values(), e.slots, self.body(e.step, values), strict=True):
            self.slots[x.name][s] = new

    def _copy_in(self, x, block, slot):
        array, part = x.window(block)
        value = self.hbm[x.array][array]
        if value.shape != x.block_shape:  # past the edge the slot keeps what it held
            whole = self.slots[x.name][slot].copy()
            whole[part] = value
            value = whole
        # A view is enough unless an output shares the array.
        self.slots[x.name][slot] = value if self.hbm[x.array].flags.writeable is False else value.copy()

    def _copy_out(self, x, block, slot):
        array, part = x.window(block)
        self.hbm[x.array][array] = self.slots[x.name][slot][part]


def simulate(schedule: Schedule, operands, inputs: dict[str, np.ndarray], body,
             params: InterpretParams = InterpretParams()) -> dict[str, np.ndarray]:
    """The HBM arrays after the schedule ran: `inputs` by array name, outputs start as garbage."""
    rng = np.random.default_rng(params.random_seed + 1)
    hbm = {}
    for x in operands:
        if x.array in hbm:
            continue
        if x.array in inputs:
            hbm[x.array] = np.asarray(inputs[x.array]).view()
            hbm[x.array].flags.writeable = False
        else:
            hbm[x.array] = garbage(params, x.shape, x.dtype, rng)
    return Simulate(schedule, operands, hbm, body, params).play()
