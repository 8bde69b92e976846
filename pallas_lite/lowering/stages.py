"""stages: a traced call on its way to an accelerator, in JAX's stages: lower, as_text, compile. Next: mosaic.py."""
import inspect
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..errors import NotSupportedError, SpecError
from ..specs import HasShape

if TYPE_CHECKING:
    from ..traced import Traced


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program for one platform, not compiled yet. Its operands are flat, prefetched scalars first."""

    traced: "Traced"

    @property
    def avals(self) -> list[jax.ShapeDtypeStruct]:
        """The operands, as shapes and dtypes."""
        arrays: list[HasShape] = [*self.traced.scalars, *(x for x in self.traced.arrays if not x.is_output)]
        return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]

    def check_scalars(self, operands: Sequence) -> None:
        """Raises SpecError where prefetched scalars choose other blocks than those that the program is made for.

        It is made for, and proven with, the blocks of the trace. What is traced by jax, nobody can check.
        """
        traced, scalars = self.traced, operands[:len(self.traced.scalars)]
        if any(isinstance(s, jax.core.Tracer) for s in scalars) or all(
                np.array_equal(s, ours) for s, ours in zip(scalars, traced.scalars, strict=False)):
            return
        given = jax.tree.unflatten(traced.in_tree, [*scalars, *self.avals[len(scalars):]])
        others = {x.name: x.blocks for x in traced.call.trace(*given).in_grid_order.operands}
        if changed := [x.name for x in traced.operands if x.blocks != others[x.name]]:
            raise SpecError(f"{traced.call.name}: this program is made for the prefetched scalars of its trace, and "
                            f"these choose other blocks of {', '.join(changed)}. Trace the call on them, and lower "
                            "that.")

    def as_text(self) -> str:
        """The program, as the vendor's compiler gets it."""
        raise NotImplementedError

    def compile(self, target: str) -> "Compiled":
        """The program compiled for a chip on this machine, which needs no such chip."""
        raise NotImplementedError

    def summary(self) -> str:
        """The program's copies and waits, one a line, each beside what it is in the schedule."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Compiled:
    """What the vendor's compiler made of a program."""

    lowered: Lowered
    target: str
    executable: Any = field(repr=False)  # jax.stages.Compiled

    def as_text(self) -> str:
        """The compiled module."""
        return self.executable.as_text()

    def memory_analysis(self) -> Any:
        """Bytes of arguments, results, temporaries and code, as `jax.stages.Compiled` gives them."""
        return self.executable.memory_analysis()

    def cost_analysis(self) -> Any:
        """The compiler's own estimate, as `jax.stages.Compiled` gives it."""
        return self.executable.cost_analysis()


def blamed(error: BaseException, kernel) -> str:
    """Where in the kernel's file the operation stands that a compiler refuses, where its error knows: `, at line 7`."""
    kernel = inspect.unwrap(getattr(kernel, "func", kernel))  # a functools.partial has a func
    file, lines = getattr(getattr(kernel, "__code__", None), "co_filename", None), list[int]()
    seen: BaseException | None = error
    while seen is not None:
        lines += [line for frame, line in traceback.walk_tb(seen.__traceback__) if frame.f_code.co_filename == file]
        seen = seen.__cause__ or seen.__context__
    return f", at line {lines[-1]} of {file}" if lines else ""


def unknown(name: str, what: str, given, there_is) -> NotSupportedError:
    """The error for a platform or chip that is not known here."""
    return NotSupportedError(f"{name}: {what} {given!r} is not supported; there is {', '.join(map(repr, there_is))}.")
