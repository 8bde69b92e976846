"""hardware: a machine is three numbers, α, β and F, and how much SRAM one kernel instance may use.

Every figure has a source. Latencies are seldom published: those marked "assumed" are ours, of the right size only.
"""
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Machine:
    """α, β, F of a machine, in seconds, bytes per second and operations per second.

    `duplex`: the HBM has one port each way (the toy machine, as the tutorial draws it); else one port serves both.
    `sram_bytes`: what one kernel instance may use, which is less than the chip has.
    """

    name: str
    alpha: float  # seconds from leaving the HBM port to arrival
    beta: float  # bytes per second through a port
    flops: float  # operations per second of the unit that the kernel uses (adds cannot use a matrix unit)
    matmul_flops: float  # operations per second of the matrix unit, bf16
    sram_bytes: int
    duplex: bool = False
    source: str = ""

    def with_(self, **changes) -> "Machine":
        """The same machine with some numbers changed.  >>> TOY.with_(alpha=2e-6).alpha
        2e-06
        """
        return replace(self, **changes)


# A block of 1000 bytes takes 1 µs to move, 1000 operations take 1 µs: every picture has round numbers.
TOY = Machine("toy", alpha=0.0, beta=1e9, flops=1e9, matmul_flops=8e9, sram_bytes=16_000, duplex=True,
              source="made up for teaching")

TPU_V5E = Machine(
    "TPU v5e", alpha=1e-6, beta=819e9, flops=6.1e12, matmul_flops=197e12, sram_bytes=16 * 2**20,
    source="β, matmul F: Google Cloud TPU v5e page (819 GB/s, 197 bf16 TFLOP/s); F: 8·128 lanes × 4 ALUs × 1.5 GHz; "
           "SRAM: the 16 MiB scoped VMEM limit that the TPU compiler enforces; α: assumed")

H100 = Machine(
    "H100 SXM", alpha=1e-6, beta=3.35e12, flops=67e12, matmul_flops=989e12, sram_bytes=227 * 1024,
    source="β, F: NVIDIA H100 data sheet (3.35 TB/s, 67 f32 TFLOP/s, 989 dense bf16 TFLOP/s); SRAM: 227 KiB a block, "
           "CUDA programming guide, compute capability 9.0; α: assumed")
