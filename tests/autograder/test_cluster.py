"""The same work on a Dask cluster: a scheduler and workers as separate hosts run them.

Each worker has a host name and a process table of its own, and its own copy of the release; where the submissions lie
it has an empty folder. Needs the [cluster] extra (CI=true makes a missing one a failure).
"""
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import nbformat
import pytest

from autograder.grading.report import read

from . import little_course as little
from .test_grading import ROOT, run

pytestmark = [
    pytest.mark.classroom,
    pytest.mark.usefixtures("sandbox"),
    pytest.mark.skipif(importlib.util.find_spec("distributed") is None and not os.environ.get("CI"),
                       reason="pip install -e '.[cluster]'"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make hosts out of processes"),
]
MARKS = {"right": 10, "half": 5, "nothing": 0, "ends": 8}
ANSWERS = {"half": {n: little.RIGHT[n] for n in ("90.1", "90.3")}, "nothing": {},
           "ends": little.RIGHT | {"90.1": "import os\nos._exit(1)"}}


class Hosts:
    """A scheduler, and workers that see nothing of the client's files."""

    def __init__(self, folder):
        self.folder, self.started = folder, []
        self.release, self.submitted = folder / "release", folder / "submitted"
        (self.release / little.UNIT).mkdir(parents=True)
        nbformat.write(little.notebook(), self.release / little.UNIT / f"{little.NAME}.ipynb")
        self.submitted.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        self.start("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")

    def start(self, module, *arguments, inside=()):
        log = (self.folder / f"log{len(self.started)}").open("w")
        self.started.append(subprocess.Popen(
            [*inside, sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=log, stderr=log,
            start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}))
        return self.started[-1]

    def worker(self, name):
        """A host with one worker, and its own copy of the release."""
        copy = self.folder / f"release of {name}"
        shutil.copytree(self.release, copy)
        inside = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", str(self.submitted), "--bind", str(copy),
                  str(self.release), "--unshare-pid", "--proc", "/proc", "--unshare-uts", "--hostname", name,
                  "--die-with-parent"]
        return self.start("distributed.cli.dask_worker", self.address, "--nworkers", "1", "--nthreads", "1", "--name",
                          name, "--no-dashboard", "--local-directory", str(self.folder / name), inside=inside)

    def grade(self, address=None):
        return run("grade", self.submitted, "--release", self.release, "--checks", "tests.autograder.little_course",
                   "--timeout", "3", "--out", self.folder / "out", "--scheduler", address or self.address)


@pytest.fixture
def hosts(tmp_path):
    hosts = Hosts(tmp_path)
    for student in MARKS:
        nbformat.write(little.notebook(ANSWERS.get(student, little.RIGHT)), hosts.submitted / f"{student}.ipynb")
    yield hosts
    for process in hosts.started:
        end(process)


def end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_batch_on_two_hosts_of_which_one_dies_and_before_that_with_another_course(hosts):
    doomed, _ = hosts.worker("doomed"), hosts.worker("steady")
    ours = hosts.release / little.UNIT / f"{little.NAME}.ipynb"  # which only the client sees: a worker has its own
    before = ours.read_text()
    ours.write_text(before + "\n")
    done = hosts.grade()
    assert done.returncode == 3, done.stderr
    assert " has another version of the course (release: " in done.stderr and "same commit" in done.stderr
    ours.write_text(before)

    killer = kill_after_first_result(hosts, doomed)
    done = hosts.grade()
    killer.join()
    assert done.returncode == 0, done.stderr + "".join(p.read_text()[-2000:] for p in hosts.folder.glob("log*"))
    assert doomed.poll() is not None  # it did die midway
    assert {r.student: r.points for r in read(hosts.folder / "out")} == MARKS


def kill_after_first_result(hosts, worker):
    def kill():
        for _ in range(4000):
            if list((hosts.folder / "out" / "submissions").glob("*.json")):
                return end(worker)
            time.sleep(0.05)
    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_an_address_where_no_scheduler_is_is_said_within_seconds(tmp_path):
    nbformat.write(little.notebook(), tmp_path / "ann.ipynb")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        done = run("grade", tmp_path / "ann.ipynb", "--out", tmp_path / "out", "--scheduler", address)
    assert done.returncode == 3 and f"no Dask scheduler answers at {address}" in done.stderr, done.stderr
    assert time.monotonic() - began < 120  # five seconds, and the start of Python on a busy machine
