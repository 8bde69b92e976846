"""What the sandbox itself promises, asked of it directly, and in both ways of locking code in where root runs it."""
import os
import time

import pytest

from autograder.remote import Clock, Worker, WorkerDied, memory_of
from autograder.sandbox import Limits, Sandbox, make_stage

pytestmark = pytest.mark.classroom
HOARD = """import os, time
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
        hoard = bytearray(150 * 2**20)
        time.sleep(100)
time.sleep(100)"""


@pytest.mark.parametrize("mode", ["drop", "user"] if os.geteuid() == 0 else ["user"])
def test_many_processes_cannot_use_more_memory_than_is_allowed_together(tmp_path, mode):
    stage = make_stage(tmp_path / "stage")
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(0o755)
    worker = Worker(Sandbox(stage, mode, Limits(total=900 * 2**20)))
    try:
        worker.wait_until_ready()
        assert 50 * 2**20 < memory_of(worker._process.pid) < 600 * 2**20
        began = time.monotonic()
        with pytest.raises(WorkerDied, match="more memory than is allowed"):
            worker.request("run", {"source": HOARD}, Clock(30))
        assert worker.dead and time.monotonic() - began < 60
        assert memory_of(worker._process.pid) == 0
    finally:
        worker.close()
