"""autograder doctor: is all there that learning and grading need? The work is in ../doctor.py."""
from . import FAIL, FAULT, OK, command, course_of, release_options

SIGNS = {"good": "✓", "note": "·", "bad": "✗", "broken": "!"}


def add(commands) -> None:
    p = command(commands, "doctor", "what is missing here, and what to do",
                "Looks at Python, packages, sandbox, nbgrader, gradebook, release, disk and memory, and says of each\n"
                "what to do. Changes nothing. Where a check passes on one machine and fails on another, run this on\n"
                "both: the same packages and the same course id give the same verdicts.", run, """
  autograder doctor              before the first batch, and after every update
  autograder doctor --student    only what a learner needs""")
    p.add_argument("--student", action="store_true", help="only what a learner needs")
    release_options(p)


def run(options, console, errors) -> int:
    from .. import doctor
    course = course_of(options)
    parts = {"learn": doctor.examine(doctor.learning, course)}
    if not options.student:
        parts["grade"] = doctor.examine(doctor.grading, course)
    console.print(". ".join(f"Ready to {what}: {doctor.verdict(found)}" for what, found in parts.items()) + ".",
                  style="bold", highlight=False)
    found = [f for some in parts.values() for f in some]
    for f in found:
        console.print(f"{SIGNS[f.state]} {f.area}: {f.what}", markup=False, highlight=False, soft_wrap=True)
        if f.do and f.state != "good":
            console.print(f"    → {f.do}".replace("\n", "\n      "), markup=False, highlight=False, soft_wrap=True)
    states = {f.state for f in found}
    return FAULT if "broken" in states else FAIL if "bad" in states else OK
