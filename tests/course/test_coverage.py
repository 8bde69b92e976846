"""docs/coverage.md: the sections that it names are there, and every section of the tutorial has a row."""
import re

from .test_course import ROOT, SOURCES

PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
CHAPTERS = {int(source.stem[:2]): source.read_text(encoding="utf-8") for source in SOURCES}
SECTIONS = ["opening", "Memory hierarchies", "Pipelining basics", "Deriving a double-buffered pipeline",
            "Pallas pipelining API: grid", "BlockSpecs", "Kernel", "Pallas call", "Elementwise kernel revisited",
            "Parameterizing a kernel", "Sharp edges: buffer revisiting", "Reductions and accumulation",
            "Analyzing the performance"]


def rows():
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines]


def test_every_section_of_the_tutorial_has_a_row():
    assert [row[0] for row in rows() if row[0] in SECTIONS] == SECTIONS


def test_every_section_that_is_named_exists():
    for row in rows():
        chapter = None
        for number, heading in re.findall(r'(?:(\d+) )?"([^"]+)"', row[-1]):
            chapter = int(number) if number else chapter
            if row[0] in ("tutorial", "the tutorial has"):
                continue
            titles = re.findall(r"^# ##? (?:\d+ · )?(.+)$", CHAPTERS[chapter], re.MULTILINE)
            assert heading in [*titles, *re.findall(r"^# # \d+ · (.+)$", CHAPTERS[chapter], re.MULTILINE)], heading


def test_every_exercise_that_is_named_exists():
    for number in re.findall(r"\bex\. ((?:\d+\.\d+(?:, )?)+)", PAGE):
        for each in number.rstrip(", ").split(", "):
            assert f"# ### Exercise {each} ·" in CHAPTERS[int(each.partition(".")[0])]
