"""Chapter 8: the target of its exercise is out of reach for most blocks, and in reach with two slots as with three.

And whoever does what the nudge says, gets there.
"""
import pytest

from autograder.checks import chapter7, chapter8
from autograder.checks.chapter8 import TARGET, product_timeline
from autograder.checks.tuning import what_helps


def test_the_target_takes_large_tiles_and_enough_slots():
    blocks = [(bm, bn, bk, depth) for bm in (256, 512, 1024) for bn in (256, 512, 1024) for bk in (512, 1024, 2048)
              for depth in (2, 3)]
    timelines = {choice: product_timeline(*choice) for choice in blocks}
    met = {choice for choice, t in timelines.items() if t.total <= TARGET * 1e-6 and not t.hazards}
    assert met == {(512, 512, 1024, 3), (512, 512, 2048, 3), (512, 1024, 1024, 3), (1024, 512, 1024, 3),
                   (512, 1024, 2048, 2), (1024, 512, 2048, 2)}


TUNERS = {8: (chapter8, ("bm", "bn", "bk"), lambda choice: product_timeline(*choice).total),
          7: (chapter7, ("height", "width"), lambda choice: chapter7.horner_timeline(*choice).total)}


@pytest.mark.parametrize("chapter, choice", [
    *((8, choice) for choice in [(512, 512, 512, 9), (1024, 512, 512, 3), (256, 256, 8192, 1)]),
    *((7, choice) for choice in [(512, 512, 2), (128, 256, 1)])])
def test_whoever_follows_the_nudge_gets_faster_at_each_try_until_the_target_is_met(chapter, choice):
    module, names, seconds = TUNERS[chapter]
    assert module.may_be_chosen(choice) and seconds(choice) > module.TARGET * 1e-6, "nothing to mend"
    for _ in range(12):
        says, better = what_helps(choice, names, seconds, module.may_be_chosen)
        assert says and module.may_be_chosen(better) and seconds(better) < seconds(choice)
        for i, name in enumerate(names):
            assert (f"a larger {name}" in says) is (better[i] > choice[i])
            assert (f"a smaller {name}" in says) is (better[i] < choice[i])
        assert ("one more slot" in says or "more slots" in says) is (better[-1] > choice[-1])
        assert ("one slot fewer" in says or "fewer slots" in says) is (better[-1] < choice[-1])
        choice = better
        if seconds(choice) <= module.TARGET * 1e-6:
            return
    raise AssertionError("twelve tries, and no end")


def test_nothing_is_said_where_nothing_helps():
    assert what_helps((8, 2), ("b",), lambda choice: 1.0, lambda choice: True) == ("", (8, 2))
    assert what_helps((8, 2), ("b",), lambda choice: float(choice[0]), lambda choice: choice == (8, 2))[0] == ""
