"""Pairs that share more than the task explains: found under every disguise, and nobody else."""
import random

import nbformat
import pytest

from autograder.__main__ import main
from autograder.pages.alike import NONE, page
from autograder.pages.similar import ALL, limit, pairs, tokens

from . import little_course as little

EXERCISES = ("90.1", "90.3", "90.4")
HOME = dict.fromkeys(EXERCISES, little.NAME)


def program(seed, lines=30):
    """Somebody's own way to write something: no two seeds agree in more than a line or so."""
    rng = random.Random(seed)
    made = ["def answer(x):"]
    for i in range(lines):
        a, b = (rng.choice(["x", "y", f"value{rng.randrange(i + 1)}"]) for _ in "ab")
        what = rng.choice([f"{a} + {b}", f"max({a}, {b})", f"{a}[{b}]", f"({a} - {b}) * {rng.randrange(9)}",
                           f"{a} if {a} < {b} else {b}", f"[k for k in {a} if k != {b}]", f"{a}.append({b})"])
        made.append(f"    value{i} = {what}")
    return "\n".join([*made, "    return y"])


def disguised(text):
    """Other names, comments, quotes, layout; and the first two statements exchanged."""
    lines = text.replace("value", "my_").replace("answer(x)", "answer( x )").split("\n")
    lines[1:3] = lines[2:0:-1]
    return "\n\n".join(f"{line}  # mine" for line in [lines[0], '    """Mine."""', *lines[1:]])


@pytest.fixture
def answers():
    found = {n: {f"s{i}": program(f"{n} {i}") for i in range(12)} for n in EXERCISES}
    for texts in found.values():
        texts["zoe"] = disguised(texts["s3"])
    return found


def test_names_comments_layout_and_docstrings_do_not_count():
    one = "def f(count):\n    return [pl.cdiv(count, 128), 'a']"
    other = "def g( n ):  # mine\n    '''Mine.'''\n    return [pl.cdiv(n,\n        256), \"b\"]\n"
    assert [t for t, _ in tokens(one, frozenset({"pl"}))] == [t for t, _ in tokens(other, frozenset({"pl"}))]
    assert [t for t, _ in tokens("pl.cdiv", frozenset({"pl"}))] == ["pl", ".", "cdiv"]
    assert tokens("def broken(:\n  '''")[:2] == [("def", 1), ("_", 1)]  # as far as it goes


def test_the_copy_is_found_and_nobody_else(answers):
    found = pairs(answers, {}, HOME)
    assert [(p.one, p.other) for p in found] == [("s3", "zoe")]
    assert found[0].share > 0.85 > found[0].limit and set(found[0].exercises) == set(EXERCISES)
    assert pairs(answers, {}, HOME) == found


def test_what_the_task_explains_is_no_reason(answers):
    known = {n: [answers[n]["s3"]] for n in EXERCISES}  # as if it were our solution
    assert pairs(answers, known, HOME) == []
    class_of_40 = {n: {f"t{i}": answers[n]["s3"] for i in range(40)} for n in EXERCISES}  # from a book, say
    assert pairs(class_of_40, {}, HOME) == []
    short = {"90.2": dict.fromkeys(("s1", "s2"), "time = 3 * alpha + 4 * beta - 1")}
    assert pairs(short, {}, {"90.2": little.NAME}) == []


def test_the_less_there_is_the_more_must_agree():
    assert limit(100) > 1 > limit(300) > limit(3000) > 0.5


def test_one_copied_notebook_among_several_is_found(answers):
    home = {n: f"notebook {n}" for n in EXERCISES}
    for n in EXERCISES:
        if n != "90.3":
            answers[n]["zoe"] = program(f"{n} zoe")
    answers["90.3"] = {s: program(f"long {s}", 120) for s in answers["90.3"]}
    answers["90.3"]["zoe"] = disguised(answers["90.3"]["s3"])
    found = pairs(answers, {}, home)
    assert [(p.one, p.other, list(p.exercises)[0]) for p in found] == [("s3", "zoe", "90.3")]
    assert found[0].where in ("notebook 90.3", ALL)


def test_the_page_shows_both_sides_and_escapes_them(answers):
    evil = "\n    z = '<script>alert(1)</script>'"
    for texts in answers.values():
        texts["s3"] += evil
    text = page(pairs(answers, {}, HOME), answers, {}, frozenset())
    assert "<script" not in text and "&lt;script&gt;" in text and "s3 and zoe" in text
    assert text.count('class="both"') > 100
    assert "cheat" not in text.lower() and "http:" not in text and "https:" not in text
    assert NONE in page([], answers, {}, frozenset())


def test_the_command(answers, tmp_path, capsys):
    release = tmp_path / "release" / little.UNIT
    release.mkdir(parents=True)
    nbformat.write(little.notebook(), release / f"{little.NAME}.ipynb")
    for s in answers["90.1"]:
        (tmp_path / "in" / s).mkdir(parents=True)
        given = {n: answers[n][s] for n in EXERCISES}
        nbformat.write(little.notebook(given), tmp_path / "in" / s / f"{little.NAME}.ipynb")
    given = ["similar", str(tmp_path / "in"), "--out", str(tmp_path / "similar.html"), "--release",
             str(release.parent), "--checks", "tests.autograder.little_course"]
    assert main(given) == 0
    told = capsys.readouterr()
    assert "s3 and zoe" in told.out and "no solutions to these exercises" in told.err
    solution = tmp_path / "repository" / "solutions" / little.UNIT / "90_little.py"
    solution.parent.mkdir(parents=True)
    solution.write_text("\n\n".join(f'# %% exercise="{n}"\n{answers[n]["s3"]}' for n in EXERCISES), encoding="utf-8")
    assert main([*given, "--root", str(tmp_path / "repository")]) == 0
    told = capsys.readouterr()
    assert "No two submissions" in told.out and "no solutions" not in told.err
    for name in "ann", "bob":
        (tmp_path / "none" / name).mkdir(parents=True)
        nbformat.write(little.notebook(), tmp_path / "none" / name / f"{little.NAME}.ipynb")
    assert main(["similar", str(tmp_path / "none"), *given[2:]]) == 0
    told = capsys.readouterr()
    assert "nothing to compare: these submissions have no answers" in told.err and "no solutions" not in told.err
    assert main(given) == 0
    once = (tmp_path / "similar.html").read_text(encoding="utf-8")
    (tmp_path / "in" / "cut" / f"{little.NAME}.ipynb").parent.mkdir()
    (tmp_path / "in" / "cut" / f"{little.NAME}.ipynb").write_text('{"cells": [')
    assert main(given) == 2 and "not compared: cut" in capsys.readouterr().err
    assert (tmp_path / "similar.html").read_text(encoding="utf-8") == once
    without = [*given[:2], *given[4:]]
    assert main([*without, "--results", str(tmp_path / "trial")]) == 2
    assert (tmp_path / "trial" / "similar.html").read_text(encoding="utf-8") == once
