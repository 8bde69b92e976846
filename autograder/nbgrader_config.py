"""nbgrader_config: where nbgrader finds this course, from any working directory.

    JUPYTER_CONFIG_PATH=<repository>/autograder nbgrader autograde unit1

Released notebooks are notebooks/<unit>/; all that nbgrader makes for itself stays in the git-ignored .nbgrader/.
An instructor's own settings (a PostgreSQL db_url, say) go into ~/.jupyter/nbgrader_config.py, which wins.
"""
import sys
from pathlib import Path

from jupyter_core.paths import jupyter_config_dir
from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata, ClearSolutions, GetGrades

# Ours are given by name: each JupyterLab reads this file when it starts, and importing them takes seconds.
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

c.GenerateAssignment.preprocessors = ["autograder.course.preprocessors.ClearHoles" if step is ClearSolutions else step
                                      for step in GenerateAssignment.preprocessors.default()]
# Formgrader's button and `nbgrader autograde` grade as `autograder grade` does: in the sandbox, with the same marks.
c.Autograde.exporter_class = "autograder.nbgrader.autograde.Submissions"
c.Autograde.sanitize_preprocessors = ["autograder.nbgrader.autograde.GradeSubmission"]
c.Autograde.autograde_preprocessors = ["autograder.nbgrader.autograde.SaveMarks", AssignLatePenalties,
                                       CheckCellMetadata]
# In feedback for students nothing shows what hidden trials found.
c.GenerateFeedback.preprocessors = [GetGrades, "autograder.nbgrader.autograde.StudentView", CSSHTMLHeaderPreprocessor]

# No exchange is what most have; Formgrader's log need not complain of it at each page.
c.ExchangeFactory.list = "autograder.nbgrader.exchange.Listing"

# A student's name is text in Formgrader's pages, whatever is in it.
c.HTMLExporter.preprocessors = ["autograder.nbgrader.formgrader.NamesAsText"]
if "nbgrader.server_extensions.formgrader.handlers" in sys.modules:  # a server, before it sets Formgrader up
    from autograder.nbgrader import formgrader
    formgrader.mend()

c.Execute.timeout = 60  # seconds a cell, for the Validate button; the first one imports jax

# Jupyter would let JUPYTER_CONFIG_PATH, which names this file, win over the instructor's own.
if (own := Path(jupyter_config_dir(), "nbgrader_config.py")).exists() and own.resolve() != Path(__file__).resolve():
    load_subconfig(own.name, str(own.parent))  # noqa: F821
