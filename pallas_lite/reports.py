"""reports: hazards that only values tell. Which parts of a result depend on what memory held before anybody wrote it?

Three runs differ only in that filling (slots are refilled at the start of every visit, so that an earlier visit's
leftovers count as garbage too). Where their results differ by a bit, the kernel's result is the hardware's accident.
"""
import math
from dataclasses import replace

import numpy as np

from .engines.record import Visits
from .memory import fillings
from .schedule import CODE, IN_START, OUT_START
from .verify import Hazard


def from_runs(traced, inputs) -> list[Hazard]:
    """What only a run on these inputs tells: written inputs, and results that depend on what memory held before."""
    operands, body, racy = traced.operands, traced.body, traced.races
    found = written_inputs(operands, body) + constant_blocks(operands, body)
    carried = not racy and may_be_unspecified(operands, body, len(traced.scalars))
    runs = [traced.run_compiled(inputs, k, True)[0] for k in range(3 * carried)]
    for x, read in zip(operands, body.read, strict=False):
        if x.is_output and carried:
            found += unspecified(x, *(np.asarray(values[x.array]) for values in runs), read)
    if traced.parallel and not racy and (carried or len({x.array for x in operands}) < len(operands)):
        one = runs[0] if carried else traced.run_compiled(inputs, 0, True)[0]
        two = traced.other_order().run_compiled(inputs, 0, True)[0]
        found += order_hazards(traced, one, two, [*found, *traced.hazards])
    return [at_events(h, traced.schedule) for h in found]


def may_be_unspecified(operands, body, scalars: int) -> bool:
    """False where no run is needed: no input block has an edge, every ref is overwritten before it is read.

    Outputs in the first step of each visit, scratch in each step; prefetched scalars hold values, unless written.
    """
    outputs = all(body.overwrites(i, Visits(x.blocks, 0).begins) for i, x in enumerate(operands) if x.is_output)
    others = all(body.overwrites(i, slice(None)) or i < len(operands) + scalars and not body.written[i]
                 for i in range(len(operands), len(body.avals)))
    return not (outputs and others) or any(x.ragged for x in operands if not x.is_output)


def unspecified(x, first: np.ndarray, second: np.ndarray, third: np.ndarray, read: bool) -> list[Hazard]:
    """The hazards of one output, from its values in three runs with different fillings. `read`: the kernel reads it."""
    a, b, c = map(_bits, (first, second, third))
    differs = (a != b) | (a != c)
    is_nan = differs & (a == b) & np.isnan(third)  # the third filling of floats is NaN
    untouched = differs & (first == fillings(x.dtype, True)[0]) & (second == fillings(x.dtype, True)[1])
    if read and (first.dtype == bool or differs.all() or (differs & ~untouched).any()):
        untouched = np.zeros_like(differs)  # adding 0 leaves the filling as it is
    found = []
    for mask, kind, what, mend in (
        (untouched, "unwritten", "is never written: whatever memory held stays there.",
         f"Write the whole block ({x.name}_ref[...] = …) in each visit, and visit every block."),
        (differs & ~untouched & ~is_nan, "uninitialised",
         "depends on memory that nobody had written, or that another block left behind.",
         "Initialise an accumulator in the first step of its visit (pl.when(pl.program_id(axis) == 0)), and mask the "
         "part of an edge block that lies outside the array."),
        (is_nan, "uninitialised",
         "is NaN if the memory that nobody had written holds NaN: 0 × garbage is not 0, and max(garbage, x) is not x.",
         "Leave garbage out with jnp.where, on every operand, rather than multiplying it by 0.")):
        if mask.any():
            found.append(Hazard(kind, f"output {x.name}: {where(x.name, mask)} {what}", mend, x.name,
                                *_last_visit(x, mask), ()))
    return found


def order_hazards(traced, one, two, found) -> list[Hazard]:
    """The outputs that differ between two orders of the steps, but for those that `found` has something on."""
    known = {h.operand for h in found}
    return [h for x in traced.arrays if x.is_output and x.name not in known
            for h in order_dependent(x, np.asarray(one[x.array]), np.asarray(two[x.array]), traced.parallel)]


def order_dependent(x, forwards: np.ndarray, backwards: np.ndarray, parallel) -> list[Hazard]:
    """The hazard of an output that differs between two orders of the steps."""
    differs = _bits(forwards) != _bits(backwards)
    if not differs.any():
        return []
    what = (f"output {x.name}: {where(x.name, differs)} changes when the steps of parallel axis "
            f"{' and '.join(map(str, parallel))} run backwards.")
    mend = ('Mark the axis "arbitrary" in dimension_semantics, or let no step use what another left in scratch, in a '
            "slot or in an array that it shares.")
    return [Hazard("parallel axis", what, mend, x.name, *_last_visit(x, differs), ())]


def at_events(hazard: Hazard, schedule) -> Hazard:
    """The hazard with its slot and events: the run of its step, and the copy that the value meets next, if any.

    That copy takes an output's block to HBM, or overwrites an input's. Where no step is at fault there are no events.
    """
    if hazard.slot < 0:
        return hazard
    number = next(i for i, x in enumerate(schedule.operands) if x.name == hazard.operand)
    verb = CODE[OUT_START if schedule.operands[number].is_output else IN_START]
    run, c = schedule.runs[hazard.step], schedule.columns
    later = np.flatnonzero((c.verb[run:] == verb) & (c.operand[run:] == number))[:1] + run
    return replace(hazard, slot=int(c.slots[hazard.step, number]), events=(int(run), *map(int, later)))


def written_inputs(operands, body) -> list[Hazard]:
    """Inputs that the kernel writes: the copy in SRAM changes, the array in HBM does not."""
    return [Hazard("written input", *written_input(x.name), x.name, 0, 0, ())
            for i, x in enumerate(operands) if not x.is_output and body.written[i]]


def written_input(name: str) -> tuple[str, str]:
    """What is said of an input's block that the kernel writes, and the mend."""
    return (f"the kernel writes to its input {name}: the copy in SRAM changes, and is lost when the block changes; the "
            "array never sees it.", "Write to an output, or keep the value in scratch_shapes.")


def constant_blocks(operands, body) -> list[Hazard]:
    """A grid whose steps all do the same: no block changes, no step asks which one it is, or sees what another left."""
    steps = math.prod(body.grid)
    carries = any(read and written for read, written in zip(body.read, body.written, strict=True))
    if steps < 2 or body.asks or carries or any(len(set(x.blocks)) > 1 for x in operands) or not operands:
        return []
    what = (f"no block depends on the grid {body.grid}: each of its {steps} steps does all the work again, on the same "
            "blocks, copied once.")
    mend = "Give BlockSpecs with an index map, or drop the grid."
    return [Hazard("constant blocks", what, mend, operands[-1].name, 0, -1, ())]


def where(name: str, mask: np.ndarray) -> str:
    """The part of an array that a mask covers.  >>> where("o", np.array([True, False, False, True]))
    'o[0:1] and o[3:4]'
    """
    if mask.ndim == 0:
        return name
    if mask.ndim == 1:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
        runs = [f"{name}[{a}:{b}]" for a, b in edges.reshape(-1, 2)[:3]]
        return " and ".join(runs) + (f" and {len(edges) // 2 - 3} more runs" if len(edges) > 6 else "")
    axes = range(mask.ndim)
    spans = [np.flatnonzero(mask.any(axis=tuple(d for d in axes if d != axis))) for axis in axes]
    box = ", ".join(f"{s[0]}:{s[-1] + 1}" for s in spans)
    inside, count = math.prod(int(s[-1] + 1 - s[0]) for s in spans), int(mask.sum())
    return f"{name}[{box}]" if count == inside else f"{name}[{box}], {count:,} of its {inside:,} elements,"


def _bits(value: np.ndarray) -> np.ndarray:
    return value if value.dtype == bool else value.view(f"u{value.dtype.itemsize}")


def _last_visit(x, mask: np.ndarray) -> tuple[int, int]:
    """The last step that has the first element of the mask in its block, and 0 (at_events knows the slot); or 0, -1."""
    at = np.argwhere(mask)[0]
    holds = {b for b in set(x.blocks) if all(s.start <= i < s.stop for i, s in zip(at, x.window(b)[0], strict=True))}
    return max(((t, 0) for t, b in enumerate(x.blocks) if b in holds), default=(0, -1))
