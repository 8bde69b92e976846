"""results/NAME.json, what `python -m benchmarks --write NAME` measured  ->  the README and docs, between markers.

A marker is <!-- measured: NAME.WHAT --> before and <!-- /measured --> after; WHAT is a table, a figure, or `run`: the
command, machine and day. tests/test_docs.py holds the pages to the results.
"""
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = ("many",)  # takes the better part of an hour: run only if named
MARKED = re.compile(r"<!-- measured: (\w+)\.(\w+) -->(.*?)<!-- /measured -->", re.DOTALL)


def save(name: str, found: dict) -> None:
    RESULTS.mkdir(exist_ok=True)
    lines = json.dumps(found, indent=1, ensure_ascii=False)  # and a row of a table in one line
    rows = re.sub(r'\[\n +("[^\[\]]*")\n +\]', lambda m: "[" + re.sub(r",\n +", ", ", m[1]) + "]", lines)
    (RESULTS / f"{name}.json").write_text(rows + "\n", encoding="utf-8")


def shown(name: str) -> set[str]:
    """What the pages show of a benchmark."""
    return {what for page in PAGES for which, what, _ in MARKED.findall(page.read_text(encoding="utf-8"))
            if which == name}


def text(name: str, what: str) -> str:
    """What stands between the markers."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return f"\n\nNot measured yet: `python -m benchmarks {name}`\n\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    if what == "run":
        return f"\n\n`{found['command']}` · {found['machine']} · {found['date']}\n\n"
    if what in found["figures"]:
        return found["figures"][what]
    head, *rows = found["tables"][what]
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in (head, *rows)]
    return "\n".join(["\n", lines[0], "|---" * len(head) + "|", *lines[1:], "\n"])


def rendered(page: Path) -> str:
    """The page as the results have it."""
    return MARKED.sub(lambda m: f"<!-- measured: {m[1]}.{m[2]} -->{text(m[1], m[2])}<!-- /measured -->",
                      page.read_text(encoding="utf-8"))


def render() -> None:
    for page in PAGES:
        new = rendered(page)
        if new != page.read_text(encoding="utf-8"):
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: brought up to date")
