"""orders: a kernel with copies of its own, its parallel steps also run backwards. What goes wrong only then?

Hangs, races and errors of that order, and results that change. Asked by traced.py.
"""
from dataclasses import replace

from ..errors import PallasLiteError
from ..reports import order_hazards
from ..verify import RACES, Hazard


def both(traced, found, run, values=None) -> list[Hazard]:
    """`found`, the hazards in this order, and what the other adds. `run`: traced in that order -> its Outcome.

    `values`: the arrays after this order; without them results are not compared.
    """
    if not traced.parallel or any(h.kind in RACES for h in found):
        return found
    try:
        other = run(traced.other_order())
        wrong = [(h.message, h.step) for h in other.hazards if h.kind in RACES]
    except PallasLiteError as error:
        wrong = [(str(error.__cause__ or error), 0)]  # the cause is without traced.STAND_INS
    for message, step in wrong[:1]:  # others may follow from it
        what = f"where the steps of parallel axis {' and '.join(map(str, traced.parallel))} run backwards, {message}"
        mend = ('Mark the axis "arbitrary" in dimension_semantics, or let each step start the copies that it waits '
                "for, and wait for those that it starts.")
        return [*found, Hazard("parallel axis", what, mend, traced.arrays[-1].name, step, -1, ())]
    differ = [] if values is None else order_hazards(traced, values, other.values, found)
    return found + [replace(h, slot=-1) for h in differ]
