# %% [markdown]
# # 11 · Capstone: attention
#
# One kernel with everything in it: blocks, a reduction, scratch, blocks that stay, copies that are skipped, a bound to
# find and an accelerator to lower to. **Attention** takes queries q, keys k and values v, each f32[n, d], and gives
# softmax(q·kᵀ/√d)·v. Row i of the result is a mean of the rows of v, weighted by how well query i fits each key.
#
# Here it is as three calls, the obvious ones: scores, softmax, product. For n = 4096 and d = 128 in bf16, q, k, v and
# the result are 1 MiB each. **Predict before you run the cell:** how many MiB do the three calls move?

# %%
import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pallas_lite as pl
from autograder import check, personal, progress
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import TOY, TPU_V5E

MiB, N, D = 2**20, 4096, 128


def array(rows, columns, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct((rows, columns), dtype)  # .trace needs shapes only

# %%
def scores_kernel(q_ref, k_ref, s_ref):
    s_ref[...] = jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=jnp.float32) / math.sqrt(D)


def softmax_kernel(s_ref, p_ref):
    p_ref[...] = jax.nn.softmax(s_ref[...], axis=1).astype(p_ref.dtype)


def product_kernel(p_ref, v_ref, o_ref):
    o_ref[...] = jnp.dot(p_ref[...], v_ref[...], preferred_element_type=jnp.float32).astype(o_ref.dtype)


tile, rows, all_rows = (pl.BlockSpec(shape, where) for shape, where in (
    ((512, 512), lambda i, j: (i, j)), ((512, D), lambda i, j: (i, 0)), ((512, D), lambda i, j: (j, 0))))
wide, whole = pl.BlockSpec((128, N), lambda i: (i, 0)), pl.BlockSpec((N, D), lambda i: (0, 0))
narrow = pl.BlockSpec((128, D), lambda i: (i, 0))
three = [
    pl.pallas_call(scores_kernel, array(N, N, jnp.float32), grid=(8, 8),
                   in_specs=[rows, all_rows], out_specs=tile).trace(array(N, D), array(N, D)),
    pl.pallas_call(softmax_kernel, array(N, N), grid=(32,), in_specs=[wide], out_specs=wide)
    .trace(array(N, N, jnp.float32)),
    pl.pallas_call(product_kernel, array(N, D), grid=(32,), in_specs=[wide, whole], out_specs=narrow)
    .trace(array(N, N), array(N, D))]

# %%
for name, trace in zip(("scores", "softmax", "product"), three, strict=True):
    t = trace.timeline(TPU_V5E)
    print(f"{name:8} {t.hbm_bytes['total'] / MiB:6.1f} MiB   {t.total * 1e6:6.1f} µs modelled, "
          f"{t.bound}-bound")
slow = sum(trace.timeline(TPU_V5E).total for trace in three)
moved = sum(trace.schedule.hbm_bytes["total"] for trace in three)
print(f"together {moved / MiB:6.1f} MiB   {slow * 1e6:6.1f} µs modelled on {TPU_V5E.name}")

# %% [markdown]
# Four arrays of 1 MiB, and hundreds of MiB moved: the n × n scores go out to HBM, come back, go out again as weights
# and come back again. No block size helps; they have to stay in SRAM. So one kernel must do all three steps, on a
# block of queries and one block of keys after the other. Scores and product work on blocks as they are. The softmax
# does not: it divides by a sum over *all* keys, and the last of them arrive last.
#
# ## The online softmax
#
# The softmax of a row x is exp(x)/Σexp(x). With large scores exp overflows, so in practice the row's maximum is taken
# off first. **Predict:** what does the plain formula give for scores of 90, 91 and 88 in float32?

# %%
x = np.array([90.0, 91.0, 88.0], np.float32)
with np.errstate(all="ignore"):
    print("plain:           ", np.exp(x) / np.exp(x).sum())
print("maximum taken off:", np.exp(x - x.max()) / np.exp(x - x.max()).sum())

# %% [markdown]
# Now the row comes in blocks, and each block is seen once. Keep two numbers: the maximum **m** of what came so far, and
# the sum **l** of exp(x − m). A new block may bring a larger maximum; then the sum so far was taken against the wrong
# one. But it need not be summed again: exp(x − m) becomes exp(x − m') when multiplied by exp(m − m').
#
# ### Exercise 11.1 · Running maximum and sum
# Write one step: from m and l of the blocks so far, and the next block, to m and l of them all.

# %% exercise="11.1"
def running(m, l, block):  # noqa: E741
    """m, l: f32[rows], of the blocks so far (-inf and 0 before the first); block: f32[rows, keys].

    `block` holds scores. Returns the new m and l: f32[rows] each, with l = Σ exp(score − m) over all
    keys so far, row by row.
    """
    ### BEGIN SOLUTION
    new = np.maximum(m, block.max(axis=1))
    return new, l * np.exp(m - new) + np.exp(block - new[:, None]).sum(axis=1)
    ### END SOLUTION

# %% check="11.1"
check("11.1", running)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# First the new maximum. Then ask of each of the two parts of the sum, old and new: against which maximum is it taken?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# new = the larger of m and the block's maximum, row by row. The old sum is multiplied by exp(m − new); the block's own
# terms are exp(block − new).
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>new = np.maximum(m, block.max(axis=1))</code>, and the sum is <code>l * np.exp(…) + np.exp(block - new[:,
# None]).sum(axis=…)</code>.
# </details>

# %% [markdown]
# ## The result, too
#
# The weighted mean of the values is built up in the same way. Keep **acc**, the sum of exp(x − m)·v over the keys so
# far. When the maximum grows, acc shrinks by the same factor as l. At the very end, acc / l is the result: the
# division waits until all keys have been seen.
#
# ### Exercise 11.2 · Rescaling
# Write the step for all three.

# %% exercise="11.2"
def update(m, l, acc, block, values):  # noqa: E741
    """One block of keys more. All f32: m, l: [rows, 1]; acc: [rows, d]; block: [rows, keys], of scores;
    values: [keys, d].

    Returns the new m, l and acc. After the last block, acc / l is softmax(all scores) @ (all values).
    """
    ### BEGIN SOLUTION
    new = jnp.maximum(m, block.max(axis=1, keepdims=True))
    weights, shrink = jnp.exp(block - new), jnp.exp(m - new)
    return new, l * shrink + weights.sum(axis=1, keepdims=True), acc * shrink + weights @ values
    ### END SOLUTION

# %% check="11.2"
check("11.2", update)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# It is exercise 11.1 with one line more. What has to happen to acc when l is multiplied by something?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# weights = exp(block − new), shrink = exp(m − new). Old parts are multiplied by shrink; new parts are the weights'
# sum, and the weights times the values. With keepdims=True the shapes fit.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Return <code>new, l * shrink + weights.sum(axis=1, keepdims=True), acc * shrink + …</code>, where the last part is a
# matrix product.
# </details>

# %% [markdown]
# ## A pipeline over the keys
#
# Now the kernel. Grid (n/bq, n/bk): outside the blocks of queries, inside the blocks of keys and values. **Predict**
# from the index maps, for n = 64, bq = 16, bk = 16: how often is each of q, k, v copied, and how often the result?

# %%
def of_queries(i, j):
    return i, 0


def of_keys(i, j):
    return j, 0


def look(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = q_ref[...]


q_spec, k_spec = pl.BlockSpec((16, 8), of_queries), pl.BlockSpec((16, 8), of_keys)
small = jax.ShapeDtypeStruct((64, 8), jnp.float32)
specs = [q_spec, k_spec, k_spec]
call = pl.pallas_call(look, small, grid=(4, 4), in_specs=specs, out_specs=q_spec)
trace = call.trace(small, small, small)
print({name: trace.schedule.copies(name) for name in ("q", "k", "v", "o")})
print("blocks, step by step:")
for name in "qkvo":
    print(f"  {name} ", *(f"{row:2}" for row, _ in trace.schedule.blocks(name)))

# %% [markdown]
# A block of queries and its block of the result stay for a whole row of steps; keys and values stream by. The result
# stays, so a sum over the inner axis may live in SRAM (chapter 6). Here the sum is m, l and acc: three scratch buffers,
# which the first step of a row sets up and the last one turns into the result.
#
# ### Exercise 11.3 · The kernel
# Write attention as one pallas_call, in blocks of bq queries and bk keys.

# %% exercise="11.3"
def attention(q: jax.Array, k: jax.Array, v: jax.Array, bq: int, bk: int) -> jax.Array:
    """softmax(q·kᵀ/√d)·v for q, k, v: f32[n, d]; bq and bk divide n.

    No array in HBM but q, k, v and the result. Scratch is given by scratch_shapes=[pltpu.VMEM((bq, 1),
    jnp.float32), …]; its refs come last, after the output's.
    """
    ### BEGIN SOLUTION
    n, d = q.shape

    def kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        scores = jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=jnp.float32) / math.sqrt(d)
        new = jnp.maximum(m_ref[...], scores.max(axis=1, keepdims=True))
        weights, shrink = jnp.exp(scores - new), jnp.exp(m_ref[...] - new)
        m_ref[...] = new
        l_ref[...] = l_ref[...] * shrink + weights.sum(axis=1, keepdims=True)
        values = jnp.dot(weights, v_ref[...], preferred_element_type=jnp.float32)
        acc_ref[...] = acc_ref[...] * shrink + values

        @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
        def _():
            o_ref[...] = acc_ref[...] / l_ref[...]

    queries, keys = pl.BlockSpec((bq, d), lambda i, j: (i, 0)), pl.BlockSpec((bk, d), lambda i, j: (j, 0))
    scratch = [pltpu.VMEM((bq, width), jnp.float32) for width in (1, 1, d)]
    return pl.pallas_call(kernel, q, grid=(n // bq, n // bk), in_specs=[queries, keys, keys], out_specs=queries,
                          scratch_shapes=scratch)(q, k, v)
    ### END SOLUTION

# %% check="11.3"
check("11.3", attention)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# It has the frame of chapter 8's matmul: set up at the first inner step, add at each, write out at the last. Only what
# is added is different.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Scratch: m and l of shape (bq, 1), acc of shape (bq, d). At inner step 0: m = −inf, l = 0, acc = 0. At each step:
# scores of the block, then the update of exercise 11.2. At the last: o = acc / l.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>pl.pallas_call(kernel, q, grid=(n // bq, n // bk), in_specs=[queries, keys, keys], out_specs=queries,
# scratch_shapes=[…])(q, k, v)</code>, where the queries' map is <code>lambda i, j: (i, 0)</code> and the keys'
# <code>lambda i, j: (j, 0)</code>.
# </details>

# %% [markdown]
# From here on, the page uses a kernel of its own, so that nobody is held up. **Predict:** by what factor is the one
# kernel faster than the three?

# %%
def attention_kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    j, blocks = pl.program_id(1), pl.num_programs(1)

    @pl.when(j == 0)
    def _():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    scores = jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=jnp.float32)
    scores = scores / math.sqrt(q_ref.shape[1])
    new = jnp.maximum(m_ref[...], scores.max(axis=1, keepdims=True))
    weights, shrink = jnp.exp(scores - new), jnp.exp(m_ref[...] - new)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    m_ref[...] = new
    l_ref[...] = shrink * l_ref[...] + weights.sum(axis=1, keepdims=True)
    acc_ref[...] = shrink * acc_ref[...] + values

    @pl.when(j == blocks - 1)
    def _():
        o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)

# %%
def one_call(n, d, dtype, bq, bk, depth=2):
    """The call, for arrays of [n, d]. The grid's first axis may run in any order, the second may not."""
    queries = pl.BlockSpec((bq, d), lambda i, j: (i, 0))
    keys = pl.BlockSpec((bk, d), lambda i, j: (j, 0), pipeline_mode=pl.Buffered(depth))
    scratch = [pltpu.VMEM((bq, width), jnp.float32) for width in (1, 1, d)]
    marks = pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
    return pl.pallas_call(attention_kernel, array(n, d, dtype), grid=(n // bq, n // bk),
                          in_specs=[queries, keys, keys], out_specs=queries, scratch_shapes=scratch,
                          compiler_params=marks)


fused = one_call(N, D, jnp.bfloat16, 512, 512).trace(*[array(N, D)] * 3)
t = fused.timeline(TPU_V5E)
print(f"three calls {moved / MiB:6.1f} MiB  {slow * 1e6:6.1f} µs")
print(f"one call    {t.hbm_bytes['total'] / MiB:6.1f} MiB  {t.total * 1e6:6.1f} µs modelled, core busy "
      f"{t.utilisation:.0%}: {slow / t.total:.1f} times as fast")
print(f"hazards: {pl.verify(fused.schedule) or 'none'}; SRAM: {t.sram_bytes / MiB:.2f} MiB of "
      f"{TPU_V5E.sram_bytes / MiB:.0f}")

small_q, small_k, small_v = (jax.random.normal(jax.random.key(i), (256, 32)) for i in range(3))
ours = one_call(256, 32, jnp.float32, 64, 32)(small_q, small_k, small_v)
expected = jax.nn.softmax(small_q @ small_k.T / math.sqrt(32), axis=1) @ small_v
print("largest difference from plain jnp:", float(abs(ours - expected).max()))

# %% [markdown]
# The scores exist for one step, in one block, and are gone. The bytes fall by far more than the time does: the
# products have to be computed all the same, and now the core is busy most of the time. What is left to move is q and
# the result once, and k and v once *for each block of queries*.
#
# ### Exercise 11.4 · What is left to move
# These sizes are your own. Predict the bytes that the one call moves, and how many times as many that is as q, k, v and
# the result have themselves.

# %%
STUDENT = ""  # your course id

mine = personal("11.4", STUDENT)
print(f"n = {mine.n}, d = {mine.d}, bf16 (2 bytes), bq = {mine.bq}, bk = {mine.bk}")

# %% exercise="11.4"
# prediction = MiB moved, how many times the bytes of the four arrays
### BEGIN SOLUTION
one_array = mine.n * mine.d * 2 / MiB
prediction = 2 * one_array + 2 * one_array * (mine.n // mine.bq), (1 + mine.n // mine.bq) / 2
### END SOLUTION

# %% check="11.4"
check("11.4", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# For each of the four arrays: how often is the whole of it copied?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# q comes in once, the result goes out once. The outer axis has n/bq steps, and at each of them all of k and all of v
# come by.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# With a = n·d·2 bytes: 2·a for q and the result, and 2·a·(n/bq) for k and v. The four arrays have 4·a.
# </details>

# %% [markdown]
# So bq decides the traffic, and bk does not occur in it. What is bk good for, then?

# %%
print("  bq    bk   SRAM MiB   moved MiB   µs modelled")
for bq, bk in (128, 512), (512, 512), (2048, 512), (512, 128), (512, 2048), (2048, 2048):
    t = one_call(N, D, jnp.bfloat16, bq, bk).trace(*[array(N, D)] * 3).timeline(TPU_V5E)
    print(f"{bq:4} {bk:5} {t.sram_bytes / MiB:9.2f} {t.hbm_bytes['total'] / MiB:11.1f}"
          f"{t.total * 1e6:12.1f}  {t.bound}-bound, core busy {t.utilisation:.0%}")

# %% [markdown]
# There are (n/bq)·(n/bk) steps, and each has α to wait for, unless enough copies are in flight (chapter 7). Larger
# blocks of either kind make fewer steps: 128 × 512 and 512 × 128 have as many, and both are latency-bound. So bk saves
# time where it saves no bytes, and pays with the slots of k and v; bq saves both, and pays with q, the result and acc.
# (The block of scores, bq × bk, is a temporary of the kernel's body; no slot is kept for it, but a compiler has to
# find room for it too.)
#
# ### Exercise 11.5 · Choose the blocks
# Another kernel has taken most of the SRAM. Choose bq, bk and the keys' depth for your sizes: fit into what is left,
# and take no longer than your target on TPU v5e.

# %%
task = personal("11.5", STUDENT)
print(f"n = {task.n}, d = {task.d}, bf16; target {task.target_us:g} µs")
print(f"{task.sram_kib} KiB of SRAM for slots, scratch and one block of scores (f32)")


def cost(bq, bk, depth):
    """SRAM in KiB, with the block of scores, and the modelled time in µs on TPU v5e."""
    trace = one_call(task.n, task.d, jnp.bfloat16, bq, bk, depth).trace(*[array(task.n, task.d)] * 3)
    return (trace.schedule.sram_bytes + 4 * bq * bk) / 1024, trace.timeline(TPU_V5E).total * 1e6


print("SRAM {:.0f} KiB, {:.1f} µs with bq = bk = 128, depth 2".format(*cost(128, 128, 2)))

# %% exercise="11.5"
# blocks = bq, bk, depth
### BEGIN SOLUTION
blocks = min(((bq, bk, depth) for bq in (128, 256, 512) for bk in (128, 256, 512) for depth in (2, 3, 4)
              if cost(bq, bk, depth)[0] <= task.sram_kib), key=lambda c: cost(*c)[1])
### END SOLUTION

# %% check="11.5"
check("11.5", blocks, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# <code>cost</code> is yours to call. Start from what the table above says of bq and of bk, and halve what does not fit.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# The block of scores takes 4·bq·bk bytes, so it grows with both. Traffic falls with bq. Waiting for α falls with the
# number of steps, so with bq and with bk, and with the depth of the keys' slots. Between them stands the SRAM.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# Let Python look: all bq and bk among 128, 256, 512 and depths 2 to 4, keep those with
# <code>cost(*c)[0] <= task.sram_kib</code>, and take the one with the least <code>cost(*c)[1]</code>.
# </details>

# %% [markdown]
# ## Half of the work need not be done
#
# In a language model a query may only look at keys up to its own place: **causal** attention. Scores above the diagonal
# are set to −inf. Whole blocks of keys then do nothing for a block of queries. **Predict:** of 8 × 8 steps, how many
# are needed? And if the kernel skips its work under `pl.when`, how many copies of k does that save?

# %%
def skipping_kernel(q_ref, k_ref, o_ref):
    @pl.when(pl.program_id(1) <= pl.program_id(0))
    def _():
        o_ref[...] = q_ref[...] + k_ref[...]


def skipping(index_map):
    """The trace of 8 × 8 steps whose keys' block is `index_map(i, j)`."""
    x = jax.ShapeDtypeStruct((64, 128), jnp.float32)
    queries, keys = pl.BlockSpec((8, 128), lambda i, j: (i, 0)), pl.BlockSpec((8, 128), index_map)
    call = pl.pallas_call(skipping_kernel, x, grid=(8, 8), in_specs=[queries, keys], out_specs=queries)
    return call.trace(x, x)


print("steps that are needed:", sum(j <= i for i in range(8) for j in range(8)), "of 64")
print("copies of k with lambda i, j: (j, 0):", skipping(lambda i, j: (j, 0)).schedule.copies("k"))

# %% [markdown]
# None are saved. The kernel cannot call off a copy; the pipeline has long made it. What the pipeline does look at is
# the index map: a copy is skipped when the block index does not change.
#
# ### Exercise 11.6 · Causal, without the copies
# Write causal attention that copies no block of k or v which it does not need.

# %% exercise="11.6"
def causal_attention(q: jax.Array, k: jax.Array, v: jax.Array, b: int) -> jax.Array:
    """Causal attention for f32[n, d], in blocks of b queries and b keys; b divides n.

    Key t counts for query s if t ≤ s. Block i of the queries needs blocks 0 to i of the keys; no other
    may be copied.
    """
    ### BEGIN SOLUTION
    n, d = q.shape

    def kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
        i, j = pl.program_id(0), pl.program_id(1)

        @pl.when(j == 0)
        def _():
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        @pl.when(j <= i)
        def _():
            scores = jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=jnp.float32) / math.sqrt(d)
            query = i * b + jax.lax.broadcasted_iota(jnp.int32, (b, b), 0)
            key = j * b + jax.lax.broadcasted_iota(jnp.int32, (b, b), 1)
            scores = jnp.where(key <= query, scores, -jnp.inf)
            new = jnp.maximum(m_ref[...], scores.max(axis=1, keepdims=True))
            weights, shrink = jnp.exp(scores - new), jnp.exp(m_ref[...] - new)
            m_ref[...] = new
            l_ref[...] = l_ref[...] * shrink + weights.sum(axis=1, keepdims=True)
            values = jnp.dot(weights, v_ref[...], preferred_element_type=jnp.float32)
            acc_ref[...] = acc_ref[...] * shrink + values

        @pl.when(j == i)
        def _():
            o_ref[...] = acc_ref[...] / l_ref[...]

    queries = pl.BlockSpec((b, d), lambda i, j: (i, 0))
    keys = pl.BlockSpec((b, d), lambda i, j: (jnp.minimum(i, j), 0))
    scratch = [pltpu.VMEM((b, width), jnp.float32) for width in (1, 1, d)]
    return pl.pallas_call(kernel, q, grid=(n // b, n // b), in_specs=[queries, keys, keys], out_specs=queries,
                          scratch_shapes=scratch)(q, k, v)
    ### END SOLUTION

# %% check="11.6"
check("11.6", causal_attention)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# Two separate things: the kernel masks scores (and may skip a step's work); the index map of k and v must not change
# during the steps that need nothing new.
# </details>
# <details><summary>Hint 2: the pattern</summary>
# For block i of the queries, let the keys' block stop at i: the smaller of i and j. In the kernel, do the work under
# <code>pl.when(j <= i)</code>; on the diagonal block, compare the places of key and query element by element.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# <code>lambda i, j: (jnp.minimum(i, j), 0)</code> for k and v. In the kernel, places are <code>i * b +
# jax.lax.broadcasted_iota(jnp.int32, (b, b), 0)</code> for queries and <code>j * b + …, 1)</code> for keys; scores
# where key > query become −inf. The result may be written at the last step, or at j == i.
# </details>

# %% [markdown]
# The same trick, on the page's small example:

# %%
causal = skipping(lambda i, j: (jnp.minimum(i, j), 0))
print("copies of k with lambda i, j: (min(i, j), 0):", causal.schedule.copies("k"))

_, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
pl.plot_grid(causal, "k", 21, ax)
plt.show()

# %% [markdown]
# 36 blocks are needed, and one fewer is copied: the last block of the first row is also the first of the second, so it
# is still there.
#
# ## Down to both
#
# Nothing was said of a TPU or a GPU in that kernel, and both can have it. The queries' axis is marked parallel, the
# keys' axis is not: m, l and acc go from step to step. **Predict:** which copies of the TPU program stand outside its
# loop, and what becomes of the two axes of the grid on a GPU?

# %%
call = one_call(128, 64, jnp.float32, 64, 32).trace(*[array(128, 64, jnp.float32)] * 3)
print("TPU, each DMA beside its entry in the schedule:\n")
print(call.lower("tpu").summary())

# %%
program = call.lower("triton")
text = program.as_text()
print("GPU, products for the tensor cores:", text.count("tt.dot "))
print("shared memory by operand, in bytes:", program.shared_memory())
for line in text.splitlines():
    if "tt.get_program_id" in line or "scf.for" in line:
        print(line.strip().partition(" iter_args")[0])
        if "->" in line:
            print("   hands on", line.partition("-> ")[2].partition("  :")[0])

# %% [markdown]
# The blocks of queries became the CUDA grid: the program asks which one it is (`get_program_id`) and goes through the
# keys in a loop. What each turn hands on to the next, in registers, is the block of the result, m, l and acc. The same
# kernel, the same order, another machine (chapters 9 and 10).
#
# ## One step past one chip
#
# Sequences grow longer than a chip's memory. Then each of P devices in a **ring** keeps n/P queries, keys and values.
# Every device needs all keys; so at each of P steps it works on the keys that it holds, and meanwhile passes them on
# to its neighbour and receives others. The network is one more level of the hierarchy: farther, slower, larger; and the
# pattern is the one of chapter 3, start early and wait late. First the values: is the order of the keys of any
# consequence? **Predict**, then run it.

# %%
def ring_attention(q, k, v, devices):
    """Each device's keys and values go round the ring once; the online softmax takes any order."""
    n, d = q.shape
    own = [np.split(np.asarray(a), devices) for a in (q, k, v)]
    rows = n // devices
    states = [(np.full((rows, 1), -np.inf), np.zeros((rows, 1)), np.zeros((rows, d)))] * devices
    for step in range(devices):
        for me in range(devices):
            source = (me - step) % devices  # whose keys have arrived here by now
            m, total, acc = states[me]
            scores = own[0][me] @ own[1][source].T / math.sqrt(d)
            new = np.maximum(m, scores.max(axis=1, keepdims=True))
            weights, shrink = np.exp(scores - new), np.exp(m - new)
            states[me] = (new, total * shrink + weights.sum(axis=1, keepdims=True),
                          acc * shrink + weights @ own[2][source])
    return np.concatenate([acc / total for _, total, acc in states])


print("largest difference from one device:",
      float(abs(ring_attention(small_q, small_k, small_v, 4) - np.asarray(expected)).max()))

# %% [markdown]
# Every device takes the keys in another order, and the result is the same: a maximum and two sums do not care. Now the
# time. For one device the ring is a pipeline whose blocks arrive over the network: the loop of chapter 3, with a
# slower memory. One thing is different. A neighbour can send on only what has come to it, so a hop starts when the one
# before has arrived: here the wait comes first. Below, a hop takes 1 µs in the network and 3 µs to arrive; **predict**
# which of the two rings runs without a gap: a step of 2 µs, or one of 5 µs?

# %%
from pallas_lite import compute, copy_in_start, copy_in_wait  # noqa: E402


def ring(N, A, X, Y, B):  # A[i]: the keys of step i; Y stays here
    copy_in_start(A[0], X[0])  # our own keys; the model lets them take as long as a hop
    for i in range(N):
        copy_in_wait(X[i % 2])
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % 2])  # the neighbour sends on while we compute
        compute(X[i % 2], Y[0])


network = TOY.with_(name="a hop of 1 + 3 µs", alpha=3e-6)
_, axes = plt.subplots(2, figsize=(9, 4.4), layout="constrained")
for ax, step_us in zip(axes, (2, 5), strict=True):
    t = pl.timeline(pl.record(ring, 8), network, step_seconds=step_us * 1e-6)
    title = f"a step of {step_us} µs: {t.total * 1e6:.0f} µs, core busy {t.utilisation:.0%}"
    pl.plot_timeline(t, ax, limit=46e-6, title=title)
plt.show()

# %% [markdown]
# After the first block, a hop hides behind a step if the step takes at least as long. A step's work grows with the
# number of queries; the hop does not: it carries keys and values only. So there is a number of queries for each device
# from which on the network is free.
#
# (In a TPU kernel a hop is `pltpu.make_async_remote_copy`: a copy into the neighbour's memory, with a semaphore at
# either end. pallas_lite simulates one chip, so there it reaches that chip only.)
#
# ### Exercise 11.7 · When is the network free?
# For your ring: how long does a hop take, and how many queries must each device have to hide it?

# %%
link = personal("11.7", STUDENT)
print(f"each device holds {link.keys} keys and values of d = {link.d} in bf16 (2 bytes)")
print(f"a link moves {link.gb_per_s} GB/s with a latency of {link.alpha_us} µs")
print(f"a matrix unit does {link.tflops}·10¹² operations a second")

# %% exercise="11.7"
# prediction = µs for one hop (keys and values together), the least number of queries that hides it
### BEGIN SOLUTION
hop = link.alpha_us * 1e-6 + 2 * link.keys * link.d * 2 / (link.gb_per_s * 1e9)
for_a_query = 4 * link.keys * link.d / (link.tflops * 1e12)
prediction = hop * 1e6, math.ceil(hop / for_a_query)
### END SOLUTION

# %% check="11.7"
check("11.7", prediction, student=STUDENT)

# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
# A hop is one transfer: α + bytes/β. What is sent? And how many operations does one query need for so many keys?
# </details>
# <details><summary>Hint 2: the pattern</summary>
# Keys and values: 2·keys·d numbers of 2 bytes. A query times all keys is 2·keys·d operations (a multiply and an add for
# each element); its weights times all values the same again.
# </details>
# <details><summary>Hint 3: almost the answer</summary>
# hop = α + 4·keys·d / β. Queries = hop · F / (4·keys·d), rounded up.
# </details>

# %% [markdown]
# ## What you take along
#
# - A reduction that seems to need everything at once may have a **running** form: keep what is needed to correct the
#   past (m and l), and rescale.
# - Fusing is about traffic: what never leaves SRAM is never moved. Then bq decides the bytes, and
#   fewer steps (by bq or bk) or more depth hide the latency.
# - A kernel cannot call off a copy. An index map can: let the block stay.
# - One kernel, three places: the simulator on your laptop, a TPU's DMAs, a GPU's blocks; and past the chip, a ring,
#   with the network as the next memory.
#
# You have gone from a loop that waits to a kernel that real models run on. Every piece of it is a copy that starts
# early, a wait that comes late, and a slot that is free in time. The rest you can now read:
# `jax.experimental.pallas.ops`, and your own kernels, under `import pallas_lite as pl`.

# %%
progress()
