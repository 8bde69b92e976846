"""pyproject.toml, requirements.lock and environment.yml say the same, and tools/bootstrap.py does what it promises."""

import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = [Requirement(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0] != "#"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
PYTHONS = ("3.11.2", "3.12.1", "3.13.0", "3.14.0")


def pins(python, **environment):
    """name -> version, for one Python."""
    environment |= {"python_version": python.rpartition(".")[0], "python_full_version": python}
    chosen = [r for r in LOCK if r.marker is None or r.marker.evaluate(environment)]
    assert len({r.name for r in chosen}) == len(chosen), f"two pins for one package on Python {python}"
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in chosen}


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_pyproject(python):
    have = pins(python)
    for requirement in map(Requirement, PROJECT["dependencies"] + EXTRAS["course"] + EXTRAS["test"]):
        name = canonicalize_name(requirement.name)
        assert name in have, f"{name} is not in requirements.lock: run `make lock`"
        assert requirement.specifier.contains(have[name]), f"{requirement} against {name}=={have[name]}: `make lock`"


def test_the_lock_only_pins():
    text = (ROOT / "requirements.lock").read_text()
    assert all(re.fullmatch(r"==[\w.]+", str(r.specifier)) and r.url is None for r in LOCK)
    assert not re.search(r"://|file:|^-", text, re.MULTILINE), "an index or a path of someone's machine in the lock"


def test_the_heavy_extras_stay_out_of_the_lock():
    heavy = {canonicalize_name(Requirement(r).name) for extra in ("tpu", "gpu", "cluster", "postgres")
             for r in EXTRAS[extra]}
    installed_anyway = {"absl-py"} & set(pins("3.11.2"))
    assert not (heavy - installed_anyway) & {canonicalize_name(r.name) for r in LOCK}


def test_the_oldest_and_the_newest_supported_pair():
    floor = next(r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "jax").specifier
    assert pins("3.11.2")["jax"] == str(floor).removeprefix(">="), "the oldest jax we claim is the one we test"
    assert pins("3.13.0")["jax"].startswith("0.12.")
    for python in PYTHONS:
        assert pins(python)["jax"] == pins(python)["jaxlib"]


def test_what_is_installed_is_the_lock_and_the_lock_is_complete():
    """bootstrap.py installs with --no-deps, so a package missing from the lock would be missing on every machine."""
    site = [sysconfig.get_path("purelib")]  # not sys.path: setuptools, once imported, adds its own copies of packages
    have = {canonicalize_name(d.name): d for d in importlib.metadata.distributions(path=site)}
    here = pins(".".join(map(str, sys.version_info[:3])))
    assert {n: have[n].version if n in have else None for n in here} == here, "run `make test`, it installs the lock"
    for name in here:
        for requirement in map(Requirement, have[name].requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                pin = here.get(canonicalize_name(requirement.name))
                assert pin, f"{name} needs {requirement}, which is not in requirements.lock: run `make lock`"
                assert requirement.specifier.contains(pin, prereleases=True), f"{name} needs {requirement}, lock: {pin}"


def reached(roots: list[str]) -> set[str]:
    """The installed packages that these requirements bring, themselves included."""
    todo, found = [Requirement(text) for text in roots], set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in found:
                found.add((name, extra))
                more = map(Requirement, importlib.metadata.requires(name) or [])
                todo += [r for r in more if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_no_pin_is_left_of_a_package_that_nobody_asks_for_any_more():
    here = set(pins(".".join(map(str, sys.version_info[:3]))))
    left = here - reached(PROJECT["dependencies"] + EXTRAS["course"] + EXTRAS["test"])
    assert not left, f"requirements.lock pins {', '.join(sorted(left))} for nobody: run `make lock`"


def test_grading_needs_only_what_a_bare_install_brings(tmp_path):
    """`pip install` of the wheel, without an extra: what the commands import is there."""
    have = reached(PROJECT["dependencies"])
    missing = [module for module, names in importlib.metadata.packages_distributions().items()
               if not {canonicalize_name(name) for name in names} & {*have, "pallas-lite", "setuptools"}]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))  # importing these fails\n" \
           "import autograder.__main__, autograder.grading.child, autograder.sandbox.inside.worker\n" \
           "import autograder.pages.feedback, pallas_lite"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "jupytext" in missing and done.returncode == 0, done.stderr


def test_conda_has_the_same_python_and_no_list_of_its_own():
    *conda, pip = CONDA["dependencies"]
    assert conda == [f"python{PROJECT['requires-python']},<3.14", "pip"]  # the newest that CI tests is 3.13
    assert pip == {"pip": ["-r requirements.lock", "-e ."]}


@pytest.mark.parametrize("minor", [10, 11, 13, 14])
def test_the_python_that_bootstrap_accepts_is_the_one_of_pyproject(minor):
    script = (ROOT / "tools/bootstrap.sh").read_text()
    floor = tuple(map(int, re.search(r"version_info < \((\d+), (\d+)\)", script).groups()))
    assert ((3, minor) >= floor) == SpecifierSet(PROJECT["requires-python"]).contains(f"3.{minor}")


def test_no_committed_file_names_a_registry_or_this_machine():
    names = ["pyproject.toml", "requirements.lock", "environment.yml", "Makefile", ".ci/run", "tools/bootstrap.py"]
    for name in [*names, "tools/bootstrap.sh"]:
        text = (ROOT / name).read_text()
        assert not re.search(r"pypi\.org|pythonhosted|/root\b|/tmp/|/work/(main|shared)", text), name


# ---- tools/bootstrap.py ---------------------------------------------------------------------------------------------


@pytest.fixture
def bootstrap():
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools/bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "output, advice",
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk space"),
        ("PermissionError: [Errno 13] Permission denied: '/x/.venv'", "folder of your own"),
        ("The virtual environment was not created because ensurepip is not\navailable. On Debian", "sudo apt install"),
        ("/usr/bin/python3: No module named venv", "sudo apt install"),
        ("WARNING: Retrying (Retry(total=4)) after connection broken by NewConnectionError\n"
         "ERROR: No matching distribution found for alembic==1.20.1", "Check the network"),
        ("WARNING: pip is configured with locations that require TLS/SSL, however the ssl module in Python is not "
         "available.\nWARNING: Retrying (Retry(total=4)) after connection broken", "ssl module does not load"),
        ("ERROR: No matching distribution found for jaxlib==0.10.2", "no build for Python"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "index-url, proxy, cert"),
        ("something nobody thought of", "something nobody thought of"),
    ],
)  # fmt: skip
def test_each_failure_says_what_to_do(bootstrap, tmp_path, output, advice):
    message = bootstrap.explain(output, tmp_path / "no" / "such" / ".venv")
    assert advice in message
    assert "run the same command again" in message


def test_formgrader_is_there_for_instructors_alone(bootstrap, tmp_path, monkeypatch):
    started = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bootstrap.os, "execve", lambda _, words, env: started.update(words=words, env=env))
    monkeypatch.delenv("JUPYTER_CONFIG_PATH", raising=False)
    learner = functools.partial(bootstrap.jupyterlab, tmp_path, ROOT / "work")
    for start, hidden in ((learner, [True]), (functools.partial(bootstrap.formgrader, tmp_path), [False, True])):
        start(["--port=1"])
        # The first folder wins where two say something of the same extension.
        folders = [Path(p, "labconfig", "page_config.json") for p in started["env"]["JUPYTER_CONFIG_PATH"].split(":")]
        said = [json.loads(p.read_text())["disabledExtensions"]["@jupyter/nbgrader:formgrader"] for p in folders]
        assert said == hidden
    assert f"--ServerApp.root_dir={ROOT}" in started["words"] and "--port=1" in started["words"]


def test_a_second_jupyterlab_on_the_same_folder_is_said_so(bootstrap, tmp_path, monkeypatch, capsys):
    listed = tmp_path / "bin/python"
    listed.parent.mkdir()
    servers = [{"url": f"http://localhost:{port}/", "token": "t", "root_dir": str(root)}
               for port, root in ((8888, tmp_path / "work"), (8889, tmp_path / "else"))]
    listed.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(["a warning", *map(json.dumps, servers)]) + "\nEND\n")
    listed.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bootstrap.os, "execve", lambda *_: None)
    bootstrap.jupyterlab(tmp_path, tmp_path / "work", [])
    said = capsys.readouterr().out
    assert "already, at http://localhost:8888/lab?token=t\n" in said and "8889" not in said
    listed.write_text("#!/bin/sh\nexit 1\n")
    bootstrap.jupyterlab(tmp_path, tmp_path / "work", [])
    assert "already" not in capsys.readouterr().out


def test_the_options_that_jupyterlab_is_started_with_exist():
    from jupyter_client import KernelManager
    assert "auto" in KernelManager.class_traits(config=True)["transport_encryption"].values


def test_a_learners_file_is_never_overwritten(bootstrap, tmp_path):
    source, work = tmp_path / "notebooks", tmp_path / "work"
    for name in ("unit1/a.ipynb", "unit1/b.ipynb", "unit2/图.ipynb"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("new")
    (work / "unit1").mkdir(parents=True)
    (work / "unit1/a.ipynb").write_text("mine")
    assert bootstrap.filled(source, work) == "2 files new, the others as you left them"
    assert (work / "unit1/a.ipynb").read_text() == "mine"
    assert (work / "unit2/图.ipynb").read_text() == "new"
    assert bootstrap.filled(source, work) == "all as you left it"
    assert bootstrap.filled(source, tmp_path / "other") == "3 files new"
    assert not list(work.rglob("*.part"))


def test_a_notebook_of_which_there_is_a_newer_release_is_named_and_left(bootstrap, tmp_path):
    source, work = tmp_path / "notebooks", tmp_path / "work"
    (source / "unit1").mkdir(parents=True)
    a, b = (source / "unit1" / name for name in ("a.ipynb", "图.ipynb"))
    a.write_text("first")
    b.write_text("first")
    work.mkdir()

    def lab():
        bootstrap.fill(source, work)
        return bootstrap.earlier(source, work)
    assert lab() == []
    (work / "unit1/a.ipynb").write_text("first, and mine")
    assert lab() == []  # a learner's work is no other release
    a.write_text("second")
    b.write_text("second")
    assert lab() == lab() == ["unit1/a.ipynb", "unit1/图.ipynb"]  # until something is done about it
    assert (work / "unit1/a.ipynb").read_text() == "first, and mine"
    (work / "unit1/a.ipynb").rename(work / "unit1/mine.ipynb")
    assert lab() == ["unit1/图.ipynb"] and (work / "unit1/a.ipynb").read_text() == "second"
    (work / "unit1/a.ipynb").write_text("second, and mine")
    (work / "unit1/图.ipynb").write_text("second")  # copied by hand
    assert lab() == []
    (work / ".released.json").write_text("[1")  # nothing is known: nothing is said
    assert lab() == []


def test_a_clone_that_cannot_be_written_to_is_said_before_anything_is_installed(bootstrap, monkeypatch, capsys):
    monkeypatch.setenv("VENV", "/elsewhere/venv")
    monkeypatch.setattr(bootstrap, "ensure", lambda venv: pytest.fail("began to install"))
    monkeypatch.setattr(bootstrap.os, "access", lambda path, mode: Path(path) != ROOT)
    assert bootstrap.main(["lab"]) == bootstrap.FAILED
    assert f"Cannot write in {ROOT}.\nClone the repository into a folder of your own" in capsys.readouterr().err


def test_a_home_that_cannot_be_written_to_is_said(bootstrap, monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap.os, "execve", lambda *_: pytest.fail("JupyterLab was started"))
    monkeypatch.delenv("JUPYTER_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    with pytest.raises(bootstrap.Stop, match="none is not there.*\n.*make HOME=/a/folder/of/yours lab"):
        bootstrap.jupyterlab(tmp_path, ROOT, [])


def make_bare_venv(folder):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (folder / "bin/pip").write_text(f'#!/bin/sh\n\'\'\'exec\' "{folder}/bin/python" "$0" "$@"\n')
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "pip.py").write_text("")
    return folder


def test_a_sound_environment_is_kept_and_a_broken_one_is_found(bootstrap, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHON_CHOSEN", raising=False)
    venv = make_bare_venv(tmp_path / "an env 环境")
    assert bootstrap.fault(venv) == ""
    (venv / "course-stamp").write_text("installing")
    assert "cut short" in bootstrap.fault(venv)
    (venv / "course-stamp").unlink()
    moved = venv.rename(tmp_path / "moved")
    assert "moved" in bootstrap.fault(moved)
    (moved / "bin/python").unlink()
    assert "does not run" in bootstrap.fault(moved)


def test_another_python_asked_for_is_a_reason_to_start_anew(bootstrap, tmp_path, monkeypatch):
    venv = make_bare_venv(tmp_path / "env")
    monkeypatch.setattr(bootstrap, "VERSION", "3.99")
    monkeypatch.delenv("PYTHON_CHOSEN", raising=False)
    assert bootstrap.fault(venv) == ""
    monkeypatch.setenv("PYTHON_CHOSEN", "1")
    assert "it has Python" in bootstrap.fault(venv)


def test_a_folder_that_is_no_environment_is_left_alone(bootstrap, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(bootstrap.Stop, match="no virtual environment"):
        bootstrap.ensure(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("display, expected", [("", True), (":0", False)])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="X11 and Wayland are Linux's")
def test_no_display_means_no_browser(bootstrap, monkeypatch, display, expected):
    for name in ("WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(bootstrap.webbrowser, "get", lambda: "a browser")
    assert bootstrap.headless() is expected


def run_sh(folder, **env):
    script = ["sh", str(ROOT / "tools/bootstrap.sh"), "run", "x"]
    return subprocess.run(script, capture_output=True, text=True, env={**env, "HOME": str(folder)})


def test_no_python_or_an_old_one_is_a_clear_message(bootstrap, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("dirname", "head", "cat", "sh"):
        (tools / tool).symlink_to(next(p for d in os.defpath.split(":") if (p := Path(d) / tool).exists()))
    (tools / "python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.6\nexit 1\n')
    (tools / "python3").chmod(0o755)
    result = run_sh(tmp_path, PATH=str(tools), PYENV_ROOT=str(tmp_path))
    assert result.returncode == bootstrap.FAILED
    assert "needs Python 3.11 or newer" in result.stderr and "Python 3.9.6" in result.stderr
    result = run_sh(tmp_path, PATH=str(tools), PYTHON="no-such-python")
    assert result.returncode == bootstrap.FAILED and "PYTHON=no-such-python" in result.stderr


def test_a_python_that_does_not_start_is_passed_over_and_named(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python3").write_text("#!/bin/sh\necho python3: libpython3.12.so.1.0: cannot open >&2\nexit 127\n")
    (tools / "python3.11").write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\necho set up by "$@"\n')
    for each in tools.iterdir():
        each.chmod(0o755)
    result = run_sh(tmp_path, PATH=f"{tools}:{os.defpath}", PYENV_ROOT=str(tmp_path))
    assert "set up by tools/bootstrap.py run x" in result.stdout
    assert f"{tools}/python3 does not start, so python3.1" in result.stderr and "cannot open" in result.stderr


@pytest.mark.parametrize("status, next_one", [(75, False), (1, True)])
def test_what_comes_next_is_said_of_the_program_and_not_of_its_set_up(tmp_path, status, next_one):
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tools" / "bootstrap.sh").write_text(f"exit {status}\n")
    done = subprocess.run(["make", "check"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and ("To go on:  make fix" in done.stdout) == next_one
