"""choices: what each setting of a kernel costs, the others held -> a picture. Modelled times; where to go from here."""
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..errors import SpecError
from ..timeline import unit_of
from .look import entitle, fitted, ink_of
from .sweep import line

KEY = "filled: legal · hollow: refused · ✗: refused, no schedule · ring: chosen"


class Choice(NamedTuple):
    """What a setting costs. `seconds`: modelled; NaN where it was refused before there was a schedule to time."""

    seconds: float
    wrong: str = ""  # why it may not be; "" is legal


def plot_choices(slices: Mapping[str, Mapping[Any, Choice]], chosen: Mapping[str, Any], ax: Axes | None = None, *,
                 best: float | None = None, so_far: int = 0, title: str = "") -> Axes:
    """Modelled time against each setting, side by side, each with the others as `chosen`.

    `slices`: the name of a setting -> its values in order -> a Choice, or None where it is not known yet. A setting has
    one line through its values; a ring marks the chosen value on each. `best`: seconds, a dashed line, named below the
    axis, where it covers no point; `so_far`: of how many it is the best, if not of all. The time axis is logarithmic
    where the longest is more than eight times the shortest, else it begins at 0.
    """
    if ax is None:
        ax = Figure(figsize=(9, 2.8), layout="constrained").add_subplot()
    known = [c.seconds for row in slices.values() for c in row.values() if c and not math.isnan(c.seconds)]
    if not known:
        raise SpecError("plot_choices: no choice has a time; give at least one Choice(seconds).")
    (unit, name), ink, at, ticks = unit_of(max(known)), ink_of(ax), 0, []
    low, high = min([*known, best or math.inf]) / unit, max(known) / unit
    logarithmic = high > 8 * low
    bottom, top = (low / 1.6, high * 2.2) if logarithmic else (0, high * 1.25)
    each = 0.9 * ax.figure.bbox.width / ax.figure.dpi / (sum(map(len, slices.values())) + len(slices))
    for number, (setting, row) in enumerate(slices.items()):
        color, marker = line(number, ink)
        places = {value: at + n for n, value in enumerate(row)}
        timed = {v: (places[v], c.seconds / unit) for v, c in row.items() if c and not math.isnan(c.seconds)}
        legal, refused = ([at for v, at in timed.items() if (not row[v].wrong) == fine] for fine in (True, False))
        for points, style in ((timed.values(), {"lw": 1.4}), (legal, {"marker": marker, "ls": "", "ms": 7}),
                              (refused, {"marker": marker, "ls": "", "ms": 7, "mfc": ink.paper})):
            ax.plot(*zip(*points, strict=True) if points else ((), ()), color=color, zorder=2 + len(style), **style)
        if chosen[setting] in timed:
            ax.plot(*timed[chosen[setting]], "o", ms=14, mfc="none", mec=ink.strong, mew=2)
        for value, choice in row.items():
            if choice and math.isnan(choice.seconds):
                ax.annotate("✗", (places[value], 0.06), xycoords=("data", "axes fraction"), ha="center", va="center",
                            color=ink.mark, fontsize=11)
        text, size = fitted(setting, 0.9 * each * len(row))  # bold letters
        ax.annotate(text, (at - 0.35, 0.97), xycoords=("data", "axes fraction"), va="top", fontsize=size, color=color,
                    weight="bold")
        ticks += [(place, shown(value)) for value, place in places.items()]
        at += len(row) + 1
        if number + 1 < len(slices):
            ax.axvline(at - 1, color=ink.soft, lw=0.8, alpha=0.5)
    if best is not None:
        ax.axhline(best / unit, color=ink.strong, lw=0.9, ls="--", zorder=1)
    ax.set(xlim=(-0.6, at - 1.4), yscale="log" if logarithmic else "linear", ylim=(bottom, top))
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if logarithmic else MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(FixedLocator([place for place, _ in ticks]))
    ax.xaxis.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    size = min(fitted(text, 0.9 * each, least=1)[1] for _, text in ticks)
    ax.tick_params("x", labelsize=max(size, 7), labelrotation=45 if size < 7 else 0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_ylabel(f"modelled time ({name})", fontsize=9)
    among = f" of {so_far:,} modelled so far" if so_far else ""
    ax.set_xlabel(KEY + (f" · dashed: best{among}, {best / unit:.4g} {name}" if best is not None else ""), fontsize=9)
    entitle(ax, title)
    return ax


def shown(value: Any) -> str:
    """A setting's value in a few letters.  >>> shown(128), shown((0, 2, 1)), shown(math.sqrt)
    ('128', '0·2·1', 'sqrt')
    """
    return "·".join(map(shown, value)) if isinstance(value, tuple) else getattr(value, "__name__", str(value))
