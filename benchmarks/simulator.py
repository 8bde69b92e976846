"""The simulator, hazards checked, against jnp and upstream's two interpreters, all jitted, in one run. In ms.

By default the blocked add of the contract; the slowest peer takes half a minute a call, so it is called once or twice.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as upstream
from jax.experimental.pallas import tpu as upstream_tpu

import pallas_lite as pl

from . import median, short, spread
from ._kernels import add


def main(report) -> None:
    peers = {"jnp": None, "`interpret=True`": True, "`InterpretParams()`": upstream_tpu.InterpretParams(),
             "`detect_races=True`": upstream_tpu.InterpretParams(detect_races=True)}
    add_row, ratios = report.table("times", "add", "ours", "first", *peers), {name: [] for name in peers}
    for n, block in ((1024, 128), (2048, 128), (4096, 128), (4096, 512)):
        x, y = (np.random.default_rng(s).standard_normal((n, n)).astype(np.float32) for s in (0, 1))
        x, y = jnp.asarray(x), jnp.asarray(y)
        ours = add(pl, n, block)  # called eagerly: hazards are checked at each shape's first call, values each time
        first = median(lambda x=x, y=y, n=n, block=block: jax.block_until_ready(add(pl, n, block)(x, y)), 3)
        np.testing.assert_array_equal(ours(x, y), x + y)
        mine = median(lambda f=ours, x=x, y=y: jax.block_until_ready(f(x, y)), 11)
        cells = [f"{n}², {(n // block) ** 2:,} blocks of {block}²", short(1e3 * mine), short(1e3 * first)]
        for name, how in peers.items():
            f = jax.jit(add(upstream, n, block, interpret=how) if how else lambda x, y: x + y)
            long = n > 2048 and how is not None
            ms = 1e3 * median(lambda f=f, x=x, y=y: jax.block_until_ready(f(x, y)), 1 if long else 5)
            ratios[name].append(ms / 1e3 / mine)
            cells.append(short(ms) + (f" ({ratios[name][-1]:,.0f}×)" if how else ""))
        add_row(*cells)
    report.figure("interpret", spread(ratios["`interpret=True`"]))
    report.figure("races", spread(ratios["`detect_races=True`"]))
