"""The corpus, graded in one batch by the command line, with honest submissions among it. See corpus.py."""
import hashlib
import json
from pathlib import Path

import nbformat
import pytest

from ..autograder import little_course as little
from ..autograder.test_grading import run
from . import accidents, forging, hurting
from .corpus import ROOT, Case, save

pytestmark = pytest.mark.classroom
FULL = accidents.FULL
HONEST = [Case(f"honest_{i}", "honest", save(little.notebook(answers)), marks) for i, (answers, marks) in enumerate([
    (little.RIGHT, FULL), ({n: little.RIGHT[n] for n in ("90.1", "90.3")}, FULL | {"90.2": 0, "90.4": 0}),
    (little.RIGHT, FULL)])]
CASES = [*HONEST, *forging.cases(), *hurting.cases(little.RIGHT), *accidents.cases()]


def everything(folder: Path) -> dict[str, str]:
    """Path -> hash of each file, but for what git ignores as a matter of course."""
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*"))
            if p.is_file() and not p.is_symlink() and "__pycache__" not in p.parts and ".git" not in p.parts}


def left_over() -> set[str]:
    """Processes of a sandbox, and files of the grader in /tmp."""
    found = {p.name for p in Path("/tmp").iterdir() if p.name.startswith("autograder-")}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and 61_000 <= folder.stat().st_uid < 65_535 and folder.stat().st_uid != 65_534:
                found.add(f"process {folder.name}: {(folder / 'cmdline').read_bytes()}")
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    release, folder, out = map(tmp_path_factory.mktemp, ("release", "submitted", "results"))
    (release / little.UNIT).mkdir()
    nbformat.write(little.notebook(), release / little.UNIT / f"{little.NAME}.ipynb")
    for file, _ in forging.CHAPTERS:
        (release / file).parent.mkdir(exist_ok=True)
        (release / file).write_bytes((ROOT / "notebooks" / file).read_bytes())
    for case in CASES:
        case.write(folder / case.name)
    gradebook = out / "gradebook.db"
    gradebook.write_text("marks of last week")
    before = everything(ROOT / "autograder"), everything(ROOT / "pallas_lite"), everything(folder), left_over()
    done = run("grade", folder, "--jobs", 2, "--out", out, "--release", release, "--timeout", 2, "--checks",
               "tests.autograder.little_course", "--checks", "autograder.checks")
    assert (out / "results.json").exists(), done.stdout + done.stderr
    text = (out / "results.json").read_text(encoding="utf-8")
    reports = {r["student"]: r for r in json.loads(text)["submissions"]}
    after = everything(ROOT / "autograder"), everything(ROOT / "pallas_lite"), everything(folder), left_over()
    return done, reports, before, after, gradebook


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.kind}-{ascii(c.name)[1:-1][:40]}")
def test_the_right_mark_and_a_message(graded, case):
    report = graded[1][case.student or case.name]
    if case.marks is None:
        assert report["status"] == "unreadable" and report["points"] is None and not report["marks"], report
    else:
        marks = {n: m["points"] for n, m in report["marks"].items()}
        assert (report["status"], marks) == ("graded", case.marks), report
    for number, words in case.words.items():
        said = report["marks"][number]["message"] if number else " ".join(report["warnings"])
        assert words.casefold() in said.casefold(), report


def test_every_submission_has_its_row(graded):
    done, reports, *_ = graded
    assert done.returncode == 2, done.stderr
    assert set(reports) == {c.student or c.name for c in CASES} and len(reports) == len(CASES)


def test_the_corpus_is_large_enough():
    programs = {name for c in CASES for name in c.made_of}
    files = [c for c in CASES if not c.made_of and c.kind != "honest"]
    assert len(programs) + len(files) >= 150 and len({c.name for c in CASES}) == len(CASES)


def test_the_machine_is_clean_afterwards(graded):
    _, _, before, after, gradebook = graded
    assert before == after and gradebook.read_text() == "marks of last week"


def test_what_is_printed_is_harmless_to_a_terminal_and_a_spreadsheet(graded):
    done, _, _, _, gradebook = graded
    assert not set(done.stdout) & set("\x1b\x07\r\u202e\u2028")
    for row in (gradebook.parent / "results.csv").read_text(encoding="utf-8-sig").splitlines():
        assert not row.startswith(("=", "+", "-", "@", "\t", '"=', '"-', '"@'))
