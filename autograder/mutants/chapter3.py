"""Planted answers of chapter 3, up to 3.6: wrong ones, each with its misconception and a word of the message it gets;
and right ones. The rest is in chapter3_general.py.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""

import numpy as np

from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait

# One slot

def final_wait_forgotten(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        if i > 0:
            copy_out_wait(Y[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])


def first_wait_unguarded(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        copy_out_wait(Y[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
    copy_out_wait(Y[0])


def waits_after_the_kernel(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        if i > 0:
            copy_out_wait(Y[0])
        copy_out_start(Y[0], B[i])
    copy_out_wait(Y[0])


def start_is_enough(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_in_wait(X[0])
        copy_out_wait(Y[0])


def still_blocking(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def one_slot_other_end(N, A, X, Y, B):
    """Right: fetches the next block as soon as the kernel has read the slot; no condition but the last block's."""
    copy_in_start(A[0], X[0])
    for i in range(N):
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        if i < N - 1:
            copy_in_start(A[i + 1], X[0])
        copy_out_wait(Y[0])


def slot_follows_the_step(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i])
        copy_in_wait(X[i])
        compute(X[i], Y[i])
        copy_out_start(Y[i], B[i])
        copy_out_wait(Y[i])


def never_ends(N, A, X, Y, B):
    while N:
        copy_in_start(A[0], X[0])
        copy_in_wait(X[0])


# Hoisting

def same_slot_for_the_next(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        copy_in_wait(X[0])
        if i + 1 < N:
            copy_in_start(A[i + 1], X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def same_slot_started_before_the_wait(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def first_block_started_twice(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    two_slots_still_blocking(N, A, X, Y, B)


def waits_twice(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        for _ in range(2):
            copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def all_starts_first(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
    for i in range(N):
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def fetches_past_the_end(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        copy_in_start(A[i + 1], X[(i + 1) % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def no_prologue(N, A, X, Y, B):
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def waits_for_the_next(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % 2])
            copy_in_wait(X[(i + 1) % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def two_slots_still_blocking(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def fetch_after_the_kernel(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % 2])
        copy_out_wait(Y[i % 2])


def kernel_reads_slot_zero(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        copy_in_wait(X[i % 2])
        compute(X[0], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def hoisted_unrolled_by_two(N, A, X, Y, B):
    """Right: no arithmetic on slots, but the two names swapped."""
    now, then = 0, 1
    copy_in_start(A[0], X[now])
    for i in range(N):
        if i < N - 1:
            copy_in_start(A[i + 1], X[then])
        copy_in_wait(X[now])
        compute(X[now], Y[now])
        copy_out_start(Y[now], B[i])
        copy_out_wait(Y[now])
        now, then = then, now


# Sinking

def start_early(N, A, X, i):
    if i + 1 < N:
        copy_in_start(A[i + 1], X[(i + 1) % 2])


def waits_for_the_copy_just_started(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def late_waits_only(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        copy_in_wait(X[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for slot in range(min(N, 2)):
        copy_out_wait(Y[slot])


def waits_in_the_loop_and_behind_it(N, A, X, Y, B):
    two_slots_still_blocking(N, A, X, Y, B)
    copy_out_wait(Y[1])


def first_iteration_waits(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[(i + 1) % 2])
    copy_out_wait(Y[1])


def no_epilogue(N, A, X, Y, B):
    if N:
        copy_in_start(A[0], X[0])
    for i in range(N):
        start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])


def all_waits_at_the_end(N, A, X, Y, B):
    if N:
        copy_in_start(A[0], X[0])
    for i in range(N):
        start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for i in range(N):
        copy_out_wait(Y[i % 2])


def sunk_before_the_kernel(N, A, X, Y, B):
    """Right: waits for a slot just before the kernel writes it."""
    for i in range(min(N, 1)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for slot in range(min(N, 2)):
        copy_out_wait(Y[slot])


# Both ends

def always_slot_one(N, A, X, Y, B):
    no_epilogue(N, A, X, Y, B)
    if N > 0:
        copy_out_wait(Y[1])


def last_slot_is_n(N, A, X, Y, B):
    no_epilogue(N, A, X, Y, B)
    if N > 0:
        copy_out_wait(Y[N % 2])


def zero_forgotten(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    copy_out_wait(Y[(N - 1) % 2])


def waits_for_both_slots(N, A, X, Y, B):
    no_epilogue(N, A, X, Y, B)
    for slot in range(2):
        copy_out_wait(Y[slot])


_RIGHT_NAMES = {"a": "read before wait", "b": "overwrite in flight", "c": "wrong slot", "d": "fine",
                "e": "never waited"}

WRONG = {
    "3.1": [
        ("the three of the example, whatever the times", lambda n, copy, kernel: 3 * n, "1 µs only"),
        ("the results are never copied out", lambda n, copy, kernel: n * (copy + kernel), "results"),
        ("copies run beside the kernel", lambda n, copy, kernel: 2 * copy + n * kernel, "block"),
        ("one block only", lambda n, copy, kernel: 2 * copy + kernel, "How many"),
        ("the slower of the two hides the other", lambda n, copy, kernel: n * max(copy, kernel), "side by side"),
    ],
    "3.2": [
        ("the last copy waits for itself", final_wait_forgotten, "epilogue"),
        ("there is always an older copy", first_wait_unguarded, "if"),
        ("step i uses slot i", slot_follows_the_step, "X[0] and Y[0]"),
        ("a loop that never ends", never_ends, "does not end"),
        ("a wait anywhere in the loop protects the slot", waits_after_the_kernel, "before the"),
        ("after a start the data are there", start_is_enough, "order"),
        ("splitting alone makes it faster", still_blocking, "slide"),
    ],
    "3.3": [
        ("a right verdict means right values", _RIGHT_NAMES | {"c": "fine"}, "step 1"),
        ("strange means wrong", _RIGHT_NAMES | {"d": "never waited"}, "Strange"),
        ("a late wait is no wait", _RIGHT_NAMES | {"a": "never waited"}, "before or behind"),
        ("every race is a read too early", _RIGHT_NAMES | {"b": "read before wait"}, "second step"),
        ("a name of one's own", _RIGHT_NAMES | {"e": "forgotten"}, "none of the five"),
    ],
    "3.4": [
        ("one slot is enough for two blocks", same_slot_for_the_next, "being read"),
        ("the next block takes the place of this one", same_slot_started_before_the_wait, "every copy in goes to X[0]"),
        ("as early as possible is before the loop", all_starts_first, "none of the 2 slots"),
        ("the prologue is a start more", first_block_started_twice, "A[0] is started twice"),
        ("a second wait does no harm", waits_twice, "has been waited for already"),
        ("there is always a next block", fetches_past_the_end, "should not happen"),
        ("the loop starts its own first copy", no_prologue, "very first block"),
        ("wait for the copy just started", waits_for_the_next, "before the compute"),
        ("two slots are faster by themselves", two_slots_still_blocking, "i + 1 before step i"),
        ("starting after the kernel is early enough", fetch_after_the_kernel, "before step i runs"),
        ("the kernel always finds its block in slot 0", kernel_reads_slot_zero, "aloud"),
    ],
    "3.5": [
        ("a wait belongs next to its start", waits_for_the_copy_just_started, "stand later"),
        ("late waits make early starts unnecessary", late_waits_only, "at wait X[1]"),
        ("the next block takes the place of this one", same_slot_started_before_the_wait, "every copy in goes to X[0]"),
        ("the first iteration has something to wait for", first_iteration_waits, "older"),
        ("the last copy waits for itself", no_epilogue, "epilogue"),
        ("the epilogue waits in any case", waits_in_the_loop_and_behind_it, "has been waited for already"),
        ("as late as possible is after the loop", all_waits_at_the_end, "before the kernel"),
    ],
    "3.6": [
        ("the last slot is always 1", always_slot_one, "leave from"),
        ("the last step is step N", last_slot_is_n, "leave from"),
        ("there is at least one block", zero_forgotten, "guard"),
        ("to be safe, wait for both slots", waits_for_both_slots, "under way"),
    ],
}


def blocking_time_as_an_array(n, copy, kernel):
    return np.array([n * (copy + kernel + copy)])


RIGHT = {
    "3.1": [("adds up block by block", lambda n, copy, kernel: sum(2 * copy + kernel for _ in range(n))),
            ("an array of one", blocking_time_as_an_array)],
    "3.2": [("fetches after the kernel instead of waiting later", one_slot_other_end)],
    "3.3": [("capitals and blanks", {letter.upper(): f" {name.upper()} " for letter, name in _RIGHT_NAMES.items()}),
            ("the functions' names", {f"loop_{letter}": name for letter, name in _RIGHT_NAMES.items()})],
    "3.4": [("swaps two names", hoisted_unrolled_by_two), ("sinks the waits already", sunk_before_the_kernel)],
    "3.5": [("waits just before the kernel writes", sunk_before_the_kernel)],
    "3.6": [("waits just before the kernel writes", sunk_before_the_kernel)],
}
