"""batch: many submissions -> their reports, in worker processes, whatever happens to one of them."""
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from .grade import Grader, Report
from .submissions import Submission


def grade_all(grader: Grader, submissions: list[Submission], jobs: int = 1,
              started: Callable[[], None] = lambda: None) -> Iterator[Report]:
    """The report of each submission, as it is ready. A process that dies costs nobody a mark: its work is done again."""
    left = list(submissions)
    while left:
        died = False
        # Spawned, not forked: JAX has threads, and a fork would copy their locks.
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare, (grader,)) as pool:
            futures = {pool.submit(grader.grade, s): s for s in left}
            try:
                for future in as_completed(futures):
                    try:
                        report = future.result()
                    except BrokenProcessPool:
                        died = True
                        continue
                    left.remove(futures[future])
                    yield report
            except GeneratorExit:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if died and jobs == 1:
            # Alone with it: the first of those left is the one that cannot be graded.
            guilty = left.pop(0)
            yield Report(guilty.student, [], guilty.digest, "fault", warnings=["the grading process died on this submission"])
        jobs = 1 if died else jobs


def _prepare(grader: Grader) -> None:
    _ = grader.course.notebooks  # imports the checks
