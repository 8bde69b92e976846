# %% [markdown]
# # 4 · Grid and BlockSpec
#
# The loop at the end of chapter 3 knew only three things about its problem: how many steps there are, what a step
# computes (the kernel, or *body* of the loop), and which block it takes. In Pallas you say just these three, and the
# loop is written for you. This chapter is about the first and the last of them: the **grid** and the **BlockSpec**.
#
# Below, an array of 64 × 96 numbers is cut into blocks of 16 × 16, and 24 steps take one block each. **Predict before
# you run the cell:** which block does step 7 take?

# %%
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pallas_lite as pl
from autograder import check, personal, progress, say

STUDENT = ""  # your course id


def copy_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]  # the body: one block in, one block out


def look(trace, *operands, step=None):
    """Pictures of the blocks that the steps of a call take, one picture for each operand."""
    _, axes = plt.subplots(1, len(operands), figsize=(9, 3.4), layout="constrained", squeeze=False)
    for ax, operand in zip(axes[0], operands, strict=True):
        pl.plot_grid(trace, operand, step, ax)
    plt.show()


x = jax.random.normal(jax.random.key(0), (64, 96))
tile = pl.BlockSpec((16, 16), lambda i, j: (i, j))
copy = pl.pallas_call(copy_kernel, out_shape=x, grid=(4, 6), in_specs=[tile], out_specs=tile)
look(copy.trace(x), "x", step=7)

# %% [markdown]
# In the picture, a block bears the number of the step that takes it, and the line shows the way of the steps. Step 7
# takes block (1, 1): row of blocks 1, column of blocks 1. (`pl.pallas_call` puts body, grid and specs together and is
# the subject of chapter 5; `.trace(x)` looks at what the call *would* do. Refs are those of chapter 1, slots those of
# chapter 3.)
#
# ## A grid is a nest of loops
#
# `grid=(4, 6)` stands for two loops, one inside the other. A grid of three numbers is three loops; the body runs as
# often as their product says. **Predict:** how often for a grid of (2, 2, 3)? And which indices has step 7?

# %%
step = 0
for n in range(2):
    for m in range(2):
        for k in range(3):
            print(f"step {step:2}: {(n, m, k)}")
            step += 1

# %% [markdown]
# The **last axis runs fastest**, as in any nest of loops: the inner one runs through before the outer one moves on. A
# position such as (1, 0, 1) is the **grid index** of a step.
#
# Inside the body, `pl.program_id(axis)` gives one entry of it: the value of one loop variable. The next kernel has no
# input, and writes its grid index as digits into a block of a single number.

# %%
def where_am_i_kernel(o_ref):
    digits = 100 * pl.program_id(0) + 10 * pl.program_id(1) + pl.program_id(2)
    o_ref[...] = jnp.full(o_ref.shape, digits)


one = pl.BlockSpec((1, 1, 1), lambda n, m, k: (n, m, k))
shape = jax.ShapeDtypeStruct((2, 2, 3), jnp.int32)  # describes an array that does not exist yet
print(pl.pallas_call(where_am_i_kernel, shape, grid=(2, 2, 3), in_specs=[], out_specs=one)())

# %% [markdown]
# ### Exercise 4.1 · The number of a step
# Write the body that finds the number of its own step from its grid index, for a grid of any three lengths.

# %% exercise="4.1"
def step_numbers(a: int, b: int, c: int) -> jax.Array:
    """i32[a, b, c]: at each grid index of the grid (a, b, c), the number of its step, from 0.

    >>> step_numbers(2, 2, 3)[1, 0, 1]
    Array(7, dtype=int32)
    """
    def kernel(o_ref):
        n, m, k = pl.program_id(0), pl.program_id(1), pl.program_id(2)
        ### BEGIN SOLUTION
        number = (n * b + m) * c + k
        ### END SOLUTION
        o_ref[...] = jnp.full(o_ref.shape, number)

    one = pl.BlockSpec((1, 1, 1), lambda n, m, k: (n, m, k))
    shape = jax.ShapeDtypeStruct((a, b, c), jnp.int32)
    return pl.pallas_call(kernel, shape, grid=(a, b, c), in_specs=[], out_specs=one)()

# %% check="4.1"
check("4.1", step_numbers)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How many steps pass before n goes from 0 to 1? And before m does?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Each step of an outer loop is worth all steps of the loops inside it. k counts single steps; m counts whole runs of
# the loop over k; n counts whole runs of both.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# One m is worth c steps, one n is worth b · c steps, one k is worth 1. Add up.
# </details>

# %% [markdown]
# ## A BlockSpec says which block
#
# Each input and each output has a `pl.BlockSpec(block_shape, index_map)`. The **block shape** says how large a piece
# is. The **index map** is a function from the grid index to a **block index**: which piece? Think of the array as cut
# up already; block index (2, 0) is the third block down in the first column of blocks.
#
# So far every map was `lambda i, j: (i, j)`. Let us keep the body, which only copies, and change the map of x.
# Each block of `labels` is filled with its own block index as digits: block (1, 4) holds 14. **Predict** the second
# row of what is printed.

# %%
rows, columns = np.indices((64, 96)) // 16
labels = jnp.asarray(10 * rows + columns)

shifted = pl.BlockSpec((16, 16), lambda i, j: (i, (i + j) % 6))
call = pl.pallas_call(copy_kernel, out_shape=labels, grid=(4, 6), in_specs=[shifted], out_specs=tile)
print(call(labels)[::16, ::16])  # one number of each block
look(call.trace(labels), "x", "o", step=9)

# %% [markdown]
# Each row of blocks is turned one block further than the one above. The output still goes in order; the *input* map
# decides what comes from where. Step 9, with grid index (1, 3), reads block (1, 4) and fills block (1, 3). No line of
# the body knows.
#
# ### Exercise 4.2 · Rows and columns
# Choose grid and spec, so that a call takes whole bands of rows, or whole bands of columns, one band a step.

# %% exercise="4.2"
def double_kernel(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def doubled(x: jax.Array, by: str, b: int) -> jax.Array:
    """2 * x for f32[m, n]. by="rows": in bands of b whole rows; by="columns": of b whole columns.

    b divides the axis that is cut. Set `grid` and `band`, the spec of both x and the output.
    """
    m, n = x.shape
    ### BEGIN SOLUTION
    if by == "rows":
        grid, band = (m // b,), pl.BlockSpec((b, n), lambda i: (i, 0))
    else:
        grid, band = (n // b,), pl.BlockSpec((m, b), lambda i: (0, i))
    ### END SOLUTION
    return pl.pallas_call(double_kernel, out_shape=x, grid=grid, in_specs=[band], out_specs=band)(x)

# %% check="4.2"
check("4.2", doubled)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# A grid needs only as many axes as there are choices. How many bands are there, and along which axis do they differ?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The grid has one axis, so the lambda has one parameter. But the array has two dimensions, so the lambda returns two
# block indices: 0 for the dimension that is not cut.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Rows: <code>grid = (m // b,)</code>, blocks of <code>(b, n)</code>, and block index <code>(i, 0)</code>. For columns
# all three change places.
# </details>

# %% [markdown]
# ### Exercise 4.3 · Same body, new index map
# Four arrangements of the blocks of x, made by `copy_kernel`. Write the index map of x for each of them.

# %% exercise="4.3"
def arranged(x: jax.Array, how: str, b: int) -> jax.Array:
    """The p × q blocks of x, b × b each, in another arrangement. Nothing changes *inside* a block.

    "reversed":     the last row of blocks comes first; p × q blocks
    "transposed":   block (i, j) of the result is block (j, i) of x; q × p blocks
    "every other":  columns of blocks 0, 2, 4 … of x, q is even; p × (q // 2) blocks
    "broadcast":    the first row of blocks of x, p times; p × q blocks
    """
    p, q = x.shape[0] // b, x.shape[1] // b
    grid = {"reversed": (p, q), "transposed": (q, p),
            "every other": (p, q // 2), "broadcast": (p, q)}[how]
    ### BEGIN SOLUTION
    index_map = {"reversed": lambda i, j: (p - 1 - i, j),
                 "transposed": lambda i, j: (j, i),
                 "every other": lambda i, j: (i, 2 * j),
                 "broadcast": lambda i, j: (0, j)}[how]
    ### END SOLUTION
    of_x, of_o = pl.BlockSpec((b, b), index_map), pl.BlockSpec((b, b), lambda i, j: (i, j))
    shape = jax.ShapeDtypeStruct((grid[0] * b, grid[1] * b), x.dtype)
    return pl.pallas_call(copy_kernel, shape, grid=grid, in_specs=[of_x], out_specs=of_o)(x)

# %% check="4.3"
check("4.3", arranged)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The output's map is (i, j), so (i, j) is the block that is being made. Ask: which block of x belongs there?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# A dict of four lambdas, <code>index_map = {"reversed": lambda i, j: (…, …), …}[how]</code>. The maps may use p, q and
# arithmetic. Which of the four does not depend on i at all?
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Reversed: row 0 must give p − 1, and row p − 1 must give 0. Every other: column j of the result is column 2j of x.
# Broadcast: the row is 0 whatever i is. Transposed: look at its line in the docstring.
# </details>

# %% [markdown]
# ## Block indices, not element offsets
#
# Many people write an index map that gives the first *element* of the block. **Predict** for both calls below, before
# you run them: will there be an error? The second one wants the first 64 rows of a taller array.

# %%
offsets = pl.BlockSpec((16, 16), lambda i, j: (16 * i, 16 * j))
try:
    pl.pallas_call(copy_kernel, out_shape=x, grid=(4, 6), in_specs=[offsets], out_specs=tile)(x)
except pl.BlockIndexError as error:
    say("BlockIndexError:", error)

row_numbers = jnp.broadcast_to(jnp.arange(1024)[:, None], (1024, 16))
band = pl.BlockSpec((16, 16), lambda i: (i, 0))
wrong = pl.BlockSpec((16, 16), lambda i: (16 * i, 0))
short = jax.ShapeDtypeStruct((64, 16), row_numbers.dtype)
head = pl.pallas_call(copy_kernel, short, grid=(4,), in_specs=[wrong], out_specs=band)
print("\nrows that came, one of each block:", head(row_numbers)[::16, 0])
print("hazards:", head.trace(row_numbers).hazards)

# %% [markdown]
# The first is caught, since x has no block 16. (A TPU's own compiler lets it pass without a word.) The second is
# worse. The pipeline multiplies by the block shape itself, so 16 · i becomes row 256 · i. Blocks 16, 32 and 48 do
# exist in the tall array, so nothing is out of range and nothing is a hazard: you get the wrong rows, in silence. Only
# a look at the values, or at the picture, tells.
#
# ### Exercise 4.4 · Repair the maps
# `folded` should add the lower half of an array to its upper half. x is passed twice, and both maps were written in
# elements. Find out what they give, then mend them.

# %%
def add_kernel(top_ref, bottom_ref, o_ref):
    o_ref[...] = top_ref[...] + bottom_ref[...]


def folded_broken(x, bm, bn):
    m, n = x.shape
    half = m // 2
    top = pl.BlockSpec((bm, bn), lambda i, j: (i * bm, j * bn))
    bottom = pl.BlockSpec((bm, bn), lambda i, j: (half + i * bm, j * bn))
    out, grid = pl.BlockSpec((bm, bn), lambda i, j: (i, j)), (half // bm, n // bn)
    shape = jax.ShapeDtypeStruct((half, n), x.dtype)
    return pl.pallas_call(add_kernel, shape, grid=grid, in_specs=[top, bottom], out_specs=out)(x, x)


try:
    folded_broken(x, 16, 16)
except pl.BlockIndexError as error:
    say("BlockIndexError:", error)

# %% exercise="4.4"
def folded(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """x[:m // 2] + x[m // 2:] for f32[m, n], in blocks of bm × bn. 2 * bm divides m, bn divides n.

    Set `top` and `bottom`, the specs of the two halves.
    """
    m, n = x.shape
    half = m // 2
    ### BEGIN SOLUTION
    top = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    bottom = pl.BlockSpec((bm, bn), lambda i, j: (half // bm + i, j))
    ### END SOLUTION
    out, grid = pl.BlockSpec((bm, bn), lambda i, j: (i, j)), (half // bm, n // bn)
    shape = jax.ShapeDtypeStruct((half, n), x.dtype)
    return pl.pallas_call(add_kernel, shape, grid=grid, in_specs=[top, bottom], out_specs=out)(x, x)

# %% check="4.4"
check("4.4", folded)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The pipeline multiplies each index by the block's length. So divide each of the broken maps' results by it, in your
# head.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# <code>i * bm</code> elements down is <code>i</code> blocks down. How many blocks down does the lower half begin?
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# The lower half begins <code>half // bm</code> blocks down. Add that to i in the map of <code>bottom</code>; the map
# of
# <code>top</code> is the plainest one there is.
# </details>

# %% [markdown]
# ## A dimension that the kernel does not see
#
# A stack of 3 pages, each 32 × 64, is an array of (3, 32, 64). One step should work on a block of *one* page. The
# block has three dimensions then, and the first has length 1. **Predict:** what shape does each of these two kernels
# see?

# %%
def spy_kernel(x_ref, o_ref):
    print("the kernel sees", x_ref.shape)
    o_ref[...] = x_ref[...]


stack = jax.random.normal(jax.random.key(1), (3, 32, 64))
for one_page in (1, 16, 32), (None, 16, 32):
    spec = pl.BlockSpec(one_page, lambda p, i, j: (p, i, j))
    call = pl.pallas_call(spy_kernel, out_shape=stack, grid=(3, 2, 2), in_specs=[spec], out_specs=spec)
    pages = call.trace(stack)
    print(f"block_shape {one_page}: {pages.steps} steps, {pages.schedule.copies('x')} copies of x\n")

_, ax = plt.subplots(figsize=(9, 2.2), layout="constrained")
pl.plot_grid(pages, "x", step=5, ax=ax)
plt.show()

# %% [markdown]
# `None` in a block shape means: length 1, and **squeezed** out of the ref. The index map still returns three block
# indices, and the same blocks are copied; only the kernel's view changes. So a body that was written for two
# dimensions serves a stack of them.
#
# ### Exercise 4.5 · Page by page
# The body below transposes a block of two dimensions. Choose the grid and both specs, to transpose every page.

# %% exercise="4.5"
def turn_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...].T


def turned_pages(x: jax.Array, bm: int, bn: int) -> jax.Array:
    """Each page of x: f32[pages, m, n] transposed, in blocks of bm × bn, which divide m and n.

    Set `grid`, `of_x` and `of_o`, the specs of x and of the output.
    """
    pages, m, n = x.shape
    ### BEGIN SOLUTION
    grid = (pages, m // bm, n // bn)
    of_x = pl.BlockSpec((None, bm, bn), lambda p, i, j: (p, i, j))
    of_o = pl.BlockSpec((None, bn, bm), lambda p, i, j: (p, j, i))
    ### END SOLUTION
    shape = jax.ShapeDtypeStruct((pages, n, m), x.dtype)
    return pl.pallas_call(turn_kernel, shape, grid=grid, in_specs=[of_x], out_specs=of_o)(x)

# %% check="4.5"
check("4.5", turned_pages)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The kernel must see two dimensions of three. And a block that is bm high and bn wide comes out with what shape, and
# where on its page does it belong?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Block shapes that begin with <code>None</code>, a grid of three axes, and maps with three parameters that return
# three indices. In the output, the block's lengths and its place are both swapped; the page stays.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>of_x = pl.BlockSpec((None, bm, bn), lambda p, i, j: (p, i, j))</code>. In <code>of_o</code>, swap bm with bn,
# and i with j.
# </details>

# %% [markdown]
# ## Which memory?
#
# A BlockSpec has one more choice, `memory_space`: where the kernel finds the operand. Unless you say otherwise it is
# SRAM (on a TPU its name is VMEM), filled by the pipeline. `pl.ANY` leaves the array where it is, in HBM.
# **Predict:** how many slots has such an operand, and can `copy_kernel` read it?

# %%
in_hbm = pl.BlockSpec(memory_space=pl.ANY)
for spec in tile, in_hbm:
    call = pl.pallas_call(copy_kernel, out_shape=x, grid=(4, 6), in_specs=[spec], out_specs=tile)
    try:
        schedule = call.trace(x).schedule
        call(x)
        names = ", ".join(operand.name for operand in schedule.operands)
        print(f"operands with slots: {names}; {schedule.sram_bytes} bytes of SRAM")
    except pl.SpecError as error:
        say("SpecError:", error)

# %% [markdown]
# No slots, no copies, and nothing to read: the kernel would have to start copies of its own, as you did in chapter 3.
# That is what chapter 9 does. Here, all operands go through SRAM, two slots each.
#
# ## What is copied, and what is not
#
# Add a small row to x: o = x + row, in blocks of 16 × 16. `row` is f32[1, 96], and step (i, j) needs block (0, j) of
# it. The second call has the same body and the same blocks, but its grid is (6, 4): columns outside. **Predict:** how
# many copies of `row` does each call make in its 24 steps?

# %%
def add_row_kernel(x_ref, row_ref, o_ref):
    o_ref[...] = x_ref[...] + row_ref[...]


row = jax.random.normal(jax.random.key(2), (1, 96))
rows_outside = pl.BlockSpec((16, 16), lambda i, j: (i, j)), pl.BlockSpec((1, 16), lambda i, j: (0, j))
columns_outside = pl.BlockSpec((16, 16), lambda j, i: (i, j)), pl.BlockSpec((1, 16), lambda j, i: (0, j))

for grid, (of_x, of_row) in ((4, 6), rows_outside), ((6, 4), columns_outside):
    add_row = pl.pallas_call(add_row_kernel, x, grid=grid, in_specs=[of_x, of_row], out_specs=of_x)
    _, (above, below) = plt.subplots(2, figsize=(7, 4.2), height_ratios=(2, 1), layout="constrained")
    pl.plot_grid(add_row.trace(x, row), "x", ax=above)
    pl.plot_grid(add_row.trace(x, row), "row", ax=below)
    plt.show()
    print("right:", bool((add_row(x, row) == x + row).all()))

# %% [markdown]
# The values are the same; the copies are not. The pipeline looks at one thing only: does the block index *change* from
# one step to the next? If it does not, the block is in its slot already, and the copy is skipped. So for every operand
#
# > copies = 1 + number of index changes.
#
# With rows outside, j changes at every step; when a block of `row` is needed again, its slot has long been refilled.
# With columns outside each block stays for four steps. In the pictures, blocks that stay are lined; blocks that come
# back and are copied again are dotted. (A map's parameters belong to the grid's axes by *position*: `lambda j, i:`
# names the first axis j.)
#
# **Predict, then walk through the second call** (click the slider; the arrow keys move it): in which steps is `row`
# copied, and how early is each of those copies started?

# %%
pl.explore(add_row, x, row, machine=pl.hardware.TOY)

# %% [markdown]
# The same as a table: `row` is copied a step ahead, as every block is, and not at all in between.

# %%
print(add_row.trace(x, row).schedule.table(fold=8))

# %% [markdown]
# ### Exercise 4.6 · Predict the way and the copies
# These numbers are your own, drawn from your course id (`STUDENT`, in the first cell; leave it empty if you have none).

# %%
mine = personal("4.6", STUDENT)
p, q, r, c = mine.p, mine.q, mine.r, mine.c
print(f"grid = ({q}, {p}); every map is a  lambda j, i:")
print(f"x: (i, j), {p} × {q} blocks     u: (j, 0)     v: (i, 0)     w: (0, i // 2)")
print(f"Which step visits block ({r}, {c}) of x? How many copies of u, of v and of w are made in all?")

# %% exercise="4.6"
# prediction = number of the step, copies of u, copies of v, copies of w
### BEGIN SOLUTION
prediction = c * p + r, q, q * p, q * ((p + 1) // 2)
### END SOLUTION

# %% check="4.6"
check("4.6", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Write down (j, i) for the first dozen steps, and beside it the four block indices. Steps are counted from 0.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The last axis of the grid is i, so it runs fastest. Block (r, c) of x needs i = r and j = c. For the others, count
# the places where the index differs from the line above, and add 1 for the first copy.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# j must go through c whole runs of i first. u's index changes only with j; v's changes at every step. i // 2 goes 0,
# 0, 1, 1, 2 …: count its different values in one run of i, and mind that it falls back to 0 when the next run begins.
# </details>

# %%
if prediction is ...:
    print("Once you have a prediction in exercise 4.6, run this cell again.")
else:
    def four_kernel(x_ref, u_ref, v_ref, w_ref, o_ref):
        o_ref[...] = x_ref[...] + u_ref[...] + v_ref[...] + w_ref[...]

    maps = [lambda j, i: (i, j), lambda j, i: (j, 0), lambda j, i: (i, 0), lambda j, i: (0, i // 2)]
    specs = [pl.BlockSpec((1, 1), index_map) for index_map in maps]
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((p, q), (q, 1), (p, 1), (1, (p + 1) // 2))]
    call = pl.pallas_call(four_kernel, shapes[0], grid=(q, p), in_specs=specs, out_specs=specs[0])
    trace = call.trace(*shapes)
    print({name: trace.schedule.copies(name) for name in "xuvw"})
    look(trace, "x", step=trace.schedule.blocks("x").index((r, c)))

# %% [markdown]
# ### Can one do better?
#
# Every entry of a sum table is o[r, c] = col[r] + row[c]. In blocks, step (i, j) needs block i of `col` and block j of
# `row`. With rows outside, `col` stays and `row` is copied at every step; with columns outside it is the other way
# round. **Predict** the copies of both together, for 4 × 6 blocks, in either order. Could any order need fewer?

# %%
def table_kernel(col_ref, row_ref, o_ref):
    o_ref[...] = col_ref[...] + row_ref[...]


def table_call(shape, b, grid, of_col, of_row, of_o):
    """The sum table in blocks of b × b."""
    specs = [pl.BlockSpec((b, 1), of_col), pl.BlockSpec((1, b), of_row)]
    out = pl.BlockSpec((b, b), of_o)
    return pl.pallas_call(table_kernel, shape, grid=grid, in_specs=specs, out_specs=out)


col = jax.random.normal(jax.random.key(3), (64, 1))
by_rows = table_call(x, 16, (4, 6), lambda i, j: (i, 0), lambda i, j: (0, j), lambda i, j: (i, j))
by_columns = table_call(x, 16, (6, 4), lambda j, i: (i, 0), lambda j, i: (0, j), lambda j, i: (i, j))
for name, call in ("rows outside", by_rows), ("columns outside", by_columns):
    schedule = call.trace(col, row).schedule
    print(f"{name:16}{schedule.copies('col'):3} of col + {schedule.copies('row'):2} of row", end="")
    print(f" = {schedule.copies('col') + schedule.copies('row')}")

# %% [markdown]
# Look at the ends of the rows. From step 5 to step 6, i changes *and* j jumps back from 5 to 0: two copies at once.
# Were it not for the jump, each step would need one new block and keep the other.
#
# ### Exercise 4.7 · Turn around at the end
# Fill the sum table with as few copies of `col` and `row` as there can be: one at a step, and two at the first.

# %% exercise="4.7"
def sum_table(col: jax.Array, row: jax.Array, b: int) -> jax.Array:
    """col + row for f32[m, 1] and f32[1, n], in p × q blocks of b × b, with p · q + 1 copies of both.

    b divides m and n. Set `of_col`, `of_row` and `of_o`, index maps on the grid (p, q).
    """
    p, q = col.shape[0] // b, row.shape[1] // b
    ### BEGIN SOLUTION
    def column(i, j):
        return jnp.where(i % 2 == 0, j, q - 1 - j)

    of_col, of_row = lambda i, j: (i, 0), lambda i, j: (0, column(i, j))
    of_o = lambda i, j: (i, column(i, j))  # noqa: E731
    ### END SOLUTION
    shape = jax.ShapeDtypeStruct((p * b, q * b), col.dtype)
    return table_call(shape, b, (p, q), of_col, of_row, of_o)(col, row)

# %% check="4.7"
check("4.7", sum_table)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# How do you mow a lawn? At the end of a row you do not walk back to its beginning.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# In every second row of blocks, go from right to left: there j stands for column q − 1 − j. Rows of an odd i are those
# with i % 2 == 1. The output must take the same way.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Index maps are traced, so a Python <code>if</code> is not possible; use <code>jnp.where(i % 2 == 0, …, …)</code> for
# the column, in the maps of row and of the output alike.
# </details>

# %% [markdown]
# No order can do with less: two blocks of the table never need the same pair, so at least one index changes at each
# step. In chapter 8, where the blocks are large, an order that keeps them is worth a factor.
#
# ## When blocks do not divide the array
#
# 40 rows in bands of 16: `pl.cdiv(40, 16)`, which is 40 / 16 rounded up, gives 3 bands, and the last one sticks out by
# 8 rows. **Predict:** what happens to the result of `double_kernel` there? And is a copy past the end of the array
# made?

# %%
short = x[:40]
band = pl.BlockSpec((16, 96), lambda i: (i, 0))
bands = pl.cdiv(40, 16)
double = pl.pallas_call(double_kernel, out_shape=short, grid=(bands,), in_specs=[band], out_specs=band)
print("right:", bool((double(short) == 2 * short).all()))
look(double.trace(short), "x", "o")

# %% [markdown]
# All is well. The **tail**, the part of the block that lies past the edge, is not copied in, and what the kernel
# writes there is not copied out. But the kernel does not know: its ref has 16 rows, always. So what is in the last 8?
# Let us *add up* each band. **Predict:** for which bands is the sum right?

# %%
def band_sum_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...].sum(axis=0, keepdims=True)


one_row = pl.BlockSpec((1, 96), lambda i: (i, 0))
shape = jax.ShapeDtypeStruct((3, 96), short.dtype)
sums = pl.pallas_call(band_sum_kernel, shape, grid=(3,), in_specs=[band], out_specs=one_row)
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    result = sums(short)

wanted = jnp.stack([short[:16].sum(0), short[16:32].sum(0), short[32:].sum(0)])
print("right:", np.isclose(result, wanted, atol=1e-4).all(axis=1))
print("too much by:       ", np.round(result - wanted, 4)[2, :4])
print("rows 8 to 15 of x: ", np.round(short[8:16].sum(0), 4)[:4])
print()
say(heard[0].message)

# %% [markdown]
# The tail is not zero. It is whatever the slot held before: the last band came into slot 0, which still had the lower
# half of band 0. (And a slot that was never used before holds garbage.) On real hardware nobody tells you. The
# remedy is a **mask**: in the kernel, find out which rows exist, and replace the others by something harmless.
# `jax.lax.broadcasted_iota(jnp.int32, shape, 0)` is an array of this shape in which each entry has its own row number.
#
# ### Exercise 4.8 · Mask the tail
# Write the kernel that adds up each band of b rows, with a last band that may stick out.

# %% exercise="4.8"
def band_sums(x: jax.Array, b: int) -> jax.Array:
    """f32[cdiv(m, b), n] of x: f32[m, n]: row i adds up rows b·i to b·i + b − 1, if there are any."""
    m, n = x.shape

    def kernel(x_ref, o_ref):
        row_in_band = jax.lax.broadcasted_iota(jnp.int32, x_ref.shape, 0)
        ### BEGIN SOLUTION
        exists = pl.program_id(0) * b + row_in_band < m
        o_ref[...] = jnp.where(exists, x_ref[...], 0).sum(axis=0, keepdims=True)
        ### END SOLUTION

    bands = pl.cdiv(m, b)
    of_x, of_o = pl.BlockSpec((b, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((bands, n), x.dtype)
    return pl.pallas_call(kernel, shape, grid=(bands,), in_specs=[of_x], out_specs=of_o)(x)

# %% check="4.8"
check("4.8", band_sums)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# A row of the band is a row of x, too. Which one? It depends on the step.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Row r of band i is row i · b + r of x, and x has m rows. Where that row does not exist, take 0 in place of what the
# ref holds: <code>jnp.where(condition, a, b)</code> chooses entry by entry.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>exists = pl.program_id(0) * b + row_in_band < m</code>. Then sum <code>jnp.where(exists, x_ref[...], 0)</code>
# along axis 0 with <code>keepdims=True</code>. (Multiplying by the mask will not do: 0 · nan is nan.)
# </details>

# %% [markdown]
# For a sum, 0 is harmless. For a maximum it would not be: there you would take −∞. Choose what the operation ignores.
#
# ## What you take along
#
# - A **grid** is a nest of loops; the last axis runs fastest, the body runs prod(grid) times, and
#   `pl.program_id(axis)` tells it where it is.
# - A **BlockSpec** is a block shape and an index map, one for each input and output. Maps return *block* indices.
#   Offsets in their place may fail in silence.
# - `None` squeezes a dimension out of the kernel's view; `memory_space` says where the operand lives.
# - copies = 1 + index changes. Same body, another order: fewer copies.
# - A block may stick out. Its tail holds what the slot held before, so mask it before you reduce.
#
# Grid and specs are two of the three things that a pipeline needs. In the next chapter they meet the third, the
# kernel, in `pallas_call`, and you find out how large a block should be.

# %%
progress()
