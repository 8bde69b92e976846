"""The Python in README and docs runs, prints what the page says, and the files that pages name are there."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pallas_lite as pl
from benchmarks import _pages
from tools import figures

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


# adding-an-exercise.md shows parts of files; tests/course builds and runs the files themselves.
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p) and p.name != "adding-an-exercise.md"],
                         ids=lambda p: p.stem)
def test_the_python_on_a_page_runs(page, tmp_path):
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks(page))], cwd=tmp_path, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"^```output\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "".join(shown) == done.stdout or not shown


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_files_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    names = {n.name for n in ROOT.rglob("*.py") if not any(p.startswith(".") for p in n.relative_to(ROOT).parts)}
    missing += [n for n in re.findall(r"[\w/]+\.py\b", text) if "<" not in n and Path(n).name not in names]
    assert not missing


def test_tests_that_a_page_names_are_there():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    there |= {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    named = {name for page in PAGES for name in re.findall(r"\btest_\w+", page.read_text(encoding="utf-8"))}
    assert len(named) > 10 and not named - there


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_no_heading_is_empty_and_links_within_a_page_lead_to_one(page):
    text = re.sub(r"^ *```.*?^ *```", "code", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^(#+) (.+)\n*(?=(#+ )?)", f"{text}\n# End", re.MULTILINE)  # the end of a page ends a section
    assert not [title for level, title, after in found if after and len(after) - 1 <= len(level)]
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title, _ in found}
    assert {link for link in re.findall(r"\]\(#([^)]+)\)", text)} <= anchors


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git's")
def test_what_students_hand_in_and_their_marks_are_not_seen_by_git():
    paths = ["submitted/ada/unit1/a.ipynb", "submissions/ada/unit1/a.ipynb",
             ".nbgrader/submitted/ada/unit1/a.ipynb", ".nbgrader/results/results.csv",
             ".nbgrader/feedback/ada/unit1/feedback.html",
             ".nbgrader/results/feedback/ada/unit1/feedback.html", "grades.csv", "canvas.csv"]
    done = subprocess.run(["git", "check-ignore", *paths], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == paths


@pytest.mark.parametrize("page", _pages.PAGES, ids=lambda p: p.stem)
def test_measured_numbers_are_those_that_were_measured(page):
    """Between a page's markers stands what benchmarks/results/ has; `python -m benchmarks --render` puts it there."""
    text = page.read_text(encoding="utf-8")
    assert _pages.rendered(page) == text, "python -m benchmarks --render brings the page up to date"
    assert text.count("<!-- measured:") == text.count("<!-- /measured -->") == len(_pages.MARKED.findall(text))
    for name, what, shown in _pages.MARKED.findall(text):
        assert (ROOT / "benchmarks" / f"{name}.py").exists() and shown.strip()
        # A line that begins with a comment is HTML to the end, so a figure stands further on.
        assert "\n" in shown or not re.search(rf"^<!-- measured: {name}.{what} ", text, re.MULTILINE), (name, what)
        # Which run it is from stands with it, or the command beside it.
        assert what == "run" or f"{name}.run -->" in text or re.search(rf"(benchmarks|ARGS=)\s*{name}\b", text), name


def test_every_table_that_was_measured_stands_on_a_page():
    for path in _pages.RESULTS.glob("*.json"):
        unseen = set(json.loads(path.read_text(encoding="utf-8"))["tables"]) - _pages.shown(path.stem)
        assert not unseen, f"no page shows {unseen} of {path.name}"


def test_the_picture_of_the_readme_says_what_its_alternative_text_says():
    one, two = (pl.timeline(pl.record(loop, 6, depth=depth)) for loop, depth in
                ((figures.one_buffer, 1), (figures.two_buffers, 2)))
    one, two = ((f"{t.total * 1e6:.0f} µs", f"{t.utilisation * 100:.0f} %") for t in (one, two))
    said = (f"The same six steps with one buffer, {one[0]} and the core busy {one[1]}, and with two buffers, {two[0]} "
            f"and {two[1]}")
    assert f"![{said}](docs/pipeline.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_of_the_readme_is_drawn_anew_as_it_is(tmp_path):
    figures.main(tmp_path / "now.svg")
    now, kept = (path.read_text(encoding="utf-8") for path in (tmp_path / "now.svg", ROOT / "docs" / "pipeline.svg"))
    assert now.count("<path") == kept.count("<path"), "draw it again, and look at it: .venv/bin/python tools/figures.py"
