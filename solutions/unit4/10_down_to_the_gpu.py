# %% [markdown]
# # 10 · Down to the GPU
#
# The sum of chapter 6: eight arrays, stacked, added up block by block. The innermost axis of the grid goes through the
# stack, and the block of the result stays in its slot while they are added. Here are the blocks of the result, with the
# steps that write them. On a TPU, one core takes the steps one after the other, and all is well.

# %%
import re
import warnings
from itertools import groupby, zip_longest

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pallas_lite as pl
from autograder import check, personal, progress, recorded, say
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import H100, TPU_V5E


def total_kernel(x_ref, o_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...]


def total_of(x, semantics, interpret=False):
    """A call that sums x over its first axis, in blocks of 64 × 64. `semantics`: of the axes i, j, k."""
    r, m, n = x.shape
    return pl.pallas_call(total_kernel, jax.ShapeDtypeStruct((m, n), x.dtype),
                          grid=(m // 64, n // 64, r),
                          in_specs=[pl.BlockSpec((None, 64, 64), lambda i, j, k: (k, i, j))],
                          out_specs=pl.BlockSpec((64, 64), lambda i, j, k: (i, j)), interpret=interpret,
                          compiler_params=pltpu.CompilerParams(dimension_semantics=semantics))


x = jax.random.normal(jax.random.key(0), (8, 128, 192))
pl.plot_grid(total_of(x, None).trace(x), "o", ax=plt.subplots(figsize=(6, 3.4), layout="constrained")[1])
plt.show()

# %% [markdown]
# A GPU has more than a hundred cores, and they take steps *at once*, in any order. `dimension_semantics` says what an
# axis is like; let us say "parallel" of all three, as a GPU would like it. Told so, and given a seed, the simulator
# takes the steps in a random order. **Predict before you run the cell:** how much of the result will be right?

# %%
my_guess = None  # such as "half"

all_parallel = "parallel", "parallel", "parallel"
shuffled = total_of(x, all_parallel, pl.InterpretParams(random_seed=1))
with warnings.catch_warnings():
    warnings.simplefilter("ignore", pl.HazardWarning)  # we look at the hazards in a moment
    result = shuffled(x)
right = np.isclose(result, x.sum(0), atol=1e-4)
print("your guess:", my_guess)
print(f"right: {right.mean():.1%} of the result")

# %% [markdown]
# Next to nothing. A step may come when its slot holds another block's sum, or set a half-finished sum to zero. The
# hazard has a name, and the program for a GPU is refused:

# %%
trace = total_of(x, all_parallel).trace(x)
say(trace.hazards[0])
print()
try:
    trace.lower("triton").as_text()
except pl.PallasLiteError as error:
    say(error)

# %% [markdown]
# ## A grid without an order
#
# On a GPU, each position on the **parallel** axes becomes a **CUDA block** (also called a thread block): a group of
# threads that runs on one **SM** (streaming multiprocessor, a core of a GPU). Each SM has registers and **shared
# memory** of its own, and nobody says which block runs when, or beside which.
#
# > An axis may be parallel if no step along it needs what another step left behind: no shared output block, nothing in
# > scratch.
#
# All other axes are "arbitrary" (that is: sequential, in order), and become a loop inside each CUDA block. If an input
# keeps its block along an axis, that is no obstacle: reading disturbs nobody.
#
# ### Exercise 10.1 · Parallel or sequential?
# Four calls; mark each axis of each grid, "parallel" wherever it may be.

# %%
def scale(x_ref, row_ref, o_ref):  # grid (m // 64, n // 64): x and o take (i, j), row takes (0, j)
    o_ref[...] = x_ref[...] * row_ref[...]


def column_sums(x_ref, o_ref):  # grid (n // 64, m // 64): x takes block (i, j) at (j, i), o takes (0, j)
    @pl.when(pl.program_id(1) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...].sum(0, keepdims=True)


def running_sum(x_ref, o_ref, sum_ref):  # grid (m // 64,): x and o take (i, 0); sum_ref is scratch
    @pl.when(pl.program_id(0) == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)
    o_ref[...] = sum_ref[...] + jnp.cumsum(x_ref[...], axis=0)
    sum_ref[...] = o_ref[-1:, :]


def matmul(x_ref, y_ref, o_ref, sum_ref):  # grid (n // 64, m // 64, k // 64), (j, i, t): o takes (i, j)
    @pl.when(pl.program_id(2) == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)
    sum_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = sum_ref[...].astype(o_ref.dtype)

# %% exercise="10.1"
# axes = {"scale": (…, …), "column_sums": (…, …), "running_sum": (…,), "matmul": (…, …, …)}
### BEGIN SOLUTION
axes = {"scale": ("parallel", "parallel"), "column_sums": ("parallel", "arbitrary"),
        "running_sum": ("arbitrary",),
        "matmul": ("parallel", "parallel", "arbitrary")}
### END SOLUTION

# %% check="10.1"
check("10.1", axes)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# For each axis, imagine its steps run backwards. Would anything change?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Look at the output's block first: an axis that it does not follow is one along which steps share a block. Then look at
# scratch: whoever reads it before writing it needs the step before.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# scale shares nothing. The sums share a block, or scratch, along the one axis that is summed over: the second of
# column_sums, the only one of running_sum, the third of matmul.
# </details>

# %% [markdown]
# ## What becomes of the sequential axis
#
# **Triton** is one of two compilers for GPU kernels that Pallas can talk to. Here is what it gets for our sum, with the
# axis k marked "arbitrary": the lines about the grid, loops, loads and stores. **Predict:** how many loads, how many
# stores, and is the store inside the loop?

# %%
def skeleton(text):
    """Of Triton's IR, the lines about the grid, loops and memory, without most types."""
    for line in text.splitlines():
        if re.search(r"get_program_id|scf\.for|tt\.load|tt\.store|tt\.dot", line):
            print(re.sub(r"( : | -> ).*", "", line)[4:])


ordered = total_of(x, ("parallel", "parallel", "arbitrary"))
skeleton(ordered.trace(x).lower("triton").as_text())

# %% [markdown]
# The grid has two axes left, `x` and `y`. The third has moved *inside*: a plain loop of 8 turns. Its `iter_args` is the
# block of the sum, handed from turn to turn in **registers**, and stored once, after the loop. (The load after it
# belongs to that store: Pallas writes a block by swapping.) No slot of the result is shared any more.
#
# You can write it that way from the start: then the kernel says what is sequential, and the grid is parallel all over.
#
# ### Exercise 10.2 · Move the reduction inside
# Sum over the first axis with a grid of two axes; the kernel itself goes through the stack.

# %% exercise="10.2"
def total(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """The sum of x: f32[r, m, n] over its first axis, in blocks of bm × bn of the result.

    bm divides m, bn divides n. One step for each block of the result; a block of x holds all r layers of
    that place, and the kernel adds them up.
    """
    r, m, n = x.shape
    ### BEGIN SOLUTION
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)

        @pl.loop(0, r)
        def _(k):
            o_ref[...] += x_ref[k]

    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn),
                          in_specs=[pl.BlockSpec((r, bm, bn), lambda i, j: (0, i, j))],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)))(x)
    ### END SOLUTION

# %% check="10.2"
check("10.2", total)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# What was the third axis of the grid is now a loop in the kernel. What block of x must a step have for that?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# <code>pl.BlockSpec((r, bm, bn), lambda i, j: (0, i, j))</code> for x. In the kernel, <code>x_ref[k]</code> is one
# layer, and <code>@pl.loop(0, r)</code> over a function of k is the loop.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# The kernel: <code>o_ref[...] = jnp.zeros_like(o_ref)</code>, then in the loop <code>o_ref[...] += x_ref[k]</code>. The
# call: grid <code>(m // bm, n // bn)</code>, the block of the result <code>(bm, bn)</code> at <code>(i, j)</code>.
# </details>

# %% [markdown]
# On a TPU, that block would have to fit the VMEM with all its layers. For Triton, a ref of an input is a place in HBM,
# and only what the kernel reads is moved. **Predict:** how will the two programs differ?

# %%
def inside_kernel(x_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)

    @pl.loop(0, x_ref.shape[0])
    def _(k):
        o_ref[...] += x_ref[k]


inside = pl.pallas_call(inside_kernel, jax.ShapeDtypeStruct((128, 192), x.dtype), grid=(2, 3),
                        in_specs=[pl.BlockSpec((8, 64, 64), lambda i, j: (0, i, j))],
                        out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j)))
print("right:", bool(jnp.allclose(inside(x), x.sum(0), atol=1e-4)))
skeleton(inside.trace(x).lower("triton").as_text())

# %% [markdown]
# Hardly at all. An axis marked "arbitrary" and a loop in the kernel are one thing.
#
# ## Why a GPU wants more stages
#
# Two slots were enough for a TPU. To keep an HBM busy, α · β bytes must be on their way at any time (Little's law:
# bytes in flight = latency × bandwidth). **Predict:** how many KiB must *one SM* of an H100 have on the way, if 132 of
# them share the HBM? And how many steps is that, of two blocks of 64 × 32 in bf16? (α is our assumption for both.)

# %%
SMS = 132  # of an H100 SXM
step_bytes = 2 * 64 * 32 * 2
for name, machine, cores in ("a core of a TPU v5e", TPU_V5E, 1), ("an SM of an H100", H100, SMS):
    flight = machine.alpha * machine.beta / cores
    print(f"{name:20} {flight / 1024:6.1f} KiB on the way; a kernel may use "
          f"{machine.sram_bytes / 1024:6,.0f} KiB")
print(f"that is {flight / step_bytes:.1f} steps of {step_bytes // 1024} KiB on an SM")

# %% [markdown]
# On the TPU's core a kernel may use 16 MiB, and a single block of 512 × 512 in f32, 1 MiB, is enough to fill the line.
# On an SM it may use 227 KiB, its blocks are small, and so it needs several of them on the way. On a GPU the number of
# slots is called **stages**, and it is yours to choose: `pl.Buffered(n)`. Take a product of matrices, and of it what
# one SM does: one block of the result, 32 steps along k, with its share of the machine. **Predict:** from which number
# of stages on does one more buy nothing?

# %%
def product(m, n, k, blocks, stages):
    """x @ y for x: bf16[m, k] and y: bf16[k, n], in blocks (bm, bn, bk), as a trace."""
    bm, bn, bk = blocks
    x, y, o = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((m, k), (k, n), (m, n)))
    x_spec = pl.BlockSpec((bm, bk), lambda j, i, t: (i, t), pl.Buffered(stages))
    y_spec = pl.BlockSpec((bk, bn), lambda j, i, t: (t, j), pl.Buffered(stages))
    marks = pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"))
    return pl.pallas_call(matmul, o, grid=(n // bn, m // bm, k // bk), in_specs=[x_spec, y_spec],
                          out_specs=pl.BlockSpec((bm, bn), lambda j, i, t: (i, j)),
                          compiler_params=marks,
                          scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)]).trace(x, y)


sm = H100.with_(name="one SM of an H100", beta=H100.beta / SMS, flops=H100.flops / SMS,
                matmul_flops=H100.matmul_flops / SMS)
for stages in range(1, 8):
    t = product(64, 64, 1024, (64, 64, 32), stages).timeline(sm)
    print(f"{stages} {'stage: ' if stages == 1 else 'stages:'} {t.total * 1e6:5.1f} µs, modelled"
          f"   {t.bound}-bound")

# %% [markdown]
# Stage by stage the latency disappears, and then the bandwidth is the end. It agrees with what you computed above: a
# few steps on the way, and one to compute on. (This is one CUDA block alone on its SM. On a real GPU several share an
# SM, and hide some of each other's latency.) Two of them, to the same scale:

# %%
_, axes = plt.subplots(2, figsize=(9, 4.4), layout="constrained")
for ax, stages in zip(axes, (2, 5), strict=True):
    t = product(64, 64, 1024, (64, 64, 32), stages).timeline(sm)
    pl.plot_timeline(t, ax, limit=6e-6,
                     title=f"{stages} stages: {t.total * 1e6:.1f} µs in all, {t.bound}-bound")
plt.show()

# %% [markdown]
# Who makes this pipeline depends on the compiler. **Mosaic GPU** is the other one that Pallas talks to:
#
# | | Triton | Mosaic GPU |
# |---|---|---|
# | the pipeline | made by the compiler, from a plain loop | ours, copy by copy: the `pipeline.py` of chapter 3 |
# | stages | `num_stages`, a number beside the program | slots of each operand (upstream: `max_concurrent_steps`) |
# | a copy in | `cp.async`, by all threads | started by one thread, made by the **TMA**; it signals a **barrier** |
# | which operands | only what a matrix product reads | all |
# | accumulators | registers | registers for a product; else slots in shared memory |
#
# (The TMA, tensor memory accelerator, is an engine of each SM that copies a whole block at one instruction, a *bulk*
# copy: much like a TPU's DMA. Upstream's own emitter for Mosaic GPU, `plgpu.emit_pipeline`, copies every input at every
# step, and takes what goes from step to step as `init_carry`, not in an output's block.)
#
# ## What stages cost
#
# A matrix product in bf16, blocks of 128 × 128 × 64. Each stage holds a block of x and one of y. A CUDA block may use
# 227 KiB of shared memory. **Predict:** at which number of stages is the program refused?

# %%
for stages in 1, 2, 3, 4, 6, 7, 8:
    program = product(1024, 1024, 1024, (128, 128, 64), stages).lower("triton")
    parts = program.shared_memory()
    try:
        program.as_text()
        verdict = "fits"
    except pl.PallasLiteError:
        verdict = "refused"
    print(f"{stages} {'stage: ' if stages == 1 else 'stages:'} {sum(parts.values()) / 1024:3g} KiB"
          f"   {parts}   {verdict}")

# %% [markdown]
# For 16-bit operands the rule is simple: **stages × (bytes of a block of x + of y)**. The accumulator is in registers,
# and the result goes out from there. (f32 operands pass through registers, and take other counts.) And an elementwise
# kernel? **Predict** for an add of blocks of 64 × 64, with four stages:

# %%
def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def add_with(stages):
    """An add of f32[512, 512] in blocks of 64 × 64; the columns are a loop."""
    array = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    deep = pl.BlockSpec((64, 64), lambda i, j: (i, j), pl.Buffered(stages))
    marks = pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
    call = pl.pallas_call(add_kernel, array, grid=(8, 8), in_specs=[deep, deep],
                          out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j)), compiler_params=marks)
    return call.trace(array, array)


print("Triton:    ", sum(add_with(4).lower("triton").shared_memory().values()), "bytes")
try:
    print("Mosaic GPU:", add_with(4).lower("mosaic_gpu").shared_memory())
except pl.NotSupportedError as error:
    block = 64 * 64 * 4
    say(error)
    print("It would say:", {"x": 4 * block, "y": 4 * block, "o": 2 * block, "barriers": 2 * 4 * 8})

# %% [markdown]
# None at all. Triton copies ahead only what its matrix unit will read; everything else it loads straight into
# registers, and hopes that *other* CUDA blocks on the same SM have work while this one waits. Mosaic GPU does as it is
# told: it gives each operand its slots, `depth × block`, and 8 bytes for the barrier of each input slot.
#
# ### Exercise 10.3 · The price of a stage
# Your own numbers: a product in bf16 by Triton, an add in f32 by Triton, and the same add by Mosaic GPU.

# %%
STUDENT = ""  # your course id

mine = personal("10.3", STUDENT)
bm, bn, bk, stages = mine.bm, mine.bn, mine.bk, mine.stages
rows, columns, depth = mine.rows, mine.columns, mine.depth
print(f"product: bf16, blocks (bm, bn, bk) = ({bm}, {bn}, {bk}), {stages} stages")
print(f"add: f32, blocks of {rows} × {columns}, {depth} slots for each input, 2 for the output")

# %% exercise="10.3"
# prediction = KiB of the product (Triton), bytes of the add (Triton), bytes of the add (Mosaic GPU)
### BEGIN SOLUTION
prediction = stages * (bm + bn) * bk * 2 / 1024, 0, (2 * depth + 2) * rows * columns * 4 + 8 * 2 * depth
### END SOLUTION

# %% check="10.3"
check("10.3", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# A block of x is bm × bk, one of y is bk × bn, and a bf16 has 2 bytes. Which of the three programs copies ahead at all?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Triton, product: stages × (block of x + block of y). Triton, elementwise: see the cell above. Mosaic GPU: slots ×
# block for each of <em>three</em> operands, and 8 bytes for each slot of an input.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# stages·(bm + bn)·bk·2 / 1024; then 0; then (2·depth + 2)·rows·columns·4 + 8·2·depth.
# </details>

# %% [markdown]
# ### Exercise 10.4 · As deep as it goes
# More stages hide more latency until the shared memory is full: find the most that a product of this shape can have.

# %% exercise="10.4"
def deepest(bm: int, bn: int, bk: int) -> int:
    """The most stages that fit 227 KiB, of a bf16 product by Triton in blocks (bm, bn, bk).

    0 if not even one does.

    >>> deepest(128, 128, 64)
    7
    """
    ### BEGIN SOLUTION
    return 227 * 1024 // ((bm * bk + bk * bn) * 2)
    ### END SOLUTION

# %% check="10.4"
check("10.4", deepest)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How many bytes does one stage take? How often do they go into 227 KiB, whole?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Whole-number division rounds down: <code>all // one</code>. A KiB has 1024 bytes, a bf16 has 2.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>227 * 1024 // (bytes of a block of x + bytes of a block of y)</code>, with a block of x of bm · bk numbers.
# </details>

# %% [markdown]
# The deepest is seldom the best. An SM has 228 KiB in all, so a CUDA block that takes most of it has the SM to itself,
# and nobody works while it waits. f32 operands, which pass through registers, take more of these with each stage, too
# (docs/gpu.md has the table). And the prologue grows: it starts all stages but one before the first step runs.
#
# ## What the compiler made of it
#
# The program that Triton gets says nothing of copies. You saw the plain loop. The pipeline appears in **PTX**, the
# assembly of NVIDIA GPUs. Few have the compiler at hand, so this course brings along what it once said, as text: made
# by `tools/record_ptx.py` for an H200, on a machine without one. Only the lines that copy, wait, load, multiply or
# branch are kept. **Predict:** how many copies and how many waits will you find for three stages?

# %%
records = {(r.kernel, r.lowering, r.depth): r for r in recorded()}
shown = records["matmul bfloat16 64×64×32", "triton", 3]
for line in shown.ptx.splitlines():
    print(line[:76])

# %% [markdown]
# Chapter 3 again, in another alphabet:
#
# - `.reqntid 128`: the CUDA block has 128 threads. Each instruction is executed by all of them. They are one
#   **warpgroup**, four warps of 32: the matrix unit takes its orders (`wgmma`) from a warpgroup as a whole.
# - `cp.async … 0x10`: a **start**. Each thread copies 16 bytes from HBM to shared memory, and goes on.
# - `cp.async.commit_group` ties the copies before it into a group, here one for each operand. It plays the semaphore.
# - `cp.async.wait_group 2`: a **wait**: until at most 2 groups are still under way.
# - Before the label of the loop is the **prologue**: two stages. In the loop: wait, multiply (`wgmma`), start one
#   stage. After the loop, an epilogue: `wait_group 0`.
#
# So: stages = 1 + stages started in the prologue; and the bytes of one step = instructions in the loop × threads × 16.
# Now all records, counted:

# %%
def copies(ptx):
    """How many instructions start a copy."""
    return len(re.findall(r"cp\.async\.(?:ca|cg|bulk\.tensor)", ptx))


print(f"{'kernel':26}{'lowering':12}{'stages':>6}{'copies':>8}{'shared memory':>15}{'registers':>11}")
for r in recorded():
    if r.kernel in ("matmul bfloat16 64×64×32", "add float32 64×64"):
        print(f"{r.kernel:26}{r.lowering:12}{r.depth:6}{copies(r.ptx):8}"
              f"{r.shared_memory:15,}{r.registers:11}")

# %% [markdown]
# The add is the same program for Triton whatever we ask for. For Mosaic GPU, each further stage puts one more copy of
# each input into the prologue: 2 · depth copies in, and one copy out. (In the recorded add, the output has as many
# slots as each input, so its memory grows three blocks at a time.) Do you have the compiler (`pip install
# "pallas_lite[gpu]"`; it needs no GPU)? Then this compiles the product here and counts again; otherwise it says what
# is missing.

# %%
try:
    here = product(1024, 1024, 1024, (64, 64, 32), 3).lower("triton").compile("h200")
    there = here.memory_analysis().shared_memory_in_bytes
    print(f"compiled here: {copies(here.as_text())} copies, {there:,} bytes")
except pl.NotSupportedError as error:
    print(str(error).partition(" (")[0])
print(f"recorded:      {copies(shown.ptx)} copies, {shown.shared_memory:,} bytes")

# %% [markdown]
# ### Exercise 10.5 · Read the copies
# Here is a product in bf16, yours alone, and its number of stages is not told. Read it off the PTX.

# %%
mystery = personal("10.5", STUDENT).ptx
for line in mystery.splitlines():
    print(line[:76])

# %% exercise="10.5"
# reading = number of stages, KiB that one step copies, KiB of shared memory
### BEGIN SOLUTION
before = copies(mystery.partition("$L__BB")[0])
in_loop = copies(mystery) - before
threads = int(re.search(r"\.reqntid (\d+)", mystery)[1])
stages_read, kib = 1 + before // in_loop, in_loop * threads * 16 / 1024
reading = stages_read, kib, stages_read * kib
### END SOLUTION

# %% check="10.5"
check("10.5", reading, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Count the <code>cp.async.cg</code> lines before the first label, and those after it. The commits and waits are not
# copies.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The loop starts one stage at each turn, and the prologue all but one. One line is executed by each thread
# (<code>.reqntid</code>), and moves 0x10 = 16 bytes a thread.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# stages = 1 + (lines before the loop) / (lines in it). KiB a step = lines in the loop × threads × 16 / 1024. Shared
# memory = stages × KiB a step.
# </details>

# %% [markdown]
# ## One kernel, two lowerings
#
# Here is the product of above, with three stages, as the two compilers left it, line by line in words. On the right you
# see every piece that you know from chapter 9: **barriers** are the semaphores of copies in (a copy arrives with its
# bytes, and `try_wait` is the wait); copies out are counted, as Triton's groups are. **Predict:** where do the two
# start the block of step t + 2, before or behind the product of step t?

# %%
WORDS = {"cp.async.cg": "start a copy in", "cp.async.wait_group": "wait for copies in",
         "mbarrier.init": "new barrier", "global.mbarrier": "start a copy in",
         "try_wait": "wait at a barrier", "wgmma.mma": "multiply",
         "global.shared::cta": "start a copy out", "bulk.wait_group": "wait for copies out"}


def in_words(ptx):
    """What a program does, in order, in a few words; where its loop begins and ends."""
    lines = ptx.splitlines()
    labels = [i for i, line in enumerate(lines) if line.startswith("$L__BB")]
    said = []
    for i, line in enumerate(lines):
        said += ["— loop —"] * (i == labels[0])
        said += ["— end —"] * (i == labels[-1] and i > labels[0])
        said += [words for part, words in WORDS.items() if part in line]
    return [f"{words} × {n}" if (n := len(list(same))) > 1 else words for words, same in groupby(said)]


both = [records["matmul bfloat16 64×64×32", way, 3] for way in ("triton", "mosaic_gpu")]
left, right = (in_words(r.ptx) for r in both)
print(f"{'Triton':24}Mosaic GPU")
for a, b in zip_longest(left, right, fillvalue=""):
    print(f"{a:24}{b}")

# %% [markdown]
# Triton starts it behind the product, Mosaic GPU before it, as in chapter 3; both into the slot that step t − 1 has
# left. Triton's four instructions are executed by all threads, Mosaic GPU's two by a single one, and the bytes are the
# same. (The copy out stands under an `if`, and happens in the last step only; Triton stores registers there.)
#
# ## What you take along
#
# - On a GPU, parallel axes become CUDA blocks on many SMs, without any order. What must be in order becomes a loop
#   inside a CUDA block, and its accumulator lives in registers.
# - An SM's memory is small, so its blocks are small, and it needs more of them on the way: stages.
# - A stage costs shared memory: in bf16, one block of each operand of the product. 227 KiB is the end.
# - Triton makes the pipeline itself, for matrix products; with Mosaic GPU it is ours. Either way: a prologue that
#   starts stages, a loop of wait, compute, start, and an epilogue that waits.
#
# You can now take a kernel from a formula down to two machines. Chapter 11 asks for all of it at once: attention.

# %%
progress()
