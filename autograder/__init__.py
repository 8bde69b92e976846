"""autograder: the checks of the course, in the notebook and in grading.

    from autograder import check
    check("3.2", split)

exercise.py says what an exercise is; checks/ has one function for each, with visible and hidden trials, and mutants/
the planted answers that they are tried on. The rooms, each using only those before it:

    sandbox/    where student code runs; inside/ is all that it sees of us, and what a notebook shares with it
    course/     solutions/ -> notebooks/, and the release that grading reads
    judge/      an answer, asked through a handle -> the verdict of its check, in the notebook and in grading
    grading/    submissions -> reports: found, put into our skeleton, run, marked, many at once, kept
    nbgrader/   reports -> nbgrader's gradebook and Formgrader, and our grader in place of its Autograde
    pages/      reports -> a feedback page for each student, files of grades, similar answers side by side

doctor.py looks into all of them, commands/ has the verbs of `autograder --help`, which
commandline.py writes into messages as they can be typed. nbgrader_config.py, labconfig/ and instructor/ are settings,
which Jupyter looks for in this folder.
"""
from . import _cwd as _cwd  # before anything else is imported, the signal module too
from . import _interrupt as _interrupt
from .exercise import EXERCISES as EXERCISES
from .exercise import Exercise as Exercise
from .exercise import Trial as Trial
from .exercise import Wrong as Wrong
from .exercise import exercise as exercise
from .judge.checking import check as check
from .judge.handle import Handle as Handle
from .judge.handle import KernelRun as KernelRun
from .judge.handle import close as close
from .judge.progress import progress as progress
from .judge.result import Result as Result
from .sandbox.inside.personal import personal as personal
from .sandbox.inside.recorded import recorded as recorded
from .sandbox.inside.say import say as say
