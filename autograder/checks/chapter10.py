"""Checks of chapter 10, GPU programs. In: a handle on the answer. Out: nothing, or Wrong with the first slip."""
import math
import re
from pathlib import Path

import numpy as np

from ..exercise import Trial, Wrong, exercise
from ..judge.handle import Handle, kind_of, number, so_many, word
from ..judge.predict import Asked, predict
from ..sandbox.inside.recorded import Record, listings
from .formulas import known_slip
from .kernels import block_name, how_cut, insist_blocks, insist_values, random_array, run, schedule_of, sizes, the_call

AXES = {"scale": ("parallel", "parallel"), "column_sums": ("parallel", "arbitrary"), "running_sum": ("arbitrary",),
        "matmul": ("parallel", "parallel", "arbitrary")}
SHARES = {  # why an axis is not parallel
    "column_sums": "Steps along it write the same block (0, j) of o, each adding to what the step before left there.",
    "running_sum": "Each step reads the sum that the step before left in scratch.",
    "matmul": "Steps along it add to the same sum, in scratch, and share the block (i, j) of o.",
}


@exercise("10.1", "Parallel or sequential?", points=2)
def semantics(answer: Handle, trial: Trial) -> None:
    given = answer.value()
    if not isinstance(given, dict):
        raise Wrong('The answer should be a dict, such as {"scale": ("parallel", "arbitrary"), …}.', got=kind_of(given))
    for kernel, right in AXES.items():
        marks = given.get(kernel)
        marks = so_many((marks,) if isinstance(marks, str) else marks, len(right))
        if marks is None:
            raise Wrong(f"{kernel} has {len(right)} grid ax{'e' if len(right) > 1 else 'i'}s: give one word for each.",
                        case=kernel, got=given.get(kernel))
        words = list(map(word, marks))
        for axis, said in enumerate(words):
            if said not in ("parallel", "arbitrary"):
                raise Wrong('Each axis is either "parallel" or "arbitrary".', case=f"{kernel}, axis {axis}",
                            got=marks[axis])
            if said == "parallel" and right[axis] == "arbitrary":
                raise Wrong("On a GPU these steps would run at once, and the result would be wrong.",
                            case=f"{kernel}, axis {axis}", got=said, nudge=SHARES[kernel])
        for axis, said in enumerate(words):  # when none is wrong: is any too careful?
            if said != right[axis]:
                raise Wrong("Right, but it leaves most of the GPU idle: this axis may be parallel.",
                            case=f"{kernel}, axis {axis}", got=said,
                            nudge="Does any step along it need what another one wrote, in o or in scratch? An input "
                                  "that keeps its block is no reason.")


@exercise("10.2", "Move the reduction inside", points=3)
def reduction_inside(answer: Handle, trial: Trial) -> None:
    cases = trial.pick(visible=[(3, (16, 32), (16, 32)), (4, (32, 48), (8, 16))],
                       hidden=[(3, (8, 16), (8, 16)), (5, (24, 40), (12, 8)), (1, (8, 32), (8, 16))])
    for r, shape, block in cases:
        x = random_array(trial, (r, *shape))
        case = f"x is f32[{r}, {shape[0]}, {shape[1]}], bm = {block[0]}, bn = {block[1]}"
        fit = f"{how_cut('x', x.shape, (r, *block))}; {how_cut('the result', shape, block)}"
        did = run(answer, case, fit, x, *block)
        call = the_call(did, [x], [shape], case)
        out, source, blocks = call.outputs[0], call.inputs[0], math.prod(shape) // math.prod(block)
        insist_blocks(call, block, shape, case)
        seen = {}
        for step, at in enumerate(out.blocks):
            if at in seen:
                raise Wrong(f"Steps {seen[at]} and {step} both write block {block_name(out, at)}.", case=case,
                            schedule=schedule_of(call), got=f"a grid of {call.grid}",
                            expected=f"{blocks} step{'s' * (blocks > 1)}, one for each block of the result",
                            nudge="On a GPU they would be different CUDA blocks, and run at once. Give one step all "
                                  "layers of its block, and let the kernel add them up.")
            seen[at] = step
        if sizes(source)[0] != r:
            raise Wrong(f"A step sees {sizes(source)[0]} of the {r} layers of x.", case=case,
                        got=f"a block of {list(source.block_shape)}",
                        nudge=f"One step makes one block of the result, so it needs all {r} layers of that place.")
        if any(n > most for n, most in zip(sizes(source)[1:], block, strict=True)):
            raise Wrong("The block of x is larger than a step needs.", case=case, got=f"{list(source.block_shape)}",
                        nudge=f"All layers, but only {block[0]} × {block[1]} of each.")
        slips = [(np.full(shape, np.nan), "What is in the block of the result at first? Nothing that was promised: set "
                                          "it to zero before the first layer is added."),
                 (x[-1], "Only the last layer is left. Does `=` put it in place of the sum? `+=` adds it. Or is the "
                         "block set to zero inside the loop? That belongs before it."),
                 (x[0], "Only the first layer is in it. The loop goes through all of them."),
                 (r * x[0], f"The first layer is added {r} times. At turn k of the loop it should be layer k."),
                 (x[1:].sum(0), "The first layer is missing. Layers count from 0."),
                 (x[:-1].sum(0), "The last layer is missing: a loop from 0 to r ends before r.")]
        insist_values(call, 0, did.result, x.sum(0), case, slips if r > 1 else ())


@predict("10.3", "The price of a stage", points=3,
         show=lambda p: f"bf16, blocks ({p.bm}, {p.bn}, {p.bk}), {p.stages} stages; f32, blocks of {p.rows} × "
                        f"{p.columns}, {p.depth} slots for an input, 2 for the output")
def price(p) -> list[Asked]:
    one, block = (p.bm + p.bn) * p.bk * 2 / 1024, p.rows * p.columns * 4
    barriers, slots = 8 * 2 * p.depth, 2 * p.depth + 2
    return [
        Asked("The shared memory of the product", "KiB", p.stages * one, [
            ("a stage costs nothing", one, "That is one stage. How many blocks of each operand are there at a time?"),
            ("a bf16 has 4 bytes", 2 * p.stages * one, "A bf16 has 2 bytes."),
            ("the running stage is extra", (p.stages + 1) * one, "The stage that is being computed on is one of them."),
            ("the accumulator is in shared memory", p.stages * one + p.bm * p.bn * 4 / 1024,
             "Triton keeps the accumulator in registers."),
            ("bytes are KiB", p.stages * one * 1024, "Those are bytes; a KiB has 1024.")], 0,
            nudge="A stage holds one block of x, bm × bk, and one of y, bk × bn, and nothing else."),
        Asked("The shared memory of the add by Triton", "bytes", 0, [
            ("Triton copies ahead whatever it reads", 2 * p.depth * block,
             "Triton copies ahead only what a matrix product reads. There is none here."),
            ("slots are slots", slots * block + barriers,
             "That would be Mosaic GPU's answer. Who makes the pipeline in Triton, and for which operands?"),
            ("slots are slots, without barriers", slots * block,
             "That would be Mosaic GPU's slots. Who makes the pipeline in Triton, and for which operands?"),
            ("at least one block each", 3 * block,
             "An add needs no place in shared memory: blocks go from HBM to registers and back."),
            ("the result needs a place", block,
             "An add needs no place in shared memory: blocks go from HBM to registers and back.")], 0,
            nudge="What does Triton copy ahead through shared memory? Is any of it here?"),
        Asked("The shared memory of the add by Mosaic GPU", "bytes", slots * block + barriers, [
            ("barriers need no memory", slots * block, "Each slot of an input has a barrier, and that is 8 bytes."),
            ("the output is as deep as the inputs", 3 * p.depth * block + barriers, "The output has 2 slots."),
            ("the output has one slot", (slots - 1) * block + barriers, "The output has 2 slots."),
            ("results go out by themselves", 2 * p.depth * block + barriers,
             "The output has slots in shared memory, too; a bulk copy takes them out."),
            ("outputs have barriers", slots * block + 8 * slots,
             "Copies out are counted, and need no barrier. Only the slots of inputs have one."),
            ("one barrier for each input", slots * block + 16, "Each slot has a barrier of its own."),
            ("one barrier for each stage", slots * block + barriers // 2,
             "Each slot has a barrier of its own: those of x, and those of y."),
            ("an f32 has 2 bytes", slots * block // 2 + barriers,
             "An f32 has 4 bytes. Only the product is in bf16.")], 0),
    ]


DEPTHS = {  # what typical slips give: (function of bm, bn, bk, what to say)
    "one": (lambda bm, bn, bk: max(1, 227 * 1024 // _stage(bm, bn, bk)),
            "One stage of these blocks is more than 227 KiB: none fits."),
    "228": (lambda bm, bn, bk: 228 * 1024 // _stage(bm, bn, bk),
            "228 KiB is what an SM has; one CUDA block may use 227."),
    "1000": (lambda bm, bn, bk: 227_000 // _stage(bm, bn, bk), "A KiB has 1024 bytes."),
    "up": (lambda bm, bn, bk: -(-227 * 1024 // _stage(bm, bn, bk)), "Part of a stage is none: round down."),
    "less": (lambda bm, bn, bk: (227 * 1024 - 1) // _stage(bm, bn, bk),
             "With one stage more they take 227 KiB exactly, and that still fits: at most 227, not less."),
    "near": (lambda bm, bn, bk: round(227 * 1024 / _stage(bm, bn, bk)), "Part of a stage is none: round down."),
    "f32": (lambda bm, bn, bk: 227 * 1024 // (2 * _stage(bm, bn, bk)), "A bf16 has 2 bytes."),
    "x": (lambda bm, bn, bk: 227 * 1024 // (2 * bm * bk), "A stage holds a block of y as well, bk × bn."),
    "o": (lambda bm, bn, bk: max(227 * 1024 - 4 * bm * bn, 0) // _stage(bm, bn, bk),
          "Triton keeps the accumulator in registers; it takes no shared memory."),
    "numbers": (lambda bm, bn, bk: 227 * 1024 // (_stage(bm, bn, bk) // 2), "A bf16 has 2 bytes, not one."),
}


def _stage(bm: int, bn: int, bk: int) -> int:
    """Bytes of a block of x and one of y, in bf16."""
    return (bm + bn) * bk * 2


@exercise("10.4", "As deep as it goes", points=2)
def deepest(answer: Handle, trial: Trial) -> None:
    cases = visible = [(64, 256, 64), (128, 128, 64), (64, 128, 32), (64, 64, 32), (16, 16, 16), (512, 512, 128)]
    # Of (16, 16, 16), 227 stages fill the memory to the last byte.
    if trial.hidden:
        cases = visible + [tuple(int(n) for n in (
            trial.rng.choice([64, 128, 256]), trial.rng.choice([64, 128, 192, 256]),
            trial.rng.choice([16, 32, 64, 128]))) for _ in range(8)]
    for shape in cases:
        bm, bn, bk = shape
        case, right = f"bm = {bm}, bn = {bn}, bk = {bk}", 227 * 1024 // _stage(*shape)
        given = answer.call(*shape)
        try:
            x = number(given)
        except Wrong as wrong:
            wrong.case = case
            raise
        if x != right:
            slip = known_slip(answer, visible, shape, lambda *shape: [(f(*shape), says) for f, says in DEPTHS.values()])
            slip = slip or ("" if x == int(x) else "Part of a stage is none: round down.")
            more = f" ({_stage(*shape) * int(x):,} bytes)" if 0 < x < 1e6 and x == int(x) else ""
            raise Wrong("That is too many: they do not fit." if x > right else "More would fit.", case=case,
                        got=f"{x:g} stage{'s' * (x != 1)}{more}",
                        nudge=slip or "One stage: a block of x, bm × bk, and one of y, bk × bn. How often do its bytes "
                                      "go into 227 · 1024?")


def in_loop(ptx: str) -> tuple[int, int]:
    """How many cp.async stand before the first label, and from it on."""
    before, _, loop = ptx.partition("$L__BB")
    return tuple(len(re.findall(r"cp\.async\.c[ag]", part)) for part in (before, loop))


def listed(place: int) -> Record:
    """What the compiler said of a listing of 10.5. It is not where student code is graded, nor in `recorded()`."""
    headings = Path(__file__).with_name("listings.txt").read_text(encoding="utf-8").split("\n# ")[1:]
    kernel, lowering, *numbers = headings[place].split(" | ")
    return Record(kernel, lowering, *map(int, numbers), ptx=listings()[place])


@predict("10.5", "Read the copies", points=3, show=lambda p: "the listing above")
def read(p) -> list[Asked]:
    record = listed(p.place)
    before, loop = in_loop(p.ptx)
    threads, kib = int(re.search(r"\.reqntid (\d+)", p.ptx)[1]), record.shared_memory / record.depth / 1024
    a_line = threads * 16 / 1024
    groups = {len(re.findall(r"cp\.async\.c[ag]", part)) for part in record.ptx.split("commit_group")} - {0, 1, loop}
    return [
        Asked("The number of stages", "stages", record.depth, [
            ("the prologue has them all", record.depth - 1,
             "Those are the stages that the prologue starts. The loop starts one more before it comes round."),
            ("each copy is a stage", before + loop,
             "Those are instructions. Those in the loop start one stage, all together."),
            ("each instruction of the prologue is a stage", before,
             "One stage takes as many instructions as there are in the loop.")], 0,
            nudge="Count the lines that start copies before the first label, and those after it: the loop starts one "
                  "stage at each turn, the prologue all but one."),
        Asked("What one step copies", "KiB", kib, [
            ("an instruction is one copy of 16 bytes", loop * 16 / 1024,
             "That is one thread's. How many threads execute the line?"),
            ("0x10 is ten", loop * threads * 10 / 1024, "0x10 is a hexadecimal number: sixteen."),
            ("all lines belong to one step", (before + loop) * threads * 16 / 1024,
             "One step is what one turn of the loop starts."),
            ("one line is one step", a_line, "The loop has several of these lines; they belong to one step."),
            *[(f"one operand is a step: {lines}", lines * a_line,
               "That is one operand's group. A step needs a block of x and one of y.") for lines in sorted(groups)],
            *[("the prologue is a step", before * a_line, "Those lines start several stages. One turn of the loop "
                                                          "starts one.")] * (record.depth > 2),
            *[("32 threads execute a line", loop * 32 * 16 / 1024,
               f"32 is one warp. The CUDA block has {threads} threads (.reqntid), and each executes the line.")] *
            (loop * 32 != threads),
            ("bytes are KiB", kib * 1024, "Those are bytes; a KiB has 1024.")], 0),
        Asked("The shared memory", "KiB", record.shared_memory / 1024, [
            ("only the prologue's stages need a place", (record.depth - 1) * kib,
             "The stage that is computed on needs its place while the next ones arrive."),
            ("one more than the stages", (record.depth + 1) * kib, "As many places as stages: the loop starts a new "
                                                                   "stage where the one before last was."),
            ("bytes are KiB", record.shared_memory, "Those are bytes; a KiB has 1024.")], 0),
    ]
