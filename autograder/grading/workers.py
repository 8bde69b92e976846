"""workers: one submission's sandbox, and how a check asks it about an answer. Next: grade.py."""
from ..exercise import AnswerFailed
from ..judge.handle import Handle
from ..sandbox.bubblewrap import Sandbox
from ..sandbox.remote import Clock, GraderFault, Worker, WorkerDied


class Workers:
    """One sandbox for one submission; another one only if its worker is beyond repair.

    The next submission's does not start meanwhile: a job keeps one core busy, so that two keep two.
    """

    def __init__(self, sandbox: Sandbox):
        self.sandbox = sandbox
        self.worker: Worker | None = None
        self._struck = False

    @property
    def struck(self) -> bool:
        """Whether one of them died as if it had been killed from outside."""
        return self._struck or self.worker is not None and self.worker.struck

    def fresh(self) -> Worker:
        """A worker in which nothing has run."""
        if self.worker is None or not self.worker.refresh():
            self._struck = self.struck
            try:
                self.worker = Worker(self.sandbox)
                self.worker.wait_until_ready()  # its start is on nobody's clock
            except GraderFault:  # once may be chance: a machine that is short of memory for a moment
                self.worker = Worker(self.sandbox)
                self.worker.wait_until_ready()
        return self.worker

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.worker is not None:
            self.worker.close()


class RemoteHandle(Handle):
    """An object in the sandbox, named by an expression of ours (such as `split`)."""

    def __init__(self, worker: Worker, expression: str, clock: Clock):
        self._worker, self._expression, self._clock = worker, expression, clock
        self._over = ""
        self.death: WorkerDied | None = None

    def renew(self):
        self._clock = Clock(self._clock.seconds)

    def _ask(self, op, args):
        if self._over:  # a check that caught the first failure may not go on as if nothing had happened
            raise AnswerFailed("", self._over)
        try:
            body = {"expression": self._expression, "op": op, "args": args}
            return self._worker.request("ask", body, self._clock)
        except WorkerDied as death:
            self._over, self.death = str(death), death
            raise AnswerFailed("", self._over) from None
