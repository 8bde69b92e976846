"""Each explorer in a real JupyterLab: each control moved by key or button, its picture changed, nothing raised."""
import os
import shutil
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("selenium", reason="selenium (the `test` extra) is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from .lab import Notebook, browser, server  # noqa: E402

pytestmark = pytest.mark.browser

CELLS = {
    "schedule": "pl.schedule_explorer(steps=16, depth=2, alpha=3e-6)",
    "stepper": "pl.derivation_stepper(4)",
    "grid": "pl.explore(add, x, y)",
    "tuner": "pl.block_tuner(1024, 1024, 1024)",
}
SETUP = """import jax.numpy as jnp
import pallas_lite as pl
def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]
x = y = jnp.ones((512, 512))
spec = pl.BlockSpec((128, 128), lambda i, j: (i, j))
row = pl.BlockSpec((128, 128), lambda i, j: (0, j))
add = pl.pallas_call(add_kernel, x, grid=(4, 4), in_specs=[spec, row], out_specs=spec)"""
SLIDERS = {"schedule": 5, "stepper": 3, "grid": 1, "tuner": 4}  # handles that an arrow key moves
BUTTONS = {"stepper": ["▼ later", "↶ undo", "▼▼ latest", "a better move", "▲ earlier", "▲▲ earliest", "Reset"],
           "grid": ["next ▶", "◀ back", "next copy ▶▶", "Reset"], "schedule": ["Reset"], "tuner": ["Reset"]}


@pytest.fixture(params=["Light"])  # chapter 3 is opened in both themes
def page(request, chromium, tmp_path):
    """A notebook with all explorers, run. SCREENSHOTS=folder keeps what was seen."""
    work = tmp_path / "work"
    work.mkdir()
    cells = [nbformat.v4.new_code_cell(text) for text in (SETUP, *CELLS.values())]
    kernel = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), work / "explorers.ipynb")
    shots = Path(os.environ.get("SCREENSHOTS") or tmp_path / "shots") / f"explorers-{request.param.lower()}"
    shutil.rmtree(shots, ignore_errors=True)
    shots.mkdir(parents=True)
    with server(work, tmp_path / "home", request.param) as address, browser(chromium, tmp_path / "profile") as driver:
        notebook = Notebook(driver, shots)
        notebook.open(address("explorers.ipynb"), len(cells))
        notebook.run_all()
        yield notebook
        notebook.shot("last")


def test_each_control_of_each_explorer_changes_its_picture(page):
    assert page.errors() == []
    for name, text in CELLS.items():
        cell = page.see(page.cell(text))
        page.wait(lambda cell=cell: drawing(cell), f"the picture of the {name} explorer")
        page.see(cell.find_element(By.CSS_SELECTOR, ".jupyter-widgets svg[role=img]"))
        page.shot(f"{name}-1")
        assert len(handles(cell)) == SLIDERS[name]
        for number in range(SLIDERS[name]):
            before = drawing(cell)
            page.driver.execute_script("arguments[0].focus()", handles(cell)[number])
            page.keys(Keys.ARROW_RIGHT)
            page.wait(lambda cell=cell, before=before: drawing(cell) != before, f"slider {number} of {name} to redraw")
        if name == "stepper":
            choose(page, cell, "copy_out_wait(Y[0])")
        for label in BUTTONS[name]:
            before = words(cell), drawing(cell)
            button(page, cell, label).click()
            if not (name == "grid" and label == "next copy ▶▶"):
                page.wait(lambda cell=cell, before=before: (words(cell), drawing(cell)) != before, f"{label} of {name}")
        page.shot(f"{name}-2")
    assert page.errors() == []
    serious = [entry["message"] for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in serious if "favicon" not in message] == []


def handles(cell):
    return cell.find_elements(By.CSS_SELECTOR, ".noUi-handle")


def drawing(cell) -> str:
    found = cell.find_elements(By.CSS_SELECTOR, ".jupyter-widgets svg[role=img]")
    return found[0].get_attribute("outerHTML") if found else ""


def words(cell) -> str:
    return cell.find_element(By.CSS_SELECTOR, "[role=status]").text


def button(page, cell, label):
    found = next(b for b in cell.find_elements(By.TAG_NAME, "button") if b.text.strip() == label)
    return page.see(found)


def choose(page, cell, line: str) -> None:
    """Chooses the first such line of the stepper's list."""
    option = next(o for o in cell.find_elements(By.TAG_NAME, "option") if o.text.strip() == line)
    before = drawing(cell)
    page.see(option).click()
    page.wait(lambda: drawing(cell) != before, "the chosen line to be pointed at")
