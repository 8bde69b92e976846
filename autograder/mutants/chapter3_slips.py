"""More planted answers of chapter 3, with what chapter3.py has: wrong slots and blocks, and kernels of one's own.

`WRONG[number]`: (misconception, answer, word).
"""
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait

from .chapter3 import start_early


def one_slot_with(kernel):
    def one_slot(N, A, X, Y, B):
        for i in range(N):
            copy_in_start(A[i], X[0])
            copy_in_wait(X[0])
            if i > 0:
                copy_out_wait(Y[0])
            compute(X[0], Y[0], kernel)
            copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])
    return one_slot


def buffer_with(kernel=None, *, wait=0, sent=0, early=False, late=True, steps=lambda n: n, block=lambda i: i):
    """Two slots each, with a slip: `wait`, `sent`: by how many slots the wait for X and the copy out are off; `early`:
    the copy out starts before the kernel runs; `late`: waits are late; `steps`: how many steps the loop makes;
    `block`: where a result goes."""
    def double_buffer(N, A, X, Y, B):
        if N:
            copy_in_start(A[0], X[0])
        for i in range(steps(N)):
            start_early(N, A, X, i)
            copy_in_wait(X[(i + wait) % 2])
            if early:
                copy_out_start(Y[i % 2], B[i])
            compute(X[i % 2], Y[i % 2], kernel)
            if not early:
                copy_out_start(Y[(i + sent) % 2], B[block(i)])
            if i > 0 and late:
                copy_out_wait(Y[(i + 1) % 2])
            if not late:
                copy_out_wait(Y[i % 2])
        if N and late:
            copy_out_wait(Y[(N - 1) % 2])
    return double_buffer


def next_block_into_this_slot(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        if i + 1 < N:
            copy_in_start(A[i + 1], X[i % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def copy_out_before_the_kernel(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        if i > 0:
            copy_out_wait(Y[0])
        copy_out_start(Y[0], B[i])
        compute(X[0], Y[0])
    copy_out_wait(Y[0])


def waits_at_the_top(N, A, X, Y, B):
    for i in range(N):
        if i > 0:
            copy_out_wait(Y[0])
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
    copy_out_wait(Y[0])


WRONG = {
    "3.1": [
        ("a time is a whole number", lambda n, copy, kernel: int(n * (2 * copy + kernel)), "do not round"),
        ("a whole number is near enough", lambda n, copy, kernel: round(n * (2 * copy + kernel)), "do not round"),
    ],
    "3.2": [
        ("the kernel is mine to choose", one_slot_with(lambda x: x + 2), "runs another kernel"),
        ("a copy out may start before its step", copy_out_before_the_kernel, "starts after the step that writes"),
        ("a wait at the top of the loop is late", waits_at_the_top, "between steps 0 and 1, at wait Y[0]"),
    ],
    "3.4": [
        ("a copy is a kernel", buffer_with(lambda x: x, late=False), "runs another kernel"),
        ("the next block takes this one's slot", next_block_into_this_slot, "first wrong step: step 0, slot X[0]"),
        ("a result goes to the block before", buffer_with(late=False, block=lambda i: i - 1), "after step 0: B[-1]"),
    ],
    "3.5": [("the kernel gives zeros", buffer_with(lambda x: x * 0), "runs another kernel")],
    "3.6": [
        ("the kernel gives zeros", buffer_with(lambda x: x * 0), "runs another kernel"),
        ("a copy out may start before its step", buffer_with(early=True), "starts after the step that writes"),
        ("the result lies in the other slot", buffer_with(sent=1), "wrote Y[0], and this copy out sends Y[1]"),
        ("the block comes to the other slot", buffer_with(wait=1), "A[0] is on its way to X[0]"),
        ("blocks come in pairs", buffer_with(steps=lambda n: n - n % 2), "No step ran, and there is 1 block"),
    ],
    "3.8": [("the kernel turns the sign", buffer_with(lambda x: -x), "runs another kernel")],
}

RIGHT = {"3.2": [("the given kernel, handed over", one_slot_with(lambda x: x + 1))]}
