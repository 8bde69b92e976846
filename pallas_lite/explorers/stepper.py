"""stepper: the derivation as a game. In: N blocks and a depth. Out: an order of lines that the learner moves.

The program begins as the blocking loop, unrolled. Any start or wait may be moved, one line or as far as it stays right;
verdict, values and time come from a recording of the order as it stands (by_hand.py). The rest is base.py's.
"""
import html

import numpy as np
from matplotlib.figure import Figure

from .. import by_hand
from ..errors import SpecError
from ..hardware import TOY, Machine
from ..plot import plot_timeline
from ..schedule import IN_START, IN_WAIT, OUT_START, RUN, VERBS, Schedule
from ..show import TEXT, outcome, row, svg
from ..timeline import Timeline, timeline
from ..verify import verify
from .base import Explorer, button, show_time

MOST_STEPS, MOST_SLOTS = 6, 4
EARLIER, LATER = -1, 1
Order = tuple[tuple[str, int], ...]  # (verb, block), in program order


def derivation_stepper(steps: int = 4, depth: int = 2, *, machine: Machine = TOY) -> "DerivationStepper":
    """The unrolled blocking loop over `steps` blocks; each start and wait can be moved, and is judged at once.

    `depth` slots for X and for Y; block i uses slot i % depth. Raises SpecError for a number out of range.

    >>> game = derivation_stepper(4)
    >>> game.better().headline                # moves one line, as far as it stays right
    '✓ right, and race-free · 11 µs modelled, from 12 µs · core busy 36%'
    """
    return DerivationStepper(steps, depth, machine)


def blocking(steps: int) -> Order:
    """Each block copied in, computed, copied out, then the next."""
    return tuple((verb, i) for i in range(steps) for verb in VERBS)


class DerivationStepper(Explorer):
    """What `derivation_stepper` returns. `order` is the program; moves are methods, and return the stepper."""

    what, to_do = "Timeline of the program.", "move its lines"

    def __init__(self, steps: int, depth: int, machine: Machine):
        for name, value, most in (("steps", steps, MOST_STEPS), ("depth", depth, MOST_SLOTS)):
            if not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
                raise SpecError(f"derivation_stepper({name}={value!r}): give a whole number from 1 to {most}.")
        self.machine, self._axes, self._said, self._asked = machine, None, "", (int(steps), int(depth), machine)
        super().__init__({"steps": int(steps), "depth": int(depth), "line": 0, "order": blocking(int(steps)),
                          "past": ()})

    @property
    def asked(self) -> tuple:
        return self._asked

    # -- the program and what it does

    order = property(lambda self: self.settings["order"], doc="(verb, block) of each line, in program order.")
    line = property(lambda self: self.settings["line"], doc="The line that moves, counted from 0.")

    def record(self, order: Order | None = None) -> Schedule:
        """What the program does, as any hand-written loop is recorded."""
        order, depth = order or self.order, self.settings["depth"]

        def program(N, A, X, Y, B):
            for verb, i in order:
                x, y = X[i % depth], Y[i % depth]
                if verb == RUN:
                    by_hand.compute(x, y)
                elif verb == IN_START:
                    by_hand.copy_in_start(A[i], x)
                elif verb == OUT_START:
                    by_hand.copy_out_start(y, B[i])
                else:
                    (by_hand.copy_in_wait if verb == IN_WAIT else by_hand.copy_out_wait)(x if verb == IN_WAIT else y)
        return by_hand.record(program, self.settings["steps"], depth=depth)

    def _now(self) -> tuple[Schedule, Timeline, list, float]:
        key = self.order, self.settings["depth"]
        if self.__dict__.get("_known", (None,))[0] != key:
            schedule = self.record()
            began = self._seconds(blocking(self.settings["steps"]))
            self._known = key, (schedule, timeline(schedule, self.machine), verify(schedule), began)
        return self._known[1]

    schedule = property(lambda self: self._now()[0], doc="The program's schedule.")
    timeline = property(lambda self: self._now()[1], doc="When each engine is busy: modelled.")
    hazards = property(lambda self: self._now()[2], doc="[] or what is wrong with the order.")
    began = property(lambda self: self._now()[3], doc="Modelled seconds of the blocking loop.")

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
        now = self._seconds(self.order)
        pairs = [(now - self._seconds(order) + self._best(order)[0], line, to)
                 for line, to, order in self._moves(self.order)]
        saved, line, to = max(pairs, default=(0.0, 0, 0))
        if saved < 1e-9 * now:
            return self._say("No move makes it faster, nor two together. Another slot might: try the depth.")
        self._go(moved(self.order, line, to), to)
        return self._say("This saves nothing yet: it opens the way for the next move.")

    def _best(self, order: Order) -> tuple[float, int, int]:
        """The seconds that the best single move saves (0 if none does), its line and where it goes."""
        now = self._seconds(order)
        found = [(now - self._seconds(after), -abs(to - line), line, to)
                 for line, to, after in self._moves(order)]
        saved, _, line, to = max(found, default=(0.0, 0, 0, 0))
        return (saved, line, to) if saved > 1e-9 * now else (0.0, 0, 0)

    def _seconds(self, order: Order) -> float:
        return timeline(self.record(order), self.machine).total

    def _moves(self, order: Order):
        """Each start earlier and each wait later, to every place before something goes wrong."""
        for line, (verb, _) in enumerate(order):
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
        return (f"✓ right, and race-free · {show_time(t.total)} modelled, from {show_time(self.began)} · core busy "
                f"{t.utilisation:.0%}")

    @property
    def details(self) -> str:
        lines = [outcome(self.schedule, self.blocks)]
        if lines != [right := f"B = {row(self.blocks + 1)}"]:
            lines.append(f"{right} would be right")
        if self.hazards:
            lines.append(self.hazards[0].mend)
        return "\n".join([*lines, *filter(None, [self._said])])

    def __str__(self) -> str:
        lines = [f"{'→' if n == self.line else ' '} {text}" for n, text in enumerate(self.lines())]
        return "\n".join([self.headline, self.details, "", *lines])

    def lines(self) -> list[str]:
        """The program, one line each; a line with a hazard is marked."""
        bad = {n for h in self.hazards[:1] for n in h.events}
        return [f"{self.schedule.describe(e)}{'  ✗' if n in bad else ''}" for n, e in enumerate(self.schedule)]

    # -- picture

    def _draw(self):
        if self._axes is None:
            self._axes = Figure(figsize=(6.4, 2.3)).add_axes((0.115, 0.19, 0.87, 0.79))
        self._axes.clear()
        # To the scale of the blocking loop, so that time saved is seen as room on the right.
        return plot_timeline(self.timeline, self._axes, hazards=self.hazards[:1], title="", selected=self.line,
                             limit=max(self.timeline.total, self.began))

    def picture(self) -> str:
        return svg(self._draw(), f"{self.what} {self.headline}")

    def figure(self) -> Figure:
        return self._draw().figure

    def beside(self) -> str:
        return f'<pre style="{TEXT}">{html.escape(chr(10).join(self.lines()))}</pre>'

    # -- controls

    def make_controls(self, w) -> dict:
        look = {"style": {"description_width": "7.5em"}, "layout": {"width": "25em"}}
        return {
            "steps": w.IntSlider(self.settings["steps"], 1, MOST_STEPS, description="N (blocks)", **look),
            "depth": w.IntSlider(self.settings["depth"], 1, MOST_SLOTS, description="depth (slots)", **look),
            # As a slider, too: JupyterLab keeps the arrow keys up and down for itself, and leaves left and right to it.
            "at": w.IntSlider(self.line, 0, len(self.order) - 1, description="line", readout=False, **look),
            "line": w.Select(options=self._options(), value=self.line, rows=5 * self.settings["steps"],
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
        if told["steps"] != self.settings["steps"]:  # another program: begin anew
            told |= {"order": blocking(told["steps"]), "past": (), "line": 0}
        self.settings = self.settings | told
        self._say("")

    def set(self, **settings) -> None:
        """steps=, depth= or line= from code; Reset begins anew."""
        self.settings = self.settings | settings
        if "steps" in settings and "order" not in settings:
            self.settings = self.settings | {"order": blocking(settings["steps"]), "past": (), "line": 0}
        self._say("")

    def more_buttons(self, w) -> list:
        return [button(w, "▲ earlier", "Move the chosen line up by one line", lambda: self.move(EARLIER)),
                button(w, "▼ later", "Move the chosen line down by one line", lambda: self.move(LATER)),
                button(w, "▲▲ earliest", "Up, as far as the program stays right", lambda: self.move(EARLIER, far=True)),
                button(w, "▼▼ latest", "Down, as far as the program stays right", lambda: self.move(LATER, far=True)),
                button(w, "↶ undo", "Take the last move back", self.undo),
                button(w, "a better move", "Make the move that saves the most time", self.better)]

    def arrange(self, w, rows, buttons, result) -> list:
        steps, depth, at, line = rows
        right = w.VBox([buttons, *result], layout={"flex": "1 1 0", "min_width": "20em"})
        return [steps, depth, at, w.HBox([line, right])]

    def redraw(self) -> None:
        if self._image is not None:
            self._busy = True
            try:
                self.controls["steps"].value, self.controls["depth"].value = (self.settings[k] for k in
                                                                               ("steps", "depth"))
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

