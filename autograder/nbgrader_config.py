"""nbgrader_config: where nbgrader finds this course, from any working directory.

    JUPYTER_CONFIG_PATH=<repository>/autograder nbgrader autograde unit1

Released notebooks are notebooks/<unit>/; all that nbgrader makes for itself stays in the git-ignored .nbgrader/.
An instructor's own settings (a PostgreSQL db_url, say) go into ~/.jupyter/nbgrader_config.py, which wins.
"""
from pathlib import Path

from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearSolutions, SaveAutoGrades

from autograder.preprocessors import ClearHoles, FailClosed

c = get_config()  # noqa: F821 (nbgrader puts it there)

root = Path(__file__).resolve().parents[1]
c.CourseDirectory.root = str(root)
c.CourseDirectory.source_directory = ".nbgrader/source"
c.CourseDirectory.release_directory = "notebooks"
c.CourseDirectory.submitted_directory = ".nbgrader/submitted"
c.CourseDirectory.autograded_directory = ".nbgrader/autograded"
c.CourseDirectory.feedback_directory = ".nbgrader/feedback"
c.CourseDirectory.solution_directory = ".nbgrader/solution"
c.CourseDirectory.source_with_tests_directory = ".nbgrader/source_with_tests"
c.CourseDirectory.db_url = f"sqlite:///{root / '.nbgrader' / 'gradebook.db'}"

c.GenerateAssignment.preprocessors = [ClearHoles if step is ClearSolutions else step
                                      for step in GenerateAssignment.preprocessors.default()]
steps = Autograde.autograde_preprocessors.default()
steps.insert(steps.index(SaveAutoGrades), FailClosed)
c.Autograde.autograde_preprocessors = steps

c.OverwriteCells.add_missing_cells = True  # a deleted test cell would wait for a manual grade for ever
c.Execute.timeout = 60  # seconds a cell; the first one imports jax
