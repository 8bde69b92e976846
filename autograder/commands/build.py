"""autograder build: solutions/ -> notebooks/. The work is in ../course/build.py."""
import sys
from pathlib import Path

from . import FAIL, OK, command, many


def add(commands) -> None:
    p = command(commands, "build", "build the release from solutions/",
                "Builds the student notebooks from solutions/, with nbgrader's own generate_assignment. Only a\n"
                "release that passed every check reaches notebooks/, and only files that changed are written.", run, """
  autograder build            notebooks/ from solutions/
  autograder build --check    change nothing; say whether notebooks/ is up to date""")
    p.add_argument("--check", action="store_true", help="change nothing; say whether notebooks/ is up to date")
    p.add_argument("--root", type=Path, help="the course's repository (default: where this package lies)")
    p.add_argument("--out", type=Path, metavar="DIR", help="write the release there, and nothing else")


def run(options, console, errors) -> int:
    """0: built, or up to date; 1: an error, or (with --check) out of date."""
    from ..course.build import (  # needs jupytext and nbgrader, which grading does not
        BuildError,
        build,
        find_root,
        outdated,
    )
    try:
        root = options.root or find_root()
        if options.check:
            stale = outdated(root)
            for file in stale:
                print(f"{file}: out of date")
            print("Run `make build` and commit the result." if stale else "notebooks/ is up to date.")
            return FAIL if stale else OK
        changed = build(root, options.out, say=lambda line: print(line, flush=True))
        print(f"{many(len(changed), 'notebook')} changed.")
        return OK
    except BuildError as error:
        print(*error.problems, "Nothing was changed.", sep="\n", file=sys.stderr)
        return FAIL
