"""benchmarks: every measured number of the README and docs, one command each:  python -m benchmarks [NAME ...]

Each module has `main()`, which prints its table. Speeds are ratios of medians taken in one run; the machine is named.
"""
import os
import platform
import statistics
import time
from pathlib import Path


def machine() -> str:
    """The machine in a line: processor, cores, Python, jax."""
    import jax
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, jax {jax.__version__}"


def median(f, runs: int = 5) -> float:
    """Median seconds of `runs` calls, after one that is not counted."""
    f()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
