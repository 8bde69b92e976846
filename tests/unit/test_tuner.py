"""The block tuner without a browser: its numbers are those of the same product in pallas_call."""
import re

import jax
import jax.numpy as jnp
import pytest
from ipywidgets.widgets import widget

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import H100, TPU_V5E
from tests.unit.drawn import boxes


def kernel(x_ref, w_ref, o_ref, acc_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)
    acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def in_pallas_call(m, n, k, bm, bn, bk, depth, dtype):
    spec = [pl.BlockSpec(block, where, pipeline_mode=pl.Buffered(depth)) for block, where in (
        ((bm, bk), lambda i, j, t: (i, t)), ((bk, bn), lambda i, j, t: (t, j)), ((bm, bn), lambda i, j, t: (i, j)))]
    call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((m, n), dtype), grid=(m // bm, n // bn, k // bk),
                          in_specs=spec[:2], out_specs=spec[2], scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)])
    return call.trace(jax.ShapeDtypeStruct((m, k), dtype), jax.ShapeDtypeStruct((k, n), dtype))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("blocks", [(128, 128, 128), (256, 128, 64), (512, 256, 512)])
def test_sram_traffic_copies_work_and_time_are_those_of_pallas_call(blocks, dtype, depth):
    tuner = pl.block_tuner(512, 256, 512, bm=blocks[0], bn=blocks[1], bk=blocks[2], depth=depth, dtype=dtype)
    theirs = in_pallas_call(512, 256, 512, *blocks, depth, dtype)
    assert tuner.schedule.sram_bytes == theirs.schedule.sram_bytes
    assert tuner.schedule.hbm_bytes == theirs.schedule.hbm_bytes
    assert list(tuner.schedule) == list(theirs.schedule)
    # The product on the matrix unit, and the additions into the accumulator on the vector unit.
    assert tuner.schedule.work == theirs.schedule.work and tuner.schedule.flops == theirs.schedule.flops
    assert tuner.timeline.total == theirs.timeline(TPU_V5E).total


@pytest.fixture
def tuner():
    made = pl.block_tuner(1024, 1024, 1024)
    assert made.ui
    yield made
    made.close()


def circles(tuner):
    return re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="6" fill="(none|#\w+)"', tuner._image.value)


@pytest.mark.parametrize("name, value", [("bm", 512), ("bn", 128), ("bk", 512), ("depth", 1), ("machine", "H100 SXM")])
def test_each_control_changes_words_and_picture(tuner, name, value):
    words, picture, note = tuner._words.value, tuner._image.value, tuner._notes[name].value
    tuner.controls[name].value = value
    assert tuner._words.value != words and tuner._image.value != picture
    assert tuner._notes[name].value != note
    assert tuner.headline in tuner._words.value


def test_larger_blocks_move_the_dot_up_and_leave_a_ring(tuner):
    (_, before, _), = circles(tuner)
    tuner.controls["bm"].value = 1024
    ring, now = circles(tuner)
    assert ring[2] == "none" and now[2] != "none" and ring[1] == before
    assert float(now[1]) < float(ring[1]) and float(now[0]) > float(ring[0])  # more operations a second, and a byte


def test_a_ring_tells_its_blocks_and_a_box_its_lines(tuner):
    tuner.controls["bm"].value = 1024
    assert "<title>before: bm 256, bn 256, bk 256, depth 2</title>" in tuner._image.value
    assert "<title>now: bm 1024, bn 256, bk 256, depth 2</title>" in tuner._image.value
    assert "step 3\nrun" not in tuner._image.value and "step 3\ncopy_in_start(x[0, 0] → x[0])" in tuner._image.value


@pytest.mark.parametrize("blocks, depth, machine", [
    ((32, 64, 32), 2, TPU_V5E), ((64, 128, 2048), 3, TPU_V5E), ((32, 32, 1024), 1, H100), ((256, 64, 32), 4, H100)])
def test_a_long_product_goes_on_at_the_pace_of_its_first_steps(blocks, depth, machine):
    bm, bn, bk = blocks
    tuner = pl.block_tuner(1024, 2048, 2048, bm=bm, bn=bn, bk=bk, depth=depth, machine=machine)
    whole = tuner.timeline
    assert sum(t.schedule.steps for _, t in tuner._plays) < 2000 or whole.schedule.steps <= 1024
    assert tuner.total == pytest.approx(whole.total, rel=0.003)
    assert tuner.intensity == pytest.approx(whole.intensity, rel=1e-9)
    assert tuner.count(lambda t: t.terms["latency"]) == pytest.approx(whole.terms["latency"], rel=1e-9)
    assert tuner._plays[-1][1].bound == whole.bound


def test_a_million_steps_are_summarised():
    tuner = pl.block_tuner(8192, 8192, 8192, bm=64, bn=64, bk=128)
    assert "1,048,576 steps, at the pace of 1,5" in tuner.details


def test_what_does_not_fit_is_said():
    tuner = pl.block_tuner(bm=2048, bn=2048, bk=1024)
    assert tuner.headline.startswith("✗") and f"{TPU_V5E.sram_bytes:,}" in tuner.headline
    assert pl.block_tuner(machine=H100).machine is H100


def test_the_bound_and_the_time_are_the_timelines(tuner):
    t = tuner.timeline
    assert f"{t.bound}-bound" in tuner.headline
    matrix = 2 * 1024**3 / TPU_V5E.matmul_flops / t.total  # without the additions, which the vector unit does
    assert matrix < t.utilisation and f"{matrix:.0%} of the matrix unit" in tuner.headline
    assert f"{t.hbm_bytes['total'] / 1e6:.4g} MB" in tuner.details


def test_still_picture_text_and_end():
    before = set(widget._instances)
    tuner = pl.block_tuner(512, 512, 512)
    picture, words = (data for data, _ in tuner.still("A still picture."))
    assert tuner.headline in words["text/html"] and picture["image/png"].startswith("iVBOR")
    assert words["text/plain"].startswith("x[512, 512] @ w[512, 512] in bfloat16, bm = 256")
    tuner.close()
    assert set(widget._instances) == before


@pytest.mark.parametrize("wrong, words", [({"m": 100}, "multiple of 32"), ({"bm": 300}, "into blocks of 32, 64"),
                                          ({"depth": 5}, "from 1 to 4"), ({"dtype": "int8"}, "bfloat16, float32")])
def test_what_cannot_be_is_refused(wrong, words):
    with pytest.raises(pl.SpecError, match=words):
        pl.block_tuner(**wrong)


def test_the_timeline_says_how_many_steps_there_are_and_has_no_blank_after_its_own():
    tuner = pl.block_tuner(bm=128, bn=128, bk=128)
    roofs, lanes = tuner.figure().axes
    assert lanes.get_xlabel().startswith("steps 0 to 9 of 4,096 · ") and "of 4,096 · " in tuner.picture()
    (low, high), core = lanes.get_xlim(), [c for c, *_ in boxes(lanes) if c[:, 1].min() < 1 < c[:, 1].max()]
    assert max(c[:, 0].max() for c in core) >= high - 0.01 * (high - low)
    assert pl.block_tuner(512, 512, 512).figure().axes[1].get_xlabel().startswith("modelled"), "all eight steps"
    # The dot has a name and, as in plot_roofline, a line up to its roof.
    assert roofs.get_title("left").startswith("dot: these blocks, now · line: up to their roof")
    t, slope = tuner.timeline, TPU_V5E.beta
    roof = min(t.schedule.flops / t.step_seconds, t.intensity * slope)
    up = roofs.collections[-1].get_segments()[0]
    assert up[1] == pytest.approx([t.intensity, roof]) and up[0][1] < roof


def test_rings_are_named_and_those_of_another_machine_are_not_on_this_roofline(tuner):
    tuner.controls["bm"].value = 512
    assert "rings: before, on this machine" in tuner._image.value and len(circles(tuner)) == 2
    tuner.controls["machine"].value = "H100 SXM"
    assert len(circles(tuner)) == 1
    tuner.controls["machine"].value = tuner.first["machine"]
    assert len(circles(tuner)) == 2, "its own are there again"
