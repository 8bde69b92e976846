"""widgets: α, β, F, N and depth under sliders -> the pipeline's timeline, redrawn at each move.

In: numbers. They become operands, a Schedule (engines/record.py) and a Timeline; plot/ draws it. Where widgets do not
run (GitHub, a printed page, a closed kernel) a still picture and a sentence stand in their place; a terminal gets text.
"""
import base64
import html
import io
import sys
from functools import cached_property

import numpy as np
from matplotlib.figure import Figure

from .engines.record import record
from .errors import PallasLiteError, SpecError
from .hardware import TOY, Machine
from .plot import plot_timeline
from .schedule import Schedule
from .show import svg
from .specs import Operand
from .timeline import Timeline, timeline, unit_of

WIDGET = "application/vnd.jupyter.widget-view+json"
FACTORS = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 1.5, 2, 3, 4, 8)  # β and F move in these, from the machine's own
MOST_STEPS, MOST_SLOTS = 1000, 8

_cells: dict[str, tuple[str, dict, list]] = {}  # cell -> its last run, settings before that run, explorers made in it


def schedule_explorer(steps: int = 8, depth: int = 2, alpha: float | None = None, beta: float | None = None,
                      flops: float | None = None, *, machine: Machine = TOY, block_bytes: int = 1000,
                      step_flops: float = 1000.0) -> "ScheduleExplorer":
    """Sliders for N, depth, α, β and F over the timeline of `pipeline` with one input and one output.

    `alpha` (seconds), `beta` (bytes per second) and `flops` (operations per second) replace the machine's own; a step
    copies one block of `block_bytes` in and one out, and computes `step_flops` operations. When its cell runs again
    unchanged, an explorer keeps the place of its sliders. Raises SpecError for a number out of range.

    >>> schedule_explorer(steps=8, depth=1).headline   # nothing overlaps: 8 × (1 µs in + 1 µs compute + 1 µs out)
    '24 µs modelled · core busy 33% · latency-bound'
    """
    changes = {"alpha": alpha, "beta": beta, "flops": flops}
    machine = machine.with_(**{k: float(v) for k, v in changes.items() if v is not None})
    explorer = ScheduleExplorer(steps, depth, machine, block_bytes, step_flops)
    _take_over(explorer, *_cell())
    return explorer


class ScheduleExplorer:
    """What `schedule_explorer` returns. `settings` has the numbers, `controls` the sliders, `ui` the whole widget."""

    def __init__(self, steps: int, depth: int, machine: Machine, block_bytes: int, step_flops: float):
        for name, value, most in (("steps", steps, MOST_STEPS), ("depth", depth, MOST_SLOTS)):
            if not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
                raise SpecError(f"schedule_explorer({name}={value!r}): give a whole number from 1 to {most}.")
        if machine.alpha < 0 or machine.beta <= 0 or machine.flops <= 0 or block_bytes < 1 or step_flops < 0:
            raise SpecError("schedule_explorer: alpha must be 0 or more; beta, flops and block_bytes more than 0.")
        self.machine, self.block_bytes, self.step_flops = machine, int(block_bytes), float(step_flops)
        self.first = self.settings = {"steps": int(steps), "depth": int(depth), "alpha": machine.alpha,
                                      "beta": machine.beta, "flops": machine.flops}
        self._busy, self._limit, self._axes, self._image, self._known = False, None, None, None, (None, None)

    @property
    def asked(self) -> tuple:
        """The numbers that it was made with."""
        return *self.first.values(), self.machine, self.block_bytes, self.step_flops

    @property
    def schedule(self) -> Schedule:
        """One input A and one output B, a block of each a step, recorded from the course's one `pipeline`."""
        n, depth = self.settings["steps"], self.settings["depth"]
        blocks = [(i,) for i in range(n)]
        size, byte = self.block_bytes, np.dtype("uint8")
        a, b = (Operand(slot, array, slot == "Y", depth, (n * size,), byte, (size,), (), blocks)
                for slot, array in (("X", "A"), ("Y", "B")))
        return record(n, [a, b], self.step_flops)

    @property
    def timeline(self) -> Timeline:
        if self._known[0] is not self.settings:
            machine = self.machine.with_(**{k: self.settings[k] for k in ("alpha", "beta", "flops")})
            self._known = self.settings, timeline(self.schedule, machine)
        return self._known[1]

    # -- words

    @property
    def headline(self) -> str:
        """Total time, utilisation and bound, in one line."""
        t = self.timeline
        return f"{_time(t.total)} modelled · core busy {t.utilisation:.0%} · {t.bound}-bound"

    @property
    def details(self) -> str:
        """Fill, drain, SRAM and the three lower bounds with their formulas."""
        t = self.timeline
        needs, has = t.schedule.sram_bytes, self.machine.sram_bytes
        sram = f"SRAM {needs:,} of {has:,} bytes" + (" ✗ does not fit" if needs > has else "")
        formulas = {"compute": "N·Y/F", "bandwidth": "N·X/β", "latency": "N·(α + X/β + Y/F)/depth"}
        bounds = ", ".join(f"{name} {formulas[name]} = {_time(v)}" for name, v in t.terms.items())
        return f"fill {_time(t.fill)} · drain {_time(t.drain)} · {sram}\nlower bounds: {bounds}"

    def __str__(self) -> str:
        s = self.settings
        asked = (f"N = {s['steps']} steps, depth {s['depth']}, α = {_time(s['alpha'])}, β = {_si(s['beta'], 'B/s')}, "
                 f"F = {_si(s['flops'], 'op/s')}")
        return f"{asked}\n{self.headline}\n{self.details}\n\n{self.timeline.schedule.table()}"

    __repr__ = __str__

    # -- picture

    def _draw(self, limit: float | None = None):
        if self._axes is None:  # one figure for good, without pyplot: nothing piles up, and its ticks are made once
            self._axes = Figure(figsize=(9, 2.05)).add_axes((0.075, 0.205, 0.915, 0.77))
            self._axes.xaxis.set_label_coords(0.5, -0.17)  # else each redraw measures all ticks to place it
            self._axes.yaxis.set_label_coords(0, 0)
        ax = self._axes
        for old in (*ax.patches, *ax.collections, *ax.texts):
            old.remove()
        return plot_timeline(self.timeline, ax, title="", limit=limit)

    def picture(self, limit: float | None = None) -> str:
        """The timeline as SVG on a white card. `limit`: the least end of the time axis, in seconds."""
        return svg(self._draw(max(limit or 0.0, self.timeline.total)), f"Timeline of the pipeline. {self.headline}")

    def png(self) -> bytes:
        """The timeline as a picture for places that show no widgets."""
        out = io.BytesIO()
        self._draw().figure.savefig(out, format="png", dpi=130)
        return out.getvalue()

    # -- controls

    @cached_property
    def controls(self) -> dict:
        """The sliders by name. Raises PallasLiteError where ipywidgets is missing."""
        w, s = _ipywidgets(), self.settings
        look = {"style": {"description_width": "7.5em"}, "layout": {"width": "25em"}}
        a_most = max(8e-6, 2 * self.first["alpha"])
        made = {
            "steps": w.IntSlider(s["steps"], 1, max(64, self.first["steps"]), description="N (steps)", **look),
            "depth": w.IntSlider(s["depth"], 1, MOST_SLOTS, description="depth (slots)", **look),
            "alpha": w.FloatSlider(s["alpha"] * 1e6, min=0, max=a_most * 1e6, step=a_most * 1e6 / 32,
                                   readout_format=".2f", description="α latency, µs", **look),
        }
        for name, description, unit in (("beta", "β bandwidth", "B/s"), ("flops", "F compute", "op/s")):
            options = [(_si(self.first[name] * f, unit), self.first[name] * f) for f in FACTORS]
            made[name] = w.SelectionSlider(options=options, value=s[name], description=description, **look)
        for slider in made.values():
            slider.observe(self._moved, "value")
        return made

    @cached_property
    def ui(self):
        """The widget: sliders, each with what it does; then headline, picture and details."""
        w = _ipywidgets()
        self._notes = {name: w.HTML() for name in self.controls}
        self._words, self._image, self._more = w.HTML(), w.HTML(), w.HTML()
        self._hold = w.Checkbox(False, description="keep the time axis, to compare", indent=False,
                                layout={"width": "22em"})
        self._hold.observe(self._held, "value")
        reset = w.Button(description="Reset", tooltip="Back to the numbers in the cell", layout={"width": "6em"})
        reset.on_click(lambda _: self.set(**self.first))
        rows = [w.HBox([slider, self._notes[name]], layout={"flex_flow": "row wrap"})
                for name, slider in self.controls.items()]
        box = w.VBox([*rows, w.HBox([reset, self._hold]), self._words, self._image, self._more])
        # Where this style arrives the widget lives, and the still picture that follows it is not needed.
        still = f".pallas-lite-still-{box.model_id}"
        hide = w.HTML(f"<style>{still}, .jp-OutputArea-child:has({still}) {{display: none}}</style>",
                      layout={"display": "none"})
        box.children = (*box.children, hide)
        self._redraw()
        return box

    def set(self, **settings) -> None:
        """Move sliders from code: set(depth=3, alpha=2e-6)."""
        self._busy = True  # one redraw for all of them
        try:
            for name, value in settings.items():
                slider = self.controls[name]
                if name in ("beta", "flops"):  # these sliders have notches
                    value = min((v for _, v in slider.options), key=lambda v: abs(v - value))
                slider.value = value * 1e6 if name == "alpha" else value
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
        self._image = self._axes = self._limit = None

    def _moved(self, _=None):
        if not self._busy:
            self.settings = {name: c.value * 1e-6 if name == "alpha" else c.value for name, c in self.controls.items()}
            self._redraw()

    def _held(self, change):
        self._limit = self.timeline.total if change["new"] else None
        self._redraw()

    def _redraw(self):
        if self._image is None:  # not on show
            return
        s, bytes_ = self.settings, f"{self.block_bytes:,} bytes"
        slots = f"{s['depth']} slots" if s["depth"] > 1 else "1 slot"
        notes = {
            "steps": f"{s['steps']} blocks of {bytes_}, one a step",
            "depth": f"{slots} an operand: {self.timeline.schedule.sram_bytes:,} bytes of SRAM",
            "alpha": f"a copy arrives {_time(s['alpha'])} after it left the port",
            "beta": f"a copy takes the port for X/β = {_time(self.block_bytes / s['beta'])}",
            "flops": f"a step computes for Y/F = {_time(self.step_flops / s['flops'])}",
        }
        self._image.value = self.picture(self._limit)
        for name, text in notes.items():
            self._notes[name].value = f'<span style="padding-left:0.5em">{text}</span>'
        # role=status: a screen reader says the new result after a key press.
        self._words.value = f'<b role="status" style="font-size:1.1em">{html.escape(self.headline)}</b>'
        lines = "<br>".join(html.escape(line) for line in self.details.splitlines())
        self._more.value = f'<div style="line-height:1.5">{lines}</div>'

    # -- display

    def still(self, why: str) -> dict:
        """Picture, result and a sentence, as every front end can show them: HTML, PNG and text."""
        picture = base64.b64encode(self.png()).decode()
        mark = f"pallas-lite-still-{self.ui.model_id}" if "ui" in self.__dict__ else ""
        # The other way round: in a notebook opened again, no "model not found" stands where the widget was.
        dead = f".jp-OutputArea-child:not(:has(.widget-vbox)):has(+ .jp-OutputArea-child .{mark})"
        hide = f"<style>{dead} {{display: none}}</style>" if mark else ""
        words = "<br>".join(html.escape(line) for line in (self.headline, *self.details.splitlines()))
        label = html.escape(f"Timeline of the pipeline. {self.headline}", quote=True)
        image = f'<img alt="{label}" src="data:image/png;base64,{picture}" width="900">'
        page = f'<div class="{mark}">{image}<p>{words}</p><p><i>{html.escape(why)}</i></p>{hide}</div>'
        return {"text/html": page, "image/png": picture, "text/plain": f"{self}\n\n{why}"}

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        try:
            view = {WIDGET: {"version_major": 2, "version_minor": 0, "model_id": self.ui.model_id}}
        except PallasLiteError as missing:
            return self.still(f"A still picture: {missing}")
        return self.still("A still picture: run this cell in JupyterLab to move the sliders.") | view

    def _ipython_display_(self) -> None:
        """Two outputs. A saved page can hold the first and yet be unable to show it (no kernel, no network)."""
        if _shell() is None:
            print(self)
            return
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        if WIDGET in bundle:
            display({WIDGET: bundle.pop(WIDGET), "text/html": "", "text/plain": ""}, raw=True)
        display(bundle, raw=True)


def _time(seconds: float) -> str:
    unit, name = unit_of(seconds) if seconds else (1e-6, "µs")
    return f"{seconds / unit:.4g} {name}"


def _si(value: float, unit: str) -> str:
    """A number with its unit's prefix.  >>> _si(1.5e9, "B/s")
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


def _take_over(explorer: ScheduleExplorer, cell: str | None, run: str | None) -> None:
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
