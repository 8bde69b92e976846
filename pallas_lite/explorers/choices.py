"""choices: the tuner of a kernel author's own call. In: a function that makes it, and choices. Out: what each costs.

For each choice of the function's keywords (block sizes, most of all) the call is traced, and never run: its schedule
gives time, SRAM and traffic; the verifier and the tile rules say whether it may be. A finished call keeps its blocks,
so there depths and the order of its grid axes are what can be chosen. The rest is tuner.py's and base.py's.
"""
import asyncio
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from ..body import kernel_name
from ..call import Call, first_call
from ..engines.record import record
from ..errors import NotSupportedError, PallasLiteError, SpecError
from ..hardware import Machine
from ..plot.choices import Choice, plot_choices, shown
from ..schedule import Schedule
from ..timeline import Timeline, timeline
from .base import button, fresh, on_slider, show_number, show_time, touch
from .schedule import most_slots
from .tuner import DRAWN, LANES_HIGH, PLAYED, Tuner, counted, shorter

MOST, MOST_VALUES = 256, 32  # choices that are all modelled; values that can be read side by side
OPENING, MOVE, IDLE = 1.0, 0.02, 0.05  # seconds in which choices besides the chosen one are modelled
HOW = ("def matmul(x, y, *, bm=128, bk=128): return pl.pallas_call(…)(x, y)  and  "
       'pl.explore(matmul, x, y, view="tuner", bm=(64, 128), bk=(128, 256))')


class Play(NamedTuple):
    """One choice, traced. Of a long call only some steps: weighted, they stand for all."""

    plays: list[tuple[float, Schedule]]
    trace: Any  # of the last of them
    grid: tuple[int, ...]  # the call's own
    wrong: str  # on any machine
    tiles: str  # wrong on a TPU


def of_function(f: Callable, operands: tuple, choices: dict, machine: Machine) -> "CallTuner":
    """Of a function that makes a pallas_call: its keywords are the settings. Without choices: around the defaults."""
    parameters = inspect.signature(f).parameters
    places = [name for name, p in parameters.items() if p.kind < p.VAR_POSITIONAL and name not in choices]
    taken = places[:len(operands)]
    own = {name: p.default for name, p in parameters.items() if name not in taken and p.kind not in (
        p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    if any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        own |= {name: inspect.Parameter.empty for name in choices if name not in own}
    name = kernel_name(f)
    for choice in choices:
        if choice not in own:
            raise SpecError(f"explore({name}, …, {choice}=…): {name} has no keyword {choice}; it has "
                            f"{', '.join(own or parameters) or 'none'}. Block sizes are tuned as keywords: {HOW}.")
    given = choices or {name: around(value) for name, value in own.items() if type(value) in (int, bool)}
    if not given:
        raise SpecError(f'explore({name}, …, view="tuner"): {name} has no keyword with a whole number as its default, '
                        f"so there is nothing to choose. Give it block sizes as keywords: {HOW}.")

    def play(**settings) -> Play:
        call, arrays = first_call(f, *operands, **settings)
        return played(call, arrays)
    return CallTuner(name, play, given, own, machine)


def of_trace(trace, choices: dict, machine: Machine) -> "CallTuner":
    """Of a finished call, whose index maps know only its blocks: the depth of each operand, and the order of its grid.

    The settings are depth_x for an operand x, and order: the grid's axes, outermost first.
    """
    if trace.steps > 4 * PLAYED:
        raise SpecError(f'explore(f, …, view="tuner"): this call has {trace.steps:,} steps; of a finished call up to '
                        f"{4 * PLAYED:,} are played. Give a function that makes it, whose long calls are played in "
                        f"part: {HOW}.")
    axes = [a for a, n in enumerate(trace.call.grid) if n > 1]
    own = {f"depth_{x.name}": x.depth for x in trace.operands}
    given = {name: range(1, max(3, depth) + 1) for name, depth in list(own.items())[:8]}
    if len(axes) in (2, 3):
        own["order"], given["order"] = tuple(axes), itertools.permutations(axes)
    for choice in choices:
        if choice not in own:
            raise SpecError(f"explore(f, …, {choice}=…): f is a finished pallas_call, whose index maps were written "
                            f"for its blocks; what can be chosen is {', '.join(own)}. To choose {choice}, give a "
                            f"function that makes the call, with {choice} as a keyword: {HOW}.")

    def play(order=tuple(axes), **depths) -> Play:
        steps = np.arange(trace.steps).reshape([trace.call.grid[a] for a in axes])
        steps = steps.transpose([axes.index(a) for a in order]).ravel().tolist()
        other = replace(trace, arrays=tuple(replace(x, depth=depths.get(f"depth_{x.name}", x.depth))
                                            for x in trace.arrays))
        if not trace.manual:  # nor is the kernel another one
            vars(other)["body"] = trace.body
        return judged([(1.0, other.in_order(steps))], trace.call.grid)
    note = ("A finished call keeps its blocks. To choose them too, give a function that makes it, with block sizes as "
            f"keywords: {HOW}")
    return CallTuner(trace.call.name, play, choices or given, own, machine, note)


def around(value: int | bool) -> tuple:
    """Values about a default: its halves and doubles; small numbers, such as a depth, from 1 to 4.

    >>> around(128), around(2), around(True)
    ((32, 64, 128, 256, 512), (1, 2, 3, 4), (False, True))
    """
    if isinstance(value, bool):
        return False, True
    return (1, 2, 3, 4) if 1 <= value <= 4 else (value // 4, value // 2, value, 2 * value, 4 * value)


def played(call: Call, arrays: tuple) -> Play:
    """A call, traced; of a long one some of its first steps, as `shorter` has them."""
    modes = [getattr(spec, "pipeline_mode", None) for spec in jax.tree.leaves((call.in_specs, call.out_specs))]
    depth = max((mode.buffer_count for mode in modes if mode), default=2)
    cut = [(weight, replace(call, grid=grid).trace(*arrays)) for weight, grid in cuts(call.grid, PLAYED, depth)]
    return judged(cut, call.grid)


def judged(cut: list, grid: tuple[int, ...]) -> Play:
    """What is wrong with a traced call on any machine, and on a TPU. `cut`: its parts and their weights."""
    from ..lowering.tiles import check  # late: nobody else needs programs for accelerators
    trace = cut[-1][1]
    if trace.manual or trace.blocks_from_scalars or not trace.operands:
        raise NotSupportedError(f"{trace.call.name}: its copies are not all the pipeline's, so only running tells how "
                                "long it takes. The tuner takes kernels whose operands all have a BlockSpec.")
    plays = [(weight, replace(trace.schedule, events=found.events, operands=found.operands))
             for weight, found in ((weight, record(t.steps, t.operands)) for weight, t in cut)]
    found = [h for h in trace.hazards if len(cut) == 1 or h.kind != "unvisited"]  # a part does not visit all
    wrong, tiles = next((f"{h.kind}: {h.message}\n{h.mend}" for h in found), ""), ""
    try:
        for x in trace.operands:
            check(trace.call.name, x)
    except PallasLiteError as error:
        tiles = str(error)
    return Play(plays, trace, grid, wrong, tiles)


def cuts(grid: tuple[int, ...], most: int, depth: int) -> list[tuple[float, tuple[int, ...]]]:
    """Shorter grids, and weights with which they stand for all of it, if what a step costs repeats along each axis.

    >>> cuts((100, 4), 40, 2)
    [(-22.5, (6, 4)), (23.5, (10, 4))]
    """
    if math.prod(grid) <= most:
        return [(1.0, grid)]
    first, *rest = grid
    inner = cuts(tuple(rest), max(most // min(first, 8), 8), depth) if rest else [(1.0, ())]
    return [(weight * w, (n, *r)) for w, r in inner for weight, n in shorter(first, most // math.prod(r), depth)]


class CallTuner(Tuner):
    """What `explore(…, view="tuner")` returns. `settings` has the keywords and the machine's name; `best` the best."""

    what = "Modelled time of each choice, and timeline of the chosen one."

    def __init__(self, name: str, play: Callable[..., Play], choices: dict, own: dict, machine: Machine, note=""):
        values = {k: tuple(dict.fromkeys(v)) if isinstance(v, Iterable) and not isinstance(v, str) else (v,)
                  for k, v in choices.items()}
        self.fixed = {k: v[0] for k, v in values.items() if len(v) == 1}
        self.choices = {k: v for k, v in values.items() if len(v) > 1}
        if not self.choices or not all(values.values()) or sum(map(len, self.choices.values())) > MOST_VALUES:
            raise SpecError(f'explore({name}, …, view="tuner"): give one setting or more with two values or more, and '
                            f"up to {MOST_VALUES} values in all, such as bm=(64, 128, 256).")
        self.name, self.play, self.note, self._number = name, play, note, math.prod(map(len, self.choices.values()))
        self._played, self._points, self._seen, self._later = {}, {}, (None, []), False
        self.asked = name, str(values), machine
        first = {k: own[k] if own[k] in v else v[0] for k, v in self.choices.items()}
        super().__init__(first, machine)
        self._fill(OPENING)
        if all(isinstance(play, str) for play in self._played.values()):
            raise SpecError(f'explore({name}, …, view="tuner"): no choice has a schedule. {self._now.wrong}')

    # -- what the choices cost

    def _point(self, choice: tuple) -> Choice:
        """What a choice costs on the machine that is set."""
        key = choice, self.machine.name
        if key not in self._points:
            if choice not in self._played:
                try:
                    self._played[choice] = self.play(**dict(zip(self.choices, choice, strict=True)), **self.fixed)
                except PallasLiteError as error:
                    self._played[choice] = str(error)
                except Exception as error:  # noqa: BLE001  a function refuses blocks as it likes
                    self._played[choice] = f"{self.name} raised {type(error).__name__}: {error}"
            self._points[key] = self._cost(choice)
        return self._points[key]

    def _cost(self, choice: tuple) -> Choice:
        play = self._played[choice]
        if isinstance(play, str):
            return Choice(math.nan, play)
        timelines = self._timelines(play)
        sram = next((f"{h.message.partition(chr(10))[0]}\n{h.mend}" for h in timelines[-1][1].hazards), "")
        tiles = play.tiles if self.machine.name.startswith("TPU") else ""
        return Choice(counted(timelines, lambda t: t.total), sram or play.wrong or tiles)

    def _timelines(self, play: Play) -> list[tuple[float, Timeline]]:
        machine = play.trace.limited(self.machine)
        return [(weight, timeline(schedule, machine)) for weight, schedule in play.plays]

    def _near(self) -> Iterator[tuple]:
        """Choices to be modelled, nearest first: those that differ in one setting; all, if there are not too many."""
        now = self._choice
        yield now
        for n, values in enumerate(self.choices.values()):
            yield from ((*now[:n], v, *now[n + 1:]) for v in values)
        if self._number <= MOST:
            yield from itertools.product(*self.choices.values())

    def _fill(self, seconds: float) -> bool:
        """Models choices for about so long. Are all done?"""
        until = perf_counter() + seconds
        for choice in self._near():
            self._point(choice)
            if perf_counter() > until:
                return False
        return True

    @property
    def _choice(self) -> tuple:
        return tuple(self.settings[k] for k in self.choices)

    @property
    def _now(self) -> Choice:
        return self._point(self._choice)

    @property
    def _plays(self) -> list[tuple[float, Timeline]]:
        """Timelines of the chosen call and their weights; [] if it was refused before it had a schedule."""
        if self._seen[0] is not self.settings:
            self._now  # noqa: B018  plays it
            play = self._played[self._choice]
            self._seen = self.settings, [] if isinstance(play, str) else self._timelines(play)
        return self._seen[1]

    @property
    def _known(self) -> dict[tuple, Choice]:
        """All that is known on this machine."""
        return {choice: p for (choice, name), p in self._points.items() if name == self.machine.name}

    @property
    def best(self) -> dict[str, Any] | None:
        """The settings of the quickest legal choice that was modelled on this machine; None if none is legal."""
        legal = {choice: p.seconds for choice, p in self._known.items() if not p.wrong}
        return dict(zip(self.choices, min(legal, key=legal.get), strict=True)) if legal else None

    @property
    def slices(self) -> dict[str, dict[Any, Choice | None]]:
        """Of each setting: what its values cost, with the others as they are."""
        now, known, found = self._choice, self._known, {}
        for n, (name, values) in enumerate(self.choices.items()):
            found[name] = {v: known.get((*now[:n], v, *now[n + 1:])) for v in values}
        return found

    @property
    def trace(self):
        """The trace of the chosen call; of a long one, of its first steps."""
        play = self._played[self._choice]
        return play.trace if isinstance(play, Play) else None

    # -- words

    @property
    def headline(self) -> str:
        p = self._now
        if p.wrong:
            return f"✗ {p.wrong.partition(chr(10))[0]}"
        best, known, number = self.settings | self.best == self.settings, len(self._known), self._number
        return (f"✓ {show_time(p.seconds)} modelled · {self._plays[-1][1].bound}-bound · "
                + ("the best of " if best else f"the best takes {show_time(self._best_seconds)}, of ")
                + (f"the {known:,} of {number:,} choices modelled so far" if known < number else f"{number:,} choices"))

    @property
    def _best_seconds(self) -> float | None:
        return self._point(tuple(self.best.values())).seconds if self.best else None

    @property
    def details(self) -> str:
        plays, known = self._plays, len(self._known)
        lines = [self.code(self.settings)]
        if self.best and self.settings | self.best != self.settings:
            lines.append(f"the best: {self.code(self.best)}")
        if plays:
            grid, t = self._played[self._choice].grid, plays[-1][1]
            pace = f", at the pace of {sum(t.schedule.steps for _, t in plays):,}" if len(plays) > 1 else ""
            bounds = ", ".join(f"{k} {show_time(counted(plays, lambda t, k=k: t.terms[k]))}" for k in t.terms)
            lines += [f"grid {grid}, {math.prod(grid):,} steps{pace} · SRAM {t.sram_bytes:,} of "
                      f"{t.machine.sram_bytes:,} bytes · traffic "
                      f"{show_number(counted(plays, lambda t: t.hbm_bytes['total']), 'B')}", f"lower bounds: {bounds}"]
        if known < self._number:
            lines.append(f"{known:,} of {self._number:,} choices are modelled" + (
                ": those that differ in one setting from one that was chosen" if self._number > MOST else ""))
        return "\n".join([*lines, *self._now.wrong.split("\n")[1:], *filter(None, [self.note])])

    def code(self, settings: dict) -> str:
        """The call with these settings, as one writes it; those of a finished call are none of its arguments."""
        given = {k: v if isinstance(v := settings[k], tuple) else shown(v) for k in self.choices} | self.fixed
        words = ", ".join(f"{k}={v}" for k, v in given.items())
        return f"{self.name}, {words}" if self.note else f"{self.name}(…, {words})"

    def __str__(self) -> str:
        rows = [f"{k}: " + ", ".join(f"{shown(v)} {said(c)}" for v, c in row.items())
                for k, row in self.slices.items()]
        return "\n".join([f"{self.code(self.settings)} on {self.machine.name}", self.headline, self.details, *rows])

    def notes(self) -> dict[str, str]:
        found = {"machine": f"{show_number(self.machine.beta, 'B/s')}, {self.machine.sram_bytes:,} bytes of SRAM"}
        for name, row in self.slices.items():
            legal = {v: c.seconds for v, c in row.items() if c and not c.wrong}
            least = min(legal, key=legal.get) if legal else None
            found[name] = "" if least is None else f"with the rest as it is, {shown(least)} is the quickest"
        return found

    # -- picture

    def _slices(self, figure) -> Figure:
        plot_choices(self.slices, self.settings, fresh(figure, (0.09, 0.21, 0.89, 0.76)), best=self._best_seconds,
                     so_far=len(self._known) * (len(self._known) < self._number))
        return figure

    _steps = property(lambda self: math.prod(self._played[self._choice].grid))

    @property
    def _first(self) -> Timeline:
        play = self._played[self._choice]
        steps = min(play.trace.steps, DRAWN + most_slots(play.trace))
        found = record(steps, [replace(x, blocks=x.blocks[:steps]) for x in play.trace.operands])
        return timeline(replace(play.plays[-1][1], events=found.events, operands=found.operands), self.machine)

    def picture(self) -> str:
        above = self.part("Time of each choice", (self.settings, self.slices, self._best_seconds, len(self._known)),
                          (9, 2.6), self._slices, self._touch_points)[1]
        return above + (self.lanes() if self._plays else "")

    def _touch_points(self, ax) -> list[str]:
        """Over the picture: a box for each value, with its time."""
        (low, high), at, found = ax.get_ylim(), 0, []
        for name, row in self.slices.items():
            found += [touch(ax, f"{name} {shown(v)}: {said(c)}", [[(n - 0.4, low), (n + 0.4, high)]])
                      for n, (v, c) in enumerate(row.items(), at)]
            at += len(row) + 1
        return found

    def figure(self) -> Figure:
        figure = Figure(figsize=(9, 2.6 + LANES_HIGH))
        if not self._plays:
            return self._slices(figure)
        above, below = figure.subfigures(2, height_ratios=(2.6, LANES_HIGH))
        self._slices(above)
        self._lanes(below)
        return figure

    # -- controls

    def make_controls(self, w) -> dict:
        look = {"style": {"description_width": "7em"}, "layout": {"width": "27em"}}
        made = {k: w.SelectionSlider(options=[(shown(v), v) for v in values], value=self.settings[k], tooltip=k,
                                     description=on_slider(k), **look) for k, values in self.choices.items()}
        return made | {"machine": self.machine_slider(w, look)}

    def more_buttons(self, w) -> list:
        return [button(w, "go to the best ▶", "The quickest legal choice that was modelled",
                       lambda: self.set(**(self.best or {})))]

    def redraw(self) -> None:
        if self._image is not None and not self._fill(MOVE):
            self._go_on()
        super().redraw()

    def _go_on(self) -> None:
        """Models the rest while the kernel has nothing else to do, a little at a time."""
        def more():
            self._later = False
            if self._image is not None:
                if self._fill(IDLE):
                    super(CallTuner, self).redraw()
                else:
                    self._go_on()
        try:
            if not self._later:
                asyncio.get_running_loop().call_later(0.02, more)
                self._later = True
        except RuntimeError:
            return  # no loop: the next move models some more


def said(c: Choice | None) -> str:
    """What a choice costs, in a word or two.  >>> said(Choice(2e-6)), said(Choice(2e-6, "too large")), said(None)
    ('2 µs', '2 µs ✗', 'not modelled yet')
    """
    if c is None:
        return "not modelled yet"
    return " ".join([*[show_time(c.seconds)] * (not math.isnan(c.seconds)), *["✗"] * bool(c.wrong)])
