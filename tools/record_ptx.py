"""Writes what the CUDA compiler makes of kernels, for learners who have none.

autograder/sandbox/inside/recorded.txt has what chapter 10 shows. Of the products that exercise 10.5 asks for, the PTX
is in listings.txt there, and what it is of in autograder/checks/listings.txt, which no notebook reads.

Needs the [gpu] extra. Of each program's PTX only the lines are kept that copy, wait, load, multiply or branch, cut at
100 letters.
"""
import re
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks._gpu_kernels import add, matmul, shape
from pallas_lite.lowering import cuda

PACKAGE = Path(__file__).parents[1] / "autograder"
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


def is_asked_for(entry: str) -> bool:
    """Whether it is one of exercise 10.5: a product of Triton's with a pipeline, and not the one that is explained."""
    name, platform, depth, *_ = entry.split("\n")[0].removeprefix("# ").split(" | ")
    return platform == "triton" and name.startswith("matmul") and depth != "1" and "64×64×32" not in name


def main() -> None:
    made = (f"Compiled by jax {jax.__version__} for {', '.join(cuda.CHIPS)} (sm_90a), with no GPU, by "
            "python -m tools.record_ptx.\n")
    heading = "# kernel | lowering | depth | bytes of shared memory | registers of a thread"
    entries = [record(*k) for k in kernels()]
    asked = [entry.split("\n", 1) for entry in entries if is_asked_for(entry)]
    write("sandbox/inside/recorded.txt", [f"{made}Each entry: {heading}", *(e for e in entries if not is_asked_for(e))])
    write("sandbox/inside/listings.txt", [
        f"{made}The listings of exercise 10.5, without what they are of: that is in autograder/checks/listings.txt",
        *(ptx for _, ptx in asked)])
    first = f"{made}What the listings of exercise 10.5 are of, in their order: {heading}"
    write("checks/listings.txt", ["\n".join([first, *(name for name, _ in asked)])])


def write(file: str, parts: list[str]) -> None:
    (PACKAGE / file).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"{file}: written")


if __name__ == "__main__":
    main()
