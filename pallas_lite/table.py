"""table: rows of words -> a table as text, as wide as a page at most. For a schedule's table and a timeline's lanes."""
import itertools
import re
from collections.abc import Sequence

WIDE, NARROW = 108, 16  # letters: a table as wide as a notebook shows it unbroken; its columns get no narrower


def folded(count: int, remarks: Sequence[str] = (), fold: int | None = None) -> Sequence[int]:
    """The rows to show: of more than `fold`, the first, the last, and the first three with a remark."""
    if not fold or count <= fold:
        return range(count)
    marked = [i for i, remark in enumerate(remarks) if remark][:3]
    return sorted({*range(fold - fold // 4), *range(count - fold // 4, count), *marked})


def aligned(header: list[str], rows: dict[int, list[str]], remarks: Sequence[str] = ()) -> str:
    """A table of numbered rows as text: a dot for an empty cell, a remark behind its row, a line for rows left out.

    Where it would be wider than a page, remarks and all, the items of a cell stand on several lines.
    """
    shown = list(rows)
    widths = [max(map(len, [h, *(rows[i][c] for i in shown)])) for c, h in enumerate(header)]
    most, remark = max(widths), max([len(remarks[i]) for i in shown] if remarks else [0])
    while most > NARROW and sum(min(w, most) for w in widths) + 2 * len(widths) + remark > WIDE:
        most -= 1
    cells = {i: [_wrapped(c or "·", most) for c in rows[i]] for i in shown}
    widths = [max(map(len, [h, *(line for i in shown for line in cells[i][c])])) for c, h in enumerate(header)]
    lines = ["  ".join(h.ljust(w) for h, w in zip(header, widths, strict=True)).rstrip()]
    before = -1
    for i in shown:
        if i != before + 1:
            lines.append(f"   … {i - before - 1} more rows")
        cells[i][0] = [rows[i][0].rjust(widths[0])]
        for number, parts in enumerate(itertools.zip_longest(*cells[i], fillvalue="")):
            remark = remarks[i] if remarks and not number else ""
            lines.append(("  ".join(map(str.ljust, parts, widths)) + remark).rstrip())
        before = i
    return "\n".join(lines)


def _wrapped(cell: str, most: int) -> list[str]:
    """A cell's lines: what it lists, as many a line as `most` letters hold; commas in brackets part nothing."""
    lines = [""]
    for item in re.split(r"(?<=,) (?![^\[(]*[\])])", cell):
        if lines[-1] and len(lines[-1]) + 1 + len(item) > most:
            lines.append(item)
        else:
            lines[-1] += f" {item}" if lines[-1] else item
    return lines
