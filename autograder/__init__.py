"""autograder: the checks of the course, in the notebook and in grading.

    from autograder import check
    check("3.2", split)

Start reading in exercise.py. `python -m autograder --help` is the instructor's side.
"""
import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != _HOME:
    # `python -m` looks for modules in the folder that one is in: among submissions, a student's json.py would be ours.
    del sys.path[0]

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
