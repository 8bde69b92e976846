"""simulate: a Schedule played on values. SRAM slots start as garbage, copies are in flight until waited for.

A slot holds a value (an array that nobody changes in place), so a copy moves a value and costs nothing until an edge
block or a kernel makes a new one.
"""
import numpy as np

from ..errors import PipelineError
from ..memory import DEFAULT, InterpretParams, garbage
from ..schedule import OUT_START, RUN, Schedule
from ..specs import Scratch


class Simulate:
    """Plays the events of a schedule. `body(step, slots)` gets the operands' values and returns the new ones."""

    def __init__(self, schedule: Schedule, operands, inputs: dict[str, np.ndarray], body, params: InterpretParams,
                 extras, counts=()):
        self.schedule, self.body, self.params, self.rng = schedule, body, params, params.rng
        self.operands = {x.name: x for x in operands}
        self.hbm = {array: np.asarray(value).view() for array, value in inputs.items()}
        for value in self.hbm.values():
            value.flags.writeable = False
        for y in filter(lambda x: x.is_output, operands):  # in an array of its own, or in a copy of an operand's
            self.hbm[y.array] = np.array(inputs[y.array]) if y.array in inputs else self.garbage(y.shape, y.dtype)
        self.slots = {x.name: [self.garbage(x.block_shape, x.dtype, i in counts) for _ in range(x.depth)]
                      for i, x in enumerate(operands)}
        # The refs that no copy touches: prefetched scalars, and scratch.
        self.extras = [self.garbage(e.shape, e.dtype, i in counts) if isinstance(e, Scratch) else np.asarray(e)
                       for i, e in enumerate(extras, len(operands))]

    def garbage(self, shape, dtype, counts=False):
        return garbage(self.params, shape, dtype, self.rng, counts)

    def play(self) -> dict[str, np.ndarray]:
        """Run to the end; returns the HBM arrays. A wait for a copy that was never started raises PipelineError."""
        in_flight = set()  # numbers of the copies that land at their wait
        for number, (e, start) in enumerate(zip(self.schedule, self.schedule.copy_of.tolist(), strict=True)):
            if e.verb == RUN:
                self.run(e)
            elif start < 0:
                raise PipelineError(f"step {e.step}: {self.schedule.describe(e)} waits for a copy not under way: "
                                    "the program would hang here. Start it before this wait, or drop the wait.")
            elif start == number and not self.params.lands_at_once(self.rng):
                in_flight.add(start)
            elif start == number or start in in_flight:
                self.land(self.schedule[start])
        return self.hbm

    def run(self, e):
        values = [self.slots[x.name][s].reshape(x.ref_shape)
                  for x, s in zip(self.operands.values(), e.slots, strict=True)]
        new = self.body(e.step, [*values, *self.extras])
        for x, s, value in zip(self.operands.values(), e.slots, new, strict=False):
            self.slots[x.name][s] = value.reshape(x.block_shape)
        self.extras = new[len(self.operands):]

    def land(self, e):
        x, slots, slot = self.operands[e.operand], self.slots[e.operand], e.slot
        array, part = x.window(e.block)
        hbm = self.hbm[x.array]
        if e.verb == OUT_START:
            hbm[array] = slots[slot][part]
            return
        value = hbm[array]
        if value.shape != x.block_shape:  # past the edge the slot keeps what it held
            whole = slots[slot].copy()
            whole[part] = value
            value = whole
        # A view is enough unless an output shares the array.
        slots[slot] = value.copy() if hbm.flags.writeable else value


def simulate(schedule: Schedule, operands, inputs: dict[str, np.ndarray], body,
             params: InterpretParams = DEFAULT, extras=(), counts=()) -> dict[str, np.ndarray]:
    """The HBM arrays after the schedule ran: `inputs` by array name, outputs start as garbage.

    `extras`: the kernel's further refs, each as its value, or as a shape and dtype of scratch that starts as garbage.
    `counts`: the refs, by number, that may decide how often a loop runs.
    """
    return Simulate(schedule, operands, inputs, body, params, extras, counts).play()
