"""python -m benchmarks [--write] [NAME ...] [OPTIONS of one]

Runs the benchmarks named, or all that end within minutes, each in a process of its own. --write also keeps what they
measured in benchmarks/results/ and puts it into the pages; alone with --render it puts in what is kept. One that asks
for something that is not here leaves its last results as they are.
"""
import importlib
import inspect
import pkgutil
import subprocess
import sys
import time
from datetime import date

import benchmarks

from . import _pages

NAMES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_")]


def one(name: str, options: list[str], write: bool) -> int:
    """Runs it here. 0: measured; 3: not here."""
    report, start, day = benchmarks.Report(), time.monotonic(), date.today().isoformat()
    measure = importlib.import_module(f"benchmarks.{name}").main
    if options and "arguments" not in inspect.signature(measure).parameters:
        sys.exit(f"{name} takes no options")
    try:
        measure(report, *([options] if options else []))
    except benchmarks.NotHere as why:
        print(f"Not measured: {why}")
        return 3
    seconds = round(time.monotonic() - start)
    print(f"{name} took {seconds} s")
    if write and (missing := _pages.shown(name) - {"run", *report.tables, *report.figures}):
        sys.exit(f"not saved: pages show {', '.join(sorted(missing))} of {name}, which this run has not measured")
    if write:
        command = " ".join(["python -m benchmarks", name, *options])
        _pages.save(name, {"command": command, "machine": benchmarks.machine(), "date": day, "seconds": seconds,
                           "figures": report.figures, "tables": report.tables})
        _pages.render()
    return 0


def main(arguments: list[str]) -> int:
    if arguments == ["--render"]:
        _pages.render()
        return 0
    write = "--write" in arguments[:1]
    arguments = arguments[write:]
    count = next((i for i, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    chosen, options = arguments[:count], arguments[count:]
    if not chosen and options[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nBenchmarks: {', '.join(NAMES)}; only if named: {', '.join(_pages.LONG)}")
        return 0
    if unknown := set(chosen) - set(NAMES):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    if options and len(chosen) != 1:
        sys.exit("options belong to one benchmark: name it before them")
    if len(chosen) == 1:
        print(benchmarks.machine(), flush=True)
        return one(chosen[0], options, write)
    ends = {}
    for name in chosen or [n for n in NAMES if n not in _pages.LONG]:
        print(f"\n== {name}", flush=True)
        ends[name] = subprocess.run([sys.executable, "-m", "benchmarks", *["--write"] * write, name]).returncode
    print(*(f"\n{what}: {', '.join(names)}" for what, names in (
        ("measured", [n for n in ends if ends[n] == 0]), ("not here", [n for n in ends if ends[n] == 3]),
        ("FAILED", [n for n in ends if ends[n] not in (0, 3)])) if names))
    return int(not set(ends.values()) <= {0, 3})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
