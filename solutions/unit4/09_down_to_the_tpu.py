# %% [markdown]
# # 9 · Down to the TPU
#
# A simulator on your laptop has obeyed every schedule so far. A TPU has no simulator in it. It has a compiler, and the
# compiler wants a *program*. Today we follow one kernel all the way down, to the text that the compiler gets. Here is
# its schedule: it doubles an array of f32[64, 128] in blocks of 8 rows.

# %%
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.experimental import pallas as real_pl
from jax.experimental.pallas import tpu as real_pltpu

import pallas_lite as pl
from autograder import check, personal, progress, say
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import TOY, TPU_V5E

toy = replace(TOY, sram_bytes=32_000)  # these blocks are larger than our toy's memory was made for


def double_kernel(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


x = jax.random.normal(jax.random.key(0), (64, 128))
rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
double = pl.pallas_call(double_kernel, out_shape=x, grid=(8,), in_specs=[rows], out_specs=rows)

pl.show(double.trace(x).schedule, machine=toy)

# %% [markdown]
# Each of the 8 blocks is copied in once and out once, so the schedule starts 16 copies. `.lower("tpu")` makes a TPU
# program of it; that needs no TPU. **Predict before you run the cell:** how many copy instructions does the program
# contain?

# %%
my_guess = None  # a number of instructions

program = double.trace(x).lower("tpu")
text = program.as_text()
print("your guess:", my_guess)
print("copies that the schedule starts:", sum(double.trace(x).schedule.copies(name) for name in "xo"))
print("instructions that start a copy: ", text.count("tpu.enqueue_dma"))

# %% [markdown]
# Three. The schedule is what *happens*; the program is what is *written*, and most of it stands in a loop. It is the
# loop that you rolled by hand in chapter 3: a prologue, a body, an epilogue. Here are both. On the left of the second
# list is the line of the program's text; a **DMA** (direct memory access) is a copy that runs beside the core.

# %%
print(double.trace(x).schedule.rolled(), end="\n\n")
print(program.summary())

# %% [markdown]
# Six instructions, and each stands for one line of the pipeline. The two that start a copy *in* are the prologue's and
# the loop's; the loop's runs ahead, with t + 1, and so it needs an `if`. Everything you know about pipelines is there,
# and nothing else is.
#
# ## The parts of a program
#
# The text is **Mosaic**, the language of the TPU compiler for kernels. It is long, mostly because every line repeats
# its types. Its parts are easy to see all the same. **Predict:** how many buffers will the program allocate, and how
# many semaphores?

# %%
def brief(line):
    """A line of Mosaic without its types."""
    return re.sub(r" (:|->) memref<[^<>]*<[^<>]*>>", "", line.strip())


for line in text.splitlines():
    if "func.func" in line:
        print(*re.findall(r"%\w+: memref<[^,]*, #tpu.memory_space<hbm>>", line), sep="\n")
    if "memref.alloca" in line or "tpu.sem_alloc" in line:
        print(line.strip())

# %% [markdown]
# - First the two arrays: they are in `hbm`, and stay there.
# - One buffer for each operand in `vmem`, which is what a TPU's SRAM is called: **VMEM**, vector memory. Its first
#   dimension counts the slots: 2 × 8 × 128.
# - For each slot a **DMA semaphore**. A copy, when it is done, adds its bytes to the semaphore; a wait blocks until
#   there are enough, and takes them away. Two operands, two slots each: four semaphores.
#
# So SRAM slots are real buffers, and a start and a wait are two ends of one semaphore. Now look at one copy closely:
# the one in the loop.

# %%
start = text.index("loop: copy_in_start(x)")
for line in text[start:].splitlines()[1:7]:
    print(brief(line))

# %% [markdown]
# Read it from the bottom up. The DMA copies from a window of x in HBM to one slot in VMEM, and will signal one slot's
# semaphore. The lines above say which. Nothing else: no block number, no step, no name of an operand. Those
# exist only in our schedule. (The cell found its place by a label, `tpu.trace_start`, that we put there for profilers
# and readers; the chip copies without it.) And what does a *wait* look like?

# %%
start = text.index("loop: copy_in_wait(x)")
print(brief(re.search(r".*tpu\.wait_dma.*", text[start:])[0]))

# %% [markdown]
# (Some versions of Mosaic spell it `wait_dma`, others `wait_dma2`.) A semaphore, and two windows to say how many
# *bytes* to wait for. **A wait does not name a copy.** If another copy put its bytes there first, the wait is content.
# Keep that in mind; it will bite us below.
#
# ### Exercise 9.1 · Count before you read
# The kernel subtracts a part of `row` from every block of x (chapter 5). Sizes and depths are your own.

# %%
STUDENT = ""  # your course id

mine = personal("9.1", STUDENT)
m, n, bm, bn, x_depth, o_depth = mine.m, mine.n, mine.bm, mine.bn, mine.x_depth, mine.o_depth
print(f"x and o: f32[{m}, {n}] in blocks of {bm} × {bn}; row: f32[1, {n}] in blocks of 1 × {bn}")
print(f"grid ({n // bn}, {m // bm});  x and o: lambda j, i: (i, j);  row: lambda j, i: (0, j)")
print(f"slots: {x_depth} for x, 2 for row, {o_depth} for o")

# %% [markdown]
# Predict three numbers: how many `enqueue_dma` are in the program's text, how many `wait_dma`, and how many copies will
# be started when it runs.

# %% exercise="9.1"
# prediction = enqueue_dma in the text, wait_dma in the text, copies started when it runs
### BEGIN SOLUTION
steps = (m // bm) * (n // bn)
prediction = (x_depth - 1) + 1 + 3, 3 + (o_depth - 1), steps + n // bn + steps
### END SOLUTION

# %% check="9.1"
check("9.1", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Take the summary of <code>double</code> as a pattern. Which lines did each operand bring, and which of them would
# there be more of with more slots?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# In the loop, each operand has one start and one wait, under an <code>if</code> or not. Before the loop, an input of
# depth d starts the blocks of steps 0 … d − 2, if these begin a new block. After the loop, an output of depth d has
# d − 1 copies left to wait for.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Starts: 3 in the loop, x_depth − 1 before it for x, and 1 for row. Waits: 3 in the loop, o_depth − 1 after it. Copies
# when it runs: one a step for x and for o; for row, one for each of its n // bn blocks.
# </details>

# %%
def minus_row_kernel(x_ref, row_ref, o_ref):
    o_ref[...] = x_ref[...] - row_ref[...]


def tile(depth):
    return pl.BlockSpec((bm, bn), lambda j, i: (i, j), pipeline_mode=pl.Buffered(depth))


big, strip = jax.ShapeDtypeStruct((m, n), jnp.float32), jax.ShapeDtypeStruct((1, n), jnp.float32)
part = pl.BlockSpec((1, bn), lambda j, i: (0, j))
minus_row = pl.pallas_call(minus_row_kernel, out_shape=big, grid=(n // bn, m // bm),
                           in_specs=[tile(x_depth), part], out_specs=tile(o_depth))
if prediction is ...:
    print("Once you have a prediction in exercise 9.1, run this cell again.")
else:
    say(minus_row.trace(big, strip).lower("tpu").summary())

# %% [markdown]
# ## Two slots are enough, on a TPU
#
# Our programs take any depth. Pallas' own `pallas_call` for the TPU does not. **Predict:** what does it say to three
# slots?

# %%
three = real_pl.BlockSpec((8, 128), lambda i: (i, 0), pipeline_mode=real_pl.Buffered(3))
real_double = real_pl.pallas_call(double_kernel, out_shape=x, grid=(8,), in_specs=[three],
                                  out_specs=three)
try:
    jax.jit(real_double).trace(x).lower(lowering_platforms=("tpu",))
except Exception as error:  # of a kind that jax keeps private
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# Double buffering is all there is. Is that a loss? Take an add of f32[4096, 4096] on the modelled v5e. **Predict:** for
# blocks of 128 × 128 and of 512 × 512, what does a fourth slot buy?

# %%
def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


large = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
print("µs, modelled     2 slots   3 slots   4 slots")
for b in 128, 256, 512:
    times = []
    for depth in 2, 3, 4:
        spec = pl.BlockSpec((b, b), lambda i, j: (i, j), pipeline_mode=pl.Buffered(depth))
        grid = 4096 // b, 4096 // b
        add = pl.pallas_call(add_kernel, large, grid=grid, in_specs=[spec, spec], out_specs=spec)
        times.append(add.trace(large, large).timeline(TPU_V5E))
    bound = f"   {times[0].bound}-bound with 2"
    print(f"{b:4} × {b:<4}  ", *(f"{t.total * 1e6:9.1f}" for t in times), bound)

# %% [markdown]
# Small blocks gain a lot: they are latency-bound, and more slots keep more copies on the way. But 512 × 512 with two
# slots is as fast as anything can be. A TPU has one large VMEM for one large core, so a kernel can *afford* large
# blocks, and a large block hides its latency by itself. With 16 MiB for one kernel, two slots do. (Pallas' other
# pipeline for the TPU, `pltpu.emit_pipeline`, takes more slots for inputs.) A GPU is another story: chapter 10.
#
# ## Copies of your own
#
# You can write DMAs yourself, for a copy that no `BlockSpec` can say, or for a pipeline of another shape. Four pieces:
#
# | | |
# |---|---|
# | `pl.BlockSpec(memory_space=pl.ANY)` | the array stays in HBM; the kernel's ref is all of it, good for copies only |
# | `scratch_shapes=[pltpu.VMEM(shape, dtype), …]` | your slots |
# | `pltpu.SemaphoreType.DMA((2,))` | your semaphores, an array of two |
# | `pltpu.make_async_copy(source, target, semaphore)` | a copy, not started yet: `.start()` it, then `.wait()` |
#
# `x_hbm.at[pl.ds(8 * i, 8)]` is a window: 8 rows, from row 8·i. Here is the blocking loop of chapter 3, with one slot.
# A block has 1024 numbers, 4096 bytes, and the kernel does two operations on each number. The toy machine moves 1000
# bytes in a µs, or does 1000 operations. **Predict:** how many µs for the 8 blocks?

# %%
def call_on_hbm(kernel, x, slots=2):
    """A call of a kernel with copies of its own: arrays in HBM, slots of 8 rows, a semaphore each."""
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    buffer = pltpu.VMEM((slots, 8, 128), jnp.float32)
    semaphores = pltpu.SemaphoreType.DMA((slots,))
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                          in_specs=[in_hbm], out_specs=in_hbm,
                          scratch_shapes=[buffer, buffer, semaphores, semaphores])


def blocking_kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
    @pl.loop(0, x_hbm.shape[0] // 8)
    def _(i):
        window = pl.ds(8 * i, 8)
        copy_in = pltpu.make_async_copy(x_hbm.at[window], x_vmem.at[0], x_sems.at[0])
        copy_in.start()
        copy_in.wait()
        o_vmem[0] = 3 * x_vmem[0] + 1
        copy_out = pltpu.make_async_copy(o_vmem.at[0], o_hbm.at[window], o_sems.at[0])
        copy_out.start()
        copy_out.wait()


blocking = call_on_hbm(blocking_kernel, x, slots=1)
print("right:", bool(jnp.allclose(blocking(x), 3 * x + 1)))
pl.show(blocking.trace(x).schedule)

# %% [markdown]
# `pallas_lite` steps through such a kernel and writes down what it does; so it has a schedule, a timeline and a
# verdict, as any other. It is lowered as it stands, one instruction for each of its four lines. And what would
# `pallas_call`'s own pipeline take for the same work?

# %%
def triple_kernel(x_ref, o_ref):
    o_ref[...] = 3 * x_ref[...] + 1


triple = pl.pallas_call(triple_kernel, out_shape=x, grid=(8,), in_specs=[rows], out_specs=rows)
print(blocking.trace(x).lower("tpu").summary(), end="\n\n")
for name, call in ("blocking", blocking), ("pallas_call's pipeline", triple):
    print(f"{name:23} {call.trace(x).timeline(toy).total * 1e6:5.1f} µs on the toy machine, modelled")

# %% [markdown]
# ### Exercise 9.2 · A double buffer of your own
# Write the pipeline of chapter 3 with real DMAs: start early, wait late, two slots each way. The two copies of block i
# are defined for you; `@pl.loop(0, n)` over a function of i is the loop, `@pl.when(condition)` over a function is the
# `if`. (Python's own `if` cannot ask for that i: a TPU program is to be made of your kernel, before i has a value.)
# Take no longer than `pallas_call` does.

# %% exercise="9.2"
def double_buffered(x: jax.Array) -> jax.Array:
    """3·x + 1 for x: f32[8·n, 128], n ≥ 1, by a kernel that copies its blocks of 8 rows itself.

    Block i goes through slot i % 2. A copy is started before the block before it is computed on.
    """
    n = x.shape[0] // 8

    def kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        def copy_in(i):
            return pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], x_vmem.at[i % 2], x_sems.at[i % 2])

        def copy_out(i):
            return pltpu.make_async_copy(o_vmem.at[i % 2], o_hbm.at[pl.ds(8 * i, 8)], o_sems.at[i % 2])

        ### BEGIN SOLUTION
        copy_in(0).start()

        @pl.loop(0, n)
        def _(i):
            @pl.when(i + 1 < n)
            def _():
                copy_in(i + 1).start()

            copy_in(i).wait()
            o_vmem[i % 2] = 3 * x_vmem[i % 2] + 1
            copy_out(i).start()

            @pl.when(i > 0)
            def _():
                copy_out(i - 1).wait()

        copy_out(n - 1).wait()
        ### END SOLUTION

    return call_on_hbm(kernel, x)(x)

# %% check="9.2"
check("9.2", double_buffered)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# It is the loop that you rolled in chapter 3: prologue, main loop, epilogue. What is started before the loop, and what
# is still under way after it?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# <code>copy_in(0).start()</code>. In the loop: start the next copy in, when there is a next block; wait for this one;
# compute; start this copy out; wait for the one before, when there is one before. After the loop: one more wait.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# In the loop: <code>@pl.when(i + 1 &lt; n)</code> over <code>def _(): copy_in(i + 1).start()</code>;
# <code>copy_in(i).wait()</code>; the formula, from slot <code>i % 2</code> to slot <code>i % 2</code>;
# <code>copy_out(i).start()</code>; and under another <code>@pl.when</code> the wait of block i − 1's copy out. For
# which i is there one? And which copy out has no later step that could wait for it?
# </details>

# %% [markdown]
# What becomes of your kernel as a TPU program? **Predict:** how many instructions, and how do they differ from those of
# `pallas_call`'s own pipeline, at the head of the chapter?

# %%
try:
    with pl.observe_calls() as calls:
        double_buffered(x)
    for call in calls:
        print(call.lower("tpu").summary())
except Exception as error:
    print("No program yet:", error)

# %% [markdown]
# With `@pl.loop` and `@pl.when` there are six, and they stand as `pallas_call`'s did: you have written its pipeline. A
# loop of Python's own is unrolled: all copies become instructions. And Python's `if` on the i of a `@pl.loop` cannot
# become any: i has no value yet while the program is made.
#
# ## A race that compiles
#
# Somebody saves a semaphore: all copies in share the first. The rest is as it should be, with two slots for x and one
# for the result. **Predict:** will Pallas make a TPU program of that? Will `pallas_lite`?

# %%
def thrifty(pl, pltpu):
    """The kernel, for pallas_lite or for real Pallas."""
    def thrifty_kernel(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
        n = x_hbm.shape[0] // 8

        def copy_in(i):
            return pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], x_vmem.at[i % 2], x_sems.at[0])

        copy_in(0).start()

        @pl.loop(0, n)
        def _(i):
            @pl.when(i + 1 < n)
            def _():
                copy_in(i + 1).start()
            copy_in(i).wait()
            o_vmem[0] = 3 * x_vmem[i % 2] + 1
            copy_out = pltpu.make_async_copy(o_vmem.at[0], o_hbm.at[pl.ds(8 * i, 8)], o_sems.at[0])
            copy_out.start()
            copy_out.wait()
    return thrifty_kernel

# %%
real_hbm = real_pl.BlockSpec(memory_space=real_pl.ANY)
real_buffer = real_pltpu.VMEM((2, 8, 128), jnp.float32)
real_semaphores = real_pltpu.SemaphoreType.DMA((2,))
real_thrifty = real_pl.pallas_call(thrifty(real_pl, real_pltpu), out_shape=x,
                                   in_specs=[real_hbm], out_specs=real_hbm,
                                   scratch_shapes=[real_buffer] * 2 + [real_semaphores] * 2)
lowered = jax.jit(real_thrifty).trace(x).lower(lowering_platforms=("tpu",)).as_text()
print("real Pallas makes a TPU program of it, without a word:   ", "tpu_custom_call" in lowered)
try:
    blocking.trace(x).lower("tpu").compile_unchecked("v5e", real_thrifty)
    print("the TPU compiler takes it, without a word:                 True")
except pl.NotSupportedError:
    print("(no TPU compiler is installed here; where it is, it takes the program, without a word)")

trace = call_on_hbm(thrifty(pl, pltpu), x).trace(x)
say(trace.hazards[0])
print()
try:
    trace.lower("tpu")
except pl.PallasLiteError as error:
    print("pallas_lite refuses:", str(error).partition(", and")[0])

# %% [markdown]
# At the first wait, *two* copies are under way on one semaphore. The wait asks for the bytes of one block; if block 1
# arrives first, those bytes are block 1's, and the kernel computes on a slot that is still being filled. Where
# block 0 happens to arrive first, all is well: a bug for the day of the demonstration.
#
# The compiler is no help. It sees windows and semaphores, and for all it knows you meant that. So `pallas_lite` lowers
# only what it has proven free of races. (It then leaves the run-time checks out, which makes the program faster.)
#
# ### Exercise 9.3 · Which of these may run?
# Four kernels, all of which compile. `copies` makes their DMAs: block, slot, and the number of the semaphore. Say of
# each what is wrong.

# %%
def copies(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
    """copy_in and copy_out, each of (block, slot, semaphore), not started yet; the number of blocks."""
    def copy_in(i, slot, sem):
        return pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], x_vmem.at[slot], x_sems.at[sem])

    def copy_out(i, slot, sem):
        return pltpu.make_async_copy(o_vmem.at[slot], o_hbm.at[pl.ds(8 * i, 8)], o_sems.at[sem])

    return copy_in, copy_out, x_hbm.shape[0] // 8


def kernel_a(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
    copy_in, copy_out, n = copies(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems)
    copy_in(0, 0, 0).start()
    for i in range(n):
        copy_in(0, i % 2, i % 2).wait()  # block 0, always?
        if i + 1 < n:
            copy_in(i + 1, (i + 1) % 2, (i + 1) % 2).start()
        o_vmem[0] = 3 * x_vmem[i % 2] + 1
        copy_out(i, 0, 0).start()
        copy_out(i, 0, 0).wait()

# %%
def kernel_b(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
    copy_in, copy_out, n = copies(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems)
    for i in range(n):
        copy_in(i, i % 2, i % 2).start()
        copy_in(i, i % 2, i % 2).wait()
        o_vmem[i % 2] = 3 * x_vmem[i % 2] + 1
        copy_out(i, i % 2, 0).start()  # both slots, one semaphore
        if i > 0:
            copy_out(i - 1, (i - 1) % 2, 0).wait()
    copy_out(n - 1, (n - 1) % 2, 0).wait()


def kernel_c(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
    copy_in, copy_out, n = copies(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems)
    for i in range(n):
        copy_in(i, i % 2, i % 2).start()
        copy_in(i, i % 2, i % 2).wait()
        o_vmem[i % 2] = 3 * x_vmem[i % 2] + 1
        copy_out(i, i % 2, i % 2).start()
        if i > 0:
            copy_out(i - 1, (i - 1) % 2, (i - 1) % 2).wait()

# %%
def kernel_d(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems):
    copy_in, copy_out, n = copies(x_hbm, o_hbm, x_vmem, o_vmem, x_sems, o_sems)
    for i in range(n):
        copy_in(i, 0, 0).start()
        copy_in(i, 0, 0).wait()
        o_vmem[0] = 3 * x_vmem[0] + 1  # one slot for all results
        if i > 0:
            copy_out(i - 1, 0, 0).wait()
        copy_out(i, 0, 0).start()
    copy_out(n - 1, 0, 0).wait()

# %% [markdown]
# The names to choose from; each may serve once, more often, or not at all:
#
# - `"shared semaphore"`: a wait may be content with the bytes of another copy than the one it stands for;
# - `"overwrite in flight"`: a slot is written while a copy out of it is under way;
# - `"never waited"`: a copy is started and nobody ever waits for it;
# - `"fine"`: nothing is wrong.
#
# Where one thing brings about another, name the cause: what should be mended.

# %% exercise="9.3"
# verdicts = {"a": a name, "b": a name, "c": a name, "d": a name}
### BEGIN SOLUTION
verdicts = {"a": "fine", "b": "shared semaphore", "c": "never waited", "d": "overwrite in flight"}
### END SOLUTION

# %% check="9.3"
check("9.3", verdicts)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# At each wait, ask: which copies are under way on this semaphore? If it is only one, no other can have signalled.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# A wait looks at a semaphore and a number of bytes, never at a block. For each kernel, take n = 3, and write down for
# each semaphore: start, start, wait, … Then, for each time a slot is written, which copy out of it is still open.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# a: the block in the wait is only there for its size, and each semaphore has one copy at a time. b: when it waits for
# block i − 1, block i has been started on the same semaphore. c: count starts and waits of copies out. d: is the copy
# of block i − 1 out of slot 0 over when the kernel writes block i there?
# </details>

# %%
if verdicts is ...:
    print("Once you have an answer in exercise 9.3, run this cell again.")
else:
    for kernel in kernel_a, kernel_b, kernel_c, kernel_d:
        found = call_on_hbm(kernel, x).trace(x).hazards
        say(f"{kernel.__name__}: {len(found)} hazard{'s' * (len(found) != 1)}.", *found[:1])
        print()

# %% [markdown]
# ## What a compiler does mind
#
# Two things it checks to the byte. The first is where a copy may begin and end. A TPU stores an array in **tiles** of 8
# rows and 128 columns, and a DMA moves whole tiles. Four block shapes; **predict** for each: will it do?

# %%
def asked(rows, columns, m=2000, n=1280):
    """What our rules, or the compiler where it is installed, say to blocks of an f32[m, n]."""
    array = jax.ShapeDtypeStruct((m, n), jnp.float32)
    spec = pl.BlockSpec((rows, columns), lambda i, j: (i, j))
    grid = pl.cdiv(m, rows), pl.cdiv(n, columns)
    call = pl.pallas_call(double_kernel, out_shape=array, grid=grid, in_specs=[spec], out_specs=spec)
    try:
        call.trace(array).lower("tpu").compile("v5e")
        return "compiled"
    except pl.NotSupportedError as error:
        if "not installed" not in str(error):
            return str(error)
        # Our own rules come first, and were content.
        return "keeps to the rules (no compiler is installed here that could confirm it)"
    except pl.PallasLiteError as error:
        return str(error).splitlines()[0].partition("): ")[2] or str(error).splitlines()[0]


for height, width in (8, 128), (100, 1280), (200, 100), (4, 128):
    say(f"{height:4} × {width:<5} {asked(height, width)}")

four = real_pl.BlockSpec((4, 128), lambda i: (i, 0))
real_double = real_pl.pallas_call(double_kernel, out_shape=x, grid=(16,), in_specs=[four],
                                  out_specs=four)
try:
    jax.jit(real_double).trace(x).lower(lowering_platforms=("tpu",))
except ValueError as error:
    print()
    say("real Pallas, of 4 × 128:", str(error).partition(". ")[0])

# %% [markdown]
# - Columns: whole multiples of 128, or all that the array has.
# - Rows: whole multiples of 8, or all. Half a tile, 4 rows, is possible for these programs; Pallas' own `pallas_call`
#   is stricter, and says no before the compiler sees anything. That is a check in Python, another rule than the chip's.
#
# The second thing is room. All slots together must fit what a kernel may use of the VMEM: 16 MiB on a v5e. Both our
# accounting and the compiler say what a program takes. **Predict** for blocks of 512 × 600 of an f32[2000, 600], two
# operands, two slots: more than 4 · 512 · 600 · 4 bytes, as much, or less?

# %%
odd = jax.ShapeDtypeStruct((2000, 600), jnp.float32)
wide = pl.BlockSpec((512, 600), lambda i: (i, 0))
odd_double = pl.pallas_call(double_kernel, out_shape=odd, grid=(4,), in_specs=[wide], out_specs=wide)
windows = odd_double.trace(odd).lower("tpu").windows()
print(*windows, sep="\n")
taken = sum(w.bytes for w in windows)
print(f"all: {taken:,} bytes, and the numbers alone {4 * 512 * 600 * 4:,}")

# %% [markdown]
# More: 600 columns lie in 5 tiles of 128, so each row takes the room of 640. Does the compiler agree? It can be asked:
# give it a limit of just so many bytes, then 1 KiB less. Where it is installed (`pip install "pallas_lite[tpu]"`, no
# TPU needed), you see it take the first and refuse the second.

# %%
for limit in taken, taken - 1024:
    params = pltpu.CompilerParams(vmem_limit_bytes=limit)
    tight = pl.pallas_call(double_kernel, out_shape=odd, grid=(4,), in_specs=[wide], out_specs=wide,
                           compiler_params=params)
    try:
        tight.trace(odd).lower("tpu").compile_unchecked("v5e")  # without our own rules
        print(f"{limit:,} bytes: the compiler takes it")
    except pl.NotSupportedError as error:
        print(f"{limit:,} bytes: {str(error).partition(':')[0]}")
    except Exception as error:  # the compiler's own
        first_line = str(error).split("\n")[0]
        print(f"{limit:,} bytes: the compiler refuses: {first_line}")

# %% [markdown]
# A v5e has 128 MiB of VMEM in all, so why 16? The compiler keeps the rest for itself and for what surrounds the kernel;
# `CompilerParams(vmem_limit_bytes=…)` moves the border. Machines differ here, and so do sources:

# %%
for machine in pl.hardware.TPU_V5E, pl.hardware.TPU_V5P, pl.hardware.TPU_V6E:
    say(f"{machine.name}: a kernel may use {machine.sram_bytes / 2**20:g} MiB of "
        f"{machine.physical_sram_bytes / 2**20:.2f} MiB   ({machine.sources['physical_sram_bytes']})")

# %% [markdown]
# ### Exercise 9.4 · Make it compile, and make it fast
# Blocks of 100 × 100 are refused. Choose blocks that the compiler takes and that leave the modelled time within 20 % of
# what the bytes alone need on a v5e, for wide arrays and for narrow ones.

# %% exercise="9.4"
def in_tiles(x: jax.Array) -> jax.Array:
    """2·x for x: f32[m, n], by double_kernel. m is a multiple of 8, n from 100 to 2500.

    Copies keep to tiles, and all slots fit 16 MiB. Where x has a million numbers or more, the
    time is at most 1.2 · (bytes in and out) / β.
    """
    ### BEGIN SOLUTION
    m, n = x.shape
    # All columns, whatever their number, and rows enough for about a MiB: such a block hides its latency.
    rows = 2**18 // n // 8 * 8
    spec = pl.BlockSpec((rows, n), lambda i: (i, 0))
    grid = (pl.cdiv(m, rows),)
    call = pl.pallas_call(double_kernel, out_shape=x, grid=grid, in_specs=[spec], out_specs=spec)
    return call(x)
    ### END SOLUTION

# %% check="9.4"
check("9.4", in_tiles)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# 1200 columns are not a multiple of 128, so the last block of a row would end inside a tile. Which number of columns is
# always allowed?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Take all columns. Then rows: a multiple of 8; few enough that 4 slots of rows × columns fit 16 MiB; many enough that a
# block takes longer to move than its latency of 1 µs, so the fewer columns, the more rows. The last block may stick out
# (<code>pl.cdiv</code>).
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>pl.BlockSpec((b, n), lambda i: (i, 0))</code>, and a grid of <code>(pl.cdiv(m, b),)</code>. In 1 µs a v5e moves
# 819 kB, so let b · n · 4 bytes be about a MiB: <code>b = 2**18 // n</code>, and from there down to a multiple of 8.
# Four slots of that leave much room.
# </details>

# %% [markdown]
# ## What you take along
#
# - A kernel on a TPU is: arrays in HBM, slots in VMEM, a DMA semaphore for each slot, and a rolled loop with few
#   `enqueue_dma` and `wait_dma`. Each of them is a line of the pipeline of chapter 3.
# - A wait counts bytes and names no copy. One semaphore for two copies under way is a race, and it compiles silently.
# - The compiler minds tiles (8 rows, 128 columns) and room (16 MiB on a v5e). It minds neither races nor wrong blocks.
# - Two slots are enough where blocks can be large.
#
# A GPU has no single large memory for one large core. It has more than a hundred small ones, all at work at once, and
# the order of the grid is gone. What becomes of our pipeline there is chapter 10.

# %%
progress()
