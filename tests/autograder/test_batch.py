"""A batch: what is graded again and what is not, and that no way of dying loses, doubles or changes a grade."""
import contextlib
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from rich.console import Console

from autograder.__main__ import main
from autograder.commands import grade as grading
from autograder.course.release import Course, CourseError
from autograder.grading import machine
from autograder.grading.batch import Order, grade_all, remove_abandoned
from autograder.grading.child import ChildDied, grade_parcel
from autograder.grading.grade import Grader, Mark, Report
from autograder.grading.report import ResultsError, read, write
from autograder.grading.store import Store
from autograder.grading.submissions import Parcel, Submission, pack
from autograder.sandbox.bubblewrap import Sandbox

from . import little_course as little
from .test_grading import ROOT, options, run  # noqa: F401  (options is a fixture)

SETTINGS = ("course", 20.0)
REPORT = Report("ann", ["a.ipynb"], "d", marks={"90.1": Mark(2.0, 2.0, "right")})


def test_a_key_changes_with_all_that_a_result_depends_on_and_with_nothing_else(tmp_path):
    (tmp_path / "a.ipynb").write_bytes(b"1")
    parcel = pack(Submission("ann", (str(tmp_path / "a.ipynb"),)))
    assert parcel == Parcel("ann", (("a.ipynb", b"1"),))
    keys = {parcel.key(SETTINGS), parcel.key(("course", 5.0)), parcel.key(("another course", 20.0)),
            *(dataclasses.replace(parcel, **change).key(SETTINGS) for change in (
                {"student": "bob"}, {"files": (("b.ipynb", b"1"),)}, {"files": (("a.ipynb", b"2"),)},
                {"whole": True}, {"problem": "no notebook"}, {"files": (("a.ipynb", "it cannot be read"),)}))}
    assert len(keys) == 9
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.ipynb").write_bytes(b"1")
    assert pack(Submission("ann", (str(elsewhere / "a.ipynb"),))).key(SETTINGS) in keys


def test_a_course_has_another_version_if_its_release_its_checks_or_its_packages_differ(tmp_path):
    def course(text="{}", checks="tests.autograder.little_course"):
        (tmp_path / "unit9").mkdir(exist_ok=True)
        (tmp_path / "unit9" / "a.ipynb").write_text(text)
        return Course(str(tmp_path), (checks,))
    version = course().version
    course().check_version(version)
    for change, words in (({"text": "{ }"}, "release: "), ({"checks": "autograder.checks"}, "checks: ")):
        with pytest.raises(CourseError, match=words):
            course(**change).check_version(version)
    with pytest.raises(CourseError, match="packages: Python .* here, Python 3.9 where the batch was started"):
        course().check_version(version | {"packages": "Python 3.9"})


@pytest.mark.parametrize("text", ["", "{", "null", '{"student": "ann"}', "[1]"])
def test_a_damaged_result_is_noted_and_not_used(tmp_path, text):
    store = Store(tmp_path)
    store.save("k", REPORT)
    assert store.load("k") == REPORT and store.has("k") and not store.damaged
    store.path("k").write_text(text or store.path("k").read_text()[:-9])
    assert not store.has("k") and store.damaged == [store.path("k")]


def test_a_result_whose_sum_was_changed_is_damaged(tmp_path):
    store = Store(tmp_path)
    store.save("k", REPORT)
    store.path("k").write_text(store.path("k").read_text().replace('"points": 2.0', '"points": 1.0', 1))
    assert store.load("k") is None


def test_a_fault_is_not_used_again_and_half_files_are_removed(tmp_path):
    (tmp_path / "submissions").mkdir()
    half = tmp_path / "submissions" / ".k.json-abc"
    half.write_text("{")
    store = Store(tmp_path)
    store.save("k", dataclasses.replace(REPORT, status="fault"))
    assert not store.has("k") and store.load("k").status == "fault" and not store.damaged and not half.exists()


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ResultsError, match="another run is writing"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_the_last_run_is_known_or_asked_for(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ResultsError, match="no run to go on with"):
        store.last_run()
    store.note_run({"paths": ["a"]})
    assert store.last_run() == {"paths": ["a"]}


def test_files_that_cannot_be_read_are_said_and_the_others_graded(tmp_path, monkeypatch):
    seen = []

    def grade(self, submission):
        seen.append(([Path(p).read_bytes() for p in submission.paths], submission.lost))
        return Report(submission.student, [], "", warnings=["later"])
    monkeypatch.setattr(Grader, "grade", grade)
    (tmp_path / "stage").mkdir()
    grader = Grader(Course(), Sandbox(str(tmp_path / "stage"), "none"))
    report = grade_parcel(grader, Parcel("ann", (("a.ipynb", b"1"), ("b.ipynb", "no right"), ("a.ipynb", b"2"))))
    assert seen.pop() == ([b"1", b"2"], (("b.ipynb", "no right"),)) and report.warnings == ["later"]
    assert report.files == ["a.ipynb", "b.ipynb", "a.ipynb"]
    grade_parcel(grader, Parcel("ann", (("b.ipynb", "no right"),)))
    assert seen == [([], (("b.ipynb", "no right"),))] and not list(tmp_path.glob("tmp*"))


class Pool:
    """Runs at once, here; notes how many submissions were on their way together."""

    def __init__(self):
        self.most = self.open = 0

    def width(self):
        return 2

    def submit(self, work, order, parcel):
        import concurrent.futures
        self.open += 1
        self.most = max(self.most, self.open)
        future = concurrent.futures.Future()
        future.set_result(Report(parcel.student, [], ""))
        return future

    def result(self, future, parcel):
        self.open -= 1
        return future.result()

    def close(self):
        pass


def test_few_submissions_are_on_their_way_at_a_time():
    pool = Pool()
    people = [Submission(f"s{i}", (), problem="x") for i in range(20)]
    found = [s.student for s, _, _ in grade_all(Order(Course(), ()), people, pool)]
    assert sorted(found) == sorted(s.student for s in people)
    assert pool.most == 4


def test_a_job_for_each_core_as_far_as_memory_goes(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    for free, jobs in ((10**10, 4), (1.3e9, 2), (5e8, 0), (None, 4)):
        monkeypatch.setattr(machine, "free_memory", lambda free=free: free and int(free))
        assert machine.most_jobs() == jobs


def test_a_grading_process_does_not_make_the_grammar_of_web_addresses():
    """jsonschema would, which nbformat loads: a second and more in each process."""
    code = "import autograder.grading.child, sys; assert 'nbformat' in sys.modules and 'lark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_child_that_dies_twice_is_a_fault_and_once_is_nothing(monkeypatch):
    from autograder.grading import batch

    class Bench:
        left = 2

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def child(self):
            return self

        def grade(self, parcel):
            Bench.left -= 1
            if Bench.left >= 0:
                raise ChildDied
            return REPORT
    monkeypatch.setattr(batch, "bench_for", lambda order: Bench())
    report = batch.work(None, Parcel("ann", ()))
    assert (report.status, report.points) == ("fault", None) and "twice" in report.warnings[0]
    Bench.left = 1
    assert batch.work(None, Parcel("ann", ())) is REPORT


def test_what_a_killed_batch_left_is_removed_and_what_another_one_uses_is_not(monkeypatch, tmp_path):
    import fcntl
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    for name in ("old", "used", "new"):
        (tmp_path / f"autograder-{name}").mkdir()
        (tmp_path / f"autograder-{name}" / "lock").touch()
        if name != "new":
            os.utime(tmp_path / f"autograder-{name}", (1, 1))
    with (tmp_path / "autograder-used" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_abandoned()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["autograder-new", "autograder-used"]


def test_results_of_an_interrupted_run_say_how_many_they_are(tmp_path, options, monkeypatch, capsys):  # noqa: F811
    def interrupted(order, submissions, pool):
        for s in submissions[:2]:
            parcel = pack(s)
            yield s, parcel, Report(s.student, ["a"], parcel.digest, marks={"90.1": Mark(2.0, 2, "right")})
        raise KeyboardInterrupt
    for i in range(6):
        nbformat.write(little.notebook(), tmp_path / f"s{i}.ipynb")
    monkeypatch.setattr(grading, "grade_all", interrupted)
    monkeypatch.setattr(grading, "_pool", lambda *_: Pool())
    out, release = tmp_path / "out", [str(o) for o in options[:4]]
    paths = [tmp_path / f"s{i}.ipynb" for i in range(6)]
    assert main(["grade", *map(str, (*paths, *options)), "--out", str(out)]) == 3
    data = json.loads((out / "results.json").read_text())
    assert (data["complete"], data["of"], len(data["submissions"])) == (False, 6, 2)
    words = f"2 of 6 submissions: the last run did not come to its end. `autograder grade --resume --out {out}` goes on"
    capsys.readouterr()
    for verb, where in (("export", ["--out", tmp_path / "e"]), ("feedback", ["--out", tmp_path / "f"]),
                        ("gradebook", ["--gradebook", f"sqlite:///{tmp_path}/gradebook.db"])):
        assert main([verb, "--results", str(out), *map(str, where), *release]) == 0
        assert words in capsys.readouterr().err, verb


VERBS = (("export", "--out"), ("feedback", "--out"), ("gradebook", "--gradebook"))


@pytest.fixture
def ask(tmp_path, options, capsys, monkeypatch):  # noqa: F811
    """Each verb that reads results -> what it says beside, and its exit code."""
    from autograder.nbgrader import gradebook
    monkeypatch.setattr(gradebook, "write", lambda *_: gradebook.Written())

    def asked(verbs=VERBS):
        found = {}
        for verb, option in verbs:
            where = f"sqlite:///{tmp_path}/gradebook.db" if verb == "gradebook" else str(tmp_path / verb)
            code = main([verb, "--results", str(tmp_path / "out"), option, where, *map(str, options[:4])])
            found[verb] = code, capsys.readouterr().err
        return found
    return asked


def test_results_older_than_a_run_that_was_killed_or_goes_on_say_so(tmp_path, ask):
    out, killed = tmp_path / "out", "the last one was killed before it came to its end"
    go_on = f"`autograder grade --resume --out {out}` goes on"
    store = Store(out)
    run = store.note_run({"paths": ["a"]})
    assert all(code == 2 and "no results" in err and "still grading" in err for code, err in ask(VERBS[:1]).values())
    store.close()  # as the kernel does with the lock of a process that is killed
    assert all(code == 2 and killed in err and go_on in err for code, err in ask().values())
    write([REPORT], out, run=run)
    assert "earlier run" not in ask(VERBS[:1])["export"][1]
    assert Store(out).note_run({"paths": ["a"]}) != run
    for verb, (code, err) in ask().items():
        assert code == 0 and f"! these are the results of an earlier run: {killed}. {go_on}" in err, verb


def test_a_batch_says_how_far_it_is_and_how_long_it_will_take():
    people = [Report(f"s{i}", [], "") for i in range(1, 21)]
    log, terminal = io.StringIO(), io.StringIO()
    grading._shown(iter(people), 20, Console(file=log, width=100))
    lines = log.getvalue().splitlines()
    assert [line.partition(" graded")[0] for line in lines] == [f"{n} of 20" for n in range(2, 20, 2)]
    assert all(line.endswith("about 0 min left") for line in lines)
    grading._shown(iter(people), 20, Console(file=terminal, width=100, force_terminal=True))
    assert "20/20" in terminal.getvalue() and "0:00:00" in terminal.getvalue() and "s20" in terminal.getvalue()
    hostile = io.StringIO()
    people = [Report("[/x]\x1b]0;owned\x07", [], "")]
    grading._shown(iter(people), 1, Console(file=hostile, width=100, force_terminal=True))
    assert "[/x] ]0;owned" in hostile.getvalue()  # as it is, and nothing that a terminal obeys


def test_a_name_in_any_message_is_harmless_to_a_terminal(tmp_path, options, capsys):  # noqa: F811
    (tmp_path / "s[b]\x1b]0;owned\x07").mkdir()
    (tmp_path / "s[b]\x1b]0;owned\x07" / "a\x1b[2J.ipynb").write_text("{")
    assert main(["similar", str(tmp_path), "--out", str(tmp_path / "similar.html"), *map(str, options[:4])]) == 2
    said = "".join(capsys.readouterr())
    assert "s[b] ]0;owned : " in said and not set(said) & set("\x1b\x07")


def test_complete_results_and_older_ones_say_nothing(tmp_path):
    said, reports = [], [Report("ann", [], "0")]
    write(reports, tmp_path)
    assert read(tmp_path, said.append) == reports and json.loads((tmp_path / "results.json").read_text())["complete"]
    (tmp_path / "results.json").write_text(json.dumps({"version": 1, "submissions": [reports[0].to_plain()]}))
    assert read(tmp_path, said.append) == reports and not said


# ---- for real

@pytest.mark.classroom
@pytest.mark.usefixtures("sandbox")
def test_a_killed_batch_goes_on_where_it_was(tmp_path, options):  # noqa: F811
    """Four submissions; the batch is killed once, a grading process once. benchmarks/kills.py does it 50 times."""
    answers = [little.RIGHT, {}, little.RIGHT | {"90.2": "time = 5.0"}, little.RIGHT]
    for i, answer in enumerate(answers):
        nbformat.write(little.notebook(answer), tmp_path / f"s{i}.ipynb")
    out, marks = tmp_path / "out", [10, 0, 9, 10]
    paths = [tmp_path / f"s{i}.ipynb" for i in range(4)]
    batch = subprocess.Popen([sys.executable, "-m", "autograder", "grade", *map(str, (*paths, *options)), "--out", out],
                             cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    first = wait_for(lambda: sorted((out / "submissions").glob("*.json")), batch)
    os.killpg(batch.pid, signal.SIGKILL)
    batch.wait()
    with pytest.raises(ResultsError, match="the last one was killed before it came to its end"):
        read(out)
    before = {p: p.stat().st_mtime_ns for p in first}
    victim = threading.Thread(target=kill_one_child, args=(out, len(before)))
    victim.start()
    done = run("grade", "--resume", "--jobs", 2, "--out", out)
    victim.join()
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in before} == before  # what was known was not graded again
    assert [(r.student, r.points) for r in read(out)] == [(f"s{i}", m) for i, m in enumerate(marks)]
    assert len(list((out / "submissions").iterdir())) == 4
    assert f"{4 - len(before)} graded, {len(before)} unchanged" in done.stderr

    # One submission is changed and one result is broken: those two are graded, and no other.
    nbformat.write(little.notebook(), paths[3])
    broken = next(p for p in first if json.loads(p.read_text())["student"] != "s3")
    broken.write_text(broken.read_text()[:50])
    done = run("grade", *paths, *options, "--out", out)
    assert "2 graded, 2 unchanged" in done.stderr and f"{broken} is damaged" in done.stderr
    assert [r.points for r in read(out)] == [*marks[:3], 0]


def wait_for(what, process):
    for _ in range(4000):
        if found := what():
            return found
        assert process.poll() is None, process.returncode
        time.sleep(0.05)
    raise AssertionError("nothing in 200 s")


def kill_one_child(out, known):
    """Kills a process that grades, once the batch has filed a result of its own."""
    for _ in range(4000):
        if len(list((out / "submissions").glob("*.json"))) > known:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if "autograder.grading.child" in process.cmdline():
                        process.kill()
                        return
        time.sleep(0.05)


@pytest.mark.parametrize("deaths, runs, points", [(0, 1, 10), (1, 2, 10), (9, 2, 0)])
def test_a_sandbox_killed_from_outside_costs_no_mark_and_one_killed_by_its_code_does(monkeypatch, deaths, runs, points):
    from autograder.grading import grade
    began = []

    def run_it(self, submission, report, workers):
        began.append(1)
        workers._struck = len(began) <= deaths
        report.marks = {"90.1": Mark(0.0 if workers._struck else 10.0, 10.0, "right")}
    monkeypatch.setattr(grade.Grader, "_grade", run_it)
    monkeypatch.setitem(grade.EXERCISES, "90.1", None)
    report = Grader(Course(), Sandbox("", "none")).grade(Submission("ann", ()))
    assert (len(began), report.points) == (runs, points)
