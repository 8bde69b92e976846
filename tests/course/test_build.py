"""The build: what learners get, what they never get, and what an author is told."""
from types import SimpleNamespace

import nbformat
import pytest
from nbgrader.api import Gradebook
from traitlets.config.loader import PyFileConfigLoader

from autograder.__main__ import main
from autograder.course.build import BuildError, outdated
from autograder.course.preprocessors import HoleError, punch

from .conftest import CHAPTER, POINTS, ROOT


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def test_learners_get_numbered_holes_and_the_visible_check(course):
    assert course.build() == ["unit1/02_overlap.ipynb"]
    released = cells(course.released)
    assert released["ex-2-1"].source == "utilisation = ...  # your answer"
    assert released["ex-2-2"].source == (
        'def slot(step, depth):\n    """The slot of `step` among `depth` of them."""\n'
        '    # YOUR CODE HERE\n    raise NotImplementedError("Exercise 2.2 is not done yet")')
    assert released["test-2-2"].source == 'check("2.2", slot)'
    assert released["test-2-2"].metadata.nbgrader.points == 2
    assert released["test-2-2"].metadata.editable is False
    assert all("raises-exception" in released[name].metadata.tags for name in ("ex-2-1", "test-2-1", "ex-2-2"))


def test_the_hidden_form_of_a_check_is_held_back_for_nbgrader(course):
    course.build()
    assert cells(course.held)["test-2-2"].source.endswith("check('2.2', slot, hidden=True)\n### END HIDDEN TESTS")
    assert "wrapped_step" in course.held.read_text("utf-8")
    assert not any(word in course.released.read_text("utf-8") for word in ("wrapped_step", "hidden=True", "SOLUTION"))


def test_a_notebook_names_its_kernel_and_no_python_version(course):
    course.build()
    metadata = nbformat.read(course.released, as_version=4).metadata
    assert metadata.kernelspec.name == "python3"
    assert "version" not in metadata.language_info


def test_the_readme_counts_the_exercises(course):
    readme = course.root / "README.md"
    readme.write_text("There are 70 exercises.\n")
    course.build(out=course.root / "elsewhere")  # which writes nothing else
    assert readme.read_text() == "There are 70 exercises.\n"
    course.build()
    assert readme.read_text() == "There are 2 exercises.\n" and outdated(course.root, POINTS) == []
    readme.write_text("There are 1 exercises.\n")
    assert outdated(course.root, POINTS) == ["README.md"]


def test_two_builds_are_the_same_bytes_wherever_they_run(course, tmp_path, monkeypatch):
    course.build()
    first = course.released.read_bytes(), course.held.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert course.build() == []
    assert (course.released.read_bytes(), course.held.read_bytes()) == first
    course.build(out=elsewhere / "release")
    assert (elsewhere / "release" / "unit1" / "02_overlap.ipynb").read_bytes() == first[0]


def test_an_edit_changes_the_id_of_its_own_cell_only(course):
    course.build()
    before = list(cells(course.released))
    course.edit("# # 2 · Overlap", "# # 2 · Overlapping")
    course.edit("# Give the slot that a step uses.", "# Which slot does a step use?\n\n# %%\nprint('new')")
    course.build()
    after = list(cells(course.released))
    assert len(after) == len(before) + 1
    assert len(set(before) - set(after)) == 2
    assert not any("." in name for name in after)


def test_cells_with_the_same_text_have_ids_of_their_own(course):
    course.write(CHAPTER + "\n# %%\nprint(1)\n\n# %%\nprint(1)\n")
    course.build()
    *_, one, two = cells(course.released)
    assert two == f"{one}-2"


def test_outputs_of_an_author_never_reach_learners(course):
    course.build()
    for cell in cells(course.released).values():
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_a_removed_chapter_leaves_the_release_and_other_files_stay(course):
    course.write()
    course.build()
    notes = course.released.parent / "notes.txt"
    notes.write_text("mine")
    course.source.rename(course.source.with_name("02_renamed.py"))
    assert course.build() == ["unit1/02_overlap.ipynb", "unit1/02_renamed.ipynb"]
    assert not course.released.exists()
    assert notes.read_text() == "mine"


def test_check_names_what_is_out_of_date_and_changes_nothing(course):
    assert outdated(course.root, POINTS) == ["notebooks/unit1/02_overlap.ipynb"]
    assert not course.released.exists()
    course.build()
    assert outdated(course.root, POINTS) == []
    course.edit("# # 2 · Overlap", "# # 2 · Overlapping")
    assert outdated(course.root, POINTS) == ["notebooks/unit1/02_overlap.ipynb"]


def line_of(text):
    return CHAPTER[:CHAPTER.index(text)].count("\n") + 1


ANSWER, CHECK, CALL = '# %% exercise="2.2"', '# %% check="2.2"', 'check("2.2", slot)'
REGION = "### BEGIN SOLUTION\nutilisation = 6 / 8\n### END SOLUTION"
WRONG = {  # slip: text, what stands in its place, line of the message (None: of the chapter), message
    "an open region": ("    return wrapped_step\n    ### END SOLUTION\n", "    return wrapped_step\n",
                       line_of("    wrapped_step") - 1, "### BEGIN SOLUTION is never closed"),
    "an unknown exercise": (ANSWER, '# %% exercise="2.9"', line_of(ANSWER), "exercise 2.9 is unknown"),
    "an exercise of another chapter": (ANSWER, '# %% exercise="3.1"', line_of(ANSWER), "3.1 belongs to chapter 3"),
    "an exercise twice": (ANSWER, '# %% exercise="2.1"', line_of(ANSWER), "a second answer cell for exercise 2.1"),
    "a check without exercise": (ANSWER, "# %%", line_of(ANSWER), "'BEGIN SOLUTION' outside an exercise"),
    "an exercise without check": (CHECK, "# %%", None, 'exercise 2.2 has no `# %% check="2.2"` cell'),
    "a check of something else": (CALL, 'check("2.1", slot)', line_of(CHECK), 'end with check("2.2", …)'),
    "a check of nothing": (CALL, 'check("2.2")', line_of(CHECK), 'end with check("2.2", …), on the answer and'),
    "a check of two things": (CALL, 'check("2.2", slot, slot)', line_of(CHECK), "on the answer and keywords"),
    "a check that shows nothing": (CALL, f"result = {CALL}", line_of(CHECK), 'end with check("2.2"'),
    "hidden tests by hand": (CALL, 'check("2.2", slot, hidden=True)', line_of(CHECK), "remove 'hidden=True'"),
    "two hints": ("<summary>Hint 3: almost the answer</summary>The remainder", "The remainder", None,
                  "exercise 2.2 needs three folded hints"),
    "a slip in an option": (CHECK, '# %% chek="2.2"', line_of(CHECK), "unknown cell option 'chek'"),
    "a syntax error": ("utilisation = 6 / 8", "utilisation = 6 /", line_of("utilisation = 6 / 8"), "invalid syntax"),
    "no region": (REGION, "utilisation = 6 / 8", line_of('# %% exercise="2.1"'), "2.1 has no ### BEGIN SOLUTION"),
    "text before the first cell": ("# %% [markdown]\n# # 2 · Overlap", "print(1)\n# %% [markdown]\n# # 2 · Overlap", 1,
                                   "before the first cell"),
}


@pytest.mark.parametrize("slip", WRONG)
def test_a_slip_is_named_with_its_place_and_the_old_release_stays(course, slip):
    course.build()
    before = course.released.read_bytes(), course.held.read_bytes()
    old, new, line, message = WRONG[slip]
    course.edit(old, new)
    with pytest.raises(BuildError) as error:
        course.build(exercises=POINTS | {"3.1": POINTS["2.1"]})
    place = f"solutions/unit1/02_overlap.py:{line}: " if line else "solutions/unit1/02_overlap.py: "
    assert any(told.startswith(place) and message in told for told in error.value.problems), error.value.problems
    assert str(course.root) not in str(error.value)
    assert (course.released.read_bytes(), course.held.read_bytes()) == before


SHOWN, TAKEN = 'mine = personal("2.1", STUDENT)', 'check("2.1", utilisation, student=STUDENT)'


@pytest.mark.parametrize("shown, taken, message", [
    (SHOWN, 'check("2.1", utilisation)', 'write check("2.1", …, student=STUDENT)'),
    (SHOWN, 'check("2.1", utilisation, student="")', 'write check("2.1", …, student=STUDENT)'),
    ("mine = 3", TAKEN, 'no cell above its check shows them; write personal("2.1", STUDENT)'),
    ('mine = personal("2.1")', TAKEN, 'personal("2.1") draws for nobody; write personal("2.1", STUDENT)'),
    ('mine = personal("2.2", STUDENT)', TAKEN, "there is no exercise 2.2 that draws numbers"),
    (SHOWN, TAKEN, None)])
def test_the_numbers_that_a_page_shows_are_those_that_its_check_takes(course, shown, taken, message):
    course.edit("# %% [markdown]\n# ### Exercise 2.1", f"# %%\n{shown}\n\n# %% [markdown]\n# ### Exercise 2.1")
    course.edit('check("2.1", utilisation)', taken)
    exercises = POINTS | {"2.1": SimpleNamespace(points=1, draws=True)}
    if message is None:
        assert course.build(exercises=exercises) == ["unit1/02_overlap.ipynb"]
        return
    with pytest.raises(BuildError, match="02_overlap.py:") as error:
        course.build(exercises=exercises)
    assert message in str(error.value)


def test_all_slips_are_told_at_once(course):
    course.edit('# %% check="2.2"', '# %% chek="2.2"')
    course.edit("    return wrapped_step\n    ### END SOLUTION\n", "    return wrapped_step\n")
    with pytest.raises(BuildError) as error:
        course.build()
    assert len(error.value.problems) >= 2


def test_an_answer_left_in_another_cell_is_found(course):
    course.write(CHAPTER + "\n# %% [markdown]\n#     wrapped_step = step % depth\n#     return wrapped_step")
    with pytest.raises(BuildError, match="the answer of exercise 2.2 also stands in cell"):
        course.build()
    assert not course.released.exists()


def test_a_check_without_cells_is_named(course):
    with pytest.raises(BuildError, match="exercise 2.7 has a check but no cell"):
        course.build(exercises=POINTS | {"2.7": POINTS["2.1"]})


def test_an_exercise_in_two_chapters_is_named(course):
    course.source.with_name("02_again.py").write_text(CHAPTER, encoding="utf-8")
    with pytest.raises(BuildError, match="exercise 2.1 is in solutions/unit1/02_again.py too"):
        course.build()


def test_a_course_without_chapters_is_an_error(course):
    course.source.unlink()
    with pytest.raises(BuildError, match="no chapter found"):
        course.build()


def test_exercises_cannot_change_under_submissions(course):
    """nbgrader refuses, and the release and nbgrader's source stay as they were."""
    course.build()
    with Gradebook(f"sqlite:///{course.root}/.nbgrader/gradebook.db") as gradebook:
        gradebook.add_student("ada")
        gradebook.add_submission("unit1", "ada")
    before = course.released.read_bytes(), course.held.read_bytes()
    text = CHAPTER[:CHAPTER.index("# %% [markdown]\n# ### Exercise 2.2")]
    course.write(text)
    with pytest.raises(BuildError, match="gradebook holds submissions"):
        course.build(exercises={"2.1": POINTS["2.1"]})
    assert (course.released.read_bytes(), course.held.read_bytes()) == before
    course.write(CHAPTER.replace("# # 2 · Overlap", "# # 2 · Overlapping"))  # anything else may change
    assert course.build() == ["unit1/02_overlap.ipynb"]


@pytest.mark.parametrize("source, expected", [
    ("### BEGIN SOLUTION\na, b = 1, 2\nc: int = 3\n### END SOLUTION",
     "a = ...  # your answer\nb = ...  # your answer\nc = ...  # your answer"),
    ("x = 1\n### BEGIN SOLUTION\nhelp = 2\nfor i in ():\n    inner = 3\n### END SOLUTION\ny = 2",
     "x = 1\nhelp = ...  # your answer\ny = 2"),
    ("### BEGIN SOLUTION\nhalf, _ = 1, 2\nwhole = 2 * half\n### END SOLUTION", "whole = ...  # your answer"),
    ("### BEGIN SOLUTION\nx = 1\nx = x + 1\n### END SOLUTION", "x = ...  # your answer"),
    ("def f(x):\n    y = 1\n    ### BEGIN SOLUTION\n    return y\n    ### END SOLUTION",
     'def f(x):\n    y = 1\n    # YOUR CODE HERE\n    raise NotImplementedError("Exercise 2.1 is not done yet")'),
])
def test_holes(source, expected):
    assert punch(source, "2.1") == expected


@pytest.mark.parametrize("source, expected", [
    ("if True:\n    ### BEGIN SOLUTION\n    x = 1\n    ### END SOLUTION", "must be inside a function"),
    ("### BEGIN SOLUTION\nprint(1)\n### END SOLUTION", "must assign the names"),
    ("### BEGIN SOLUTION\nfor i in (1, 2):\n    x = i\n### END SOLUTION", "outside of any for, if or with"),
    ("### BEGIN SOLUTION\ndef f():\n    pass\n### END SOLUTION", "covers all of `f`"),
    ("### BEGIN SOLUTION\n# later\n### END SOLUTION", "region is empty"),
    ("x = 1\n### END SOLUTION", "without a ### BEGIN SOLUTION"),
    ("### BEGIN SOLUTION\nx = 1\n### BEGIN SOLUTION\ny = 1\n### END SOLUTION", "inside the region"),
    ("def f():\n    ### BEGIN SOLUTION\n    x = (1 +\n    ### END SOLUTION\n    2)", "whole statements"),
])
def test_a_region_that_makes_no_hole_is_refused(source, expected):
    with pytest.raises(HoleError, match=expected):
        punch(source, "2.1")


def test_the_command_says_what_is_wrong_and_fails(course, capsys):
    course.edit(CHECK, '# %% chek="2.2"')
    assert main(["build", "--root", str(course.root)]) == 1
    told = capsys.readouterr().err
    assert f"02_overlap.py:{line_of(CHECK)}: unknown cell option 'chek'" in told
    assert "Nothing was changed" in told


def test_the_command_for_the_real_course_reaches_it_from_any_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["build", "--check"]) == 0, capsys.readouterr().out


def test_nbgrader_finds_the_repository_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = PyFileConfigLoader("nbgrader_config.py", path=str(ROOT / "autograder")).load_config().CourseDirectory
    assert config.root == str(ROOT)
    assert config.release_directory == "notebooks"
    assert config.db_url == f"sqlite:///{ROOT}/.nbgrader/gradebook.db"
    for step in ("source", "submitted", "autograded", "feedback"):
        assert config[f"{step}_directory"].startswith(".nbgrader/")  # git-ignored
