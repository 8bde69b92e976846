"""Hand-written pipelines that several tests use: right ones, and the classic broken ones."""
from pallas_lite import compute, copy_in_start, copy_in_wait, copy_out_start, copy_out_wait


def blocking(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[0])
        copy_in_wait(X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def rolled(N, A, X, Y, B):
    if N == 0:
        return
    copy_in_start(A[0], X[0])
    for i in range(N):
        cur, nxt = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[nxt])
        copy_in_wait(X[cur])
        compute(X[cur], Y[cur])
        copy_out_start(Y[cur], B[i])
        if i > 0:
            copy_out_wait(Y[nxt])
    copy_out_wait(Y[(N - 1) % 2])


def waits_on_slot_one(N, A, X, Y, B):
    """The tutorial's first rolled loop: its last line is right for even N only."""
    copy_in_start(A[0], X[0])
    for i in range(N):
        cur, nxt = i % 2, (i + 1) % 2
        if i + 1 < N:
            copy_in_start(A[i + 1], X[nxt])
        copy_in_wait(X[cur])
        compute(X[cur], Y[cur])
        copy_out_start(Y[cur], B[i])
        if i > 0:
            copy_out_wait(Y[nxt])
    copy_out_wait(Y[1])


def no_wait_in(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])
        copy_out_wait(Y[i % 2])


def no_wait_out(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        copy_in_wait(X[i % 2])
        compute(X[i % 2], Y[i % 2])
        copy_out_start(Y[i % 2], B[i])


def one_slot(N, A, X, Y, B):
    copy_in_start(A[0], X[0])
    for i in range(N):
        copy_in_wait(X[0])
        if i + 1 < N:
            copy_in_start(A[i + 1], X[0])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])


def wrong_slot(N, A, X, Y, B):
    for i in range(N):
        copy_in_start(A[i], X[i % 2])
        copy_in_wait(X[i % 2])
        compute(X[0], Y[0])
        copy_out_start(Y[0], B[i])
        copy_out_wait(Y[0])
