"""Answers that would harm the grader, the machine, or the students beside them. Each costs its own exercise only."""
from .corpus import ANY, Program, pack
from .forging import PIPE

FORK_BOMB = """import os, time
try:
    while True:
        if os.fork() == 0:
            while True: time.sleep(1)
except OSError:
    os._exit(7)"""
SWALLOW = """import signal, time
for s in (signal.SIGPROF, signal.SIGALRM, signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
while True:
    try:
        while True: time.sleep(0.1)
    except BaseException: pass"""
CLAIMS = """import os, socket
seen = []
try:
    socket.create_connection(("1.1.1.1", 53), timeout=1)
    seen.append("network")
except OSError: pass
for folder, below, files in os.walk("/"):
    below[:] = [b for b in below if folder != "/" or b not in ("proc", "usr")]
    below[:] = [b for b in below if b != "nbgrader"]
    seen += [f for f in files + below if f in ("little_course.py", "90_little.ipynb", "gradebook.db", "mutants")]
processes = [p for p in os.listdir("/proc") if p.isdigit()]  # its own are few, though their numbers grow
seen += processes if len(processes) > 12 else []
seen += ["root"] * (os.getuid() == 0)
for path in ("/course/x", "/usr/x", "/etc/x", "/x", "/dev/x"):
    try: open(path, "w"); seen.append(path)
    except OSError: pass
assert not seen, seen
"""

LOOPS = [
    Program("ends Python", ANY, "import os\nos._exit(1)", "ended Python (exit status 1)"),
    Program("ends when it is called", "90.1", "def loop(*_):\n    import os\n    os.kill(os.getpid(), 11)", "SIGSEGV"),
    Program("16 GB", ANY, "x = [0] * (16 * 10**9 // 8)", "MemoryError"),
    Program("raises what is no Exception", ANY, "raise KeyboardInterrupt", "KeyboardInterrupt"),
    Program("recursion without end", ANY, "import sys\nsys.setrecursionlimit(10**9)\n"
            "def f(n): return f(n + 1) + 1\nf(0)"),
    Program("an endless recursion, caught by Python", ANY, "def f(n): return f(n + 1) + 1\nf(0)", "RecursionError"),
]
NUMBERS = [
    Program("loops for ever", ANY, "while True: pass", "past the time limit"),
    Program("swallows every interrupt", ANY, SWALLOW, "past the time limit"),
    Program("a fork bomb", ANY, FORK_BOMB),
    Program("input()", ANY, "input()", "EOFError"),
    Program("what no parser takes", ANY, "-" * 10**5 + "1"),
    Program("a comparison of a hundred thousand", ANY, "1" + "<1" * 10**5 + "\nassert 1 > 2"),
    Program("exit()", "90.2", "exit()\ntime = ...", "not done"),
    Program("raise SystemExit", ANY, "raise SystemExit", "SystemExit"),
    Program("junk on the pipe", ANY, PIPE + "send(b'\\0\\0\\0\\2{}' * 9)", "no answer"),
    Program("a message of 4 GB on the pipe", ANY, PIPE + "send(b'\\xff' * 4096)", "no answer"),
    Program("nested a hundred thousand deep", "90.2", "time = []\nfor _ in range(10**5): time = [time]",
            "nested too deeply"),
    Program("a list that holds itself", "90.2", "time = []\ntime.append(time)", "nested too deeply"),
    Program("a text of 17 MB", "90.2", "time = 'x' * 17 * 2**20", "more than a message may hold"),
    Program("a message without end", ANY, "raise ValueError('x' * 50_000_000)", "ValueError: xxx"),
    Program("half a surrogate pair", ANY, "raise ValueError('\\ud800 \\udfff')", "ValueError"),
    Program("what a terminal obeys", ANY, "raise ValueError('\\x1b[2J\\x1b]0;owned\\x07\\u202e\\u2028\\r' + '[bold]')",
            "[bold]"),
    Program("an error that cannot be shown", ANY, "class E(Exception):\n    def __str__(s): raise s\nraise E", "E"),
    Program("a text that lies about its length", ANY, "class S(str):\n    def __getitem__(s, i): return 9\n"
            "class E(Exception):\n    def __str__(s): return S('x')\nraise E"),
]
FUNCTIONS = [
    Program("loops when it is called", "90.3", "def double(x):\n    while True: pass", "past the time limit"),
    Program("fills its disk", ANY, "with open('x', 'wb') as f:\n    for _ in range(2000): f.write(bytes(10**6))",
            "No space left"),
    Program("a gigabyte as its answer", "90.3", "def double(x): return np.zeros(2**28, 'f4')", "more than a message"),
    Program("thousands of arrays", "90.3", "def double(x): return [x] * 5000", "more than a message may hold"),
    Program("closes every file", "90.3", "def double(x):\n    import os\n    os.closerange(0, 500)\n    return 2 * x"),
    Program("a storm of signals", "90.3", "import os, signal, threading\nfrom time import sleep\n"
            "def storm():\n    while True: os.kill(os.getpid(), signal.SIGINT); sleep(0.01)\n"
            "def double(x):\n    threading.Thread(target=storm, daemon=True).start()\n    while True: pass"),
    Program("an error of a class that lies", "90.3", "class M(type):\n    __name__ = property(lambda c: 1 / 0)\n"
            "class E(Exception, metaclass=M): pass\ndef double(x): raise E"),
    Program("a syntax error about nothing", "90.3", "def double(x): raise SyntaxError('no', (1, 2, 3, 4))"),
]
KERNELS = [
    Program("a kernel without end", "90.4", """def kernel(x_ref, o_ref):
    while True: pass
def add_one(x): return pl.pallas_call(kernel, x)(x)""", "past the time limit"),
    Program("a kernel that ends Python", "90.4", """def kernel(x_ref, o_ref):
    import os; os._exit(3)
def add_one(x): return pl.pallas_call(kernel, x)(x)""", "exit status 3"),
    Program("a function full of calls", "90.4", """def kernel(x_ref, o_ref): o_ref[...] = x_ref[...] + 1
call = None
def add_one(x):
    c = pl.pallas_call(kernel, x)
    for _ in range(40): y = c(x)
    return y""", "two steps"),
    Program("threads without end", "90.4", """import threading, time
def add_one(x):
    while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()""", "can't start new thread"),
]
# Not harmful after all: these say that the sandbox keeps what it promises, and get their marks.
HARMLESS = [
    Program("150 MB on one line", "90.1", CLAIMS + """print('a' * 150_000_000)
def loop(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0]); copy_in_wait(X[0]); compute(X[0], Y[0]); copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])""", points=2),
    Program("a process left behind", "90.2", "import subprocess\n"
            "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
            "time = 2.5", points=1),
    Program("numpy.py in its folder, and a line behind", "90.3", "open('numpy.py', 'w').write('1/0')\n"
            "def double(x): return 2 * x\n1/0", points=3),
]
STOPS = """import os, signal
for s in (signal.SIGSTOP, signal.SIGKILL):
    for p in (1, os.getppid(), -1):
        try: os.kill(p, s)
        except OSError: pass"""
READS = """import os, threading
def read(fd):
    while True:
        try: os.read(fd, 2**16)
        except OSError: return
for fd in range(3, 40): threading.Thread(target=read, args=[fd], daemon=True).start()
def double(x): return 0"""
# These come to their end, and bring down what runs next: that is not blamed for it. A submission in which they are is
# graded twice, since a sandbox that is killed may be the machine's doing: so they are one of their own. No words are
# asked for: whether what they brought down shows before their answer is asked for is a matter of moments.
KILLERS = [
    Program("stops and kills everything but itself", "90.1", STOPS),
    Program("kills everything that it can", "90.3", "import os\nos.kill(-1, 9)"),
    Program("kills its parent", "90.4", "import os\nos.kill(os.getppid(), 9)"),
]
LATE_KILLERS = [
    Program("ends a moment later", "90.1", "import os, threading\nthreading.Timer(0.05, os._exit, [5]).start()",
            "ended Python (exit status 5)"),
    Program("reads what is meant for the worker", "90.3", READS),
]
HURTFUL = [*LOOPS, *NUMBERS, *FUNCTIONS, *KERNELS]


def cases(beside):
    return [*pack("hurt", HURTFUL, beside), *pack("kill", KILLERS, beside, together="killer"),
            *pack("later", LATE_KILLERS, beside, together="late killer"),
            *pack("harmless", HARMLESS, beside)]
