"""The schedule explorer: milliseconds from a slider's new value to the new picture in the kernel. The aim is 100.

The trip to the browser and its painting come on top; tests/browser measures those together.
"""
import itertools
import time

import pallas_lite as pl

from . import median


def cpu_of(f, runs=21):
    """Mean seconds of processor time: on a busy machine the redraw waits for others, which is no fault of its own."""
    start = time.process_time()
    for _ in range(runs):
        f()
    return (time.process_time() - start) / runs


def main():
    print("median of 21 moves of α, depth 2; α = 0 has no bubbles to hatch\n")
    print("steps   α µs   redraw ms   of it CPU   SVG kB")
    for steps in (8, 16, 64):
        for alphas in ((0.0, 0.25), (2.0, 2.25)):
            explorer = pl.schedule_explorer(steps, 2, alpha=alphas[1] * 1e-6)
            explorer.ui  # noqa: B018  as shown
            values = itertools.cycle(alphas)
            slider = explorer.controls["alpha"]

            def move(slider=slider, values=values):
                slider.value = next(values)

            ms, cpu = 1e3 * median(move, 21), 1e3 * cpu_of(move)
            print(f"{steps:5}   {alphas[0]:4}   {ms:9.0f}   {cpu:9.0f}   {len(explorer.picture()) / 1e3:6.0f}")
            explorer.close()
