"""mends: how to mend what goes wrong with a kernel's own copies, in words. Asked by step.py, the machine `here`."""
from bisect import bisect


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
    return (f"What was started was waited for already{here.where(here.waits[key][-1])}: drop this wait, or start the "
            "copy again before it.")


def of_clash(here, kind, first, second) -> str:
    """For an access that meets a copy in flight: both by their numbers in the log, and what the access does."""
    a, b, key = here.log[first], here.log[second], here.key[first]
    if a.block:
        return ("Only the pipeline can wait for that copy: keep to the refs that it gives to its body, or do this "
                "after the pipeline.")
    if bisect(here.waits[key], first) < bisect(here.waits[key], second):
        others = [here.show(number) for number in here.races.in_flight[key] if number != first] or ["another copy"]
        share = "the two share" if len(others) == 1 else f"all {len(others) + 1} share"
        return (f"A wait before may have had the bytes of {', '.join(others)}: {share} semaphore "
                f"{here.names.get(key)}. Give each copy a semaphore of its own, or wait for all of them first.")
    before = f"line {b.line[1]}" if b.line else "the pipeline's copy"
    return f"Wait for it first{'' if kind == 'read' else ', or use another slot'}: {a.wait} before {before}."
