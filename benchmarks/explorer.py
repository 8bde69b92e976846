"""The explorers: from a key press to the painted picture in chromium, the kernel's part of it, memory, long pipelines.

The aim is 100 ms for 64 steps on two cores. On a busy machine a redraw waits for others, so processor time is given
too: the kernel's, and that of all processes: kernel, server, chromium and its driver. Without chromium and selenium
only the kernel's is printed.
"""
import contextlib
import gc
import importlib.util
import itertools
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from ipywidgets.widgets import widget
from matplotlib.figure import Figure

import pallas_lite as pl

from . import NotHere, short

MOVES, HANDLE = 21, ".noUi-handle"
SETUP = '''import sys
import jax, jax.numpy as jnp
import pallas_lite as pl
from benchmarks.explorer import blocked, matmul
(f, shape), g = matmul(512), blocked'''
# What is opened, as the line of a cell; the slider, by its number on the page; and two settings next to each other.
KINDS = {
    "schedule, 64 steps: α": ("pl.schedule_explorer(64, 2, alpha=2e-6)", 2, "alpha", (2e-6, 2.25e-6)),
    "schedule, 64 steps: depth": ("pl.schedule_explorer(64, 2, alpha=1e-6)", 1, "depth", (2, 3)),
    "schedule, 64 steps: the step looked at": ("pl.schedule_explorer(64, 3)", 5, "step", (0, 1)),
    "stepper, 6 blocks: depth": ("pl.derivation_stepper(6)", 1, "depth", (2, 3)),
    "stepper, 6 blocks: the line": ("pl.derivation_stepper(6, 3)", 2, "line", (0, 1)),
    "grid, 64 steps: the step": ("pl.explore(f, shape, shape)", 0, "step", (0, 1)),
    "block tuner, 64 steps: bm": ("pl.block_tuner(1024, 1024, 1024)", 0, "bm", (256, 512)),
    "tuner of a call, 12 choices: bm": (
        'pl.explore(g, shape, shape, view="tuner", bm=(64, 128, 256), bk=(64, 128, 256, 512))', 0, "bm", (64, 128)),
    "block tuner, 1,048,576 steps: bm": ("pl.block_tuner(8192, 8192, 8192, bm=64, bn=64, bk=128)", 0, "bm", (64, 128)),
}
# Milliseconds from the key to the first frame that has been painted after the picture was replaced.
WATCH = """const area = arguments[0].querySelector('.jupyter-widgets svg[role=img]').closest('.widget-html');
window.painted = null;
let start;
addEventListener('keydown', e => { start = e.timeStamp; }, {capture: true, once: true});
new MutationObserver((_, watcher) => {
  watcher.disconnect();
  requestAnimationFrame(() => {
    const after = new MessageChannel();  // handled after the frame has been painted
    after.port1.onmessage = () => { window.painted = performance.now() - start; };
    after.port2.postMessage(0);
  });
}).observe(area, {childList: true, subtree: true});"""


def product(n: int, bm: int, bn: int, bk: int):
    """A call that multiplies two arrays of n × n in such blocks."""
    def kernel(x_ref, w_ref, o_ref):
        o_ref[...] += x_ref[...] @ w_ref[...]
    specs = [pl.BlockSpec(block, where) for block, where in (
        ((bm, bk), lambda i, j, k: (i, k)), ((bk, bn), lambda i, j, k: (k, j)), ((bm, bn), lambda i, j, k: (i, j)))]
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct((n, n), jnp.float32), grid=(n // bm, n // bn, n // bk),
                          in_specs=specs[:2], out_specs=specs[2])


def matmul(n: int, block: int = 128):
    """A call with (n / block)³ steps, and the shape of its operands."""
    return product(n, block, block, block), jax.ShapeDtypeStruct((n, n), jnp.float32)


def blocked(x, w, *, bm=128, bn=128, bk=128):
    """A function whose blocks are to be tuned."""
    return product(x.shape[0], bm, bn, bk)(x, w)


def opened(line: str):
    """The explorer of such a line, as shown."""
    f, shape = matmul(512)
    made = eval(line, {"pl": pl, "f": f, "g": blocked, "shape": shape})
    made.ui  # noqa: B018  as shown
    return made


def numbers(times) -> str:
    """Median and, in brackets, p90; in ms."""
    ms = sorted(1e3 * t for t in times)
    return f"{short(statistics.median(ms))} ({short(ms[int(0.9 * (len(ms) - 1))])})" if ms else "not measured"


def in_kernel(line: str, setting: str, values) -> list[float]:
    """Seconds of processor time of each move."""
    explorer, times = opened(line), []
    for value in itertools.islice(itertools.cycle(values[::-1]), MOVES + 2):
        start = time.process_time()
        explorer.set(**{setting: value})
        times.append(time.process_time() - start)
    explorer.close()
    return times[2:]


def processor() -> float:
    """Seconds of processor time that the processes below this one have used."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may just have ended
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            used[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours - {os.getpid()})


def in_browser(chromium) -> dict[str, tuple[list[float], float]]:
    """Of each kind: seconds from key to picture, every other key going back; and processor time a move, of all."""
    from selenium.webdriver.common.keys import Keys

    from tests.browser.lab import Notebook, browser, server, write_notebook
    with tempfile.TemporaryDirectory() as folder:
        work, found = Path(folder), {}
        cells = write_notebook(work / "bench.ipynb", [SETUP, *(line for line, *_ in KINDS.values())])
        with server(work, work / "home", "Light") as address, browser(chromium, work / "profile") as driver:
            page = Notebook(driver, work)
            page.open(address("bench.ipynb"), cells)
            page.run_all()
            for kind, (line, slider, *_) in KINDS.items():
                cell = page.see(page.cell(line))
                handle = page.wait(lambda c=cell, n=slider: c.find_elements("css selector", HANDLE)[n:], line)[0]
                driver.execute_script("arguments[0].focus()", handle)
                times, spent = [], processor()
                for key in itertools.islice(itertools.cycle((Keys.ARROW_RIGHT, Keys.ARROW_LEFT)), MOVES + 2):
                    driver.execute_script(WATCH, cell)
                    page.keys(key)
                    time.sleep(0.4)  # else the question whether it is done would be part of the work
                    page.wait(lambda: driver.execute_script("return window.painted"), "the new picture")
                    times.append(driver.execute_script("return window.painted") / 1e3)
                found[kind] = times[2:], (processor() - spent) / len(times)
        return found


def memory() -> tuple[int, int, int]:
    """Resident MB, figures and widgets of this process."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
    return round(resident), sum(isinstance(x, Figure) for x in gc.get_objects()), len(widget._instances)


def ten_open(row) -> None:
    """Ten explorers, each moved 50 times."""
    lines = [KINDS[kind] for kind in list(KINDS)[:-1]]
    ten = [(opened(line), setting, values) for line, _, setting, values in (lines * 2)[:10]]
    for moves in (0, 5, 20, 35, 50):
        for explorer, setting, values in ten:
            for n in range({0: 0, 5: 5}.get(moves, 15)):
                explorer.set(**{setting: values[n % 2]})
        row(moves, *memory())
    for explorer, *_ in ten:
        explorer.close()
    del ten, explorer
    row("all closed", *memory())


def long_ones(row) -> None:
    """What 10,000 steps take to open, and a move then."""
    f, shape = matmul(22 * 128)
    kinds = {"pl.schedule_explorer(10_000)": ("depth", (2, 3)), "pl.explore(f, shape, shape)": ("step", (0, 1)),
             'pl.explore(f, shape, shape, view="schedule")': ("depth", (2, 3))}
    for line, (setting, values) in kinds.items():
        start = time.process_time()
        explorer = eval(line, {"pl": pl, "f": f, "shape": shape})
        explorer.ui  # noqa: B018  as shown
        seconds, times = time.process_time() - start, []
        for value in (values * 4)[1:]:
            start = time.process_time()
            explorer.set(**{setting: value})
            times.append(time.process_time() - start)
        row(f"`{line}`", f"{seconds:.1f}", short(1e3 * statistics.median(times)))
        explorer.close()


def main(report):
    chromium = shutil.which("chromium"), shutil.which("chromedriver")
    seen = in_browser(chromium) if all(chromium) and importlib.util.find_spec("selenium") else {}
    row = report.table("moves", "moved", "kernel's processor", "key to picture")
    for kind, (line, _, setting, values) in KINDS.items():
        times, spent = seen.get(kind, ((), 0))
        row(kind, numbers(in_kernel(line, setting, values)), numbers(times))
        if times:
            print(f"    processor time of all processes: {1e3 * spent:.0f} ms a move")
    ten_open(report.table("memory", "moves of each", "resident MB", "figures", "widgets"))
    # The product has 10,648 steps. Processor time.
    long_ones(report.table("long", "of 10,000 steps", "s to open", "ms a move"))
    if not seen:
        raise NotHere("from the key to the picture: it asks for chromium, chromedriver and selenium")
