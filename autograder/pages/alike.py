"""alike: pairs of similar submissions -> a page with their answers side by side, and a table for the terminal."""
from rich.markup import escape
from rich.table import Table

from ..exercise import EXERCISES
from ..grading.grade import clean
from .feedback import template
from .similar import ALL, Answers, Pair, runs

INTRO = ("Each pair has more in common than the skeleton, our own solution and the answers of the class explain, and "
         "more than honest pairs had when this was measured. Names, comments and layout do not count. That is a reason "
         "to read both, and no more: people who learn together write alike.")
NONE = ("No two submissions have more in common than the task explains, as far as they are long enough to tell: in a "
        "few short answers honest people agree by chance. --near 0.5 also shows what is half-way there.")
SHOWN = 0.5  # an exercise with less in common is only named


def page(found: list[Pair], answers: Answers, known: dict[str, list[str]], names: frozenset[str]) -> str:
    """One HTML file, without network or script; all that students wrote is escaped."""
    return template("alike.html").render(intro=INTRO if found else NONE, pairs=[
        {"one": clean(p.one), "other": clean(p.other), "where": _where(p), "share": f"{p.share:.0%}",
         "limit": f"{p.limit:.0%}",
         "exercises": [(n, EXERCISES[n].title, f"{part:.0%}", _sides(p, answers[n], known.get(n, []), names))
                       for n, part in p.exercises.items() if part >= SHOWN],
         "more": ", ".join(n for n, part in p.exercises.items() if part < SHOWN)} for p in found])


def _sides(p: Pair, texts: dict[str, str], known: list[str], names: frozenset[str]):
    given = {run for text in known for run in runs(text, names)}
    read = {s: runs(texts[s], names) for s in (p.one, p.other)}
    both = read[p.one].keys() & read[p.other].keys() - given
    for student in (p.one, p.other):
        marked = {line for run in both for line in read[student][run]}
        lines = clean(texts[student]).split("\n")
        yield clean(student), [(line, number in marked) for number, line in enumerate(lines, start=1)]


def table(found: list[Pair]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("students", "where", "in common", "shown from", "exercises"):
        shown.add_column(name, overflow="fold")
    for p in found:
        most = [n for n, part in p.exercises.items() if part >= SHOWN]
        shown.add_row(escape(f"{clean(p.one)} and {clean(p.other)}"), _where(p), f"{p.share:.0%}", f"{p.limit:.0%}",
                      ", ".join(most))
    return shown


def _where(p: Pair) -> str:
    return "all notebooks" if p.where == ALL else p.where
