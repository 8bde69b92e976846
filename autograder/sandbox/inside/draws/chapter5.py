"""What the predictions of chapter 5 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def sizes(rng: Random) -> dict:
    """Exercise 5.4: x is f32[m, n], in blocks of bm × bn."""
    bm, bn = rng.choice([64, 128, 256]), rng.choice([128, 256, 512])
    return {"m": bm * rng.choice([5, 6, 11, 12]), "n": bn * rng.choice([4, 8, 9, 10]), "bm": bm, "bn": bn}


def budget(rng: Random) -> dict:
    """Exercise 5.6: x in `dtype`, y and the output in f32, all height × width, and KiB for all slots."""
    return {"height": 8 * rng.randrange(200, 320), "width": 128 * rng.choice([10, 11, 12, 13, 14, 15, 17]),
            "dtype": rng.choice(["bfloat16", "int8"]), "budget_kib": 20 * rng.randrange(104, 114)}


DRAWS = {"5.4": sizes, "5.6": budget}
