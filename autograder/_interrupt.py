"""_interrupt: Ctrl-C while a program of ours still imports, a second or two, ends it in a line, not in a traceback.

Imported before all else but _cwd.py. Next: __main__.py, which takes Ctrl-C in hand from there, and grading/child.py.
"""
import os
import signal
import sys


def _end(*_):
    print("autograder: interrupted", file=sys.stderr, flush=True)
    os._exit(3)


def restore() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_module = sys.orig_argv[sys.orig_argv.index("-m") + 1:][:1] if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv else []
_ours = _module == ["autograder"] or os.path.basename(sys.argv[0] if sys.argv else "") == "autograder"
# Not in a notebook or a test, which import us too; nor where whoever started us wants no Ctrl-C.
if (_ours or _module == ["autograder.grading.child"]) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # A process that grades goes on: Ctrl-C is for its parent, which ends it.
    signal.signal(signal.SIGINT, _end if _ours else signal.SIG_IGN)
