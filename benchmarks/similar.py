"""similar: how far apart are honest pairs and copies? A class is made up, and autograder.pages.similar looks at it.

Honest students each take, for each exercise, our solution or one of the right alternatives of autograder/mutants, and
rewrite it in a style of their own: loops, conditions, temporary values, order of operands. Copies are then disguised:
every name changed, statements that do not need their order exchanged, comments, docstrings and layout changed, and a
little of the style. Every second one copies all, the others one notebook.

    python -m benchmarks similar                                  the classes of docs/grading.md
    python -m benchmarks similar --students 60 --copies 30        another
"""
import argparse
import ast
import builtins
import inspect
import random
import re
import resource
import textwrap
import time

from autograder.course.release import ROOT, Course
from autograder.judge.selftest import planted
from autograder.pages.similar import explained, imported, pairs, solutions_of

CLASSES = ([], ["--seed", "2", "--unit", "unit2"], ["--unit", "unit3"],
           ["--students", "450", "--copies", "50", "--seed", "5", "--unit", "unit1"])


def pool(solutions: dict[str, list[str]]) -> dict[str, list[str]]:
    """Exercise -> right answers in different styles."""
    _, right = planted("autograder.mutants")
    found = {}
    for number, texts in solutions.items():
        alternatives = [f for _, f in right.get(number, []) if inspect.isfunction(f) and f.__name__ != "<lambda>"]
        found[number] = [*texts, *(textwrap.dedent(inspect.getsource(f)) for f in alternatives)]
    return found


class Style(ast.NodeTransformer):
    """Rewrites what can be said in more than one way; each way with probability `p`."""

    def __init__(self, rng: random.Random, p: float):
        self.rng, self.p, self.fresh = rng, p, 0

    def often(self):
        return self.rng.random() < self.p

    def name(self):
        self.fresh += 1
        return f"value{self.fresh}"

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and self.often():
            read = ast.Name(node.target.id, ast.Load())
            return ast.Assign([node.target], ast.BinOp(read, node.op, node.value), lineno=0)
        return node

    def visit_IfExp(self, node):
        self.generic_visit(node)
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body) if self.often() else node

    def visit_Compare(self, node):
        self.generic_visit(node)
        turned = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
        if len(node.ops) == 1 and type(node.ops[0]) in turned and self.often():
            return ast.Compare(node.comparators[0], [turned[type(node.ops[0])]()], [node.left])
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult) and self.often():
            return ast.BinOp(node.right, node.op, node.left)
        return node

    def visit_Return(self, node):
        self.generic_visit(node)
        if node.value is not None and not isinstance(node.value, ast.Name) and self.often():
            name = self.name()
            return [ast.Assign([ast.Name(name, ast.Store())], node.value, lineno=0),
                    ast.Return(ast.Name(name, ast.Load()))]
        return node

    def visit_Expr(self, node):
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and call.args and not isinstance(call.args[0], ast.Name) and self.often():
            name = self.name()
            first = ast.Assign([ast.Name(name, ast.Store())], call.args[0], lineno=0)
            return [first, ast.Expr(ast.Call(call.func, [ast.Name(name, ast.Load()), *call.args[1:]], call.keywords))]
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if len(node.keywords) > 1 and self.often():
            self.rng.shuffle(node.keywords)
        return node

    def visit_For(self, node):
        self.generic_visit(node)
        once = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range" and len(node.iter.args) == 1
        skips = any(isinstance(n, ast.Continue) for n in ast.walk(node))
        if once and not node.orelse and not skips and isinstance(node.target, ast.Name) and self.often():
            i = node.target.id
            start = ast.Assign([ast.Name(i, ast.Store())], ast.Constant(0), lineno=0)
            step = ast.AugAssign(ast.Name(i, ast.Store()), ast.Add(), ast.Constant(1))
            test = ast.Compare(ast.Name(i, ast.Load()), [ast.Lt()], [node.iter.args[0]])
            return [start, ast.While(test, [*node.body, step], [])]
        return node

    def visit_If(self, node):
        self.generic_visit(node)
        if node.orelse and not isinstance(node.orelse[0], ast.If) and self.often():
            return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)
        return node


def styled(source: str, rng: random.Random, p: float) -> str:
    return ast.unparse(ast.fix_missing_locations(Style(rng, p).visit(ast.parse(source))))


def disguised(source: str, rng: random.Random) -> str:
    """A copy that shall not look like one."""
    tree = ast.parse(styled(source, rng, 0.1))
    bound = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    new = {name: f"my_{rng.randrange(10**6)}" for name in sorted(bound) if not hasattr(builtins, name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in new:
            node.id = new[node.id]
        elif isinstance(node, ast.arg) and node.arg in new:
            node.arg = new[node.arg]
        elif isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node) and len(node.body) > 1:
                node.body[0] = ast.Expr(ast.Constant("Written by me."))
            exchange(node.body, rng)
    text = ast.unparse(tree)
    return "\n".join(line + ("  # so that it works" if rng.random() < 0.3 else "") for line in text.split("\n"))


def exchange(body: list[ast.stmt], rng: random.Random) -> None:
    """Exchanges neighbours that are simple assignments and do not use each other."""
    for i in range(len(body) - 1):
        one, two = body[i:i + 2]
        if isinstance(one, ast.Assign) and isinstance(two, ast.Assign) and rng.random() < 0.7:
            words = [set(re.findall(r"\w+", ast.unparse(s))) for s in (one, two)]
            targets = [{n.id for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)} for s in (one, two)]
            if not targets[0] & words[1] and not targets[1] & words[0]:
                body[i:i + 2] = [two, one]


def make(students: int, copies: int, seed: int, right: dict[str, list[str]], home: dict[str, str]):
    """Answers by exercise and student; and for each copier whom they copied, and where: "" is everywhere."""
    rng = random.Random(seed)
    answers: dict[str, dict[str, str]] = {number: {} for number in right}
    notebooks = list(dict.fromkeys(home.values()))
    copied = {f"s{students + c:04}": (f"s{rng.randrange(students):04}", rng.choice(notebooks) if c % 2 else "")
              for c in range(copies)}
    for student in [f"s{i:04}" for i in range(students)] + list(copied):
        victim, where = copied.get(student, ("", ""))
        p = rng.uniform(0.3, 0.7)
        for number, texts in right.items():
            copy = victim and where in ("", home[number])
            answers[number][student] = disguised(answers[number][victim], rng) if copy else \
                styled(rng.choice(texts), rng, p)
    return answers, copied


def main(report, arguments=()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks similar", description=__doc__.split("\n")[0])
    parser.add_argument("--students", type=int, default=60)
    parser.add_argument("--copies", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unit", default="", help="only the exercises of this unit")
    row = report.table("classes", "class (`--students --copies --seed --unit`)", "honest pairs shown",
                       "nearest to the limit", "copied all: shown", "one notebook: shown")
    for some in [arguments] if arguments else CLASSES:
        last = measure(row, parser.parse_args(some))
    report.figure("last", f"{last} and {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


def measure(row, options: argparse.Namespace) -> str:
    """Adds the row of a class. What looking at its pairs took, in words."""
    course = Course()
    solutions = solutions_of(ROOT)
    home = {number: n.name for n in course.notebooks for number in n.answers.values() if options.unit in ("", n.unit)}
    known, names = explained(course, solutions), imported(course.notebooks)
    right = {number: texts for number, texts in pool(solutions).items() if number in home}
    answers, copied = make(options.students, options.copies, options.seed, right, home)
    began = time.process_time()
    found = {frozenset((p.one, p.other)): p for p in pairs(answers, known, home, names, above=9)}
    seconds = time.process_time() - began
    n = options.students + options.copies
    planted_pairs = {frozenset((s, victim)): where for s, (victim, where) in copied.items()}
    first = {s: victim for s, (victim, _) in copied.items()}
    honest = [p for k, p in found.items() if k not in planted_pairs and len({first.get(s, s) for s in k}) == 2]
    over = [[p.share - p.limit for p in some] for some in (
        honest, [found[k] for k, where in planted_pairs.items() if not where],
        [found[k] for k, where in planted_pairs.items() if where])]
    shown = [f"{sum(x >= 0 for x in some)} of {len(some):,}" for some in over]
    row(f"{options.students}, {options.copies}, {options.seed}, {options.unit or 'all units'} ({len(right)} exercises)",
        shown[0], f"{max(over[0]):+.2f}", *shown[1:])
    return f"{n} submissions of {len(right)} exercises, {n * (n - 1) // 2:,} pairs: {seconds:.0f} s"
