"""The gradebook in a real PostgreSQL: a server of the test's own, on a socket in a temporary folder."""
import csv
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.__main__ import main
from autograder.course.release import Course
from autograder.grading.grade import Mark, Report
from autograder.grading.report import write
from autograder.nbgrader import gradebook
from tests.autograder import little_course as little
from tests.conftest import require

from .instructor import CHECKS, Instructor

pytestmark = pytest.mark.classroom


class Server:
    """PostgreSQL refuses to run as root, so root starts it as another user."""

    def __init__(self, folder: Path, binaries: Path):
        self.folder, self.binaries = folder, binaries
        self.user = {} if os.geteuid() else {"user": "nobody", "group": "nogroup", "extra_groups": []}
        subprocess.run([binaries / "initdb", "-D", folder / "data", "-U", "course", "--auth=trust", "--no-sync",
                        "--locale=C", "--encoding=UTF8"], check=True, capture_output=True, cwd=folder, **self.user)
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [self.binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, "-c", "listen_addresses=",
             "-c", "fsync=off"], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.user)
        until = time.monotonic() + 60
        while subprocess.run([self.binaries / "pg_isready", "-h", self.folder], capture_output=True).returncode:
            assert self.process.poll() is None and time.monotonic() < until, "PostgreSQL did not start"
            time.sleep(0.1)

    def stop(self):
        self.process.send_signal(2)  # "fast": connections are ended
        self.process.wait(60)

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://course@/postgres?host={self.folder}"


@pytest.fixture
def server():
    found = sorted((p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")), reverse=True)
    found += [Path(p).resolve().parent for p in filter(None, [shutil.which("initdb")])]
    binaries = require(next(iter(found), None), "PostgreSQL's server (Debian: postgresql)")
    pytest.importorskip("psycopg", reason="the [postgres] extra is not installed") if not os.environ.get("CI") else None
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: the name of a socket has little room
    if not os.geteuid():
        shutil.chown(folder, "nobody", "nogroup")
    server = None
    try:
        server = Server(folder, binaries)
        yield server
    finally:
        if server is not None and server.process.poll() is None:
            server.stop()
        shutil.rmtree(folder)


def reports(*points: float) -> list[Report]:
    """Ann's marks, and those of a student with a name that is not ASCII."""
    made = []
    for student, earned in (("ann", points), ("李雷", (2.0, 1.0, 3.0, 4.0))):
        marks = {n: Mark(p, float(little.POINTS[n]), "right" if p else "wrong", "said")
                 for n, p in zip(little.POINTS, earned, strict=True)}
        made.append(Report(student, [f"{little.NAME}.ipynb"], "0" * 64, marks=marks))
    return made


def test_a_gradebook_in_postgresql(server, tmp_path, monkeypatch, capsys):
    course = Instructor(tmp_path / "course", url=server.url)
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(course.root / "config"))
    released = Course(str(course.root / "notebooks"), (CHECKS,))
    write(reports(2.0, 0.0, 3.0, 0.0), course.results)

    # By the command, into an empty database, whose address comes from the instructor's own settings.
    command = ["gradebook", "--results", str(course.results), *course.options]
    assert main(command) == 0
    assert "marks of 2 students into postgresql+psycopg://course@/postgres" in capsys.readouterr().err
    ann = {"test-90-1": 2, "test-90-2": 0, "test-90-3": 3, "test-90-4": 0}
    assert gradebook.scores(server.url)["ann", little.UNIT] == ann
    assert gradebook.write(reports(2.0, 0.0, 3.0, 0.0), server.url, released).changed == 0

    # What was given by hand stays when the submission is graded again.
    with Gradebook(server.url) as book:
        book.find_grade("test-90-4", little.NAME, little.UNIT, "ann").manual_score = 1.5
        book.db.commit()
    assert gradebook.write(reports(0.0, 1.0, 3.0, 0.0), server.url, released).changed == 1
    ann = {"test-90-1": 0, "test-90-2": 1, "test-90-3": 3, "test-90-4": 1.5}
    assert gradebook.scores(server.url)["ann", little.UNIT] == ann

    # nbgrader itself reads it.
    done = course.run("nbgrader", "export", "--to", tmp_path / "grades.csv")
    assert done.returncode == 0, done.stderr
    rows = csv.DictReader((tmp_path / "grades.csv").open(encoding="utf-8"))
    assert {r["student_id"]: float(r["score"]) for r in rows} == {"ann": 5.5, "李雷": 10}

    # A server that is down loses nothing.
    server.stop()
    assert main(command) == 3
    told = capsys.readouterr().err
    assert "could not be written: " in told and "No mark is lost" in told and "autograder gradebook --results" in told
    server.start()
    assert main(command) == 0
    assert gradebook.scores(server.url)["ann", little.UNIT] == \
        {"test-90-1": 2, "test-90-2": 0, "test-90-3": 3, "test-90-4": 1.5}
