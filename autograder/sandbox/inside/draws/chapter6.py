"""What the predictions of chapter 6 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def garbage(rng: Random) -> dict:
    """Exercise 6.1: r pictures full of c, n output blocks in 3 slots that hold g at first.

    n is no multiple of the slots, or A and B end alike; r is more than the visits of a slot in B, or two slips are one,
    and not n, so that the grids of A and B differ;
    g is far above every sum, so no slip without g comes near.
    """
    n = rng.choice([7, 8, 10, 11, 13])
    return {"r": rng.choice([r for r in range(6, 11) if r != n]), "n": n, "c": rng.randrange(2, 8),
            "g": 1000 * rng.randrange(1, 10)}


DRAWS = {"6.1": garbage}
