"""look: what all pictures share: colours, the ink of a light or a dark page, and an axis that leaves its middle out."""
import textwrap
from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from ..schedule import Schedule
from ..verify import Hazard

# Blocks are coloured by visit, in turn. Neighbours differ by lightness too, which print in grey keeps, and colour-blind
# readers see four colours; dark letters can be read on each (tests/unit/test_look.py measures it).
PALETTE = BLUE, AMBER, RUST, MINT = "#56B4E9", "#FFCF5C", "#D0693A", "#DDF0DC"
BUBBLE, MARK = "#8a8a8a", "#C1272D"
ON_COLOUR = "#111111"  # letters on a box of the palette, and its edge
GAP = 0.06  # a fold's width, as a part of what is shown


class Ink(NamedTuple):
    """Colours on a page: for letters and lines, for what may step back, and of the page itself."""

    strong: str
    soft: str
    paper: str
    mark: str = MARK
    dark: bool = False


LIGHT, DARK = Ink("#222222", "#6a6a6a", "#ffffff"), Ink("#eeeeee", "#a8a8a8", "#111111", "#FF7A70", True)


def ink_of(ax: Axes) -> Ink:
    """Dark ink on a light page, light ink on a dark one: as the style of `ax` has it."""
    colours = [to_rgba(c.get_facecolor()) for c in (ax, ax.figure)]
    red, green, blue, _ = next((c for c in colours if c[3]), (1, 1, 1, 1))
    return LIGHT if 0.3 * red + 0.6 * green + 0.1 * blue > 0.5 else DARK


def box(x: float, width: float, y: float, half: float) -> list[tuple[float, float]]:
    """The corners of a box that is as high above `y` as below."""
    return [(x, y - half), (x + width, y - half), (x + width, y + half), (x, y + half)]


def boxes(ax: Axes, drawn, **style) -> None:
    """Boxes, each its corners, colour, the colour of its edge and that one's width. Those that look alike are one path:
    a path for each would be most of an explorer's redraw, where it is written and where it is read.
    """
    alike: dict[tuple, list] = {}
    for corners, *look in drawn:
        alike.setdefault(tuple(look), []).append([*corners, corners[0]])
    paths = [Path(np.reshape(mine, (-1, 2)), [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(mine))
             for mine in alike.values()]
    faces, edges, widths = zip(*alike, strict=True) if alike else ((), (), ())
    ax.add_collection(PathCollection(paths, facecolors=faces, edgecolors=edges, linewidths=widths, **style),
                      autolim=False)


as_svg: ContextVar[bool] = ContextVar("as_svg", default=False)  # is the figure being written as SVG, text as text?


def inches_of(ax: Axes) -> float:
    """How wide the axes are, in inches, before any layout."""
    return ax.bbox.width / ax.figure.dpi


LETTER = 0.0076  # inches of a letter, as wide as most are, for each point of its size


def entitle(ax: Axes, title: str, size: float = 10, **style) -> None:
    """A title above an axis, in as many lines as it takes up to the next axis, or to where the figure ends.

    matplotlib's own `wrap` measures a title while a constrained layout has not yet placed its axis.
    """
    right = min((x0 for other in ax.figure.axes if (x0 := other.bbox.x0) >= ax.bbox.x1), default=ax.figure.bbox.x1)
    letters = max(int((right - ax.bbox.x0) / ax.figure.dpi / (LETTER * size)), 20)
    lines = [part for line in title.split("\n") for part in textwrap.wrap(line, letters) or [""]]
    ax.set_title("\n".join(lines), fontsize=size, loc="left", **style)


def fitted(text: str, inches: float, size: float = 10, least: float = 7) -> tuple[str, float]:
    """A text and its size in points, no wider than that: smaller first, down to `least`, then without its middle."""
    size = max(min(size, inches / (LETTER * len(text or " "))), least)
    room = max(int(inches / (LETTER * size)), 3)
    return (text if len(text) <= room else f"{text[:room // 2]}…{text[len(text) - (room - 1) // 2:]}"), size


class Label(Text):
    """Text around the centre of a box, as large as fits: from bottom to top where the box is narrow, small where it is
    low, and then less the array's name; not at all where that is too long as well. How large the box is on paper is
    known only when it is drawn. Into an SVG text goes without being measured: that is half of an explorer's redraw.
    """

    def __init__(self, text, corners, upright, **style):
        (left, low), _, (right, high), _ = self.corners = corners
        self.whole, self.upright = text, upright
        super().__init__((left + right) / 2, (low + high) / 2, text, ha="center", va="center",
                         rotation_mode="anchor", clip_on=True, **style)

    def fit(self, wide: float, high: float) -> bool:
        """Choose size and direction for a box of so many points; False if the text has no room."""
        text, turn, letters = self.whole, 0, len(self.whole) + bool(self.get_bbox_patch())  # hatching is seen beside it
        size = next((s for s in (8.0, 6.5) if wide > 0.68 * s * letters), 0)
        if not size:
            if not self.upright or wide < 8.7:
                return False
            close = text.replace(", ", ",")
            text, size, turn = next(((t, s, 90) for t in (text, close, close[close.find("["):] * ("[" in text))
                                     for s in (6.5, 5.8) if s * _ems(t) <= high), ("", size, 0))
        self.set_text(text)
        self.set_fontsize(size)
        self.set_rotation(turn)
        return bool(text)

    def draw(self, renderer):
        (x, y), (left, low), (right, high) = self.get_transform().transform(
            [self.get_unitless_position(), self.corners[0], self.corners[2]])
        point = renderer.points_to_pixels(1)
        if not self.fit((right - left) / point, (high - low) / point):
            return
        if not as_svg.get() or self.get_bbox_patch():
            return super().draw(renderer)
        down = 0.36 * self.get_fontsize() * point  # from the centre of capitals to their feet
        right, up = (down, 0) if self.get_rotation() else (0, down)
        gc = renderer.new_gc()
        gc.set_foreground(self.get_color())
        gc.set_clip_rectangle(self.clipbox)
        renderer.draw_text(gc, x + right, renderer.height - y + up, self.get_text(), self.get_fontproperties(),
                           self.get_rotation(), mtext=self)
        gc.restore()


def _ems(text: str) -> float:
    """How long a text is, in its own size, without measuring it: at least as long as in matplotlib's font."""
    return sum(0.4 if c in "[], ijl" else 1.0 if c in "mwMW" else 0.65 for c in text)


def label(ax: Axes, text: str, corners: list[tuple[float, float]], upright: bool = True, **style) -> None:
    """Text in a box, if it fits. `upright`: also from bottom to top."""
    ax.add_artist(Label(text, corners, upright, zorder=4, transform=ax.transData, **{"color": ON_COLOUR, **style}))


def shown_steps(steps: int, most: int | None, marked: Iterable[int] = ()) -> list[range]:
    """Of a long pipeline the steps on show: of `most`, three quarters from the start, the others from the end.

    Around a marked step, its neighbours too.  >>> shown_steps(100, 8, [50])
    [range(0, 6), range(49, 52), range(98, 100)]
    """
    if most is None or steps <= 5 * most // 4:  # a fold for less is not worth its room
        return [range(steps)]
    keep = {*range(most - most // 4), *range(steps - most // 4, steps)}
    keep |= {t for m in marked for t in range(max(m - 1, 0), min(m + 2, steps))}
    firsts, lasts = ([t for t in sorted(keep) if t + way not in keep] for way in (-1, 1))
    return [range(a, b + 1) for a, b in zip(firsts, lasts, strict=True)]


def folded(schedule: Schedule, edges, most: int | None, hazards: list[Hazard]) -> "Fold":
    """The axis of a schedule's steps, which begin and end at these edges: whole, or without its middle."""
    marked = [schedule[h.events[-1]].step for h in hazards[:1] if h.events]
    return Fold(edges, shown_steps(len(edges) - 1, most, marked))


class Fold:
    """An axis of which only some parts are drawn: called with places on it, it says where in the picture they are.

    `edges`: where each step begins, and the last one ends. `shown`: the steps that are drawn.
    """

    def __init__(self, edges, shown: list[range]):
        self.parts = [(edges[steps.start], edges[steps.stop]) for steps in shown]
        self.left_out = [b.start - a.stop for a, b in zip(shown, shown[1:], strict=False)]
        self.knots, self.places, at = [], [], self.parts[0][0]
        for a, b in self.parts:
            self.knots += [a, b]
            self.places += [at, at + b - a]
            at += b - a + GAP * sum(b - a for a, b in self.parts)

    def __call__(self, places):
        return np.interp(places, self.knots, self.places)

    def hides(self, start: float, end: float) -> bool:
        """Does nothing of this stretch lie in a part that is drawn?"""
        return all(end <= a or start >= b for a, b in self.parts)

    def cover(self, ax: Axes, ink: Ink) -> None:
        """Paper over what is left out, and how many steps that is."""
        (low, high), bands = ax.get_ylim(), list(zip(self.places[1:-1:2], self.places[2::2], strict=True))
        ax.add_collection(PolyCollection([[(a, low), (b, low), (b, high), (a, high)] for a, b in bands], zorder=7,
                                         facecolors=ink.paper, edgecolors=ink.soft, linestyles=":"), autolim=False)
        for (a, b), number in zip(bands, self.left_out, strict=True):
            ax.text((a + b) / 2, (low + high) / 2, f"… {number} more step{'s' * (number > 1)}", rotation=90,
                    ha="center", va="center", fontsize=8, color=ink.strong, zorder=8)

    def ticks(self, ax: Axes) -> None:
        """Round numbers in the parts that are drawn."""
        ticks = MaxNLocator(9, steps=[1, 2, 5, 10]).tick_values(0, sum(b - a for a, b in self.parts))
        size = ticks[1] - ticks[0]
        shown = [n * size for a, b in self.parts
                 for n in range(int(np.ceil(a / size - 1e-9)), int(b / size + 1e-9) + 1)]
        self.name(ax, shown, [f"{tick:.6g}" for tick in shown])

    def name(self, ax: Axes, places, names: list[str]) -> None:
        """These names at these places."""
        ax.xaxis.set_major_locator(FixedLocator(self(places)))
        ax.xaxis.set_major_formatter(FixedFormatter(names))
