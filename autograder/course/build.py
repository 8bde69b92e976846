"""build: solutions/<unit>/<chapter>.py -> notebooks/<unit>/<chapter>.ipynb, by nbgrader's own generate_assignment.

The sources are py:percent notebooks; docs/adding-an-exercise.md has the few rules. A chapter is read and checked here,
becomes a notebook with nbgrader's metadata, and goes through nbgrader in a temporary folder. Only a release that passed
every check reaches notebooks/, and only files that changed are written. Next: preprocessors.py (how a hole is made).
"""
import ast
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from pallas_lite.errors import many

from . import online
from .checking_cells import draws, hidden_call, own_numbers, shown_numbers
from .environment import Emptied, make_private, scripts_on_path
from .preprocessors import BEGIN, END, HoleError, punch, regions
from .release import PACKAGE, REPOSITORY

# The same wherever it is built: no Python patch version, no local kernel name.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"codemirror_mode": {"name": "ipython", "version": 3}, "file_extension": ".py",
                      "mimetype": "text/x-python", "name": "python", "nbconvert_exporter": "python",
                      "pygments_lexer": "ipython3"},
}
OPTIONS = {"exercise", "check", "tags"}  # what a cell marker may carry
IGNORED = {"title", "cell_depth", "lines_to_next_cell", "lines_to_end_of_cell_marker"}  # jupytext's own
HINTS = re.compile(r"<summary>\s*Hint ([123])\b")
SECRETS = (BEGIN, END, "BEGIN HIDDEN TESTS", "END HIDDEN TESTS", "hidden=True")


class BuildError(Exception):
    """The course cannot be built as it stands; `problems` has one line for each thing to mend."""

    def __init__(self, *problems: str):
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Chapter:
    """One source, read and found sound."""

    source: Path
    unit: str
    name: str
    notebook: NotebookNode   # with answers and hidden tests: what nbgrader's source folder holds
    released: list[str]      # the text of each cell as learners must get it
    exercises: list[str]     # numbers, in order
    answers: list[tuple[str, str]]  # exercise and text of each solution region

    @property
    def file(self) -> str:
        return f"{self.unit}/{self.name}.ipynb"


def build(root: Path, out: Path | None = None, exercises: Mapping[str, Any] | None = None,
          say: Callable[[str], None] = lambda line: None) -> list[str]:
    """Builds every chapter below root/solutions; returns the notebooks that changed, relative to the release.

    Writes root/notebooks, nbgrader's source folder and its gradebook; with `out`, only the release, and there.
    `exercises` maps a number to anything with `.points` (default: the registered checks).
    Raises BuildError, with everything that was wrong, before anything is written.
    """
    root = Path(root).resolve()
    exercises = registered() if exercises is None else exercises
    chapters = read_course(root, exercises, say)
    work = root / ".nbgrader" if out is None else Path(out).resolve().parent
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=work) as temporary:
        source, release = Path(temporary, "source"), Path(temporary, "release")
        for chapter in chapters:
            target = source / chapter.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(nbformat.writes(chapter.notebook) + "\n", encoding="utf-8")
        units = sorted({chapter.unit for chapter in chapters})
        say(f"nbgrader generate_assignment: {', '.join(units)}")
        generate(root, source, release, units)
        problems = [problem for chapter in chapters for problem in release_problems(chapter, release / chapter.file)]
        if problems:
            raise BuildError(*problems)
        if out is None:
            # Once more, now that it is known to be sound, to bring the gradebook up to date.
            generate(root, source, Path(temporary, "again"), units, gradebook=True)
            replace(source, root / ".nbgrader" / "source")
            before, text = _readme(root, chapters)
            if text != before:
                (root / "README.md").write_text(text, encoding="utf-8")
                say("README.md: changed")
        return replace(release, root / "notebooks" if out is None else Path(out).resolve(), say)


def outdated(root: Path, exercises: Mapping[str, Any] | None = None) -> list[str]:
    """The files, relative to root, that a build would change, add or remove."""
    root = Path(root).resolve()
    exercises = registered() if exercises is None else exercises
    with tempfile.TemporaryDirectory(prefix="pallas-lite-") as temporary:
        fresh = Path(temporary, "notebooks")
        build(root, fresh, exercises)
        stale = sorted(f"notebooks/{file}" for file in _notebooks(fresh) | _notebooks(root / "notebooks")
                       if not _same(fresh / file, root / "notebooks" / file))
        before, text = _readme(root, read_course(root, exercises))
        return stale + ["README.md"] * (text != before)


def _readme(root: Path, chapters: list[Chapter]) -> tuple[str, str]:
    return online.readme(root, [chapter.file for chapter in chapters], sum(len(c.exercises) for c in chapters))


def registered() -> Mapping[str, Any]:
    """The checks of the course, by exercise number."""
    from ..exercise import EXERCISES, load
    if importlib.util.find_spec("autograder.checks"):
        load("autograder.checks")
    return EXERCISES


# Reading the sources


def read_course(root: Path, exercises: Mapping[str, Any],
                say: Callable[[str], None] = lambda line: None) -> list[Chapter]:
    """Every chapter below root/solutions, in order; raises one BuildError with the problems of all."""
    sources = sorted(path for path in (root / "solutions").glob("*/*.py") if not path.name.startswith("_"))
    if not sources:
        raise BuildError("solutions/: no chapter found; a chapter is solutions/<unit>/<two digits>_<title>.py")
    chapters, problems, homes = [], [], {}
    for path in sources:
        try:
            chapters.append(chapter := read_chapter(path, root, exercises))
        except BuildError as error:
            problems += error.problems
            continue
        where, points = path.relative_to(root), sum(exercises[number].points for number in chapter.exercises)
        say(f"{where}: {many(len(chapter.released), 'cell')}, "
            f"{many(len(chapter.exercises), 'exercise')}, {points:g} points")
        for number in chapter.exercises:
            if homes.setdefault(number, where) != where:
                problems.append(f"{where}: exercise {number} is in {homes[number]} too")
        missing = [number for number in exercises
                   if number.split(".")[0] == str(int(chapter.name[:2])) and number not in chapter.exercises]
        problems += [f"{where}: exercise {number} has a check but no cell here; write its "
                     f"`# %% exercise=\"{number}\"` cell or remove the check" for number in missing]
    if problems:
        raise BuildError(*problems)
    return chapters


def read_chapter(path: Path, root: Path, exercises: Mapping[str, Any]) -> Chapter:
    """One source as a Chapter; raises BuildError with all its problems, each with file and line."""
    where = path.relative_to(root)
    if not re.fullmatch(r"\d\d_[a-z0-9_]+\.py", path.name):
        raise BuildError(f"{where}: name it <two digits>_<lower_case_title>.py, such as 03_double_buffer.py")
    text = path.read_text(encoding="utf-8")
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise BuildError(f"{where}:{error.lineno}: {error.msg}: {(error.text or '').strip()}") from None
    if not re.match(r"# %%(\s|$)", text):
        raise BuildError(f"{where}:1: text before the first cell; let the file begin with `# %% [markdown]`")
    cells = jupytext.reads(text, fmt="py:percent").cells
    markers = [number for number, line in enumerate(text.split("\n"), start=1) if re.match(r"# %%(\s|$)", line)]
    chapter = str(int(path.name[:2]))
    problems: list[str] = []
    answered: dict[str, list[str]] = {}  # exercise -> the hints seen after its answer cell
    checked: set[str] = set()
    shown: set[str] = set()  # exercises whose drawn numbers a cell shows
    released: list[str] = []
    answers: list[tuple[str, str]] = []

    def problem(index: int, message: str, below: int = 0) -> None:
        # jupytext keeps no line numbers. Its cells and the marker lines agree, unless a string holds such a line.
        place = f"{where}:{markers[index] + below}" if len(markers) == len(cells) else f"{where}: cell {index + 1}"
        problems.append(f"{place}: {message}")

    for index, cell in enumerate(cells):
        options = {key: value for key, value in cell.metadata.items() if key not in IGNORED}
        answer, check = options.get("exercise"), options.get("check")
        tags = list(options.get("tags", []))
        cell.metadata = NotebookNode()
        student_text = cell.source
        secret = next((word for word in SECRETS if word in cell.source), None)
        for key in sorted(options.keys() - OPTIONS):
            problem(index, f"unknown cell option {key!r}; a marker may carry {', '.join(sorted(OPTIONS))}")

        if answer and check:
            problem(index, "one cell is either an exercise or its check; split it in two")
        elif answer or check:
            number = answer or check
            if cell.cell_type != "code":
                problem(index, f"the {'exercise' if answer else 'check'} {number} is no code cell")
            elif number not in exercises:
                problem(index, f"exercise {number} is unknown; no check is registered under that number")
            elif number.split(".")[0] != chapter:
                problem(index, f"exercise {number} belongs to chapter {number.split('.')[0]}, not to {path.name}")
            if number in (answered if answer else checked):
                problem(index, f"a second {'answer' if answer else 'check'} cell for exercise {number}; each has one")
            tags.append("raises-exception")  # Run All goes on past a hole, and past an answer that fails
        elif secret:
            problem(index, f"{secret!r} outside an exercise, whose first line is `# %% exercise=\"3.2\"`")

        if cell.cell_type == "code":
            numbers, slips = shown_numbers(cell.source, exercises)
            shown |= numbers
            slips += own_numbers(cell.source, check, shown) if check and draws(exercises.get(check)) else []
            for slip in slips:
                problem(index, slip)

        if answer and not check:
            answered.setdefault(answer, [])
            cell.metadata.nbgrader = _nbgrader(f"ex-{answer}", solution=True)
            try:
                student_text = punch(cell.source, answer)
                spans = regions(cell.source)
                answers += [(answer, "\n".join(cell.source.split("\n")[begin:end - 1])) for begin, end in spans]
                if not spans:
                    problem(index, f"exercise {answer} has no ### {BEGIN} … ### {END}; learners would get the answer")
            except HoleError as error:
                problem(index, str(error), below=error.line)
            except SyntaxError as error:
                problem(index, f"{error.msg}; an exercise is plain Python, without magics", below=error.lineno or 0)
        elif check and not answer:
            checked.add(check)
            points = exercises[check].points if check in exercises else 0
            cell.metadata.nbgrader = _nbgrader(f"test-{check}", points=points)
            if check not in answered:
                problem(index, f"the check of exercise {check} stands before its `# %% exercise=\"{check}\"` cell")
            if secret:
                problem(index, f"remove {secret!r}; the build adds the hidden tests")
            elif call := hidden_call(cell.source, check):
                cell.source += f"\n### BEGIN HIDDEN TESTS\n{call}\n### END HIDDEN TESTS"
            else:
                problem(index, f'the check cell must end with check("{check}", …), on the answer and keywords: '
                        "nbgrader reads its score")
        elif cell.cell_type == "markdown" and answered:
            list(answered.values())[-1].extend(HINTS.findall(cell.source))
        if tags:
            cell.metadata.tags = tags
        released.append(student_text)

    for number, hints in answered.items():
        if number not in checked:
            problems.append(f"{where}: exercise {number} has no `# %% check=\"{number}\"` cell")
        if hints != ["1", "2", "3"]:
            problems.append(f"{where}: exercise {number} needs three folded hints below its cell, from "
                            "<details><summary>Hint 1: …</summary> to Hint 3, in order")
    if problems:
        raise BuildError(*problems)
    _name(cells)
    first = int(bool(cells) and cells[0].cell_type == "markdown")  # pages that fold no cell begin with the title
    cells.insert(first, install := online.install_cell(online.repository(root)))
    released.insert(first, install.source)
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=METADATA)
    notebook.nbformat_minor = 5
    return Chapter(path, path.parent.name, path.stem, notebook, released, list(answered), answers)


def _nbgrader(grade_id: str, solution: bool = False, points: float | None = None) -> NotebookNode:
    graded = {} if points is None else {"points": int(points) if float(points).is_integer() else points}
    return NotebookNode(grade=points is not None, grade_id=grade_id.replace(".", "-"), locked=not solution,
                        schema_version=3, solution=solution, task=False, **graded)


def _name(cells: list[NotebookNode]) -> None:
    """Ids from the exercise or the cell's text, so that a rebuild changes only what was edited."""
    seen: dict[str, int] = {}
    for cell in cells:
        text = f"{cell.cell_type}\n{cell.source}"
        name = cell.metadata.get("nbgrader", {}).get("grade_id") or hashlib.sha256(text.encode()).hexdigest()[:8]
        seen[name] = seen.get(name, 0) + 1
        cell.id = name if seen[name] == 1 else f"{name}-{seen[name]}"


# Releasing


def generate(root: Path, source: Path, release: Path, units: list[str], gradebook: bool = False) -> None:
    """nbgrader's generate_assignment for each unit, under our nbgrader_config.py."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.utils import capture_log
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(PACKAGE)).load_config()
    if config.CourseDirectory.root != str(root):  # another course than the one that this package lies in
        config.CourseDirectory.root = str(root)
        config.CourseDirectory.db_url = f"sqlite:///{root / '.nbgrader' / 'gradebook.db'}"
    config.CourseDirectory.source_directory = str(source)
    config.CourseDirectory.release_directory = str(release)
    if not gradebook:
        config.SaveCells.enabled, config.GenerateAssignment.no_database = False, True
    else:
        try:
            make_private(config.CourseDirectory.db_url)
        except Emptied as error:
            raise BuildError(f"the gradebook {error}") from None
    with scripts_on_path():
        for unit in units:
            course = CourseDirectory(config=config, assignment_id=unit)
            result = capture_log(GenerateAssignment(coursedir=course, config=config))
            if not result["success"]:
                raise BuildError(f"{unit}: nbgrader generate_assignment failed. {_advice(result)}")


def _advice(result: Mapping[str, Any]) -> str:
    log = result.get("log", "") + (result.get("error") or "")
    if "submissions associated" in log:
        return ("The gradebook holds submissions of this unit, and an exercise, a check or a chapter was added or "
                "removed. Export the grades, move .nbgrader/gradebook.db aside, and build again")
    return "nbgrader said:\n" + "\n".join(log.strip().split("\n")[-15:])


def release_problems(chapter: Chapter, path: Path) -> list[str]:
    """What is wrong with a released notebook, found by reading the file itself."""
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    where = f"{chapter.file} (not released)"
    problems = [f"{where}: holds {secret!r}" for secret in SECRETS if secret in text]
    if [cell.id for cell in notebook.cells] != [cell.id for cell in chapter.notebook.cells]:
        problems.append(f"{where}: its cell ids are not those of the source")
    if len({cell.id for cell in notebook.cells}) < len(notebook.cells):
        problems.append(f"{where}: two cells share an id")
    for cell, expected in zip(notebook.cells, chapter.released, strict=False):
        if cell.source != expected:
            problems.append(f"{where}: cell {cell.id} is not its source minus the answer")
        if cell.get("outputs") or cell.get("execution_count"):
            problems.append(f"{where}: cell {cell.id} carries outputs")
    holes = sum(cell.source.count("is not done yet\")") + cell.source.count("= ...  # your answer") > 0
                for cell in notebook.cells if cell.id.startswith("ex-"))
    if holes != len(chapter.exercises):
        problems.append(f"{where}: {many(len(chapter.exercises), 'exercise')} but {many(holes, 'cell')} with a hole")
    for number, answer in chapter.answers:
        # An answer of a few characters may stand elsewhere by chance; a longer one was left there.
        flat = _flat(answer)
        home = next((cell.id for cell in notebook.cells if flat in _flat(cell.source)), None)
        if len(flat) >= 24 and home:
            problems.append(f"{chapter.source.name}: the answer of exercise {number} also stands in cell {home}")
    return problems


def _flat(source: str) -> str:
    return "\n".join(line.strip() for line in source.split("\n") if line.strip())


def replace(fresh: Path, target: Path, say: Callable[[str], None] = lambda line: None) -> list[str]:
    """Makes the notebooks below `target` those below `fresh`; files that are no notebooks stay. Returns the changes."""
    changed = []
    for file in sorted(_notebooks(fresh) | _notebooks(target)):
        if _same(fresh / file, target / file):
            continue
        changed.append(file)
        if (fresh / file).exists():
            say(f"{target.name}/{file}: {'changed' if (target / file).exists() else 'new'}")
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            # beside the target first: a rename within one folder cannot leave half a file
            half = (target / file).with_suffix(".tmp")
            shutil.copyfile(fresh / file, half)
            os.replace(half, target / file)
        else:
            say(f"{target.name}/{file}: removed, it has no source")
            (target / file).unlink()
            with contextlib.suppress(OSError):
                (target / file).parent.rmdir()
    return changed


def _notebooks(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.glob("*/*.ipynb")}


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()


def find_root() -> Path:
    """The course that this package lies in, else the one around the working directory."""
    for folder in (REPOSITORY, Path.cwd(), *Path.cwd().parents):
        if (folder / "solutions").is_dir():
            return folder
    raise BuildError("no solutions/ folder here or above; run this in the course's repository, or give --root")
