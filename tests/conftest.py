"""Shared fixtures: `chromium` for browser tests, `sandbox` for those that grade, `golden` and `golden_image`
for what is kept in tests/golden/."""

import difflib
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

from autograder import _lean as _lean
from autograder.sandbox.bubblewrap import SandboxError, find_sandbox, make_stage

# With libtpu installed, jax would look for a TPU. Processes that tests start inherit this.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Chapters that run here must not tick exercises off in the progress of whoever runs the tests.
STATE = tempfile.TemporaryDirectory(prefix="pallas-lite-state-", ignore_cleanup_errors=True)  # gone when Python ends
os.environ["PALLAS_LITE_STATE"] = STATE.name

# What several processes of tests compile alike is compiled once: workers and programs that tests start inherit this.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    PROGRAMS = tempfile.TemporaryDirectory(prefix="pallas-lite-programs-", ignore_cleanup_errors=True)
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": PROGRAMS.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    jax.config.update("jax_compilation_cache_dir", PROGRAMS.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# Speed is measured in benchmarks/: a busy machine fails no test.
hypothesis.settings.register_profile("course", deadline=None)
hypothesis.settings.load_profile("course")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/ with what the tests produce")


def pytest_collection_modifyitems(items):
    """A test has one name in all processes: `make test` runs them on all cores, and a failed one is run again by it."""
    if unstable := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"an address of memory in the name of {unstable[0]}: give ids to its parameters")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Halves of a character, which hostile notebooks have, cannot be sent from one process of tests to another."""
    report = yield
    report.sections = [(name, sendable(text)) for name, text in report.sections]
    if report.longrepr and (text := str(report.longrepr)) != sendable(text):
        report.longrepr = sendable(text)
    return report


def sendable(text):
    return text.encode("utf-8", "backslashreplace").decode()


@pytest.fixture(autouse=True, scope="module")
def _forget():
    """What a file compiled is of no use to the next: kept, it is gigabytes in the end, and a minute to take down."""
    yield
    jax.clear_caches()


def open_to_all(folder):
    """Lets other users into a folder of pytest's, which lies in one or two more of its own."""
    for above in (folder, *folder.parents):
        if above.name.startswith("pytest-of-"):
            break
        above.chmod(0o755)
    above.chmod(0o755)


def lacking(reason):
    """What the machine lacks is a skip at home and a failure in CI, where a silent skip would hide a broken test."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def require(found, what):
    return found or lacking(f"{what} not found on this machine")


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory):
    """For tests that grade: bubblewrap may be missing, and a container or a kernel may forbid it to start."""
    folder = tmp_path_factory.mktemp("sandbox")
    open_to_all(folder)
    try:
        return find_sandbox(make_stage(folder / "stage"))
    except SandboxError as error:
        lacking(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def chromium():
    """The paths of (chromium, chromedriver); given by path, selenium downloads nothing."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return require(browser, "chromium"), require(shutil.which("chromedriver"), "chromedriver (Debian: chromium-driver)")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Below all else stands the command that runs again what failed."""
    yield
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    if failed:
        files = sorted({node.partition("::")[0] for node in failed if node})
        again = f'"{failed[0]}"' if len(failed) == 1 else " ".join(files)
        terminalreporter.write_line(f"\nWhen it is mended, run it again:  make test ARGS='{again}'")


def how_to_update(request):
    return f"make test ARGS='--update-golden \"{request.node.nodeid}\"'"


@pytest.fixture
def golden(request):
    """golden(name, text): text must equal tests/golden/NAME.txt; --update-golden writes it."""

    def check(name, text):
        path = GOLDEN / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if kept != text:
            diff = difflib.unified_diff(kept.splitlines(), text.splitlines(), f"golden/{name}.txt", "now", lineterm="")
            pytest.fail("\n".join([*diff, "", "If the new text is right:  " + how_to_update(request)]), pytrace=False)

    return check


ALIKE = 1 / 2000  # of the pixels may differ by more than an eighth: edges that another machine rounds otherwise


def unlike(one, other):
    """The part of the pixels in which two pictures, read from these files, differ by more than an eighth."""
    from matplotlib.image import imread
    a, b = (imread(path)[..., :3] for path in (one, other))
    return float((np.abs(a - b).max(-1) > 1 / 8).mean()) if a.shape == b.shape else 1.0


@pytest.fixture
def golden_image(request, tmp_path):
    """golden_image(name, ax): its figure must look like tests/golden/NAME.png; --update-golden writes it."""

    def check(name, ax):
        path, now = GOLDEN / f"{name}.png", tmp_path / f"{name}.png"
        ax.figure.savefig(now, dpi=60, metadata={"Software": None})
        if request.config.getoption("--update-golden"):
            if not path.exists() or unlike(path, now):  # so that an update changes only what changed
                shutil.copy(now, path)
            return
        part = unlike(path, now) if path.exists() else 1.0
        if part > ALIKE:
            how = f"{part:.2%} of the pixels of golden/{name}.png differ. Compare it with {now}."
            how = how if path.exists() else f"there is no golden/{name}.png yet. Look at {now}."
            pytest.fail(f"{how}\n\nIf the new picture is right:  {how_to_update(request)}", pytrace=False)

    return check
