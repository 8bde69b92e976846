"""Answers that want marks for nothing. All earn none. They know the source of the grader, and attack it."""
from dataclasses import replace

from .corpus import Program, chapter, pack

EQUAL = """class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __le__(self, other): return True
    def __call__(self, *args): return self
    def __float__(self): return 2.5
    def __index__(self): return 2
    def __getattr__(self, name): return self
    def __array__(self, *args, **more):
        import numpy
        return numpy.zeros(3)
"""
# All that looks like a judge, in every module that there is.
PATCH = """import builtins, sys, numpy, pallas_lite, autograder
builtins.abs = builtins.all = lambda *_: True
builtins.print = lambda *_: 1.0
numpy.abs = numpy.argwhere = numpy.testing.assert_allclose = lambda *_, **__: []
pallas_lite.verify = autograder.check = lambda *_, **__: []
for module in list(sys.modules.values()):
    for name in ("close", "same_array", "judge", "verify", "insist_values", "insist_made_by"):
        if name in getattr(module, "__dict__", {}):
            setattr(module, name, lambda *_, **__: None)
"""
HOOK = """shell, seen = get_ipython(), []
shell.events.register("pre_run_cell", lambda info: seen.append(info.raw_cell))
import ast, sys
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
    def visit_Raise(self, node): return ast.Pass()
shell.ast_transformers.append(NoAsserts())
sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name) if "expected" in frame.f_locals else None)
shell.display_formatter.formatters["text/plain"].for_type(object, lambda *_: "2.0")
"""
# Looks for the trial, its seed, the expected values, the checks: in modules, frames, the heap, other processes, files.
SEARCH = """import gc, glob, os, sys
def look():
    for name in ("autograder.exercise", "autograder.judge.checking", "autograder.checks.chapter3",
                 "autograder.course.release", "tests.autograder.little_course", "autograder.mutants", "solutions"):
        try:
            __import__(name)
            return sys.modules[name]
        except ImportError:
            pass
    for thing in gc.get_objects():
        if type(thing).__name__ in ("Trial", "Exercise", "Grader", "Report"):
            return thing
    frame = sys._getframe()
    while frame:
        for name in ("expected", "trial", "seed", "rng", "right"):
            if name in frame.f_locals:
                return frame.f_locals[name]
        frame = frame.f_back
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            text = open(path, "rb").read()
        except OSError:
            continue
        if b"little_course" in text or b"gradebook" in text or b"SECRET" in text:
            return text
    for place in ("/", "/course", "/work", "/tmp", "/root", "/home", "/etc"):
        for folder, below, files in os.walk(place):
            below[:] = [b for b in below if b not in ("proc", "usr", "nix", "site-packages")]
            found = [f for f in files if f in ("gradebook.db", "little_course.py", "results.json", "chapter3.py")]
            if [f for f in found if "draws" not in folder]:
                return folder, found
FOUND = look()
"""
# The learner's side of the pipe, taken over: what it says of a call is made up.
TAKE_OVER = """import numpy, sys
answers = sys.modules["autograder.answers"] if "autograder.answers" in sys.modules else __import__(
    "autograder.answers", fromlist=["OPS"])
OPS = answers.OPS
honest = dict(OPS)
"""
RIGHT_VALUES = "def add_one(x):\n    return x + 1\n"
MADE_UP = """operand = {"name": "x", "is_output": False, "depth": 2, "shape": [8, 4], "dtype": "float32",
           "block_shape": [4, 4], "blocks": [[0, 0], [1, 0]], "shares": None, "starts": None}
call = {"name": "kernel", "grid": [2], "operands": [operand, operand | {"name": "o", "is_output": True}],
        "takes": [("given", 0)], "extras": []}
"""
DUMMY = """def dummy(x_ref, o_ref):
    o_ref[...] = x_ref[...]
block = pl.BlockSpec((4, 4), lambda i: (i, 0))
def call(x):
    return pl.pallas_call(dummy, x, grid=(2,), in_specs=[block], out_specs=block)(x)
"""
BUT = "did not make them"
PIPE = """import json, os, struct, threading, time
def message(kind, body, arrays=()):  # whose values are 0
    header = json.dumps({"kind": kind, "body": body, "arrays": [["int8", shape] for shape in arrays]}).encode()
    return struct.pack(">I", len(header)) + header + bytes(sum(n for n, in arrays))
def send(data):
    for fd in range(3, 40):
        try: os.write(fd, data)
        except OSError: pass
"""

LOOPS = [
    Program("equal to everything", "90.1", EQUAL + "loop = Always()", "generator"),
    Program("looks for the hidden trials", "90.1", SEARCH + "assert FOUND is None, FOUND\ndef loop(*_): pass",
            "does not run every step"),
    Program("a schedule of words", "90.1", TAKE_OVER + """def loop(*_): pass
OPS["schedule"] = lambda *_: {"events": [["run"]] * 5, "operands": [], "steps": 5, "hazards": []}""", "not a schedule"),
    Program("a schedule without end", "90.1", TAKE_OVER + """def loop(N, A, X, Y, B):
    for i in range(N * 5000):
        compute(X[0], Y[0])""", "Check its bounds"),
    Program("right on the visible N only", "90.1", """def loop(N, A, X, Y, B):
    for i in range(N if N in (1, 2) else 0):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])""", "does not run every step"),
    Program("counts its calls", "90.1", """calls = []
def loop(N, A, X, Y, B):
    calls.append(N)
    for i in range(calls[0]):
        compute(X[0], Y[0])""", "does not run every step"),
    Program("a loop of another's name", "90.1", "loop = print", "does not run"),
]
NUMBERS = [
    Program("a number equal to all", "90.2", EQUAL + "time = Always()", "a value of type Always"),
    Program("a float of one's own", "90.2", "class F(float):\n    def __eq__(s, o): return True\n    "
            "def __sub__(s, o): return 0.0\n    __rsub__ = __sub__\ntime = F(9)", "a value of type F"),
    Program("NaN as a wildcard", "90.2", "time = float('nan')", "finite"),
    Program("infinity", "90.2", "time = float('inf')", "finite"),
    Program("many numbers at once", "90.2", "time = np.linspace(0, 5, 501)", "should be a number"),
    Program("a list of all", "90.2", "time = [i / 10 for i in range(50)]", "should be a number"),
    Program("a text", "90.2", "time = '2.5 µs'", "a text"),
    Program("True", "90.2", "time = True", "True or False"),
    Program("a number beyond all bounds", "90.2", "time = 10**400", "beyond 64 bits"),
    Program("a structured dtype", "90.2", "time = np.array([(2.5, 1)], dtype=[('a', 'f4'), ('b', 'i4')])", "dtype"),
    Program("an array of objects", "90.2", "time = np.array([object()], dtype=object)", "dtype object"),
    Program("a masked array", "90.2", "time = np.ma.masked_all(1)", "MaskedArray"),
    Program("a complex number", "90.2", "time = 2.5 + 1e9j", "complex"),
    Program("poses as jax", "90.2", "class A:\n    def __array__(s, *a, **k): return np.linspace(0, 5, 99)\n"
            "A.__module__ = 'jax.numpy'\ntime = A()", "should be a number"),
]
FUNCTIONS = [
    Program("a function equal to all", "90.3", EQUAL + "double = Always()", "a value of type Always"),
    Program("changes its input instead", "90.3", "def double(x):\n    x *= 0\n    return x", "differs in"),
    Program("NaN everywhere", "90.3", "def double(x): return x * np.nan", "differs in"),
    Program("knows the visible numbers by heart", "90.3", """known = {}
for n in range(4):
    known[n] = 2 * np.random.default_rng(int.from_bytes(__import__('hashlib').sha256(b'90.3').digest()[:8], 'big')
                                         ).integers(-9, 9, n)
def double(x):
    return known[len(x)].astype('f4')""", "differs in"),
    Program("repeats its first answer", "90.3", """seen = []
def double(x):
    seen.append(x)
    return 2 * np.resize(seen[min(1, len(seen) - 1)], len(x))""", "differs in"),
    Program("looks for what is expected", "90.3", SEARCH + """def double(x):
    found = look()
    assert FOUND is None and found is None, (FOUND, found)
    return x""", "differs in"),
    Program("a detached process that comes back later", "90.3", """import os, subprocess, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(2)
        for folder, _, files in os.walk("/"):
            for f in files:
                if f in ("results.json", "results.csv", "gradebook.db"):
                    open(os.path.join(folder, f), "w").write("forged")
        time.sleep(1000)
    os._exit(0)
def double(x): return x""", "differs in"),
    Program("numpy.py and sitecustomize.py beside it", "90.3", """for name in ("numpy", "sitecustomize", "pallas_lite"):
    for place in ("/work", "/tmp", ".", "/course"):
        try: open(f"{place}/{name}.py", "w").write("raise SystemExit")
        except OSError: pass
def double(x): return x""", "differs in"),
    Program("an array of another shape", "90.3",
            "def double(x): return (2 * x)[:, None]", "should be an array of shape"),
    Program("an array that claims to be huge", "90.3", "def double(x): return np.broadcast_to(x.sum(), (10**9,))"),
]
KERNELS = [
    Program("jnp beside a call that does nothing", "90.4", DUMMY + "def add_one(x):\n    call(x)\n    return x + 1",
            BUT),
    Program("jnp before the call", "90.4", DUMMY + "def add_one(x): return call(x + 1)", BUT),
    Program("jnp behind the call", "90.4", DUMMY + "def add_one(x): return call(x) + 1", BUT),
    Program("no call at all", "90.4", RIGHT_VALUES, "two steps"),
    Program("specs that are made up", "90.4", TAKE_OVER + MADE_UP + RIGHT_VALUES + """
OPS["plan"] = lambda target, x: {"calls": [call], "made": 1, "gives": None, "several": False}
OPS["body"] = lambda target, k, step, values: []
OPS["kernel"] = lambda target, x: {"result": x + 1, "calls": [call], "made": 1}""", BUT),
    Program("a copy of the array that the plan was asked on", "90.4", TAKE_OVER + MADE_UP + RIGHT_VALUES + """
kept = []
def plan(target, x):
    kept.append(numpy.asarray(x))
    return {"calls": [call], "made": 1, "gives": [(0, 0)], "several": False}
OPS["plan"] = plan
OPS["body"] = lambda target, k, step, values: [(1, kept[-1][4 * step:4 * step + 4] + 1)]""", "differs in 32"),
    Program("says that it copies by itself", "90.4", TAKE_OVER + MADE_UP + RIGHT_VALUES + """
OPS["plan"] = lambda target, x: {"manual": True}
OPS["kernel"] = lambda target, x: {"result": x + 1, "calls": [call | {"results": [x + 1]}], "made": 1}""",
            "cannot be followed"),
    Program("thousands of steps", "90.4", TAKE_OVER + MADE_UP + RIGHT_VALUES + """
many = [o | {"blocks": [[0, 0]] * 6000} for o in call["operands"]]
OPS["plan"] = lambda target, x: {"calls": [call | {"grid": [6000], "operands": many}], "made": 1, "gives": None}
OPS["kernel"] = lambda target, x: {"result": x + 1}""", "two steps"),
    Program("a scratch of exabytes", "90.4", TAKE_OVER + MADE_UP + RIGHT_VALUES + """
call["extras"] = [{"shape": [2**30, 2**30], "dtype": "float32"}]
OPS["plan"] = lambda target, x: {"calls": [call], "made": 1, "gives": None}
OPS["kernel"] = lambda target, x: {"result": x + 1}""", "cannot be followed"),
    Program("blocks that are none", "90.4", TAKE_OVER + MADE_UP + RIGHT_VALUES + """
OPS["plan"] = lambda target, x: {"calls": [call], "made": 1, "gives": [(0, 0)]}
OPS["body"] = lambda target, k, step, values: [(1, "block"), (-5, None), "x"]
OPS["kernel"] = lambda target, x: {"result": x + 1}""", "cannot be followed"),
    Program("rewrites what was observed", "90.4", """import gc
""" + DUMMY + """def add_one(x):
    y = call(x)
    for thing in gc.get_objects():
        if type(thing).__name__ == "Calls":
            thing.results[:] = [[x + 1]]
    return x + 1""", BUT),
    Program("NaN from the kernel", "90.4", DUMMY.replace("= x_ref[...]", "= x_ref[...] * float('nan')")
            + "def add_one(x): return call(x)", "differs in 32"),
]

# These meddle with all that runs in their process.
MEDDLERS = [
    Program("patched verifier", "90.1", PATCH + "def loop(*_): pass", "does not run every step"),
    Program("cell hooks and AST transformers", "90.1", HOOK + "def loop(*_): assert seen", "does not run every step"),
    Program("loses its waits where it can", "90.1", TAKE_OVER + """def record(loop, n, depth=2, **cost):
    class Told:
        def to_plain(self):
            made = pl_record(right, n, depth=depth, **cost).to_plain()
            made["events"] = [e for e in made["events"] if "wait" not in str(e)]
            return made
    return Told()
def right(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0]); copy_in_wait(X[0]); compute(X[0], Y[0]); copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])
pl_record, pl.record = pl.record, record
def loop(*_): pass""", "hazard"),
    Program("verdicts on the pipe", "90.2", PIPE + "send(message('right', 1.0) * 9)\ntime = 9", "not an answer"),
    Program("ends that are none", "90.2", PIPE + "send(message('ended', 0) * 3)\ntime = 9"),
    Program("an end that is an array", "90.2", PIPE + "send(message('ended', {'a': 0}, [[3]]))\ntime = 9"),
    Program("a failure of arrays", "90.2", PIPE + """body = {'d': [[k, {'a': 0}] for k in ('kind', 'message', 'line')]}
send(message('failed', body, [[3]]) * 2)"""),
    Program("answers for later questions", "90.2", PIPE + "send(message('ok', None) + message('ok', 7))\ntime = 9",
            "too high"),
    Program("gives its input back", "90.3", PATCH + "def double(x): return x", "differs in"),
    Program("a thread that outlives its cell", "90.3", """import threading, sys, time
def meddle():
    while True:
        for module in list(sys.modules.values()):
            if hasattr(module, "OPS"):
                module.OPS["call"] = lambda target, x: x * 0
        time.sleep(0.01)
threading.Thread(target=meddle, daemon=True).start()
def double(x): return x""", "differs in"),
    Program("a child that answers in its place", "90.3", """import os
if os.fork() == 0:
    import autograder.wire as wire, time
    for _ in range(100):
        for fd in range(3, 30):
            try: os.write(fd, wire.encode("ok", np.zeros(3, "f4")))
            except OSError: pass
        time.sleep(0.05)
def double(x): return x"""),
    Program("another pallas_call", "90.4", """class Fake:
    grid = (2,)
    def __call__(self, x): return x + 1
real = pl.pallas_call
pl.pallas_call = lambda *a, **k: Fake()
def add_one(x): return pl.pallas_call(None, x, grid=(2,))(x)""", "two steps"),
]

# Real exercises. Where a stub is a prediction, all that might be taken for several answers at once.
FEW_COPIES = TAKE_OVER + """
def shaded(x, scale, shift, bm, bn):
    row = pl.BlockSpec((1, bn), lambda i, j: (0, j))
    tile = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
    def kernel(x_ref, a_ref, b_ref, o_ref):
        o_ref[...] = x_ref[...] * a_ref[...] + b_ref[...]
    return pl.pallas_call(kernel, x, grid=(x.shape[0] // bm, x.shape[1] // bn), in_specs=[tile, row, row],
                          out_specs=tile)(x, scale, shift)
scale_and_shift = shaded
def plan(target, *arrays):
    told = honest["plan"](target, *arrays)
    for call in told["calls"]:
        for o in call["operands"]:
            if o["shape"][0] == 1:
                o["blocks"] = sorted(o["blocks"])
    return told
OPS["plan"] = plan
"""
CHAPTERS = [
    ("unit1/03_double_buffer.ipynb", [
        Program("all times at once", "3.1", "def blocking_time(n, copy, kernel):\n    return np.arange(0, 400, 0.25)",
                "should be a number"),
        Program("a loop equal to all", "3.2", EQUAL + "one_slot = Always()"),
        Program("several names for each hazard", "3.3",
                "hazards = {k: ['fine', 'wrong slot', 'never waited'] for k in 'abcde'}"),
    ]),
    ("unit2/05_pallas_call.ipynb", [
        Program("jnp instead of a kernel", "5.1", "def add_in_blocks(x, y):\n    return x + y", "no pallas_call"),
        Program("copies that are not told", "5.3", FEW_COPIES),
        Program("all counts at once", "5.4", "prediction = [list(range(99))] * 3"),
        Program("blocks of any size", "5.6", "blocks = (float('inf'), -1)"),
    ]),
]


def cases():
    return [*pack("forge", LOOPS + NUMBERS + FUNCTIONS + KERNELS, {}),
            *pack("meddle", [replace(p, words="") for p in MEDDLERS], {}),
            *(chapter("forge", *c) for c in CHAPTERS)]
