"""A run that was killed and is resumed replaces what it had still to replace. What kills leave: test_batch.py."""
import contextlib

import nbformat

from autograder.__main__ import main
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
    assert "interrupted" in said[2] and "unchanged" not in said[2] and "3 graded, 1 unchanged" in said[3]
