"""proof: a quick proof that a schedule has no hazard, over all events at once. Where it fails, verify.py walks.

The proof asks for more than the rule in races.py does: on each slot one thing happens after the other, the first of
them fills it, and no block of an output is written twice. Every schedule of our own pipeline is so, unless the call
itself revisits or aliases.
"""
import numpy as np

from .schedule import CODE, IN_START, OUT_START, OUT_WAIT, RUN, VERBS, Schedule

_START = np.array([v in (IN_START, OUT_START) for v in VERBS])
_OUT = np.array([v in (OUT_START, OUT_WAIT) for v in VERBS])


def surely_clean(schedule: Schedule) -> bool:
    """True: verify's walk would find nothing. False: it may."""
    c, operands = schedule.columns, schedule.operands
    writes_hbm = [x.array for x in operands if x.is_output]
    if any(x.array in writes_hbm for x in operands if not x.is_output) or len(set(writes_hbm)) < len(writes_hbm):
        return False  # arrays that share memory: their blocks may meet
    if any(x.is_output and x.starts is not None for x in operands) or (c.slots < 0).any():
        return False  # windows of one array may overlap; steps leave an operand alone
    is_output = np.array([x.is_output for x in operands], bool)
    deepest = 1 + max(c.slot.max(initial=0), c.slots.max(initial=0))

    # Starts and waits of a slot take turns, so each wait guarantees the one copy that is in flight.
    copies = np.flatnonzero(c.operand >= 0)
    if (is_output[c.operand[copies]] != _OUT[c.verb[copies]]).any():
        return False
    slots = c.operand[copies] * deepest + c.slot[copies]
    order = copies[np.argsort(slots, kind="stable")]
    starts, waits = order[0::2], order[1::2]
    if len(order) % 2 or not _START[c.verb[starts]].all() or _START[c.verb[waits]].any() or (
            (c.operand[starts] != c.operand[waits]) | (c.slot[starts] != c.slot[waits]) |
            (c.block[starts] != c.block[waits])).any():  # another block may have another size
        return False

    # What happens on each slot, as (slot, from, to, does it fill the slot?): nothing overlaps, and filling comes first.
    runs, each = np.flatnonzero(c.verb == CODE[RUN]), range(len(operands))
    slot = np.concatenate([c.operand[starts] * deepest + c.slot[starts], *(i * deepest + c.slots[:, i] for i in each)])
    begin, end = np.concatenate([starts, *[runs] * len(operands)]), np.concatenate([waits, *[runs] * len(operands)])
    fills = np.concatenate([~is_output[c.operand[starts]], *(np.full(len(runs), is_output[i]) for i in each)])
    order = np.argsort(slot * len(c.verb) + begin)
    slot, begin, end, fills = slot[order], begin[order], end[order], fills[order]
    same = slot[1:] == slot[:-1]
    if (same & (begin[1:] <= end[:-1])).any() or not fills[:1].all() or not fills[1:][~same].all():
        return False

    # Each block of an output is written once.
    out = starts[is_output[c.operand[starts]]]
    written = c.operand[out] * (len(c.blocks) + 1) + c.block[out]
    return len(np.unique(written)) == len(written)
