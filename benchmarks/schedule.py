"""Schedule, verdict and timeline of long pipelines, against a bare Python loop that appends as many tuples."""
import gc
import resource
import time

import jax

import pallas_lite as pl

from . import short


def call(steps: int):
    """A three-operand add over `steps` blocks, each fetched, computed and copied out."""
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((8 * steps, 128), "float32")

    def add(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    return pl.pallas_call(add, shape, grid=steps, in_specs=[spec, spec], out_specs=spec), shape


def seconds(f) -> tuple[float, object]:
    gc.collect()
    start = time.perf_counter()
    result = f()
    return time.perf_counter() - start, result


def bare(count: int) -> list:
    """What any recorder must at least do."""
    events = []
    for i in range(count):
        events.append(("copy_in_start", i, "x", (i, 0), i % 2))
    return events


def main(report) -> None:
    """Best of 3, in ms; `specs` is index maps and the traced kernel too."""
    row = report.table("times", "steps", "events", "bare loop", "specs", "schedule", "verdict", "timeline", "ratio")
    call(10)[0].trace(*[call(10)[1]] * 2).schedule  # noqa: B018  JAX's own first-time work is not the subject
    for steps in (1_000, 10_000, 100_000):
        best = [float("inf")] * 5
        for _ in range(3):
            f, shape = call(steps)
            resolve, traced = seconds(lambda f=f, shape=shape: (t := f.trace(shape, shape), t.body)[0])
            record, schedule = seconds(lambda traced=traced: traced.schedule)
            check, hazards = seconds(lambda schedule=schedule: pl.verify(schedule))
            play, timeline = seconds(lambda schedule=schedule: pl.timeline(schedule, pl.hardware.TPU_V5E))
            assert hazards == [] and timeline.total > 0 and len(schedule) == 7 * steps
            count = len(schedule)
            loop, _ = seconds(lambda count=count: bare(count))
            best = [min(b, t) for b, t in zip(best, (loop, resolve, record, check, play), strict=True)]
        ratio = sum(best[2:]) / best[0]
        row(f"{steps:,}", f"{7 * steps:,}", *(short(1e3 * t) for t in best), f"{ratio:.1f}")
    report.figure("memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
