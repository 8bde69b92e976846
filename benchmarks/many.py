"""Many submissions: whether the grader's memory grows with their number, on the tests' tiny course.

    python -m benchmarks many                                     5,000 submissions
    python -m benchmarks many --submissions 100 --folder here     fewer; run again with the folder, it goes on there
"""
import argparse
import json
import tempfile
from pathlib import Path

import nbformat

from tests.autograder import little_course as little

from .grading import ours

PARTS = 5


def hand_in(folder: Path, count: int) -> None:
    """The course's release, and so many answers that are right, no two of them the same."""
    if not (folder / "release").exists():
        little.released(folder / "release")
    for i in range(count):
        path = folder / "submitted" / f"s{i:05}" / f"{little.NAME}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(little.notebook({n: f"{text}\n# {i}" for n, text in little.RIGHT.items()}), path)


def grade(report, folder: Path, count: int, jobs: int) -> None:
    hand_in(folder, count)
    found = ours(folder / "submitted", folder / "results", jobs, "--release", str(folder / "release"), "--checks",
                 "tests.autograder.little_course")
    marks = [r["points"] for r in json.loads((folder / "results/results.json").read_text("utf-8"))["submissions"]]
    report.figure("count", f"{count:,}")
    report.figure("right", f"{marks.count(10.0):,} of {len(marks):,}")
    report.figure("minutes", f"{found['seconds'] / 60:.0f}")
    report.figure("rate", f"{60 * count / found['seconds']:.0f}")
    row = report.table("memory", "MiB at most, while", *(f"{count * k // PARTS + 1:,} to {count * (k + 1) // PARTS:,}"
                                                         for k in range(PARTS)))
    for who, name in ("parent", "the program"), ("worker", f"each of {jobs} workers, with its sandbox"):
        seen = [(min(done * PARTS // count, PARTS - 1), mib) for done, which, mib in found["memory"] if which == who]
        most = [max((mib for part, mib in seen if part == k), default=0.0) for k in range(PARTS)]
        row(name, *(f"{mib:.0f}" if mib else "" for mib in most))


def main(report, arguments=()) -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks many", description=__doc__.split("\n")[0])
    p.add_argument("--submissions", type=int, default=5000)
    p.add_argument("--folder", type=Path, help="where it works, and goes on (default: a temporary folder)")
    p.add_argument("--jobs", type=int, default=2, help="workers")
    options = p.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        grade(report, (options.folder or Path(temporary)).resolve(), options.submissions, options.jobs)
