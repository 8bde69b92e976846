"""online: the course on Colab and Binder. Its address -> each notebook's first code cell, the README's buttons.

The address is `Repository` in pyproject.toml's [project.urls], and stands nowhere else. Without it there are no
buttons, and that cell says what is missing. docs/online.md is for who puts the course on the net. Next: build.py.
"""
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import nbformat
from nbformat import NotebookNode

INSTALL = "install"  # the id of the first code cell; grading leaves it out
BRANCH = "main"
BUTTONS = re.compile(r"(?<=<!-- buttons -->\n).*?(?=<!-- /buttons -->)", re.DOTALL)
COUNT = re.compile(r"(?<=There are )\d+(?= exercises)")

# Plain Python, not %pip: whatever reads our cells parses them. A package that was imported before pip replaced it stays
# the old one until the session starts anew.
CELL = '''\
# @title Where the course is missing, as on Colab, this installs it. Elsewhere it does nothing.
import importlib.util

if not importlib.util.find_spec("pallas_lite"):
    import importlib.metadata
    import os
    import subprocess
    import sys

    course = os.environ.get("PALLAS_COURSE", "{course}")
    if not course:
        sys.exit("The course is not installed here. Set it up as its README says (make lab), or let\\n"
                 "PALLAS_COURSE name what pip can install: the course's wheel, or git+https://…")
    print("Installing the course: a minute or two …")
    command = [sys.executable, "-m", "pip", "install", "--quiet", course]
    pip = subprocess.run(command, capture_output=True, text=True)
    if pip.returncode:
        sys.exit("The course could not be installed here. pip says:\\n" + pip.stderr)
    importlib.invalidate_caches()
    loaded = {{name: sys.modules[name] for name in ("numpy", "jax", "matplotlib") if name in sys.modules}}
    if any(module.__version__ != importlib.metadata.version(name) for name, module in loaded.items()):
        sys.exit("The course is installed. Restart the session (on Colab: menu Runtime), then go on.")
'''


def repository(root: Path) -> str:
    """The course's public address, without a slash at its end; "" where none is set."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, KeyError):
        return ""
    return project.get("urls", {}).get("Repository", "").rstrip("/").removesuffix(".git")


def install_cell(address: str) -> NotebookNode:
    """The first code cell of each notebook, folded in JupyterLab and in Colab."""
    source = CELL.format(course=address and f"git+{address}").rstrip("\n")
    return nbformat.v4.new_code_cell(source, id=INSTALL, metadata={"cellView": "form",
                                                                   "jupyter": {"source_hidden": True}})


def buttons(address: str, notebooks: Iterable[str]) -> str:
    """Markdown for the README: Binder for the whole, and Colab, which opens GitHub's notebooks alone, for each chapter.

    `notebooks` are paths below notebooks/, in order.
    """
    notebooks = [f"notebooks/{file}" for file in notebooks]
    if not address or not notebooks:
        return "Buttons for Colab and Binder: one setting turns them on, see [docs/online.md](docs/online.md).\n"
    path = address.removeprefix("https://github.com/")
    where = f"git/{quote(address, safe='')}" if path == address else f"gh/{path}"
    lines = [f"[![Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/{where}/{BRANCH}?urlpath="
             f"{quote(f'lab/tree/{notebooks[0]}', safe='')})"]
    if path != address:
        colab = [f"https://colab.research.google.com/github/{path}/blob/{BRANCH}/{file}" for file in notebooks]
        lines += [f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab[0]})",
                  "Chapters in Colab: " + " · ".join(f"[{int(Path(file).name[:2])}]({link})"
                                                     for file, link in zip(notebooks, colab, strict=True))]
    return "\n".join(lines) + "\n"


def readme(root: Path, notebooks: Iterable[str], exercises: int) -> tuple[str, str]:
    """README.md as it is, and with the buttons and the number of exercises that belong there; both are "" where there
    is no README."""
    path = root / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    made = buttons(repository(root), notebooks)
    return text, COUNT.sub(str(exercises), BUTTONS.sub(lambda _: made, text))
