"""What must hold for every chapter of the real course, found by reading its files as a learner's tools would."""
import re

import nbformat
import pytest
from nbclient import NotebookClient

from autograder.course.build import read_chapter, registered
from autograder.course.online import INSTALL

from .conftest import ROOT

SOURCES = sorted(path for path in (ROOT / "solutions").glob("*/*.py") if not path.name.startswith("_"))
every_chapter = pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])


def released(source):
    path = ROOT / "notebooks" / source.parent.name / f"{source.stem}.ipynb"
    return nbformat.read(path, as_version=4)


def test_there_are_chapters():
    assert SOURCES, "solutions/ holds no chapter, so every test of chapters would pass on nothing"


@every_chapter
def test_the_release_is_the_source_minus_its_answers(source):
    """By lines of text alone, without the build's own reading of cells. Below the title is the one that installs."""
    text = source.read_text(encoding="utf-8")
    kept, answers = [], []
    into = kept
    for line in text.split("\n"):
        if "### BEGIN SOLUTION" in line or "### END SOLUTION" in line:
            into = answers if "BEGIN" in line else kept
        elif line.strip() and not line.startswith("# %%"):
            into.append(line.lstrip("# "))
    cells = [cell for cell in released(source).cells if cell.id != INSTALL]
    lines = [line.lstrip("# ") for cell in cells for line in cell.source.split("\n")]
    holes = [line for line in lines if re.search(r"YOUR CODE HERE|is not done yet\"\)$|\.\.\.  # your answer$", line)]
    assert [line for line in lines if line and line not in holes] == [line for line in kept if line]
    assert holes and answers


@every_chapter
def test_each_exercise_has_a_hole_a_check_and_three_hints(source):
    cells = released(source).cells
    order = [cell.id for cell in cells if cell.id.startswith(("ex-", "test-"))]
    numbers = [name.removeprefix("ex-") for name in order if name.startswith("ex-")]
    assert numbers and sorted(order) == sorted([f"ex-{n}" for n in numbers] + [f"test-{n}" for n in numbers])
    for number, following in zip(numbers, [*numbers[1:], None], strict=True):
        ids = [cell.id for cell in cells]
        end = ids.index(f"ex-{following}") if following else len(ids)
        part = cells[ids.index(f"ex-{number}"):end]
        assert re.search(r"is not done yet|\.\.\.  # your answer", part[0].source), number
        assert f"test-{number}" in [cell.id for cell in part]
        folded = re.findall(r"<details>\s*<summary>\s*Hint (\d)", "\n".join(cell.source for cell in part))
        assert folded == ["1", "2", "3"], number


def dead_links(text, folder):
    found = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=[\"']([^\"']+)", text)
    targets = ("".join(each).split("#")[0] for each in found)
    return [link for link in targets if link and not re.match(r"[a-z]+:", link) and not (folder / link).exists()]


@every_chapter
def test_links_of_a_chapter_lead_somewhere(source):
    text = "\n".join(cell.source for cell in released(source).cells if cell.cell_type == "markdown")
    assert dead_links(text, ROOT / "notebooks" / source.parent.name) == []


def test_links_of_the_pages_lead_somewhere():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert {page.name: dead_links(page.read_text(encoding="utf-8"), page.parent) for page in pages} == {
        page.name: [] for page in pages}
    assert dead_links("[a](nowhere.md) [b](https://example.org)", ROOT) == ["nowhere.md"]


def run(notebook):
    """As Run All does: a cell that raises stops it, unless the cell is tagged raises-exception."""
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    return [(cell, output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def with_answers(source):
    return read_chapter(source, ROOT, registered()).notebook.cells


def going_back(source):
    """Answers and checks, as a learner runs them who went through the untouched page first: what is drawn for one
    exercise must still be there when others have drawn theirs."""
    answers = {cell.id: cell.source for cell in with_answers(source)}
    cells = [cell for cell in released(source).cells if cell.id.startswith(("ex-", "test-"))]
    for cell in cells:
        cell.source = answers[cell.id] if cell.id.startswith("ex-") else cell.source
    return cells


def named(prefix, cells):
    for cell in cells:
        cell.id = prefix + cell.id
    return cells


@pytest.mark.classroom
@pytest.mark.campaign  # `make test` runs each chapter once, as it is graded: answered, in a fresh process
@every_chapter
def test_a_chapter_runs_untouched_then_exercise_by_exercise_and_then_answered_from_top_to_bottom(source):
    """In one kernel, as a learner's day goes."""
    notebook = released(source)
    notebook.cells += named("later-", going_back(source)) + named("again-", with_answers(source))
    for cell in notebook.cells:  # numbers of one's own are drawn, shown and checked for the same learner
        cell.source = cell.source.replace('STUDENT = ""', 'STUDENT = "nick"')
    points = {cell.id: float(cell.metadata.nbgrader.points) for cell in released(source).cells
              if cell.id.startswith("test-")}
    earned = {}
    for cell, output in run(notebook):
        if output.output_type == "error":
            assert output.ename == "NotImplementedError", (cell.id, output.evalue)
            assert "is not done yet" in output.evalue, (cell.id, output.evalue)
            assert not cell.id.startswith(("later-", "again-")), (cell.id, output.evalue)
        assert "layout not applied" not in output.get("text", ""), cell.id  # matplotlib's, of a picture too small
        assert output.get("name") != "stderr" or not cell.id.startswith("again-test-"), (cell.id, output.text)
        if "-test-" in cell.id and output.output_type == "execute_result":
            earned[cell.id] = float(output.data["text/plain"])
    assert earned == {when + name: of for when in ("later-", "again-") for name, of in points.items()}
