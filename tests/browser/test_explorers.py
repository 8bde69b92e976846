"""Each explorer in a real JupyterLab, by keyboard alone: each control moved, its picture changed, nothing raised."""
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="selenium (the `test` extra) is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from .lab import Notebook, browser, server, write_notebook  # noqa: E402

pytestmark = pytest.mark.browser

SETUP = """import jax, jax.numpy as jnp
import pallas_lite as pl
def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]
x = y = jnp.ones((512, 512))
spec = pl.BlockSpec((128, 128), lambda i, j: (i, j))
row = pl.BlockSpec((128, 128), lambda i, j: (0, j))
add = pl.pallas_call(add_kernel, x, grid=(4, 4), in_specs=[spec, row], out_specs=spec)
few = pl.pallas_call(add_kernel, x[:, :128], grid=(4,), in_specs=[pl.BlockSpec((128, 128), lambda i: (i, 0))] * 2,
                     out_specs=pl.BlockSpec((128, 128), lambda i: (i, 0)))
def product_kernel(x_ref, y_ref, o_ref):
    @pl.when(pl.program_id(1) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[...] += x_ref[...] @ y_ref[...]
def product(x, y, *, bm=128, bk=128):
    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(product_kernel, jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, k // bk),
                          in_specs=[pl.BlockSpec((bm, bk), lambda i, t: (i, t)),
                                    pl.BlockSpec((bk, n), lambda i, t: (t, 0))],
                          out_specs=pl.BlockSpec((bm, n), lambda i, t: (i, 0)))(x, y)"""
CELLS = {
    "schedule": "pl.schedule_explorer(steps=16, depth=2, alpha=3e-6)",
    "stepper": "pl.derivation_stepper(4)",
    "grid": "pl.explore(add, x, y)",
    "tuner": "pl.block_tuner(1024, 1024, 1024)",
    "schedule-of-a-call": 'pl.explore(add, x, y, view="schedule")',
    "tuner-of-a-call": 'pl.explore(product, x, y, view="tuner", bm=(64, 128, 256), bk=(128, 256, 512))',
    "tuner-of-a-finished-call": 'pl.explore(few, x[:, :128], y[:, :128], view="tuner")',
    "stepper-of-a-call": 'pl.explore(few, x[:, :128], y[:, :128], view="stepper")',
}
MOVES = ["Reset", "▲ earlier", "▼ later", "▲▲ earliest", "▼▼ latest", "↶ undo", "a better move"]
# What Tab comes by: sliders, lists and check boxes ("slider", "list", "check"), and buttons by their words.
CONTROLS = {
    "schedule": ["slider"] * 6 + ["Reset", "check"],
    "stepper": ["slider"] * 3 + ["list", *MOVES],
    "grid": ["slider", "Reset", "◀ back", "next ▶", "next copy ▶▶"],
    "tuner": ["slider"] * 5 + ["Reset"],
    "schedule-of-a-call": ["slider"] * 5 + ["Reset", "check"],
    "tuner-of-a-call": ["slider"] * 3 + ["Reset", "go to the best ▶"],
    "tuner-of-a-finished-call": ["slider"] * 4 + ["Reset", "go to the best ▶"],
    "stepper-of-a-call": ["slider"] * 2 + ["list", *MOVES],
}
STILL = {"◀ back", "check", "go to the best ▶"}  # may change nothing: at the first step, at the same scale, there
FOCUSED = """const at = document.activeElement, cell = arguments[0];
if (!cell.contains(at)) return null;
if (at.classList.contains('noUi-handle')) return 'slider';
if (at.tagName == 'SELECT') return 'list';
if (at.tagName == 'INPUT' && at.type == 'checkbox') return 'check';
return at.tagName == 'BUTTON' ? at.textContent.trim() : '';"""


@pytest.fixture
def page(chromium, tmp_path):
    """A notebook with all explorers, run. SCREENSHOTS=folder keeps what was seen."""
    work = tmp_path / "work"
    work.mkdir()
    cells = write_notebook(work / "explorers.ipynb", [SETUP, *CELLS.values()])
    shots = Path(os.environ.get("SCREENSHOTS") or tmp_path / "shots") / "explorers"
    shutil.rmtree(shots, ignore_errors=True)
    shots.mkdir(parents=True)
    home = tmp_path / "home"
    with server(work, home, "Light") as address, browser(chromium, tmp_path / "profile") as driver:
        notebook = Notebook(driver, shots)
        notebook.open(address("explorers.ipynb"), cells)
        notebook.run_all()
        yield notebook
        notebook.shot("last")
    log = (home / "server.log").read_text(errors="replace")
    assert "Traceback" not in log and "IPKernelApp] ERROR" not in log, "the kernel's and the server's log"


def test_each_control_of_each_explorer_works_by_keyboard_alone(page):
    assert page.errors() == []
    for name, text in CELLS.items():
        cell = shown(page, text)
        page.shot(f"{name}-1")
        page.driver.execute_script("arguments[0].querySelector('.noUi-handle').focus()", cell)
        found = []
        while (kind := page.driver.execute_script(FOCUSED, cell)) is not None:
            if kind:
                found.append(kind)
            if kind and kind != "list":  # a slider moves the stepper's: see there
                work(page, cell, name, kind)
            page.keys(Keys.TAB)
        assert found == CONTROLS[name]
        page.shot(f"{name}-2")
    hover(page)
    rerun(page)
    dark(page)
    assert page.errors() == []
    serious = [entry["message"] for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in serious if "favicon" not in message] == []


def work(page, cell, name, kind):
    """Use the control that has the focus, and see the page change."""
    before = seen(cell)
    page.keys({"slider": Keys.ARROW_RIGHT, "check": Keys.SPACE}.get(kind, Keys.ENTER))
    if kind not in STILL:
        page.wait(lambda: seen(cell) != before, f"{kind} of {name} to change the page")
    if kind == "slider":
        page.wait(lambda: drawing(cell) != before[0], f"{kind} of {name} to change the picture, not only the words")


def hover(page):
    """The mouse on a box outlines it, and the chosen step stays outlined."""
    cell = shown(page, CELLS["schedule"])
    steps = cell.find_elements(By.CSS_SELECTOR, ".pallas-lite-touch:not(.now)")
    sixth = next(x for x in steps if x.get_attribute("textContent").startswith("step 6\n"))
    assert "copy_in_start(A[7] → X[1])" in sixth.get_attribute("textContent")
    boxes = sixth.find_elements(By.TAG_NAME, "rect")
    assert [box.value_of_css_property("stroke") for box in boxes] == ["none"] * 3  # a copy in, the run, a copy out
    page.rest_on(boxes[1])
    page.wait(lambda: {box.value_of_css_property("stroke") for box in boxes} == {"rgb(34, 34, 34)"}, "the outline")
    page.shot("schedule-hover")
    for frames, ink in (".now > rect", "rgb(34, 34, 34)"), (".now > .under rect", "rgb(255, 255, 255)"):
        chosen = cell.find_elements(By.CSS_SELECTOR, f".pallas-lite-touch{frames}")
        assert {box.value_of_css_property("stroke") for box in chosen} == {ink}


def rerun(page):
    """A cell run again goes on where its explorer stood."""
    cell = shown(page, CELLS["grid"])
    page.driver.execute_script("arguments[0].querySelector('.noUi-handle').focus()", cell)
    before = seen(cell)
    page.keys(Keys.ARROW_RIGHT)
    page.wait(lambda: seen(cell) != before, "the next step")
    words, old = seen(cell)[1], cell.find_element(By.CSS_SELECTOR, ".noUi-handle")
    page.see(cell.find_element(By.CSS_SELECTOR, ".cm-content")).click()
    page.run_here()
    page.idle()
    cell = shown(page, CELLS["grid"])
    fresh = page.wait(lambda: cell.find_elements(By.CSS_SELECTOR, ".noUi-handle"), "the widget")
    assert len(fresh) == 1 and fresh[0] != old
    assert seen(cell)[1] == words and not words.startswith("step 0 ")


def dark(page):
    """In the dark theme the pictures have light ink on the page's own colour, and words take the theme's colour."""
    page.theme("JupyterLab Dark")
    for name, text in CELLS.items():
        cell = shown(page, text)
        paper, *_ = cell.find_elements(By.CSS_SELECTOR, ".jupyter-widgets svg[role=img] path")
        assert paper.value_of_css_property("fill") == "rgb(17, 17, 17)"
        axis = cell.find_element(By.XPATH, ".//*[name()='svg']//*[name()='text'][contains(., 'modelled time')]")
        assert axis.value_of_css_property("fill") == "rgb(238, 238, 238)"
        said = cell.find_element(By.CSS_SELECTOR, "[role=status]").value_of_css_property("color")
        assert min(int(x) for x in said.strip("rgba()").split(",")[:3]) > 180, said
        page.shot(f"{name}-dark")


def shown(page, text):
    """The cell, in view, with its picture."""
    cell = page.see(page.cell(text))
    page.wait(lambda: drawing(cell), f"the picture of {text}")
    return page.see(cell)


def drawing(cell) -> str:
    return "".join(x.get_attribute("outerHTML") for x in cell.find_elements(By.CSS_SELECTOR, ".jupyter-widgets svg"))


def seen(cell) -> tuple[str, str, str]:
    """Picture, headline, and all words."""
    status = cell.find_elements(By.CSS_SELECTOR, "[role=status]")
    return drawing(cell), status[0].text if status else "", cell.text
