"""Checks of chapter 1: bytes and operations. In: a handle on the learner's answer. Out: nothing, or Wrong.

Next: ../mutants/chapter1.py.
"""
import math

import jax.numpy as jnp
import numpy as np

from pallas_lite.hardware import H100, TPU_V5E

from ..exercise import AnswerFailed, Trial, Wrong, exercise
from ..judge.handle import Handle, close, number
from ..judge.predict import Asked, predict
from .formulas import known_slip
from .kernels import insist_values, random_array, run, the_call


def exactly(given, right: int, what: str, slips: dict[float, str], case: str, nudge: str) -> None:
    """The right number, neither more nor less; slips that give the right number in this case say nothing."""
    close(given, right, tolerance=1e-12, what=what, case=case, nudge=nudge,
          slips={value: says for value, says in slips.items() if value != right})
    if number(given) != right:  # 0 has no relative tolerance
        raise Wrong(f"{what} is too {'high' if number(given) > right else 'low'}.", case=case, nudge=nudge)


# Of each size, a dtype that the page does not name: "any dtype". None of 64 bits, which JAX makes 32 by default.
UNNAMED = [((3, 2), "float16"), ((3, 1), "uint32"), ((5,), "uint8"), ((), "float16"), ((4,), "bool")]


@exercise("1.1", "Count the bytes", points=1)
def array_bytes(answer: Handle, trial: Trial) -> None:
    cases = [((3,), "float32"), ((2, 5), "int8"), ((2, 3, 7), "bfloat16"), ((), "float32"), ((2048, 2048), "float32"),
             *UNNAMED]
    if trial.hidden:
        dtypes = ["int8", "bfloat16", "float16", "float32", "int32", "float8_e4m3fn"]
        cases += [(tuple(int(n) for n in trial.rng.integers(2, 12, rank)), dtype)
                  for rank, dtype in zip((1, 2, 3, 4, 2, 3), trial.rng.permutation(dtypes).tolist(), strict=True)]
    for shape, dtype in cases:
        elements, size = math.prod(shape), jnp.dtype(dtype).itemsize
        slips = {
            8 * elements * size: "Those are bits. A byte has eight.",
            elements: "That is the number of elements. How many bytes does each of them take? "
                      "jnp.dtype(dtype).itemsize says it of any dtype.",
            2 * elements: "That would be two bytes an element, as a bfloat16 has. jnp.dtype(dtype).itemsize says how "
                          "many another dtype has.",
            sum(shape) * size: "The sizes along the axes multiply; they do not add up.",
            math.prod(shape[:2]) * size: "An array may have any number of axes, not only two.",
            8 * elements: "That would be eight bytes an element. jnp.dtype(dtype).itemsize says how many there are.",
            4 * elements: "That would be four bytes an element, as a float32 has. Other dtypes have more or fewer.",
            size: "That is one element. How many are there?",
        }
        if shape == ():
            slips = {0: "A shape () is a single number, not none: the product of no factors is 1."}
        try:
            given = answer.call(shape, dtype)
        except AnswerFailed as failed:
            if failed.kind == "KeyError" and failed.message == repr(dtype):
                failed.nudge = "A table has the dtypes that you put there. jnp.dtype(dtype).itemsize knows them all."
            raise
        exactly(given, elements * size, "The number of bytes", slips, f"shape = {shape}, dtype = {dtype!r}",
                "Bytes = number of elements × bytes of one element.")


@exercise("1.2", "The largest square", points=2)
def largest_square_add(answer: Handle, trial: Trial) -> None:
    sizes = visible = [1199, 1200, H100.sram_bytes, TPU_V5E.sram_bytes]
    if trial.hidden:
        sizes = [*sizes, 12, 11]
        ns = [int(n) for n in trial.rng.integers(20, 3000, 4)]
        sizes += [12 * n * n - 1 for n in ns] + [12 * n * n for n in ns] + [int(trial.rng.integers(10**4, 10**8))]
    for sram in sizes:
        right, given = math.isqrt(sram // 12), answer.call(sram)
        if number(given) != int(number(given)) and abs(number(given) - right) < 1:
            raise Wrong("n should be a whole number.", case=f"sram_bytes = {sram}", got=number(given),
                        nudge="Part of a row does not help. Which whole number still fits?")
        about = "Write down the bytes of x, y and z together for some n, and compare with sram_bytes."
        try:
            exactly(given, right, "n", {right + 1: "That does not fit any more: round down."}, f"sram_bytes = {sram}",
                    about)
        except Wrong as wrong:
            if wrong.nudge == about:
                wrong.nudge = known_slip(answer, [(size,) for size in visible], (sram,), square_slips) or about
            raise


def square_slips(sram: int) -> list[tuple[float, str]]:
    return [
        (math.isqrt(sram // 8), "That leaves no room for the result: z lies in SRAM, too."),
        (math.isqrt(sram // 4), "That is one array. An add has x, y and z."),
        (math.isqrt(sram // 3), "Each number is a float32, which takes four bytes."),
        (math.isqrt(sram // 24), "Here each array has one place in SRAM, not two."),
        (sram // 12, "That is how many elements each array may have. A square of n × n has n² of them."),
    ]


@predict("1.3", "Intensity", points=3,
         show=lambda p: f"A: {p.terms} times z * x + y in {p.dtype}; B: [{p.m}, {p.k}] @ [{p.k}, {p.n}] in bfloat16")
def intensity(p) -> list[Asked]:
    operations, moved = 2 * p.m * p.k * p.n, 2 * (p.m * p.k + p.k * p.n + p.m * p.n)
    right = operations / moved
    return [
        Asked("The intensity of A", "operations per byte", 2 * p.terms / (3 * p.size), [
            ("a multiply-add is one operation", p.terms / (3 * p.size),
             "z * x + y is two operations: a multiplication and an addition."),
            ("outputs are not moved", p.terms / p.size, "z is moved, too: from SRAM to HBM."),
            ("intensity counts numbers", 2 * p.terms / 3,
             f"That is operations per number moved. Each number takes {p.size} bytes."),
            ("intensity is bytes per operation", 3 * p.size / (2 * p.terms),
             "That is the other way round: bytes per operation."),
            ("operations are intensity", 2 * p.terms, "Those are the operations for one element. Over how many bytes?"),
        ], nudge="Take one element of z: the operations that make it, over the bytes that are moved for it."),
        Asked("The intensity of B", "operations per byte", right, [
            ("one operation for each product of two numbers", right / 2,
             "That is half of it. Each term of the sum is a multiplication and an addition; each number has 2 bytes."),
            ("intensity counts numbers", 2 * right, "That is operations per number moved. Each number has 2 bytes."),
            ("outputs are not moved", operations / (2 * (p.m * p.k + p.k * p.n)), "z is moved, too."),
            ("one operation for each result", p.m * p.n / moved,
             "A result is not one operation. It is a sum of k products."),
            ("intensity is bytes per operation", 1 / right, "That is the other way round: bytes per operation."),
        ], nudge="n/3 is for n × n matrices. Count the operations of yours, and the bytes of x, y and z."),
    ]


@predict("1.4", "What a kernel can reach", points=3,
         show=lambda p: f"{p.arrays} arrays of float32 moved, {p.operations} operations for each element")
def reach(p) -> list[Asked]:
    moved = 4 * p.arrays
    asked = []
    for name, machine in ("v5e", TPU_V5E), ("the H100", H100):
        percent = 100 * p.operations / moved * machine.beta / machine.flops
        # On the H100, 100 · β/F happens to be 5, and another slip gives the same for five operations.
        intensity_itself = [] if machine is H100 else [
            ("the intensity is the part", p.operations / moved,
             "That is the intensity I, in operations per byte. How many operations a second does it allow?")]
        asked.append(Asked(f"The part of F on {name}", "%", percent, [
            ("a fraction is a percentage", percent / 100,
             "That is the fraction itself. In percent it is 100 times that."),
            ("everything can use the matrix unit", percent * machine.flops / machine.matmul_flops,
             "That compares with the matrix unit, which only does products of matrices. Take F of the vector unit."),
            ("outputs are not moved", percent * p.arrays / (p.arrays - 1), "The output is moved, too."),
            ("intensity counts numbers", 4 * percent, "β is in bytes per second, and each number has four bytes."),
            ("one operation for each element", percent / p.operations,
             f"Your kernel does {p.operations} operations for each element, not one."),
            ("all of F can be reached", 100.0,
             "That would need enough operations for each byte. Does the kernel have them?"),
            *intensity_itself,
        ], 0.02, "The slope allows I · β operations a second. How many percent of F are that?"))
    balance = moved * TPU_V5E.flops / TPU_V5E.beta
    asked.append(Asked("The work per element", "operations", balance, [
        ("the corner is the number of operations", TPU_V5E.flops / TPU_V5E.beta,
         "That is the intensity of the corner: operations per byte. How many bytes are moved for one element?"),
        ("intensity counts numbers", balance / 4, "Each number has four bytes."),
        ("outputs are not moved", balance * (p.arrays - 1) / p.arrays, "The output is moved, too."),
        ("all machines have the same corner", moved * H100.flops / H100.beta, "That is the corner of the H100."),
        ("everything can use the matrix unit", moved * TPU_V5E.matmul_flops / TPU_V5E.beta,
         "That is the corner of the matrix unit. An elementwise kernel runs on the vector unit."),
    ], 0.02, "At the corner, I = F/β. How many operations for each element is that, if the bytes stay the same?"))
    return asked


@exercise("1.5", "One call", points=3)
def fused(answer: Handle, trial: Trial) -> None:
    for shape in trial.pick(visible=[(2, 3), (8, 16), (5,)], hidden=[(3, 4), (16, 8), (7,), (2, 3, 4)]):
        x, y, z = (random_array(trial, shape) for _ in range(3))
        case = f"x, y and z are float32{list(shape)}"
        did = run(answer, case, "The call has three operands and one output, each as a whole", x, y, z)
        moved = sum(o.copies * math.prod(n or 1 for n in o.block_shape) for c in did.calls
                    for o in (*c.inputs, *c.outputs))
        if did.made > 1:
            raise Wrong(f"Your function makes {did.made} calls, and each moves its operands anew.", case=case,
                        got=f"{moved / math.prod(shape):.3g} arrays moved", expected="4 arrays moved",
                        nudge="Let one kernel do all three operations before it stores anything.")
        call = the_call(did, [x, y, z], [shape], case)
        if moved > 4 * math.prod(shape):
            raise Wrong("Some block is copied more than once.", case=case,
                        got=f"{moved / math.prod(shape):.3g} arrays moved", expected="4 arrays moved",
                        nudge="Without grid and specs, each operand is one block and copied once.")
        right = np.maximum(x * y + z, 0)
        told_apart(answer, call, did.result, right, x, y, z, case)
        insist_values(call, 0, did.result, right, case)


def told_apart(answer, call, result, right, x, y, z, case) -> None:
    """Raises Wrong where values are wrong that the call made in one step: steps and slots, and they are chapter 3's."""
    if not isinstance(result, np.ndarray) or result.shape != right.shape or call.steps > 1 or \
            np.allclose(result, right, 1e-5, 1e-5):
        return
    at = tuple(map(int, np.argwhere(~np.isclose(result, right, 1e-5, 1e-5))[0]))
    nudge = f"There x is {x[at]:.4g}, y is {y[at]:.4g} and z is {z[at]:.4g}. What does your kernel make of them?"
    for values, says in ((x * y + z, "Negative results should become 0. What does jnp.maximum do?"),
                         (np.abs(x * y + z), "Negative results should become 0, not positive. What does jnp.maximum "
                                             "do?"),
                         (np.maximum(x * y, 0), "z is missing."), (np.maximum(x + y + z, 0), "x and y multiply."),
                         (np.maximum((x + y) * z, 0), "x and y multiply, and z is added."),
                         (np.maximum(x * y * z, 0), "z is added."),
                         (np.maximum(x * y - z, 0), "z is added, not taken away."),
                         (np.maximum(x * y + x, 0), "z is added, not x."),
                         (np.maximum(x * y + y, 0), "z is added, not y."),
                         (np.maximum(x * y, 0) + z, "Add z first, then take the maximum with 0."),
                         (np.minimum(x * y + z, 0), "That keeps the smaller of the two; take the larger.")):
        if np.allclose(result, values, 1e-5, 1e-5):
            nudge = says
    if np.isnan(result).any():
        again = answer.kernel(x, y, z, filling=7.0).result  # in memory that held 7 everywhere
        if np.all(again == 7):
            nudge = ("Nothing was stored in the output: it holds what was in memory before. The output's ref is the "
                     "kernel's last parameter, and o_ref[...] = value stores there; o_ref = value only names it anew.")
        elif not np.isnan(again).any():
            nudge = ("There the output holds what was in memory before, or something made of it. Does your kernel read "
                     "o_ref before it stores, or leave a part of it out?")
    raise Wrong("The values are not max(x * y + z, 0).", case=case, got=f"o{list(at)} = {result[at]:.6g}",
                expected=f"{right[at]:.6g}", nudge=nudge)
