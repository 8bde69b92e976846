"""What tests of the grader share. A module that needs another course has a fixture of that name of its own."""
import pytest

from . import little_course as little


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The little course, released and read."""
    made = little.released(tmp_path_factory.mktemp("course"))
    _ = made.notebooks
    return made
