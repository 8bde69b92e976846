"""environment: variables that nbgrader's programs need to see, for as long as they run; then as they were before."""
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
