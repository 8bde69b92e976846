# %% [markdown]
# # 3 · Deriving the double buffer
#
# In chapter 2 somebody started every copy at the right moment, and waited for it at the right moment. Now that is you.
#
# Data lie in HBM; the core computes only on what lies in SRAM, in **slots**, each as large as one block. DMA engines
# carry blocks from one to the other, while the core runs the **kernel**, the program for one block. Here `A` and `B`
# are arrays in HBM, `X` and `Y` are slots in SRAM. There are four blocks, and on our toy machine each takes 1 µs to
# copy in, 1 µs to compute on, and 1 µs to copy out.
#
# **Predict before you run the cell:** for what part of the time does the core compute?

# %%
import math

import numpy as np

import pallas_lite as pl
from autograder import check, progress, say
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait
from pallas_lite.hardware import TOY


def copy_in(block, slot):
    copy_in_start(block, slot)
    copy_in_wait(slot)

def copy_out(slot, block):
    copy_out_start(slot, block)
    copy_out_wait(slot)

def blocking(N, A, X, Y, B):
    for i in range(N):
        copy_in(A[i], X[0])
        compute(X[0], Y[0])  # runs the kernel: Y = X + 1
        copy_out(Y[0], B[i])

pl.show(blocking, 4, depth=1)

# %% [markdown]
# A third of the time. While the core computes, the copy engines idle; while they copy, the core does: the hatched
# stretches, called **bubbles**.
#
# All that you see comes from one recording of the loop. At the top is whether what comes out could depend on luck, and
# what it is, if A holds 10, 20, 30, 40 and the kernel adds 1. Then comes what the program did as a table, to be read
# row by row. Below, on the left, is the same as a list, in order: before each line stand its line in the cell above
# (Esc, then Shift+L, numbers the lines there), and the modelled time at which a copy or a step starts, or a wait ends.
# On the right is the same over time, fill and drain in grey. Four colours, in turn, tell the visits apart: a **visit**
# is a block's way through the machine, in, through a step, and out.
#
# The obvious cure is a faster core. **Predict:** with a core *ten times* as fast, how long does the loop take?

# %%
fast = TOY.with_(name="toy with a fast core", flops=10 * TOY.flops)
pl.show(blocking, 4, depth=1, machine=fast, limit=12e-6)

# %% [markdown]
# The new core is ten times as fast, and most of the time is still there: a core that waits cannot be helped by speed.
# Keep that total in mind. By the end of this chapter the *old* core will beat it, with the same copies and the same
# kernel. You will only move lines.
#
# ### Exercise 3.1 · The price of blocking
# Give the modelled time of `blocking` as a formula: any number of blocks, any speed of copies and kernel.

# %% exercise="3.1"
def blocking_time(n: int, copy: float, kernel: float) -> float:
    """Modelled µs of `blocking` over n blocks: a copy (in or out) takes `copy` µs, a step `kernel`.

    >>> blocking_time(4, 1, 1)
    12
    """
    ### BEGIN SOLUTION
    return n * (copy + kernel + copy)
    ### END SOLUTION

# %% check="3.1"
check("3.1", blocking_time)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Look at the first picture. Is there any moment in which two lanes are busy at once?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# If nothing overlaps, times simply add up. Work out one block; then n of them.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# One block is copied <em>twice</em>, in and out, and computed once.
# </details>

# %% [markdown]
# ## A copy is a start and a wait
#
# The core does not carry the data itself. `copy_in_start` hands an order to the copy engine and returns at once;
# `copy_in_wait` holds the core until the data have arrived. Our `copy_in` does the one right after the other, and
# that is all that "blocking" means.
#
# On the left of the first picture both halves are written out, and the loop is **unrolled**: four blocks, one after
# the other. Which of those lines really need their order? Only four rules hold:
#
# 1. a step reads its slot of X after the copy in has **arrived**;
# 2. a copy out starts after the step that **writes** its slot of Y;
# 3. a slot gets new contents only when its last reader is **done**;
# 4. every copy that is started is waited for **once**, before the program ends.
#
# All other order is habit. So there are two moves, and this chapter is nothing but these two: **start each copy as
# early as its slot allows, and wait for it as late as you can.**
#
# ### Exercise 3.2 · Split
# Write the loop with the four verbs, on one slot of each, so that each copy out runs while the next block comes in:
# 2N + 1 µs for N blocks. (Before you type: which single line moves, and to where?)

# %% exercise="3.2"
def one_slot(N, A, X, Y, B):
    """Uses X[0] and Y[0] only. Right for any N ≥ 1; takes 2N + 1 µs on the toy machine."""
    ### BEGIN SOLUTION
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        if i > 0:
            copy_out_wait(Y[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
    if N > 0:
        copy_out_wait(Y[0])
    ### END SOLUTION

# %% check="3.2"
check("3.2", one_slot)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Who needs the copy out to be over? Not the next copy in: that one fills X, and the copy out reads Y.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Let <code>copy_out_wait(Y[0])</code> slide into the <em>next</em> iteration, to the last place where it still
# protects Y[0]. Then mend both ends: the first iteration has nothing to wait for, and the last copy still needs its
# wait.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# In the loop: start in, wait in, <code>if i > 0:</code> wait out, compute, start out. After the loop: one more wait.
# </details>

# %%
pl.show(one_slot, 4, depth=1, limit=12e-6)

# %% [markdown]
# **Break it.** In your loop, move the wait for the copy out by one line, from above `compute` to below it. **Predict**
# which blocks of B go wrong, and what they will hold; then run your cell and the one above again, and mend it.
#
# <details><summary>What you should see</summary>
# The step writes Y[0] while the older copy out of it may still be reading. If copies arrive late, each block of B but
# the last holds the result of the <em>next</em> block; if they arrive at once, all is well. The marked line is the
# step, not the wait: a wait in the wrong place harms somebody else.
# </details>
#
# ## One slot is not enough
#
# The copy *in* still keeps the core waiting. Block A[1] needs nothing that step 0 computes, so why not start its copy
# before step 0 runs? `greedy` does that, with a single slot of X.
#
# **Predict:** A holds 10, 20, 30, 40, and the kernel adds 1. What will B hold?

# %%
def greedy(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        copy_in_wait(X[0])
        if i + 1 < N:
            copy_in_start(A[i + 1], X[0])  # the next block, early
        compute(X[0], Y[0])
        copy_out(Y[0], B[i])

numbers = np.array([10.0, 20.0, 30.0, 40.0])
schedule = pl.record(greedy, 4, depth=1)  # runs the loop once, without data, and notes what it does
for arrive in "on_wait", "eager", "random":
    params = pl.InterpretParams(dma_execution_mode=arrive, random_seed=1)
    print(f"copies arrive {arrive:8}", pl.execute(schedule, numbers, params=params))

# %% [markdown]
# One program, three answers, and all three machines obey the rules. A copy may land at any moment between its start
# and its wait. Where copies land as late as they may, the result is right, by luck; where they land at once, each
# step but the last computes on the block *after* its own. A test on the first machine would have passed for years.
#
# The verifier does not trust to luck. It asks whether *any* choice of moments could change a result:

# %%
pl.show(greedy, 4, depth=1)

# %% [markdown]
# What went wrong is odd, once you think about it. Copying A[1] needs no *value* from step 0. It only needs a *place*,
# and the one place is taken. That is a **false dependence**: it is not about data, it is about room. And room can be
# bought.
#
# ### Exercise 3.3 · Name the hazard
# Read these five loops as the verifier would, with two slots and any N, and say of each what is wrong.

# %%
def loop_a(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_in_wait(X[i % 2])
        copy_out(Y[i % 2], B[i])

def loop_b(N, A, X, Y, B):
    for i in range(N):
        copy_in(A[i], X[i % 2])
        compute(X[i % 2], Y[0])
        if i > 0:
            copy_out_wait(Y[0])
        copy_out_start(Y[0], B[i])
    copy_out_wait(Y[0])

def loop_c(N, A, X, Y, B):
    for i in range(N):
        copy_in(A[i], X[i % 2])
        compute(X[0], Y[i % 2])
        copy_out(Y[i % 2], B[i])

# %%
def loop_d(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for i in range(max(0, N - 2), N):
        copy_out_wait(Y[i % 2])

def loop_e(N, A, X, Y, B):
    for i in range(N):
        copy_in(A[i], X[i % 2])
        if i > 0:
            copy_out_wait(Y[0])
        compute(X[i % 2], Y[0])
        copy_out_start(Y[0], B[i])

# %% [markdown]
# The names to choose from; each may serve once, more often, or not at all:
#
# - `"read before wait"`: the kernel reads a slot whose copy may not have arrived;
# - `"overwrite in flight"`: a slot is written while a copy out of it, or into it, is under way;
# - `"never waited"`: a copy is started and nobody ever waits for it;
# - `"wrong slot"`: no race at all, but some step takes data that belong to another;
# - `"fine"`: nothing is wrong.

# %% exercise="3.3"
### BEGIN SOLUTION
hazards = {"a": "read before wait", "b": "overwrite in flight", "c": "wrong slot", "d": "fine",
           "e": "never waited"}
### END SOLUTION

# %% check="3.3"
check("3.3", hazards)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Take N = 3 and a finger for each slot. At each <code>compute</code>, ask two things: has X's copy been waited for?
# Is a copy out of that Y still under way?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Pair each start with its wait. A wait that stands <em>behind</em> the step that needs it protects nothing; a start
# without a partner is never waited for.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>hazards = {"a": "…", "b": "…", "c": "…", "d": "…", "e": "…"}</code>. One of the five looks strange and is
# fine. One waits in all the right places and still reads X[0] in every step.
# </details>

# %% [markdown]
# When you have given your answer, let the tools give theirs: the verdict on four blocks, and the values.

# %%
if hazards is ...:
    print("Your answer first; then run this cell again.")
else:
    for letter, loop in zip("abcde", (loop_a, loop_b, loop_c, loop_d, loop_e), strict=True):
        view = pl.show(loop, 4)
        print(f"{letter}  {view.verdict.splitlines()[0]}\n   B = {pl.execute(view.schedule, numbers)}\n")

# %% [markdown]
# Slots start as garbage, shown as `nan`; that is what `a` reads. Now look at `c`. The verifier is content: no choice
# of moments changes the result. The result is wrong all the same, each time in the same way. And `greedy` had shown
# us the opposite: right numbers, from a race. **Race-free and right are two questions**, so every check in this
# chapter asks both.

# %% [markdown]
# ## Start early, wait late: two slots
#
# Block i goes to slot `i % 2`, so its neighbours never share a slot. Let us buy a second slot of each, and change
# nothing else. **Predict:** what does that gain?

# %%
def two_slots(N, A, X, Y, B):
    for i in range(N):
        slot = i % 2
        copy_in(A[i], X[slot])
        compute(X[slot], Y[slot])
        copy_out(Y[slot], B[i])

pl.show(two_slots, 4, limit=12e-6)

# %% [markdown]
# Not a thing: only the numbers of the slots are new. Slots *allow* overlap; the order of lines makes it. So let us move
# lines, one at a time. Below is that loop, unrolled. Choose a line, then move it: starts earlier, waits later. (By
# keyboard: Tab to the slider *line*, ← and → choose one; Tab to a button, and press it with the space bar.)
#
# **Get to 6 µs** without the button *a better move*. Then break it: which line can you move by one place, so that B
# goes wrong? And with a single slot (depth 1), how far do you get?

# %%
pl.derivation_stepper(4)

# %% [markdown]
# <details><summary>Stuck one µs short?</summary>
# The buttons <em>earliest</em> and <em>latest</em> go as far as the result stays right, and that can be too far for the
# clock. The engine that copies in takes one block after the other: if A[1] is started before A[0], the first step waits
# for both.
# </details>

# %% [markdown]
# With a single slot 9 µs are the least, as in exercise 3.2: a copy in and a step need the same slot of X, so they take
# turns.
#
# Where did each line come to rest? A start of a copy in stands behind the step that reads its slot before, with no
# other step between. A wait for a copy out stands so before the step that writes its slot anew. That is no accident: it
# is rule 3, twice. Now write it as a loop, one move after the other.
#
# ### Exercise 3.4 · Hoist the starts
# Start the copy of block i + 1 before step i runs, and let each copy out block as before. **Predict first:** how many
# µs for four blocks, with this one of the two moves?

# %% exercise="3.4"
def hoisted(N, A, X, Y, B):
    """Two slots each. A copy in runs during the step before; a copy out blocks. Right for any N ≥ 1."""
    ### BEGIN SOLUTION
    copy_in_start(A[0], X[0])
    for i in range(N):
        slot, other = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[other])
        copy_in_wait(X[slot])
        compute(X[slot], Y[slot])
        copy_out_start(Y[slot], B[i])
        copy_out_wait(Y[slot])
    ### END SOLUTION

# %% check="3.4"
check("3.4", hoisted)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# If every iteration starts the copy of the <em>next</em> block, who starts the first one? And what should the last
# iteration start?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# One start before the loop (the <em>prologue</em>). Inside: start i + 1 if there is one, then wait for i, which was
# started an iteration ago, then compute, then copy out.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>copy_in_start(A[0], X[0])</code>, then in the loop <code>if i + 1 < N: copy_in_start(A[i + 1], X[(i + 1) %
# 2])</code>, then <code>copy_in_wait(X[i % 2])</code> and the rest as in <code>two_slots</code>.
# </details>

# %%
pl.show(hoisted, 4, limit=12e-6)

# %% [markdown]
# Did you predict less? Many do. Starting early hides the copies in, and no more: now the core waits for each copy
# *out*. Waiting late, on a single slot, had gained just as much. Each move alone takes away one of two waits; we want
# both.
#
# **Break it.** A copy that was started so early should be there by now. Is its wait still needed? Move `copy_in_wait`
# below `compute`, and **predict** B, if copies arrive late.
#
# <details><summary>What you should see</summary>
# If they arrive at once, B is right. If they arrive late, each step finds what lay in its slot before: garbage in the
# first two steps, then the block of two steps ago. Early is a hope; only the wait makes it certain.
# </details>

# %% [markdown]
# With two slots of Y, who needs the copy out of Y[0] to be over? Only the step that writes Y[0] again, and that is
# two steps away.
#
# ### Exercise 3.5 · Sink the waits
# Take your `hoisted` and move each `copy_out_wait` to a later iteration: N + 2 µs. An **even** N is enough for now.

# %% exercise="3.5"
def sunk(N, A, X, Y, B):
    """Two slots each; starts early, waits late. Right for even N ≥ 2; N + 2 µs on the toy machine."""
    ### BEGIN SOLUTION
    copy_in_start(A[0], X[0])
    for i in range(N):
        slot, other = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[other])
        copy_in_wait(X[slot])
        compute(X[slot], Y[slot])
        copy_out_start(Y[slot], B[i])
        if i > 0:
            copy_out_wait(Y[other])  # of the step before
    copy_out_wait(Y[1])
    ### END SOLUTION

# %% check="3.5"
check("3.5", sunk)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# In iteration i, do not wait for the copy that you have just started. Wait for an older one.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The copy out of the step before left from the <em>other</em> slot. Wait for that one; in the first iteration there
# is none. One copy is left over after the loop.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Replace the wait by <code>if i > 0: copy_out_wait(Y[(i + 1) % 2])</code> and add <code>copy_out_wait(Y[1])</code>
# after the loop.
# </details>

# %%
pl.show(sunk, 4, limit=12e-6)

# %% [markdown]
# **Break it.** "As late as possible", taken literally: take the wait out of the loop, and wait for all N copies behind
# it. **Predict** which step is the first to go wrong.
#
# <details><summary>What you should see</summary>
# Step 2: it writes Y[0], from which the copy of step 0 may still be reading. Steps 0 and 1 have a slot each, so they
# are safe. As late as possible means: just before the slot is needed again.
# </details>
#
# ## Roll it up, and try to break it
#
# Both moves together give the loop that stands in most tutorials: a *prologue* before the loop, the *main loop*, an
# *epilogue* after it. (If the last two exercises are still open: this is where they lead.) Is the old core now ahead
# of the fast one?

# %%
def rolled(N, A, X, Y, B):
    copy_in_start(A[0], X[0])  # prologue
    for i in range(N):  # main loop
        slot, other = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[other])
        copy_in_wait(X[slot])
        compute(X[slot], Y[slot])
        copy_out_start(Y[slot], B[i])
        if i > 0:
            copy_out_wait(Y[other])
    copy_out_wait(Y[1])  # epilogue

print(f"blocking, fast core: {pl.show(blocking, 4, depth=1, machine=fast).timeline.total * 1e6:.1f} µs")
pl.show(rolled, 4, limit=12e-6)

# %% [markdown]
# It is. And the core computes without a gap from its first step to its last; only fill and drain are left, and they
# do not grow with N.
#
# Four blocks are race-free, then. **Predict:** for which N, from 0 to 6, is `rolled` right?

# %%
for n in range(7):
    try:
        verdict = pl.show(rolled, n).verdict.splitlines()[0]
    except pl.PallasLiteError as error:
        verdict = f"✗ {error}"
    say(f"N = {n}  {verdict}")

# %%
pl.show(rolled, 3)

# %% [markdown]
# Every odd N hangs, and N = 0 asks for a block that is not there. We derived the loop at N = 4, and an assumption
# crept in that four cannot reveal.
#
# ### Exercise 3.6 · Both ends right
# Mend the prologue and the epilogue, so that the loop is right for *every* N, 0 and 1 included.

# %% exercise="3.6"
def double_buffer(N, A, X, Y, B):
    """Two slots each. Right for every N ≥ 0; takes N + 2 µs on the toy machine (0 for N = 0)."""
    ### BEGIN SOLUTION
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        slot, other = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[other])
        copy_in_wait(X[slot])
        compute(X[slot], Y[slot])
        copy_out_start(Y[slot], B[i])
        if i > 0:
            copy_out_wait(Y[other])
    if N > 0:
        copy_out_wait(Y[(N - 1) % 2])
    ### END SOLUTION

# %% check="3.6"
check("3.6", double_buffer)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Which copy out is still under way after the loop, and which slot did it leave from?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The last step is step N − 1, and step i uses slot i % 2. If there is no step at all, there is nothing to start and
# nothing to wait for.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Guard both ends with <code>if N > 0:</code> and let the epilogue wait for slot <code>(N - 1) % 2</code>.
# </details>

# %% [markdown]
# ## More slots
#
# Is two always enough? Move the HBM farther away: each copy now takes another 3 µs, its *latency* α, before it
# arrives. In the picture, that is the thin bar after the copy's box. (The port is free meanwhile, so several copies
# can be on their way.) Eight blocks, the same loop:

# %%
far = TOY.with_(name="toy with far HBM", alpha=3e-6)
pl.show(rolled, 8, machine=far)

# %% [markdown]
# The bubbles are back. One block ahead is not enough when a block is on its way for longer than a step takes. With
# `depth` slots we can be `depth − 1` blocks ahead. **Predict:** how many slots until a further one gains nothing?
#
# `pallas_call` has this loop inside, for any depth, so we can ask it before you write your own:

# %%
def add_one(x_ref, y_ref):
    y_ref[...] = x_ref[...] + 1

elements = 250  # f32, so a block of 1000 bytes, as above; 250 additions should take 1 µs, so
slow_adder = far.with_(flops=elements / 1e-6)
x = np.arange(8 * elements, dtype=np.float32)
for depth in range(1, 8):
    spec = pl.BlockSpec((elements,), lambda i: i, pipeline_mode=pl.Buffered(depth))
    call = pl.pallas_call(add_one, out_shape=x, grid=(8,), in_specs=[spec], out_specs=spec).trace(x)
    µs, sram = call.timeline(slow_adder).total * 1e6, call.schedule.sram_bytes
    print(f"depth {depth}: {µs:4.0f} µs, {sram} bytes of SRAM")

# %% [markdown]
# The second slot gains most, the third much less, and then the gain dries up, while each slot still costs its share
# of SRAM. Chapter 7 turns this into a formula.
#
# **Predict, then move the sliders** (click one, and the arrow keys move it): at which depth is the last bubble
# between the first step and the last gone? And with α at 0, what does a third slot gain?

# %%
pl.schedule_explorer(steps=8, depth=2, alpha=3e-6)

# %% [markdown]
# ### Exercise 3.7 · Depth k
# Write the loop for any number of slots, and be as fast as `pallas_call` at the same depth.

# %% exercise="3.7"
def pipelined(N, A, X, Y, B):
    """Right for every N ≥ 0 and depth = len(X) = len(Y) ≥ 1; no slower than pallas_call's order."""
    depth = len(X)
    ### BEGIN SOLUTION
    for i in range(min(depth - 1, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        slot, ahead = i % depth, i + depth - 1
        if ahead < N:
            copy_in_start(A[ahead], X[ahead % depth])
        copy_in_wait(X[slot])
        compute(X[slot], Y[slot])
        copy_out_start(Y[slot], B[i])
        oldest = i - (depth - 1)
        if oldest >= 0:
            copy_out_wait(Y[oldest % depth])
    for i in range(max(0, N - (depth - 1)), N):
        copy_out_wait(Y[i % depth])
    ### END SOLUTION

# %% check="3.7"
check("3.7", pipelined)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Go through <code>double_buffer</code> and ask of each 1 and each 2: is it <code>depth</code>, or <code>depth -
# 1</code>, or really that number?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The prologue starts depth − 1 copies, if there are as many blocks. Iteration i starts block i + depth − 1 and waits
# for the copy out of step i − (depth − 1). The epilogue waits for all that the loop has not waited for, oldest first.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Prologue: <code>for i in range(min(depth - 1, N))</code>. Epilogue: <code>for i in range(max(0, N - (depth - 1)),
# N): copy_out_wait(Y[i % depth])</code>. Block or step j always uses slot <code>j % depth</code>.
# </details>

# %%
pl.show(pipelined, 8, depth=4, machine=far)

# %% [markdown]
# **Break it.** With `depth` slots, why not be `depth` blocks ahead? Change prologue and loop accordingly; **predict**
# the first line that goes wrong.
#
# <details><summary>What you should see</summary>
# The prologue may fill every slot. But in iteration i, block i + depth belongs into slot i % depth, and there lies
# block i, which step i has yet to read. One slot is always taken by the step that runs: depth − 1 are free.
# </details>
#
# ## Beat it
#
# `pallas_call` waits for an old copy out at the *end* of an iteration, so the next fetch starts only after that wait.
# With near HBM nobody notices. With far HBM it costs time, and you may do better: any race-free order counts.
#
# ### Exercise 3.8 · One wait, even later
# With two slots and far HBM, be faster than `pallas_call`'s order.

# %% exercise="3.8"
def faster(N, A, X, Y, B):
    """Two slots each. Right for every N ≥ 0; with α ≥ 2 µs and N ≥ 6 faster than pallas_call's order."""
    ### BEGIN SOLUTION
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % 2])
        copy_in_wait(X[i % 2])
        if i >= 2:
            copy_out_wait(Y[i % 2])  # now, and no sooner: the kernel is about to write this slot
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for i in range(max(0, N - 2), N):
        copy_out_wait(Y[i % 2])
    ### END SOLUTION

# %% check="3.8"
check("3.8", faster)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Which line of the loop is the <em>first</em> that Y's old copy could harm? Wait just before that line, not sooner.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Step i writes slot i % 2 of Y. The copy that left from there belongs to step i − 2. Two copies are then left for the
# epilogue, if there were two steps.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>if i >= 2: copy_out_wait(Y[i % 2])</code> stands right before <code>compute</code>; the epilogue runs over
# <code>range(max(0, N - 2), N)</code>.
# </details>

# %%
pl.show(faster, 8, machine=far)

# %% [markdown]
# **Break it.** Is this wait as late as can be? Move it by one more line, below `compute`, and look at B.
#
# <details><summary>What you should see</summary>
# The same race as with one slot, in exercise 3.2. With two it takes until step 2 to show: a test with N = 2 would have
# found nothing.
# </details>

# %% [markdown]
# ## The general pipeline
#
# What did our loop know of its problem? Three things. How many steps there are: the **grid**, whose axes are
# multiplied. What a step computes: the **kernel**. Which block each step takes and gives: the **slices**, so far `A[i]`
# and `B[i]`. Make them arguments, and the same loop runs every program of this shape.
#
# `compute(x, y, kernel)` runs a kernel of your own: a function of a block, which gives a block.
#
# ### Exercise 3.9 · Grid, kernel and slices
# Write the general pipeline: the order is that of `double_buffer`, and all the rest comes from its arguments.

# %% exercise="3.9"
def double_buffered_pipeline(grid, kernel, in_slices, out_slices):
    """A loop(N, A, X, Y, B) with a step for each point of the grid; right for any, also an empty one.

    A and B have N blocks each, which may be more than there are steps.
    Step i runs the kernel on block A[in_slices(i)], and block B[out_slices(i)] gets the result.
    """
    steps = math.prod(grid)

    def loop(N, A, X, Y, B):
        ### BEGIN SOLUTION
        if steps > 0:
            copy_in_start(A[in_slices(0)], X[0])
        for i in range(steps):
            slot, other = i % 2, (i + 1) % 2
            if i + 1 < steps:
                copy_in_start(A[in_slices(i + 1)], X[other])
            copy_in_wait(X[slot])
            compute(X[slot], Y[slot], kernel)
            copy_out_start(Y[slot], B[out_slices(i)])
            if i > 0:
                copy_out_wait(Y[other])
        if steps > 0:
            copy_out_wait(Y[(steps - 1) % 2])
        ### END SOLUTION
    return loop

# %% check="3.9"
check("3.9", double_buffered_pipeline)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Slots are counted by step, blocks are chosen by slices. Only one of the two changes in this exercise.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Take <code>double_buffer</code>. Wherever it says A[…] or B[…], the index goes through a slice; wherever it says N,
# it means the number of steps; and compute takes the kernel.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>A[0]</code> becomes <code>A[in_slices(0)]</code>, <code>A[i + 1]</code> becomes <code>A[in_slices(i +
# 1)]</code>, <code>B[i]</code> becomes <code>B[out_slices(i)]</code>, and <code>compute(X[slot], Y[slot],
# kernel)</code>.
# </details>

# %% [markdown]
# Three programs, one loop. The last one takes a matrix of 6 × 6 numbers, cut into 3 × 3 blocks. **Predict** what it
# makes of it. Which part of that is the kernel's doing, and which the slices'?

# %%
def run(blocks, grid, kernel, in_slices, out_slices):
    view = pl.show(double_buffered_pipeline(grid, kernel, in_slices, out_slices), len(blocks))
    print(view.verdict)
    return pl.execute(view.schedule, blocks) if isinstance(view, pl.View) else blocks

print(run(numbers, (4,), lambda x: x + 1, lambda i: i, lambda i: i))
print(run(numbers, (4,), lambda x: x * x, lambda i: 3 - i, lambda i: i))

matrix = 10 * np.arange(6)[:, None] + np.arange(6)
blocks = matrix.reshape(3, 2, 3, 2).swapaxes(1, 2).reshape(9, 2, 2)  # block (r, c) is number 3r + c
result = run(blocks, (3, 3), lambda x: x.T, lambda i: i, lambda i: i % 3 * 3 + i // 3)
print(matrix, result.reshape(3, 3, 2, 2).swapaxes(1, 2).reshape(6, 6).astype(int), sep="\n\n")

# %% [markdown]
# The slices bring block (r, c) to place (c, r); the kernel turns each block by itself. Leave out one of the two, and
# look: it is a good way to see which is which.

# %% [markdown]
# ## What you take along
#
# - A copy is a start and a wait. **Start early, wait late**; all the rest is bookkeeping at the two ends.
# - One slot makes a false dependence; two remove it; more help when a copy is on its way for longer than a step takes.
# - A right result proves nothing about races, and a race-free program may still compute the wrong thing.
# - An example with N = 4 cannot see an odd N.
#
# The loop that you have derived is the one inside `pallas_call`: open `pallas_lite/pipeline.py`, and you will
# recognise every part. In chapter 4 you only say *what* to copy, with a grid and slices, and it does the moving.

# %%
progress()
