"""The picture of a sweep shows what its timelines say: times, bounds, and what does not fit."""
import jax
import jax.numpy as jnp
import pytest

import pallas_lite as pl
from pallas_lite.hardware import TPU_V5E

SIZES = 256, 512, 1024


def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def timeline(b, depth):
    x = jax.ShapeDtypeStruct((2048, 2048), jnp.float32)
    spec = pl.BlockSpec((b, b), lambda i, j: (i, j), pipeline_mode=pl.Buffered(depth))
    grid = 2048 // b, 2048 // b
    return pl.pallas_call(add_kernel, x, grid=grid, in_specs=[spec, spec], out_specs=spec).trace(x, x).timeline(TPU_V5E)


SWEEP = {depth: {b: timeline(b, depth) for b in SIZES} for depth in (1, 2)}


def points(ax, hollow):
    return {(int(x), float(y)) for line in ax.lines if line.get_linestyle() == "None"
            and (line.get_markerfacecolor() == "#ffffff") == hollow for x, y in zip(*line.get_data(), strict=True)}


def test_each_timeline_is_a_point_at_its_modelled_time_and_hollow_where_sram_does_not_do():
    ax = pl.plot_sweep(SWEEP)
    for hollow in (True, False):
        wanted = {(b, t.total * 1e6) for row in SWEEP.values() for b, t in row.items() if bool(t.hazards) == hollow}
        assert wanted and {x for x, _ in wanted} == {x for x, _ in points(ax, hollow)}
        assert [y for _, y in sorted(points(ax, hollow))] == pytest.approx([y for _, y in sorted(wanted)])
    assert {x for x, _ in points(ax, True)} == {1024}  # 2 slots × 3 operands × 4 MiB are more than 16


def test_thin_lines_are_the_bounds_and_a_latency_bound_has_its_depths_colour():
    ax = pl.plot_sweep(SWEEP)
    thin = [line for line in ax.lines if line.get_linewidth() < 1 and line.get_linestyle() != "None"]
    drawn = [(line.get_linestyle(), line.get_color(), list(line.get_ydata())) for line in thin]
    thick = [line.get_color() for line in ax.lines if line.get_linewidth() > 1 and line.get_marker() == "None"]
    for bound, style, depths in (("compute", "-", [1]), ("bandwidth", "--", [1]), ("latency", ":", [1, 2])):
        found = [(color, ys) for s, color, ys in drawn if s == style]
        assert [ys for _, ys in found] == [[t.terms[bound] * 1e6 for t in SWEEP[d].values()] for d in depths]
        assert bound != "latency" or [color for color, _ in found] == thick
    # In grey two depths' colours may be alike: each line of a depth has its marker, the dotted one a small hollow one.
    points = [line.get_marker() for line in ax.lines if line.get_linestyle() == "None" and len(line.get_xdata()) > 1]
    assert list(dict.fromkeys(points)) == [line.get_marker() for line in thin if line.get_linestyle() == ":"]


def test_the_legend_names_what_is_in_the_picture():
    labels = [text.get_text() for text in pl.plot_sweep(SWEEP).get_legend().get_texts()]
    assert labels == ["depth 1", "depth 2", "bandwidth bound", "latency bound", "more than the SRAM"]  # no compute


def test_ticks_are_the_block_sizes_and_an_ax_is_taken_and_returned():
    from matplotlib.figure import Figure
    ax = Figure().add_subplot()
    assert pl.plot_sweep(SWEEP, ax, xlabel="b, of b × b", title="add") is ax
    assert list(ax.get_xticks()) == list(SIZES)
    assert (ax.get_xlabel(), ax.get_title(loc="left")) == ("b, of b × b", "add")


@pytest.mark.parametrize("given", [{}, {2: {}}, {2: {128: 1e-6}}])
def test_what_is_no_sweep_is_told_what_one_is(given):
    with pytest.raises(pl.SpecError, match="depth: {block size: timeline}"):
        pl.plot_sweep(given)
