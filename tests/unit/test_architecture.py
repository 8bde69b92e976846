"""Imports point one way, without a circle; files stay short; folders have budgets; and no private jax is used."""
import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Data flows down: a module may import from its own line and from those above it, and never in a circle.
PARTS = {
    "pallas_lite": """
        alarm errors hardware table schedule rolled specs index_maps memory refs tracer_errors jaxprs pipeline
        engines.record engines.simulate
        body races proof verify reports by_hand
        engines.xla
        manual_dma.copies manual_dma.loops manual_dma.buffers manual_dma.mends manual_dma.step manual_dma.log
        manual_dma.orders manual_dma.direct
        lowering.tiles lowering.mosaic_tpu lowering.gpu lowering.triton lowering.replay lowering.mosaic_gpu
        lowering.stages lowering.libtpu lowering.mosaic lowering.cuda lowering.platforms
        clock causes perfetto timeline
        plot.look plot.timeline plot.roofline plot.grid plot.slots plot.sweep plot.choices plot.listing plot.page
        plot
        traced call show display tpu
        explorers.base explorers.schedule explorers.grid explorers.stepper explorers.tuner explorers.choices
        explorers.opening explorers
    """,
    "autograder": """
        _cwd _interrupt _lean commandline nbgrader.formgrader nbgrader_config
        sandbox.inside sandbox.bubblewrap sandbox.remote
        exercise
        course.environment course.online course.preprocessors course.release course.checking_cells course.build
        judge.replay judge.handle judge.result judge.progress judge.predict judge.before judge.checking judge.selftest
        checks
        mutants
        grading.machine grading.needed grading.whose grading.transplant grading.submissions
        grading.workers grading.grade grading.by_hand grading.child grading.batch grading.cluster grading.report
        grading.earlier grading.store
        nbgrader.exchange nbgrader.gradebook nbgrader.shown nbgrader.autograde
        pages.feedback pages.export pages.similar pages.alike
        doctor
        commands
    """,
}
# How many lines of code each part may have stands in docs/architecture.md, with the reasons.
BUDGETS = dict(zip(("", "manual_dma", "lowering", "pictures"), (int(n.replace(",", "")) for n in re.findall(
    r"^\| `\S+/`[^|]* \| ([\d,]+) \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)),
    strict=True))
PICTURES = {"show", "display", "perfetto", "plot", "explorers"}
# Others import these not.
SCRIPTS = {"autograder.__main__", "autograder", "pallas_lite", "autograder.sandbox.inside.worker"}


def files_of(*folders) -> list[Path]:
    return [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {name_of(p): p for p in files_of(*PARTS)}


def walk_what_runs(node: ast.AST):
    """Every node of a program, less what only type checkers read: it imports nothing, so it may point back."""
    for_checkers = (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
                    or isinstance(node, ast.AnnAssign) and getattr(node.annotation, "id", "") == "TypeAlias"
                    or isinstance(node, ast.ClassDef) and "Protocol" in [getattr(b, "id", "") for b in node.bases])
    if not for_checkers:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from walk_what_runs(child)


def imports(name: str) -> set[str]:
    """The modules of ours that a file imports, also late, inside functions."""
    path, found = FILES[name], set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in walk_what_runs(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - (node.level - 1)] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{module}.{a.name}" if f"{module}.{a.name}" in FILES else module for a in node.names}
    return (found & set(FILES)) - {name}


def line_of(name: str) -> int:
    """On which line of its package's PARTS a module stands; a folder's word is good for all in it, and for itself."""
    package, _, rest = name.partition(".")
    lines = [line.split() for line in PARTS[package].strip().splitlines()]
    for fits in (rest.__eq__, lambda word: rest.startswith(f"{word}."), lambda word: word.startswith(f"{rest}.")):
        if found := [number for number, words in enumerate(lines) if any(map(fits, words))]:
            return found[0]
    raise AssertionError(f"{name} has no place in PARTS: put it on the line of what it imports, or below")


@pytest.mark.parametrize("name", sorted(set(FILES) - SCRIPTS))
def test_imports_point_one_way(name):
    assert line_of(name) >= 0
    for other in imports(name) - SCRIPTS:
        package = other.split(".")[0]
        if package == name.split(".")[0]:
            assert line_of(other) <= line_of(name), f"{name} imports {other}, which stands below it"
        else:
            assert package == "pallas_lite", f"{name} imports {other}: pallas_lite knows nothing of the course"


def in_order(uses: dict[str, set[str]]) -> None:
    try:
        list(TopologicalSorter(uses).static_order())
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        pytest.fail(f"imports go in a circle: {circle}. Move what both need to a file below them.", pytrace=False)


def test_no_imports_go_in_a_circle():
    in_order({name: imports(name) - SCRIPTS for name in FILES})


def test_no_folders_of_the_grader_go_in_a_circle():
    """`pallas_lite` may go back to a folder (engines/xla.py needs what a body needs); each of these is one room."""
    uses: dict[str, set[str]] = {}
    for name in set(FILES) - SCRIPTS:
        rooms = [other.split(".")[1] for other in imports(name) - SCRIPTS if other.startswith("autograder.")]
        if name.startswith("autograder."):
            uses.setdefault(name.split(".")[1], set()).update(rooms)
    in_order({room: others - {room} for room, others in uses.items()})


def test_what_the_sandbox_sees_imports_nothing_of_the_grader_around_it():
    seen = {name: imports(name) for name in FILES if name.startswith("autograder.sandbox.inside")}
    outside = {(name, other) for name, others in seen.items() for other in others
               if not other.startswith(("autograder.sandbox.inside", "pallas_lite"))}
    assert outside <= {("autograder.sandbox.inside.worker", "autograder")}  # which is inside/__init__.py there


@pytest.mark.parametrize("path", files_of("pallas_lite"), ids=name_of)
def test_no_private_jax(path):
    assert "jax._src" not in path.read_text(encoding="utf-8")


def code_lines(path):
    """Lines that hold code: no blank lines, comments or docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    lines = set()
    for node in walk_what_runs(tree):
        is_text = id(node) in texts or isinstance(node, ast.Expr) and id(node.value) in texts
        if hasattr(node, "lineno") and not is_text:
            lines |= {node.lineno, node.end_lineno}
    return len(lines)


def test_the_line_budgets():
    counts = dict.fromkeys(BUDGETS, 0)
    for name, path in FILES.items():
        package, *parts = name.split(".")
        if package == "pallas_lite" and path.name != "__init__.py":
            part = "pictures" if parts[0] in PICTURES else parts[0] if parts[0] in BUDGETS else ""
            counts[part] += code_lines(path)
    over = {part: f"{n} lines, {BUDGETS[part]} allowed" for part, n in counts.items() if n > BUDGETS[part]}
    assert not over, f"{over}: simplify, or argue for more in docs/architecture.md, where the budgets are"


# A chapter's source is as long as its notebook: one story, which is not cut in two.
@pytest.mark.parametrize("path", files_of("pallas_lite", "autograder", "benchmarks", "tests", "tools"), ids=name_of)
def test_a_file_has_400_lines_at_most(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    most = 150 if name_of(path) == "pallas_lite.pipeline" else 400
    assert lines <= most, f"{path.name} has {lines} lines of {most}: move one of its ideas to a file of its own"
