"""result: the verdict of one check, as a card in the notebook, as text in a terminal, as a mark for nbgrader.

In: what checking.py found. Colour is never alone: each verdict has a sign and a word.
"""
import base64
import html
import io
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from ..exercise import ended

# verdict -> sign, colour of the card's edge (readable on white and on JupyterLab's dark grey)
SIGNS = {"right": ("✓", "#2e9e5b"), "wrong": ("✗", "#d64545"), "error": ("✗", "#d64545"), "not done": ("…", "#8a8a8a"),
         "broken": ("!", "#c27c0e")}
WIDEST = 120  # letters of a table's line that a card shows before it scrolls


@dataclass
class Result:
    """The verdict of one check.

    `verdict`: "right", "wrong", "error" (the learner's code raised or overran), "not done", or "broken" (the check
    itself failed: our fault). `points` are earned, of `max_points`.
    """

    exercise: str
    title: str
    points: float
    max_points: float
    verdict: str
    message: str
    case: str = ""
    own_case: bool = False  # the answer is a value, such as a prediction: there is no other case than the learner's own
    got: str = ""
    expected: str = ""
    line: str = ""  # the learner's own line that raised
    nudge: str = ""
    schedule: Any = field(default=None, repr=False)
    hazards: list = field(default_factory=list, repr=False)
    timeline: Any = field(default=None, repr=False)
    hidden: bool = False
    printed: str = ""  # what went to stderr; nbgrader takes any stderr for a failure, so it must not get there

    @property
    def heading(self) -> str:
        sign = SIGNS[self.verdict][0]
        words = {"right": "right", "wrong": "not right yet", "error": "your code stopped", "not done": "not done yet",
                 "broken": "could not be checked"}[self.verdict]
        marks = f"{self.points:g} of {self.max_points:g} points" if self.max_points else ""
        return f"{sign} {ended(f'Exercise {self.exercise}' + f' · {self.title}' * bool(self.title))} {words}" + \
            (f" ({marks})" if marks else "")

    def facts(self) -> list[tuple[str, str]]:
        """Label and text of what is known beside the message, in the order in which it is shown."""
        found = [("your case" if self.own_case else "smallest failing case", self.case), ("your line", self.line),
                 ("got", self.got), ("expected", self.expected)]
        if self.hazards:
            h = self.hazards[0]
            found.append(("first wrong step", self._step_of(h) + self._slot_of(h)))
            found.append(("what happens there", h.message))
        found.append(("also printed", self.printed.strip()[:2000]))
        return [(label, text) for label, text in found if text]

    def _step_of(self, h) -> str:
        if self.schedule is not None and not self.schedule.steps:  # only prologue or epilogue: N = 0
            return "outside the loop, which has no step"
        if h.kind == "wrong block" and len(h.events) == 2:  # which step of a visit it is cannot be told
            return "among steps " + " to ".join(str(self.schedule[number].step) for number in h.events)
        return f"step {h.step}"

    def _slot_of(self, h) -> str:
        if h.slot < 0:
            return ""
        operands = () if self.schedule is None else self.schedule.operands
        names = {x.name for x in operands}
        # In a pallas_call x[0] is a block. A hand-written loop has other names for its arrays: there X[0] is a slot.
        blocks = any(x.name == h.operand and x.array in names for x in operands)
        return f", slot {h.slot} of {h.operand}" if blocks else f", slot {h.operand}[{h.slot}]"

    def table(self) -> str:
        """The schedule as text, its bad rows marked."""
        if self.schedule is None:
            return ""
        marks = {h.events[-1]: h.kind for h in reversed(self.hazards) if h.events}
        return self.schedule.table(marks)

    def __str__(self) -> str:
        lines = [self.heading]
        if self.message and self.verdict != "not done":
            lines.append(f"  {self.message}")
        lines += [f"  {label}: {text}" for label, text in self.facts()]
        if self.schedule is not None:
            lines += ["", self.table(), ""]
        if self.nudge:
            lines.append(f"  → {self.nudge}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None):
        """HTML for the reader. The plain text is the mark alone: nbgrader reads it as the score of the cell."""
        if _in_terminal():
            return None  # IPython then shows repr
        if "NBGRADER_VALIDATING" in os.environ and self.verdict != "right":
            print(self, file=sys.stderr)  # what the Validate button shows; without it, "Partial credit" for anything
        return {"text/html": self.html(), "text/plain": f"{float(self.points)}"}

    def html(self) -> str:
        """The card. Built to be read on light and dark pages: text takes the page's colour."""
        colour = SIGNS[self.verdict][1]
        e = html.escape
        parts = [f'<div style="font-weight:600">{e(self.heading)}</div>']
        if self.message and self.verdict != "not done":
            parts.append(f'<div style="margin-top:4px;white-space:pre-wrap">{e(self.message)}</div>')
        if facts := self.facts():
            rows = "".join(
                f'<dt style="opacity:.75;width:auto;float:none;font-weight:400">{e(label)}</dt>'
                f'<dd style="margin:0;width:auto;white-space:pre-wrap;overflow-wrap:anywhere">'
                f'{_code(label, e(text))}</dd>'
                for label, text in facts)
            parts.append('<dl style="display:grid;grid-template-columns:max-content 1fr;gap:2px 12px;margin:6px 0 0">'
                         f"{rows}</dl>")
        if self.schedule is not None:
            lines = [f'<span style="font-weight:700;text-decoration:underline {SIGNS["wrong"][1]} 2px">{e(x)}</span>'
                     if "✗" in x else e(x) for x in self.table().split("\n")]
            parts.append('<pre style="margin:8px 0 0;padding:6px;overflow-x:auto;white-space:pre;color:inherit;'
                         'font:12px/1.35 monospace;'  # so that a table with its mark fits beside JupyterLab's files
                         f'background:rgba(128,128,128,.1)">{chr(10).join(lines)}</pre>')
            parts.append(self.picture())
        if self.nudge:
            parts.append(f'<div style="margin-top:6px">→ {e(self.nudge)}</div>')
        return (f'<div class="pl-check" data-exercise="{e(self.exercise)}" data-verdict="{e(self.verdict)}" '
                f'role="status" style="border-left:4px solid {colour};padding:6px 12px;margin:4px 0;max-width:900px;'
                'color:var(--jp-ui-font-color1,inherit)">' + "".join(parts) + "</div>")

    def drawing(self) -> str:
        """The timeline as JSON, for `draw` to make the picture of later and elsewhere; empty if there is none."""
        try:
            t = self._timeline()
            machine = {name: getattr(t.machine, name) for name in MACHINE}
            return json.dumps({"schedule": t.schedule.to_plain(), "machine": machine, "step_seconds": t.step_seconds,
                               "hazards": [[h.kind, h.events] for h in self.hazards]}, separators=(",", ":"))
        except Exception:  # a picture is an extra
            return ""

    def picture(self) -> str:
        """The timeline as an image, wrong spots marked; nothing if it cannot be drawn (a picture is an extra)."""
        try:
            return _image(self._timeline(), self.hazards)
        except Exception:
            return ""

    def _timeline(self):
        import pallas_lite
        return self.timeline or pallas_lite.timeline(self.schedule)


# What a timeline takes of a machine, once the seconds of a step are known.
MACHINE = ("name", "alpha", "beta", "flops", "matmul_flops", "sram_bytes", "duplex")


def draw(drawing: str) -> str:
    """The picture of what `Result.drawing` packed; nothing if it cannot be drawn."""
    try:
        import pallas_lite
        data = json.loads(drawing)
        t = pallas_lite.timeline(pallas_lite.Schedule.from_plain(data["schedule"]),
                                 pallas_lite.hardware.Machine(**{name: data["machine"][name] for name in MACHINE}),
                                 step_seconds=data["step_seconds"])
        hazards = [pallas_lite.Hazard(kind, "", "", "", -1, -1, tuple(events)) for kind, events in data["hazards"]]
        return _image(t, hazards)
    except Exception:
        return ""


def _image(t, hazards: list) -> str:
    """As a PNG. A web page that cleans notebooks, as GitHub's does, may refuse an SVG, which can hold a program."""
    from PIL import Image  # matplotlib brings it

    import pallas_lite
    from pallas_lite.plot.timeline import result
    # No bound here, as in pallas_lite.show: the largest of the bounds need not be what holds a loop up.
    title = f"{t.schedule.name} on {t.machine.name}: {result(t)}"
    ax = pallas_lite.plot_timeline(t, hazards=hazards, title=title)
    drawn, packed, figure = io.BytesIO(), io.BytesIO(), ax.get_figure(root=True)
    assert figure, "an ax is part of one"
    figure.savefig(drawn, format="png", dpi=150, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(64).save(packed, "png", optimize=True)  # a third of the bytes
    data = base64.b64encode(packed.getvalue()).decode()
    return ('<img style="margin-top:8px;border-radius:4px;max-width:100%" '
            f'alt="Timeline. {html.escape(title)}" src="data:image/png;base64,{data}">')


def _code(label, text):
    is_code = label in ("your line", "got", "expected")
    return f'<code style="background:none;color:inherit">{text}</code>' if is_code else text


def shell() -> Any:
    """The IPython shell that this runs in; None in a plain Python."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _in_terminal() -> bool:
    return type(shell()).__name__ == "TerminalInteractiveShell"


def show(value: Any) -> str:
    """A value as a short text: what `got` and `expected` show."""
    if value is None or isinstance(value, str):
        return _cut(value or "", 4000)  # some are tables
    import numpy as np
    with np.printoptions(threshold=40, edgeitems=2, linewidth=WIDEST, precision=6):
        shown = repr(value) if not isinstance(value, np.ndarray) else str(value)
    return _cut(shown, 1000)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + " …"
