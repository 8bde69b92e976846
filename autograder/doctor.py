"""doctor: is all there that learning and grading need? Each finding says what is, and what to do where that is not it.

Two machines with the same packages and `course_id` check answers alike: a student compares these lines with the
teacher's. Nothing is changed, and no student's code runs.
"""
import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pallas_lite.errors import many

from ._cwd import other_course
from .commandline import typed
from .course.release import REPOSITORY, ROOT, Course
from .grading import machine
from .sandbox.bubblewrap import SandboxError, find_sandbox, make_stage

GOOD, NOTE, BAD, BROKEN = "good", "note", "bad", "broken"  # broken: the doctor itself failed there
OLDEST, NEWEST = (3, 11), (3, 13)  # Pythons that the tests run on
CORE = ("jax", "jaxlib", "numpy")  # what can change a number, and so a verdict
DISK = 2**30  # bytes that should be free
EXTRAS = {"tpu": ("libtpu", "compiles for TPUs in chapter 9"), "gpu": ("jax_cuda13_plugin", "compiles for GPUs in "
          "chapter 10"), "cluster": ("distributed", "grades on a Dask cluster"),
          "postgres": ("psycopg", "keeps the gradebook in PostgreSQL")}
PIP = f"{shlex.quote(sys.executable)} -m pip install"


@dataclass(frozen=True)
class Finding:
    """`area`, how it is ("good", "note", "bad", "broken"), what was seen, and what to do."""

    area: str
    state: str
    what: str
    do: str = ""


def learning(course: Course) -> Iterator[Finding]:
    """What a learner needs, and what decides whether a check says the same here and where it is graded."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST:
        yield Finding("Python", BAD, version, "Install Python 3.11, 3.12 or 3.13, and set the course up anew: make lab")
    elif sys.version_info[:2] > NEWEST:
        yield Finding("Python", NOTE, f"{version}, newer than any that is tested (3.11 to 3.13)")
    else:
        yield Finding("Python", GOOD, version)
    yield from _packages(REPOSITORY / "requirements.lock")
    used = sys.stdlib_module_names & sys.modules.keys()
    names = {*CORE, "pallas_lite", "autograder", "matplotlib", "IPython", *used}
    here = Path.cwd()
    hiding = sorted(p.name for p in here.iterdir() if p.resolve().parent != REPOSITORY and (
        p.suffix == ".py" and p.stem in names or p.name in names and (p / "__init__.py").is_file()))
    if other_course(str(here)):  # to be used, not to be renamed
        yield Finding("this folder", BAD, f"{here} has a course of its own, and this is the doctor of {REPOSITORY}",
                      f"If it is yours: make -C {shlex.quote(str(here))} build, then .venv/bin/autograder doctor there")
    elif hiding:
        yield Finding("this folder", BAD, f"{', '.join(hiding)} here is imported in place of the package of that name",
                      "Give it another name")
    exercises = sum(len(n.tests) for n in course.notebooks)  # imports the checks; a CourseError is the caller's to tell
    yield Finding("course", GOOD, f"{many(len(course.notebooks), 'notebook')}, {many(exercises, 'exercise')}, "
                  f"id {course_id(course)}")


def _packages(lock: Path) -> Iterator[Finding]:
    """The installed packages against the lock, or against what the package asks for where there is no lock."""
    if lock.is_file():
        lines = lock.read_text(encoding="utf-8").splitlines()
        asked = [Requirement(line) for line in lines if line[:1] not in ("", "#")]
        mend = f"{PIP} -r requirements.lock (make lab does that)"
    else:  # installed from a wheel
        asked = [r for r in map(Requirement, importlib.metadata.requires("pallas-lite") or [])
                 if not (r.marker and "extra" in str(r.marker))]
        mend = f"{PIP} --upgrade WHEEL, with the course's wheel, or {PIP} -e . in its repository"
    core, rest, count = [], [], 0
    for r in asked:
        if r.marker and not r.marker.evaluate():
            continue
        count += 1
        try:
            have = importlib.metadata.version(r.name)
        except importlib.metadata.PackageNotFoundError:
            have = ""
        if not r.specifier.contains(have or "0", prereleases=True):
            told = f"{r.name} {have or 'is missing'} ({r.specifier})"
            (core if canonicalize_name(r.name) in CORE else rest).append(told)
    if core:
        yield Finding("packages", BAD, f"not the locked versions, so a check may say something else when it is graded: "
                      f"{', '.join(core)}", mend)
    if rest:
        differ = "differs" if len(rest) == 1 else "differ"
        yield Finding("packages", NOTE, f"{len(rest)} of {count} {differ} from the lock: {', '.join(rest[:5])}"
                      + (" …" if len(rest) > 5 else ""), mend)
    if not core and not rest:
        versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("jax", "numpy"))
        others = f" (the lock has {len(asked)}, for all systems and Pythons)" * (count < len(asked))
        yield Finding("packages", GOOD, f"{versions}; all {count} as locked{others}")


def course_id(course: Course) -> str:
    """A short name for all that decides a verdict beside the packages: release, checks, grader, pallas_lite."""
    parts = {part: value for part, value in course.version.items() if part != "packages"}
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:8]


def grading(course: Course) -> Iterator[Finding]:
    """What an instructor needs beside that."""
    yield from _sandbox()
    yield from _nbgrader()
    yield from _release(course)
    yield from _room()
    for extra, (module, what) in EXTRAS.items():
        here = importlib.util.find_spec(module) is not None
        yield Finding(f"[{extra}]", GOOD if here else NOTE, "installed" if here else f"not installed: {what}",
                      "" if here else f"If you want that: {_install(extra)}")


def _install(extra: str) -> str:
    """How the packages of an extra are had, in the repository or from a wheel."""
    if (REPOSITORY / "pyproject.toml").is_file():
        return f"{PIP} -e '.[{extra}]'"
    return f"{PIP} 'WHEEL[{extra}]', with the course's wheel"


def _sandbox() -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="autograder-") as folder:
        Path(folder).chmod(0o755)
        try:
            mode = find_sandbox(make_stage(Path(folder, "course"))).mode
            yield Finding("sandbox", GOOD, f"bubblewrap, {'as root' if mode == 'drop' else 'in a user namespace'}")
        except SandboxError as error:
            what, _, do = str(error).partition("\n")
            yield Finding("sandbox", BAD, what, do)


def _nbgrader() -> Iterator[Finding]:
    if importlib.util.find_spec("nbgrader") is None:
        yield Finding("nbgrader", NOTE, "not installed: grading works, without Formgrader and a gradebook",
                      f"If you want them: {_install('course')}")
        return
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    from .nbgrader import gradebook
    where = gradebook.settings()
    have = importlib.metadata.version("nbgrader")
    release = Path(where.root, where.release_directory)
    if os.environ.get("JUPYTER_CONFIG_PATH") is None:
        here = shlex.quote(str(Path(__file__).parent))
        yield Finding("nbgrader", NOTE, f"{have}; JUPYTER_CONFIG_PATH is not set, so nbgrader's own commands and "
                      "Formgrader do not find the course", f"export JUPYTER_CONFIG_PATH={here} (make lab does that)")
    elif not release.is_dir():
        yield Finding("nbgrader", BAD, f"{have}; its release folder {release} is not there",
                      "See CourseDirectory in your nbgrader_config.py, or build the course: " + typed("build"))
    else:
        yield Finding("nbgrader", GOOD, f"{have}; course in {where.root}")
    server = any(Path(p, "jupyter_server_config.d", "nbgrader.json").is_file() for p in jupyter_config_path())
    lab = any(Path(p, "@jupyter", "nbgrader").is_dir() for p in jupyter_path("labextensions"))
    if server and lab:
        yield Finding("Formgrader", GOOD, "its JupyterLab and server extensions are there")
    else:
        yield Finding("Formgrader", BAD, f"no {'server' if not server else 'JupyterLab'} extension of nbgrader here",
                      f"{PIP} --force-reinstall nbgrader, if JupyterLab runs in this environment")
    yield from _gradebook(where.db_url)


def _gradebook(url: str) -> Iterator[Finding]:
    from .nbgrader import gradebook
    shown, file = gradebook.shown(url), Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not file.exists():
        above = next((p for p in file.parents if p.exists()), Path("/"))
        if os.access(above, os.W_OK):
            yield Finding("gradebook", NOTE, f"{shown} is not there yet", f"The first marks or `{typed('build')}` "
                          "make it")
        else:
            yield Finding("gradebook", BAD, f"{shown} cannot be made: {above} is not writable", "Give yourself the "
                          "right to write there, or set CourseDirectory.db_url in nbgrader_config.py")
        return
    try:
        with gradebook.opened(url, "opened") as book:
            yield Finding("gradebook", GOOD, f"{shown}: {many(len(book.assignments), 'unit')}, "
                          f"{many(len(book.students), 'student')}")
    except gradebook.GradebookError as error:
        what, _, do = (str(error), "", error.do) if error.do else str(error).partition(". ")
        yield Finding("gradebook", BAD, what, do)


def _release(course: Course) -> Iterator[Finding]:
    """Whether the release is that of solutions/, cell by cell: what `build --check` says, without nbgrader's minute."""
    if not (ROOT / "solutions").is_dir():
        yield Finding("release", NOTE, "no solutions/ here to compare it with")
        return
    from .course.build import BuildError, read_course, registered, release_problems
    try:
        chapters = read_course(ROOT, registered())
    except BuildError as error:
        yield Finding("release", BAD, f"solutions/ cannot be built: {error.problems[0]}", f"{typed('build')} says all")
        return
    stale = [c.file for c in chapters if not (path := Path(course.release, c.file)).is_file()
             or release_problems(c, path)]
    if stale:
        yield Finding("release", BAD, f"not what solutions/ has now: {', '.join(stale)}", typed("build"))
    else:
        yield Finding("release", GOOD, f"{many(len(chapters), 'notebook')}, as solutions/ has them")


def _room() -> Iterator[Finding]:
    for area, folder in (("disk", ROOT), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        yield Finding(area, GOOD if free >= DISK else BAD, f"{free / 1e9:.1f} GB free in {folder}",
                      "" if free >= DISK else "Make room: grading wants 1 GB")
    memory = machine.free_memory()
    if memory is None:
        yield Finding("memory", NOTE, "cannot be told on this system: a worker takes up to 600 MB")
        return
    jobs = machine.most_jobs()
    yield Finding("memory", GOOD if jobs else BAD,
                  f"{memory / 1e9:.1f} GB available, {machine.cores()} cores: --jobs {jobs}"
                  if jobs else f"{memory / 1e9:.1f} GB available, and a worker takes up to 600 MB",
                  "" if jobs else "End other programs, or take a larger machine")


def examine(part: Callable[[Course], Iterator[Finding]], course: Course) -> list[Finding]:
    """All findings of a part. One that cannot be made is a finding too."""
    found = []
    try:
        for finding in part(course):
            found.append(finding)
    except Exception as error:
        found.append(Finding(part.__name__, BROKEN, f"could not be examined further: {type(error).__name__}: {error}",
                             "The line above is the grader's own fault, or says what is damaged"))
    return found


def verdict(found: list[Finding]) -> str:
    """How ready it is, in words."""
    bad = sum(f.state in (BAD, BROKEN) for f in found)
    return "yes" if not bad else f"no, {bad} thing{'s' * (bad > 1)} to mend"
