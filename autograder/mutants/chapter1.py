"""Planted answers of chapter 1: wrong ones, each with its misconception and a word of the message it gets; right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl
from autograder import personal
from pallas_lite.hardware import H100, TPU_V5E


def relu_of_sum(x_ref, y_ref, z_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...] * y_ref[...] + z_ref[...], 0)


def fuse(kernel, **options):
    """One call of a kernel on three operands."""
    def fused(x, y, z):
        return pl.pallas_call(kernel, out_shape=x, **options)(x, y, z)
    return fused


def computes(f):
    """One call, with f(x, y, z) in the kernel."""
    def kernel(x_ref, y_ref, z_ref, o_ref):
        o_ref[...] = f(x_ref[...], y_ref[...], z_ref[...])
    return fuse(kernel)


def three_calls(x, y, z):
    def two(f, a, b):
        def kernel(a_ref, b_ref, o_ref):
            o_ref[...] = f(a_ref[...], b_ref[...])
        return pl.pallas_call(kernel, out_shape=a)(a, b)

    def relu(a_ref, o_ref):
        o_ref[...] = jnp.maximum(a_ref[...], 0)
    return pl.pallas_call(relu, out_shape=x)(two(jnp.add, two(jnp.multiply, x, y), z))


def product_in_a_kernel(x, y, z):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...]
    return jnp.maximum(pl.pallas_call(kernel, out_shape=x)(x, y) + z, 0)


def maximum_outside(x, y, z):
    return jnp.maximum(computes(lambda x, y, z: x * y + z)(x, y, z), 0)


def reads_the_output(x_ref, y_ref, z_ref, o_ref):
    o_ref[...] = jnp.maximum(o_ref[...] + x_ref[...] * y_ref[...] + z_ref[...], 0)


def output_first(o_ref, x_ref, y_ref, z_ref):
    o_ref[...] = jnp.maximum(x_ref[...] * y_ref[...] + z_ref[...], 0)


def output_third(x_ref, y_ref, o_ref, z_ref):
    o_ref[...] = jnp.maximum(x_ref[...] * y_ref[...] + z_ref[...], 0)


def copies_beside(x, y, z):
    """A call of the right form, whose result nobody uses."""
    computes(lambda x, y, z: x)(x, y, z)
    return jnp.maximum(x * y + z, 0)


def returns(x_ref, y_ref, z_ref, o_ref):
    return jnp.maximum(x_ref[...] * y_ref[...] + z_ref[...], 0)


def computes_on_refs(x_ref, y_ref, z_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref * y_ref + z_ref, 0)


def call_not_called(x, y, z):
    return pl.pallas_call(relu_of_sum, out_shape=x)


def refs_are_values(x_ref, y_ref, z_ref, o_ref):
    o_ref = jnp.maximum(x_ref[...] * y_ref[...] + z_ref[...], 0)  # noqa: F841


p, q = personal("1.3"), personal("1.4")
A, B = 2 * p.terms / (3 * p.size), p.m * p.k * p.n / (p.m * p.k + p.k * p.n + p.m * p.n)
V5E, H, WORK = (100 * q.operations * TPU_V5E.beta / (4 * q.arrays * TPU_V5E.flops),
                100 * q.operations * H100.beta / (4 * q.arrays * H100.flops),
                4 * q.arrays * TPU_V5E.flops / TPU_V5E.beta)

WRONG = {
    "1.1": [
        ("an array takes a byte for each element", lambda shape, dtype: math.prod(shape), "How many bytes does each"),
        ("sizes add up", lambda shape, dtype: sum(shape) * jnp.dtype(dtype).itemsize, "multiply"),
        ("every number has four bytes", lambda shape, dtype: 4 * math.prod(shape), "Other dtypes"),
        ("every number has eight bytes, as in Python", lambda shape, dtype: 8 * math.prod(shape), "eight bytes"),
        ("sizes are in bits", lambda shape, dtype: 8 * math.prod(shape) * jnp.dtype(dtype).itemsize, "bits"),
        ("arrays have two axes", lambda shape, dtype: math.prod(shape[:2]) * jnp.dtype(dtype).itemsize,
         "any number of axes"),
        ("a shape without axes is empty",
         lambda shape, dtype: math.prod(shape) * jnp.dtype(dtype).itemsize if shape else 0, "product of no factors"),
        ("a bfloat16 is a float32 in size",
         lambda shape, dtype: math.prod(shape) * (4 if "float" in dtype else 1), "Other dtypes"),
        ("a table of the dtypes on the page is enough",
         lambda shape, dtype: math.prod(shape) * {"float32": 4, "bfloat16": 2, "int8": 1}[dtype], "knows them all"),
        ("what is not on the page has a byte",
         lambda shape, dtype: math.prod(shape) * (4 if dtype == "float32" else 2 if dtype == "bfloat16" else 1),
         "How many bytes does each"),
        ("what is not on the page is as large as a bfloat16",
         lambda shape, dtype: math.prod(shape) * {"float32": 4, "int8": 1}.get(dtype, 2), "two bytes an element"),
        ("KiB are asked for", lambda shape, dtype: math.prod(shape) * jnp.dtype(dtype).itemsize / 1024, "too low"),
    ],
    "1.2": [
        ("results need no SRAM", lambda b: math.isqrt(b // 8), "z lies in SRAM"),
        ("the operands come one after the other", lambda b: math.isqrt(b // 4), "x, y and z"),
        ("a number is a byte", lambda b: math.isqrt(b // 3), "four bytes"),
        ("n is the number of elements", lambda b: b // 12, "n² of them"),
        ("round to the nearest", lambda b: round(math.sqrt(b / 12)), "round down"),
        ("round up", lambda b: math.ceil(math.sqrt(b / 12)), "round down"),
        ("a part of a row fits, too", lambda b: math.sqrt(b / 12), "whole number"),
        ("each array has two places", lambda b: math.isqrt(b // 24), "not two"),
        ("it must be a power of two", lambda b: 2 ** int(math.log2(max(math.sqrt(b / 12), 1))), "too low"),
        ("less than all of it must be used", lambda b: math.isqrt(max(b - 1, 0) // 12), "too low"),
    ],
    "1.3": [("one number answers both", 5.5, "2 answers in a row"),
            ("the rule for squares holds for all products", (A, p.n / 3), "n/3 is for")],
    "1.4": [("one number answers all", 1.1, "3 answers in a row"),
            ("half of F is a fair guess", (50, 50, WORK), "How many percent")],
    "1.5": [
        ("one operation, one call", three_calls, "calls"),
        ("the result is what counts", lambda x, y, z: jnp.maximum(x * y + z, 0), "no pallas_call"),
        ("the kernel does the costly part, JAX the rest", product_in_a_kernel, "One pallas_call"),
        ("the last step may as well be outside", maximum_outside, "did not make them"),
        ("it is enough that there is a call", copies_beside, "did not make them"),
        ("Python's max works on arrays", computes(lambda x, y, z: max(x * y + z, 0)), "jnp.maximum"),
        ("a ref is a value", fuse(computes_on_refs), "read it first"),
        ("the output is no parameter", fuse(lambda x_ref, y_ref, z_ref: x_ref[...]), "three operands and one output"),
        ("a kernel returns its result", fuse(returns), "returns nothing"),
        ("pallas_call runs the kernel", call_not_called, "nothing has run"),
        ("assigning the name stores the value", fuse(refs_are_values), "Nothing was stored"),
        ("an output starts at zero", fuse(reads_the_output), "read o_ref before"),
        ("the output comes first", fuse(output_first), "the kernel's last parameter"),
        ("refs may stand in any order", fuse(output_third), "the kernel's last parameter"),
        ("the sister of it is the same", computes(lambda x, y, z: jnp.minimum(x * y - z, 1)), "your kernel make"),
        ("the maximum with 0 drops a sign", computes(lambda x, y, z: jnp.abs(x * y + z)), "not positive"),
        ("the sum comes before the product", computes(lambda x, y, z: jnp.maximum((x + y) * z, 0)), "z is added"),
        ("x serves twice", computes(lambda x, y, z: jnp.maximum(x * y + x, 0)), "not x"),
        ("z is for later", computes(lambda x, y, z: jnp.maximum(x * y, 0)), "z is missing"),
        ("the maximum comes before the sum", computes(lambda x, y, z: jnp.maximum(x * y, 0) + z), "Add z first"),
        ("max keeps what is below", computes(lambda x, y, z: jnp.minimum(x * y + z, 0)), "take the larger"),
        ("all three are added", computes(lambda x, y, z: jnp.maximum(x + y + z, 0)), "multiply"),
        ("no maximum", computes(lambda x, y, z: x * y + z), "Negative results"),
    ],
}


def counted(shape, dtype):
    """The size of an array that JAX never makes."""
    array = jax.ShapeDtypeStruct(shape, dtype)
    return array.size * array.dtype.itemsize


def made_and_asked(shape, dtype):
    return jnp.zeros(shape, dtype).nbytes


def tried(sram):
    """Grows n until it does not fit."""
    n = 0
    while 3 * 4 * (n + 1) ** 2 <= sram:
        n += 1
    return n


def rows(x, y, z):
    """In blocks of one row each, by a grid."""
    shape = x.shape
    flat = [a.reshape(-1, shape[-1]) for a in (x, y, z)]
    if len(shape) != 2:
        return fuse(relu_of_sum)(x, y, z)
    spec = pl.BlockSpec((1, shape[-1]), lambda i: (i, 0))
    return pl.pallas_call(relu_of_sum, flat[0], grid=(shape[0],), in_specs=[spec] * 3, out_specs=spec)(*flat)


def with_where(x_ref, y_ref, z_ref, o_ref):
    value = z_ref[...] + y_ref[...] * x_ref[...]
    o_ref[...] = jnp.where(value > 0, value, jnp.zeros_like(value))


RIGHT = {
    "1.1": [("asks JAX, makes nothing", counted), ("makes the array and asks it", made_and_asked)],
    "1.2": [("tries one after the other", tried), ("square root in floating point", lambda b: int((b / 12) ** 0.5))],
    "1.3": [("rounded to three digits, as a list", [float(f"{A:.3g}"), float(f"{B:.3g}")]),
            ("as an array", np.array([A, B]))],
    "1.4": [("rounded to three digits", tuple(float(f"{v:.3g}") for v in (V5E, H, WORK))),
            ("a whole number of operations", (V5E, H, math.ceil(WORK)))],
    "1.5": [("by where, in another order", fuse(with_where)), ("in blocks of rows", rows),
            ("the compiler's own relu", computes(lambda x, y, z: jax.nn.relu(x * y + z)))],
}
