"""What the CUDA compiler makes of a depth, with no GPU: copies, shared memory (and what we predict), registers.

Needs the [gpu] extra. The table of docs/gpu.md.
"""
import re

import jax.numpy as jnp

from pallas_lite.errors import NotSupportedError, PallasLiteError

from . import NotHere
from ._gpu_kernels import add, matmul, shape, total

COPIES = {"triton": r"cp\.async\.c[ag]", "mosaic_gpu": r"cp\.async\.bulk\.tensor"}


def rows():
    """(kernel, platform, depth -> traced call)"""
    for dtype, blocks in ((jnp.float32, (128, 128, 64)), (jnp.float32, (64, 128, 64)), (jnp.float32, (32, 32, 32)),
                          (jnp.bfloat16, (128, 128, 64))):
        a = shape(1024, 1024, dtype=dtype)
        yield (f"matmul {dtype.__name__} {blocks[0]}×{blocks[1]}×{blocks[2]}", "triton",
               lambda depth, a=a, b=blocks: matmul(1024, b, depth, a.dtype).trace(a, a))
    f32 = shape(1024, 1024)
    x, xs, loop = shape(512, 512), shape(8, 256, 256), ("parallel", "arbitrary")
    a = shape(1024, 1024, dtype=jnp.bfloat16)
    yield ("matmul bfloat16 128×128×64", "mosaic_gpu",
           lambda depth: matmul(1024, (128, 128, 64), depth, a.dtype).trace(a, a))
    yield ("matmul float32 128×128×32, y.T", "mosaic_gpu",
           lambda depth: matmul(1024, (128, 128, 32), depth, transposed=True).trace(f32, f32))
    for platform in ("triton", "mosaic_gpu"):
        yield "add 64×64, a loop over columns", platform, lambda depth: add(512, 64, depth, loop).trace(x, x)
        yield "sum of 8, 64×64", platform, lambda depth: total(8, 256, 64, depth).trace(xs)


def main(report) -> None:
    row = report.table("programs", "kernel, blocks", "lowering", "depth", "copies", "shared memory", "predicted",
                       "registers")
    for kernel, platform, trace in rows():
        for depth in (1, 2, 3, 4):
            try:
                compiled = trace(depth).lower(platform).compile()
            except NotSupportedError as error:
                raise NotHere(error) from error
            except PallasLiteError as error:
                print(f"{kernel}, {platform}, depth {depth}: {str(error).splitlines()[0]}")
                continue
            memory = compiled.memory_analysis()
            row(kernel, platform, depth, len(re.findall(COPIES[platform], compiled.as_text())),
                f"{memory.shared_memory_in_bytes:,}", f"{memory.predicted_shared_memory_in_bytes:,}",
                memory.registers or "?")
