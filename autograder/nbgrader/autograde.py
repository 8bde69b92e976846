"""autograde: nbgrader's Autograde with our grader in it, for `nbgrader autograde` and Formgrader's button.

nbgrader converts each notebook twice. First `GradeSubmission` has the whole submission graded by `autograder grade`, in
a process of its own and its sandbox, and gives our notebook with the results in it (shown.py); then `SaveMarks` puts
them into the gradebook. So no student's code runs in nbgrader's process, and the marks are those of the command.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbgrader.converters.base import NbGraderException
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Float, Integer, List, Unicode

from ..course.release import REPOSITORY, ROOT, Course, Notebook
from ..exercise import id_of_test
from ..exercise import load as load_checks
from ..grading import report as results
from ..grading.grade import Report
from ..grading.submissions import notebooks_below
from ..grading.transplant import Unreadable, chapter_in, collect, load, read_notebook, recognise
from .gradebook import enter_marks, opened
from .shown import output, show


class NotGraded(Exception):
    """No mark was given. The text says why."""


class Submissions(NotebookExporter):
    """Reads what was handed in, whatever a file is called, and whether or not it can be read as a notebook.

    nbgrader knows a notebook by its file's name, we by its cells. Made once for each run of Autograde, its parent.
    """

    checks = List(Unicode(), ["autograder.checks"], help="modules or packages with checks").tag(config=True)
    timeout = Float(20.0, help="seconds of processor time for each cell and each check").tag(config=True)
    jobs = Integer(None, allow_none=True, help="how many submissions at once; None: one for each core").tag(config=True)
    unsafe_no_sandbox = Bool(False, help="run student code with all your rights").tag(config=True)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        where = self.parent.coursedir
        self.course = Course(str(Path(where.root, where.release_directory)), tuple(self.checks))
        self._reports: dict[Path, Report | str] = {}  # by folder; a text: why there is none
        before = {folder: set(files) for folder, files in self.parent.assignments.items()}
        for folder, files in before.items():
            self.parent.assignments[folder] = self._released_names(sorted(files))
        known = {n.name for n in self.course.notebooks}
        if any(set(files) != before[folder] or any(Path(f).stem not in known for f in files)
               for folder, files in self.parent.assignments.items()):
            # nbgrader will book 0 for a file that has another name before it asks for the mark: it must be there.
            self._reports = self._grade(self._waiting())
            self._keep_from_booking()
            for reason in [r for r in self._reports.values() if isinstance(r, str)][:1]:
                self.log.error(reason)
                raise NbGraderException(reason)

    def released(self, where: dict) -> Notebook:
        """The released notebook that nbgrader speaks of."""
        return next(n for n in self.course.notebooks if (n.unit, n.name) == (where["assignment"], where["notebook"]))

    def _released_names(self, files: list[str]) -> list[str]:
        known = {n.name for n in self.course.notebooks}
        found = {}
        for path in map(Path, files):
            if path.stem not in known:
                try:
                    path = path.with_name(recognise(read_notebook(path), self.course).name + path.suffix)
                except Unreadable as reason:
                    self.log.warning("%s: %s", path, reason)
            found[str(path)] = None
        return list(found)

    def _keep_from_booking(self) -> None:
        """Takes out the submissions in which a notebook's file is not there, and what stands for it is unreadable.

        nbgrader would book 0 for it, and over earlier marks; of a submission without files it says that it failed.
        """
        for folder in self.parent.assignments:
            report = self._reports.get(Path(folder))
            if isinstance(report, Report) and any(_unknown(n, report) and not Path(folder, f"{n.name}.ipynb").exists()
                                                  for n in self.course.notebooks):
                self.log.error("%s has no marks here: %s. `autograder grade` gives those of the other notebooks",
                               report.student, results.in_a_row(report.warnings))
                self.parent.assignments[folder] = []

    def from_filename(self, filename, resources=None, **kwargs):
        path = Path(filename)
        try:
            notebook = nbformat.read(path, as_version=4)
        except Exception:  # GradeSubmission will say why
            notebook = nbformat.v4.new_notebook()
        resources = resources or ResourcesDict()
        resources["metadata"] = ResourcesDict(name=path.stem, path=str(path.parent))
        return self.from_notebook_node(notebook, resources=resources, **kwargs)

    def report(self, folder: Path) -> Report:
        """The marks of the submission in this folder. The first call grades all that this run will ask for."""
        if folder not in self._reports:
            self._reports |= self._grade([folder, *(f for f in self._waiting() if f not in {folder, *self._reports})])
        report = self._reports[folder]
        if isinstance(report, str):
            raise NotGraded(report)
        if report.status == "fault" or not report.marks:
            raise NotGraded(f"{report.student}: {report.status}: {results.in_a_row(report.warnings)}")
        return report

    def clear_beside(self, where: dict) -> None:
        """Takes away the student's other files: nbgrader has copied them, and Formgrader would serve a web page."""
        folders = self.parent.coursedir
        shown = Path(folders.format_path(folders.autograded_directory, where["student"], where["assignment"]))
        ours = Path(folders.format_path(folders.source_directory, ".", where["assignment"]))
        for path in shown.rglob("*"):
            if path.is_file() and path.suffix != ".ipynb" and path.name != "timestamp.txt" and \
                    not (ours / path.relative_to(shown)).exists():
                path.unlink()

    def _waiting(self) -> list[Path]:
        """The submissions that nbgrader will not skip as already autograded."""
        where, folders = self.parent.coursedir, map(Path, self.parent.assignments)
        return [f for f in folders if self.parent.force or not Path(
            where.format_path(where.autograded_directory, f.parent.name, f.name)).exists()]

    def _grade(self, folders: list[Path]) -> dict[Path, Report | str]:
        if not folders:
            return {}
        with tempfile.TemporaryDirectory(prefix="autograder-") as temporary:
            # A copy, since `grade` takes the name of a folder for the student's, and ours is the unit's.
            submitted, out = Path(temporary, "submitted"), Path(temporary, "results")
            for folder in folders:
                target = submitted / folder.parent.name
                target.mkdir(parents=True)
                _copy(folder, target, self.course)
            # -P: no module from the folder that nbgrader runs in, where submissions may lie.
            command = [sys.executable, "-P", "-m", "autograder", "grade", str(submitted), "--out", str(out),
                       "--gradebook", "none", "--timeout", str(self.timeout), "--release", self.course.release]
            command += ["--jobs", str(self.jobs)] if self.jobs else []
            command += [word for module in self.checks for word in ("--checks", module)]
            command += ["--unsafe-no-sandbox"] * self.unsafe_no_sandbox
            self.log.info("Grading %d submissions: %s", len(folders), " ".join(command[1:]))
            path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
            done = subprocess.run(command, cwd=ROOT, env={"JAX_PLATFORMS": "cpu", **os.environ, "PYTHONPATH": path},
                                  capture_output=True, text=True, errors="replace")
            why = done.stderr.strip() or f"the grader ended with {done.returncode}"
            try:
                reports = {r.student: r for r in results.read(out)}
            except results.ResultsError:
                reports = {}
        return {folder: reports.get(folder.parent.name, why) for folder in folders}


def _unknown(notebook: Notebook, report: Report) -> bool:
    return any((mark := report.marks.get(t.number)) is not None and mark.points is None
               for t in notebook.tests.values())


def _copy(folder: Path, target: Path, course: Course) -> None:
    """What was handed in. What cannot be read is a link there, so that `grade` knows that it is not missing.

    A notebook in another format is an empty file there: its name is all that counts.
    """
    folder = folder.resolve()
    others: list[str] = []
    found, lost = notebooks_below(folder, others)
    for name in others:
        if chapter_in(name, (n.name for n in course.notebooks)):
            (target / name).touch()
    for path in found:
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy.write_bytes(load(path))
        except Unreadable:
            copy.symlink_to(path)
    for name, _ in lost:
        with contextlib.suppress(FileExistsError):
            (target / name).with_suffix(".ipynb").symlink_to(folder)


class GradeSubmission(NbGraderPreprocessor):
    """A submitted notebook -> our notebook with the student's cells, and what grading found."""

    def preprocess(self, nb, resources):
        where = resources["nbgrader"]
        folder, released = Path(resources["metadata"]["path"]), self.parent.released(where)
        report = self.parent.report(folder)
        self.parent.clear_beside(where)
        for warning in report.warnings:
            self.log.warning("%s: %s", report.student, warning)
        read, *_ = collect(map(str, notebooks_below(folder.resolve())[0]), self.parent.course)
        # One that cannot be read is shown empty; its marks are not known, and stay what they were.
        _, notebook = read.get(released, (None, nbformat.v4.new_notebook()))
        return show(released, notebook, report), resources


class SaveMarks(NbGraderPreprocessor):
    """The marks that `GradeSubmission` left in the notebook -> the gradebook. What a person gave stays."""

    def preprocess(self, nb, resources):
        where = resources["nbgrader"]
        report = Report.from_plain(nb.metadata["autograder"])
        released = self.parent.released(where)
        with opened(where["db_url"]) as gradebook:
            notebook = gradebook.find_submission_notebook(where["notebook"], where["assignment"], where["student"])
            enter_marks(notebook, released, report.marks)
            gradebook.db.commit()
        return nb, resources


class StudentView(NbGraderPreprocessor):
    """An autograded notebook as its student may see it: nbgrader's feedback would show what hidden trials found."""

    def preprocess(self, nb, resources):
        if "autograder" not in nb.metadata:
            raise NotGraded("this was autograded without `autograder`, and may show what hidden trials found: "
                            "autograde it again, then make its feedback")
        report = Report.from_plain(nb.metadata.pop("autograder"))
        # For the titles of exercises: nothing else in this process may have read the checks.
        load_checks(*self.config.Submissions.get("checks", ["autograder.checks"]))
        marks = {id_of_test(number): (number, mark) for number, mark in report.marks.items()}
        for cell in nb.cells:
            found = marks.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
            if found is not None and cell.cell_type == "code":
                cell.outputs = [output(*found, for_student=True)]
        return nb, resources
