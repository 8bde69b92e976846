"""Grading: submissions a minute beside stock `nbgrader autograde`, on the same submissions.

    python -m benchmarks grading                                  8 submissions of unit 1
    python -m benchmarks grading --submissions 100 --unit unit3   another class

The graders take turns, a part of the submissions each time, because a machine that others use is never the same for
long. Processor time is the steadier column: it counts every process, also those in sandboxes, and needs root.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat

from autograder.course.build import read_course, registered

from . import short

ROOT = Path(__file__).parents[1]
# `make` names our configuration of nbgrader in JUPYTER_CONFIG_PATH: the stock grader must not see it.
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_")},
               "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu",
               "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
PER_TURN = 20


def answered(chapter, student: str, skipped: int):
    """The released notebook with the answers of the solutions, but for one in five; no two students' are the same."""
    notebook = nbformat.read(ROOT / "notebooks" / chapter.file, as_version=4)
    answers = {c.id: c.source for c in chapter.notebook.cells if c.metadata.get("nbgrader", {}).get("solution")}
    for i, cell in enumerate(c for c in notebook.cells if c.id in answers):
        if i % 5 != skipped % 5:
            cell.source = f"{answers[cell.id]}\n# {student}"
    return notebook


def hand_in(folder: Path, unit: str, students: list[str]) -> None:
    chapters = [c for c in read_course(ROOT, registered()) if c.unit == unit]
    for i, student in enumerate(students):
        for chapter in chapters:
            path = folder / student / chapter.file
            path.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(answered(chapter, student, i), path)


def stock_course(folder: Path, unit: str) -> None:
    """A course for nbgrader with nothing of ours in its configuration."""
    for chapter in read_course(ROOT, registered()):
        if chapter.unit == unit:
            path = folder / "source" / chapter.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(nbformat.writes(chapter.notebook), encoding="utf-8")
    (folder / "nbgrader_config.py").write_text(
        f"c = get_config()\nc.CourseDirectory.root = {str(folder)!r}\nc.ClearSolutions.enforce_metadata = False\n"
        "c.Execute.timeout = 300\n")
    done = subprocess.run(["nbgrader", "generate_assignment", unit], cwd=folder, env=ENVIRONMENT, capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"nbgrader generate_assignment {unit} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def measure(command: list[str], cwd: Path, results: Path | None = None) -> dict:
    """Runs a command. Seconds, processor seconds; with `results` also memory, and seconds to the first result."""
    found = {"parent": 0.0, "worker": 0.0, "first": None, "memory": []}
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks._usage", *command], cwd=cwd, env=ENVIRONMENT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if results is not None:
        threading.Thread(target=watch, args=(process, results, began, found), daemon=True).start()
    out, errors = process.communicate()
    used = json.loads(out)
    if used["rc"]:
        sys.exit(f"{' '.join(command)} ended with {used['rc']}:\n{errors[-3000:]}")
    return {**found, **used, "cpu": used["cpu"] or float("nan")}


def watch(process, results: Path, began: float, found: dict) -> None:
    """MiB of the parent, and of the largest worker: what grades and all in its sandbox. Shared pages count once."""
    import psutil
    while process.poll() is None:
        done = len(list(results.glob("submissions/*.json")))
        if done and found["first"] is None:
            found["first"] = time.monotonic() - began
        try:
            descendants = psutil.Process(process.pid).children(recursive=True)
        except psutil.Error:  # it has ended since
            return
        for descendant in descendants:
            try:
                line = descendant.cmdline()
                if "autograder.grading.child" in line:
                    family = [descendant, *descendant.children(recursive=True)]
                    worker = sum(p.memory_full_info().pss for p in family) / 2**20
                    found["worker"] = max(found["worker"], worker)
                    found["memory"].append((done, "worker", worker))
                elif "autograder" in line and "benchmarks._usage" not in line:
                    parent = descendant.memory_full_info().pss / 2**20
                    found["parent"] = max(found["parent"], parent)
                    found["memory"].append((done, "parent", parent))
            except psutil.Error:  # it ended meanwhile
                continue
        time.sleep(0.2)


def ours(submitted: Path, results: Path, jobs: int, *options: str) -> dict:
    return measure([sys.executable, "-m", "autograder", "grade", str(submitted), "--jobs", str(jobs), "--out",
                    str(results), "--gradebook", "none", *options], ROOT, results)


def compare(report, unit: str, count: int) -> None:
    """The table: nbgrader, ours with one worker and with two, on the same submissions, in turns."""
    names = "`nbgrader autograde`", "`autograder grade --jobs 1`", "`autograder grade --jobs 2`"
    total = {name: {"seconds": 0.0, "cpu": 0.0, "worker": 0.0, "parent": 0.0, "first": 0.0} for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        course = Path(temporary, "stock")
        stock_course(course, unit)
        for turn, first in enumerate(range(0, count, PER_TURN)):
            students = [f"s{i:04}" for i in range(first, min(first + PER_TURN, count))]
            submitted = Path(temporary, f"turn{turn}")
            hand_in(submitted, unit, students)
            shutil.copytree(submitted, course / "submitted", dirs_exist_ok=True)
            runs = [lambda: measure(["nbgrader", "autograde", unit], course),
                    *(lambda jobs=jobs: ours(submitted, Path(temporary, f"out{turn}-{jobs}"), jobs)  # noqa: B023
                      for jobs in (1, 2))]
            for i in (turn + k for k in range(3)):  # who is first changes
                name, found = names[i % 3], runs[i % 3]()
                total[name] = {k: total[name][k] + found[k] if k in ("seconds", "cpu") else
                               max(total[name][k], found[k] or 0) for k in total[name]}
    stock = total[names[0]]
    row = report.table("speed", f"{count} submissions of {unit}", "a minute", "ratio", "processor seconds each",
                       "ratio", "MiB of a worker", "of the parent", "first result after")
    for name, t in total.items():
        memory = [f"{t['worker']:.0f}", f"{t['parent']:.0f}", f"{t['first']:.1f} s"] if t["first"] else [""] * 3
        row(name, short(60 * count / t["seconds"]), f"{stock['seconds'] / t['seconds']:.1f}", short(t["cpu"] / count),
            f"{stock['cpu'] / t['cpu']:.1f}", *memory)
    report.figure("times", f"{stock['seconds'] / total[names[1]]['seconds']:.0f}")


def main(report, arguments=()) -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks grading", description=__doc__.split("\n")[0])
    p.add_argument("--submissions", type=int, default=8)
    p.add_argument("--unit", default="unit1")
    options = p.parse_args(arguments)
    compare(report, options.unit, options.submissions)
