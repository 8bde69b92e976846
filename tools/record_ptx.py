"""Writes autograder/sandbox/inside/recorded.txt: what the CUDA compiler makes of kernels, for learners who have none.

Needs the [gpu] extra. Of each program's PTX only the lines are kept that copy, wait, load, multiply or branch, cut at
100 letters.
"""
import re
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks._gpu_kernels import add, matmul, shape
from pallas_lite.lowering import cuda

TARGET = Path(__file__).parents[1] / "autograder" / "sandbox" / "inside" / "recorded.txt"
KEPT = re.compile(r"\.reqntid|cp\.async|mbarrier|wgmma\.(mma|wait)|ld\.global|^\$L__BB|\bbra\b")


def kernels():
    """(kernel, lowering, depth, traced call)"""
    a, x = shape(1024, 1024, dtype=jnp.bfloat16), shape(512, 512)
    products = {(64, 64, 32): "1234", (64, 128, 32): "1234", (128, 64, 32): "1234", (64, 64, 64): "1234",
                (128, 128, 32): "1234", (64, 256, 32): "234", (256, 64, 32): "234", (64, 128, 64): "23",
                (128, 64, 64): "2", (128, 128, 64): "234", (64, 64, 128): "2"}  # no listing longer than a screen
    for blocks, depths in products.items():
        for depth in map(int, depths):
            yield ("matmul bfloat16 " + "×".join(map(str, blocks)), "triton", depth,
                   matmul(1024, blocks, depth, a.dtype).trace(a, a))
    for platform in "triton", "mosaic_gpu":
        for depth in (1, 2, 3, 4):
            yield ("add float32 64×64", platform, depth,
                   add(512, 64, depth, ("parallel", "arbitrary")).trace(x, x))
    for depth in (1, 2, 3, 4):
        yield "matmul bfloat16 64×64×32", "mosaic_gpu", depth, matmul(1024, (64, 64, 32), depth, a.dtype).trace(a, a)


def record(name, platform, depth, traced) -> str:
    """One entry: its heading, and the lines kept of its PTX."""
    compiled = traced.lower(platform).compile()
    memory = compiled.memory_analysis()
    lines = [line.strip().replace("\t", " ")[:100] for line in compiled.as_text().splitlines() if KEPT.search(line)]
    heading = f"# {name} | {platform} | {depth} | {memory.shared_memory_in_bytes} | {memory.registers}"
    return "\n".join([heading, *lines])


def main() -> None:
    what = (f"Compiled by jax {jax.__version__} for {', '.join(cuda.CHIPS)} (sm_90a), with no GPU, by "
            "python -m tools.record_ptx.\n"
            "Each entry: # kernel | lowering | depth | bytes of shared memory | registers of a thread")
    TARGET.write_text("\n\n".join([what, *(record(*k) for k in kernels())]) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: written")


if __name__ == "__main__":
    main()
