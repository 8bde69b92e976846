"""What the predictions of chapter 9 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def program(rng: Random) -> dict:
    """Exercise 9.1: x is f32[m, n], in blocks of bm × bn; slots of x and of the output.

    Other depths would make two of the known slips the same number.
    """
    bm, bn = rng.choice([64, 128, 256]), rng.choice([128, 256, 512])
    x_depth, o_depth = rng.choice([(3, 2), (4, 2), (4, 3)])
    return {"m": bm * rng.choice([5, 6, 7, 9]), "n": bn * rng.choice([3, 4, 5, 8]), "bm": bm, "bn": bn,
            "x_depth": x_depth, "o_depth": o_depth}


DRAWS = {"9.1": program}
