"""The corpus, graded in one batch by the command line, with honest submissions among it. See corpus.py."""
import hashlib
import json
from pathlib import Path

import pytest

from ..autograder import little_course as little
from ..autograder.test_grading import run
from ..survivors import USERS, survivors
from . import accidents, chapters, forging, hurting, knowing
from .chapters import number_in
from .corpus import ROOT, Case, hand_in, placed, save

pytestmark = pytest.mark.classroom
FULL = accidents.FULL
ANSWERS = [(little.RIGHT, FULL), ({n: little.RIGHT[n] for n in ("90.1", "90.3")}, FULL | {"90.2": 0, "90.4": 0})]
HONEST = [Case(f"honest_{i}", "honest", save(little.notebook(answers)), marks, alone=i == 0)
          for i, (answers, marks) in enumerate(ANSWERS)]  # one by itself, one among what the others hand in
CASES = placed([*HONEST, *forging.cases(), *knowing.cases(), *hurting.cases(little.RIGHT), *accidents.cases()])


def everything(folder: Path) -> dict[str, str]:
    """Path -> hash of each file, but for what git ignores as a matter of course."""
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*"))
            if p.is_file() and not p.is_symlink() and "__pycache__" not in p.parts and ".git" not in p.parts}


def left_over() -> list:
    """Processes of a sandbox with no grader above them, and files of theirs in /tmp."""
    return [p for p in Path("/tmp").iterdir() if p.lstat().st_uid in USERS] + survivors()


@pytest.fixture(scope="module")
def graded(tmp_path_factory, sandbox):
    release, folder, out = map(tmp_path_factory.mktemp, ("release", "submitted", "results"))
    chapters.release(release)
    for file, _ in forging.CHAPTERS:
        (release / file).parent.mkdir(exist_ok=True)
        (release / file).write_bytes((ROOT / "notebooks" / file).read_bytes())
    for where in CASES:
        hand_in(where, folder)
    gradebook = out / "gradebook.db"
    gradebook.write_text("marks of last week")
    before = everything(ROOT / "autograder"), everything(ROOT / "pallas_lite"), everything(folder)
    temporary = tmp_path_factory.mktemp("tmp")
    done = run("grade", folder, "--jobs", 2, "--out", out, "--release", release, "--timeout", 3, "--checks",
               "tests.hostile.chapters", "--checks", "autograder.checks", TMPDIR=str(temporary))
    assert (out / "results.json").exists(), done.stdout + done.stderr
    text = (out / "results.json").read_text(encoding="utf-8")
    reports = {r["student"]: r for r in json.loads(text)["submissions"]}
    after = everything(ROOT / "autograder"), everything(ROOT / "pallas_lite"), everything(folder)
    left = [*temporary.iterdir(), *left_over()]
    return done, reports, before, after, gradebook, left


@pytest.mark.parametrize("where", CASES, ids=lambda w: f"{w.case.kind}-{ascii(w.case.name)[1:-1][:40]}")
def test_the_right_mark_and_a_message(graded, where):
    case, report = where.case, graded[1][where.student]

    def here(number):
        return number_in(number, where.chapter) if number.startswith("90.") else number
    if case.marks is None:
        assert report["status"] == "unreadable" and report["points"] is None and not report["marks"], report
    else:
        marks = {n: report["marks"][here(n)]["points"] for n in case.marks}
        assert (report["status"], marks) == ("graded", case.marks), report
        silent = [n for n in case.marks if not marks[n] and not report["marks"][here(n)]["message"]]
        assert not silent, report
    for number, words in case.words.items():
        said = report["marks"][here(number)]["message"] if number else " ".join(report["warnings"])
        assert words.replace("90", str(where.chapter), 1).casefold() in said.casefold(), report


def test_every_submission_has_its_row(graded):
    done, reports, *_ = graded
    assert done.returncode == 2, done.stderr
    assert set(reports) == {w.student for w in CASES}
    # Each exercise that was handed in has its mark.
    assert sum(len(r["marks"]) for r in reports.values()) == sum(len(w.case.marks or ()) for w in CASES)


def test_the_corpus_is_large_enough():
    cases = [w.case for w in CASES]
    programs = {name for c in cases for name in c.made_of}
    files = [c for c in cases if not c.made_of and c.kind != "honest"]
    assert len(programs) + len(files) >= 140 and len({c.name for c in cases}) == len(cases)


def test_the_machine_is_clean_afterwards(graded):
    _, _, before, after, gradebook, left = graded
    assert not left
    assert before == after and gradebook.read_text() == "marks of last week"


def test_what_is_printed_is_harmless_to_a_terminal_and_a_spreadsheet(graded):
    done, _, _, _, gradebook, _ = graded
    assert not set(done.stdout) & set("\x1b\x07\r\u202e\u2028")
    for row in (gradebook.parent / "results.csv").read_text(encoding="utf-8-sig").splitlines():
        assert not row.startswith(("=", "+", "-", "@", "\t", '"=', '"-', '"@'))
