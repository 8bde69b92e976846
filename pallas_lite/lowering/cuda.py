"""cuda: the CUDA programs of a call, by Triton or by Mosaic GPU, compiled on a machine with no GPU.

What GPU lowerings need of jax is here, by public names (jax.stages, jax.interpreters.mlir, jax.experimental.mosaic.gpu,
jaxlib.triton). But MLIR bindings and dump files promise nothing: tried on jax 0.10.2 and 0.12.0, and so
tests/lowering/test_gpu.py says.
"""
import contextlib
import importlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import jax
from jax.experimental import topologies
from jax.interpreters.mlir import ir
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh

from ..body import OWN_COPIES
from ..errors import NotSupportedError, PallasLiteError
from .gpu import parallel_axes
from .stages import Compiled, Lowered, blamed, unknown

TRIED_ON = ("0.10.2", "0.12.0")
PTX = {"xla_dump_emitter_re": "ptx"} if jax.__version_info__ > (0, 10, 2) else {}  # to have XLA dump it too
SHARED_MEMORY = 227 * 1024  # bytes that one CUDA block may use, compute capability 9.0 (CUDA programming guide)
# What the compiler asks about a GPU, in XLA's words: H200 SXM, compute capability 9.0.
CHIPS = {"h200": """gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448  shared_memory_per_core: 233472
  core_count: 132  fpus_per_core: 128  clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000  l2_cache_size: 52428800  device_memory_size: 151397597184
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"  dnn_version_info { major: 9 minor: 10 patch: 0 }  device_description_str: "NVIDIA H200"
"""}


class GpuLowered(Lowered):
    """A kernel of a GPU dialect, written by `module`; `other` is the lowering to try where this one cannot."""

    dialect = module = other = ""

    def __init__(self, traced):
        super().__init__(traced)
        name = traced.call.name
        if traced.manual:
            raise NotSupportedError(f"{name}: {OWN_COPIES} is written for a TPU; {self.dialect} has no DMA "
                                    "semaphores. Let pallas_call copy the blocks (BlockSpec), or lower it to "
                                    '"tpu".')
        inputs, outputs = ([x for x in traced.operands if x.is_output == out] for out in (False, True))
        for x, y in ((x, y) for x in inputs for y in outputs if x.array == y.array and x.blocks != y.blocks):
            raise NotSupportedError(f"{name}: {x.name} and {y.name} share their memory, and steps run at once on a "
                                    "GPU: a step may read what another has overwritten. Give both the same "
                                    "index_map, or drop input_output_aliases.")
        parallel_axes(traced)  # or it raises

    @property
    def engine(self):
        """The module that writes the kernel; imported late, for most calls need none, and Mosaic GPU needs absl-py."""
        try:
            return importlib.import_module(f"{__package__}.{self.module}")
        except ImportError as error:
            raise NotSupportedError(f"{self.dialect} needs a package that is not installed: "
                                    f'pip install "pallas_lite[gpu]" ({error}).') from None

    def function(self, interpret=False):
        """The program as a JAX function; `interpret` as the dialect's own `pallas_call` takes it, to run on a CPU.

        Raises SpecError or NotSupportedError for what the dialect cannot express, when it is traced, and SpecError for
        prefetched scalars that choose other blocks than those of the trace.
        """
        call = self.engine.kernel_call(self.traced, interpret)

        def on_a_gpu(*operands):
            self.check_scalars(operands)
            return call(*operands)
        return on_a_gpu

    def _check_memory(self) -> int:
        """The bytes of shared memory. Raises PallasLiteError if a CUDA block has less."""
        items = self.shared_memory()
        total = sum(items.values())
        if total > SHARED_MEMORY:
            listed = "".join(f"\n  {item}: {n:,} bytes" for item, n in items.items())
            raise PallasLiteError(f"{self.traced.call.name}: it needs {total:,} bytes of shared memory, and a CUDA "
                                  f"block has {SHARED_MEMORY:,}:{listed}\nChoose smaller blocks, or a smaller depth "
                                  "(pl.Buffered).")
        return total

    @cached_property
    def _stage(self) -> jax.stages.Lowered:
        self._check_memory()
        try:
            with _abstract_gpu():
                return jax.jit(self.function()).trace(*self.avals).lower(lowering_platforms=("cuda",))
        except PallasLiteError:
            raise
        except Exception as error:  # noqa: BLE001  jax raises many kinds for what a dialect does not have
            raise NotSupportedError(f"{self.traced.call.name}: {self.dialect} cannot express this kernel"
                                    f"{blamed(error, self.traced.call.kernel)}. Write it "
                                    f'another way, or try to lower it to "{self.other}". jax says: '
                                    f"{str(error) or type(error).__name__}") from error

    def as_text(self) -> str:
        """The kernel as MLIR, in its dialect."""
        module = self._stage.compiler_ir()
        for op in _operations(module.operation):
            if op.name == "stablehlo.custom_call" and "mhlo.backend_config" in op.attributes:
                config = ir.DictAttr(op.attributes["mhlo.backend_config"])
                for key, text in (("ir", _triton_text), ("module", _mosaic_text)):
                    if key in config:
                        return text(ir.StringAttr(config[key]).value_bytes, module.context)
        raise NotSupportedError(f"this jax ({jax.__version__}) keeps its GPU kernels where we do not find them; tried "
                                f"on jax {' and '.join(TRIED_ON)}.")

    def shared_memory(self) -> dict[str, int]:
        """Bytes of shared memory of a CUDA block, by operand, as we count them."""
        return self.engine.shared_memory(self.traced)

    def cost_analysis(self) -> dict[str, float]:
        """Operations counted on the traced kernel, and bytes that the schedule copies: ours, not the compiler's."""
        schedule = self.traced.schedule
        return {"flops": float(schedule.flops * schedule.steps), "bytes accessed": float(schedule.hbm_bytes["total"])}

    def compile(self, target: str = "h200") -> "GpuCompiled":
        """The program compiled for sm_90a ("h200"), on this machine, which needs no GPU.

        Raises PallasLiteError if the shared memory does not fit, NotSupportedError without the compiler.
        """
        name = self.traced.call.name
        if target not in CHIPS:
            raise unknown(name, "GPU", target, CHIPS)
        total = self._check_memory()
        self._stage  # noqa: B018  what the dialect lacks is said before the compiler is asked for
        sharding = SingleDeviceSharding(_device(target))
        placed = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in self.avals]
        with tempfile.TemporaryDirectory() as folder, _abstract_gpu(), _environment(MOSAIC_GPU_DUMP_TO=folder):
            try:
                lowered = jax.jit(self.function(), out_shardings=sharding).lower(*placed)
                executable = lowered.compile(compiler_options={"xla_dump_to": folder} | PTX)
            except jax.errors.JaxRuntimeError as error:
                raise PallasLiteError(f"{name}: the CUDA compiler refuses the program, of whose shared memory we count "
                                      f"{total:,} of {SHARED_MEMORY:,} bytes. It says: {error}") from error
            return GpuCompiled(self, target, executable, *_dumped(Path(folder)))


class TritonLowered(GpuLowered):
    """Triton's IR."""

    dialect, module, other = "Triton", "triton", "mosaic_gpu"


class MosaicGpuLowered(GpuLowered):
    """Mosaic GPU's MLIR."""

    dialect, module, other = "Mosaic GPU", "mosaic_gpu", "triton"


class Memory(NamedTuple):
    """What a CUDA block uses, in bytes, and a thread, in registers; None where the compiler does not tell."""

    shared_memory_in_bytes: int | None
    predicted_shared_memory_in_bytes: int  # by our accounting, Lowered.shared_memory()
    registers: int | None
    argument_size_in_bytes: int
    output_size_in_bytes: int


@dataclass(frozen=True, eq=False)
class GpuCompiled(Compiled):
    """What the CUDA compiler made."""

    ptx: str = field(default="", repr=False)
    shared_memory: int | None = None
    registers: int | None = None

    def as_text(self) -> str:
        """The kernel in PTX."""
        return self.ptx

    def memory_analysis(self) -> Memory:
        """Shared memory and registers, as compiled and as we predict them."""
        stats = self.executable.memory_analysis()
        return Memory(self.shared_memory, sum(self.lowered.shared_memory().values()), self.registers,
                      stats.argument_size_in_bytes, stats.output_size_in_bytes)

    def cost_analysis(self) -> dict[str, float]:
        """As of the lowered program: the compiler counts nothing inside a kernel."""
        return self.lowered.cost_analysis()


def _abstract_gpu():
    """While tracing for a GPU that is not there, jax asks which one."""
    platform = {"platform": "gpu"} if "platform" in AbstractDevice.__dataclass_fields__ else {}
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, **platform)
    return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def _operations(op):
    for region in op.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner.operation)


def _triton_text(bytecode, context):
    from jaxlib.triton import dialect
    dialect.register_dialect(context)
    with context, ir.Location.unknown():
        return str(ir.Module.parse(bytecode))


def _mosaic_text(bytecode, context):
    from jax.experimental.mosaic import gpu as mgpu
    from jaxlib.mlir.passmanager import PassManager
    context.allow_unregistered_dialects = True
    mgpu.dialect.register_dialect(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(bytecode)
        PassManager.parse("builtin.module(mosaic_gpu-serde{serialize=false})").run(module.operation)
        return str(module)


def _device(target):
    if os.environ.get("PALLAS_LITE_NO_COMPILER"):
        raise NotSupportedError("the CUDA compiler is switched off here (PALLAS_LITE_NO_COMPILER is set).")
    try:
        return topologies.get_topology_desc(platform="cuda", target_config=CHIPS[target], topology="1x1x1").devices[0]
    except Exception as error:  # noqa: BLE001  jax raises several kinds where the plug-in is missing
        raise NotSupportedError(f"the CUDA compiler is not installed: pip install \"pallas_lite[gpu]\" (jax's CUDA 13 "
                                f"plug-in, at jax's version, {jax.__version__}), which needs Linux and no GPU. "
                                f"({error})") from None


@contextlib.contextmanager
def _environment(**values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _dumped(folder):
    """What the compilers left in a folder: the PTX, the shared memory in bytes, and ptxas' count of registers."""
    texts = {path.name: path.read_text(errors="replace") for path in folder.iterdir() if path.is_file()}
    ptx = max((text for name, text in texts.items() if name.endswith(".ptx")), key=len, default="")
    launch = "".join(text for name, text in texts.items() if "thunk_sequence" in name or "mlir-passes" in name)
    shared = re.search(r"(?:shared_memory: |dynamic_shared_memory_size %c)(\d+)", launch)
    return ptx, int(shared[1]) if shared else None, _registers(ptx, folder)


def _registers(ptx, folder):
    """Registers of a thread, as ptxas counts them; None without ptxas."""
    found = next((p for root in sys.path for p in Path(root).glob("nvidia/*/bin/ptxas")), None)
    if found is None or not ptx:
        return None
    source = folder / "kernel.for_ptxas"
    source.write_text(ptx)
    out = subprocess.run([found, "-v", "-arch=sm_90a", source, "-o", os.devnull], capture_output=True, text=True)
    used = re.search(r"Used (\d+) registers", out.stderr)
    return int(used[1]) if used else None
