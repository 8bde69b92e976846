"""body: a kernel function -> one jitted step on the values of its slots. Used by call.py."""
import contextlib
import contextvars
import inspect
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from .errors import PallasLiteError, SpecError, many

_position = contextvars.ContextVar("grid position of the running kernel", default=None)


def _axis_of(axis, what):
    position = _position.get()
    if position is None:
        raise PallasLiteError(f"pl.{what}({axis}) is only meaningful inside a kernel that pallas_call runs.")
    ids, grid = position
    if not isinstance(axis, int) or not 0 <= axis < len(grid):
        raise SpecError(f"pl.{what}({axis!r}): the grid {grid} has axes 0 to {len(grid) - 1}.")
    return ids[axis], grid[axis]


def program_id(axis: int) -> jax.Array:
    """The index of the running step along a grid axis (int32)."""
    return _axis_of(axis, "program_id")[0]


def num_programs(axis: int) -> int:
    """The size of a grid axis."""
    return _axis_of(axis, "num_programs")[1]


def when(condition):
    """Run the decorated function now, if `condition` holds.

    A Python bool is decided once, while tracing; a traced bool becomes `lax.cond`.
    """
    def decide(f):
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                f()
        else:
            jax.lax.cond(condition, lambda: (f(), None)[1], lambda: None)
    return decide


@contextlib.contextmanager
def _at(ids, grid):
    token = _position.set((ids, grid))
    try:
        yield
    finally:
        _position.reset(token)


class Body:
    """A kernel, traced once: `step(t, slots)` runs it on NumPy values and returns each operand's new value."""

    def __init__(self, kernel, operands, grid, unflatten):
        self.operands, self.grid = operands, grid
        _check_arity(kernel, unflatten(list(operands)))
        shapes = [jax.ShapeDtypeStruct(x.ref_shape, x.dtype) for x in operands]
        ids = [jax.ShapeDtypeStruct((), jnp.int32)] * len(grid)

        def run(ids, values):
            refs = [jax.new_ref(v) for v in values]
            with _at(ids, grid):
                out = kernel(*unflatten(refs))
            if out is not None:
                raise SpecError(f"{kernel_name(kernel)} returns a value; a kernel returns nothing and writes its "
                                "results into its output refs (o_ref[...] = ...).")
            return [jax.freeze(r) for r in refs]

        self.jaxpr = jax.make_jaxpr(run)(ids, shapes)
        keep = [i for i, writes in enumerate(_written(self.jaxpr.jaxpr, len(operands))) if writes]
        self.written = keep
        self._step = jax.jit(lambda ids, values: [run(ids, values)[i] for i in keep])
        self._indices = list(itertools.product(*map(range, grid)))

    def step(self, t: int, slots: list[np.ndarray]) -> list[np.ndarray]:
        ids = [np.int32(i) for i in self._indices[t]]
        seen = [v.reshape(x.ref_shape) for x, v in zip(self.operands, slots, strict=True)]
        new = list(slots)
        for i, value in zip(self.written, self._step(ids, seen), strict=True):
            new[i] = np.asarray(value).reshape(self.operands[i].block_shape)
        return new

    @property
    def flops(self) -> float:
        """Arithmetic operations of one step, counted on the traced kernel: one per result element, 2·m·n·k a matmul."""
        return float(count_flops(self.jaxpr.jaxpr))


def _check_arity(kernel, refs):
    try:
        inspect.signature(kernel).bind(*refs)
    except TypeError:
        raise SpecError(f"{kernel_name(kernel)}{inspect.signature(kernel)} does not fit the call, which gives it "
                        f"{many(len(refs), 'ref')}: the operands, then the outputs. Give the kernel one parameter for each.") from None
    except ValueError:
        pass  # a callable without a signature: tracing will tell


def kernel_name(kernel) -> str:
    return getattr(kernel, "__name__", None) or getattr(getattr(kernel, "func", None), "__name__", "kernel")


def _written(jaxpr, n: int) -> list[bool]:
    """Which refs may be written: all but those that only `get` and the final `freeze` touch."""
    refs = [e.outvars[0] for e in jaxpr.eqns if e.primitive.name == "new_ref"][:n]
    touched = {id(v) for e in jaxpr.eqns if e.primitive.name not in ("get", "freeze", "new_ref") for v in e.invars}
    return [id(r) in touched for r in refs]


# Operations on indices, shapes and types move data; they are not arithmetic on it.
_FREE = {"broadcast_in_dim", "reshape", "transpose", "convert_element_type", "get", "swap", "new_ref", "freeze",
         "slice", "squeeze", "concatenate", "iota", "copy", "dynamic_slice", "dynamic_update_slice", "pjit", "cond",
         "while", "scan", "addupdate", "split"}


def count_flops(jaxpr) -> int:
    total = 0
    for e in jaxpr.eqns:
        inner = [getattr(j, "jaxpr", j) for p in e.params.values() for j in (p if isinstance(p, (tuple, list)) else [p])
                 if hasattr(getattr(j, "jaxpr", j), "eqns")]
        if inner:
            counts = [count_flops(j) for j in inner]
            total += max(counts) if e.primitive.name == "cond" else sum(counts) * e.params.get("length", 1)
        elif e.primitive.name == "dot_general":
            (contract, _), _ = e.params["dimension_numbers"]
            total += 2 * math.prod(e.outvars[0].aval.shape) * math.prod(e.invars[0].aval.shape[d] for d in contract)
        elif e.primitive.name.startswith("reduce_") or e.primitive.name == "cumsum":
            total += math.prod(e.invars[0].aval.shape)
        elif e.primitive.name not in _FREE and e.outvars:
            # Scalars steer the kernel (program_id comparisons); they do not occupy the vector unit.
            total += math.prod(e.outvars[0].aval.shape) if e.outvars[0].aval.shape else 0
    return total
