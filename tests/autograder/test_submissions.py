"""Folders and files as students hand them in: whatever they are, they are found or named, and nobody waits for them."""
import os
import subprocess

import pytest

from autograder.grading import transplant
from autograder.grading.grade import Mark, Report
from autograder.grading.submissions import find, notebooks_below, pack
from autograder.grading.transplant import Unreadable, load
from autograder.nbgrader import gradebook
from autograder.pages.feedback import write_pages
from tests.conftest import open_to_all

from . import little_course as little


@pytest.fixture
def nobody():
    """Files are looked at as a user without rights would."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    yield
    os.seteuid(0)


def whose(paths, course):
    return {s.student: (len(s.paths), s.problem, s.lost) for s in find([str(p) for p in paths], course)}


def test_a_folder_or_file_that_cannot_be_opened_is_named_and_the_others_are_found(tmp_path, course, request):
    open_to_all(tmp_path)
    for name in ("ada/unit1/a", "bea/unit1/b", "bea/unit2/b", "cy/unit1/c", "dan/unit1/d"):
        path = tmp_path / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    for locked in ("ada", "bea/unit2", "cy/unit1/c.ipynb"):
        (tmp_path / locked).chmod(0)
    (tmp_path / "dan" / "unit1").chmod(0o744)  # its names can be read, and nothing else
    request.getfixturevalue("nobody")
    denied = "the folder cannot be read: Permission denied"
    found = whose([tmp_path], course)
    assert found["ada"] == (0 + 1, f"ada: {denied}", ())
    assert found["bea"] == (1, "", (("unit2", denied),))
    assert found["cy"] == (1, "", ())
    assert found["dan"] == (1, "d.ipynb: the file cannot be read: Permission denied", ())
    (cy,) = [s for s in find([str(tmp_path)], course) if s.student == "cy"]
    assert pack(cy).files == (("c.ipynb", "the file cannot be read: Permission denied"),)
    assert whose([tmp_path / "ada"], course)["ada"][1] == denied
    os.seteuid(0 if os.getuid() == 0 else os.geteuid())
    for locked in ("ada", "bea/unit2"):
        (tmp_path / locked).chmod(0o755)


def test_links_loops_and_folders_without_end(tmp_path, course):
    ada, bea = tmp_path / "ada", tmp_path / "bea"
    (bea / little.UNIT).mkdir(parents=True)
    (bea / little.UNIT / "b.ipynb").write_text("{}")
    ada.mkdir()
    (ada / "a.ipynb").write_text("{}")
    (ada / "again.ipynb").symlink_to("a.ipynb")
    (ada / "loop.ipynb").symlink_to("loop.ipynb")
    (ada / "round").symlink_to(".", target_is_directory=True)
    (ada / little.UNIT).symlink_to(bea / little.UNIT, target_is_directory=True)
    (ada / "lib64").symlink_to("/usr", target_is_directory=True)  # as an environment of Python's has it
    link = "this is a link to another one: hand in the notebook itself"
    assert whose([tmp_path], course) == {"ada": (2, "", (("loop.ipynb", link), ("round", link), (little.UNIT, link))),
                                         "bea": (1, "", ())}
    deep = tmp_path / "deep"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(2100):  # deeper than calls of Python, and than a path may be long
        os.mkdir("d", dir_fd=here)
        inside = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inside
    os.close(here)
    try:
        found, lost = notebooks_below(deep)
        assert not found and lost == [("d", "the folder cannot be read: File name too long")]
    finally:
        subprocess.run(["rm", "-rf", deep], check=True)


@pytest.mark.parametrize("name, student", [("..", "_."), ("...", "_.."), (".", "_"), ("ada", "ada"), ("-rf", "-rf")])
def test_a_name_never_leads_elsewhere(tmp_path, course, name, student):
    path = tmp_path / f"{name[:-1] if name.startswith('.') else name}.ipynb"
    path.write_text("{}")
    assert list(whose([tmp_path], course)) == list(whose([path], course)) == [student]


def test_a_folder_may_have_the_suffix_of_a_notebook(tmp_path, course):
    (tmp_path / "ada.ipynb" / "b.IPYNB").mkdir(parents=True)
    (tmp_path / "ada.ipynb" / "b.IPYNB" / "c.ipynb").write_text("{}")
    assert whose([tmp_path], course) == {"ada.ipynb": (1, "", ())}


@pytest.mark.parametrize("ending", [".IPYNB", ".ipynb.txt", ".ipynb.json"])
def test_endings_that_browsers_and_systems_make(tmp_path, course, ending):
    (tmp_path / f"ada{ending}").write_text("{}")
    assert whose([tmp_path], course) == {"ada": (1, "", ())}


def test_what_is_read_is_what_was_opened(tmp_path, monkeypatch):
    pipe, file, link = tmp_path / "pipe", tmp_path / "file", tmp_path / "link"
    os.mkfifo(pipe)
    with pytest.raises(Unreadable, match="no ordinary file"):
        load(pipe)  # nobody writes to it: this would wait for ever
    with pytest.raises(Unreadable, match="Is a directory"):
        load(tmp_path)
    file.write_bytes(b"1234")
    link.symlink_to(file)
    assert load(link) == b"1234"
    with pytest.raises(Unreadable, match="cannot be read"):
        load(link, follow=False)
    with pytest.raises(Unreadable, match="larger than"):
        load(file, most=3)
    fstat, looks = os.fstat, []

    def grows(fd):
        looks.append(fstat(fd))
        with file.open("ab") as more:
            more.write(b"5")
        return looks[-1]
    monkeypatch.setattr(transplant.os, "fstat", grows)
    with pytest.raises(Unreadable, match="being written to"):
        load(file)
    assert len(looks) == 6


def test_all_files_of_one_student_together_have_a_limit(tmp_path, course, monkeypatch):
    monkeypatch.setattr("autograder.grading.submissions.MOST_BYTES", 3)
    for name in "abc":
        (tmp_path / "ada").mkdir(exist_ok=True)
        (tmp_path / "ada" / f"{name}.ipynb").write_text("{}")
    (ada,) = find([str(tmp_path)], course)
    assert [type(content) for _, content in pack(ada).files] == [bytes, bytes, str]
    assert "all files together" in pack(ada).files[2][1] and ada.digest == pack(ada).digest


def test_nbgraders_small_files_in_a_students_folder_are_no_door(tmp_path, course):
    folder = tmp_path / "submitted" / "ada" / little.UNIT
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("2026-01-01 10:00:00 UTC")
    (folder / "timestamp.txt").symlink_to(secret)
    os.mkfifo(folder / "submission_secret.txt")
    assert gradebook.times_of([folder]) == {}
    marks = {n: Mark(float(p), p, "right") for n, p in little.POINTS.items()}
    write_pages([Report("ada", ["a"], "0", marks=marks)], course, tmp_path / "pages", submitted=tmp_path / "submitted")
    assert [p.name for p in (tmp_path / "pages").rglob("*") if p.is_file()] == [f"{little.NAME}.html"]
    (folder / "timestamp.txt").unlink()
    os.mkfifo(folder / "timestamp.txt")
    assert gradebook.times_of([folder]) == {}  # and does not wait
    (folder / "timestamp.txt").unlink()
    (folder / "timestamp.txt").write_text("2026-01-01 10:00:00 UTC")
    assert list(gradebook.times_of([folder])) == [("ada", little.UNIT)]
