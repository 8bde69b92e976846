"""What the predictions of chapter 7 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random

# (α, X/β, Y/F) in µs of machines with two slots, by what limits them. In each, the usual slips give other times.
MACHINES = {
    "compute": [(2, 2, 8), (2, 3, 9), (3, 2, 9), (2, 3, 10), (2, 4, 10), (4, 3, 12)],
    "bandwidth": [(2, 8, 2), (2, 9, 3), (3, 9, 2), (2, 10, 3), (2, 10, 4), (4, 12, 3)],
    "latency": [(12, 2, 3), (12, 3, 2), (10, 2, 2), (16, 4, 3), (16, 3, 5), (20, 4, 4)],
}


def machines(rng: Random) -> dict:
    """Exercise 7.1: X bytes and Y operations a step, N steps; α in s, β in B/s and F in op/s of machines A, B and C.

    Each of the three is limited by something else, so that an answer which leaves out a bound is wrong for everybody.
    """
    X, Y = rng.choice([180e3, 240e3, 360e3]), rng.choice([0.9e6, 1.8e6, 3.6e6])
    drawn = [rng.choice(MACHINES[bound]) for bound in rng.sample([*MACHINES], 3)]
    made = {name: {"alpha": a * 1e-6, "beta": X / (c * 1e-6), "F": Y / (s * 1e-6)}
            for name, (a, c, s) in zip("ABC", drawn, strict=True)}
    return {"N": rng.choice([120, 150, 180, 200, 240]), "X": X, "Y": Y, **made}


def slots(rng: Random) -> dict:
    """Exercise 7.6: N blocks of so many KiB; α, X/β and Y/F in µs. Five or six slots hide the latency."""
    alpha, copy, step = rng.choice([(6, 2, 1), (7, 1, 2), (8, 2, 1), (8, 1, 2), (13, 3, 2), (12, 2, 3)])
    return {"N": rng.choice([320, 400, 480, 560]), "kib": rng.choice([24, 32, 40, 48]), "alpha": alpha, "copy": copy,
            "step": step}


DRAWS = {"7.1": machines, "7.6": slots}
