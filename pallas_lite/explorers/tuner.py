"""tuner: the blocks of a matrix product. In: bm, bn, bk, depth, machine. Out: SRAM, traffic, time, and what binds it.

The dot moves on the machine's roofline; rings mark where it was. Steps, copies and times are those of the schedule
that pallas_call would follow: grid (m/bm, n/bn, k/bk), k innermost, a float32 accumulator in scratch.
"""
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from .. import hardware
from ..engines.record import record
from ..errors import SpecError
from ..hardware import TPU_V5E, Machine
from ..plot import PALETTE, plot_roofline, plot_timeline
from ..schedule import Schedule
from ..show import svg
from ..specs import Operand
from ..timeline import Timeline, timeline
from .base import Explorer, laid_over, show_number, show_time

MACHINES = {m.name: m for m in (hardware.TPU_V5E, hardware.TPU_V5P, hardware.TPU_V6E, hardware.A100, hardware.H100,
                                hardware.H200)}
MOST_SLOTS, DRAWN = 4, 10  # DRAWN: steps of the timeline on show
KINDS = {"bfloat16": 2, "float32": 4}
BLUE = PALETTE[0]


def block_tuner(m: int = 2048, n: int = 2048, k: int = 2048, *, bm: int = 256, bn: int = 256, bk: int = 256,
                depth: int = 2, machine: Machine = TPU_V5E, dtype: str = "bfloat16") -> "BlockTuner":
    """Sliders for the blocks of x @ w, x: [m, k], w: [k, n], both `dtype`: SRAM, traffic, modelled time and bound.

    Blocks are the powers of two that divide the sizes. Raises SpecError for sizes that no block of 32 divides, a depth
    out of range, or a dtype that is neither bfloat16 nor float32.

    >>> block_tuner(bm=128, bn=128, bk=128).headline
    '2.272 ms modelled · 4% of the matrix unit · latency-bound'
    """
    return BlockTuner((m, n, k), (bm, bn, bk), depth, machine, dtype)


class BlockTuner(Explorer):
    """What `block_tuner` returns. `settings` has bm, bn, bk, depth and the machine's name."""

    what = "Roofline and timeline of a matrix product."

    def __init__(self, sizes: tuple, blocks: tuple, depth: int, machine: Machine, dtype: str):
        self.sizes, self.dtype, self._known, self._trail = sizes, dtype, (None, None), []
        if dtype not in KINDS:
            raise SpecError(f"block_tuner(dtype={dtype!r}): give one of {', '.join(KINDS)}.")
        for name, size, block in zip(("m", "n", "k"), sizes, blocks, strict=True):
            if not isinstance(size, (int, np.integer)) or size < 32 or size % 32:
                raise SpecError(f"block_tuner({name}={size!r}): give a whole multiple of 32.")
            if block not in self.choices(name):
                raise SpecError(f"block_tuner(b{name}={block!r}): {name} = {size} can be cut into blocks of "
                                f"{', '.join(map(str, self.choices(name)))}.")
        if depth not in range(1, MOST_SLOTS + 1):
            raise SpecError(f"block_tuner(depth={depth!r}): give a whole number from 1 to {MOST_SLOTS}.")
        self.machines = {machine.name: machine} | MACHINES
        bm, bn, bk = blocks
        super().__init__({"bm": bm, "bn": bn, "bk": bk, "depth": int(depth), "machine": machine.name})

    @property
    def asked(self) -> tuple:
        return self.sizes, self.dtype, *self.first.values()

    def choices(self, axis: str) -> list[int]:
        """The blocks that an axis can be cut into: powers of two from 32 on that divide it."""
        size = self.sizes["mnk".index(axis)]
        return [b for b in (32 * 2**i for i in range(20)) if b <= size and size % b == 0]

    # -- what the blocks make

    @property
    def machine(self) -> Machine:
        return self.machines[self.settings["machine"]]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Steps along m, n and k."""
        return tuple(size // self.settings[b] for size, b in zip(self.sizes, ("bm", "bn", "bk"), strict=True))

    @property
    def schedule(self) -> Schedule:
        (m, n, k), (bm, bn, bk) = self.sizes, (self.settings[b] for b in ("bm", "bn", "bk"))
        depth, kind = self.settings["depth"], np.dtype(self.dtype if self.dtype == "float32" else "float16")
        i, j, t = (axis.ravel().tolist() for axis in np.indices(self.grid))
        operands = [Operand(name, name, out, depth, shape, kind, block, (), list(zip(*where, strict=True)))
                    for name, out, shape, block, where in (("x", False, (m, k), (bm, bk), (i, t)),
                                                           ("w", False, (k, n), (bk, bn), (t, j)),
                                                           ("o", True, (m, n), (bm, bn), (i, j)))]
        # acc += x @ w: the product, and one addition for each element of the accumulator, in turn on their units.
        work = ("matrix", self.dtype, 2.0 * bm * bn * bk), ("vector", "float32", float(bm * bn))
        found = record(len(i), operands, sum(n for *_, n in work), "matmul")
        return replace(found, work=work, scratch=(("acc", f"float32[{bm}, {bn}]", 4 * bm * bn),))

    @property
    def timeline(self) -> Timeline:
        if self._known[0] is not self.settings:
            self._known = self.settings, timeline(self.schedule, self.machine)
        return self._known[1]

    @property
    def matrix_share(self) -> float:
        """Share of the time that the matrix unit works; the additions into the accumulator are not its own."""
        m, n, k = self.sizes
        return 2.0 * m * n * k / self.machine.rate("matrix", self.dtype) / self.timeline.total

    # -- words

    @property
    def headline(self) -> str:
        t = self.timeline
        if t.hazards:
            return f"✗ {t.sram_bytes:,} bytes of SRAM; one kernel has {self.machine.sram_bytes:,}"
        return f"{show_time(t.total)} modelled · {self.matrix_share:.0%} of the matrix unit · {t.bound}-bound"

    @property
    def details(self) -> str:
        t = self.timeline
        moved = t.hbm_bytes["total"]
        least = sum(a * b for a, b in ((self.sizes[0], self.sizes[2]), (self.sizes[2], self.sizes[1]),
                                       self.sizes[:2])) * KINDS[self.dtype]
        bounds = ", ".join(f"{name} {show_time(seconds)}" for name, seconds in t.terms.items())
        return (f"grid {self.grid}, {t.schedule.steps:,} steps · SRAM {t.sram_bytes:,} of {self.machine.sram_bytes:,} "
                f"bytes · traffic {show_number(moved, 'B')}, {moved / least:.3g} × the least · intensity "
                f"{t.intensity:.3g} operations a byte\nlower bounds: {bounds}")

    def __str__(self) -> str:
        s = self.settings
        return (f"x[{self.sizes[0]}, {self.sizes[2]}] @ w[{self.sizes[2]}, {self.sizes[1]}] in {self.dtype}, bm = "
                f"{s['bm']}, bn = {s['bn']}, bk = {s['bk']}, depth {s['depth']}, on {s['machine']}\n{self.headline}\n"
                f"{self.details}")

    def notes(self) -> dict[str, str]:
        s, size = self.settings, KINDS[self.dtype]
        return {"bm": f"a block of x: {s['bm']} × {s['bk']}, {s['bm'] * s['bk'] * size:,} bytes",
                "bn": f"a block of w: {s['bk']} × {s['bn']}, {s['bk'] * s['bn'] * size:,} bytes",
                "bk": f"{self.grid[2]} steps for each block of the output",
                "depth": f"{s['depth']} slots each" if s["depth"] > 1 else "1 slot each: nothing overlaps",
                "machine": f"{show_number(self.machine.beta, 'B/s')}, "
                           f"{show_number(self.machine.rate('matrix', self.dtype), 'op/s')}"}

    # -- picture

    def _dot(self) -> tuple[float, float]:
        """Where the product is on the roofline: operations a byte, operations a second."""
        t = self.timeline
        return t.intensity, t.schedule.flops * t.schedule.steps / t.total

    def _figure(self) -> Figure:
        """The machine's roofs, and the first steps."""
        figure = Figure(figsize=(9, 4.4))
        roofs = plot_roofline(self.machine, {}, figure.add_axes((0.09, 0.53, 0.89, 0.42)), title="")
        lowest = roofs.get_ylim()[0] / 30  # room for blocks that do badly
        roofs.set_ylim(lowest)
        for drops in roofs.collections:  # from each corner down to the axis
            drops.set_segments([[(x, lowest), top] for (x, _), top in drops.get_segments()])
        plot_timeline(self.timeline, figure.add_axes((0.09, 0.11, 0.89, 0.27)), title="", steps=range(DRAWN))
        return figure

    def picture(self) -> str:
        now, figure = self._dot(), self._figure()
        text = svg(figure.axes[0], f"{self.what} {self.headline}")
        self._trail = [dot for dot in self._trail if dot != now][-4:]
        marks = [_circle(figure, dot, "none", "#666666") for dot in self._trail]
        marks.append(_circle(figure, now, BLUE, "#111111"))
        self._trail.append(now)
        return laid_over(text, marks)

    def figure(self) -> Figure:
        figure = self._figure()
        figure.axes[0].plot(*self._dot(), "o", ms=9, mfc=BLUE, mec="#111111", zorder=5)
        return figure

    # -- controls

    def make_controls(self, w) -> dict:
        look = {"style": {"description_width": "5em"}, "layout": {"width": "25em"}}
        made = {f"b{axis}": w.SelectionSlider(options=self.choices(axis), value=self.settings[f"b{axis}"],
                                              description=f"b{axis}", **look) for axis in "mnk"}
        made["depth"] = w.IntSlider(self.settings["depth"], 1, MOST_SLOTS, description="depth", **look)
        made["machine"] = w.Dropdown(options=list(self.machines), value=self.settings["machine"],
                                     description="machine", **look)
        return made


def _circle(figure: Figure, dot: tuple[float, float], fill: str, line: str) -> str:
    """A dot of the roofline, laid over the drawing."""
    x, y = figure.axes[0].transData.transform(dot) * 72 / figure.dpi
    return (f'<circle cx="{x:.1f}" cy="{figure.get_figheight() * 72 - y:.1f}" r="6" fill="{fill}" stroke="{line}" '
            'stroke-width="1.5"/>')
