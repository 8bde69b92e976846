"""How data look as the last line of a cell, and in a terminal."""
import base64
import io
import re
from types import SimpleNamespace

import IPython
import jax
import jax.numpy as jnp
import nbformat
import numpy as np
import pytest
from nbconvert import HTMLExporter
from PIL import Image

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.display import lanes, picture
from pallas_lite.hardware import TOY, TPU_V5E
from tests.unit import loops
from tests.unit.test_pictures import add, gather, matmul, reduction

FAR = TOY.with_(alpha=3e-6)


def untraced():
    return pl.pallas_call(lambda x_ref, o_ref: None, jax.ShapeDtypeStruct((8,), jnp.float32), name="double")


def called():
    def kernel(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]
    spec = pl.BlockSpec((8,), lambda i: i)
    call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((32,), jnp.float32), grid=(4,), in_specs=[spec], out_specs=spec)
    call(jnp.arange(32.0))
    return call


def by_hand():
    """A kernel with copies of its own: nothing for the pipeline to copy."""
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    def whole(x_ref, o_ref):
        pltpu.emit_pipeline(kernel, grid=(4,), in_specs=[pl.BlockSpec((8,), lambda i: i)],
                            out_specs=pl.BlockSpec((8,), lambda i: i))(x_ref, o_ref)
    x = jax.ShapeDtypeStruct((32,), jnp.float32)
    return pl.pallas_call(whole, x, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                          out_specs=pl.BlockSpec(memory_space=pl.ANY)).trace(x)


# name -> what is shown, and whether there is something to draw
SHOWN = {
    "schedule": (lambda: pl.record(loops.rolled, 6), True),
    "schedule_long": (lambda: pl.record(loops.rolled, 1000), True),
    "timeline": (lambda: pl.timeline(pl.record(loops.rolled, 6)), True),
    "timeline_latency": (lambda: pl.timeline(pl.record(loops.rolled, 5), FAR), True),
    "timeline_long": (lambda: matmul().timeline(TPU_V5E), True),
    "trace": (lambda: add(512), True), "trace_prefetched": (gather, True), "trace_hazard": (reduction, True),
    "trace_by_hand": (by_hand, True), "call": (untraced, False), "call_traced": (called, True),
    "nothing": (lambda: pl.record(lambda N, A, X, Y, B: None, 0), False),
}


@pytest.fixture
def outputs(monkeypatch):
    """What a notebook would get: (data, metadata) of each output."""
    found = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=True))
    monkeypatch.setattr(IPython.display, "display", lambda data, raw, metadata=None: found.append((data, metadata)))
    return found


@pytest.mark.parametrize("name", SHOWN)
def test_its_text(name, golden):
    golden(f"display_{name}", repr(SHOWN[name][0]()))


@pytest.mark.parametrize("name", ["schedule_long", "timeline", "trace_prefetched", "call", "call_traced", "nothing"])
def test_in_a_notebook_it_is_text_and_a_png_and_nothing_that_a_page_might_refuse(name, outputs):
    make, drawn = SHOWN[name]
    make()._ipython_display_()
    (words, _), *pictures = outputs
    assert list(words) == ["text/plain"] and not re.search(r" at 0x|\w+\(\w+=", words["text/plain"]), "a raw object"
    assert len(pictures) == drawn
    for data, metadata in pictures:
        assert set(data) == {"image/png", "text/plain"} and metadata["image/png"]["alt"] == data["text/plain"]
        image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
        assert metadata["image/png"]["width"] == 864 and image.width == 9 * 144
        assert np.asarray(image.convert("L")).std() > 20, "an empty picture"


def test_in_a_terminal_it_is_its_text(monkeypatch, capsys):
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace())
    add(512)._ipython_display_()
    assert capsys.readouterr().out == f"{add(512)!r}\n"


@pytest.mark.parametrize("alpha", [0, 3e-6])
def test_text_lanes_say_when_each_copy_and_step_begins(alpha):
    t = pl.timeline(pl.record(loops.rolled, 9), TOY.with_(alpha=alpha))
    rows = [row.split("  ") for row in lanes(t, None).splitlines()[1:]]
    found = {(float(row[0]), text.strip()) for row in rows for text in row[1:] if text.strip() not in ("", "·")}
    arrows = {"DMA in": "→", "DMA out": "←"}
    wanted = {(round(s.start * 1e6, 3), f"({s.label})" if s.waiting else f"step {s.step}" if s.lane == "core" else
               f"{s.label} {arrows[s.lane]} {e.operand}[{e.slot}]") for s in t.spans for e in [t.schedule[s.event]]}
    assert found == wanted


def test_a_page_without_a_kernel_keeps_text_and_picture_even_when_it_is_cleaned(outputs):
    for what in (pl.timeline(pl.record(loops.rolled, 6)), add(512), pl.show(loops.rolled, 3)):
        what._ipython_display_()
    cell = nbformat.v4.new_code_cell("what", outputs=[
        nbformat.v4.new_output("display_data", data, metadata=metadata or {}) for data, metadata in outputs])
    page, _ = HTMLExporter(sanitize_html=True).from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    body = page[page.index("<body"):]
    assert body.count('src="data:image/png;base64,') == 3
    assert "core busy 75%" in body and "add: grid 4 × 4, 16 steps" in body
    assert not re.search(r'src="http|<script[^>]*src=|&lt;img', body)


def test_a_view_is_text_and_its_listing_beside_the_timeline(outputs):
    view = pl.show(loops.one_slot, 4)
    view._ipython_display_()
    (text, _), (picture, look) = outputs
    title = "one_slot on toy: 9 µs modelled, core busy 44%"
    assert text == {"text/plain": f"{view.words}\n\n{title}"} and picture["image/png"].startswith("iVBOR")
    assert str(view) == f"{view.words}\n\n{view.timeline}"
    assert look["image/png"] == {"width": 864, "alt": f"Picture. {title}. {view.verdict.splitlines()[0]}"}


def test_a_call_that_ran_wrong_is_not_shown_with_a_tick():
    """Its schedule is free of hazards, its accumulator is not: what the run reported is what is shown from then on."""
    def total(x_ref, o_ref):
        o_ref[...] += x_ref[...]
    x = jnp.ones((4, 8, 128))
    call = pl.pallas_call(total, jax.ShapeDtypeStruct((8, 128), jnp.float32), grid=(4,),
                          in_specs=[pl.BlockSpec((None, 8, 128), lambda k: (k, 0, 0))],
                          out_specs=pl.BlockSpec((8, 128), lambda k: (0, 0)))
    before = str(call.trace(x))
    assert "✓ no hazards in the schedule (those that only values tell are reported when it runs)" in before
    with pytest.warns(pl.HazardWarning) as warned:
        call(x)
    said = warned[0].message.hazards[0]
    for words in str(call), str(call.trace(x)), pl.explore(call, x).details:
        assert str(said) in words and "✓" not in words
    assert not call.trace(x).hazards, "the schedule's own"


def test_the_picture_of_what_is_wrong_is_marked():
    trace = reduction()
    slots, lanes = (picture(what).axes[0] for what in (trace.schedule, trace.timeline(TPU_V5E)))
    assert [text.get_text() for text in slots.get_legend().get_texts()][-1] == "✗ revisit"
    assert sum("revisit" in text.get_text() for text in lanes.texts) == 1
    right = picture(add(512).schedule).axes[0]
    assert not any("✗" in text.get_text() for text in right.get_legend().get_texts())
