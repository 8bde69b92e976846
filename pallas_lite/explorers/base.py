"""base: what all explorers share. In: settings. Out: controls beside words and a picture, redrawn at each move.

A subclass says what its controls are and what a setting means; here is how they reach the page. Where widgets do not
run (GitHub, a printed page, a closed kernel) a still picture and a sentence stand in their place; a terminal gets text.
"""
import base64
import html
import re
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import PallasLiteError
from ..plot.look import LIGHT
from ..plot.page import DARK_PAGE, png, svg
from ..plot.timeline import height
from ..schedule import Schedule
from ..timeline import Timeline, unit_of

NUMBER = re.compile(r"^\d+\. ")  # a list with numbers of its own has no bullets beside them
WIDGET = "application/vnd.jupyter.widget-view+json"

# Ink and paper of the page, light or dark.
STRONG, PAPER = (f"var(--pallas-lite-{ink[1:]}, {ink})" for ink in (LIGHT.strong, LIGHT.paper))
# What a mouse finds in a drawing: boxes that stay unseen until it rests on one, or until they are chosen.
TOUCH = (f"<style>{DARK_PAGE} .pallas-lite-touch rect {{fill: transparent; stroke-width: 3px}} "
         f".pallas-lite-touch:hover rect, .pallas-lite-touch.now rect {{stroke: {STRONG}}}"
         # Around the chosen one paper, without which its frame is lost among outlines in the same ink.
         f".pallas-lite-touch.now .under rect {{stroke: {PAPER}; stroke-width: 5px}}</style>")

_cells: dict[str, tuple[str, dict, list]] = {}  # cell -> its last run, settings before that run, explorers made in it


class Explorer:
    """`settings` has the state by name, `controls` the widgets by name, `ui` the whole. Subclasses give the rest."""

    what = "Timeline of the pipeline."  # begins what a screen reader says of the picture
    to_do = "move the sliders"

    def __init__(self, settings: dict[str, Any]) -> None:
        self.first = self.settings = settings
        self._busy, self._image, self._parts, self._figures = False, None, {}, {}
        take_over(self, *_cell())

    # -- what a subclass gives

    asked: tuple  # what it was made with: the same cell run again goes on where this one stood
    headline: str  # the result, in one line
    details: str  # more lines, below the picture

    def picture(self) -> str:
        """The picture as HTML: see page.svg."""
        raise NotImplementedError

    def figure(self) -> Figure:
        """The same for places that show no widgets, drawn whole."""
        raise NotImplementedError

    def part(self, what: str, key: object, size: tuple[float, float], draw: Callable[[Figure], Any],
             over: Callable[[Axes], Iterable[str]] = lambda ax: ()) -> tuple[Figure, str]:
        """A part of the picture, and its SVG with what lies `over` its axes: made anew only for another `key`.

        Its figure, `size` inches large, is made once, without pyplot: nothing piles up. `draw` may keep its axes.
        """
        if what not in self._parts or self._parts[what][0] != key:
            figure = self._figures.setdefault(what, Figure(figsize=size))
            draw(figure)
            self._parts[what] = key, figure, laid_over(svg(figure.axes[0], what), [TOUCH, *over(figure.axes[0])])
        return self._parts[what][1:]

    def make_controls(self, w: Any) -> dict:
        """The controls by name, set from `settings`; `w` is ipywidgets."""
        raise NotImplementedError

    def read(self, name: str, value: Any) -> Any:
        """A control's value -> the setting."""
        return value

    def write(self, name: str, setting: Any) -> Any:
        """A setting -> the value of its control."""
        return setting

    def notes(self) -> dict[str, str]:
        """What to say beside a control, by its name."""
        return {}

    def more_buttons(self, w: Any) -> list:
        """Widgets beside Reset."""
        return []

    def arrange(self, w: Any, rows: list, buttons: Any, result: list) -> list:
        """How controls, buttons and result (words, picture, details) lie on the page."""
        return [*rows, buttons, *result]

    # -- controls

    @cached_property
    def controls(self) -> dict:
        """The controls by name. Raises PallasLiteError where ipywidgets is missing."""
        made = self.make_controls(_ipywidgets())
        for control in made.values():
            control.layout.margin = "2px"  # as most have it; a SelectionSlider, alone, has none
            control.observe(self._moved, "value")
        return made

    @cached_property
    def ui(self) -> Any:
        """The widget: controls, each with what it does; then headline, picture and details."""
        w = _ipywidgets()
        self._notes = {name: w.HTML() for name in self.controls}
        self._words, self._image, self._more = w.HTML(), w.HTML(), w.HTML()
        reset = w.Button(description="Reset", tooltip="Back to the numbers in the cell", layout={"width": "6em"})
        reset.on_click(lambda _: self.set(**self.first))
        rows = [w.HBox([control, self._notes[name]], layout={"flex_flow": "row wrap"})
                for name, control in self.controls.items()]
        buttons = w.HBox([reset, *self.more_buttons(w)], layout={"flex_flow": "row wrap"})
        box = w.VBox(self.arrange(w, rows, buttons, [self._words, self._image, self._more]))
        self._hide = w.HTML(layout={"display": "none"})  # arrives where the widget lives: there it hides the `still`
        box.children = (*box.children, self._hide)
        self.redraw()
        return box

    def set(self, **settings: Any) -> None:
        """Move controls from code: set(depth=3, alpha=2e-6)."""
        self._busy = True  # one redraw for all of them
        try:
            for name, setting in settings.items():
                self.controls[name].value = self.write(name, setting)
        finally:
            self._busy = False
        self._moved()

    def close(self) -> None:
        """Take the widget off the page and out of the kernel's memory. The settings stay."""
        todo = [self.__dict__.pop("ui", None), *self.__dict__.pop("controls", {}).values()]
        while todo:
            widget = todo.pop()
            if widget is not None:
                todo += getattr(widget, "children", ())
                todo += [getattr(widget, part, None) for part in ("style", "layout")]
                widget.close()
        self._image, self._parts, self._figures = None, {}, {}

    def _moved(self, _=None):
        if not self._busy:
            self.settings = {name: self.read(name, control.value) for name, control in self.controls.items()}
            self.redraw()

    def redraw(self) -> None:
        """New words and a new picture, if it is on show."""
        if self._image is None:
            return
        # The words first: they are on their way while the picture is drawn.
        for name, text in self.notes().items():
            self._notes[name].value = f'<span style="padding-left:0.5em">{text}</span>'
        # role=status: a screen reader says the new result after a key press.
        self._words.value = f'<b role="status" style="font-size:1.1em">{html.escape(self.headline)}</b>'
        lines = "<br>".join(html.escape(line) for line in self.details.splitlines())
        self._more.value = f'<div style="line-height:1.5">{lines}</div>'
        self._image.value = self.picture()

    # -- display

    def still(self, why: str) -> list[tuple[dict, dict]]:
        """Two outputs, data and metadata: the picture; the result and a sentence, in tags that no page cleans away."""
        name = f"pallas-lite-{self.ui.model_id}" if "ui" in self.__dict__ else "pallas-lite"
        picture, label = png(self.figure(), name), f"{self.what} {self.headline}"
        lists = ""
        for tag, lines in groupby(self.details.splitlines(), lambda line: "ol" if NUMBER.match(line) else "ul"):
            items = "".join(f"<li>{html.escape(NUMBER.sub('', line))}</li>" for line in lines)
            lists += f'<{tag} class="{name}">{items}</{tag}>'
        words = (f'<b class="{name}">{html.escape(self.headline)}</b>{lists}<i class="{name}">{html.escape(why)}</i>')
        if "ui" in self.__dict__:
            # The live widget hides both: in JupyterLab and Colab the picture is known by its first bytes, in VS Code,
            # which gives it another address, by the text that stands for it.
            first = picture[:(base64.b64decode(picture).index(name.encode()) + len(name)) // 3 * 4]
            cell, quoted = ".jp-OutputArea-child", label.replace("\\", r"\\").replace('"', r"\"")
            # Only so deep: else the browser looks through each drawing on the page for it, at each redraw.
            seen, part = f'img[src^="data:image/png;base64,{first}"]', "> .jp-OutputArea-output >"
            self._hide.value = (f'<style>.{name}, {cell}:has({part} .{name}), {seen}, {cell}:has({part} {seen}), '
                                f'[data-vscode-theme-kind] img[alt="{quoted}"] {{display: none}}</style>')
            # In JupyterLab, opened again, no "model not found" stands where the widget was.
            dead = f"{cell}:not(:has(.widget-vbox)):has(+ {cell} + {cell} > .jp-OutputArea-output > .{name})"
            words += f"<style>{dead} {{display: none}}</style>" if _cell()[0] else ""
        return [({"image/png": picture, "text/plain": label}, {"image/png": {"width": 864, "alt": label}}),
                ({"text/html": words, "text/plain": f"{self}\n\n{why}"}, {})]

    def _ipython_display_(self) -> None:
        """The widget, then the still: a saved page can hold the widget and be unable to show it (no kernel)."""
        if _shell() is None:
            print(self)
            return
        from IPython.display import display
        try:
            view = {"version_major": 2, "version_minor": 0, "model_id": self.ui.model_id}
            display({WIDGET: view, "text/html": "", "text/plain": ""}, raw=True)
            why = f"A still picture: run this cell in JupyterLab to {self.to_do}."
        except PallasLiteError as missing:
            why = f"A still picture: {missing}"
        for data, metadata in self.still(why):
            display(data, raw=True, metadata=metadata)

    def __repr__(self) -> str:
        return str(self)


def fresh(figure, place: tuple[float, float, float, float]) -> Axes:
    """The axes of a figure, empty; new ones at this `place` if it has none. Those it has keep their ticks, which are
    slow to make."""
    if not figure.axes:
        left, low, wide, high = place
        ax = figure.add_axes(place)
        ax.xaxis.set_label_coords(0.5, -0.64 * low / high)  # else each redraw measures all ticks to place it
        ax.yaxis.set_label_coords(-0.75 * left / wide, 0.5)
    ax = figure.axes[0]
    for old in (*ax.lines, *ax.patches, *ax.collections, *ax.texts):
        old.remove()
    return ax


def on_slider(name: str) -> str:
    """A name in the eleven letters that a slider has room for: ipywidgets would cut off what tells long ones apart.

    >>> on_slider("depth_attention_keys")
    'dept…n_keys'
    """
    return name if len(name) < 12 else f"{name[:4]}…{name[-6:]}"


def button(w, text: str, tip: str, act: Callable[[], Any]):
    """A button that calls `act`; `w` is ipywidgets."""
    made = w.Button(description=text, tooltip=tip, layout={"width": "auto"})
    made.on_click(lambda _: act())
    return made


def laid_over(drawing: str, marks: list[str]) -> str:
    """SVG elements on top of a drawing of page.svg: what moves, where the drawing itself stays."""
    at = drawing.rindex("</svg>")
    return "".join([drawing[:at], *marks, drawing[at:]])


def touch(ax: Axes, words: str, boxes, now: bool = False) -> str:
    """An SVG element over boxes of a drawing: the mouse outlines them all, and reads `words`; `now`: outlined anyway.

    A box is its corners in the data of `ax`, a row each.
    """
    points, top = 72 / ax.figure.dpi, ax.figure.get_figheight() * 72  # SVG counts from the top, in points
    corners = ax.transData.transform(np.reshape(boxes, (-1, 2))).reshape(len(boxes), -1, 2) * points
    rects = [f'<rect x="{left:.1f}" y="{top - high:.1f}" width="{right - left:.1f}" height="{high - low:.1f}"/>'
             for (left, low), (right, high) in zip(corners.min(1).tolist(), corners.max(1).tolist(), strict=True)]
    under = f'<g class="under">{"".join(rects)}</g>' * now
    return (f'<g class="pallas-lite-touch{" now" if now else ""}"><title>{html.escape(words)}</title>'
            f'{under}{"".join(rects)}</g>')


def touch_steps(ax: Axes, timeline: Timeline, steps: range, last: float | None = None, now: bool = False) -> list[str]:
    """Over a timeline: what each of these steps does, in its boxes. `last`: the end of the time axis, in seconds."""
    boxes, spans = {}, [s for s in timeline.spans if s.step in steps]
    unit = unit_of(last or max(s.end for s in spans))[0]
    for s in spans:
        if not s.waiting:
            y, mine = height(s.lane), boxes.setdefault(s.step, [])
            mine.append([(s.start / unit, y - 0.42), (s.end / unit, y + 0.42)])
            if len(mine) > 1 and mine[-2][1] == (mine[-1][0][0], y + 0.42):  # side by side: a frame around both
                mine[-2:] = [[mine[-2][0], mine[-1][1]]]
    return [touch(ax, "\n".join([f"step {step}", *happens(timeline.schedule, step)]), found, now)
            for step, found in boxes.items()]


def happens(schedule: Schedule, step: int) -> list[str]:
    """What the program does in a step, in order: a call each, with its block and slot."""
    return [schedule.describe(schedule[n]) for n in np.flatnonzero(schedule.columns.step == step)]


def show_time(seconds: float) -> str:
    """Seconds in a unit that reads well.  >>> show_time(2.5e-6)
    '2.5 µs'
    """
    unit, name = unit_of(seconds) if seconds else (1e-6, "µs")
    return f"{seconds / unit:.4g} {name}"


def show_number(value: float, unit: str) -> str:
    """A number with its unit's prefix.  >>> show_number(1.5e9, "B/s")
    '1.5 GB/s'
    """
    size, prefix = next(((s, p) for s, p in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= s), (1, ""))
    return f"{value / size:.4g} {prefix}{unit}"


def _ipywidgets():
    try:
        import ipywidgets
    except ImportError:
        raise PallasLiteError("ipywidgets, which makes the sliders, is not installed. Install it with  "
                              "pip install ipywidgets  and restart the kernel.") from None
    return ipywidgets


def _shell():
    """The shell of a notebook's kernel; None in a terminal or a plain Python."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def take_over(explorer: Explorer, cell: str | None, run: str | None) -> None:
    """A cell that runs again: its new explorers go on where its old ones stood, and the old ones are closed."""
    if cell is None:
        return
    last, before, now = _cells.get(cell, (run, {}, []))
    if last != run:
        before = {old.asked: old.settings for old in now}
        for old in now:
            old.close()
        now = []
    explorer.settings = before.get(explorer.asked, explorer.settings)
    _cells[cell] = run, before, [*now, explorer]


def _cell() -> tuple[str | None, str | None]:
    """Which cell is running, as JupyterLab names it, and which run of it this is."""
    shell = _shell()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return (parent.get("metadata") or {}).get("cellId"), (parent.get("header") or {}).get("msg_id")
