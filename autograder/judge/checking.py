"""checking: runs a check on an answer and turns whatever happens into a Result. Nothing gets past `check`.

`check` is the notebook's; `judge` is what it shares with grading, which hands in a remote handle.
"""
import contextlib
import importlib
import io
import warnings
from typing import Any

from pallas_lite.alarm import time_limit

from ..exercise import EXERCISES, AnswerFailed, Exercise, NotDone, Trial, Wrong
from ..sandbox.inside.answers import TimeUp, describe
from . import progress
from .before import with_the_cell_before
from .handle import Handle, LocalHandle
from .result import Result, shell, show

NO_RETURN = ("A function gives what stands behind its return, and None where there is none. print only shows a value: "
             "write return before it.")
MISSING = object()  # where no answer is given: `...` is one, of an exercise that is still a hole
TIME_LIMIT = 20.0  # seconds, for one check in a notebook; the first call of JAX in it may take several


def check(number: str, answer: Any = MISSING, *, hidden: bool = False, student: str = "",
          time_limit: float = TIME_LIMIT) -> Result:
    """Checks an exercise and returns the verdict, which shows itself. Never raises.

    `hidden=True` runs the hidden trials, on fresh numbers. `student`: the id that personal parameters belong to.
    """
    found = None
    time_limit *= 2 if hidden else 1  # two trials
    try:
        found = _find(number)
        if found is None:
            return Result(number if isinstance(number, str) else "?", "", 0.0, 0.0, "broken", _unknown(number, answer))
        if answer is MISSING:
            return Result(found.number, found.title, 0.0, found.points, "not done", "No answer is given. It stands "
                          f'behind the number: check("{found.number}", …), with the name of your answer.')
        errors = io.StringIO()
        # Any text on stderr costs the whole mark under nbgrader, and a warning is no mistake.
        with contextlib.redirect_stderr(errors), warnings.catch_warnings(), limit(time_limit):
            warnings.simplefilter("ignore")
            result = judge(found, LocalHandle(answer), Trial(number, hidden, student))
            if result.verdict == "right":
                progress.note(number)
        result = with_the_cell_before(result, found, shell())
        result.printed = errors.getvalue()
        return result
    except TimeUp as error:
        line = describe(error)
        message = (f"Your code took longer than {time_limit:g} s. Look for a loop that does not end, or a wait for "
                   "something that never comes.")
    except KeyboardInterrupt as error:
        line = describe(error)
        message = "The check was interrupted."
    except BaseException as error:  # nothing that a learner writes may stop Run All
        line = describe(error)
        message = f"The check stopped with {type(error).__name__}."
    if found is None:  # the file that declares it stopped
        return Result(str(number), "", 0.0, 0.0, "broken", message, hidden=hidden)
    return Result(found.number, found.title, 0.0, found.points, "error", message, hidden=hidden,
                  line=_where(line["line"], line["lineno"]))


def judge(found: Exercise, answer: Handle, trial: Trial) -> Result:
    """The verdict of one exercise on one answer. A fault of the check itself gives "broken", never a wrong answer."""
    def result(verdict, message, **more):
        points = found.points if verdict == "right" else 0.0
        return Result(found.number, found.title, points, found.points, verdict, message, hidden=trial.hidden, **more)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.run(answer, trial)
            if trial.hidden:  # and on the notebook's own cases, so that no luck of fresh numbers makes it milder
                answer.renew()
                found.run(answer, Trial(trial.number, student=trial.student))
    except Wrong as wrong:
        return result("wrong", wrong.what, case=show(wrong.case), got=show(wrong.got), expected=show(wrong.expected),
                      nudge=wrong.nudge or NO_RETURN * answer.gave_none, schedule=wrong.schedule,
                      hazards=wrong.hazards, timeline=wrong.timeline, own_case=answer.asked == {"value"})
    except NotDone:
        return result("not done", f"Exercise {found.number} is not done yet.")
    except AnswerFailed as failed:
        return result("error", str(failed), line=_where(failed.line, failed.lineno), case=show(failed.case),
                      nudge=failed.nudge)
    except Exception as error:
        import traceback
        where = traceback.extract_tb(error.__traceback__)[-1]
        return result("broken", f"The check of exercise {found.number} failed, which is not your fault: "
                      f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return result("right", "Well done." if not trial.hidden else "All hidden trials passed.")


def _where(line: str, lineno: int) -> str:
    return f"line {lineno}: {line}" if line and lineno else line


def _find(number: str) -> Exercise | None:
    """The exercise; its chapter's module is imported when it is first asked for, so that a notebook opens fast."""
    if not isinstance(number, str):
        return None
    if number not in EXERCISES and number.partition(".")[0].isdigit():
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"autograder.checks.chapter{number.partition('.')[0]}")
    return EXERCISES.get(number)


def _unknown(number: Any, answer: Any) -> str:
    """What to say of a call of `check` that names no exercise."""
    if not isinstance(number, str):
        named = answer if isinstance(answer, str) else f"{number}" if type(number) is float else "3.2"
        return f'First comes the number of the exercise, in quotes, then the answer: check("{named[:20]}", …).'
    chapter = number.partition(".")[0]
    there = ", ".join(known for known in EXERCISES if known.partition(".")[0] == chapter)
    return f"There is no exercise {number!r}. " + (
        f"Chapter {chapter} has {there}." if there else 'A number is chapter and exercise, such as "3.2".')


def limit(seconds: float) -> contextlib.AbstractContextManager[None]:
    """Raises TimeUp in the block after so many seconds; again and again: a learner's bare `except:` may swallow it."""
    return time_limit(seconds, TimeUp, 0.5)
