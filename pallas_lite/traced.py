"""traced: one call looked into, and run.

Record the schedule (pipeline.py on engines/record.py), trace the kernel (body.py), verify (verify.py). Then the values:
a schedule free of races runs as one compiled loop (engines/xla.py), any other is played copy by copy
(engines/simulate.py). A kernel with copies of its own is stepped through (step.py in manual_dma/, and log.py for its
schedule); under jax.jit it becomes a compiled program (manual_dma/direct.py).
"""
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from . import reports
from . import specs as _specs
from .body import OWN_COPIES, Body, InHbm, NeedsStepping, at_position, check_arity
from .engines import xla
from .engines.record import record
from .engines.simulate import simulate
from .errors import BlockIndexError, HazardWarning, NotSupportedError, PallasLiteError, SpecError
from .hardware import TOY, Machine
from .jaxprs import count_work
from .manual_dma import direct, orders, step
from .manual_dma.log import schedule_of
from .memory import PERIOD, garbage_value
from .refs import Ref
from .reports import BACKWARDS
from .schedule import Schedule
from .timeline import Timeline, timeline
from .tracer_errors import first_outside
from .verify import RACES, Hazard, Hazards, grid_hazards, of_tables, verify

if TYPE_CHECKING:
    from .call import Call
    from .lowering.stages import Lowered

STAND_INS = ("\n  (The operands' values are unknown here, so the kernel was checked on zeros for integers (on ones "
             "where an index would lie outside), ones for other numbers. If it is right on the values that it will "
             'get, say so with on_hazard="ignore".)')


@dataclass(frozen=True, eq=False)
class Traced:
    """What `pallas_call(...).trace(...)` returns: operands, schedule, hazards, and the time on a machine."""

    call: "Call"
    arrays: tuple[_specs.Operand, ...]  # inputs, then outputs, those that stay in HBM among them
    scalars: tuple[np.ndarray, ...]
    names: tuple[str, ...]  # of the kernel's refs: scalars, arrays, scratch
    in_tree: Any
    out_tree: Any
    indices: list[tuple[int, ...]]  # the grid position of each step, in the order in which they run
    given: dict[str, np.ndarray] | None = None  # the inputs' values, for a kernel whose own copies they may decide
    general: "Traced | None" = None  # then: the same for any values
    reported: list[Hazard] = field(default_factory=list, init=False)  # by the last run, on values

    def in_order(self, order: list[int]) -> "Traced":
        """The same call with its steps in another order: `order` numbers them as they run now."""
        arrays = (x if x.stays_in_hbm else replace(x, blocks=[*map(tuple, np.asarray(x.blocks)[order].tolist())])
                  for x in self.arrays)
        other = replace(self, arrays=tuple(arrays), indices=[self.indices[t] for t in order])
        if "body" in vars(self):  # traced already: the order does not matter to that
            vars(other)["body"] = self.body.at(other.indices)
        return other

    def on(self, flat: list) -> "Traced":
        """What the call would do on these values of its inputs, rather than on any of their shapes."""
        given = {x.array: np.array(a) for x, a in zip(self.arrays, flat, strict=False) if not x.is_output}
        return replace(self, given=given, general=self)

    def other_order(self, rng: np.random.Generator | None = None) -> "Traced":
        """The same call with the steps of its parallel axes backwards, or shuffled."""
        return self.in_order(_specs.steps_in_order(self.call.grid, self.parallel, rng))

    @cached_property
    def in_grid_order(self) -> "Traced":
        """The same call with its steps in the order of the grid, where a random_seed has shuffled them."""
        order = sorted(range(self.steps), key=self.indices.__getitem__)
        return self if order == [*range(self.steps)] else self.in_order(order)

    @property
    def other_orders(self) -> dict[str, "Traced"]:
        """How else parallel steps may run -> the same call with its steps in that order, beside that of the grid."""
        shuffled = {} if self.in_grid_order is self else {self.by_seed: self}
        return {BACKWARDS: self.in_grid_order.other_order(), **shuffled}

    @property
    def by_seed(self) -> str:
        """How parallel steps run where the call has a random_seed, in words."""
        return f"run in the order of random_seed={self.call.params.random_seed}"

    @cached_property
    def parallel(self) -> list[int]:
        """The grid axes whose steps may run in any order."""
        semantics = getattr(self.call.compiler_params, "dimension_semantics", None) or ()
        return [axis for axis, s in enumerate(semantics) if "parallel" in str(s).lower()]

    def along(self, axis: int) -> "Traced":
        """The same call in the order of the grid, where only the steps along this axis are parallel."""
        other = self.in_grid_order.in_order([*range(self.steps)])
        vars(other)["parallel"] = [axis]
        return other

    @cached_property
    def operands(self) -> tuple[_specs.Operand, ...]:
        """The arrays that the pipeline copies block by block."""
        return tuple(x for x in self.arrays if not x.stays_in_hbm)

    @property
    def steps(self) -> int:
        """How often the kernel runs."""
        return math.prod(self.call.grid)

    @cached_property
    def schedule(self) -> Schedule:
        """Copies and runs, in order. Those of a kernel that starts its own come from stepping through it.

        On the arrays that were traced; where they are unknown, on zeros for integers, which may be indices, and ones
        for other numbers.
        """
        found = self._did if self.manual else record(self.steps, self.operands, 0.0, self.call.name)
        work = self._work(found.steps) if self.manual else self.body.work
        cost, counted = self.call.cost_estimate, sum(n for *_, n in work)
        flops = counted if cost is None else cost.flops / max(found.steps, 1)
        if counted:  # the units share an estimate as the traced kernel does
            work = tuple((unit, dtype, n * flops / counted) for unit, dtype, n in work)
        scratch = tuple((name, f"{s.dtype}{list(s.shape)}", math.prod(s.shape) * s.dtype.itemsize)
                        for name, s in self._named_extras[len(self.scalars):]
                        if s.memory_space is _specs.VMEM and all(x.name != name for x in found.operands))
        return replace(found, flops=flops, work=work, scratch=scratch)

    @cached_property
    def blocks_from_scalars(self) -> dict[str, jax.Array]:
        """The operands whose blocks depend on traced scalars: name -> the block of each step."""
        return {x.name: x.blocks for x in self.operands if isinstance(x.blocks, jax.Array)}

    @cached_property
    def hazards(self) -> list[Hazard]:
        """What is wrong with the schedule, and with a kernel's own copies. Reports about values come with a run."""
        if self.blocks_from_scalars:
            return []  # nobody can tell before it runs
        found = self.fitting(verify(self._did if self.manual else self.schedule)) + self.grid_hazards
        if self.manual:
            return Hazards(orders.both(self, found, {BACKWARDS: lambda: self.other_order()._did}))
        plain = self.in_grid_order
        return Hazards(found if plain is self else reports.of_order(self, found, plain.hazards, self.by_seed))

    def fitting(self, found: list[Hazard]) -> list[Hazard]:
        """`found`, with mends that fit a call whose scalars choose blocks."""
        chosen = self.scalars and self.call.grid
        return of_tables(found, self.in_grid_order.operands, self.call.grid) if chosen else found

    @property
    def races(self) -> list[Hazard]:
        """The hazards that make values depend on moments: the call has no compiled program."""
        return [h for h in self.hazards if h.kind in RACES]

    @cached_property
    def grid_hazards(self) -> list[Hazard]:
        """Those of the hazards that lie in the blocks that the grid asks for, whatever the order of the copies."""
        schedule = record(self.steps, self.operands) if self.manual else self.schedule
        return grid_hazards(self.operands, self.indices, self.parallel, schedule)

    def timeline(self, machine: Machine = TOY) -> Timeline:
        """When each engine is busy: modelled from the machine's α, β and F, not measured.

        TOY has round numbers, for small examples: give a kernel of your own a machine of `hardware`.
        """
        return timeline(self.schedule, self.limited(machine))

    def limited(self, machine: Machine) -> Machine:
        """The machine with the VMEM that the call asks for: as the TPU compiler takes it, never more than there is."""
        limit = getattr(self.call.compiler_params, "vmem_limit_bytes", None)
        return machine if limit is None else machine.with_(sram_bytes=min(limit, machine.physical_sram_bytes or limit))

    def lower(self, platform: str | None = None) -> "Lowered":
        """The call as a program for an accelerator: "tpu", "triton", "mosaic_gpu", or "gpu", which is Triton.

        Needs no accelerator (lowering/).
        """
        # Late: upstream's TPU half takes a while to import, and most calls need none.
        from .lowering.platforms import lower
        return lower(self, platform)

    # -- the kernel

    @cached_property
    def extras(self) -> list:
        """The refs that no pipeline copies: prefetched scalars by value, scratch by shape and dtype."""
        return [*self.scalars, *jax.tree.leaves(self.call.scratch_shapes)]

    @property
    def _named_extras(self) -> list[tuple]:
        n = len(self.scalars)
        return list(zip(self.names[:n] + self.names[n + len(self.arrays):], self.extras, strict=True))

    def unflatten(self, refs: list) -> tuple[list, dict]:
        """The engines' order (operands, arrays in HBM, scalars, scratch) -> the kernel's arguments and keywords.

        An engine for kernels that only compute has nothing for the arrays in HBM, and gives no refs to them.
        """
        n_blocked, n_all, n_scalars = len(self.operands), len(self.arrays), len(self.scalars)
        if len(refs) < n_all + len(self.extras):
            in_hbm = [Ref(InHbm(x)) for x in self.arrays if x.stays_in_hbm]
            refs = [*refs[:n_blocked], *in_hbm, *refs[n_blocked:]]
        blocked, free = iter(refs[:n_blocked]), iter(refs[n_blocked:n_all])
        arrays = [next(free if x.stays_in_hbm else blocked) for x in self.arrays]
        return self.call.arguments([*refs[n_all:n_all + n_scalars], *arrays, *refs[n_all + n_scalars:]],
                                   self.in_tree, self.out_tree)

    @cached_property
    def manual(self) -> bool:
        """Does the kernel start copies, allocate, or take of an array that stays in HBM, itself?"""
        in_hbm, scratch = [x for x in self.arrays if x.stays_in_hbm], jax.tree.leaves(self.call.scratch_shapes)
        if any(x.is_output for x in in_hbm) or any(map(_specs.is_semaphore, scratch)):
            return True
        try:
            return self.body is None
        except NeedsStepping:
            return True
        except PallasLiteError:  # stepped through it may be right: there Python may decide by values
            if not in_hbm:
                raise
            return True

    @cached_property
    def body(self) -> Body:
        """The kernel, traced once on values of its slots."""
        avals = [(x.name, x.ref_shape, x.dtype) for x in self.operands]
        avals += [(name, e.shape, e.dtype) for name, e in self._named_extras]
        return Body(self.call.kernel, avals, self.call.grid, self.indices, self.unflatten)

    # -- values

    def run(self, flat: list) -> Any:
        """The outputs, after the hazards were reported. `flat`: all operands, prefetched scalars first."""
        inputs = {x.array: a for x, a in zip(self.arrays, flat[len(self.scalars):], strict=False) if not x.is_output}
        under_jit = any(isinstance(a, jax.core.Tracer) for a in flat)
        if under_jit or self.call.backend == "xla":
            self._refuse_what_cannot_compile(under_jit)
            if not (self.proviso and self.call.on_hazard == "ignore"):
                if self.races:
                    what = "under jax.jit, vmap or grad" if under_jit else 'with backend="xla"'
                    raise PallasLiteError(f"{self.call.name}: {what} a call must be free of races, and this one has: "
                                          f"{self.races[0]}{self.proviso}")
                self.report(self.hazards, self.proviso)
            values = ((self.general or self)._direct(inputs) if self.manual else
                      self.run_compiled(inputs, self._held)[0])
        elif self.manual:
            values, found = orders.run(self, inputs)
            self.report(found)
        else:
            with jax.ensure_compile_time_eval():  # on values, also where a function around the call is being traced
                if self.call.on_hazard == "raise":
                    self.report(self.hazards)
                values = self._values(inputs)
                if self.call.on_hazard != "ignore":
                    self.report([*self.hazards, *reports.from_runs(self, inputs)])
        return self._results(values)

    def _refuse_what_cannot_compile(self, under_jit):
        if under_jit and self.call.backend == "simulate":
            raise NotSupportedError(f"{self.call.name}: the simulator cannot run under jax.jit or jax.vmap. Call it "
                                    'outside, on concrete arrays, or give backend="xla".')
        if self.manual and any(isinstance(s, jax.core.Tracer) for s in self.scalars):
            by_them = ", ".join(self.blocks_from_scalars)
            mend = (f"or give {by_them}, whose blocks they choose, to the kernel in pl.ANY and copy the blocks there, "
                    "by scalars from an operand in SMEM." if by_them else "or pass them as an operand in SMEM.")
            raise NotSupportedError(f"{self.call.name}: {OWN_COPIES} is checked before it runs, so its prefetched "
                                    "scalars must be concrete arrays, not traced. Call it outside jax.jit, or let the "
                                    f"function find them outside itself, {mend}")

    def _values(self, inputs):
        params = self.call.params
        if self.races or self.call.backend == "simulate" or params.uninitialized_memory == "random":
            inputs = {name: np.asarray(a) for name, a in inputs.items()}
            return simulate(self.schedule, self.operands, inputs, self.body.step, params, self.extras,
                            self.body.counts)
        held = [np.full(PERIOD, value) for value in self._held]  # as `filling` has it: one program for both
        values, past_end = self.run_compiled(inputs, held, False)
        if params.out_of_bounds_reads == "raise":
            for i in self.body.moving:
                if past_end[i] < self.steps:
                    self.body.refuse(i, int(past_end[i]))
        return values

    def run_compiled(self, inputs: Mapping[str, jax.Array], held: Sequence, every_visit: bool | None = None) -> tuple:
        """Arrays and past ends, as xla.run has them. `held`: what the memory of each ref holds at first."""
        return self._loop(inputs, self.scalars, held, self.blocks_from_scalars, every_visit)

    @property
    def _held(self) -> list:
        """What the memory of each ref holds at first, as the call has it."""
        return [garbage_value(self._filling, np.dtype(dtype), i in self.body.counts)
                for i, (_, _, dtype) in enumerate(self.body.avals)]

    @property
    def _filling(self) -> str | float:
        """What memory holds at first in a compiled program: only the simulator draws numbers for it."""
        kind = self.call.params.uninitialized_memory
        return "nan" if kind == "random" else kind

    @cached_property
    def _loop(self):
        return xla.compiled(self.operands, self.extras, self.body, self.call.grid)

    # -- kernels with copies of their own

    def stepped(self, inputs: dict) -> step.Outcome:
        """What a run step by step gives. `inputs`: array name -> value."""
        inputs = {name: np.asarray(a) for name, a in inputs.items()}
        operands, free, extras, grid = self.parts
        return step.run(self.call.kernel, operands, free, extras, grid, self.indices, inputs, self.call.params,
                        self.unflatten)

    @property
    def proviso(self) -> str:
        """What to say with hazards where the kernel is checked on values that are not those of its operands; or ""."""
        return STAND_INS if self.manual and self.given is None else ""

    @cached_property
    def _did(self) -> Schedule:
        """What a kernel with copies of its own did, and the hazards seen on the way."""
        for whole in (0, 1):
            try:
                with at_position((), (), self.given is None or None):  # nobody asked what it prints of stand-ins
                    outcome = self.stepped(self._stand_ins(whole) if self.given is None else self.given)
                break
            except PallasLiteError as error:
                # An index is outside whatever the values are, or only on these: a table may count from 1.
                if self.given is not None or whole or not isinstance(error, BlockIndexError):
                    whatever = isinstance(error, (NotSupportedError, SpecError))  # the values are
                    raise type(error)(f"{error}{'' if whatever else self.proviso}") from error
        return schedule_of(outcome.log, self.call.name, outcome.hazards)

    def _stand_ins(self, whole: int) -> dict[str, np.ndarray]:
        """Values of the inputs where these are unknown: zeros, as indices, lie inside; other numbers are seen."""
        return {name: np.full(a.shape, whole if np.issubdtype(a.dtype, np.integer) else 1, a.dtype)
                for name, a in self._inputs.items()}

    @property
    def _inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {x.array: jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.arrays if not x.is_output}

    @property
    def _program(self):
        return direct.program(self.call.kernel, *self.parts, self.unflatten, self._filling)

    @cached_property
    def _direct(self):
        return direct.compiled(self._program, self._inputs)

    def _work(self, steps: int) -> tuple[tuple[str, str, float], ...]:
        """Arithmetic of a step, as Schedule.work; () where Python decides what the kernel does: it has no trace."""
        try:
            work = count_work(jax.make_jaxpr(self._program)(self._inputs).jaxpr)
        except (jax.errors.JAXTypeError, PallasLiteError):
            return ()
        return tuple((*key, n / max(steps, 1)) for key, n in sorted(work.items()))

    @cached_property
    def parts(self) -> tuple:
        """What manual_dma/copies.play asks for: operands, arrays in HBM, other refs, grid."""
        free = [(x.name, x.array, x.shape, x.dtype) for x in self.arrays if x.stays_in_hbm]
        args, kwargs = self.unflatten(list(range(len(self.arrays) + len(self.extras))))
        check_arity(self.call.kernel, args, kwargs)
        return self.operands, free, self._named_extras, self.call.grid

    def report(self, hazards: Sequence[Hazard], proviso: str = "") -> None:
        """Warn of hazards, or raise, as the call's `on_hazard` says."""
        self.reported[:] = hazards
        if self.call.on_hazard == "ignore" or not hazards:
            return
        text = f"{self.call.name}: {Hazards(hazards)}{proviso}"
        if self.call.on_hazard == "raise":
            raise PallasLiteError(text)
        warnings.warn(HazardWarning(text, hazards), stacklevel=first_outside()[0])

    def _results(self, hbm):
        outs = [jax.numpy.asarray(hbm[x.array]) for x in self.arrays if x.is_output]
        return jax.tree.unflatten(self.out_tree, outs)

    def zeros(self) -> Any:
        """What `run` gives, but full of zeros: the shapes are right, and nothing ran."""
        return self._results({x.array: np.zeros(x.shape, x.dtype) for x in self.arrays if x.is_output})

    def to_plain(self) -> dict:
        """What was asked for, as lists, strings and numbers: grid, and shapes and blocks of each operand.

        Of a kernel with copies of its own also what it did: its schedule, and the hazards seen on the way, in words.
        """
        did = {"schedule": self.schedule.to_plain(), "hazards": list(map(str, self.hazards[:5]))} if self.manual else {}
        return {**did, "name": self.call.name, "grid": list(self.call.grid), "operands": [
            {"name": x.name, "is_output": x.is_output, "depth": x.depth, "shape": list(x.shape), "dtype": str(x.dtype),
             "block_shape": [None if d in x.squeeze else n for d, n in enumerate(x.block_shape)],
             "blocks": [list(b) for b in x.blocks]} for x in self.operands]}
