"""loops: JAX's loops where a kernel is stepped through, with indices of the types that JAX gives. Used by step.py."""
import contextlib
import itertools

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import PipelineError
from ..refs import is_static
from .copies import machine

MOST = 2**13  # rounds of a loop whose end garbage may decide

@contextlib.contextmanager
def loops_count_as_jax():
    """With disable_jit, loops count in Python ints: these have no astype, and as an index they look like constants.

    In JAX an index has the type of its bounds, and what a scan carries is an array.
    """
    before = lax.fori_loop, lax.scan, lax.while_loop

    def fori_loop(lower, upper, body_fun, init_val, **unroll):
        if machine.get() is None or not is_static(lower) or not is_static(upper):
            return before[0](lower, upper, body_fun, init_val, **unroll)
        ends(int(upper) - int(lower))
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

    def while_loop(cond_fun, *arguments):
        rounds = itertools.count()
        return before[2](lambda value: ends(next(rounds)) or cond_fun(value), *arguments)
    lax.fori_loop, lax.scan, lax.while_loop = fori_loop, scan, while_loop
    try:
        yield
    finally:
        lax.fori_loop, lax.scan, lax.while_loop = before


def ends(rounds: int) -> None:
    """Raises PipelineError for a loop of so many rounds, where memory was read that nobody had written."""
    here = machine.get()
    found = [h for h in here.hazards if h.kind == "uninitialised"] if here and rounds > MOST else []
    if found:
        what = (f"a loop runs more than {MOST:,} times after the kernel has read memory that nobody had written: the "
                "program may hang here.")
        here.report("hang", what, found[0].mend, found[0].events[-1], len(here.log) - 1)
        raise PipelineError(f"{here.here()}{what}\n  Before that, {found[0]}")


def as_arrays(tree):
    return jax.tree.map(jnp.asarray, tree)
