"""submissions: paths -> submissions. Knows the layouts in which notebooks are collected, and never refuses one.

A file is a submission. A folder is one student's if its notebooks have the names of the course's; otherwise each
notebook in it is a submission, and each folder in it is a student's: submitted/<student>/<unit>/<notebook>.ipynb as
nbgrader has it, or <student>/<notebook>.ipynb. What lies among students' folders and is no student's is named, and
makes nobody else's work its own. Next: transplant.py.
"""
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..course.release import REPOSITORY, ROOT, Course
from .transplant import LARGEST, Unreadable, chapter_in, load, tails
from .whose import one_name

MOST_FILES = 200  # notebooks of one student
MOST_BYTES = 4 * LARGEST  # of all of them: a batch holds a few submissions at a time
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)  # browsers add such an ending

ARCHIVE = re.compile(r"\.(zip|7z|rar|tar|t?gz|bz2|xz)$", re.IGNORECASE)


@dataclass(frozen=True)
class Submission:
    """What one student handed in. `whole`: a folder, in which a notebook that is not there is missing."""

    student: str
    paths: tuple[str, ...]
    whole: bool = False
    problem: str = ""  # why it cannot be graded at all
    lost: tuple[tuple[str, str], ...] = ()  # files that are not among the paths: name, and why they cannot be read
    names: tuple[str, ...] = ()  # what to call the files, if not by their own names

    @property
    def digest(self) -> str:
        """A hash of the contents: the same files give the same digest, whatever they are called."""
        return pack(self).digest


@dataclass(frozen=True)
class Parcel:
    """A submission as it was at one moment, ready to be graded elsewhere: its files are in it."""

    student: str
    files: tuple[tuple[str, bytes | str], ...]  # name and contents; a str says why there are none
    whole: bool = False
    problem: str = ""

    @cached_property
    def digest(self) -> str:
        """As Submission's: of the contents alone."""
        total = hashlib.sha256()
        for _, content in self.files:
            total.update(hashlib.sha256(content).digest() if isinstance(content, bytes) else b"?")
        return total.hexdigest()

    def key(self, settings: tuple) -> str:
        """What a result is filed under: another key whenever the marks or the report could be different ones."""
        contents = [(name, content if isinstance(content, str) else hashlib.sha256(content).hexdigest())
                    for name, content in self.files]
        text = json.dumps([self.student, contents, self.whole, self.problem, settings])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def pack(submission: Submission) -> Parcel:
    """Reads the files of a submission, once."""
    left = MOST_BYTES

    def content(path):
        nonlocal left
        try:
            if left <= 0:
                raise Unreadable(f"all files together have more than {MOST_BYTES // 2**20} MiB; clear their outputs "
                                 "and hand them in again")
            read = load(Path(path))
            left -= len(read)
            return read
        except Unreadable as reason:
            return str(reason)
    names = submission.names or tails(submission.paths)
    files = () if submission.problem else tuple((n, content(p)) for n, p in zip(names, submission.paths, strict=True))
    return Parcel(submission.student, files + submission.lost, submission.whole, submission.problem)


def find(paths: list[str], course: Course) -> list[Submission]:
    """All submissions below these paths, sorted by student. A path without any gives one with a `problem`."""
    found: list[Submission] = []
    for path in map(Path, paths):
        if path.is_dir():
            found += _folder(path, course)
        elif path.is_file() or not os.path.lexists(path):
            problem = "" if path.is_file() else "there is no such file or folder"
            found.append(Submission(_student_of(path), (str(path),), problem=problem))
        else:
            found.append(_no_file(path))
    # The same file named twice is one submission.
    found = sorted(dict.fromkeys(found), key=lambda s: (natural(s.student), s.paths))
    return [s for _, same in itertools.groupby(found, lambda s: one_name(s.student)) for s in _told_apart(list(same))]


def _told_apart(same: list[Submission]) -> list[Submission]:
    """Submissions under one name: their files get names that tell them apart."""
    if len(same) < 2:
        return same
    names = iter(tails([p for s in same for p in s.paths]))
    return [replace(s, names=tuple(itertools.islice(names, len(s.paths)))) for s in same]


def _folder(path: Path, course: Course) -> list[Submission]:
    names = {n.name for n in course.notebooks}
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        return [Submission(path.resolve().name, (str(path),), problem=_unlisted(error))]
    loose = [p for p in entries if NOTEBOOK.search(p.name) and not os.path.isdir(p)]
    # A link could lead to another student's answers.
    here = [p for p in loose if os.path.isfile(p) and not p.is_symlink()]
    folders = [p for p in entries if os.path.isdir(p) and not p.name.startswith(".")]
    units = [f for f in folders if f.name in course.units]
    named = [p for p in here if p.stem in names]
    # Students' folders, if there are several, or one has a unit's folder in it: else it may be a student's own copy.
    others = [f for f in folders if f not in units and _has_notebook(f)] if units or named else []
    several = len(others) > 1 or any((f / unit).is_dir() for f in others for unit in course.units)
    turned = not here and bool(units) and _turned(path, course)
    if (named if here else units) and len(named) == len(here) and not several and not turned:
        return [_student(path, course)]
    stray = {p: NOBODY for p in named}
    stray |= {u: _why_stray(u, course) for u in units if not u.is_symlink() and (others or _turned(u, course))}
    found = [Submission(p.name, (str(p),), problem=why) for p, why in stray.items()]
    found += [Submission(_student_of(p), (str(p),)) if p in here else _no_file(p) for p in loose if p not in stray]
    found += [_no_file(f) if f.is_symlink() else _student(f, course) for f in folders if f not in stray]
    return found or [_without_notebook(path, path.resolve().name)]


NOBODY = ("it has the name of a notebook, and no student's: put it into its student's folder, or name it after its "
          "student")


def _has_notebook(folder: Path) -> bool:
    return not folder.is_symlink() and bool(notebooks_below(folder.resolve())[0])


def _homes(folder: Path, notebooks: Iterable[Path], course: Course) -> dict[str, set[tuple[str, ...]]]:
    """Name of a notebook -> the folders in which it lies, seen from here; a unit's belongs to the one around it."""
    homes: dict[str, set[tuple[str, ...]]] = {}
    for path in notebooks:
        home = path.relative_to(folder).parent.parts
        while home and home[-1] in {*course.units, "work", "notebooks"}:  # the course's own, if all of it came in
            home = home[:-1]
        homes.setdefault(path.name, set()).add(home)
    return homes


def _turned(folder: Path, course: Course) -> bool:
    """Whether the folders of units in it, or of this unit, have students' folders in them, instead of notebooks."""
    folder = folder.resolve()
    homes = _homes(folder, notebooks_below(folder)[0], course)
    return bool(homes) and () not in set().union(*homes.values())


def _why_stray(unit: Path, course: Course) -> str:
    if not _turned(unit, course):
        return f"{unit.name} lies among students' folders, and is no student's: move it into its student's folder"
    inside = [f.name for f in sorted(unit.iterdir()) if f.is_dir() and not f.name.startswith(".")]
    return (f"{unit.name} holds folders ({some(inside)}), so it is laid as unit/student. Lay it as student/unit: "
            f"{inside[0]}/{unit.name}")


def some(names: list[str], most: int = 3) -> str:
    """The first of many names, and how many more there are.  >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + f" and {len(names) - most} more" * (len(names) > most)


def _student_of(path: Path) -> str:
    """Whose a loose file is: its name. Never one that would lead elsewhere as the name of a folder."""
    name = NOTEBOOK.sub("", path.name) if NOTEBOOK.search(path.name) else path.stem
    return f"_{name}" if name in ("", ".", "..") else name


def _no_file(path: Path) -> Submission:
    return Submission(_student_of(path), (str(path),), problem=_why_no_file(path))


def _why_no_file(path: Path) -> str:
    what = "a link to another one" if os.path.islink(path) else "no ordinary file"
    if what == "no ordinary file":
        try:
            path.stat()
        except OSError as error:
            return f"the file cannot be read: {error.strerror}"
    return f"this is {what}: hand in the notebook itself"


def _unlisted(error: OSError) -> str:
    return f"the folder cannot be read: {error.strerror}"


def _student(path: Path, course: Course) -> Submission:
    path = path.resolve()
    name = path.parent.name if path.name in course.units else path.name
    for place, what in ((Path(course.release), "the release"), (REPOSITORY / "work", "what `make lab` opens"),
                        (ROOT / ".nbgrader" / "source", "nbgrader's source, with the answers")):
        if path.is_relative_to(place.resolve()):
            return Submission(name, (str(path),), problem=f"this is {what}, and nobody's work")
    others: list[str] = []
    notebooks, lost = notebooks_below(path, others)
    if not notebooks:
        problem = "; ".join(f"{file}: {why}" for file, why in lost)
        return Submission(name, (str(path),), problem=problem) if lost else _without_notebook(path, name)
    homes = _homes(path, notebooks, course).values()
    if several := next((found for found in homes if len(found) > 1 and () not in found), None):
        inside = sorted("/".join(home) for home in several)
        return Submission(name, (str(path),), problem=f"{some(inside)} in this folder have the same notebook. If they "
                          "are students' folders, grade this one by itself; if not, keep the one that counts")
    if len(notebooks) > MOST_FILES:
        return Submission(name, (str(path),), problem=f"there are {len(notebooks)} notebooks in this folder: hand in "
                          "only those of the course")
    lost += _in_another_format(others, [*(p.name for p in notebooks), *(file for file, _ in lost)], course)
    return Submission(name, tuple(map(str, notebooks)), whole=True, lost=tuple(lost))


def _in_another_format(files: list[str], notebooks: list[str], course: Course) -> list[tuple[str, str]]:
    """Files that carry the name of a notebook that no notebook here has: what it was saved as, perhaps."""
    names = [n.name for n in course.notebooks]
    there = {chapter_in(file, names) for file in notebooks} | {""}
    found: dict[str, str] = {}
    for file in sorted(files):
        if (chapter := chapter_in(file, names)) not in there:
            found.setdefault(chapter, file)
    return [(file, f"this is {'an archive' if ARCHIVE.search(file) else 'no notebook'}. Hand in {chapter}.ipynb itself")
            for chapter, file in found.items()]


def _without_notebook(folder: Path, student: str) -> Submission:
    there: list[str] = []
    notebooks_below(folder, there)
    what = f", only {some(sorted(there))}" if there else ": it is empty"
    return Submission(student, (str(folder),), problem=f"there is no notebook in this folder{what}")


def notebooks_below(folder: Path, others: list[str] | None = None) -> tuple[list[Path], list[tuple[str, str]]]:
    """The notebooks below a folder, and what may be or hold one and cannot be read: its name, and why.

    `others`: gets the names of all other files.
    A link out of the folder could lead to another student's answers. Folders may be nested deeper than Python's calls.
    """
    found, lost, left = [], [], [folder]
    while left:
        here = left.pop()
        try:
            entries = [e for e in os.scandir(here) if not e.name.startswith(".")]
        except OSError as error:
            lost.append((here.name, _unlisted(error)))
            continue
        for entry in entries:
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False):
                left.append(path)
            elif NOTEBOOK.search(entry.name):
                inside = os.path.isfile(path) and path.resolve().is_relative_to(folder)
                found += [path] * inside
                lost += [(entry.name, _why_no_file(path))] * (not inside)
            elif entry.is_symlink() and os.path.isdir(path) and any(path.glob("*.ipynb")):
                lost.append((entry.name, _why_no_file(path)))
            elif others is not None:
                others.append(entry.name)
    return sorted(found), sorted(lost)


def natural(text: str) -> list:
    """s2 before s10."""
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in re.split(r"(\d+)", one_name(text).casefold()) if p]
