"""The compiled loop (backend "xla") under jax.jit, against jnp and against interpret=True, in one run. In ms.

Peak memory is what the compiled program says of itself: operands, results and temporaries.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as upstream

import pallas_lite

from . import median, short
from ._kernels import add, matmul, total


def plus(x, y):
    return x + y


CASES = [  # name, call, the same by jnp, shapes, is the interpreter measured too?
    ("add, 4096² in 512²", lambda pl, **how: add(pl, 4096, 512, **how), plus, [(4096, 4096)] * 2, True),
    ("add, 4096² in 128²", lambda pl, **how: add(pl, 4096, 128, **how), plus, [(4096, 4096)] * 2, True),
    ("sum of 8 × 1024² in 256²", lambda pl, **how: total(pl, 256, **how), lambda x: x.sum(0), [(8, 1024, 1024)], True),
    ("matmul, 1024³ in 128³", lambda pl, **how: matmul(pl, 1024, 128, **how), jnp.dot, [(1024, 1024)] * 2, True),
    *((f"add, {n * n:,} blocks of 64²", lambda pl, n=n, **how: add(pl, 64 * n, 64, **how), plus, [(64 * n, 64 * n)] * 2,
       False) for n in (8, 16, 32, 64)),
]


def main(report) -> None:
    row = report.table("times", "call", "jnp", "ours", "× jnp", "µs a step", "memory", "`interpret=True`")
    for name, make, plain, shapes, interpreted in CASES:
        arrays = [jnp.asarray(np.random.default_rng(i).standard_normal(s), jnp.float32) for i, s in enumerate(shapes)]
        call = make(pallas_lite)
        ours, peer = jax.jit(call), jax.jit(plain)
        np.testing.assert_allclose(ours(*arrays), peer(*arrays), rtol=1e-4, atol=1e-3)
        run = lambda f, arrays=arrays: jax.block_until_ready(f(*arrays))  # noqa: E731
        # By turns, so that both see the same machine.
        times = [(median(lambda: run(peer), 7), median(lambda: run(ours), 7)) for _ in range(3)]  # noqa: B023
        theirs, mine = (1e3 * min(t) for t in zip(*times, strict=True))
        use = ours.lower(*arrays).compile().memory_analysis()
        least = use.argument_size_in_bytes + use.output_size_in_bytes
        slow = interpreted and jax.jit(make(upstream, interpret=True))
        row(name, short(theirs), short(mine), f"{mine / theirs:.2f}", short(1e3 * mine / np.prod(call.grid)),
            f"{(least + use.temp_size_in_bytes) / least:.2f}",
            short(1e3 * median(lambda: run(slow), 1)) if interpreted else "")  # noqa: B023
