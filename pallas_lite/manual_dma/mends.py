"""mends: how to mend what goes wrong with a kernel's own copies, in words. Asked by step.py, the machine `here`."""
from .buffers import bytes_of, spot


def of_unwritten(buffer, sent=False) -> tuple[str, str]:
    """What is said of memory that nobody has written and a kernel reads, or copies elsewhere; and the mend."""
    if buffer.is_slots and buffer.is_input:  # filled by its pipeline, but for an edge
        what = "past the edge of its array, where its slot keeps what it held."
        mend = "eave what lies past the edge out with jnp.where, on every operand, rather than multiplying it by 0."
        return (f"what lies {what}", f"Copy only what lies inside, or l{mend}") if sent else (
            f"part of which lies {what}", f"L{mend}")
    if sent:
        return "memory that nobody has written.", "Write the whole of it first, or copy only what was written."
    if buffer.left_over:
        return "which holds what an earlier visit left there.", (
            "Initialise it in the first step of its visit. If it is a sum over a grid axis, make that axis the "
            "innermost (last) of the grid.")
    return "part of which nobody has written.", "Write it, or copy something into it and wait, before reading it."


def of_hang(here, key, ends) -> str:
    """For a wait on this semaphore that no copy will end. `ends`: source and target of the copy that it waits for."""
    # The copy of this block may have been started after all, from or to another slot.
    for number in here.races.copies:
        windows = [] if here.log[number].block else here.log[number].windows
        if here.key[number] != key and any(buffer.in_hbm and (buffer, part) in ends for buffer, part in windows):
            return (f"Instead, {here.show(number)} was started, on {here.names[here.key[number]]}: give the start and "
                    "the wait of a copy the same slot and semaphore.")
    if not here.waits[key]:
        return "Start the copy before this wait, or drop the wait."
    if here.races.taken[key]:
        return (f"Part of what was started was waited for already{here.where(here.waits[key][-1])}: wait for the rest, "
                "or for the whole in place of its parts.")
    return (f"What was started was waited for already{here.where(here.waits[key][-1])}: drop this wait, or start the "
            "copy again before it.")


def of_clash(here, kind, first, second) -> str:
    """For an access that meets a copy in flight: both by their numbers in the log, and what the access does."""
    a, b, key = here.log[first], here.log[second], here.key[first]
    if first == second:
        return "Copy through a buffer that shares no memory with either end."
    if a.block:
        return ("Only the pipeline can wait for that copy: keep to the refs that it gives to its body, or do this "
                "after the pipeline.")
    if waits := [w for w in here.waits[key] if first < w < second]:
        done = {n for w in here.waits[key] if w < first for n in here.log[w].copies}
        others = [here.show(n) for n, k in here.key.items() if k == key and n < waits[-1] and n not in {first, *done}]
        if not others:
            taken, whole = sum(bytes_of(here.log[w].windows[0]) for w in waits), bytes_of(a.windows[1])
            return (f"The waits before took {taken} of its {whole} bytes, and do not tell which of them had arrived. "
                    f"Wait for all its parts first, or for the whole in place of them: {a.wait}.")
        share = "the two share" if len(others) == 1 else f"all {len(others) + 1} share"
        return (f"A wait before may have had the bytes of {', '.join(others)}: {share} semaphore "
                f"{here.names.get(key)}. Give each copy a semaphore of its own, or wait for all of them first.")
    before = spot(b.line, here.file) if b.line else "the pipeline's copy"
    return f"Wait for it first{'' if kind == 'read' else ', or use another slot'}: {a.wait} before {before}."
