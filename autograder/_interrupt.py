"""_interrupt: Ctrl-C while a program of ours still imports, a second or two, ends it in a line, not in a traceback.

Imported before all else but _cwd.py. Next: __main__.py, which takes Ctrl-C in hand from there, and grading/child.py.
"""
import os
import signal
import sys

from ._cwd import CHILD, STARTED


def _end(*_):
    print("autograder: interrupted", file=sys.stderr, flush=True)
    os._exit(3)


def restore() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Not in a notebook or a test, which import us too; nor where whoever started us wants no Ctrl-C.
if STARTED and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # A process that grades goes on: Ctrl-C is for its parent, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN if STARTED == CHILD else _end)
