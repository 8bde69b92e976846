"""What `show` says of a schedule beside verdict and timeline: values, and the program with its lines."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import pallas_lite as pl
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait
from pallas_lite import tpu as pltpu
from pallas_lite.hardware import H100, TOY, TPU_V5E
from pallas_lite.plot.listing import lines_of
from pallas_lite.plot.page import DARK_PAGE, INKS, svg
from tests.unit import loops


def listing(view):
    """The program of a view: rows as (line, time, text with what is wrong)."""
    return [(row.code, row.time, f"{row.text}  {row.wrong}".rstrip()) for row in lines_of(view.timeline, view.hazards)]


def blocking(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def test_each_event_stands_with_its_line_and_its_time():
    view, first = pl.show(blocking, 2, depth=1), blocking.__code__.co_firstlineno
    rows = listing(view)
    assert "\n".join(text for *_, text in rows) == view.schedule.listing()
    assert [int(line) - first for line, *_ in rows] == [2, 3, 4, 5, 6] * 2
    # A copy or a step when it starts, a wait when it is over; on the toy machine everything takes 1 µs.
    assert [time for _, time, _ in rows] == ["0", "1", "1", "2", "3", "3", "4", "4", "5", "6"]


def test_a_helper_s_events_stand_with_the_loop_s_own_line():
    def copy_in(block, slot):
        copy_in_start(block, slot)
        copy_in_wait(slot)

    def loop(N, A, X, Y, B):
        copy_in(A[0], X[0])
    assert {line for line, _ in pl.record(loop, 1).calls} == {loop.__code__.co_firstlineno + 1}


def test_the_listing_marks_what_the_verdict_names():
    view = pl.show(loops.no_wait_in, 4)
    kind, events, texts = view.hazards[0].kind, view.hazards[0].events, [text for *_, text in listing(view)]
    assert [n for n, text in enumerate(texts) if "✗" in text] == sorted(events) != []
    assert texts[events[-1]].endswith(f"✗ {kind}") and kind in view.table
    assert not any("✗" in text for *_, text in listing(pl.show(loops.rolled, 4)))


def test_a_long_listing_leaves_its_middle_out_and_keeps_what_is_marked():
    texts = [text for *_, text in listing(pl.show(loops.rolled, 50))]
    assert len(texts) == 24 + 1 and "… 226 more lines" in texts and "copy_out_wait" in texts[-1]
    texts = [text for *_, text in listing(pl.show(loops.rolled, 5))]
    assert len(texts) == 24 + 1 and "more lines" not in "".join(texts)  # one line too many: all are shown

    def wrong_once(N, A, X, Y, B):
        for i in range(N):
            copy_in_start(A[i], X[0])
            for verb in (copy_in_wait, lambda x: compute(x, Y[0]))[::-1 if i == 20 else 1]:
                verb(X[0])
            copy_out_start(Y[0], B[i])
            copy_out_wait(Y[0])
    texts = [text for *_, text in listing(pl.show(wrong_once, 40, depth=1))]
    assert "run step 20 on X[0], Y[0]  ✗ read before wait" in texts and sum("more lines" in text for text in texts) == 2


@pytest.mark.parametrize("loop, steps, said", [
    (loops.rolled, 3, "A = 10 20 30\nB = 11 21 31"),
    (loops.no_wait_in, 2, "B = nan nan if copies arrive late\nB = 11 21 if they arrive at once"),
    (loops.waits_on_slot_one, 3, "hangs"),
])
def test_values_say_what_the_moments_of_copies_can_change(loop, steps, said):
    view = pl.show(loop, steps)
    assert said in view.values and view.values in str(view)


def test_no_values_where_none_are_known_or_they_are_too_many():
    def doubled(N, A, X, Y, B):
        copy_in_start(A[0], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0], lambda x: 2 * x)
        copy_out_start(Y[0], B[0])
        copy_out_wait(Y[0])
    x = np.arange(4, dtype=np.float32)
    call = pl.pallas_call(lambda x_ref, y_ref: None, out_shape=x, grid=(2,), on_hazard="ignore",
                          in_specs=[pl.BlockSpec((2,), lambda i: i)], out_specs=pl.BlockSpec((2,), lambda i: i))
    views = pl.show(doubled, 1), pl.show(loops.rolled, 0), pl.show(loops.rolled, 9), pl.show(call.trace(x).schedule)
    assert [view.values for view in views] == [""] * 4
    assert all(time and not line for line, time, _ in listing(views[3])), "a time, and no line"


def test_a_kernel_that_compute_is_given_runs_in_place_of_execute_s():
    def two_kernels(N, A, X, Y, B):
        for i in range(N):
            copy_in_start(A[i], X[0])
            copy_in_wait(X[0])
            compute(X[0], Y[0], *[lambda x: -x] * (i % 2))
            copy_out_start(Y[0], B[i])
            copy_out_wait(Y[0])
    schedule = pl.record(two_kernels, 4)
    np.testing.assert_array_equal(pl.execute(schedule, [1, 2, 3, 4]), [2, -2, 4, -4])
    np.testing.assert_array_equal(pl.execute(schedule, [1, 2, 3, 4], lambda x: 10 * x), [10, -2, 30, -4])
    assert pl.Schedule.from_plain(schedule.to_plain()) == schedule  # functions do not travel


def test_a_drawing_has_no_ink_that_a_dark_page_cannot_change():
    text = svg(pl.plot_timeline(pl.timeline(pl.record(loops.rolled, 3))))
    assert "fill: var(--pallas-lite-ffffff, #ffffff)" in text and "stroke: var(--pallas-lite-222222, #222222)" in text
    assert "fill: var(--pallas-lite-000000, #000000)" in text.split(">")[1], "letters of no colour have the drawing's"
    bare = re.sub(r"var\(.*?\)", "", text).lower()
    assert not [ink for ink in INKS if ink.lower() in bare] and "#56b4e9" in bare, "boxes keep their colours"
    assert all(f"--pallas-lite-{ink[1:].lower()}: {dark}" in DARK_PAGE for ink, dark in INKS.items())


def test_the_listing_has_the_colours_of_its_timeline():
    view = pl.show(loops.rolled, 3)
    ax = pl.plot_listing(view.timeline)
    beside = next(other for other in ax.figure.axes if other is not ax)
    drawn = {tuple(colour) for boxes in beside.collections for colour in boxes.get_facecolor() if colour[3] == 1}
    filled, _, hollow = ax.collections
    starts = [e for e in view.schedule if not e.verb.endswith("wait")]
    assert len(filled.get_paths()) == len(starts) and {tuple(c) for c in filled.get_facecolor()} <= drawn
    # A wait has the colour of the copy that it waits for.
    rows = dict(zip([n for n, e in enumerate(view.schedule) if e.verb.endswith("wait")], hollow.get_edgecolor(),
                    strict=True))
    copies = dict(zip([n for n, e in enumerate(view.schedule) if not e.verb.endswith("wait")], filled.get_facecolor(),
                      strict=True))
    assert all(tuple(rows[n]) == tuple(copies[view.schedule.copy_of[n]]) for n in rows) and len(rows) == 6


def test_a_call_s_trace_is_shown_and_a_call_is_told_to_be_traced():
    x = jax.ShapeDtypeStruct((64,), jnp.float32)
    spec = pl.BlockSpec((16,), lambda i: (i,))
    call = pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(4,), in_specs=[spec], out_specs=spec,
                          compiler_params=pltpu.CompilerParams(vmem_limit_bytes=100))
    view, trace = pl.show(call.trace(x)), call.trace(x)
    assert view.schedule == trace.schedule and view.verdict.startswith("✓") and view.table == trace.schedule.table()
    assert view.timeline.total == trace.timeline().total and "one kernel has 100" in str(view)
    for given in ((x,), (x, x), ()):
        with pytest.raises(pl.SpecError, match=r"show takes a trace.*pl.show\(f.trace\(x, y\)\). This is of type Call"):
            pl.show(call, *given)


def test_a_listing_takes_axes_and_fits_into_them():
    ax = Figure(figsize=(4, 3), dpi=400).add_subplot()
    t = pl.show(loops.no_wait_in, 4).timeline
    assert pl.plot_listing(t, ax, hazards=pl.verify(t.schedule)) is ax and ax.figure.axes == [ax]
    ax.figure.draw_without_rendering()
    box = ax.get_window_extent()
    assert all(box.x0 - 8 <= b.x0 and b.x1 <= box.x1 + 8 for b in (text.get_window_extent() for text in ax.texts))
    with pytest.raises(pl.SpecError, match="plot_listing takes a timeline"):
        pl.plot_listing(t.schedule)


def kernel_of_its_own(wait=True):
    """Eight blocks of 4 KiB through one buffer, waited for or not; the last block of the output is left alone."""
    def kernel(x_hbm, o_hbm, buf, sem):
        @pl.loop(0, 7)
        def _(i):
            fetch = pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], buf, sem)
            fetch.start()
            if wait:
                fetch.wait()
            buf[...] *= 2
            pltpu.sync_copy(buf, o_hbm.at[pl.ds(8 * i, 8)])
        if not wait:
            for _ in range(7):
                fetch = pltpu.make_async_copy(x_hbm.at[pl.ds(0, 8)], buf, sem)
                fetch.wait()
    x, anywhere = jax.ShapeDtypeStruct((64, 128), jnp.float32), pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(kernel, x, in_specs=[anywhere], out_specs=anywhere, scratch_shapes=[
        pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA]).trace(x)


def in_blocks(size, grid):
    """A call on blocks of size × 128 floats, whose grid may leave some out and write others twice."""
    block, x = pl.BlockSpec((size, 128), lambda i: (i % 7, 0)), jax.ShapeDtypeStruct((8 * size, 128), jnp.float32)
    return pl.pallas_call(lambda x_ref, o_ref: None, x, grid=(grid,), in_specs=[block], out_specs=block).trace(x)


@pytest.mark.parametrize("trace, kinds", [
    (in_blocks(1, 7), ["unvisited"]), (in_blocks(1, 8), ["revisit", "unvisited"]), (in_blocks(8, 7), ["unvisited"]),
    (kernel_of_its_own(), ["unwritten"])])
def test_a_trace_is_shown_with_all_that_it_says_is_wrong(trace, kinds):
    view = pl.show(trace)
    assert [h.kind for h in view.hazards] == [h.kind for h in trace.hazards] == kinds
    assert view.verdict == f"✗ {trace.hazards}" and all(h.mend in str(view) for h in trace.hazards)


def test_what_a_stepped_kernel_did_wrong_is_marked_where_it_did_it():
    trace = kernel_of_its_own(wait=False)
    first = pl.show(trace).hazards[0]
    assert first.kind == "read before wait" and first.step == 0
    assert [trace.schedule.describe(trace.schedule[n]) for n in first.events] == [
        "copy_in_start(x_hbm[0] → buf[0])", "run step 0 on buf[0], buf_2[0]"]
    marked = [text for *_, text in listing(pl.show(trace)) if "✗" in text]
    assert marked[-1].startswith("run step 0") and marked[-1].endswith("✗ read before wait")
    assert pl.verify(trace.schedule) == trace.hazards


def test_a_trace_too_large_for_the_toy_is_shown_on_the_machine_of_the_explorers():
    small, large = in_blocks(1, 7), in_blocks(64, 7)
    assert pl.show(small).machine == TOY and pl.show(large).machine == TPU_V5E == pl.explore(large).machine
    assert pl.show(large, machine=H100).machine == H100 and pl.show(large, machine=TOY).machine == TOY
    assert pl.show(large.schedule).machine == TOY, "the course's pictures have one machine"
    assert "TPU v5e" in str(pl.show(large)) and not pl.show(large).timeline.hazards
    assert "give a real machine, such as pl.hardware.TPU_V5E" in str(large.timeline())
