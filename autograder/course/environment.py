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


class Emptied(Exception):
    """A gradebook's file is there, and has nothing in it. nbgrader would take it for a new one, and say nothing."""

    def __init__(self, path: Path):
        super().__init__(f"{path} has 0 bytes: a full disk or a broken copy leaves such a file. {PUT_BACK}")


PUT_BACK = ("Put a copy of it back: points and comments given by hand are in that file alone. If there is no copy, or "
            "nothing was given, move the file aside: a new gradebook is then made, and `autograder gradebook` writes "
            "the marks of the checks into it")


def make_private(url: str) -> None:
    """Makes sure that a database in a file, which nbgrader is about to make, is its owner's alone: it has marks.

    Raises Emptied if it is there, and empty.
    """
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        with contextlib.suppress(OSError):  # it is there already; or cannot be made, which nbgrader will say
            if path.stat().st_size == 0:
                raise Emptied(path)
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
