"""The schedule explorer without a browser: what a slider changes, what is left where no widget can be shown."""
import builtins
import gc
import html
import re
import subprocess
import sys

import jax
import nbformat
import pytest
from ipywidgets.widgets import widget
from matplotlib.figure import Figure
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import pallas_lite as pl
from pallas_lite.explorers import base


@pytest.fixture
def explorer():
    made = pl.schedule_explorer(8, 2)
    assert made.ui
    yield made
    made.close()


@pytest.mark.parametrize("name, value", [("steps", 5), ("depth", 1), ("alpha", 2.0), ("beta", 5e8), ("flops", 5e8),
                                         ("step", 3)])
def test_each_slider_changes_picture_and_words(explorer, name, value):
    picture, words = explorer._image.value, explorer._words.value
    explorer.controls[name].value = value
    assert explorer._image.value != picture
    assert explorer._words.value != words or name == "step"
    assert explorer.headline in explorer._words.value


def test_the_step_looked_at_is_outlined_and_its_lines_told(explorer):
    explorer.controls["step"].value = 5
    lines = ["copy_in_start(A[6] → X[0])", "copy_in_wait(X[1])", "run step 5 on X[1], Y[1]",
             "copy_out_start(Y[1] → B[5])", "copy_out_wait(Y[0])"]
    assert f"step 5: {' · '.join(lines)}" in explorer.details
    chosen = '<g class="pallas-lite-touch now"><title>' + html.escape("\n".join(["step 5", *lines])) + "</title>"
    assert chosen in explorer._image.value
    assert chosen.replace(" now", "") in explorer._image.value, "the mouse is told the same"
    explorer.controls["steps"].value = 2
    assert explorer.step == 1


def test_boxes_side_by_side_have_one_frame_with_paper_around_it():
    many = pl.schedule_explorer(64, 8, alpha=8e-6)  # step 0 starts eight copies: a frame around each would hide them
    assert many.ui
    chosen = many._image.value.rpartition('"pallas-lite-touch now"')[2]
    assert chosen.count("copy_in_start") == 8
    under, frames = chosen.partition('<g class="under">')[2].split("</g>")[:2]
    assert under == frames and under.count("<rect ") == 3, "copies in, the run, a copy out"
    many.close()


def test_of_a_long_pipeline_64_steps_are_drawn():
    long = pl.schedule_explorer(10_000, 2)
    assert long.ui and long.headline == "10 ms modelled · core busy 100% · compute-bound"
    assert len(long._image.value) < 150_000 and "step 63\n" in long._image.value
    assert "steps 0 to 63 of 10,000 are drawn" in long._notes["step"].value
    long.set(step=9_999)
    assert "step 9999\n" in long._image.value and "step 63\n" not in long._image.value
    long.close()


def test_twelve_explorers_open_and_moved_do_not_leak():
    def kept():
        gc.collect()
        return sum(isinstance(x, Figure) for x in gc.get_objects()), len(widget._instances)

    shape = jax.ShapeDtypeStruct((8, 128), jax.numpy.float32)
    spec = pl.BlockSpec((1, 128), lambda i: (i, 0))
    call = pl.pallas_call(lambda x_ref, o_ref: None, shape, grid=(8,), in_specs=[spec], out_specs=spec)
    before = kept()
    kinds = ((pl.schedule_explorer, {"depth": 3}), (pl.derivation_stepper, {"line": 7}),
             (lambda: pl.block_tuner(256, 256, 256), {"bm": 64}), (lambda: pl.explore(call, shape), {"step": 5}),
             (lambda: pl.explore(call, shape, view="schedule"), {"alpha": 2e-6}),
             (lambda: pl.explore(call, shape, view="tuner"), {"depth_x": 1}))
    twelve = [(make(), move) for make, move in kinds for _ in range(2)]
    seen = []
    for _ in range(2):
        for explorer, move in twelve:
            assert explorer.ui
            explorer.set(**move)
            explorer.set(**explorer.first)
        seen.append(kept())
    assert seen[0] == seen[1]
    for explorer, _ in twelve:
        explorer.close()
    del twelve, explorer
    assert kept() == before


def test_the_numbers_are_those_of_the_timeline_of_the_one_pipeline(explorer):
    # N·max(X/β, Y/F) + one fill + one drain, which the toy machine's two ports overlap.
    assert explorer.timeline.total == pytest.approx(10e-6)
    explorer.controls["depth"].value = 1
    assert explorer.timeline.total == pytest.approx(24e-6)
    assert explorer.headline == "24 µs modelled · core busy 33% · latency-bound"
    assert "fill 1 µs · drain 1 µs · SRAM 2,000 of 16,000 bytes" in explorer.details


def test_sram_that_does_not_fit_is_said():
    tight = pl.schedule_explorer(8, 3, machine=pl.hardware.TOY.with_(sram_bytes=5000))
    assert "SRAM 6,000 of 5,000 bytes ✗ does not fit" in tight.details


def test_a_held_time_axis_keeps_its_end(explorer):
    ends = []
    for hold in (False, True):
        explorer._hold.value = hold
        explorer.controls["depth"].value = 1 if not hold else 2
        ends.append(next(iter(explorer._figures.values())).axes[0].get_xlim()[1])
    assert ends[0] == ends[1] > 24


def test_reset_goes_back_to_the_cell_with_one_redraw(explorer, monkeypatch):
    explorer.set(steps=3, depth=3, alpha=1e-6)
    drawn = []
    monkeypatch.setattr(explorer, "picture", lambda: drawn.append(1) or "")
    explorer.set(**explorer.first)
    assert explorer.settings == pytest.approx(explorer.first)
    assert len(drawn) == 1


def test_figures_do_not_accumulate(explorer):
    def figures():
        gc.collect()
        return sum(isinstance(x, Figure) for x in gc.get_objects())
    shown = sys.modules["matplotlib.pyplot"].get_fignums() if "matplotlib.pyplot" in sys.modules else []
    explorer.controls["depth"].value = 3
    before = figures()
    for steps in range(1, 21):
        explorer.controls["steps"].value = steps
    assert figures() == before
    assert "matplotlib.pyplot" not in sys.modules or sys.modules["matplotlib.pyplot"].get_fignums() == shown


def test_a_closed_explorer_leaves_no_widget_behind():
    before = set(widget._instances)
    made = pl.schedule_explorer()
    assert len(made.ui.children) > 5
    made.close()
    assert set(widget._instances) == before


def test_a_cell_that_runs_again_keeps_the_sliders_and_closes_the_old_widget(monkeypatch):
    runs = iter("aabbc")
    monkeypatch.setattr(base, "_cell", lambda: ("cell", next(runs)))
    first, twin = pl.schedule_explorer(8), pl.schedule_explorer(6)
    first.set(depth=4)
    again, other = pl.schedule_explorer(8), pl.schedule_explorer(5)  # the same cell, edited in its second line
    assert again.settings == first.settings
    assert other.settings == other.first
    assert "ui" not in first.__dict__ and "ui" not in twin.__dict__
    assert pl.schedule_explorer(8).settings["depth"] == 4


@pytest.fixture
def outputs(monkeypatch):
    """What a cell puts out: nbformat's own outputs."""
    made = []
    monkeypatch.setattr(base, "_shell", lambda: True)
    monkeypatch.setattr(base, "_cell", lambda: (None, None))
    monkeypatch.setattr("IPython.display.display", lambda data, raw, metadata=None: made.append(
        nbformat.v4.new_output("display_data", data, metadata=metadata or {})))
    return made


def test_a_cell_has_the_widget_then_a_picture_then_words(explorer, outputs):
    explorer._ipython_display_()
    widget, picture, words = (output["data"] for output in outputs)
    assert widget[base.WIDGET]["model_id"] == explorer.ui.model_id and not widget["text/plain"] + widget["text/html"]
    assert list(picture) == ["image/png", "text/plain"] and picture["image/png"].startswith("iVBOR")
    assert picture["text/plain"] == outputs[1]["metadata"]["image/png"]["alt"] == f"{explorer.what} {explorer.headline}"
    assert list(words) == ["text/html", "text/plain"] and explorer.headline in words["text/html"]
    assert words["text/plain"].startswith("N = 8 steps, depth 2, α = 0 µs, β = 1 GB/s, F = 1 Gop/s")
    assert "run this cell in JupyterLab to move the sliders" in words["text/plain"]
    nbformat.validate(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=outputs)]))


# What a front end takes of an output, by its own list: pages (nbconvert's, so nbviewer's; JupyterLab without a kernel),
# print by LaTeX, a terminal. Those that clean pages keep image/png, text, and the tags b, i, ul, ol, li.
FRONT_ENDS = {"pages": ["text/html", "image/svg+xml", "image/png", "text/plain"], "LaTeX": ["image/png", "text/plain"],
              "terminal": ["text/plain"]}


@pytest.mark.parametrize("make", [pl.schedule_explorer, pl.derivation_stepper, pl.block_tuner])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_every_front_end_finds_a_sentence_and_a_picture_if_it_can_show_one(make, front_end, outputs):
    made = make()
    made._ipython_display_()
    taken = [next(kind for kind in FRONT_ENDS[front_end] if kind in output["data"]) for output in outputs]
    shown = "".join(output["data"][kind] for output, kind in zip(outputs, taken, strict=True))
    assert "run this cell in JupyterLab to" in shown and html.escape(made.headline) in shown
    assert ("image/png" in taken) == (front_end != "terminal")
    assert "VBox(" not in shown and type(made).__name__ not in shown
    made.close()


def test_the_live_widget_hides_the_still_by_what_only_it_has(explorer, outputs):
    explorer._ipython_display_()
    first = re.search(r'img\[src\^="data:image/png;base64,(.*?)"', explorer._hide.value)[1]
    assert outputs[1]["data"]["image/png"].startswith(first)
    assert f".pallas-lite-{explorer.ui.model_id}," in explorer._hide.value
    other = pl.schedule_explorer(8, 2)
    assert other.ui and not other.still("")[0][0]["image/png"].startswith(first)
    other.close()


def test_only_core_widgets_are_used_so_nothing_is_fetched(explorer):
    kinds, todo = set(), [explorer.ui]
    while todo:
        at = todo.pop()
        kinds.add(at._model_module)
        todo += getattr(at, "children", ())
    assert kinds == {"@jupyter-widgets/controls"}, "those that JupyterLab, Colab and VS Code have built in"


def test_importing_the_package_does_not_load_the_widgets():
    code = "import sys, pallas_lite; sys.exit('ipywidgets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_importing_the_package_does_not_load_the_programs_for_accelerators():
    code = "import sys, pallas_lite; sys.exit('pallas_lite.lowering' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_in_a_terminal_it_is_text(capsys):
    pl.schedule_explorer(3)._ipython_display_()
    out = capsys.readouterr().out
    assert "5 µs modelled" in out and "copy_in start" in out


def test_without_ipywidgets_there_is_a_picture_and_the_way_to_install(monkeypatch, outputs):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name == "ipywidgets":
            raise ImportError(name)
        return real(name, *rest, **more)
    monkeypatch.setattr(builtins, "__import__", missing)
    pl.schedule_explorer()._ipython_display_()
    assert not any(base.WIDGET in output["data"] for output in outputs) and "image/png" in outputs[0]["data"]
    assert all("pip install ipywidgets" in outputs[1]["data"][kind] for kind in ("text/html", "text/plain"))


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"depth": 9}, {"steps": 2.5}, {"beta": 0.0}, {"alpha": -1e-6},
                                   {"block_bytes": 0}, {"step_flops": -1}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(pl.SpecError, match="schedule_explorer|no machine has"):
        pl.schedule_explorer(**wrong)


@pytest.fixture(scope="module")
def executed():
    """A notebook with an explorer, and a view, as their cells' last lines, run in a kernel."""
    cells = map(nbformat.v4.new_code_cell, ["import pallas_lite as pl\npl.schedule_explorer(8, 2)", """
def loop(N, A, X, Y, B):
    pl.copy_in_start(A[0], X[0])
pl.show(loop, 1)"""])
    return NotebookClient(nbformat.v4.new_notebook(cells=list(cells)), timeout=120).execute()


@pytest.mark.classroom
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("state", ["absent", "present"])
def test_a_page_without_a_kernel_shows_pictures_and_sentences(executed, state, clean):
    notebook = executed.copy()
    nbformat.validate(notebook)
    assert notebook.metadata.widgets, "nbclient stores the state of widgets"
    if state == "absent":
        notebook.metadata = {k: v for k, v in notebook.metadata.items() if k != "widgets"}
    page, _ = HTMLExporter(sanitize_html=clean).from_notebook_node(notebook)
    body = page[page.index("<main"):] if "<main" in page else page[page.index("<body"):]
    # Pictures that need no network: with the state present, the widget's script may find none.
    assert body.count('src="data:image/png;base64,') == 2
    assert "run this cell in JupyterLab to move the sliders" in body and "✗ step 0: the copy_in of A[0]" in body
    assert not re.search("VBox\\(|ScheduleExplorer|View\\(|&lt;(div|img|style|pre|b|ul|i)\\b", body)
    view = f'"{executed.cells[0].outputs[0].data[base.WIDGET]["model_id"]}"'
    assert (view in body) == (state == "present")
