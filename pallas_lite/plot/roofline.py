"""roofline: a machine, and kernels on it -> operations per second against intensity. Modelled bounds, not measured.

No kernel does more than min(F, intensity · β) operations per second: F is what its unit can do, β what the HBM brings,
and the intensity says how many operations it makes of a byte. Source: Williams, Waterman, Patterson, "Roofline", 2009.
"""
import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import SpecError, expect
from ..hardware import Machine
from ..schedule import Schedule
from ..timeline import Timeline, timeline
from .look import AMBER, LETTER, ON_COLOUR, entitle, inches_of, ink_of

Kernel = Schedule | Timeline | float | tuple[float, str, str]
ROOFS = ("vector", "float32"), ("matrix", "bfloat16")  # always drawn
COLORS = {"vector": ("#0072B2", "#7CC4F2"), "matrix": ("#A34A00", "#F2A26B")}  # for text on a light page, on a dark one
WHAT = ("a kernel is a schedule, a timeline, an intensity in operations per byte, or (intensity, unit, dtype), such as "
        '(170.0, "matrix", "bfloat16")')


def plot_roofline(machine: Machine, kernels: Mapping[str, Kernel], ax: Axes | None = None, *,
                  title: str | None = None) -> Axes:
    """Operations per second against operations per byte, both axes logarithmic: the machine's roofs, kernels by name.

    A kernel is a Schedule (a dot on its roof: the most that its intensity allows), a Timeline on this machine (a dot
    where it is modelled to be, with a line up to its roof), an intensity of the vector unit in float32, or (intensity,
    unit, dtype). Roofs: the vector unit in float32, the matrix unit in bfloat16, and others that a kernel uses. The
    number under a corner is the intensity from which on the unit is the limit. With one port each way (the toy machine)
    the slope has both. Raises SpecError for anything else, and for an intensity that a logarithmic axis cannot show.
    """
    expect(Machine, machine, "plot_roofline takes a machine: one of pl.hardware, such as pl.hardware.TPU_V5E")
    expect(Mapping, kernels, f"plot_roofline takes kernels by their names, {{name: kernel}}; {WHAT}")
    if ax is None:
        ax = Figure(figsize=(9, 3.6), layout="constrained").add_subplot()
    ink = ink_of(ax)
    slope = slope_of(machine)
    dots = {name: _dot(name, kernel, machine, slope) for name, kernel in kernels.items()}
    roofs = list(dict.fromkeys([*ROOFS, *(roof for *_, used in dots.values() for roof in used)]))
    corners = {roof: machine.rate(*roof) / slope for roof in roofs}
    found = [*corners.values(), *(intensity for intensity, *_ in dots.values())]
    left, right = min(found) / 4, max(found) * 60
    ax.set(xscale="log", yscale="log", xlim=(left, right))
    ax.set_ylim(min(left * slope, *(y for _, y, *_ in dots.values()), math.inf) / 2, max(corners.values()) * slope * 4)
    ax.plot([left, max(corners.values())], [left * slope, max(corners.values()) * slope], color=ink.strong, lw=2)
    taken: list[tuple[float, ...]] = []  # where names and dots stand: left, low, right and high, in points
    alike = {}  # roofs that lie on each other have one line and one name
    for unit, dtype in roofs:
        alike.setdefault((unit, machine.rate(unit, dtype)), []).append(dtype)
    for (unit, rate), dtypes in alike.items():
        corner, color = rate / slope, COLORS[unit][ink.dark]
        ax.plot([corner, right], [rate, rate], color=color, lw=2)
        ax.vlines(corner, ax.get_ylim()[0], rate, color=color, lw=0.8, linestyles=":")
        name = f"{unit} unit, {' and '.join(dtypes)}: {_power(rate)} op/s"
        ax.annotate(name, (right, rate), (0, 4), ha="right", textcoords="offset points", fontsize=9, color=color)
        x, y = _points(ax, right, rate)
        taken.append((x - 9 * LETTER * 72 * len(name), y + 2, x, y + 14))
        ax.annotate(f"{corner:.3g}", (corner, 0.02), (3, 0), xycoords=("data", "axes fraction"),
                    textcoords="offset points", fontsize=8, color=color)
    taken += [(x - 5, y - 5, x + 5, y + 5) for x, y in (_points(ax, *dot[:2]) for dot in dots.values())]
    for name, (intensity, y, roof, _) in dots.items():
        ax.vlines(intensity, y, roof, color=ink.soft, lw=0.8)
        ax.plot(intensity, y, "o", ms=8, mfc=AMBER, mec=ON_COLOUR, zorder=3)
        # Above the slope and below the flat roof there is room for a name.
        right_below = y < roof or intensity * slope > roof * 1.001
        x, down = _free(_points(ax, intensity, y), 9 * LETTER * 72 * len(name), right_below, taken, ax)
        ax.annotate(name, (intensity, y), (x, down), textcoords="offset points", fontsize=9,
                    ha="left" if x > 0 else "right", color=ink.strong)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("intensity (operations per byte between HBM and SRAM)", fontsize=9)
    ax.set_ylabel("operations per second", fontsize=9)
    entitle(ax, title if title is not None else f"{machine.name}: roofline, modelled")
    return ax


def _points(ax: Axes, x: float, y: float) -> tuple[float, float]:
    """How far from an axis' corner a place of its is, in points, about: a constrained layout makes it larger."""
    part = ax.transLimits.transform(ax.transScale.transform((x, y)))
    return tuple(part * 72 * ax.bbox.size / ax.figure.dpi)


def _free(dot: tuple[float, float], wide: float, right_below: bool, taken: list, ax: Axes) -> tuple[float, float]:
    """Where a name goes from its dot, in points: beside it, where it is inside and on nothing else; else further down.

    Notes the place in `taken`.
    """
    end = 72 * inches_of(ax)
    beside = [(7, -11), (-7, 4)] if right_below else [(-7, 4), (7, -11)]
    for x, y in [*beside, (-7, -11), (7, 4), *((7 * side, -11 - 12 * n) for n in range(1, 5) for side in (1, -1))]:
        left = dot[0] + x - wide * (x < 0)
        box = left, dot[1] + y - 2, left + wide, dot[1] + y + 9
        clear = all(box[2] < a or c < box[0] or box[3] < b or d < box[1] for a, b, c, d in taken)
        if clear and left > 0 and left + wide < end and box[1] > 0:
            break
    else:
        (x, y), box = beside[0], (dot[0], dot[1], dot[0], dot[1])
    taken.append(box)
    return x, y


def slope_of(machine: Machine) -> float:
    """Bytes that a machine's ports move in a second, all together."""
    return machine.beta * (2 if machine.duplex else 1)


def _dot(name: str, kernel: Kernel, machine: Machine, slope: float) -> tuple[float, float, float, list]:
    """Of a kernel: its intensity; where it is drawn, and the roof above it, in operations per second; roofs it uses."""
    if isinstance(kernel, (Schedule, Timeline)):
        t = kernel if isinstance(kernel, Timeline) else timeline(kernel, machine)
        if t.machine != machine:
            raise SpecError(f"{name}: its timeline is that of {t.machine.name}, and this is the roofline of "
                            f"{machine.name}. Take f.trace(x).timeline(machine) with this machine.")
        s, used = t.schedule, [(unit, dtype) for unit, dtype, _ in t.schedule.work]
        intensity, peak = s.intensity, s.flops / t.step_seconds if t.step_seconds else math.inf
        reached = s.flops * s.steps / t.total if isinstance(kernel, Timeline) and t.total else math.inf
    else:
        intensity, *roof = kernel if isinstance(kernel, tuple) else (kernel, *ROOFS[0])
        expect((int, float), intensity, f"{name}: {WHAT}")
        if len(roof) != 2 or roof[0] not in COLORS:
            raise SpecError(f'{name}: {WHAT}. The unit is "vector" or "matrix".')
        used, peak, reached = [tuple(roof)], machine.rate(*roof), math.inf
    if not 0 < intensity < math.inf:
        raise SpecError(f"{name}: its intensity is {intensity:g}, and a logarithmic axis has no place for that. A "
                        "kernel on a roofline moves bytes and does operations.")
    roof = min(peak, intensity * slope)
    return intensity, min(roof, reached), roof, used


def _power(x: float) -> str:
    """A rate with a power of a thousand.  >>> _power(197e12)
    '197·10¹²'
    """
    exponent = 3 * math.floor(math.log10(x) / 3)
    return f"{x / 10**exponent:.4g}·10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
