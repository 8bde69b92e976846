"""orders: a kernel with copies of its own, its parallel steps also run in another order. What goes wrong only then?

Hangs, races and errors of that order, and results that change. Asked by traced.py.
"""
from dataclasses import replace

import numpy as np

from ..errors import PallasLiteError
from ..reports import BACKWARDS, order_hazards, other_order
from ..verify import RACES, Hazard


def run(traced, inputs) -> tuple[dict, list[Hazard]]:
    """The arrays after a run, and all that is wrong, in any order. `inputs`: array name -> value."""
    seed, ran = traced.call.params.random_seed, traced
    if traced.parallel and seed is not None:
        ran = traced.other_order(np.random.default_rng(seed))
    try:
        outcome = ran.stepped(inputs)
        if outcome.stopped:
            raise outcome.stopped
    except PallasLiteError as e:
        if ran is not traced:
            e.add_note(f"The steps ran in the order that random_seed={seed} chose.")
        raise
    if traced.call.on_hazard == "ignore":
        return outcome.values, traced.grid_hazards + outcome.hazards
    plain, others = outcome, {BACKWARDS: lambda: traced.other_order().stepped(inputs)}
    if ran is not traced:  # what is wrong in the order of the grid is not put down to another
        plain, others = traced.stepped(inputs), {**others, traced.by_seed: lambda: outcome}
    return outcome.values, both(traced, traced.grid_hazards + traced.fitting(plain.hazards), others, plain)


def both(traced, found, others, outcome=None) -> list[Hazard]:
    """`found`, the hazards in the order of the grid, and what others add: how the steps run -> a run, for its Outcome.

    `outcome`: of the order of the grid; without it results are not compared.
    """
    if not traced.parallel or any(h.kind in RACES for h in found):
        return found
    after = {}
    for how, again in others.items():
        try:
            other = again()
            wrong = [(h.message, h.step) for h in other.hazards if h.kind in RACES]
        except PallasLiteError as error:
            wrong = [(str(error.__cause__ or error), 0)]  # the cause is without traced.STAND_INS
        for message, step in wrong[:1]:  # others may follow from it
            what = f"where {other_order(traced.parallel, how)}, {message}"
            mend = ('Mark the axis "arbitrary" in dimension_semantics, or let each step start the copies that it waits '
                    "for, and wait for those that it starts.")
            return [*found, Hazard("parallel axis", what, mend, traced.arrays[-1].name, step, -1, ())]
        if outcome:
            after[how] = [other.values]
    differ = order_hazards(traced, [outcome.values], after, outcome.unspecified) if outcome else []
    return found + [replace(h, slot=-1) for h in differ]
