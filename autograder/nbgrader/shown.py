"""shown: a submission and its report -> the notebooks that Formgrader shows and nbgrader's feedback is made from.

They are the release with the student's cells in it; below each test stands what we found. Nothing is executed and no
output of the student's is kept, so nothing in these pages was written by their code. What they typed is text there: no
link, no picture, no tag, no formula.
"""
import contextlib
import copy
import html
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode, v4

from ..course.release import Course, Notebook
from ..exercise import EXERCISES, ended
from ..grading.grade import Mark, Report, harmless
from ..grading.report import SIGNS, write_atomic
from ..grading.submissions import Submission
from ..grading.transplant import MOST_STAMP, Unreadable, collect, counted, load, place

KERNEL = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
WORDS = {"right": "right", "wrong": "wrong", "error": "the code stopped", "not done": "not done",
         "missing": "missing", "unreadable": "not marked yet", "broken": "could not be checked"}
COLOURS = {"right": "#2e9e5b", "wrong": "#d64545", "error": "#d64545", "broken": "#c27c0e"}
MISSING = "# This cell is not in the notebook that was handed in."


def show(released: Notebook, notebook: Any, report: Report) -> NotebookNode:
    """The release with the cells of `notebook` and the marks of `report` in it."""
    theirs, extra = place(released, notebook)
    cells = _extra(extra, -1)
    for k, cell in enumerate(released.cells):
        cell = copy.deepcopy(cell)
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in released.tests:
            mark = report.marks.get(released.tests[name].number)
            if mark is not None and mark.points is not None:
                cell.outputs = [output(released.tests[name].number, mark)]
        elif cell.cell_type == "code":
            source = counted(cell, theirs.get(k, []))
            cell.source = source if source is not None else MISSING if name in released.answers else cell.source
        cells += [cell, *_extra(extra, k)]
    shown = v4.new_notebook(cells=cells, metadata={**KERNEL, "autograder": report.to_plain()})
    shown.nbformat_minor = 5
    return shown


def _extra(extra: dict[int, list[Any]], k: int) -> list[NotebookNode]:
    """The cells that the student added behind our k-th, as text alone: an instructor's browser will show them."""
    return [v4.new_markdown_cell(as_typed(cell.source), id=name) if cell.cell_type == "markdown" else
            v4.new_code_cell(cell.source, id=name)
            for number, cell in enumerate(extra.get(k, [])) for name in [f"added-{k + 1}-{number}"]]


def as_typed(text: str) -> str:
    """Markdown that shows `text` as it was typed.  >>> as_typed("[x](y)")
    '<pre class="tex2jax_ignore" style="white-space:pre-wrap">&#91;x&#93;&#40;y&#41;</pre>'

    A link or a picture is made of Markdown's own signs, behind any filter of tags. With all signs written as numbers,
    and in one line, there are none left for Markdown to read.
    """
    signs = "".join(sign if sign.isalnum() or sign == " " else f"&#{ord(sign)};" for sign in text)
    return f'<pre class="tex2jax_ignore" style="white-space:pre-wrap">{signs}</pre>'


def output(number: str, mark: Mark, **options) -> NotebookNode:
    """What stands below a test: a card for people; the points, as nbgrader reads them, as its plain text."""
    data = {"text/html": card(number, mark, **options), "text/plain": repr(float(mark.points))}
    return v4.new_output("execute_result", data, execution_count=None)


def card(number: str, mark: Mark, for_student: bool = False) -> str:
    """What was found, in HTML. `for_student`: without what only the hidden trials show."""
    e = html.escape
    title = EXERCISES[number].title if number in EXERCISES else ""
    message, details = _told(mark) if for_student else (mark.message, mark.details)
    # A student reads the points above the test, those given by hand among them.
    points = "" if for_student else f" ({mark.points:g} of {mark.max_points:g} points)"
    parts = [f'<div style="font-weight:600">{SIGNS[mark.verdict]} Exercise {e(number)}{" · " * bool(title)}'
             f"{ended(e(title))} {WORDS[mark.verdict]}{points}</div>"]
    if message:
        parts.append(f'<div style="white-space:pre-wrap">{e(message)}</div>')
    for label, text in details.items():
        if text and "\n" in text:
            parts.append(f"<div>{e(label)}:</div><pre>{e(text)}</pre>")
        elif text and label != "timeline":
            parts.append(f"<div>{e(label)}: {e(text)}</div>")
    style = f"padding:4px 12px;border-left:4px solid {COLOURS.get(mark.verdict, '#8a8a8a')}"
    # Without its class, MathJax would make a link of $\href{…}{…}$ in a text that a student's code gave.
    return (f'<div class="pl-mark tex2jax_ignore" data-exercise="{e(number)}" data-verdict="{e(mark.verdict)}" '
            f'style="{style}">' + "".join(parts) + "</div>")


def _told(mark: Mark) -> tuple[str, dict[str, str]]:
    if mark.visible:
        return mark.visible.get("message", ""), {k: v for k, v in mark.visible.items() if k != "message"}
    if mark.visible == {}:
        return "It passes the notebook's own check, but not on other sizes or other numbers.", {}
    if mark.verdict in ("wrong", "error"):  # it may come out of a hidden trial
        return mark.message if mark.message.startswith("your code ") and harmless(mark.message) else "", {}
    return mark.message, {}


def write(submission: Submission, report: Report, course: Course, folder: Path) -> None:
    """The submission's notebooks, as <folder>/<unit>/<notebook>.ipynb, where nbgrader puts what it has autograded."""
    read, *_ = collect(submission.paths, course)
    # What cannot be read keeps its earlier marks, and so what is shown beside them.
    kept = {n for n in course.notebooks for t in n.tests.values()
            if (mark := report.marks.get(t.number)) is not None and mark.points is None}
    for unit in {released.unit for released in read}:
        (folder / unit).mkdir(parents=True, exist_ok=True)
        for old in (folder / unit).glob("*.ipynb"):
            if old.stem not in {n.name for n in kept.union(read) if n.unit == unit}:
                old.unlink()
    for released, (path, notebook) in read.items():
        text = nbformat.writes(show(released, notebook, report)) + "\n"
        write_atomic(folder / released.unit / f"{released.name}.ipynb", text)
        with contextlib.suppress(Unreadable):
            stamp = load(path.parent / "timestamp.txt", MOST_STAMP, follow=False)
            (folder / released.unit / "timestamp.txt").write_bytes(stamp)
