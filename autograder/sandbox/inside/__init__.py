"""What student code finds as `autograder` in the sandbox: this folder and nothing else of the grader.

`check` does nothing here; the trusted process runs the real checks, outside. The trusted side imports wire.py,
answers.py and personal.py from this folder too, so both sides speak the same language.
"""
from .personal import personal as personal
from .recorded import recorded as recorded
from .say import say as say


class _Nothing:
    def _repr_mimebundle_(self, **_):
        return {"text/plain": "graded outside"}


def check(*_, **__):
    """The notebook's own call of a check: no verdict comes from in here."""
    return _Nothing()


def progress():
    """The notebook's own table of what is done: there is none in here."""
    return _Nothing()
