"""Kills: a batch is killed at random moments, again and again, and resumed; no grade is lost, doubled or wrong.

    python -m benchmarks kills                                  the campaign: 200 submissions, 50 kills
    python -m benchmarks kills --submissions 12 --kills 4       a short one

Each second kill is of the whole batch, with all of its processes; the others are of one process that grades, or of one
in a sandbox, while the batch goes on. What comes out is compared with a run that nobody disturbed.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nbformat
import psutil

from tests.autograder import little_course as little

ROOT = Path(__file__).parents[1]
WHAT = "whole batch", "grading process", "process in a sandbox"
KINDS = [little.RIGHT, {}, little.RIGHT | {"90.2": "time = 5.0"}, little.RIGHT | {"90.1": "import os\nos._exit(1)"},
         {n: little.RIGHT[n] for n in ("90.1", "90.3")}]


def batch(folder: Path, out: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "autograder", "grade", str(folder / "submitted"), "--release", str(folder / "release"),
         "--checks", "tests.autograder.little_course", "--timeout", "5", "--jobs", "2", "--gradebook", "none", "--out",
         str(folder / out)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def results(folder: Path, out: str) -> list[tuple]:
    """Student, status and marks, in the order of the file."""
    found = json.loads((folder / out / "results.json").read_text(encoding="utf-8"))["submissions"]
    return [(r["student"], r["status"], {n: (m["points"], m["verdict"]) for n, m in r["marks"].items()})
            for r in found]


def kill_all(process: subprocess.Popen) -> None:
    """The whole batch: its children have sessions of their own, and die as those of a machine that loses power do."""
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for one in family:
        try:
            one.kill()
        except psutil.Error:
            pass
    process.wait()


def kill_one(process: subprocess.Popen, chance: random.Random) -> str:
    """One process that grades, or one in a sandbox; what it was, or nothing if there was none."""
    family = psutil.Process(process.pid).children(recursive=True)
    if not family:
        return ""
    one = chance.choice(family)
    try:
        line = one.cmdline()
        one.kill()
    except psutil.Error:
        return ""
    return WHAT[1] if "autograder.grading.child" in line else WHAT[2]


def campaign(report, count: int, kills: int, seed: int) -> None:
    chance, killed, filed = random.Random(seed), Counter(), set()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        little.released(folder / "release")
        for i in range(count):
            path = folder / "submitted" / f"s{i:04}" / little.UNIT / f"{little.NAME}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(little.notebook(KINDS[i % len(KINDS)]), path)
        process, rewritten = batch(folder, "out"), 0
        store, times = folder / "out" / "submissions", {}
        for k in range(kills):
            # Spread over the whole batch: the next kill comes at a random moment after its share of results.
            while len(list(store.glob("*.json"))) < count * k / (kills + 1) and process.poll() is None:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 3))
            if process.poll() is not None:
                process = batch(folder, "out")
                time.sleep(chance.uniform(1, 5))
            if k % 2:
                killed[kill_one(process, chance)] += 1
                continue
            kill_all(process)
            killed[WHAT[0]] += 1
            now = {p.name: p.stat().st_mtime_ns for p in store.glob("*.json")}
            rewritten += sum(now.get(name) != t for name, t in times.items())
            times, filed = now, filed | now.keys()
            process = batch(folder, "out")
        errors = process.communicate()[1]
        if process.returncode == 3:  # a fault is said, is no mark, and is mended by another run
            print("once more, for a fault")
            process = batch(folder, "out")
            errors = process.communicate()[1]
        print(f"{count} submissions; killed: {dict(killed)}; last run: exit code {process.returncode}, "
              f"{[x for x in errors.splitlines() if 'unchanged' in x]}")
        disturbed = results(folder, "out")
        print("undisturbed run ...", flush=True)  # of two of each kind: what they hold is the same for all of that kind
        for path in sorted((folder / "submitted").iterdir())[2 * len(KINDS):]:
            shutil.rmtree(path)
        batch(folder, "undisturbed").communicate()
        undisturbed = [r[1:] for r in results(folder, "undisturbed")]
        wanted = [undisturbed[i % len(KINDS)] for i in range(count)]
        assert undisturbed[:len(KINDS)] == undisturbed[-len(KINDS):], undisturbed
        problems = [f"{a[0]}: {a[1:]} instead of {b}" for a, b in zip(disturbed, wanted, strict=False) if a[1:] != b]
        students, files = {d[0] for d in disturbed}, len(list(store.iterdir()))
        row = report.table("kills", "grades", *(f"kills of a {what}" for what in WHAT), "grades lost", "doubled",
                           "wrong", "worked out again")
        row(count, *(killed[what] for what in WHAT), count - len(students), len(disturbed) - len(students),
            len(problems), rewritten)
        print(*problems, sep="\n", end="\n" * bool(problems))
        if problems or rewritten or len(disturbed) != count or files != count:
            sys.exit("a grade was lost, doubled or wrong")


def main(report, arguments=()) -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks kills", description=__doc__.split("\n")[0])
    p.add_argument("--submissions", type=int, default=200)
    p.add_argument("--kills", type=int, default=50)
    p.add_argument("--seed", type=int, default=0)
    options = p.parse_args(arguments)
    campaign(report, options.submissions, options.kills, options.seed)
