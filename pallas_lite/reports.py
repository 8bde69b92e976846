"""reports: hazards that only values tell. Which parts of a result depend on what memory held before anybody wrote it?

Four runs differ only in that filling (slots are refilled at the start of every visit, so that an earlier visit's
leftovers count as garbage too). Where their results differ by a bit, the kernel's result is the hardware's accident.
Runs in which one memory alone is filled otherwise tell whose it is. Next: traced.py, which warns of what was found.
"""
import math
from dataclasses import replace

import numpy as np

from .engines.record import Visits
from .errors import many
from .memory import FILLINGS, filling
from .schedule import CODE, IN_START, OUT_START
from .specs import SMEM, VMEM
from .verify import Hazard

BACKWARDS = "run backwards"


def from_runs(traced, inputs) -> list[Hazard]:
    """What only a run on these inputs tells: written inputs, and results that depend on what memory held before.

    Or on the order of parallel steps: where a random_seed shuffles them, the other reports are of the grid's own order.
    """
    plain, racy = traced.in_grid_order, traced.races or traced.in_grid_order.races
    operands, body = plain.operands, plain.body
    doubtful = [] if racy else doubtful_refs(operands, body, len(plain.scalars))
    runs = [filled(plain, inputs, doubtful, k) for k in range(FILLINGS if doubtful else 0)]
    found = unspecified(plain, inputs, doubtful, runs)
    if plain.parallel and not racy and (doubtful or len({x.array for x in operands}) < len(operands)):
        known = {x.array: differ(run[x.array] for run in runs) for x in operands if x.is_output and runs}
        # One end of what a number may be, and NaN, which min and max and products by 0 do not hide.
        some = (0, FILLINGS - 2) if runs else (0,)
        first = [runs[k] for k in some] if runs else [filled(plain, inputs)]
        found += _of_axes(traced, first, lambda other: [filled(other, inputs, doubtful, k) for k in some], known)
    at = {ids: t for t, ids in enumerate(traced.indices)}
    found = [replace(h, step=at[plain.indices[h.step]]) for h in found]
    return [at_events(h, traced.schedule) for h in
            written_inputs(operands, body) + constant_blocks(operands, body) + found]


# -- memory that nobody had written

def doubtful_refs(operands, body, scalars: int) -> list[int]:
    """The refs, by number, of which a result may show what their memory held at first. For none no run is needed.

    What the kernel may read before it overwrites it: outputs in the first step of a visit, scratch in any step
    (prefetched scalars hold values, unless written). And inputs with an edge block.
    """
    n = len(operands)

    def doubtful(i):
        if i >= n:
            return (i >= n + scalars or body.written[i]) and not body.overwrites(i, slice(None))
        x = operands[i]
        return not body.overwrites(i, Visits(x.blocks, 0).begins) if x.is_output else x.ragged
    return [i for i in range(len(body.avals)) if doubtful(i)]


def filled(traced, inputs, refs=(), k: int = 0) -> dict:
    """The arrays after a run in which the memory of these refs holds filling k at first, and all other filling 0."""
    outputs = {i for i, x in enumerate(traced.operands) if x.is_output}
    held = [filling(k * (i in refs), dtype, i in outputs, inputs.values(), i in traced.body.counts)
            for i, (_, _, dtype) in enumerate(traced.body.avals)]
    return traced.run_compiled(inputs, held, True)[0]


def unspecified(traced, inputs, doubtful: list[int], runs: list[dict]) -> list[Hazard]:
    """What differs between `runs`, in which the doubtful refs change their filling together, by the ref that causes it.

    Each of them changes its filling alone, too. What shows in none of those runs is put down to all of them.
    """
    outputs = [(i, x) for i, x in enumerate(traced.operands) if x.is_output]
    if not runs or not any(differ(run[x.array] for run in runs).any() for _, x in outputs):
        return []
    together, found = tuple(doubtful), []
    each = doubtful if len(doubtful) > 1 else ()  # of a single one `runs` tell all
    causes = {(r,): runs[:1] + [filled(traced, inputs, [r], k) for k in range(1, FILLINGS)] for r in each}
    causes[together] = runs
    for i, x in outputs:
        visited, known = np.zeros(x.shape, bool), np.zeros(x.shape, bool)
        for block in set(x.blocks):  # blocks that no step visits have a report of their own
            visited[x.window(block)[0]] = True
        for refs, arrays in causes.items():
            values = [np.asarray(run[x.array]) for run in arrays]
            mask = differ(values) & visited & ~(known & (refs == together))
            known |= mask
            if not mask.any():
                continue
            if refs == (i,) and _left_alone(values, mask, (mask == visited).all(), traced.body, i):
                found.append(unwritten(x, mask))
            else:
                found.append(uninitialised(traced, x, mask, values, refs))
    return sorted(found, key=lambda h: h.step)


def differ(values) -> np.ndarray:
    """Where arrays of different runs are not the same in every bit."""
    first, *others = (_bits(np.asarray(value)) for value in values)
    return np.logical_or.reduce([first != other for other in others])


def _left_alone(values, mask, is_all: bool, body, i: int) -> bool:
    """Did nobody write this part of an output? Where the kernel reads the output, it may have added 0 to it.

    So there, all that differs must hold its filling still, and something else must have been written.
    """
    first, second = (filling(k, values[0].dtype, True, counts=i in body.counts)[0] for k in (0, 1))
    still = (values[0][mask] == first).all() and (values[1][mask] == second).all()
    return not body.read[i] or still and not is_all and values[0].dtype.kind != "b"


def unwritten(x, mask: np.ndarray) -> Hazard:
    """The hazard of an output that the kernel leaves partly unwritten."""
    again = len(set(x.blocks)) < len(Visits(x.blocks, 0).blocks)
    what = "not written in the last visit of its block" if again else "never written"
    return Hazard("unwritten", f"output {x.name}: {where(x.name, mask)} is {what}: whatever memory held stays there.",
                  f"Write the whole block ({x.name}_ref[...] = …) in each visit.", x.name, visit(x, mask)[-1], 0, ())


def uninitialised(traced, x, mask: np.ndarray, values, refs) -> Hazard:
    """The hazard of an output that shows the first memory of these refs, at the step where that comes in."""
    steps, (*others, nan, usual) = visit(x, mask), [value[mask] for value in values]
    at, sources, mends = zip(*(_source(traced, x, steps, r) for r in refs), strict=True)
    what = "depends on memory that nobody had written, or that another block left behind"
    if np.isnan(nan).all() and not differ([*others, usual]).any():  # that filling of floats is NaN
        what = "is NaN if memory that nobody had written holds NaN (0 × garbage is not 0, and max(garbage, x) is not x)"
    return Hazard("uninitialised", f"output {x.name}: {where(x.name, mask)} {what}: {', and '.join(sources)}.",
                  " ".join(mends), x.name, min(at), 0, ())


def _source(traced, x, steps: range, ref: int) -> tuple[int, str, str]:
    """How a ref's first memory comes into this visit of output x: the step, what happens there, and the mend."""
    name, y = traced.body.avals[ref][0], traced.operands[ref] if ref < len(traced.operands) else None
    if y and not y.is_output:
        past_edge = (t for t in steps if [s.stop - s.start for s in y.window(y.blocks[t])[1]] != [*y.block_shape])
        return (next(past_edge, steps[0]),
                f"the block of {name} reaches past the edge of its array, where its slot keeps what it held",
                "Leave what lies past the edge out with jnp.where, on every operand, rather than multiplying it by 0.")
    what, visited = f"the kernel reads {name} before it has written it", y or x
    begins = Visits(visited.blocks, 0).begins
    first = f"the first step of each visit of {visited.name}{_when(traced, begins)}"
    if begins.all():  # nothing is added up within a visit, but scratch may hand a value from step to step
        if y:
            return steps[0], what, f"Write {name} before reading it: its slot does not begin with what is in the array."
        first = f"the first step{_when(traced, np.arange(len(begins)) == 0)}"
    return steps[0], what, f"Initialise {name}{'' if y else ' before it is read, such as'} in {first}."


def _when(traced, begins: np.ndarray) -> str:
    """What to write above a function for exactly these steps, if they are those in which some program ids are 0."""
    ids = np.asarray(traced.indices).reshape(len(begins), -1)
    axes = [a for a in range(ids.shape[1]) if ids[:, a].any() and not ids[begins, a].any()]
    if not axes or (begins == ids[:, axes].any(1)).any():
        return ""
    tests = [f"pl.program_id({a}) == 0" for a in axes]
    return f": @pl.when({tests[0] if len(tests) == 1 else ' & '.join(f'({test})' for test in tests)})"


# -- the order of parallel steps

def _of_axes(traced, first, again, known) -> list[Hazard]:
    """The hazards of order_hazards; put down to one axis, where it alone makes results differ.

    `first`: the runs in the grid's order; `again(traced)`: the same of another order.
    """
    others = {how: again(other) for how, other in traced.other_orders.items()}
    found = order_hazards(traced.in_grid_order, first, others, known)
    axes = traced.parallel if found and len(traced.parallel) > 1 else ()
    guilty = [h for axis in axes if (h := _of_axes(traced.along(axis), first, again, known))]
    return guilty[0] if len(guilty) == 1 else found


def order_hazards(traced, runs, others, known) -> list[Hazard]:
    """The outputs that differ between the order of the grid and another.

    `runs`: the arrays, by name, after runs in the grid's order; `others`: how else the steps run -> the same of that.
    `known`: array -> a mask of what is unspecified in the grid's order, and reported as that.
    """
    found = []
    for x in (x for x in traced.arrays if x.is_output):
        said = known.get(x.array, False) | _shared(x, traced)
        for how, after in others.items():
            pairs = [differ([one[x.array], two[x.array]]) for one, two in zip(runs, after, strict=True)]
            differs = np.logical_or.reduce(pairs) & ~said
            if differs.any():
                what = f"output {x.name}: {where(x.name, differs)} changes when {other_order(traced.parallel, how)}."
                found.append(Hazard("parallel axis", what, _of_order(traced), x.name, visit(x, differs)[-1], 0, ()))
                break
    return found


def other_order(parallel: list[int], how: str) -> str:
    """`how` the steps run, in words.  >>> other_order([0, 1], "run backwards")
    'the steps of parallel axes 0 and 1 run backwards'
    """
    return f"the steps of parallel {'axis' if len(parallel) == 1 else 'axes'} {' and '.join(map(str, parallel))} {how}"


def of_order(traced, found, plain, how: str) -> list[Hazard]:
    """`found` in shuffled steps: what is not among `plain`, the hazards in the order of the grid, is of the order."""
    known = {(h.kind, h.operand) for h in plain}
    return [h if (h.kind, h.operand) in known else replace(
        h, message=f"where {other_order(traced.parallel, how)}, {h.message}", mend=_of_order(traced.in_grid_order))
        for h in found]


def _shared(x, traced) -> np.ndarray:
    """The part of an output in blocks that steps of a parallel axis share: verify.grid_hazards reports those."""
    shared, ids = np.zeros(x.shape, bool), _places(traced)
    of = dict[tuple, set]()
    for block, place in zip(x.blocks, map(tuple, ids.tolist()), strict=False):
        of.setdefault(block, set()).add(place)
    for block in (block for block, places in of.items() if len(places) > 1):
        shared[x.window(block)[0]] = True
    return shared


def _places(traced) -> np.ndarray:
    """Where each step stands along the parallel axes: steps × axes."""
    return np.array(traced.indices).reshape(traced.steps, -1)[:, traced.parallel]


def _of_order(traced) -> str:
    """The mend of a result that depends on the order of parallel steps."""
    ids = _places(traced)
    moves = np.concatenate([[True], (ids[1:] != ids[:-1]).any(1)])
    step = "each step" if moves.all() else f"the first step of each row{_when(traced, moves)}"
    scratch = any(kind.memory_space in (VMEM, SMEM) for kind in traced.extras[len(traced.scalars):])
    left = f"scratch (reset it in {step}), in a slot" if scratch else "a slot"
    return (f"Let no step use what another left in {left} or in an array that they share. If it is meant to, mark "
            f'{"the axis" if len(traced.parallel) == 1 else "each of these axes"} "arbitrary" in dimension_semantics: '
            "then its steps run in the order of the grid.")


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
        return " and ".join(runs) + (f" and {many(len(edges) // 2 - 3, 'more run')}" if len(edges) > 6 else "")
    axes = range(mask.ndim)
    spans = [np.flatnonzero(mask.any(axis=tuple(d for d in axes if d != axis))) for axis in axes]
    box = ", ".join(f"{s[0]}:{s[-1] + 1}" for s in spans)
    inside, count = math.prod(int(s[-1] + 1 - s[0]) for s in spans), int(mask.sum())
    return f"{name}[{box}]" if count == inside else f"{name}[{box}], {count:,} of its {inside:,} elements,"


def _bits(value: np.ndarray) -> np.ndarray:
    return value if value.dtype == bool else value.view(f"V{value.dtype.itemsize}")


def visit(x, mask: np.ndarray) -> range:
    """The steps of the earliest visit that leaves something of the mask in the array. (0,) where nothing has blocks."""
    visits = Visits(x.blocks, 0)
    starts = [*np.flatnonzero(visits.begins).tolist(), len(x.blocks)]
    last = {block: number for number, block in enumerate(visits.blocks)}  # a later visit overwrites what it left
    number = min((n for block, n in last.items() if mask[x.window(block)[0]].any()), default=None)
    return range(1) if number is None else range(starts[number], starts[number + 1])
