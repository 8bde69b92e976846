"""A file with one of the two imports changed: what is still jax.experimental.pallas's own is named, or works."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as their_pl
from jax.experimental.pallas import tpu as theirs

import pallas_lite as pl
from pallas_lite import tpu as pltpu

X = np.arange(16 * 128, dtype=np.float32).reshape(16, 128)
OUT = jax.ShapeDtypeStruct(X.shape, X.dtype)
BLOCK, ANY = pl.BlockSpec((8, 128), lambda i: (i, 0)), pl.BlockSpec(memory_space=pl.ANY)
UPSTREAM = ("it is jax.experimental.pallas's own: change both imports, to `import pallas_lite as pl` and "
            "`from pallas_lite import tpu as pltpu`.")


def copy(x_ref, o_ref, *scratch):
    o_ref[...] = x_ref[...]


def call(kernel=copy, **changes):
    given = dict(grid=(2,), in_specs=[BLOCK], out_specs=BLOCK) | changes
    return pl.pallas_call(kernel, OUT, **given)(X)


def manual(kernel, *scratch):
    return call(kernel, grid=(), in_specs=[ANY], out_specs=ANY, scratch_shapes=scratch)


ARGUMENTS = {
    "operand x: its spec is BlockSpec": lambda: call(in_specs=[their_pl.BlockSpec((8, 128), lambda i: (i, 0))]),
    "copy: scratch_shapes holds MemoryRef": lambda: call(scratch_shapes=[theirs.VMEM((8, 128), jnp.float32)]),
    "copy: scratch_shapes holds <SemaphoreType": lambda: call(scratch_shapes=[theirs.SemaphoreType.DMA]),
    "operand x: memory_space is pl.ANY, pltpu.VMEM, SMEM or HBM. This is of type MemorySpace":
        lambda: call(in_specs=[pl.BlockSpec(memory_space=theirs.SMEM)]),
    "operand x: entry 0 of block_shape": lambda: call(in_specs=[pl.BlockSpec((their_pl.Element(8), 128))]),
    "interpret is True, False or pltpu.InterpretParams(…). This is of type InterpretParams":
        lambda: call(interpret=theirs.InterpretParams()),
    "run_scoped allocates pltpu.VMEM(shape, dtype), pltpu.SMEM(…) or pltpu.SemaphoreType.DMA. This is of type Mem":
        lambda: manual(lambda x_hbm, o_hbm: pl.run_scoped(print, theirs.VMEM((8,), jnp.float32))),
    "x: a ref cannot be indexed with Slice(": lambda: call(lambda x_ref, o_ref: x_ref[their_pl.ds(0, 8)]),
}


@pytest.mark.parametrize("start", ARGUMENTS)
def test_an_argument_that_upstream_made_is_named(start):
    with pytest.raises(pl.SpecError) as error:
        ARGUMENTS[start]()
    assert str(error.value).startswith(start) and str(error.value).endswith(f"; {UPSTREAM}")


def asks_for_its_step(x_hbm, o_hbm, buf, sem):
    return their_pl.program_id(0)


def starts_a_copy(x_hbm, o_hbm, buf, sem):
    theirs.make_async_copy(x_hbm, buf, sem).start()


def starts_one_at_once(x_hbm, o_hbm, buf, sem):
    theirs.async_copy(x_hbm, buf, sem)


def copies(x_hbm, o_hbm, buf, sem):
    theirs.sync_copy(x_hbm, o_hbm)


def runs_a_pipeline(x_hbm, o_hbm, buf, sem):
    theirs.emit_pipeline(copy, grid=(2,), in_specs=[BLOCK], out_specs=[BLOCK])(x_hbm, o_hbm)


def allocates(x_hbm, o_hbm, buf, sem):
    their_pl.run_scoped(print, theirs.VMEM((8,), jnp.float32))


def seeds(x_hbm, o_hbm, buf, sem):
    theirs.prng_seed(0)


@pytest.mark.parametrize("kernel", [asks_for_its_step, starts_a_copy, starts_one_at_once, copies, runs_a_pipeline,
                                    allocates, seeds])
def test_a_call_of_upstream_in_a_kernel_is_named_with_its_line(kernel):
    with pytest.raises((pl.SpecError, pl.NotSupportedError)) as error:
        manual(kernel, pltpu.VMEM(X.shape, X.dtype), pltpu.SemaphoreType.DMA)
    line = kernel.__code__.co_firstlineno + 1
    assert str(error.value).startswith(f"{kernel.__name__}, line {line} (")
    assert str(error.value).endswith(f"): {UPSTREAM}")


def test_a_copy_of_upstream_in_a_kernel_that_else_only_computes_is_named():
    with pytest.raises(pl.SpecError, match="change both imports"):
        call(lambda x_ref, o_ref: theirs.sync_copy(x_ref, o_ref))


def test_what_means_the_same_works():
    def kernel(x_ref, o_ref):
        @their_pl.when(pl.program_id(0) < 2)
        def _():
            o_ref[...] = theirs.roll(x_ref[...], 1, 0)

    rolled = np.roll(X.reshape(2, 8, 128), 1, axis=1).reshape(X.shape)
    parallel = theirs.CompilerParams(dimension_semantics=("parallel",))
    np.testing.assert_array_equal(call(kernel, compiler_params=parallel), rolled)
    given = dict(grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)
    for spec in their_pl.GridSpec(**given), theirs.PrefetchScalarGridSpec(num_scalar_prefetch=0, **given):
        np.testing.assert_array_equal(pl.pallas_call(copy, OUT, grid_spec=spec)(X), X)


@pytest.mark.parametrize("inside", [their_pl.when(True), pl.when(True)])
def test_a_kernels_own_error_stays_its_own(inside):
    def kernel(x_ref, o_ref):
        @inside
        def _():
            raise ValueError("mine") from KeyError("cause")

    with pytest.raises(ValueError, match="mine") as error:
        call(kernel)
    assert isinstance(error.value.__cause__, KeyError)
