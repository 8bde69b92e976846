"""autograder: the checks of the course, in the notebook and in grading.

    from autograder import check
    check("3.2", split)

An answer in the notebook: exercise.py (what an exercise is), checks/ (one for each, with visible and hidden trials),
predict.py and inside/draws/ (questions with numbers drawn for each learner), handle.py (how a check reaches the
answer), checking.py and result.py (the verdict, shown), progress.py.

A submission: submissions.py, transplant.py and needed.py (which cells run), sandbox.py, inside/ and remote.py (locked
in, and asked through a pipe), replay.py, grade.py (a Report); batch.py, child.py and cluster.py (many), store.py and
report.py (kept). What is made of reports: feedback.py, export.py; gradebook.py, shown.py and autograde.py (nbgrader).

For authors and instructors: build.py with preprocessors.py and online.py, mutants/ with selftest.py (planted answers),
similar.py with alike.py, doctor.py, course.py (the release); commands/ are the verbs of `autograder --help`.
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
