"""survivors: the processes of sandboxes, after grading -> those that no grader looks after any more.

Other graders may be at work on this machine. Theirs are no survivors: each has its grader above it.
"""
import contextlib
import os
import time
from pathlib import Path

import psutil

USERS = range(61_000, 65_000)  # whom sandboxes run as that root starts (bubblewrap.py)
WORKER = "autograder.worker"  # stands in the command of a sandbox, and in that of the worker in it


def survivors(patience: float = 10) -> list[psutil.Process]:
    """The processes of a sandbox without a grader that are still there after so many seconds: a kill takes a moment."""
    until = time.monotonic() + patience
    while (found := [p for p in psutil.process_iter() if of_a_sandbox(p) and not has_a_grader(p)]) \
            and time.monotonic() < until:
        time.sleep(0.2)
    return found


def of_a_sandbox(process: psutil.Process) -> bool:
    """Whether it is a sandbox, its worker, or anything that a student's code has started there."""
    with contextlib.suppress(psutil.Error):
        return process.uids().real in USERS or any(WORKER in p.cmdline() for p in (process, *process.parents()))
    return False  # it has ended


def has_a_grader(process: psutil.Process) -> bool:
    """Whether what started its sandbox is still there: a Python outside, which is not a worker without a sandbox.

    The arguments of bwrap name Python too, so it is the executable that counts. The first process takes in orphans.
    """
    with contextlib.suppress(psutil.Error):
        return any(p.pid != 1 and _executable(p).startswith("python") and _outside(p) and WORKER not in p.cmdline()
                   for p in process.parents())
    return True  # it has ended, and so is no survivor


def _executable(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.AccessDenied):  # somebody else's
        return Path(process.exe()).name
    return ""


def _outside(process: psutil.Process) -> bool:
    """Whether it sees the processes that we see."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{process.pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    return False
