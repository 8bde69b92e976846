"""bubblewrap: the lock. Builds the command that starts a worker in bubblewrap, and says why if it cannot.

The sandbox sees Python, its packages, pallas_lite and the folder `inside`, read-only, and an empty work folder in
memory; no network, no other process, no file of the course. Next: remote.py, which talks to the worker.
"""
import compileall
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

WAYS_OUT = """Ways out:
  - install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap);
  - Ubuntu 24.04 and newer block user namespaces: allow them for bwrap (an AppArmor profile with `userns,`) or, as root,
    sysctl kernel.apparmor_restrict_unprivileged_userns=0;
  - in a container, which needs the right to make namespaces: docs/grading.md has the recipe and its docker run flags;
  - --unsafe-no-sandbox, for notebooks that you wrote yourself: student code then runs with all your rights."""


class SandboxError(Exception):
    """No sandbox can be started here. The text says why and names the ways out."""


@dataclass(frozen=True)
class Limits:
    """What a worker may use."""

    memory: int = 4 * 2**30  # bytes of address space a process; JAX alone reserves 1.6 GiB
    total: int = 5 * 2**30  # bytes in memory, all processes together: remote.py looks at them while it waits
    processes: int = 256  # threads count; JAX alone has 17
    disk: int = 256 * 2**20  # bytes in its work folder, which lies in memory
    cpu: int = 900  # seconds a process

    def rlimits(self) -> dict[str, int]:
        return {"AS": self.memory, "NPROC": self.processes, "FSIZE": self.disk, "CPU": self.cpu, "CORE": 0,
                "NOFILE": 512}


@dataclass(frozen=True)
class Sandbox:
    """A way to start workers. `stage`: the folder that they see as /course. `mode`: "drop", "user" or "none"."""

    stage: str
    mode: str
    limits: Limits = Limits()

    def command(self) -> list[str]:
        # Numbers of processes are counted by user: with one user each, sandboxes cannot starve each other.
        uid = 61_000 + os.getpid() % 4_000 if self.mode == "drop" else None
        rlimits = self.limits.rlimits()
        if self.mode == "none":
            del rlimits["NPROC"]  # it would count the instructor's own processes
        worker = [_python(), "-P", "-s", "-m", "autograder.worker", json.dumps({"uid": uid, "rlimits": rlimits,
                                                                                         "alone": self.mode != "none"})]
        return worker if self.mode == "none" else [*self._bwrap(), "--", *worker]

    def environment(self) -> dict[str, str]:
        """All that the worker sees of an environment; its folder lies elsewhere without a sandbox."""
        inside = self.mode != "none"
        home, course = ("/work", "/course") if inside else (tempfile.gettempdir(), self.stage)
        # Where `module load` gives a Python, that may be how it finds its own library.
        loader = {n: os.environ[n] for n in ("LD_LIBRARY_PATH",) if n in os.environ}
        return {**loader, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "TMPDIR": "/tmp" if inside else home,
                "USER": "student", "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join([course, *_package_folders()]),
                "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg",
                "IPYTHONDIR": f"{home}/.ipython", "MPLCONFIGDIR": f"{home}/.matplotlib",
                # Compilers of accelerators take memory that a sandbox has not, and no mark depends on them.
                "PALLAS_LITE_NO_COMPILER": "1",
                # Workers run side by side; each with all cores' threads would only get in the others' way.
                "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
                "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}

    def _bwrap(self) -> list[str]:
        args = [shutil.which("bwrap") or "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
                "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
        args += ["--cap-drop", "ALL"]
        if self.mode == "user":
            args += ["--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
        else:  # root starts it: the worker itself becomes an ordinary user, which takes these two
            args += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        for name, value in self.environment().items():
            args += ["--setenv", name, value]
        memory = ["--perms", "1777", "--size", str(self.limits.disk), "--tmpfs"]
        # In the order of their paths: Python may live under /tmp, and must not be covered by the empty /tmp.
        mounts = {"/course": ["--ro-bind", self.stage, "/course"], "/proc": ["--proc", "/proc"],
                  "/dev": ["--dev", "/dev"],
                  "/dev/zero": ["--dev-bind", "/dev/null", "/dev/zero"],  # shared, it is memory that nobody counts
                  **{folder: [*memory, folder] for folder in ("/dev/shm", "/tmp", "/work")}}
        for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache",
                       "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/fonts", "/etc/alternatives"):
            if os.path.islink(folder):
                mounts[folder] = ["--symlink", os.readlink(folder), folder]
            elif os.path.exists(folder):
                mounts[folder] = ["--ro-bind", folder, folder]
        for folder in [str(Path(_python()).parent.parent), sys.base_prefix, *_package_folders()]:
            mounts.setdefault(os.path.realpath(folder), ["--ro-bind", os.path.realpath(folder), folder])
        # Where the course itself lies inside one of these folders, it is covered up.
        ours = Path(__file__).resolve().parents[1]  # autograder/
        for secret in (ours, ours.parent / "solutions", ours.parent / "tests", ours.parent / "notebooks"):
            if secret.is_dir() and any(secret.is_relative_to(m) for m, how in mounts.items() if how[0] == "--ro-bind"):
                mounts[str(secret)] = ["--tmpfs", str(secret)]
        for path in list(mounts):  # bwrap would make the folders above a mount readable by root alone
            for above in map(str, Path(path).parents):
                bound = any(Path(above).is_relative_to(m) for m, how in mounts.items() if how[0] == "--ro-bind")
                if above != "/" and not bound:
                    mounts.setdefault(above, ["--perms", "755", "--dir", above])
        for path in sorted(mounts, key=lambda p: p.count("/")):
            args += mounts[path]
        return [*args, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]


def _python() -> str:
    """The interpreter behind the virtual environment: links into it could lead anywhere, so none is followed inside."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _package_folders() -> list[str]:
    """The site-packages folders in use. Not all of sys.path: an editable install puts the course's own folder there."""
    found = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
             *(p for p in sys.path if Path(p).name in ("site-packages", "dist-packages"))]  # a .pth file may add one
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return [p for p in dict.fromkeys(map(os.path.realpath, found)) if os.path.isdir(p)]


def make_stage(folder: str | os.PathLike) -> str:
    """Copies what a worker may import of ours into `folder`: pallas_lite, and `inside` as `autograder`."""
    import pallas_lite
    no_caches = shutil.ignore_patterns("__pycache__")
    Path(folder).mkdir(exist_ok=True)
    shutil.copytree(Path(pallas_lite.__file__).parent, Path(folder, "pallas_lite"), ignore=no_caches)
    shutil.copytree(Path(__file__).parent / "inside", Path(folder, "autograder"), ignore=no_caches)
    compileall.compile_dir(folder, quiet=2)
    for path in [Path(folder), *Path(folder).rglob("*")]:  # readable by the sandbox's user, whatever the umask
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(folder)


def find_sandbox(stage: str, limits: Limits = Limits()) -> Sandbox:
    """The strongest sandbox that works here. Raises SandboxError."""
    if shutil.which("bwrap") is None:
        raise SandboxError(f"bubblewrap (bwrap) is not installed, so student code cannot be locked in.\n{WAYS_OUT}")
    reasons = []
    for mode in (["drop", "user"] if os.geteuid() == 0 else ["user"]):
        sandbox = Sandbox(stage, mode, limits)
        command = sandbox.command()
        # Only as far as the limits: importing everything would take longer than grading.
        done = subprocess.run([*command[:command.index("-m")], "-c", _PROBE, command[-1]], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 0 and done.stdout.strip() == "ok":
            return sandbox
        reasons.append((done.stderr or done.stdout).strip()[-600:])
    raise SandboxError("bubblewrap cannot start a sandbox here: " + "; ".join(reasons) + f"\n{WAYS_OUT}")


_PROBE = """
import json, os, sys
from autograder.worker import lock_down
lock_down(json.loads(sys.argv[1]))
assert os.getuid() != 0, "still root"
import importlib.util
assert all(map(importlib.util.find_spec, ("numpy", "jax", "IPython", "pallas_lite"))), "its packages cannot be read"
print("ok")
"""
