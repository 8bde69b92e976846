"""What student code finds as `autograder` in the sandbox: this folder and nothing else of the grader.

`check` does nothing here; the trusted process runs the real checks, outside. The trusted side imports wire.py and
answers.py from this folder too, so both sides speak the same language.
"""


class _Nothing:
    def _repr_mimebundle_(self, **_):
        return {"text/plain": "graded outside"}


def check(*_, **__):
    """The notebook's own call of a check: no verdict comes from in here."""
    return _Nothing()
