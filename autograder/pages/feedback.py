"""feedback: a report -> the page that its student gets: marks, what failed, the smallest failing case, how to go on.

One HTML file that needs nothing else: no network, no script. Hidden trials stay hidden unless `reveal`: what is shown
is what the notebook's own check says of the same answer (Mark.visible), and of an answer that passes it no more than
that hidden trials failed; only then is there talk of them. The template escapes all that comes from a report, which a
student may have written.
"""
import builtins
import contextlib
import functools
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pallas_lite.errors import many

from ..course.release import Course, Notebook
from ..exercise import EXERCISES, ended
from ..grading.by_hand import ByHand
from ..grading.grade import Mark, Report, clean, harmless
from ..grading.report import SIGNS, write_atomic
from ..grading.transplant import MOST_STAMP, Unreadable, chapter_in, load
from ..judge.result import draw
from ..sandbox.remote import OVERRUN

WORDS = {"right": "right", "wrong": "not right yet", "error": "your code stopped", "not done": "not done yet",
         "missing": "not handed in", "unreadable": "not marked yet", "broken": "could not be checked"}
CODE = ("your line", "got", "expected")  # facts to be set as code
OTHER = {"nudge", "schedule", "timeline", "message"}  # details with a place of their own
HINT = re.compile(r"<details>\s*<summary>\s*(Hint [123][^<]*)</summary>(.*?)</details>", re.DOTALL)
PASSES = ("Your answer passes the check in the notebook, but not the hidden trials: they take other sizes and other "
          "numbers. Which case does the notebook's check not try? Think of the smallest, and of odd ones.")
SOMEWHERE = "When it was graded, this happened. Run the check in the notebook: it may show it, too."
THERE_TOO = "In the notebook it does not end in time either: run it there, and see at which line it is stopped."
WITHHELD = re.compile(r"(too high|too low|not right)\.$")  # how judge/ ends them, to give no value away
FAULT = "This could not be checked. It is the grader's fault, not yours, and it is no mark: your teacher can see it."


def write_pages(reports: list[Report], course: Course, folder: Path, reveal: bool = False,
                submitted: Path | None = None) -> dict[Path, bool]:
    """Writes <folder>/<student>/<unit>/feedback.html for each; returns the files, and which show a hidden trial.

    `submitted`: make a page for each notebook, named after it, as nbgrader's release_feedback wants them, and put
    beside it what nbgrader's exchange keeps with a submission in that folder. Of a submission that could not be read no
    unit is known: <student>/feedback.html.
    """
    written, names = {}, set()
    for report in reports:
        name = folder_name(report.student)
        while name in names:  # two students' names may be one folder's
            name += "_"
        names.add(name)
        for unit, notebooks in units_of(report, course).items():
            pages = [(n.name, [n]) for n in notebooks] if submitted and notebooks else [("feedback", notebooks)]
            if submitted and unit:
                _keep(submitted / report.student / unit, folder / name / unit)
            for file, shown in pages:
                path = folder / name / unit / f"{file}.html"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, page(report, course, shown, reveal))
                written[path] = reveal and any(_hidden(report.marks[t.number]) for n in shown
                                               for t in n.tests.values() if t.number in report.marks)
    return written


def older(folder: Path, written: Collection[Path]) -> list[Path]:
    """The pages in this folder that an earlier run left there, of students or units that are not in these results."""
    return sorted({*folder.glob("*/*.html"), *folder.glob("*/*/*.html")} - {*written})


def _keep(handed_in: Path, folder: Path) -> None:
    """Copies what tells nbgrader's exchange whose feedback it is, and for which time of handing in."""
    for file in ("timestamp.txt", "submission_secret.txt"):
        with contextlib.suppress(Unreadable, UnicodeDecodeError):  # among a student's files: no link is followed
            text = load(handed_in / file, MOST_STAMP, follow=False).decode()
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / file, text)


def units_of(report: Report, course: Course) -> dict[str, list[Notebook]]:
    """Unit -> the notebooks of which the report has marks. One unit without a name for a report without marks."""
    found: dict[str, list[Notebook]] = {}
    for n in course.notebooks:
        if any(t.number in report.marks for t in n.tests.values()):
            found.setdefault(n.unit, []).append(n)
    return found or {"": []}


def folder_name(student: str) -> str:
    """A student's name as the name of a folder, whatever it is called.  >>> folder_name("../ada")
    '.._ada'
    """
    name = re.sub(r'[/\\\x00-\x1f]', "_", clean(student)).strip()[:100]
    return "_" + name if name in ("", ".", "..") else name


def page(report: Report, course: Course, notebooks: Iterable[Notebook] | None = None, reveal: bool = False) -> str:
    """The page, on these notebooks (default: all of which there are marks)."""
    if notebooks is None:
        notebooks = [n for some in units_of(report, course).values() for n in some]
    notebooks = list(notebooks)
    chapters = [{"title": _title(n), "exercises": [_exercise(t.number, report.marks[t.number], n, reveal)
                                                  for t in n.tests.values() if t.number in report.marks]}
                for n in notebooks]
    marks = [report.marks[e["number"]] for c in chapters for e in c["exercises"]]
    known = bool(marks) and all(m.points is not None for m in marks)
    points, most = sum(m.points or 0 for m in marks), sum(m.max_points for m in marks)
    return template("feedback.html").render(
        ended=ended,
        student=clean(report.student), title=", ".join(dict.fromkeys(n.unit for n in notebooks)) or "Your notebook",
        total=f"{points:g} of {most:g} points" if known else "", percent=f"{100 * points / (most or 1):.0f}",
        opening=_opening(report, marks), notes=_notes(report, course, notebooks), chapters=chapters,
        notes_title="What went wrong" if report.status != "graded" else "About your files")


def _notes(report: Report, course: Course, notebooks: list[Notebook]) -> list[str]:
    """What there is to say of the files, without what is said of notebooks that have pages of their own."""
    others = {n.name for n in course.notebooks} - {n.name for n in notebooks} if notebooks else set()
    return [clean(w) for w in report.warnings if not chapter_in(w.partition(" ")[0], others)]


def _opening(report: Report, marks: list[Mark]) -> str:
    unread = sum(m.verdict == "unreadable" for m in marks)
    why = list(dict.fromkeys(m.message for m in marks if m.verdict == "unreadable"))
    files = dict.fromkeys(text.partition(": ")[0] for text in why) if marks else report.files
    which = ", ".join(map(clean, files)) or "Your notebook"
    # What was read, and is not what it should be, or has to be changed first: the cause says what to do.
    told = all(re.search("[Hh]and (it )?in", text) for text in why or report.warnings)
    unmarked = "could not be marked as it is" if told else "could not be read"
    again = ("What to hand in stands below." if told else
             "Save it again, check that it opens in Jupyter, and hand it in once more.")
    if report.status == "unreadable" and not marks and not report.files:
        return "Nothing could be marked. Hand in the notebook itself, the file that ends in .ipynb."
    if unread and unread == len(marks) or report.status == "unreadable" and not marks:
        return f"{which} {unmarked}, so nothing in it was marked. {again}"
    if report.status == "fault" and not marks:
        return FAULT
    right = sum(m.verdict == "right" for m in marks)
    todo = sum(m.verdict in ("not done", "missing") for m in marks)
    if right == len(marks):
        return "All exercises are right. Well done!"
    if todo == len(marks):
        return "Nothing is filled in yet. Each exercise below has a hint to begin with."
    ours = sum(m.points is None for m in marks) - unread  # a check that failed: no fault of the student's
    wrong = len(marks) - right - todo - unread - ours
    exercises = "1 exercise has" if unread == 1 else f"{unread} exercises have"
    return " ".join([f"{which} {unmarked}, so {exercises} no mark yet. {again}"] * bool(unread)
                    + [f"{right} of {many(len(marks), 'exercise')} {'is' if right == 1 else 'are'} right."]
                    + [f"{wrong} to mend: below is where it goes wrong."] * bool(wrong)
                    + [f"{ours} could not be checked, which is not your fault."] * bool(ours)
                    + [f"{todo} not done yet."] * bool(todo))


def _exercise(number: str, mark: Mark, notebook: Notebook, reveal: bool) -> dict[str, Any]:
    points = "no mark" if mark.points is None else f"{mark.points:g} of {mark.max_points:g}"
    return {"number": number, "id": number.replace(".", "-"), "title": EXERCISES[number].title, "points": points,
            "sign": SIGNS[mark.verdict], "word": WORDS[mark.verdict], "parts": list(_parts(mark, reveal)),
            "kind": mark.verdict.replace(" ", "-"), "hints": [] if mark.points is None or mark.verdict == "right" else
            _hints(notebook, EXERCISES[number].answer_id)}


def _parts(mark: Mark, reveal: bool):
    """What there is to say of a mark: what a student may see, and with `reveal` the hidden trial after it."""
    if isinstance(mark, ByHand) and (by_hand := mark.said()):
        yield {"message": by_hand}
    if mark.verdict == "broken":
        yield {"message": FAULT}
    if mark.verdict == "unreadable":
        yield _part({"message": mark.message})
    if mark.verdict in ("wrong", "error"):
        if mark.visible:
            there_too = {"nudge": THERE_TOO} if mark.visible.get("message") == OVERRUN else {}
            yield _part(mark.visible | there_too)
        else:
            yield _redacted(mark)
        if reveal and (hidden := _hidden(mark)):
            yield {"heading": "In the hidden trial"} | _part(hidden)


def _hidden(mark: Mark) -> dict[str, str]:
    """What is known of a failed hidden trial, if it is more than what the notebook's own check says."""
    found = {"message": mark.message, **mark.details}
    return found if mark.verdict in ("wrong", "error") and found != mark.visible else {}


def said(mark: Mark) -> str:
    """What a student may see of a mark, as text: the page's words, without pictures and hints."""
    lines = []
    for part in _parts(mark, reveal=False):
        lines += [part["message"], *(f"{label}: {text}" for label, text, _ in part.get("facts", ()))]
        lines += [line for line, _ in part.get("schedule", ())]
        lines += [f"→ {part['nudge']}"] if part.get("nudge") else []
    return "\n".join([WORDS[mark.verdict], *filter(None, lines)])


def _part(told: dict[str, str]) -> dict[str, Any]:
    lines = [(line, "✗" in line) for line in told.get("schedule", "").split("\n")] if told.get("schedule") else []
    facts = [(label, text, label in CODE) for label, text in told.items() if text and label not in OTHER]
    if told.get("got") and not told.get("expected") and WITHHELD.search(told.get("message", "")):
        facts.append(("expected", "the right value is not shown: it would be the answer", False))
    return {"message": told.get("message", ""), "nudge": told.get("nudge", ""), "schedule": lines,
            "marked": any(bad for _, bad in lines), "picture": _picture(told.get("timeline", "")), "facts": facts}


def _redacted(mark: Mark) -> dict[str, Any]:
    """What may be said of a hidden trial alone: nothing with a number or a text that came out of it.

    Where it is not known what the notebook's check says (Mark.visible is None), it may have been no hidden one.
    """
    began = PASSES if mark.visible == {} else SOMEWHERE
    message = mark.message
    if mark.verdict == "error":
        name = message.partition(":")[0]
        known = isinstance(getattr(builtins, name, None), type)  # else a student may have made it up, to carry numbers
        message = message if harmless(message) and message.startswith("your code ") else \
            f"Your code raised {'an' if name[:1] in 'AEIOU' else 'a'} {name}." if known else "Your code stopped."
        line = {"your line": mark.details.get("your line", "")}
        return _part({"message": f"{began}\n{message}", **line})
    shown = message if harmless(message) and not message.startswith(("Your answer gives", "What your loop")) else ""
    nudge = mark.details.get("nudge", "")
    return _part({"message": f"{began}\n{shown}".strip(), "nudge": nudge if harmless(nudge) else ""})


@functools.lru_cache(1000)  # many students make the same slip, and a picture takes a tenth of a second
def _picture(timeline: str) -> Markup:
    return Markup(draw(timeline)) if timeline else Markup("")  # drawn by us, its texts escaped


def _title(notebook: Notebook) -> str:
    first = next((c.source for c in notebook.cells if c.cell_type == "markdown" and c.source.startswith("# ")), "")
    return first.split("\n")[0].removeprefix("# ") or notebook.name


@functools.lru_cache(1000)
def _hints(notebook: Notebook, answer_id: str) -> list[tuple[str, Markup]]:
    """The folded hints below an answer cell of the release: our own HTML."""
    found, here = [], False
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in notebook.answers:
            here = grade_id == answer_id
        elif here and cell.cell_type == "markdown":
            # A notebook takes "i < n" for text; a page of HTML wants it told.
            found += [(summary.strip(), Markup(re.sub(r"<(?![a-zA-Z/!])", "&lt;", text.strip())))
                      for summary, text in HINT.findall(cell.source)]
    return found[:3]


@functools.cache
def template(name: str) -> jinja2.Template:
    """A page that lies beside this file. All that is put into it is escaped."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.ChainableUndefined).get_template(name)
