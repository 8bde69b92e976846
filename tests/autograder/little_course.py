"""A course of one chapter, small enough to be read at a glance: its checks, its release, and ways to answer it.

Exercises: 90.1 a loop, 90.2 a number, 90.3 a function, 90.4 a kernel. Also imported by the grader's own processes.
"""
from pathlib import Path

import nbformat
import numpy as np
from nbformat import v4

import pallas_lite as pl
from autograder.checks.kernels import insist_made_by
from autograder.course.release import Course
from autograder.exercise import Wrong, exercise
from autograder.judge.handle import close, same_array

UNIT, NAME = "unit9", "90_little"


@exercise("90.1", "A loop", points=2)
def loop(answer, trial):
    for n in trial.pick(visible=(1, 2), hidden=(0, 1, 2, 5)):
        schedule = answer.schedule(n, depth=1)
        if hazards := pl.verify(schedule):
            raise Wrong("The loop has a hazard.", case=f"N = {n}", schedule=schedule, hazard=hazards,
                        nudge="Wait for it.")
        if schedule.steps != n:
            raise Wrong("The loop does not run every step.", case=f"N = {n}", got=schedule.steps, expected=n)


@exercise("90.2", "A number", points=1)
def number(answer, trial):
    close(answer.value(), 2.5, "µs", slips={5.0: "Both ways at once."})


@exercise("90.3", "A function", points=3)
def function(answer, trial):
    for n in range(4):
        x = trial.rng.integers(-9, 9, n).astype(np.float32)
        same_array(answer.call(x), 2 * x, case=f"{n} numbers")


@exercise("90.4", "A kernel", points=4)
def kernel(answer, trial):
    x = trial.rng.normal(size=(8, 4)).astype(np.float32)
    run = answer.kernel(x)
    same_array(run.result, x + 1)
    if run.made != 1 or run.calls[0].grid != (2,):
        raise Wrong("The kernel should run in two steps.", got=[c.grid for c in run.calls])
    insist_made_by(run.calls[0], 0, x + 1, "")


SETUP = """import numpy as np

import pallas_lite as pl
from autograder import check
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait
BASE = 2"""
STUBS = {
    "90.1": "def loop(N, A, X, Y, B):\n    raise NotImplementedError('Exercise 90.1 is not done yet')",
    "90.2": "time = ...",
    "90.3": "def double(x):\n    raise NotImplementedError('Exercise 90.3 is not done yet')",
    "90.4": "def add_one(x):\n    raise NotImplementedError('Exercise 90.4 is not done yet')"}
NAMES = {"90.1": "loop", "90.2": "time", "90.3": "double", "90.4": "add_one"}
POINTS = {"90.1": 2, "90.2": 1, "90.3": 3, "90.4": 4}
RIGHT = {
    "90.1": """def loop(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])""",
    "90.2": "time = 2.5",
    "90.3": "def double(x):\n    return BASE * x",
    "90.4": """def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

def add_one(x):
    block = pl.BlockSpec((4, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, x, grid=(2,), in_specs=[block], out_specs=block)(x)"""}


def answer_cell(number, source):
    cell = v4.new_code_cell(source, id=f"ex-{number}".replace(".", "-"))
    cell.metadata.nbgrader = {"grade": False, "grade_id": cell.id, "locked": False, "schema_version": 3,
                              "solution": True, "task": False}
    return cell


def check_cell(number):
    cell = v4.new_code_cell(f'check("{number}", {NAMES[number]})', id=f"test-{number}".replace(".", "-"))
    cell.metadata.nbgrader = {"grade": True, "grade_id": cell.id, "locked": True, "schema_version": 3,
                              "solution": False, "task": False, "points": POINTS[number]}
    return cell


def notebook(answers=None):
    """The release, with these answers in its holes."""
    cells = [v4.new_markdown_cell("# Little", id="title"), v4.new_code_cell(SETUP, id="setup"),
             v4.new_code_cell("print(pl.record(lambda *_: None, 0))  # only shows something", id="demo")]
    for number in STUBS:
        cells += [answer_cell(number, (answers or {}).get(number, STUBS[number])), check_cell(number)]
    return v4.new_notebook(cells=cells)


def released(folder: Path, made=None) -> Course:
    """The course, with its release (or another one, `made`) below this folder."""
    (folder / UNIT).mkdir(parents=True)
    nbformat.write(made or notebook(), folder / UNIT / f"{NAME}.ipynb")
    return Course(str(folder), ("tests.autograder.little_course",))
