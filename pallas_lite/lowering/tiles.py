"""tiles: what the TPU compiler asks of a block: how slots lie in VMEM, and where a copy may begin and end.

A TPU stores the last two dimensions of a buffer in tiles of 8 rows and 128 columns, of 32 bits each. These rules were
found by experiment on the compiler (benchmarks/tpu.py compares them with it); upstream's `pallas_call` has stricter
ones of its own (docs/tpu.md).
"""
import contextlib
import math

import jax
import numpy as np

from ..errors import PallasLiteError
from ..schedule import starts_of

COLUMNS = 128


def tile_rows(rows: int, dtype) -> int:
    """Rows of a tile: 8, or as few as hold the buffer, but at least 32 bits of them.

    >>> tile_rows(3, "float32"), tile_rows(1, "int8"), tile_rows(100, "bfloat16")
    (4, 4, 8)
    """
    tile = 4 // width(dtype) or 1
    while tile < min(rows, 8):
        tile *= 2
    return tile


def tiled_bytes(shape, dtype) -> int:
    """Bytes of a buffer in VMEM, padded to whole tiles. 32-bit rows that are one tile wide lie without a gap.

    Buffers begin at multiples of 1 KiB.  >>> tiled_bytes((2, 100, 200), "float32"), tiled_bytes((1, 128), "float32")
    (212992, 1024)
    """
    *outer, rows, columns = (1, 1, *shape)
    if len(shape) > 1 and (width(dtype) < 4 or columns > COLUMNS):
        rows = _up(rows, tile_rows(rows, dtype))
    return _up(math.prod(outer) * rows * _up(columns, COLUMNS) * width(dtype), 1024)


def slots(depth: int, block: tuple[int, ...], dtype) -> tuple[int, ...]:
    """The shape of a buffer of `depth` slots. Those of one dimension follow each other, if they are whole tiles.

    >>> slots(3, (8, 128), "float32"), slots(3, (256,), "bfloat16"), slots(3, (100,), "float32")
    ((3, 8, 128), (768,), (3, 1, 100))
    """
    if len(block) != 1:
        return (depth, *block)
    return (depth * block[0],) if block[0] % line(dtype) == 0 else (depth, 1, *block)


def slot_bytes(block, dtype, depth) -> int:
    """Bytes of all slots of a block."""
    return tiled_bytes(slots(depth, block, dtype), dtype)


class Held:
    """The buffers in VMEM that a kernel holds while it is traced, and the most that it held at a time."""

    def __init__(self):
        self.now, self.most = [], []  # (name, block's shape, dtype, slots)

    @contextlib.contextmanager
    def more(self, buffers):
        before, self.now = self.now, [*self.now, *buffers]
        self.most = max(self.most, self.now, key=self._bytes)
        yield
        self.now = before

    @staticmethod
    def _bytes(buffers):
        return sum(slot_bytes(*buffer[1:]) for buffer in buffers)


def line(dtype) -> int:
    """Elements of a tile of one dimension: 128 words of 32 bits."""
    return COLUMNS * (4 // width(dtype) or 1)


def width(dtype) -> int:
    """Bytes of an element. A bool takes a word."""
    return 4 if np.dtype(dtype) == bool else np.dtype(dtype).itemsize


def _up(n: int, tile: int) -> int:
    return -(-n // tile) * tile


def parts(x) -> list[dict]:
    """In each dimension, the parts of a slot that copies fill: (start, size) -> the block indices that fill it.

    There is more than one where blocks reach past the array's edge.
    """
    found = [{} for _ in x.block_shape]
    for block in set(x.blocks):
        for choices, b, part in zip(found, block, x.window(block)[1], strict=True):
            choices.setdefault((part.start, part.stop - part.start), set()).add(b)
    return found


def check(name: str, x) -> None:
    """Raises PallasLiteError where a copy of an operand would cut a tile of its array."""
    if x.steers or x.stays_in_hbm or not x.shape:
        return
    packed = 4 // width(x.dtype) or 1
    narrow = packed == 1 and x.shape[-1] <= COLUMNS
    if x.dtype == bool and jax.__version_info__ < (0, 12):
        _refuse(name, x, "it copies bools from jax 0.12 on", "Pass the array as int8 or int32.")
    columns = line(x.dtype) if len(x.shape) == 1 else COLUMNS
    if len(x.ref_shape) < 2 and packed > 1 and (len(x.shape) > 1 or x.block_shape[-1] % columns):
        _refuse(name, x, f"{x.dtype} blocks of one dimension share their tiles with the next slot",
                "Give the array, and the block, a leading dimension of 1" + (
                    "." if len(x.shape) > 1 else f"; or take a multiple of {columns} elements in each block."))
    rows = x.shape[-2] if len(x.shape) > 1 else 1
    # Arrays in HBM of 8-bit elements have tiles of 32 rows, where these divide the array.
    tile = 32 if packed == 4 and rows % 32 == 0 else tile_rows(rows, x.dtype)
    filled, starts = parts(x), starts_of(x)
    for d, n in list(enumerate(x.shape))[-2:]:
        a, c = starts[d]
        indices = {block[d] for block in x.blocks}
        for low, size in filled[d]:
            at = c + low  # and what the compiler knows of the rest: a multiple of `a`
            step = math.gcd(at, a) if len(indices) > 1 else at + a * min(indices)
            last = d == len(x.shape) - 1
            if last and not size == n == x.block_shape[d] and (size % columns or step % columns):
                _refuse(name, x, f"a copy of {size} columns, from a multiple of {step}, cuts a tile of {columns}",
                        _mend(n, x.block_shape[d], size, columns, "columns"))
            if not last and size != n and not narrow and not _fits(size, step, tile, packed):
                _refuse(name, x, f"a copy of {size} rows, from a multiple of {step}, cuts a tile of {tile}",
                        _mend(n, x.block_shape[d], size, tile, "rows"))


def _mend(n, block, size, tile, what) -> str:
    if size < block and block % tile == 0:  # a block is whole tiles already
        return (f"The {size} are what the array's edge leaves of a block of {block}: pad the array to "
                f"{-(-n // tile) * tile} {what}, or take all {n} in one block.")
    return f"Take a multiple of {tile} {what} in each block, or all {n}."


def _fits(size, step, tile, packed) -> bool:
    """Whole tiles; or a part of one, which is a power of two of rows at a multiple of itself, and at least 32 bits."""
    part = packed <= size < tile and size & (size - 1) == 0
    return step % (size if part else tile) == 0 and (part or size % tile == 0)


def _refuse(name, x, what, mend):
    raise PallasLiteError(f"{name}: the TPU compiler cannot copy the blocks {x.block_shape} of {x.name} "
                          f"({x.dtype}{list(x.shape)}): {what}. {mend}")
