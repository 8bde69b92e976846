"""What the predictions of chapter 11 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random

# n, d, KiB of SRAM, µs that the best blocks come within a few per cent of (tests/unit/test_chapter11.py)
TASKS = [(2048, 64, 768, 24.0), (4096, 64, 768, 88.0), (8192, 64, 768, 340.0), (2048, 128, 1024, 44.0),
         (4096, 128, 1024, 168.0), (8192, 128, 1024, 660.0), (4096, 128, 1536, 98.0), (8192, 128, 1536, 376.0),
         (4096, 64, 1536, 52.0)]


def traffic(rng: Random) -> dict:
    """Exercise 11.4: attention over n keys in blocks of bq queries."""
    bq = rng.choice([128, 256, 512])
    # At least 6 blocks of queries, so that k and v come by more often than a slip would have it.
    d = rng.choice([x for x in (64, 128, 256) if 2 * x != bq])  # else two slips would agree
    return {"n": bq * rng.choice([6, 10, 12, 14]), "d": d, "bq": bq, "bk": bq // 2}


def blocks(rng: Random) -> dict:
    """Exercise 11.5: sizes, and what is left of the SRAM."""
    n, d, kib, target = rng.choice(TASKS)
    return {"n": n, "d": d, "sram_kib": kib, "target_us": target}


def link(rng: Random) -> dict:
    """Exercise 11.7: a ring of devices, and the link between two of them."""
    return {"keys": rng.choice([1024, 2048, 4096]), "d": rng.choice([64, 128]), "gb_per_s": rng.choice([50, 100, 200]),
            "alpha_us": rng.choice([3, 5, 8]), "tflops": rng.choice([150, 200, 400])}


DRAWS = {"11.4": traffic, "11.5": blocks, "11.7": link}
