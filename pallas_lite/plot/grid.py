"""grid: a Schedule -> a picture of one operand's array: its blocks, which steps take which, and what is copied."""
import itertools
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..errors import SpecError, expect, many
from ..schedule import OperandInfo, Schedule, origin
from .look import AMBER, BLUE, ON_COLOUR, RUST, boxes, entitle, inches_of, ink_of

if TYPE_CHECKING:
    from ..traced import Traced

# Hatches tell the kinds apart where colours do not: in print, and for colour-blind readers. None is level or upright:
# those would look like more blocks.
KINDS = {"not visited": ("none", "////"), "copied once": (BLUE, ""), "kept for several steps": (AMBER, r"\\"),
         "copied again": (RUST, "..")}
EDGE = "#444444"  # and hatches
PAST = "paler, past the edge: not copied"
DRAWN = 4096  # blocks, or visits, that are drawn one by one
NUMBERED = 100  # blocks: with more of them, step numbers would be too small to read
THINNEST = 0.12  # of the width: an array is drawn as high as that at least
LETTERING = (9, 1), (7, 2), (7, 3)  # of step numbers: points and lines, as large as all blocks have room for


@dataclass(frozen=True)
class Visit:
    """Consecutive steps, from `first` to `last`, that work on one block."""

    block: tuple[int, ...]
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}–{self.last}" if self.last > self.first else f"{self.first}"


def plot_grid(what: "Schedule | Traced", operand: str = "", step: int | None = None, ax: Axes | None = None) -> Axes:
    """The array of an operand, cut into its blocks; in each, the numbers of the steps that take it.

    `what`: a Schedule, or the trace of a call. A block is not visited, copied once, kept for several steps (the copies
    of the later ones are skipped), or copied again each time that it comes back. A line joins the blocks in the order
    of their visits. `step` lights the block of one step. The bold frame is the array: a block may stick out of it. Of
    an array with more than two dimensions, each block of the leading ones is a sheet.

    Raises SpecError for an operand or a step that there is not.
    """
    schedule = getattr(what, "schedule", what)
    expect(Schedule, schedule, "plot_grid takes a schedule, or the trace of a call: pl.pallas_call(…).trace(x)")
    names = [x.name for x in schedule.operands]
    if operand not in names:
        asked = f"there is no operand {operand!r} with blocks; there is" if operand else "say whose blocks, as"
        raise SpecError(f"plot_grid: {asked} {', '.join(names)}.")
    if step is not None and not 0 <= step < schedule.steps:
        raise SpecError(f"plot_grid: step {step} of {schedule.steps}; the steps are 0 to {schedule.steps - 1}.")
    x, visits = schedule.operand(operand), visits_of(schedule.blocks(operand))
    sheets = Sheets(x, visits, schedule)
    if ax is None:
        ax = Figure(figsize=sheets.size(), layout="constrained").add_subplot()
    lit = next((v for v in visits if step is not None and v.first <= step <= v.last), None)
    _draw(ax, sheets, visits, lit)
    title, wide = _title(what, schedule, x, visits, step, lit), 14.5 * inches_of(ax)
    for before, after in ((": ", ":\n"), (", so", ",\nso")):
        if max(map(len, title.split("\n"))) > wide:
            title = title.replace(before, after)
    entitle(ax, title, 9 if "\n" in title else 10)
    return ax


def visits_of(blocks) -> list[Visit]:
    """The visits of a block for each step.  >>> [str(v) for v in visits_of([(0,), (0,), (1,), (0,)])]
    ['0–1', '2', '3']
    """
    runs = [(block, [t for t, _ in run]) for block, run in itertools.groupby(enumerate(blocks), lambda each: each[1])]
    return [Visit(block, steps[0], steps[-1]) for block, steps in runs if block is not None]


class Sheets:
    """Where blocks lie in the picture: in elements, x to the right, y down, one sheet beside the other."""

    def __init__(self, x: OperandInfo, visits: list[Visit], schedule: Schedule):
        self.x, self.visited = x, list(dict.fromkeys(v.block for v in visits))
        # A loop by hand, and a kernel with copies of its own, know blocks only. One that is copied and that no step
        # works on, as where a wait is missing, lies in the array too.
        c = schedule.columns
        numbers = () if x.array_shape else np.unique(c.block[c.operand == schedule.operands.index(x)]).tolist()
        copied = {c.blocks[number] for number in numbers if number >= 0}
        ends = [[s + n for s, n in zip(origin(x, b), x.block_shape, strict=True)] for b in {*self.visited, *copied}]
        self.shape = x.array_shape or tuple(map(max, zip(*ends, strict=True)))
        self.counts = [-(-n // b) for n, b in zip(self.shape, x.block_shape, strict=True)]
        self.height, self.width = (1, 1, *self.shape)[-2:]
        reach = [max((e[d] for e in ends), default=0) for d in range(len(self.shape))]  # past the edge, perhaps
        down, right = (max(pair) for pair in zip((1, 1, *reach)[-2:], (self.height, self.width), strict=True))
        self.reach = right, down
        number = math.prod(self.counts[:-2])
        self.across = number if number <= 4 else math.ceil(number**0.5)
        self.gaps = 1.12 * right, 1.25 * down
        self.corners = {lead: (i % self.across * self.gaps[0], i // self.across * self.gaps[1]) for i, lead in
                        enumerate(itertools.product(*map(range, self.counts[:-2])))}
        left, top = max(self.corners.values(), key=lambda at: at[0])[0], max(y for _, y in self.corners.values())
        self.extent = left + right, top + (down if number == 1 else self.gaps[1])  # sheets have names below

    def blocks(self) -> list[tuple[int, ...]]:
        """All blocks of the array; only the visited ones where blocks may overlap."""
        return self.visited if self.x.starts else list(itertools.product(*map(range, self.counts)))

    def box(self, block) -> np.ndarray:
        """The corners of a block, a row each, with the part of it that sticks out."""
        (top, left), (high, wide) = ((0, 0, *origin(self.x, block))[-2:], (1, 1, *self.x.block_shape)[-2:])
        return _box(*np.add(self.corners[tuple(block[:-2])], (left, top)), wide, high)

    def past_edge(self) -> list[np.ndarray]:
        """What blocks cover beyond the array: to the right of it, then below, for each sheet."""
        w, h, (right, down) = self.width, self.height, self.reach
        return [_box(left + x, top + y, wide, high) for left, top in self.corners.values()
                for x, y, wide, high in ((w, 0, right - w, down), (0, h, w, down - h)) if wide > 0 and high > 0]

    def frames(self) -> list[np.ndarray]:
        """The array's own outline, for each sheet."""
        return [_box(*corner, self.width, self.height) for corner in self.corners.values()]

    def size(self) -> tuple[float, float]:
        """Of a figure, in inches, at most the width of a notebook."""
        ratio = min(max(self.extent[1] / self.extent[0], THINNEST), 1.0)
        width = min(9.0, 4.2 / ratio)
        return width, width * ratio + 1.1


def _stretch(sheets: Sheets) -> float:
    """How high a square block is drawn for its width: 1, but in an array that would be a thread."""
    ratio = sheets.extent[1] / sheets.extent[0]
    return min(max(ratio, THINNEST), 4.0) / ratio


def _scales(ax: Axes, sheets: Sheets) -> tuple[float, float]:
    """Inches for each element, to the right and down, before any layout."""
    wide, high = inches_of(ax) / sheets.extent[0], ax.bbox.height / ax.figure.dpi / sheets.extent[1]
    right = min(wide, high / _stretch(sheets))
    return right, right * _stretch(sheets)


def _box(x: float, y: float, width: float, height: float) -> np.ndarray:
    return np.array([(x, y), (x + width, y), (x + width, y + height), (x, y + height)])


def _kinds(visits: list[Visit]) -> dict[tuple[int, ...], str]:
    kinds = {}
    for v in visits:
        kinds[v.block] = ("copied again" if v.block in kinds else
                          "kept for several steps" if v.last > v.first else "copied once")
    return kinds


def _draw(ax: Axes, sheets: Sheets, visits: list[Visit], lit: Visit | None) -> None:
    kinds, blocks, ink = _kinds(visits), sheets.blocks(), ink_of(ax)
    present = [kind for kind in KINDS if any(kinds.get(b, "not visited") == kind for b in blocks)]
    crowd = len(blocks) > DRAWN and sheets.x.starts is None
    if crowd:
        _shade(ax, sheets, kinds, lit)
    for kind in present if not crowd else ():  # all that look alike at once: an explorer redraws at every step
        color, hatch = KINDS[kind]
        look = color, ink.soft if color == "none" else EDGE, min(0.6, 60 / len(blocks))
        boxes(ax, [(sheets.box(b), *look) for b in blocks if kinds.get(b, "not visited") == kind], hatch=hatch,
              alpha=0.6 if lit else 1)
    past = sheets.past_edge()
    ax.add_collection(PolyCollection(past, facecolors=ink.paper, alpha=0.7), autolim=False)
    ax.add_collection(PolyCollection(sheets.frames(), facecolors="none", edgecolors=ink.strong, linewidths=2),
                      autolim=False)
    if lit:
        color, hatch = KINDS[kinds[lit.block]]
        ax.add_collection(PolyCollection([sheets.box(lit.block)], facecolors=color, hatch=hatch,
                                         edgecolors=ink.strong, linewidths=4), autolim=False)
    centres = {b: sheets.box(b).mean(0) for b in kinds} if len(visits) <= DRAWN else {}
    if centres:  # of more, the line would hide the blocks
        ax.plot(*np.array([centres[v.block] for v in visits]).reshape(-1, 2).T, color=ink.strong, lw=0.8, alpha=0.6)
    if centres and len(blocks) <= NUMBERED:
        letters = 12 * _scales(ax, sheets)[0] * (1, *sheets.x.block_shape)[-1]  # that fit into a block
        _number(ax, centres, visits, lit, letters, 72 * _scales(ax, sheets)[1] * (1, 1, *sheets.x.block_shape)[-2])
    _frame(ax, sheets)
    keys = [Patch(facecolor=color, hatch=hatch, edgecolor=ink.soft if color == "none" else EDGE, label=kind,
                  alpha=0.6 if lit else 1) for kind in present for color, hatch in [KINDS[kind]]]
    keys += [Patch(facecolor="none", edgecolor=ink.strong, lw=2.5, label="this step")] if lit else []
    keys += [Patch(facecolor=ink.soft, alpha=0.3, label=PAST)] if past else []
    ax.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, -0.02), fontsize=9, frameon=False,
              borderaxespad=0.2, ncols=min(4, max(1, int(inches_of(ax) / 1.3))))


def _shade(ax: Axes, sheets: Sheets, kinds: dict[tuple[int, ...], str], lit: Visit | None) -> None:
    """Very many blocks, as an image for each sheet: a polygon each would take seconds, and show no more."""
    ax.add_collection(PolyCollection(sheets.frames(), facecolors="none", edgecolors=ink_of(ax).soft, linewidths=0,
                                     hatch=KINDS["not visited"][1], zorder=-1), autolim=False)  # seen where none is
    cells = np.full((*sheets.counts[:-2], *(1, 1, *sheets.counts)[-2:]), list(KINDS).index("not visited"))
    cells.reshape(sheets.counts)[tuple(np.array(list(kinds)).T)] = [list(KINDS).index(kind) for kind in kinds.values()]
    (rows, columns), (high, wide) = cells.shape[-2:], (1, 1, *sheets.x.block_shape)[-2:]
    for lead, (left, top) in sheets.corners.items():
        ax.imshow(cells[lead], ListedColormap([color for color, _ in KINDS.values()]), vmin=0, vmax=len(KINDS) - 1,
                  extent=(left, left + columns * wide, top + rows * high, top), aspect="auto",
                  interpolation="nearest", alpha=0.6 if lit else 1)


def _number(ax: Axes, centres, visits: list[Visit], lit: Visit | None, letters: float, high: float) -> None:
    """The steps that take a block, in its middle: all of them, or none; nowhere, if most blocks have no room.

    A block has room for so many `letters` of 9 points in a line, and is `high` points high.
    """
    texts, fits = {}, {}
    for v in visits:
        texts.setdefault(v.block, []).append(str(v))
    for size, most in LETTERING:
        wide, most = int(letters * 9 / size), min(most, int(high / size / 1.3))
        rows = {b: textwrap.wrap(", ".join(s), max(wide, 1), break_long_words=False) for b, s in texts.items()}
        fits = {b: "\n".join(row) for b, row in rows.items() if max(map(len, row)) <= wide and len(row) <= most}
        if len(fits) == len(texts):
            break
    for block, text in fits.items() if 2 * len(fits) >= len(texts) else ():
        on = lit is not None and block == lit.block
        ax.text(*centres[block], text, ha="center", va="center", fontsize=size, color="#ffffff" if on else ON_COLOUR,
                bbox={"boxstyle": "round,pad=0.15", "fc": ON_COLOUR if on else "#ffffff", "ec": "none"})


def _frame(ax: Axes, sheets: Sheets) -> None:
    """Limits, and block indices along the first sheet."""
    x, (width, height) = sheets.x, sheets.extent
    ax.set_xlim(-0.01 * width, 1.01 * width)
    ax.set_ylim(1.02 * height, -0.02 * height)  # rows go down
    ax.set_aspect(_stretch(sheets))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=9, labeltop=True, labelbottom=False)
    rows, columns = ((1, 1, *sheets.counts)[-2:] if x.starts is None else (0, 0))
    high, wide = (1, 1, *x.block_shape)[-2:]
    right, down = _scales(ax, sheets)
    letter, line = 0.085, 0.15  # inches
    for axis, count, size, room, needs in (
            (ax.xaxis, columns, wide, right, letter * (len(str(columns)) + 1)),
            (ax.yaxis, rows if len(sheets.shape) > 1 else 0, high, down, line)):
        most = min(16, max(1, int(count * size * room / needs)))
        shown = range(0, count, max(1, -(-count // most)))
        axis.set_ticks([(i + 0.5) * size for i in shown], shown)
    for lead, (left, top) in sheets.corners.items():
        if lead:
            name = f"{x.array}[{', '.join(map(str, lead))}, …]"
            ax.annotate(name, (left, top + sheets.reach[1]), (0, -3), textcoords="offset points", fontsize=9, va="top")


def _title(what, schedule, x: OperandInfo, visits: list[Visit], step: int | None, lit: Visit | None) -> str:
    if step is None:
        shape = f"{list(x.array_shape)} " if x.array_shape else ""
        return (f"{x.array} {shape}in blocks of {' × '.join(map(str, x.block_shape))}: "
                f"{many(schedule.copies(x.name), 'copy', 'copies')} in {many(schedule.steps, 'step')}")
    at = getattr(what, "indices", None)
    where = f"step {step}" + (f", grid index {at[step] if len(at[step]) > 1 else at[step][0]}" if at else "")
    if lit is None:
        return f"{where}: no block of {x.array}"
    slot = f"slot {visits.index(lit) % x.depth}"
    if step > lit.first:
        return f"{where}: {x.show(lit.block)} is still in {slot}, so nothing is copied"
    return f"{where}: {x.show(lit.block)} is {'made in' if x.is_output else 'copied into'} {slot}"
