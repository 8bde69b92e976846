"""The tuner of one's own call, without a browser: what it says of a choice is what the call's own trace has."""
import asyncio
import math

import jax
import jax.numpy as jnp
import pytest
from ipywidgets.widgets import widget

import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.explorers import choices
from pallas_lite.explorers.base import show_time
from pallas_lite.hardware import H100, TPU_V5E
from pallas_lite.plot.choices import Choice, plot_choices
from pallas_lite.traced import Traced
from tests.unit.test_tuner import kernel


def matmul(x, w, *, bm=128, bn=128, bk=128):
    (m, k), n = x.shape, w.shape[1]
    if m % bm:
        raise ValueError(f"bm = {bm} does not divide {m}")
    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((m, n), jnp.bfloat16), grid=(m // bm, n // bn, k // bk),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, t: (i, t)), pl.BlockSpec((bk, bn), lambda i, j, t: (t, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, t: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
        name="product")(
            x.astype(jnp.bfloat16), w.astype(jnp.bfloat16))


def shape(*n):
    return jax.ShapeDtypeStruct(n, jnp.float32)


X = shape(512, 512)


def traced(**blocks):
    x = jax.ShapeDtypeStruct(X.shape, jnp.bfloat16)
    with pl.observe_calls(run=False) as calls:
        jax.eval_shape(lambda *a: matmul(*a, **blocks), x, x)
    return calls[0]


@pytest.fixture
def tuner():
    made = pl.explore(matmul, X, X, view="tuner", bm=(64, 128, 256), bk=(64, 128))
    made._fill(math.inf)
    assert made.ui
    yield made
    made.close()


def test_each_choice_costs_what_its_call_is_modelled_to_cost(tuner):
    assert len(tuner._known) == 6
    for (bm, bk), choice in tuner._known.items():
        own = traced(bm=bm, bk=bk).timeline(TPU_V5E)
        assert choice.seconds == own.total
        tuner.set(bm=bm, bk=bk)
        assert f"SRAM {own.sram_bytes:,} of {TPU_V5E.sram_bytes:,} bytes" in tuner.details
        assert f"{own.hbm_bytes['total'] / 1e6:.4g} MB" in tuner.details
        assert choice.wrong or f"{own.bound}-bound" in tuner.headline


def test_no_kernel_runs_and_arrays_do_as_well_as_shapes(monkeypatch):
    monkeypatch.setattr(Traced, "run", lambda *_: pytest.fail("the kernel ran"))
    given = jnp.ones(X.shape)
    found = [pl.explore(f, x, x, view="tuner", bm=(64, 128)) for x in (X, given)
             for f in (matmul, jax.jit(matmul, static_argnames=("bm", "bn", "bk")))]
    assert all(tuner._fill(math.inf) for tuner in found)  # at first, as many as there is time for
    assert len(found[0]._known) == 2 and all(tuner._known == found[0]._known for tuner in found)


def test_a_cut_tile_is_refused_on_a_tpu_only(tuner):
    tuner.set(bk=64)
    assert tuner.headline.startswith("✗ product: the TPU compiler cannot copy the blocks (128, 64) of x")
    assert tuner.slices["bk"][64].wrong and not tuner.slices["bk"][128].wrong
    tuner.set(machine=H100.name)
    assert tuner.headline.startswith("✓")


def test_what_does_not_fit_is_refused_with_its_mend():
    tuner = pl.explore(matmul, shape(4096, 4096), shape(4096, 4096), view="tuner", bm=(512, 4096), bn=(4096,))
    tuner.settings = tuner.settings | {"bm": 4096}
    assert tuner.headline.startswith("✗ It needs ") and "over by" in tuner.headline
    assert "Use smaller blocks or fewer slots" in tuner.details


def test_a_function_may_refuse_blocks_in_its_own_words(tuner):
    odd = pl.explore(matmul, X, X, view="tuner", bm=(100, 128))
    assert odd.settings["bm"] == 128 and odd.best == {"bm": 128}
    odd.settings = odd.settings | {"bm": 100}
    assert odd.headline == "✗ matmul raised ValueError: bm = 100 does not divide 512" and math.isnan(odd._now.seconds)
    assert odd.figure().axes and "bm: 100 ✗, 128 " in str(odd)
    with pytest.raises(pl.SpecError, match="no choice has a schedule. matmul raised ValueError: bm = 100"):
        pl.explore(matmul, X, X, view="tuner", bm=(100, 200))


def test_the_best_is_the_quickest_that_is_legal(tuner):
    legal = {choice: c.seconds for choice, c in tuner._known.items() if not c.wrong}
    assert 0 < len(legal) < 6
    assert tuple(tuner.best.values()) == min(legal, key=legal.get)
    words = tuner.headline
    assert "the best: matmul(…, bm=256, bk=128)" in tuner.details
    tuner.set(**tuner.best)
    assert "the best of 6 choices" in tuner.headline and tuner.headline != words
    assert tuner.details.startswith("matmul(…, bm=256, bk=128)\ngrid (2, 4, 4), 32 steps")
    assert "the rest as it is, 256 is the quickest" in tuner._notes["bm"].value


@pytest.mark.parametrize("name, value", [("bm", 256), ("bk", 64), ("machine", "H100 SXM")])
def test_each_control_changes_words_and_picture(tuner, name, value):
    words, picture = tuner._words.value, tuner._image.value
    tuner.controls[name].value = value
    assert tuner._words.value != words and tuner._image.value != picture
    assert "<title>step 3\nrun" not in tuner._image.value and "copy_in_start(x[0, 0] → x[0])" in tuner._image.value
    assert f"<title>bm 256: {choices.said(tuner.slices['bm'][256])}</title>" in tuner._image.value


@pytest.mark.parametrize("blocks", [{"bm": 64, "bn": 64, "bk": 64}, {"bm": 32, "bn": 2048, "bk": 32},
                                    {"bm": 2048, "bn": 32, "bk": 64}])
def test_a_long_call_goes_on_at_the_pace_of_its_first_steps(blocks):
    x = shape(2048, 2048)
    call, arrays = choices.first_call(matmul, x, x, **blocks)
    whole, play = call.trace(*arrays).timeline(TPU_V5E), choices.played(call, arrays)
    parts = [(weight, pl.timeline(schedule, TPU_V5E)) for weight, schedule in play.plays]
    assert sum(t.schedule.steps for _, t in parts) < whole.schedule.steps / 1.3
    assert choices.counted(parts, lambda t: t.schedule.steps) == pytest.approx(whole.schedule.steps)
    assert choices.counted(parts, lambda t: t.total) == pytest.approx(whole.total, rel=0.01)
    assert choices.counted(parts, lambda t: t.hbm_bytes["total"]) == pytest.approx(whole.hbm_bytes["total"], rel=1e-9)


def test_a_million_steps_say_that_they_are_played_in_part():
    long = pl.explore(matmul, shape(8192, 8192), shape(8192, 8192), view="tuner", bm=(64, 128), bn=64)
    long.settings = long.settings | {"bm": 64}
    assert "1,048,576 steps, at the pace of" in long.details


def test_without_choices_they_lie_around_the_defaults():
    tuner = pl.explore(matmul, X, X, view="tuner")
    assert tuner.choices == dict.fromkeys(("bm", "bn", "bk"), (32, 64, 128, 256, 512))
    with pytest.raises(pl.SpecError, match="f has no keyword with a whole number as its default.*def matmul"):
        def f(x, *, block=None): ...
        pl.explore(f, X, view="tuner")


def maker(bm=128, bn=128):
    spec = pl.BlockSpec((bm, bn), lambda i, j: (i, j))

    def double(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]
    return pl.pallas_call(double, shape(512, 512), grid=(512 // bm, 512 // bn), in_specs=[spec], out_specs=spec)


def named(*, bm, bn=128):
    return maker(bm, bn)


@pytest.mark.parametrize("make", [maker, named, jax.jit(maker, static_argnames=("bm", "bn"))])
def test_a_function_that_only_makes_the_call_may_take_its_settings_in_any_place(make):
    tuner = pl.explore(make, shape(512, 512), view="tuner", bm=(64, 128, 256), bn=(128, 256))
    assert tuner.choices == {"bm": (64, 128, 256), "bn": (128, 256)}
    for bm, bn in (64, 128), (256, 256):
        tuner.set(bm=bm, bn=bn)
        trace = maker(bm, bn).trace(shape(512, 512))
        assert show_time(trace.timeline(TPU_V5E).total) in tuner.headline and f"{trace.steps} steps" in tuner.details
    assert pl.explore(make, shape(512, 512), bm=64).trace.call.grid == (8, 4)


def test_without_choices_a_function_that_only_makes_the_call_is_tuned_around_its_defaults():
    tuner = pl.explore(maker, shape(512, 512), view="tuner")
    assert tuner.choices == dict.fromkeys(("bm", "bn"), (32, 64, 128, 256, 512))


NOT_CALLED = r"maker makes a pallas_call and does not call it. Give its operands, .* pl.explore\(maker, x, y, …\)"


@pytest.mark.parametrize("opened, words", [
    (lambda: pl.explore(maker, view="tuner", bm=(64, 128)), NOT_CALLED),
    (lambda: pl.explore(maker, bm=64), NOT_CALLED),
    (lambda: pl.explore(named, X, X, view="tuner", bq=(1, 2)), "named has no keyword bq; it has bm, bn"),
    (lambda: pl.explore(maker, X, X, X, view="tuner", bq=(1, 2)), "maker has no keyword bq; it has bm, bn"),
    (lambda: pl.explore(maker, X, X, X, bq=1), r"maker\(bm=128, bn=128\) does not take bq. Operands"),
    (lambda: pl.explore(matmul, view="tuner", bm=(64, 128)), "does not take 0 operands with bm"),
    (lambda: pl.explore(matmul, X, X, X), "does not take 3 operands with no settings. Operands .* def matmul"),
])
def test_operands_and_settings_that_do_not_fit_the_function_are_named(opened, words):
    with pytest.raises(pl.SpecError, match=words):
        opened()


@pytest.mark.parametrize("given, words", [
    ({"bq": (1, 2)}, "matmul has no keyword bq; it has bm, bn, bk"), ({"bm": 64}, "two values or more"),
    ({"bm": tuple(range(40))}, "up to 32 values"), ({"bm": ()}, "two values or more")])
def test_what_cannot_be_chosen_is_refused(given, words):
    with pytest.raises(pl.SpecError, match=words):
        pl.explore(matmul, X, X, view="tuner", **given)


def test_a_kernel_with_copies_of_its_own_is_refused():
    def copies(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    def f(x, *, n=8):
        return pl.pallas_call(copies, X, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                              out_specs=pl.BlockSpec(memory_space=pl.ANY))(x)
    with pytest.raises(pl.SpecError, match="no choice has a schedule. copies: its copies are not all the pipeline's"):
        pl.explore(f, X, view="tuner")


# -- a finished call

def test_of_a_finished_call_depths_and_order_can_be_chosen():
    trace = traced(bm=256)
    tuner = pl.explore(trace, view="tuner")
    tuner._fill(math.inf)
    assert list(tuner.choices) == ["depth_x", "depth_w", "depth_o", "order"] and len(tuner._known) == 27 * 6
    assert tuner._now.seconds == trace.timeline(TPU_V5E).total and "def matmul(x, y, *, bm=128" in tuner.details
    tuner.settings = tuner.settings | {"depth_x": 1}
    assert tuner._now.seconds > trace.timeline(TPU_V5E).total
    tuner.settings = tuner.settings | {"depth_x": 2, "order": (2, 0, 1)}  # comes back to blocks of the output
    assert tuner.headline.startswith("✗ revisit") and "order=(2, 0, 1)" in tuner.details
    tuner.settings = tuner.settings | {"order": (1, 0, 2)}
    assert tuner.headline.startswith("✓") and tuner.trace.indices[4] == (1, 0, 0)


def test_the_blocks_of_a_finished_call_cannot_and_the_error_says_how():
    with pytest.raises(pl.SpecError, match=r"finished pallas_call.*chosen is depth_x.*def matmul\(x, y, \*, bm"):
        pl.explore(traced(), view="tuner", bm=(64, 128))


# -- how it stays quick, and what is left of it

def test_what_the_opening_leaves_is_modelled_while_the_kernel_is_idle(monkeypatch):
    monkeypatch.setattr(choices, "OPENING", 0)
    monkeypatch.setattr(choices, "MOVE", 0)

    async def kernel():
        tuner = pl.explore(matmul, X, X, view="tuner", bm=(64, 128, 256), bk=(128, 256))
        assert len(tuner._known) == 1 and "1 of 6 choices are modelled" in tuner.details
        assert tuner.headline.endswith("the best of the 1 of 6 choices modelled so far")
        assert tuner.ui and "not modelled yet" in tuner._image.value
        assert " · dashed: best of 1 modelled so far, " in tuner._image.value
        for _ in range(600):
            await asyncio.sleep(0.02)
            if len(tuner._known) == 6 and not tuner._later:
                break
        assert "not modelled yet" not in tuner._image.value and "the best" in tuner._words.value
        assert " · dashed: best, " in tuner._image.value and "so far" not in tuner._image.value + tuner.headline
        tuner.close()
    asyncio.run(kernel())


def test_of_too_many_choices_the_nearest_are_modelled(monkeypatch):
    monkeypatch.setattr(choices, "MOST", 4)
    tuner = pl.explore(matmul, X, X, view="tuner", bm=(64, 128, 256), bk=(128, 256))
    assert tuner._fill(math.inf) and len(tuner._known) == 4
    assert "4 of 6 choices are modelled: those that differ in one setting" in tuner.details


def test_still_picture_text_and_end(tuner):
    before = set(widget._instances)
    other = pl.explore(matmul, X, X, view="tuner", bm=(64, 128))
    picture, words = (data for data, _ in other.still("A still picture."))
    assert other.headline in words["text/html"] and picture["image/png"].startswith("iVBOR")
    assert words["text/plain"].startswith("matmul(…, bm=128) on TPU v5e\n✓ ")
    other.close()
    assert set(widget._instances) == before


# -- the picture

def test_the_best_is_named_where_it_covers_no_point_and_is_not_cut():
    costs = {"n": {1: Choice(2e-6), 2: Choice(1.5e-6)}, "m": {1: Choice(2e-6), 2: Choice(1.5e-6)}}
    for so_far, words in (0, "best, 1.5 µs"), (65_536, "best of 65,536 modelled so far, 1.5 µs"):
        ax = plot_choices(costs, {"n": 2, "m": 2}, best=1.5e-6, so_far=so_far)
        assert ax.get_xlabel().endswith(f" · dashed: {words}") and not any("best" in t.get_text() for t in ax.texts)
        ax.figure.draw_without_rendering()
        named = ax.xaxis.label.get_window_extent()
        assert named.y1 < ax.bbox.y0 and ax.figure.bbox.x0 < named.x0 < named.x1 < ax.figure.bbox.x1


def test_the_picture_takes_axes_and_shows_what_is_refused():
    ax = plot_choices({"n": {1: Choice(1e-6), 2: Choice(math.nan, "no"), 3: Choice(2e-6, "no"), 4: None}}, {"n": 1})
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3", "4"] and ax.get_yscale() == "linear"
    assert [t.get_text() for t in ax.texts] == ["✗", "n"]
    assert plot_choices({"n": {1: Choice(1e-6), 2: Choice(9e-6)}}, {"n": 1}, ax) is ax and ax.get_yscale() == "log"
    with pytest.raises(pl.SpecError, match="no choice has a time"):
        plot_choices({"n": {1: None}}, {"n": 1})
