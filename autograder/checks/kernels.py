"""kernels: what checks of pallas_call share. In: a handle on the learner's function. Out: Wrong with the first slip.

    run              call the learner's function; its errors get the failing case and a nudge
    the_call         the pallas_call that did the work
    insist_parts     several results, in the task's order
    insist_blocks    the blocks that the task names, no larger and no smaller
    insist_steps     a step for each block, and none besides
    insist_values    right values; else the first step that left a wrong block, and what it made it from
    insist_made_by   the call's own outputs have the right values (insist_values asks that, too)
    schedule_of      the call's schedule, for a picture, its copies or its modelled time
    own_copies       the pallas_call whose kernel copies by itself, with the schedule of what it did
    contract         the schedule of pallas_call's own order, to compare with
"""
import dataclasses
import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from pallas_lite import Hazard, Schedule, cdiv, verify
from pallas_lite.engines.record import record
from pallas_lite.specs import Operand

from ..exercise import AnswerFailed, Trial, Wrong
from ..judge.handle import Handle, KernelCall, KernelOperand, KernelRun, kind_of, same_array

DRAWN = 64  # steps: a longer schedule is not shown with a failure
SAID = ("returns a value", "is a ref, not a value", "only a running step", "sees its refs only",
        "pl.ds slices a ref",  # slips in a kernel; specs are no part
        "traces its index_map")  # a Python if, min or max in it: the error says what to write


def random_array(trial: Trial, shape) -> np.ndarray:
    return trial.rng.normal(size=shape).astype(np.float32)


def how_cut(name: str, shape, block) -> str:
    """How an array is cut.  >>> how_cut("x", (32, 64), (16, 32))
    'x: 2 × 2 blocks of 16 × 32'
    """
    counts = [cdiv(n, b) for n, b in zip(shape, block, strict=True)]
    return f"{name}: {by(counts)} block{'s' * (math.prod(counts) > 1)} of {by(block)}"


def run(answer: Handle, case: str, fit: str, *arrays) -> KernelRun:
    """Runs the learner's function. `fit` says how the arrays of this case are cut, for a nudge."""
    try:
        return answer.kernel(*arrays)
    except AnswerFailed as failed:
        failed.case = case
        if failed.kind == "BlockIndexError" and "index_map gives" in failed.message:
            failed.nudge = f"{fit}. " + (
                "The index map says which block it is, 0, 1, 2 …; the pipeline multiplies by the block's shape itself."
                if "not element offsets" in failed.message else
                "Along each of its axes the grid makes a step for each block: take their numbers from the arrays' "
                "shapes. An index map takes the program ids in the order of the grid's axes, and gives a block index "
                "for each axis of the array, in the order of the array's.")
        elif "Cast it first" in failed.message:
            failed.nudge = ("out_shape and scratch_shapes say which dtype a ref has. A sum that still grows should be "
                            "float32: cast only what is finished.")
        elif "truth value of an array" in failed.message:
            failed.nudge = ("Python's max, min, if, and, or want one True or False, and a block has many numbers. "
                            "jnp.maximum, jnp.minimum and jnp.where choose for each number.")
        elif any(slip in failed.message for slip in SAID):
            pass
        elif failed.in_kernel and "shape" in failed.message:  # JAX says so of blocks that do not broadcast
            failed.nudge = f"{fit}. What shapes have the values in that line? print(value.shape) in the kernel tells."
        elif failed.in_kernel:
            pass
        elif failed.kind == "SpecError":
            failed.nudge = f"{fit}. See that the grid, the specs and the kernel's refs agree with that."
        raise
    except Wrong as wrong:
        if "of type Call" in wrong.what:
            raise Wrong("Your function returns the call itself, and nothing has run.", case=case,
                        nudge="pl.pallas_call(…) gives a function. Call it on the arrays.") from None
        wrong.case = wrong.case or case
        raise


def insist_called(run: KernelRun, case: str, on: str = "the arrays") -> None:
    """The function made a pallas_call."""
    if not run.calls:
        raise Wrong("Your function made no pallas_call.", case=case,
                    nudge=f"Build the call with pallas_lite's pl.pallas_call(kernel, …), then call that on {on}.")


def the_call(run: KernelRun, arrays, shapes, case: str) -> KernelCall:
    """The call that took all the arrays and gave arrays of these shapes, with its outputs in this order."""
    insist_called(run, case)
    wanted = sorted(a.shape for a in arrays)
    for call in reversed(run.calls):
        operands = (*call.inputs, *call.outputs)
        if sorted(x.shape for x in call.inputs) == wanted and \
                sorted(o.shape for o in call.outputs) == sorted(shapes) and \
                all(len(x.block_shape) == len(x.shape) for x in operands):
            _insist_each_once(call, arrays, case)
            return _in_order(call, shapes)
    call = run.calls[-1]

    def in_and_out(inputs, outputs):
        return " → ".join(", ".join(str(list(shape)) for shape in side) for side in (inputs, outputs))
    if len(run.calls) > 1:
        nudge = (f"You make {len(run.calls)} calls. A kernel may have several inputs and several outputs: all of the "
                 "work goes into one.")
    elif len(call.inputs) < len(wanted):
        nudge = "What the call does not take, its kernel cannot use: pass all of the operands."
    elif len(call.inputs) == len(wanted) and sorted(x.shape for x in call.inputs) != wanted:
        nudge = ("Pass the arrays as they are, and return what the call gives as it is: nothing is padded, cut or "
                 "turned outside of the kernel.")
    else:
        nudge = "See the docstring: which arrays come in, and which go out?"
    raise Wrong("One pallas_call should take all the operands and give the result.", case=case, nudge=nudge,
                got=in_and_out((x.shape for x in call.inputs), (o.shape for o in call.outputs)),
                expected=in_and_out((a.shape for a in arrays), shapes))


def _insist_each_once(call: KernelCall, arrays, case: str) -> None:
    """Of several arrays none goes in twice, and another not at all."""
    twice = next((k for k in call.takes if k >= 0 and call.takes.count(k) > 1), None)
    if twice is not None and len({id(a) for a in arrays}) == len(arrays):
        first, second = (x.name for x, k in zip(call.inputs, call.takes, strict=True) if k == twice)
        raise Wrong("Your call takes one array twice, and another not at all.", case=case,
                    nudge=f"Its operands {first} and {second} are both argument {twice + 1} of your function. Call it "
                          "on each array once.")


def _in_order(call: KernelCall, shapes) -> KernelCall:
    """The call with its outputs in the order of these shapes. In a list or a dict of them, theirs is the learner's."""
    order: list[int] = []
    for shape in shapes:
        order.append(next(k for k, o in enumerate(call.outputs) if o.shape == shape and k not in order))

    def sorted_out(outputs):
        return tuple(outputs[k] for k in order) if outputs else outputs
    return dataclasses.replace(call, outputs=sorted_out(call.outputs), results=sorted_out(call.results),
                               left_by=tuple(map(sorted_out, call.left_by)))


def insist_parts(result, expected: Sequence[np.ndarray], parts: str, case: str) -> Sequence:
    """What a function returns, if it is as many arrays as expected and in that order. `parts`: what they are."""
    if not isinstance(result, (tuple, list)) or len(result) != len(expected):
        raise Wrong(f"Your function should return {parts}.", case=case, got=kind_of(result))
    got, wanted = ([getattr(a, "shape", None) for a in side] for side in (result, expected))
    if got == wanted[::-1] != wanted:
        raise Wrong("The arrays that you return are in another order.", case=case,
                    got=", then ".join(map(str, got)), expected=", then ".join(map(str, wanted)),
                    nudge=f"See the docstring: your function should return {parts}.")
    return result


def insist_blocks(call: KernelCall, block, shape, case: str, *, smaller: bool = False) -> None:
    """Each operand of this shape goes in the blocks that the task names. `smaller`: smaller ones will do as well."""
    out = call.outputs[0]
    if call.steps == 1 and sizes(out) == shape != block:
        raise Wrong("Your pallas_call makes only one step: the whole array is one block.", case=case,
                    got=f"grid {call.grid}, block {list(out.block_shape)}",
                    expected=f"blocks of {by(block)}",
                    nudge=f"Blocks of {by(block)} are required. Without a grid and specs every operand is one block: "
                          "give grid=, in_specs= and out_specs=.")
    for x in (*call.inputs, *call.outputs):
        if x.shape != shape:
            continue
        differ = {"larger than the task allows": any(n > most for n, most in zip(sizes(x), block, strict=True)),
                  "smaller than the task asks for": not smaller and any(
                      n < min(least, length) for n, least, length in zip(sizes(x), block, shape, strict=True))}
        if how := next((how for how, is_so in differ.items() if is_so), ""):
            tail = any(length % n for n, length in zip(block, shape, strict=True))
            given = ", from the parameters: sizes differ from case to case" * (" = " in case)
            more = "The first argument of BlockSpec is the shape of one block: rows first, then columns." \
                if how.startswith("larger") else "They do not divide the array: the last ones stick out, as they may." \
                if tail else "Smaller ones make more steps."
            raise Wrong(f"The blocks of {x.name} are {how}.", case=case, got=f"{list(x.block_shape)}",
                        expected=f"{'at most ' * smaller}{list(block)}",
                        nudge=f"Blocks of {by(block)} are required{given}. {more}")


def insist_steps(call: KernelCall, of: str, block, shape, case: str) -> None:
    """A step for each of an array's blocks, and none besides. `of`: the array's name in the task."""
    counts = [cdiv(n, b) for n, b in zip(shape, block, strict=True)]
    if call.steps > math.prod(counts):
        raise Wrong(f"{how_cut(of, shape, block)}, and the grid {call.grid} makes {call.steps} steps.", case=case,
                    schedule=schedule_of(call), nudge="One step for each block is all that is needed.")


def insist_values(call: KernelCall, which: int, result, expected: np.ndarray, case: str, slips=(),
                  sources: Callable[[tuple[int, ...]], Sequence[tuple[int, ...]]] | None = None,
                  so_far: Callable[[Sequence[int]], np.ndarray] | None = None,
                  close: tuple[float, float] = (1e-5, 1e-5), given: Collection[str] = ()) -> None:
    """The values of an output are right; else says which step left the first wrong block, and what it made it from.

    `slips`: (the output that a known slip gives, what to say of it); the first that the wrong cell agrees with counts.
    Where a slip leaves its mark on any result, that is a function: result -> where it shows (NaN elsewhere).
    `sources`: the block of each input that belongs to a block of the output. Without it, an input as large as the
    output goes block by block with it, if there is one output.
    `so_far`: what a block of the output should hold once these steps of its visit are done.
    `close`: how much values may differ, relative and absolute.
    `given`: what the notebook gives, so that the fault is elsewhere: kernels by name, "out" for the output's map.
    """
    out = call.outputs[which]
    block_shape, schedule = sizes(out), schedule_of(call)
    if schedule is not None and (hazards := verify(schedule)):
        raise Wrong("The result depends on a hazard.", case=case, schedule=schedule, hazard=hazards,
                    nudge=hazards[0].mend)
    if not isinstance(result, np.ndarray) or result.shape != expected.shape:
        same_array(result, expected, case=case)
    bad = ~np.isclose(result.astype(np.float64), expected.astype(np.float64), *close)
    if not bad.any():
        return insist_made_by(call, which, expected, case, *close)
    found = visits(out)  # (first step, block) of each visit
    cell = {}  # block -> its first wrong cell
    for index in np.argwhere(bad):
        cell.setdefault(tuple(int(i) // n for i, n in zip(index, block_shape, strict=True)), tuple(map(int, index)))
    missing = [b for b in cell if b not in {b for _, b in found}]
    if missing:
        at, counts = cell[missing[0]], [cdiv(n, b) for n, b in zip(out.shape, block_shape, strict=True)]
        tail = any(n % b for n, b in zip(out.shape, block_shape, strict=True))
        nudge = f"In blocks of {by(block_shape)}, {out.name} has {by(counts)} of them; the grid is {call.grid}. "
        if call.steps < math.prod(counts):
            nudge += f"Each block needs a step{', and so do the partial ones at the edge (pl.cdiv rounds up)' * tail}."
        else:
            nudge += (f"So there are steps enough, but {out.name}'s index map gives {block_name(out, missing[0])} in "
                      "none of them.")
            again = [t for t, b in enumerate(out.blocks) if b in out.blocks[:t]]
            if again and call.steps == math.prod(counts):
                twice = out.blocks[again[0]]
                nudge += f" Steps {out.blocks.index(twice)} and {again[0]} both write {block_name(out, twice)}."
        raise Wrong(f"No step writes block {block_name(out, missing[0])}: it keeps what was in memory.", case=case,
                    got=_at(out, at, result), expected=f"{expected[at]:.6g}", schedule=schedule, nudge=nudge)
    last = {block: (visit, step) for visit, (step, block) in enumerate(found)}
    (visit, step), block = min((last[b], b) for b in cell)
    at, slot = cell[block], visit % out.depth
    end = found[visit + 1][0] - 1 if visit + 1 < len(found) else call.steps - 1
    steps = f"Step {step}" if step == end else f"Steps {step} to {end}"
    s = "s" * (step == end)  # Step 3 leaves, steps 4 to 7 leave
    between = " … " if end > step + 1 else " and "
    made_from = " and ".join(between.join(dict.fromkeys(block_name(x, x.blocks[t]) for t in (step, end)))
                             for x in call.inputs)
    hazard = None
    if schedule is not None:
        ran = {e.step: i for i, e in enumerate(schedule) if e.verb == "run"}
        made = f"the kernel makes {block_name(out, block)} from {made_from}"
        first, events = step, tuple(dict.fromkeys((ran[step], ran[end])))
        if so_far and (wrong := _first_wrong(call, which, range(step, end + 1), so_far)):
            first, holds, should = wrong
            made = f"after this step {block_name(out, block)} holds {holds:.6g} where it should hold {should:.6g}"
            events = (ran[first],)
        hazard = Hazard("wrong block", made, "", out.name, first, slot, events)
    home_of = sources or (lambda block: [
        block if len(call.outputs) == 1 and x.shape == out.shape else x.blocks[step] for x in call.inputs])
    known_right = sources and all({b} == {*x.blocks[step:end + 1]}
                                  for x, b in zip(call.inputs, home_of(block), strict=True))
    nudge = _odd_map(call, out, step, home_of, "out" in given) or (
        f"{steps} read{s} {made_from}, as it should: look at the kernel." if known_right else
        f"{steps} read{s} {made_from}. Are those the blocks that belong to {block_name(out, block)}? " +
        ("The kernel is the given one: look at the index maps." if call.name in given else
         "If they are, look at the kernel."))
    for wrong, says in reversed(slips):  # the first that agrees is the one that stays
        known = wrong(result) if callable(wrong) else wrong
        nudge = says if np.isclose(result[at], known[at], 1e-5, 1e-5, equal_nan=True) else nudge
    raise Wrong(f"{steps} leave{s} a wrong block {block_name(out, block)}, by slot {slot} of {out.name}.", case=case,
                got=_at(out, at, result), expected=f"{expected[at]:.6g}", schedule=schedule,
                hazard=hazard, nudge=nudge)


def _odd_map(call: KernelCall, out: KernelOperand, step: int, sources, given: bool) -> str:
    """Whose index map is at fault, if one is; `sources`: the block of each input that belongs to a block of `out`.

    `given`: that of `out` is not.
    """
    block, read = out.blocks[step], [x.blocks[step] for x in call.inputs]
    odd = [(x, b) for x, b in zip(call.inputs, sources(block), strict=True) if x.blocks[step] != b]
    if not odd:
        return ""
    says = f"Step {step} should read {block_name(*odd[0])} to write {block_name(out, block)}."
    blocks = np.ndindex(*(cdiv(n, b) for n, b in zip(out.shape, sizes(out), strict=True)))
    home = next((b for b in blocks if list(sources(b)) == read), None)
    if home is None or given:  # the inputs do not even belong together
        return f"{says} Look at the index map of {odd[0][0].name}."
    if len(odd) == 1:
        return f"{says} Look at the index map of {odd[0][0].name}, and at that of {out.name}."
    took = " and ".join(block_name(x, b) for (x, _), b in zip(odd, (x.blocks[step] for x, _ in odd), strict=True))
    return (f"Step {step} reads {took}, which belong to {block_name(out, home)}, and writes {block_name(out, block)}. "
            f"Look at the index map of {out.name}.")


def _first_wrong(call: KernelCall, which: int, steps: range, so_far) -> tuple[int, float, float] | None:
    """The step of a visit from which on its block is wrong, what a cell of it holds then, and what it should hold."""
    found = None
    for t in reversed(steps if len(call.left_by) == call.steps else ()):
        try:
            should, holds = so_far(range(steps[0], t + 1)), call.left_by[t][which].astype(np.float64)
        except ValueError:  # the blocks of the visit are of several sizes
            return None
        if holds.size != should.size:
            return None
        holds = holds.reshape(should.shape)
        bad = np.argwhere(~np.isclose(holds, should, rtol=1e-5, atol=1e-5))
        if not len(bad):
            break
        found = t, float(holds[tuple(bad[0])]), float(should[tuple(bad[0])])
    return found


def _at(out: KernelOperand, at: tuple[int, ...], result: np.ndarray) -> str:
    """What a cell holds. Not written o[0, 2], which is a block."""
    return f"{result[at]:.6g} in element ({', '.join(map(str, at))}) of {out.name}"


def insist_made_by(call: KernelCall, which: int, expected: np.ndarray, case: str, rtol: float = 1e-5,
                   atol: float = 1e-5) -> None:
    """The call itself made these values: they did not come from plain jnp beside it, before it or after it."""
    if not call.replayed:
        raise Wrong("The values that you return are right, but your pallas_call cannot be followed step by step.",
                    case=case, got=f"{call.steps} steps", nudge="The kernel should read and write its refs only, and "
                    "leave the copies to the pipeline; and no more steps than the task needs.")
    made = call.results[which]
    if made.shape != expected.shape or not np.allclose(made.astype(np.float64), expected, rtol, atol):
        raise Wrong("The values that you return are right, but the pallas_call alone did not make them.", case=case,
                    nudge="All of the work belongs into the kernel: give the call the arrays as they came, and return "
                          "what it gives.")


def sizes(x: KernelOperand) -> tuple[int, ...]:
    return tuple(n or 1 for n in x.block_shape)


def by(block) -> str:
    """The shape of a block in words.  >>> by((64, 128))
    '64 × 128'
    """
    return " × ".join(map(str, block))


def block_name(x: KernelOperand, block) -> str:
    return f"{x.name}[{', '.join(map(str, block))}]"


def visits(x: KernelOperand) -> list[tuple[int, tuple[int, ...]]]:
    return [(t, b) for t, b in enumerate(x.blocks) if t == 0 or b != x.blocks[t - 1]]


def operands_of(call: KernelCall) -> list[Operand]:
    """The operands of a call as the pipeline takes them, from what it asked for."""
    return [Operand(x.name, x.name, out, x.depth, x.shape, np.dtype(x.dtype), sizes(x), (), list(x.blocks))
            for out, side in ((False, call.inputs), (True, call.outputs)) for x in side]


def schedule_of(call: KernelCall) -> Schedule | None:
    """The schedule of a call, from what it asked for; None if it is too long to show, or not to be trusted."""
    try:
        return record(call.steps, operands_of(call), float(math.prod(sizes(call.outputs[0]))), call.name) \
            if call.steps <= DRAWN else None
    except (TypeError, ValueError):
        return None


def own_copies(run: KernelRun, case: str) -> KernelCall:
    """The last call whose kernel starts copies itself. Its schedule is as the learner's side told it: verify it."""
    insist_called(run, case)
    for call in reversed(run.calls):
        if call.schedule is not None:
            return call
    raise Wrong("Your pallas_call leaves the copies to the pipeline.", case=case,
                nudge="Here the kernel starts them itself: arrays in HBM (memory_space=pl.ANY), make_async_copy.")


def contract(n: int, depth: int, cells: int = 250, flops: float = 1000.0) -> Schedule:
    """The schedule of pallas_call's own order over n blocks of `cells` f32 numbers, with `depth` slots each way.

    By default blocks and work are those of a hand-written loop (Handle.schedule).
    """
    order = [(i,) for i in range(n)]
    operands = [Operand(name, array, output, depth, (n * cells,), np.dtype(np.float32), (cells,), (), order)
                for name, array, output in (("X", "A", False), ("Y", "B", True))]
    return record(n, operands, flops, "pallas_call's order")
