"""benchmarks: every measured number of the README and docs, one command each:  python -m benchmarks [NAME ...]

Each module has `main(report, ...)`, which adds rows to tables and figures to sentences; they are printed as they come.
With --write they go into results/, and from there into the pages, between markers (_pages.py). Speeds are ratios of
medians taken in one run; the machine is named.
"""
import os
import platform
import statistics
import time
from pathlib import Path


class NotHere(Exception):
    """What a benchmark asks for is not on this machine: a compiler, a browser, a GPU."""


class Report:
    """What one benchmark measured: tables by name, and figures for sentences. All cells are text."""

    def __init__(self):
        self.tables: dict[str, list[list[str]]] = {}  # the first row is the head
        self.figures: dict[str, str] = {}

    def table(self, name: str, *columns: str):
        """Begins a table; gives the function that adds a row to it."""
        rows = self.tables[name] = []

        def add(*cells: object) -> None:
            assert len(cells) == len(columns), f"{name}: {len(cells)} cells for {len(columns)} columns"
            rows.append([str(c) for c in cells])
            print(f"{name}:" if len(rows) == 1 else "   ", " | ".join(rows[-1]), flush=True)
        add(*columns)
        return add

    def figure(self, name: str, text: object) -> None:
        self.figures[name] = str(text)
        print(f"{name}: {text}", flush=True)


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


def short(x: float) -> str:
    """Three digits or so: 0.42, 3.8, 23.5, 16,414."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 1 else f"{x:.2f}"


def spread(values) -> str:
    """The least and the largest, in two digits: 35 to 490."""
    ends = [f"{int(float(f'{v:.1e}')):,}" if v >= 10 else f"{v:.1f}" for v in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))
