# %% [markdown]
# # 8 · Matmul
#
# Most of the time of most models is spent in products of matrices. Here is one layer's: x is bf16[4096, 1024], w is
# bf16[1024, 4096]. The matrix unit of a TPU v5e needs 174 µs for the arithmetic alone; nothing can be faster. The
# kernel has one line, and takes a block of rows of x and a block of columns of w: what chapter 5 taught, in tiles of
# 128 × 128.
#
# **Predict before you run the cell:** how many times longer than the arithmetic?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pallas_lite as pl
from autograder import check, personal, progress
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import TPU_V5E


def product_kernel(x_ref, w_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32).astype(o_ref.dtype)


def product(m, n, k, bm, bn, order="nm", depth=2):
    """The call for x @ w in tiles of bm × bn, with all of k at once. order "nm": n outside, m inside."""
    steps, slots = {"m": m // bm, "n": n // bn}, pl.Buffered(depth)
    rows = pl.BlockSpec((bm, k), lambda *ids: (ids[order.index("m")], 0), pipeline_mode=slots)
    columns = pl.BlockSpec((k, bn), lambda *ids: (0, ids[order.index("n")]), pipeline_mode=slots)
    tile = pl.BlockSpec((bm, bn), lambda *ids: (ids[order.index("m")], ids[order.index("n")]))
    return pl.pallas_call(product_kernel, jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
                          grid=(steps[order[0]], steps[order[1]]), in_specs=[rows, columns],
                          out_specs=tile)

# %%
M, N, K = 4096, 4096, 1024
x, w = jax.ShapeDtypeStruct((M, K), jnp.bfloat16), jax.ShapeDtypeStruct((K, N), jnp.bfloat16)
MiB = 2**20

naive = product(M, N, K, 128, 128).trace(x, w).timeline(TPU_V5E)
arithmetic = 2 * M * N * K / TPU_V5E.matmul_flops
print(f"{naive.total * 1e6:.0f} µs modelled, {naive.bound}-bound;"
      f" {arithmetic * 1e6:.0f} µs of arithmetic: {naive.total / arithmetic:.1f} times as long")

a, b = jax.random.normal(jax.random.key(0), (64, 32)), jax.random.normal(jax.random.key(1), (32, 96))
a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
print("and right:", bool((product(64, 96, 32, 16, 32)(a, b) == jnp.dot(a, b)).all()))

# %% [markdown]
# Right, and five times too slow. The kernel's line will hardly change in this chapter. What changes is which blocks
# it gets, in which order, in how many slots, and what else it does while it has them. Each time we note down one
# number.
#
# ## Larger tiles
#
# A tile of b × b reads b rows and b columns, 2·b·K numbers, and makes 2·b²·K operations of them. So each byte is used
# about b/2 times (bf16: 2 bytes a number): the **intensity** grows with the tile. A v5e does 240 matrix operations in
# the time of one byte. **Predict:** from which b on is it no longer the memory that limits?

# %%
tiles = {b: product(M, N, K, b, b).trace(x, w).timeline(TPU_V5E) for b in (64, 128, 256, 512, 1024)}
for b, t in tiles.items():
    moved = t.hbm_bytes["total"] / MiB
    print(f"{b:4} × {b:<4}  {t.intensity:5.0f} operations a byte, {moved:5.0f} MiB moved,"
          f" {t.sram_bytes / MiB:5.1f} MiB of SRAM, {t.total * 1e6:6.0f} µs, {t.bound}-bound")

_, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
pl.plot_roofline(TPU_V5E, {str(b): t for b, t in tiles.items()}, ax, title="Tiles of b × b, modelled")
plt.show()

# %% [markdown]
# From 512 on. (The output is moved as well, so b/2 is a little too good.) The smaller tiles lie *below* even their
# own roof: they are latency-bound, as in chapter 7. The price of intensity is SRAM. So far:

# %%
ladder = {"naive tiles, 128 × 128": naive.total}
ladder["larger, 512 × 256"] = product(M, N, K, 512, 256).trace(x, w).timeline(TPU_V5E).total
for rung, seconds in ladder.items():
    print(f"{rung:24} {seconds * 1e6:6.0f} µs modelled")

# %% [markdown]
# ## When K is long
#
# All of K in one block: that works while K is small. **Predict:** how large may K be, for tiles of 512 × 512, until
# two slots of everything no longer fit into the 16 MiB?

# %%
for k in 1024, 2048, 4096, 8192:
    shapes = jax.ShapeDtypeStruct((M, k), jnp.bfloat16), jax.ShapeDtypeStruct((k, N), jnp.bfloat16)
    t = product(M, N, k, 512, 512).trace(*shapes).timeline(TPU_V5E)
    print(f"K = {k}: {t.sram_bytes / MiB:4.0f} MiB", "✗ " * bool(t.hazards))

# %% [markdown]
# So K is cut as well, in blocks of bk. Step (i, j, k) multiplies x's block (i, k) with w's block (k, j), and the
# products are added up over k. That is a reduction, and chapter 6 has its rule: **k is the innermost axis**, so that
# the sum stays in SRAM while it grows; begin it at the first k.
#
# But where does it grow? The output is bf16, with 8 bits for the digits of a number. **Predict:** we add 64 partial
# products, and round the sum to bf16 after each. About how large is the error: 0.2 %, 2 % or 20 %?

# %%
rng = np.random.default_rng(0)
long_x = jnp.asarray(rng.uniform(0, 1, (32, 4096)), jnp.bfloat16)
long_w = jnp.asarray(rng.uniform(0, 1, (4096, 48)), jnp.bfloat16)
exact = np.asarray(long_x, np.float64) @ np.asarray(long_w, np.float64)

for dtype in jnp.bfloat16, jnp.float32:
    total = jnp.zeros((32, 48), dtype)
    for k in range(0, 4096, 64):
        part = jnp.dot(long_x[:, k:k + 64], long_w[k:k + 64], preferred_element_type=jnp.float32)
        total = (total + part).astype(dtype)
    result = np.asarray(total.astype(jnp.bfloat16), np.float64)
    error = np.abs(result / exact - 1).max()
    print(f"sum kept in {total.dtype}, result in bfloat16: largest error {error:.2%}")

# %% [markdown]
# A rounding a step, and they add up. So keep the sum in float32 and round **once**, at the end. It needs a place that
# is no operand and is never copied: **scratch**, SRAM that belongs to the kernel from the first step to the last. You
# ask for it with `scratch_shapes`, and it comes as one more ref, after the outputs. Here is a kernel that does
# nothing with it but count its own steps:

# %%
def counting_kernel(x_ref, o_ref, count_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        count_ref[...] = jnp.zeros_like(count_ref)

    count_ref[...] += 1
    o_ref[...] = x_ref[...] * 0 + count_ref[...]


row = pl.BlockSpec((1, 8), lambda i: (i, 0))
counted = pl.pallas_call(counting_kernel, jax.ShapeDtypeStruct((5, 8), jnp.float32), grid=(5,),
                         in_specs=[row], out_specs=row, scratch_shapes=[pltpu.VMEM((1, 8), jnp.float32)])
print(counted(jnp.ones((5, 8)))[:, 0])

# %% [markdown]
# The scratch has one slot, lives through all steps, and starts as garbage, as all SRAM does.
#
# ### Exercise 8.1 · Matmul
# Multiply two matrices in blocks of bm × bk and bk × bn: k innermost, the sum in float32 scratch, rounded once.

# %% exercise="8.1"
def matmul(x: jax.Array, y: jax.Array, bm: int, bn: int, bk: int) -> jax.Array:
    """x @ y for x: bf16[m, k] and y: bf16[k, n], as bf16[m, n]; bm, bn and bk divide m, n and k.

    The sum over k is kept in float32 and rounded to bfloat16 once, at the last step of k.
    """
    ### BEGIN SOLUTION
    m, k, n = *x.shape, y.shape[1]

    def kernel(x_ref, y_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == k // bk - 1)
        def _():
            o_ref[...] = sum_ref[...].astype(o_ref.dtype)

    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn, k // bk),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
                  pl.BlockSpec((bk, bn), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])(x, y)
    ### END SOLUTION

# %% check="8.1"
check("8.1", matmul)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Three axes, three specs. For each operand ask: which two of i, j and k choose its block? The grid's last axis must
# be the one over which you add.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The kernel has four refs: x, y, output, sum. Three things: at the first k clear the sum; always add
# <code>jnp.dot(x block, y block, preferred_element_type=jnp.float32)</code>; at the last k write
# <code>sum.astype(o_ref.dtype)</code>. First and last are a <code>@pl.when(pl.program_id(2) == …)</code> each.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid=(m // bm, n // bn, k // bk)</code>; x: <code>pl.BlockSpec((bm, bk), lambda i, j, k: (i, k))</code>, y:
# <code>(bk, bn)</code> at <code>(k, j)</code>, output: <code>(bm, bn)</code> at <code>(i, j)</code>;
# <code>scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)]</code>.
# </details>

# %% [markdown]
# ## The order of the loops
#
# Three loops, six orders. **Predict,** for tiles of 512 × 256 with k cut in four: in which orders is the result
# right, and which of them moves the fewest bytes?

# %%
def step_kernel(x_ref, w_ref, o_ref, sum_ref):
    sum_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)  # a step's work


def in_order(order, m, n, k, bm, bn, bk, depth=2):
    """The trace of a matmul with its loops in this order, outermost first: its copies and its time."""
    steps, slots = {"m": m // bm, "n": n // bn, "k": k // bk}, pl.Buffered(depth)

    def spec(shape, first, second, mode=None):
        where = order.index(first), order.index(second)
        return pl.BlockSpec(shape, lambda *ids: (ids[where[0]], ids[where[1]]), mode)
    call = pl.pallas_call(
        step_kernel, jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        grid=tuple(steps[axis] for axis in order),
        in_specs=[spec((bm, bk), "m", "k", slots), spec((bk, bn), "k", "n", slots)],
        out_specs=spec((bm, bn), "m", "n"),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])
    return call.trace(*(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((m, k), (k, n))))

# %%
def compare(orders, bk):
    print(f"bk = {bk}    copies of x     of w   of the output    moved")
    for order in orders:
        trace = in_order(order, M, N, K, 512, 256, bk)
        copies = [trace.schedule.copies(name) for name in ("x", "w", "o")]
        wrong = "  ✗ " + trace.hazards[0].kind if trace.hazards else ""
        print(f"{' '.join(order):14} {copies[0]:8} {copies[1]:8} {copies[2]:15}"
              f" {trace.schedule.hbm_bytes['total'] / MiB:5.0f} MiB{wrong}")


compare(["mnk", "nmk", "mkn", "nkm", "kmn", "knm"], 256)

# %% [markdown]
# Only the two with k innermost are right: all others come back to an output block that they have left, and its sum is
# gone. (Look at the copies of the output, too.) And of the two that are right, both move the same: with k cut, the
# blocks of x *and* of w change at every step. Now leave k whole. **Predict:** does the order of m and n matter then?

# %%
compare(["mnk", "nmk"], K)

# %% [markdown]
# A lot. Now an index does not change at every step: in the order m, n a block of rows of x *stays* while n runs, and
# all of w is read again for each of them. In the order n, m it is the other way round. So x is read once or N/bn
# times, w M/bm times or once. The larger block should stay, and the smaller should pass by: here that is x's.
#
# ### Exercise 8.2 · Bytes of each order
# Predict the traffic of three calls, in **MiB**, all bf16 and the output included. The sizes are your own.

# %%
STUDENT = ""  # your course id

mine = personal("8.2", STUDENT)
print(f"x: bf16[{mine.m}, {mine.k}]   w: bf16[{mine.k}, {mine.n}]   tiles of {mine.bm} × {mine.bn}")
print("A: grid (m, n), all of k in one block      B: grid (n, m), all of k in one block")
print(f"C: grid (m, n, k), k in {mine.cut} blocks")

# %% exercise="8.2"
# prediction = MiB moved in A, in B, in C
### BEGIN SOLUTION
of_x, of_w, of_out = (2 * size / MiB for size in (mine.m * mine.k, mine.k * mine.n, mine.m * mine.n))
down, across = mine.m // mine.bm, mine.n // mine.bn
prediction = (of_x + down * of_w + of_out, across * of_x + of_w + of_out,
              across * of_x + down * of_w + of_out)
### END SOLUTION

# %% check="8.2"
check("8.2", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# First the three arrays: how many MiB has each, at 2 bytes a number? Then ask of each how often *all of it* is moved.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# An array whose block stays while the inner axis runs is moved once. The other one is moved once for each step of the
# outer axis. If k is cut, no block stays. The output moves once in all three.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# With m/bm rows of tiles and n/bn columns of tiles: A = x + (m/bm)·w + out; B = (n/bn)·x + w + out; C = (n/bn)·x +
# (m/bm)·w + out.
# </details>

# %% [markdown]
# Two more rungs for our ladder: the better order; then a third slot for x and w, against latency. **Predict:** which
# of the two gains more?

# %%
ladder["better order, m n"] = product(M, N, K, 512, 256, "mn").trace(x, w).timeline(TPU_V5E).total
ladder["deeper, 3 slots"] = product(M, N, K, 512, 256, "mn", depth=3).trace(x, w).timeline(TPU_V5E).total
for rung, seconds in ladder.items():
    print(f"{rung:24} {seconds * 1e6:6.0f} µs modelled: arithmetic for {arithmetic / seconds:.0%} of it")

two_slots = product(M, N, K, 1024, 512, "mn").trace(x, w).timeline(TPU_V5E)
print(f"\nfor comparison, 1024 × 512 and two slots: {two_slots.total * 1e6:.0f} µs")

# %% [markdown]
# Both about the same. From a fifth of the machine to more than nine tenths, with the same line of code inside. (On a
# TPU, `pallas_call` has two slots; a third takes `pltpu.emit_pipeline`. The last line shows that still larger tiles
# get as far with two.)
#
# ## What else to do while the tile is there
#
# A layer does not end with its product. There is a bias to add and an activation to apply: max(x @ w + bias, 0). In a
# call of its own, that is an elementwise kernel over 4096 × 4096. **Predict:** what does it add to the last rung, in
# per cent?

# %%
def relu_kernel(y_ref, bias_ref, o_ref):
    o_ref[...] = jnp.maximum(y_ref[...] + bias_ref[...], 0).astype(o_ref.dtype)


y, bias = jax.ShapeDtypeStruct((M, N), jnp.bfloat16), jax.ShapeDtypeStruct((1, N), jnp.float32)
tile = pl.BlockSpec((512, 1024), lambda i, j: (i, j))
strip = pl.BlockSpec((1, 1024), lambda i, j: (0, j))
call = pl.pallas_call(relu_kernel, y, grid=(8, 4), in_specs=[tile, strip], out_specs=tile)
apart = call.trace(y, bias).timeline(TPU_V5E)
share = apart.schedule.flops * apart.schedule.steps / (2 * M * N * K)
more = apart.total / ladder["deeper, 3 slots"]
print(f"a kernel of its own: {apart.total * 1e6:.0f} µs more, or {more:.0%},"
      f" for {share:.1%} of the operations")

# %% [markdown]
# Nearly half as much again, for a thousandth of the operations! The product is written to HBM, read again, and
# written again. While the tile is still in SRAM, the same operations cost next to nothing: **fuse** them into the
# last step of k.
#
# ### Exercise 8.3 · A fused epilogue
# Write the layer as one call: your matmul, and before the sum is rounded, add the bias and apply max(…, 0).

# %% exercise="8.3"
def dense(x: jax.Array, w: jax.Array, bias: jax.Array, bm: int, bn: int, bk: int) -> jax.Array:
    """max(x @ w + bias, 0) as bf16[m, n], by one pallas_call; x: bf16[m, k], w: bf16[k, n].

    The bias is f32[1, n]; bm, bn and bk divide m, n and k. Sum and bias are float32, and the result is
    rounded once.
    """
    ### BEGIN SOLUTION
    m, k, n = *x.shape, w.shape[1]

    def kernel(x_ref, w_ref, bias_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == k // bk - 1)
        def _():
            o_ref[...] = jnp.maximum(sum_ref[...] + bias_ref[...], 0).astype(o_ref.dtype)

    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn, k // bk),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
                  pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
                  pl.BlockSpec((1, bn), lambda i, j, k: (0, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])(x, w, bias)
    ### END SOLUTION

# %% check="8.3"
check("8.3", dense)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# The kernel of 8.1 has exactly one place where the sum is complete and not yet rounded. And which part of the bias
# belongs to tile (i, j)?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# One more input: a block of 1 × bn that follows j. In the kernel its ref stands after w's. The activation must not
# touch a sum that is still growing: max(a + b, 0) is not max(a, 0) + max(b, 0).
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>pl.BlockSpec((1, bn), lambda i, j, k: (0, j))</code>, and at the last k: <code>o_ref[...] =
# jnp.maximum(sum_ref[...] + bias_ref[...], 0).astype(o_ref.dtype)</code>.
# </details>

# %% [markdown]
# The last rung. `fused` has all of k in one block, as the rungs before. The bias is a strip of 1 KiB a step: nothing,
# next to a block of 1 MiB. **Predict:** does it matter whether that strip has two slots or three?

# %%
def fused_kernel(x_ref, w_ref, bias_ref, o_ref):
    total = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jnp.maximum(total + bias_ref[...], 0).astype(o_ref.dtype)


def fused(slots_of_bias):
    three = pl.Buffered(3)
    specs = [pl.BlockSpec((512, K), lambda i, j: (i, 0), three),
             pl.BlockSpec((K, 256), lambda i, j: (0, j), three),
             pl.BlockSpec((1, 256), lambda i, j: (0, j), pl.Buffered(slots_of_bias))]
    call = pl.pallas_call(fused_kernel, y, grid=(M // 512, N // 256), in_specs=specs,
                          out_specs=pl.BlockSpec((512, 256), lambda i, j: (i, j)))
    return call.trace(x, w, bias).timeline(TPU_V5E)


for slots in 2, 3:
    t = fused(slots)
    waits = {name: sum(s.end - s.start for s in t.spans if s.waiting and f"wait {name}" in s.label)
             for name in ("x", "w", "bias")}
    print(f"{slots} slots for the bias: {t.total * 1e6:.0f} µs; the core waits",
          ", ".join(f"{seconds * 1e6:.0f} µs for {name}" for name, seconds in waits.items()))

# %% [markdown]
# It does. A copy of 1 KiB arrives α after it has left the port, as one of 1 MiB does. With two slots it starts one
# step ahead, and in the port it stands behind a block of w and a copy out: it comes too late, and the core waits for
# *all* its operands. The shallowest one decides. With three, its copies start two steps ahead, as those of x and w do.
# Now look at the whole way, each rung with the epilogue, in a call of its own or fused:

# %%
layer = {rung: seconds + apart.total for rung, seconds in ladder.items()}
layer["fused"] = fused(3).total

_, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
micros = [seconds * 1e6 for seconds in layer.values()]
bars = ax.barh(list(layer), micros, color="#56B4E9", edgecolor="#222222")
slowest = max(layer.values())
labels = [f"{seconds * 1e6:.0f} µs" + f": {slowest / seconds:.1f} times as fast" * (seconds < slowest)
          for seconds in layer.values()]
ax.bar_label(bars, labels, padding=4, fontsize=9)
ax.axvline(arithmetic * 1e6, color="#222222", lw=1, ls="--")
ax.invert_yaxis()
ax.set_xlim(0, 1.25e6 * slowest)
ax.spines[["top", "right"]].set_visible(False)
ax.set_xlabel("modelled time of the layer on a TPU v5e (µs); dashed: the product's arithmetic alone",
              fontsize=9)
plt.show()

# %% [markdown]
# ## Your turn
#
# Another product, with a K too long for one block: bf16[2048, 8192] by bf16[8192, 2048]. Every knob of this unit is
# in it: tiles against traffic, bk against SRAM, slots against latency, and the adding up itself, which the *vector*
# unit does, once for every block of k.
#
# ### Exercise 8.4 · Hit the target
# Choose bm, bn, bk and the number of slots of x and w, so that the product takes at most **363 µs** (modelled) on a
# v5e, within 16 MiB. Multiples of 128 that divide the sizes; the sum is float32 scratch; the output has two slots.

# %%
def account(bm, bn, bk, depth):
    t = in_order("mnk", 2048, 2048, 8192, bm, bn, bk, depth).timeline(TPU_V5E)
    print(f"{bm} × {bn} × {bk}, {depth} slot{'s' * (depth > 1)}: {t.total * 1e6:.1f} µs,",
          f"{t.bound}-bound, {t.sram_bytes / MiB:.1f} MiB", "✗" * bool(t.hazards))
    for kind, parts in ("lower bounds", t.terms), ("above them", t.excess):
        print(f"  {kind:13}", ", ".join(f"{k} {v * 1e6:.1f}" for k, v in parts.items() if v > 1e-9))


account(512, 512, 512, 2)
account(1024, 1024, 2048, 2)
account(512, 512, 128, 4)

# %% exercise="8.4"
# choice = bm, bn, bk, slots of x and w
### BEGIN SOLUTION
choice = 512, 512, 1024, 3
### END SOLUTION

# %% check="8.4"
check("8.4", choice)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Look at the three accounts: one is held up by its port and its slots, one does not fit, and one has too large a
# *compute* bound. What do they have in common, and where do they differ?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Compute: a larger bk means fewer times that the sum is added to. Latency: a third slot, or larger blocks. Then fill
# and drain are left, and those want small blocks.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Tiles of 512 × 512 are large enough. With bk = 512 and two slots, account shows what is missing; try a larger bk,
# and one more slot.
# </details>

# %% [markdown]
# To play with all the knobs at once, here are sliders for the same product. They count as the exercise does, but give
# the output as many slots as x and w.

# %%
pl.block_tuner(2048, 2048, 8192)

# %% [markdown]
# ## Many products at once
#
# Attention multiplies a whole *batch* of matrices: x is f32[B, m, k], y is f32[B, k, n], and product b is x[b] @
# y[b]. The body below is for one product and must stay: the batch is nothing but another axis of the grid, and `None`
# in a block's shape takes one matrix of it and drops the axis (chapter 4).
#
# ### Exercise 8.5 · Same body, one more axis
# Give grid and specs, so that every block of x is copied only **once**.

# %% exercise="8.5"
def one_product_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...], y_ref[...])  # (bm, k) @ (k, bn)


def batched(x: jax.Array, y: jax.Array, bm: int, bn: int) -> jax.Array:
    """x[b] @ y[b] for every b: x is f32[B, m, k], y is f32[B, k, n].

    bm divides m, bn divides n, k stays whole. Set `grid`, and `rows`, `columns` and `tile`: the specs of
    x, y and the output.
    """
    (B, m, k), n = x.shape, y.shape[2]
    ### BEGIN SOLUTION
    grid = (B, m // bm, n // bn)
    rows = pl.BlockSpec((None, bm, k), lambda b, i, j: (b, i, 0))
    columns = pl.BlockSpec((None, k, bn), lambda b, i, j: (b, 0, j))
    tile = pl.BlockSpec((None, bm, bn), lambda b, i, j: (b, i, j))
    ### END SOLUTION
    out = jax.ShapeDtypeStruct((B, m, n), x.dtype)
    call = pl.pallas_call(one_product_kernel, out, grid=grid, in_specs=[rows, columns], out_specs=tile)
    return call(x, y)

# %% check="8.5"
check("8.5", batched)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Which axis must run fastest, so that x's block stays? And is there any reason to come back to a matrix that you have
# left?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Three axes: b, i and j. Every block has three dimensions, the first of them <code>None</code>; every index map has
# three parameters and returns three indices. Chapter 5's kernels had whole axes too: their index is 0.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>grid = (B, m // bm, n // bn)</code>; <code>rows = pl.BlockSpec((None, bm, k), lambda b, i, j: (b, i, 0))</code>;
# the other two likewise.
# </details>

# %% [markdown]
# ## What you take along
#
# - A product of matrices uses each byte many times: about b/2 times with bf16 tiles of b × b. Larger tiles until it
#   is compute-bound, or the SRAM is full.
# - If k is cut, it is the innermost axis. The sum grows in float32 scratch: begun at the first k, rounded once at the
#   last.
# - The order of the other axes decides what stays and what is read again. Let the larger block stay.
# - Two slots or three: enough to hide α, for *every* operand.
# - What comes after the product belongs into it, while the tile is in SRAM.
#
# All times here were modelled. What does a compiler make of such a kernel: do its copies look like our schedule, and
# does it refuse what does not fit? Chapter 9 goes down to the TPU and reads the program.

# %%
progress()
