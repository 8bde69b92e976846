"""What the predictions of chapter 5 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def sizes(rng: Random) -> dict:
    """Exercise 5.4: x is f32[m, n], in blocks of bm × bn."""
    bm, bn = rng.choice([64, 128, 256]), rng.choice([128, 256, 512])
    return {"m": bm * rng.choice([5, 6, 11, 12]), "n": bn * rng.choice([4, 8, 9, 10]), "bm": bm, "bn": bn}


DRAWS = {"5.4": sizes}
