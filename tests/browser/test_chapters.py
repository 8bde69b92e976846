"""A released chapter in JupyterLab, on a small screen: Run All goes to its end, no line of code is cut, widgets show.

In CI only the chapters with widgets that no other test opens. All eleven (some minutes):

    CHAPTERS=all python -m pytest tests/browser/test_chapters.py
"""
import json
import os
import shutil

import pytest

pytest.importorskip("selenium", reason="selenium (the `test` extra) is not installed")
from selenium.webdriver.common.by import By  # noqa: E402

from .lab import ROOT, Notebook, browser, server  # noqa: E402

pytestmark = pytest.mark.browser
WIDGETS = {"unit2/04_grid_and_blockspec": ["pl.explore("], "unit3/08_matmul": ["pl.block_tuner("]}
ALL = sorted(f"{path.parent.name}/{path.stem}" for path in (ROOT / "notebooks").glob("*/*.ipynb"))
CUT = """return [...document.querySelectorAll('.jp-CodeCell .jp-InputArea .cm-scroller')]
    .filter(x => x.scrollWidth > x.clientWidth + 1).map(x => x.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """(address of a path, its folder, driver): one JupyterLab and one browser for all chapters."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "work")
    with server(folder / "work", folder / "home", "Light") as address, browser(chromium, folder / "profile") as driver:
        driver.set_window_size(1280, 900)
        yield address, folder, driver


@pytest.mark.parametrize("chapter", ALL if os.environ.get("CHAPTERS") == "all" else WIDGETS)
def test_run_all_goes_through_an_untouched_chapter_and_all_of_it_can_be_seen(lab, chapter):
    address, folder, driver = lab
    path = f"{chapter}.ipynb"
    cells = json.loads((folder / "work" / path).read_text("utf-8"))["cells"]
    page = Notebook(driver, folder)
    page.open(address(path), sum(cell["cell_type"] == "code" for cell in cells))
    assert not page.all(".jp-Dialog, .Toastify__toast"), "nothing lies over the first page"
    page.run_all()
    assert page.errors() == []
    assert page.all(".pl-check"), "the checks' cards"
    page.wait(lambda: "done" in page.cell("progress()").get_attribute("textContent"), "what is done")
    assert driver.execute_script(CUT) == [], "lines of code that go past the margin"
    for call in WIDGETS.get(chapter, []):
        cell = page.see(page.cell(call))
        drawn = page.wait(lambda cell=cell: cell.find_elements(By.CSS_SELECTOR, ".jupyter-widgets svg[role=img]"), call)
        assert len([x for x in drawn if x.is_displayed()]) >= 1
    severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == [], "the browser's console"
