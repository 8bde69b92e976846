"""memory: what a simulated machine is free to choose: what memory holds at first, and when copies land."""
import numbers
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np

from .errors import SpecError


@dataclass(frozen=True)
class InterpretParams:
    """How the simulator behaves where hardware is free to choose. Names and meanings are upstream's.

    `uninitialized_memory`: "nan" (True for bools; the largest integer for ints, but 0 for those that may decide how
    often a loop of the kernel runs), "zero", "random" (under jit: "nan") or a number.
    `dma_execution_mode`: when a copy in flight takes effect: "on_wait" (as late as it may), "eager" (at its start), or
    "random" (one or the other, by `random_seed`). A copy that nobody waits for never lands unless it is eager.
    With a `random_seed`, the steps of parallel axes (dimension_semantics) run in another order too.
    `out_of_bounds_reads`: "raise" (BlockIndexError) or "uninitialized". `detect_races` is accepted: races are always
    looked for, and `on_hazard` of the call says what happens then.
    """

    detect_races: bool = True
    out_of_bounds_reads: Literal["raise", "uninitialized"] = "raise"
    uninitialized_memory: str | float = "nan"
    dma_execution_mode: Literal["eager", "on_wait", "random"] = "on_wait"
    random_seed: int | None = None
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None

    def __post_init__(self) -> None:
        if self.dma_execution_mode not in ("eager", "on_wait", "random"):
            raise SpecError(f'dma_execution_mode={self.dma_execution_mode!r}: choose "eager", "on_wait" or "random".')
        if self.out_of_bounds_reads not in ("raise", "uninitialized"):
            raise SpecError(f'out_of_bounds_reads={self.out_of_bounds_reads!r}: choose "raise" or "uninitialized".')
        if self.uninitialized_memory not in ("nan", "zero", "random") and not isinstance(
                self.uninitialized_memory, numbers.Real):
            raise SpecError(f'uninitialized_memory={self.uninitialized_memory!r}: choose "nan", "zero", "random" or '
                            "a number.")

    def lands_at_once(self, rng: np.random.Generator) -> bool:
        """Does a copy take effect at its start, rather than at its wait?"""
        mode = self.dma_execution_mode
        return mode == "eager" or mode == "random" and rng.random() < 0.5

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers by `random_seed`, the same at every call."""
        return np.random.default_rng(self.random_seed or 0)


DEFAULT = InterpretParams()


def garbage_value(kind: str | float, dtype: np.dtype, counts: bool = False):
    """One element of memory that nobody has written.  >>> int(garbage_value("nan", np.dtype("int8")))
    127

    `counts`: it may decide how often a loop runs, and the loop is to end.
    """
    if kind == "zero" or counts and kind == "nan":
        return np.zeros((), dtype)[()]
    if kind != "nan":
        return np.asarray(kind).astype(dtype)[()]
    if dtype.kind == "b":
        return np.True_
    if jnp.issubdtype(dtype, jnp.integer):
        return dtype.type(jnp.iinfo(dtype).max)
    return np.asarray(np.nan).astype(dtype)[()]  # bfloat16 and its like are no np.floating


def garbage(params: InterpretParams, shape, dtype, rng, counts: bool = False) -> np.ndarray:
    """Memory before anybody writes it. `counts`: see garbage_value."""
    if params.uninitialized_memory == "random":
        return rng.integers(0, 100, shape).astype(dtype)
    return np.full(shape, garbage_value(params.uninitialized_memory, np.dtype(dtype), counts), dtype)


FILLINGS = 4
PERIOD = 61  # prime, so that a row of a block begins with another value than the row above it


def filling(number: int, dtype, is_output: bool, like=(), counts: bool = False) -> np.ndarray:
    """One of FILLINGS things that memory may have held, as PERIOD values in turn: what differs is unspecified.

    In this order: two ends of what a number may be, NaN, and such values as pass for right in a comparison: 0, 1 and
    some of the arrays `like`, where those have this dtype. Outputs and all other memory differ, so that an unwritten
    element is told from garbage that was copied there. Where integers may decide how often a loop runs (`counts`) they
    are small, so that it ends.
    """
    dtype = np.dtype(dtype)
    if counts:
        return np.full(PERIOD, number + FILLINGS * is_output, dtype)
    if number == FILLINGS - 1:
        rng = np.random.default_rng(0)
        some = [rng.choice(np.asarray(a).ravel(), PERIOD) for a in like if a.dtype == dtype and a.size]
        # One value of each array in turn.
        return np.resize(np.concatenate([np.array([0, 1], dtype), np.array(some, dtype).T.ravel()]), PERIOD)
    ends: tuple[float, float, float]
    if dtype.kind == "b":
        ends = (1, 0, 1) if is_output else (0, 1, 1)
    elif jnp.issubdtype(dtype, jnp.integer):  # the ends of the range, so that min, max and single bits tell
        low, high = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
        ends = (high, low, high) if is_output else (low, high - 1, high)
    else:
        scale = min(1.0, float(jnp.finfo(dtype).max) / 6e4)
        ends = (3.1e4 * scale, -1.7e4 * scale, np.nan) if is_output else (-2.3e4 * scale, 2.9e4 * scale, np.nan)
    return np.full(PERIOD, ends[number], dtype)
