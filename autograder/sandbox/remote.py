"""remote: the trusted end of the pipe to a worker in the sandbox. Everything read from it is bounded and checked.

A learner's code that overruns or ends takes one fork of the worker with it; the worker goes on with a fresh one. A
worker that does not keep to this, or talks junk, is dead: it is killed with all its processes; the caller starts anew.
"""
import contextlib
import glob
import os
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from .bubblewrap import Sandbox
from .inside import wire

SILENT = "when your code had run, its process did not answer any more"
OVERRUN = "your code ran past the time limit: look for a loop that does not end"
TOO_MUCH = "your code used more memory than is allowed, all its processes together"
OVERRUNS = (-signal.SIGALRM, -signal.SIGPROF, -signal.SIGXCPU)  # how a fork ends by the limit on what it was asked
MOMENT = 0.2  # seconds after which what kills a worker behind its back has done so
LOOK = 0.5  # seconds between two looks at a busy worker's memory
PAGE = os.sysconf("SC_PAGE_SIZE")
WALL = 4.0
GRACE = 1.0  # seconds that a worker has to end what ran past its limit, before it is killed itself
START_LIMIT = 120.0  # seconds; a worker takes two, on a machine that is not overloaded


class GraderFault(Exception):
    """Grading itself failed. Never a student's fault, never a mark."""


class WorkerDied(Exception):
    """The learner's code overran its time, ended, or sent junk; the text tells the student. Its names are gone.

    `struck`: it went as a process goes that is killed from outside, by a machine without memory, say. `own`: it was
    certainly what ran last; else something that ran before may have left a thread, a process or a stopped parent.
    """

    def __init__(self, text: str, struck: bool = False, own: bool = False):
        super().__init__(text)
        self.struck, self.own = struck, own


class Clock:
    """A time limit: `seconds` of processor time, and four times as long on the wall, from now.

    A machine that is busy with other things makes code slow on the wall, and that may cost nobody a mark.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.deadline = time.monotonic() + WALL * seconds


class Worker:
    """One process in the sandbox. It warms up by itself; the first request waits for it."""

    def __init__(self, sandbox: Sandbox):
        self._log = tempfile.TemporaryFile()
        self._sandbox = sandbox
        self.dead = self.ready = self.struck = False
        self.fresh = True  # no cell has run in it
        try:
            self._process = subprocess.Popen(
                sandbox.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0,
                env=sandbox.environment(), start_new_session=True)
        except OSError as error:
            raise GraderFault(f"a worker could not be started: {error}") from None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)

    def wait_until_ready(self) -> None:
        """Raises GraderFault if the worker does not come up: no student's code has run yet."""
        if self.ready:
            return
        try:
            kind, _ = wire.decode(self._reader(time.monotonic() + START_LIMIT))
            self.ready = kind == "ready"
        except (WorkerDied, wire.WireError) as error:
            self.close()
            self._log.seek(0)
            told = self._log.read(20_000).decode(errors="replace").strip().split("\n")[-1]
            raise GraderFault(f"a worker did not start: {told or error}") from None

    def request(self, kind: str, body: dict, clock: "Clock") -> tuple[str, Any]:
        """Sends one message and returns the reply. Raises WorkerDied, after which nothing of what ran is left."""
        self.wait_until_ready()
        deadline = clock.deadline
        limits = {"cpu": clock.seconds, "wall": max(deadline - time.monotonic(), 0.01)}
        message = wire.encode(kind, {**body, **limits})
        self.fresh = False
        try:
            return self._reply(deadline + GRACE, message)
        except WorkerDied as death:
            if not death.own and kind != "end":
                self.close()  # a fork that ended before it read the message left it to the next one, which would answer
            raise

    def look(self, clock: "Clock") -> None:
        """Raises WorkerDied if what has run left the worker so that it does not answer, or ends a moment later."""
        try:
            self.request("run", {"source": ""}, clock)
            poll = select.poll()
            poll.register(self._out, select.POLLIN)
            if poll.poll(1000 * MOMENT):
                self._reply(time.monotonic() + GRACE)
                raise WorkerDied(SILENT)  # it said something that nobody had asked for
        except WorkerDied as death:
            self.close()
            raise WorkerDied(SILENT, death.struck) if str(death) == OVERRUN else death from None

    def _reply(self, deadline: float, message: bytes = b"") -> tuple[str, Any]:
        try:
            self._write(message, deadline)
            reply, body = wire.decode(self._reader(deadline))
        except wire.WireError as error:
            self.close()
            raise WorkerDied(f"your code sent the grader something that is no answer ({error})") from None
        except WorkerDied as death:
            self.struck |= death.struck
            self.close()
            raise
        if reply == "ended":
            self.fresh = True
            self.struck |= type(body) is int and body == -signal.SIGKILL
            raise WorkerDied(_epitaph(body), own=type(body) is int and body in OVERRUNS)
        return reply, body

    def refresh(self) -> bool:
        """Drops everything that ran in it. False if that did not go well, and the worker is of no more use."""
        if not self.fresh and not self.dead:
            try:
                self.request("end", {}, Clock(10))
            except WorkerDied:
                pass
        return self.fresh and not self.dead

    def _write(self, message: bytes, deadline: float) -> None:
        view = memoryview(message)
        while view:
            self._wait(self._in, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._in, view[:2**16]):]
            except BlockingIOError:
                continue
            except OSError:
                raise WorkerDied("your code brought its whole process down", struck=True) from None

    def _reader(self, deadline: float):
        def read(size: int) -> bytes:
            parts = []
            while size:
                self._wait(self._out, select.POLLIN, deadline)
                try:
                    part = os.read(self._out, min(size, 2**20))
                except BlockingIOError:
                    continue
                if not part:
                    raise WorkerDied("your code brought its whole process down", struck=True)
                parts.append(part)
                size -= len(part)
            return b"".join(parts)
        return read

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(min(left, LOOK) * 1000):
                return
            if memory_of(self._process.pid) > self._sandbox.limits.total:
                raise WorkerDied(TOO_MUCH, own=True)
        raise WorkerDied(OVERRUN)

    def close(self) -> None:
        """Kills the worker and everything it started. May be called again."""
        self.dead = True
        try:
            # bwrap's own process group; the sandbox's processes die with their first one.
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()

    def __del__(self):
        if getattr(self, "_process", None) is not None and not self.dead:
            self.close()


def memory_of(pid: int) -> int:
    """Bytes in memory of a process and all below it. The kernel's own limits are for each process alone."""
    below: dict[int, list[int]] = {}
    pages = {}
    for path in glob.iglob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            number, fields = int(path.split("/")[2]), Path(path).read_text(errors="replace").rpartition(")")[2].split()
            below.setdefault(int(fields[1]), []).append(number)
            pages[number] = int(fields[21])
    total, left = 0, [pid]
    while left:
        total += pages.get(here := left.pop(), 0)
        left += below.get(here, [])
    return total * PAGE


def _epitaph(status: Any) -> str:
    """How a fork ended, from its exit code; negative: the signal."""
    if not isinstance(status, int):
        return "your code ended Python"
    if status in OVERRUNS[:2]:
        return OVERRUN
    if status == -signal.SIGXCPU:
        return "your code used more processor time than is allowed"
    if -status in signal.valid_signals():
        return f"your code made Python crash ({signal.Signals(-status).name})"
    return f"your code ended Python (exit status {status})"
