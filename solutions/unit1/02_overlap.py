# %% [markdown]
# # 2 · Overlap
#
# In chapter 1 the core waited for its bytes, and large arrays did not fit. Both have one cure. Cut the array into
# **blocks**, and let each go through three **stages**: copy in, compute, copy out.
#
# Here are six blocks on a toy machine, where each stage takes 1 µs. One block after the other takes 18 µs. But there
# are three engines, the core and a DMA engine each way, and they can work at the same time. **Predict before you run
# the cell:** if all overlaps that can, how many µs for six blocks?

# %%
from itertools import count

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pallas_lite as pl
from autograder import check, personal, progress
from pallas_lite.hardware import TOY, TPU_V5E


def add_one_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def pipeline(blocks, slots=2):
    """x + 1 in blocks of 1000 bytes, with `slots` places in SRAM for blocks of x, and for results."""
    x = jax.ShapeDtypeStruct((1000 * blocks,), jnp.int8)
    spec = pl.BlockSpec((1000,), lambda i: (i,), pipeline_mode=pl.Buffered(slots))  # see chapter 4
    call = pl.pallas_call(add_one_kernel, out_shape=x, grid=(blocks,), in_specs=[spec], out_specs=spec)
    return call.trace(x)


_, axes = plt.subplots(2, figsize=(9, 4.6), layout="constrained")
for slots, ax in zip((1, 2), axes, strict=True):
    t = pipeline(6, slots).timeline()
    title = "in turns" if slots == 1 else "overlapped"
    title += f": {t.total * 1e6:g} µs, core busy {t.utilisation:.0%}"
    pl.plot_timeline(t, ax, limit=18e-6, title=title)
plt.show()

# %% [markdown]
# Eight! Three engines, a third of 18 would be 6; where do the other two come from? Look at both ends of the lower
# picture: first there is nothing to compute yet, at last nothing any more.
#
# Still, the core is now busy for 6 of 8 µs, which is 75 %, and none of the engines became any faster. This is
# **software pipelining**: operations overlap, although each block needs its stages in order. (What the pictures show is
# modelled, and a busy core is taken to be fully used. The toy machine has a port to the HBM *each way*, as most
# drawings have it. Real chips have one port for both ways; we come to that.)
#
# ## What may overlap, and what may not
#
# Two kinds of things must not be at the same time:
#
# - **Within a block,** each stage needs what the stage before has made. Nobody can compute on a block that is not
#   there. Such a need is called a **dependence**.
# - **Within an engine,** one thing is done after the other.
#
# But block 3 needs nothing from block 2. So while the core computes on block i, block i + 1 may come in and block
# i − 1 may go out. A plan can be written as a table of **time slots**, all equally long: for each engine the time slot
# in which it has block 0, block 1, and so on. Here is one in which nothing overlaps.

# %%
def draw(**engines):
    """A plan as a table. For each engine: the list of time slots in which it has block 0, block 1, …"""
    slots = 1 + max(max(when) for when in engines.values())
    print("time slot", *(f"{slot:3}" for slot in range(slots)))
    for engine, when in engines.items():
        row = (when.index(slot) if slot in when else "·" for slot in range(slots))
        print(f"{engine:9}", *(f"{block:>3}" for block in row))
    busy = len(engines["compute"])
    print(f"core busy in {busy} of {slots} slots: {busy / slots:.0%}")


draw(copy_in=[0, 3, 6, 9], compute=[1, 4, 7, 10], copy_out=[2, 5, 8, 11])

# %% [markdown]
# ### Exercise 2.1 · Place the stages
# Write a plan for the same four blocks that takes as few time slots as possible. (`draw(**plan)` shows it.)

# %% exercise="2.1"
# plan = {"copy_in": [four slots], "compute": [four slots], "copy_out": [four slots]}
### BEGIN SOLUTION
plan = {"copy_in": [0, 1, 2, 3], "compute": [1, 2, 3, 4], "copy_out": [2, 3, 4, 5]}
### END SOLUTION

# %% check="2.1"
check("2.1", plan)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The engine that copies in needs nobody. How soon can it be through with all four blocks?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Each block is computed in the slot after it came in, and goes out in the slot after that.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>"copy_in": [0, 1, 2, 3]</code>. Now shift that list by one slot, and by one more.
# </details>

# %% [markdown]
# ## Fill, steady state, drain
#
# Look at the overlapped picture again. It has three parts:
#
# - **fill**: the first block is on its way in, and the core has nothing to do yet;
# - **steady state**: the core works, and copies of other blocks are under way; in turns, there is none;
# - **drain**: the last block is on its way out.
#
# Time slots in which the core stands still are called **bubbles**. **Predict:** with 100 blocks in place of 6, how many
# bubbles are there? And with a single block?

# %%
for blocks in 1, 2, 6, 20, 100:
    t = pipeline(blocks).timeline()
    idle = (t.total - t.busy) * 1e6
    turns = pipeline(blocks, slots=1).timeline().total * 1e6
    print(f"blocks: {blocks:3}   {t.total * 1e6:3.0f} µs, bubbles {idle:.0f} µs,"
          f" core busy {t.utilisation:6.1%}   (in turns: {turns:3.0f} µs)")

# %% [markdown]
# Always two. Fill and drain cost the same whether the pipeline then runs for 6 blocks or for 600, so a long pipeline
# hides them. A single block has nobody to overlap with.
#
# What do we want, really? Not that all engines are busy: that would be nice, but nobody buys a chip for its DMA
# engines. We want **a core that always computes**. The other stages may idle as much as they like.
#
# And what if there are more stages? Suppose that blocks come from another chip: over the network into HBM, from there
# into SRAM, and all the way back. **Predict:** for what part of the time slots is the core busy now, with six blocks?

# %%
def plan_for(blocks, stages):
    """The plan of an ideal pipeline: block i is in stage s at time slot i + s."""
    return {stage: [i + s for i in range(blocks)] for s, stage in enumerate(stages)}


draw(**plan_for(6, ["receive", "copy_in", "compute", "copy_out", "send"]))

# %% [markdown]
# The more stages, the longer it takes until the first block has reached the core and the last one has left. Do not
# confuse stages with **slots**, the places in SRAM that hold a block each. (A time slot is a moment; a slot is a
# place.) Two slots for each operand are what lets a block come in while another is computed on. **Predict:** what do
# four slots do to the eight µs?

# %%
for slots in 1, 2, 4:
    µs = pipeline(6, slots).timeline().total * 1e6
    print(f"slots for each operand: {slots}   {µs:2.0f} µs")

# %% [markdown]
# Nothing: neither more bubbles nor fewer. Bubbles come with stages. (What more slots are good for, you will see in
# chapter 3.)
#
# ### Exercise 2.2 · Utilisation
# Say what part of the time slots the core is busy: any number of blocks, any number of stages.

# %% exercise="2.2"
def utilisation(blocks: int, stages: int) -> float:
    """The part of all time slots, between 0 and 1, in which the core computes. Every stage takes one.

    The core is one of the stages. blocks ≥ 1, stages ≥ 1.

    >>> utilisation(6, 3)
    0.75
    """
    ### BEGIN SOLUTION
    return blocks / (blocks + stages - 1)
    ### END SOLUTION

# %% check="2.2"
check("2.2", utilisation)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# In how many slots does the core compute? And in which slot does the last block leave the last stage?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The first block needs a slot for each stage. After that, one more block is finished in every slot.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# It takes <code>stages + (blocks - 1)</code> slots in all.
# </details>

# %% [markdown]
# ### Exercise 2.3 · Enough blocks
# How many blocks does it take until bubbles hardly count? Your pipeline and your aim are drawn from your course id.

# %%
STUDENT = ""  # your course id

mine = personal("2.3", STUDENT)
stages, percent = mine.stages, mine.percent
print(f"Your pipeline has {stages} stages of one time slot each."
      f" Its core should be busy for {percent} % of the time slots.")

# %% [markdown]
# Predict two numbers: the smallest number of blocks that is enough, and how many time slots they take in all. Numbers
# or formulas, as you like; stages and percent are set.

# %% exercise="2.3"
# prediction = blocks, time slots
### BEGIN SOLUTION
prediction = (stages - 1) * percent // (100 - percent), (stages - 1) * 100 // (100 - percent)
### END SOLUTION

# %% check="2.3"
check("2.3", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# You know the number of bubbles without knowing the number of blocks. What part of all slots may they be?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# There are stages − 1 bubbles. If the core is busy for 95 %, they are the other 5 % of all slots.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# All slots: 100 · (stages − 1) / (100 − percent), in whole numbers. The core is busy in the slots that are left after
# the bubbles.
# </details>

# %% [markdown]
# Let a loop try it, one block more at a time, for your aim and for a few others:

# %%
def percent_busy(blocks):
    plan = plan_for(blocks, range(stages))
    return 100 * blocks / (1 + max(max(when) for when in plan.values()))


if prediction is ...:
    print("Once you have a prediction in exercise 2.3, run this cell again.")
else:
    for aim in sorted({50, 80, 90, 99, percent}):
        blocks = next(n for n in count(1) if percent_busy(n) >= aim)
        print(f"{aim} % of the time: {blocks:3} blocks, {blocks + stages - 1:3} time slots")

# %% [markdown]
# The last per cent are dear: from 90 % to 99 % it takes eleven times as many blocks, with any number of stages.
#
# ## When stages take different times
#
# Equal stages are rare. **Predict:** let the core take 3 µs for a block, and each copy 1 µs. How long for six blocks?
# And the other way round, 3 µs for each copy and 1 µs to compute?

# %%
slow_copies = TOY.with_(name="toy with slow copies", beta=TOY.beta / 3)
_, axes = plt.subplots(2, figsize=(9, 4.6), layout="constrained")
for ax, name, t in ((axes[0], "slow core", pl.timeline(pipeline(6).schedule, TOY, step_seconds=3e-6)),
                    (axes[1], "slow copies", pl.timeline(pipeline(6).schedule, slow_copies))):
    title = f"{name}: {t.total * 1e6:g} µs, core busy {t.utilisation:.0%}"
    pl.plot_timeline(t, ax, limit=22e-6, title=title)
plt.show()

# %% [markdown]
# In both pictures one lane is full from its first block to its last: **the slowest stage sets the beat**. The others
# wait for it. So a pipeline is as long as its slowest stage for all blocks, and a little more at both ends.
#
# In the upper picture the DMA engines idle most of the time, and that is just as we want it: the core is full. In the
# lower picture it is the core that waits, and no plan could change that: the copies in alone take 18 µs. That pipeline
# is **bandwidth-bound**. It needs fewer bytes, as in chapter 1, or a faster memory.
#
# ### Exercise 2.4 · Time of a pipeline
# Give the time of a pipeline whose stages take different times.

# %% exercise="2.4"
def pipeline_time(blocks: int, times: list[float]) -> float:
    """µs for `blocks` ≥ 1 blocks, if stage s takes times[s] µs for each, and all overlaps that can.

    Every stage is an engine of its own, and a block may wait before it. The two pictures above:

    >>> pipeline_time(6, [1, 3, 1]), pipeline_time(6, [3, 1, 3])
    (20, 22)
    """
    ### BEGIN SOLUTION
    return sum(times) + (blocks - 1) * max(times)
    ### END SOLUTION

# %% check="2.4"
check("2.4", pipeline_time)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How long is the very first block on its way, from the start of its first stage to the end of its last?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# When the first block is through, how long until the next one is? Look at the end of each lane in the pictures: what
# is the distance between two blocks?
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# The sum of all times for the first block, then <code>max(times)</code> for each of the others.
# </details>

# %% [markdown]
# ## What is there to win?
#
# In turns, a block takes the sum of its stages. Overlapped, in the long run, it takes the largest. So a pipeline can
# win **sum / max**, and never more. And a real chip has one port to its HBM, so that copies in and copies out are one
# stage. Take such a machine, copies of 1 µs each way, and 60 blocks. **Predict:** for which time of the core is the
# gain largest, and how large?

# %%
one_port = TOY.with_(name="toy with one port", duplex=False)
for compute in 0.02, 0.2, 1.0, 2.0, 4.0, 20.0, 200.0:
    turns, overlapped = (pl.timeline(pipeline(60, slots).schedule, one_port, step_seconds=1e-6 * compute)
                         for slots in (1, 2))
    gain = turns.total / overlapped.total
    print(f"in and out 2 µs, compute {compute:6g} µs: gain {gain:.2f}  {'█' * round(20 * gain)}"
          f"  core busy {overlapped.utilisation:4.0%}")

# %% [markdown]
# At best a factor of two, where copying and computing take equally long. In the first and in the last row there is next
# to nothing to win, since **one stage dominates**: hide the small part, and the large part is still there. In the last
# row that is good news: the core is full even without a pipeline. In the first it is bad news, and that is where
# additions are. Here is x + 1 on 256 MiB, on a v5e, in blocks of 4 MiB and of 256 KiB. **Predict** the gains.

# %%
def add_on_v5e(rows, slots):
    x = jax.ShapeDtypeStruct((2**16, 1024), jnp.float32)
    spec = pl.BlockSpec((rows, 1024), lambda i: (i, 0), pipeline_mode=pl.Buffered(slots))
    grid = (2**16 // rows,)
    call = pl.pallas_call(add_one_kernel, out_shape=x, grid=grid, in_specs=[spec], out_specs=spec)
    return call.trace(x).timeline(TPU_V5E)


for rows in 1024, 64:
    turns, overlapped = add_on_v5e(rows, 1), add_on_v5e(rows, 2)
    port = turns.hbm_bytes["total"] / TPU_V5E.beta
    print(f"{rows * 4:4} KiB: in turns {turns.total * 1e6:6.0f} µs,"
          f" overlapped {overlapped.total * 1e6:5.0f} µs, gain {turns.total / overlapped.total:.1f}")
    print(f"          in turns, the core is busy {turns.busy / turns.total:.1%} of the time,"
          f" the port {port / turns.total:.0%};  sum / max = {turns.total / port:.1f}")

# %% [markdown]
# Large blocks: the core has next to nothing to hide, and little is won, as predicted. But small blocks win a lot! In
# turns, even the port is idle most of the time there. What takes the time is α, the way from HBM to SRAM: while a block
# travels, the next one could leave already. So overlap pays here, too: copies overlap *each other*. The rule still
# holds: α is part of the sum, but it occupies no engine, so it is not in the max. (Two slots let only so many blocks be
# on their way; with more of them the gain comes to sum / max.) Chapter 3 has a section on that, and chapter 7 a
# formula.
#
# ## When the dependence is real
#
# So far, no block needed another. Here is a loop in place, on eight rows: A[i + 1] = A[i] + 1. Each step reads what
# the step before has written to HBM. A starts as 0, 10, 20, … 70. **Predict** the result, in turns and overlapped.

# %%
rows = jnp.repeat(10.0 * jnp.arange(8), 10).reshape(8, 10)


def chain(slots):
    """A[i + 1] = A[i] + 1 for i = 0 … 6, in place: input and output are one array in HBM."""
    source, target = (pl.BlockSpec((1, 10), index_map, pipeline_mode=pl.Buffered(slots))
                      for index_map in (lambda i: (i, 0), lambda i: (i + 1, 0)))
    return pl.pallas_call(add_one_kernel, out_shape=rows, grid=(7,), in_specs=[source],
                          out_specs=target, input_output_aliases={0: 0}, on_hazard="ignore")


for slots in 1, 2:
    hazards = chain(slots).trace(rows).hazards
    first_column = np.asarray(chain(slots)(rows))[:, 0].astype(int)
    print("in turns:  " if slots == 1 else "overlapped:", first_column)
    print("  ", hazards[0] if hazards else "no hazard")

# %% [markdown]
# Overlapped, row i is fetched while row i − 1 is still being computed on: the *old* row i. The results are wrong, and
# the package says why: two copies meet at one place in HBM. (Such a meeting is called a **race**: which one comes first
# is a matter of luck.) As long as each step takes its input from where the step before has put its output, they must go
# in turns, and the time is the sum for every block. No number of slots can change that.
#
# Beware of the opposite mistake, too. A dependence costs nothing if it stays *within* the core: the core takes one step
# after the other anyway. So what a step hands to the next is best kept near the core, and not sent to HBM and back.
#
# ### Exercise 2.5 · Real or not
# Say of each loop whether its steps may overlap (copy the next block in, while this one is computed on and the one
# before goes out), or must go in turns. Take the loops as they are written: A and B lie in HBM, all other names are
# kept near the core.

# %%
def loop_a(A, B, N):
    for i in range(N):
        B[i] = A[i] * 2

def loop_b(A, B, N):
    for i in range(1, N):
        A[i] = A[i] + A[i - 1]

def loop_c(A, B, N):
    total = 0
    for i in range(N):
        total = total + A[i]
        B[i] = total

def loop_d(A, B, N):
    for i in range(1, N - 1):
        B[i] = A[i - 1] + A[i] + A[i + 1]

def loop_e(A, B, N):
    j = 0
    for i in range(N):
        B[i] = A[j] + 1
        j = int(B[i][0]) % N  # the next block to fetch

def loop_f(A, B, N):
    for i in range(N):
        A[i] = A[i] * A[i]

# %% exercise="2.5"
# verdicts = {"a": "overlap" or "in turns", "b": …, "c": …, "d": …, "e": …, "f": …}
### BEGIN SOLUTION
verdicts = {"a": "overlap", "b": "in turns", "c": "overlap",
            "d": "overlap", "e": "in turns", "f": "overlap"}
### END SOLUTION

# %% check="2.5"
check("2.5", verdicts)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Ask of each loop only this: to start copying the block of step i + 1, do I need something that step i has not sent to
# HBM yet, or not even computed?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Mark what is read from HBM, and what is written to HBM. Where no block is written before it is read, copies are free
# to run ahead. Which block comes next must be known, too.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Two of the six must go in turns. In one of them, the step before writes a block that this step reads. In the other,
# nobody knows which block to fetch until the core has computed it.
# </details>

# %% [markdown]
# You can put it to the test. In the class below a write arrives one step late, as if the next blocks had been fetched
# before. A loop that notices has a real dependence.

# %%
class Memory:
    """Blocks in HBM. If `late`, a write arrives with the next one; till then the old block is there."""

    def __init__(self, blocks, late):
        self.blocks, self.late, self.coming = list(blocks), late, []

    def __getitem__(self, i):
        return self.blocks[i]

    def __setitem__(self, i, block):
        self.arrive()
        self.coming = [(i, block)]
        if not self.late:
            self.arrive()

    def arrive(self):
        for i, block in self.coming:
            self.blocks[i] = block

# %%
def result(loop, late):
    A, B = (Memory(blocks, late) for blocks in np.random.default_rng(1).integers(1, 9, (2, 6, 2)))
    loop(A, B, 6)
    A.arrive()
    B.arrive()
    return A.blocks + B.blocks


if verdicts is ...:
    print("Your verdicts first; then run this cell again.")
else:
    for letter, loop in zip("abcdef", (loop_a, loop_b, loop_c, loop_d, loop_e, loop_f), strict=True):
        same = np.array_equal(result(loop, late=False), result(loop, late=True))
        print(letter, "gives the same when writes arrive late" if same else "gives something else")

# %% [markdown]
# ## How fine a cut?
#
# More blocks mean shorter bubbles at both ends. So let us cut as finely as possible? **Predict:** an array of 240 kB
# on a toy machine where a copy also travels for α = 2 µs. Into how many blocks would you cut it: 3, 30, or 300?

# %%
def cut(blocks, alpha=2e-6, kilobytes=240):
    """The timeline of x + 1 on an array in so many blocks, with two slots, on a toy machine with α."""
    x = jax.ShapeDtypeStruct((1000 * kilobytes,), jnp.int8)
    size = pl.cdiv(x.size, blocks)
    spec = pl.BlockSpec((size,), lambda i: (i,))
    grid = (pl.cdiv(x.size, size),)
    call = pl.pallas_call(add_one_kernel, out_shape=x, grid=grid, in_specs=[spec], out_specs=spec)
    return call.trace(x).timeline(TOY.with_(alpha=alpha))


for blocks in 1, 3, 10, 30, 100, 300:
    t = cut(blocks)
    µs = t.total * 1e6
    print(f"{blocks:3} blocks: {µs:5.0f} µs, core busy {t.utilisation:4.0%}  {'█' * round(µs / 12)}")

# %% [markdown]
# Too few blocks: long fill, long drain. Too many: each of them travels for α, and with two slots only so many can be on
# their way. In between there is a best cut.
#
# ### Exercise 2.6 · The best cut
# Find a number of blocks for your own array and your own α that is within 1 % of the best modelled time.

# %%
mine = personal("2.6", STUDENT)
alpha, kilobytes = mine.alpha, mine.kilobytes
print(f"{kilobytes} kB, α = {alpha * 1e6:g} µs")
print("The modelled time in seconds is cut(blocks, alpha, kilobytes).total")

# %% exercise="2.6"
# blocks = a whole number
### BEGIN SOLUTION
blocks = min(range(5, 120), key=lambda blocks: cut(blocks, alpha, kilobytes).total)
### END SOLUTION

# %% check="2.6"
check("2.6", blocks, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Let the model tell you. Print the time for a few numbers of blocks, coarse ones first.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Times fall first, then rise. Try 5, 10, 20, 40, 80; then look more closely around the smallest.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>min(range(…, …), key=lambda blocks: cut(blocks, alpha, kilobytes).total)</code> finds the best of all in a
# range.
# </details>

# %% [markdown]
# ## What you take along
#
# - Cut into blocks; then one block can come in while another is computed on and a third goes out.
# - N blocks through S equal stages take N + S − 1 time slots; the core is busy for N/(N + S − 1) of them. Bubbles are
#   the fill and the drain, and a long pipeline hides them.
# - With unequal stages the slowest sets the beat. We want that to be the core.
# - Overlap wins sum/max at best. It wins nothing where one stage dominates, where a step really needs the one before,
#   or where there is only one block.
#
# One thing we have taken for granted: that somebody starts each copy at the right moment, and waits for it at the right
# moment. In chapter 3 that somebody is you.

# %%
progress()
