"""Chapter 6: the garbage comes out to the digit, the guess is asked for first, and the rule on aliasing holds."""
import contextlib
import io
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autograder import check, personal
from autograder.checks.chapter6 import in_place

SOURCE = Path(__file__).parents[2] / "solutions" / "unit2" / "06_sharp_edges.py"


def printed(first, last):
    """What the chapter prints from its start to the broken sum's diary, with this guess."""
    text = SOURCE.read_text(encoding="utf-8").partition("# ### Exercise 6.1")[0]
    text = text.replace("my_first, my_last = None, None", f"my_first, my_last = {first}, {last}")
    code = "\n".join(cell for cell in re.split(r"^# %%", text, flags=re.MULTILINE) if "[markdown]" not in cell[:20])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec("import matplotlib; matplotlib.use('agg')\n" + code, {})  # noqa: S102
    return out.getvalue()


def test_the_garbage_is_shown_after_the_guess_and_not_before():
    assert "72" not in printed(None, None)
    told = printed(65, 72)
    assert "[65. 65. 66. 66.]" in told and "[71. 71. 72. 72.]" in told and "right to the digit" in told
    assert "not quite" in printed(65, 71)


@given(st.permutations(range(7)), st.lists(st.integers(0, 6), min_size=7, max_size=7))
def test_the_verifier_and_the_rule_of_two_steps_agree(writes, reads):
    reads = [b for i, b in enumerate(reads) if i == 0 or b != reads[i - 1]]
    writes = writes[:len(reads)]
    _, race = in_place(reads, writes)
    near = any(reads[s] == writes[t] and t < s < t + 3 for s in range(len(reads)) for t in range(len(writes)))
    assert (race is not None) == near


def test_a_sum_that_is_not_started_is_told_so_and_never_the_prediction():
    p = personal("6.1", "s1")
    result = check("6.1", (p.g, p.g, p.g), student="s1")
    assert result.verdict == "wrong" and "too low" in result.message and not result.expected
