"""call: pallas_call. A kernel, specs and shapes -> a Call, which is called on arrays, or looked into with `.trace`.

The way of a call: resolve the specs (specs.py) into operands; everything after that is in traced.py.
"""
import contextlib
import contextvars
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax.tree_util import all_leaves, treedef_tuple

from . import specs as _specs
from .body import kernel_name, ref_names
from .errors import NotSupportedError, SpecError, expect, many, mend_of
from .index_maps import unjitted
from .memory import InterpretParams
from .specs import Grid, GridSpec, ScratchShapes, Shapes, Specs
from .traced import Traced

Kernel: TypeAlias = Callable[..., None]
OnHazard: TypeAlias = Literal["warn", "raise", "ignore"]
Backend: TypeAlias = Literal["simulate", "xla"]
KEPT = 64  # traces of one call: each other value of its prefetched scalars makes one
_observers: contextvars.ContextVar[tuple["Calls", ...]] = contextvars.ContextVar("observers of calls", default=())
_looking: contextvars.ContextVar[bool] = contextvars.ContextVar("first_call looks for one", default=False)


@dataclass(frozen=True)
class CostEstimate:
    """What a whole call costs, where counting on the traced kernel would be wrong: operations and bytes."""

    flops: int
    transcendentals: int = 0
    bytes_accessed: int = 0
    remote_bytes_transferred: int = 0


def pallas_call(kernel: Kernel, out_shape: Shapes = None, *, grid_spec: GridSpec | None = None, grid: Grid = (),
                in_specs: Specs = None, out_specs: Specs = None, scratch_shapes: ScratchShapes = (),
                input_output_aliases: Mapping[int, int] | None = None, debug: bool = False,
                interpret: bool | InterpretParams = False, name: str | None = None, compiler_params: object = None,
                cost_estimate: CostEstimate | None = None, metadata: object = None, on_hazard: OnHazard = "warn",
                backend: Backend | None = None) -> "Call":
    """A pipelined kernel: called like a function on arrays, or looked into with `.trace(*arrays)`.

    The kernel runs once for each step of `grid`, on refs of the blocks that `in_specs` and `out_specs` choose; results
    have the shapes and dtypes of `out_shape`. `interpret=InterpretParams(...)` sets the simulator.
    `on_hazard` is "warn", "raise" or "ignore". `backend`: "simulate" plays every copy, "xla" runs one compiled loop and
    reports nothing that only values tell; without it, the quickest that gives the hardware's numbers.

    Raises SpecError, BlockIndexError or NotSupportedError, each naming the operand and the mend.
    """
    kernel, prefetched = unjitted(kernel), 0  # it is compiled with the whole
    if grid_spec is not None:
        if grid or in_specs is not None or out_specs is not None or scratch_shapes:
            raise SpecError("give grid, in_specs, out_specs and scratch_shapes either in grid_spec or beside it, not "
                            "both.")
        grid, in_specs, out_specs = grid_spec.grid, grid_spec.in_specs, grid_spec.out_specs
        scratch_shapes, prefetched = grid_spec.scratch_shapes, getattr(grid_spec, "num_scalar_prefetch", 0)
    if on_hazard not in ("warn", "raise", "ignore"):
        raise SpecError(f'on_hazard={on_hazard!r}: choose "warn", "raise" or "ignore".')
    if backend not in (None, "simulate", "xla"):
        raise NotSupportedError(f'backend={backend!r}: choose "simulate" or "xla". To run on a TPU or a GPU, give the '
                                "same kernel to jax.experimental.pallas.")
    if out_shape is None:
        raise SpecError(f"{kernel_name(kernel)}: out_shape is missing. Give a jax.ShapeDtypeStruct for each result.")
    if isinstance(in_specs, _specs.BlockSpec):
        raise SpecError(f"{kernel_name(kernel)}: in_specs is one BlockSpec; give a list: in_specs=[pl.BlockSpec(…)].")
    expect((bool, InterpretParams, type(None)), interpret, "interpret is True, False or pltpu.InterpretParams(…)")
    params = interpret if isinstance(interpret, InterpretParams) else InterpretParams()
    grid = _specs.normalize_grid(grid)
    _specs.check_compiler_params(compiler_params, grid)
    return Call(kernel, out_shape, grid, in_specs, out_specs, scratch_shapes, prefetched,
                dict(input_output_aliases or {}), params, name or kernel_name(kernel), cost_estimate, compiler_params,
                on_hazard, backend)


@dataclass(frozen=True, eq=False)
class Call:
    """What `pallas_call` returns."""

    kernel: Kernel
    out_shape: Shapes
    grid: tuple[int, ...]
    in_specs: Specs
    out_specs: Specs
    scratch_shapes: ScratchShapes
    prefetched: int  # how many of the first operands are scalars that index maps may read
    aliases: Mapping[int, int]
    params: InterpretParams
    name: str
    cost_estimate: CostEstimate | None
    compiler_params: object
    on_hazard: OnHazard
    backend: Backend | None
    _traces: dict = field(default_factory=dict, init=False, compare=False, repr=False)  # by shapes, dtypes, scalars

    def __call__(self, *arrays: Any) -> Any:
        """The values that the hardware would give. Hazards are reported, as `on_hazard` says."""
        arrays = jax.tree.map(self._array, arrays)
        if _looking.get():
            raise _Found(self, jax.tree.map(_without_values, arrays))
        scalars, flat = jax.tree.leaves(arrays[:self.prefetched]), jax.tree.leaves(arrays)
        if any(isinstance(s, jax.core.Tracer) for s in scalars):
            # Which blocks a step takes is known only when it runs, so there is no schedule to check or to show.
            return self._trace(scalars, flat[len(scalars):], jax.tree.structure(arrays)).run(flat)
        traced = self.trace(*arrays)
        observers = _observers.get()
        for calls in observers:
            calls.append(traced)
            calls.operands.append(flat)
            calls.results.append(None)
        only_look = any(not calls.run for calls in observers) and not any(isinstance(a, jax.core.Tracer) for a in flat)
        result = traced.zeros() if only_look else traced.run(flat)
        for calls in observers:
            calls.results[-1] = jax.tree.leaves(result)
        return result

    def trace(self, *arrays: Any) -> "Traced":
        """What the call would do, from arrays or ShapeDtypeStructs. Nothing runs. Prefetched scalars must be arrays."""
        flat, tree = jax.tree.flatten(jax.tree.map(self._array, arrays))
        n = len(jax.tree.leaves(arrays[:self.prefetched]))
        if any(isinstance(s, (jax.ShapeDtypeStruct, jax.core.Tracer)) for s in flat[:n]):
            raise NotSupportedError(f"{self.name}: prefetched scalars choose the blocks, so they must be concrete "
                                    "arrays here, not traced or ShapeDtypeStructs. Call it outside jax.jit.")
        scalars, flat = tuple(map(np.asarray, flat[:n])), flat[n:]
        key = (tree, tuple((a.shape, str(a.dtype)) for a in flat),
               tuple((s.shape, str(s.dtype), s.tobytes()) for s in scalars))
        if key not in self._traces:
            traced, seed = self._trace(scalars, flat, tree), self.params.random_seed
            if seed is not None and traced.parallel and not traced.manual and not traced.blocks_from_scalars:
                traced = traced.other_order(np.random.default_rng(seed))
            self._traces[key] = traced
            if len(self._traces) > KEPT:
                del self._traces[next(iter(self._traces))]
        return self._on_values(key, flat)

    @property
    def last(self) -> "Traced | None":
        """The trace of the operands that came last; None before the first."""
        return next((t for t in reversed(self._traces.values()) if isinstance(t, Traced)), None)

    def _on_values(self, key, flat) -> "Traced":
        """The trace of these operands: on their values, if there are any, where a kernel's own copies may need them."""
        general = self._traces[key]
        known = all(isinstance(a, (np.ndarray, jax.Array)) and not isinstance(a, jax.core.Tracer) for a in flat)
        if not known or not general.manual:
            return general
        values = key, [np.asarray(a).tobytes() for a in flat]
        if self._traces.get("values", (None,))[0] != values:  # the last ones only: they may be large
            self._traces["values"] = values, general.on(flat)
        return self._traces["values"][1]

    def _array(self, a):
        """An operand as JAX takes it: Python numbers as arrays; without x64, 64-bit numbers have 32 bits."""
        a = a if hasattr(a, "dtype") else jax.numpy.asarray(a)
        dtype = jax.dtypes.canonicalize_dtype(a.dtype)
        if a.dtype == dtype:
            return a
        return a.astype(dtype) if hasattr(a, "astype") else jax.ShapeDtypeStruct(a.shape, dtype)

    def _trace(self, scalars, flat, tree) -> "Traced":
        for s in scalars:
            if np.dtype(s.dtype).kind not in "iub":
                raise SpecError(f"{self.name}: a prefetched scalar operand is {s.dtype}; prefetched scalars are "
                                "integers. Pass it as an operand with pl.BlockSpec(memory_space=pltpu.SMEM) instead.")
        parts = tree.children()
        nest, rest = map(treedef_tuple, (parts[:self.prefetched], parts[self.prefetched:]))
        in_specs = self._match(self.in_specs, flat, rest, "in_specs")
        for kind in jax.tree.leaves(self.scratch_shapes):
            if not isinstance(kind, (_specs.Scratch, _specs.SemaphoreType)) or kind is self.scratch_shapes:
                raise SpecError(f"{self.name}: scratch_shapes holds {kind!r}" + mend_of(kind, (
                    "; give a list or a dict of pltpu.VMEM(shape, dtype), pltpu.SMEM(…) or pltpu.SemaphoreType.DMA.")))
        # Upstream returns a list of shapes as a tuple.
        outs, out_tree = jax.tree.flatten(tuple(self.out_shape) if isinstance(self.out_shape, list) else self.out_shape)
        for out in outs:
            if not hasattr(out, "shape") or not hasattr(out, "dtype"):
                raise SpecError(f"{self.name}: out_shape holds {out!r}; give jax.ShapeDtypeStruct(shape, dtype) for "
                                "each output.")
        outs = list(map(self._array, outs))
        out_specs = self._match(self.out_specs, outs, out_tree, "out_specs")
        if not all_leaves(jax.tree.unflatten(nest, scalars)):  # None among them, or tuples of them
            in_specs, out_specs = ([self._nesting(spec, nest) for spec in specs] for specs in (in_specs, out_specs))
        counts = len(scalars), len(flat), len(outs), len(jax.tree.leaves(self.scratch_shapes))
        names = ref_names(self.kernel, *self.arguments(range(sum(counts)), tree, out_tree)) or [
            f"{kind}{i}" for kind, n in zip(("scalars", "in", "out", "scratch"), counts, strict=True) for i in range(n)]
        wanted = zip(in_specs + out_specs, names[len(scalars):], flat + outs, strict=False)
        operands = [_specs.resolve(spec, name, aval, self.grid, i >= len(flat), scalars)
                    for i, (spec, name, aval) in enumerate(wanted)]
        for source, target in self.aliases.items():
            self._alias(operands, source, target, *counts[:3])
        indices = list(itertools.product(*map(range, self.grid)))
        return Traced(self, tuple(operands), scalars, tuple(names), tree, out_tree, indices)

    def arguments(self, refs: Sequence, in_tree: Any, out_tree: Any) -> tuple[list, dict]:
        """The kernel's arguments and keywords, of its refs: scalars, inputs, outputs, scratch."""
        rest, trees = iter(refs), (in_tree, out_tree, jax.tree.structure(self.scratch_shapes))
        inputs, results, scratch = (jax.tree.unflatten(t, itertools.islice(rest, t.num_leaves)) for t in trees)
        args = [*inputs, *(results if isinstance(results, (list, tuple)) else [results])]
        return (args, scratch) if isinstance(scratch, dict) else ([*args, *scratch], {})

    def _nesting(self, spec, nest):
        """A spec whose index map gets the prefetched scalars nested as the call has them, from a plain row of them."""
        if getattr(spec, "index_map", None) is None:
            return spec
        n, index_map = len(self.grid), unjitted(spec.index_map)
        return replace(spec, index_map=lambda *given: index_map(*given[:n], *jax.tree.unflatten(nest, given[n:])))

    def _alias(self, operands, source, target, n_scalars, n_in, n_out):
        if not 0 <= source - n_scalars < n_in or not 0 <= target < n_out:
            raise SpecError(f"{self.name}: input_output_aliases {dict(self.aliases)}: operands are counted flat, "
                            f"prefetched scalars included (here {n_scalars} to {n_scalars + n_in - 1}), "
                            f"outputs from 0 to {n_out - 1}.")
        x, y = operands[source - n_scalars], operands[n_in + target]
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise SpecError(f"{self.name}: operand {x.name} ({x.dtype}{list(x.shape)}) cannot share its memory with "
                            f"output {y.name} ({y.dtype}{list(y.shape)}). Aliased arrays have one shape and dtype.")
        operands[n_in + target] = replace(y, array=x.array)

    def _match(self, given, flat, tree, what) -> list:
        """The specs in the order of the flat operands, each in one block without any. None stands for no operand."""
        if given is None:
            return [_specs.BlockSpec()] * len(flat)
        found, nest = jax.tree.flatten(tuple(given) if isinstance(given, list) else given)
        kind, other = ("operands", f"Call it on {len(found)}, or give") if what == "in_specs" else ("outputs", "Give")
        if len(found) != len(flat):
            nothing = ", None for nothing; of a whole array the spec is pl.BlockSpec()" * ("None" in f"{nest}{tree}")
            raise SpecError(f"{self.name}: {many(len(flat), kind[:-1])} but {len(found)} {what}. {other} one BlockSpec "
                            f"for each {kind[:-1]}: {what} has {len(found)}, the call has {len(flat)} (a list counts "
                            f"once for each entry{nothing}).")
        if nest != tree:
            ours, theirs = (str(t).removeprefix("PyTreeDef(")[:-1] for t in (nest, tree))
            # One tuple or list of all operands, where the specs are a plain row.
            one_by_one = what == "in_specs" and theirs in (f"({ours},)", f"([{ours[1:-1]}],)")
            mend = "Call it on the operands one by one, not on a tuple or list" if one_by_one else "Nest them alike"
            raise SpecError(f"{self.name}: {what} nest as {ours}, but the {kind} as {theirs}. {mend}.")
        return found


class Calls(list[Traced]):
    """Traces, in the order of the calls. `operands`, `results`: what each took and gave; None if it did not end."""

    def __init__(self, run: bool) -> None:
        self.run, self.operands, self.results = run, list[list](), list[list | None]()


@contextlib.contextmanager
def observe_calls(run: bool = True) -> Iterator[Calls]:
    """Collects the trace of every pallas_call made inside.  with observe_calls() as calls: f(x)

    Not of one under jax.jit whose prefetched scalars are traced: its blocks are not known. With `run=False` calls
    outside of jax.jit give zeros instead of running.
    """
    calls = Calls(run)
    token = _observers.set((*_observers.get(), calls))
    try:
        yield calls
    finally:
        _observers.reset(token)


class _Found(BaseException):
    """Carries a call and its operands out of the function that makes it. No `except Exception` on the way stops it."""


def _without_values(a: Any) -> Any:
    """A traced array is worth nothing outside of the function: its shape and dtype are."""
    return jax.ShapeDtypeStruct(a.shape, a.dtype) if isinstance(a, jax.core.Tracer) else a


def first_call(f: Callable[..., Any], *operands: Any, **keywords: Any) -> tuple[Call, tuple]:
    """The first pallas_call that `f(*operands, **keywords)` makes, and its operands. No kernel runs.

    Operands of `f` may be ShapeDtypeStructs: then nothing is computed at all. Raises SpecError where `f` makes none,
    and what `f` raises.
    """
    flat, tree = jax.tree.flatten(operands)
    shapes = {n: a for n, a in enumerate(flat) if isinstance(a, jax.ShapeDtypeStruct)}
    f = unjitted(f)  # jax.jit would keep what it traced, and never ask again

    def look(f: Callable) -> None:
        def run(given: Mapping[int, Any]) -> None:
            f(*jax.tree.unflatten(tree, [given.get(n, a) for n, a in enumerate(flat)]), **keywords)
        jax.eval_shape(run, shapes) if shapes else run({})
    token = _looking.set(True)
    try:
        look(f)
        if (inner := inspect.unwrap(f)) is not f:
            with contextlib.suppress(Exception):  # of a jax.jit inside another decorator, if it takes the same
                look(inner)
    except _Found as found:
        return found.args
    finally:
        _looking.reset(token)
    raise SpecError(f"{kernel_name(f)} makes no pallas_call of pallas_lite. (One inside a jax.jit that ran before is "
                    "not made again: give the function without jax.jit.)")
