"""body: a kernel function -> one step on the values of its slots, traced once; and what it says with pl: program_id,
when, loop. Used by traced.py and the engines.

A kernel that only computes is traced with refs on JAX values, so that one trace serves stepping and the compiled loop.
A kernel with copies of its own raises NeedsStepping here; manual_dma/step.py runs it.
"""
import contextlib
import contextvars
import copy
import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import run_state
from jax.typing import ArrayLike

from .errors import BlockIndexError, PallasLiteError, SpecError, bound, many
from .jaxprs import count, count_work, decides_loops, overwritten_first
from .memory import garbage_value
from .refs import Cell, Ref, TracedMemory
from .tracer_errors import REFS_ONLY, arrays_around, say_plainly

# A step computes what the kernel says. XLA's algebra would make a choice of `x * mask`, and hide that 0 · NaN is NaN.
AS_WRITTEN = {"xla_disable_hlo_passes": "algsimp"}

_position = contextvars.ContextVar("grid position of the running kernel", default=None)
_handed_on = contextvars.ContextVar("memories whose `.value` a branch or a loop has to hand on; are they all that "
                                    "the kernel can write?", default=((), False))


T = TypeVar("T")
OWN_COPIES = "a kernel that starts its own copies (or has semaphores, or an output in pl.ANY)"


class NeedsStepping(Exception):
    """Raised while tracing: this kernel starts copies, allocates or takes of an array in HBM: it is stepped through."""


class InHbm:
    """The memory of an array that stays in HBM, to a kernel that is only traced: it may have a ref to it."""

    is_semaphore = False

    def __init__(self, x):
        self.name, self.shape, self.dtype = x.name, x.shape, x.dtype

    def load(self, starts, sizes, *_):
        raise NeedsStepping(self.name)

    store = load


def position():
    """(ids, grid, silent) of the running kernel, or None outside of one."""
    return _position.get()


def _axis_of(axis, what):
    position = _position.get()
    if position is None:
        raise PallasLiteError(f"pl.{what}({axis}) is only meaningful inside a kernel that pallas_call runs.")
    ids, grid, _ = position
    if not isinstance(axis, int) or not -len(grid) <= axis < len(grid):
        raise SpecError(f"pl.{what}({axis!r}): the grid {grid} has "
                        f"{f'axes 0 to {len(grid) - 1}' if grid else 'no axes'}.")
    return ids[axis], grid[axis]


def program_id(axis: int) -> jax.Array:
    """The index of the running step along a grid axis (int32)."""
    return _axis_of(axis, "program_id")[0]


def num_programs(axis: int) -> int:
    """The size of a grid axis."""
    return _axis_of(axis, "num_programs")[1]


def when(condition: ArrayLike) -> Callable[[Callable[[], object]], None]:
    """Run the decorated function now, if `condition` holds.

    A Python bool is decided once, while tracing; a traced bool becomes `lax.cond`.
    """
    if callable(condition) or np.ndim(condition):
        raise SpecError("pl.when needs a condition, a bool: write @pl.when(pl.program_id(0) == 0) above the function. "
                        "Of an array, ask for jnp.any(array), or choose with jnp.where(array, new, old).")

    def decide(f):
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                f()
        else:
            _with_values(partial(_branch, condition, f))
    return decide


def _branch(condition, f, run, values):
    # A branch that only moves data is chosen afterwards: XLA fuses the choice with its neighbours, and under jax.vmap
    # a lax.cond would move its axis to the front.
    if _handed_on.get()[1] and not count_work(jax.make_jaxpr(lambda v: run(v, f)[0])(values).jaxpr):
        after, _ = run(values, f)
        return [old if new is old else jnp.where(condition, new, old) for new, old in zip(after, values, strict=True)]
    return lax.cond(condition, lambda v: run(v, f), lambda v: (v, None), values)[0]


def _with_values(branch):
    """Hands the values of the memories in `_handed_on` through a branch or a loop.

    `branch(run, values)` returns the values in the end; `run(values, f)` is (what f leaves of them, what f returns).
    """
    memories, _ = _handed_on.get()

    def put(values):
        for memory, value in zip(memories, values, strict=True):
            memory.value = value

    def run(values, f):
        put(values)
        out = f()
        return [m.value for m in memories], out
    put(branch(run, [m.value for m in memories]))


@contextlib.contextmanager
def handing_on(memories, alone=False):
    """Inside, what a kernel writes to these memories under `when` and `loop` is a value that they hand on.

    `alone`: it writes nothing else, so a branch may be run whether it is taken or not.
    """
    token = _handed_on.set((tuple(memories), alone))
    try:
        yield
    finally:
        _handed_on.reset(token)


def multiple_of(value: T, factor: int) -> T:
    """A promise to the compiler that `value` is a multiple of `factor`; here it is returned as it is."""
    return value


def debug_print(fmt: str, *args: Any) -> None:
    """Print values while the kernel runs: `jax.debug.print`, whose {} stand for the values."""
    show = partial(jax.debug.print, fmt, *args, skip_format_check=True)
    silent = _position.get() and _position.get()[2]
    show() if silent is None else lax.cond(silent, lambda: None, show)


def loop(lower: ArrayLike, upper: ArrayLike, *, init_carry: Any = None, step: ArrayLike = 1,
         unroll: int | bool | None = None) -> Callable[[Callable[..., Any]], Any]:
    """A loop as a decorator: `@pl.loop(0, n)` on `def _(i): ...`; with init_carry, on `def _(i, carry): ...`.

    Returns the last carry. `step` must be positive; `unroll` is accepted and changes nothing here.
    """
    def decorate(f):
        count = -(-(upper - lower) // step)
        carry = init_carry

        def iterate(run, values):
            def once(i, state):
                values, carry = state
                at = lower + i * step
                return run(values, lambda: (f(at), None)[1] if init_carry is None else f(at, carry))
            nonlocal carry
            values, carry = lax.fori_loop(0, count, once, (values, init_carry))
            return values
        _with_values(iterate)
        return carry
    return decorate


@contextlib.contextmanager
def at_position(ids, grid, silent=None):
    """program_id and num_programs answer with this position inside. `silent`: a bool, may be traced; then no prints.

    None: as it is outside.
    """
    silent = _position.get()[2] if silent is None and _position.get() else silent
    token = _position.set((ids, grid, silent))
    try:
        yield
    finally:
        _position.reset(token)


class Body:
    """A kernel, traced once. `apply(ids, values)` is the step as a JAX function: new values, and out-of-bounds flags.

    `values`: one array for each ref that the kernel gets, in the order of `avals` (name, shape, dtype).
    `indices`: the grid position of each step, in the order in which they run.
    `read[i]`, `written[i]`: the kernel may read, may write ref i. `moving`: the refs that it indexes with a traced
    start, which may lie past their end, and in which lines. `asks`: the grid axes whose index it asks for. `counts`:
    the refs of integers that may decide how often a loop runs.
    """

    counts: frozenset[int] = frozenset()  # until that is known

    def __init__(self, kernel, avals, grid, indices, unflatten):
        self.avals, self.grid, self.indices = avals, grid, indices
        check_arity(kernel, *unflatten([name for name, _, _ in avals]))
        ids = [jax.ShapeDtypeStruct((), jnp.int32)] * len(grid)

        def apply(ids, values, silent=None, through_refs=True):
            def run(refs):
                values, flags = refs
                memories = [TracedMemory(name, *refs, garbage_value("nan", np.dtype(dtype), i in self.counts))
                            for i, ((name, _, dtype), *refs) in enumerate(zip(avals, values, flags, strict=True))]
                run_kernel(kernel, unflatten, [Ref(m) for m in memories], ids, grid, silent)
                self.read, self.written = ([m.loaded for m in memories], [m.stored for m in memories])
                self.moving = {i: sorted(m.moving) for i, m in enumerate(memories) if m.moving}
            flags = [jnp.zeros((), bool)] * len(values)
            if through_refs:
                # Refs that live in here only: with jax.new_ref, JAX could not vmap what is outside (engines/xla.py).
                return run_state(run)((values, flags))
            cells = [*map(Cell, values)], [*map(Cell, flags)]
            with handing_on([*cells[0], *cells[1]], alone=True):
                run(cells)
            return tuple([c.value for c in part] for part in cells)

        self.apply = apply
        closed = jax.make_jaxpr(apply)(ids, [jax.ShapeDtypeStruct(s, d) for _, s, d in avals])
        if closed.consts:  # upstream refuses this too
            named = [x for x, value in arrays_around(kernel).items() if any(
                value is c or isinstance(value, np.ndarray) and np.array_equal(value, c) for c in closed.consts)]
            found = ", ".join(named or (str(jax.typeof(c)) for c in closed.consts))
            given = "" if named else " or made of given numbers, as jnp.array([1, 2]) is,"
            raise SpecError(f"{kernel_name(kernel)} uses an array from outside ({found}){given or ','} {REFS_ONLY}")
        self.jaxpr = closed.jaxpr
        positions = self.jaxpr.invars[:len(grid)]
        # The kernel itself: its refs are the last of its variables, first those of the values, then those of the flags.
        [(inner, outer)] = [(e.params["jaxpr"], e.invars) for e in self.jaxpr.eqns if e.primitive.name == "run_state"]
        self._asked = {v: positions.index(o) for v, o in zip(inner.invars, outer, strict=True) if o in positions}
        self.asks = {*self._asked.values()}
        self._kernel, self._refs = inner, inner.invars[len(inner.invars) - 2 * len(avals):]
        self.counts = frozenset(i for i in decides_loops(inner, self._refs) if i < len(avals)  # the rest are flags
                                and jnp.issubdtype(avals[i][2], jnp.integer))
        self._step = jax.jit(self._some, compiler_options=AS_WRITTEN)

    def overwrites(self, i: int, steps) -> bool:
        """Does the kernel, in each of these steps, surely overwrite ref i whole before it reads it?"""
        ids = np.asarray(self.indices, np.int32).reshape(len(self.indices), len(self.grid))[steps]
        return overwritten_first(self._kernel, self._refs[i], {ref: ids[:, axis] for ref, axis in self._asked.items()})

    @cached_property
    def straight(self) -> bool:
        """Is a step a function of its blocks that JAX can vmap, without side effects and decisions by what it reads?"""
        def traced(f, *batch):
            ids = [jax.ShapeDtypeStruct((), jnp.int32)] * len(self.grid)
            return jax.make_jaxpr(f)(ids, [jax.ShapeDtypeStruct((*batch, *shape), d) for _, shape, d in self.avals])
        step = partial(self.apply, through_refs=False)
        with contextlib.suppress(jax.errors.UnexpectedTracerError, NotImplementedError):
            one, many = traced(step), traced(jax.vmap(step, (None, 0)), 2)
            # Refs written in a lax.cond or a loop of the kernel's own leave a tracer behind, which is a constant here.
            # A branch by what the kernel reads is a choice by now, both sides computed.
            left = any(isinstance(c, jax.core.Tracer) for c in many.consts) or self.jaxpr.effects
            return not (left or count(many.jaxpr, "cond") < count(one.jaxpr, "cond") or count(many.jaxpr, "while"))
        return False

    def at(self, indices) -> "Body":
        """The same body for steps at other grid positions."""
        other = copy.copy(self)
        other.indices = indices
        return other

    def _some(self, ids, values):
        new, past_end = self.apply(ids, values)
        return {i: v for i, v in enumerate(new) if self.written[i]}, {i: past_end[i] for i in self.moving}

    def step(self, t: int, values: list[np.ndarray]) -> list[np.ndarray]:
        """Run step t on NumPy values; returns each ref's new value. An access past the end raises BlockIndexError."""
        changed, past_end = self._step([np.int32(i) for i in self.indices[t]], values)
        for i, bad in past_end.items():
            if bad:
                self.refuse(i, t)
        return [np.asarray(changed[i]) if i in changed else value for i, value in enumerate(values)]

    def refuse(self, i: int, t: int):
        """The error for an access past the end of ref i, at step t."""
        name, shape, _ = self.avals[i]
        raise BlockIndexError(f"step {t}: an index into {name}, which has shape {tuple(shape)}, goes past its end or "
                              f"below 0 (line {' or '.join(map(str, self.moving[i]))}). A slice does not shift, nor "
                              "count from the end: guard it, or make the block larger.")

    @property
    def work(self) -> tuple[tuple[str, str, float], ...]:
        """Arithmetic of one step, counted on the traced kernel, as (unit, dtype, operations).

        One for each element of a result on the "vector" unit, 2·m·n·k for a product of matrices on the "matrix" unit.
        """
        return tuple((*key, float(n)) for key, n in sorted(count_work(self.jaxpr).items()))


def run_kernel(kernel, unflatten, refs, ids, grid, silent=None):
    args, kwargs = unflatten(refs)
    with at_position(ids, grid, silent):
        try:
            out = kernel(*args, **kwargs)
        except Exception as error:
            say_plainly(kernel_name(kernel), kernel, error)
            raise
    if out is not None:
        raise SpecError(f"{kernel_name(kernel)} returns a value; a kernel returns nothing and writes its results into "
                        "its output refs (o_ref[...] = ...).")


def check_arity(kernel, args, kwargs):
    if not bound(kernel, args, kwargs):
        n, takes = len(args) + len(kwargs), inspect.signature(kernel, follow_wrapped=False)
        raise SpecError(f"{kernel_name(kernel)}{takes} does not fit the call, which gives it {many(n, 'ref')}: the "
                        "operands, then the outputs, then the scratch. Give the kernel one parameter for each.")


def ref_names(f, args, kwargs) -> list[str]:
    """What a function calls the refs that it gets: its parameters, less `_ref`; [] where these do not tell.

    `args`, `kwargs`: trees, as the function gets them, of the numbers of the refs.

    >>> ref_names(lambda x_ref, pair, *, n=3: None, [0, {"k": 1, "v": 2}], {})
    ['x', 'pair_k', 'pair_v']
    """
    total = len(jax.tree.leaves((args, kwargs)))
    for hidden in (False, True):  # a decorator's (*refs) has no names; the function that it wraps may
        call = bound(f, args, kwargs, hidden)
        if call is None or any(str(call.signature.parameters[name]).startswith("*") for name in call.arguments):
            continue
        given = {name.removesuffix("_ref").strip("_"): part for name, part in call.arguments.items()}
        paths = sorted(jax.tree_util.tree_flatten_with_path(given)[0], key=lambda leaf: leaf[1])
        names = [jax.tree_util.keystr(path, simple=True, separator="_") for path, _ in paths]
        if len(set(names)) == total and all(map(str.isidentifier, names)):
            return names
    return []


def kernel_name(kernel: Callable) -> str:
    """Of a function, or of the one in a functools.partial."""
    return getattr(kernel, "__name__", "") or getattr(getattr(kernel, "func", None), "__name__", "kernel")
