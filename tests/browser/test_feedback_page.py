"""A page of feedback on a phone: nothing runs out of the screen, and titles have the room that they need."""
import pytest

import pallas_lite as pl
from autograder import check
from autograder.grading.grade import Mark, Report
from autograder.pages.feedback import write_pages

from ..autograder import little_course as little
from .lab import browser

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


def early(N, A, X, Y, B):
    pl.copy_in_start(A[0], X[0])
    pl.compute(X[0], Y[0])


def test_on_a_phone_the_titles_have_the_room_and_nothing_runs_out_of_the_screen(chromium, tmp_path):
    found = {"message": "x" * 200, "got": "y" * 200, "schedule": "z" * 200, "timeline": check("90.1", early).drawing()}
    marks = {n: Mark(0.0, p, "broken" if n == "90.4" else "wrong", "no", {}, found) for n, p in little.POINTS.items()}
    (page,) = write_pages([Report("ann", ["a"], "0", marks=marks)], little.released(tmp_path / "course"), tmp_path)
    with browser(chromium, tmp_path / "profile") as driver:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        driver.get(page.as_uri())
        assert driver.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [390, 390]
        title, result, points = driver.execute_script(
            "return Array.from(document.querySelectorAll('th'), cell => cell.getBoundingClientRect().width)")
        # A picture whose letters would be too small to read is moved sideways, in a place of its own.
        seen, drawn = driver.execute_script("return ['.picture', '.picture img'].map("
                                            "name => document.querySelector(name).clientWidth)")
        assert 300 < seen < 390 and drawn > 600
        assert title > 150 and title > result > points > 40
