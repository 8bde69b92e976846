"""The GPU programs on a real GPU: right on fresh random data, and their time against jnp, for depths 1 to 4."""
import os

import jax
import jax.numpy as jnp
import numpy as np

from pallas_lite.errors import PallasLiteError

from . import NotHere, median
from ._gpu_kernels import add, matmul, shape, total

CALLS = 20  # launches in one timing: a single one is too short to time
DEPTHS = (1, 2, 3, 4)
BOTH = ("triton", "mosaic_gpu")


def cases(n=4096):
    """(name, platforms, depth -> call, operands' shapes, the same in jnp, relative error allowed)"""
    x, stack = shape(n, n), shape(8, n, n)
    yield f"add f32 {n}²", BOTH, lambda d: add(n, 64, d, ("parallel", "arbitrary")), (x, x), lambda x, y: x + y, 0
    yield f"sum f32 (8,{n},{n})", BOTH, lambda d: total(8, n, 64, d), (stack,), lambda x: x.sum(0), 1e-5
    a = shape(n, n, dtype=jnp.bfloat16)
    yield (f"matmul bf16 {n}³", BOTH, lambda d: matmul(n, (128, 128, 64), d, a.dtype), (a, a),
           lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32).astype(x.dtype), 1e-2)
    # The tensor cores round f32 to tf32. wgmma wants its right-hand side transposed.
    yield f"matmul f32 {n}³", ("triton",), lambda d: matmul(n, (128, 128, 32), d), (x, x), jnp.dot, 5e-3
    yield (f"matmul f32 {n}³, y.T", BOTH, lambda d: matmul(n, (128, 128, 32), d, transposed=True), (x, x),
           lambda x, y: jnp.dot(x, y.T), 5e-3)


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


def rows(case, depths=DEPTHS, interpret=None):
    """(name, platform, seconds of jnp, for each depth seconds or why there is no program).

    `interpret`: platform -> what runs the program where there is no GPU.
    """
    name, platforms, call, avals, plain, error = case
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    operands = [jnp.asarray(rng.standard_normal(a.shape), a.dtype) for a in avals]
    with jax.default_matmul_precision("highest"):
        want = jax.block_until_ready(plain(*operands))
    plain = jax.jit(plain)
    for platform in platforms:
        times = []
        for depth in depths:
            try:
                f = jax.jit(call(depth).trace(*avals).lower(platform).function((interpret or {}).get(platform, False)))
                check(f(*operands)[0], want, error)
            except PallasLiteError as refused:
                times.append(str(refused))
            else:
                times.append(seconds(f, operands))
        yield name, platform, seconds(plain, operands), times


def show(row, name, platform, base, times):
    """A row in microseconds, and the time relative to jnp. Why there is no program stands below it."""
    row(name, platform, f"{1e6 * base:.1f}",
        *("-" if isinstance(t, str) else f"{1e6 * t:.1f} ({t / base:.2f}×)" for t in times))
    for why in sorted({t for t in times if isinstance(t, str)}):
        print(f"    {why}", flush=True)


def main(report) -> None:
    gpus = [d for d in jax.devices() if d.platform == "gpu"]
    if not gpus:
        raise NotHere("There is no GPU that jax can use here, so nothing was run and nothing was timed. What the\n"
                      "compiler makes of the programs:  python -m benchmarks gpu_compile")
    report.figure("gpu", gpus[0].device_kind)
    row = report.table("times", "kernel", "lowering", "jnp", *(f"depth {d}" for d in DEPTHS))
    for case in cases():
        for found in rows(case):
            show(row, *found)
