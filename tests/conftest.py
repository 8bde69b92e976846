"""Shared fixtures: `chromium` for browser tests, `golden` for texts that are kept in tests/golden/."""

import difflib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

# With libtpu installed, jax would look for a TPU. Processes that tests start inherit this.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Chapters that run here must not tick exercises off in the progress of whoever runs the tests.
os.environ["PALLAS_LITE_STATE"] = tempfile.mkdtemp(prefix="pallas-lite-state-")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/ with what the tests produce")


def require(found, what):
    """What the machine lacks is a skip at home and a failure in CI, where a silent skip would hide a broken test."""
    if not found:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{what} not found on this machine")
    return found


@pytest.fixture(scope="session")
def chromium():
    """The paths of (chromium, chromedriver); given by path, selenium downloads nothing."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return require(browser, "chromium"), require(shutil.which("chromedriver"), "chromedriver (Debian: chromium-driver)")


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
            command = f"make test ARGS='--update-golden \"{request.node.nodeid}\"'"
            pytest.fail("\n".join([*diff, "", "If the new text is right:  " + command]), pytrace=False)

    return check
