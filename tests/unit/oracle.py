"""An independent judge of small schedules: tries every legal choice of moments, and looks at what is read and left.

A copy reads its source at one moment and writes its target at a later one, both after its start; a wait passes when a
finished copy has signalled its slot's semaphore. Values are opaque: each write makes a new one. Nothing of verify.py is
used here. Exponential in the copies in flight, so for a handful of steps only.
"""
from pallas_lite.schedule import Schedule


def judge(schedule: Schedule) -> str:
    """"hang", "never waited", "race" or "ok"; the first that holds."""
    arrays = {x.name: x.array for x in schedule.operands}
    names = [x.name for x in schedule.operands]
    outputs = {x.name for x in schedule.operands if x.is_output}
    events = schedule.events

    # Hanging and open copies do not depend on moments: count signals that can ever come.
    open_copies: dict = {}
    for e in events:
        key = e.operand, e.slot, "copy_in" in e.verb
        if e.verb.endswith("start"):
            open_copies[key] = open_copies.get(key, 0) + 1
        elif e.verb.endswith("wait"):
            open_copies[key] = open_copies.get(key, 0) - 1
            if open_copies[key] < 0:
                return "hang"
    if any(open_copies.values()):
        return "never waited"

    def ends(e):
        slot, block = ("slot", e.operand, e.slot), ("hbm", arrays[e.operand], e.block)
        return (block, slot) if e.verb == "copy_in_start" else (slot, block)

    observed: dict = {}  # what a reader saw, over all choices

    def see(reader, place, memory):
        observed.setdefault(reader, set()).add(memory.get(place, ("initial", place)))

    # A state: next event, copies in flight as (event, has it read?), memory, semaphores.
    start = (0, frozenset(), frozenset(), frozenset())
    stack, done = [start], {start}
    while stack:
        at, flying, memory, signals = stack.pop()
        cells, sems = dict(memory), dict(signals)
        following = []
        for copy, has_read in flying:
            e = events[copy]
            source, target = ends(e)
            if not has_read:
                see(("copy", copy), source, cells)
                following.append((at, flying - {(copy, False)} | {(copy, True)}, memory, signals))
            else:
                key = e.operand, e.slot, "copy_in" in e.verb
                following.append((at, flying - {(copy, True)}, frozenset((cells | {target: copy}).items()),
                                  frozenset((sems | {key: sems.get(key, 0) + 1}).items())))
        if at < len(events):
            e = events[at]
            key = e.operand, e.slot, "copy_in" in e.verb
            if e.verb == "run":
                new = dict(cells)
                for name, s in zip(names, e.slots, strict=True):
                    if name in outputs:
                        new[("slot", name, s)] = at
                    else:
                        see(("run", at, name), ("slot", name, s), cells)
                following.append((at + 1, flying, frozenset(new.items()), signals))
            elif e.verb.endswith("start"):
                following.append((at + 1, flying | {(at, False)}, memory, signals))
            elif sems.get(key, 0):
                following.append((at + 1, flying, memory, frozenset((sems | {key: sems[key] - 1}).items())))
        elif not flying:
            places = {end for e in events if e.verb.endswith("start") for end in ends(e)}
            for place in places:
                if place[0] == "hbm":
                    see(("end", place), place, cells)
        for state in following:
            if state not in done:
                done.add(state)
                stack.append(state)
    return "race" if any(len(values) > 1 for values in observed.values()) else "ok"
