"""What the sandbox itself promises, asked of it directly, and in both ways of locking code in where root runs it."""
import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from autograder.sandbox.bubblewrap import Limits, Sandbox, make_stage
from autograder.sandbox.remote import Clock, Worker, WorkerDied, memory_of
from tests.conftest import open_to_all
from tests.survivors import has_a_grader, of_a_sandbox, survivors

pytestmark = [pytest.mark.classroom, pytest.mark.usefixtures("sandbox")]
HOARD = """import os, time
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
        hoard = bytearray(150 * 2**20)
        time.sleep(100)
time.sleep(100)"""

LEAVE_A_KEY = """import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
add, ask, control = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[__import__("os").uname().machine]
keyring = -4  # the user's
for call in ((add, b"user", b"trial", b"secret", 6, keyring), (ask, b"user", b"trial", None, keyring),
             (control, 10, keyring, b"user", b"trial", 0), (0x40000000 | add, b"user", b"t", b"s", 1, keyring)):
    assert libc.syscall(*call) == -1 and ctypes.get_errno() == errno.EPERM, (call, ctypes.get_errno())
"""
HIDE_MEMORY = """import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def refused(take):
    try:
        return take() == -1
    except OSError:
        return True
assert refused(lambda: os.memfd_create("x"))
assert refused(lambda: libc.shmget(0, 4096, 0o1600)) and refused(lambda: libc.msgget(0, 0o1600))
assert refused(lambda: mmap.mmap(-1, 4096))
try:
    with open("/dev/zero", "r+b", buffering=0) as zero: mmap.mmap(zero.fileno(), 4096)
except (OSError, ValueError): pass
else: raise AssertionError("/dev/zero")
mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)[0] = 1
with open("/work/x", "w+b") as file:
    file.write(bytes(4096)); file.flush()
    mmap.mmap(file.fileno(), 4096)[0] = 1
"""
GO_OUT = """import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
for flags in (0x10000000, 0x10020000, 0x20000):
    assert libc.unshare(flags) == -1 and ctypes.get_errno() == errno.EPERM, flags
assert libc.mount(b"x", b"/tmp", b"tmpfs", 0, None) == -1 and ctypes.get_errno() == errno.EPERM
assert libc.syscall(430, b"tmpfs", 0) == -1 and ctypes.get_errno() == errno.EPERM
for family in (38, 40):  # the kernel's ciphers; the host of a virtual machine
    try: socket.socket(family, socket.SOCK_STREAM)
    except OSError as error: assert error.errno == errno.EPERM, error
    else: raise AssertionError(family)
for family in (socket.AF_UNIX, socket.AF_INET): socket.socket(family).close()
"""
MODES = pytest.mark.parametrize("mode", ["drop", "user"] if os.geteuid() == 0 else ["user"])


def make(folder, mode, limits):
    stage = make_stage(folder / "stage")
    open_to_all(folder)
    return Worker(Sandbox(stage, mode, limits))


@MODES
@pytest.mark.parametrize("source", [
    pytest.param(LEAVE_A_KEY, id="no key stays in the kernel for the next submission"),
    pytest.param(GO_OUT, id="there is no way into other namespaces or to the host"),
    pytest.param(HIDE_MEMORY, id="no memory is outside of what is counted")])
def test_what_the_kernel_refuses(tmp_path, mode, source):
    worker = make(tmp_path, mode, Limits())
    try:
        assert worker.request("run", {"source": source}, Clock(30)) == ("ok", None)
    finally:
        worker.close()


@pytest.mark.parametrize("mode", ["drop", "user", "none"])
def test_a_python_that_needs_to_be_told_where_its_library_is_gets_it(monkeypatch, mode):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    assert Sandbox("/stage", mode).environment()["LD_LIBRARY_PATH"] == "/opt/python/lib"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert "LD_LIBRARY_PATH" not in Sandbox("/stage", mode).environment()


@MODES
def test_many_processes_cannot_use_more_memory_than_is_allowed_together(tmp_path, mode):
    worker = make(tmp_path, mode, Limits(total=900 * 2**20))
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


START = "import json, subprocess, sys, time; print(subprocess.Popen(*map(json.loads, sys.argv[1:]), " \
    "start_new_session=True).pid, flush=True); time.sleep(600)"


@MODES
def test_a_sandbox_that_outlives_its_grader_is_a_survivor(tmp_path, mode):
    """Made by hand: without the order to end with its parent, and with a pipe that stays open."""
    command = Sandbox(make_stage(tmp_path / "stage"), mode).command()
    open_to_all(tmp_path)
    command.remove("--die-with-parent")
    grader = subprocess.Popen([sys.executable, "-c", START, json.dumps(command)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    sandbox = psutil.Process(int(grader.stdout.readline()))
    try:
        while not [worker := p for p in sandbox.children(recursive=True) if "python" in p.exe()]:
            time.sleep(0.1)
        assert of_a_sandbox(sandbox) and of_a_sandbox(worker) and has_a_grader(sandbox) and has_a_grader(worker)
        grader.kill()
        grader.wait()
        assert sandbox.is_running() and worker.is_running()
        assert not has_a_grader(sandbox) and not has_a_grader(worker)
        assert {sandbox, worker} <= {*survivors(patience=0)}
    finally:
        for process in (*sandbox.children(recursive=True), sandbox):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        grader.kill()
        grader.communicate()
    assert not survivors()
