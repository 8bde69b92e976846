"""Imports of pallas_lite point one way, files stay short, and no private jax is used."""
import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "pallas_lite"
# Data flows down this list; a module may import only from those above it.
ORDER = ["errors", "hardware", "schedule", "rolled", "specs", "memory", "refs", "slips", "jaxprs", "pipeline",
         "engines.record", "engines.simulate", "body", "manual", "races", "clean", "verify", "reports",
         "by_hand", "engines.xla", "engines.buffers", "engines.step", "engines.log", "engines.direct", "tiles",
         "engines.tpu", "engines.gpu", "engines.triton", "engines.replay", "engines.mosaic_gpu", "stages", "libtpu",
         "mosaic", "cuda", "lowering", "clock", "causes", "perfetto", "timeline", "plot.look", "plot.timeline",
         "plot.roofline", "plot.grid", "plot.slots", "plot.sweep", "traced", "call", "show", "display",
         "explorers.base", "explorers.schedule", "explorers.grid", "explorers.stepper", "explorers.tuner",
         "explorers.opening", "tpu"]
LOWERING = {"lowering", "stages", "mosaic", "tiles", "libtpu", "cuda", "engines.tpu", "engines.gpu", "engines.triton",
            "engines.replay", "engines.mosaic_gpu"}
PICTURES = {"show", "display", "perfetto"}  # and plot/, explorers/
FILES = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in ROOT.rglob("*.py") if p.name != "__init__.py"}


def imports(path, name):
    package = name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[:len(package) - (node.level - 1)]
            module = [*base, *(node.module or "").split(".")] if node.module else base
            found = ".".join(p for p in module if p)
            yield from [found] if found in FILES else [f"{found}.{a.name}".strip(".") for a in node.names]


def test_every_module_has_its_place_in_the_order():
    assert set(FILES) <= set(ORDER), f"add to ORDER: {set(FILES) - set(ORDER)}"


@pytest.mark.parametrize("name", FILES)
def test_imports_point_one_way(name):
    for other in imports(FILES[name], name):
        if other in FILES:
            assert ORDER.index(other) < ORDER.index(name), f"{name} imports {other}, which comes after it"


@pytest.mark.parametrize("path", [*FILES.values(), ROOT / "__init__.py"], ids=lambda p: p.stem)
def test_no_private_jax(path):
    assert "jax._src" not in path.read_text(encoding="utf-8")


def code_lines(path):
    """Lines that hold code: no blank lines, comments or docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    lines = set()
    for node in ast.walk(tree):
        is_text = id(node) in texts or isinstance(node, ast.Expr) and id(node.value) in texts
        if hasattr(node, "lineno") and not is_text:
            lines |= {node.lineno, node.end_lineno}
    return len(lines)


def test_the_line_budget():
    def count(path):
        return len(path.read_text(encoding="utf-8").splitlines())
    assert count(FILES["pipeline"]) < 150
    assert max(count(p) for p in FILES.values()) <= 400
    # Programs for accelerators and pictures have budgets of their own: who reads the simulator need not read them.
    lines = {name: code_lines(path) for name, path in FILES.items()}
    lowering = sum(n for name, n in lines.items() if name in LOWERING)
    pictures = sum(n for name, n in lines.items() if name in PICTURES or name.startswith(("plot.", "explorers.")))
    assert lowering <= 1388
    assert pictures <= 1846
    assert sum(lines.values()) - lowering - pictures <= 3500
