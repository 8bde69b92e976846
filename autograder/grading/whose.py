"""whose: names of students, and what notebooks have as STUDENT: whose work it is, and whose numbers it predicts."""
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..sandbox.inside.personal import normalise

ANOTHER = "STUDENT is '{}' in {}, and that came in as '{}': predictions count with the numbers of that id"
BLANK = "STUDENT is blank in {}, and that came in as '{}': predictions count with the demo's numbers"
UNKNOWN = ("STUDENT has no value in {}, and that came in as '{}': predictions count with the numbers of that id, or "
           "with the demo's")
AS_IT_IS = ("Where that is your course id, nothing is to mend; where not, put that there, predict again, and hand it "
            "in again")
MEND = "Where STUDENT is not your course id, put that there, predict again, and hand it in again"

# A folder made of a download from Canvas or Moodle has a name and a number, and neither need be a course id.
DOWNLOADED = re.compile(r"(.+)_\d+")

ALIKE = (". NFC and NFD look alike: in NFC an accent and its letter are one sign, in NFD, as macOS has it, two. "
         "`LC_ALL=C ls -b` shows which is which")


def one_name(student: str) -> str:
    """A student's name as it is compared: macOS writes é as two signs, and others as one."""
    return unicodedata.normalize("NFC", student)


def told_apart(names: Sequence[str]) -> list[str]:
    """Names; those that look alike, since an accent is written in two ways, with the way.

    >>> told_apart(["Zo\u00eb", "Zoe\u0308", "b"]) == ["Zo\u00eb (NFC)", "Zoe\u0308 (NFD)", "b"]
    True
    """
    forms: dict[str, set[str]] = {}
    for name in names:
        forms.setdefault(one_name(name), set()).add(name)
    return [name if len(forms[one_name(name)]) < 2 else f"{name} ({'NFC' if name == one_name(name) else 'NFD'})"
            for name in names]


def identity(value: Any) -> str:
    """The id that a STUDENT stands for, as `personal` takes it: 123 is "123". Raises TypeError if it can be none."""
    if value is not None and not isinstance(value, (str, int, float, tuple, list)):
        raise TypeError(type(value).__name__)
    return str(value) if value and normalise(value) else ""


def told(ids: Mapping[str | None, list[str]], student: str, clean: Any) -> list[str]:
    """What there is to say of notebooks with another STUDENT ("": a blank one, None: not any), and which these are."""
    # Blanks around an id are no part of it, however many there are.
    found = [(UNKNOWN if other is None else BLANK).format(", ".join(names), student) if not other else
             ANOTHER.format(clean(other.strip(), 100), ", ".join(names), student) for other, names in ids.items()]
    return found + [AS_IT_IS if all(ids) and DOWNLOADED.fullmatch(student) else MEND] * bool(found)


def drawn_for(warnings: Iterable[str]) -> list[str]:
    """The ids that the notebooks gave as STUDENT, where these are not the student's own, out of such texts."""
    return re.findall(ANOTHER.format("(.{1,100}?)", ".*?", ".*?"), "\n".join(warnings))
