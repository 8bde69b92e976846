"""The course: seconds of Run All for each chapter, untouched and with its answers, and the slowest cell.

Answers are checked on visible and hidden trials, as in grading. The aim: all answered chapters in 10 minutes, no cell
over 10 s.
"""
import time
from datetime import datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from autograder.build import read_chapter, registered

ROOT = Path(__file__).parents[1]


def run(notebook) -> tuple[float, float, str]:
    """Seconds in all, seconds of the slowest cell, and how that begins."""
    start = time.perf_counter()
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}},
                   allow_errors=True).execute()
    total, slowest = time.perf_counter() - start, (0.0, "")
    for cell in notebook.cells:
        times = cell.metadata.get("execution", {})
        if "shell.execute_reply" in times:
            began, ended = (datetime.fromisoformat(times[k].replace("Z", "+00:00"))
                            for k in ("iopub.execute_input", "shell.execute_reply"))
            slowest = max(slowest, ((ended - began).total_seconds(), cell.source.strip().split("\n")[0][:40]))
    return total, *slowest


def main():
    print(f"{'chapter':28}{'untouched':>10}{'answered':>10}{'slowest cell':>14}")
    sums = [0.0, 0.0]
    for source in sorted((ROOT / "solutions").glob("*/*.py")):
        released = nbformat.read(ROOT / "notebooks" / source.parent.name / f"{source.stem}.ipynb", as_version=4)
        answered = read_chapter(source, ROOT, registered()).notebook
        (untouched, *_), (total, seconds, text) = run(released), run(answered)
        sums = [sums[0] + untouched, sums[1] + total]
        print(f"{source.stem:28}{untouched:9.1f}s{total:9.1f}s{seconds:13.1f}s  {text}", flush=True)
    print(f"{'all':28}{sums[0]:9.1f}s{sums[1]:9.1f}s")
