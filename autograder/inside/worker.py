"""worker: the process in the sandbox. Runs the learner's cells in an IPython shell and answers questions about them.

Started as `python -m autograder.worker LIMITS`, where this folder is `autograder`. Reads requests from the pipe it gets
as stdin, writes replies to the pipe it gets as stdout; the learner's code sees neither. Nothing in here is trusted once
a cell has run.
"""
import json
import os
import resource
import sys


def lock_down(limits: dict) -> None:
    """Gives up root, then sets the limits. Comes before everything else."""
    for name, value in limits["rlimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if limits["uid"] is not None and os.getuid() == 0:
        # A real change of user: root is exempt from the limit on processes, even as another user in a namespace.
        os.setgroups([])
        os.setresgid(limits["uid"], limits["uid"], limits["uid"])
        os.setresuid(limits["uid"], limits["uid"], limits["uid"])


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
    lock_down(json.loads(sys.argv[1]))
    read_fd, write_fd = take_pipes()

    import pallas_lite  # noqa: F401  imported now, so that no learner's time limit pays for it
    from autograder import wire
    from autograder.answers import answer, describe
    shell = make_shell()

    def read(size):
        parts = []
        while size:
            part = os.read(read_fd, min(size, 2**20))
            if not part:
                os._exit(0)  # the trusted side is gone
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def write(kind, body):
        try:
            message = wire.encode(kind, body)
        except wire.NotPlain as error:
            message = wire.encode("not plain", str(error))
        while message:
            message = message[os.write(write_fd, message):]

    def run(source):
        result = shell.run_cell(source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return "ok", None
        return ("not done" if type(error) is NotImplementedError else "failed"), describe(error)

    def ask(body):
        return answer(lambda: eval(body["expression"], shell.user_ns), body["op"], body["args"])

    write("ready", os.getuid())
    os.dup2(1, 2)  # until here, what went wrong is told on stderr
    while True:
        kind, body = wire.decode(read)
        try:
            reply = run(body) if kind == "run" else ask(body)
        except BaseException as error:  # a KeyboardInterrupt that a learner's thread sent here, say
            reply = "failed", describe(error)
        write(*reply)


if __name__ == "__main__":
    main()
