"""alarm: code that may not end is ended: an error is raised in it after so many seconds."""
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def time_limit(seconds: float, error: Callable[[], BaseException], again: float = 0.0) -> Iterator[None]:
    """Raises `error()` in the block after so many seconds, and then every `again` seconds, if that is above 0.

    Where the platform can: in the main thread, and not on Windows; elsewhere there is no limit. Limits nest: one that
    was there before goes on with what it has left, and at once if nothing is.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise error()

    before, started = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, every = signal.setitimer(signal.ITIMER_REAL, seconds, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - started), 0.001), every)
