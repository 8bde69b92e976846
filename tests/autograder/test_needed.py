"""Which of our own statements are run when a submission is graded: all that a name in use depends on, and no more."""
import textwrap
import time

import pytest

from autograder.grading.needed import needed


def kept(ours, theirs):
    """What is run of one cell of ours that stands above one of the student's."""
    return needed([(textwrap.dedent(ours).strip(), True), (theirs, False)])[0].split("\n")


@pytest.mark.parametrize("ours, theirs, expected", [
    ("import numpy as np\nx = 2\ny = 3\nprint(y)", "answer = x", ["x = 2"]),
    ("x = 1\nx = 2", "x", ["x = 2"]),
    ("x = 1\nx = x + 1", "x", ["x = 1", "x = x + 1"]),
    ("x = 1\nx += 1", "x", ["x = 1", "x += 1"]),
    ("x = 1\nif x:\n    x = 2", "x", ["x = 1", "if x:", "    x = 2"]),  # it may not be bound there
    ("x = 1\nfor x in ():\n    pass", "x", ["x = 1", "for x in ():", "    pass"]),
    ("a, (b, *c) = 1, (2, 3)", "c", ["a, (b, *c) = 1, (2, 3)"]),
    # A function finds what is bound when it is called, before or after it.
    ("n = 3\ndef f():\n    return n\nn = 5", "f()", ["n = 3", "def f():", "    return n", "n = 5"]),
    ("n = 3\nf = lambda: n\nn = 5", "f()", ["n = 3", "f = lambda: n", "n = 5"]),
    ("n = 3", "def f():\n    return [n for _ in '12']", ["n = 3"]),
    ("n = 3", "def f(n):\n    return n", [""]),
    ("def g():\n    global n\n    n = 1\ng()", "n", ["def g():", "    global n", "    n = 1", "g()"]),
    # What changes the object of a name is needed as the name is.
    ("x = []\nx.append(1)\ny = x.pop()", "x", ["x = []", "x.append(1)", "y = x.pop()"]),
    ("x = {}\nx['a'] = 1", "x", ["x = {}", "x['a'] = 1"]),
    ("x = []\ndef note(v):\n    x.append(v)\nnote(1)", "x", ["x = []", "def note(v):", "    x.append(v)", "note(1)"]),
    ("x = [2, 1]\ndef put(v):\n    v.sort()\nput(x)", "x", ["x = [2, 1]", "def put(v):", "    v.sort()", "put(x)"]),
    ("x = []\nfor i in 1, 2:\n    x.append(i)", "x", ["x = []", "for i in 1, 2:", "    x.append(i)"]),
    ("import numpy as np\nnp.random.seed(0)", "np", ["import numpy as np", "np.random.seed(0)"]),
    ("import jax\njax.config.update('jax_enable_x64', True)", "jax",
     ["import jax", "jax.config.update('jax_enable_x64', True)"]),
    # Pictures change nothing but axes.
    ("t = 1\nax = new()\npl.plot_timeline(t, ax)\npl.show(t)", "t", ["t = 1"]),
    ("t = 1\nax = new()\npl.plot_timeline(t, ax)", "ax", ["t = 1", "ax = new()", "pl.plot_timeline(t, ax)"]),
    # Where names cannot be known, every word may be one.
    ("x = 1\ny = 2", "eval('x')", ["x = 1"]),
    ("x = 1\ny = 2", "%time print(x)", ["x = 1"]),
    ("from numpy import *\nx = 1", "array", ["from numpy import *"]),
    ("x = 1; y = 2", "x", ["x = 1; y = 2"]),
    ("@cache\ndef f():\n    pass", "f", ["@cache", "def f():", "    pass"]),
])
def test_what_is_used_is_run_and_the_rest_is_not(ours, theirs, expected):
    assert kept(ours, theirs) == expected


def test_a_cell_of_ours_that_is_no_python_and_all_that_is_theirs_is_run_whole():
    cells = [("x = 1\ny = 1", True), ("%matplotlib inline\nx", True), ("print(0)", False), ("def (", False)]
    assert needed(cells) == ["x = 1", "%matplotlib inline\nx", "print(0)", "def ("]


@pytest.mark.parametrize("source", ["-" * 10**5 + "1", "not " * 10**5 + "1", "1" + "+1" * 10**5, "(" * 10**5,
                                    "a" + "()" * 10**5, "x = '\0'", "x = '\ud800'", "x = 1\n" * 10**5])
def test_no_cell_of_a_student_breaks_the_parser(source):
    assert needed([("x = 1", True), (source, False)])[-1] == source


@pytest.mark.parametrize("source", ["import " + "a." * 100_000 + "a", "\n".join(
    f"def a{i}(): a{i - 1}()" for i in range(8_000)), "import " + "a." * 4_900 + "a", "-" * 100_000 + "1"])
def test_no_cell_of_a_students_keeps_our_parser_busy(source):
    began = time.process_time()
    assert needed([("x = 2", True), *[(f"{source}\nx", False)] * 6])[0] == "x = 2"
    assert time.process_time() - began < 10  # the first alone took minutes
