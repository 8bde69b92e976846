"""sweep: Timelines of one kernel with many block sizes and depths -> a picture of their modelled times."""
import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from ..errors import expect
from ..timeline import Timeline, unit_of
from .look import Ink, entitle, ink_of

# Okabe and Ito's colours, dark enough for lines; markers tell the lines apart in grey.
LINES, MARKERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F"), "os^Dv<P"
ON_DARK = {"#0072B2": "#56B4E9"}
TAKES = "plot_sweep takes {depth: {block size: timeline}}, each of f.trace(x).timeline(machine)"
BOUNDS = {"compute": "-", "bandwidth": "--", "latency": ":"}


def plot_sweep(timelines: Mapping[int, Mapping[int, Timeline]], ax: Axes | None = None, *, xlabel: str = "block size",
               title: str | None = None) -> Axes:
    """Modelled time against block size, both on logarithmic axes, a line for each depth.

    `timelines`: depth -> block size -> Timeline, all on one machine. A hollow point needs more SRAM than the machine
    has. Thin lines are the lower bounds of `Timeline.terms`: compute and bandwidth, the same for all depths (those of
    the first depth are drawn), and with each depth's colour and marker its latency bound.
    """
    expect(Mapping, timelines, TAKES)
    for row in timelines.values():
        expect(Mapping, row, TAKES)
    lines = {depth: dict(sorted(row.items())) for depth, row in timelines.items() if row}
    everything = [t for row in lines.values() for t in row.values()]
    for t in everything or [None]:
        expect(Timeline, t, TAKES)
    if ax is None:
        ax = Figure(figsize=(9, 4), layout="constrained").add_subplot()
    (unit, name), ink = unit_of(min(t.total for t in everything)), ink_of(ax)
    legend = []
    for number, (depth, row) in enumerate(lines.items()):
        color, marker = line(number, ink)
        ax.plot(list(row), [t.total / unit for t in row.values()], color=color, lw=1.6, zorder=3)
        for fits, fill in ((True, color), (False, ink.paper)):
            chosen = {size: t.total / unit for size, t in row.items() if (not t.hazards) == fits}
            ax.plot(list(chosen), list(chosen.values()), marker, color=color, mfc=fill, ms=6, zorder=4)
        plain = {"color": ink.soft, "marker": "_" * (len(row) == 1), "ms": 16}
        for bound, style in BOUNDS.items():
            if bound == "latency" or not number:
                mine = {"color": color, "marker": marker, "ms": 3.5, "mfc": "none", "mew": 0.8}  # colours go, in grey
                ax.plot(list(row), [t.terms[bound] / unit for t in row.values()], style, lw=0.9, zorder=2,
                        **mine if bound == "latency" else plain)
        legend.append(Line2D([], [], color=color, marker=marker, label=f"depth {depth}"))
    lowest = _axes(ax, sorted({size for row in lines.values() for size in row}))
    legend += [Line2D([], [], color=ink.soft, ls=style, lw=0.9, label=f"{bound} bound")
               for bound, style in BOUNDS.items() if max(t.terms[bound] for t in everything) / unit > lowest]
    if any(t.hazards for t in everything):
        legend.append(Line2D([], [], color=ink.soft, marker="o", mfc=ink.paper, ls="", label="more than the SRAM"))
    ax.legend(handles=legend, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    ax.set_xlabel(xlabel, fontsize=9)
    ax.set_ylabel(f"modelled time ({name})", fontsize=9)
    if title is None:
        title = f"{everything[0].schedule.name} on {everything[0].machine.name}"
    entitle(ax, title)
    return ax


def line(number: int, ink: Ink) -> tuple[str, str]:
    """The colour and the marker of the line of this number; the first 35 differ."""
    color = LINES[number % len(LINES)]
    return ON_DARK.get(color, color) if ink.dark else color, MARKERS[number % len(MARKERS)]


def _axes(ax: Axes, sizes: list[int]) -> float:
    """Logarithmic axes with plain numbers: a tick for each block size, and for 1, 2 and 5 times a power of ten.

    Returns where the time axis begins: a bound far below the times would squeeze them, so it leaves the picture.
    """
    ax.set_xscale("log", base=2)
    named = sizes[:1]
    for size in sizes:  # those that the one before leaves room to name
        if math.log(size / named[-1]) > (0.01 + 0.012 * len(f"{size:g}")) * math.log(sizes[-1] / sizes[0]):
            named.append(size)
    ax.xaxis.set_major_locator(FixedLocator(named))
    ax.xaxis.set_minor_locator(FixedLocator([size for size in sizes if size not in named]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yscale("log")
    times = [y for line in ax.lines if line.get_linestyle() == "None" for y in line.get_ydata()]
    ax.set_ylim(min(times) / 2, max(times) * 1.3)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", color="#888888", alpha=0.3, lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return min(times) / 2
