"""doctor says what is missing and what to do about it; its first line and exit code say whether anything is."""
import importlib.metadata
import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from autograder import doctor
from autograder.__main__ import main
from autograder.course.release import REPOSITORY, ROOT, Course

from . import little_course as little


@pytest.fixture
def course(tmp_path):
    return little.released(tmp_path)


@pytest.fixture
def options(course):
    return "--release", course.release, "--checks", *course.checks


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_a_learner_with_all_that_is_needed(options, capsys):
    assert main(["doctor", "--student", *options]) == 0
    first, *rest = lines(capsys)
    assert first == "Ready to learn: yes."
    assert any(line.startswith("✓ Python") for line in rest)
    assert any("1 notebook, 4 exercises, id " in line for line in rest)
    assert not any("sandbox" in line for line in rest)


def test_another_jax_is_named_with_the_way_out(options, capsys, monkeypatch):
    have = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.1" if name == "jax" else have(name))
    assert main(["doctor", "--student", *options]) == 1
    first, *rest = lines(capsys)
    assert first == "Ready to learn: no, 1 thing to mend."
    assert any("jax 0.9.1 (==" in line for line in rest) and any("requirements.lock" in line for line in rest)


def test_the_count_of_packages_is_that_of_the_lock(tmp_path):
    lock = tmp_path / "requirements.lock"
    numpy, jax = (f"{name}=={importlib.metadata.version(name)}" for name in ("numpy", "jax"))
    lock.write_text(f"# made\n{numpy}\n{jax} ; sys_platform == 'none'\n")
    (found,) = doctor._packages(lock)
    assert found.state == doctor.GOOD
    assert found.what.endswith("; all 1 as locked (the lock has 2, for all systems and Pythons)")
    lock.write_text(f"{numpy}\n{jax}\n")
    assert next(doctor._packages(lock)).what.endswith("; all 2 as locked")


def test_a_file_that_hides_a_package_is_named(options, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numpy.py").write_text("1/0")
    assert main(["doctor", "--student", *options]) == 1
    assert any("numpy.py here is imported in place of" in line for line in lines(capsys))


def test_another_course_here_is_to_be_set_up_and_not_renamed(options, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "autograder").mkdir()
    (tmp_path / "autograder" / "__init__.py").touch()
    shutil.copy(Path(doctor.__file__).with_name("_cwd.py"), tmp_path / "autograder")
    assert main(["doctor", "--student", *options]) == 1
    shown = lines(capsys)
    assert f"✗ this folder: {tmp_path} has a course of its own, and this is the doctor of {REPOSITORY}" in shown
    assert f"    → If it is yours: make -C {tmp_path} build, then .venv/bin/autograder doctor there" in shown
    assert not any("imported in place" in line for line in shown)


def test_without_bubblewrap_the_ways_out_are_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    (found,) = doctor._sandbox()
    assert found.state == doctor.BAD and "not installed" in found.what and "apt install bubblewrap" in found.do


def test_a_release_that_is_not_what_solutions_say_is_named(tmp_path):
    if not (ROOT / "solutions").is_dir():
        pytest.skip("no solutions here")
    release = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", release)
    (found,) = doctor._release(Course(str(release)))
    assert found.state == doctor.GOOD
    path = sorted(release.glob("*/*.ipynb"))[0]
    path.write_text(path.read_text(encoding="utf-8").replace("# 1 ·", "# One ·"), encoding="utf-8")
    (found,) = doctor._release(Course(str(release)))
    assert found.state == doctor.BAD and path.name in found.what and found.do == "autograder build"


@pytest.mark.parametrize("url, state, words", [
    ("sqlite:////{}/none.db", doctor.NOTE, "not there yet"),
    ("sqlite:////{}/junk.db", doctor.BAD, "the file is damaged (file is not a database)"), 
    ("sqlite:////{}/emptied.db", doctor.BAD, "has 0 bytes"), ("nonsense", doctor.BAD, "no address of a database"),
    ("postgresql+psycopg://u:secret@127.0.0.1:1/x", doctor.BAD, "u:***@127.0.0.1:1/x")])
def test_a_gradebook_that_cannot_be_used(tmp_path, url, state, words):
    (folder := tmp_path / "my course 课程").mkdir()
    (folder / "junk.db").write_bytes(b"junk" * 1000)
    (folder / "emptied.db").touch()
    (found,) = doctor._gradebook(url := url.format(str(folder).lstrip("/")))
    assert found.state == state and words in found.what and "secret" not in found.what + found.do
    assert "secret" in url or url.removeprefix("sqlite:///") in found.what  # a path stays, whatever its letters
    damaged, driver = "db" in url and state == doctor.BAD, importlib.util.find_spec("psycopg") is not None
    assert ("Put a copy of it back" in found.do) == damaged
    assert ("Is the server up" in found.do) == ("secret" in url and driver)


def test_a_gradebook_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (found,) = doctor._gradebook(f"sqlite:///{tmp_path}/none.db")
    assert found.state == doctor.BAD and "not writable" in found.what and "db_url" in found.do


def test_too_little_memory_and_disk(monkeypatch):
    monkeypatch.setattr(doctor.machine, "free_memory", lambda: 100 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 10, 0))
    assert [f.state for f in doctor._room()] == [doctor.BAD] * 3


def test_what_the_doctor_itself_cannot_do_is_the_graders_fault(options, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_packages", lambda lock: 1 / 0)
    assert main(["doctor", "--student", *options]) == 3
    assert any("ZeroDivisionError" in line for line in lines(capsys))
    assert main(["doctor", "--release", str(tmp_path)]) == 3  # a folder without a release
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--release", "/nowhere"])
    assert end.value.code == 2


def test_the_course_id_is_that_of_the_contents(course):
    def now():
        return doctor.course_id(Course(course.release, course.checks))
    before, path = now(), next(Path(course.release).glob("*/*.ipynb"))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))  # a checkout on Windows
    assert now() == before
    path.write_bytes(path.read_bytes().replace(b"Little", b"Large"))
    assert now() != before


@pytest.mark.parametrize("lies, advice", [("in the repository", "pip install -e '.[course]'"),
                                          ("in a wheel", "pip install 'WHEEL[course]', with the course's wheel")])
def test_without_nbgrader_one_can_grade_and_is_told_how_to_get_it(monkeypatch, tmp_path, lies, advice):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nbgrader" else find(name))
    if lies == "in a wheel":
        monkeypatch.setattr(doctor, "REPOSITORY", tmp_path)
    (found,) = doctor._nbgrader()
    assert found.state == doctor.NOTE and "grading works" in found.what and found.do.endswith(advice)
