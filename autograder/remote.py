"""remote: the trusted end of the pipe to a worker in the sandbox. Everything read from it is bounded and checked.

A worker that overruns, ends or talks junk is dead: it is killed with all its processes, and the caller starts another.
"""
import os
import select
import signal
import subprocess
import tempfile
import time
from typing import Any

from .exercise import AnswerFailed
from .handle import Handle
from .inside import wire
from .sandbox import Sandbox

START_LIMIT = 120.0  # seconds; a worker takes two, on a machine that is not overloaded


class GraderFault(Exception):
    """Grading itself failed. Never a student's fault, never a mark."""


class WorkerDied(Exception):
    """The worker overran its time, ended, or sent junk; the text tells the student."""


class Worker:
    """One process in the sandbox. It warms up by itself; the first request waits for it."""

    def __init__(self, sandbox: Sandbox):
        self._log = tempfile.TemporaryFile()
        self._sandbox = sandbox
        self.dead = self.ready = False
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

    def request(self, kind: str, body: Any, deadline: float) -> tuple[str, Any]:
        """Sends one message and returns the reply. Raises WorkerDied, after which the worker is of no more use."""
        self.wait_until_ready()
        message = wire.encode(kind, body)
        try:
            self._write(message, deadline)
            reply, body = wire.decode(self._reader(deadline))
        except wire.WireError as error:
            self.close()
            raise WorkerDied(f"your code sent the grader something that is no answer ({error})") from None
        except WorkerDied:
            self.close()
            raise
        return reply, body

    def _write(self, message: bytes, deadline: float) -> None:
        view = memoryview(message)
        while view:
            self._wait(self._in, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._in, view[:2**16]):]
            except BlockingIOError:
                continue
            except OSError:
                raise WorkerDied(self._epitaph()) from None

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
                    raise WorkerDied(self._epitaph())
                parts.append(part)
                size -= len(part)
            return b"".join(parts)
        return read

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise WorkerDied("your code ran past the time limit: look for a loop that does not end")

    def _epitaph(self) -> str:
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            return "your code closed the connection to the grader"
        number = -status if status < 0 else status - 128
        if number == signal.SIGXCPU:
            return "your code used more processor time than is allowed"
        if number in signal.valid_signals():
            return f"your code made Python crash ({signal.Signals(number).name})"
        return f"your code ended Python (exit status {status})"

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


class RemoteHandle(Handle):
    """An object in the sandbox, named by an expression of ours (such as `split`)."""

    def __init__(self, worker: Worker, expression: str, deadline: float):
        self._worker, self._expression, self._deadline = worker, expression, deadline

    def _ask(self, op, args):
        if self._worker.dead:  # a check that caught the first failure may not go on as if nothing had happened
            raise AnswerFailed("", "your code had already been stopped")
        try:
            return self._worker.request("ask", {"expression": self._expression, "op": op, "args": args}, self._deadline)
        except WorkerDied as death:
            raise AnswerFailed("", str(death)) from None
