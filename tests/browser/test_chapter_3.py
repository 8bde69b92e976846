"""Chapter 3 as a learner meets it: run all, move a slider by keyboard, solve an exercise, see it turn green."""
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="selenium (the `test` extra) is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from .lab import ROOT, Notebook, browser, server  # noqa: E402

pytestmark = pytest.mark.browser
CHAPTER = "unit1/03_double_buffer.ipynb"
GREEN, RED, GREY = [46, 158, 91], [214, 69, 69], [138, 138, 138]


# Dark is for those who change the stepper: in CI the explorers' own test goes through both themes.
@pytest.fixture(params=["Light"] if os.environ.get("CI") else ["Light", "Dark"])
def chapter(request, chromium, tmp_path):
    """Chapter 3, open in a working copy as `make lab` makes it. SCREENSHOTS=folder keeps what was seen."""
    work = tmp_path / "work"
    if (ROOT / "notebooks" / CHAPTER).exists():
        shutil.copytree(ROOT / "notebooks", work)
    else:
        from autograder.course.build import build
        build(ROOT, out=work)
    shots = Path(os.environ.get("SCREENSHOTS") or tmp_path / "shots") / request.param.lower()
    shots.mkdir(parents=True, exist_ok=True)
    home = tmp_path / "home"
    with server(work, home, request.param) as address, browser(chromium, tmp_path / "profile") as driver:
        notebook = Notebook(driver, shots)
        cells = json.loads((work / CHAPTER).read_text("utf-8"))["cells"]
        notebook.open(address(CHAPTER), sum(cell["cell_type"] == "code" for cell in cells))
        notebook.shot("1-opened")
        yield notebook
        notebook.shot("last")


def test_a_learner_runs_it_moves_a_slider_and_solves_an_exercise(chapter):
    assert not chapter.all(".jp-Dialog, .Toastify__toast"), "nothing lies over the first page"
    chapter.run_all()
    assert chapter.errors() == []
    chapter.shot("2-has-run")

    # The explorer, by keyboard alone.
    cell = chapter.see(chapter.cell("schedule_explorer("))
    output = chapter.wait(lambda: cell.find_elements(By.CSS_SELECTOR, ".jupyter-widgets svg[role=img]"), "the explorer")
    assert len([x for x in output if x.is_displayed()]) == 1
    still = cell.find_elements(By.CSS_SELECTOR, "b[class^=pallas-lite-], .jp-RenderedImage img")
    assert len(still) == 2 and not any(x.is_displayed() for x in still), "picture and sentence are there, and hidden"
    chapter.see(output[0])
    before = picture(cell)
    chapter.shot("3-explorer")
    sliders = cell.find_elements(By.CSS_SELECTOR, ".noUi-handle")
    assert len(sliders) == 6
    chapter.driver.execute_script("arguments[0].focus()", sliders[1])
    started = time.monotonic()
    chapter.keys(Keys.ARROW_RIGHT)
    chapter.wait(lambda: picture(cell)[0] != before[0], "another picture")
    print(f"from key to picture: {1e3 * (time.monotonic() - started):.0f} ms, with the test's own looking")
    after = picture(cell)
    assert before[1] != after[1], "and it looks different"
    chapter.shot("4-explorer-moved")

    # An exercise: typed over its hole, run, checked.
    card = '.pl-check[data-exercise="3.1"]'
    assert card_of(chapter, card) == ("not done", GREY)
    answer = chapter.cell("def blocking_time")
    chapter.replace_last_line(answer, "return n * copy")
    chapter.run_here()
    chapter.run_here()
    chapter.wait(lambda: card_of(chapter, card) == ("wrong", RED), "a wrong answer's card")
    chapter.see(chapter.one(card))
    chapter.shot("5-wrong")
    chapter.replace_last_line(answer, "return n * (copy + kernel + copy)")
    chapter.run_here()
    chapter.run_here()
    chapter.wait(lambda: card_of(chapter, card) == ("right", GREEN), "a green card")
    assert "✓ Exercise 3.1" in chapter.one(card).text
    chapter.see(chapter.one(card))
    chapter.shot("6-right")
    assert chapter.errors() == []

    # Tomorrow the widget is gone, and its still picture is there.
    chapter.open_tomorrow()
    cell = chapter.cell("schedule_explorer(")
    still = chapter.wait(lambda: cell.find_elements(By.CSS_SELECTOR, ".jp-RenderedImage img"), "still picture")
    chapter.see(still[0])
    chapter.shot("7-tomorrow")
    assert still[0].is_displayed() and still[0].get_property("naturalWidth") > 900
    assert "run this cell in JupyterLab" in cell.text and "model not found" not in cell.text
    assert "✓ Exercise 3.1" in chapter.one(card).text


def picture(cell):
    """The explorer's picture: its drawing and its pixels."""
    image = cell.find_element(By.CSS_SELECTOR, ".jupyter-widgets svg[role=img]")
    return image.get_attribute("outerHTML"), image.screenshot_as_png


def card_of(chapter, css):
    card = chapter.one(css)
    colour = card.value_of_css_property("border-left-color")
    return card.get_attribute("data-verdict"), [int(x) for x in re.findall(r"\d+", colour)[:3]]
