"""needed: which of our own statements have to run, so that everything else finds the names that it uses.

A chapter measures, plots and prints much that no mark depends on. A statement of a released cell that the student left
as it was is run only if a name that it binds or changes is used: by something of the student's, by a test, or by
another statement that is run. What a student wrote is always run, all of it.
"""
import ast
import builtins
import re
import symtable
from dataclasses import dataclass, field, replace
from functools import lru_cache

# A call that is a statement is taken to change its arguments, the object whose method it is, and what the function
# called uses. A call inside an expression is taken to compute only, but for these methods, which change their object.
CHANGES = {"append", "extend", "add", "update", "insert", "pop", "popitem", "remove", "discard", "clear", "setdefault",
           "sort", "reverse", "seed", "shuffle", "write"}
SHOWS = re.compile(r"print|display|show|plot_\w+")  # these change nothing but axes
AXES = {"ax", "axes", "fig"}
MODULES = {"jax", "jnp", "np", "pl", "plt", "pltpu", "plgpu"}
UNSEEN = {"eval", "exec", "compile", "globals", "locals", "vars", "get_ipython", "__import__"}  # use names in texts
COMPREHENSIONS = {"listcomp", "setcomp", "dictcomp", "genexpr"}


@dataclass
class Statement:
    """One statement of ours. `now`: names that it uses when it runs; `late`: those that its functions use later."""

    source: str
    now: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)  # whatever happens in it
    fixes: set[str] = field(default_factory=set)  # binds to a function, a class or what it imports
    changes: set[str] = field(default_factory=set)  # binds, may bind, or changes the object of
    touches: set[str] = field(default_factory=set)  # changes the object of, if that can be changed
    calls: set[str] = field(default_factory=set)  # functions, in statements that are nothing else
    always: bool = False  # it is run, whoever uses what
    kept: bool = False


# Letters of a cell of a student's, and of all of them. The parser is ours, and takes minutes for some that are longer.
MOST_PARSED, MOST_TOGETHER = 10_000, 200_000


def needed(cells: list[tuple[str, bool]]) -> list[str]:
    """Source of each cell, and whether it is ours -> what is to run of it, which may be nothing.

    >>> needed([("import numpy as np\\nx = 2\\ny = 3\\nprint(y)", True), ("answer = x", False)])
    ['x = 2', 'answer = x']
    """
    left, parts = MOST_TOGETHER, []
    for source, ours in cells:
        parts.append(ours and [replace(s) for s in _statements(source) or ()] or
                     [_theirs(source, min(left, MOST_PARSED))])
        left -= 0 if ours else len(source)
    statements = [s for part in parts for s in part]
    # Functions and what is imported are not changed by a call; what a function uses may be.
    fixed = set(dir(builtins)).union(*(s.fixes for s in statements))
    functions = {name: s.late - fixed for s in statements for name in s.fixes}
    for s in statements:
        s.changes = s.changes | s.touches - fixed | set().union(*(functions.get(name, set()) for name in s.calls))
    late: set[str] = set()
    while True:
        # Backwards. A name that a function uses may be bound after it too: such names wait for the next pass.
        before, live = len(late), set()
        for s in reversed(statements):
            s.kept = s.always or bool(s.changes & (live | late))
            if s.kept:
                live = live - s.binds | s.now
                late |= s.late
        if before == len(late):
            return ["\n".join(s.source for s in part if s.kept) for part in parts]


def _theirs(source: str, most: int = MOST_PARSED) -> Statement:
    """A cell of the student's, or a test. Every word in it is a name that it uses, if that cannot be known."""
    try:
        if len(source) > most:
            raise ValueError
        now, late, _ = _symbols(source)
        if not UNSEEN & (now | late):
            binds = set().union(*map(_binds, ast.parse(source).body))
            return Statement(source, now | changed_in_place(source), late, binds, always=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a magic, say; the last for what nests too deeply
        pass
    words = set(_words(source))
    return Statement(source, words, words, always=True)


@lru_cache(2000)
def may_bind(source: str, most: int = MOST_PARSED) -> frozenset[str]:
    """The names to which a cell may give a value: every word in it, if that cannot be known.

    >>> sorted(may_bind("for i in range(3): x = i"))
    ['i', 'x']
    """
    try:
        if len(source) <= most:
            now, late, bound = _symbols(source)
            if not UNSEEN & (now | late):
                return frozenset(bound)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return frozenset(_words(source))


def changed_in_place(source: str, most: int = MOST_PARSED) -> set[str]:
    """The names of which a cell takes away the value, or uses a part, and so may change what it finds there.

    >>> sorted(changed_in_place("a[0] = 1; b.append(2); del c; d = 3"))
    ['a', 'b', 'c']
    """
    try:
        nodes = list(ast.walk(ast.parse(source))) if len(source) <= most else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    inner = [n.value if isinstance(n, (ast.Attribute, ast.Subscript)) else n for n in nodes
             if isinstance(n, (ast.Attribute, ast.Subscript)) or isinstance(getattr(n, "ctx", None), ast.Del)]
    return {n.id for n in inner if isinstance(n, ast.Name)}


def _words(text: str) -> list[str]:
    return "".join(c if c.isidentifier() or c.isdigit() else " " for c in text).split()


def _symbols(source: str) -> tuple[set[str], set[str], set[str]]:
    """Names used when it runs, names that its functions use, names that it may bind."""
    top = symtable.symtable(source, "cell", "exec")
    now = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    late: set[str] = set()

    def below(table, found):
        for child in table.get_children():
            is_function = child.get_type() == "function" and child.get_name() not in COMPREHENSIONS
            into = late if is_function else found
            into.update(s.get_name() for s in child.get_symbols() if s.is_global() and s.is_referenced())
            late.update(declared := {s.get_name() for s in child.get_symbols() if s.is_declared_global()})
            bound.update(declared)
            below(child, into)
    below(top, now)
    return now, late, bound


@lru_cache(2000)  # the cells of a course, which come again with each submission
def _statements(source: str) -> list[Statement] | None:
    """The statements of a cell of ours; None if it is not plain Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    lines, found, end = source.split("\n"), [], 0
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        if first <= end:  # two on one line: not worth a cut
            return [_whole(source, tree.body)]
        end = node.end_lineno
        found.append(_whole("\n".join(lines[first - 1:end]), [node]))
    return found


def _whole(source: str, nodes: list[ast.stmt]) -> Statement:
    now, late, bound = _symbols(source)
    found = Statement(source, now, late, set().union(*map(_binds, nodes)), changes=bound)
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            found.fixes |= _binds(node)
        _effects(node, found)
    return found


def _binds(node: ast.stmt) -> set[str]:
    """The names that a statement certainly binds."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {(a.asname or a.name).split(".")[0] for a in node.names}
        case ast.Assign():
            return {n.id for t in node.targets for n in ast.walk(t)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def _effects(node: ast.AST, found: Statement) -> None:
    """Notes what a statement may change beside the names that it binds. What functions do, they do when called."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            found.always = True
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            found.changes |= _names(node.value)
        case ast.Expr(value=ast.Call(func=function, args=args, keywords=keywords)):
            given = _names(*args, *(k.value for k in keywords))
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if SHOWS.fullmatch(name):
                found.touches |= given & AXES
            elif isinstance(function, ast.Name):
                found.touches |= given
                found.calls |= {name} | given  # a function given to another one may be called by it
            else:  # plt.close(fig) changes fig; np.random.seed(0) changes np
                of_module = isinstance(function.value, ast.Name) and function.value.id in MODULES if \
                    isinstance(function, ast.Attribute) else False
                found.touches |= given
                if not (of_module and given):
                    found.changes |= _names(function)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGES:
            found.changes |= _names(value)
    for child in ast.iter_child_nodes(node):
        _effects(child, found)


def _names(*nodes: ast.AST) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
