"""cluster: the pool of batch.py on a Dask cluster. Submissions go there as bytes, and reports come back.

No folder is shared, and each machine has the course installed. A worker grades only if its course is the same, to the
last check and package. A worker that dies loses nothing: Dask gives what it was grading to another one.
"""
import logging
import warnings
from concurrent.futures import CancelledError

from .batch import BatchError, Order, bench_for, clear_bench, fault
from .grade import Report
from .submissions import Parcel

ANSWER = 5  # seconds that a scheduler has to answer
WORKERS = 30  # seconds that a first worker has to turn up


class Cluster:
    """All threads of all workers of one scheduler. Raises BatchError if that cannot be used."""

    def __init__(self, order: Order, address: str):
        try:
            from distributed import Client
        except ImportError:
            raise BatchError("--scheduler needs Dask, which is not installed here. In the course's repository: "
                             "pip install -e '.[cluster]'") from None
        for name in ("distributed", "distributed.client"):  # what matters is said below
            logging.getLogger(name).setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", module="distributed")
        self._order, self._address = order, address
        try:
            self._client = Client(address, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).split("\n")[0]
            raise BatchError(f"no Dask scheduler answers at {address} ({reason}). Start one with `dask scheduler`, or "
                             "correct the address: tcp://host:8786") from None
        try:
            self._check_workers()
        except BaseException:
            self._client.close()
            raise
        self.submit = self._client.get_executor(pure=False).submit

    def _check_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=WORKERS)
        except TimeoutError:
            raise BatchError(f"the scheduler at {self._address} has no workers. Start some: dask worker "
                             f"{self._address}") from None
        for worker, answer in self._client.run(_ready, self._order, on_error="return").items():
            if isinstance(answer, Exception):
                answer = f"it cannot grade ({type(answer).__name__}: {answer}). Is the course installed there?"
            if answer:
                raise BatchError(f"worker {worker}: {answer}")

    def width(self) -> int:
        return max(1, sum(self._client.nthreads().values()))  # workers come and go

    def result(self, future, parcel: Parcel) -> Report:
        from distributed import KilledWorker
        try:
            return future.result()
        except KilledWorker:
            return fault(parcel, "four workers of the cluster died while they had this submission")
        except CancelledError:
            raise BatchError(f"the scheduler at {self._address} is gone. What was graded is kept; go on with "
                             "--resume") from None

    def close(self) -> None:
        try:
            self._client.run(clear_bench, self._order, on_error="ignore")
        except Exception:  # the cluster is gone, and its processes with it
            pass
        self._client.close()


def _ready(order: Order) -> str:
    """Run on each worker: what keeps it from grading, or nothing."""
    from ..course.release import CourseError
    from ..sandbox.bubblewrap import SandboxError
    try:
        bench_for(order)
    except (CourseError, SandboxError) as error:
        return str(error)
    return ""
