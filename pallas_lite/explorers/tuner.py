"""tuner: the blocks of a matrix product. In: bm, bn, bk, depth, machine. Out: SRAM, traffic, time, and what binds it.

The dot moves on the machine's roofline; rings mark where it was on this machine. Steps, copies and times are those of
the schedule that pallas_call would follow: grid (m/bm, n/bn, k/bk), k innermost, a float32 accumulator in scratch. Of a
long one only so many steps are played as tell its pace.
"""
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from .. import hardware
from ..engines.record import record
from ..errors import SpecError
from ..hardware import TPU_V5E, Machine
from ..plot import PALETTE, plot_roofline, plot_timeline
from ..plot.look import ON_COLOUR
from ..plot.roofline import slope_of
from ..schedule import Schedule
from ..specs import Operand
from ..timeline import Timeline, timeline
from .base import STRONG, Explorer, fresh, laid_over, show_number, show_time, touch_steps

MACHINES = {m.name: m for m in vars(hardware).values() if isinstance(m, Machine) and m is not hardware.TOY}
MOST_SLOTS, DRAWN = 4, 10  # DRAWN: steps of the timeline on show
LANES_HIGH = 2.05  # inches
KEY = "dot: these blocks, now · line: up to their roof · rings: before, on this machine"
PLAYED = 1024  # steps: longer products are played for about so many, and go on at their pace
KINDS = {"bfloat16": 2, "float32": 4}
AMBER = PALETTE[1]  # unlike any roof


def block_tuner(m: int = 2048, n: int = 2048, k: int = 2048, *, bm: int = 256, bn: int = 256, bk: int = 256,
                depth: int = 2, machine: Machine = TPU_V5E, dtype: str = "bfloat16") -> "BlockTuner":
    """Sliders for the blocks of x @ w, x: [m, k], w: [k, n], both `dtype`: SRAM, traffic, modelled time and bound.

    Blocks are the powers of two that divide the sizes. Raises SpecError for sizes that no block of 32 divides, a depth
    out of range, or a dtype that is neither bfloat16 nor float32.

    >>> block_tuner(bm=128, bn=128, bk=128).headline
    '2.272 ms modelled · 4% of the matrix unit · latency-bound'
    """
    return BlockTuner((m, n, k), (bm, bn, bk), depth, machine, dtype)


class Tuner(Explorer):
    """What tuners share: a machine to choose, and of the `_steps` of what was chosen the timeline of the `_first`."""

    def __init__(self, settings: dict, machine: Machine):
        self.machines = {machine.name: machine} | MACHINES
        super().__init__({**settings, "machine": machine.name})

    @property
    def machine(self) -> Machine:
        return self.machines[self.settings["machine"]]

    def _lanes(self, figure) -> Figure:
        """The first steps."""
        ax = fresh(figure, (0.09, 0.24, 0.89, 0.72))
        return plot_timeline(self._first, ax, title="", steps=range(DRAWN), of=self._steps).figure

    def lanes(self) -> str:
        """Their timeline as a part of the picture."""
        return self.part("Timeline", self.settings, (9, LANES_HIGH), self._lanes,
                         lambda ax: touch_steps(ax, self._first, range(DRAWN)))[1]

    def machine_slider(self, w, look: dict):
        """A slider, too: JupyterLab keeps from a list the keys that would move it."""
        return w.SelectionSlider(options=list(self.machines), value=self.settings["machine"], description="machine",
                                 **look)


class BlockTuner(Tuner):
    """What `block_tuner` returns. `settings` has bm, bn, bk, depth and the machine's name."""

    what = "Roofline and timeline of a matrix product."

    def __init__(self, sizes: tuple, blocks: tuple, depth: int, machine: Machine, dtype: str):
        self.sizes, self.dtype, self._known, self._trails = sizes, dtype, (None, None), {}
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
        super().__init__(dict(zip(("bm", "bn", "bk"), blocks, strict=True)) | {"depth": int(depth)}, machine)

    @property
    def asked(self) -> tuple:
        return self.sizes, self.dtype, *self.first.values()

    def choices(self, axis: str) -> list[int]:
        """The blocks that an axis can be cut into: powers of two from 32 on that divide it."""
        size = self.sizes["mnk".index(axis)]
        return [b for b in (32 * 2**i for i in range(20)) if b <= size and size % b == 0]

    # -- what the blocks make

    @property
    def grid(self) -> tuple[int, int, int]:
        """Steps along m, n and k."""
        return tuple(size // self.settings[b] for size, b in zip(self.sizes, ("bm", "bn", "bk"), strict=True))

    _steps = property(lambda self: math.prod(self.grid))

    @property
    def schedule(self) -> Schedule:
        return self._schedule(self.grid, self._steps)

    @property
    def timeline(self) -> Timeline:
        """Of all steps: of a long product it takes a while, and nothing on the page waits for it."""
        return timeline(self.schedule, self.machine)

    def _schedule(self, grid: tuple[int, int, int], steps: int) -> Schedule:
        """The first steps of a product of this grid."""
        bm, bn, bk, depth = (self.settings[name] for name in ("bm", "bn", "bk", "depth"))
        kind = np.dtype(self.dtype if self.dtype == "float32" else "float16")
        i, j, t = (axis.tolist() for axis in np.unravel_index(np.arange(steps), grid))
        m, n, k = grid[0] * bm, grid[1] * bn, grid[2] * bk
        operands = [Operand(name, name, out, depth, shape, kind, block, (), list(zip(*where, strict=True)))
                    for name, out, shape, block, where in (("x", False, (m, k), (bm, bk), (i, t)),
                                                           ("w", False, (k, n), (bk, bn), (t, j)),
                                                           ("o", True, (m, n), (bm, bn), (i, j)))]
        # acc += x @ w: the product, and one addition for each element of the accumulator, in turn on their units.
        work = ("matrix", self.dtype, 2.0 * bm * bn * bk), ("vector", "float32", float(bm * bn))
        found = record(steps, operands, sum(n for *_, n in work), "matmul")
        return replace(found, work=work, scratch=(("acc", f"float32[{bm}, {bn}]", 4 * bm * bn),))

    @property
    def _plays(self) -> list[tuple[float, Timeline]]:
        """Timelines and their weights: what is counted over them, weighted, is that of all steps.

        A short product is played whole. The steps of a long one repeat: each more block of the output (for k = bk, each
        more row of blocks), and each more step along k, costs what the last ones did.
        """
        if self._known[0] is not self.settings:
            (i, j, t), depth = self.grid, self.settings["depth"]
            outer, inner = (i * j, t) if t > 1 else (i, j)
            if i * j * t <= PLAYED:
                grids = [(1.0, self.grid)]
            else:
                rows = shorter(outer, PLAYED // inner, depth)
                steps = shorter(inner, PLAYED // rows[-1][1], depth)
                grids = [(p * q, (a, 1, b) if t > 1 else (a, b, 1)) for p, a in rows for q, b in steps]
            self._known = self.settings, [(weight, timeline(self._schedule(grid, math.prod(grid)), self.machine))
                                          for weight, grid in grids]
        return self._known[1]

    def count(self, of: Callable[[Timeline], float]) -> float:
        """A quantity that grows with the steps, such as seconds or bytes, for all of them."""
        return counted(self._plays, of)

    @property
    def total(self) -> float:
        """Modelled seconds."""
        return self.count(lambda t: t.total)

    @property
    def intensity(self) -> float:
        """Operations for each byte that moves between HBM and SRAM."""
        return self._operations / self.count(lambda t: t.hbm_bytes["total"])

    @property
    def _operations(self) -> float:
        return self._plays[0][1].schedule.flops * math.prod(self.grid)

    @property
    def matrix_share(self) -> float:
        """Share of the time that the matrix unit works; the additions into the accumulator are not its own."""
        m, n, k = self.sizes
        return 2.0 * m * n * k / self.machine.rate("matrix", self.dtype) / self.total

    # -- words

    @property
    def headline(self) -> str:
        t = self._plays[-1][1]
        if t.hazards:
            return f"✗ {t.sram_bytes:,} bytes of SRAM; one kernel has {self.machine.sram_bytes:,}"
        return f"{show_time(self.total)} modelled · {self.matrix_share:.0%} of the matrix unit · {t.bound}-bound"

    @property
    def details(self) -> str:
        moved, steps, played = self.count(lambda t: t.hbm_bytes["total"]), math.prod(self.grid), self._plays
        least = sum(a * b for a, b in ((self.sizes[0], self.sizes[2]), (self.sizes[2], self.sizes[1]),
                                       self.sizes[:2])) * KINDS[self.dtype]
        bounds = ", ".join(f"{name} {show_time(self.count(lambda t, name=name: t.terms[name]))}"
                           for name in played[0][1].terms)
        some = sum(t.schedule.steps for _, t in played) if len(played) > 1 else 0
        return (f"grid {self.grid}, {steps:,} steps{f', at the pace of {some:,}' if some else ''} · SRAM "
                f"{played[0][1].sram_bytes:,} of {self.machine.sram_bytes:,} "
                f"bytes · traffic {show_number(moved, 'B')}, {moved / least:.3g} × the least · intensity "
                f"{self.intensity:.3g} operations a byte\nlower bounds: {bounds}")

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
        return self.intensity, self._operations / self.total

    def _best(self) -> tuple[float, float]:
        """Where it would be at best: on its roof."""
        t = self._plays[0][1]
        return self.intensity, min(t.schedule.flops / t.step_seconds, self.intensity * slope_of(self.machine))

    def _roofs(self, figure) -> Figure:
        """The machine's roofs."""
        roofs = plot_roofline(self.machine, {}, fresh(figure, (0.09, 0.19, 0.89, 0.71)), title=KEY)
        lowest = roofs.get_ylim()[0] / 30  # room for blocks that do badly
        roofs.set_ylim(lowest)
        for drops in roofs.collections:  # from each corner down to the axis
            drops.set_segments([[(x, lowest), top] for (x, _), top in drops.get_segments()])
        return figure

    @property
    def _first(self) -> Timeline:
        """Of the first steps, and of those whose copies they start."""
        steps = min(self._steps, DRAWN + self.settings["depth"])
        return timeline(self._schedule(self.grid, steps), self.machine)

    def picture(self) -> str:
        now, s = self._dot(), self.settings
        figure, roofs = self.part("Roofline", s["machine"], (9, 2.5), self._roofs)
        here = ", ".join(f"{name} {s[name]}" for name in ("bm", "bn", "bk", "depth"))
        # Each machine has its own: what another one did is not on this roofline.
        trail = [(dot, words) for dot, words in self._trails.get(s["machine"], []) if dot != now][-4:]
        self._trails[s["machine"]] = [*trail, (now, here)]
        (x, y), (_, top) = (_place(figure, dot) for dot in (now, self._best()))
        marks = [_circle(figure, dot, f"before: {words}", "none", "#8a8a8a") for dot, words in trail]
        marks += [f'<path d="M {x:.1f} {y:.1f} V {top:.1f}" style="stroke: {STRONG}"/>',
                  _circle(figure, now, f"now: {here}", AMBER, STRONG)]
        return laid_over(roofs, marks) + self.lanes()

    def figure(self) -> Figure:
        figure = Figure(figsize=(9, 2.5 + LANES_HIGH))
        above, below = figure.subfigures(2, height_ratios=(2.5, LANES_HIGH))
        (x, y), (_, roof), roofs = self._dot(), self._best(), self._roofs(above).axes[0]
        roofs.vlines(x, y, roof, color=ON_COLOUR, lw=0.8)
        roofs.plot(x, y, "o", ms=9, mfc=AMBER, mec=ON_COLOUR, zorder=5)
        self._lanes(below)
        return figure

    # -- controls

    def make_controls(self, w) -> dict:
        look = {"style": {"description_width": "5em"}, "layout": {"width": "25em"}}
        made = {f"b{axis}": w.SelectionSlider(options=self.choices(axis), value=self.settings[f"b{axis}"],
                                              description=f"b{axis}", **look) for axis in "mnk"}
        made["depth"] = w.IntSlider(self.settings["depth"], 1, MOST_SLOTS, description="depth", **look)
        made["machine"] = self.machine_slider(w, look)
        return made


def counted(plays: list[tuple[float, Timeline]], of: Callable[[Timeline], float]) -> float:
    """A quantity that grows with the steps, for all of those that these weighted timelines stand for."""
    return sum(weight * of(t) for weight, t in plays)


def shorter(count: int, most: int, depth: int) -> list[tuple[float, int]]:
    """Two counts up to about `most`, and weights that carry what grows evenly from them to `count`.

    They differ by whole rounds of the slots.  >>> shorter(100, 10, 2)
    [(-22.5, 6), (23.5, 10)]
    """
    if count <= (most := max(most, 8)):
        return [(1.0, count)]
    high = most - (most - count) % depth
    low = high - max(high // 2 // depth, 1) * depth
    weight = (count - low) / (high - low)
    return [(1 - weight, low), (weight, high)]


def _place(figure: Figure, dot: tuple[float, float]) -> tuple[float, float]:
    """Where a dot of the roofline lies in its SVG."""
    return figure.axes[0].transData.transform(dot) * 72 / figure.dpi * (1, -1) + (0, 72 * figure.get_figheight())


def _circle(figure: Figure, dot: tuple[float, float], words: str, fill: str, line: str) -> str:
    """A dot of the roofline, laid over the drawing."""
    x, y = _place(figure, dot)
    return (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{fill}" '
            f'style="stroke: {line}; stroke-width: 1.5"><title>{words}</title></circle>')
