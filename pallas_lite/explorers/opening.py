"""opening: a call of the learner's own -> an explorer of it. In: a pallas_call and its operands. Out: one of VIEWS."""
from typing import Any

from ..call import Call
from ..errors import SpecError
from ..hardware import TPU_V5E, Machine
from ..traced import Traced
from . import schedule, stepper
from .base import Explorer
from .grid import GridExplorer

# Each takes a trace and a machine.
VIEWS = {"grid": GridExplorer, "schedule": schedule.of_trace, "stepper": stepper.of_trace}


def explore(call: Call | Traced, *operands: Any, view: str = "grid", machine: Machine = TPU_V5E) -> Explorer:
    """Opens an explorer on a `pallas_call(...)` with these operands (arrays or ShapeDtypeStructs).

    `view`: "grid" walks through the steps, with each operand's blocks and the step's copies; "schedule" has depth, α, β
    and F under sliders; "stepper" moves the starts and waits of a short call. Nothing is computed: the call is traced.
    Also takes a trace, as `explore(f.trace(x, y))`. Raises SpecError for what is neither, for another view, for a call
    that is too long to be stepped through, and what `trace` raises.
    """
    if view not in VIEWS:
        raise SpecError(f"explore(view={view!r}): give one of {', '.join(VIEWS)}.")
    if isinstance(call, Traced) and not operands:
        trace = call
    elif isinstance(call, Call):
        trace = call.trace(*operands)
    else:
        raise SpecError("explore takes a pallas_call(…) and its operands, or a trace: explore(f, x, y), or "
                        "explore(f.trace(x, y)).")
    if not trace.steps or not trace.operands:
        raise SpecError("explore: this call has no steps, or no operand that is copied block by block. To see a "
                        "kernel's own copies, print f.trace(…).schedule.")
    return VIEWS[view](trace, machine)
