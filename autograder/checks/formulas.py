"""formulas: what to say of a learner's formula that goes wrong. In: the answer, and what slips give. Out: a sentence.

One number may be right, or a slip's, by chance: with one block all ends are alike. So the answer is asked all cases,
and a slip is told only where the answer gives what the slip gives in each of them.
"""
import contextlib
from collections.abc import Callable, Sequence

from ..exercise import AnswerFailed, Wrong
from ..judge.handle import Handle, close, number

# Of a case's numbers: (what a slip gives, what to say of it), the slips always in the same order.
Slips = Callable[..., Sequence[tuple[float, str]]]


def known_slip(answer: Handle, cases: Sequence[tuple], at: tuple, slips: Slips, tolerance: float = 1e-6) -> str:
    """What to say of the slip that agrees with the answer in all cases, if there is just one. `at`: the wrong case.

    A case in which the answer gives no number tells nothing.
    """
    left = list(range(len(slips(*at))))
    for case in (at, *cases):
        try:
            given = number(answer.call(*case))
        except (AnswerFailed, Wrong):
            continue
        there = slips(*case)
        left = [k for k in left if abs(given - there[k][0]) <= tolerance * abs(there[k][0]) + 1e-300]
    said = {slips(*at)[k][1] for k in left}
    return said.pop() if len(said) == 1 else ""


def right_or_told(answer: Handle, cases: Sequence[tuple], at: tuple, right: float, slips: Slips, *, what: str,
                  case: str, nudge: str, unit: str = "", tolerance: float = 1e-6) -> None:
    """Raises Wrong unless the answer is right in the case `at`; it tells the slip that the answer is in all cases."""
    try:
        close(answer.call(*at), right, unit, tolerance, what=what, case=case, nudge=nudge)
    except Wrong as wrong:
        if wrong.nudge == nudge:  # it was a number, and none in another unit
            wrong.nudge = known_slip(answer, cases, at, slips, tolerance) or (
                "The result need not be a whole number: do not round it, and cut nothing off (int, //)."
                if _rounded(answer, (at, *cases), right) else nudge)
        raise


def _rounded(answer: Handle, cases: Sequence[tuple], right: float) -> bool:
    """Is it the right number made whole, up or down, in the first case, and whole in all? Or with a few decimals."""
    with contextlib.suppress(AnswerFailed, Wrong):
        given = [number(answer.call(*case)) for case in cases]
        return any(abs(given[0] - right) < 10**-places and right != round(right, places)
                   and all(g == round(g, places) for g in given) for places in range(5))
    return False
