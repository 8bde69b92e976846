"""What is said of a loop of chapter 3: the first wrong thing, and nothing that does not hold for this loop."""
from autograder.exercise import load
from autograder.judge.checking import check
from autograder.mutants.chapter3 import always_slot_one, same_slot_started_before_the_wait, two_slots_still_blocking
from autograder.mutants.chapter3_general import results_by_in_slices

load("autograder.checks")


def test_a_result_that_goes_astray_is_told_of_the_step_that_sends_it_not_of_the_next_one_that_reads():
    said = str(check("3.9", results_by_in_slices))
    assert "first wrong step: step 0, slot Y[0]" in said and "The result of step i belongs to B[out_slices(i)]" in said


def test_only_the_waits_that_an_exercise_asks_to_win_back_are_named():
    hoist, sink = (str(check(number, two_slots_still_blocking)) for number in ("3.4", "3.5"))
    assert "It stands still between steps 0 and 1, at wait X[1]." in hoist  # a wait for Y, which may stay, is first
    assert "it first stands still between steps 0 and 1, at wait Y[0]." in sink


def test_depth_one_is_spoken_of_only_where_there_is_one_slot():
    assert "There are 2 slots" in (said := str(check("3.4", same_slot_started_before_the_wait)))
    assert "depth = 1" not in said


def test_the_picture_of_a_loop_that_hangs_says_so_as_pl_show_does():
    assert "hangs at 2 µs modelled; drawn as if it went on" in check("3.6", always_slot_one).picture()
