"""The GPU programs on a real GPU: right on fresh random data, and their time against jnp, for depths 1 to 4."""
import os

import jax
import jax.numpy as jnp
import numpy as np

from pallas_lite.errors import PallasLiteError

from . import median
from ._gpu_kernels import add, matmul, shape, total

CALLS = 20  # launches in one timing: a single one is too short to time


def cases():
    """(name, platforms, depth -> call, operands' shapes, the same in jnp, relative error allowed)"""
    x, stack = shape(4096, 4096), shape(8, 4096, 4096)
    yield ("add f32 4096²", ("triton", "mosaic_gpu"), lambda d: add(4096, 64, d, ("parallel", "arbitrary")), (x, x),
           lambda x, y: x + y, 0)
    yield "sum f32 (8,4096,4096)", ("triton", "mosaic_gpu"), lambda d: total(8, 4096, 64, d), (stack,), \
        lambda x: x.sum(0), 1e-5
    for dtype, error in ((jnp.bfloat16, 1e-2), (jnp.float32, 5e-3)):  # the tensor cores round f32 to tf32
        a = shape(4096, 4096, dtype=dtype)
        yield (f"matmul {a.dtype} 4096³", ("triton",), lambda d, t=dtype: matmul(4096, (128, 128, 32), d, t), (a, a),
               lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32).astype(x.dtype), error)


def check(got, want, error):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    worst = np.abs(got - want).max() / np.abs(want).max()
    assert worst <= error, f"wrong: off by {worst:.1e} of the largest value, {error:.0e} allowed"


def seconds(f, operands):
    def calls():
        for _ in range(CALLS):
            out = f(*operands)
        jax.block_until_ready(out)
    return median(calls) / CALLS


def main() -> None:
    gpus = [d for d in jax.devices() if d.platform == "gpu"]
    if not gpus:
        print("There is no GPU that jax can use here, so nothing was run and nothing was timed. What the compiler\n"
              "makes of the programs:  python -m benchmarks gpu_compile")
        return
    print(f"{gpus[0].device_kind}; microseconds, and the time relative to jnp")
    print(f"{'kernel':26}{'lowering':12}{'jnp':>9}" + "".join(f"{f'depth {d}':>17}" for d in (1, 2, 3, 4)))
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    for name, platforms, call, avals, plain, error in cases():
        operands = [jnp.asarray(rng.standard_normal(a.shape), a.dtype) for a in avals]
        with jax.default_matmul_precision("highest"):
            want = plain(*operands)
        plain = jax.jit(plain)
        for platform in platforms:
            base = seconds(plain, operands)
            print(f"{name:26}{platform:12}{1e6 * base:9.1f}", end="", flush=True)
            for depth in (1, 2, 3, 4):
                try:
                    f = jax.jit(call(depth).trace(*avals).lower(platform).function())
                    check(f(*operands)[0], want, error)
                except PallasLiteError as refused:
                    print(f"{str(refused).split(':')[0]:>17}", end="")
                    continue
                took = seconds(f, operands)
                print(f"{1e6 * took:9.1f} {f'({took / base:.2f}×)':>7}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
