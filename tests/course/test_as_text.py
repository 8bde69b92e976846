"""What a student wrote is text, and no more, in the pages that nbgrader makes: Formgrader's and its feedback.

The pages are made by nbgrader's own templates and nbconvert. They may hold the tags that harmless words give, and no
other: no link, no picture, no script.
"""
import base64
import copy
import html
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbformat import v4
from nbgrader.converters.generate_feedback import GenerateFeedback
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config

from autograder.course.release import Course
from autograder.grading.grade import Mark, Report
from autograder.nbgrader import formgrader, gradebook
from autograder.nbgrader.autograde import StudentView
from autograder.nbgrader.shown import show
from tests.autograder import little_course as little

from .instructor import CHECKS, ROOT, SUBMISSIONS, Instructor

pytestmark = pytest.mark.classroom

JS, FAR = "javascript:alert('evil')", "https://evil.example/x"
PAYLOADS = [
    f"[x]({JS})", f"[x](<{JS}>)", f"[x][r]\n\n[r]: {JS}", f"[r]\n\n[r]: {JS} 'title'", f"<{JS}>",
    "[x](JaVaScRiPt:alert('evil'))", "[x](&#106;avascript:alert('evil'))", "[x](java\tscript:alert('evil'))",
    "[x](\x01javascript:alert('evil'))", "[x](javascript&colon;alert('evil'))", "[x](vbscript:evil)",
    "[x](data:text/html;base64,ZXZpbA==)", f"# [x]({JS})", f"|[x]({JS})|\n|-|\n|evil|", f"- [x]({JS})\n> [y]({JS})",
    f"![x]({FAR}.png)", f"![x][r]\n\n[r]: {FAR}.png", f"![x]({JS})", f"[![x]({FAR}.png)]({FAR})", f"[x]({FAR})", FAR,
    f"<{FAR}>", "![x](attachment:evil.svg)", "![a](x\"onerror=\"alert('evil'))", "[a](x 'y\" onmouseover=\"evil')",
    "# a\" onclick=\"alert('evil')", "```x\"onmouseover=\"evil\ncode\n```", "<script>alert('evil')</script>",
    "<img src=x onerror=alert('evil')>", f"<a href=\"{JS}\">x</a>", 
    f"<a href='java&#115;cript:evil' download>{FAR}</a>",
    "<svg onload=alert('evil')></svg>", f"<iframe src=\"{FAR}\"></iframe>", f"<object data={FAR}></object>",
    f"<base href={FAR}>", f"<meta http-equiv=refresh content='0;{FAR}'>", f"<form action={FAR}><button>evil</form>",
    f"<link rel=stylesheet href={FAR}>", f"<style>@import '{FAR}';body{{background:url({FAR})}}</style>",
    f"<video src={FAR} autoplay>", f"<p style='background:url({FAR})'>evil</p>", 
    "<math><a xlink:href=javascript:evil>x",
    "</pre><script>alert('evil')</script>", "</pre>\n\n<img src=x onerror=alert('evil')>", "</div></div></body>evil<b>",
    "<!-- --><script>alert('evil')</script>-->", "<![CDATA[<script>alert('evil')</script>]]>", "<?x evil?><b>evil",
    "&lt;img src=x onerror=alert('evil')&gt;", "\\<img src=x onerror=alert('evil')\\>", "&amp;lt;b&amp;gt;evil",
    "$&#60;img src=x onerror=alert('evil')&#62;$", "$\\href{javascript:alert('evil')}{x}$",
    f"$$\\href{{{FAR}}}{{evil}}$$",
    "\\(\\style{position:fixed}{evil}\\)", "\\begin{a}<img src=x onerror=alert('evil')>\\end{a}",
    "<p title=\"`<img src=x onerror=alert('evil')>`\">", "<b title=\"$x\">$\" onmouseover=alert('evil') </b>",
    "{{ resources }}{% raw %}evil", "files/evil src=\"files/evil\"",
    "*evil* **evil** `evil`\n\n    evil\n\n---\n\nevil  \nevil",
    f"<details open ontoggle=alert('evil')><summary>[x]({JS})</summary>\n\n[y]({JS})\n</details>",
    "%%html\n<script>alert('evil')</script>", "%%javascript\nalert('evil')", "%%svg\n<svg onload=alert('evil')>",
    "%%markdown\n[x](javascript:alert('evil'))", "%%latex\n$\\href{javascript:evil}{x}$",
    "\x1b]8;;javascript:evil\x07evil",
]
WORDS = ["these are words"] * len(PAYLOADS)


def outputs(text: str) -> list:
    """Every kind of output that a page may show, with `text` in it."""
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "evil", "version_major": 2, "version_minor": 0}}
    kinds = ["text/html", "text/markdown", "text/latex", "text/plain", "image/svg+xml", "application/javascript",
             "application/pdf", "application/vnd.plotly.v1+json", "text/x-evil"]
    data = {kind: text for kind in kinds} | {"image/png": base64.b64encode(text.encode()).decode()} | widget
    return [v4.new_output("display_data", data, metadata={"image/png": {"width": "1\" onerror=\"evil"}}),
            *(v4.new_output("display_data", {kind: value}) for kind, value in data.items()),
            v4.new_output("execute_result", data, execution_count=1), v4.new_output("stream", name="stdout", text=text),
            v4.new_output("error", ename=text, evalue=text, traceback=[text, f"\x1b[31m{text}"])]


def submission(texts: list[str]):
    """A notebook with the texts in every place: added cells of each kind, answers, ours changed, outputs, metadata."""
    notebook = little.notebook({"90.2": texts[0] + "\n" + "\n".join(texts)})
    for cell in notebook.cells:
        cell.metadata |= {"magics_language": texts[0], "raw_mimetype": "text/html", "name": texts[0]}
        if cell.cell_type == "code":
            cell.outputs = outputs(texts[0])
        else:
            cell.source += texts[0]
    for number, text in enumerate(texts):
        attached = {"evil.svg": {"image/svg+xml": text}}
        cells = [v4.new_markdown_cell(text, attachments=attached), v4.new_code_cell(text, outputs=outputs(text)),
                 v4.new_raw_cell(text, metadata={"raw_mimetype": "text/html"}), v4.new_raw_cell(text)]
        notebook.cells[number % 3:number % 3] = cells
    other = copy.deepcopy(cells[0])
    other.cell_type = "heading"  # of another time, or of nobody's
    notebook.cells.append(other)
    widget = {"model_name": "HTMLModel", "model_module": "@jupyter-widgets/controls", "state": {"value": texts[0]}}
    notebook.metadata |= {"title": texts[0], "authors": [{"name": texts[0]}], "language_info": {"name": texts[0]},
                          "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {"evil": widget}}}}
    return notebook


def graded(texts: list[str]) -> Report:
    """Marks whose messages quote the texts, as a check does what an answer gave."""
    told = "\n".join(texts)
    details = {"got": told, "your line": texts[0], "nudge": told, f"z {told}": "of a label"}
    return Report(texts[0], [texts[0]], "", warnings=texts, marks={
        "90.1": Mark(0.0, 2.0, "wrong", told, details, {"message": told, **details}),
        "90.2": Mark(0.0, 1.0, "error", f"KeyError: {told}", details, {"message": told, **details}),
        "90.3": Mark(0.0, 3.0, "wrong", told, details)})


def page(texts: list[str], released, template: str, tmp_path: Path) -> "Page":
    """What nbgrader makes of what we give it. `template`: formgrade or feedback."""
    path = tmp_path / "shown.ipynb"
    nbformat.write(show(released, submission(texts), graded(texts)), path)
    resources = {"submission_id": "1", "notebook_id": "n", "assignment_id": "a", "base_url": "", "student": "ann",
                 "index": 0, "total": 1, "nbgrader": {"notebook": "n", "score": 0.0, "max_score": 1, "late_penalty": 0}}
    if template == "formgrade":  # as formgrader.py and its handler do
        exporter = HTMLExporter(config=Config(HTMLExporter={
            "template_name": template, "extra_template_basedirs": [handlers.template_path]}))
        return Page(exporter.from_filename(str(path), resources=resources)[0])
    converter = GenerateFeedback()
    converter.exporter = HTMLExporter(config=converter.config)
    notebook, _ = StudentView().preprocess(nbformat.read(path, as_version=4), resources)
    for cell in notebook.cells:
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader.score = 0.0  # as nbgrader's GetGrades, which would want a gradebook
    return Page(converter.exporter.from_notebook_node(notebook, resources=resources)[0])


class Page(HTMLParser):
    """The tags of a page, without the colours of code; and the texts with "evil" that a formula could be made of."""

    def __init__(self, text: str):
        super().__init__()
        self.text, self.tags, self.read_by_mathjax, self.seen, self._open = text, [], [], 0, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if not (tag == "span" and [name for name, _ in attrs] in ([], ["class"])):
            self.tags.append((tag, attrs))
        self._open.append((tag, "tex2jax_ignore" in (dict(attrs).get("class") or "")))

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_comment(self, data):
        self.tags.append(("comment", data))

    def handle_data(self, data):
        if "evil" in data and (not self._open or self._open[-1][0] not in ("script", "style")):
            self.seen += 1
            if not any(tag == "pre" or ignored for tag, ignored in self._open):
                self.read_by_mathjax.append(data)


@pytest.mark.parametrize("template", ["formgrade", "feedback"])
def test_nothing_that_a_student_wrote_is_more_than_text(template, tmp_path):
    released, = little.released(tmp_path).notebooks
    harmless = page(WORDS, released, template, tmp_path)
    theirs = page(PAYLOADS, released, template, tmp_path)
    assert theirs.seen >= 3 * len(PAYLOADS), "what they wrote is there to be read"
    assert [tag for tag in theirs.tags if tag not in harmless.tags] == []
    assert theirs.tags == harmless.tags
    assert theirs.read_by_mathjax == []


def test_added_markdown_is_shown_as_it_was_typed(tmp_path):
    released, = little.released(tmp_path).notebooks
    notebook = little.notebook()
    notebook.cells[:0] = map(v4.new_markdown_cell, PAYLOADS)
    text = HTMLExporter().from_notebook_node(show(released, notebook, Report("ann", [], "")))[0]
    shown = [html.unescape(part.partition(">")[2].partition("</pre>")[0])
             for part in text.split("<pre ") if part.startswith('class="tex2jax_ignore"')]
    assert [re.sub(r"[\x01\x07\x1b]", "", t) for t in shown] == [re.sub(r"[\x01\x07\x1b]", "", p) for p in PAYLOADS]


# Who handed in is the name of a folder, and may have been chosen as badly as what is in it.
IDS = ["<img src=x onerror=alert('evil')>", "</script><script>alert('evil')</script>", "\"; alert('evil'); \"",
       "' onmouseover='evil'", "a\" onmouseover=\"evil", "O'Brien, \"Pat\"", "..\\..\\evil?x#y%41", "\\", "{{ 7 * 7 }}",
       "&lt;b&gt;evil", "Zo\xeb \u2028 \u8bfe"]
PAGES = sorted(p.name for p in formgrader.SCRIPTS.parents[1].glob("templates/*.tpl"))


def served(template: str, name: str, monkeypatch) -> Page:
    """One of Formgrader's own pages, with this in the place of each name."""
    monkeypatch.setattr(handlers.BaseHandler, "render", handlers.BaseHandler.render)
    monkeypatch.setattr(handlers, "default_handlers", [*handlers.default_handlers])
    formgrader.mend()
    names = dict.fromkeys(("student_id", "assignment_id", "notebook_id", "course_dir", "course_id", "exchange",
                           "current_config", "url_prefix", "default_timezone"), name)
    return Page(handlers.BaseHandler.render(None, template, base_url="/at", exchange_missing=True, **names))


@pytest.mark.parametrize("template", [name for name in PAGES if name != "formgrade_404.tpl"])
def test_a_name_is_text_in_each_of_formgraders_pages(template, monkeypatch):
    def shape(tags):
        return [(tag, [(key, value if key != "href" else "") for key, value in attrs]) for tag, attrs in tags]

    def hrefs(page):
        return [value for _, attrs in page.tags for key, value in attrs if key == "href"]
    harmless = served(template, "words", monkeypatch)
    variables = re.findall(r'var (\w+) = "words";', harmless.text)
    parts = harmless.text.count("words")
    for name in IDS:
        theirs = served(template, name, monkeypatch)
        assert shape(theirs.tags) == shape(harmless.tags)
        shown = html.unescape(theirs.text)
        found = dict(re.findall(r"var (\w+) = (\".*\");", theirs.text))
        assert [json.loads(found[variable]) for variable in variables] == [name] * len(variables)
        assert hrefs(theirs) == [href.replace("words", quote(name)) for href in hrefs(harmless)]
        assert shown.count(name) + len(variables) + sum(quote(name) in href for href in hrefs(theirs)) >= parts


@pytest.mark.parametrize("script", sorted(p.name for p in formgrader.SCRIPTS.glob("*.js")))
def test_a_name_is_one_part_of_each_address_that_formgraders_scripts_make(script):
    text = formgrader.Script.get_content(str(formgrader.SCRIPTS / script)).decode()
    addresses = re.findall(r"base_url \+ .*", text)
    joined = [part for line in addresses for part in re.findall(r"\+ (\S+)", line) if part[0] not in "\"'"]
    assert all(part.startswith("encodeURIComponent(") for part in joined), joined
    assert not re.search(r"\.(html|append|prepend|after|before)\(name \+", text), "as text, not as HTML"
    assert "prefix + path)" not in text
    if script in ("manage_students.js", "manage_submissions.js"):
        assert joined


@pytest.mark.parametrize("name", IDS)
def test_a_name_is_text_in_the_page_of_a_notebook(name, tmp_path):
    def made(name):
        nbformat.write(little.notebook(), tmp_path / "n.ipynb")
        exporter = HTMLExporter(config=Config(HTMLExporter={
            "template_name": "formgrade", "extra_template_basedirs": [handlers.template_path],
            "preprocessors": ["autograder.nbgrader.formgrader.NamesAsText"]}))
        names = dict.fromkeys(formgrader.NAMES, name) | {"first_name": None}
        return Page(exporter.from_filename(str(tmp_path / "n.ipynb"), resources={
            "submission_id": "1", "base_url": "", "index": 0, "total": 1, **names})[0])
    harmless, theirs = made("words"), made(name)
    assert [(tag, sorted(dict(attrs))) for tag, attrs in theirs.tags if tag != "comment"] == \
        [(tag, sorted(dict(attrs))) for tag, attrs in harmless.tags if tag != "comment"]
    links = [attrs["data-link"] for tag, pairs in theirs.tags if tag == "a" and "data-link" in (attrs := dict(pairs))]
    assert links == [name, name]
    assert name in html.unescape(theirs.text)


def test_a_server_with_formgrader_is_mended_by_the_courses_settings():
    """In a process of its own, as a JupyterLab is: Formgrader's module is there before the settings are read."""
    code = ("from nbgrader.server_extensions.formgrader import formgrader, handlers, base\n"
            "app = formgrader.FormgradeExtension()\napp.initialize([])\n"
            "from autograder.nbgrader.formgrader import _render\n"
            "assert base.BaseHandler.render is _render and 'static/js' in handlers.default_handlers[0][0]\n"
            "assert app.config.HTMLExporter.preprocessors == ['autograder.nbgrader.formgrader.NamesAsText']\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {
        "JUPYTER_CONFIG_PATH": str(ROOT / "autograder"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))})
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("sandbox")
def test_formgrader_serves_none_of_the_students_other_files(tmp_path):
    course = Instructor(tmp_path / "course")
    folder = course.submit("ann", SUBMISSIONS["right"][0]).parent
    for name in ("evil.html", "more/evil.svg", "timestamp.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("2026-03-01 10:30:00 CET" if name.endswith("txt") else "<script>evil</script>")
    (course.root / ".nbgrader" / "source" / little.UNIT / "ours.html").write_text("a page of the course")
    gradebook.write([], course.url, Course(str(course.root / "notebooks"), (CHECKS,)))
    done = course.run("nbgrader", "autograde", little.UNIT)
    there = {p.name for p in (course.root / ".nbgrader" / "autograded").rglob("*.*")}
    assert there == {f"{little.NAME}.ipynb", "timestamp.txt", "ours.html"}, done.stderr
