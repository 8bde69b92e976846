"""The grid explorer without a browser: what it says of a step is what the schedule has, and the light follows."""
import html
import re

import jax
import jax.numpy as jnp
import pytest
from ipywidgets.widgets import widget

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.explorers.base import happens


def kernel(x_ref, w_ref, o_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...] @ w_ref[...]


def matmul(n=512, block=128, depth=2):
    shape, slots = jax.ShapeDtypeStruct((n, n), jnp.float32), {"pipeline_mode": pl.Buffered(depth)}
    x, w, o = (pl.BlockSpec((block, block), where, **slots) for where in (
        lambda i, j, k: (i, k), lambda i, j, k: (k, j), lambda i, j, k: (i, j)))
    return pl.pallas_call(kernel, shape, grid=(n // block,) * 3, in_specs=[x, w], out_specs=o), shape


@pytest.fixture
def explorer():
    call, shape = matmul()
    made = pl.explore(call, shape, shape)
    assert made.ui
    yield made
    made.close()


def outlined(explorer):
    """Of each group of boxes that is outlined: (left, top, width, height) of its last."""
    number = r'="([\d.]+)"'
    box = f"<rect x{number} y{number} width{number} height{number}/>"
    groups = re.findall('<g class="pallas-lite-touch now">(.*?)</g>', explorer._image.value, re.DOTALL)
    return [tuple(map(float, re.findall(box, group)[-1])) for group in groups]


def told(explorer):
    """What the mouse is told, box by box."""
    return [html.unescape(words) for words in re.findall("<title>(.*?)</title>", explorer._image.value, re.DOTALL)]


def test_a_step_names_its_place_its_events_and_what_stays(explorer):
    explorer.set(step=6)
    assert explorer.headline == "step 6 of 64 · grid index (0, 1, 2)"
    assert explorer.happens() == [explorer.schedule.describe(e) for e in explorer.schedule if e.step == 6]
    assert "copied for o[0, 1]: the block is still in its slot" in explorer.details
    assert "TPU v5e for all steps" in explorer.details
    assert explorer.headline in explorer._words.value


def test_the_light_moves_with_the_block_and_only_then(explorer):
    explorer.set(step=0)
    x0, w0, o0, run0 = outlined(explorer)
    explorer.set(step=1)
    x1, w1, o1, run1 = outlined(explorer)
    assert x1[0] > x0[0] and x1[1] == x0[1]  # along a row of x
    assert w1[1] > w0[1] and w1[0] == w0[0]  # down a column of w
    assert o1 == o0 and run1[0] > run0[0]
    assert "o[0, 0] stays" in explorer._image.value and "x[0, 1] copied" in explorer._image.value


def test_buttons_walk_and_stop_at_the_ends(explorer):
    back, forth, change = explorer.ui.children[1].children[1:]
    back.click()
    assert explorer.step == 0
    forth.click()
    assert explorer.step == explorer.controls["step"].value == 1
    explorer.set(step=63)
    forth.click()
    assert explorer.step == 63
    change.click()
    assert explorer.step == 63


def test_next_copy_skips_steps_in_which_nothing_changes():
    x = jax.ShapeDtypeStruct((256, 128), jnp.float32)
    spec = pl.BlockSpec((128, 128), lambda i, j: (i, 0))
    call = pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(2, 3), in_specs=[spec], out_specs=spec)
    explorer = pl.explore(call, x)
    explorer.ui.children[1].children[3].click()
    assert explorer.step == 3
    explorer.close()


def test_each_page_of_the_timeline_holds_its_steps(explorer):
    explorer.set(step=13)
    page = explorer._image.value
    explorer.set(step=20)
    assert len(explorer._image.value) == pytest.approx(len(page), rel=0.02)  # the same drawing, another light
    assert explorer._parts["Timeline"][0] == range(12, 24)
    explorer.set(step=30)
    assert explorer._parts["Timeline"][0] == range(24, 36)
    explorer.set(step=63)
    assert explorer._parts["Timeline"][0] == range(60, 64)


def test_the_mouse_is_told_the_lines_of_each_step_and_the_steps_of_each_block(explorer):
    explorer.set(step=13)
    words = told(explorer)
    for step in range(12, 24):
        assert "\n".join([f"step {step}", *happens(explorer.schedule, step)]) in words
    assert "w[1, 0]\nstep 1, slot 1\nstep 17, slot 1\nstep 33, slot 1\nstep 49, slot 1" in words
    assert "o[0, 1]\nsteps 4–7, slot 1" in words


def test_outlines_lie_on_their_boxes_where_the_page_and_the_whole_have_other_units():
    call, shape = matmul()
    slow = pl.hardware.TPU_V5E.with_(alpha=4e-5)  # 64 steps take 1.3 ms, the first page less than one
    explorer = pl.explore(call, shape, shape, machine=slow)
    assert explorer.ui and explorer.timeline.total > 1e-3
    first, later = [], []
    for step, found in (0, first), (11, later):
        explorer.set(step=step)
        found += outlined(explorer)[-1]
    assert 40 < first[0] < 150 and 500 < later[0] < 648  # points from the left of 648
    explorer.close()


def test_a_long_call_opens_and_moves_without_drawing_it_all():
    call, shape = matmul(2816)
    explorer = pl.explore(call, shape, shape)
    assert explorer.ui and explorer.trace.steps == 10648
    explorer.set(step=10647)
    assert len(explorer._image.value) < 300_000
    assert explorer._parts["Timeline"][0] == range(10644, 10648)
    explorer.close()


def test_still_picture_text_and_end():
    call, shape = matmul(256)
    before = set(widget._instances)
    explorer = pl.explore(call.trace(shape, shape))  # a trace will do
    picture, words = (data for data, _ in explorer.still("A still picture."))
    assert explorer.headline in words["text/html"] and picture["image/png"].startswith("iVBOR")
    assert "1. copy_in_start(" in words["text/plain"]
    first, rest = words["text/html"].partition("<ul")[::2]
    assert re.search(r"<ol class=\S+><li>copy_in_start\(", first), "a numbered line has no bullet before its number"
    assert first.endswith("</ol>") and "for all steps" in rest and not re.search(r"<li>\d+\. ", first + rest)
    explorer.close()
    assert set(widget._instances) == before


def test_the_sliders_of_the_schedule_open_on_a_call_too():
    call, shape = matmul()
    trace = call.trace(shape, shape)
    explorer = pl.explore(call, shape, shape, view="schedule")
    assert explorer.ui
    assert explorer.timeline.total == trace.timeline(pl.hardware.TPU_V5E).total
    assert explorer.timeline.step_seconds == trace.timeline(pl.hardware.TPU_V5E).step_seconds
    explorer.set(depth=3)
    deeper, _ = matmul(depth=3)
    assert list(explorer.schedule) == list(deeper.trace(shape, shape).schedule)
    assert explorer.timeline.total == deeper.trace(shape, shape).timeline(pl.hardware.TPU_V5E).total
    explorer.set(flops=explorer.first["flops"] / 2)
    assert explorer.timeline.step_seconds == pytest.approx(2 * trace.timeline(pl.hardware.TPU_V5E).step_seconds)
    assert "steps" not in explorer.controls and "slots: x 3, w 3, o 3" in explorer._notes["depth"].value
    # N·X/β counts all copies, so it is not N times what the one block beside the slider takes.
    assert "X/β" not in explorer.notes()["beta"] and "N·X/β" in explorer.details
    assert "(X: bytes that a step copies, in the latency those of the operands whose" in explorer.details
    explorer.close()


def test_a_view_that_there_is_not_is_refused():
    call, shape = matmul()
    with pytest.raises(pl.SpecError, match="give one of grid, schedule"):
        pl.explore(call, shape, shape, view="3d")


@pytest.mark.parametrize("wrong, words", [
    (lambda: pl.explore(3), "explore takes a pallas_call.*of type int"),
    (lambda: pl.explore(lambda x: x, jnp.ones(3)), "<lambda> makes no pallas_call of pallas_lite"),
    (lambda: pl.explore(*matmul(), bm=3), r"explore\(bm=…\): a finished call has no settings")])
def test_what_is_no_call_is_refused(wrong, words):
    with pytest.raises(pl.SpecError, match=words):
        wrong()


def test_a_function_that_makes_a_call_opens_as_the_call_does():
    def product(x, w, *, block=64):
        return matmul(256, block)[0](x, w)
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    for f in (product, jax.jit(product, static_argnames="block")):
        opened = pl.explore(f, shape, shape, block=128)
        assert (opened.trace.call.grid, opened.trace.operands[0].block_shape) == ((2, 2, 2), (128, 128))


def test_a_call_without_blocks_is_refused_with_what_to_do_instead():
    def copies(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)
    x = jnp.arange(8.0)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(copies, x, in_specs=[anywhere], out_specs=anywhere)
    with pytest.raises(pl.SpecError, match="print f.trace"):
        pl.explore(call, x)


def test_hazards_are_said():
    x = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    call = pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(4,), in_specs=[pl.BlockSpec((1, 128), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 128), lambda i: (i % 2, 0)))
    details = pl.explore(call, x).details
    assert "\n✗ " in details and "what the earlier visit wrote is lost" in details


@pytest.mark.parametrize("view", ["grid", "schedule", "stepper"])
def test_every_hazard_of_the_trace_is_said_in_every_view(view):
    """Two blocks are written twice, two are never visited: the second is no matter of the order of the copies."""
    x = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    call = pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(4,), in_specs=[pl.BlockSpec((1, 128), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 128), lambda i: (i % 2, 0)))
    trace, said = call.trace(x), str(pl.explore(call, x, view=view))
    assert [h.kind for h in trace.hazards] == ["revisit", "unvisited"]
    assert all(said.count(h.message) == said.count(h.mend) == 1 for h in trace.hazards)


def test_a_stepper_of_a_grid_that_leaves_blocks_out_does_not_say_that_it_is_right():
    x = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    row = pl.BlockSpec((1, 128), lambda i: (i, 0))
    said = str(pl.explore(pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(3,), in_specs=[row], out_specs=row), x,
                          view="stepper"))
    assert said.startswith("✓ only the grid is wrong · ") and "no step visits 1 of its 4 blocks" in said


def test_the_depth_of_a_view_decides_what_is_wrong_with_it():
    """Each step writes the block that the next one reads: with one slot that is fetched after it was sent."""
    x = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    call = pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(3,), in_specs=[pl.BlockSpec((1, 128), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((1, 128), lambda i: (i + 1, 0)), input_output_aliases={0: 0})
    explorer = pl.explore(call, x, view="schedule")
    assert "✗ step 0: " in explorer.details and "do not alias them" in explorer.details
    explorer.settings = explorer.settings | {"depth": 1}
    assert "✗ " not in explorer.details


def own_copies(parts):
    """A call with a grid of 2, whose kernel computes in so many parts, each after a copy of its own."""
    def kernel(x_ref, o_ref, buf, sem):
        for part in range(parts):
            copy = pltpu.make_async_copy(x_ref, buf, sem)
            copy.start()
            copy.wait()
            o_ref[...] = buf[...] + part
    x, row = jax.ShapeDtypeStruct((2, 128), jnp.float32), pl.BlockSpec((1, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, x, grid=(2,), in_specs=[row], out_specs=row, scratch_shapes=[
        pltpu.VMEM((1, 128), jnp.float32), pltpu.SemaphoreType.DMA]).trace(x)


def test_a_kernel_s_own_copies_are_counted_alike_by_its_trace_and_by_its_explorer():
    trace = own_copies(3)
    assert repr(trace).startswith("kernel: grid 2, 2 steps, cut into 6 by its own copies\n")
    assert trace.schedule.steps == 6
    words = r'"{}"\): kernel starts copies of its own \(2 steps, cut into 6 by its own copies\).*pl.show\(f.trace'
    for view in ("grid", "schedule", "stepper", "tuner"):
        with pytest.raises(pl.SpecError, match=words.format(view)):
            pl.explore(trace, view=view)


def test_a_kernel_that_computes_once_a_step_is_walked_through_with_its_own_copies():
    explorer = pl.explore(own_copies(1))
    assert explorer.headline == "step 0 of 2 · grid index 0" and "copy_in_start(x[0] → buf[0])" in explorer.details
    explorer.set(step=1)
    assert "run step 1 on buf[0], o[1]" in explorer.details
    with pytest.raises(pl.SpecError, match=r"own \(2 steps\)"):
        pl.explore(own_copies(1), view="schedule")


@pytest.mark.parametrize("shape, block, at", [
    ((1, 512), (1, 128), lambda i, j: (0, j)), ((256, 1), (64, 1), lambda i, j: (i, 0))])
def test_a_row_and_a_column_are_drawn_thinner_than_the_array_beside_them(shape, block, at):
    def add(x_ref, thin_ref, o_ref):
        o_ref[...] = x_ref[...] + thin_ref[...]
    spec = pl.BlockSpec((64, 128), lambda i, j: (i, j))
    f = pl.pallas_call(add, jax.ShapeDtypeStruct((256, 512), jnp.float32), grid=(4, 4),
                       in_specs=[spec, pl.BlockSpec(block, at)], out_specs=spec)
    figure = pl.explore(f, jnp.ones((256, 512)), jnp.ones(shape)).figure()
    figure.draw_without_rendering()
    x, thin = (ax.get_window_extent() for ax in figure.subfigs[0].axes[:2])
    assert thin.height < x.height / 3 if shape[0] == 1 else thin.width < x.width / 3


@pytest.mark.parametrize("inputs, drawn, said", [(2, 3, False), (4, 5, False), (11, 9, True)])
def test_every_operand_is_drawn_in_rows_of_three_and_the_text_says_if_not(inputs, drawn, said):
    def add(*refs):
        refs[-1][...] = sum(ref[...] for ref in refs[:-1])
    block, x = pl.BlockSpec((8, 128), lambda i: (i, 0)), jax.ShapeDtypeStruct((128, 128), jnp.float32)
    call = pl.pallas_call(add, x, grid=(16,), in_specs=[block] * inputs, out_specs=block)
    made = pl.explore(call, *[x] * inputs)
    above, below = made.figure().subfigs
    assert len(above.axes) == drawn and ("drawn: the first 9 of 12 operands" in made.details) == said
    places = [ax.get_window_extent() for ax in above.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(places) for b in places[:i])
    assert len({round(p.y1) for p in places}) == -(-drawn // 3)
    assert below.axes[0].get_xlabel().startswith("steps 0 to 11 of 16 · modelled time")
