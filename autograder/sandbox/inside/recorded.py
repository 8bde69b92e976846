"""recorded: what the CUDA compiler made of some kernels, for learners who have none.

The text is written by tools/record_ptx.py.
"""
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """A kernel as compiled for sm_90a: bytes of shared memory of a CUDA block, registers of a thread, lines of PTX."""

    kernel: str  # name, dtype, and the blocks' shape
    lowering: str  # "triton" or "mosaic_gpu"
    depth: int
    shared_memory: int
    registers: int
    ptx: str = field(repr=False)


def recorded() -> list[Record]:
    """All records that the chapter shows, in the order of the file."""
    text = Path(__file__).with_name("recorded.txt").read_text(encoding="utf-8")
    found = []
    for entry in text.split("\n\n# ")[1:]:
        heading, ptx = entry.split("\n", 1)
        kernel, lowering, depth, shared_memory, registers = heading.split(" | ")
        found.append(Record(kernel, lowering, int(depth), int(shared_memory), int(registers), ptx.strip()))
    return found


def listings() -> list[str]:
    """The PTX of products of which nothing else is told: exercise 10.5 asks for it."""
    text = Path(__file__).with_name("listings.txt").read_text(encoding="utf-8")
    return [ptx.strip() for ptx in text.split("\n\n")[1:]]
