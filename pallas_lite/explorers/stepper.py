"""stepper: the derivation as a game. In: N blocks and a depth, or a call. Out: an order of lines, to be moved.

The program begins as the blocking loop, unrolled, or as the pipeline of a call. Any start or wait may be moved, by one
line or as far as it stays right; verdict, values and time are those of the order as it stands. The rest is base.py's.
"""
import html
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import by_hand
from ..clock import play_of
from ..errors import SpecError, many
from ..hardware import TOY, Machine
from ..plot import plot_listing, plot_timeline
from ..plot.timeline import height
from ..schedule import IN_START, OUT_START, OUT_WAIT, RUN, Schedule
from ..show import outcome, row
from ..timeline import CORE, Timeline, timeline, unit_of
from ..verify import Hazard, Hazards, verify
from .base import Explorer, button, fresh, laid_over, show_time, touch
from .schedule import at_depths, most_slots

MOST_STEPS, MOST_SLOTS, MOST_LINES = 6, 4, 40
SIZE = 6.4, 2.3  # inches, of the picture
EARLIER, LATER = -1, 1
Order = tuple[tuple[str, str, int], ...]  # the program, line by line: (verb, operand, how many of these came before)


def derivation_stepper(steps: int = 4, depth: int = 2, *, machine: Machine = TOY) -> "DerivationStepper":
    """The unrolled blocking loop over `steps` blocks; each start and wait can be moved, and is judged at once.

    `depth` slots for X and for Y; block i uses slot i % depth. Raises SpecError for a number out of range.

    >>> game = derivation_stepper(4)
    >>> game.better().headline                # moves one line, as far as it stays right
    '✓ right, and race-free · 11 µs modelled, from 12 µs · core busy 36%'
    """
    for name, value, most in (("steps", steps, MOST_STEPS), ("depth", depth, MOST_SLOTS)):
        if not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
            raise SpecError(f"derivation_stepper({name}={value!r}): give a whole number from 1 to {most}.")
    return DerivationStepper(lambda n, d: by_hand.record(blocking, n, depth=d),
                             {"steps": int(steps), "depth": int(depth)}, machine)


def of_trace(trace, machine: Machine) -> "DerivationStepper":
    """The same for a call: its own lines, as the pipeline has them, to be moved. Raises SpecError if it has many."""
    own, depth, at = trace.timeline(machine), most_slots(trace), at_depths(trace)
    if (lines := len(own.schedule)) > MOST_LINES:
        fit = max(trace.steps * MOST_LINES // lines, 1)
        raise SpecError(f'explore(…, view="stepper"): this call has {lines:,} lines in {trace.steps:,} steps; the '
                        f"stepper takes up to {MOST_LINES} lines, here about {many(fit, 'step')}. Give it a smaller "
                        'grid: smaller operands, or larger blocks. view="schedule" shows this call as it is.')
    if depth > MOST_SLOTS:
        raise SpecError(f'explore(…, view="stepper"): an operand of this call has {depth} slots; the stepper takes up '
                        f"to {MOST_SLOTS}. Give it Buffered({MOST_SLOTS}) or less.")
    return DerivationStepper(lambda n, d: at(d).schedule, {"depth": depth}, own.machine, own.step_seconds,
                             trace.grid_hazards)


def blocking(N, A, X, Y, B):
    """Each block copied in, computed, copied out, then the next."""
    for i in range(N):
        x, y = X[i % len(X)], Y[i % len(Y)]
        by_hand.copy_in_start(A[i], x)
        by_hand.copy_in_wait(x)
        by_hand.compute(x, y)
        by_hand.copy_out_start(y, B[i])
        by_hand.copy_out_wait(y)


def lines_of(schedule: Schedule) -> Order:
    """What each line of a program is called, wherever it is moved to."""
    before, found = Counter(), []
    for e in schedule:
        found.append((e.verb, e.operand, before[e.verb, e.operand]))
        before[e.verb, e.operand] += 1
    return tuple(found)


class DerivationStepper(Explorer):
    """What `derivation_stepper` returns. `order` is the program; moves are methods, and return the stepper."""

    what, to_do = "Timeline of the program.", "move its lines"

    def __init__(self, program: Callable[[int | None, int], Schedule], numbers: dict[str, int], machine: Machine,
                 step_seconds: float | None = None, other: Sequence[Hazard] = ()):
        self.other = other  # hazards that lie in a call's grid: no order of the lines mends them
        self.program, self.machine, self.step_seconds, self._said = program, machine, step_seconds, ""
        self._start, self._known = (None, None), (None, None)
        start = program(numbers.get("steps"), numbers["depth"])
        self.asked = str(start), machine
        self.by_hand = "steps" in numbers  # then its values are known, and N can change
        super().__init__({**numbers, "line": 0, "order": lines_of(start), "past": ()})

    # -- the program and what it does

    order = property(lambda self: self.settings["order"], doc="The lines, in program order.")
    line = property(lambda self: self.settings["line"], doc="The line that moves, counted from 0.")

    def _began(self):
        """Where it began, with as many slots as now: schedule, the number of each line, and its clock."""
        key = self.settings.get("steps"), self.settings["depth"]
        if self._start[0] != key:
            schedule = replace(self.program(*key), calls=())
            play = play_of(schedule, self.machine, timeline(schedule, self.machine).step_seconds
                           if self.step_seconds is None else self.step_seconds)
            self._start = key, (schedule, {line: n for n, line in enumerate(lines_of(schedule))}, play)
        return self._start[1]

    def record(self, order: Order) -> Schedule:
        """What the program does, with its lines in this order."""
        start, number, _ = self._began()
        events, runs = [], 0
        for line in order:
            e = start[number[line]]
            # As by_hand counts: a copy out belongs to the step before it, and steps never go back.
            step = runs - (e.verb in (OUT_START, OUT_WAIT))
            events.append(e._replace(step=max(step, events[-1].step if e.verb == OUT_WAIT and events else 0)))
            runs += e.verb == RUN
        return replace(start, events=tuple(events)).with_waits_named()

    def _seconds(self, order: Order) -> float:
        """Modelled, if each wait still finds the copy that it is there for."""
        _, number, play = self._began()
        return play.where([number[line] for line in order]).times(self.machine)[1]

    def _now(self) -> tuple[Schedule, Timeline, list[Hazard]]:
        key = self.order, self.settings["depth"]
        if self._known[0] != key:
            schedule = self.record(self.order)
            found = timeline(schedule, self.machine, step_seconds=self.step_seconds)
            self._known = key, (schedule, found, verify(schedule))
        return self._known[1]

    schedule = property(lambda self: self._now()[0], doc="The program's schedule.")
    timeline = property(lambda self: self._now()[1], doc="When each engine is busy: modelled.")
    hazards = property(lambda self: self._now()[2], doc="[] or what is wrong with the order.")
    began = property(lambda self: self._seconds(lines_of(self._began()[0])), doc="Modelled seconds, before any move.")

    @property
    def blocks(self) -> np.ndarray:
        """The numbers in A: a block each."""
        return 10.0 * np.arange(1, self.settings["steps"] + 1)

    # -- moves

    def move(self, way: int, far: bool = False) -> "DerivationStepper":
        """Moves the chosen line by one line, EARLIER or LATER; `far`: as far as the program stays free of hazards."""
        verb = self.order[self.line][0]
        if verb == RUN:
            return self._say("A step of the kernel stays where it is: only starts and waits move.")
        to = self._right(self.order, self.line, way)[-1] if far else self.line + way
        if not 0 <= to < len(self.order) or to == self.line:
            return self._say("It cannot move any farther that way" + (" and stay right." if far else "."))
        return self._go(moved(self.order, self.line, to), to)

    def undo(self) -> "DerivationStepper":
        """Takes the last move back."""
        if not self.settings["past"]:
            return self._say("Nothing to undo: this is where it began.")
        *past, (order, line) = self.settings["past"]
        self.settings = self.settings | {"order": order, "line": line, "past": tuple(past)}
        return self._say("")

    def better(self) -> "DerivationStepper":
        """Makes the move that saves the most time and stays right; or the first of two that only together save some."""
        if self.hazards:
            return self._say("First make it right again: undo, or move the marked line back.")
        saved, line, to = self._best(self.order)
        if saved:
            return self._go(moved(self.order, line, to), to)
        first = {line: (to, order) for line, to, order in self._moves(self.order)}  # each as far as it goes
        pairs = [(self._best(order, self._seconds(self.order))[0], line, to) for line, (to, order) in first.items()]
        saved, line, to = max(pairs, default=(0.0, 0, 0))
        if not saved:
            t = self.timeline
            full = t.total - t.fill - t.drain <= t.busy * (1 + 1e-9)  # then slots have nothing to gain either
            more = ("nor would another slot: the core never waits from the first step to the last." if full else
                    "nor two together. Another slot might: try the depth.")
            return self._say(f"No move makes it faster, {more}")
        self._go(moved(self.order, line, to), to)
        return self._say("This saves nothing yet: it opens the way for the next move.")

    def _best(self, order: Order, now: float | None = None) -> tuple[float, int, int]:
        """The seconds below `now` that the best single move saves (0 if none does), its line and where it goes."""
        now, found = self._seconds(order) if now is None else now, []
        for line, (verb, *_) in enumerate(order):
            way = EARLIER if verb in (IN_START, OUT_START) else LATER
            for to in range(line + way, -1 if way < 0 else len(order), way) if verb != RUN else ():
                saved = now - self._seconds(moved(order, line, to))
                if saved > 1e-9 * now:
                    found.append((saved, -abs(to - line), line, to))
        for saved, _, line, to in sorted(found, reverse=True):  # the clock is quick, the verifier is not: it comes last
            if not verify(self.record(moved(order, line, to))):
                return saved, line, to
        return 0.0, 0, 0

    def _moves(self, order: Order):
        """Each start earlier and each wait later, to every place before something goes wrong."""
        for line, (verb, *_) in enumerate(order):
            if verb != RUN:
                for to in self._right(order, line, EARLIER if verb in (IN_START, OUT_START) else LATER)[1:]:
                    yield line, to, moved(order, line, to)

    def _right(self, order: Order, line: int, way: int) -> list[int]:
        """The places on the way, up to the first at which something is wrong."""
        found = [line]
        while 0 <= found[-1] + way < len(order):
            to = found[-1] + way
            if verify(self.record(moved(order, line, to))):
                break
            found.append(to)
        return found

    def _go(self, order: Order, line: int) -> "DerivationStepper":
        past = (*self.settings["past"], (self.order, self.line))
        self.settings = self.settings | {"order": order, "line": line, "past": past}
        return self._say("")

    def _say(self, said: str) -> "DerivationStepper":
        self._said = said
        self.redraw()
        return self

    # -- words

    @property
    def headline(self) -> str:
        t = self.timeline
        if self.hazards:
            return f"✗ {self.hazards[0].kind} · {self.hazards[0].message}"
        right = "only the grid is wrong" if self.other else "right, and race-free"
        return (f"✓ {right} · {show_time(t.total)} modelled, from {show_time(self.began)} · core busy "
                f"{t.utilisation:.0%}")

    @property
    def details(self) -> str:
        lines = [outcome(self.schedule, self.blocks)] if self.by_hand else []
        if lines and lines != [right := f"B = {row(self.blocks + 1)}"]:
            lines.append(f"{right} would be right")
        if self.hazards:
            lines.append(self.hazards[0].mend)
        more = Hazards([*self.hazards[1:] * (not self.by_hand), *self.other])
        if more:
            lines.append(f"✗ {more}")
        return "\n".join([*lines, *filter(None, [self._said])])

    def __str__(self) -> str:
        lines = [f"{'→' if n == self.line else ' '} {text}" for n, text in enumerate(self.lines())]
        return "\n".join([self.headline, self.details, "", *lines])

    def lines(self) -> list[str]:
        """The program, one line each; a line with a hazard is marked."""
        bad = {n for h in self.hazards[:1] for n in h.events}
        return [f"{self.schedule.describe(e)}{'  ✗' if n in bad else ''}" for n, e in enumerate(self.schedule)]

    # -- picture

    @property
    def _limit(self) -> float:
        """The end of the time axis: to the scale of the beginning, time saved is seen as room on the right."""
        return max(self.timeline.total, self.began)

    def _draw(self, figure: Figure) -> None:
        ax = fresh(figure, (0.115, 0.19, 0.87, 0.79))
        plot_timeline(self.timeline, ax, hazards=self.hazards[:1], title="", limit=self._limit)

    def _touch(self, ax: Axes, lines, now: bool = False) -> list[str]:
        """Over the picture, for each of these lines: its box, or the moment of a wait that takes no time."""
        spans, (unit, name), found = {s.event: s for s in self.timeline.spans}, unit_of(self._limit), []
        for n in lines:
            s, at = spans.get(n), self.timeline.times[n]
            start, end = (s.start / unit, s.end / unit) if s else (at / unit, at / unit)
            y, half = height(s.lane if s else CORE), 0.24 if s and s.waiting else 0.42
            words = f"line {n + 1}: {self.schedule.describe(self.schedule[n])}\n{start:.4g} to {end:.4g} {name}"
            found.append(touch(ax, words, [[(start, y - half), (end, y + half)]], now))
        return found

    def picture(self) -> str:
        figure, drawing = self.part(self.what, (self.order, self.settings["depth"]), SIZE, self._draw,
                                    lambda ax: self._touch(ax, range(len(self.order))))
        return laid_over(drawing, self._touch(figure.axes[0], [self.line], now=True))

    def figure(self) -> Figure:
        return plot_listing(self.timeline, hazards=self.hazards[:1], selected=self.line, limit=self._limit,
                            most=MOST_LINES).figure

    # -- controls

    def make_controls(self, w) -> dict:
        look = {"style": {"description_width": "7.5em"}, "layout": {"width": "25em"}}
        made = {"steps": w.IntSlider(self.settings["steps"], 1, MOST_STEPS, description="N (blocks)", **look),
                } if self.by_hand else {}
        return made | {
            "depth": w.IntSlider(self.settings["depth"], 1, MOST_SLOTS, description="depth (slots)", **look),
            # As a slider, too: JupyterLab keeps the arrow keys up and down for itself, and leaves left and right to it.
            "at": w.IntSlider(self.line, 0, len(self.order) - 1, description="line", readout=False, **look),
            "line": w.Select(options=self._options(), value=self.line, rows=len(self.order),
                             description="", layout={"width": "21em"}),
        }

    def _options(self) -> list[tuple[str, int]]:
        return [(text, n) for n, text in enumerate(self.lines())]

    def _moved(self, change=None):
        if self._busy:
            return
        told = {name: control.value for name, control in self.controls.items()}
        at = told.pop("at")
        if change and change["owner"] is self.controls["at"]:
            told["line"] = at
        if told.get("steps") != self.settings.get("steps"):  # another program: begin anew
            told |= self._anew(told["steps"])
        self.settings = self.settings | told
        self._say("")

    def set(self, **settings) -> None:
        """steps=, depth= or line= from code; Reset begins anew."""
        self.settings = self.settings | settings
        if "steps" in settings and "order" not in settings:
            self.settings = self.settings | self._anew(settings["steps"])
        self._say("")

    def _anew(self, steps: int) -> dict:
        return {"order": lines_of(self.program(steps, self.settings["depth"])), "past": (), "line": 0}

    def notes(self) -> dict[str, str]:
        return {"at": f"{self.line + 1}: {html.escape(self.lines()[self.line])}"}

    def more_buttons(self, w) -> list:
        return [button(w, "▲ earlier", "Move the chosen line up by one line", lambda: self.move(EARLIER)),
                button(w, "▼ later", "Move the chosen line down by one line", lambda: self.move(LATER)),
                button(w, "▲▲ earliest", "Up, as far as the program stays right", lambda: self.move(EARLIER, far=True)),
                button(w, "▼▼ latest", "Down, as far as the program stays right", lambda: self.move(LATER, far=True)),
                button(w, "↶ undo", "Take the last move back", self.undo),
                button(w, "a better move", "Make the move that saves the most time", self.better)]

    def arrange(self, w, rows, buttons, result) -> list:
        *above, line = rows
        # In a narrow window the picture goes below the list: beside it, its letters would be too small to read.
        right = w.VBox([buttons, *result], layout={"flex": "1 1 32em", "min_width": "20em"})
        return [*above, w.HBox([line, right], layout={"flex_flow": "row wrap"})]

    def redraw(self) -> None:
        if self._image is not None:
            self._busy = True
            try:
                for name in {"steps", "depth"} & set(self.controls):
                    self.controls[name].value = self.settings[name]
                select, options = self.controls["line"], self._options()
                if tuple(options) != tuple(select.options):
                    select.options, select.rows = options, len(options)
                select.value = self.line
                self.controls["at"].max, self.controls["at"].value = len(options) - 1, self.line
            finally:
                self._busy = False
        super().redraw()


def moved(order: Order, line: int, to: int) -> Order:
    """The order with one line taken out and put in at `to`."""
    rest = order[:line] + order[line + 1:]
    return (*rest[:to], order[line], *rest[to:])

