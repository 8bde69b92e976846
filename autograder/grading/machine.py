"""machine: how much this machine can grade at once. Asked by `grade`, and by `doctor`, which tells."""
import os
from pathlib import Path

WORKER = 600 * 2**20  # bytes that grading takes for each of --jobs


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes of memory that programs can still get; None where that cannot be told."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def most_jobs() -> int:
    """One job for each core, as far as memory goes; none where there is too little for one."""
    memory = free_memory()
    return cores() if memory is None else min(cores(), memory // WORKER)
