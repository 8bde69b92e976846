"""A run that was killed, interrupted, or has no place to write, and is resumed. What kills leave: test_batch.py."""
import contextlib
import errno
import os

import nbformat
import pytest

from autograder.__main__ import main
from autograder.commandline import typed
from autograder.commands import grade as grading
from autograder.grading.grade import Report
from autograder.grading.submissions import pack

from . import little_course as little
from .test_grading import options  # noqa: F401  (a fixture)


def test_fresh_stays_fresh_when_it_is_killed_and_resumed(tmp_path, options, monkeypatch, capsys):  # noqa: F811
    """What a killed --fresh had still to replace is graded by --resume, and not taken for done."""
    lives = iter([4, 4, 1, 4])  # submissions that each run grades before it is killed

    def graded(order, submissions, pool):
        for submission, _ in zip(submissions, range(next(lives)), strict=False):
            yield submission, (parcel := pack(submission)), Report(submission.student, [], parcel.digest)
        if len(submissions) == 4 and _ == 0:
            raise KeyboardInterrupt
    monkeypatch.setattr(grading, "grade_all", graded)
    monkeypatch.setattr(grading, "_pool", lambda *_: ())
    for i in range(4):
        nbformat.write(little.notebook(), tmp_path / f"s{i}.ipynb")
    out, said = ["--out", str(tmp_path / "out")], []
    asked = [str(tmp_path), *map(str, options)]
    for arguments in (asked, [*asked, "--fresh"], [*asked, "--fresh"], ["--resume"]):
        with contextlib.suppress(KeyboardInterrupt):
            main(["grade", *arguments, *out])
        said.append(capsys.readouterr().err)
    assert "4 graded, 0 unchanged" in said[0] and "4 graded, 0 unchanged" in said[1]
    again = typed("grade", "--resume", "--out", tmp_path / "out")
    assert f"autograder: interrupted. What was graded is kept: `{again}` goes on" in said[2]
    assert "unchanged" not in said[2] and "3 graded, 1 unchanged" in said[3]


@pytest.mark.parametrize("fails, why", [(1, "No space left on device"), (3, "Read-only file system")])
def test_a_place_that_cannot_be_written_is_said_in_a_line_and_nothing_is_lost(
        tmp_path, options, monkeypatch, capsys, fails, why):  # noqa: F811
    """As when the disk gets full: at the first result, or at the third."""
    def graded(order, submissions, pool):
        for submission in submissions:
            yield submission, (parcel := pack(submission)), Report(submission.student, [], parcel.digest)
    monkeypatch.setattr(grading, "grade_all", graded)
    monkeypatch.setattr(grading, "_pool", lambda *_: ())
    for i in range(4):
        nbformat.write(little.notebook(), tmp_path / f"s{i}.ipynb")
    out = tmp_path / "out"
    given = ["grade", *(str(tmp_path / f"s{i}.ipynb") for i in range(4)), *map(str, options), "--out", str(out)]
    replace, code = os.replace, errno.ENOSPC if fails == 1 else errno.EROFS

    def full(source, target):
        if len(list((out / "submissions").glob("*.json"))) >= fails:
            raise OSError(code, os.strerror(code), source)
        replace(source, target)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert main(given) == 3
    said = f"autograder: {out} cannot be written: {why}. Name another place with --out"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert not list(out.rglob(".*-*"))
    assert main(given) == 0 and f"{4 - fails} graded, {fails} unchanged" in capsys.readouterr().err


def test_a_results_folder_that_is_a_file_is_said_too(tmp_path, options, capsys):  # noqa: F811
    nbformat.write(little.notebook(), tmp_path / "s.ipynb")
    (tmp_path / "file").touch()
    for out, why in ((tmp_path / "file", "Not a directory"), (tmp_path / "file" / "out", "Not a directory")):
        assert main(["grade", str(tmp_path / "s.ipynb"), *map(str, options), "--out", str(out)]) == 3
        assert capsys.readouterr().err == f"autograder: {out} cannot be written: {why}. Name another place with --out\n"


def test_a_full_temporary_folder_is_said_and_another_fault_is_not_hidden(tmp_path, options, monkeypatch, capsys):  # noqa: F811
    nbformat.write(little.notebook(), tmp_path / "s.ipynb")
    given = ["grade", str(tmp_path / "s.ipynb"), *map(str, options), "--out", str(tmp_path / "out")]

    def fails(code):
        def make_stage(folder):
            raise OSError(code, os.strerror(code), str(folder))
        return make_stage
    monkeypatch.setattr("autograder.grading.batch.make_stage", fails(errno.ENOSPC))
    assert main(given) == 3
    assert "cannot be written: No space left on device. Make room, or name another" in capsys.readouterr().err
    monkeypatch.setattr("autograder.grading.batch.make_stage", fails(errno.EBADF))
    with pytest.raises(OSError, match="Bad file"):
        main(given)
