"""What the predictions of chapter 4 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def walk(rng: Random) -> dict:
    """Exercise 4.6: the grid (q, p) over p × q blocks, p odd, and the block (r, c), away from the edges."""
    p, q = rng.choice([(5, 8), (5, 10), (7, 4), (7, 10), (9, 4), (9, 6)])
    while True:
        r, c = rng.randrange(1, p), rng.randrange(1, q)
        if r != c and abs(c * p + r - (r * q + c)) > 1:  # else another order of the loops gives nearly the same step
            return {"p": p, "q": q, "r": r, "c": c}


DRAWS = {"4.6": walk}
