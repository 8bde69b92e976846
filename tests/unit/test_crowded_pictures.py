"""Pictures of many things with long names: no two texts lie on each other, none leaves the page or is too small."""
import itertools

import jax
import jax.numpy as jnp
import pytest

import pallas_lite as pl
from pallas_lite.hardware import TPU_V5E
from pallas_lite.plot.choices import Choice, plot_choices
from pallas_lite.plot.look import Label
from tests.unit import loops

LONG = ("attention_queries", "attention_keys", "attention_values", "layer_normalisation_scale", "accumulated_output")


def crowded():
    def kernel(attention_queries, attention_keys, attention_values, layer_normalisation_scale, accumulated_output):
        accumulated_output[...] = (attention_queries[...] + attention_keys[...] + attention_values[...]
                                   + layer_normalisation_scale[...])
    specs = [pl.BlockSpec((128, 128), lambda i, j: (i, j), pl.Buffered(n)) for n in (1, 2, 3, 4, 2)]
    shape = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    call = pl.pallas_call(kernel, shape, grid=(4, 4), in_specs=specs[:4], out_specs=specs[4])
    return call.trace(*[shape] * 4).timeline(TPU_V5E)


def long_one():
    spec = pl.BlockSpec((128, 128), lambda i, j: (i, j))
    shape = jax.ShapeDtypeStruct((100 * 128, 80 * 128), jnp.float32)

    def copy(x_ref, o_ref):
        o_ref[...] = x_ref[...]
    return pl.pallas_call(copy, shape, grid=(100, 80), in_specs=[spec], out_specs=spec).trace(shape).timeline(TPU_V5E)


def forgets_all_waits(N, A, X, Y, B):
    for i in range(N):
        pl.copy_in_start(A[i], X[0])
        pl.compute(X[0], Y[0])
        pl.copy_out_start(Y[0], B[i])


def with_hazards():
    schedule = pl.record(forgets_all_waits, 6, depth=1)
    return pl.plot_timeline(pl.timeline(schedule), hazards=pl.verify(schedule))


def roofline():
    kernels = {"an elementwise sum of two very long arrays": 1 / 12, "sum of two rows": 0.1,
               "a matmul of 128² blocks": (21.3, "matrix", "bfloat16"), "matmul of 512²": (170.0, "matrix", "bfloat16"),
               "a fused thing at the corner": (243.0, "matrix", "bfloat16"), "far": (5000.0, "matrix", "bfloat16"),
               "a rather long name of a kernel that is far, too": (50000.0, "matrix", "bfloat16")}
    return pl.plot_roofline(TPU_V5E, kernels)


def sweep():
    timeline = pl.timeline(pl.record(loops.rolled, 4))
    return pl.plot_sweep({2: dict.fromkeys((96, 100, 104, 112, 120, 128, 136, 1000), timeline)})


def choices():
    sizes = {n: Choice(1e-6 * (1 + n / 512)) for n in (64, 128, 256, 512, 1024, 2048)}
    return plot_choices({f"depth_{name}": sizes for name in LONG}, {f"depth_{name}": 128 for name in LONG})


def texts_of(ax):
    """Every text of an axis, but names in boxes, which are measured when they are drawn, and ticks out of sight."""
    yield from (t for t in ax.texts if not isinstance(t, Label))
    yield from ax.get_legend().get_texts() if ax.get_legend() else ()
    if ax.axison:
        yield from (ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title)
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            yield from (t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high)


@pytest.mark.parametrize("draw", [
    lambda: pl.plot_slots(crowded()), lambda: pl.plot_listing(crowded()), lambda: pl.plot_listing(long_one()),
    lambda: pl.plot_timeline(crowded()), with_hazards, roofline, sweep, choices],
    ids=["slots", "listing", "listing_of_8000", "timeline", "hazards", "roofline", "sweep", "choices"])
def test_every_text_has_a_place_of_its_own(draw):
    figure = draw().get_figure(root=True)
    figure.draw_without_rendering()
    texts = [t for ax in figure.axes for t in texts_of(ax) if t.get_text().strip()]
    boxes = {f"{n}: {t.get_text()}": t.get_window_extent() for n, t in enumerate(texts)}
    assert len(boxes) > 5 and min(t.get_fontsize() for t in texts) >= 6
    for said, box in boxes.items():
        assert -1 < box.x0 and box.x1 < figure.bbox.x1 + 1 and -1 < box.y0 and box.y1 < figure.bbox.y1 + 1, said
    upright = [said for said, t in zip(boxes, texts, strict=True) if not t.get_rotation() % 90]
    for one, two in itertools.combinations(upright, 2):
        a, b = boxes[one], boxes[two]
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide < 3 or high < 4, (one, two)


def test_times_of_a_long_program_tell_neighbours_apart():
    times = [text.get_text() for text in pl.plot_listing(long_one()).texts]
    assert "0.00008" in times and len({t for t in times if t.startswith("5.7")}) > 3


def test_lines_of_many_depths_differ_by_colour_and_marker():
    timeline = pl.timeline(pl.record(loops.rolled, 4))
    ax = pl.plot_sweep({depth: {128: timeline, 256: timeline} for depth in range(1, 8)})
    looks = {(handle.get_color(), handle.get_marker()) for handle in ax.get_legend().legend_handles[:7]}
    assert len(looks) == 7
