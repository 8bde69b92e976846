"""_cwd: no module of ours, Python's or anyone's comes from the folder that one grades in. Imported before all else.

`python -m` looks there first, and so does every Python whose PYTHONPATH has an empty entry. Among submissions lies a
student's json.py, or a whole course with an autograder in it. So that folder is taken away again. If it is this very
file that came from there, while another autograder is installed, it says so and ends. What Python imports before it
comes to this file cannot be helped from here: the command `autograder`, and `python -P -m autograder`, do not look
there at all.

A whole course that was copied, last year's say, has an environment in it that still runs the original. Started from
there it would grade into the original's results: it says so and ends. Next: __main__.py.
"""
import importlib.machinery
import os
import shlex
import sys

CHILD = "autograder.grading.child"  # a process that grades, started by the command
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _started() -> str:
    if sys.argv[:1] == ["-m"]:
        return CHILD if CHILD in sys.orig_argv else "autograder"
    return "autograder" if sys.argv and os.path.basename(sys.argv[0]) == "autograder" else ""


STARTED = _started()
"""The program of ours that runs; empty in a notebook or a test, which have the folder they are in, and need it."""


def other_course(folder: str) -> bool:
    """Whether a course lies in this folder that is not the one that runs."""
    return os.path.isfile(os.path.join(folder, "autograder", "_cwd.py")) and \
        os.path.realpath(folder) != os.path.realpath(_HOME)


def _copied() -> str:
    """The course whose environment this was started from, if that is a copy of ours; empty if it is not."""
    script = os.path.abspath(sys.argv[0])
    around = [os.path.dirname(os.path.dirname(p)) for p in (script, os.path.realpath(script))]
    return next((course for course in map(os.path.dirname, [*around, sys.prefix]) if other_course(course)), "")


def _leave(here: str) -> None:
    named = [os.path.realpath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p)]
    if here in named:
        return  # asked for by its name
    other = _installed(here) if os.path.realpath(_HOME) == here else ""
    if not other and os.path.realpath(_HOME) not in named and (copy := _copied()):
        print(f"autograder: the environment of {copy} was copied, and still runs the course in {_HOME}. Nothing was "
              f"done.\nThis makes it anew, for the copy:  make -C {shlex.quote(copy)} build\nThen give the same "
              "command again.", file=sys.stderr)
        sys.exit(3)
    if os.path.realpath(_HOME) != here:
        if other_course(here) and STARTED != CHILD:  # to whose parent it was said
            print(f"autograder: {here} has a course of its own, and this is the command of {_HOME}", file=sys.stderr)
            if os.path.isfile(os.path.join(here, ".venv", "pyvenv.cfg")):
                print("Nothing was done. If the course here is yours, give its own command: .venv/bin/autograder. If "
                      "a student handed it in, leave this folder first.", file=sys.stderr)
                sys.exit(3)
        sys.path[:] = [p for p in sys.path if os.path.realpath(p) != here]
    elif other:
        print(f"autograder: this folder, {here}, has an autograder of its own, and that is not the one that is "
              f"installed, in {other}. Nothing was done.\nA student may have handed it in: the command `autograder` "
              "(or python -P -m autograder) runs the installed one. If this one is meant: PYTHONPATH="
              f"{shlex.quote(here)} python -m autograder", file=sys.stderr)
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


if STARTED:
    try:
        _leave(os.path.realpath(os.getcwd()))
    except FileNotFoundError:  # somebody removed it
        pass
