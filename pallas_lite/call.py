"""call: pallas_call. Specs and arrays -> a trace (schedule, hazards, timeline), or the values that hardware would give.

The way of a call: resolve the specs (specs.py), record the schedule (pipeline.py on engines/record.py), trace the
kernel (body.py), play the schedule on the values (engines/simulate.py).
"""
import contextlib
import contextvars
import inspect
import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from . import specs as _specs
from .body import Body, kernel_name
from .engines.record import record
from .engines.simulate import InterpretParams, simulate
from .errors import HazardWarning, NotSupportedError, PallasLiteError, SpecError
from .hardware import TOY, Machine
from .schedule import Schedule
from .timeline import Timeline, timeline
from .verify import Hazard, verify

_observers: contextvars.ContextVar[tuple[list, ...]] = contextvars.ContextVar("observers of calls", default=())


def pallas_call(kernel, out_shape, *, grid_spec=None, grid=(), in_specs=None, out_specs=None, scratch_shapes=(),
                input_output_aliases=None, debug=False, interpret=False, name=None, compiler_params=None,
                cost_estimate=None, metadata=None, on_hazard="warn") -> "Call":
    """A pipelined kernel: called like a function on arrays, or looked into with `.trace(*arrays)`.

    The kernel runs once for each step of `grid`, on refs of the blocks that `in_specs` and `out_specs` choose; results
    have the shapes and dtypes of `out_shape`. `interpret=InterpretParams(...)` sets the simulator.
    `on_hazard` is "warn", "raise" or "ignore".

    Raises SpecError, BlockIndexError or NotSupportedError, each naming the operand and the mend.
    """
    if grid_spec is not None:
        grid, in_specs, out_specs = grid_spec.grid, grid_spec.in_specs, grid_spec.out_specs
        scratch_shapes = getattr(grid_spec, "scratch_shapes", ())
    if scratch_shapes:
        raise NotSupportedError("scratch_shapes is not supported yet. Accumulate in an output block that stays the "
                                "same over the innermost grid axis instead.")
    if input_output_aliases:
        raise NotSupportedError("input_output_aliases is not supported yet. Write to a separate output instead.")
    if on_hazard not in ("warn", "raise", "ignore"):
        raise SpecError(f'on_hazard={on_hazard!r}: choose "warn", "raise" or "ignore".')
    params = interpret if isinstance(interpret, InterpretParams) else InterpretParams()
    return Call(kernel, out_shape, _specs.normalize_grid(grid), in_specs, out_specs, params,
                name or kernel_name(kernel), cost_estimate, on_hazard)


@dataclass(frozen=True)
class Call:
    """What `pallas_call` returns."""

    kernel: Any
    out_shape: Any
    grid: tuple[int, ...]
    in_specs: Any
    out_specs: Any
    params: InterpretParams
    name: str
    cost_estimate: Any
    on_hazard: str
    _traces: dict = field(default_factory=dict, compare=False, repr=False)  # one for each set of shapes and dtypes

    def __call__(self, *arrays):
        """The values that the hardware would give. Hazards are reported, as `on_hazard` says."""
        arrays = jax.tree.map(lambda a: a if hasattr(a, "dtype") else jax.numpy.asarray(a), arrays)
        flat = jax.tree.leaves(arrays)
        if any(isinstance(a, jax.core.Tracer) for a in flat):
            raise NotSupportedError(f"{self.name}: a pallas_call under jax.jit or jax.vmap is not supported yet. Call it "
                                    "outside, on concrete arrays.")
        traced = self.trace(*arrays)
        for calls in _observers.get():
            calls.append(traced)
        traced.report(self.on_hazard)
        return traced.values(flat)

    def trace(self, *arrays) -> "Traced":
        """What the call would do, from arrays or ShapeDtypeStructs. Nothing runs."""
        flat, tree = jax.tree.flatten(arrays)
        key = tree, tuple((tuple(np.shape(a)), str(getattr(a, "dtype", type(a)))) for a in flat)
        if key not in self._traces:
            self._traces[key] = self._trace(flat, tree)
        return self._traces[key]

    def _trace(self, flat, tree) -> "Traced":
        in_specs = self._match(self.in_specs, flat, tree, "in_specs")
        outs, out_tree = jax.tree.flatten(list(self.out_shape) if isinstance(self.out_shape, tuple) else self.out_shape)
        out_specs = self._match(self.out_specs, outs, out_tree, "out_specs")
        names = operand_names(self.kernel, len(flat), len(outs))
        operands = [_specs.resolve(s, n, a, self.grid, i >= len(flat))
                    for i, (s, n, a) in enumerate(zip(in_specs + out_specs, names, flat + outs, strict=True))]
        return Traced(self, tuple(operands), tree, out_tree)

    def _match(self, given, flat, tree, what) -> list:
        """The specs in the order of the flat operands; a missing one means the whole array in one block."""
        if given is None:
            return [_specs.BlockSpec()] * len(flat)
        is_spec = lambda s: s is None or isinstance(s, _specs.BlockSpec)  # noqa: E731
        found = jax.tree.flatten(given, is_leaf=is_spec)[0]
        if len(found) != len(flat):
            kind = "operands" if what == "in_specs" else "outputs"
            raise SpecError(f"{self.name}: {len(flat)} {kind} but {len(found)} {what}. Give one BlockSpec for each "
                            f"{kind[:-1]}: {what} has {len(found)}, the call has {len(flat)}.")
        return [s or _specs.BlockSpec() for s in found]


@dataclass(frozen=True)
class Traced:
    """One call looked into: its operands, schedule, hazards, and its time on a machine."""

    call: Call
    operands: tuple[_specs.Operand, ...]
    in_tree: Any
    out_tree: Any

    @cached_property
    def body(self) -> Body:
        n_in = self.in_tree.num_leaves
        ins, outs = self.in_tree, self.out_tree

        def unflatten(refs):
            results = jax.tree.unflatten(outs, refs[n_in:])
            many = isinstance(results, (list, tuple))
            return (*jax.tree.unflatten(ins, refs[:n_in]), *(results if many else (results,)))
        return Body(self.call.kernel, self.operands, self.call.grid, unflatten)

    @cached_property
    def schedule(self) -> Schedule:
        cost = self.call.cost_estimate
        flops = cost.flops / max(self.steps, 1) if cost is not None else self.body.flops
        return record(self.steps, self.operands, flops, self.call.name)

    @property
    def steps(self) -> int:
        return math.prod(self.call.grid)

    @cached_property
    def hazards(self) -> list[Hazard]:
        return verify(self.schedule)

    def timeline(self, machine: Machine = TOY) -> Timeline:
        """When each engine is busy: modelled from the machine's α, β and F, not measured."""
        return timeline(self.schedule, machine)

    def report(self, on_hazard: str) -> None:
        if on_hazard == "ignore" or not self.hazards:
            return
        text = f"{self.call.name}: " + "\n".join(str(h) for h in self.hazards[:5])
        if len(self.hazards) > 5:
            text += f"\n… and {len(self.hazards) - 5} more"
        if on_hazard == "raise":
            raise PallasLiteError(text)
        warnings.warn(text, HazardWarning, stacklevel=3)

    def values(self, flat: list):
        """The outputs for these (flattened) operands, as jax arrays."""
        inputs = {x.array: np.asarray(a) for x, a in zip(self.operands, flat, strict=False)}
        hbm = simulate(self.schedule, self.operands, inputs, self.body.step, self.call.params)
        outs = [jax.numpy.asarray(hbm[x.array]) for x in self.operands if x.is_output]
        result = jax.tree.unflatten(self.out_tree, outs)
        return tuple(result) if isinstance(result, list) else result  # as upstream returns a list of shapes

    def to_plain(self) -> dict:
        """What was asked for, as lists, strings and numbers: grid, and shapes and blocks of each operand."""
        return {"name": self.call.name, "grid": list(self.call.grid), "operands": [
            {"name": x.name, "is_output": x.is_output, "depth": x.depth, "shape": list(x.shape), "dtype": str(x.dtype),
             "block_shape": [None if d in x.squeeze else n for d, n in enumerate(x.block_shape)],
             "blocks": [list(b) for b in x.blocks]} for x in self.operands]}


@contextlib.contextmanager
def observe_calls():
    """Collects the trace of every pallas_call made inside.  with observe_calls() as calls: f(x)"""
    calls: list[Traced] = []
    token = _observers.set((*_observers.get(), calls))
    try:
        yield calls
    finally:
        _observers.reset(token)


def operand_names(kernel, n_in: int, n_out: int) -> list[str]:
    """Names from the kernel's parameters, less `_ref`; in0, in1, …, out0, … where they do not tell.

    >>> operand_names(lambda x_ref, o_ref: None, 1, 1)
    ['x', 'o']
    """
    try:
        names = [p.name.removesuffix("_ref").strip("_") for p in inspect.signature(kernel).parameters.values()
                 if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    if len(names) != n_in + n_out or len(set(names)) != len(names) or not all(names):
        names = [f"in{i}" for i in range(n_in)] + [f"out{i}" for i in range(n_out)]
    return names


