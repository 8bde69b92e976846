"""Planted answers of chapter 3, exercises 3.7 to 3.9: any depth, later waits, and any grid, kernel and slices.

Tables as in chapter3.py.
"""
import math
from collections import deque

import numpy as np

from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait

from .chapter3 import start_early

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


def prologue_starts_one_too_many(N, A, X, Y, B):
    depth = len(X)
    for i in range(min(depth, N)):
        copy_in_start(A[i], X[i])
    _rest(N, A, X, Y, B, depth)


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
        start_early(N, A, X, i)
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
        start_early(N, A, X, i)
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
        start_early(N, A, X, i)
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


def steps_are_blocks(grid, kernel, in_slices, out_slices):
    """The slip of hint 2: N left where the number of steps belongs."""
    def loop(N, A, X, Y, B):
        return general(steps=lambda grid: N)(grid, kernel, in_slices, out_slices)(N, A, X, Y, B)
    return loop


def last_slot_by_blocks(grid, kernel, in_slices, out_slices):
    def loop(N, A, X, Y, B):
        return general(last=lambda n: (N - 1) % 2)(grid, kernel, in_slices, out_slices)(N, A, X, Y, B)
    return loop


def guarded_by_blocks(grid, kernel, in_slices, out_slices):
    def loop(N, A, X, Y, B):
        return general(guarded=not N)(grid, kernel, in_slices, out_slices)(N, A, X, Y, B)
    return loop


def results_by_in_slices(grid, kernel, in_slices, out_slices):
    return general()(grid, kernel, in_slices, in_slices)


def loop_not_returned(grid, kernel, in_slices, out_slices):
    def loop(N, A, X, Y, B):
        pass


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


WRONG = {
    "3.7": [
        ("one block ahead is as good as many", only_two_deep, "depth − 1"),
        ("there are always enough blocks for the prologue", prologue_ignores_n, "blocks"),
        ("all slots can be filled before the first is used", fills_every_slot_at_once, "one block at a time"),
        ("there are always two slots", slots_modulo_two, "one slot"),
        ("the prologue fills all slots, and the loop stays as it was", prologue_starts_one_too_many, "started twice"),
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
        ("axes add up", general(steps=sum), "multiplied"),
        ("each block is a step", steps_are_blocks, "N counts blocks, not steps"),
        ("the last block is that of the last step", last_slot_by_blocks, "leave from"),
        ("where there is a block, there is a step", guarded_by_blocks, "N counts blocks, not steps"),
        ("results go where their blocks came from", results_by_in_slices, "copy out"),
        ("blocks count from 1", general(lambda into, i: into(i) + 1), "just as it is"),
        ("a result is sent a step later", general(out=lambda out, i: out(i - 1)), "just as it is"),
        ("def is enough", loop_not_returned, "return loop"),
        ("every grid has a step", general(guarded=False), "guard both ends"),
        ("there is always a next step", fetches_past_the_grid, "should not happen"),
        ("the last step is step n", general(last=lambda n: n % 2), "leave from"),
        ("the order of the loop is another matter", general_and_blocking, "double_buffer"),
    ],
}

RIGHT = {
    "3.7": [("queues of slots", queues)],
    "3.8": [("queues of slots", queues)],
    "3.9": [("lists of blocks", by_generators)],
}
