"""schedule: α, β, F, N and depth under sliders -> the pipeline's timeline, redrawn at each move.

In: numbers, or a trace of a call. They become a Schedule (engines/record.py) and a Timeline; plot/ draws it. The rest
is base.py's.
"""
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..engines.record import record
from ..errors import SpecError
from ..hardware import TOY, Machine
from ..plot import plot_timeline
from ..schedule import Schedule
from ..specs import Operand
from ..timeline import Timeline, timeline
from ..verify import Hazard
from .base import Explorer, fresh, happens, laid_over, show_number, show_time, touch_steps

FACTORS = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 1.5, 2, 3, 4, 8)  # β and F move in these, from the machine's own
MOST_STEPS, MOST_SLOTS = 10_000, 8
SIZE = 9, 2.05  # inches
DRAWN = 64  # steps on show at once: of a longer pipeline, those around the chosen one


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
    for name, value, most in (("steps", steps, MOST_STEPS), ("depth", depth, MOST_SLOTS)):
        if not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
            raise SpecError(f"schedule_explorer({name}={value!r}): give a whole number from 1 to {most}.")
    if block_bytes < 1 or step_flops < 0:
        raise SpecError("schedule_explorer: block_bytes must be 1 or more, step_flops 0 or more.")
    size = int(block_bytes)

    def program(n: int, depth: int) -> Schedule:
        blocks, byte = [(i,) for i in range(n)], np.dtype("uint8")
        return record(n, [Operand(slot, array, slot == "Y", depth, (n * size,), byte, (size,), (), blocks)
                          for slot, array in (("X", "A"), ("Y", "B"))], float(step_flops))
    asked = int(steps), int(depth), machine, size, float(step_flops)
    return ScheduleExplorer(program, {"steps": int(steps), "depth": int(depth)}, machine, step_flops / machine.flops,
                            asked)


def of_trace(trace, machine: Machine) -> "ScheduleExplorer":
    """The same sliders for a call: all of its own but N, which its grid decides; `depth` is that of every operand."""
    own, depth, at = trace.timeline(machine), most_slots(trace), at_depths(trace)
    asked = trace.call.name, str(trace.call.grid), depth, machine
    return ScheduleExplorer(lambda n, depth: at(depth).schedule, {"depth": depth}, own.machine, own.step_seconds,
                            asked, lambda depth: at(depth).hazards)


def most_slots(trace) -> int:
    """The depth of the operand that has the most."""
    return max(x.depth for x in trace.operands)


def at_depths(trace) -> Callable[[int], Any]:
    """Depth -> the trace with so many slots for each operand; as written, if that is the most that one has there."""
    @cache
    def at(depth: int):
        if depth == most_slots(trace):
            return trace
        other = replace(trace, arrays=tuple(replace(x, depth=depth) for x in trace.arrays))
        vars(other)["body"] = trace.body  # the kernel is the same
        return other
    return at


class ScheduleExplorer(Explorer):
    """What `schedule_explorer` returns. `settings` has the numbers, `controls` the sliders, `ui` the whole widget."""

    def __init__(self, program: Callable[[int | None, int], Schedule], numbers: dict[str, int], machine: Machine,
                 step_seconds: float, asked: tuple, hazards: Callable[[int], list[Hazard]] = lambda depth: []):
        self.program, self.machine, self.step_seconds, self.asked = program, machine, step_seconds, asked
        self.hazards = hazards  # with so many slots; the course's own pipeline has none with any
        self._limit, self._known = None, (None, None)
        super().__init__({**numbers, "alpha": machine.alpha, "beta": machine.beta, "flops": machine.flops, "step": 0})

    @property
    def timeline(self) -> Timeline:
        s = {k: v for k, v in self.settings.items() if k != "step"}
        if self._known[0] != s:
            machine = self.machine.with_(**{k: s[k] for k in ("alpha", "beta", "flops")})
            self._known = s, timeline(self.program(s.get("steps"), s["depth"]), machine,
                                      step_seconds=self.step_seconds * self.machine.flops / s["flops"])
        return self._known[1]

    schedule = property(lambda self: self.timeline.schedule, doc="Recorded from the course's one `pipeline`.")
    step = property(lambda self: min(self.settings["step"], self.schedule.steps - 1), doc="The step looked at.")

    # -- words

    @property
    def headline(self) -> str:
        """Total time, utilisation and bound, in one line."""
        t = self.timeline
        return f"{show_time(t.total)} modelled · core busy {t.utilisation:.0%} · {t.bound}-bound"

    @property
    def details(self) -> str:
        """Fill, drain, SRAM and the three lower bounds with their formulas."""
        t = self.timeline
        needs, has = t.schedule.sram_bytes, self.machine.sram_bytes
        sram = f"SRAM {needs:,} of {has:,} bytes" + (" ✗ does not fit" if needs > has else "")
        formulas = {"compute": "N·Y/F", "bandwidth": "N·X/β", "latency": "N·(α + X/β + Y/F)/depth"}
        bounds = ", ".join(f"{name} {formulas[name]} = {show_time(v)}" for name, v in t.terms.items())
        if "steps" not in self.settings:
            bounds += (" (X: bytes that a step copies, in the latency those of the operands whose slots fill together; "
                       "a copy that is skipped counts as 0)")
        found = self.hazards(self.settings["depth"])
        return (f"step {self.step}: {' · '.join(happens(t.schedule, self.step))}\nfill {show_time(t.fill)} · "
                f"drain {show_time(t.drain)} · {sram}\nlower bounds: {bounds}"
                + f"\n✗ {found}" * bool(found))

    def __str__(self) -> str:
        s = self.settings
        asked = (f"N = {self.schedule.steps} steps, depth {s['depth']}, α = {show_time(s['alpha'])}, "
                 f"β = {show_number(s['beta'], 'B/s')}, F = {show_number(s['flops'], 'op/s')}")
        return f"{asked}\n{self.headline}\n{self.details}\n\n{self.timeline.schedule.table()}"

    # -- picture

    @property
    def _page(self) -> range:
        """The steps on show."""
        first = self.step // DRAWN * DRAWN
        return range(first, min(first + DRAWN, self.schedule.steps))

    def _draw(self, figure: Figure, limit: float | None = None, selected: int | None = None) -> Figure:
        part = {"limit": limit} if len(self._page) == self.schedule.steps else {"steps": self._page}
        ax = fresh(figure, (0.075, 0.205, 0.915, 0.77))
        return plot_timeline(self.timeline, ax, title="", selected=selected, **part).figure

    def picture(self) -> str:
        """The timeline as SVG on a white card, its time axis at least as long as the one that is kept."""
        t, page, limit = self.timeline, self._page, max(self._limit or 0.0, self.timeline.total)
        last = limit if len(page) == t.schedule.steps else max(s.end for s in t.spans if s.step in page)
        figure, drawing = self.part(self.what, (self._known[0], page, limit), SIZE, lambda figure: self._draw(
            figure, limit), lambda ax: touch_steps(ax, t, page, last))
        return laid_over(drawing, touch_steps(figure.axes[0], t, range(self.step, self.step + 1), last, now=True))

    def figure(self) -> Figure:
        return self._draw(Figure(figsize=SIZE), selected=int(self.schedule.runs[self.step]))

    # -- controls

    def make_controls(self, w) -> dict:
        s, look = self.settings, {"style": {"description_width": "7.5em"}, "layout": {"width": "25em"}}
        a_most = max(8e-6, 2 * self.first["alpha"])
        most = max(64, self.first["steps"]) if "steps" in s else self.schedule.steps
        made = {"steps": w.IntSlider(s["steps"], 1, most, description="N (steps)", **look)} if "steps" in s else {}
        made["depth"] = w.IntSlider(s["depth"], 1, MOST_SLOTS, description="depth (slots)", **look)
        made["alpha"] = w.FloatSlider(s["alpha"] * 1e6, min=0, max=a_most * 1e6, step=a_most * 1e6 / 32,
                                      readout_format=".2f", description="α latency, µs", **look)
        for name, description, unit in (("beta", "β bandwidth", "B/s"), ("flops", "F compute", "op/s")):
            options = [(show_number(self.first[name] * f, unit), self.first[name] * f) for f in FACTORS]
            made[name] = w.SelectionSlider(options=options, value=s[name], description=description, **look)
        made["step"] = w.IntSlider(s["step"], 0, most - 1, description="look at step", **look)
        return made

    def read(self, name, value):
        return value * 1e-6 if name == "alpha" else value

    def write(self, name, setting):
        if name in ("beta", "flops"):  # these sliders have notches
            return min((v for _, v in self.controls[name].options), key=lambda v: abs(v - setting))
        return setting * 1e6 if name == "alpha" else setting

    def more_buttons(self, w) -> list:
        self._hold = w.Checkbox(False, description="keep the time axis, to compare", indent=False,
                                layout={"width": "22em"})
        self._hold.observe(self._held, "value")
        return [self._hold]

    def notes(self) -> dict[str, str]:
        s, t = self.settings, self.timeline
        size = max(x.block_bytes for x in t.schedule.operands)
        slots = ", ".join(f"{x.array} {x.depth}" for x in t.schedule.operands)
        shown = f"; steps {self._page[0]} to {self._page[-1]} of {t.schedule.steps:,} are drawn"
        notes = {
            "depth": f"slots: {slots}; {t.schedule.sram_bytes:,} bytes of SRAM",
            "alpha": f"a copy arrives {show_time(s['alpha'])} after it left the port",
            "beta": f"a block of {size:,} bytes takes the port for {'X/β = ' * ('steps' in s)}"
                    f"{show_time(size / s['beta'])}",
            "flops": f"a step computes for Y/F = {show_time(t.step_seconds)}",
            "step": "outlined; the mouse tells of others" + shown * (len(self._page) < t.schedule.steps),
        }
        return {"steps": f"{s['steps']:,} blocks of {size:,} bytes", **notes} if "steps" in s else notes

    def close(self) -> None:
        super().close()
        self._limit = None

    def _held(self, change):
        self._limit = self.timeline.total if change["new"] else None
        self.redraw()
