"""report: reports -> a table, JSON and CSV, and back. Files are written whole or not at all, rows in a stable order.

Whatever is made from results later (feedback, export, nbgrader's gradebook) starts with `read`.
"""
import contextlib
import csv
import fcntl
import functools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pallas_lite.errors import many

from ..commandline import typed
from ..course.release import Course
from ..exercise import EXERCISES, ended
from .grade import Mark, Report, clean
from .whose import ALIKE, one_name, told_apart

VERSION = 1  # of results.json
MOST_ROWS = 500  # of a table; nobody reads more, and a terminal takes minutes to be given thousands
LONGEST = 60  # letters of a name there
SIGNS = {"right": "✓", "wrong": "✗", "error": "✗", "not done": "…", "missing": "–", "unreadable": "!",
         "broken": "!"}

LEGEND = "✓ right, ✗ wrong, … not done, – not handed in (as a total: not known), ! no mark; s: seconds"


class ResultsError(Exception):
    """Results that are not there, or cannot be read. The text says what to do."""


class WriteError(Exception):
    """A file of ours that cannot be written. The text says where and why, and what to do."""


@contextlib.contextmanager
def writing(place: str | os.PathLike):
    """While the block writes a file there, or files below it: if that fails, says so. Raises WriteError."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{place} cannot be written: {error.strerror}. Name another place with --out") from None


def read(folder: str | os.PathLike, say: Callable[[str], None] = lambda text: None,
         course: Course | None = None) -> list[Report]:
    """The reports that `grade` left in its results folder, sorted by student. Raises ResultsError.

    `say`: is told if they are not all, because the run that wrote them was interrupted; if they are those of an
    earlier run, because the last one was killed, or is not through; if others gave way to them; and if they are not
    marks of this `course`.
    """
    path, last = Path(folder, "results.json"), _last_run(folder)
    again = f"Grade again: {typed('grade', 'PATH...', '--out', 'DIR')}"
    resume = typed("grade", "--resume", "--out", folder)
    go_on = f"`{resume}` goes on"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["version"]
        reports = [Report.from_plain(r) for r in data["submissions"]] if version == VERSION else []
        asked, run = int(data.get("of", len(reports))), data.get("run", "")  # older files do not say
        of_course, remark = dict(data.get("course", {})), str(data.get("remark", ""))
    except FileNotFoundError:
        if last:
            raise ResultsError(f"no results in {folder} yet: {_why_none(folder)}. {go_on}") from None
        raise ResultsError(f"no results in {folder}: nothing was graded yet, or it went elsewhere. {again}") from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ResultsError(f"{path} is damaged ({type(error).__name__}: {error}). {again}") from None
    if version != VERSION:
        raise ResultsError(f"{path} has version {version!r}, and this grader reads version {VERSION}. {again}")
    if last and run != last:
        say(f"these are the results of an earlier run: {_why_none(folder)}. {go_on}")
    elif len(reports) < asked:
        say(f"{len(reports)} of {many(asked, 'submission')}: the last run did not come to its end. {go_on}")
    if remark:
        say(remark)
    if course and (now := _changed(reports, of_course, course)):
        say(f"{now}: `{resume}` grades again")
    return reports


def _changed(reports: list[Report], then: dict[str, str], course: Course) -> str:
    """How the course that the marks are of differs from this one, in words; empty if it does not."""
    now = {t.number: t.points for n in course.notebooks for t in n.tests.values()}
    worth = dict.fromkeys((n, m.max_points) for r in reports for n, m in r.marks.items())
    differ = [f"points of {n}: {was:g} then, {now[n]:g} now" if n in now else f"{n} is gone"
              for n, was in worth if was != now.get(n)]
    if differ:
        rest = [f"{len(differ) - 3} more"] * (len(differ) > 3)
        return f"these marks are of an earlier release ({'; '.join(differ[:3] + rest)})"
    for part, what in (("release", "an earlier release"), ("checks", "earlier checks")):
        if then.get(part, course.version[part]) != course.version[part]:  # older files do not say
            return f"these marks are of {what}"
    return ""


def _last_run(folder: str | os.PathLike) -> str:
    """The name of the run that began last; empty if it is not known."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        return str(json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))["run"])
    return ""


def _why_none(folder: str | os.PathLike) -> str:
    with contextlib.suppress(OSError), Path(folder, ".lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "the last one is still grading"
    return "the last one was killed before it came to its end"


def per_student(reports: Iterable[Report]) -> Iterator[Report]:
    """One report for each student: what a gradebook, a page, an export has place for.

    Of two marks for one exercise the last counts; one for what was not handed in, or that is not known, gives way.
    `reports` is gone through twice, and may be longer than memory.
    """
    left = Counter(one_name(r.student) for r in reports)
    joined: dict[str, Report] = {}
    for r in reports:
        name = one_name(r.student)
        left[name] -= 1
        if before := joined.pop(name, None):
            r = _joined(before, r)
        if left[name]:
            joined[name] = r
        else:
            yield r


def _joined(one: Report, other: Report) -> Report:
    def rank(mark: Mark | None) -> int:
        return 0 if mark is None or mark.points is None else 1 if mark.verdict == "missing" else 2
    both = one.marks | {n: m for n, m in other.marks.items() if rank(m) >= rank(one.marks.get(n))}
    files = told_apart([called(one), called(other)])
    more = [f"handed in more than once: {'; '.join(files)}. Of the same exercises the last counts"
            ] * bool(one.marks.keys() & other.marks.keys())
    status = next(s for s in ("fault", "unreadable", "graded") if s in (one.status, other.status))
    return replace(other, files=[*one.files, *other.files], status=status, seconds=one.seconds + other.seconds,
                   marks={n: both[n] for n in EXERCISES if n in both} | both,
                   warnings=list(dict.fromkeys([*more, *one.warnings, *other.warnings])))


def called(report: Report) -> str:
    """A submission by its files, where its student's name does not say which it is."""
    return clean(report.files[0]) + f" and {len(report.files) - 1} more" * (len(report.files) > 1) \
        if report.files else "a folder without a notebook"


def twice(reports: Iterable[Report]) -> list[str]:
    """Who has two marks for one exercise, in words: where there is place for one, nobody should have to guess which."""
    seen: dict[str, set[str]] = {}
    files: dict[str, list[str]] = {}
    found: dict[str, None] = {}  # in order
    for r in reports:
        name = one_name(r.student)
        before = seen.setdefault(name, set())
        if before & r.marks.keys():
            found[name] = None
        before.update(r.marks)
        files.setdefault(name, []).append(called(r))
    said = []
    for name in found:
        apart = told_apart(files[name])
        said.append(f"{clean(name)} handed in the same exercises more than once: {'; '.join(apart)}. Each has a row "
                    f"here. Gradebook, pages and exports have place for one, and get the last one's marks ({apart[-1]})"
                    ": take away what does not count, and grade again" + ALIKE * (apart != files[name]))
    return said


def exercises_of(reports: list[Report]) -> list[str]:
    """The exercises that any report has, in course order."""
    return [n for n in EXERCISES if any(n in r.marks for r in reports)]


def note(report: Report) -> str:
    """One line on what went wrong: the warnings, then the exercises that earned nothing though something was there."""
    found = list(report.warnings)
    found += [f"{n}: {m.message}" for n, m in report.marks.items()
              if m.message and m.verdict in ("wrong", "error", "broken")]
    return in_a_row(clean(x).replace("\n", " ") for x in found)


def in_a_row(texts: Iterable[str]) -> str:
    """Several messages as one line; what ends one of them in the middle is no full stop.

    >>> in_a_row(["n is too high.", "It fails."])
    'n is too high; It fails.'
    """
    *first, last = list(texts) or [""]
    return "; ".join([*(text.removesuffix(".") for text in first), last])


def table(reports: list[Report], width: int = 200) -> Table:
    """What is shown at the end: a row a submission. The files have all marks.

    A column for each exercise where there is room, else for each chapter, else totals only. Of very many submissions
    only those that need a look.
    """
    left_out = len(reports) - MOST_ROWS
    if left_out > 0:
        reports = sorted(reports, key=lambda r: r.status == "graded")[:MOST_ROWS]  # a stable sort
    numbers = exercises_of(reports)
    count = Counter(one_name(r.student) for r in reports)
    students = [clean(r.student).replace("\n", " ") + f": {called(r)}" * (count[one_name(r.student)] > 1)
                for r in reports]
    students = told_apart(students)
    students = [s if len(s) <= LONGEST else s[:LONGEST - 1] + "…" for s in students]  # one name may not take all room
    name = max(map(len, students), default=7)
    chapters = list(dict.fromkeys(n.partition(".")[0] for n in numbers))
    if name + 7 * len(numbers) + 40 > width:
        numbers = []
    if numbers or name + 9 * len(chapters) + 40 > width:
        chapters = []
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("student", no_wrap=True)
    for n in (*numbers, *(f"ch {c}" for c in chapters)):
        shown.add_column(n, justify="right", no_wrap=True)
    shown.add_column("total", justify="right", no_wrap=True)
    shown.add_column("s", justify="right", no_wrap=True)
    shown.add_column("note", overflow="fold")
    for student, r in zip(students, reports, strict=True):
        cells = []
        for n in numbers:
            m = r.marks.get(n)
            cells.append("" if m is None else f"{SIGNS[m.verdict]} " + ("?" if m.points is None else f"{m.points:g}"))
        cells += [_sum([m for n, m in r.marks.items() if n.partition(".")[0] == c]) for c in chapters]
        total = f"{r.points:g}/{r.max_points:g}" if r.points is not None else "fault" if r.status == "fault" else "–"
        text = note(r)
        shown.add_row(escape(student), *cells, total, f"{r.seconds:.1f}",
                      escape(text if len(text) < 200 else text[:200] + " …"))
    if left_out > 0:
        graded = ", all graded," if all(r.status == "graded" for r in reports[-1:]) else ""
        shown.caption = f"{left_out} more{graded} {'is' if left_out == 1 else 'are'} in results.csv"
    return shown


def _sum(marks: list) -> str:
    """Points of a chapter, of all that it has; nothing for a chapter without marks."""
    points = "?" if any(m.points is None for m in marks) else f"{sum(m.points for m in marks):g}"
    return f"{points}/{sum(m.max_points for m in marks):g}" if marks else ""


def write(reports: Iterable[Report], folder: Path, of: int | None = None, run: str = "",
          course: dict[str, str] | None = None, paths: Iterable[str] = (), remark: str = "") -> tuple[Path, Path]:
    """Writes results.json, a submission a line, and results.csv. Holds one whole report at a time.

    `of`: how many submissions the run was asked for (default: as many as there are reports). `run`: which run it is.
    `course`: the version of the course that the marks are of, as Course.version has it. `paths`: what was graded;
    `remark`: what whoever reads the results has to know. These two are in the first line, for earlier.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    light = []
    with replacing(folder / "results.json") as file:
        head = {"version": VERSION, "paths": list(paths), "remark": remark}
        file.write(json.dumps(head).removesuffix("}") + ',\n"submissions": [')
        for report in reports:
            file.write(",\n" * bool(light) + json.dumps(report.to_plain(), ensure_ascii=False))
            light.append(slim(report))
        of = len(light) if of is None else of
        file.write(f'],\n"complete": {json.dumps(len(light) >= of)}, "of": {of}, "run": {json.dumps(run)},\n'
                   f'"course": {json.dumps(course or {})}}}\n')
    numbers = exercises_of(light)
    # With a byte-order mark, which is how Excel knows that the names are UTF-8.
    with replacing(folder / "results.csv", encoding="utf-8-sig") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["student", "status", "points", "max_points", *numbers, "seconds", "files", "note"])
        for r in light:
            marks = [r.marks[n].points if n in r.marks and r.marks[n].points is not None else "" for n in numbers]
            points = "" if r.points is None else r.points
            rows.writerow([cell(r.student), r.status, points, r.max_points, *marks, r.seconds,
                           cell(" ".join(r.files)), cell(note(r))])
    return folder / "results.json", folder / "results.csv"


def slim(report: Report) -> Report:
    """What a table shows of a report, and no more: thousands of these fit into memory. Reports share their marks."""
    marks = {n: _bare(m.points, m.max_points, m.verdict) for n, m in report.marks.items()}
    text = note(report)
    return replace(report, marks=marks, warnings=[text] if text else [])


@functools.cache
def _bare(points: float | None, max_points: float, verdict: str) -> Mark:
    return Mark(None if points is None else float(points), float(max_points), verdict)  # 2 and 2.0 are one key


def cell(text: str) -> str:
    """A text on one line that a spreadsheet will not take for a formula. Excel takes the wide signs for the others."""
    text = clean(text).replace("\n", " ")
    return "'" + text if text.lstrip().startswith(tuple("=+-@＝＋－＠")) else text


def write_atomic(path: Path, text: str) -> Path:
    """Puts the whole file in place at once: a reader, or a grader killed midway, never leaves half of one."""
    with replacing(path) as file:
        file.write(text)
    return path


@contextlib.contextmanager
def replacing(path: Path, encoding: str = "utf-8"):
    """A file to write to, which takes the place of `path` at the end of the block, whole."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(fd, "w", encoding=encoding, errors="backslashreplace", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o600)  # marks are nobody else's business
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def print_lines(report: Report, console: Console) -> None:
    """One submission, a line an exercise, with what is known of each: what `validate` prints."""
    for warning in report.warnings:
        console.print(f"! {clean(warning)}", markup=False, highlight=False)
    for number, m in report.marks.items():
        points = "?" if m.points is None else f"{m.points:g}"
        title = ended(EXERCISES[number].title)
        console.print(f"{SIGNS[m.verdict]} {number} {title} {points} of {m.max_points:g} points"
                      f"  {m.message if m.verdict != 'right' else ''}".rstrip(), markup=False, highlight=False)
        for label, text in m.details.items():
            if text and label != "timeline":
                text = text if "\n" not in text else "\n" + text
                console.print(f"    {label}: {text}".replace("\n", "\n      "), markup=False, highlight=False)
