"""_cwd: no module of ours, Python's or anyone's comes from the folder that one grades in. Imported before all else.

`python -m` looks there first, and so does every Python whose PYTHONPATH has an empty entry. Among submissions lies a
student's json.py, or a whole course with an autograder in it. So that folder is taken away again. If it is this very
file that came from there, while another autograder is installed, it says so and ends. What Python imports before it
comes to this file cannot be helped from here: the command `autograder`, and `python -P -m autograder`, do not look
there at all.
"""
import importlib.machinery
import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _leave(here: str) -> None:
    named = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p)]
    if any(os.path.realpath(p) == here for p in named):
        return  # asked for by its name
    if os.path.realpath(_HOME) != here:
        sys.path[:] = [p for p in sys.path if os.path.realpath(p) != here]
    elif other := _installed(here):
        print(f"autograder: this folder, {here}, has an autograder of its own, and that is not the one that is "
              f"installed, in {other}. Nothing was done.\nA student may have handed it in: the command `autograder` "
              "(or python -P -m autograder) runs the installed one. If this one is meant: PYTHONPATH="
              f"{here} python -m autograder", file=sys.stderr)
        sys.exit(3)


def _installed(here: str) -> str:
    """Where another autograder is installed; empty if there is none."""
    elsewhere = [p for p in sys.path if os.path.realpath(p) != here]
    for finder in sys.meta_path:  # an editable install has a finder of its own
        path = elsewhere if finder is importlib.machinery.PathFinder else None
        spec = finder.find_spec("autograder", path) if hasattr(finder, "find_spec") else None
        if spec is not None and spec.origin and os.path.isfile(spec.origin):
            found = os.path.dirname(os.path.dirname(os.path.realpath(spec.origin)))
            return "" if found == here else found
    return ""


# As `python -m autograder`, or as the command. A notebook and a test have the folder they are in, and need it.
if sys.argv[:1] == ["-m"] or sys.argv and os.path.basename(sys.argv[0]) == "autograder":
    try:
        _leave(os.path.realpath(os.getcwd()))
    except FileNotFoundError:  # somebody removed it
        pass
