"""Values that only a running step has, where Python or JAX wants them before; and arrays that are no ref's."""
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl

X = np.arange(16, dtype=np.float32)
OUT = jax.ShapeDtypeStruct((16,), np.float32)


def call(kernel, x=X):
    block = pl.BlockSpec((8,), lambda i: i)
    return pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[block], out_specs=block)(x)


SHAPE = ("a shape is fixed while the kernel is traced, and in this one is a value that only a running step has. Take "
         "the whole block and choose: jnp.where(condition, value, other).")
SOME = ("Python needs a value here, and gets one that only a running step has. Choose with jnp.where(condition, a, b), "
        "branch with @pl.when(condition), loop with pl.loop(0, n).")
AXIS = ("the axis of jnp.max, jnp.sum and their like is fixed while the kernel is traced, and here it is a value that "
        "only a running step has. Of two arrays, jnp.maximum and jnp.minimum choose for each number.")
SLIPS = [
    (lambda x, i: jnp.max(x[...], i * x[...]), AXIS), (lambda x, i: x[...].sum(i * x[...]), AXIS),
    (lambda x, i: x[...][i:i + 2], "a slice a:b has bounds that only a running step has. Slice the ref, "
     "x_ref[pl.ds(start, size)], or a value with jax.lax.dynamic_slice_in_dim(value, start, size)."),
    (lambda x, i: x[...][pl.ds(i, 2)], "pl.ds slices a ref, and this is a value. Read x_ref[pl.ds(start, size)], or "
     "take jax.lax.dynamic_slice_in_dim(value, start, size)."),
    (lambda x, i: jnp.zeros(i), SHAPE), (lambda x, i: x[...].reshape(i, 2), SHAPE),
    (lambda x, i: jax.lax.broadcasted_iota(jnp.int32, (i, 2), 0), SHAPE),
    (lambda x, i: {0: 1.0, 1: 2.0}[i], SOME), (lambda x, i: float(f"{i}"), SOME),
    (lambda x, i: jnp.tile(x[...], i), SOME),
]


@pytest.mark.parametrize("how, text", SLIPS)
def test_a_value_that_only_a_running_step_has(how, text):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + jnp.sum(how(x_ref, pl.program_id(0)))
    with pytest.raises(pl.SpecError) as error:
        call(kernel)
    where, says = re.fullmatch(r"kernel, line (\d+) \(.*\): (.*)", str(error.value)).groups()
    first = inspect.getsourcelines(how)[1]
    assert first <= int(where) < first + 2 and says == text


# Every way to index an array from outside, most of them with a position that only a running step has.
BY_INDEX = [
    lambda x, i: x[i], lambda x, i: x[i:i + 2], lambda x, i: x[:i], lambda x, i: x[pl.ds(i, 2)], lambda x, i: x[x > i],
    lambda x, i: x[[i]], lambda x, i: x[jnp.array([i])], lambda x, i: x[i, 0], lambda x, i: x[1.0 * i],
    lambda x, i: x.at[i:i + 2].get(), lambda x, i: x.at[i].get(), lambda x, i: jnp.take(x, i),
    lambda x, i: jax.lax.dynamic_slice(x, (i,), (2,)), lambda x, i: jnp.where(i > 0, x, 0), lambda x, i: x[0:2]]


@pytest.mark.parametrize("how", BY_INDEX)
@pytest.mark.parametrize("outer", [X, jnp.asarray(X)], ids=["numpy", "jax"])
@pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["", "jit"])
def test_an_array_from_outside_is_named_however_it_is_indexed(how, outer, run):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + jnp.sum(how(outer, pl.program_id(0)))
    with pytest.raises(pl.SpecError, match="outside.*but a kernel sees its refs only") as error:
        run(lambda x: call(kernel, x))(X)
    assert "Tracer" not in str(error.value) and "\x1b" not in str(error.value)


def test_an_array_from_outside_is_named_with_its_line():
    x = jnp.asarray(X)

    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[...] = x[8 * i:8 * i + 8]
    with pytest.raises(pl.SpecError) as error:
        call(kernel, x)
    assert re.sub(r"\d+ \(", "N (", str(error.value), count=1) == (
        "kernel, line N (o_ref[...] = x[8 * i:8 * i + 8]): x comes from outside, but a kernel sees its refs only. Pass "
        "the array as an input and read its ref, or compute it in the kernel from jnp.arange, jnp.full or Python "
        "numbers.")


def test_a_value_of_the_kernels_own_does_not_come_from_outside():
    x = jnp.asarray(X)

    def kernel(x_ref, o_ref):
        y, n = x_ref[...], x.shape[0] // 2
        o_ref[...] = y[pl.program_id(0):n]
    with pytest.raises(pl.SpecError, match=r"y\[pl.program_id\(0\):n\]\): a slice a:b has bounds that"):
        call(kernel, x)


def test_an_index_map_that_stops_says_one_line_of_jax():
    spec = pl.BlockSpec((8,), lambda i: jnp.zeros(i))
    with pytest.raises(pl.SpecError) as error:
        pl.pallas_call(lambda x_ref, o_ref: None, OUT, grid=(2,), in_specs=[spec], out_specs=spec)(X)
    assert "index_map raises TypeError: Shapes must be" in str(error.value)
    assert "\n" not in str(error.value) and "\x1b" not in str(error.value)
