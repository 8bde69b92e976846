"""The simulator against jnp and against upstream's two interpreters, on the tutorial's kernels. In ms, one run."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as upstream
from jax.experimental.pallas import tpu as upstream_tpu

import pallas_lite as pl

from . import median


def add(pallas, n, block, **how):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    spec = pallas.BlockSpec((block, block), lambda i, j: (i, j))
    return pallas.pallas_call(kernel, jax.ShapeDtypeStruct((n, n), jnp.float32), grid=(n // block, n // block),
                              in_specs=[spec, spec], out_specs=spec, **how)


def main() -> None:
    rows = []
    for n, block, runs in ((1024, 128, 5), (2048, 128, 3), (4096, 512, 3)):
        x, y = (np.random.default_rng(s).standard_normal((n, n)).astype(np.float32) for s in (0, 1))
        ours = add(pl, n, block)
        np.testing.assert_array_equal(ours(x, y), x + y)
        plain = jax.jit(lambda x, y: x + y)
        interpret = jax.jit(add(upstream, n, block, interpret=True))
        params = jax.jit(add(upstream, n, block, interpret=upstream_tpu.InterpretParams()))
        rows.append((f"add {n}² in {block}² blocks, {(n // block) ** 2} steps", *(
            1e3 * median(lambda f=f, x=x, y=y: jax.block_until_ready(f(x, y)), runs)
            for f in (plain, ours, interpret, params))))
    print(f"{'':36}{'jnp':>9}{'ours':>9}{'interpret=True':>16}{'InterpretParams':>17}{'interpret/ours':>16}")
    for name, *ms in rows:
        print(f"{name:36}{ms[0]:9.1f}{ms[1]:9.1f}{ms[2]:16.1f}{ms[3]:17.1f}{ms[2] / ms[1]:16.1f}")


if __name__ == "__main__":
    main()
