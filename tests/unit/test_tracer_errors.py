"""What a kernel author gets wrong at first: each slip has an error of ours: where, what, and how to mend it."""
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl

X = np.arange(16, dtype=np.float32)
OUT = jax.ShapeDtypeStruct((16,), np.float32)


def block(index_map=lambda i: i, shape=(8,), **more):
    return pl.BlockSpec(shape, index_map, **more)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def call(kernel=copy, *operands, **changes):
    asked = dict(out_shape=OUT, grid=(2,), in_specs=[block()], out_specs=block()) | changes
    return pl.pallas_call(kernel, **asked)(*(operands or (X,)))


# -- in the kernel

KERNELS = {}  # kernel -> the whole message, with LINE for the line that the kernel has marked


def says(text, mark=None):
    def keep(kernel):
        source, first = inspect.getsourcelines(kernel)
        line = first + [text.strip() for text in source].index(mark) if mark else None
        KERNELS[kernel] = text.replace("WHERE", f"{kernel.__name__}, line {line} ({mark})")
        return kernel
    return keep


BRANCH = ("Python decides here, while the kernel is traced, on a value that only a running step has. Branch with "
          "@pl.when(condition), choose values with jnp.where(condition, a, b), loop with jax.lax.while_loop; write & "
          "and | for `and` and `or`.")
NUMBER = ("Python needs a number here, for int() or float(), and gets a value that only a running step has. Convert "
          "with value.astype(jnp.int32) or jnp.float32; an index may stay as it is: x_ref[i]. Look at a value with "
          "pl.debug_print, and assert on results.")
WHOLE = ("Python needs a whole number here, for a range, a slice or a list, and gets a value that only a running step "
         "has. Loop with pl.loop(0, n) or jax.lax.fori_loop, slice with pl.ds(start, size).")
NUMPY = ("NumPy needs a value here, and gets one that only a running step has. Use the function of the same name in "
         "jax.numpy.")
NO_VALUE = "x is a ref, not a value: read it first, x[...]."


@says(f"WHERE: {BRANCH}", "if pl.program_id(0) == 0:")
def branches_in_python(x_ref, o_ref):
    if pl.program_id(0) == 0:
        o_ref[...] = x_ref[...]


@says(f"WHERE: {BRANCH}", "while x_ref[0] < 3:")
def loops_while_an_element_is_small(x_ref, o_ref):
    while x_ref[0] < 3:
        o_ref[...] = x_ref[...]


@says(f"WHERE: {BRANCH}", "o_ref[...] = x_ref[...] if x_ref[0] > 0 and x_ref[1] > 0 else 0 * x_ref[...]")
def joins_with_and(x_ref, o_ref):
    o_ref[...] = x_ref[...] if x_ref[0] > 0 and x_ref[1] > 0 else 0 * x_ref[...]


@says(f"WHERE: {WHOLE}", "for _ in range(pl.program_id(0)):")
def ranges_over_a_position(x_ref, o_ref):
    for _ in range(pl.program_id(0)):
        o_ref[...] = x_ref[...]


@says(f"WHERE: {NUMPY}", "o_ref[...] = np.tanh(x_ref[...])")
def takes_numpys_tanh(x_ref, o_ref):
    o_ref[...] = np.tanh(x_ref[...])


@says(f"WHERE: {NUMPY}", "o_ref[...] = jnp.full_like(o_ref, np.asarray(x_ref[...]).sum())")
def sums_with_numpy(x_ref, o_ref):
    o_ref[...] = jnp.full_like(o_ref, np.asarray(x_ref[...]).sum())


@says(f"WHERE: {NUMBER}", "o_ref[int(x_ref[0])] = 1.0")
def makes_an_int(x_ref, o_ref):
    o_ref[int(x_ref[0])] = 1.0


@says(f"WHERE: {NUMBER}", "o_ref[...] = x_ref[...] * float(x_ref[0])")
def makes_a_float(x_ref, o_ref):
    o_ref[...] = x_ref[...] * float(x_ref[0])


@says("WHERE: a mask selects as many elements as only a running step knows. Take the whole block and choose: "
      "jnp.where(mask, new, old).", "o_ref[0] = x_ref[...][x_ref[...] > 3].sum()")
def selects_by_a_mask(x_ref, o_ref):
    o_ref[0] = x_ref[...][x_ref[...] > 3].sum()


MASK = ("{0}: a mask cannot index a ref. Choose on the whole block: read jnp.where(mask, {0}[...], other), write "
        "{0}[...] = jnp.where(mask, value, {0}[...]).")


@says(MASK.format("x"))
def reads_by_a_mask(x_ref, o_ref):
    o_ref[...] = x_ref[x_ref[...] > 3]


@says(MASK.format("o"))
def writes_by_a_mask(x_ref, o_ref):
    o_ref[x_ref[...] > 3] = 0.0


@says(MASK.format("o"))
def writes_by_a_list_of_bools(x_ref, o_ref):
    o_ref[[True, False] * 4] = 0.0


@says("o: a slice a:b has bounds that only a running step knows. Give a start and a size: pl.ds(start, size).")
def slices_with_a_colon(x_ref, o_ref):
    i = pl.program_id(0)
    o_ref[i:i + 4] = x_ref[0:4]


@says(NO_VALUE)
def adds_to_a_ref(x_ref, o_ref):
    o_ref[...] = x_ref + 1


@says(NO_VALUE)
def forgets_the_dots_on_both_sides(x_ref, o_ref):
    o_ref = x_ref * 2  # noqa: F841


@says("o is a ref, not a value: read it first, o[...].")
def adds_in_place(x_ref, o_ref):
    o_ref += x_ref[...]


@says("o: read the ref first: o[...] = x[...]")
def stores_a_ref(x_ref, o_ref):
    o_ref[...] = x_ref


@says(NO_VALUE)
def gives_a_ref_to_jnp(x_ref, o_ref):
    o_ref[...] = jnp.tanh(x_ref)


@says(NO_VALUE)
def gives_a_ref_to_numpy(x_ref, o_ref):
    o_ref[...] = np.tanh(x_ref)


@says(NO_VALUE)
def asks_whether_a_ref_is_true(x_ref, o_ref):
    if x_ref:
        o_ref[...] = x_ref[...]


@says(NO_VALUE)
def compares_a_ref(x_ref, o_ref):
    o_ref[...] = jnp.where(x_ref == 0, 1.0, 2.0)


@says(NO_VALUE)
def sums_the_elements_of_a_ref(x_ref, o_ref):
    o_ref[0] = sum(x_ref)


@says("returns_a_value returns a value; a kernel returns nothing and writes its results into its output refs "
      "(o_ref[...] = ...).")
def returns_a_value(x_ref, o_ref):
    return x_ref[...] + 1


@says("takes_too_few(x_ref) does not fit the call, which gives it 2 refs: the operands, then the outputs, then the "
      "scratch. Give the kernel one parameter for each.")
def takes_too_few(x_ref):
    pass


@says("takes_too_many(x_ref, y_ref, o_ref) does not fit the call, which gives it 2 refs: the operands, then the "
      "outputs, then the scratch. Give the kernel one parameter for each.")
def takes_too_many(x_ref, y_ref, o_ref):
    pass


@says("pl.when needs a condition, a bool: write @pl.when(pl.program_id(0) == 0) above the function. Of an array, ask "
      "for jnp.any(array), or choose with jnp.where(array, new, old).")
def gives_when_no_condition(x_ref, o_ref):
    @pl.when
    def _():
        o_ref[...] = x_ref[...]


@says("pl.when needs a condition, a bool: write @pl.when(pl.program_id(0) == 0) above the function. Of an array, ask "
      "for jnp.any(array), or choose with jnp.where(array, new, old).")
def gives_when_an_array(x_ref, o_ref):
    @pl.when(x_ref[...] > 0)
    def _():
        o_ref[...] = x_ref[...]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
def test_a_slip_in_the_kernel(kernel):
    with pytest.raises(pl.PallasLiteError) as error:
        call(kernel)
    assert str(error.value) == KERNELS[kernel]


def test_the_line_is_the_kernels_own_also_in_a_helper():
    def helper(value):
        return 1.0 if value > 0 else 2.0

    def kernel(x_ref, o_ref):
        o_ref[0] = helper(x_ref[0])
    with pytest.raises(pl.SpecError, match=r"kernel, line \d+ \(return 1.0 if value > 0 else 2.0\): Python decides"):
        call(kernel)


def test_what_is_no_slip(capsys):
    def kernel(x_ref, o_ref):
        print(x_ref, x_ref.shape, x_ref.dtype, len(x_ref), x_ref.ndim, x_ref.size)
        if x_ref.shape == (8,) and x_ref is not o_ref and not hasattr(x_ref, "nothing"):
            o_ref[...] = x_ref[...] + jnp.zeros_like(o_ref)
    np.testing.assert_array_equal(call(kernel), X)
    assert "Ref x float32[8] (8,) float32 8 1 8" in capsys.readouterr().out


# -- slices: bounds are checked, and Python's own rules for a:b hold, as in NumPy and in Pallas

def test_a_python_slice_ends_with_the_block():
    """x_ref[0:20] of 8 elements has the shape (8,), as upstream and NumPy have it: nothing is shifted."""
    def kernel(x_ref, o_ref):
        assert x_ref[0:20].shape == x_ref[-20:].shape == (8,)
        assert x_ref[6:20].shape == (2,)
        o_ref[0:20] = x_ref[0:20]
        o_ref[6:20] = x_ref[-2:] * 2
    np.testing.assert_array_equal(call(kernel), [*X[:6], *(2 * X[6:8]), *X[8:14], *(2 * X[14:])])


PAST = [
    (lambda x, o: o.__setitem__(slice(0, 20), jnp.zeros(20)),
     "o: a value of shape (20,) is written to a window of shape (8,). Give it the same shape (jnp.broadcast_to, "
     "jnp.full_like), or a spec another block shape."),
    (lambda x, o: x[9:12], "x: a slice from 9 lies past dimension 0 of 8."),
    (lambda x, o: o.__setitem__(slice(8, 12), jnp.zeros(0)),
     "o: a slice from 8 lies past dimension 0 of 8."),
    (lambda x, o: x[pl.ds(6, 4)],
     "x: slice 6:10 is out of range in dimension 0, which has 8 elements. A slice past the end does not shift."),
    (lambda x, o: o.__setitem__(pl.ds(6, 4), jnp.zeros(4)),
     "o: slice 6:10 is out of range in dimension 0, which has 8 elements. A slice past the end does not shift."),
    (lambda x, o: x[pl.ds(-2, 2)],
     "x: slice -2:0 is out of range in dimension 0, which has 8 elements. A start does not count from the end."),
    (lambda x, o: x[8],
     "x: index 8 is out of range in dimension 0, which has 8 elements. A slice past the end does not shift."),
    (lambda x, o: x[pl.program_id(0) - 1],
     "step 0: an index into x, which has shape (8,), goes past its end or below 0 (LINE). A slice does not "
     "shift, nor count from the end: guard it, or make the block larger."),
    (lambda x, o: o.__setitem__(pl.program_id(0) - 1, 1.0),
     "step 0: an index into o, which has shape (8,), goes past its end or below 0 (LINE). A slice does not "
     "shift, nor count from the end: guard it, or make the block larger."),
    (lambda x, o: o.__setitem__(pl.ds(7 * pl.program_id(0), 2), jnp.zeros(2)),
     "step 1: an index into o, which has shape (8,), goes past its end or below 0 (LINE). A slice does not "
     "shift, nor count from the end: guard it, or make the block larger."),
]


@pytest.mark.parametrize("line, text", PAST, ids=[f"{i}" for i in range(len(PAST))])
def test_an_access_outside_the_block(line, text):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        value = line(x_ref, o_ref)
        if value is not None:
            o_ref[0] = value.sum()
    with pytest.raises(pl.PallasLiteError) as error:
        call(kernel)
    assert str(error.value) == text.replace("LINE", f"line {line.__code__.co_firstlineno}")


def test_a_whole_number_may_count_from_the_end():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        o_ref[-1] = x_ref[-2]
    np.testing.assert_array_equal(call(kernel), [*X[:7], 6, *X[8:15], 14])


# -- in the call

CALLS = {
    "no out_shape": (lambda: pl.pallas_call(copy)(X),
                     "copy: out_shape is missing. Give a jax.ShapeDtypeStruct for each result."),
    "out_shape is a tuple of numbers": (lambda: call(out_shape=(16,)),
                                        "copy: out_shape holds 16; give jax.ShapeDtypeStruct(shape, dtype) for each "
                                        "output."),
    "a bare BlockSpec": (lambda: call(in_specs=block()),
                         "copy: in_specs is one BlockSpec; give a list: in_specs=[pl.BlockSpec(…)]."),
    "too few specs": (lambda: call(copy, X, X),
                      "copy: 2 operands but 1 in_specs. Call it on 1, or give one BlockSpec for each operand: in_specs "
                      "has 1, the call has 2 (a list counts once for each entry)."),
    "a Python list": (lambda: call(copy, [1.0, 2.0, 3.0]),
                      "copy: 3 operands but 1 in_specs. Call it on 1, or give one BlockSpec for each operand: in_specs "
                      "has 1, the call has 3 (a list counts once for each entry)."),
    "a spec that is none": (lambda: call(in_specs=["x"]),
                            "operand x: its spec is 'x'; give a pl.BlockSpec(block_shape, index_map)."),
    "swapped": (lambda: call(in_specs=[pl.BlockSpec(lambda i: i, (8,))]),
                "operand x: BlockSpec takes the block_shape first, then the index_map; here they are swapped."),
    "a number as block_shape": (lambda: call(in_specs=[pl.BlockSpec(8, lambda i: i)]),
                                "operand x: block_shape=8; give a tuple with one entry for each dimension of the "
                                "array, such as (8,)."),
    "an index map with a float": (lambda: call(in_specs=[block(lambda i: i / 2)]),
                                  "operand x: index_map(0,) returns 0.0; block indices are whole numbers (use // to "
                                  "divide)."),
    "an index map with too many": (lambda: call(in_specs=[block(lambda i: (i, 0))]),
                                   "operand x: index_map(0,) returns 2 block indices (0, 0), but block_shape has 1 "
                                   "dimension. Return one block index for each of them (0 for a dimension that is not "
                                   "cut)."),
    "an index map with too few": (lambda: call(copy, np.zeros((16, 8), np.float32),
                                               in_specs=[block(shape=(8, 8))]),
                                  "operand x: index_map(0,) returns 1 block index (0,), but block_shape has 2 "
                                  "dimensions. Return one block index for each of them (0 for a dimension that is not "
                                  "cut)."),
    "an index map of too many": (lambda: call(in_specs=[block(lambda i, j: i)]),
                                 "operand x: its index_map does not take 1 argument, one for each axis of the grid "
                                 "(2,). Change the map's parameters or the grid."),
    "an index map that raises": (lambda: call(in_specs=[block(lambda i: {}[0])]),
                                 "operand x: its index_map raises KeyError: 0"),
    "a number as pipeline_mode": (lambda: call(in_specs=[block(pipeline_mode=3)]),
                                  "operand x: pipeline_mode is pl.Buffered(n), with n slots. This is of type int."),
    "an index map that decides in Python": (lambda: call(in_specs=[block(lambda i: 1 if i else 0)]),
                                            "operand x: Pallas traces its index_map, which needs the value of a grid "
                                            "index where there is none yet. In place of a Python if, min or max use "
                                            "jnp.where, jnp.minimum or jnp.maximum; in place of indexing a NumPy "
                                            "array, a prefetched scalar.\n  Attempted boolean conversion of traced "
                                            "array with shape int32[]."),
    "a grid of a float": (lambda: call(grid=16 / 8),
                          "grid=(2.0,): each entry must be a whole number of steps, 1 or more, not 2.0."),
    "no grid": (lambda: call(grid=None),
                "grid=(None,): each entry must be a whole number of steps, 1 or more, not None."),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_slip_in_the_call(name):
    make, text = CALLS[name]
    with pytest.raises(pl.PallasLiteError) as error:
        make()
    assert str(error.value) == text


def test_an_assertion_in_a_kernel_is_its_authors():
    def kernel(x_ref, o_ref):
        assert x_ref.shape == (9,), "nine, please"
    with pytest.raises(AssertionError, match="nine, please"):
        call(kernel)


def test_specs_may_be_a_tuple():
    np.testing.assert_array_equal(call(in_specs=(block(),)), X)


def test_64_bit_operands_have_32_bits_as_in_jax():
    """Without x64, also in the bytes that the schedule counts."""
    f = pl.pallas_call(copy, jax.ShapeDtypeStruct((16,), np.float64), grid=(2,), in_specs=[block()], out_specs=block())
    for operand in (X.astype(np.float64), jax.ShapeDtypeStruct((16,), np.float64)):
        assert [x.block_bytes for x in f.trace(operand).schedule.operands] == [32, 32]
    assert f(X.astype(np.float64)).dtype == np.float32


def test_a_call_has_no_derivative():
    f = pl.pallas_call(copy, OUT, grid=2, in_specs=[block()], out_specs=block())
    total = lambda x: f(x).sum()  # noqa: E731
    forward = lambda x: jax.jvp(f, (x,), (x,))  # noqa: E731
    for gradient in (jax.grad(total), jax.jit(jax.grad(total)), jax.grad(jax.jit(total)), forward):
        with pytest.raises(pl.NotSupportedError) as error:
            gradient(jnp.asarray(X))
        assert str(error.value) == (
            "a pallas_call has no derivative here; in Pallas it has one for jax.jvp, and none for jax.grad. Give one "
            "to the function that calls it: for jax.grad with jax.custom_vjp, whose backward pass may be a kernel too, "
            "for jax.jvp with jax.custom_jvp.")


def test_a_derivative_given_by_the_author():
    def square(x_ref, o_ref):
        o_ref[...] = x_ref[...] ** 2

    def double(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    @jax.custom_vjp
    def f(x):
        return call(square, x)
    f.defvjp(lambda x: (call(square, x), x), lambda x, ct: (ct * call(double, x),))
    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(jnp.asarray(X)), 2 * X)
