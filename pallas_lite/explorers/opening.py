"""opening: a call of the learner's own -> an explorer of it. In: a pallas_call and its operands. Out: one of VIEWS."""
import inspect
from collections.abc import Callable
from typing import Any

from ..body import kernel_name
from ..call import Call, first_call
from ..display import steps_of
from ..errors import SpecError, bound, many, signature_of
from ..hardware import TPU_V5E, Machine
from ..index_maps import unjitted
from ..traced import Traced
from . import choices, schedule, stepper
from .base import Explorer
from .grid import GridExplorer

# Each takes a trace and a machine. A fourth one, the tuner, also takes what it may choose.
VIEWS: dict[str, Callable[[Traced, Machine], Explorer]] = {
    "grid": GridExplorer, "schedule": schedule.of_trace, "stepper": stepper.of_trace}


def explore(call: Call | Traced | Callable[..., Any], *operands: Any, view: str = "grid", machine: Machine = TPU_V5E,
            **settings: Any) -> Explorer:
    """Opens an explorer on a `pallas_call(...)` with these operands (arrays or ShapeDtypeStructs).

    `view`: "grid" walks through the steps, with each operand's blocks and the step's copies; "schedule" has depth, α, β
    and F under sliders; "stepper" moves the starts and waits of a short call; "tuner" has what each choice costs. No
    kernel runs: the call is traced.

    `call` may be a function that makes a `pallas_call` and calls it, `def matmul(x, y, *, bm=128, bk=128): …`, or one
    that only makes it, `def make(bm=128, bk=128): …`; its `settings` are keywords. The tuner takes several
    values of each, and shows modelled time, SRAM, the best legal one:
    `explore(matmul, x, y, view="tuner", bm=(64, 128, 256), bk=(64, 128))`; without any it takes halves and doubles of
    the defaults. Of a finished call it chooses the depths and the order of the grid.

    Also takes a trace, as `explore(f.trace(x, y))`. Raises SpecError for what is none of these, for another view, for a
    call that is too long to be stepped through, and what `trace` raises.
    """
    if view not in (*VIEWS, "tuner"):
        raise SpecError(f"explore(view={view!r}): give one of {', '.join(VIEWS)}, tuner.")
    if isinstance(call, Call | Traced):
        if settings and view != "tuner":
            raise SpecError(f"explore({', '.join(settings)}=…): a finished call has no settings. Give a function that "
                            "makes it, with these as keywords.")
        trace = call if isinstance(call, Traced) else call.trace(*operands)
    elif not callable(call):
        raise SpecError("explore takes a pallas_call(…) and its operands, a trace, or a function that makes the call: "
                        f"explore(f, x, y), or explore(f.trace(x, y)). This is of type {type(call).__name__}.")
    elif view == "tuner":
        return choices.of_function(caller(call, operands, settings), operands, settings, machine)
    else:
        made, arrays = first_call(caller(call, operands, settings), *operands, **settings)
        trace = made.trace(*arrays)
    if trace.manual and not (view == "grid" and walks(trace)):
        raise SpecError(f'explore(…, view="{view}"): {trace.call.name} starts copies of its own ({steps_of(trace)}), '
                        "and an explorer moves through those of pallas_call's pipeline. To see its own, "
                        "pl.show(f.trace(…)), or print f.trace(…).schedule.")
    if not trace.steps or not trace.operands:
        raise SpecError("explore: this call has no steps, or no operand that is copied block by block.")
    return choices.of_trace(trace, settings, machine) if view == "tuner" else VIEWS[view](trace, machine)


def walks(trace: Traced) -> bool:
    """Does the kernel, whatever it copies itself, compute once in each step of its call's grid?"""
    s = trace.schedule
    return bool(trace.operands) and s.columns.step[s.runs].tolist() == list(range(trace.steps))


def caller(f: Callable, operands: tuple, settings: dict) -> Callable:
    """A function of operands and keywords: `f`, or where `f` takes settings alone and gives a call, that with its call.

    Parameters that operands would land in are settings if they are named as such, or have a number as their default.
    """
    f, name, signature = unjitted(f), kernel_name(f), signature_of(unjitted(f))
    own = signature.parameters
    places = [p for p in own.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    makes = operands and all(p.name in settings or type(p.default) in (int, bool) for p in places[:len(operands)])

    def made_and_called(*arrays, **chosen):
        given = () if makes else arrays
        if not bound(f, given, chosen):
            beside = "" if makes else f"{many(len(given), 'operand')} with "
            raise SpecError(f"explore: {name}{signature} does not take {beside}{', '.join(chosen) or 'no settings'}. "
                            f"Operands stand behind it in their order, settings are keywords: {choices.HOW}.")
        made = f(*given, **chosen)
        if makes:
            return made(*arrays)
        if isinstance(made, Call):
            raise SpecError(f"explore: {name} makes a pallas_call and does not call it. Give its operands, arrays or "
                            f"ShapeDtypeStructs, behind {name}: pl.explore({name}, x, y, …).")
        return made
    made_and_called.__name__ = name
    arrays = inspect.Parameter("arrays", inspect.Parameter.VAR_POSITIONAL)
    settled = [arrays, *(p.replace(kind=max(p.kind, p.KEYWORD_ONLY)) for p in own.values())]
    made_and_called.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=settled if makes else [*own.values()])
    if hasattr(f, "__wrapped__"):  # for first_call, which looks inside
        made_and_called.__wrapped__ = caller(f.__wrapped__, operands, settings)  # type: ignore[attr-defined]
    return made_and_called
