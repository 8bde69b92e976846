"""What the predictions of chapter 2 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random


def aim(rng: Random) -> dict:
    """Exercise 2.3: a pipeline of so many equal stages, and for what percentage of slots its core should be busy."""
    return {"stages": rng.randrange(3, 9), "percent": rng.choice([90, 95, 96, 98, 99])}


def array(rng: Random) -> dict:
    """Exercise 2.6: an array in kB, and α in seconds. 10 and 30 blocks, best on the page, never are.

    The best cut depends on kB / α alone: around 17 blocks for the first ratios, around 55 for the others.
    """
    micros, ratio = rng.choice([(α, ratio) for α in (1, 1.5, 2, 3, 4) for ratio in (44, 60, 80, 100, 110)]
                               + [(α, ratio) for α in (0.4, 0.5, 0.8, 1) for ratio in (900, 950, 1000, 1050, 1100)])
    return {"kilobytes": round(ratio * micros), "alpha": micros * 1e-6}


DRAWS = {"2.3": aim, "2.6": array}
