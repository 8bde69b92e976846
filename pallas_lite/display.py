"""display: how schedules, timelines and calls look as the last line of a cell: text, then a picture.

The data know nothing of pictures, so their looks are given to them here. In a notebook each is two outputs, plain text
and a PNG: all that shows notebooks can show those, GitHub, a printed page and a notebook that nobody trusts yet among
them. A terminal gets the text.
"""
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from .call import Call
from .errors import many
from .schedule import Schedule
from .show import View
from .table import aligned, folded
from .timeline import LANES, Timeline, unit_of
from .traced import Traced
from .verify import Hazards, verify

if TYPE_CHECKING:  # matplotlib takes half a second: it is imported where something is drawn
    from matplotlib.figure import Figure


def lanes(t: Timeline, fold: int | None = 16) -> str:
    """A timeline as text: a row for each moment at which something begins, a column for each engine."""
    unit, name = unit_of(t.total)
    begins: dict[float, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for s in t.spans:
        begins[float(f"{s.start / unit:.4g}")][s.lane].append(
            f"({s.label})" if s.waiting else f"step {s.label}" if s.lane == LANES[1] else t.schedule.cell(s.event))
    rows = [[f"{time:g}", *(", ".join(cells[lane]) for lane in LANES)] for time, cells in sorted(begins.items())]
    return aligned([name, *LANES], {i: rows[i] for i in folded(len(rows), fold=fold)})


def steps_of(trace: Traced) -> str:
    """How often the kernel runs, and how many steps its schedule has where its own copies make more of them."""
    own = trace.schedule.steps if trace.manual else 0
    return many(trace.steps, "step") + f", cut into {own} by its own copies" * (own > trace.steps)


def about(trace: Traced) -> str:
    """Grid, operands, SRAM and hazards of a call on operands of known shapes: the schedule's, then the last run's."""
    s, grid = trace.schedule, " × ".join(map(str, trace.call.grid))
    rows = [f"{trace.call.name}: {f'grid {grid}' if grid else 'no grid'}, {steps_of(trace)}"]
    for x in trace.arrays:
        copies = (f"{many(x.depth, 'slot')} of {' × '.join(map(str, x.block_shape))}, "
                  f"{many(s.copies(x.name), 'copy', 'copies')}" if not x.stays_in_hbm else "stays in HBM")
        rows.append(f"  {x.name} ({'output' if x.is_output else 'input'}): {x.dtype}{list(x.shape)}, {copies}")
    rows += [f"  {name} (prefetched): {a.dtype}{list(a.shape)}"
             for name, a in zip(trace.names, trace.scalars, strict=False)]
    return "\n".join([*rows, f"{s.sram_bytes:,} bytes of SRAM; copies move {s.hbm_bytes['total']:,} bytes",
                      f"✗ {trace.hazards}" if trace.hazards else
                      f"✗ as it ran: {Hazards(trace.reported)}" if trace.reported else
                      "✓ no hazards in the schedule (those that only values tell are reported when it runs)"])


def about_call(call: Call) -> str:
    """What one can do with it; then what it did on the last operands."""
    done = f" On the last operands:\n\n{about(call.last)}" if call.last else ""
    return f"{call.name}: a pallas_call. Call it on arrays; f.trace(…) shows what it would do on them.{done}"


def picture(what: Schedule | Timeline | View | Traced | Call) -> "Figure | None":
    """The slots of a schedule, a timeline, a view's listing beside its timeline; of a call, its first three arrays.

    The first hazard is marked, but in the blocks of a call's arrays.
    """
    from matplotlib.figure import Figure

    from .plot import plot_grid, plot_listing, plot_slots, plot_timeline
    if isinstance(what, Timeline):
        return plot_timeline(what, hazards=verify(what.schedule)[:1]).get_figure(root=True)
    if isinstance(what, View):
        return plot_listing(what.timeline, hazards=what.hazards[:1], limit=what.limit).get_figure(root=True)
    if isinstance(what, Schedule):
        drawn = what.steps and what.operands
        return plot_slots(what, hazards=verify(what)[:1]).get_figure(root=True) if drawn else None
    trace = what.last if isinstance(what, Call) else what
    if trace is None or not trace.schedule.steps or not (operands := trace.schedule.operands[:3]):
        return None
    figure = Figure(figsize=(9, 4), layout="constrained")
    for number, x in enumerate(operands, 1):
        plot_grid(trace, x.name, None, figure.add_subplot(1, len(operands), number))
    return figure


# What is shown -> its text in a terminal.
TEXTS: dict[type, Any] = {
    Schedule: Schedule.__str__, Timeline: lambda t: f"{t}\n\n{lanes(t)}", View: View.__str__, Traced: about,
    Call: about_call}


def display(what: Schedule | Timeline | View | Traced | Call) -> None:
    """What IPython calls for the last line of a cell."""
    from IPython import display, get_ipython  # late: nobody else needs it
    if not hasattr(get_ipython(), "kernel"):
        print(repr(what))
        return
    from .plot.page import png
    words, figure = what.words if isinstance(what, View) else str(what), picture(what)
    said = "; ".join(title for ax in getattr(figure, "axes", ()) if (title := ax.get_title("left"))).replace("\n", " ")
    if isinstance(what, View):  # in text too: JupyterLab and nbconvert leave out what stands for a picture
        words, said = "\n\n".join(filter(None, [words, said])), f"{said}. {what.verdict.partition(chr(10))[0]}"
    display.display({"text/plain": words}, raw=True)
    if figure is not None:
        label = f"Picture. {said}"
        look = {"width": int(96 * figure.get_figwidth()), "alt": label}
        display.display({"image/png": png(figure), "text/plain": label}, raw=True, metadata={"image/png": look})


for _kind, _text in TEXTS.items():
    for _name, _look in (("__repr__", _text), ("_ipython_display_", display)):
        setattr(_kind, _name, _look)
