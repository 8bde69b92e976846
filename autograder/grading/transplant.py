"""transplant: a student's notebook -> the cells to run, in our own skeleton.

Answer cells are taken by id, so that cells that were moved, copied, deleted, or had their grading data changed make no
difference. Cells of ours whose ids a program lost, or that an earlier release has otherwise, are known by their text.
Locked cells and tests are ours. Everything else that the student wrote runs too, where they put it.
"""
import ast
import builtins
import json
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat

from ..course.online import INSTALL
from ..course.release import Course, Notebook, Test, cell_ids
from .needed import MOST_PARSED, MOST_TOGETHER, changed_in_place, may_bind, needed

LARGEST = 50 * 2**20  # bytes of a notebook; outputs count
MOST_PARTS = 500_000  # lists and dictionaries in it
MOST_STAMP = 1000  # bytes of the small files that nbgrader keeps beside it
NO_NOTEBOOKS = {  # how other files begin that come in under the name of a notebook
    b"<!doctype": "it is a web page. Download the file itself", b"<html": "it is a web page. Download the file itself",
    b"pk\x03\x04": "it is a zip file. Hand in the notebook that is in it", b"%pdf": "it is a PDF"}


TWO_COPIES = "{} and {} are the same notebook of the course; {} was graded"
ANOTHER_CHAPTER = "this is {}, under the name of another notebook. Hand in the one that the name says"


class Unreadable(Exception):
    """A submission that cannot be graded: not a notebook, or not one of this course. The text says what to do."""


@dataclass(frozen=True)
class Step:
    """One cell to run (`source`), or one exercise to judge (`test`). `exercise`: whose answer.

    `missing`: why there is no answer to judge; names that the rest of the notebook leaves behind are none.
    `nobodys`: the test asks for the student's id, to which no cell gives a value.
    `leaves`: names of a later answer. What they hold up to here is of another exercise, or of a cell of ours.
    """

    source: str = ""
    exercise: str = ""
    test: Test | None = None
    ours: bool = False  # a cell of the release, as we wrote it
    missing: str = ""
    nobodys: bool = False
    leaves: tuple[str, ...] = ()


def load(path: Path, most: int = LARGEST, follow: bool = True) -> bytes:
    """What is in a file of a student's, one that may be a notebook. Raises Unreadable.

    It may be a pipe, grow, or become a link since it was looked at, so all is asked of what was opened. `follow`:
    whether it may be a link.
    """
    too_large = f"the file is larger than {most // 2**20} MiB; clear its outputs and hand it in again"
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
        for _ in range(3):
            with open(os.open(path, flags), "rb") as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise Unreadable("this is no ordinary file: hand in the notebook itself")
                content = file.read(most + 1) if before.st_size <= most else b""
                after = os.fstat(file.fileno())
            if max(before.st_size, len(content)) > most:
                raise Unreadable(too_large)
            if (before.st_size, before.st_mtime_ns) == (len(content), after.st_mtime_ns):
                return content
        raise Unreadable("the file is being written to. Grade it again when that is done")
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from None


def read_notebook(path: Path) -> Any:
    """A notebook of any version, as version 4. Raises Unreadable."""
    raw = load(path)
    if not raw.strip():
        raise Unreadable("the file is empty")
    if raw.count(b"[") + raw.count(b"{") > MOST_PARTS:  # read, it would take a hundred times its size
        raise Unreadable("the file has far too many parts; clear its outputs and hand it in again")
    text = _text(raw)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.startswith("{") and not text.endswith("}"):
            raise Unreadable("the file is cut off: it was not saved or uploaded to its end") from None
        if any(line.startswith(("<<<<<<< ", ">>>>>>> ")) for line in text.split("\n")):
            raise Unreadable("git has put its marks of a conflict (<<<<<<<) into the file: keep one version") from None
        what = next((what for start, what in NO_NOTEBOOKS.items() if raw[:200].lstrip().lower().startswith(start)),
                    "" if "\ufffd" not in text else "it is not text")
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable("this is not a notebook: " + (
            what or f"a notebook is a JSON file, and this is none{where}")) from None
    if not isinstance(data, dict) or not isinstance(data.get("nbformat"), int):
        raise Unreadable("this is not a notebook: it has no nbformat")
    try:
        with warnings.catch_warnings():  # a repeated cell id, say: grading has its own word for that
            warnings.simplefilter("ignore")
            notebook = nbformat.reads(json.dumps(data), as_version=4)
        for cell in notebook.cells:
            if not isinstance(cell.source, str):
                cell.source = "".join(cell.source)
            # Half a surrogate pair, of an emoji that was cut in two, is no text to Python.
            cell.source = cell.source.replace("\r\n", "\n").encode("utf-8", "replace").decode()
            if not isinstance(cell.metadata, dict):
                raise TypeError("a cell's metadata is no dictionary")
            cell.setdefault("cell_type", "code")
        return notebook
    except Exception as error:
        reason = str(error).split("\n")[0][:200]
        raise Unreadable(f"the notebook's format is damaged (nbformat {data['nbformat']}): {reason}") from None


def _text(raw: bytes) -> str:
    """The text of a file. UTF-16 is what Notepad saves; of any other encoding, most signs can still be read."""
    try:
        return raw.decode(json.detect_encoding(raw)).lstrip("\ufeff").strip()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").lstrip("\ufeff").strip()


def recognise(notebook: Any, course: Course) -> Notebook:
    """The released notebook that this one was made from, by the ids of its cells. Raises Unreadable.

    Where a program has left no id of anybody's in it, by the text of its checks.
    """
    ids = {i for cell in notebook.cells for i in cell_ids(cell)}
    of_nbgrader = any(isinstance(c.metadata.get("nbgrader"), dict) for c in notebook.cells)
    texts = {c.source.strip() for c in notebook.cells} if not of_nbgrader else set()

    def shared(n: Notebook) -> tuple[int, int]:
        return (len(ids & (n.answers.keys() | n.tests.keys())),
                sum(c.source.strip() in texts for c in n.cells if n.tests.keys() & {*cell_ids(c)}))
    best = max(course.notebooks, key=shared)
    if not any(shared(best)):
        whose = ". It is of another course, or of another year" * of_nbgrader
        raise Unreadable(f"this is not a notebook of this course: it has none of its exercises{whose}. Put your "
                         "answers into the notebook that was handed out now, and hand in that one")
    return best


def chapter_in(file: str, names: Iterable[str]) -> str:
    """The notebook of the course whose name a file carries, whatever stands around it; empty if there is none.

    >>> chapter_in("unit1/Ada 02_Overlap (1).ipynb.zip", ["01_memory_hierarchy", "02_overlap"])
    '02_overlap'
    """
    name = os.path.basename(file).casefold()
    return max((n for n in names if n.casefold() in name), key=len, default="")


def is_another(file: str, released: Notebook, course: Course) -> str:
    """The notebook of the course whose name a file carries, if it holds another one, `released`; else empty."""
    named = chapter_in(file, (n.name for n in course.notebooks))
    return "" if named == released.name else named


def tails(paths: Sequence[str | os.PathLike]) -> list[str]:
    """What to call files: by their names, and where two have one name, with as much before it as tells them apart.

    >>> tails(["a/unit1/x.ipynb", "b/unit1/x.ipynb", "b/y.ipynb"])
    ['a/unit1/x.ipynb', 'b/unit1/x.ipynb', 'y.ipynb']
    """
    parts = {path: Path(os.path.abspath(path)).parts[1:] for path in map(os.fspath, paths)}
    found: dict[str, str] = {}
    length = 0
    while len(found) < len(parts):
        length += 1
        ends = {path: some[-length:] for path, some in parts.items() if path not in found}
        count = Counter(ends.values())
        found |= {path: os.path.join(*end) for path, end in ends.items() if count[end] == 1 or length > len(end)}
    return [found[os.fspath(path)] for path in paths]


Unread = list[tuple[str, str]]  # a file's name, and why it cannot be graded


def collect(paths: Iterable[str], course: Course,
            names: Sequence[str] = ()) -> tuple[dict[Notebook, tuple[Path, Any]], list[str], Unread]:
    """Released notebook -> the file that is graded as it, read; warnings for the student; what could not be read.

    `names`: what to call the files (default: `tails`).
    """
    paths = [Path(p) for p in paths]
    called = dict(zip(paths, names or tails(paths), strict=True))
    read: dict[Notebook, tuple[Path, Any]] = {}
    warnings, unread = [], []
    for path in paths:
        try:
            notebook = read_notebook(path)
            released = recognise(notebook, course)
        except Unreadable as reason:
            unread.append((called[path], str(reason)))
            continue
        if released in read:
            # A copy beside the notebook: one with an answer counts, else the one with the released name, else the last.
            other, theirs = read[released]
            kept = path if path.stem == released.name or other.stem != released.name else other
            if len(done := [p for p, n in ((path, notebook), (other, theirs)) if answered(released, n)]) == 1:
                kept, = done
            why = ", since the other one has no answer in it" * (len(done) == 1)
            warnings.append(TWO_COPIES.format(called[path], called[other], called[kept]) + why)
            lost = other if kept == path else path
            if is_another(lost.name, released, course):
                unread.append((called[lost], ANOTHER_CHAPTER.format(released.name)))
            if kept != path:
                continue
        read[released] = path, notebook
    return read, warnings, unread


def answered(released: Notebook, notebook: Any) -> bool:
    """Whether a student's notebook has an answer to any exercise: text that the release does not have there."""
    theirs, _ = place(released, notebook)
    return any((text := counted(cell, theirs.get(k, []))) is not None and text.strip() != cell.source.strip()
               for k, cell in enumerate(released.cells)
               if released.answers.get(cell.metadata.get("nbgrader", {}).get("grade_id")))


def place(released: Notebook, notebook: Any) -> tuple[dict[int, list[Any]], dict[int, list[Any]]]:
    """Place in our skeleton -> the student's versions of that cell; and the cells that the student added behind it.

    Where ids were lost, a cell with our text is ours. Any other one may be ours with changes, or of an earlier release:
    it comes behind those of ours that are not in the notebook there, so that what it says is what counts.
    """
    ours = {i: k for k, cell in enumerate(released.cells) for i in cell_ids(cell)}
    known = [next((ours[i] for i in cell_ids(cell) if i in ours), None) for cell in notebook.cells]
    unseen: dict[str, list[int]] = {}
    for k in sorted({*range(len(released.cells))} - {*known}):
        unseen.setdefault(released.cells[k].source.strip(), []).append(k)
    for n, cell in enumerate(notebook.cells):
        if known[n] is None and cell.source.strip() and (same := unseen.get(cell.source.strip())):
            known[n] = same.pop(0)
    there = {*known}
    theirs: dict[int, list[Any]] = {}
    extra: dict[int, list[Any]] = {}
    where, end = -1, len(released.cells)
    ends = [end := end if k is None else k for k in reversed(known)][::-1]  # the next of ours: n or behind it
    for n, cell in enumerate(notebook.cells):
        if known[n] is not None:
            where = known[n]
            theirs.setdefault(where, []).append(cell)
        elif cell.source.strip():
            while where + 1 < ends[n] and where + 1 not in there and not _is_exercise(released, where + 1):
                where += 1
            extra.setdefault(where, []).append(cell)
    return theirs, extra


def _is_exercise(released: Notebook, k: int) -> bool:
    name = released.cells[k].metadata.get("nbgrader", {}).get("grade_id")
    return name in released.tests or name in released.answers


def counted(cell: Any, versions: list[Any]) -> str | None:
    """The student's text that counts for a released code cell; None: ours."""
    nbgrader = cell.metadata.get("nbgrader", {})
    if nbgrader.get("solution"):
        # An untouched copy of the hole, left behind by copy and paste, does not undo the answer.
        written = [v for v in versions if v.source.strip() != cell.source.strip()] or versions
        return written[-1].source if written else None
    code = [v.source for v in versions if v.cell_type == "code"]
    changed = not nbgrader.get("locked") and code and code[-1].strip() != cell.source.strip()
    return code[-1] if changed else None


def transplant(released: Notebook, notebook: Any) -> tuple[list[Step], list[str]]:
    """The steps of grading a notebook, in order, and warnings for the student."""
    theirs, extra = place(released, notebook)
    steps, warnings = _cells(extra.get(-1, [])), []
    absent: dict[str, str] = {}  # exercises without an answer cell, and why
    written = [(s.source, "") for s in steps]  # what the student wrote, and what stands there in the release
    code = [c.source for c in notebook.cells if c.cell_type == "code"]
    leaves = _leaves(released, theirs)
    for k, cell in enumerate(released.cells):
        nbgrader = cell.metadata.get("nbgrader", {})
        test = released.tests.get(nbgrader.get("grade_id"))
        number = released.answers.get(nbgrader.get("grade_id"), "")
        versions = theirs.get(k, [])
        if test is not None:
            changed = next((v.source for v in versions[::-1] if v.cell_type == "code" and not _alike(v, cell)), "")
            if _names(test.expression) & may_bind(changed):  # an answer that stands in the cell of its check
                steps.append(Step(changed))
                written.append((changed, cell.source))
            elif changed:
                warnings.append(f"exercise {test.number}: its check was changed; what counts is {test.expression}, as "
                                "the cells above give it")
            missing = absent.get(test.number, "")
            missing = "" if missing and _names(test.expression) & _own(written) else missing
            nobodys = _gives(test.student, (c.source for c in released.cells)) and not _gives(test.student, code)
            steps.append(Step(test=test, missing=missing, nobodys=nobodys))
        elif number:
            if len(versions) > 1:
                warnings.append(f"exercise {number}: its cell is there {len(versions)} times; the last one was graded")
            if not versions:
                warnings.append(f"exercise {number}: its cell is not in the notebook: deleted, or newer than it")
                absent[number] = "its cell is not in the notebook"
            elif versions[-1].cell_type != "code":
                warnings.append(f"exercise {number}: its cell is no code cell any more; it was run as one")
            if (text := counted(cell, versions)) and text.strip():
                steps.append(Step(text, number))
                written.append((text, cell.source))
            elif versions:
                absent[number] = "its cell is empty"
        elif cell.cell_type == "code" and cell.get("id") != INSTALL:
            changed = counted(cell, versions)
            if changed is not None:
                written.append((changed, cell.source))
            source = cell.source if changed is None else changed
            if not versions:  # ours would undo what an earlier cell of theirs says
                for name in {t.student for t in released.tests.values()}:
                    source = source if not _gives(name, (s for s, _ in written)) else _giving(name).sub("", source)
            steps.append(Step(source, ours=changed is None))
        if k in leaves:
            steps.append(Step(ours=True, leaves=tuple(sorted(leaves[k]))))
        added = _cells(extra.get(k, []))
        steps += added
        written += [(s.source, "") for s in added]
    # Nothing after the last test can change a mark.
    last = max((i for i, s in enumerate(steps) if s.test), default=-1)
    return _needed(steps[:last + 1]), warnings


def _leaves(released: Notebook, theirs: dict[int, list[Any]]) -> dict[int, set[str]]:
    """Place in the release -> names of later answers that a cell of ours, or an answer that is judged there, leaves.

    Two predictions of a chapter may have one name, and a loop of ours that of an answer below it.
    """
    places = {i: k for k, cell in enumerate(released.cells) for i in cell_ids(cell)}
    ends = {t.answer_id: places[i] for i, t in released.tests.items()}
    found: dict[int, set[str]] = {}
    for t in released.tests.values():
        home = places[t.answer_id]
        asked = _names(t.expression) & may_bind(released.cells[home].source)
        asked -= changed_in_place(counted(released.cells[home], theirs.get(home, [])) or "")
        for k, cell in enumerate(released.cells[:home]):
            names = asked & may_bind(cell.source) if asked and cell.cell_type == "code" else set()
            end = ends.get(cell.metadata.get("nbgrader", {}).get("grade_id"), k)
            if names and end < home:
                found.setdefault(end, set()).update(names)
    return found


def _alike(one: Any, other: Any) -> bool:
    """Whether two cells hold the same code, but for comments and spaces."""
    try:
        return ast.dump(ast.parse(one.source)) == ast.dump(ast.parse(other.source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return one.source.strip() == other.source.strip()


def _giving(name: str) -> re.Pattern:
    return re.compile(rf"^{re.escape(name)}[ \t]*(:[^=\n]*)?=(?!=).*$", re.MULTILINE)


def _gives(name: str, sources: Iterable[str]) -> bool:
    """Whether a line of these cells gives this name a value."""
    return bool(name) and any(_giving(name).search(source) for source in sources)


def _names(expression: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(expression)) if isinstance(n, ast.Name)} - {*dir(builtins)}


def _own(written: Iterable[tuple[str, str]]) -> set[str]:
    """The names that a student's cells may give a value, and ours in their place do not."""
    found, left = set(), MOST_TOGETHER
    for text, ours in written:
        found |= may_bind(text, min(left, MOST_PARSED)) - may_bind(ours)
        left -= len(text)
    return found


def _needed(steps: list[Step]) -> list[Step]:
    """Without those of our statements that only show something."""
    left = needed([(s.test.expression + "\n" + s.test.student if s.test else s.source, s.ours) for s in steps])
    return [replace(s, source=source) if s.ours else s for s, source in zip(steps, left, strict=True)
            if source or s.leaves or not s.ours]


def _cells(cells: Iterable[Any]) -> list[Step]:
    return [Step(c.source) for c in cells if c.cell_type == "code"]
