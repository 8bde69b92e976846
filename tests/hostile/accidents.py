"""What happens to the files of honest students. Nobody loses a mark that was earned, and whoever must act is told."""
import copy
import json
import os

import nbformat
from nbformat import v4

from ..autograder import little_course as little
from .corpus import Case, save

FULL = dict(zip(little.STUBS, little.POINTS.values(), strict=True))
RIGHT = little.RIGHT


def full(answers=RIGHT):
    return little.notebook(answers)


def place(notebook, cell_id):
    return next(i for i, c in enumerate(notebook.cells) if c.id == cell_id)


def lost(*numbers):
    return FULL | dict.fromkeys(numbers, 0)


def changed(change, notebook=None):
    """The notebook after `change(cells)`, which changes the list, or returns another."""
    notebook = notebook or full()
    notebook.cells = change(notebook.cells) or notebook.cells
    return save(notebook)


def file(content, suffix=".ipynb"):
    """A file with this text, or these bytes."""
    content = content.encode() if isinstance(content, str) else content
    return lambda path: path.with_name(path.name + suffix).write_bytes(content)


def folder(**files):
    """A student's folder. __ in a name stands for /."""
    def write(path):
        for name, content in files.items():
            here = path / (name.replace("__", "/") + ".ipynb")
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_text(content if isinstance(content, str) else nbformat.writes(content), encoding="utf-8")
    return write


def extra(source, **metadata):
    return v4.new_code_cell(source, metadata=metadata)


def colab():
    notebook = full({"90.1": "%%time\n" + RIGHT["90.1"], "90.2": "time = 2.5 #@param {type: 'number'}",
                     "90.3": "!pip install -q nothing\n" + RIGHT["90.3"], "90.4": RIGHT["90.4"]})
    notebook.cells[:0] = [extra("from google.colab import drive\ndrive.mount('/content/drive')")]
    notebook.cells.append(extra("from google.colab import files\nfiles.download('x.ipynb')"))
    for cell in notebook.cells:
        cell.metadata |= {"id": cell.id, "colab": {"base_uri": "https://localhost:8080/"}, "outputId": "f0"}
        cell.id = f"c{cell.id}"
    notebook.metadata |= {"colab": {"provenance": []}, "accelerator": "GPU"}
    return notebook


def vs_code():
    plain = json.loads(nbformat.writes(full()))
    for cell in plain["cells"]:
        cell.pop("id")
        cell["metadata"]["vscode"] = {"languageId": "python"}
    return json.dumps(plain | {"nbformat_minor": 2, "metadata": {"language_info": {"name": "python"}, "vscode": {}}})


def with_outputs(size):
    notebook = full()
    for cell in notebook.cells[1:]:
        if cell.cell_type == "code":
            cell.outputs = [v4.new_output("stream", text="x" * (size // len(notebook.cells)))]
    notebook.cells[0].attachments = {"a.png": {"image/png": "A" * 10**6}}
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {"state": {"a": {"b": ["c"] * 10**4}}}}
    return nbformat.writes(notebook)


def merged(cells):
    i = place(little.notebook(), "ex-90-2")
    cells[i].source += "\n\n" + cells.pop(i + 1).source


def split(cells):
    i = place(little.notebook(), "ex-90-4")
    kernel, call = cells[i].source.split("\n\n")
    cells[i].source = kernel
    cells.insert(i + 1, extra(call))


def below(cells):
    i = place(little.notebook(), "ex-90-2")
    cells[i].source = little.STUBS["90.2"]
    cells.insert(i + 1, extra("time = 5 / 2"))


def two_in_one(cells):
    i = place(little.notebook(), "ex-90-3")
    cells[i].source += "\n\n" + cells[place(little.notebook(), "ex-90-4")].source
    cells[place(little.notebook(), "ex-90-4")].source = little.STUBS["90.4"]


def copied(cells):
    return [c for cell in cells for c in (cell, copy.deepcopy(cell))]


def altered_test(cells):
    for cell in cells:
        if cell.id.startswith("test"):
            cell.source = 'check("90.2", 2.5)\n2.0'
            cell.metadata.nbgrader |= {"points": 100}


def as_markdown(cells):
    i = place(little.notebook(), "ex-90-2")
    cells[i] = v4.new_markdown_cell("time = 2.5", id="ex-90-2")


def windows(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "\r\n")
    return nbformat.writes(notebook).replace("\n", "\r\n")


def many(cells):
    return [extra(f"x = {i}") for i in range(300)] + cells


def link(target):
    return lambda path: os.symlink(target, path.with_name(path.name + ".ipynb"))


def whole_course(path):
    """A notebook with folders and files around it that have the names of what the grader imports."""
    folder(mine=full())(path)
    for name in ("autograder", "pallas_lite", "numpy", "jax"):
        (path / name).mkdir()
        (path / name / "__init__.py").write_text("raise SystemExit")
    for name in ("json", "sitecustomize", "conftest", "nbgrader_config"):
        (path / f"{name}.py").write_text("raise SystemExit")


def without_types(notebook):
    plain = json.loads(nbformat.writes(notebook))
    for cell in plain["cells"]:
        cell.pop("cell_type")
    return json.dumps(plain)


TEXT = nbformat.writes(full())
ACCIDENTS = [
    ("cells moved", changed(lambda cells: cells[::-1]), FULL, {}),
    ("every cell twice", changed(copied), FULL, {"": "its cell is there 2 times"}),
    ("tests deleted", changed(lambda cells: [c for c in cells if not c.id.startswith("test")]), FULL, {}),
    ("an answer deleted", changed(lambda cells: [c for c in cells if c.id != "ex-90-3"]), lost("90.3"),
     {"90.3": "its cell is not in the notebook", "": "90.3: its cell is not in the notebook: deleted"}),
    ("the setup deleted", changed(lambda cells: [c for c in cells if c.id != "setup"]), FULL, {}),
    ("tests and flags altered", changed(altered_test, full({"90.2": "time = 7"})), lost(*FULL), {"90.2": "too high"}),
    ("an answer as Markdown", changed(as_markdown), FULL, {"": "no code cell any more"}),
    ("an answer and its test merged", changed(merged), FULL, {}),
    ("an answer split", changed(split), FULL, {}),
    ("an answer in a cell below", changed(below), FULL, {}),
    ("two answers in one cell", changed(two_in_one), lost("90.4"), {"90.4": "not done"}),
    ("a helper in a cell of its own", changed(
        lambda cells: cells.insert(2, extra("def twice(x): return 2 * x")), full(RIGHT | {
            "90.3": "def double(x): return twice(x)"})), FULL, {}),
    ("a name that is no longer there", save(full(RIGHT | {"90.3": "def double(x): return twice(x)"})), lost("90.3"),
     {"90.3": "name 'twice' is not defined"}),
    ("Colab", save(colab()), FULL, {}),
    ("VS Code", file(vs_code()), FULL, {}),
    ("magics", save(full({
        "90.1": "%matplotlib inline\n%load_ext autoreload\n" + RIGHT["90.1"], "90.2": "%%capture\ntime = 2.5",
        "90.3": "time?\n%timeit -n1 -r1 1\n" + RIGHT["90.3"], "90.4": "!ls\n%who\n" + RIGHT["90.4"]})), FULL, {}),
    ("top-level await", save(full(RIGHT | {"90.2": "import asyncio\nawait asyncio.sleep(0)\ntime = 2.5"})), FULL, {}),
    ("a smart quote", save(full(RIGHT | {"90.2": "time = 2.5  # µs\nprint(“done”)"})), lost("90.2"),
     {"90.2": "SyntaxError"}),
    ("a tab among spaces", save(full(RIGHT | {"90.3": "def double(x):\n\ty = x\n        return 2 * y"})), lost("90.3"),
     {"90.3": "TabError"}),
    ("a warning and a word on stderr", save(full(RIGHT | {
        "90.2": "import sys, warnings\nwarnings.warn('old')\nprint('0.0', file=sys.stderr)\ntime = 2.5"})), FULL, {}),
    ("Windows line ends", file(windows(full())), FULL, {}),
    ("a byte-order mark", file("\ufeff" + TEXT), FULL, {}),
    ("UTF-16", file(TEXT.encode("utf-16")), FULL, {}),
    ("Latin-1", file(TEXT.replace("# Little", "# Caf\u00e9").encode("latin-1")), FULL, {}),
    ("nbformat 3", file(nbformat.writes(full(), version=3)), FULL, {}),
    ("no kernelspec, another language", save(v4.new_notebook(cells=full().cells, metadata={
        "kernelspec": {"name": "ir", "display_name": "R", "language": "R"}})), FULL, {}),
    ("huge outputs", file(with_outputs(20 * 10**6)), FULL, {}),
    ("hundreds of cells", changed(many), FULL, {}),
    ("名字 中文", save(full(RIGHT | {"90.2": "时间 = 2.5\ntime = 时间"})), FULL, {}),
    ("saved twice", folder(**{little.NAME: full(), "90_little-Copy1": full({})}), FULL,
     {"": "90_little.ipynb was graded"}),
    ("renamed", folder(Untitled1=full(), **{".ipynb_checkpoints__Untitled1-checkpoint": full({})}), FULL, {}),
    ("deep in folders", folder(homework__final__v2__mine=full()), FULL, {}),
    ("a whole course handed in", whole_course, FULL, {}),
    ("NaN and infinities", file(TEXT.replace('"nbgrader": {', '"x": NaN, "y": -Infinity, "nbgrader": {', 1)), FULL, {}),
    ("a key twice", file(TEXT.replace('"nbformat": 4', '"nbformat": 3, "nbformat": 4')), FULL, {}),
    ("half an emoji", file(TEXT.replace("# Little", "# \\ud83d").replace("time = 2.5", "time = 2.5  # \\ud83d")), FULL,
     {}),
    ("cells of no type", file(without_types(full())), FULL, {}),
    ("nothing done", save(full({})), lost(*FULL), {"90.1": "not done"}),

    ("cut off", file(TEXT[:1500]), None, {"": "cut off"}),
    ("an empty file", file(""), None, {"": "empty"}),
    ("outputs beyond the limit", file(b'{"cells": ["' + b"x" * 51 * 2**20 + b'"]}'), None, {"": "clear its outputs"}),
    ("millions of parts", file(b'{"cells": [' + b"[]," * 3 * 10**6 + b"[]]}"), None, {"": "clear its outputs"}),
    ("nested without end", file("[" * 10**5), None, {"": "not a notebook"}),
    ("nested as deep as can be read", file(TEXT.rstrip()[:-1] + ', "x": ' + "[" * 900 + "]" * 900 + "}"), None,
     {"": "damaged"}),
    ("a web page", file("<!DOCTYPE html>\n<title>Log in</title>"), None, {"": "a web page"}),
    ("a zip file", file(b"PK\x03\x04" + b"\x00\xff" * 99), None, {"": "a zip file"}),
    ("a Python script", file("import numpy\n"), None, {"": "not a notebook"}),
    ("a picture", file(b"\x89PNG\r\n\xff\xfe"), None, {"": "not text"}),
    ("marks of git", file(TEXT.replace('\n', '\n<<<<<<< HEAD\n=======\n', 1)), None, {"": "git"}),
    ("another course", save(v4.new_notebook(cells=[v4.new_code_cell("1")])), None,
     {"": "not a notebook of this course"}),
    ("a format to come", file('{"nbformat": 9, "metadata": {}, "cells": []}'), None, {"": "nbformat 9"}),
    ("cells that are none", file('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [1, "x", null]}'), None,
     {"": "damaged"}),
    ("notebooks by the hundred", folder(**{f"x{i}": "" for i in range(201)}), None, {"": "only those of the course"}),
    ("an empty folder", lambda path: path.mkdir(), None, {"": "no notebook in this folder"}),
    ("a link to another's file", link("honest_0.ipynb"), None, {"": "a link"}),
    ("a link to nowhere", link("/nowhere"), None, {"": "a link"}),
    ("a link to the disk", link("/etc/passwd"), None, {"": "a link"}),
    ("a link to a folder of another", lambda path: os.symlink("student 0", path), None, {"": "a link"}),
    ("a pipe", lambda path: os.mkfifo(path.with_name(path.name + ".ipynb")), None, {"": "no ordinary file"}),
]
# Names as files may have them; the results name the student so that a terminal and a spreadsheet stay whole.
NAMES = ["-rf", "=cmd()", "@sum", "a\nb", "\u202egnp", "a\x1b[2J", os.fsdecode(b"caf\xe9"),
         "x" * 200, "..ipynb", "a,b\";c", "[bold]"]


def cases():
    found = [Case(name, "accident", write, marks, words) for name, write, marks, words in ACCIDENTS]
    found += [Case(name, "accident", file(""), None, {"": "empty"}) for name in NAMES]
    return [*found, Case("a folder with the suffix.ipynb", "accident", folder(Untitled=full()), FULL)]
