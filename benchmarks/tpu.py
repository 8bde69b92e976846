"""TPU programs and the real TPU compiler: windows in VMEM, and the compiler's bundles beside upstream's. Needs no TPU.

A bundle is one instruction word of the core, so fewer are better; the counts are the compiler's own. A window row holds
if the program compiles with just as much VMEM as we say, and not with a granule (1 KiB) less; or if we refuse it for a
tile that a copy would cut, and so does the compiler.
"""
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
from jax.experimental import pallas as upstream

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.lowering.mosaic import CHIPS

from . import NotHere, _kernels
from ._kernels import shape

# (array, block): large arrays, since the compiler may keep a small one in VMEM as a whole.
WINDOWS = [((2048, 1024), (256, 256)), ((2048, 1024), (512, 128)), ((4096, 1024), (8, 128)), ((4096, 1024), (1, 128)),
           ((4096, 1024), (2, 128)), ((4096, 1024), (4, 256)), ((8192, 128), (5, 128)), ((4095, 256), (5, 256)),
           ((12, 524288), (12, 256)), ((262144, 64), (100, 64)), ((16384, 200), (100, 200)), ((3840, 1024), (24, 128)),
           ((4096, 1024), (24, 128)), ((300, 400, 128), (1, 8, 128)), ((300, 400, 256), (None, 20, 128)),
           ((2097152,), (1024,)), ((2097152,), (128,)), ((2097152,), (8192,)), ((1048576,), (256,)),
           ((130000,), (130000,)), ((4096, 1024), (None, 256)), ((65536, 5, 256), (8, 5, 256)),
           ((100, 30, 4, 128), (1, 3, 4, 128)), ((1000, 2048), (32, 256)), ((1024, 1000), (256, 256)),
           ((1000, 1000), (128, 128)), ((1000, 1024), (3, 128)),
           ((1001, 1024), (8, 1024)), ((3000, 500), (100, 100))]
DTYPES = ("float32", "bfloat16", "int8", "int32")


def window_row(shape, block, dtype, depth, target="v5e") -> tuple[int, str, bool]:
    """Our bytes of VMEM, what happened, and whether the compiler agrees."""
    def lowered(limit):
        grid = tuple(-(-n // (b or 1)) for n, b in zip(shape, block, strict=True))
        specs = [pl.BlockSpec(block, lambda *ids: ids, pl.Buffered(d)) for d in (depth, 2)]
        call = pl.pallas_call(lambda x_ref, o_ref: None, jax.ShapeDtypeStruct(shape, dtype), grid=grid, name="nothing",
                              in_specs=[specs[0]], out_specs=specs[1],
                              compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit))
        return call.trace(jax.ShapeDtypeStruct(shape, dtype)).lower("tpu")
    taken = sum(w.bytes for w in lowered(None).windows())
    try:
        lowered(taken).compile(target)
    except pl.NotSupportedError as error:
        return taken, f"the compiler refuses: {str(error).splitlines()[-1]}", False
    except pl.PallasLiteError:
        return taken, "cuts a tile", bool(refusal(lowered(None), target))  # and the kernel does nothing but copy
    return taken, "fits exactly", "Scoped allocation" in refusal(lowered(taken - 1024), target)


def refusal(lowered, target) -> str:
    """What the compiler itself says, without our checks before it."""
    try:
        lowered.compile_unchecked(target)
    except Exception as error:  # noqa: BLE001  the compiler's errors are of several private kinds
        return str(error)
    return ""


def add(pallas, block, depth=2):
    return _kernels.add(pallas, 4096, block, depth), [shape(4096, 4096)] * 2


def total(pallas, block, depth=2):
    return _kernels.total(pallas, block, depth), [shape(8, 1024, 1024)]


def matmul(pallas, block, depth=2):
    return _kernels.matmul(pallas, 1024, block, depth), [shape(1024, 1024)] * 2


KERNELS = {"add": add, "sum": total, "matmul": matmul}
ARRAYS = {"add": "add, 4096²", "sum": "sum, (8, 1024, 1024)", "matmul": "matmul, 1024³"}


def bundles(*blocks: int) -> None:
    """Print a line for each kernel and block size: its name, our bundles at depths 2, 3, 4, and upstream's at depth 2.

    In a process of its own: the compiler takes its flags when it is loaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIBTPU_INIT_ARGS"] = f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true"

        def count(compile_it) -> str:
            for old in Path(folder).iterdir():
                old.unlink()
            compile_it()
            [found] = [p for p in Path(folder).glob("*schedule-analysis_final_bundles.txt")
                       if "kernel" in p.name or "custom" in p.name]
            return re.search(r"(?i)total[^\n]*?(\d+)", found.read_text())[1]

        for name, kernel in KERNELS.items():
            for block in blocks:
                ours = []
                for depth in (2, 3, 4):
                    call, operands = kernel(pl, block, depth)
                    lowered = call.trace(*operands).lower("tpu")
                    ours.append(count(lambda lowered=lowered: lowered.compile("v5e")))
                call, operands = kernel(upstream, block)
                theirs = count(lambda call=call, lowered=lowered: lowered.compile_unchecked("v5e", call))
                print(name, block, *ours, theirs, flush=True)


def bundle_table(*blocks: int) -> list[tuple[str, int, list[int], int]]:
    """(kernel, block, our bundles at depths 2, 3 and 4, upstream's)."""
    run = subprocess.run([sys.executable, "-m", "benchmarks.tpu", *map(str, blocks)], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    rows = [line.split() for line in run.stdout.splitlines()]
    return [(r[0], int(r[1]), [int(n) for n in r[2:5]], int(r[5])) for r in rows]


def main(report) -> None:
    if importlib.util.find_spec("libtpu") is None:
        raise NotHere('the TPU compiler is not installed: pip install "pallas_lite[tpu]"')
    row = report.table("bundles", "kernel", "blocks", "ours, depth 2", "depth 3", "depth 4", "upstream, depth 2",
                       "ratio")
    for name, block, ours, theirs in bundle_table(128, 256, 512):
        row(ARRAYS[name], f"{block}²", *ours, theirs, f"{ours[0] / theirs:.2f}")
    report.figure("libtpu", importlib.metadata.version("libtpu"))
    agree = total = 0
    row = report.table("windows", "array", "block", "f32", "bf16", "int8")
    for array, block in WINDOWS:
        cells = []
        for target, dtype, depth in [("v5e", dtype, depth) for dtype in DTYPES for depth in (3, 1, 2, 4)] + [
                (target, dtype, 3) for target in CHIPS if target != "v5e" for dtype in DTYPES]:
            taken, what, ok = window_row(array, block, dtype, depth, target)
            agree, total = agree + ok, total + 1
            if not ok:
                print(f"DISAGREES: {target}, {dtype}, depth {depth}: {taken:,} bytes, {what}")
            if target == "v5e" and depth == 3 and dtype != "int32":  # which is as f32
                cells.append(f"{taken:,}" if what == "fits exactly" else "refused" if ok else "DISAGREES")
        row(*("×".join(str(n or "–") for n in dims) for dims in (array, block)), *cells)
    report.figure("rows", f"{agree} of {total}")


if __name__ == "__main__":
    bundles(*map(int, sys.argv[1:]))
