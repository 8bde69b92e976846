"""Draws the README's picture from the package itself:  python tools/figures.py  writes docs/pipeline.svg."""
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

import pallas_lite as pl
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait


def one_buffer(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def two_buffers(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        now, after = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[after])
        copy_in_wait(X[now])
        compute(X[now], Y[now])
        copy_out_start(Y[now], B[i])
        if i > 0:
            copy_out_wait(Y[after])
    copy_out_wait(Y[(N - 1) % 2])


def main(path: Path) -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "pallas_lite", "svg.fonttype": "path", "font.family": "DejaVu Sans"})
    figure = Figure(figsize=(10, 4.6), layout="constrained", facecolor="white")
    axes = figure.subplots(2, 1)
    for ax, loop, depth, name in [(axes[0], one_buffer, 1, "one buffer: copy, wait, compute, copy, wait"),
                                  (axes[1], two_buffers, 2, "two buffers: copies run while the core computes")]:
        timeline = pl.timeline(pl.record(loop, 6, depth=depth))
        pl.plot_timeline(timeline, ax, limit=18e-6, title=f"{name}. {timeline.total * 1e6:.0f} µs modelled, core busy "
                                                         f"{timeline.utilisation:.0%}")
    axes[0].set_xlabel("")
    title = "The modelled time of the same six steps, with one buffer and with two"
    figure.savefig(path, metadata={"Date": None, "Creator": None, "Title": title})


if __name__ == "__main__":
    main(Path(__file__).parents[1] / "docs" / "pipeline.svg")
