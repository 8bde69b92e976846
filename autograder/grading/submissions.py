"""submissions: paths -> submissions. Knows the layouts in which notebooks are collected, and never refuses one.

A file is a submission. A folder is one student's if its notebooks have the names of the course's; otherwise each
notebook in it is a submission, and each folder in it is a student's: submitted/<student>/<unit>/<notebook>.ipynb as
nbgrader has it, or <student>/<notebook>.ipynb.
"""
import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..course.release import Course
from .transplant import LARGEST, Unreadable, load

MOST_FILES = 200  # notebooks of one student
MOST_BYTES = 4 * LARGEST  # of all of them: a batch holds a few submissions at a time
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)  # browsers add such an ending


@dataclass(frozen=True)
class Submission:
    """What one student handed in. `whole`: a folder, in which a notebook that is not there is missing."""

    student: str
    paths: tuple[str, ...]
    whole: bool = False
    problem: str = ""  # why it cannot be graded at all
    lost: tuple[tuple[str, str], ...] = ()  # files that are not among the paths: name, and why they cannot be read

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
    files = () if submission.problem else tuple((Path(p).name, content(p)) for p in submission.paths)
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
    return sorted(dict.fromkeys(found), key=lambda s: (_natural(s.student), s.paths))


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
    if here and all(p.stem in names for p in here) or not here and any(f.name in course.units for f in folders):
        return [_student(path, course)]
    found = [Submission(_student_of(p), (str(p),)) if p in here else _no_file(p) for p in loose]
    found += [_no_file(f) if f.is_symlink() else _student(f, course) for f in folders]
    if not found:
        found.append(Submission(path.name, (str(path),), problem="there is no notebook in this folder"))
    return found


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
    notebooks, lost = notebooks_below(path)
    if not notebooks:
        problem = "; ".join(f"{file}: {why}" for file, why in lost) or "there is no notebook in this folder"
        return Submission(name, (str(path),), problem=problem)
    if len(notebooks) > MOST_FILES:
        return Submission(name, (str(path),), problem=f"there are {len(notebooks)} notebooks in this folder: hand in "
                          "only those of the course")
    return Submission(name, tuple(map(str, notebooks)), whole=True, lost=tuple(lost))


def notebooks_below(folder: Path) -> tuple[list[Path], list[tuple[str, str]]]:
    """The notebooks below a folder, and what may be or hold one and cannot be read: its name, and why.

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
    return sorted(found), sorted(lost)


def _natural(text: str) -> list:
    """s2 before s10."""
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in re.split(r"(\d+)", text.casefold()) if p]
