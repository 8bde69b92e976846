"""pipeline: specs -> copies and kernel runs, in order. Written once; an engine decides what a verb does.

An engine offers `when(condition, verb, *arguments)`, `loop(steps, body)`, the questions `begins`, `ends`, `visit` and
`visits`, and the five verbs. engines/record.py writes the verbs down; mosaic_tpu.py and mosaic_gpu.py in lowering/ make
instructions of them. Next: engines/record.py.

A *visit* is a run of consecutive steps with the same block, so an operand is copied once a visit, and lives in
slot `visit % depth`. This is the loop that chapter 3 derives.
"""


def pipeline(engine, steps: int, operands) -> None:
    """Run `steps` steps of a kernel: every copy as early, and every wait as late, as the operand's slots allow."""
    inputs = [x for x in operands if not x.is_output]
    outputs = [x for x in operands if x.is_output]

    def fetch(x, t):
        engine.when(engine.begins(x, t), engine.copy_in_start, x, t)

    # Prologue: fill all slots but one, the first step's blocks first.
    for t in range(max([x.depth for x in inputs], default=1) - 1):
        for x in inputs:
            if t < x.depth - 1:
                fetch(x, t)

    def step(t):
        # Start early: this slot was last used by a visit that ended before this step.
        for x in inputs:
            fetch(x, t + x.depth - 1)
        # Wait late: this copy overlapped the steps before.
        for x in inputs:
            engine.when(engine.begins(x, t), engine.copy_in_wait, x, engine.visit(x, t))
        engine.run(t)
        for y in outputs:
            engine.when(engine.ends(y, t), engine.copy_out_start, y, t)
        # Wait for the oldest copy-out still in flight, so that its slot is free when the next visit begins.
        for y in outputs:
            oldest = engine.visit(y, t) - (y.depth - 1)
            now = engine.ends(y, t) if y.depth == 1 else engine.begins(y, t)
            engine.when(now & (oldest >= 0), engine.copy_out_wait, y, oldest)

    engine.loop(steps, step)

    # Epilogue: the copies out that no later step waited for.
    for y in outputs:
        visits = engine.visits(y)
        for visit in range(max(0, visits - (y.depth - 1)), visits):
            engine.copy_out_wait(y, visit)
