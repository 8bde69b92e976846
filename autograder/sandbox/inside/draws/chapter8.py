"""What the predictions of chapter 8 draw. A draw takes a random.Random and returns the numbers by name."""
from random import Random

# m, n, k, bm, bn: sizes for which the usual slips give other numbers of bytes.
PRODUCTS = [(2048, 1536, 1024, 512, 256), (3072, 1024, 2048, 512, 256), (2560, 2048, 1536, 512, 256),
            (1536, 2048, 2048, 512, 256), (1024, 3072, 1024, 256, 512), (1536, 2048, 1536, 256, 512),
            (2048, 2560, 2048, 256, 512), (1280, 3072, 1024, 256, 512), (4096, 1536, 2048, 1024, 256),
            (5120, 2048, 1024, 1024, 256), (3072, 1792, 1024, 1024, 256), (1024, 6144, 1536, 256, 1024),
            (2048, 5120, 1024, 256, 1024), (4096, 3072, 1024, 1024, 512), (5120, 4096, 1536, 1024, 512),
            (3072, 4096, 2048, 512, 1024)]


def product_sizes(rng: Random) -> dict:
    """Exercise 8.2: x is bf16[m, k], w is bf16[k, n], tiles are bm × bn; k is whole, or in `cut` blocks."""
    return dict(zip(("m", "n", "k", "bm", "bn"), rng.choice(PRODUCTS), strict=True), cut=rng.choice([2, 4, 8]))


DRAWS = {"8.2": product_sizes}
