"""The contract of the pipeline (steps, visits, copies, waits) as plain sentences, to hold the code against.

Nothing here is shared with pallas_lite/pipeline.py, and it is written another way: every copy and wait states *when* it
happens, and sorting by that gives the program. Slow, and meant to be read beside the text.
"""
from itertools import groupby

PROLOGUE, FETCH, WAIT_IN, BODY, COPY_OUT, WAIT_OUT, EPILOGUE = range(7)  # the order within a step


def row_major(grid):
    """The position of each step: the last axis moves fastest.  [2, 2] -> (0, 0), (0, 1), (1, 0), (1, 1)"""
    positions = [()]
    for size in grid:
        positions = [(*p, i) for p in positions for i in range(size)]
    return positions


def visits(blocks):
    """The maximal runs of steps with one block, each as (block, first step, last step)."""
    found, t = [], 0
    for block, run in groupby(blocks):
        n = len(list(run))
        found.append((block, t, t + n - 1))
        t += n
    return found


def schedule(steps, operands):
    """(name, is_output, depth, blocks) an operand -> (verb, step, operand, block, slot, slots) in program order."""
    if steps == 0:
        return []
    program = []  # (moment, event)
    end = steps - 1

    def at(step, phase, order, verb, name, block, slot):
        program.append(((step, phase, order), (verb, step, name, block, slot, ())))

    for number, (name, is_output, depth, blocks) in enumerate(operands):
        known = visits(blocks)
        for v, (block, first, last) in enumerate(known):
            slot = v % depth
            if not is_output:
                # "start the fetch of step t + depth - 1's block if that begins a visit": so t = first - (depth - 1).
                t = first - (depth - 1)
                if t >= 0:
                    at(t, FETCH, (number,), "copy_in_start", name, block, slot)
                else:  # before the first step; the first steps' blocks first
                    at(0, PROLOGUE, (first, number), "copy_in_start", name, block, slot)
                at(first, WAIT_IN, (number,), "copy_in_wait", name, block, slot)
                continue
            at(last, COPY_OUT, (number,), "copy_out_start", name, block, slot)
            # "at the end of the first step of visit v wait for the copy-out of visit v - depth + 1", so this visit's is
            # waited for by visit v + depth - 1. "Depth 1: of its own, at its last step. The rest at the end."
            if depth == 1:
                at(last, WAIT_OUT, (number,), "copy_out_wait", name, block, slot)
            elif v + depth - 1 < len(known):
                at(known[v + depth - 1][1], WAIT_OUT, (number,), "copy_out_wait", name, block, slot)
            else:
                at(end, EPILOGUE, (number, v), "copy_out_wait", name, block, slot)

    for t in range(steps):
        slots = []
        for _, _, depth, blocks in operands:
            changes = sum(blocks[s] != blocks[s - 1] for s in range(1, t + 1))  # the visit that step t is in
            slots.append(changes % depth)
        program.append(((t, BODY, ()), ("run", t, "", None, -1, tuple(slots))))
    return [event for _, event in sorted(program, key=lambda entry: entry[0])]
