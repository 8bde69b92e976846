"""worker: the process in the sandbox. Runs the learner's cells in an IPython shell and answers questions about them.

Started as `python -m autograder.worker LIMITS`, where this folder is `autograder`. Reads requests from the pipe it gets
as stdin, writes replies to the pipe it gets as stdout. It imports everything once; a fork of it does the work, and when
the learner's code brings that one down, the next fork takes over at once. Nothing said by a fork is trusted.
"""
import builtins
import contextlib
import gc
import json
import os
import resource
import signal
import sys

TIMERS = (signal.SIGPROF, signal.ITIMER_PROF, "cpu"), (signal.SIGALRM, signal.ITIMER_REAL, "wall")


def lock_down(limits: dict) -> None:
    """Gives up root, then sets the limits. Comes before everything else."""
    for name, value in limits["rlimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if limits["uid"] is not None and os.getuid() == 0:
        # A real change of user: root is exempt from the limit on processes, even as another user in a namespace.
        os.setgroups([])
        os.setresgid(limits["uid"], limits["uid"], limits["uid"])
        os.setresuid(limits["uid"], limits["uid"], limits["uid"])
    if limits["alone"]:
        from autograder import refused
        refused.refuse()


def take_pipes():
    """Moves the pipes away from where a learner's `print` and `input` go, which is nowhere."""
    pipes = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nowhere, fd)
    return pipes


def make_shell():
    """An IPython shell without history, display or tracebacks: cell magics work, output goes nowhere."""
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
    HistoryManager.enabled = False

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):
            pass  # %matplotlib asks for a window system

        def showtraceback(self, *_, **__):
            pass

        def showsyntaxerror(self, *_, **__):
            pass

        def ask_exit(self):
            pass

    shell = Shell.instance()
    shell.ast_node_interactivity = "none"
    shell.history_manager.enabled = False
    return shell


def main() -> None:
    limits = json.loads(sys.argv[1])
    lock_down(limits)
    pipes = take_pipes()

    gc.disable()  # looking for garbage among what is imported takes a tenth of a second, and there is none
    import pallas_lite  # noqa: F401  imported once, here; each fork below has it at once

    shell = make_shell()
    gc.freeze()  # nor do the forks look there, which would also copy every page of it
    gc.enable()
    line = Line(*pipes)
    line.write("ready", os.getuid())
    os.dup2(1, 2)  # until here, what went wrong is told on stderr
    while True:
        child = os.fork()  # JAX has no threads yet, so a fork is safe
        if child == 0:
            serve(line, shell)
        _, status = os.waitpid(child, 0)
        if limits["alone"] and os.getpid() < 10:  # first in a process namespace of our own: nothing may stay behind
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        line.write("ended", os.waitstatus_to_exitcode(status))


class Line:
    """The pipes to the trusted side."""

    def __init__(self, read_fd: int, write_fd: int):
        self.read_fd, self.write_fd = read_fd, write_fd

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self.read_fd, min(size, 2**20))
            if not part:
                os._exit(0)  # the trusted side is gone
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def write(self, kind: str, body) -> None:
        from autograder import wire
        try:
            message = wire.encode(kind, body)
        except wire.NotPlain as error:
            message = wire.encode("not plain", str(error))
        while message:
            message = message[os.write(self.write_fd, message):]


def serve(line: Line, shell) -> None:
    """Answers requests until one says to end. Each brings its time limit, after which this process is killed."""
    from autograder import wire
    from autograder.answers import answer, describe, for_a_file

    left: set[str] = set()

    def leave(names):
        # To where Python looks last: other cells still find what they hold, and a cell that binds one has its own.
        for name in names:
            if name in shell.user_ns:
                setattr(builtins, name, shell.user_ns.pop(name))
                left.add(name)

    def run(source):
        result = shell.run_cell(source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return "ok", None
        if isinstance(error, SyntaxError):
            error = for_a_file(error, shell.transform_cell(source))
        ran = {"ran": result.error_before_exec is None}
        return ("not done" if type(error) is NotImplementedError else "failed"), describe(error) | ran

    def named(expression):
        for name in left.intersection(compile(expression, "check", "eval").co_names):
            if name not in shell.user_ns:
                raise NameError(f"your answer gives {name} no value, and what other cells left in it does not count")
        return eval(expression, shell.user_ns)

    while True:
        kind, body = wire.decode(line.read)
        if kind == "end":
            os._exit(0)
        for name, timer, limit in TIMERS:
            signal.signal(name, signal.SIG_DFL)  # ends the process, whatever it is doing
            signal.setitimer(timer, body[limit])
        try:
            if kind == "run":
                leave(body.get("leave", ()))
                reply = run(body["source"])
            else:
                reply = answer(lambda: named(body["expression"]), body["op"], body["args"])  # noqa: B023
        except BaseException as error:  # a KeyboardInterrupt that a learner's thread sent here, say
            reply = "failed", describe(error)
        for _, timer, _ in TIMERS:
            signal.setitimer(timer, 0)
        line.write(*reply)


if __name__ == "__main__":
    main()
