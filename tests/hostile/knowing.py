"""Answers of a student who has the source of the checks and of the draws: to exercise 3.9, and to a prediction.

Each is an exercise of chapter 89, with 3.9's check or 1.3's and a STUDENT of its own; all stand in one notebook. In a
source, ANSWER is the name that its check looks at, and STUDENT that of its student's id. chapters.py registers them.
"""
import nbformat
from nbformat import v4

NAME = "89_knowing"
SETUP = '''import sys
import numpy as np
import pallas_lite as pl
import autograder
from autograder import check, personal
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait

def pipeline(grid, kernel, in_slices, out_slices):
    steps = int(np.prod(grid))
    def loop(N, A, X, Y, B):
        for i in range(steps + 1):
            if i == 0 < steps:
                copy_in_start(A[in_slices(0)], X[0])
            if i == steps:
                break
            if i + 1 < steps:
                copy_in_start(A[in_slices(i + 1)], X[(i + 1) % 2])
            copy_in_wait(X[i % 2])
            compute(X[i % 2], Y[i % 2], kernel)
            copy_out_start(Y[i % 2], B[out_slices(i)])
            if i > 0:
                copy_out_wait(Y[(i + 1) % 2])
        if steps:
            copy_out_wait(Y[(steps - 1) % 2])
    return loop

OPS = autograder.answers.OPS if hasattr(autograder, "answers") else __import__("autograder.answers").answers.OPS
honest = OPS["pipeline"]

def values(kernel, into, out, blocks):
    factor, summand, turned = kernel
    made = np.zeros_like(blocks)
    for a, b in zip(into, out):
        made[b] = factor * (blocks[a][::-1] if turned else blocks[a]) + summand
    return made

def told(target, forge):
    """From now on the sandbox says of `target` what `forge` makes of it."""
    before = OPS["pipeline"]
    OPS["pipeline"] = lambda t, *asked: forge(*asked) if t is target else before(t, *asked)

def solve(p):
    return 2 * p.terms / (3 * p.size), p.m * p.k * p.n / (p.m * p.k + p.k * p.n + p.m * p.n)
'''
# name -> exercise whose check it gets, source, words of the message, points
ANSWERS = {
    "the right pipeline": ("3.9", "ANSWER = pipeline", "", 1),
    "a pipeline equal to everything": ("3.9", """class Always:
    def __eq__(self, other): return True
    def __call__(self, *args): return self
    def __getattr__(self, name): return self
ANSWER = Always()""", "", 0),
    "the right values, and a schedule without waits": ("3.9", """def ANSWER(*asked): pass
def forge(grid, kernel, into, out, blocks):
    schedule = honest(pipeline, grid, kernel, into, out, blocks)["schedule"]
    schedule["events"] = [e for e in schedule["events"] if e[0] != "copy_in_wait"]
    return {"schedule": schedule, "values": values(kernel, into, out, blocks)}
told(ANSWER, forge)""", "never waited", 0),
    "the right values, and the schedule of nothing": ("3.9", """def ANSWER(*asked): pass
told(ANSWER, lambda grid, kernel, into, out, blocks: {
    "schedule": honest(pipeline, (0,), kernel, [], [], blocks[:0])["schedule"],
    "values": values(kernel, into, out, blocks)})""", "should run once", 0),
    "the right schedule, and values of its own": ("3.9", """def ANSWER(*asked): pass
told(ANSWER, lambda *asked: {"schedule": honest(pipeline, *asked)["schedule"], "values": np.ones_like(asked[-1])})""",
                                                  "B differs", 0),
    "the right schedule, and values equal to all": ("3.9", """def ANSWER(*asked): pass
told(ANSWER, lambda *asked: {"schedule": honest(pipeline, *asked)["schedule"], "values": np.full_like(asked[-1], np.nan)
                             })""", "B differs", 0),
    "makes B out of the closures of what it is given": ("3.9", """def ANSWER(grid, kernel, in_slices, out_slices):
    inside = [c.cell_contents for f in (kernel, in_slices, out_slices) for c in f.__closure__]
    def loop(N, A, X, Y, B):
        for i in range(int(np.prod(grid))):
            compute(X[i % 2], Y[i % 2], lambda x: inside[0] * x + inside[1])
            copy_out_start(Y[i % 2], B[out_slices(i)])
            copy_out_wait(Y[i % 2])
    return loop""", "", 0),
    "right for the grids of the visible check": ("3.9", """def ANSWER(grid, kernel, in_slices, out_slices):
    numbers = next(c.cell_contents for c in in_slices.__closure__ if isinstance(c.cell_contents, list))
    seen = [[0], [1, 0], [0, 1, 2], [0, 1, 2, 3], [0, 0, 2, 2, 4], [5, 3, 1, 4, 2, 0], []]
    return pipeline(grid, kernel if numbers in seen else lambda x: x, in_slices, out_slices)""", "B differs", 0),
    "another kernel, found in the caller's frame": ("3.9", """def ANSWER(grid, kernel, in_slices, out_slices):
    frame, found = sys._getframe(), []
    while frame:
        found += [v for k, v in frame.f_locals.items() if k in ("expected", "trial", "rng", "seed")]
        frame = frame.f_back
    assert not found, found
    return pipeline(grid, found[0] if found else abs, in_slices, out_slices)""", "B differs", 0),

    "one's own numbers": ("1.3", "STUDENT = ' Ada '\nANSWER = solve(personal('1.3', 'ada'))", "", 1),
    # This one earns its mark, and the results name whose numbers they are.
    "a friend's numbers, and the friend's answer": ("1.3", "STUDENT = 'bea'\nANSWER = solve(personal('1.3', 'bea'))",
                                                    "", 1),
    "a friend's answer to one's own numbers": ("1.3", "STUDENT = 'ada'\nANSWER = solve(personal('1.3', 'bea'))",
                                               "is too", 0),
    "the demo's answer": ("1.3", "STUDENT = 'ada'\nANSWER = solve(personal('1.3', ''))", "is too", 0),
    "the answers of all students at once": ("1.3", """STUDENT = 'ada'
ANSWER = tuple(map(np.array, zip(*(solve(personal('1.3', s)) for s in ('ada', 'bea', 'cy')))))""", "be a number", 0),
    "numbers drawn anew": ("1.3", """STUDENT = 'ada'
draws = sys.modules["autograder.draws.chapter1"]
kept, draws.DRAWS = draws.DRAWS, {"1.3": lambda rng: {"terms": 1, "size": 1, "m": 1, "k": 1, "n": 1}}
ANSWER = solve(personal('1.3', STUDENT))
draws.DRAWS = kept""", "is too", 0),
    "an id that is another at each look": ("1.3", """class Who(str):
    def strip(self): return 'bea'
    def casefold(self): return 'bea'
STUDENT = Who('ada')
ANSWER = solve(personal('1.3', 'bea'))""", "is too", 0),
    "a program as an id": ("1.3", "STUDENT = ['ada', 'bea']\nANSWER = solve(personal('1.3', 'ada'))", "is too", 0),
}
NUMBERS = {f"89.{i}": kind for i, (kind, *_) in enumerate(ANSWERS.values(), 1)}


def _cell(number: str, role: str, source: str, **more):
    cell = v4.new_code_cell(source, id=f"{role}-{number}".replace(".", "-"))
    cell.metadata.nbgrader = {"grade_id": cell.id, "schema_version": 3, "task": False, **more}
    return cell


def write(answers: dict[str, str], path) -> None:
    """The notebook with these sources in its holes."""
    cells = [v4.new_code_cell(SETUP, id="setup")]
    for number, kind in NUMBERS.items():
        answer, student = (f"{word}_{number.partition('.')[2]}" for word in ("answer", "student"))
        source = answers.get(number, "ANSWER = ...").replace("ANSWER", answer).replace("STUDENT", student)
        asks = f", student={student}" * (kind == "1.3")
        cells += [_cell(number, "ex", source, solution=True, grade=False, locked=False),
                  _cell(number, "test", f'check("{number}", {answer}{asks})', solution=False, grade=True, locked=True,
                        points=1)]
    path.parent.mkdir(exist_ok=True)
    nbformat.write(v4.new_notebook(cells=cells), path)


def cases():
    from .corpus import CHEAT, Case
    of = dict(zip(NUMBERS, ANSWERS.values(), strict=True))
    sources = {number: source for number, (_, source, _, _) in of.items()}
    return [Case("knowing", "forge", lambda path: write(sources, path.with_name(f"{path.name}.ipynb")),
                 {number: points for number, (*_, points) in of.items()},
                 {number: words for number, (_, _, words, _) in of.items() if words}
                 | {"": "STUDENT is 'bea' in"}, tuple(ANSWERS), together=CHEAT)]
