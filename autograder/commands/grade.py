"""autograder grade: submissions -> marks, as files and as a table. The work is in ../grading/."""
import argparse
import contextlib
import re
import shlex
import time
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..commandline import typed
from ..course.release import Course
from ..grading.batch import Here, Order, grade_all
from ..grading.earlier import Earlier, look
from ..grading.grade import Report, clean
from ..grading.machine import most_jobs
from ..grading.report import LEGEND, slim, table, twice, write, writing
from ..grading.store import Store
from ..grading.submissions import ARCHIVE, Submission, find, notebooks_below, pack, some
from ..grading.whose import DOWNLOADED, one_name
from ..sandbox.inside.personal import normalise
from . import RESULTS, command, course_of, exit_code, gradebook, grading_options, many, refuse_missing

DOCUMENT = re.compile(rf"\.(docx?|odt|pdf|html?)$|{ARCHIVE.pattern}", re.IGNORECASE)
RESUMED = ("timeout", "release", "checks")  # options that --resume takes from the last run, beside its paths


def add(commands) -> None:
    p = command(commands, "grade", "grade submissions",
                "Grades submissions on hidden trials, in a sandbox. PATH is a notebook, one student's folder,\n"
                "or a folder of either: submitted/<student>/<unit>/<notebook>.ipynb, <student>/<notebook>.ipynb, or\n"
                "loose notebooks, each named after its student.\n\n"
                "Each result is filed as soon as it is known, under a hash of all that it depends on: the student's\n"
                "name and files, the course and its checks, the options. So a second run grades only what changed,\n"
                "and a run that was stopped, or killed, goes on where it was. At the end it writes results.json and\n"
                "results.csv, with a row for each submission below the PATHs, and prints a table. PATHs that are a\n"
                "part of the last run's leave the other rows as they are.",
                run, """
  autograder grade .nbgrader/submitted             everything that was collected, on all cores
  autograder grade .nbgrader/submitted             some time later: only what is new or changed
  autograder grade --resume --jobs 1               the last run again, with its paths and options, on one core
  autograder grade ada.ipynb --timeout 5           one notebook, 5 s for each cell and check
  autograder grade submitted --fresh               all of it, whatever is known
  autograder grade submitted --scheduler tcp://head:8786    on a Dask cluster (pip install -e '.[cluster]')""")
    p.add_argument("paths", nargs="*", metavar="PATH")
    p.add_argument("--jobs", type=_count, metavar="N",
                   help="how many submissions at once, each on a core (default: one for each core, if memory lasts)")
    p.add_argument("--resume", action="store_true",
                   help="go on with the last run: without PATH, its paths, timeout, release and checks are taken")
    p.add_argument("--fresh", action="store_true", help="grade everything, also what has a result")
    p.add_argument("--scheduler", metavar="ADDRESS",
                   help="grade on the Dask cluster with this scheduler (tcp://host:8786); --jobs is then not used")
    p.add_argument("--out", default=str(RESULTS), metavar="DIR",
                   help="where the results go (default: .nbgrader/results)")
    gradebook.option(p, "the course's own, if the submissions lie where nbgrader has them")
    grading_options(p)
    p.set_defaults(defaults={name: p.get_default(name) for name in RESUMED})


def run(options, console, errors) -> int:
    if options.resume and options.fresh:
        options.refuse("--resume goes on with what is known, --fresh throws it away: give one of them")
    if not options.paths and not options.resume:
        options.refuse("the following arguments are required: PATH (or --resume, to go on with the last run)")
    refuse_missing(options)  # before anything is written
    with contextlib.closing(Store(Path(options.out))) as store:
        if not options.paths:
            _take_up(options, store.last_run(), errors)
            refuse_missing(options)
        return _grade(options, store, console, errors)


def _take_up(options, last: dict, errors) -> None:
    """Fills in what the last run was asked for. What is given on the command line counts."""
    options.paths = last["paths"]
    for name in RESUMED:
        if getattr(options, name) == options.defaults[name]:
            setattr(options, name, last.get(name, options.defaults[name]))
    errors.print(f"autograder: going on with {shlex.join(options.paths)}, --timeout {options.timeout:g}",
                 markup=False, highlight=False, soft_wrap=True)


def _grade(options, store: Store, console, errors) -> int:
    course = course_of(options)
    order = Order(course, tuple(course.version.items()), options.timeout, not options.unsafe_no_sandbox)
    out = store.folder.resolve()  # which may lie where the submissions lie, and is none
    submissions = [s for s in find(options.paths, course) if out not in map(Path.resolve, map(Path, s.paths))]
    earlier, submissions = look(store.folder, options.paths, submissions, course)
    names = [s.student for s in submissions]
    loose = [s.student for s in submissions if not s.whole]
    for line in (*passed_over(options.paths, submissions), *downloads(loose), *from_moodle(names), *inbound(names)):
        errors.print(f"! {line}", markup=False, highlight=False, soft_wrap=True)
    keys = {s: pack(s).key(order.settings) for s in submissions}
    todo = [s for s in submissions if options.fresh or not store.has(keys[s])]
    for path in store.damaged:
        errors.print(f"autograder: {path} is damaged; that submission is graded again", markup=False, highlight=False,
                     soft_wrap=True)
    pool = _pool(options, order, len(todo), errors) if todo else None
    # From here on it is the last run. One that could not begin leaves the one before as it was.
    run = store.note_run({"paths": earlier.paths, **{name: getattr(options, name) for name in RESUMED}})
    options.interrupted = f". What was graded is kept: `{typed('grade', '--resume', '--out', options.out)}` goes on"
    if options.fresh:  # else --resume, after a kill, would take what is to be replaced for done
        store.forget(keys[s] for s in todo)
    try:
        if pool is not None:
            graded = grade_all(order, todo, pool)
            _shown(_filed(graded, keys, order, store), len(todo), errors)
    finally:  # also when it is interrupted: what is known is kept
        known = store.reports(keys.values())
        written = () if earlier.gives_way and not any(r.marks for r in known) else \
            _written(options.out, earlier, known, len(set(keys.values())), run, course)
    if not written:
        store.take_back_run()
    rows = [slim(report) for report in known]
    console.print(table(rows, console.width))
    console.print(LEGEND, highlight=False)
    errors.print(f"{len(todo)} graded, {len(submissions) - len(todo)} unchanged", highlight=False)
    for line in (*borrowed(rows), *twice(rows), *_beside(earlier, bool(written))):
        errors.print(f"! {line}", markup=False, highlight=False, soft_wrap=True)
    for path in written:
        errors.print(f"written: {path}", markup=False, highlight=False)
    return max(exit_code(rows), gradebook.after_grading(options, known, submissions, course, errors))


def _written(out: str, earlier: Earlier, known, of: int, run: str, course: Course) -> tuple[Path, Path]:
    # That a trial gave way to the class is said once; that a class gave way to a trial, until it is graded again.
    remark = earlier.remark if not earlier.gives_way or earlier.gives_way > of else ""
    with writing(out):
        return write(earlier.among(known), Path(out), of + len(earlier.kept) + earlier.missing, run,
                     earlier.course or course.version, earlier.paths, remark)


def _beside(earlier: Earlier, written: bool) -> list[str]:
    """What became of the results of other submissions in the same folder, in words."""
    if earlier.gives_way and not written:
        return [f"no mark here, so the results of {many(earlier.gives_way, 'submission')} stay as they were"]
    return [f"{many(len(earlier.kept), 'other submission')} keep{'s' * (len(earlier.kept) == 1)} the marks of the run "
            "before, in the results"] * bool(earlier.kept) + [earlier.remark] * bool(earlier.remark)


def borrowed(reports: list[Report]) -> list[str]:
    """Who has the numbers of somebody else who handed in, in words: their answers may be the other's, too."""
    in_short: dict[str, set[str]] = {}  # wangfang -> wangfang_1234
    for r in reports:
        if downloaded := DOWNLOADED.fullmatch(r.student):
            in_short.setdefault(normalise(downloaded[1]), set()).add(one_name(r.student))
    names = {name: next(iter(students)) for name, students in in_short.items() if len(students) == 1}
    names |= {normalise(r.student): one_name(r.student) for r in reports}
    found: list[tuple[str, str]] = []
    shared: dict[str, dict[str, None]] = {}  # a STUDENT that is the name of nobody -> whose notebooks have it
    for r in reports:
        for n in map(normalise, r.drawn_for()):
            if n not in names:
                shared.setdefault(n, {})[one_name(r.student)] = None
            elif names[n] != one_name(r.student):
                found.append((r.student, names[n]))
    return [f"{clean(student)}'s notebook has the STUDENT of {clean(other)}, who handed in too: its predictions were "
            "marked with that student's numbers" for student, other in dict.fromkeys(found)] + [
        f"{clean(some([*students], 10))} have one STUDENT in their notebooks, '{clean(n, 100)}': their predictions "
        "were marked with the same numbers" for n, students in shared.items() if len(students) > 1]


def downloads(students: list[str]) -> list[str]:
    """Who is no student, but a file of Canvas's download of all submissions, in words."""
    found = [f"{s}.ipynb" for s in students if re.fullmatch(r".+?_(LATE_)?\d+_\d+_.+", s)]
    return _as_named("Canvas", found)


def from_moodle(students: list[str]) -> list[str]:
    """The same, of files or folders of Moodle's."""
    return _as_named("Moodle", [s for s in students if re.fullmatch(r".+_\d+_assignsubmission_[a-z]+(_.*)?", s)])


def _as_named(by: str, found: list[str]) -> list[str]:
    more = f" and {len(found) - 1} more are" if len(found) > 1 else " is"
    return [f"{clean(s)}{more} named as {by} names downloads, and {'each ' * (len(found) > 1)}counts as a "
            "student of its own. To put each student's into a folder, see \"What is handed in\" in docs/grading.md"
            for s in found[:1]]


def passed_over(paths: list[str], submissions: list[Submission]) -> list[str]:
    """Documents, archives and hidden folders among those of students, where each may be a student's, in words."""
    found = []
    for folder in (p for p in map(Path, paths) if p.is_dir()):
        here = folder.resolve()
        if any(s.whole and (s.student == here.name or here in [Path(p).parent for p in s.paths]) for s in submissions):
            continue  # one student's own
        files: list[str] = []
        hidden: list[str] = []
        with contextlib.suppress(OSError):  # a folder that cannot be read has a row that says so
            files = sorted(p.name for p in folder.iterdir() if DOCUMENT.search(p.name) and p.is_file())
            hidden = sorted(p.name for p in folder.glob(".*") if p.name not in (".ipynb_checkpoints", ".nbgrader")
                            and not p.is_symlink() and p.is_dir() and notebooks_below(p.resolve())[0])
        found += [f"{clean(some(hidden))} in {clean(str(folder))}: what begins with a dot is passed over. If it is a "
                  "student's folder, give it another name"] * bool(hidden)
        found += [f"{some(files)} in {clean(str(folder))}: no notebook, so nobody has a mark for that. If it is a "
                  "student's work, ask for the notebook"] * bool(files)
    return found


def inbound(students: list[str]) -> list[str]:
    """Who is no student, but a folder as nbgrader's exchange names what comes in, in words."""
    found = [m for s in students if (m := re.fullmatch(r"[^+]+\+([^+]+)\+\d{4}-\d\d-\d\d .+", s))]
    more = f" and {len(found) - 1} more are" if len(found) > 1 else " is"
    return [f"{clean(m[0])}{more} named as nbgrader's exchange names what comes in, and {'each ' * (len(found) > 1)}"
            f"counts as a student of its own. `nbgrader collect {clean(m[1])}` puts the last of each student into "
            "nbgrader's submitted folder" for m in found[:1]]


def _pool(options, order: Order, most: int, errors):
    if options.unsafe_no_sandbox:
        errors.print("autograder: WITHOUT A SANDBOX, student code runs with all your rights.", style="bold")
    if options.scheduler:
        from ..grading.cluster import Cluster
        return Cluster(order, options.scheduler)
    return Here(order, min(options.jobs or max(1, most_jobs()), most))


def _filed(graded, keys: dict, order: Order, store: Store):
    """Files each report as soon as it is known."""
    for submission, parcel, report in graded:
        keys[submission] = parcel.key(order.settings)  # another one if it was changed since it was looked at
        store.save(keys[submission], report)
        yield report


def _shown(reports, total: int, errors) -> None:
    """Takes all reports, while a bar shows how far it is. In a log a line for each tenth takes its place."""
    columns = TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn(
        "{task.description}")
    progress = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
    began, said = time.monotonic(), 0
    with progress:
        bar = progress.add_task("", total=total)
        for done, report in enumerate(reports, 1):
            progress.update(bar, advance=1, description=escape(clean(report.student)))
            if not errors.is_terminal and 10 * done // total > said and done < total:
                said, left = 10 * done // total, (time.monotonic() - began) / done * (total - done)
                errors.print(f"{done} of {total} graded, about {left / 60:.0f} min left", highlight=False)


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError("a whole number, at least 1")
    return value
