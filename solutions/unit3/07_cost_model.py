# %% [markdown]
# # 7 · The cost model
#
# A pipeline can be right and still take twice as long as it should. What would you have to buy to mend that: a faster
# core, a faster memory, or something that no shop sells? Three numbers of the machine and three of the kernel tell,
# before anything runs.
#
# Here is chapter 3's pipeline, with two slots. It only reads: each block is copied in and added to a sum that stays
# in SRAM. This memory is far away: whatever leaves it arrives 3 µs later. Three kernels, twelve blocks each. In the
# third, a block takes 1 µs to leave the memory and 1 µs to add. **Predict before you run the cell:** how many µs for
# the third?

# %%
import itertools
import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import pallas_lite as pl
from autograder import check, personal, progress, say
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait
from pallas_lite.hardware import H100, TOY, TPU_V5E, TPU_V6E


def stream(N, A, X, Y, B):
    depth = len(X)
    for i in range(min(depth - 1, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        if i + depth - 1 < N:
            copy_in_start(A[i + depth - 1], X[(i + depth - 1) % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[0])


def in_time(n, alpha, copy, step, depth=2, loop=stream):
    """The timeline of n blocks. A copy leaves in `copy` µs, arrives `alpha` later; then `step` µs."""
    schedule = pl.record(loop, n, depth=depth, block_bytes=round(1000 * copy), flops=1000 * step)
    return pl.timeline(schedule, TOY.with_(alpha=alpha * 1e-6))

# %%
_, axes = plt.subplots(3, figsize=(9, 6), layout="constrained")
for ax, (copy, step) in zip(axes, [(1, 6), (6, 1), (1, 1)], strict=True):
    t = in_time(12, 3, copy, step)
    in_all = f"{t.total * 1e6:.4g} µs in all, core busy {t.utilisation:.0%}"
    pl.plot_timeline(t, ax, limit=80e-6, title=f"copy {copy} µs, step {step} µs: {in_all}")
plt.show()

# %% [markdown]
# Each picture has another culprit. In the first the core never rests, so only a faster core would help. In the second
# the memory never rests, so only a faster memory would. And in the third *both* are idle most of the time: twelve
# steps of 1 µs take 31. (Thin bars are the 3 µs on the way.) There a faster core and a faster memory would gain
# little.
#
# ## Three numbers of a machine, three of a kernel
#
# | machine | | kernel | |
# |---|---|---|---|
# | **latency** α | seconds from leaving the memory to arriving, at the least | N | steps |
# | **bandwidth** β | bytes a second between HBM and SRAM | X | bytes that a step moves |
# | **F** | operations a second of the core | Y | operations of a step |
#
# So a copy occupies the memory's port for X/β, and a step the core for Y/F. **Predict:** while a TPU v5e moves one
# byte, how many operations could it do? One, ten, a hundred?

# %%
print("              α          β         F, adds    F, matrix    while one byte moves")
for m in TPU_V5E, TPU_V6E, H100:
    adds, in_products = m.flops / m.beta, m.matmul_flops / m.beta
    print(f"{m.name:9} {m.alpha * 1e6:3.0f} µs {m.beta / 1e9:7.0f} GB/s {m.flops / 1e12:7.1f} T/s"
          f" {m.matmul_flops / 1e12:8.0f} T/s   {adds:5.1f} adds, or {in_products:.0f} in products")
print("α is our assumption; the other numbers have sources:", TPU_V5E.sources["beta"])

# %% [markdown]
# Memory is slower than the core, in products of matrices by orders of magnitude. So a kernel should do much with each
# byte. Whether it can depends on what it computes. **Predict:** a block becomes twice as wide and twice as high. Do
# the operations for each byte change, for an add, and for the product of two matrices?

# %%
def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def product_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] @ y_ref[...]


for kernel in add_kernel, product_kernel:
    for b in 64, 128, 256:
        block = jax.ShapeDtypeStruct((b, b), jnp.float32)
        s = pl.pallas_call(kernel, out_shape=block).trace(block, block).schedule
        X, Y = sum(operand.block_bytes for operand in s.operands), s.flops
        print(f"{s.name:15} {b:3} × {b:<3}", end="  ")
        print(f"Y = {Y:10,.0f} operations on X = {X:7,} bytes: {Y / X:6.2f} a byte")

# %% [markdown]
# For an elementwise kernel X and Y grow together, and no block size helps. In a product of matrices, operations grow
# with the cube of the side and bytes with the square; chapter 8 lives on that.
#
# ## Three bounds
#
# | the pipeline is | because | and takes |
# |---|---|---|
# | **compute-bound** | the core never rests, once the first block is there | (α + X/β) + N·Y/F |
# | **bandwidth-bound** | the port never rests: blocks leave one after the other | α + N·X/β |
# | **latency-bound** | both wait for slots, and `depth` round trips go at a time | N·(α + X/β + Y/F)/depth |
#
# Where the port is busy, α counts once: while one block travels, the next ones leave. A **round trip** is what takes
# up a slot: its block leaves, travels, and is used.
#
# Bandwidth-bound or latency-bound, both are called **memory-bound**. All three hold things up, so the *largest* wins.
# **Predict,** for the three kernels above: which is the largest, and how near is it to the picture?

# %%
N, alpha, depth = 12, 3, 2
print("copy step   compute  bandwidth  latency   simulated")
for copy, step in (1, 6), (6, 1), (1, 1):
    by_core, by_port = alpha + copy + N * step, alpha + N * copy
    by_slots = N * (alpha + copy + step) / depth
    simulated = in_time(N, alpha, copy, step).total * 1e6
    print(f"{copy:4} {step:4} {by_core:8} {by_port:10} {by_slots:10.1f} {simulated:10.1f}")

# %% [markdown]
# The first is hit exactly. The others are off by 1: keep an eye on that. A pipeline that ends compute-bound is what
# one usually wants: it means that nothing of the core is wasted. Bandwidth-bound means that the core has gaps, and no
# order of copies will fill them.
#
# ### Exercise 7.1 · Time and bound
# One kernel, three machines, all with two slots. These numbers are your own, drawn from your course id.

# %%
STUDENT = ""  # your course id

mine = personal("7.1", STUDENT)
print(f"N = {mine.N} steps, two slots, a step moves X = {mine.X / 1e3:g} kB", end=" ")
print(f"and does Y = {mine.Y / 1e6:g} million operations\n")
for name, m in ("A", mine.A), ("B", mine.B), ("C", mine.C):
    print(f"machine {name}:  α = {m['alpha'] * 1e6:2.0f} µs", end="   ")
    print(f"β = {m['beta'] / 1e9:5.1f} GB/s   F = {m['F'] / 1e9:4.0f} G operations/s")

# %% [markdown]
# Predict six things in a row: the time on A in **µs** and its bound (`"compute"`, `"bandwidth"` or `"latency"`), then
# the same for B and for C. Within 4 %, so a step more or less does not matter.

# %% exercise="7.1"
# prediction = µs on A, bound on A, µs on B, bound on B, µs on C, bound on C
### BEGIN SOLUTION
prediction = [answer for m in (mine.A, mine.B, mine.C)
              for answer in max((m["alpha"] + mine.X / m["beta"] + mine.N * mine.Y / m["F"], "compute"),
                                (m["alpha"] + mine.N * mine.X / m["beta"], "bandwidth"),
                                (mine.N * (m["alpha"] + mine.X / m["beta"] + mine.Y / m["F"]) / 2, "latency"))]
prediction = [1e6 * answer if isinstance(answer, float) else answer for answer in prediction]
### END SOLUTION

# %% check="7.1"
check("7.1", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# For each machine first work out three times of one step: α, X/β and Y/F, all in µs. (A kB at 1 GB/s takes 1 µs, and
# so do a thousand operations at 1 G/s.)
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Three formulas, take the largest; its name is the bound. In the third, a whole round trip of a slot is divided by
# the number of slots.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>c, s = X/β, Y/F</code>. Then the largest of <code>α + c + N·s</code>, <code>α + N·c</code> and
# <code>N·(α + c + s)/2</code>. Answers go like <code>prediction = 800, "compute", 1200, "latency", …</code>
# </details>

# %% [markdown]
# ## The term that the short formula omits
#
# For two of the three kernels of this page the largest bound was 1 µs too low. To see what is missing, take latency
# out of the game: give the pipeline as many slots as blocks. **Predict:** for a copy of 6 µs and a step of *4* µs, is
# it too low by 1 again, by 4, or by 6?

# %%
print("   N  copy  step   largest short formula    simulated")
for n, copy, step in [(12, 1, 6), (12, 6, 1), (12, 6, 4), (40, 6, 4), (12, 4, 4), (1, 6, 1)]:
    short = max(3 + copy + n * step, 3 + n * copy)
    t = in_time(n, 3, copy, step, depth=n)
    print(f"{n:4} {copy:5} {step:5} {short:20} {t.total * 1e6:14.1f}")

t = in_time(5, 3, 6, 4, depth=5)
_, ax = plt.subplots(figsize=(9, 2), layout="constrained")
pl.plot_timeline(t, ax, title=f"5 blocks, copy 6 µs, step 4 µs: {t.total * 1e6:g} µs")
plt.show()

# %% [markdown]
# ### Exercise 7.2 · The missing term
# Write the time that the simulation gives, exactly, for any N ≥ 1, if there are slots enough.

# %% exercise="7.2"
def stream_time(n: int, alpha: float, copy: float, step: float) -> float:
    """Modelled µs of `stream`, n ≥ 1 blocks, n slots: latency alpha, copy = X/β, step = Y/F, all in µs.

    >>> stream_time(12, 3, 1, 6)
    76
    """
    ### BEGIN SOLUTION
    return alpha + copy + (n - 1) * max(copy, step) + step
    ### END SOLUTION

# %% check="7.2"
check("7.2", stream_time)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Look at the right end of the picture. When the last block has arrived, is everything over?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Follow the very first block: it leaves, travels, is used. From then on another step ends every so often. How often?
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# One whole trip <code>alpha + copy + step</code>, and then n − 1 more steps, one every <code>max(…, …)</code> µs.
# </details>

# %% [markdown]
# One block's trip, then one step after the other at the pace of the slower part. The compute bound had the whole trip
# in it. The bandwidth bound forgets that the last block still has to be *used*: Y/F, once. Where N is large nobody
# will notice; with eight blocks you will.
#
# ## Slots against latency
#
# Back to the third kernel: 1 µs, 1 µs, and 3 µs on the way. **Predict:** with how many slots is the core busy all the
# time, but for fill?

# %%
print("slots   time     core busy   bound        SRAM for X")
for depth in range(1, 9):
    t = in_time(48, 3, 1, 1, depth)
    print(f"{depth:5} {t.total * 1e6:6.1f} µs {t.utilisation:9.0%}", end="   ")
    print(f"{t.bound:11} {depth * 1000:6,} bytes")

_, axes = plt.subplots(2, figsize=(9, 4), layout="constrained")
for ax, depth in zip(axes, (2, 5), strict=True):
    pl.plot_timeline(in_time(16, 3, 1, 1, depth), ax, limit=42e-6, title=f"{depth} slots")
plt.show()

# %% [markdown]
# Each slot more puts one more copy on the way, and each copy on the way hides a part of α. Five slots hide all of it;
# the sixth is SRAM for nothing. From there on the pipeline is bandwidth- or compute-bound, whichever comes first:
# more slots mend latency and *only* latency.
#
# ### Exercise 7.3 · The smallest depth that hides latency
# Give the smallest number of slots with which a long pipeline takes no longer than with slots enough.

# %% exercise="7.3"
def smallest_depth(alpha: int, copy: int, step: int) -> int:
    """The smallest depth at which latency does not hold `stream` up; alpha ≥ 0, copy, step ≥ 1, in ns.

    >>> smallest_depth(3000, 1000, 1000)
    5
    """
    ### BEGIN SOLUTION
    return math.ceil((alpha + copy + step) / max(copy, step))
    ### END SOLUTION

# %% check="7.3"
check("7.3", smallest_depth)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How long is one slot taken by one block, from the start of its copy until the kernel has used it? And how often does
# a step end, when nothing is held up?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Latency no longer holds up when round trip / depth ≤ the pace of the slower part. Solve for depth, and round up.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>math.ceil((… + … + …) / max(…, …))</code>
# </details>

# %% [markdown]
# Now everything is in place for *one* formula that is exact at any depth. With m = max(X/β, Y/F) and a round trip L =
# α + X/β + Y/F: the blocks go in rounds of `depth`; a new round begins every max(L, depth·m), and within the last
# round blocks follow at the pace m. A formula that claims to be exact should be tried where nobody chose the numbers:

# %%
def exact(n, alpha, copy, step, depth):
    m, trip = max(copy, step), alpha + copy + step
    rounds, rest = divmod(n - 1, depth)
    return rounds * max(trip, depth * m) + rest * m + trip


cases = list(itertools.product((1, 2, 7, 20), (0, 2, 5), (1, 3), (1, 2, 4), range(1, 7)))
worst = max(abs(exact(*case) - in_time(*case).total * 1e6) for case in cases)
print(f"{len(cases)} pipelines, largest difference from the simulation: {worst:.1e} µs")

# %% [markdown]
# ## How much must be on the way?
#
# Turn the same thought around. To keep the port busy, a new copy must leave whenever one has left, and for a time α
# none of them has arrived yet. So α·β bytes are on the way at any moment (**Little's law**), and all of them need a
# place in SRAM. **Predict:** what part of a v5e's 16 MiB is that?

# %%
for m in TPU_V5E, TPU_V6E:
    on_the_way, room = m.alpha * m.beta / 2**20, m.sram_bytes / 2**20
    print(f"{m.name}: α·β = {on_the_way:.2f} MiB of the {room:g} MiB of one kernel")

print("\nsquare blocks of an f32 add on the v5e: three operands, so X = 12·b² bytes")
for b in 128, 256, 512:
    alpha, copy, step = TPU_V5E.alpha, 12 * b * b / TPU_V5E.beta, b * b / TPU_V5E.flops
    need = math.ceil((alpha + copy + step) / max(copy, step))
    print(f"  b = {b}:  X/β = {copy * 1e6:.2f} µs, α = {alpha * 1e6:.0f} µs, so {need} slots")

# %% [markdown]
# A twentieth. A TPU has room for blocks so large that one of them on the way covers α, and *two* slots do. So two are
# all that Pallas offers in `pallas_call` on a TPU (its `emit_pipeline` takes more for inputs). A block of threads on
# an H100 has 227 KiB, its tiles are small, and the number of **stages** (slots) is yours to choose: in Triton with
# `CompilerParams`, in Mosaic GPU as a parameter of the pipeline emitter. Chapter 10 does that.
#
# ## The way out
#
# Until now nothing was copied out. Chapter 5's kernels send a block out at every step. **Predict:** what do outputs
# add to the compute-bound kernel (1 µs, 6 µs, α = 3 µs) on the toy machine, which has a port for each way?

# %%
def add_one_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def call_in_time(n, alpha, copy, step, depth=2):
    """As in_time, for a pallas_call that copies each block in and out."""
    x, cells = jax.ShapeDtypeStruct((n * 250 * copy,), jnp.float32), 250 * copy
    spec = pl.BlockSpec((cells,), lambda i: (i,), pipeline_mode=pl.Buffered(depth))
    cost = pl.CostEstimate(flops=n * 1000 * step)  # so the kernel takes as long as we say
    call = pl.pallas_call(add_one_kernel, x, grid=(n,), in_specs=[spec], out_specs=spec,
                          cost_estimate=cost)
    return call.trace(x).timeline(TOY.with_(alpha=alpha * 1e-6))


for name, t in ("inputs only", in_time(12, 3, 1, 6)), ("with outputs", call_in_time(12, 3, 1, 6)):
    fill, core, drain = (f"{seconds * 1e6:g}" for seconds in (t.fill, t.busy, t.drain))
    print(f"{name:13} {t.total * 1e6:5.1f} µs = {fill} fill + {core} core + {drain} drain")

# %% [markdown]
# The last result has to leave and to arrive: α + X_out/β more, at the end. A pipeline with outputs of the same size
# has its bubble *twice*: 2·(α + X/β) + N·Y/F. All other copies out hide behind the steps.
#
# Real machines have *one* port for both ways; for them, X is all the bytes of a step, in and out. And outputs can
# hold things up in ways that no bound knows. A timeline keeps account: `terms` are the three bounds, `excess` splits
# by cause what is above the largest of them. Here is a loop that has five slots of each and is impatient with its
# copies out. Again 1 µs, 1 µs, and 3 µs on the way, each way. **Predict:** how many µs does it need for 24 blocks?

# %%
def impatient(N, A, X, Y, B):
    depth = len(X)
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        copy_out_wait(Y[i % depth])


def account(name, t):
    print(f"{name}: {t.total * 1e6:.1f} µs, {t.bound}-bound")
    for kind, parts in ("lower bounds", t.terms), ("above them", t.excess):
        print(f"  {kind:13}", ", ".join(f"{k} {v * 1e6:.1f}" for k, v in parts.items() if v > 1e-12))


account("impatient", in_time(24, 3, 1, 1, 5, impatient))
account("pallas_call, the same slots and blocks", call_in_time(24, 3, 1, 1, 5))

# %% [markdown]
# Each step waits 4 µs for its copy out: the last of these waits is the `last trip`, the others are `wait-out` and
# `order` together. Why are they shared out? The account says what you would *win* if a cause were gone. Without the
# waits (`wait-out`) much is won, but not all: the fetches still start later than the slots would allow (`order`).
#
# A loop that is bound by its own waits is bound by no machine: it is *written* too slow.
#
# ### Exercise 7.4 · Five slots and none the faster
# `impatient` is right with two slots or more, and slow for two reasons. Mend it, so that it takes no longer than
# `pallas_call` for any N and any depth (1 included). When the first reason is gone, the account names the second.

# %% exercise="7.4"
def patient(N, A, X, Y, B):
    """What `impatient` computes, as fast as depth = len(X) = len(Y) slots allow. N ≥ 0, depth ≥ 1."""
    ### BEGIN SOLUTION
    depth = len(X)
    for i in range(min(depth - 1, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        if i + depth - 1 < N:
            copy_in_start(A[i + depth - 1], X[(i + depth - 1) % depth])
        copy_in_wait(X[i % depth])
        if i >= depth:
            copy_out_wait(Y[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
    for i in range(max(0, N - depth), N):
        copy_out_wait(Y[i % depth])
    ### END SOLUTION

# %% check="7.4"
check("7.4", patient)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Two lines come too soon or too late. Which wait could come a whole round of slots later? And how far ahead of the
# step do the fetches run, and how far could they?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Fetches: as in <code>stream</code>, at the top of this page. Copies out: step i fills Y[i % depth], and the last one
# to use that slot was step i − depth. Only that copy must be over, just before the kernel runs. What is left is
# waited for after the loop.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Start from <code>stream</code>. Before <code>compute(X[i % depth], Y[i % depth])</code> put <code>if i >= …:
# copy_out_wait(…)</code>, after it the start. Epilogue: <code>for i in range(max(0, N - depth), N):</code>
# </details>

# %%
try:
    account("patient", in_time(24, 3, 1, 1, 5, patient))
except NotImplementedError:
    print("Once patient is written, this shows its account.")

# %% [markdown]
# ## Block size and depth at once
#
# Two knobs hide latency: larger blocks and more slots. Both cost SRAM. **Predict,** for an f32 add on a v5e: with
# four slots, will blocks of 128 × 128 be as fast as blocks of 512 × 512 with two?

# %%
def squares(kernel, b, depth, n=2048):
    x = jax.ShapeDtypeStruct((n, n), jnp.float32)
    spec = pl.BlockSpec((b, b), lambda i, j: (i, j), pipeline_mode=pl.Buffered(depth))
    call = pl.pallas_call(kernel, x, grid=(n // b, n // b), in_specs=[spec, spec], out_specs=spec)
    return call.trace(x, x)


sizes = 128, 256, 512, 1024
_, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
timelines = {depth: {b: squares(add_kernel, b, depth).timeline(TPU_V5E) for b in sizes}
             for depth in (1, 2, 3, 4)}
pl.plot_sweep(timelines, ax, xlabel="b, for blocks of b × b",
              title="x + y of f32[2048, 2048] on a TPU v5e, modelled")
plt.show()

# %% [markdown]
# No: the list above asked for six slots of that size. Read the picture from left to right: a line falls with its
# dotted latency bound until it meets the dashed bandwidth bound, and there it stays. More slots meet it earlier. The
# line of one slot runs well above its bound: each step waits for its own copy out, too, and no bound counts that (in
# the account: `wait-out`). Below the dashed line no tuning leads, and the hollow points do not fit.
#
# Now Horner's rule from chapter 5: 90 operations for each element, so that core and port are nearly in balance. There
# is a best size *in the middle* now, since a large block makes a long bubble: at both ends a whole block is moved
# while the core rests. (In its account, `port queue` is the time that copies in lose behind copies out, in the one
# port of the v5e.)
#
# ### Exercise 7.5 · Hit the target
# Find block height, block width and depth for `horner_kernel` on f32[2048, 2048], so that it takes at most **66 µs**
# (modelled) on a v5e and fits into its 16 MiB. A TPU wants heights in multiples of 8, widths in multiples of 128; here
# both divide 2048, too, so that no block sticks out.

# %%
def horner_kernel(x_ref, y_ref, o_ref):
    x, y = x_ref[...], y_ref[...]
    value = y
    for _ in range(45):
        value = value * x + y
    o_ref[...] = value


t = squares(horner_kernel, 512, 2).timeline(TPU_V5E)
account("horner_kernel, 512 × 512, two slots", t)
print(f"  {t.sram_bytes / 2**20:g} MiB of SRAM")

# %% exercise="7.5"
# choice = block height, block width, depth
### BEGIN SOLUTION
choice = 256, 256, 4
### END SOLUTION

# %% check="7.5"
check("7.5", choice)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# What does the account of 512 × 512 name above its bounds: what would smaller blocks do to that? And what do smaller
# blocks do to the latency bound?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Sweep: <code>for b in …: for depth in …: t = squares(horner_kernel, b, depth).timeline(TPU_V5E)</code>, and print
# t.total, t.bound and t.sram_bytes. Or draw it with <code>pl.plot_sweep</code>.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# With 256 × 256, two slots are latency-bound. What about more of them?
# </details>

# %% [markdown]
# ## Do more slots make larger bubbles?
#
# "The bubbles grow with the number of pipeline stages", it is often said, and you saw it in chapter 2: N blocks
# through S equal stages take N + S − 1 time slots. **Predict:** so what happens to fill when we give the third kernel
# more slots?

# %%
print("more slots, same latency:")
for depth in 2, 3, 5, 8:
    t = in_time(48, 3, 1, 1, depth)
    fill, in_all = t.fill * 1e6, t.total * 1e6
    print(f"  α = 3 µs, {depth} slots: fill {fill:.0f} µs, {in_all:.0f} µs in all")

print("as many slots as the latency needs:")
for latency in 0, 1, 3, 6:
    depth = math.ceil((latency + 1 + 1) / max(1, 1))
    t = in_time(48, latency, 1, 1, depth)
    fill, in_all = t.fill * 1e6, t.total * 1e6
    print(f"  α = {latency} µs, {depth} slots: fill {fill:.0f} µs, {in_all:.0f} µs in all")

# %% [markdown]
# Nothing happens. Fill is α + X/β, whatever the number of slots: a slot is room, not a stage to pass through. But
# look at the second table: there, fill is depth − 1, just as in chapter 2. Each µs on the way is like one more stage,
# and it costs a slot to hide *and* a µs of fill. So the sentence holds for a pipeline that is built *just deep
# enough*; and the cause of its bubbles is the latency, not the slots.
#
# What the sentence warns of is true in any case: a pipeline should be long. **Predict:** from how many blocks on is
# the core busy for 90 % of the time?

# %%
for n in 4, 12, 36, 48, 108:
    t = in_time(n, 3, 1, 1, 5)
    print(f"{n:4} blocks, 5 slots: {t.total * 1e6:5.0f} µs, core busy {t.utilisation:.0%}")

# %% [markdown]
# ### Exercise 7.6 · Is it worth more slots?
# A kernel like `stream` has two slots; you may buy more. The numbers are your own.

# %%
offer = personal("7.6", STUDENT)
print(f"N = {offer.N} blocks of {offer.kib} KiB", end="   ")
print(f"α = {offer.alpha} µs   X/β = {offer.copy} µs   Y/F = {offer.step} µs")

# %% [markdown]
# Predict four numbers: the modelled **µs** with 2, with 4 and with 8 slots (within 4 %), and the **KiB** of SRAM of
# the smallest number of slots that is as fast as 8.

# %% exercise="7.6"
# prediction = µs with 2 slots, µs with 4, µs with 8, KiB of the smallest depth that is as fast as 8
### BEGIN SOLUTION
prediction = [offer.N * max((offer.alpha + offer.copy + offer.step) / depth, offer.copy, offer.step)
              for depth in (2, 4, 8)]
slots = math.ceil((offer.alpha + offer.copy + offer.step) / max(offer.copy, offer.step))
prediction += [offer.kib * slots]
### END SOLUTION

# %% check="7.6"
check("7.6", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# With few slots the time is the latency bound. How long can it go on falling with 1/depth?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# For each depth take the largest of the three bounds. The smallest depth that hides latency: exercise 7.3. SRAM:
# slots times the bytes of a block.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>N · max((α + copy + step) / depth, copy, step)</code> for each depth; then
# <code>math.ceil((α + copy + step) / max(copy, step))</code> slots of a block each.
# </details>

# %% [markdown]
# ## A real call
#
# All of this stands in one printout, for any kernel and any machine. **Predict,** for the add with two slots: what is
# it bound by in blocks of 128 × 128, and what in blocks of 512 × 512?

# %%
for b in 128, 512:
    say(f"b = {b}:", squares(add_kernel, b, 2).timeline(TPU_V5E))

# %% [markdown]
# The small blocks are held up by latency, and by what comes with it: while the core waits for a copy out, it starts no
# fetch. The large ones are almost at the bandwidth bound, and nothing is left to win.
#
# ## What you take along
#
# - A machine is α, β and F; a kernel is N, X and Y. The largest of three bounds decides: N·Y/F, N·X/β, N·(α + X/β +
#   Y/F)/depth, and each names what would help: the core, the memory, more slots (or larger blocks).
# - Bubbles come on top: α + X/β at the start, α + X_out/β at the end. They do not grow with N, so make N large. They
#   grow with the block, so do not make it larger than it need be.
# - Slots hide latency and nothing else. ⌈(α + X/β + Y/F) / max(X/β, Y/F)⌉ are enough.
# - What is above the bounds has a cause, and `excess` names it.
#
# For an add, all tuning ends at the bandwidth bound, since X and Y grow together. The product of two matrices can do
# better: there the block decides how much is computed with each byte. That is chapter 8.

# %%
progress()
