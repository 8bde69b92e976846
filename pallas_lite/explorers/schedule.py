"""schedule: α, β, F, N and depth under sliders -> the pipeline's timeline, redrawn at each move.

In: numbers. They become operands, a Schedule (engines/record.py) and a Timeline; plot/ draws it. The rest is base.py's.
"""
import numpy as np
from matplotlib.figure import Figure

from ..engines.record import record
from ..errors import SpecError
from ..hardware import TOY, Machine
from ..plot import plot_timeline
from ..schedule import Schedule
from ..show import svg
from ..specs import Operand
from ..timeline import Timeline, timeline
from .base import Explorer, show_number, show_time

FACTORS = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 1.5, 2, 3, 4, 8)  # β and F move in these, from the machine's own
MOST_STEPS, MOST_SLOTS = 1000, 8


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
    return ScheduleExplorer(steps, depth, machine, block_bytes, step_flops)


class ScheduleExplorer(Explorer):
    """What `schedule_explorer` returns. `settings` has the numbers, `controls` the sliders, `ui` the whole widget."""

    def __init__(self, steps: int, depth: int, machine: Machine, block_bytes: int, step_flops: float):
        for name, value, most in (("steps", steps, MOST_STEPS), ("depth", depth, MOST_SLOTS)):
            if not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
                raise SpecError(f"schedule_explorer({name}={value!r}): give a whole number from 1 to {most}.")
        if machine.alpha < 0 or machine.beta <= 0 or machine.flops <= 0 or block_bytes < 1 or step_flops < 0:
            raise SpecError("schedule_explorer: alpha must be 0 or more; beta, flops and block_bytes more than 0.")
        self.machine, self.block_bytes, self.step_flops = machine, int(block_bytes), float(step_flops)
        self._limit, self._axes, self._known = None, None, (None, None)
        super().__init__({"steps": int(steps), "depth": int(depth), "alpha": machine.alpha, "beta": machine.beta,
                          "flops": machine.flops})

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
        return f"{show_time(t.total)} modelled · core busy {t.utilisation:.0%} · {t.bound}-bound"

    @property
    def details(self) -> str:
        """Fill, drain, SRAM and the three lower bounds with their formulas."""
        t = self.timeline
        needs, has = t.schedule.sram_bytes, self.machine.sram_bytes
        sram = f"SRAM {needs:,} of {has:,} bytes" + (" ✗ does not fit" if needs > has else "")
        formulas = {"compute": "N·Y/F", "bandwidth": "N·X/β", "latency": "N·(α + X/β + Y/F)/depth"}
        bounds = ", ".join(f"{name} {formulas[name]} = {show_time(v)}" for name, v in t.terms.items())
        return f"fill {show_time(t.fill)} · drain {show_time(t.drain)} · {sram}\nlower bounds: {bounds}"

    def __str__(self) -> str:
        s = self.settings
        asked = (f"N = {s['steps']} steps, depth {s['depth']}, α = {show_time(s['alpha'])}, "
                 f"β = {show_number(s['beta'], 'B/s')}, F = {show_number(s['flops'], 'op/s')}")
        return f"{asked}\n{self.headline}\n{self.details}\n\n{self.timeline.schedule.table()}"

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

    def picture(self) -> str:
        """The timeline as SVG on a white card, its time axis at least as long as the one that is kept."""
        return svg(self._draw(max(self._limit or 0.0, self.timeline.total)), f"{self.what} {self.headline}")

    def figure(self) -> Figure:
        return self._draw().figure

    # -- controls

    def make_controls(self, w) -> dict:
        s, look = self.settings, {"style": {"description_width": "7.5em"}, "layout": {"width": "25em"}}
        a_most = max(8e-6, 2 * self.first["alpha"])
        made = {
            "steps": w.IntSlider(s["steps"], 1, max(64, self.first["steps"]), description="N (steps)", **look),
            "depth": w.IntSlider(s["depth"], 1, MOST_SLOTS, description="depth (slots)", **look),
            "alpha": w.FloatSlider(s["alpha"] * 1e6, min=0, max=a_most * 1e6, step=a_most * 1e6 / 32,
                                   readout_format=".2f", description="α latency, µs", **look),
        }
        for name, description, unit in (("beta", "β bandwidth", "B/s"), ("flops", "F compute", "op/s")):
            options = [(show_number(self.first[name] * f, unit), self.first[name] * f) for f in FACTORS]
            made[name] = w.SelectionSlider(options=options, value=s[name], description=description, **look)
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
        s, bytes_ = self.settings, f"{self.block_bytes:,} bytes"
        slots = f"{s['depth']} slots" if s["depth"] > 1 else "1 slot"
        return {
            "steps": f"{s['steps']} blocks of {bytes_}, one a step",
            "depth": f"{slots} an operand: {self.timeline.schedule.sram_bytes:,} bytes of SRAM",
            "alpha": f"a copy arrives {show_time(s['alpha'])} after it left the port",
            "beta": f"a copy takes the port for X/β = {show_time(self.block_bytes / s['beta'])}",
            "flops": f"a step computes for Y/F = {show_time(self.step_flops / s['flops'])}",
        }

    def close(self) -> None:
        super().close()
        self._axes = self._limit = None

    def _held(self, change):
        self._limit = self.timeline.total if change["new"] else None
        self.redraw()
