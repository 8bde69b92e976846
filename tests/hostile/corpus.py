"""The corpus: submissions that cheat, that hurt, or that met with an accident. Each with its marks and what is said.

    forging.py    answers that want marks for nothing      small programs, packed four to a notebook
    knowing.py    of 3.9 and of predictions, the same      one notebook, with a hole for each
    hurting.py    answers that would harm the grader       the same; what stands beside them must get its marks
    accidents.py  what happens to honest students' files   one file or folder each

test_corpus.py grades them all in one batch, with honest submissions among them. A new one is a line in a table.
"""
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from ..autograder import little_course as little
from .chapters import CHAPTERS, as_chapter

ROOT = Path(__file__).parents[2]


ANY = ""  # a program that may stand in any exercise
CHEAT = "cheat"  # the student who has the real chapters and all of knowing.py


@dataclass(frozen=True)
class Program:
    """One answer cell. `words`: what the message on its exercise says; `points`: what it earns."""

    name: str
    number: str
    source: str
    words: str = ""
    points: float = 0


@dataclass(frozen=True)
class Case:
    """One submission. `write(path)` makes it in a folder that is there; `path` has the student's name and no suffix.

    `marks`: points of each exercise; None: it cannot be read. `words`: exercise -> words of its message; "" -> words of
    the warnings.
    """

    name: str
    kind: str  # "forge", "hurt", "accident" or "honest"
    write: Callable[[Path], object]
    marks: dict[str, float] | None
    words: dict[str, str] = field(default_factory=dict)
    made_of: tuple[str, ...] = ()  # names of the programs in it
    alone: bool = False  # a submission of its own, because its name matters, or what it does to the whole
    together: str = ""  # the student in whose submission it is, with others that name the same

    @property
    def can_share(self) -> bool:
        """Whether it may be one of many notebooks of one student."""
        return not (self.alone or self.together or self.marks is None) and all(n.startswith("90.") for n in self.marks)


def save(notebook) -> Callable[[Path], object]:
    return lambda path: nbformat.write(notebook, path.with_name(path.name + ".ipynb"))


def pack(kind: str, programs: list[Program], beside: dict[str, str], together: str = "") -> list[Case]:
    """Notebooks of the little course with a program in each exercise, as far as they go; `beside`: the other answers.

    Programs that meddle with more than their own exercise are packed by themselves: nobody else's message is foreseen.
    """
    rows = {n: [p for p in programs if p.number == n] for n in little.STUBS}
    for p in programs:
        if p.number == ANY:
            min(rows.values(), key=len).append(p)
    cases = []
    for i in range(max(map(len, rows.values()))):
        here = {n: ps[i] for n, ps in rows.items() if i < len(ps)}
        marks = {n: here[n].points if n in here else little.POINTS[n] * (n in beside) for n in little.STUBS}
        cases.append(Case(f"{kind}_{i}", kind, save(little.notebook(beside | {n: p.source for n, p in here.items()})),
                          marks, {n: p.words for n, p in here.items() if p.words},
                          tuple(p.name for p in here.values()), together=together))
    return cases


def chapter(kind: str, file: str, programs: list[Program]) -> Case:
    """A chapter of the real course with these programs in it, and all else not done."""
    notebook = nbformat.read(ROOT / "notebooks" / file, as_version=4)
    sources, marks = {f"ex-{p.number.replace('.', '-')}": p for p in programs}, {}
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade"):
            number = meta["grade_id"].removeprefix("test-").replace("-", ".")
            marks[number] = next((p.points for p in programs if p.number == number), 0)
        if cell.id in sources:
            cell.source = sources.pop(cell.id).source
    assert not sources, sources
    return Case(f"{kind}_{Path(file).stem}_{programs[0].number}", kind, save(notebook), marks,
                {p.number: p.words for p in programs if p.words}, tuple(p.name for p in programs), together=CHEAT)


@dataclass(frozen=True)
class Placed:
    """A case and where it was put: whose submission, and as which chapter."""

    case: Case
    student: str
    chapter: int = 90


def placed(cases: list[Case]) -> list[Placed]:
    """Each case in a submission: those that can share one in turns, so that none has all that is slow."""
    share = [c for c in cases if c.can_share]
    found = [Placed(c, c.together or c.name) for c in cases if not c.can_share]
    n = -(-len(share) // len(CHAPTERS))
    return found + [Placed(c, f"student {i % n}", CHAPTERS[i // n]) for i, c in enumerate(share)]


def hand_in(where: Placed, folder: Path) -> None:
    if not (where.case.can_share or where.case.together):
        where.case.write(folder / where.student)
        return
    with tempfile.TemporaryDirectory() as made:
        where.case.write(Path(made, where.case.name))
        for path in Path(made).rglob("*"):
            if path.is_file():
                name = as_chapter(str(path.relative_to(made)).encode(), where.chapter).decode()
                copy = folder / where.student / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(as_chapter(path.read_bytes(), where.chapter))
