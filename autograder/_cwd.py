"""_cwd: `python -m` looks for modules in the folder that one is in. Among submissions, a student's json.py is there.

Imported before all else, it takes that folder away again, unless it is where the autograder itself lies.
"""
import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != _HOME:
    del sys.path[0]
