"""child: a process that grades one submission after another, and may die of one without a loss to the others.

Started and fed by batch.py through a pipe between our own two processes. It has a main thread of its own, which the
time limit of a check needs, and a memory of its own. It ends when whoever started it ends, whatever it is doing.
"""
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

from .. import _lean as _lean
from .grade import Grader, Report
from .submissions import Parcel, Submission

MOST = 250  # submissions of one process; a new one costs two seconds, and starts with an empty memory


class ChildDied(Exception):
    """The process ended before it gave its report."""


class Child:
    """One such process, seen from outside."""

    def __init__(self, grader: Grader):
        self.graded = 0
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "autograder.grading.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)})
        self._send(grader)

    @property
    def spent(self) -> bool:
        """Whether it has done enough for one process."""
        return self.graded >= MOST

    def _send(self, message) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            self.close()  # it may be dying still
            raise ChildDied from None

    def grade(self, parcel: Parcel) -> Report:
        """Raises ChildDied."""
        self.graded += 1
        self._send(parcel)
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise ChildDied from None

    def close(self) -> None:
        """Ends it at once. May be called again, and while another thread waits for its report."""
        self.process.kill()
        self.process.wait()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), daemon=True).start()
    grader = pipe.recv()
    _ = grader.course.notebooks  # imports the checks
    while True:
        pipe.send(grade_parcel(grader, pipe.recv()))


def _end_with_parent(fd: int) -> None:
    hung_up = select.poll()
    hung_up.register(fd, 0)  # 0: the end of the other side, and nothing else
    hung_up.poll()
    os._exit(1)  # the sandbox ends with its parent, which this process is


def grade_parcel(grader: Grader, parcel: Parcel) -> Report:
    """Unpacks a submission into a folder of its own, and grades it there."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=Path(grader.sandbox.stage).parent) as folder:
        warnings.simplefilter("ignore", SyntaxWarning)  # a class's slips, such as "\\mu", are nothing for a terminal
        paths, names, lost = [], [], []
        for i, (name, content) in enumerate(parcel.files):
            if isinstance(content, str):
                lost.append((name, content))
                continue
            path = Path(folder, str(i), name)  # two files may have one name, and a name may have folders in it
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
            paths.append(str(path))
            names.append(name)
        submission = Submission(parcel.student, tuple(paths), parcel.whole, parcel.problem, tuple(lost), tuple(names))
        report = grader.grade(submission)
    report.files, report.digest = [name for name, _ in parcel.files], parcel.digest
    return report


if __name__ == "__main__":
    main()
