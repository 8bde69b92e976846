"""similar: submissions -> pairs of them that share more than the task explains, to be read side by side.

Only answer cells are compared, exercise by exercise, as runs of K tokens: comments, formatting and the student's own
names do not count, and runs that the skeleton or our own solution has are left out. A run counts the more, the fewer
students have it. A pair's share is what both have in common of these, as a part of what the smaller answers have. It is
taken for each notebook and for all together, and a pair is shown where it is above what honest pairs reach: the less
there is to compare, the more they may have in common by chance. benchmarks/similar.py measures that.

It is a reason to read two answers side by side, and says nothing about how they came to be alike.
Next: alike.py, which writes the page.
"""
import ast
import builtins
import io
import keyword
import math
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from ..course.release import Course, Notebook
from ..exercise import EXERCISES
from ..grading.submissions import Submission
from ..grading.transplant import collect, counted, place
from ..grading.whose import one_name

MOST_COMPARED = 100_000  # letters of an answer
K = 12  # tokens in a run: shorter ones are idioms that everybody writes
SMALL = 30  # a class is taken to have at least so many students: in a small one nothing would be rare
ALL = "all"
KEPT = {*keyword.kwlist, *dir(builtins)}
DROPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
           tokenize.ENCODING}


def limit(own: np.ndarray) -> np.ndarray:
    """The share above which a pair is shown, where the smaller answers have `own` runs. Above 1: never.

    Measured with benchmarks/similar.py, see docs/grading.md: no honest pair came near it.
    """
    return 0.38 + 7.2 / np.sqrt(np.maximum(own, 1e-9))


@dataclass(frozen=True)
class Pair:
    """Two students, and where they are most alike: a notebook, or "all". `exercises`: of each, the part in common."""

    one: str
    other: str
    where: str
    share: float
    limit: float
    exercises: dict[str, float]


Answers = dict[str, dict[str, str]]  # exercise -> student -> text of the answer cell


def answers_of(submissions: Iterable[Submission], course: Course) -> tuple[Answers, list[str]]:
    """The answer cells that count when grading, by exercise and student; and what could not be read."""
    found: Answers = {}
    problems = []
    for submission in submissions:
        if submission.problem:
            problems.append(f"{submission.student}: {submission.problem}")
            continue
        read, _, unread = collect(submission.paths, course, submission.names)
        unread = [*submission.lost, *unread]
        why = [f"{file}: {reason}" if len(submission.paths) > 1 else reason for file, reason in unread]
        if why:
            problems.append(f"{submission.student}: {'; '.join(why)}")
        for released, (_, notebook) in read.items():
            theirs, _ = place(released, notebook)
            for k, cell in enumerate(released.cells):
                number = released.answers.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
                text = counted(cell, theirs.get(k, [])) if number else None
                if text and text.strip() != cell.source.strip():
                    found.setdefault(number, {})[one_name(submission.student)] = text
    return {n: found[n] for n in EXERCISES if n in found}, problems


def explained(course: Course, solutions: dict[str, list[str]]) -> dict[str, list[str]]:
    """Exercise -> texts that everybody was given or is led to: the skeleton's code, and our own solutions."""
    found = {}
    for notebook in course.notebooks:
        code = [c.source for c in notebook.cells if c.cell_type == "code"]
        for number in notebook.answers.values():
            found[number] = [*code, *solutions.get(number, [])]
    return found


def pairs(answers: Answers, known: dict[str, list[str]], home: dict[str, str], names: frozenset[str] = frozenset(),
          above: float = 0.0) -> list[Pair]:
    """The pairs of students above the limit, or within `above` of it; those furthest above it first.

    `known`: exercise -> texts that explain what is alike. `home`: exercise -> its notebook. `names`: what the course
    imports; every other name is a student's own, and may be called anything.
    """
    students = sorted({s for texts in answers.values() for s in texts})
    place = {s: i for i, s in enumerate(students)}
    shared = {where: np.zeros((len(students),) * 2, np.float32) for where in (ALL, *dict.fromkeys(home.values()))}
    own = {where: np.zeros_like(m) for where, m in shared.items()}
    parts = {}
    for number, texts in answers.items():
        both, less = _compare({place[s]: t for s, t in texts.items()}, known.get(number, []), names, len(students))
        for where in (ALL, home[number]):
            shared[where] += both
            own[where] += less
        parts[number] = both / np.maximum(less, 1e-9)
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for where in shared:
        over = shared[where] / np.maximum(own[where], 1e-9) - limit(own[where])
        for i, j in np.argwhere(np.triu(over >= -above, 1)):
            best[i, j] = max(best.get((i, j), (-9.0, "")), (float(over[i, j]), where))
    found = []
    for (i, j), (_, where) in best.items():
        inside = [n for n in parts if where in (ALL, home[n]) and parts[n][i, j] > 0]
        exercises = {n: float(parts[n][i, j]) for n in sorted(inside, key=lambda n: -parts[n][i, j])}
        found.append(Pair(students[i], students[j], where, float(shared[where][i, j] / own[where][i, j]),
                          float(limit(own[where][i, j])), exercises))
    return sorted(found, key=lambda p: (p.limit - p.share, p.one, p.other))


def _compare(texts: dict[int, str], known: list[str], names: frozenset[str], n: int):
    """For each two students: the weight of the runs that both have, and of those that the smaller answer has."""
    given = {run for text in known for run in runs(text, names)}
    own = {i: {*runs(text, names)} - given for i, text in texts.items()}
    column: dict[tuple, int] = {}
    cells = [(i, column.setdefault(run, len(column))) for i, some in own.items() for run in some]
    if not cells:
        return np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
    row, col = np.array(cells).T
    has = sparse.csr_array((np.ones(len(cells)), (row, col)), shape=(n, len(column)))
    size = max(n, SMALL)
    # 1 for what only two have, falling to 0 for what all have.
    weight = np.minimum(np.log(size / has.sum(0)) / math.log(size / 2), 1.0)
    weighted = has @ sparse.diags_array(weight)
    mine = weighted.sum(1)
    return (weighted @ has.T).toarray(), np.minimum.outer(mine, mine)


def runs(text: str, names: frozenset[str] = frozenset()) -> dict[tuple, set[int]]:
    """Each run of K tokens -> the lines on which it stands, counted from 1."""
    found: dict[tuple, set[int]] = {}
    read = tokens(text, names)
    for i in range(len(read) - K + 1):
        some = read[i:i + K]
        found.setdefault(tuple(t for t, _ in some), set()).update(line for _, line in some)
    return found


def tokens(text: str, names: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    """What remains of a program without comments, formatting, docstrings and the writer's own names; and its lines.

    >>> [t for t, _ in tokens("def f(count):  # why\\n    return count + 1")]
    ['def', '_', '(', '_', ')', ':', 'return', '_', '+', '1']
    """
    read, before, fresh = [], "", True  # fresh: at the beginning of a statement
    try:
        for token in tokenize.generate_tokens(io.StringIO(text[:MOST_COMPARED]).readline):
            if token.type in DROPPED or token.string in (";", "\\"):
                fresh |= token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
                continue
            if token.type == tokenize.STRING and fresh:  # a docstring, or text that stands alone
                continue
            word = token.string
            if token.type == tokenize.NAME and word not in KEPT and word not in names and before != ".":
                word = "_"
            elif token.type == tokenize.STRING:
                word = '""'
            elif token.type == tokenize.NUMBER and len(word) > 2:
                word = "#"  # computed for one student, or for all
            read.append((word, token.start[0]))
            before, fresh = word, False
    except (tokenize.TokenError, SyntaxError):  # what does not parse is compared as far as it goes
        pass
    return read


def imported(notebooks: Iterable[Notebook]) -> frozenset[str]:
    """The names that the released notebooks import: a student has to write them as they are."""
    trees = [ast.parse(c.source) for n in notebooks for c in n.cells if c.cell_type == "code"]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return frozenset((alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names)


def solutions_of(root: Path) -> dict[str, list[str]]:
    """Exercise -> our own answer, from solutions/ below `root`; nothing where there is none."""
    import jupytext
    found: dict[str, list[str]] = {}
    for path in sorted(Path(root, "solutions").glob("*/*.py")):
        for cell in jupytext.read(path, fmt="py:percent").cells:
            if number := cell.metadata.get("exercise"):
                found.setdefault(number, []).append(cell.source)
    return found
