"""hardware: a machine is α, β and F by unit and dtype, and how much SRAM one kernel instance may use.

Each number has a source: publisher, document, section. What is not published is marked "assumed": right in size only.
"""
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .errors import SpecError

NUMBERS = "alpha", "beta", "flops", "matmul_flops", "sram_bytes"


@dataclass(frozen=True)
class Machine:
    """α, β, F of a machine, in seconds, bytes per second and operations per second.

    `duplex`: the HBM has one port each way (the toy machine, as the tutorial draws it); else one port serves both.
    `sram_bytes`: what one kernel instance may use; `physical_sram_bytes`: what there is, 0 if that is not known.
    β and F are those of a TPU core, or of a whole GPU: a timeline gives one kernel instance the machine to itself.
    """

    name: str
    alpha: float  # seconds from leaving the HBM port to arrival
    beta: float  # bytes per second through a port
    flops: float  # of the vector unit, float32: adds cannot use the matrix unit
    matmul_flops: float  # of the matrix unit, bfloat16
    sram_bytes: int
    duplex: bool = False
    physical_sram_bytes: int = 0
    vector: Mapping[str, float] = field(default_factory=dict, hash=False)  # dtype -> F, where float32's does not hold
    matrix: Mapping[str, float] = field(default_factory=dict, hash=False)  # dtype -> F, where bfloat16's does not hold
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)  # of each number, by its name in TABLE

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in NUMBERS}
        wrong = [f"{n} = {v:g}" for n, v in numbers.items() if not (v > 0 or v == 0 and n == "alpha")]
        if wrong:
            raise SpecError(f"no machine has {', '.join(wrong)}: alpha is 0 or more, the other numbers are above 0.")

    def with_(self, **changes: Any) -> "Machine":
        """The same machine with some numbers changed. Raises SpecError for one below 0, or 0 where only α may be.

        >>> TOY.with_(alpha=2e-6).alpha
        2e-06
        """
        return replace(self, **changes)

    def rate(self, unit: str, dtype: Any) -> float:
        """F of a unit ("vector" or "matrix") for a dtype, in operations per second. Raises SpecError for another unit.

        >>> H100.rate("matrix", "float8_e4m3fn") / H100.rate("vector", "float32") > 29
        True
        """
        units = {"vector": (self.vector, self.flops), "matrix": (self.matrix, self.matmul_flops)}
        if unit not in units:
            raise SpecError(f'rate: a core has the units "vector" and "matrix", and not {unit!r}.')
        (table, default), name = units[unit], dtype if isinstance(dtype, str) else np.dtype(dtype).name
        return table.get("float8" if name.startswith("float8") else name, default)


# A block of 1000 bytes takes 1 µs to move, 1000 operations take 1 µs: every picture has round numbers.
TOY = Machine("toy", alpha=0.0, beta=1e9, flops=1e9, matmul_flops=8e9, sram_bytes=16_000, duplex=True,
              sources={"all": "made up for teaching"})

# A kernel runs on one core of a v5p, so it has half of the chip's β and F. H200 is H100 with another memory.
TABLE = """
TPU v5e | alpha               | 1e-6 s        | assumed: not published
TPU v5e | beta                | 819e9 B/s     | Google Cloud, "TPU v5e", System architecture
TPU v5e | flops               | 6.1e12 op/s   | 8·128 lanes, 4 adds a cycle, 1.5 GHz, bfloat16 no faster: Google
    DeepMind, "How to Scale Your Model", part 2 (How to Think About TPUs), appendix C and Key Takeaways
TPU v5e | matmul_flops        | 197e12 op/s   | Google Cloud, "TPU v5e", System architecture (bf16)
TPU v5e | matrix int8         | 393e12 op/s   | Google Cloud, "TPU v5e", System architecture
TPU v5e | matrix float32      | 197e12 op/s   | assumed: as bfloat16, to which a product is rounded by default (JAX,
    jax.lax.Precision)
TPU v5e | sram_bytes          | 16 MiB        | the TPU compiler (libtpu 0.0.42.1), where it refuses a kernel: "limit
    16.00M exceeded scoped vmem limit"
TPU v5e | physical_sram_bytes | 128 MiB       | the TPU compiler (libtpu 0.0.42.1): "of 128.00M vmem"; "How to Scale
    Your Model", part 2, has the same
TPU v5p | alpha               | 1e-6 s        | assumed: not published
TPU v5p | beta                | 1382.5e9 B/s  | Google Cloud, "TPU v5p", System architecture: 2765 GBps a chip of two
    cores
TPU v5p | flops               | 7.2e12 op/s   | 8·128 lanes, 4 adds a cycle ("How to Scale Your Model", part 2, appendix
    C), 1.75 GHz (459 TFLOPs over 8 units of 128 × 128)
TPU v5p | matmul_flops        | 229.5e12 op/s | Google Cloud, "TPU v5p", System architecture: 459 TFLOPs (bf16) a chip
    of two cores
TPU v5p | matrix int8         | 459e12 op/s   | "How to Scale Your Model", part 2, Key Takeaways: 9.18e14 a chip of two
    cores
TPU v5p | matrix float32      | 229.5e12 op/s | assumed: as bfloat16, to which a product is rounded by default (JAX,
    jax.lax.Precision)
TPU v5p | sram_bytes          | 16 MiB        | the TPU compiler (libtpu 0.0.42.1), where it refuses a kernel: "limit
    16.00M exceeded scoped vmem limit"
TPU v5p | physical_sram_bytes | 65472 KiB     | the TPU compiler (libtpu 0.0.42.1): "of 63.94M vmem" a core; the Pallas
    tutorial (Software Pipelining, Memory hierarchies) says 96 MB
TPU v6e | alpha               | 1e-6 s        | assumed: not published
TPU v6e | beta                | 1638e9 B/s    | Google Cloud, "TPU v6e", System architecture
TPU v6e | flops               | 7.2e12 op/s   | 8·128 lanes (Google Cloud, "TPU v6e", System architecture); assumed: 4
    adds a cycle and 1.75 GHz, as v5p
TPU v6e | matmul_flops        | 918e12 op/s   | Google Cloud, "TPU v6e", System architecture (bf16)
TPU v6e | matrix int8         | 1836e12 op/s  | Google Cloud, "TPU v6e", System architecture
TPU v6e | matrix float8       | 918e12 op/s   | as bfloat16: jax 0.10.2, pltpu.get_tpu_info, fp8_ops_per_second
TPU v6e | matrix float32      | 918e12 op/s   | assumed: as bfloat16, to which a product is rounded by default (JAX,
    jax.lax.Precision)
TPU v6e | sram_bytes          | 32 MiB        | the TPU compiler (libtpu 0.0.42.1), where it refuses a kernel: "limit
    32.00M exceeded scoped vmem limit"
TPU v6e | physical_sram_bytes | 131008 KiB    | the TPU compiler (libtpu 0.0.42.1): "of 127.94M vmem"
A100 SXM | alpha               | 1e-6 s        | assumed: not published
A100 SXM | beta                | 2.039e12 B/s  | NVIDIA, A100 data sheet, Specifications (80 GB)
A100 SXM | flops               | 19.5e12 op/s  | NVIDIA, A100 data sheet, Specifications (FP32)
A100 SXM | matmul_flops        | 312e12 op/s   | NVIDIA, A100 data sheet, Specifications (BF16 tensor core, dense)
A100 SXM | vector float16      | 78e12 op/s    | NVIDIA, A100 architecture white paper, peak rates (non-tensor)
A100 SXM | vector bfloat16     | 39e12 op/s    | NVIDIA, A100 architecture white paper, peak rates (non-tensor)
A100 SXM | matrix float32      | 156e12 op/s   | NVIDIA, A100 data sheet, Specifications (TF32 tensor core, dense)
A100 SXM | matrix int8         | 624e12 op/s   | NVIDIA, A100 data sheet, Specifications (INT8 tensor core, dense)
A100 SXM | sram_bytes          | 163 KiB       | NVIDIA, Ampere tuning guide, Unified Shared Memory: "a single thread
    block to address up to 163 KB"
A100 SXM | physical_sram_bytes | 164 KiB       | NVIDIA, Ampere tuning guide, Unified Shared Memory: of an SM
H100 SXM | alpha               | 1e-6 s        | assumed: not published
H100 SXM | beta                | 3.35e12 B/s   | NVIDIA, H100 data sheet, Specifications
H100 SXM | flops               | 67e12 op/s    | NVIDIA, H100 data sheet, Specifications (FP32)
H100 SXM | matmul_flops        | 989e12 op/s   | NVIDIA, H100 data sheet, Specifications (BF16 tensor core: 1,979 with
    sparsity)
H100 SXM | vector float16      | 133.8e12 op/s | NVIDIA, H100 architecture white paper, peak rates (non-tensor)
H100 SXM | vector bfloat16     | 133.8e12 op/s | NVIDIA, H100 architecture white paper, peak rates (non-tensor)
H100 SXM | matrix float32      | 494.7e12 op/s | NVIDIA, H100 architecture white paper, peak rates (TF32 tensor core,
    dense)
H100 SXM | matrix float8       | 1979e12 op/s  | NVIDIA, H100 data sheet, Specifications (FP8 tensor core: 3,958 with
    sparsity)
H100 SXM | matrix int8         | 1979e12 op/s  | NVIDIA, H100 data sheet, Specifications (INT8 tensor core: 3,958 with
    sparsity)
H100 SXM | sram_bytes          | 227 KiB       | NVIDIA, Hopper tuning guide, Unified Shared Memory: "a single thread
    block to address up to 227 KB"
H100 SXM | physical_sram_bytes | 228 KiB       | NVIDIA, Hopper tuning guide, Unified Shared Memory: of an SM
H200 SXM | beta                | 4.8e12 B/s    | NVIDIA, H200 data sheet, Specifications
"""
_UNITS = {"s": 1, "B/s": 1, "op/s": 1, "KiB": 2**10, "MiB": 2**20}


def _machine(name: str, like: str | None = None) -> Machine:
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().replace("\n    ", " ").splitlines()]
    for row in rows:
        if len(row) != 4 or row[1].split()[0] not in Machine.__dataclass_fields__ \
                or row[2].partition(" ")[2] not in _UNITS:
            raise ValueError(f"{' | '.join(row)!r} is no row of hardware.TABLE: machine | a number of Machine, or "
                             f"vector or matrix and a dtype | value and unit ({', '.join(_UNITS)}) | source")
    rows = [row[1:] for row in rows if row[0] == like] + [row[1:] for row in rows if row[0] == name]
    numbers = {number: float(value.split()[0]) * _UNITS[value.split()[1]] for number, value, _ in rows}
    rates: dict[str, Any] = {unit: {k.split()[1]: f for k, f in numbers.items() if k.startswith(f"{unit} ")}
             for unit in ("vector", "matrix")}
    plain: dict[str, Any] = {k: int(v) if k.endswith("bytes") else v for k, v in numbers.items() if " " not in k}
    return Machine(name, **plain, **rates, sources={number: source for number, _, source in rows})


TPU_V5E, TPU_V5P, TPU_V6E = map(_machine, ("TPU v5e", "TPU v5p", "TPU v6e"))
A100, H100, H200 = _machine("A100 SXM"), _machine("H100 SXM"), _machine("H200 SXM", like="H100 SXM")
