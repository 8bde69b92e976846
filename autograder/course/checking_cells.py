"""checking_cells: what the build reads in the cells that call `check` and `personal`. In: their text. Out: slips.

Where each learner draws numbers of their own, the page has to show those of STUDENT, and the check has to take them.
"""
import ast
from collections.abc import Mapping
from typing import Any


def hidden_call(source: str, number: str) -> str | None:
    """The hidden form of the check that ends a cell, or None if none ends it.

    >>> hidden_call('check("3.2", split)', "3.2")
    "check('3.2', split, hidden=True)"
    """
    try:
        last = ast.parse(source).body[-1:]
    except SyntaxError:
        return None
    match last:
        case [ast.Expr(ast.Call(func=ast.Name("check"), args=[ast.Constant(value), _]) as call)] if value == number:
            call.keywords.append(ast.keyword("hidden", ast.Constant(True)))
            return ast.unparse(call)
    return None


def draws(exercise: Any) -> bool:
    """Does each learner draw numbers of their own for this exercise?"""
    return getattr(exercise, "draws", False)


def shown_numbers(source: str, exercises: Mapping[str, Any]) -> tuple[set[str], list[str]]:
    """The exercises whose drawn numbers a cell shows to STUDENT, and what is wrong with its calls of `personal`.

    >>> shown_numbers('mine = personal("2.3")', {})[1]
    ['personal("2.3") draws for nobody; write personal("2.3", STUDENT)']
    """
    shown, slips = set(), []
    for call in _calls(source, "personal"):
        match call.args:
            case [ast.Constant(str(number)), ast.Name("STUDENT")] if draws(exercises.get(number)):
                shown.add(number)
            case [ast.Constant(str(number)), ast.Name("STUDENT")]:
                slips.append(f'personal("{number}", STUDENT): there is no exercise {number} that draws numbers')
            case [ast.Constant(str(number)), *_]:
                slips.append(f'{ast.unparse(call)} draws for nobody; write personal("{number}", STUDENT)'
                             .replace("'", '"'))
    return shown, slips


def own_numbers(source: str, number: str, shown: set[str]) -> list[str]:
    """What is wrong with the check cell of an exercise that draws numbers. `shown`: those that cells above it show."""
    slips = []
    if not any(word.arg == "student" and isinstance(word.value, ast.Name) and word.value.id == "STUDENT"
               for call in _calls(source, "check") for word in call.keywords):
        slips.append(f"each learner draws numbers for exercise {number}, and the check would take the demo's; write "
                     f'check("{number}", …, student=STUDENT)')
    if number not in shown:
        slips.append(f"each learner draws numbers for exercise {number}, and no cell above its check shows them; write "
                     f'personal("{number}", STUDENT)')
    return slips


def _calls(source: str, name: str) -> list[ast.Call]:
    try:
        nodes = ast.walk(ast.parse(source))
    except SyntaxError:  # a cell with a magic
        return []
    return [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name]
