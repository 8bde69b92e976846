"""What the predictions of chapter 2 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def aim(rng: Random) -> dict:
    """Exercise 2.3: a pipeline of so many equal stages, and for what percentage of slots its core should be busy."""
    return {"stages": rng.randrange(3, 9), "percent": rng.choice([90, 95, 96, 98, 99])}


def array(rng: Random) -> dict:
    """Exercise 2.6: an array in kB, and α in seconds."""
    return {"kilobytes": rng.choice([120, 180, 240, 360, 480]), "alpha": rng.choice([1, 1.5, 2, 3, 4]) * 1e-6}


DRAWS = {"2.3": aim, "2.6": array}
