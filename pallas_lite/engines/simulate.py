"""simulate: a Schedule played on values. SRAM slots start as garbage, copies are in flight until waited for.

A slot holds a value (an array that nobody changes in place), so a copy moves a value and costs nothing until an edge
block or a kernel makes a new one.
"""
from collections import defaultdict

import numpy as np

from ..errors import PipelineError
from ..memory import DEFAULT, InterpretParams, garbage
from ..schedule import IN_START, IN_WAIT, OUT_START, RUN, Schedule
from ..specs import Scratch


class Simulate:
    """Plays the events of a schedule. `body(step, slots)` gets the operands' values and returns the new ones."""

    def __init__(self, schedule: Schedule, operands, hbm: dict[str, np.ndarray], body, params: InterpretParams,
                 extras=()):
        self.schedule, self.hbm, self.body, self.params = schedule, hbm, body, params
        self.extras = list(extras)  # values of the refs that no copy touches: prefetched scalars and scratch
        self.operands = {x.name: x for x in operands}
        self.rng = params.rng
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
        values = [self.slots[x.name][s].reshape(x.ref_shape)
                  for x, s in zip(self.operands.values(), e.slots, strict=True)]
        new = self.body(e.step, [*values, *self.extras])
        for x, s, value in zip(self.operands.values(), e.slots, new, strict=False):
            self.slots[x.name][s] = value.reshape(x.block_shape)
        self.extras = new[len(self.operands):]

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
             params: InterpretParams = DEFAULT, extras=()) -> dict[str, np.ndarray]:
    """The HBM arrays after the schedule ran: `inputs` by array name, outputs start as garbage.

    `extras`: the kernel's further refs, each as its value, or as a shape and dtype of scratch that starts as garbage.
    """
    rng = params.rng
    hbm = {}
    for x in operands:
        if x.array in hbm:
            continue
        if x.array in inputs:
            value = np.asarray(inputs[x.array])
            changes = any(y.is_output and y.array == x.array for y in operands)
            hbm[x.array] = value.copy() if changes else value.view()
            hbm[x.array].flags.writeable = changes
        else:
            hbm[x.array] = garbage(params, x.shape, x.dtype, rng)
    start = [garbage(params, e.shape, e.dtype, rng) if isinstance(e, Scratch) else np.asarray(e) for e in extras]
    return Simulate(schedule, operands, hbm, body, params, start).play()
