"""The kernels that several benchmarks measure, under either Pallas: `pl` is the module, `how` goes to pallas_call.

All are f32. `depth` is that of the inputs; None leaves it to the module.
"""
import jax
import jax.numpy as jnp


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def _spec(pl, block, index_map, depth=None):
    return pl.BlockSpec(block, index_map, depth and pl.Buffered(depth))


def add(pl, n, block, depth=None, **how):
    """x + y of n × n arrays. Upstream's TPU pipeline has at most two slots for an output."""
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    x, o = (_spec(pl, (block, block), lambda i, j: (i, j), d) for d in (depth, depth and min(depth, 2)))
    return pl.pallas_call(kernel, shape(n, n), grid=(n // block, n // block), in_specs=[x, x], out_specs=o, **how)


def total(pl, block, depth=None, **how):
    """The sum of (8, 1024, 1024) over the first axis, with that axis innermost in the grid."""
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(1024, 1024), grid=(1024 // block, 1024 // block, 8),
                          in_specs=[_spec(pl, (None, block, block), lambda i, j, k: (k, i, j), depth)],
                          out_specs=_spec(pl, (block, block), lambda i, j, k: (i, j)), **how)


def matmul(pl, n, block, depth=None, **how):
    """x @ y of n × n arrays, summed in the output's own slot."""
    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
    square = (block, block)
    return pl.pallas_call(kernel, shape(n, n), grid=(n // block,) * 3,
                          in_specs=[_spec(pl, square, lambda i, j, k: (i, k), depth),
                                    _spec(pl, square, lambda i, j, k: (k, j), depth)],
                          out_specs=_spec(pl, square, lambda i, j, k: (i, j)), **how)
