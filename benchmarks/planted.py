"""Planted answers: how many wrong ones the course has, and how many of them its checks do not refuse in fitting words.

`autograder selftest`, counted. Each wrong answer is tried on the notebook's check and on the hidden trials.
"""
from autograder.course.release import Course
from autograder.judge.predict import PREDICTIONS
from autograder.judge.selftest import planted, selftest, slips
from autograder.sandbox.inside.personal import personal


def main(report) -> None:
    problems = selftest(tuple(Course().checks), "autograder.mutants", say=print)
    wrong, right = (sum(map(len, found.values())) for found in planted("autograder.mutants"))
    predicted = sum(len(slips(asked(personal(number)))) for number, asked in PREDICTIONS.items())
    report.figure("wrong", f"{wrong:,}")
    report.figure("slips", f"{predicted:,}")
    report.figure("right", f"{right:,}")
    report.figure("problems", len(problems))
    print(*problems, sep="\n")
