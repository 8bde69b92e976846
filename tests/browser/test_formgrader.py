"""nbgrader in a real JupyterLab: Formgrader from release to feedback, and the Validate button."""
import copy
import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("selenium", reason="selenium (the `test` extra) is not installed")
from nbgrader.api import Gradebook  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from autograder.course.release import Course  # noqa: E402
from autograder.nbgrader import gradebook  # noqa: E402
from autograder.nbgrader.shown import KERNEL  # noqa: E402
from tests.autograder import little_course as little  # noqa: E402
from tests.course.instructor import CHECKS, RIGHT, Instructor, put  # noqa: E402

from .lab import ROOT, Notebook, browser, server  # noqa: E402

pytestmark = pytest.mark.browser
FORGED = "class Any:\n    def __eq__(self, other): return True\n    def __float__(self): return 2.5\ntime = Any()"
SUBMISSIONS = {"ada": (RIGHT, 10), "bo": ({"90.2": "time = 5.0", "90.3": RIGHT["90.3"]}, 3),
               "eve": ({"90.1": "import os\nos._exit(1)", "90.2": FORGED}, 0)}


@pytest.fixture
def desk(chromium, tmp_path):
    """An instructor's JupyterLab, as `make formgrader` starts it. SCREENSHOTS=folder keeps what was seen."""
    course = Instructor(tmp_path / "course")
    for student, (answers, _) in SUBMISSIONS.items():
        course.submit(student, little.notebook(answers))
    for name, answers in (("untouched", {}), ("answered", RIGHT)):
        notebook = little.notebook(answers)
        notebook.metadata.kernelspec = KERNEL["kernelspec"]
        # The checks of this little course are not among the package's, where a notebook's `check` would look for them.
        next(c for c in notebook.cells if c.id == "setup").source += "\nimport tests.autograder.little_course"
        put(course.root / "work" / f"{name}.ipynb", notebook)
    home = tmp_path / "home"
    shutil.copytree(course.root / "config", home / "config")
    shots = Path(os.environ.get("SCREENSHOTS") or tmp_path / "shots") / "formgrader"
    shutil.rmtree(shots, ignore_errors=True)
    shots.mkdir(parents=True)
    with (server(course.root, home, "Light", ROOT / "autograder" / "instructor") as address,
          browser(chromium, tmp_path / "profile") as driver):
        page = Notebook(driver, shots)
        page.course, page.address_of = course, address
        page.site = address("").partition("/lab/")[0]
        yield page
        page.shot("last")


def rows(page) -> dict:
    """Student -> the row of Formgrader's table of submissions."""
    page.wait(lambda: page.all("#main-table .student-id"), "the table of submissions")
    return {row.find_element(By.CSS_SELECTOR, ".student-id").text: row for row in page.all("#main-table tr")}


def message(page, what: str) -> str:
    """The text of Formgrader's message. It comes in by and by: its head tells that it is whole."""
    return page.wait(lambda: next((m.text for m in page.all(".modal") if m.is_displayed() and re.search(
        "success|error|fail", m.text.partition("Log Output")[0], re.IGNORECASE)), None), what)


def press(page, student: str, button: str) -> None:
    """A button of a student's row; then the message, which must be one of success."""
    row = rows(page)[student]
    row.find_element(By.CSS_SELECTOR, f".{button} a").click()
    assert "Successfully" in (text := message(page, f"{button} of {student}")), text
    page.wait(lambda: dismiss(page), "the message to go")
    page.wait(lambda: student in rows(page) and rows(page)[student].find_elements(By.CSS_SELECTOR, f".{button} a"),
              "the row again")


def dismiss(page) -> bool:
    page.driver.execute_script("$('.modal').modal('hide')")
    return not [m for m in page.all(".modal, .modal-backdrop") if m.is_displayed()]


def state(page, student: str) -> tuple[str, str]:
    row = rows(page)[student]
    return tuple(row.find_element(By.CSS_SELECTOR, f".{name}").text for name in ("status", "score"))


def open_submission(page, student: str) -> None:
    with Gradebook(page.course.url) as book:
        found = book.find_submission_notebook(little.NAME, little.UNIT, student).id
    page.driver.get(f"{page.site}/formgrader/submissions/{found}/")
    page.wait(lambda: page.driver.execute_script("return formgrader.grades.loaded && formgrader.comments.loaded"),
              "the marks of the submission")


def test_formgrader_from_release_to_feedback_and_the_validate_button(desk):
    page, course = desk, desk.course

    # Release: the unit is listed, and made by Formgrader's own button.
    page.driver.get(page.address_of("").replace("/tree/", ""))
    page.wait(lambda: any(x.text == "Nbgrader" for x in page.all(".lm-MenuBar-itemLabel")), "the menu Nbgrader")
    page.wait(lambda: not page.all("#jupyterlab-splash"), "the end of the splash screen")
    page.menu("Nbgrader", "nbgrader:open-formgrader")
    page.driver.switch_to.frame(page.one("iframe"))
    page.wait(lambda: [r for r in page.all("#main-table tr") if little.UNIT in r.text], "the unit in Formgrader")
    page.shot("1-assignments")
    shutil.rmtree(course.root / "notebooks")
    page.driver.get(f"{page.site}/formgrader/manage_assignments")
    page.one("#main-table .assign a").click()
    assert "Successfully" in (text := message(page, "the release")), text
    page.wait(lambda: dismiss(page), "the message to go")
    assert (course.root / "notebooks" / little.UNIT / f"{little.NAME}.ipynb").exists()

    # Three submissions, graded by Formgrader's button.
    page.driver.get(f"{page.site}/formgrader/manage_submissions/{little.UNIT}")
    assert {s: state(page, s) for s in rows(page)} == dict.fromkeys(SUBMISSIONS, ("needs autograding", ""))
    page.shot("2-submitted")
    for student, (_, points) in SUBMISSIONS.items():
        press(page, student, "autograde")
        assert state(page, student) == ("graded", f"{points} / 10")
    page.shot("3-autograded")

    # What we found stands below the test; points and a comment given by hand.
    open_submission(page, "eve")
    assert "ended Python (exit status 1)" in page.one('.pl-mark[data-exercise="90.1"]').text
    page.see(page.one('.pl-mark[data-exercise="90.1"]'))
    page.shot("4-eve")
    open_submission(page, "bo")
    assert "Both ways at once." in page.one('.pl-mark[data-exercise="90.2"]').text
    page.see(page.one("#test-90-2")).send_keys("0.5", Keys.TAB)
    page.see(page.one("#ex-90-2-comment")).send_keys("Nearly: see chapter 2.", Keys.TAB)

    def kept():
        with Gradebook(course.url) as book:
            return (book.find_grade("test-90-2", little.NAME, little.UNIT, "bo").manual_score,
                    book.find_comment("ex-90-2", little.NAME, little.UNIT, "bo").manual_comment)
    page.wait(lambda: kept() == (0.5, "Nearly: see chapter 2."), "points and comment in the gradebook")
    page.shot("5-bo-by-hand")

    # They survive a regrade.
    page.driver.get(f"{page.site}/formgrader/manage_submissions/{little.UNIT}")
    press(page, "bo", "autograde")
    assert state(page, "bo") == ("graded", "3.5 / 10")
    open_submission(page, "bo")
    assert page.one("#test-90-2").get_property("value") == "0.5"
    assert page.one("#ex-90-2-comment").get_property("value") == "Nearly: see chapter 2."

    # Feedback, opened.
    page.driver.get(f"{page.site}/formgrader/manage_submissions/{little.UNIT}")
    press(page, "bo", "generate-feedback")
    page.driver.get((course.root / ".nbgrader/feedback/bo" / little.UNIT / f"{little.NAME}.html").as_uri())
    seen = page.one("body").text
    assert "Score: 3.5 / 10.0" in seen and "Nearly: see chapter 2." in seen and "Both ways at once." in seen
    page.see(page.one('.pl-mark[data-exercise="90.2"]'))
    page.shot("6-feedback")

    # The Validate button.
    for name, words in (("untouched", "Exercise 90.1 · A loop: not done yet"), ("answered", "Success")):
        notebook = copy.copy(page)
        notebook.open(page.address_of(f"work/{name}.ipynb"), 11)
        next(b for b in page.all(".jp-NotebookPanel-toolbar jp-button, .jp-NotebookPanel-toolbar button")
             if b.text.strip() == "Validate").click()
        dialog = page.wait(lambda: [d.text for d in page.all(".jp-Dialog-content") if "Validation Results" in d.text],
                           "the verdict")[0]
        page.shot(f"7-validate-{name}")
        assert words in dialog, dialog
        assert ("Success! Your notebook passes all the tests." in dialog) == (name == "answered"), dialog
        page.one(".jp-Dialog-button.jp-mod-accept").click()


# Each may be the name of a folder, which is who handed it in.
NAMES = ["<img src=x onerror=document.title='evil'>", "O'Brien, \"Pat\"", "\";document.title='evil';\"",
         "a\" onmouseover=\"document.title='evil'", "x\\..\\b?c#d%41&lt;\\"]


def test_a_students_name_is_text_on_each_page_and_its_links_lead_to_its_own(desk):
    page = desk
    names = NAMES[:2] if os.environ.get("CI") else NAMES  # test_as_text.py has all of them, in nbgrader's templates
    for name in names:
        page.course.submit(name, little.notebook(RIGHT))
    gradebook.write([], page.course.url, Course(str(page.course.root / "notebooks"), (CHECKS,)))  # the unit
    page.driver.get(page.address_of(""))
    for name in names:
        titles = []

        def follow(element, titles=titles):
            titles.append(page.driver.title)
            element.click()

        page.driver.get(f"{page.site}/formgrader/manage_submissions/{little.UNIT}")
        press(page, name, "autograde")
        assert state(page, name) == ("graded", "10 / 10")
        page.driver.get(f"{page.site}/formgrader/manage_students")
        row = page.wait(lambda name=name: next((r for r in page.all("#main-table tr") if name in r.text), None), name)
        follow(row.find_element(By.CSS_SELECTOR, ".name a"))
        page.wait(lambda name=name: page.one(".breadcrumb .active").text == name, "the student's page")
        follow(page.one("#main-table .name a"))
        page.wait(lambda: page.one(".breadcrumb .active").text == little.UNIT, "the student's unit")
        assert [a.text for a in page.all(".breadcrumb a")] == ["Students", name]
        follow(page.one("#main-table .name a"))
        page.wait(lambda: page.driver.execute_script("return window.formgrader && formgrader.grades.loaded"), "marks")
        follow(page.one(".breadcrumb .glyphicon-eye-open.name-hidden"))
        shown = page.wait(lambda: [a for a in page.all(".breadcrumb a.name-shown") if a.is_displayed()], "its name")[0]
        page.rest_on(shown)
        page.shot(f"name-{NAMES.index(name)}")
        assert shown.text == name, (name, shown.text)
        assert unquote(shown.get_attribute("href")).endswith(f"autograded/{name}/{little.UNIT}/{little.NAME}.ipynb")
        assert not [title for title in [*titles, page.driver.title] if "evil" in title], name
