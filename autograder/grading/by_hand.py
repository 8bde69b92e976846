"""by_hand: reports, with what a person gave in the gradebook in place of what the checks gave.

nbgrader/gradebook.py reads it there. Export and feedback pages say the same as the gradebook, and never without a word.
"""
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from .grade import Mark, Report, clean
from .submissions import some
from .whose import one_name


@dataclass(frozen=True)
class Given:
    """What a person gave for one exercise. `points`: instead of the check's, if any; `extra` comes on top of either."""

    points: float | None = None
    extra: float = 0.0
    comment: str = ""


@dataclass
class ByHand(Mark):
    """A mark that a person had a hand in; `points` are all of it. `found`: what the check gave, None if nothing."""

    found: float | None = None
    comment: str = ""

    def said(self) -> str:
        """What there is to say of it to whoever reads the mark; empty if nobody gave points or a comment."""
        points = [] if self.points == self.found or self.points is None else [
            f"Your teacher gave {self.points:g} of {self.max_points:g} points by hand."]
        return "\n".join([*points, *([f"Your teacher writes: {clean(self.comment)}"] if self.comment else [])])


GivenBy = Mapping[str, Mapping[str, Given]]  # student -> exercise -> what a person gave


def take(reports: Iterable[Report], given: GivenBy) -> tuple[list[Report], list[str]]:
    """The reports with what was given by hand, and what that changes, in words."""
    taken, other, unmarked, seen = [], [], [], set()
    given = {one_name(student): what for student, what in given.items()}
    for report in reports:
        here = given.get(one_name(report.student), {})
        seen.add(one_name(report.student))
        marks = {number: _given(mark, here[number]) if number in here else mark
                 for number, mark in report.marks.items()}
        other += [f"{clean(report.student)} {number}: {m.points:g} (the check gave "
                  f"{'none' if m.found is None else f'{m.found:g}'})" for number, m in marks.items()
                  if isinstance(m, ByHand) and m.points is not None and m.points != m.found]
        unmarked += [f"{clean(report.student)} {n}" for n, g in here.items() if n not in marks and _has_points(g)]
        taken.append(replace(report, marks=marks))
    unmarked += [f"{clean(student)} {n}" for student, here in given.items() if student not in seen
                 for n, g in here.items() if _has_points(g)]
    lines = [f"points given by hand in the gradebook count here: {some(other, 20)}. Without them: --gradebook "
             "none"] * bool(other)
    return taken, lines + [f"points given by hand in the gradebook that are not here, since these results have no such "
                           f"mark: {some(unmarked, 20)}"] * bool(unmarked)


def _has_points(given: Given) -> bool:
    return given.points is not None or bool(given.extra)


def _given(mark: Mark, given: Given) -> ByHand:
    points = mark.points if given.points is None else given.points
    before = {f.name: getattr(mark, f.name) for f in fields(Mark)}
    return ByHand(**before | {"points": None if points is None else points + given.extra}, found=mark.points,
                  comment=given.comment)
