"""What the predictions of chapter 10 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random

from ..recorded import listings


def stage(rng: Random) -> dict:
    """Exercise 10.3: a product in blocks (bm, bn, bk), and an add in blocks of rows × columns.

    Shapes and depths for which no known slip gives what another gives.
    """
    bm, bn = rng.choice([(64, 128), (128, 64), (128, 256), (256, 128)])
    rows, columns = rng.choice([(64, 64), (32, 64), (64, 32), (32, 128)])
    return {"bm": bm, "bn": bn, "bk": rng.choice([32, 64]), "stages": rng.choice([3, 4]), "rows": rows,
            "columns": columns, "depth": rng.choice([3, 4])}


def listing(rng: Random) -> dict:
    """Exercise 10.5: the PTX of a product with two to four stages, and its place among them: one of 25.

    Not of the one that the chapter explains.
    """
    texts = listings()
    place = rng.choice(range(len(texts)))
    return {"place": place, "ptx": texts[place]}


DRAWS = {"10.3": stage, "10.5": listing}
