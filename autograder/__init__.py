"""autograder: the checks of the course, in the notebook and in grading.

    from autograder import check
    check("3.2", split)

Start reading in exercise.py. `autograder --help` is the instructor's side.
"""
from . import _cwd as _cwd  # before anything else is imported
from .checking import check as check
from .exercise import EXERCISES as EXERCISES
from .exercise import Exercise as Exercise
from .exercise import Trial as Trial
from .exercise import Wrong as Wrong
from .exercise import exercise as exercise
from .handle import Handle as Handle
from .handle import KernelRun as KernelRun
from .handle import close as close
from .inside.personal import personal as personal
from .inside.recorded import recorded as recorded
from .inside.say import say as say
from .progress import progress as progress
from .result import Result as Result
