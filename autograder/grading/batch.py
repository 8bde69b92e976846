"""batch: many submissions -> their reports, each as soon as it is known, whatever happens to one of them.

Threads of this process (`Here`) or of a Dask cluster (cluster.py) run the same function, `work`; each thread has a
process of its own that grades (child.py). A few submissions are on their way at a time, so memory does not grow with
their number. Next: store.py (what is known already), child.py, grade.py.
"""
import contextlib
import fcntl
import itertools
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from ..course.release import Course
from ..sandbox.bubblewrap import Sandbox, find_sandbox, make_stage
from .child import Child, ChildDied
from .grade import Grader, Report
from .submissions import Parcel, Submission, pack


class BatchError(Exception):
    """A batch cannot be run, or go on, as it was asked for. The text says what to do."""


DIED = "the grading process died on this submission, twice"


@dataclass(frozen=True)
class Order:
    """What is the same for all submissions of a run. Small: it goes along with each of them."""

    course: Course
    version: tuple[tuple[str, str], ...]  # of the course, as Course.version has it where the run began
    timeout: float = 20.0
    sandboxed: bool = True
    run: str = field(default_factory=lambda: secrets.token_hex(8))  # no two runs are the same one

    @property
    def settings(self) -> tuple:
        """All that a mark depends on beside the submission: what belongs into the key of a result."""
        return self.version, self.timeout, self.sandboxed, "hidden"


def grade_all(order: Order, submissions: list[Submission], pool) -> Iterator[tuple[Submission, Parcel, Report]]:
    """Each submission, as it was when it was read, and its report. In the order in which they get ready."""
    left, running = iter(submissions), {}
    try:
        while True:
            width = pool.width()
            for submission in itertools.islice(left, max(0, 2 * width - len(running))):
                parcel = pack(submission)
                running[pool.submit(work, order, parcel)] = submission, parcel
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                submission, parcel = running.pop(future)
                yield submission, parcel, pool.result(future, parcel)
    finally:
        for future in running:
            future.cancel()
        pool.close()


class Here:
    """A pool of threads on this machine; `jobs` submissions at once."""

    def __init__(self, order: Order, jobs: int):
        bench_for(order)  # no sandbox: said before anything starts
        self._order, self._jobs = order, jobs
        self._threads = ThreadPoolExecutor(jobs)
        self.submit = self._threads.submit

    def width(self) -> int:
        return self._jobs

    def result(self, future, parcel: Parcel) -> Report:
        return future.result()

    def close(self) -> None:
        clear_bench(self._order)
        self._threads.shutdown()


def work(order: Order, parcel: Parcel) -> Report:
    """Grades one submission in this thread's child. Once more if the child dies: that may have been chance."""
    with bench_for(order) as bench:
        for _ in range(2):
            with contextlib.suppress(ChildDied):
                return bench.child().grade(parcel)
    return fault(parcel, DIED)


def fault(parcel: Parcel, why: str) -> Report:
    """No mark, and not by the student's fault."""
    return Report(parcel.student, [name for name, _ in parcel.files], parcel.digest, "fault", warnings=[why])


class Bench:
    """What one process needs to grade for one order: the sandbox's files, and a child for each of its threads."""

    def __init__(self, order: Order):
        remove_abandoned()
        self.closed, self._users, self._used = False, 0, time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX)
        folder = Path(self._folder.name)
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        stage = make_stage(folder / "course")
        folder.chmod(0o755)
        sandbox = find_sandbox(stage) if order.sandboxed else Sandbox(stage, "none")
        self._grader = Grader(order.course, sandbox, order.timeout)
        self._children: dict[int, Child] = {}

    def child(self) -> Child:
        """This thread's process; another one if it has died, or has done enough. Raises ChildDied at the end."""
        thread = threading.get_ident()
        child = self._children.get(thread)
        if child is None or child.process.poll() is not None or child.spent:
            if child is not None:
                child.close()
            if self.closed:
                raise ChildDied
            child = self._children[thread] = Child(self._grader)
        return child

    def __enter__(self):
        self._users += 1
        return self

    def __exit__(self, *_):
        self._users -= 1
        self._used = time.monotonic()

    @property
    def forgotten(self) -> bool:
        """Whether nobody has wanted anything for long: whoever gave the order must have died."""
        return not self._users and time.monotonic() - self._used > FORGOTTEN

    def close(self) -> None:
        self.closed = True
        for child in list(self._children.values()):
            child.close()
        self._folder.cleanup()
        self._lock.close()


PREFIX = "autograder-"
FORGOTTEN = 600  # seconds
_benches: dict[Order, Bench] = {}
_one_at_a_time = threading.Lock()


def bench_for(order: Order) -> Bench:
    """The bench of this process for an order. Raises SandboxError, and CourseError if the course is not the order's."""
    with _one_at_a_time:
        for other in [o for o, bench in _benches.items() if bench.forgotten and o != order]:
            clear_bench(other)
        if order not in _benches:
            order.course.check_version(dict(order.version))
            _benches[order] = Bench(order)
        return _benches[order]


def clear_bench(order: Order) -> None:
    """Ends all children that work for an order, whatever they are doing."""
    if bench := _benches.pop(order, None):
        bench.close()


def remove_abandoned() -> None:
    """Removes what a batch that was killed left in the temporary folder: nobody holds its lock any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with contextlib.suppress(OSError), path.open() as lock:
            if time.time() - path.parent.stat().st_mtime > 60:  # a newer one may be about to be locked
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
