"""Planted answers of chapter 8: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from autograder import personal
from pallas_lite import tpu as pltpu


def body(axis=2, clear=lambda k, last: k == 0, write=lambda k, last: k == last, done=lambda total, bias: total,
         grow=lambda total, part, bias: total + part, first=lambda bias: 0):
    """The kernel of a matmul, with an optional bias, and one part replaced."""
    def kernel(x_ref, y_ref, *refs):
        bias_ref, o_ref, sum_ref = refs if len(refs) == 3 else (None, *refs)
        k, last = pl.program_id(axis), pl.num_programs(axis) - 1
        bias = 0 if bias_ref is None else bias_ref[...]

        @pl.when(clear(k, last))
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref) + first(bias)
        part = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
        sum_ref[...] = grow(sum_ref[...], part, bias).astype(sum_ref.dtype)

        @pl.when(write(k, last))
        def _():
            o_ref[...] = done(sum_ref[...], bias).astype(o_ref.dtype)
    return kernel


def product(kernel=None, order="ijk", of_x="ik", of_y="kj", of_o="ij", of_bias="0j", scratch=jnp.float32,
            out=jnp.bfloat16, whole_k=False, swapped=False, grid="",
            bias_rows=lambda bm: 1):
    """A matmul with one part replaced: `order` names the axes of the maps, the others which two choose a block.

    `grid`: its axes, where they are others than the maps'.
    """
    def matmul(x, y, *rest):
        *bias, bm, bn, bk = rest
        m, k, n = *x.shape, y.shape[1]
        bk = k if whole_k else bk
        steps = {"i": m // bm, "j": n // bn, "k": k // bk}

        def at(axes):
            return lambda *ids: tuple(0 if a == "0" else ids[order.index(a)] for a in axes)
        y_block = (bn, bk) if swapped else (bk, bn)
        specs = [pl.BlockSpec((bm, bk), at(of_x)), pl.BlockSpec(y_block, at(of_y)),
                 *(pl.BlockSpec((bias_rows(bm), bn), at(of_bias)) for _ in bias)]
        return pl.pallas_call(
            kernel or body(), jax.ShapeDtypeStruct((m, n), out), grid=tuple(steps[a] for a in grid or order),
            in_specs=specs, out_specs=pl.BlockSpec((bm, bn), at(of_o)),
            scratch_shapes=[pltpu.VMEM((bm, bn), scratch)])(x, y, *bias)
    return matmul


def into_the_output(x, y, bm, bn, bk):
    """The sum grows in the bfloat16 output block."""
    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += jnp.dot(x_ref[...], y_ref[...])
    m, k, n = *x.shape, y.shape[1]
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn, k // bk),
                          in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
                                    pl.BlockSpec((bk, bn), lambda i, j, k: (k, j))],
                          out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)))(x, y)


def flat(x, y, bm, bn, bk):
    """One axis of steps, and the sum begun with the first product."""
    m, k, n = *x.shape, y.shape[1]
    deep, wide = k // bk, n // bn

    def kernel(x_ref, y_ref, o_ref, sum_ref):
        part, at = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32), pl.program_id(0) % deep
        sum_ref[...] = jnp.where(at == 0, part, sum_ref[...] + part)
        o_ref[...] = sum_ref[...].astype(o_ref.dtype)
    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm) * wide * deep,
        in_specs=[pl.BlockSpec((bm, bk), lambda t: (t // deep // wide, t % deep)),
                  pl.BlockSpec((bk, bn), lambda t: (t % deep, t // deep % wide))],
        out_specs=pl.BlockSpec((bm, bn), lambda t: (t // deep // wide, t // deep % wide)),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])(x, y)


def fixed(*sizes, done=lambda total, bias: total):
    """A matmul with a block size, or several, written in instead of the parameter."""
    def matmul(*given):
        *arrays, bm, bn, bk = given
        return product(body(done=done))(*arrays, *(a or b for a, b in zip(sizes, (bm, bn, bk), strict=True)))
    return matmul


def bias_by_jnp(x, w, bias, bm, bn, bk):
    return jnp.maximum(product()(x, w, bm, bn, bk) + bias, 0).astype(x.dtype)


def bias_given_and_left(x, w, bias, bm, bn, bk):
    return jnp.maximum(product(body())(x, w, bias, bm, bn, bk) + bias, 0).astype(x.dtype)


def uncast_kernel(x_ref, y_ref, o_ref, sum_ref):
    sum_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)


def very_first(k, last):
    return (pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (k == 0)


cleared_once_kernel = body(clear=very_first)


def relu(total, bias):
    return jnp.maximum(total + bias, 0)


def one_product_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...], y_ref[...])


def batched(order="bij", of_x=("b", "i", 0), of_y=("b", 0, "j"), of_o=("b", "i", "j"), one=None, height=None):
    """The batched product with one part replaced. `one`: the batch dimension of a block."""
    def products(x, y, bm, bn):
        (B, m, k), n = x.shape, y.shape[2]
        bm = height(bm, m) if height else bm
        steps = {"b": B, "i": m // bm, "j": n // bn}

        def at(axes):
            return lambda *ids: tuple(a if a == 0 else ids[order.index(a)] for a in axes)
        specs = [pl.BlockSpec((one, bm, k), at(of_x)), pl.BlockSpec((one, k, bn), at(of_y))]
        return pl.pallas_call(one_product_kernel, jax.ShapeDtypeStruct((B, m, n), x.dtype),
                              grid=tuple(steps[a] for a in order), in_specs=specs,
                              out_specs=pl.BlockSpec((one, bm, bn), at(of_o)))(x, y)
    return products


def one_by_one(x, y, bm, bn):
    return jnp.stack([batched()(a[None], b[None], bm, bn)[0] for a, b in zip(x, y, strict=True)])


def under_vmap(x, y, bm, bn):
    return jax.vmap(lambda a, b: batched()(a[None], b[None], bm, bn)[0])(x, y)


def flat_batch(x, y, bm, bn):
    (B, m, k), n = x.shape, y.shape[2]
    down, across = m // bm, n // bn
    return pl.pallas_call(
        one_product_kernel, jax.ShapeDtypeStruct((B, m, n), x.dtype), grid=(B * down, across),
        in_specs=[pl.BlockSpec((pl.squeezed, bm, k), lambda t, j: (t // down, t % down, 0)),
                  pl.BlockSpec((pl.squeezed, k, bn), lambda t, j: (t // down, 0, j))],
        out_specs=pl.BlockSpec((pl.squeezed, bm, bn), lambda t, j: (t // down, t % down, j)))(x, y)


p = personal("8.2")
X, W, OUT = (2 * size / 2**20 for size in (p.m * p.k, p.k * p.n, p.m * p.n))
DOWN, ACROSS = p.m // p.bm, p.n // p.bn
TRAFFIC = X + DOWN * W + OUT, ACROSS * X + W + OUT, ACROSS * X + DOWN * W + OUT

WRONG = {
    "8.1": [
        ("scratch starts at zero", product(body(clear=lambda k, last: k < 0)), "clear the sum"),
        ("each step clears the sum", product(body(clear=lambda k, last: k >= 0)), "last block of k alone"),
        ("the output is written at the first k", product(body(write=lambda k, last: k == 0)), "first block of k alone"),
        ("the sum may grow in the output", into_the_output, "rounded too often"),
        ("scratch as narrow as the operands", product(scratch=jnp.bfloat16), "rounded too often"),
        ("a sum may be as narrow as its parts", product(uncast_kernel, scratch=jnp.bfloat16), "should be float32"),
        ("scratch is cleared once in all", product(cleared_once_kernel), "from tile to tile"),
        ("k may be the outermost axis", product(body(axis=0), "kij"), "revisit"),
        ("cleared where a row of tiles begins", product(body(axis=1)), "last block of k"),
        ("one block of k is enough", product(whole_k=True), "larger than the task allows"),
        ("y goes by rows, as x does", product(of_y="ik"), "index map"),
        ("the grid counts columns first", product(grid="jik"), "a step for each block"),
        ("the grid begins with k", product(grid="kji"), "a step for each block"),
        ("k is the middle axis of the grid", product(grid="ikj"), "a step for each block"),
        ("x's block follows j", product(of_x="jk"), "Are those the blocks"),
        ("rounded after the call", lambda *given: product(out=jnp.float32)(*given).astype(jnp.bfloat16),
         "Let the kernel round"),
        ("bm is the first case's", fixed(8, None, None), "locks of"),
        ("bn is the first case's", fixed(None, 24, None), ""),
        ("bk is the first case's", fixed(None, None, 32), "locks of"),
        ("the result stays float32", product(out=jnp.float32), "should be bfloat16"),
        ("the blocks of y are bn × bk", product(swapped=True), "contracting"),
        ("a product of arrays is one", lambda x, y, *_: x @ y, "no pallas_call"),
    ],
    "8.2": [
        ("one number answers all", 12, "3 answers in a row"),
        ("bytes are MiB", [t * 2**20 for t in TRAFFIC], "too high"),
        ("bfloat16 has one byte", [t / 2 for t in TRAFFIC], "bfloat16 has 2 bytes"),
        ("a MB is a MiB", [t * 1.024**2 for t in TRAFFIC], "A MiB has 1024²"),
    ],
    "8.3": [
        ("the activation at every step",
         product(body(done=relu, grow=lambda total, part, bias: jnp.maximum(total + part, 0))), "still grows"),
        ("the bias at every step",
         product(body(done=lambda total, bias: jnp.maximum(total, 0),
                      grow=lambda total, part, bias: total + part + bias)), "every step of k"),
        ("bias and activation at every step",
         product(body(grow=lambda total, part, bias: jnp.maximum(total + part + bias, 0))), "still grows"),
        ("the activation on each block's product",
         product(body(done=relu, grow=lambda total, part, bias: total + jnp.maximum(part, 0))), "to each block's"),
        ("bias and activation on each block's product",
         product(body(grow=lambda total, part, bias: total + jnp.maximum(part + bias, 0))), "to each block's"),
        ("scratch is cleared once in all",
         product(body(clear=very_first, done=relu)), "from tile to tile"),
        ("a tile of the bias", product(body(done=relu), bias_rows=lambda bm: bm), "higher than the array"),
        ("the bias comes after",
         product(body(done=lambda total, bias: jnp.maximum(total, 0) + bias)), "First the bias"),
        ("without the activation", product(body(done=lambda total, bias: total + bias)), "activation is missing"),
        ("without the bias", product(body(done=lambda total, bias: jnp.maximum(total, 0))), "bias is missing"),
        ("the bias has one block", product(body(done=relu), of_bias="00"), "should follow j"),
        ("the activation after the call", lambda *given: jnp.maximum(
            product(body(done=lambda total, bias: total + bias))(*given), 0), "activation is missing"),
        ("rounded after the call", lambda *given: product(body(done=relu), out=jnp.float32)(*given).astype(
            jnp.bfloat16), "Let the kernel round"),
        ("any activation will do", product(body(done=lambda total, bias: jax.nn.gelu(total + bias))), "another thing"),
        ("the bias is as narrow as x", product(body(done=lambda total, bias: relu(total, bias.astype(jnp.bfloat16)))),
         "before the end"),
        ("bm is the first case's", fixed(8, None, None, done=relu), "locks of"),
        ("bn is the first case's", fixed(None, 24, None, done=relu), ""),
        ("bk is the first case's", fixed(None, None, 32, done=relu), "locks of"),
        ("the epilogue in a call of its own", bias_by_jnp, "One pallas_call"),
        ("bias and activation after the call", bias_given_and_left, "product alone"),
        ("neither bias nor activation", product(body()), "product alone"),
        ("the grid counts columns first", product(body(done=relu), grid="jik"), "a step for each block"),
        ("the bias follows k", product(body(done=relu), of_bias="0k"), "bias"),
        ("scratch as narrow as the operands", product(body(done=relu), scratch=jnp.bfloat16), "rounded"),
    ],
    "8.4": [
        ("the account's first", (512, 512, 512, 2), "one more slot"),
        ("the largest", (1024, 1024, 2048, 2), "does not fit"),
        ("the account's first and a third slot", (512, 512, 512, 3), "a larger bk gains most"),
        ("larger tiles, too", (1024, 512, 512, 3), "a larger bk gains most"),
        ("more slots are never slower", (512, 512, 512, 9), "one slot fewer gains most"),
        ("slots instead of blocks", (1024, 512, 512, 8), "a larger bk and fewer slots together"),
        ("the sum needs no room", (256, 128, 8192, 2), "together do"),
        ("small blocks of k", (512, 512, 128, 4), "adds to each sum 64 times"),
        ("small tiles", (256, 256, 512, 4), "bandwidth-bound: x is read 8 times"),
        ("tiny tiles", (128, 128, 128, 2), "latency-bound"),
        ("blocks of any size", (500, 512, 512, 2), "multiple of 128"),
        ("blocks need not divide", (384, 512, 512, 2), "divides m"),
        ("bk is not mine to choose", (512, 512, 3), "four numbers"),
        ("half a slot", (512, 512, 1024, 2.5), "whole numbers"),
        ("one slot saves SRAM", (1024, 1024, 1024, 1), "latency-bound"),
    ],
    "8.5": [
        ("the batch is the innermost axis", batched("ijb"), "copied only once"),
        ("columns outside", batched("bji"), "copied only once"),
        ("each product in a call of its own", one_by_one, "One pallas_call"),
        ("all of the batch in a block", batched(one=1), "None for 1"),
        ("y is the same for all", batched(of_y=(0, 0, "j")), "index map of y"),
        ("y's block follows i", batched(of_y=("b", 0, "i")), "smallest failing case"),
        ("all rows at once", batched(height=lambda bm, m: m), "larger than the task allows"),
        ("the output has one matrix", batched(of_o=(0, "i", "j")), "smallest failing case"),
        ("rows and columns change places in the output", batched(of_o=("b", "j", "i")), "index map"),
        ("bm and bn are the first case's", lambda x, y, bm, bn: batched()(x, y, 16, 24), ""),
        ("bm is the first case's", lambda x, y, bm, bn: batched()(x, y, 16, bn), ""),
        ("bn is the first case's", lambda x, y, bm, bn: batched()(x, y, bm, 24), ""),
        ("vmap makes the axis", under_vmap, "jax.vmap"),
    ],
}

RIGHT = {
    "8.1": [("columns of tiles outside", product(order="jik")), ("one axis of steps, written at each step", flat)],
    "8.2": [("as an array", np.array(TRAFFIC))],
    "8.3": [("columns of tiles outside", product(body(done=relu), order="jik")),
            ("the sum begins with the bias",
             product(body(first=lambda bias: bias, done=lambda total, bias: jnp.maximum(total, 0))))],
    "8.4": [("larger tiles, two slots", [512, 1024, 2048, 2]), ("as an array", np.array([1024, 512, 1024, 3]))],
    "8.5": [("batch and rows in one axis", flat_batch), ("rows outside the batch", batched("ibj"))],
}
