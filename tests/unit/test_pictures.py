"""Each kind of picture, of the course's own kernels, beside the picture that somebody has looked at (tests/golden/)."""
import inspect
import math
import re
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image, ImageDraw

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import TOY, TPU_V5E
from pallas_lite.plot.choices import Choice, plot_choices
from tests.conftest import ALIKE, unlike
from tests.unit import loops


@pytest.fixture(autouse=True, params=["light"])
def style(request):
    """Matplotlib's own, whatever the user's settings are."""
    with plt.style.context("dark_background" if request.param == "dark" else "default"):
        yield


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def matmul():
    def kernel(x_ref, y_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += x_ref[...] @ y_ref[...]
    x, y = pl.BlockSpec((512, 256), lambda i, j, k: (i, k)), pl.BlockSpec((256, 512), lambda i, j, k: (k, j))
    return pl.pallas_call(kernel, shape(1024, 1024), grid=(2, 2, 4), in_specs=[x, y], name="matmul",
                          out_specs=pl.BlockSpec((512, 512), lambda i, j, k: (i, j))).trace(*[shape(1024, 1024)] * 2)


def reduction():
    """The tutorial's broken one: over the outermost axis."""
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    return pl.pallas_call(kernel, shape(1024, 1024), grid=(8, 4, 4), name="broken sum",
                          in_specs=[pl.BlockSpec((None, 256, 256), lambda i, j, k: (i, j, k))],
                          out_specs=pl.BlockSpec((256, 256), lambda i, j, k: (j, k))).trace(shape(8, 1024, 1024))


def gather():
    def kernel(rows_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]
    grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(8,),
                                        in_specs=[pl.BlockSpec((8, 128), lambda i, rows: (rows[i], 0))],
                                        out_specs=pl.BlockSpec((8, 128), lambda i, rows: (i, 0)))
    return pl.pallas_call(kernel, shape(64, 128), grid_spec=grid, name="gather").trace(
        np.array([3, 3, 0, 7, 7, 7, 1, 3], np.int32), shape(64, 128))


def add(n, depth=2):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    spec = pl.BlockSpec((n, n), lambda i, j: (i, j), pipeline_mode=pl.Buffered(depth))
    return pl.pallas_call(kernel, shape(2048, 2048), grid=(2048 // n,) * 2, in_specs=[spec, spec], out_specs=spec,
                          name="add").trace(shape(2048, 2048), shape(2048, 2048))


def racy(loop, draw, steps=4):
    view = pl.show(loop, steps)
    return draw(view.schedule if draw is pl.plot_slots else view.timeline, hazards=view.hazards[:1])


FAR = TOY.with_(alpha=3e-6)
PICTURES = {
    "timeline": lambda: pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 6))),
    "timeline_latency": lambda: pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 8), FAR), selected=6),
    "timeline_read_before_wait": lambda: racy(loops.one_slot, pl.plot_timeline),
    "timeline_hang": lambda: racy(loops.waits_on_slot_one, pl.plot_timeline, 3),
    "timeline_1000_steps": lambda: pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 1000))),
    "timeline_matmul": lambda: pl.plot_timeline(matmul().timeline(TPU_V5E)),
    "slots_gather": lambda: pl.plot_slots(gather().schedule),
    "slots_overwritten": lambda: racy(loops.no_wait_out, pl.plot_slots),
    "slots_broken_sum": lambda: pl.plot_slots(reduction().schedule, "o"),
    "slots_in_time": lambda: pl.plot_slots(matmul().timeline(TPU_V5E)),
    "grid_gather": lambda: pl.plot_grid(gather(), "x"),
    "grid_matmul_at_a_step": lambda: pl.plot_grid(matmul(), "x", 5),
    "grid_sheets": lambda: pl.plot_grid(reduction(), "x"),
    "roofline": lambda: pl.plot_roofline(TPU_V5E, {"add": add(512).timeline(TPU_V5E), "matmul": matmul().schedule}),
    "sweep": lambda: pl.plot_sweep({d: {n: add(n, d).timeline(TPU_V5E) for n in (256, 512, 1024)} for d in (1, 2)}),
    "listing": lambda: pl.plot_listing(pl.timeline(pl.record(loops.rolled, 3), FAR), selected=6),
    "listing_never_waited": lambda: racy(loops.no_wait_out, pl.plot_listing),
    "choices": lambda: plot_choices(
        {"block": {n: Choice(t.total, "it does not fit" if t.hazards else "") for n in (128, 256, 512, 1024, 2048)
                   for t in [add(n, 2).timeline(TPU_V5E)]},
         "depth": {d: Choice(add(512, d).timeline(TPU_V5E).total) if d else Choice(math.nan, "no slots")
                   for d in range(4)},
         "order": {"ij": Choice(add(512, 2).timeline(TPU_V5E).total), "ji": None}},
        {"block": 512, "depth": 2, "order": "ij"}, best=add(512, 3).timeline(TPU_V5E).total),
}
DARK = ["timeline_read_before_wait", "slots_gather", "grid_gather", "sweep", "choices", "listing"]


def test_each_kind_of_picture_is_looked_at():
    drawn = {name for draw in PICTURES.values() for name in re.findall(r"plot_\w+", inspect.getsource(draw))}
    assert drawn == {name for name in vars(pl.plot) if name.startswith("plot_")}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_looks_as_it_did(name, golden_image):
    golden_image(name, PICTURES[name]())


@pytest.mark.parametrize("style", ["dark"], indirect=True)
@pytest.mark.parametrize("name", DARK)
def test_a_picture_on_a_dark_page_looks_as_it_did(style, name, golden_image):
    golden_image(f"dark_{name}", PICTURES[name]())


def test_a_label_or_a_colour_that_changes_is_seen(tmp_path):
    """The tolerance, tried on a picture with one label less, and on one with another colour in a single box."""
    ax, files = PICTURES["timeline"](), [tmp_path / f"{n}.png" for n in range(3)]
    ax.figure.savefig(files[0], dpi=60)
    next(t for t in ax.texts if t.get_text() == "A[3]").remove()
    ax.figure.savefig(files[1], dpi=60)
    image = Image.open(files[0])
    assert image.getpixel((100, 36))[:3] == (0x56, 0xB4, 0xE9)
    ImageDraw.floodfill(image, (100, 36), (0x56, 0x80, 0xE9, 255))
    image.save(files[2])
    assert unlike(files[0], files[0]) == 0
    assert all(unlike(files[0], other) > ALIKE for other in files[1:])


LONG = ("a title with the name of a function, the name of a machine, and much else that may stand there: "
        "one line of a picture is too short for it")


def titled(plot, what, **more):
    return lambda: plot(what, title=LONG, **more)


STREAM = pl.record(loops.rolled, 4)


@pytest.mark.parametrize("draw", [
    titled(pl.plot_timeline, pl.timeline(STREAM)), titled(pl.plot_slots, STREAM),
    titled(pl.plot_slots, STREAM, operand="Y"),  # lower than a title in many lines
    titled(pl.plot_roofline, TOY, kernels={}),
    lambda: pl.plot_listing(pl.timeline(pl.record(loops.rolled, 12, depth=4),
                                        TOY.with_(name="a toy whose HBM is so far away", alpha=3e-6))),
    lambda: pl.plot_listing(pl.timeline(pl.record(loops.waits_on_slot_one, 3), TOY.with_(name="a toy far away")))])
def test_a_long_title_goes_on_in_a_second_line_inside_the_picture(draw):
    figure = draw().get_figure(root=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where a layout has no room, matplotlib only warns
        figure.draw_without_rendering()
    for ax in figure.axes:
        for text in (t for t in ax.get_children() if isinstance(t, plt.Text) and t.get_text()):
            if text.get_fontsize() == 10:  # of what a picture writes, its title
                inside = text.get_window_extent()
                assert 0 <= inside.x0 < inside.x1 <= figure.bbox.x1 and inside.y1 <= figure.bbox.y1, text.get_text()
