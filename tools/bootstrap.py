"""Make the virtual environment and run something in it. Called through bootstrap.sh; standard library only.

    bootstrap.py lab [jupyterlab arguments]     set up, fill work/, open JupyterLab at the first notebook
    bootstrap.py formgrader [the same]          set up, open JupyterLab on the whole course, with nbgrader's Formgrader
    bootstrap.py run MODULE [arguments]         set up, then python -m MODULE

Every step can be interrupted and run again. .venv/course-stamp says how far an earlier run came: absent (nothing of
ours is in it), "installing" (an install was cut short), or a hash of all that the finished install was made from.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import webbrowser
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
NEEDED_GB = 1.5  # the environment has about 1 GB, and pip keeps a copy of each download
FAILED = 75  # the exit status of a set-up that failed: the Makefile tells it from one of the program that it was for
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"

# What pip and venv print when they fail, and what to do about it. The first that fits is shown.
PROBLEMS = [
    (r"No space left|Errno 28\b|quota exceeded|Errno 122\b",
     "Not enough disk space: {place} has {free:.1f} GB free, and the environment needs {needed} GB.\n"
     "Free some, or put the environment on another disk:  make VENV=/other/disk/venv lab"),
    (r"Permission denied|Read-only file system|Errno 13\b|Errno 30\b",
     "Cannot write in {place}.\nClone the repository into a folder of your own, and run the command there."),
    (r"ensurepip is not\s+available|No module named '?(ensurepip|venv)|ensurepip.* non-zero exit",
     "This Python ({python}) comes without the part that makes virtual environments.\n"
     "  Debian or Ubuntu:  sudo apt install python{version}-venv\n"
     "  otherwise:         install a complete Python, or use conda (see README)"),
    (r"ssl module in Python is not available|No module named '?_?ssl",
     "This Python ({python}) cannot use encrypted connections: its ssl module does not load.\n"
     "Take another:  make PYTHON=/path/to/python lab"),
    (r"Retrying \(|Connection ?(Error|refused)|name resolution|ProxyError|SSLError|timed out",
     "The packages could not be downloaded. Check the network, and behind a proxy or with an index of your own, pip's\n"
     "configuration (`pip config list`: index-url, proxy, cert).\n    {cause}"),
    (r"No matching distribution found",
     "A package has no build for Python {version} on this system. Try another, 3.11 to 3.13:\n"
     "  make PYTHON=/path/to/python lab\n{tail}"),
    (r"", "Setting up failed. The last lines printed were:\n{tail}"),
]


class Stop(Exception):
    """Something the user has to put right; the text says what."""


def say(text: str) -> None:
    print(text, flush=True)


def explain(output: str, venv: Path) -> str:
    message = next(text for pattern, text in PROBLEMS if re.search(pattern, output, re.IGNORECASE))
    place = next(folder for folder in venv.parents if folder.exists())
    message = message.format(
        place=place, free=shutil.disk_usage(place).free / 1e9, needed=NEEDED_GB, python=sys.executable, version=VERSION,
        cause=(re.findall(r"\[(?:Errno|SSL)[^\n]*?(?='|\)|$)", output, re.MULTILINE) or ["no answer"])[-1],
        tail="\n".join("    " + line for line in output.strip().splitlines()[-12:]),
    )
    return message + "\nThen run the same command again."


def environment(venv: Path) -> dict[str, str]:
    # Other people's packages must not shadow the locked ones; and since packages come uncompiled (see install), Python
    # must be able to keep what it compiles.
    drop = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHON_CHOSEN", "MAKEFLAGS", "MAKELEVEL")
    env = {name: value for name, value in os.environ.items() if name not in drop}
    config = filter(None, [str(ROOT / "autograder"), env.get("JUPYTER_CONFIG_PATH")])
    return env | {
        "VIRTUAL_ENV": str(venv),
        "PATH": os.pathsep.join([str(venv / "bin"), env.get("PATH", os.defpath)]),  # nbgrader looks alembic up there
        "JUPYTER_CONFIG_PATH": os.pathsep.join(config),  # for autograder/nbgrader_config.py
        "JUPYTER_PREFER_ENV_PATH": "1",  # a kernel named python3 in the user's home must not win over ours
        "PIP_USER": "0",  # nor must `user = true` in a pip.conf
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def stamp(venv: Path) -> str:
    path = venv / "course-stamp"
    return path.read_text() if path.exists() else ""


def wanted_stamp(venv: Path) -> str:
    files = [(ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")]
    paths = [os.fsencode(ROOT), os.fsencode(venv)]  # an editable install holds the path of the source
    return hashlib.sha256(b"\0".join(files + paths)).hexdigest()


def fault(venv: Path) -> str:
    """Why this virtual environment cannot be used as it is ("" if it can)."""
    if stamp(venv) == "installing":
        return "an earlier set-up was cut short"
    ask = [venv / "bin/python", "-c", "import sys, pip; print('%d.%d' % sys.version_info[:2])"]
    try:
        version = subprocess.check_output(ask, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return "its Python does not run, or has no pip"
    if os.environ.get("PYTHON_CHOSEN") and version != VERSION or tuple(map(int, version.split("."))) < (3, 11):
        return f"it has Python {version}"
    # Scripts name their interpreter by its full path, which is wrong once the folder has been moved or copied.
    pip = venv / "bin/pip"
    named = re.search(r"(/[^\n\"]*)/bin/python", os.fsdecode(pip.read_bytes()[:1000]) if pip.exists() else "")
    return "" if named and Path(named[1]).resolve() == venv.resolve() else "its folder was moved or copied"


def make_venv(venv: Path) -> None:
    if shutil.disk_usage(venv.parent).free < NEEDED_GB * 1e9:
        raise Stop(explain("No space left", venv))
    # The base interpreter: `python3` may be that of the very environment that is being replaced.
    base = getattr(sys, "_base_executable", None) or sys.executable
    say(f"Making the virtual environment {venv} with Python {VERSION} ({base})")
    run = {"capture_output": True, "text": True, "env": environment(venv)}
    made = subprocess.run([base, "-m", "venv", "--clear", venv], **run)
    if made.returncode:
        # Debian splits ensurepip off as python3-venv; a system pip, if there, fills the gap.
        bare = subprocess.run([base, "-m", "venv", "--clear", "--without-pip", venv], **run)
        pip = [base, "-m", "pip", "--python", venv / "bin/python", "install", "-q", "pip"]
        if bare.returncode or subprocess.run(pip, **run).returncode:
            raise Stop(explain(made.stdout + made.stderr, venv))


def install(venv: Path, lock_fd: int) -> None:
    total = len(re.findall(r"^\w.*==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    say(f"Installing the pinned packages: of {total}, those for this system (1 GB on disk; a minute or more the first "
        "time)")
    (venv / "course-stamp").write_text("installing")
    # --no-deps: the lock is complete. --no-compile: Python compiles what it imports; compiling all of it ahead takes
    # a third of the install. --only-binary: a missing wheel is a clear message now, not a failed C++ build later.
    # A new pip takes half the time of the one in Debian's Python; an index without it is no obstacle.
    with contextlib.suppress(Stop):
        pip_install(venv, lock_fd, 0, ["--upgrade", "--retries", "1", "pip>=25.3"])
    options = ["--no-deps", "--no-compile", "--only-binary", ":all:", "--progress-bar", "off", "--no-input"]
    pip_install(venv, lock_fd, total, [*options, "-r", "requirements.lock"])
    pip_install(venv, lock_fd, 0, ["--no-deps", "--no-build-isolation", "-e", "."])
    (venv / "course-stamp").write_text(wanted_stamp(venv))


def pip_install(venv: Path, lock_fd: int, total: int, arguments: list[str]) -> None:
    """Run pip with a bar over the packages: first off the lines that it prints, then off what lies in site-packages."""
    process = subprocess.Popen(
        [venv / "bin/python", "-m", "pip", "install", *arguments], cwd=ROOT, env=environment(venv), pass_fds=[lock_fd],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
    reader.start()
    shown = ""
    try:
        while reader.is_alive():
            reader.join(0.2)
            shown = total and progress("".join(lines), total, venv, shown)
        process.wait()
    finally:
        process.terminate()  # when interrupted, leave nothing writing behind us
        process.wait()
        print(end="\n" if shown and sys.stdout.isatty() else "", flush=True)
    if process.returncode:
        raise Stop(explain("".join(lines), venv))


def progress(output: str, total: int, venv: Path, shown: str) -> str:
    """Show how far pip is: a bar on a terminal; elsewhere, as in a log, a line at each quarter. What was shown."""
    done, what = len(re.findall(r"^(?:Ignoring|Requirement already)", output, re.MULTILINE)), "waiting for the index"
    if "Installing collected packages" in output:
        what = "unpacking"
        done += len(list(venv.glob("lib/python*/site-packages/*.dist-info")))
    elif names := re.findall(r"^Collecting ([\w.-]+)|^ +Downloading (\S+ \(.*\))", output, re.MULTILINE):
        what = "downloading " + max(names[-1])
        done += sum(bool(name) for name, _ in names)
    done = min(done, total)
    if sys.stdout.isatty():
        line = f"  [{'#' * (24 * done // total):24}] {done:3}/{total} {what}"
        width = shutil.get_terminal_size().columns - 1
        print("\r" + line[:width].ljust(width), end="", flush=True)
    elif shown != (line := f"  {what.split()[0]}: {4 * done // total * 25}% of {total} packages"):
        say(line)
    return line


@contextlib.contextmanager
def alone(venv: Path):
    """One set-up at a time. pip inherits the lock, so that a pip which outlives a killed `make` is waited for too."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{venv}.lock", "w") as lock:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("Another set-up is at work here; waiting for it to end.")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def ensure(venv: Path) -> None:
    if stamp(venv) == wanted_stamp(venv) and not fault(venv):
        return
    with alone(venv) as lock_fd:
        filled = venv.exists() and any(venv.iterdir())
        if filled and not (venv / "pyvenv.cfg").exists():
            raise Stop(f"{venv} exists and is no virtual environment. Move it away, or choose a place with VENV=")
        reason = fault(venv)
        if filled and reason:
            say(f"The environment {venv} has to be made anew: {reason}.")
        if reason:
            make_venv(venv)
        if stamp(venv) != wanted_stamp(venv):
            install(venv, lock_fd)
            say("The environment is ready.")


def fill(source: Path, work: Path) -> int:
    """Copy what is missing from source into work, never touching what is there. How many were copied."""
    copied = 0
    for path in source.rglob("*"):
        target = work / path.relative_to(source)
        if path.is_file() and not os.path.lexists(target) and ".ipynb_checkpoints" not in path.parts:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")  # an interrupt must leave no half notebook
            shutil.copyfile(path, part)
            part.replace(target)
            copied += 1
    return copied


def filled(source: Path, work: Path) -> str:
    """Fills work from source, and says what is new there."""
    new = fill(source, work)
    files = sum(p.is_file() and ".ipynb_checkpoints" not in p.parts for p in source.rglob("*"))
    return ("all as you left it" if not new else f"{new} file{'s' * (new > 1)} new" +
            ", the others as you left them" * (new < files))


def earlier(source: Path, work: Path) -> list[str]:
    """The files in work that came from another release than this one, and are not what this one has.

    What each came from is noted in work, as a hash; a file of which nothing is noted is taken for one of this release.
    """
    note = work / ".released.json"
    try:
        noted = dict(json.loads(note.read_text()))
    except (OSError, ValueError, TypeError):
        noted = {}
    found, now = [], {}
    for path in sorted(p for p in source.rglob("*.ipynb") if (work / p.relative_to(source)).is_file()):
        name, release = path.relative_to(source).as_posix(), path.read_bytes()
        now[name] = hashlib.sha256(release).hexdigest()
        if (work / name).read_bytes() != release and noted.get(name, now[name]) != now[name]:
            found.append(name)
            now[name] = noted[name]
    if now != noted:
        part = note.with_name(note.name + ".part")
        part.write_text(json.dumps(now, indent=1) + "\n")
        part.replace(note)
    return found


def headless() -> bool:
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if "SSH_CONNECTION" in os.environ or sys.platform.startswith("linux") and not display:
        return True
    with contextlib.suppress(webbrowser.Error):
        return not webbrowser.get()
    return True


def lab(venv: Path, arguments: list[str]) -> None:
    notebooks, solutions, work = ROOT / "notebooks", ROOT / "solutions", ROOT / "work"
    built = [notebooks / path.relative_to(solutions).with_suffix(".ipynb") for path in solutions.rglob("[!_]*.py")]
    if not all(path.exists() for path in built):
        say("Building the notebooks")
        subprocess.run([venv / "bin/python", "-m", "autograder", "build"], cwd=ROOT, env=environment(venv), check=True)
    work.mkdir(exist_ok=True)
    say(f"Your own copy of the notebooks is {work} ({filled(notebooks, work)})")
    if old := earlier(notebooks, work):
        say(f"There is a newer release of {', '.join(old)}. Yours {'is' if len(old) == 1 else 'are'} left as you have "
            f"{'it' if len(old) == 1 else 'them'}: to get the new one beside yours, rename yours, and make lab again.")
    options = []
    if first := min((path.relative_to(notebooks).as_posix() for path in notebooks.rglob("*.ipynb")), default=""):
        options.append("--LabApp.default_url=/lab/tree/" + quote(first))
    jupyterlab(venv, work, [*options, *arguments])


def formgrader(venv: Path, arguments: list[str]) -> None:
    # Settings that come before the learners', which hide what only instructors have a use for.
    config = filter(None, [str(ROOT / "autograder/instructor"), str(ROOT / "autograder"),
                           os.environ.get("JUPYTER_CONFIG_PATH")])
    say("Formgrader is in JupyterLab's menu Nbgrader, and at /formgrader/manage_assignments behind the address below.")
    jupyterlab(venv, ROOT, arguments, JUPYTER_CONFIG_PATH=os.pathsep.join(config))


def running(venv: Path, root: Path) -> list[str]:
    """The addresses of the JupyterLabs that are open on this folder now; none where that cannot be told."""
    ask = [venv / "bin/python", "-m", "jupyter_server", "list", "--json"]  # a line of JSON for each
    with contextlib.suppress(OSError, ValueError, KeyError):
        listed = subprocess.run(ask, capture_output=True, text=True, env=environment(venv)).stdout.splitlines()
        servers = [json.loads(line) for line in listed if line.startswith("{")]
        return [f"{s['url']}lab?token={s['token']}" for s in servers if Path(s["root_dir"]) == root]
    return []


def jupyterlab(venv: Path, root: Path, arguments: list[str], **variables: str) -> None:
    if not os.access(Path.home(), os.W_OK) and "JUPYTER_RUNTIME_DIR" not in os.environ:
        raise Stop(f"JupyterLab keeps its settings in your home folder, and {Path.home()} is not there or cannot be "
                   "written to.\nGive it another:  make HOME=/a/folder/of/yours lab")
    for address in running(venv, root):
        say(f"JupyterLab is open on this folder already, at {address}\nThis is a second one. They share the files and "
            "know nothing of each other: do not have one notebook open in both.")
    # Encrypted, if only because a kernel that is not says so, each time, where the learner reads what matters.
    options = ["--log-level=ERROR", f"--ServerApp.root_dir={root}", "--KernelManager.transport_encryption=auto"]
    if headless():
        options.append("--no-browser")
        say("No display here: open the address below in a browser.")
    if os.geteuid() == 0:
        options.append("--allow-root")
    say("Starting JupyterLab; Ctrl-C and then y, within five seconds, ends it.")
    start(venv, ["jupyterlab", *options, *arguments], **variables)


def start(venv: Path, arguments: list[str], **variables: str) -> None:
    """Become the program, so that signals and the exit status are its own."""
    os.chdir(ROOT)
    os.execve(venv / "bin/python", ["python", "-m", *arguments], environment(venv) | variables)


def main(arguments: list[str]) -> int:
    venv = Path(os.path.abspath(ROOT / os.path.expanduser(os.environ.get("VENV") or ".venv")))
    try:
        if not os.access(ROOT, os.W_OK):  # work/ lies there, and what pip and the build write: better said now
            raise Stop(explain("Permission denied", ROOT / "work"))
        ensure(venv)
        {"lab": lab, "formgrader": formgrader, "run": start}[arguments[0]](venv, arguments[1:])
    except Stop as stop:
        message = str(stop)
    except KeyboardInterrupt:
        message = "Stopped. Run the same command again to go on."
    except subprocess.CalledProcessError as error:
        message = f"This step failed, see above: {' '.join(map(str, error.cmd))}"
    except OSError as error:
        known = error.errno in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
        message = explain(str(error), venv) if known else str(error)
    print(f"\n{message}", file=sys.stderr, flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
