"""batch: many submissions -> their reports, in worker processes, whatever happens to one of them."""
import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from .grade import Grader, Report
from .submissions import Submission


def grade_all(grader: Grader, submissions: list[Submission], jobs: int = 1) -> Iterator[Report]:
    """The report of each submission, once it is ready. A process that dies costs nobody a mark: it is done again."""
    left = list(submissions)
    while left:
        died = False
        # Spawned, not forked: JAX has threads, and a fork would copy their locks.
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare, (grader,))
        try:
            # All but the last find their sandbox warm.
            futures = {pool.submit(grader.grade, s, i < len(left) - jobs): s for i, s in enumerate(left)}
            for future in as_completed(futures):
                try:
                    report = future.result()
                except BrokenProcessPool:
                    died = True
                    continue
                left.remove(futures[future])
                yield report
            pool.shutdown()
        except BaseException:  # interrupted: what runs would run on to its time limits
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        if died and jobs == 1:
            # Alone with it: the first of those left is the one that cannot be graded.
            guilty = left.pop(0)
            yield Report(guilty.student, [], guilty.digest, "fault",
                         warnings=["the grading process died on this submission"])
        jobs = 1 if died else jobs


def _prepare(grader: Grader) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    _ = grader.course.notebooks  # imports the checks
