"""The picture of a grid: what it shows is what the schedule says."""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.display import picture
from pallas_lite.engines.record import record
from pallas_lite.plot.grid import KINDS, PAST, visits_of
from tests.unit import loops
from tests.unit.test_pipeline import operand


def trace(shape, grid, block, index_map, depth=2):
    """A copy of blocks of x, in the order of the grid."""
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
    kept = tuple(n for n in block if n)
    whole = jax.ShapeDtypeStruct((*(g * b for g, b in zip((*grid, 1, 1), kept, strict=False)),), jnp.float32)
    rank = len(kept)
    out = pl.BlockSpec(kept, lambda *ids: (*ids, *[0] * rank)[:rank])
    spec = pl.BlockSpec(block, index_map, pipeline_mode=pl.Buffered(depth))
    return pl.pallas_call(kernel, whole, grid=grid, in_specs=[spec], out_specs=out).trace(
        jax.ShapeDtypeStruct(shape, jnp.float32))


in_order = trace((32, 48), (2, 3), (16, 16), lambda i, j: (i, j))
first_row = trace((32, 48), (2, 3), (16, 16), lambda i, j: (0, j))
first_column = trace((32, 48), (2, 3), (16, 16), lambda i, j: (i, 0))
tails = trace((20, 40), (2, 3), (16, 16), lambda i, j: (i, j))


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def numbers(ax):
    """The text in each block, by the block's centre (column, row), in elements."""
    return {text.get_position(): text.get_text() for text in ax.texts}


@given(indices=st.lists(st.integers(0, 4), min_size=1, max_size=30), depth=st.integers(1, 4), is_output=st.booleans())
def test_the_blocks_of_a_schedule_are_those_that_the_steps_were_given(indices, depth, is_output):
    x = operand("x", indices, depth, is_output=is_output)
    assert record(len(indices), [x]).blocks("x") == x.blocks


def test_the_blocks_of_a_hand_written_loop_are_those_of_its_copies():
    assert pl.record(loops.rolled, 4).blocks("X") == pl.record(loops.rolled, 4).blocks("Y") == [(i,) for i in range(4)]


def test_each_block_has_the_numbers_of_its_steps():
    assert numbers(pl.plot_grid(in_order, "x")) == {
        (8, 8): "0", (24, 8): "1", (40, 8): "2", (8, 24): "3", (24, 24): "4", (40, 24): "5"}
    assert numbers(pl.plot_grid(first_row, "x")) == {(8, 8): "0, 3", (24, 8): "1, 4", (40, 8): "2, 5"}
    assert numbers(pl.plot_grid(first_column, "x")) == {(8, 8): "0–2", (8, 24): "3–5"}


@pytest.mark.parametrize("traced, kinds", [
    (in_order, ["copied once"]), (first_row, ["not visited", "copied again"]),
    (first_column, ["not visited", "kept for several steps"]), (tails, ["copied once", PAST])])
def test_the_kinds_that_there_are_have_a_name_and_a_look_of_their_own(traced, kinds):
    ax = pl.plot_grid(traced, "x")
    assert legend(ax) == kinds
    looks = {(tuple(c.get_facecolor()[0]), c.get_hatch()) for c in ax.collections if len(c.get_facecolor())}
    assert len(looks) >= len(kinds)


def test_a_step_lights_its_block_and_says_whether_it_is_copied():
    for step, said in ((3, "step 3, grid index (1, 0): x[1, 0] is copied into slot 1"),
                       (4, "step 4, grid index (1, 1): x[1, 0] is still in slot 1, so nothing is copied")):
        ax = pl.plot_grid(first_column, "x", step)
        assert ax.get_title(loc="left").replace("\n", " ") == said  # in two lines where it is long
        box = max(ax.collections, key=lambda c: max(c.get_linewidths(), default=0)).get_paths()[0].vertices
        assert (box.min(0), box.max(0)) == (pytest.approx((0, 16)), pytest.approx((16, 32)))
    assert pl.plot_grid(in_order, "o", 1).get_title(loc="left").endswith("o[0, 1] is made in slot 1")


def test_a_tail_sticks_out_of_the_frame():
    ax = pl.plot_grid(tails, "x")
    corners = [tuple(path.vertices.max(0)) for c in ax.collections for path in c.get_paths()]
    assert (48, 32) in corners and (40, 20) in corners  # the last block, and the array


def test_more_dimensions_are_sheets_and_one_is_a_row():
    stack = pl.plot_grid(trace((3, 32, 48), (3, 2, 3), (None, 16, 16), lambda p, i, j: (p, i, j)), "x")
    texts = [text.get_text() for text in stack.texts]
    assert sorted(t for t in texts if t.isdigit()) == sorted(map(str, range(18)))
    assert [t for t in texts if not t.isdigit()] == ["x[0, …]", "x[1, …]", "x[2, …]"]
    row = pl.plot_grid(trace((100,), (7,), (16,), lambda i: i), "x")
    assert sorted(numbers(row)) == [(16 * i + 8, 0.5) for i in range(7)]


def test_overlapping_blocks_are_drawn_where_they_lie():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[:8] + x_ref[1:9]
    call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((32,), jnp.float32), grid=(4,),
                          in_specs=[pl.BlockSpec((pl.Element(10, (1, 1)),), lambda i: 8 * i)],
                          out_specs=pl.BlockSpec((8,), lambda i: i))
    ax = pl.plot_grid(call.trace(jax.ShapeDtypeStruct((32,), jnp.float32)), "x")
    assert sorted(numbers(ax)) == [(8 * i + 4, 0.5) for i in range(4)]


def test_many_blocks_are_few_artists_and_no_numbers():
    big = trace((1024, 1024), (64, 64), (16, 16), lambda i, j: (i, j))
    ax = pl.plot_grid(big, "x", 77)
    assert len(ax.collections) <= 5 and not ax.patches and not ax.texts


@pytest.mark.parametrize(("inches", "said"), [
    ((6, 2), {"0, 4, 8, 12", "3, 7, 11, 15"}), ((3, 2), {"0, 4, 8, 12", "3, 7, 11,\n15"}), ((3, 0.1), set()),
    ((0.5, 2), set())])
def test_a_block_s_steps_are_all_written_or_none(inches, said):
    again = trace((4, 64), (4, 4), (4, 16), lambda i, j: (0, j))
    ax = pl.plot_grid(again, "x", ax=Figure(figsize=inches).add_axes((0, 0, 1, 1)))
    assert said <= set(numbers(ax).values()) and bool(ax.texts) == bool(said)
    assert not any("…" in text for text in numbers(ax).values())
    ax.figure.draw_without_rendering()
    boxes = ax.collections[0].get_paths()
    for text in ax.texts:
        there = text.get_window_extent().transformed(ax.transData.inverted())
        assert any(b.get_extents().x0 <= there.x0 and there.x1 <= b.get_extents().x1 for b in boxes)


def test_a_call_in_place_of_its_trace_is_told_what_to_give():
    call = pl.pallas_call(lambda x_ref, o_ref: None, jax.ShapeDtypeStruct((32,), jnp.float32))
    with pytest.raises(pl.SpecError, match=r"the trace of a call: pl.pallas_call\(…\).trace\(x\). .* type Call"):
        pl.plot_grid(call)
    with pytest.raises(pl.SpecError, match="plot_grid: say whose blocks, as x, o."):
        pl.plot_grid(trace((32, 48), (2, 3), (16, 16), lambda i, j: (i, j)))


def test_it_draws_on_the_axes_that_it_is_given():
    ax = pl.plot_grid(in_order, "x")
    ax.clear()
    assert pl.plot_grid(in_order.schedule, "x", ax=ax) is ax and len(ax.texts) == 6


@pytest.mark.parametrize("operand_name, step, says", [
    ("y", None, "there is no operand 'y' with blocks; there is x, o"), ("x", 6, "the steps are 0 to 5"),
    ("x", -1, "the steps are 0 to 5")])
def test_what_there_is_not_is_refused_in_words(operand_name, step, says):
    with pytest.raises(pl.SpecError, match=says):
        pl.plot_grid(in_order, operand_name, step)


def test_something_else_is_told_what_is_taken():
    with pytest.raises(pl.SpecError, match="takes a schedule, or the trace of a call"):
        pl.plot_grid(np.zeros(3), "x")


def test_a_step_without_the_operand_is_in_no_visit():
    assert [str(v) for v in visits_of([None, (0,), (0,), None])] == ["1–2"]


@pytest.mark.parametrize("rows, columns", [(16, 1), (1, 16), (16, 16), (1000, 1), (12, 300)])
@pytest.mark.parametrize("place", [(0.1, 0.2, 0.25, 0.65), (0.05, 0.2, 0.9, 0.65)], ids=["third", "whole"])
def test_the_numbers_along_the_edges_do_not_run_into_each_other(rows, columns, place):
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    call = pl.pallas_call(lambda x_ref, o_ref: None, jax.ShapeDtypeStruct((8 * rows, 128 * columns), jnp.float32),
                          grid=(rows, columns), in_specs=[spec], out_specs=spec)
    figure = Figure(figsize=(9, 2.85))
    ax = figure.add_axes(place)
    pl.plot_grid(call.trace(jax.ShapeDtypeStruct((8 * rows, 128 * columns), jnp.float32)), "o", None, ax)
    figure.canvas.draw()
    for axis in ax.xaxis, ax.yaxis:
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        assert boxes and not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


@pytest.mark.parametrize("scoped", [False, True], ids=["scratch", "run_scoped"])
def test_a_copy_that_nobody_waits_for_is_a_block_that_no_step_visits(scoped):
    def kernel(x_ref, o_ref, *scratch):
        def body(buf, sem):
            pltpu.make_async_copy(x_ref.at[pl.ds(8 * pl.program_id(0), 8)], buf, sem).start()
            o_ref[...] = buf[...]
        pl.run_scoped(body, *kinds) if scoped else body(*scratch)
    kinds = [pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA]
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    traced = pl.pallas_call(kernel, out, grid=2, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                            out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)), scratch_shapes=[] if scoped else kinds,
                            ).trace(jnp.ones((16, 128)))
    assert "never waited" in [h.kind for h in traced.hazards]
    assert legend(pl.plot_grid(traced, traced.schedule.operands[0].name)) == ["not visited"]
    assert len(picture(traced).axes) == len(traced.schedule.operands)


def test_very_many_blocks_are_an_image_in_the_same_colours_and_no_polygons():
    """Of 100 × 50 blocks the lower half is left out, the rows come one after another, and the first block once more."""
    many = trace((800, 400), (2501,), (8, 8), lambda i: (i % 2500 // 50, i % 50))
    ax = pl.plot_grid(many, "x", step=60)
    (image,) = ax.images
    kinds = np.array(image.get_array())
    assert kinds.shape == (100, 50) and image.get_extent() == [0, 400, 800, 0]
    assert kinds[0, 0] == 3 and (kinds[50:] == 0).all() and (np.delete(kinds[:50].ravel(), 0) == 1).all()
    assert legend(ax) == ["not visited", "copied once", "copied again", "this step"]
    assert sum(len(c.get_paths()) for c in ax.collections) == 3, "frame, hatch, the block of step 60"
    assert ax.collections[-1].get_paths()[0].get_extents().bounds == (80, 8, 8, 8)


def test_the_block_of_a_step_keeps_the_look_of_its_kind_and_stands_in_the_legend():
    again = trace((32, 32), (8,), (8, 32), lambda i: (i % 4, 0))
    ax = pl.plot_grid(again, "x", step=5)
    assert legend(ax) == ["copied again", "this step"]
    bold = next(c for c in ax.collections if max(c.get_linewidths(), default=0) == 4)
    color, hatch = KINDS["copied again"]
    assert bold.get_hatch() == hatch and to_hex(bold.get_facecolor()[0]).upper() == color.upper()
    pale, frame = ax.get_legend().get_patches()
    assert pale.get_alpha() == 0.6 and frame.get_facecolor()[3] == 0, "swatches look as the blocks do"
    assert legend(pl.plot_grid(again, "x")) == ["copied again"]
