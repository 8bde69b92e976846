"""before: the cell that ran before a check, in a notebook. In: the verdict. Out: the same, or what that cell did.

Where the cell of an answer could not run, or gives another name, its check gets what the name held before: the answer
of another exercise, or what a loop of the notebook left. grading/transplant.py takes care of that by itself.
"""
import ast
import contextlib
import warnings
from dataclasses import replace
from typing import Any

from ..exercise import Exercise
from ..sandbox.inside.answers import describe, for_a_file
from .result import Result

NOTHING_RAN = "Nothing in the cell of your answer ran. Mend this line, run the cell again, and then this check."
STOPPED = "The cell of your answer stopped ({}): what was checked may be older. Mend that first."
NOT_GIVEN = "The cell of your answer gives {0} no value: what was checked, another cell left in {0}."


def with_the_cell_before(result: Result, found: Exercise, shell: Any) -> Result:
    """The verdict, and what the answer's cell did, if it ran last and may not have given what was checked."""
    last = getattr(shell, "last_execution_result", None)
    if result.verdict not in ("wrong", "error") or last is None:
        return result
    # Another version of IPython, say: then nothing is known. What it warns of a cell, IPython has said already.
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, its_own = last.info.raw_cell, getattr(last.info, "cell_id", None) == found.answer_id
        checking = list(shell.history_manager.input_hist_raw)[-1]
        name = _asked(checking, found.number)
        if not name or name in _given(checking):
            return result
        if isinstance(error := last.error_before_exec, SyntaxError) and (its_own or _has(source, name)):
            said = describe(for_a_file(error, shell.transform_cell(source)))
            message = f"{said['kind']}: {said['message']}"
            return Result(result.exercise, result.title, 0.0, result.max_points, "error", message, line=said["line"],
                          hidden=result.hidden, nudge=NOTHING_RAN)
        if last.error_in_exec is not None and (its_own or name in _given(source)):
            return _also(result, STOPPED.format(type(last.error_in_exec).__name__))
        if its_own and last.success and name not in _given(source):
            return _also(result, NOT_GIVEN.format(name))
    return result


def _also(result: Result, said: str) -> Result:
    return replace(result, nudge=f"{said} {result.nudge}".strip())


def _asked(source: str, number: str) -> str:
    """The name that a cell checks as an exercise's answer; empty if it is none.  >>> _asked('check("1.3", x)', "1.3")
    'x'
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name("check"), args=[ast.Constant(value), ast.Name(name)]) if value == number:
                return name
    return ""


def _given(source: str) -> set[str]:
    """The names to which a cell gives a value, functions included. Raises SyntaxError for a cell with a magic."""
    nodes = list(ast.walk(ast.parse(source)))
    return {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)} | {
        n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))} | {
        (n.asname or n.name) for n in nodes if isinstance(n, ast.alias)}


def _has(source: str, name: str) -> bool:
    return name in "".join(c if c.isidentifier() or c.isdigit() else " " for c in source).split()
