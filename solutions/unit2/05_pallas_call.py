# %% [markdown]
# # 5 · pallas_call
#
# A pipeline by hand has a prologue, a loop and an epilogue, and each line of it is a chance to be wrong. Yet all of it
# follows from three choices: how often the loop runs, which block comes when, and what is done to it. The **grid** and
# the **specs** you know from chapter 4; the third is the **kernel**. You state them; `pallas_call` writes the
# pipeline.
#
# Below, an array is cut into four blocks of ten rows. A block takes 1 µs to copy in, 1 µs to compute on, 1 µs to copy
# out. **Predict before you run the cell:** how many µs for all four?

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.experimental import pallas as real_pl
from jax.experimental.pallas import tpu as real_pltpu

import pallas_lite as pl
from autograder import check, personal, progress, say
from pallas_lite import tpu as lite_pltpu
from pallas_lite.hardware import TPU_V5E

STUDENT = ""  # your course id


def add_one_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


numbers = (jnp.arange(4000).reshape(40, 100) % 100).astype(jnp.int8)
ten_rows = pl.BlockSpec((10, 100), lambda i: (i, 0))  # block i, of all columns
add_one = pl.pallas_call(add_one_kernel, numbers, grid=(4,), in_specs=[ten_rows], out_specs=ten_rows)

pl.show(add_one.trace(numbers).schedule)

# %% [markdown]
# Half of what the twelve stages take one after the other. A kernel of one line, a grid, one spec: and there it is, the
# double buffer, with its early starts, its late waits and two slots for each operand. `add_one.trace(numbers)` looks
# at what the call *would* do; nothing has run yet. To run it, call it:

# %%
result = add_one(numbers)
print("right:", bool((result == numbers + 1).all()), "  shape:", result.shape)

# %% [markdown]
# ## What a kernel may rely on
#
# The kernel is a plain function with a strict contract. **Predict:** `numbers` has 40 rows. How many does the kernel
# see? And what happens to a kernel that returns its result?

# %%
def spy_kernel(x_ref, o_ref):
    print("the kernel sees", x_ref.shape, "and fills", o_ref.shape)
    o_ref[...] = x_ref[...]


def returning_kernel(x_ref, o_ref):
    return x_ref[...] + 1


for kernel in spy_kernel, returning_kernel:
    call = pl.pallas_call(kernel, out_shape=numbers, grid=(4,), in_specs=[ten_rows], out_specs=ten_rows)
    try:
        print(call.trace(numbers).schedule.steps, "steps")
    except pl.SpecError as error:
        say("SpecError:", error)

# %% [markdown]
# - It gets one **ref** for each operand: inputs first, then outputs. A ref is *one block in one slot of SRAM*, and
#   the kernel never sees the rest of the array.
# - `x_ref[...]` reads the block; what you get is an ordinary JAX value. `o_ref[...] = value` writes one to the slot.
# - It **returns nothing**. What you want to keep, you write into an output ref; the pipeline copies the slot out.
# - It may run four times or four thousand times, and need not know: Python reads it once, and the compiled form is run
#   at every step. That is why the spy printed one line for four steps.
#
# ## One block, as large as the array
#
# Leave grid and specs away, and each operand is a single block. Now add two arrays of f32[4096, 4096]. One kernel on
# a TPU v5e may use 16 MiB of SRAM. **Predict:** how many MiB does this call want? Put your number into the first line.

# %%
my_guess_mib = None  # a number of MiB


def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


x = jax.random.uniform(jax.random.key(0), (4096, 4096))
y = jax.random.uniform(jax.random.key(1), (4096, 4096))
whole = pl.pallas_call(add_kernel, out_shape=x)

MiB = 2**20
schedule = whole.trace(x, y).schedule
print(f"your guess: {my_guess_mib} MiB")
print(f"one operand: {x.nbytes / MiB:g} MiB.  All slots: {schedule.sram_bytes / MiB:g} MiB", end="")
print(f" (with a single slot each: {schedule.sram_bytes / 2 / MiB:g}).", end="")
print(f"  v5e allows {TPU_V5E.sram_bytes / MiB:g} MiB.\n")
print(schedule)

# %% [markdown]
# Three operands, two slots each, every slot as large as a whole array: the compiler of a real TPU would refuse this
# call. (Even one array of f32[2048, 2048] fills those 16 MiB by itself.) The body is fine. It only needs smaller refs.
#
# ### Exercise 5.1 · The pipelined add
# Add two arrays in blocks of 64 × 128, with the `add_kernel` from above: choose the grid and the specs, make the call.

# %% exercise="5.1"
def add_in_blocks(x: jax.Array, y: jax.Array) -> jax.Array:
    """x + y, as a pipeline over blocks of 64 × 128. x and y: f32[m, n], m a multiple of 64, n of 128.

    >>> x.shape, add_in_blocks(x, y).shape      # (m // 64) × (n // 128) steps
    ((4096, 4096), (4096, 4096))
    """
    ### BEGIN SOLUTION
    m, n = x.shape
    spec = pl.BlockSpec((64, 128), lambda i, j: (i, j))
    grid = m // 64, n // 128
    add = pl.pallas_call(add_kernel, out_shape=x, grid=grid, in_specs=[spec, spec], out_specs=spec)
    return add(x, y)
    ### END SOLUTION

# %% check="5.1"
check("5.1", add_in_blocks)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The grid has two axes now: one step for each block. How many blocks fit into m rows, how many into n columns?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Elementwise means that block (i, j) of the output needs block (i, j) of both inputs. So one BlockSpec serves all
# three: its shape, then a <code>lambda i, j:</code> that returns <em>block</em> indices, not element offsets.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>spec = pl.BlockSpec((64, 128), lambda i, j: (…, …))</code>, then
# <code>pl.pallas_call(add_kernel, out_shape=x, grid=(…, …), in_specs=[spec, spec], out_specs=spec)</code>, called with
# (x, y), and its result returned.
# </details>

# %% [markdown]
# ## When the pieces do not fit
#
# Everybody gets these wrong, so learn the messages while nothing is at stake. Four calls with one slip each. **Before
# you run the cell,** find the slip in each line.

# %%
good = pl.BlockSpec((512, 512), lambda i, j: (i, j))
offsets = pl.BlockSpec((512, 512), lambda i, j: (512 * i, 512 * j))
short = pl.BlockSpec((512, 512), lambda i, j: i)
slips = [((8, 8), [good, offsets], (x, y)),
         ((8, 8), [good, short], (x, y)),
         ((64,), [good, good], (x, y)),
         ((8, 8), [good, good], (x, y, x))]

for grid, in_specs, operands in slips:
    try:
        call = pl.pallas_call(add_kernel, out_shape=x, grid=grid, in_specs=in_specs, out_specs=good)
        call.trace(*operands)
    except pl.PallasLiteError as error:
        say(f"{type(error).__name__}:", error)
        print()

# %% [markdown]
# Each message says where, what is wrong, and how to mend it. The first slip is the one of chapter 4, and
# the nastiest on real hardware: there the compiler lets it pass without a word.
#
# ## What do the blocks buy?
#
# The whole array would not fit. But suppose that it did, on a v5e with room enough. **Predict:** by what factor is
# the pipeline over 512 × 512 blocks faster than one large block, for the same add?

# %%
my_guess_factor = None  # such as 2


def in_squares(kernel, x, b):
    """The call of an elementwise kernel of two operands, in blocks of b × b that divide the array."""
    square = pl.BlockSpec((b, b), lambda i, j: (i, j))
    grid = x.shape[0] // b, x.shape[1] // b
    return pl.pallas_call(kernel, out_shape=x, grid=grid, in_specs=[square, square], out_specs=square)


def report(kernel, b):
    trace = in_squares(kernel, x, b).trace(x, y)
    t, sram = trace.timeline(TPU_V5E), trace.schedule.sram_bytes
    steps, over = "step " if trace.steps == 1 else "steps", "✗" if sram > TPU_V5E.sram_bytes else " "
    print(f"{b:4} × {b:<4}  {trace.steps:5} {steps}  {sram / MiB:7.3f} MiB {over}"
          f"  {t.total * 1e6:6.1f} µs   core busy {t.utilisation:4.0%}   {t.bound}-bound")
    return t.total


print("your guess:", my_guess_factor)
factor = report(add_kernel, 4096) / report(add_kernel, 512)
print(f"factor {factor:.2f}   (modelled on {TPU_V5E.name}; ✗: more than its SRAM)")

# %% [markdown]
# Next to nothing! Look at the last columns. An add does one operation for twelve bytes moved, so the core is idle
# nearly all the time, and the time *is* the time to move the bytes. Both calls move the same bytes through one port to
# the HBM. Overlap can only hide the smaller part, and here the smaller part is tiny. What the blocks buy for an add is
# that it runs at all.
#
# Now a body with more work: a polynomial by Horner's rule, 90 operations for each element. The specs stay as they are.
# **Predict** the factor again.

# %%
def horner_kernel(x_ref, y_ref, o_ref):
    x, y = x_ref[...], y_ref[...]
    value = y
    for _ in range(45):
        value = value * x + y
    o_ref[...] = value


factor = report(horner_kernel, 4096) / report(horner_kernel, 512)
print(f"factor {factor:.2f}")

# %% [markdown]
# Copying and computing now take about equally long, and the pipeline runs them side by side. That is where overlap
# pays most, and it came with no change to the specs, only another body.
#
# ## How large should a block be?
#
# "Perhaps the most important number to tune", say people who tune kernels. Same bytes, same operations, four
# block sizes. **Predict:** which is slowest, and by how much?

# %%
for b in 128, 256, 512, 1024:
    report(add_kernel, b)

# %% [markdown]
# The smallest block loses badly, and the largest does not fit. Between them it hardly matters. See why, on a smaller
# array: the first few µs, to the same scale. The thin bar after a copy is its latency α: the time from leaving the HBM
# to arriving (for v5e our assumption, since makers seldom publish it). Copies in and out share one port.

# %%
small = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)  # .trace needs shapes only, no values
_, axes = plt.subplots(2, figsize=(9, 4.4), layout="constrained")
for ax, b in zip(axes, (128, 512), strict=True):
    t = in_squares(add_kernel, small, b).trace(small, small).timeline(TPU_V5E)
    title = f"{b} × {b}: {t.total * 1e6:.1f} µs in all, {t.bound}-bound"
    pl.plot_timeline(t, ax, limit=18e-6, title=title)
plt.show()

# %% [markdown]
# A block of 128 × 128 leaves the port in a moment and then travels for α. With two slots, only two steps' copies can
# be on the way, so the port stands idle in between: **latency-bound**. A block of 512 × 512 keeps the port busy all
# the time: **bandwidth-bound**, and no larger block can do better. So block sizes trade:
#
# | smaller blocks | larger blocks |
# |---|---|
# | more steps, each with its own α | fewer steps, α hidden |
# | little SRAM | SRAM grows with bm · bn · slots · operands |
# | short fill and drain | long fill before the first step |
#
# ### Exercise 5.2 · Block sizes as parameters
# Write the add for any block shape and *any* array shape: the last block of a row or column may stick out (chapter 4).

# %% exercise="5.2"
def add_parametrised(x: jax.Array, y: jax.Array, bm: int = 256, bn: int = 256) -> jax.Array:
    """x + y for f32[m, n], in blocks of bm × bn. bm and bn need not divide m and n.

    A 40 × 100 array in blocks of 16 × 32 takes 3 × 4 steps. What lies past the edge is not copied out.
    """
    ### BEGIN SOLUTION
    m, n = x.shape
    block = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    grid = (pl.cdiv(m, bm), pl.cdiv(n, bn))
    call = pl.pallas_call(add_kernel, out_shape=x, grid=grid, in_specs=[block, block], out_specs=block)
    return call(x, y)
    ### END SOLUTION

# %% check="5.2"
check("5.2", add_parametrised)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Only two things depend on the block sizes: the shape of a block, and the number of steps along each axis.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# <code>m // bm</code> forgets the block that sticks out. You want m / bm rounded <em>up</em>; Pallas calls that
# <code>pl.cdiv(m, bm)</code>.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>pl.BlockSpec((bm, bn), lambda i, j: (i, j))</code> for all three operands, and
# <code>grid=(pl.cdiv(m, bm), pl.cdiv(…, …))</code>.
# </details>

# %% [markdown]
# ## A block that stays
#
# Subtract one row, f32[1, 4096], from every row of x. The kernel lets JAX broadcast: (512, 512) minus (1, 512). The
# row is cut into 8 blocks, and step (i, j) needs block j of it. From chapter 4 you know that
#
# > copies = 1 + number of index changes.
#
# **Predict:** how many copies of `row` in 64 steps, 8 or 64?

# %%
def minus_row_kernel(x_ref, row_ref, o_ref):
    o_ref[...] = x_ref[...] - row_ref[...]


row = jax.random.normal(jax.random.key(2), (1, 4096))
tile = pl.BlockSpec((512, 512), lambda i, j: (i, j))
part_of_row = pl.BlockSpec((1, 512), lambda i, j: (0, j))
specs = [tile, part_of_row]
minus_row = pl.pallas_call(minus_row_kernel, out_shape=x, grid=(8, 8), in_specs=specs, out_specs=tile)

schedule = minus_row.trace(x, row).schedule
print(f"{schedule.copies('x')} copies of x, {schedule.copies('row')} of row in {schedule.steps} steps")

# %% [markdown]
# All 64: j runs fastest, so `row`'s block changes at every step. Give the kernel all of the row at once, and its index
# never changes:

# %%
band = pl.BlockSpec((64, 4096), lambda i: (i, 0))
all_of_row = pl.BlockSpec((1, 4096), lambda i: (0, 0))
specs = [band, all_of_row]
in_bands = pl.pallas_call(minus_row_kernel, out_shape=x, grid=(64,), in_specs=specs, out_specs=band)

schedule = in_bands.trace(x, row).schedule
print(f"{schedule.copies('x')} copies of x, {schedule.copies('row')} of row")
print(schedule.table(fold=8))
print("right:", bool((in_bands(x, row) == x - row).all()))

# %% [markdown]
# One copy in 64 steps: every later step finds `row` in its slot. Same body, new specs. But not every row fits into
# SRAM whole, and there is a way without that.
#
# ### Exercise 5.3 · Same body, new index map
# This kernel takes *parts* of two rows. Choose grid and specs so that each part is copied only **once**.

# %% exercise="5.3"
def scale_and_shift_kernel(x_ref, scale_ref, shift_ref, o_ref):
    o_ref[...] = x_ref[...] * scale_ref[...] + shift_ref[...]


def scale_and_shift(x: jax.Array, scale: jax.Array, shift: jax.Array, bm: int, bn: int) -> jax.Array:
    """x * scale + shift for x: f32[m, n] and scale, shift: f32[1, n], in blocks of bm × bn and 1 × bn.

    bm divides m and bn divides n. Set `grid`, `tile` (the spec of x and of the output) and `part` (that
    of scale and of shift).
    """
    m, n = x.shape
    ### BEGIN SOLUTION
    grid = (n // bn, m // bm)  # columns of blocks outside, so that j, and with it the part, stays for m // bm steps
    tile = pl.BlockSpec((bm, bn), lambda j, i: (i, j))
    part = pl.BlockSpec((1, bn), lambda j, i: (0, j))
    ### END SOLUTION
    specs = [tile, part, part]
    call = pl.pallas_call(scale_and_shift_kernel, out_shape=x, grid=grid, in_specs=specs, out_specs=tile)
    return call(x, scale, shift)

# %% check="5.3"
check("5.3", scale_and_shift)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Which walk over the blocks of x lets the part of the row stay the same for many steps: along a row of blocks, or down
# a column?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The last axis of the grid runs fastest. Let it count the blocks down a column. The names of a lambda's parameters are
# yours: the first always belongs to the first axis of the grid.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid = (n // bn, m // bm)</code>, and both maps start with <code>lambda j, i:</code>. Now give x the block
# (row i, column j), and the rows the block (0, …).
# </details>

# %% [markdown]
# ### Exercise 5.4 · Count before you run
# These sizes are your own, drawn from your course id (`STUDENT`, in the first cell; leave it empty if you have none).
# The kernel is `minus_row_kernel`; x and the output go in blocks of bm × bn, `row` in blocks of 1 × bn, with two slots
# each.

# %%
mine = personal("5.4", STUDENT)
m, n, bm, bn = mine.m, mine.n, mine.bm, mine.bn
print(f"x: f32[{m}, {n}]   row: f32[1, {n}]   bm = {bm}   bn = {bn}")
print(f"A: grid ({m // bm}, {n // bn}),  x and output: lambda i, j: (i, j),  row: lambda i, j: (0, j)")
print(f"B: grid ({n // bn}, {m // bm}),  x and output: lambda j, i: (i, j),  row: lambda j, i: (0, j)")

# %% [markdown]
# Predict three numbers: how many copies of `row` in A, how many in B, and the **KiB** of SRAM that all slots take (the
# same in both). Numbers or formulas, as you like; m, n, bm and bn are set.

# %% exercise="5.4"
# prediction = copies of row in A, copies of row in B, KiB of SRAM
### BEGIN SOLUTION
prediction = (m // bm) * (n // bn), n // bn, 2 * (2 * bm * bn + bn) * 4 / 1024
### END SOLUTION

# %% check="5.4"
check("5.4", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Copies: write down j for the first dozen steps of A, then of B. SRAM: how many operands does the call have, the
# output included?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# copies = 1 + number of times that the block index differs from the step before. SRAM = slots × the bytes of one
# block, summed over x, row and the output; an f32 has 4 bytes, a KiB 1024.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# In A, j changes at every step, so there are as many copies as steps. In B it changes only from one column of blocks
# to the next. SRAM: 2 slots × (bm·bn + bn + bm·bn) numbers × 4 bytes, divided by 1024.
# </details>

# %% [markdown]
# Now let the package count, and see what the better order is worth:

# %%
big, strip = jax.ShapeDtypeStruct((m, n), jnp.float32), jax.ShapeDtypeStruct((1, n), jnp.float32)
orders = {"A": ((m // bm, n // bn), lambda i, j: (i, j), lambda i, j: (0, j)),
          "B": ((n // bn, m // bm), lambda j, i: (i, j), lambda j, i: (0, j))}

if prediction is ...:
    orders = {}
    print("Once you have a prediction in exercise 5.4, run this cell again.")

for name, (grid, of_x, of_row) in orders.items():
    tile, part = pl.BlockSpec((bm, bn), of_x), pl.BlockSpec((1, bn), of_row)
    call = pl.pallas_call(minus_row_kernel, big, grid=grid, in_specs=[tile, part], out_specs=tile)
    trace = call.trace(big, strip)
    copies, kib = trace.schedule.copies("row"), trace.schedule.sram_bytes / 1024
    µs = trace.timeline(TPU_V5E).total * 1e6
    print(f"{name}: {copies:3} copies of row, {kib:g} KiB, {µs:.2f} µs modelled")

# %% [markdown]
# The counts differ a lot and the times hardly at all: a row is small beside x, and its copies hide behind those of x.
# Copies saved are worth what their bytes are worth. So let a *large* block stay: the same kernel, and in place of the
# row a pattern of 512 × 512, subtracted from every block of x. **Predict:** what part of the time of x − y is left?

# %%
pattern = y[:512, :512]
same_block = pl.BlockSpec((512, 512), lambda i, j: (0, 0))
tile = pl.BlockSpec((512, 512), lambda i, j: (i, j))

for name, other, spec in ("x - y", y, tile), ("x - pattern", pattern, same_block):
    specs = [tile, spec]
    call = pl.pallas_call(minus_row_kernel, out_shape=x, grid=(8, 8), in_specs=specs, out_specs=tile)
    t = call.trace(x, other).timeline(TPU_V5E)
    copies = t.schedule.copies("row")
    print(f"{name:11}  second operand copied {copies:2}×, {t.total * 1e6:5.1f} µs modelled")

# %% [markdown]
# Two thirds: of three arrays, one is no longer moved. In chapter 8 this rule makes the difference between a slow
# matrix product and a fast one.
#
# ## Two outputs
#
# Another way to move less is to look at a block once and make two things of it. Give `out_shape` and `out_specs` as
# lists of the same length, and the kernel gets one more ref. **Predict:** the smaller *and* the larger of x and y, in
# two calls or both in one: what part of the time is saved?

# %%
def smaller_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.minimum(x_ref[...], y_ref[...])


def both_kernel(x_ref, y_ref, small_ref, large_ref):
    small_ref[...] = jnp.minimum(x_ref[...], y_ref[...])
    large_ref[...] = jnp.maximum(x_ref[...], y_ref[...])


pair = [tile, tile]
both = pl.pallas_call(both_kernel, out_shape=[x, x], grid=(8, 8), in_specs=pair, out_specs=pair)
one_call = both.trace(x, y).timeline(TPU_V5E).total
two_calls = 2 * in_squares(smaller_kernel, x, 512).trace(x, y).timeline(TPU_V5E).total
print(f"two calls {two_calls * 1e6:.1f} µs, one call {one_call * 1e6:.1f} µs:"
      f" {1 - one_call / two_calls:.0%} saved")

# %% [markdown]
# Six arrays to move in two calls, four in one. The outputs need not be alike: each has its own shape and its own spec.
#
# With many operands it is easy to mix them up. Lists are not the only way: operands, specs and shapes may be any
# **pytree**, JAX's word for a nest of lists, tuples and dicts. Specs and operands must be nested alike, and so must
# `out_specs` and `out_shape`. **Predict:** how many arguments does this kernel get, and what does the call return?

# %%
def named_kernel(pair, found):
    found["small"][...] = jnp.minimum(pair["x"][...], pair["y"][...])
    found["large"][...] = jnp.maximum(pair["x"][...], pair["y"][...])


named = pl.pallas_call(named_kernel, out_shape={"small": x, "large": x}, grid=(8, 8),
                       in_specs=[{"x": tile, "y": tile}], out_specs={"small": tile, "large": tile})
found = named({"x": x, "y": y})
right = (found["small"] == jnp.minimum(x, y)).all() & (found["large"] == jnp.maximum(x, y)).all()
print("the call returns", list(found), "  right:", bool(right))

# %% [markdown]
# Two, each a dict of refs; and a dict of arrays comes back (JAX sorts its names). Names cannot be mixed up.
#
# ### Exercise 5.5 · Two outputs
# Make 2·x and the transpose of x in one pass. Write the kernel, too.

# %% exercise="5.5"
def twice_and_transposed(x: jax.Array, bm: int, bn: int) -> tuple[jax.Array, jax.Array]:
    """2 * x and x.T for x: f32[m, n], from one pallas_call that copies each block of bm × bn once.

    bm divides m, bn divides n. An array that does not exist yet: jax.ShapeDtypeStruct((n, m), x.dtype).
    """
    ### BEGIN SOLUTION
    m, n = x.shape

    def kernel(x_ref, twice_ref, turned_ref):
        twice_ref[...] = 2 * x_ref[...]
        turned_ref[...] = x_ref[...].T

    tile = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    turned = pl.BlockSpec((bn, bm), lambda i, j: (j, i))
    shapes = [x, jax.ShapeDtypeStruct((n, m), x.dtype)]
    grid = m // bm, n // bn
    return pl.pallas_call(kernel, shapes, grid=grid, in_specs=[tile], out_specs=[tile, turned])(x)
    ### END SOLUTION

# %% check="5.5"
check("5.5", twice_and_transposed)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The kernel may transpose a single block with <code>.T</code>. But where in the large transposed array does that block
# belong, and what shape has it?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Two outputs: <code>out_shape=[…, …]</code>, <code>out_specs=[…, …]</code>, and a kernel with three refs. Block (i, j)
# of x, turned, is a block of bn × bm in the transpose.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# The second output has the shape (n, m) and the spec
# <code>pl.BlockSpec((bn, bm), lambda i, j: (…, …))</code>, with i and j in the other order. The kernel writes
# <code>2 * x_ref[...]</code> into one ref and <code>x_ref[...].T</code> into the other.
# </details>

# %% [markdown]
# ## Within a budget
#
# Real kernels seldom have all SRAM to themselves. So here is a budget of your own, and a measure of "fast": no add
# takes less than its bytes need to pass the port, bytes / β. The kernel in the next cell adds y, f32, to an x that is
# stored in fewer bits. **Predict** before you run it: will 256 × 256, so good above, do here?

# %%
mine = personal("5.6", STUDENT)
height, width, budget = mine.height, mine.width, mine.budget_kib
packed = jax.ShapeDtypeStruct((height, width), mine.dtype)
full = jax.ShapeDtypeStruct((height, width), jnp.float32)
x_bytes = packed.dtype.itemsize
least = height * width * (x_bytes + 4 + 4) / TPU_V5E.beta  # seconds to move x, y and the output once


def add_packed_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...].astype(jnp.float32) + y_ref[...]


def try_blocks(bm, bn):
    block = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    grid = pl.cdiv(height, bm), pl.cdiv(width, bn)
    add = pl.pallas_call(add_packed_kernel, full, grid=grid, in_specs=[block, block], out_specs=block)
    trace = add.trace(packed, full)
    t, kib = trace.timeline(TPU_V5E), trace.schedule.sram_bytes / 1024
    print(f"{bm:4} × {bn:<4}  {trace.steps:4} steps  {kib:6.0f} KiB {'✗' if kib > budget else ' '}"
          f"  {t.total * 1e6:6.1f} µs, {t.total / least - 1:4.0%} above bytes / β   {t.bound}-bound")


print(f"x: {mine.dtype}[{height}, {width}]   y and output: f32   budget: {budget} KiB   {TPU_V5E.name}")
for b in 128, 256, 512:
    try_blocks(b, b)

# %% [markdown]
# ### Exercise 5.6 · Fit and fast
# Choose bm and bn, so that all slots fit into your budget and the modelled time is at most 8 % above bytes / β.

# %% exercise="5.6"
# blocks = bm, bn: numbers, or formulas in height, width, x_bytes and budget; see try_blocks(bm, bn)
### BEGIN SOLUTION
blocks = budget * 1024 // (2 * width * (x_bytes + 4 + 4)) // 8 * 8, width
### END SOLUTION

# %% check="5.6"
check("5.6", blocks, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# 256 × 256 leaves part of the budget unused, and 512 × 512 is too much. Blocks need be neither square nor powers of
# two. And look at the number of steps: how much of the blocks at the edge is wasted?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# All slots take 2 · bm · bn · (bytes of x + 4 + 4) bytes. Let blocks be as wide as the array: nothing is wasted at the
# right. Then see how many rows the budget allows.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# The rows that fit are <code>budget * 1024 // (2 * width * (x_bytes + 8))</code>; bn is <code>width</code>. For a TPU,
# round bm down to a multiple of 8.
# </details>

# %% [markdown]
# While the bytes of a step leave the port sooner than they arrive (X/β below α), the port stands idle at every step,
# and larger blocks help a lot. Beyond that they help hardly at all, so many sizes will do. Chapter 7 makes a formula
# of it.
#
# ## The real thing
#
# `pallas_lite` has the names of Pallas, and the same meanings. What you wrote here runs as it is under
# `from jax.experimental import pallas as pl`. On a laptop, real Pallas can interpret a kernel, step by step and rather
# slowly, in two ways; so take a small array, of 16 blocks. **Predict:** will the values be the same to the last bit?

# %%
a = jax.random.normal(jax.random.key(3), (128, 512))
b = jax.random.normal(jax.random.key(4), (1, 512))


def minus_row_with(pl, interpret):
    tile = pl.BlockSpec((32, 128), lambda j, i: (i, j))
    part_of_row = pl.BlockSpec((1, 128), lambda j, i: (0, j))
    call = pl.pallas_call(minus_row_kernel, out_shape=a, grid=(4, 4), in_specs=[tile, part_of_row],
                          out_specs=tile, interpret=interpret)
    start = time.perf_counter()
    result = np.asarray(call(a, b))
    seconds = time.perf_counter() - start
    same = (result == a - b).all()
    how = str(interpret).partition("(")[0]
    print(f"{pl.__name__:25} {seconds:5.2f} s here   interpret: {how:15}  same bits: {same}")


for pallas, interpret in (pl, True), (real_pl, True), (real_pl, real_pltpu.InterpretParams()):
    minus_row_with(pallas, interpret)

# %% [markdown]
# Same code, same bits. On a TPU you would leave `interpret` away, and the hardware would do what you have been looking
# at: two slots for each operand, and a copy only where an index changes.
#
# ## A kernel from an old file
#
# Kernels that you find elsewhere were often written for another version. The next one is from the early days of
# Pallas: each row minus its mean, times a row of gains. It ran on its author's machine. **Predict:** how many of its
# lines will need mending?

# %%
lite_pl = pl


def old_centred(x, gain, pl, pltpu):
    m, n = x.shape

    def kernel(x_ref, gain_ref, o_ref):
        x = pl.load(x_ref, (slice(None), slice(None)))
        gain = pl.load(gain_ref, (slice(None), slice(None)))
        pl.store(o_ref, (slice(None), slice(None)), (x - x.mean(axis=1, keepdims=True)) * gain)

    band = pl.BlockSpec(lambda i: (i, 0), (32, n))
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(m // 32,),
        in_specs=[band, pl.BlockSpec(memory_space=pltpu.ANY)], out_specs=band,
        compiler_params=pltpu.TPUCompilerParams(dimension_semantics=("parallel",)),
        interpret=True)(x, gain)


a = jax.random.normal(jax.random.key(5), (72, 128))
gain = jax.random.normal(jax.random.key(6), (1, 128))
for modules in (real_pl, real_pltpu), (lite_pl, lite_pltpu):
    try:
        old_centred(a, gain, *modules)
    except Exception as error:
        say(f"{modules[0].__name__}: {type(error).__name__}:", error)

# %% [markdown]
# The first fault that Python meets hides the next. Mend one line, run again, read on: `pallas_lite` names the way from
# each old name to the new one, and says what else it finds. On `parallel`, a note: it promises that the steps of this
# axis may run in any order. That is true here, and you can leave it as it is.
#
# ### Exercise 5.7 · Port a Pallas kernel
# Mend the old kernel so that it runs under both imports and is right for any number of rows, in bands of 32 at most.

# %% exercise="5.7"
def centred(x: jax.Array, gain: jax.Array, real: bool = False) -> jax.Array:
    """(x minus the mean of each row) * gain, for x: f32[m, n], gain: f32[1, n].

    Takes bands of 32 rows at most. Uses pl and pltpu as set in the first line: the real ones if `real`
    (with interpret=True), or else those of pallas_lite.
    """
    pl, pltpu = (real_pl, real_pltpu) if real else (lite_pl, lite_pltpu)
    ### BEGIN SOLUTION
    m, n = x.shape

    def kernel(x_ref, gain_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = (x - x.mean(axis=1, keepdims=True)) * gain_ref[...]

    band, whole = pl.BlockSpec((32, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (0, 0))
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(pl.cdiv(m, 32),),
        in_specs=[band, whole], out_specs=band,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)), interpret=real)(x, gain)
    ### END SOLUTION

# %% check="5.7"
check("5.7", centred)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Copy the body of <code>old_centred</code> and mend what the message says, one message after the other. The last fault
# has no message: how many bands have 72 rows?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Reads and writes: <code>x_ref[...]</code>. BlockSpec: the shape first, then the map. A kernel cannot read what stays
# in HBM, so <code>gain</code> needs a block, one that stays. TPUCompilerParams has a shorter name now.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>pl.BlockSpec((32, n), lambda i: (i, 0))</code>, <code>pl.BlockSpec((1, n), lambda i: (0, 0))</code>,
# <code>pltpu.CompilerParams(…)</code>, <code>grid=(pl.cdiv(m, 32),)</code>, <code>interpret=real</code>.
# </details>

# %% [markdown]
# The old grid, m // 32, is the fault that no compiler names: with 72 rows, the last 8 were never written. The names
# have changed; the ideas have not.
#
# ## What you take along
#
# - `pallas_call` needs a **grid** (how many steps), a **kernel** (what happens to a block) and **specs** (which block,
#   when). It returns a function; `.trace(…)` shows its schedule and time before anything runs.
# - A kernel sees refs of blocks in SRAM, writes its outputs, and returns nothing.
# - SRAM = block bytes × slots, over all operands. Blocks too large do not fit; blocks too small drown in α.
# - Copies = 1 + index changes. The order of the grid's axes decides how many that is, with the same body.
#
# One question is left open. An output block can stay, too: what if a kernel *adds* to it at every step? That works
# only under a condition, and without it you get numbers so odd that you will want to predict them. That is chapter 6.

# %%
progress()
