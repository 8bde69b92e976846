# %% [markdown]
# # 6 · Sharp edges
#
# In a kernel, `x_ref` looks like an array. It is not: it is a copy of *one block*, in a slot of SRAM, and the pipeline
# uses that slot again and again. Nobody clears it in between. Most kernels never notice. This chapter is about those
# that do, and by its end you will foretell their wrong results to the digit.
#
# Five steps, two blocks of x. Each block holds one number, and the steps take blocks 0, 0, 1, 0, 1:

# %%
import logging
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.experimental import pallas as real_pl
from jax.experimental.pallas import tpu as pltpu

import pallas_lite as pl
from autograder import check, personal, progress, say

# As hardware is: it says nothing, and memory holds something already: here 100, which we will recognise.
hardware = {"on_hazard": "ignore", "interpret": pl.InterpretParams(uninitialized_memory=100.0)}


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


warnings.showwarning = lambda message, *_, **__: say(message)  # without file names in front


def show_slots(schedule, operand=None, **how):
    rows = sum(x.depth for x in schedule.operands if operand in (None, x.name))
    _, ax = plt.subplots(figsize=(9, 1.2 + 0.55 * rows), layout="constrained")
    pl.plot_slots(schedule, operand, ax, **how)
    plt.show()

# %%
def twice_kernel(x_ref, o_ref):
    x_ref[...] = 2 * x_ref[...]  # writes to its input
    o_ref[...] = x_ref[...]


some_block = pl.BlockSpec((1,), lambda t: (jnp.maximum(t - 1, 0) % 2,))  # blocks 0, 0, 1, 0, 1
own_block = pl.BlockSpec((1,), lambda t: (t,))
twice = pl.pallas_call(twice_kernel, f32(5), grid=(5,), in_specs=[some_block], out_specs=own_block,
                       **hardware)

x = jnp.array([10.0, 30.0])
show_slots(twice.trace(x).schedule, "x", title="the slots of x: which block is where")

# %% [markdown]
# Time runs to the right, a row is a slot. A hatched box is a copy on its way, a coloured box a block in use, in
# another colour each time that one comes; the dark bar at its foot says when the kernel runs on it. Grey means: nobody
# needs this any more, and nobody has cleared it.
#
# x holds 10 and 30. The kernel doubles its input, in place, and then copies it to the output. **Predict** the five
# numbers of the result, and what `x` holds afterwards.

# %%
print("result:", twice(x))
print("x:     ", x)

# %% [markdown]
# - Step 1 gives 40: the block *stayed*, so the kernel found its own doubled number and doubled it again.
# - Step 3 gives 20 and not 80: block 0 had left, and came back from HBM as it always was.
# - `x` never changed. Inputs are copied in, and never out.
#
# Whether a written input is seen again hangs on the order of the blocks: a bug that comes and goes with the grid. So
# the first rule is: **inputs are read-only.**
#
# ## Reading an output
#
# Now the other direction: a kernel that reads its *output*, before it has written it. Each step adds its block of x to
# its own block of o. `seen` is a diary: it has a block for each step, so we can see later what the slot of o held.
#
# There is no copy *in* for an output, and o has two slots, as x had. So what does `o_ref` hold when step 2 begins?
# Memory starts at 100 everywhere. **Predict** the six numbers of o for x = 1, 2, 3, 4, 5, 6.

# %%
def add_kernel(x_ref, o_ref, seen_ref):
    o_ref[...] += x_ref[...]
    seen_ref[...] = o_ref[...]


x = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
add = pl.pallas_call(add_kernel, [f32(6), f32(6)], grid=(6,), in_specs=[own_block],
                     out_specs=[own_block, own_block], **hardware)
o, seen = add(x)
print("o:", o)
show_slots(add.trace(x).schedule, "o", notes={t: f"{v:g}" for t, v in enumerate(seen.tolist())},
           title="the slots of o, and the number in them after each step")

# %% [markdown]
# Step 2 found 101 in its slot, left over from step 0, and made it 104. Read along the upper row: 100 + 1, + 3, + 5. And
# along the lower: 100 + 2, + 4, + 6. A slot remembers, but not for the block that you mean: **stale**, as in a cache
# that nobody refreshed. The second rule: **outputs are write-only** (but for what the same step has written). It has an
# exception, and that is what most of this chapter is made of.
#
# ## The block that stays
#
# Same kernel, same x, and one new index map: every step takes the *same* block of o. **Predict:** what is in o at the
# end, and how often is o copied out?

# %%
one_block = pl.BlockSpec((1,), lambda t: (0,))
add_up = pl.pallas_call(add_kernel, [f32(1), f32(6)], grid=(6,), in_specs=[own_block],
                        out_specs=[one_block, own_block], **hardware)
o, seen = add_up(x)
schedule = add_up.trace(x).schedule
print("o:", o, "  copies of o:", schedule.copies("o"))
show_slots(schedule, "o", notes={t: f"{v:g}" for t, v in enumerate(seen.tolist())},
           title="the slots of o: one visit, one copy")

# %% [markdown]
# A run of steps with the same block is one **visit**. During a visit nothing is copied (chapter 5: copies = 1 + index
# changes), so every step finds in the slot what the step before has left there. That is **accumulation**, and it works
# then and only then: while the block stays. When the visit ends, the slot is copied out, once.
#
# What is still wrong is the 100. The first step of the visit must not add but start afresh. `pl.when` runs a function
# only if a condition holds, here in the step with number 0:

# %%
def sum_kernel(x_ref, o_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...]


total = pl.pallas_call(sum_kernel, f32(1), grid=(6,), in_specs=[own_block], out_specs=one_block,
                       **hardware)
print("o:", total(x), "  right:", x.sum())

# %% [markdown]
# ## The broken sum
#
# So far, so easy. Now sum up a stack of 8 pictures, f32[8, 1024, 1024], all ones. It goes like the sum above: step i
# adds picture i, which is cut into 4 × 4 blocks of 256 × 256 (`None` in a block's shape: one picture, and the kernel
# does not see that axis). And somebody thought that memory is zero at first:

# %%
def broken_sum_kernel(x_ref, o_ref):
    o_ref[...] += x_ref[...]


def broken_sum(x, bm, bn, **how):
    r, m, n = x.shape
    return pl.pallas_call(broken_sum_kernel, f32(m, n), grid=(r, m // bm, n // bn),
                          in_specs=[pl.BlockSpec((None, bm, bn), lambda i, j, k: (i, j, k))],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (j, k)), **how)


stack = jnp.ones((8, 1024, 1024))
schedule = broken_sum(stack, 256, 256).trace(stack).schedule
print(f"{schedule.steps} steps; o has 16 blocks, and {schedule.copies('o')} copies")
show_slots(schedule, "o", window=(0, 8), title="the slots of o, the first 8 of 128 steps")

# %% [markdown]
# Memory is not zero. When this kernel was run on a real accelerator, its slots seem to have held 8.0 as it began;
# perhaps the right sum, computed just before, had left that there.
#
# **Predict, to the digit:** what number fills block (0, 0) of the result, and what number block (3, 3)? You have all
# that you need: two slots that start at 8, ones to add, and who visits which slot. Take paper. Then put your two
# numbers into the first line.

# %%
my_first, my_last = None, None  # the number in block (0, 0), the number in block (3, 3)

eight = {"on_hazard": "ignore", "interpret": pl.InterpretParams(uninitialized_memory=8.0)}
if my_first is None or my_last is None:
    print("Put your two numbers into the first line and run this cell again: then you see the result.")
else:
    result = broken_sum(stack, 256, 256, **eight)(stack)
    hit = (result[0, 0], result[-1, -1]) == (my_first, my_last)
    print(f"your guess: {my_first} … {my_last}, {'right to the digit' if hit else 'not quite'}\n")
    print(np.asarray(result))
    print(f"\none number of each block:\n{result[::256, ::256]}")

# %% [markdown]
# <details><summary>Open this when you have looked</summary>
#
# Wrong everywhere, but not at random; the same numbers as the accelerator gave. The block changes at every step, so
# each of the 128 steps begins a new visit, and the two slots take turns. Each slot has 64 visits, adds 1 in each, and
# never asks for which block. What is seen of block (0, 0) is its <em>last</em> visit, in step 112: 56 visits were in
# that slot before, so it holds 8 + 56 + 1. Block (3, 3) comes last of all: 8 + 64.
# </details>

# %% [markdown]
# Here is the same with a diary, on blocks of one number. (It waits for your guess, too.)

# %%
def with_diary(x, **how):
    r, m, n = x.shape
    step = pl.BlockSpec((None, 1, 1), lambda i, j, k: (i, j, k))
    return pl.pallas_call(add_kernel, [f32(m, n), f32(r, m, n)], grid=(r, m, n), in_specs=[step],
                          out_specs=[pl.BlockSpec((1, 1), lambda i, j, k: (j, k)), step], **how)


if my_first is not None:
    tiny = jnp.ones((8, 4, 4))
    call = with_diary(tiny, **eight)
    notes = {t: f"{v:g}" for t, v in enumerate(call(tiny)[1].ravel().tolist())}
    for first in 0, 112:
        show_slots(call.trace(tiny).schedule, "o", window=(first, first + 8), notes=notes,
                   title=f"the slots of o, steps {first} to {first + 7}")

# %% [markdown]
# ### Exercise 6.1 · Predict the garbage
# Your own broken sum: `r` pictures full of `c`, an output of `n` blocks, and **three** slots for it, which hold `g` at
# first. Predict three numbers.

# %%
STUDENT = ""  # your course id

mine = personal("6.1", STUDENT)
r, n, c, g = mine.r, mine.n, mine.c, mine.g
print(f"r = {r} pictures full of c = {c:g};  n = {n} blocks of o;  3 slots that hold g = {g:g}")
print(f"A: grid ({r}, {n}), lambda i, j: x block (i, j), o block j,   kernel: o_ref[...] += x_ref[...]")
print(f"B: grid ({n}, {r}), lambda j, i: x block (i, j), o block j,   the same kernel")

# %% [markdown]
# The number in o's first block after A; the number in o's last block after A; the number in o's last block after B.
# Formulas are as good as numbers: r, n, c and g are set.

# %% exercise="6.1"
# prediction = first block after A, last block after A, last block after B
### BEGIN SOLUTION
prediction = (g + c * ((r - 1) * n // 3 + 1), g + c * ((r * n - 1) // 3 + 1),
              g + r * c * ((n - 1) // 3 + 1))
### END SOLUTION

# %% check="6.1"
check("6.1", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Forget the blocks for a moment and follow one slot. Which visits does it serve, and what does each of them add?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Visit v (from 0) lives in slot v % 3, and v // 3 visits were in that slot before it. So after visit v the slot holds
# g + (v // 3 + 1) × what one visit adds. What counts for a block is its <em>last</em> visit.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# In A a visit is one step and adds c; the first block's last visit is v = (r − 1)·n, the last block's is v = r·n − 1.
# In B a visit is r steps long and adds r·c; there are n visits, and the last is v = n − 1.
# </details>

# %%
pictures, three_slots = jnp.full((r, n), float(c)), pl.Buffered(3)
orders = {"A": ((r, n), lambda i, j: (i, j), lambda i, j: (j,)),
          "B": ((n, r), lambda j, i: (i, j), lambda j, i: (j,))}
if prediction is ...:
    orders = {}
    print("Once you have a prediction in exercise 6.1, run this cell again.")

for name, (grid, of_x, of_o) in orders.items():
    call = pl.pallas_call(broken_sum_kernel, f32(n), grid=grid,
                          in_specs=[pl.BlockSpec((None, 1), of_x)],
                          out_specs=pl.BlockSpec((1,), of_o, pipeline_mode=three_slots),
                          on_hazard="ignore", interpret=pl.InterpretParams(uninitialized_memory=g))
    print(f"{name}: {call(pictures)}")

# %% [markdown]
# ## One fault at a time
#
# The broken sum has *two* faults: it adds along the wrong axis of the grid, and it never starts afresh. Take them
# apart. `sums` builds every variant: which axis of the grid goes through the pictures (first or last), and along which
# axis the kernel looks for its first step (or never).
#
# The right sum of our ones has 8 in all 16 blocks. The slots start at 8. **Predict** for each: do the blocks grow from
# the first to the last, and which variant leaves the *smallest* numbers?
# 1. wrong axis, but initialised when `program_id(0) == 0`;
# 2. right axis, not initialised;
# 3. right axis, initialised when `program_id(0) == 0`.

# %%
def sums(x, bm, bn, pictures, start, **how):
    """The sum of a stack. `pictures`: the axis that adds them; `start`: the axis that pl.when asks."""
    r, m, n = x.shape

    def kernel(x_ref, o_ref):
        if start is not None:
            @pl.when(pl.program_id(start) == 0)
            def _():
                o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]

    outside = pictures == 0
    grid = (r, m // bm, n // bn) if outside else (m // bm, n // bn, r)
    of_x = (lambda i, j, k: (i, j, k)) if outside else (lambda j, k, i: (i, j, k))
    of_o = (lambda i, j, k: (j, k)) if outside else (lambda j, k, i: (j, k))
    return pl.pallas_call(kernel, f32(m, n), grid=grid, in_specs=[pl.BlockSpec((None, bm, bn), of_x)],
                          out_specs=pl.BlockSpec((bm, bn), of_o), **how)


small = jnp.ones((8, 32, 32))
variants = ("1 wrong axis", 0, 0), ("2 no start", 2, None), ("3 start on the wrong axis", 2, 0)
for name, pictures, start in variants:
    result = sums(small, 8, 8, pictures, start, **eight)(small)
    print(f"{name:26}", *result[::8, ::8].ravel().astype(int).tolist())

# %% [markdown]
# 1. Every block was zeroed once, in the first 16 steps. From then on the two slots take turns as before, and count
#    every visit, whoever it is for.
# 2. Each visit adds all 8 at once. But it starts from what the visit before it in this slot has left: 8, 16, 24 …
# 3. In the first row of blocks `program_id(0)` is 0 at *every* step, so the sum starts afresh each time, and only the
#    last picture is left. In the other rows it never starts afresh.
#
# So both belong together: **reduce along the last axis of the grid, and start when the program id of *that* axis is
# 0.** The last axis runs fastest, so the output block stays for the whole sum, and is left once and for good.
#
# Up to here we have kept the package as quiet as hardware is. Let it speak:

# %%
for name, pictures, start in ("both faults", 0, None), ("fault 3", 2, 0), ("no fault", 2, 2):
    print("---", name)
    result = sums(small, 8, 8, pictures, start)(small)
print(np.asarray(result))

# %% [markdown]
# Two different reports: an output block that is *written again after it was left* (the axis), and a result that
# *depends on memory that nobody had written, or that another block left behind* (the start). Without a fault there is
# silence, and 8 everywhere. A call speaks unless you tell it not to, and from now on we leave that as it is.
#
# ### Exercise 6.2 · Mend the sum
# Write the right sum: mend both faults of `broken_sum`.

# %% exercise="6.2"
def stack_sum(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """x.sum(axis=0) for x: f32[r, m, n]. A step takes bm × bn of one picture; these divide m and n.

    A stack f32[8, 1024, 1024] in blocks of 256 × 256: 8 × 4 × 4 steps, and 16 copies of the output.
    """
    ### BEGIN SOLUTION
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]

    r, m, n = x.shape
    picture = pl.BlockSpec((None, bm, bn), lambda j, k, i: (i, j, k))
    return pl.pallas_call(kernel, f32(m, n), grid=(m // bm, n // bn, r), in_specs=[picture],
                          out_specs=pl.BlockSpec((bm, bn), lambda j, k, i: (j, k)))(x)
    ### END SOLUTION

# %% check="6.2"
check("6.2", stack_sum)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Write down which block of o the steps of <code>broken_sum</code> take. In which order of the grid's axes would it stay
# the same for r steps?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The axis of the pictures becomes the last of the grid, so both index maps take their parameters in another order. In
# the kernel: <code>@pl.when(pl.program_id(…) == 0)</code> above a <code>def _():</code> that writes zeros.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid=(m // bm, n // bn, r)</code>, <code>lambda j, k, i: (i, j, k)</code> for x, <code>lambda j, k, i: (j,
# k)</code> for o, and <code>pl.program_id(2)</code>. Zeros of the right shape: <code>jnp.zeros_like(o_ref)</code>.
# </details>

# %% [markdown]
# ## What `interpret=True` hides
#
# You might say: I test my kernels with real Pallas on my laptop, so I would have noticed. Take fault 1, the wrong axis,
# with 16 blocks of numbers that differ. **Predict** what `interpret=True` of real Pallas says.

# %%
def wrong_axis(pl, interpret):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    call = pl.pallas_call(kernel, f32(32), grid=(4, 4),
                          in_specs=[pl.BlockSpec((None, 8), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((8,), lambda i, j: (j,)), interpret=interpret)
    return call(jnp.arange(128.0).reshape(4, 32))[::8]


logging.disable(logging.ERROR)  # the second interpreter logs a page before it raises
interpreters = {"interpret=True": (real_pl, True),
                "InterpretParams()": (real_pl, pltpu.InterpretParams()),
                "pallas_lite": (pl, pl.InterpretParams())}
for name, how in interpreters.items():
    try:
        print(f"{name:18}", wrong_axis(*how))
    except Exception as error:
        lines = str(error).splitlines()
        why = next((line for line in lines if "Revisited" in line), lines[0])
        print(f"{name:18} {why[:72]} …")
logging.disable(logging.NOTSET)
print(f"{'right':18}", jnp.arange(128.0).reshape(4, 32).sum(axis=0)[::8])

# %% [markdown]
# `interpret=True` gives the *right* sum. It has no slots: each step works on a slice of the whole array, which
# remembers everything. Hardware with two slots would give the numbers of the line marked pallas_lite. So a test that
# passes with `interpret=True` says nothing about slots. Pallas' other interpreter, `pltpu.InterpretParams()`, does
# refuse a block that comes back; but it keeps a single slot for each operand, so the garbage of two it cannot show.
#
# ## Reductions of your own
#
# ### Exercise 6.3 · Row sums
# The kernel is given. Choose the grid and the specs.

# %% exercise="6.3"
def row_sum_kernel(x_ref, o_ref):
    @pl.when(pl.program_id(1) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...].sum(axis=1, keepdims=True)


def row_sums(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """x.sum(axis=1, keepdims=True) for x: f32[m, n], in blocks of bm × bn; these divide m and n.

    Set `grid`, `tile` (the spec of x) and `column` (that of the result, f32[m, 1] in blocks of bm × 1).
    """
    m, n = x.shape
    ### BEGIN SOLUTION
    grid = (m // bm, n // bn)  # along a row of blocks inside, so that the result's block stays
    tile = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    column = pl.BlockSpec((bm, 1), lambda i, j: (i, 0))
    ### END SOLUTION
    return pl.pallas_call(row_sum_kernel, f32(m, 1), grid=grid, in_specs=[tile], out_specs=column)(x)

# %% check="6.3"
check("6.3", row_sums)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The kernel starts afresh when <code>pl.program_id(1)</code> is 0. So what must axis 1 of the grid count?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# For one block of the result, all blocks of x in one row of blocks pass by. The result's index map leaves out the axis
# that is summed.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid = (m // bm, n // bn)</code>; x takes block (i, j); the result, whose blocks have the shape (bm, 1), takes
# block (i, …).
# </details>

# %% [markdown]
# ### Exercise 6.4 · Running max
# The largest number of every *column*. Write the kernel, too. Take care what it starts with: all numbers may be
# negative, and as far below zero as f32 goes.

# %% exercise="6.4"
def column_max(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """x.max(axis=0, keepdims=True) for x: f32[m, n], in blocks of bm × bn; these divide m and n.

    The result is f32[1, n], in blocks of 1 × bn, each copied out once.
    """
    ### BEGIN SOLUTION
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.full_like(o_ref, -jnp.inf)
        o_ref[...] = jnp.maximum(o_ref[...], x_ref[...].max(axis=0, keepdims=True))

    m, n = x.shape
    return pl.pallas_call(kernel, f32(1, n), grid=(n // bn, m // bm),
                          in_specs=[pl.BlockSpec((bm, bn), lambda j, i: (i, j))],
                          out_specs=pl.BlockSpec((1, bn), lambda j, i: (0, j)))(x)
    ### END SOLUTION

# %% check="6.4"
check("6.4", column_max)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Two questions. Which axis must be the inner one now? And which number is not larger than any other?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The blocks of one column pass by while the result's block stays, so the grid counts columns of blocks outside, rows of
# blocks inside. In each step: the larger of what is there and what the block has.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid=(n // bn, m // bm)</code> and <code>lambda j, i:</code> in both maps. Start with
# <code>jnp.full_like(o_ref, -jnp.inf)</code>; then <code>o_ref[...] = jnp.maximum(o_ref[...], …)</code>.
# </details>

# %% [markdown]
# ## A block that carries
#
# A block that stays is more than a sum. It is a *memory* that one step hands to the next, and the kernel may keep in it
# whatever it likes, while other outputs go on block by block. Here each number minus its left neighbour, which may lie
# in the block before: `last` carries that block's last number over. **Predict** what `last` holds at the end, and how
# often it is copied.

# %%
def rise_kernel(x_ref, last_ref, o_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        last_ref[...] = x_ref[0:1]  # the first number has no neighbour: take itself
    o_ref[...] = x_ref[...] - jnp.concatenate([last_ref[...], x_ref[0:3]])
    last_ref[...] = x_ref[3:4]


x = jnp.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0])
four = pl.BlockSpec((4,), lambda t: (t,))
rise = pl.pallas_call(rise_kernel, [f32(1), f32(8)], grid=(2,), in_specs=[four],
                      out_specs=[one_block, four])
last, o = rise(x)
print("last:", last, "  copies of last:", rise.trace(x).schedule.copies("last"))
print("o:    ", o)
print("right:", jnp.diff(x, prepend=x[0]))

# %% [markdown]
# No report: `last` is started in the first step, and its block stays.
#
# ### Exercise 6.5 · A carry
# Cumulative sums along each row. The total of the row is an output, too: let it carry the sum from block to block.

# %% exercise="6.5"
def cumulative(x: jax.Array, bm: int, bn: int) -> tuple[jax.Array, jax.Array]:
    """(totals, sums) for x: f32[m, n]: totals is f32[m, 1], sums = jnp.cumsum(x, axis=1).

    Blocks are bm × bn; bm divides m and bn divides n.

    >>> cumulative(jnp.array([[1.0, 2.0, 3.0, 4.0]]), 1, 2)    # two steps: the second one starts from 3
    (Array([[10.]]), Array([[1., 3., 6., 10.]]))
    """
    ### BEGIN SOLUTION
    def kernel(x_ref, carry_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            carry_ref[...] = jnp.zeros_like(carry_ref)
        sums = carry_ref[...] + jnp.cumsum(x_ref[...], axis=1)
        o_ref[...] = sums
        carry_ref[...] = sums[:, -1:]

    m, n = x.shape
    tile = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    carry = pl.BlockSpec((bm, 1), lambda i, j: (i, 0))
    return pl.pallas_call(kernel, (f32(m, 1), f32(m, n)), grid=(m // bm, n // bn), in_specs=[tile],
                          out_specs=(carry, tile))(x)
    ### END SOLUTION

# %% check="6.5"
check("6.5", cumulative)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Within one block, <code>jnp.cumsum(…, axis=1)</code> does it. What does the second block of a row have to know about
# the first?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The kernel has three refs: x, the carry, the sums. The carry's block is (i, 0) in all steps of a row. Start it at zero
# in the first of them; add it to the block's own sums; leave the last column of that in it.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>sums = carry_ref[...] + jnp.cumsum(x_ref[...], axis=1)</code>, then write <code>sums</code> to the output and
# <code>sums[:, -1:]</code> to the carry. <code>out_specs=(pl.BlockSpec((bm, 1), lambda i, j: (i, 0)), tile)</code>.
# </details>

# %% [markdown]
# ## The tail
#
# Elementwise kernels need not care for what lies past the edge, in the **tail** of a block (chapter 4): what they write
# there is dropped. A reduction must **mask** it, since the slot holds there what it held before. The obvious way is to
# multiply the tail by 0. **Predict** what becomes of that, if memory holds NaN, "not a number":

# %%
def times_zero_kernel(x_ref, o_ref):
    mask = jnp.where(jnp.arange(4) < 3, 1.0, 0.0)
    o_ref[...] = (x_ref[...] * mask).sum(keepdims=True)


def where_kernel(x_ref, o_ref):
    inside = jnp.arange(4) < 3
    o_ref[...] = jnp.where(inside, x_ref[...], 0).sum(keepdims=True)


for kernel in times_zero_kernel, where_kernel:
    call = pl.pallas_call(kernel, f32(1), grid=(1,), in_specs=[four], out_specs=one_block,
                          on_hazard="ignore", interpret=pl.InterpretParams(uninitialized_memory="nan"))
    print(f"{kernel.__name__:18}", call(jnp.array([1.0, 2.0, 3.0])))

# %% [markdown]
# 0 × NaN is NaN. `jnp.where` does not compute with garbage, it leaves it out. (Of `x * (columns < 3)`, with a mask of
# True and False, XLA makes a `where` when it compiles your call, and hides the NaN. The checks take it as written.)
#
# ### Exercise 6.6 · A mean with a tail
# The mean of each row, where the blocks do not divide the rows. The kernel does all of it, the division too.

# %% exercise="6.6"
def row_means(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """x.mean(axis=1, keepdims=True) for x: f32[m, n], in blocks of bm × bn. bn need not divide n."""
    ### BEGIN SOLUTION
    m, n = x.shape

    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        column = pl.program_id(1) * bn + jnp.arange(bn)
        o_ref[...] += jnp.where(column < n, x_ref[...], 0).sum(axis=1, keepdims=True) / n

    return pl.pallas_call(kernel, f32(m, 1), grid=(m // bm, pl.cdiv(n, bn)),
                          in_specs=[pl.BlockSpec((bm, bn), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((bm, 1), lambda i, j: (i, 0)))(x)
    ### END SOLUTION

# %% check="6.6"
check("6.6", row_means)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# It is a row sum (exercise 6.3) with two changes: what a step adds, and what it divides by. By how many numbers do you
# divide, those of the row or those of the blocks?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# In step j, the columns of the block are <code>j * bn + jnp.arange(bn)</code> in the whole array. Those below n are
# inside.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid=(m // bm, pl.cdiv(n, bn))</code>. In the kernel: <code>column = pl.program_id(1) * bn +
# jnp.arange(bn)</code>, then add <code>jnp.where(column < n, x_ref[...], 0).sum(axis=1, keepdims=True) / n</code>.
# </details>

# %% [markdown]
# ## Find the bug
#
# Four kernels that people write. Each works on an x of f32[6, 10]; the comment says what it should give, and no index
# map is at fault.

# %%
tile = pl.BlockSpec((3, 5), lambda i, j: (i, j))  # for the grid (2, 2): x in four blocks


def a_kernel(x_ref, o_ref):  # the squares of x, once as they are, and once times 2
    x_ref[...] = x_ref[...] ** 2
    o_ref[...] = x_ref[...] * (pl.program_id(1) + 1)


call_a = pl.pallas_call(a_kernel, f32(2, 6, 10), grid=(2, 2),
                        in_specs=[pl.BlockSpec((3, 10), lambda i, k: (i, 0))],
                        out_specs=pl.BlockSpec((None, 3, 10), lambda i, k: (k, i, 0)))


def b_kernel(x_ref, o_ref):  # the sum of each column
    @pl.when(pl.program_id(0) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...].sum(axis=0, keepdims=True)


call_b = pl.pallas_call(b_kernel, f32(1, 10), grid=(2, 2), in_specs=[tile],
                        out_specs=pl.BlockSpec((1, 5), lambda i, j: (0, j)))


# %%
def c_kernel(x_ref, o_ref):  # each number minus its left neighbour
    o_ref[:, 1:] = x_ref[:, 1:] - x_ref[:, :-1]


call_c = pl.pallas_call(c_kernel, f32(6, 10), grid=(2,),
                        in_specs=[pl.BlockSpec((3, 10), lambda i: (i, 0))],
                        out_specs=pl.BlockSpec((3, 10), lambda i: (i, 0)))


def d_kernel(x_ref, o_ref):  # the smallest number of each row
    @pl.when(pl.program_id(1) == 0)
    def _():
        o_ref[...] = jnp.full_like(o_ref, jnp.inf)
    o_ref[...] = jnp.minimum(o_ref[...], x_ref[...].min(axis=1, keepdims=True))


call_d = pl.pallas_call(d_kernel, f32(6, 1), grid=(2, 3),
                        in_specs=[pl.BlockSpec((3, 4), lambda i, j: (i, j))],
                        out_specs=pl.BlockSpec((3, 1), lambda i, j: (i, 0)))

# %% [markdown]
# ### Exercise 6.7 · Name the fault
# Say for each what is wrong: `"written input"`, `"revisit"` (an output block is left and comes back), `"no start"` (an
# accumulator begins with what the slot held), `"unwritten"` (a part of the output is never written), `"tail"` (numbers
# past the edge get into the result), or `"fine"`. Where one fault brings about another, name the cause: what should be
# mended.

# %% exercise="6.7"
# faults = {"a": …, "b": …, "c": …, "d": …}, for each kernel one of the six names
### BEGIN SOLUTION
faults = {"a": "written input", "b": "revisit", "c": "unwritten", "d": "tail"}
### END SOLUTION

# %% check="6.7"
check("6.7", faults)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# For each kernel write down its blocks, step by step: which block of x, which block of o? The last axis runs fastest.
# Then ask: what is in each slot when the step begins?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Two of them read an output. It matters whether its block stayed. Two write only a part, or read more than there is:
# look at the sizes. One writes where it should only read.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# In a, the block of x stays for two steps. The blocks of o in b are 0, 1, 0, 1. The column 0 of c … And three blocks of
# 4 make 12 columns.
# </details>

# %%
x = jnp.arange(60.0).reshape(6, 10)
if faults is ...:
    print("Once you have an answer in exercise 6.7, run this cell again: the package has its say, too.")
else:
    for name, call in zip("abcd", (call_a, call_b, call_c, call_d), strict=True):
        print(f"--- {name}")
        call(x)

# %% [markdown]
# ## Two operands, one array
#
# There is one more way to read what was written: let an input and an output *share* their array in HBM.
# `input_output_aliases={0: 0}` says that input 0 and output 0 are the same memory, so that a large table is updated
# where it lies. In SRAM each of them still has its own slots.
#
# A shift in place: block i takes the value of block i − 1. We run it four times, each time with other luck: a copy
# takes effect at its start or only when it is waited for. **Predict:** the same result four times?

# %%
def copy_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def shift(by, n=8, **how):
    from_block = pl.BlockSpec((1,), lambda i: (jnp.clip(i - by, 0, n - 1),))
    return pl.pallas_call(copy_kernel, f32(n), grid=(n,), in_specs=[from_block], out_specs=own_block,
                          input_output_aliases={0: 0}, **how)


x = jnp.arange(10.0, 18.0)
for seed in range(4):
    luck = pl.InterpretParams(dma_execution_mode="random", random_seed=seed)
    print(shift(1, on_hazard="ignore", interpret=luck)(x))
print()
say("The package says:", shift(1).trace(x).hazards[0])

# %% [markdown]
# Other luck, other numbers: a **race**. Look at the slots. The blocks of both operands are blocks of x now, and x[1] is
# on its way in, for step 2, while step 1 sends its result to x[1]. Which copy is first?

# %%
raced = shift(1).trace(x)
show_slots(raced.schedule, hazards=raced.hazards[:1], title="shift by 1: two copies meet on block x[1]")

# %% [markdown]
# Now other distances. By −1, block i takes the value of block i + 1; by 0, everything stays where it is. **Predict:**
# which of these race?

# %%
for by in (-1, 0, 1, 2, 3):
    call = shift(by, on_hazard="ignore")
    print(f"shift by {by:2}: {len(call.trace(x).hazards)} races   {call(x)}")

# %% [markdown]
# Reading ahead is safe: the block has long been read when somebody writes it. Reading what was written *just before*
# races, and far enough behind it is safe again (though then you read the new numbers: by 3, the first block spreads
# through the array). How far is far enough follows from the loop of chapter 3, with two slots each: the copy in
# for step s starts at the beginning of step s − 1, and the copy out of step t has surely arrived at the end of step
# t + 1.
#
# ### Exercise 6.8 · When is aliasing safe?
# Decide it for any order of blocks.

# %% exercise="6.8"
def aliasing_is_safe(reads: list[int], writes: list[int]) -> bool:
    """Is there no race, if step t reads block reads[t] and writes block writes[t]? Two slots each.

    Both are blocks of one array. Each step reads another than the step before; none is written twice.

    >>> aliasing_is_safe([0, 1, 2], [0, 1, 2]), aliasing_is_safe([3, 0, 1], [0, 1, 2])
    (True, False)
    """
    ### BEGIN SOLUTION
    steps = range(len(reads))
    return not any(reads[s] == writes[t] and t < s < t + 3 for s in steps for t in steps)
    ### END SOLUTION

# %% check="6.8"
check("6.8", aliasing_is_safe)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Take one block. Say that step t writes it and step s reads it. For which s − t are both copies on their way at once?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# If s is not after t, the copy in is over before the copy out starts. If s is after t, the copy in must <em>start</em>
# (step s − 1) after the copy out is over (the end of step t + 1). The list of shifts above says the same.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# It is a race if <code>reads[s] == writes[t]</code> and s is t + 1 or t + 2. Look at all pairs s, t;
# <code>any(…)</code> helps.
# </details>

# %% [markdown]
# ## What you take along
#
# - A ref is a copy of one block, in a slot that others have used and will use again. Inputs are read-only, outputs are
#   write-only.
# - The exception is **accumulation**: while an output's block stays, the kernel finds what it wrote itself. So reduce
#   along the **last** axis of the grid, and start afresh where the program id of that axis is 0.
# - The slots explain the garbage: visit v lives in slot v % depth, and adds to what visit v − depth left there.
# - A tail is garbage, too. Leave it out with `jnp.where`; 0 × NaN is not 0.
# - `interpret=True` has no slots, so it cannot show any of this. Aliased operands race when a block is read one or two
#   steps after it was written.
#
# Your kernels are right now. In the next unit we make them fast: chapter 7 asks what a pipeline's time is made of, and
# which number to change.

# %%
progress()
