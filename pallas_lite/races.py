"""races: the rule that decides what is wrong, apart from who asks: verify.py (schedules), manual_dma/step.py (kernels).

A copy may read its source and write its target at any moment between its start and the wait that guarantees it. A
program is wrong if a value that is read, or left in HBM, can differ between two choices of moments. That is decided
place by place in one walk over the accesses: a value is certain if its last write overlaps no other write and no read.

A wait takes an amount from its semaphore. It guarantees a copy only when the semaphore cannot have had that much while
a byte of the copy was missing: with two copies in flight on a semaphore, only waiting for both guarantees either.
"""
import itertools
from bisect import bisect_left
from collections import defaultdict


class Place:
    """Some memory that is always accessed as a whole: who wrote it last, and which copies have it in flight."""

    __slots__ = ("last", "writes", "reads", "clash", "pieces")

    def __init__(self):
        self.last = None  # number of the access that certainly wrote it last; None: nobody did
        self.writes, self.reads = [], []  # numbers of the copies in flight that write it, that read it
        self.clash = None  # two writes that overlap, so that either may be the last
        self.pieces = []  # what it was cut into, if it was: then it counts no more

    def copy(self) -> "Place":
        new = Place()
        new.last, new.writes, new.reads, new.clash = self.last, list(self.writes), list(self.reads), self.clash
        return new

    def write(self, number: int, copy: bool):
        """A write begins; a kernel's write ends at once, a copy's with `landed`."""
        # A write that overlaps no other settles the value, whatever happened before.
        self.clash = (self.writes[0], number) if self.writes else None
        if copy:
            self.writes.append(number)
        elif not self.clash:
            self.last = number

    def landed(self, number: int):
        self.writes.remove(number)
        if not self.clash:
            self.last = number


class Races:
    """Feed it the accesses in program order; it calls `clash(kind, first, second)` for each pair that is not ordered.

    Kinds: "read" (second reads what first still writes), "write" (second writes what first still reads), "order" (first
    and second both write, in either order, and the value is used).
    """

    def __init__(self, clash):
        self.clash = clash
        self.copies = {}  # number -> (source places, target places)
        self.in_flight = defaultdict(list)  # semaphore -> numbers of the copies that signal it, not yet guaranteed
        self.owed = defaultdict(int)  # semaphore -> what those copies will have signalled
        self.taken = defaultdict(int)  # semaphore -> what waits have taken of it

    def read(self, number: int, places) -> int:
        """How many of the places nobody has written."""
        places = _uncut(places)
        for place in places:
            self._use(place, number)
        return sum(p.last is None and not p.writes and not p.clash for p in places)

    def write(self, number: int, places):
        for place in _uncut(places):
            for copy in place.reads:
                self.clash("write", copy, number)
            place.write(number, copy=False)

    def start(self, number: int, sources, targets, semaphore, amount: int = 1):
        sources, targets = _uncut(sources), _uncut(targets)  # to find the targets may have cut the sources
        for place in sources:
            self._use(place, number)
            place.reads.append(number)
        onto_itself = sources == targets  # a cell is then read before it is written
        for place in targets:
            for copy in place.reads:
                if copy != number or not onto_itself:
                    self.clash("write", copy, number)
            place.write(number, copy=True)
        self.copies[number] = sources, targets
        self.in_flight[semaphore].append(number)
        self.owed[semaphore] += amount

    def wait(self, semaphore, amount: int = 1) -> bool:
        """False if the program would hang here."""
        if self.taken[semaphore] + amount > self.owed[semaphore]:
            return False
        self.taken[semaphore] += amount
        # Only when all that was started has been waited for is any of it guaranteed.
        if self.taken[semaphore] == self.owed[semaphore]:
            for copy in self.in_flight[semaphore]:
                sources, targets = self.copies.pop(copy)
                for place in sources:
                    place.reads.remove(copy)
                for place in targets:
                    place.landed(copy)
            self.in_flight[semaphore].clear()
            self.taken[semaphore] = self.owed[semaphore] = 0
        return True

    def final(self, places):
        """The places' values are looked at when everything is over."""
        for place in places:
            if place.clash:
                self.clash("order", *place.clash)

    def _use(self, place, number):
        if place.clash:
            self.clash("order", *place.clash)
        if place.writes:
            self.clash("read", place.writes[0], number)


class Rectangles:
    """The places of one buffer: it is cut, all across, where an access begins or ends.

    A rectangle is a tuple of (start, stop), one pair a dimension.
    """

    def __init__(self, races: Races, shape):
        self.races = races
        self.cuts = [[0, n] for n in shape]  # sorted, in each dimension
        self.places = {tuple((0, n) for n in shape): Place()}

    def find(self, rectangle) -> list[Place]:
        """The places that make up a rectangle, after cutting those that stick out of it."""
        if rectangle in self.places:
            return [self.places[rectangle]]
        if any(a >= b for a, b in rectangle):
            return []
        for d, ends in enumerate(rectangle):
            for at in ends:
                self._cut(d, at)
        return [self.places[r] for r in itertools.product(*map(_between, self.cuts, rectangle))]

    def _cut(self, d: int, at: int):
        cuts = self.cuts[d]
        i = bisect_left(cuts, at)
        if cuts[i] == at:
            return
        a, b = cuts[i - 1], cuts[i]
        across = [[(a, b)] if k == d else list(itertools.pairwise(c)) for k, c in enumerate(self.cuts)]
        for have in itertools.product(*across):
            place = self.places.pop(have)
            pieces = [place.copy(), place.copy()]
            for ends, piece in zip(((a, at), (at, b)), pieces, strict=True):
                self.places[(*have[:d], ends, *have[d + 1:])] = piece
            place.pieces = pieces
            for number in {*place.reads, *place.writes}:
                for side in self.races.copies[number]:
                    if place in side:
                        side.remove(place)
                        side.extend(pieces)
        cuts.insert(i, at)


def _uncut(places):
    """The places, with the pieces in place of those that were cut since they were found."""
    return [q for p in places for q in (_uncut(p.pieces) if p.pieces else [p])]


def _between(cuts, span):
    """The pieces of a span: (0, 4, 6, 9), (4, 9) -> (4, 6), (6, 9)."""
    return list(itertools.pairwise(cuts[bisect_left(cuts, span[0]):bisect_left(cuts, span[1]) + 1]))
