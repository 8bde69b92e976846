"""Grading for real: the command line, real sandboxes, and a batch of submissions for all tests.

Hostile submissions, and those that met with an accident, are in tests/hostile.

Marks are in the order of the little course's exercises: 90.1 a loop (2), 90.2 a number (1), 90.3 a function (3),
90.4 a kernel (4).
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from autograder.__main__ import VERBS, main
from autograder.course.release import Course
from autograder.grading.batch import BatchError
from autograder.grading.cluster import Cluster
from autograder.grading.grade import Grader, Report, _Run
from autograder.grading.report import LEGEND, SIGNS
from autograder.grading.transplant import transplant
from autograder.grading.workers import Workers
from autograder.sandbox.bubblewrap import find_sandbox, make_stage
from autograder.sandbox.remote import OVERRUN
from tests.conftest import open_to_all
from tests.survivors import survivors

from . import little_course as little

pytestmark = pytest.mark.classroom
ROOT = Path(__file__).parents[2]
NUMBERS = list(little.STUBS)
FULL = [2, 1, 3, 4]

PATCHER = """import builtins, sys, numpy, pallas_lite, autograder
builtins.abs = builtins.all = lambda *_: True
numpy.abs = numpy.argwhere = lambda *_: []
pallas_lite.verify = autograder.check = lambda *_, **__: []
for module in list(sys.modules.values()):
    for name in ("close", "same_array", "judge", "verify"):
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)
"""
SPY = """import os, socket
seen = []
for folder, below, files in os.walk("/"):
    below[:] = [d for d in below if d != "nbgrader" and (folder != "/" or d not in ("proc", "usr"))]
    seen += [f"{folder}/{f}" for f in files + below
             if any(w in f for w in ("little_course", "chapter3", "90_little", "gradebook.db", "solutions", "mutants"))]
try:
    socket.create_connection(("1.1.1.1", 53), timeout=1)
    seen.append("network")
except OSError:
    pass
seen += [p for p in os.listdir("/proc") if p.isdigit() and int(p) > 50]
assert not seen, seen
assert os.getuid() != 0
"""


def submissions():
    """Name -> (notebook or text, marks)."""
    right = little.RIGHT
    made = {
        "all_right": (little.notebook(right), FULL),
        "crashes_and_loops": (little.notebook(right | {"90.1": "import os\nos._exit(1)", "90.2": "while True: pass"}),
                              [0, 0, 3, 4]),
        "ends_when_called": (little.notebook(right | {
            "90.1": "def loop(*_):\n    import os\n    os.kill(os.getpid(), 11)",
            "90.3": "def double(x):\n    while True: pass"}), [0, 1, 0, 4]),
        "endless_from_five": (little.notebook(right | {
            "90.1": right["90.1"].replace("    for i", "    while N > 4: pass\n    for i")}), [0, 1, 3, 4]),
        "patches_the_grader": (little.notebook({"90.1": PATCHER + "def loop(*_): pass", "90.2": "time = 9",
                                                "90.3": "def double(x): return x"}), [0, 0, 0, 0]),
        "odd_but_right": (little.notebook(right | {
            "90.1": SPY + "open('numpy.py', 'w').write('1/0')\nprint('a' * 150_000_000)\n" + right["90.1"],
            "90.2": "%%time\n时间 = 2.5\ntime = 时间",
            "90.3": "%matplotlib inline\n!true\n" + right["90.3"] + "\n1/0"}), FULL),
        "right_up_to_four": (little.notebook(right | {
            "90.1": right["90.1"].replace("range(N)", "range(min(N, 4))")}), [0, 1, 3, 4]),
        "chinese_中文": (little.notebook(), [0, 0, 0, 0]),
    }
    other = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", id="elsewhere")])
    made |= {"cut_off": (nbformat.writes(made["all_right"][0])[:1500], None), "empty": ("", None),
             "another_course": (other, None)}
    return made


def run(*arguments, cwd=None, **environment):
    """The command line, as an instructor runs it."""
    return subprocess.run(
        [sys.executable, "-m", "autograder", *map(str, arguments)], capture_output=True, text=True, timeout=900,
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "JAX_PLATFORMS": "cpu", **environment})


@pytest.fixture(scope="session")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    (folder / little.UNIT).mkdir()
    nbformat.write(little.notebook(), folder / little.UNIT / f"{little.NAME}.ipynb")
    return "--release", folder, "--checks", "tests.autograder.little_course", "--timeout", "3"


@pytest.fixture(scope="session")
def graded(tmp_path_factory, options, sandbox):
    folder, out = tmp_path_factory.mktemp("submitted"), tmp_path_factory.mktemp("results")
    for name, (content, _) in submissions().items():
        path = folder / name / little.UNIT / f"{little.NAME}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(content if isinstance(content, str) else nbformat.writes(content), encoding="utf-8")
    (folder / "nothing_handed_in").mkdir()
    done = run("grade", folder, "--jobs", 2, "--out", out, *options)
    assert (out / "results.json").exists(), done.stdout + done.stderr
    reports = json.loads((out / "results.json").read_text(encoding="utf-8"))["submissions"]
    return done, {r["student"]: r for r in reports}, out


@pytest.mark.parametrize("name", [n for n, (_, marks) in submissions().items() if marks])
def test_marks(graded, name):
    report = graded[1][name]
    marks = [report["marks"][n]["points"] for n in NUMBERS]
    assert (report["status"], marks) == ("graded", submissions()[name][1]), report
    assert report["points"] == sum(marks) and report["max_points"] == 10


@pytest.mark.parametrize("name, words", {
    "cut_off": "cut off", "empty": "empty", "another_course": "not a notebook of this course",
    "nothing_handed_in": "no notebook in this folder"}.items())
def test_what_cannot_be_read_has_a_row_and_no_mark(graded, name, words):
    report = graded[1][name]
    assert report["status"] == "unreadable" and report["points"] is None and words in report["warnings"][0]


@pytest.mark.parametrize("name, number, words", [
    ("crashes_and_loops", "90.1", "ended Python (exit status 1)"), ("crashes_and_loops", "90.2", "past the time limit"),
    ("chinese_中文", "90.1", "not done yet"),
])
def test_the_message_says_what_happened(graded, name, number, words):
    assert words in graded[1][name]["marks"][number]["message"]


def test_a_mark_tells_what_the_notebooks_own_check_says(graded):
    hidden = graded[1]["right_up_to_four"]["marks"]["90.1"]
    assert hidden["details"]["smallest failing case"] == "N = 5" and hidden["visible"] == {}
    forged = graded[1]["patches_the_grader"]["marks"]["90.1"]
    assert forged["visible"]["smallest failing case"] == "N = 1" and forged["visible"]["message"]
    assert graded[1]["all_right"]["marks"]["90.1"]["visible"] is None


def test_an_answer_that_ended_its_process_on_hidden_trials_is_asked_again_in_another(graded):
    dies = graded[1]["ends_when_called"]["marks"]
    assert dies["90.1"]["visible"] == {"message": "your code made Python crash (SIGSEGV)"}
    assert dies["90.3"]["visible"]["message"] == OVERRUN and dies["90.4"]["points"] == 4
    hangs = graded[1]["endless_from_five"]["marks"]
    assert hangs["90.1"]["message"] == OVERRUN and hangs["90.1"]["visible"] == {} and hangs["90.4"]["points"] == 4


@pytest.fixture
def run_of(options, tmp_path, sandbox):
    """Answers -> the run of their notebook, with its sandbox."""
    course = Course(str(options[1]), (options[3],))
    stage = make_stage(tmp_path / "stage")
    open_to_all(tmp_path)
    grader = Grader(course, find_sandbox(stage), timeout=1)
    with Workers(grader.sandbox) as workers:
        yield lambda answers: _Run(grader, workers, transplant(course.notebooks[0], little.notebook(answers))[0],
                                   Report("ann", [], ""))


ENDLESS = "def loop(*_):\n    while True: pass\n"


@pytest.mark.parametrize("left, visible", [(20, {"message": OVERRUN}), (-1, None)])
def test_what_asking_the_notebooks_check_takes_costs_no_later_mark(run_of, left, visible):
    """It has a time of its own. When that is spent, nothing is asked, and nothing lost."""
    run = run_of(little.RIGHT | {"90.1": ENDLESS})
    run.asking, until = left, run.until
    marks = run.marks()
    assert ([marks[n].points for n in NUMBERS], marks["90.1"].visible) == ([0, 1, 3, 4], visible)
    took = run.until - until  # on the visible check: at least its second of processor time
    assert took >= 1 if visible else took < 1
    assert left - run.asking == pytest.approx(took, abs=0.1)


def test_an_answer_whose_cell_was_not_reached_is_told_so(run_of):
    run = run_of({"90.1": "import time\ntime.sleep(1)\n" + little.RIGHT["90.1"], "90.2": little.RIGHT["90.2"]})
    run.budget, run.until = 0.5, time.monotonic() + 0.5
    assert {mark.message for mark in run.marks().values()} == {"the notebook as a whole took longer than 0.5 s"}


def test_a_cell_that_fails_only_while_the_notebooks_check_is_asked_costs_nothing(run_of):
    """A busy machine may do that. This one ends its process the second time."""
    second = "open('/work/runs', 'a').write('x')\nif len(open('/work/runs').read()) == 2:\n    while True: pass"
    run = run_of(little.RIGHT | {"90.1": ENDLESS + second})
    marks = run.marks()
    assert len(run.failed) == len(run.skipped) == 0 and not run.report.warnings
    assert ([marks[n].points for n in NUMBERS], marks["90.1"].visible) == ([0, 1, 3, 4], None)


def test_the_batch_says_that_something_was_unreadable_and_shows_a_row_for_each(graded):
    done, reports, out = graded
    assert done.returncode == 2, done.stderr
    assert len(reports) == len(submissions()) + 1
    rows = (out / "results.csv").read_text(encoding="utf-8-sig").splitlines()
    assert len(rows) == len(reports) + 1
    assert [r.split(",")[0] for r in rows[1:]] == sorted(reports)
    for name in reports:
        assert name in done.stdout
    assert LEGEND in done.stdout


def test_a_failing_schedule_is_told_with_its_table(graded, tmp_path, options):
    bad = little.RIGHT["90.1"].replace("        copy_in_wait(X[0])\n", "")
    nbformat.write(little.notebook({"90.1": bad}), tmp_path / "ann.ipynb")
    done = run("validate", tmp_path / "ann.ipynb", *options)
    assert done.returncode == 1
    for words in ("✗ 90.1", "first wrong step: step 0, slot X[0]", "✗ read before wait", "nudge: Wait for it.",
                  "… 90.2"):
        assert words in done.stdout


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("answers, code", [(little.RIGHT, 0), ({}, 1)])
def test_validates_exit_code(tmp_path, options, answers, code):
    nbformat.write(little.notebook(answers), tmp_path / "ann.ipynb")
    assert run("validate", tmp_path / "ann.ipynb", *options).returncode == code


STOP = "raise SystemExit('a module of the student was imported')"


@pytest.mark.usefixtures("sandbox")
def test_no_module_is_taken_from_the_folder_that_one_grades_in(tmp_path, options):
    nbformat.write(little.notebook(little.RIGHT), tmp_path / "ann.ipynb")
    for name in ("json", "numpy", "rich", "nbformat", "pallas_lite", "sitecustomize", "argparse", "signal"):
        (tmp_path / f"{name}.py").write_text(STOP)
    done = run("validate", "ann.ipynb", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_takes_no_autograder_from_the_folder_that_one_grades_in(tmp_path):
    for name in ("autograder", "numpy", "jax", "pallas_lite", "rich"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(STOP)
    for name in ("json", "numpy"):
        (tmp_path / f"{name}.py").write_text(STOP)
    script = tmp_path / "bin" / "autograder"  # as pip writes it
    script.parent.mkdir()
    script.write_text("import sys\nfrom autograder.__main__ import main\nsys.exit(main())\n")

    def teaches(how, path):
        done = subprocess.run([sys.executable, *how, "--help"], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0 and "Builds the course" in done.stdout, done.stdout + done.stderr
    teaches([script], f"{ROOT}{os.pathsep}")  # whose empty part is the current folder
    # Where Python looks into it, Python itself imports these, before any file of ours.
    for name in ("types", "functools", "operator"):
        (tmp_path / f"{name}.py").write_text(STOP)
    for how in ([script], ["-P", "-m", "autograder"]):
        teaches(how, str(ROOT))


@pytest.mark.usefixtures("sandbox")
def test_unreadable_and_faults_have_exit_codes_of_their_own(tmp_path, options):
    (tmp_path / "cut.ipynb").write_text('{"cells": [')
    assert run("validate", tmp_path / "cut.ipynb", *options).returncode == 2
    (tmp_path / "no_release").mkdir()
    done = run("grade", tmp_path, "--release", tmp_path / "no_release", "--out", tmp_path / "out")
    assert done.returncode == 3 and "autograder build" in done.stderr


@pytest.mark.parametrize("wrong, words", [
    (["submited"], "there is no such file or folder: submited"), ([".", "--jobs", "0"], "whole number, at least 1"),
    ([".", "--jobs", "-2"], "whole number, at least 1"),
    ([".", "--release", "relase"], "there is no folder relase"),
    ([".", "--scheduler", "tcp://127.0.0.1:1"], "scheduler"),
])
def test_what_cannot_begin_leaves_the_last_run_as_it_was(tmp_path, options, monkeypatch, capsys, wrong, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ann.ipynb").write_text('{"cells": [')
    out = tmp_path / "out"
    out.mkdir()
    for name in ("run.json", "results.json", "results.csv"):
        (out / name).write_text(name)
    try:
        code = main(["grade", "--out", "out", *map(str, options), *wrong])
    except SystemExit as end:
        code = end.code
    assert code == (3 if "--scheduler" in wrong else 2)
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert all((out / name).read_text() == name for name in ("run.json", "results.json", "results.csv"))


def test_without_dask_there_is_one_recipe(monkeypatch, capsys):
    recipe = "pip install -e '.[cluster]'"
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BatchError, match=re.escape(recipe)):
        Cluster(None, "tcp://head:8786")
    with pytest.raises(SystemExit):
        main(["grade", "--help"])
    assert recipe in capsys.readouterr().out and recipe in (ROOT / "docs" / "grading.md").read_text()
    told = [*ROOT.glob("autograder/**/*.py"), *ROOT.glob("pallas_lite/**/*.py"), *ROOT.glob("docs/*.md")]
    assert not [p for p in told if "pip install 'pallas-lite" in p.read_text()]  # which no index has


def test_help_has_the_exit_codes_of_its_verb_alone(capsys):
    def codes(verb):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        return capsys.readouterr().out.partition("exit codes:\n")[2]
    assert [line[2] for line in codes("grade").splitlines() if line[2] != " "] == ["0", "2", "3"]
    assert codes("validate").startswith("  0  the notebook passes\n  1  it does not\n  2  it could not be read; or")
    assert "2  a wrong command line" in codes("doctor") and "validate" not in codes("doctor")
    for verb in VERBS:
        assert codes(verb.__name__.rpartition(".")[2]).startswith("  0  ")


def test_every_sign_of_the_table_is_explained():
    assert all(sign in LEGEND for sign in SIGNS.values())


def test_what_the_last_run_was_asked_for_may_be_gone(tmp_path, options, capsys):
    out = tmp_path / "out"
    out.mkdir()
    asked = {"version": 1, "paths": ["gone"], "timeout": 20.0, "release": str(options[1]), "checks": None}
    (out / "run.json").write_text(json.dumps(asked))
    with pytest.raises(SystemExit) as end:
        main(["grade", "--resume", "--out", str(out)])
    assert end.value.code == 2 and "no such file or folder" in capsys.readouterr().err
    assert sorted(p.name for p in out.iterdir()) == [".lock", "run.json", "submissions"]


def test_without_a_sandbox_it_refuses_and_names_the_ways_out(tmp_path, options):
    nbformat.write(little.notebook(little.RIGHT), tmp_path / "ann.ipynb")
    done = run("validate", tmp_path / "ann.ipynb", *options, PATH="/nowhere")
    assert done.returncode == 3
    assert "bwrap" in done.stderr and "--unsafe-no-sandbox" in done.stderr
    done = run("validate", tmp_path / "ann.ipynb", *options, "--unsafe-no-sandbox", PATH="/nowhere")
    assert done.returncode == 0 and "WITHOUT A SANDBOX" in done.stderr


def test_nothing_survives_a_batch(graded):
    assert not survivors()


@pytest.mark.usefixtures("sandbox")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has both ways to lock code in")
def test_both_kinds_of_sandbox_start(tmp_path):
    from autograder.sandbox.bubblewrap import Sandbox, make_stage
    from autograder.sandbox.remote import Clock, Worker
    stage = make_stage(tmp_path / "stage")
    open_to_all(tmp_path)
    for mode in ("drop", "user"):
        worker = Worker(Sandbox(stage, mode))
        try:
            assert worker.request("run", {"source": SPY}, Clock(20)) == ("ok", None)
        finally:
            worker.close()
