"""grade: one submission -> its marks. Runs the cells in a sandbox, each check outside of it, in the notebook's order.

Whatever a submission does, it ends in a Report. Next: batch.py (many at once), report.py (what is written).
"""
import re
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..course.release import Course, Notebook, Test
from ..exercise import EXERCISES, Trial
from ..judge.checking import judge, limit
from ..judge.result import Result
from ..sandbox.bubblewrap import Sandbox
from ..sandbox.inside.answers import TimeUp
from ..sandbox.inside.personal import normalise
from ..sandbox.remote import WALL, Clock, GraderFault, Worker, WorkerDied
from .submissions import Submission
from .transplant import ANOTHER_CHAPTER, Step, Unread, chapter_in, collect, is_another, tails, transplant
from .whose import drawn_for, identity, told
from .workers import RemoteHandle, Workers


@dataclass
class Mark:
    """One exercise of one submission. `points` is None where the grader failed or a file is unreadable: no mark, not 0.

    `message` and `details` are those of the hidden trial that failed. `visible`: what the notebook's own check says of
    the same answer, its message among it; {} if it passes there, None if that is not known. Students get to see that.
    """

    points: float | None
    max_points: float
    verdict: str  # as Result's, or "missing": not handed in, or "unreadable": it is, or may be, in an unreadable file
    message: str = ""
    details: dict[str, str] = field(default_factory=dict)
    visible: dict[str, str] | None = None


@dataclass
class Report:
    """What became of one submission. `status`: "graded", "unreadable" (all of it, or a part), or "fault" (our own)."""

    student: str
    files: list[str]
    digest: str
    status: str = "graded"
    marks: dict[str, Mark] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def points(self) -> float | None:
        """The sum of the marks; None if there are none, or if one is not known."""
        marks = [m.points for m in self.marks.values()]
        return None if not marks or None in marks else sum(marks)

    @property
    def max_points(self) -> float:
        return sum(m.max_points for m in self.marks.values())

    def drawn_for(self) -> list[str]:
        """The ids that the notebooks gave as STUDENT, where these are not the student's own."""
        return drawn_for(self.warnings)

    def to_plain(self) -> dict:
        """As JSON can carry it, sums included."""
        return {**asdict(self), "points": self.points, "max_points": self.max_points}

    @classmethod
    def from_plain(cls, plain: dict) -> "Report":
        """What `to_plain` gave. Raises TypeError, KeyError or ValueError on anything else."""
        report = cls(**{f.name: plain[f.name] for f in fields(cls)})
        report.marks = {number: Mark(**mark) for number, mark in report.marks.items()}
        if report.to_plain() != plain:
            raise ValueError(f"the report of {report.student} does not agree with itself")
        return report


@dataclass(frozen=True)
class Grader:
    """How to grade. `hidden`: on hidden trials, else as the notebook does. `timeout`: of a cell or check, see Clock."""

    course: Course
    sandbox: Sandbox
    timeout: float = 20.0
    hidden: bool = True

    def grade(self, submission: Submission) -> Report:
        """The marks of a submission. Never raises: a failure of the grader is a Report of status "fault"."""
        began = time.monotonic()
        for _ in range(2):
            report = Report(submission.student, list(submission.names or tails(submission.paths)), submission.digest)
            workers = Workers(self.sandbox)
            try:
                self._grade(submission, report, workers)
            except GraderFault as fault:
                report.status = "fault"
                report.warnings.append(str(fault))
            except Exception as error:
                report.status = "fault"
                report.warnings.append(f"the grader failed: {type(error).__name__}: {error}")
            if not workers.struck:
                break  # else it may not have been the student's doing: what does it again, did it
        for mark in report.marks.values():
            if mark.verdict == "broken":
                report.status, mark.points = "fault", None
        report.marks = {number: report.marks[number] for number in EXERCISES if number in report.marks}
        report.seconds = round(time.monotonic() - began, 2)
        return report

    def _grade(self, submission: Submission, report: Report, workers: Workers) -> None:
        if submission.problem:
            report.status = "unreadable"
            report.warnings.append(submission.problem)
            return
        read, report.warnings, unread = collect(submission.paths, self.course, submission.names)
        unread = [*submission.lost, *unread]
        ids: dict[str | None, list[str]] = {}  # what notebooks have as STUDENT, if that is not who it is -> which do
        with workers:
            for released, (_, notebook) in read.items():
                steps, warnings = transplant(released, notebook)
                report.warnings += warnings
                run = _Run(self, workers, steps, report)
                report.marks.update(run.marks())
                for other in run.ids:
                    ids.setdefault(other, []).append(f"{released.name}.ipynb")
        report.warnings += told(ids, report.student, clean)
        if not read:
            report.status = "unreadable"
            one = len(unread) == 1 and len(submission.paths) < 2
            report.warnings += [why if one else f"{file}: {why}" for file, why in unread]
        elif submission.whole:
            report.warnings[:0] = self._absent(submission, read, unread, report)  # before what was seen in the others

    def _absent(self, submission: Submission, read: dict[Notebook, tuple[Path, Any]], unread: Unread,
                report: Report) -> list[str]:
        """The notebooks that no file was graded as; returns the warnings, each a cause and what follows from it.

        One that was not handed in earns 0; of one that is, or may be, in a file that cannot be read, nothing is known.
        Such a file is the notebook whose name it has, else any of them. A file that holds another notebook than its
        name says is graded as what it holds, and makes nothing else of that unit missing.
        """
        warnings = []
        names = {n.name: n for n in self.course.notebooks}
        called = dict(zip(map(Path, submission.paths), report.files, strict=True))
        others = {n: called[path] for n, (path, _) in read.items()
                  if names.get(is_another(path.name, n, self.course), n) not in read}
        unread = [*unread, *((file, ANOTHER_CHAPTER.format(n.name)) for n, file in others.items())]
        # What is something else than its name says is not missed where the notebook itself was read.
        unread = [(file, why) for file, why in unread
                  if not why.startswith("this is ") or names.get(chapter_in(file, names)) not in read]
        named = [names[own] for file, _ in unread if (own := chapter_in(file, names))]
        units = {n.unit for n in (*(n for n in read if n not in others), *named)}
        absent = [n for n in self.course.notebooks if n.unit in units and n not in read]
        unknown: dict[Notebook, str] = {}
        for file, why in unread:
            own = names.get(chapter_in(file, names))
            may_be = [n for n in absent if (n is own if own else n not in named)]
            unknown.update(dict.fromkeys(may_be, f"{file}: {why}"))
            no_mark = (f". No mark for {', '.join(n.name for n in may_be)} until it is handed in again; the other "
                       "notebooks are graded") if may_be else ""
            warnings.append(f"{file}: {why}{no_mark}")
        for released in absent:
            if released not in unknown:
                warnings.append(f"{released.name}.ipynb was not handed in")
            for t in released.tests.values():
                report.marks[t.number] = (Mark(None, t.points, "unreadable", unknown[released]) if released in unknown
                                          else Mark(0.0, t.points, "missing", "not handed in"))
        if unknown:
            report.status = "unreadable"
        return warnings


class _Run:
    """The steps of one notebook, run in a worker; in a fresh one whenever it died, without the cell that killed it."""

    def __init__(self, grader: Grader, workers: Workers, steps: list[Step], report: Report):
        self.grader, self.workers, self.steps, self.report = grader, workers, steps, report
        self.worker: Worker | None = None
        self.ran = 0  # how many steps the living worker has behind it
        self.unreached = False  # whether one of these was left out since there was no time left
        self.skipped: dict[int, str] = {}  # steps that killed a worker
        self.careful = False  # after a death that may be an earlier cell's doing: each is looked at when it has run
        self.failed: dict[str, tuple[str, dict]] = {}  # exercise -> how its answer cell ended, if not well
        # Each cell may take its time once, but a notebook full of endless loops has to end some day. What it takes to
        # ask the notebook's own checks costs nobody a mark, so it has a time of its own.
        self.budget = 20 * grader.timeout
        self.until = time.monotonic() + self.budget
        self.ids: dict[str | None, None] = {}  # what it has as STUDENT, where that is not who handed it in
        self.asking = self.budget / 2

    def marks(self) -> dict[str, Mark]:
        found = {}
        for place, step in enumerate(self.steps):
            if step.test is None:
                continue
            if step.missing:
                found[step.test.number] = Mark(0.0, step.test.points, "missing", step.missing)
                continue
            mark = None
            while mark is None:
                over = self._over()
                if not over:
                    self._run_up_to(place)
                late = over or self.unreached
                mark = self._too_late(step.test) if late else self._judge(place, step.test, step.nobodys)
            found[step.test.number] = mark
            if self.careful and not self._lost():
                self._look()  # what the answer did when it was called is nobody else's doing
        for place, said in self.skipped.items():  # what a cell did to the process may have shown only after its test
            mark = found.get(self.steps[place].exercise)
            if mark is not None and mark.verdict == "error":
                mark.message, mark.details, mark.visible = said, {}, {"message": said}
        return found

    def _too_late(self, test: Test) -> Mark:
        said = f"the notebook as a whole took longer than {self.budget:g} s"
        return Mark(0.0, test.points, "error", said, {}, {"message": said})

    def _over(self) -> bool:
        return time.monotonic() > self.until

    def _run_up_to(self, place: int) -> None:
        while self._lost() or self.ran < place:
            if self._lost():
                self.worker, self.ran, self.unreached = self.workers.fresh(), 0, False
                self.worker.fresh = False
            while self.ran < place and not self._lost():
                self._run_cell(self.ran)
                self.ran += 1

    def _lost(self) -> bool:
        """Whether the learner's names are gone: no worker yet, or it had to start anew."""
        return self.worker is None or self.worker.dead or self.worker.fresh

    def _run_cell(self, place: int) -> None:
        step = self.steps[place]
        if step.test is not None or place in self.skipped:
            return
        if self._over():
            self.unreached = True
            return
        try:
            asked = {"source": step.source, "leave": step.leaves}
            kind, body = self.worker.request("run", asked, Clock(self.grader.timeout))
            if self.careful and not step.ours and (death := self._look()):
                raise death
        except WorkerDied as death:
            if self._doubtful(death):
                return  # all run again, and this one too
            self.skipped[place] = str(death)
            kind, body = "failed", {"kind": "", "message": str(death)}
            if not step.exercise and not step.leaves:
                first = step.source.strip().split("\n")[0][:60]
                self.report.warnings.append(f"the cell that begins with {first!r} was left out: {death}")
        if step.exercise and kind != "ok":
            self.failed[step.exercise] = kind, body if isinstance(body, dict) else {}

    def _doubtful(self, death: WorkerDied | None) -> bool:
        """Whether a death may be the doing of what ran before; from then on, each cell is looked at when it has run."""
        if death is None or death.own or self.careful:
            return False
        self.careful = True
        return True

    def _look(self) -> WorkerDied | None:
        """How the worker died of what it has just run, though that had come to its end; None if it is well."""
        try:
            self.worker.look(Clock(min(2.0, self.grader.timeout)))
        except WorkerDied as death:
            return death
        return None

    def _judge(self, place: int, test: Test, nobodys: bool) -> Mark | None:
        """The mark of one exercise; None if all has to run again, with care, before there is one."""
        clock = Clock(self.grader.timeout)
        student = ""
        if test.student:
            handle = RemoteHandle(self.worker, test.student, clock)
            try:
                student = identity(handle.value())
            except Exception:
                nobodys = True
            if self._doubtful(handle.death):
                return None
        nobodys = nobodys and not student and self.grader.hidden
        if self.grader.hidden and test.student and normalise(student) != normalise(self.report.student):
            self.ids[None if nobodys else student] = None  # its numbers count all the same
        try:
            # The check itself ends too: what it does with an answer is bounded as the answer is, in each of two trials.
            with limit(3 * WALL * self.grader.timeout):
                for who in [self.report.student, ""] if nobodys else [student]:
                    handle = RemoteHandle(self.worker, test.expression, clock)
                    result = judge(EXERCISES[test.number], handle, Trial(test.number, self.grader.hidden, who))
                    if result.verdict != "wrong":
                        break
            if self._doubtful(handle.death):
                return None
        except TimeUp:
            self.worker.close()
            return Mark(None, test.points, "broken", f"the check of exercise {test.number} did not end")
        failed = self.grader.hidden and result.verdict in ("wrong", "error")
        return self._mark(result, test, self._seen(place, test, student) if failed else None)

    def _seen(self, place: int, test: Test, student: str) -> Result | None:
        """What the notebook's check says of an answer that failed a hidden trial; None if there is no telling.

        An answer that ended its process there, by an endless loop say, is made once more: it may do so here, too.
        """
        began = time.monotonic()
        try:
            if self._lost():
                if test.number in self.failed or self.asking < 0:
                    return None
                skipped, failed, told = dict(self.skipped), dict(self.failed), len(self.report.warnings)
                self._run_up_to(place)
                if self._over() or (*skipped, *failed) != (*self.skipped, *self.failed):  # a cell was left out
                    self.skipped, self.failed = skipped, failed
                    del self.report.warnings[told:]
                    self.worker.close()  # for the next exercise all run again
                    return None
            with limit(2 * WALL * self.grader.timeout):
                result = judge(EXERCISES[test.number],
                               RemoteHandle(self.worker, test.expression, Clock(self.grader.timeout)),
                               Trial(test.number, student=student))
        except TimeUp:
            self.worker.close()
            return None
        finally:
            self.asking -= time.monotonic() - began
            self.until += time.monotonic() - began
        return result if result.verdict in ("right", "wrong", "error") else None

    def _mark(self, result: Result, test: Test, seen: Result | None) -> Mark:
        kind, body = self.failed.get(test.number, ("", {}))
        # "name 'split' is not defined" is the consequence, not the cause; so is what was judged where no line ran.
        if kind and (result.verdict == "error" or result.verdict == "wrong" and body.get("ran") is False):
            if kind == "not done":
                return Mark(0.0, test.points, "not done", f"Exercise {test.number} is not done yet.")
            said = {k: v for k, v in body.items() if isinstance(v, str)}  # the sandbox may say anything
            text = clean(": ".join(said[k] for k in ("kind", "message") if said.get(k))) or "your code stopped"
            details = {"your line": clean(said.get("line", ""))}
            return Mark(0.0, test.points, "error", text, details, {"message": text, **details})
        visible = None
        if seen is not None:
            visible = {} if seen.verdict == "right" else {"message": clean(seen.message), **_details(seen)}
        return Mark(result.points, test.points, result.verdict, clean(result.message), _details(result), visible)


def _details(result: Result) -> dict[str, str]:
    """What is known beside the message. "timeline" is for feedback.py to draw, all else is to be read."""
    details = {label: clean(text) for label, text in result.facts()}
    if result.schedule is not None:
        details["schedule"] = clean(result.table())
        if len(drawing := result.drawing()) <= 20_000:
            details["timeline"] = drawing
    if result.nudge:
        details["nudge"] = clean(result.nudge)
    return details


def clean(text: str, most: int = 20_000) -> str:
    """A text that a student may have written, without what a terminal would obey, a reader not see, or a file not hold.

    Those are control characters, signs that turn or hide text, and halves of surrogate pairs.
    """
    unwanted = r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    return re.sub(unwanted, " ", text[:10 * most])[:most]


def harmless(text: str) -> bool:
    """Whether a text out of a hidden trial holds nothing that could be a value of it: no digit, nothing in quotes."""
    return not re.search(r"""[\d"'\[\]{}]""", text)
