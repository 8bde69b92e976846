"""Planted answers of exercise 6.8, in the form of chapter6.py: when an input and an output may share their array."""
import jax.numpy as jnp
import numpy as np

import pallas_lite as pl

from .chapter6 import f32


def safe(race):
    """Safe if no pair of steps (s reads a block that t writes) races."""
    def aliasing_is_safe(reads, writes):
        return not any(r == w and race(s, t) for s, r in enumerate(reads) for t, w in enumerate(writes))
    return aliasing_is_safe


def safe_by_the_tool(reads, writes):
    """Asks the package."""
    r, w = jnp.array(reads), jnp.array(writes)
    n = max(*reads, *writes) + 1

    def pick(table):
        return lambda t: (sum(jnp.where(t == i, b, 0) for i, b in enumerate(table.tolist())),)
    call = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), f32(n), grid=len(reads),
                          in_specs=[pl.BlockSpec((1,), pick(r))], out_specs=pl.BlockSpec((1,), pick(w)),
                          input_output_aliases={0: 0})
    return not any("race" in h.kind for h in call.trace(f32(n)).hazards)


def safe_by_a_dict(reads, writes):
    written = {block: t for t, block in enumerate(writes)}
    return np.bool_(all(written.get(block, s) not in (s - 1, s - 2) for s, block in enumerate(reads)))


def once(pick):
    """Looks at one of the steps that read a block."""
    def aliasing_is_safe(reads, writes):
        return not any(t < pick([s for s, r in enumerate(reads) if r == w]) < t + 3
                       for t, w in enumerate(writes) if w in reads)
    return aliasing_is_safe


WRONG = {
    "6.8": [
        ("sharing is always safe", lambda reads, writes: True, "you call it safe"),
        ("sharing is never safe", lambda reads, writes: False, "you call it unsafe"),
        ("a step may not touch a block that it writes", safe(lambda s, t: s == t), "copy in is over before"),
        ("only the next step is in danger", safe(lambda s, t: s == t + 1), "you call it safe"),
        ("every later step is in danger", safe(lambda s, t: s > t), "the copy out is over"),
        ("reading ahead races", safe(lambda s, t: t < s < t + 3 or s < t), "copy in is over before the copy out"),
        ("three steps after is too near", safe(lambda s, t: t < s < t + 4), "the copy out is over"),
        ("different blocks are safe, the same ones are not", lambda reads, writes: not set(reads) & set(writes),
         "you call it unsafe"),
        ("the distance of the blocks decides",
         lambda reads, writes: not any(w - r in (1, 2) for r, w in zip(reads, writes, strict=True)), "you call it"),
        ("what a step itself reads is never in danger", lambda reads, writes: not any(
            w in reads[t + 1:t + 3] and r != w for t, (r, w) in enumerate(zip(reads, writes, strict=True))),
         "you call it safe"),
        ("what has been read once is in order", lambda reads, writes: not any(
            w in reads[t + 1:t + 3] and w not in reads[:t + 1] for t, w in enumerate(writes)), "you call it safe"),
        ("a block is read once: first", once(lambda steps: steps[0]), "you call it safe"),
        ("a block is read once: last", once(lambda steps: steps[-1]), "you call it safe"),
        ("a block that is read twice races", lambda reads, writes: len(set(reads)) == len(reads) and not any(
            w in reads[t + 1:t + 3] for t, w in enumerate(writes)), "you call it unsafe"),
        ("a number will do", lambda reads, writes: 1, "True or False"),
    ],
}

RIGHT = {
    "6.8": [("asks the package", safe_by_the_tool), ("by a dict", safe_by_a_dict)],
}
