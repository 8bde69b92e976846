"""An independent judge of small programs: tries every legal choice of moments, cell by cell, and looks at what is seen.

A program is a list of operations in program order; a cell is one byte of memory, named by anything hashable:

    ("read", cells)              the kernel reads these cells
    ("write", cells)             the kernel writes them
    ("start", pairs, semaphore)  a copy begins: for each (source cell, target cell), in any order and at any moment
                                 from here on, it reads the source, later writes the target and adds a byte to the
                                 semaphore
    ("wait", semaphore, bytes)   goes on once the semaphore holds that many bytes, and takes them

Values are opaque: every write makes a new one. Nothing of races.py or verify.py is used here.
"""
from collections import Counter, defaultdict


def judge(program, final) -> str:
    """"hang", "never waited", "race" or "ok"; the first that holds. `final`: the cells looked at when all is over.

    Each cell is tried by itself. That is sound: what is seen in cell X depends on the order of the accesses to X alone.
    Take any legal execution, and let every copy's accesses to other cells happen as early as they may (the reads right
    at the start; a write there too, or right after its read if that is of X). Semaphores only fill earlier, so each
    wait that passed still passes, and the accesses to X have not moved. So it is enough to try all moments of the
    accesses to X, with all others as early as they may: and all of these are legal executions. `judge_all_at_once`
    does without this argument, and a test compares the two.
    """
    early = hang_or_open(program)
    if early:
        return early
    # number of an operation -> what the copy does with a cell: its bytes that touch the cell
    touching, cells = defaultdict(lambda: defaultdict(list)), dict.fromkeys(final)
    for at, (what, *rest) in enumerate(program):
        for byte, pair in enumerate(rest[0] if what == "start" else []):
            for cell in {*pair}:
                touching[cell][at].append((byte, pair))
                cells[cell] = None
        if what in ("read", "write"):
            cells.update(dict.fromkeys(rest[0]))
    return "race" if any(differs(program, cell, touching[cell], cell in final) for cell in cells) else "ok"


def hang_or_open(program) -> str | None:
    """These do not depend on moments: count the bytes that can ever come."""
    owed = Counter()
    for what, *rest in program:
        if what == "start":
            owed[rest[1]] += len(rest[0])
        elif what == "wait":
            owed[rest[0]] -= rest[1]
            if owed[rest[0]] < 0:
                return "hang"
    return "never waited" if any(owed.values()) else None


def differs(program, cell, touching, is_final) -> bool:
    """Can something seen in this cell differ?"""
    # Operations that neither touch the cell nor share a semaphore with a copy that does: nothing waits for them here.
    semaphores = {program[at][2] for at in touching}
    mine = [at for at, (what, *rest) in enumerate(program)
            if (cell in rest[0] if what in ("read", "write") else rest[what == "start"] in semaphores)]
    seen = {}

    def see(reader, value):
        return seen.setdefault(reader, value) != value

    # A state: next operation, what the cell holds, accesses to come (copy, byte, has it read?), bytes on semaphores.
    stack = [(0, "initial", frozenset(), frozenset())]
    done = set(stack)
    while stack:
        step, value, coming, signals = stack.pop()
        following = []
        for access in coming:
            copy, byte, has_read = access
            target, semaphore = program[copy][1][byte][1], program[copy][2]
            if not has_read and see((copy, byte), value):
                return True
            if not has_read and target == cell:  # the write comes later
                following.append((step, value, coming - {access} | {(copy, byte, True)}, signals))
            else:
                new = (copy, byte) if target == cell else value
                following.append((step, new, coming - {access}, plus(signals, semaphore, 1)))
        if step == len(mine):
            if not coming and is_final and see("end", value):
                return True
        else:
            at = mine[step]
            what, *rest = program[at]
            if what == "start":
                # A byte that only writes the cell has read its source, elsewhere, at once.
                begun = {(at, byte, source != cell) for byte, (source, _) in touching.get(at, ())}
                new = plus(signals, rest[1], len(rest[0]) - len(begun))
                following.append((step + 1, value, coming | begun, new))
            elif what == "wait":
                if dict(signals).get(rest[0], 0) >= rest[1]:
                    following.append((step + 1, value, coming, plus(signals, rest[0], -rest[1])))
            else:
                if what == "read" and see(at, value):
                    return True
                following.append((step + 1, at if what == "write" else value, coming, signals))
        for state in following:
            if state not in done:
                done.add(state)
                stack.append(state)
    return False


def plus(signals: frozenset, semaphore, amount: int) -> frozenset:
    counts = dict(signals)
    counts[semaphore] = counts.get(semaphore, 0) + amount
    return frozenset(item for item in counts.items() if item[1])


def judge_all_at_once(program, final, most=200_000) -> str | None:
    """As `judge`, with no reduction: all cells and all moments at once. None if there are too many states."""
    early = hang_or_open(program)
    if early:
        return early
    seen, race = {}, False
    stack = [(0, frozenset(), frozenset(), frozenset())]  # next operation, memory, bytes to come, semaphores
    done = set(stack)
    while stack and not race:
        if len(done) > most:
            return None
        at, memory, coming, signals = stack.pop()
        cells, following = dict(memory), []

        def see(reader, cell, cells=cells):
            value = cells.get(cell, "initial")
            return seen.setdefault((reader, cell), value) != value

        for access in coming:
            copy, byte, has_read = access
            source, target = program[copy][1][byte]
            if not has_read:
                race |= see((copy, byte), source)
                following.append((at, memory, coming - {access} | {(copy, byte, True)}, signals))
            else:
                following.append((at, frozenset((cells | {target: (copy, byte)}).items()), coming - {access},
                                  plus(signals, program[copy][2], 1)))
        if at == len(program):
            if not coming:
                race |= any([see("end", cell) for cell in final])
            continue_with = None
        else:
            what, *rest = program[at]
            continue_with = at + 1, memory, coming, signals
            if what == "start":
                continue_with = at + 1, memory, coming | {(at, b, False) for b in range(len(rest[0]))}, signals
            elif what == "wait":
                ready = dict(signals).get(rest[0], 0) >= rest[1]
                continue_with = (at + 1, memory, coming, plus(signals, rest[0], -rest[1])) if ready else None
            elif what == "write":
                continue_with = (at + 1, frozenset((cells | dict.fromkeys(rest[0], at)).items()), coming, signals)
            else:
                race |= any([see(at, cell) for cell in rest[0]])
        for state in [*following, continue_with] if continue_with else following:
            if state not in done:
                done.add(state)
                stack.append(state)
    return "race" if race else "ok"
