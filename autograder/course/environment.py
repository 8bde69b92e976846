"""environment: what nbgrader's programs need: variables, for as long as they run, and a gradebook of one's own."""
import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    before, os.environ[name] = os.environ.get(name), value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def scripts_on_path():
    """nbgrader calls `alembic` by name, which an environment that is not activated does not offer."""
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return environment("PATH", os.pathsep.join(folders))


def make_private(url: str) -> None:
    """Makes sure that a database in a file, which nbgrader is about to make, is its owner's alone: it has marks."""
    if url.startswith("sqlite:///"):
        with contextlib.suppress(OSError):  # it is there already; or cannot be made, which nbgrader will say
            os.close(os.open(url.removeprefix("sqlite:///"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
