# %% [markdown]
# # 1 · The memory hierarchy
#
# Here are sixteen million additions, done twice by the computer in front of you. First on arrays of 65 536 numbers,
# over and over; then on arrays that are 256 times as long, once. The same additions, by the same code.
#
# **Predict before you run the cell** (Shift+Enter runs it): how many times as long do the long arrays take?

# %%
import math
import time
from bisect import bisect_left

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pallas_lite as pl
from autograder import check, personal, progress
from pallas_lite.hardware import H100, TPU_V5E, TPU_V5P


def ns_per_add(n, adds=2**24):
    """Measured, not modelled: nanoseconds for one addition in arrays of n numbers, the best of three."""
    x, y, result = np.random.default_rng(0).random((3, n), np.float32)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(adds // n):
            np.add(x, y, out=result)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / adds * 1e9


short, long = ns_per_add(2**16), ns_per_add(2**24)
print(f"short arrays: {short:.3f} ns an addition")
print(f"long arrays:  {long:.3f} ns an addition, {long / short:.1f} times as long")

# %% [markdown]
# An addition is an addition; it does not get harder in a long array. What differs is where the numbers come from.
#
# **Predict:** make the arrays longer step by step. Do the additions become slower bit by bit, as on a slope, or all of
# a sudden, as on stairs?

# %%
times = {2**exponent: ns_per_add(2**exponent) for exponent in (14, 16, 18, 20, 22, 24)}
for n, ns in times.items():
    bar = "█" * round(40 * ns / max(times.values()))
    print(f"{3 * 4 * n / 2**20:8.3f} MiB in three arrays  {ns:6.3f} ns  {bar}")

# %% [markdown]
# On most computers you see a stair. (On a busy one, run the cell again.) As long as all three arrays fit into a small,
# fast memory beside the processor, an addition is quick. As soon as they do not, each number must come from a large,
# distant memory, and the processor, quick as it is, stands and waits.
#
# This course is about that wait. You will learn to hide it, on machines where it is far worse than on yours.
#
# ## Four kinds of memory
#
# An **accelerator** (a GPU or a TPU) has the same stairs, and there you program them yourself:
#
# - **Registers** lie inside the **core**, the part that computes. It computes on values in registers, and on nothing
#   else.
# - **SRAM** lies beside it: small and fast. On a TPU it is called VMEM; on a GPU, shared memory and the caches L1, L2.
# - **HBM**, a kind of **DRAM**, is the large memory of the chip, in which your arrays live.
# - The **network** leads to the HBM of other chips, when one is not enough. It comes back in chapter 11.
#
# Each is larger than the one before, and farther away: as a rule of thumb, reaching into it takes ten times as long.

# %%
print("If reaching into a register took one second:")
for step, memory in enumerate(("registers", "SRAM", "HBM")):
    print(f"  {memory:9} {10**step:4} s  {'█' * 10**step if step < 2 else '█' * 70 + ' …'}")

MB, GB = 1e6, 1e9
chips = {"TPU v5p": (96 * MB, 95 * GB),  # SRAM: the Pallas tutorial; HBM: Google Cloud, "TPU v5p"
         # 132 shared memories, one L2: NVIDIA, H100 data sheet and tuning guide
         "H100 SXM": (132 * H100.physical_sram_bytes + 50 * MB, 80 * GB)}
print()
for name, (sram, hbm) in chips.items():
    print(f"{name:8}  SRAM {sram / MB:3.0f} MB   HBM {hbm / GB:3.0f} GB, {hbm / sram:4.0f} × as large")
shared = 132 * H100.physical_sram_bytes
print(f"\nshared memory of the H100, most of its L1: {shared / MB:.0f} MB of those")
print("VMEM of the v5p, by another source:", TPU_V5P.sources["physical_sram_bytes"].partition(";")[0])

# %% [markdown]
# Tens of megabytes near, tens of *gigabytes* far. That holds for all accelerators of today: 10 to 100 MB of SRAM, 10 to
# 100 GB of HBM. (Sources do not always agree on a number. Where they do not, we say so.)
#
# ## Five steps to one addition
#
# What does it take to add two arrays that live in HBM?
#
# 1. copy x and y from HBM into SRAM;
# 2. load them from SRAM into registers;
# 3. compute, in registers;
# 4. store the result from registers into SRAM;
# 5. copy it from SRAM back to HBM.
#
# Steps 2 to 4 are a **kernel**: a function that runs on the core. Its arguments are **refs**, places in SRAM. What it
# loads from a ref is a value in registers, and works like any JAX array. The other two steps are done for you by
# `pallas_call`, which also makes room in SRAM for x, y and z. Here is an add of two arrays of 512 × 512 numbers on a
# TPU v5e. **Predict:** in what part of the time does the core add?

# %%
def add_kernel(x_ref, y_ref, z_ref):
    x = x_ref[...]  # step 2: from SRAM into registers
    y = y_ref[...]
    z = x + y  # step 3: compute
    z_ref[...] = z  # step 4: from registers into SRAM


x = jax.random.uniform(jax.random.key(0), (512, 512))
y = jax.random.uniform(jax.random.key(1), (512, 512))
once = pl.BlockSpec(pipeline_mode=pl.Buffered(1))  # the whole array, with one place for it in SRAM
add = pl.pallas_call(add_kernel, out_shape=x, in_specs=[once, once], out_specs=once)  # steps 1 and 5

t = add.trace(x, y).timeline(TPU_V5E)
_, ax = plt.subplots(figsize=(9, 2.4), layout="constrained")
title = f"x + y on a v5e: {t.total * 1e6:.2f} µs, and the core is busy {t.utilisation:.1%}"
pl.plot_timeline(t, ax, title=title)
plt.show()

# %% [markdown]
# Look for the addition! It is the hairline in the lane of the core. All the rest of its time the core waits (hatched)
# for copies. They are made by **DMA** engines, machines beside the core that do nothing but copy: steps 1 and 5. The
# colours, four in turn, tell blocks apart: each is one **visit** of a block, from its way in to its way out.
#
# The picture is *modelled*: nothing has run on a TPU. The model has three numbers, and they will stay with you:
#
# - **α**, the **latency**: how long a byte travels from one memory to the other (the thin bars after copies);
# - **β**, the **bandwidth**: how many bytes a second leave the HBM;
# - **F**: how many operations a second the core can do.
#
# X bytes leave in X/β and arrive α later; Y operations take Y/F. `pallas_lite/hardware.py` has the numbers of each
# machine and where they are from. To run the kernel, call it. Every value is as it should be:

# %%
print("right:", bool((add(x, y) == x + y).all()))
print(f"v5e: α = {TPU_V5E.alpha * 1e6:g} µs ({TPU_V5E.sources['alpha']}),"
      f"  β = {TPU_V5E.beta / 1e9:g} GB/s,  F = {TPU_V5E.flops / 1e12:g} · 10¹² operations/s")

# %% [markdown]
# Perhaps the core of a v5e is just too slow, or waits too long for its first bytes? Take a huge array, so that α does
# not matter, and an H100. Its F is eleven times as large. **Predict:** is its core busier with an add, or less busy?

# %%
n = 2**28  # numbers in each array, four bytes each
for machine in TPU_V5E, H100:
    copying, adding = 3 * 4 * n / machine.beta, n / machine.flops
    print(f"{machine.name:8}  F = {machine.flops / 1e12:4g} · 10¹²   copying {copying * 1e3:6.3f} ms"
          f"   adding {adding * 1e3:6.3f} ms: {adding / copying:.1%} of that")

# %% [markdown]
# The faster core is busy for a still *smaller* part of the time. Its F grew eleven times, its β four times, so it waits
# more. That has been the way of hardware for decades: computing gains speed faster than memory does. So count bytes
# first.
#
# ### Exercise 1.1 · Count the bytes
# Say how many bytes an array takes: any shape, any dtype.

# %% exercise="1.1"
def array_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array. `dtype` is a name such as "float32", "bfloat16" or "int8".

    jnp.dtype(dtype) knows how large one number is.

    >>> array_bytes((2, 3), "bfloat16")
    12
    """
    ### BEGIN SOLUTION
    return math.prod(shape) * jnp.dtype(dtype).itemsize
    ### END SOLUTION

# %% check="1.1"
check("1.1", array_bytes)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How many elements does an array of 2 × 3 × 4 have? And one of shape <code>()</code>, a single number?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Bytes = number of elements × bytes of one element. For the first, <code>math.prod</code> multiplies all numbers of a
# tuple; for the second, look at <code>jnp.dtype("float32").itemsize</code>.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>return math.prod(…) * jnp.dtype(…).itemsize</code>
# </details>

# %% [markdown]
# ## What fits
#
# So SRAM is fast. Why not put everything there? Not all the SRAM of a chip is yours, either. One run of a kernel may
# use 16 MiB on a v5e (its compiler's limit), and 227 KiB on an H100, where many small cores work side by side.
# **Predict:** can the v5e add two arrays of 2048 × 2048?

# %%
def whole_add(n):
    """What add_kernel would do on n × n float32, taken whole: nothing runs, so a shape is enough."""
    a = jax.ShapeDtypeStruct((n, n), jnp.float32)
    return pl.pallas_call(add_kernel, out_shape=a, in_specs=[once, once], out_specs=once).trace(a, a)


print(whole_add(2048).timeline(TPU_V5E).hazards[0].message)

# %% [markdown]
# One such array is 16 MiB, so it fills the SRAM all by itself, and an add needs room for three. An array of that size
# is nothing special; in a language model it would be a small one.
#
# ### Exercise 1.2 · The largest square
# Say how large n may be, so that an add of whole n × n arrays fits into a given SRAM.

# %% exercise="1.2"
def largest_square_add(sram_bytes: int) -> int:
    """The largest n for which x, y and z, each float32[n, n], fit into `sram_bytes` bytes together.

    >>> largest_square_add(1200)
    10
    """
    ### BEGIN SOLUTION
    return math.isqrt(sram_bytes // 12)
    ### END SOLUTION

# %% check="1.2"
check("1.2", largest_square_add)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How many bytes do all three arrays take together, for a given n? You want the largest n that keeps this at or below
# <code>sram_bytes</code>.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Solve 3 · n² · (bytes of a float32) ≤ sram_bytes for n. n is a whole number; rounding up would be too large.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>math.isqrt(k)</code> is the square root of k, rounded down. What is k? <code>sram_bytes // …</code>
# </details>

# %% [markdown]
# Let the package find the limit by trying. **Predict:** on which of the two machines may the arrays be larger, and by
# how much?

# %%
for machine in TPU_V5E, H100:
    def too_large(n, machine=machine):
        return bool(whole_add(n).timeline(machine).hazards)

    n = bisect_left(range(4096), True, key=too_large) - 1
    print(f"{machine.name:8}  {machine.sram_bytes / 1024:6g} KiB: at most {n} × {n}"
          f"   ({n + 1} × {n + 1} would be over by {12 * (n + 1)**2 - machine.sram_bytes:,} bytes)")

# %% [markdown]
# Neither gets far, so the arrays must be cut into pieces that fit, and the pieces copied in and out one by one. How to
# do that without waiting for each of them is the theme of the next chapters. First: how much time is there to win?
#
# ## Where does the time go?
#
# Two numbers tell: the **bytes** X that a kernel moves between HBM and SRAM, and the **operations** Y that it does.
# Moving takes at least X/β, computing at least Y/F, and the longer of the two is a bound that no programming beats.
# Which one is longer depends on
#
# > **intensity** = Y / X, operations for each byte moved.
#
# For an add of float32 it is one operation for twelve bytes. A matrix product is different. **Predict:** by what factor
# does its intensity grow, if n doubles? And that of the add?

# %%
def matmul_kernel(x_ref, y_ref, z_ref):
    z_ref[...] = jnp.dot(x_ref[...], y_ref[...])


def matmul(n):
    a = jax.ShapeDtypeStruct((n, n), jnp.bfloat16)
    return pl.pallas_call(matmul_kernel, out_shape=a, in_specs=[once, once], out_specs=once).trace(a, a)


for n in 128, 256, 512, 1024, 2048:
    a, m = whole_add(n).schedule, matmul(n).schedule
    print(f"n = {n:4}   add: {a.flops:.1e} / {a.hbm_bytes['total']:.1e} bytes = {a.intensity:.3f}"
          f"   matmul: {m.flops:.1e} / {m.hbm_bytes['total']:.1e} bytes = {m.intensity:5.1f}")

# %% [markdown]
# In an add, operations and bytes both grow with n², so a larger array changes nothing. In a product of matrices the
# bytes grow with n² and the operations with n³: each number that was brought into SRAM is used n times.
#
# ### Exercise 1.3 · Intensity
# Predict the intensity of two kernels of your own, drawn from your course id (leave it empty if you have none). A
# multiplication is one operation, an addition another.

# %%
STUDENT = ""  # your course id

mine = personal("1.3", STUDENT)
terms, dtype, size, m, k, n = mine.terms, mine.dtype, mine.size, mine.m, mine.k, mine.n
print(f"""A: x, y and z are {dtype}[1000, 1000], {size} bytes a number. For each element:
       z = y
       for _ in range({terms}):
           z = z * x + y

B: z = x @ y in bfloat16, 2 bytes a number, with x: [{m}, {k}], y: [{k}, {n}], z: [{m}, {n}]""")

# %% [markdown]
# Each array is moved once between HBM and SRAM. Give two numbers, in operations per byte, within 1 %; numbers or
# formulas, as you like: terms, size, m, k and n are set.

# %% exercise="1.3"
# prediction = intensity of A, intensity of B
### BEGIN SOLUTION
prediction = 2 * terms / (3 * size), 2 * m * k * n / (2 * (m * k + k * n + m * n))
### END SOLUTION

# %% check="1.3"
check("1.3", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# For A, think of one element of z: how many operations make it, and how many numbers are moved for it? Does z stay in
# SRAM for ever?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# A: two operations each time round the loop; x and y are copied in, z is copied out. B: each of the m · n results is a
# sum of k products, so k multiplications and k additions.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# A: <code>2 * terms / (… * size)</code>. B: <code>2 * m * k * n</code> operations, over
# <code>2 * (m * k + … + …)</code> bytes.
# </details>

# %% [markdown]
# Now let the package count. It traces both kernels, and finds the operations and the bytes by itself:

# %%
def polynomial_kernel(x_ref, y_ref, z_ref):
    z = y_ref[...]
    for _ in range(terms):
        z = z * x_ref[...] + y_ref[...]
    z_ref[...] = z


kernels = {"A": (polynomial_kernel, dtype, [(1000, 1000)] * 3),
           "B": (matmul_kernel, "bfloat16", [(m, k), (k, n), (m, n)])}
if prediction is ...:
    kernels = {}
    print("Once you have a prediction in exercise 1.3, run this cell again.")

for name, (kernel, dtype_of, shapes) in kernels.items():
    *inputs, out = (jax.ShapeDtypeStruct(shape, dtype_of) for shape in shapes)
    call = pl.pallas_call(kernel, out_shape=out, in_specs=[once, once], out_specs=once)
    s = call.trace(*inputs).schedule
    print(f"{name}: {s.flops:.3g} operations / {s.hbm_bytes['total']:.3g} bytes = {s.intensity:.4g}")

# %% [markdown]
# More terms, more intensity: a **polynomial** such as A does all its work on numbers that are in the core already. An
# add has nothing more to do with its numbers, once they are there.
#
# ## The roofline
#
# A kernel with intensity I gets β bytes a second, so it does at most I · β operations a second, and never more than F.
# Drawn over the intensity, that is a slope and then a flat roof: the **roofline** of a machine. A chip has more than
# one F: its **matrix unit** does only products of matrices, but those much faster than the **vector unit** does the
# rest.
#
# **Predict before you look:** from which n on is a product of n × n limited by F, and no longer by β? (The polynomial
# in the picture is like A above, in float32 and with 45 terms.)

# %%
polynomial = 2 * 45 / 12  # operations per byte
kernels = {"x + y": whole_add(512).schedule, "polynomial": polynomial,
           **{f"matmul {n}": matmul(n).schedule for n in (128, 512, 2048)}}
_, axes = plt.subplots(2, figsize=(9, 7.2), layout="constrained")
for machine, ax in zip((TPU_V5E, H100), axes, strict=True):
    pl.plot_roofline(machine, kernels, ax)
    corner = machine.matmul_flops / machine.beta
    print(f"{machine.name}: corner of the matrix unit at {corner:.0f} operations per byte,"
          f" so n = {3 * corner:.0f}")
plt.show()

# %% [markdown]
# In bfloat16 a product of n × n has the intensity 2n³ / (3 · 2n²) = n/3, so it takes matrices of many hundreds to be
# limited by F.
#
# The dot of a kernel is on the roof: it shows the *most* that the kernel can do. Left of its unit's corner a kernel is
# **memory-bound**: fewer bytes make it faster, a faster core does not. Right of it, it is **compute-bound**, and that
# is where you want to be, since there you use all that the core can do. The number below a corner is the intensity
# F/β that it takes. (Mind the axes, they are logarithmic: the add is not a little below F, it is two powers of ten
# below.)
#
# ### Exercise 1.4 · What a kernel can reach
# Another kernel of your own, in float32 on the vector unit. Say how many percent of F it can reach at best, and how
# much work would be enough to be compute-bound. All within 1 %: 1.25 is not 1.2.

# %%
mine = personal("1.4", STUDENT)
arrays, operations = mine.arrays, mine.operations
print(f"The kernel moves {arrays} arrays of float32 ({arrays - 1} in, 1 out),"
      f" and does {operations} operations for each element.\n"
      f"v5e:  β = {TPU_V5E.beta:g} bytes/s, F = {TPU_V5E.flops:g} operations/s (vector unit)\n"
      f"H100: β = {H100.beta:g} bytes/s, F = {H100.flops:g} operations/s (vector unit)")

# %% exercise="1.4"
# prediction = percent of F on v5e, percent of F on H100, and
#              how many operations per element would make it compute-bound on v5e
### BEGIN SOLUTION
prediction = (100 * operations / (4 * arrays) * TPU_V5E.beta / TPU_V5E.flops,
              100 * operations / (4 * arrays) * H100.beta / H100.flops,
              4 * arrays * TPU_V5E.flops / TPU_V5E.beta)
### END SOLUTION

# %% check="1.4"
check("1.4", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# You are on the slope. How many operations a second does it allow at your kernel's intensity? And F is how many?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The part is I · β / F, times 100 for percent. The corner is where I · β = F; there, how many operations belong to the
# bytes of one element?
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# I is <code>operations / (4 * arrays)</code>; the corner has I = F/β. Turn that into operations: multiply by the bytes
# of one element, <code>4 * arrays</code>.
# </details>

# %% [markdown]
# Read it off the roof, with an add beside it:

# %%
if prediction is ...:
    print("Once you have a prediction in exercise 1.4, run this cell again.")
else:
    own = {"x + y": 1 / 12, "your kernel": operations / (4 * arrays)}
    for machine in TPU_V5E, H100:
        for name, intensity in own.items():
            part = min(1, intensity * machine.beta / machine.flops)
            print(f"{machine.name:8}  {name:11}  {part:6.2%} of F")
        enough = 4 * arrays * machine.flops / machine.beta
        print(f"          with {enough:.1f} operations for each element yours would be compute-bound")
    _, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
    pl.plot_roofline(TPU_V5E, own, ax)
    plt.show()

# %% [markdown]
# ## Move less
#
# A kernel on the slope has one remedy: more operations for each byte. Here is max(x · y + z, 0), three operations,
# written as one usually writes it: one array operation after the other. **Predict:** how many arrays are moved
# between HBM and SRAM in all?

# %%
def call(kernel, *operands):
    """A kernel on whole operands, with one output like the first of them."""
    return pl.pallas_call(kernel, out_shape=operands[0], in_specs=[once] * len(operands), out_specs=once)


def multiply_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] * y_ref[...]


def relu_kernel(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0)


z = jax.random.normal(jax.random.key(2), (512, 512))
steps = {"product = x * y": call(multiply_kernel, x, y).trace(x, y),
         "sum = product + z": call(add_kernel, x, z).trace(x, z),
         "maximum(sum, 0)": call(relu_kernel, x).trace(x)}
for name, trace in steps.items():
    print(f"{name:18} moves {trace.schedule.hbm_bytes['total'] // x.nbytes} arrays,"
          f" {trace.timeline(TPU_V5E).total * 1e6:.2f} µs modelled")
print(f"in all: {sum(t.schedule.hbm_bytes['total'] for t in steps.values()) // x.nbytes} arrays,"
      f" {sum(t.timeline(TPU_V5E).total for t in steps.values()) * 1e6:.2f} µs")

# %% [markdown]
# Each step sends its result all the way to HBM, only for the next one to fetch it again.
#
# ### Exercise 1.5 · One call
# Compute max(x · y + z, 0) in one call that moves four arrays. Write the kernel, too.

# %% exercise="1.5"
def fused(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """max(x * y + z, 0) for three arrays of one shape: one pallas_call, each array moved once.

    pl.pallas_call(kernel, out_shape=x) makes a function; without specs, each operand is one block.
    The kernel gets a ref of each operand, in their order, and the output's ref last.
    """
    ### BEGIN SOLUTION
    def kernel(x_ref, y_ref, z_ref, o_ref):
        o_ref[...] = jnp.maximum(x_ref[...] * y_ref[...] + z_ref[...], 0)

    return pl.pallas_call(kernel, out_shape=x)(x, y, z)
    ### END SOLUTION

# %% check="1.5"
check("1.5", fused)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# A kernel may compute as much as it likes between its loads and its store. How many refs does it need?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Inputs first, then the output: <code>def kernel(x_ref, y_ref, z_ref, o_ref)</code>. What you load from a ref is a JAX
# value, so <code>jnp.maximum</code> works on it.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# One line in the kernel: <code>o_ref[...] = jnp.maximum(… * … + …, 0)</code>. Then
# <code>return pl.pallas_call(kernel, out_shape=x)(x, y, z)</code>.
# </details>

# %% [markdown]
# What is it worth? Here is a sister of it in one call, min(x · y − z, 1), which moves as much and computes as much.
# Given a timeline, the roofline draws a kernel where it *is*, modelled, with a line up to where it could be at best.

# %%
def sister_kernel(x_ref, y_ref, z_ref, o_ref):
    product = x_ref[...] * y_ref[...]
    o_ref[...] = jnp.minimum(product - z_ref[...], 1)


one_call = call(sister_kernel, x, y, z).trace(x, y, z).timeline(TPU_V5E)
three_calls = sum(t.timeline(TPU_V5E).total for t in steps.values())
print(f"three calls {three_calls * 1e6:.2f} µs, one call {one_call.total * 1e6:.2f} µs (modelled)")
_, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
alone = steps["product = x * y"].timeline(TPU_V5E)
pl.plot_roofline(TPU_V5E, {"x * y alone": alone, "all in one call": one_call}, ax)
plt.show()

# %% [markdown]
# Less than half the time, for the same three operations. Half of the bytes are saved, since two arrays are not sent
# away and fetched again; and the core waits for α in one call, not in three. Joining kernels in this way is called
# **fusion**, and it is most of what a compiler such as XLA does for you.
#
# Both dots hang below the roof. One reason is α, and there is another one: look at the first picture again. The core
# waits for the copies in, then the copies out wait for the core. While one is at work, the others are idle.
#
# ## What you take along
#
# - Memories are either large or near. Going one level out costs about ten times the latency; SRAM holds megabytes, HBM
#   gigabytes.
# - Computing on values in HBM takes five steps. Two of them are copies, and for an add they are nearly all of the time.
# - Time ≥ X/β and ≥ Y/F. The intensity Y/X decides which one bounds you, and the roofline draws it.
# - Whole arrays do not fit: one kernel has 16 MiB on a v5e, 227 KiB on an H100.
#
# So we cut arrays into blocks. And once there are blocks, one can be copied while another is computed on. Chapter 2
# shows how much that wins, and when it wins nothing.

# %%
progress()
