"""preprocessors: an answer out, a hole in. Next: build.py.

nbgrader_config.py puts `ClearHoles` where nbgrader has `ClearSolutions`.
"""
import ast

from nbgrader import utils
from nbgrader.preprocessors import ClearSolutions

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"


class HoleError(ValueError):
    """A solution region that cannot become a hole. `line` counts from 1 in the cell."""

    def __init__(self, message: str, line: int):
        super().__init__(message)
        self.line = line


def regions(source: str) -> list[tuple[int, int]]:
    """The lines of each BEGIN SOLUTION and its END SOLUTION, counted from 1."""
    found, begin = [], 0
    for number, line in enumerate(source.split("\n"), start=1):
        if BEGIN in line:
            if begin:
                raise HoleError(f"### {BEGIN} inside the region that line {begin} of the cell opened; "
                                f"close that one first with ### {END}", number)
            begin = number
        elif END in line:
            if not begin:
                raise HoleError(f"### {END} without a ### {BEGIN} before it", number)
            found.append((begin, number))
            begin = 0
    if begin:
        raise HoleError(f"### {BEGIN} is never closed; write ### {END} after the answer", begin)
    return found


def punch(source: str, exercise: str) -> str:
    """The cell with a hole for each region: inside a function one that raises, at top level `name = ...`.

    >>> print(punch("### BEGIN SOLUTION\\nhalf = 1 / 2\\n### END SOLUTION", "2.1"))
    half = ...  # your answer
    """
    lines, tree = source.split("\n"), ast.parse(source)
    for begin, end in reversed(regions(source)):
        indent = lines[begin - 1][:len(lines[begin - 1]) - len(lines[begin - 1].lstrip())]
        inside = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and begin < node.lineno < end]
        if not inside:
            raise HoleError("the solution region is empty; put the answer into it", begin)
        if indent:
            if not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                       and node.lineno < begin and inside[0].lineno <= node.end_lineno for node in ast.walk(tree)):
                raise HoleError("an indented solution region must be inside a function: anywhere else its hole would "
                                "raise as soon as the cell runs", begin)
            hole = ["# YOUR CODE HERE", f'raise NotImplementedError("Exercise {exercise} is not done yet")']
        else:
            hole = [f"{name} = ...  # your answer" for name in _assigned(tree, begin, end)]
        lines[begin - 1:end] = [indent + line for line in hole]
    holed = "\n".join(lines)
    try:
        ast.parse(holed)
    except SyntaxError as error:
        raise HoleError(f"with its holes the cell is no valid Python ({error.msg}); "
                        "let each region hold whole statements", regions(source)[0][0]) from None
    return holed


def _assigned(tree: ast.Module, begin: int, end: int) -> list[str]:
    names: dict[str, None] = {}
    read = {"_"}  # what the region reads itself is its working, and would tell how the answer is found
    for node in tree.body:
        if not begin < node.lineno < end:
            continue
        read |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raise HoleError(f"the region covers all of `{node.name}`; let it start below the docstring, "
                            "so that learners keep the signature", begin)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= dict.fromkeys(part.id for target in targets for part in ast.walk(target)
                                   if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    if not names:
        raise HoleError("a solution region at top level must assign the names that learners fill in, outside of any "
                        "for, if or with: what is inside those is working", begin)
    return [name for name in names if name not in read] or list(names)


class ClearHoles(ClearSolutions):
    """ClearSolutions with a hole that names its exercise, which nbgrader's single `code_stub` cannot."""

    def _replace_solution_region(self, cell, language):
        if cell.cell_type != "code" or not utils.is_solution(cell):
            return super()._replace_solution_region(cell, language)
        cell.source = punch(cell.source, exercise_of(cell.metadata.nbgrader.grade_id))
        return True


def exercise_of(grade_id: str) -> str:
    """The number of the exercise that a cell belongs to.  >>> exercise_of("ex-3-2")
    '3.2'
    """
    return grade_id.split("-", 1)[1].replace("-", ".")
