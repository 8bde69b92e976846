"""Planted answers of chapter 3: wrong ones, each with its misconception and a word that its message must contain;
and right ones.

`WRONG[number]`: (misconception, answer, word). `RIGHT[number]`: (style, answer), other than the one in solutions/.
"""
import math
from collections import deque

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

def _start_early(N, A, X, i):
    if i + 1 < N:
        copy_in_start(A[i + 1], X[(i + 1) % 2])


def waits_for_the_copy_just_started(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def first_iteration_waits(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[(i + 1) % 2])
    copy_out_wait(Y[1])


def no_epilogue(N, A, X, Y, B):
    if N:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])


def all_waits_at_the_end(N, A, X, Y, B):
    if N:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
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
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for slot in range(min(N, 2)):
        copy_out_wait(Y[slot])


# Both ends

def always_slot_one(N, A, X, Y, B):
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    if N > 0:
        copy_out_wait(Y[1])


def last_slot_is_n(N, A, X, Y, B):
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    if N > 0:
        copy_out_wait(Y[N % 2])


def zero_forgotten(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    copy_out_wait(Y[(N - 1) % 2])


def waits_for_both_slots(N, A, X, Y, B):
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    for slot in range(2):
        copy_out_wait(Y[slot])


# Depth k

def only_two_deep(N, A, X, Y, B):
    depth = len(X)
    if N:
        copy_in_start(A[0], X[0])
    for i in range(N):
        if depth > 1 and i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        copy_out_wait(Y[i % depth])
        if depth == 1 and i + 1 < N:
            copy_in_start(A[i + 1], X[0])


def prologue_ignores_n(N, A, X, Y, B):
    depth = len(X)
    for i in range(depth - 1):
        copy_in_start(A[i], X[i])
    _rest(N, A, X, Y, B, depth)


def _rest(N, A, X, Y, B, depth):
    for i in range(N):
        if i + depth - 1 < N:
            copy_in_start(A[i + depth - 1], X[(i + depth - 1) % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        if i >= depth - 1:
            copy_out_wait(Y[(i + 1) % depth])
    for i in range(max(0, N - depth + 1), N):
        copy_out_wait(Y[i % depth])


def fills_every_slot_at_once(N, A, X, Y, B):
    depth = len(X)
    for i in range(min(depth, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        if i + depth < N:
            copy_in_start(A[i + depth], X[i % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        copy_out_wait(Y[i % depth])


def slots_modulo_two(N, A, X, Y, B):
    for i in range(min(1, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[(i + 1) % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    if N:
        copy_out_wait(Y[(N - 1) % 2])


def epilogue_waits_for_one(N, A, X, Y, B):
    depth = len(X)
    for i in range(min(depth - 1, N)):
        copy_in_start(A[i], X[i])
    for i in range(N):
        if i + depth - 1 < N:
            copy_in_start(A[i + depth - 1], X[(i + depth - 1) % depth])
        copy_in_wait(X[i % depth])
        compute(X[i % depth], Y[i % depth])
        copy_out_start(Y[i % depth], B[i])
        if i >= depth - 1:
            copy_out_wait(Y[(i + 1) % depth])
    if N > 0 and depth > 1:
        copy_out_wait(Y[(N - 1) % depth])


def queues(N, A, X, Y, B):
    """Right: queues of free slots and of copies out; refills a slot as soon as the kernel has read it."""
    depth, arriving, leaving, nxt = len(X), deque(), deque(), 0
    free = deque(range(len(X)))
    while nxt < min(depth, N):
        arriving.append(free.popleft())
        copy_in_start(A[nxt], X[arriving[-1]])
        nxt += 1
    for i in range(N):
        x, y = arriving.popleft(), i % len(Y)
        copy_in_wait(X[x])
        if len(leaving) == len(Y):
            copy_out_wait(Y[leaving.popleft()])
        compute(X[x], Y[y])
        copy_out_start(Y[y], B[i])
        leaving.append(y)
        if nxt < N:
            copy_in_start(A[nxt], X[x])
            arriving.append(x)
            nxt += 1
    while leaving:
        copy_out_wait(Y[leaving.popleft()])


# Beat it

def as_before(N, A, X, Y, B):
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        if i > 0:
            copy_out_wait(Y[(i + 1) % 2])
    if N > 0:
        copy_out_wait(Y[(N - 1) % 2])


def one_wait_too_late(N, A, X, Y, B):
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for i in range(max(0, N - 2), N):
        copy_out_wait(Y[i % 2])


def epilogue_of_before(N, A, X, Y, B):
    if N > 0:
        copy_in_start(A[0], X[0])
    for i in range(N):
        _start_early(N, A, X, i)
        copy_in_wait(X[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    if N > 0:
        copy_out_wait(Y[(N - 1) % 2])


def not_even_hoisted(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        copy_in_wait(X[i % 2])
        if i > 1:
            copy_out_wait(Y[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
    for i in range(max(0, N - 2), N):
        copy_out_wait(Y[i % 2])


# Grid, kernel and slices

def general(into=lambda into, i: into(i), out=lambda out, i: out(i), slot=lambda i, block: i % 2, own=True,
            steps=math.prod, guarded=True, last=lambda n: (n - 1) % 2):
    """A double_buffered_pipeline with one thing changed."""
    def double_buffered_pipeline(grid, kernel, in_slices, out_slices):
        def loop(N, A, X, Y, B):
            def fetch(i):
                block = into(in_slices, i)
                copy_in_start(A[block], X[slot(i, block)])
            n = steps(grid)
            if n or not guarded:
                fetch(0)
            for i in range(n):
                if i + 1 < n:
                    fetch(i + 1)
                copy_in_wait(X[i % 2])
                compute(X[i % 2], Y[i % 2], *[kernel] * own)
                copy_out_start(Y[i % 2], B[out(out_slices, i)])
                if i > 0:
                    copy_out_wait(Y[(i + 1) % 2])
            if n or not guarded:
                copy_out_wait(Y[last(n)])
        return loop
    return double_buffered_pipeline


def kernel_on_places(grid, kernel, in_slices, out_slices):
    def loop(N, A, X, Y, B):
        for i in range(math.prod(grid)):
            copy_in_start(A[in_slices(i)], X[0])
            copy_in_wait(X[0])
            Y[0] = kernel(X[0])
            copy_out_start(Y[0], B[out_slices(i)])
            copy_out_wait(Y[0])
    return loop


def general_and_blocking(grid, kernel, in_slices, out_slices):
    def loop(N, A, X, Y, B):
        for i in range(math.prod(grid)):
            copy_in_start(A[in_slices(i)], X[i % 2])
            copy_in_wait(X[i % 2])
            compute(X[i % 2], Y[i % 2], kernel)
            copy_out_start(Y[i % 2], B[out_slices(i)])
            copy_out_wait(Y[i % 2])
    return loop


def fetches_past_the_grid(grid, kernel, in_slices, out_slices):
    def loop(N, A, X, Y, B):
        copy_in_start(A[in_slices(0)], X[0])
        for i in range(N):
            copy_in_start(A[in_slices(i + 1)], X[(i + 1) % 2])
            copy_in_wait(X[i % 2])
            compute(X[i % 2], Y[i % 2], kernel)
            copy_out_start(Y[i % 2], B[out_slices(i)])
            copy_out_wait(Y[i % 2])
    return loop


def by_generators(grid, kernel, in_slices, out_slices):
    """Right: lists of blocks, made beforehand; late waits; a kernel of its own around the kernel."""
    steps = range(int(np.prod(grid)))
    sources, targets = list(map(in_slices, steps)), list(map(out_slices, steps))

    def loop(N, A, X, Y, B):
        for slot, block in enumerate(sources[:2]):
            copy_in_start(A[block], X[slot])
        for i, target in enumerate(targets):
            slot = i % 2
            copy_in_wait(X[slot])
            if i > 1:
                copy_out_wait(Y[slot])
            compute(X[slot], Y[slot], lambda x: kernel(x))
            copy_out_start(Y[slot], B[target])
            if i + 2 < len(sources):
                copy_in_start(A[sources[i + 2]], X[slot])
        for i in steps[-2:]:
            copy_out_wait(Y[i % 2])
    return loop


_RIGHT_NAMES = {"a": "read before wait", "b": "overwrite in flight", "c": "wrong slot", "d": "fine", "e": "never "
                                                                                                          "waited"}

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
        ("there is always a next block", fetches_past_the_end, "should not happen"),
        ("the loop starts its own first copy", no_prologue, "very first block"),
        ("wait for the copy just started", waits_for_the_next, "before the compute"),
        ("two slots are faster by themselves", two_slots_still_blocking, "i + 1 before"),
        ("starting after the kernel is early enough", fetch_after_the_kernel, "before step i runs"),
        ("the kernel always finds its block in slot 0", kernel_reads_slot_zero, "aloud"),
    ],
    "3.5": [
        ("a wait belongs next to its start", waits_for_the_copy_just_started, "one iteration later"),
        ("the first iteration has something to wait for", first_iteration_waits, "older"),
        ("the last copy waits for itself", no_epilogue, "epilogue"),
        ("as late as possible is after the loop", all_waits_at_the_end, "before the kernel"),
    ],
    "3.6": [
        ("the last slot is always 1", always_slot_one, "leave from"),
        ("the last step is step N", last_slot_is_n, "leave from"),
        ("there is at least one block", zero_forgotten, "guard"),
        ("to be safe, wait for both slots", waits_for_both_slots, "under way"),
    ],
    "3.7": [
        ("one block ahead is as good as many", only_two_deep, "depth − 1"),
        ("there are always enough blocks for the prologue", prologue_ignores_n, "blocks"),
        ("all slots can be filled before the first is used", fills_every_slot_at_once, "one block at a time"),
        ("there are always two slots", slots_modulo_two, "one slot"),
        ("one copy is left at the end", epilogue_waits_for_one, "epilogue"),
    ],
    "3.8": [
        ("the double buffer is as late as it gets", as_before, "no sooner"),
        ("behind the kernel is still in time", one_wait_too_late, "before the kernel"),
        ("the epilogue stays as it was", epilogue_of_before, "epilogue"),
        ("late waits make early starts unnecessary", not_even_hoisted, "slower than pallas_call"),
    ],
    "3.9": [
        ("blocks are steps", general(lambda into, i: i, lambda out, i: i), "wrong block"),
        ("the first block is block 0", general(lambda into, i: into(i) if i else 0), "wrong block"),
        ("results go where their step says", general(out=lambda out, i: i), "wrong block"),
        ("a slot belongs to a block", general(slot=lambda i, block: block % 2), "slot"),
        ("the prefetch takes the block of this step", general(lambda into, i: into(max(i - 1, 0))), "wrong block"),
        ("compute knows the kernel", general(own=False), "Hand it yours"),
        ("a place is a value", kernel_on_places, "compute(X[i], Y[j])"),
        ("a grid has as many steps as its first axis", general(steps=lambda grid: grid[0]), "multiplied"),
        ("every grid has a step", general(guarded=False), "guard both ends"),
        ("there is always a next step", fetches_past_the_grid, "should not happen"),
        ("the last step is step n", general(last=lambda n: n % 2), "leave from"),
        ("the order of the loop is another matter", general_and_blocking, "double_buffer"),
    ],
}


def blocking_time_as_a_sum(n, copy, kernel):
    return sum(2 * copy + kernel for _ in range(n))


def blocking_time_as_an_array(n, copy, kernel):
    return np.array([n * (copy + kernel + copy)])


RIGHT = {
    "3.1": [("adds up block by block", blocking_time_as_a_sum), ("an array of one", blocking_time_as_an_array)],
    "3.2": [("fetches after the kernel instead of waiting later", one_slot_other_end)],
    "3.3": [("capitals and blanks", {letter.upper(): f" {name.upper()} " for letter, name in _RIGHT_NAMES.items()}),
            ("the functions' names", {f"loop_{letter}": name for letter, name in _RIGHT_NAMES.items()})],
    "3.4": [("swaps two names", hoisted_unrolled_by_two), ("sinks the waits already", sunk_before_the_kernel)],
    "3.5": [("waits just before the kernel writes", sunk_before_the_kernel)],
    "3.6": [("waits just before the kernel writes", sunk_before_the_kernel)],
    "3.7": [("queues of slots", queues)],
    "3.8": [("queues of slots", queues)],
    "3.9": [("lists of blocks", by_generators)],
}
