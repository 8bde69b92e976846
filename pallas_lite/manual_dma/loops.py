"""loops: JAX's loops where a kernel is stepped through, with indices of the types that JAX gives. Used by step.py."""
import contextlib

import jax
import jax.numpy as jnp
from jax import lax

from ..refs import is_static
from .copies import machine


@contextlib.contextmanager
def loops_count_as_jax():
    """With disable_jit, loops count in Python ints: these have no astype, and as an index they look like constants.

    In JAX an index has the type of its bounds, and what a scan carries is an array.
    """
    before = lax.fori_loop, lax.scan

    def fori_loop(lower, upper, body_fun, init_val, **unroll):
        if machine.get() is None or not is_static(lower) or not is_static(upper):
            return before[0](lower, upper, body_fun, init_val, **unroll)
        value, kind = as_arrays(init_val), jnp.result_type(lower, upper).type
        for i in range(int(lower), int(upper)):
            value = body_fun(kind(i), value)
        return value

    def scan(f, init, *arguments, **keywords):
        def once(carry, x):
            carry, y = f(carry, x)
            return as_arrays(carry), y
        if machine.get() is None:
            return before[1](f, init, *arguments, **keywords)
        return before[1](once, as_arrays(init), *arguments, **keywords)
    lax.fori_loop, lax.scan = fori_loop, scan
    try:
        yield
    finally:
        lax.fori_loop, lax.scan = before


def as_arrays(tree):
    return jax.tree.map(jnp.asarray, tree)
