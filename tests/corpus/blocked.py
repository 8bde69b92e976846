"""Grids and blocks: arrays cut in all the ways that grid, BlockSpec and index map allow."""
import jax
import jax.numpy as jnp

from . import case, normal


@case
def add_on_an_int_grid(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    rows = pl.BlockSpec((2, 16), lambda i: (i, 0))
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((8, 16), jnp.float32), grid=4, in_specs=[rows, rows],
                          out_specs=rows), (normal(8, 16), normal(8, 16, seed=1))
