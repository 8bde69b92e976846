"""What the predictions of chapter 1 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def two_kernels(rng: Random) -> dict:
    """Exercise 1.3: a polynomial on a dtype, and a product of m × k by k × n matrices of bfloat16."""
    dtype, size = rng.choice([("float32", 4), ("bfloat16", 2)])
    m, n = rng.sample([256, 384, 512, 768, 1024], 2)
    return {"terms": rng.randrange(11, 40), "dtype": dtype, "size": size, "m": m,
            "k": rng.choice([96, 640, 896]), "n": n}


def elementwise(rng: Random) -> dict:
    """Exercise 1.4: how many arrays an elementwise kernel moves, and its operations for each element."""
    return {"arrays": rng.choice([2, 3, 4, 5]), "operations": rng.choice([2, 3, 5, 6, 7, 9, 10, 11])}


DRAWS = {"1.3": two_kernels, "1.4": elementwise}
