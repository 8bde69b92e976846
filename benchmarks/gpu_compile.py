"""What the CUDA compiler makes of a depth, with no GPU: copies, shared memory (and what we predict), registers.

Needs the [gpu] extra. The table of docs/gpu.md.
"""
import re

import jax.numpy as jnp

from pallas_lite.errors import NotSupportedError, PallasLiteError

from ._gpu_kernels import add, matmul, shape, total

COPIES = {"triton": r"cp\.async\.c[ag]", "mosaic_gpu": r"cp\.async\.bulk\.tensor"}


def rows():
    """(kernel, platform, depth -> traced call)"""
    for dtype in (jnp.float32, jnp.bfloat16):
        for blocks in ((128, 128, 64), (128, 64, 32), (64, 128, 64), (32, 32, 32)):
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


def main() -> None:
    print(f"{'kernel':36}{'lowering':12}{'depth':>5}{'copies':>8}{'shared memory':>15}{'predicted':>11}"
          f"{'registers':>11}")
    for kernel, platform, trace in rows():
        for depth in (1, 2, 3, 4):
            print(f"{kernel:36}{platform:12}{depth:5}", end="", flush=True)
            try:
                compiled = trace(depth).lower(platform).compile()
            except NotSupportedError as error:
                print(f"  {error}")
                return
            except PallasLiteError as error:
                print(f"  {str(error).splitlines()[0]}")
                continue
            memory = compiled.memory_analysis()
            print(f"{len(re.findall(COPIES[platform], compiled.as_text())):8}{memory.shared_memory_in_bytes:15,}"
                  f"{memory.predicted_shared_memory_in_bytes:11,}{memory.registers or '?':>11}")


if __name__ == "__main__":
    main()
