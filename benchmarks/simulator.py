"""The simulator, hazards checked, against jnp and upstream's two interpreters, all jitted, in one run. In ms.

By default the blocked add of the contract; the slowest peer takes half a minute a call, so it is called once or twice.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as upstream
from jax.experimental.pallas import tpu as upstream_tpu

import pallas_lite as pl

from . import median
from ._kernels import add


def main() -> None:
    peers = {"jnp": None, "interpret=True": True, "InterpretParams": upstream_tpu.InterpretParams(),
             "detect_races": upstream_tpu.InterpretParams(detect_races=True)}
    print(f"{'add':30}{'ours':>9}{'first':>9}" + "".join(f"{name:>17}" for name in peers) + "    (× ours)")
    for n, block in ((1024, 128), (2048, 128), (4096, 128), (4096, 512)):
        x, y = (np.random.default_rng(s).standard_normal((n, n)).astype(np.float32) for s in (0, 1))
        x, y = jnp.asarray(x), jnp.asarray(y)
        ours = add(pl, n, block)  # called eagerly: hazards are checked at each shape's first call, values each time
        first = median(lambda x=x, y=y, n=n, block=block: jax.block_until_ready(add(pl, n, block)(x, y)), 3)
        np.testing.assert_array_equal(ours(x, y), x + y)
        mine = median(lambda f=ours, x=x, y=y: jax.block_until_ready(f(x, y)), 11)
        row = f"{n}², {(n // block) ** 2} blocks of {block}²"
        print(f"{row:30}{1e3 * mine:9.1f}{1e3 * first:9.1f}", end="", flush=True)
        for how in peers.values():
            f = jax.jit(add(upstream, n, block, interpret=how) if how else lambda x, y: x + y)
            long = n > 2048 and how is not None
            ms = 1e3 * median(lambda f=f, x=x, y=y: jax.block_until_ready(f(x, y)), 1 if long else 5)
            print(f"{ms:9.1f} {f'({ms / 1e3 / mine:.0f}×)':>7}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
