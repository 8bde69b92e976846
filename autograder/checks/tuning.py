"""tuning: what to say of a choice of block sizes and slots that is too slow: the change that the model itself finds.

In: the choice, its names, its modelled seconds and whether it may be chosen, as functions; or its timeline. Out: the
change, in words; or what costs most.
"""
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pallas_lite as pl

Choice = tuple[int, ...]  # block sizes, then the number of slots
MOST_SLOTS, FACTORS = 8, (2, 4, 8)
GAIN = 5e-8  # seconds: half of the last digit that a learner is shown


def what_helps(choice: Choice, names: Sequence[str], seconds: Callable[[Choice], float],
               may: Callable[[Choice], bool]) -> tuple[str, Choice]:
    """The change of one number that gains most; where none gains anything, the best of two numbers at once.

    In a sentence ("" if nothing gains), and where it leads. `names`: of the block sizes. Alone, a size is doubled or
    halved, and slots are one more or fewer; two may move further. `may`: is this a choice that fits?
    """
    known = cache(seconds)

    def best(changes: Iterator[tuple[str, Choice]]) -> tuple[str, Choice]:
        _, says, to = min(((known(to), says, to) for says, to in changes if may(to)), default=(0.0, "", choice))
        return (says, to) if known(to) < known(choice) - GAIN else ("", choice)
    one, to = best(_one(choice, names))
    if one:
        return f"Double or halve a size, or take one slot more or fewer: from here, {one} gains most.", to
    two, to = best(_two(choice, names))
    return f"From here no change of one number gains anything, but {two} together do." if two else "", to


TRIPS = "first and last trip"


def largest_excess(t: pl.Timeline) -> tuple[str, float]:
    """The cause that costs most above the bounds of a timeline, and its seconds. First and last trip are one, TRIPS."""
    above = {TRIPS: t.excess["first trip"] + t.excess["last trip"]}
    above |= {name: seconds for name, seconds in t.excess.items() if not name.endswith("trip")}
    cause = max(above, key=lambda name: above[name])
    return cause, above[cause]


def _sizes(choice: Choice, names: Sequence[str], factors=(2,)) -> Iterator[tuple[str, Choice]]:
    for i, name in enumerate(names):
        for factor in factors:
            yield f"a larger {name}", (*choice[:i], choice[i] * factor, *choice[i + 1:])
            if choice[i] % factor == 0:
                yield f"a smaller {name}", (*choice[:i], choice[i] // factor, *choice[i + 1:])


def _one(choice: Choice, names: Sequence[str]) -> Iterator[tuple[str, Choice]]:
    yield from _sizes(choice, names)
    *blocks, slots = choice
    yield "one more slot", (*blocks, slots + 1)
    if slots > 1:
        yield "one slot fewer", (*blocks, slots - 1)


def _two(choice: Choice, names: Sequence[str]) -> Iterator[tuple[str, Choice]]:
    for first, one in _sizes(choice, names, FACTORS):
        for slots in range(1, MOST_SLOTS + 1):
            if slots != choice[-1]:
                yield f"{first} and {'more' if slots > choice[-1] else 'fewer'} slots", (*one[:-1], slots)
        for second, two in _sizes(one, names, FACTORS):
            if second.split()[-1] > first.split()[-1]:  # each pair once, and never the same size twice
                yield f"{first} and {second}", two
