"""What the pictures share: colours that can be told apart, ink for light and dark pages, an axis with a fold in it."""
import inspect
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

import pallas_lite as pl
from pallas_lite.hardware import TOY
from pallas_lite.plot.look import MARK, MINT, ON_COLOUR, PALETTE, Fold, Label, ink_of, shown_steps
from pallas_lite.plot.page import png
from pallas_lite.plot.roofline import COLORS
from tests.unit import loops

# What a dichromat sees of linear RGB. Source: Machado, Oliveira, Fernandes, "A physiologically-based model for
# simulation of color vision deficiency", 2009, severity 1.0.
EYES = {"normal": np.eye(3),
        "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                                [-0.003882, -0.048116, 1.051998]]),
        "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                                  [-0.011820, 0.042940, 0.968881]])}


def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(light):
    """CIE L*a*b* (D65) of linear RGB."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x = np.array(to_xyz) @ np.clip(light, 0, 1) / [0.9505, 1, 1.089]
    fx, fy, fz = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def apart(a, b, eyes):
    """How far two colours are from each other: ΔE of 1976. About 2 can just be seen."""
    return np.linalg.norm(lab(EYES[eyes] @ linear(a)) - lab(EYES[eyes] @ linear(b)))


def lightness(color):
    return lab(linear(color))[0]


def contrast(a, b):
    """As WCAG has it: 4.5 is enough for small text."""
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("eyes", EYES)
def test_all_colours_of_blocks_differ_for_colour_blind_eyes_too(eyes):
    assert min(apart(a, b, eyes) for a, b in itertools.combinations(PALETTE, 2)) > 25


def test_consecutive_visits_differ_in_grey_print():
    lights = [lightness(c) for c in PALETTE]
    assert min(abs(a - b) for a, b in zip(lights, lights[1:] + lights[:1], strict=True)) > 12
    assert min(abs(a - b) for a, b in itertools.combinations(lights, 2)) > 7


def test_the_measure_finds_colours_that_only_some_eyes_tell_apart():
    assert apart("#FF0000", "#8C8000", "normal") > 80 > 25 > apart("#7A6A00", "#96400A", "deuteranopia")


def test_labels_can_be_read_on_each_colour_and_a_mark_on_each_page():
    assert min(contrast(c, ON_COLOUR) for c in PALETTE) > 4.5
    for page, number in (("white", 0), ("black", 1)):
        figure = Figure(facecolor=page)
        ink = ink_of(figure.add_subplot(facecolor=page))
        assert ink.dark == number
        assert min(contrast(c, ink.paper) for c in (ink.strong, ink.soft, ink.mark)) > 4.5
        assert min(contrast(c[number], ink.paper) for c in COLORS.values()) > 4.5
    assert contrast(MARK, "white") > 4.5


@pytest.mark.parametrize("page", ["white", "black"])
def test_latency_bars_of_each_colour_have_an_edge_that_is_seen_on_the_page(page):
    ax = Figure(facecolor=page).add_subplot(facecolor=page)
    pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 8), TOY.with_(alpha=3e-6)), ax)
    [bars] = [c for c in ax.collections if c.get_label() == "latency"]
    assert {to_hex(c).upper() for c in bars.get_facecolors()} == set(PALETTE)
    assert contrast(MINT, "white") < 1.5, "the colour alone is not enough"
    # 3 is what WCAG asks of a drawing; lightness is all that grey print keeps, and no colour-blind eye loses it.
    assert min(contrast(c, page) for c in bars.get_edgecolors()) > 3 and min(bars.get_linewidths()) >= 0.5
    assert min(apart(c, page, eyes) for c in bars.get_edgecolors() for eyes in EYES) > 25


def test_axes_that_one_can_see_through_have_the_ink_of_what_is_behind():
    assert ink_of(Figure(facecolor="black").add_subplot(facecolor="none")).dark
    assert not ink_of(Figure(facecolor="none").add_subplot(facecolor="none")).dark


@given(st.integers(1, 300), st.integers(4, 40), st.lists(st.integers(0, 299), max_size=2))
def test_steps_on_show_are_the_first_the_last_and_the_marked(steps, most, marked):
    marked = [m for m in marked if m < steps]
    shown = [t for part in shown_steps(steps, most, marked) for t in part]
    assert shown == sorted(set(shown)) and {0, steps - 1, *marked} <= set(shown)
    assert (len(shown) == steps) if steps <= most else len(shown) <= max(most * 5 / 4, most + 3 * len(marked))


@given(st.lists(st.floats(0.1, 9), min_size=30, max_size=60), st.integers(4, 20), st.integers(0, 29))
def test_a_fold_keeps_order_and_the_scale_of_what_it_shows(lengths, most, marked):
    edges = np.cumsum([0.0, *lengths])
    shown = shown_steps(len(lengths), most, [marked])
    fold = Fold(edges, shown)
    assert sum(fold.left_out) + sum(map(len, shown)) == len(lengths)
    assert np.all(np.diff(fold(edges)) >= 0)
    for steps in shown:
        for t in steps:
            start, end = fold(edges[t:t + 2])
            assert end - start == pytest.approx(lengths[t]) and not fold.hides(*edges[t:t + 2])
    for a, b in itertools.pairwise(shown):
        assert all(fold.hides(*edges[t:t + 2]) for t in range(a.stop, b.start))


def copies(*names):
    """An addition over a grid of 4 × 4, whose refs have these names."""
    def kernel(*refs):
        refs[2][...] = refs[0][...] + refs[1][...]
    kernel.__signature__ = inspect.Signature([inspect.Parameter(f"{name}_ref", inspect.Parameter.POSITIONAL_ONLY)
                                              for name in names])
    block, array = pl.BlockSpec((1, 1), lambda i, j: (i, j)), jax.ShapeDtypeStruct((4, 4), np.float32)
    return pl.pallas_call(kernel, array, grid=(4, 4), in_specs=[block, block], out_specs=block).trace(array, array)


@pytest.mark.parametrize("share", [0.85, 0.3])
@pytest.mark.parametrize("names", [("x", "y", "o"), ("in0", "in1", "out0"), ("weights", "activations", "gradients")])
@pytest.mark.parametrize("draw", [pl.plot_timeline, pl.plot_slots])
def test_no_label_leaves_its_box(draw, names, share):
    """However long the names are and however small the axes: it shrinks, loses the name, or is not there at all.

    Nor does the bar at the foot of a slot's box cover it.
    """
    what, drawn = copies(*names).timeline(TOY.with_(beta=4e6, flops=1e6)), set()
    assert [x.name for x in what.schedule.operands] == [*names]
    figure = Figure(figsize=(9, 4), dpi=144)  # as page.png has it
    ax = figure.add_axes((0.1, 0.1, share, 0.8))
    draw(what, ax=ax, title="")
    png(figure)
    labels = [t for t in ax.texts if isinstance(t, Label)]
    for text in labels:
        (left, low), _, (right, high), _ = ax.transData.transform(text.corners)
        if text.fit((right - left) * 72 / figure.dpi, (high - low) * 72 / figure.dpi):
            drawn.add(text.get_text())
            ink = text.get_window_extent()
            assert left <= ink.x0 and ink.x1 <= right and low <= ink.y0 and ink.y1 <= high, text.get_text()
    whole = {text.whole for text in labels}
    assert all(text in whole or text.startswith("[") for text in drawn), "a step's number is whole, or not there"
    assert any("[" in text for text in drawn) or share < 0.5
