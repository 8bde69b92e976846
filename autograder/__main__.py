"""autograder, or python -P -m autograder: the instructor's commands. Each says with its exit code what happened.

A verb is a module in commands/ and a word in VERBS.
"""
import argparse
import contextlib
import difflib
import errno
import functools
import os
import signal
import sys
from importlib import metadata

from rich.console import Console

from . import _interrupt
from . import _lean as _lean
from .commands import (
    EXIT_CODES,
    FAULT,
    UNREADABLE,
    build,
    doctor,
    export,
    feedback,
    grade,
    gradebook,
    selftest,
    similar,
    validate,
)
from .course.release import CourseError
from .grading.batch import BatchError
from .grading.grade import clean
from .grading.report import ResultsError, WriteError
from .sandbox.bubblewrap import SandboxError

VERBS = (
    doctor,
    build,
    selftest,
    validate,
    grade,
    gradebook,
    feedback,
    export,
    similar,
)  # in the order of a course: --help shows them so


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class Plain(Console):
    """A console on which nothing that a student wrote is a command, a name in a message among it.

    No line is broken: a path that was would be another one to whoever copies it. A terminal breaks lines itself.
    """

    def print(self, *objects, **how) -> None:
        if all(isinstance(o, str) for o in objects):
            how.setdefault("soft_wrap", True)
        super().print(*(clean(o, 10**6) if isinstance(o, str) else o for o in objects), **how)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="autograder", description="Builds the course's notebooks and grades what students hand in.",
        epilog=f"`autograder COMMAND --help` has examples.\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for verb in VERBS:
        verb.add(commands)
    return top


def _version() -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return f"pallas-lite {metadata.version('pallas-lite')}"
    return "pallas-lite, not installed"


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line. What is wrong with it ends the program, with what was meant, perhaps."""
    top = parser()
    if argv and argv[0] == "help":
        argv = [*argv[1:], "--help"]
    names = [verb.__name__.rpartition(".")[2] for verb in VERBS]
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        near = difflib.get_close_matches(argv[0], names, 1)
        top.error(f"there is no command {argv[0]}" + (f". Did you mean {near[0]}?" if near else
                                                      f"; there are {', '.join(names)}"))
    options, unknown = top.parse_known_args(argv)
    if unknown:
        meant = options.instead.get(unknown[0], options.instead.get("", "") * (not unknown[0].startswith("-")))
        options.refuse(f"unrecognized arguments: {' '.join(unknown)}" + f". {meant}" * bool(meant))
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(sys.argv[1:] if argv is None else argv)
    # A file or a pipe has no width of its own: the table gets all that it needs.
    console = Plain(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 240)
    errors = Plain(stderr=True)
    # Whoever stops a batch politely gets what was graded so far, as after Ctrl-C.
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, functools.partial(_stop, os.getpid()))
    try:
        _interrupt.restore()
        return options.run(options, console, errors)
    except (SandboxError, CourseError, BatchError, ResultsError, WriteError) as error:
        errors.print(f"autograder: {error}", markup=False, highlight=False, style="bold", soft_wrap=True)
        return UNREADABLE if isinstance(error, ResultsError) else FAULT
    except KeyboardInterrupt:
        errors.print(f"autograder: interrupted{getattr(options, 'interrupted', '')}", markup=False, highlight=False,
                     soft_wrap=True)
        return FAULT
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        errors.print(f"autograder: {error.filename or 'a file'} cannot be written: {error.strerror}. Make room, or "
                     "name another place for what is temporary with TMPDIR=/other/disk", markup=False, highlight=False,
                     style="bold", soft_wrap=True)
        return FAULT


def _stop(main_process, *_):
    if os.getpid() != main_process:  # a worker, which inherits this
        os._exit(1)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
