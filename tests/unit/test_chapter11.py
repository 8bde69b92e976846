"""Chapter 11's targets can be met, by blocks that one has to look for; its model of the kernel is the notebook's."""
import re
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from autograder.checks.attention import cost
from autograder.checks.chapter11 import ring
from autograder.judge.predict import collisions
from autograder.sandbox.inside.draws.chapter11 import TASKS, link

SOURCE = Path(__file__).parents[2] / "solutions" / "unit4" / "11_attention.py"
CHOICES = [(bq, bk, depth) for bq in (128, 256, 512) for bk in (128, 256, 512) for depth in (2, 3, 4)]


@pytest.mark.parametrize("n, d, kib, target", [t for t in TASKS if t[0] <= 4096])
def test_a_target_is_met_by_few_of_the_blocks_that_fit_and_not_with_two_slots(n, d, kib, target):
    times = {c: cost(n, d, *c) for c in CHOICES}
    fit = {c: time for c, (need, time) in times.items() if need <= kib}
    good = [c for c, time in fit.items() if time <= target]
    assert 1 <= len(good) <= 3 and len(fit) > len(good)
    assert min(fit.values()) >= 0.9 * target
    assert all(depth > 2 for *_, depth in good)


def test_the_check_models_the_kernel_that_the_page_shows():
    page = SOURCE.read_text(encoding="utf-8")
    check = (SOURCE.parents[2] / "autograder" / "checks" / "attention.py").read_text(encoding="utf-8")

    def sums(text):
        body = text[text.index("attention_kernel(q_ref"):]
        line = r"^    (?:scores|new|weights, shrink|values|m_ref|l_ref|acc_ref).*=.*$"
        return re.findall(line, body, re.MULTILINE)[:7]
    assert len(sums(page)) == 7 and sums(page) == sums(check)


def test_the_least_number_of_queries_is_the_same_in_fractions_and_in_floats():
    class Draws:
        def choice(self, options):
            offered.append(options)
            return options[0]
    offered = []
    names = list(link(Draws()))
    for drawn in product(*offered):
        p = SimpleNamespace(**dict(zip(names, drawn, strict=True)))
        size = 4 * p.keys * p.d
        hop = Fraction(p.alpha_us, 10**6) + Fraction(size, p.gb_per_s * 10**9)
        exact = hop * p.tflops * 10**12 / size
        asked = ring(p)
        assert exact.denominator > 1 and asked[1].value == exact // 1 + 1 and not collisions(asked), p
