"""wire: messages between the trusted process and the sandbox: plain data as JSON, arrays as raw bytes, never pickles.

A message is: 4 bytes, the length of a JSON header; the header; the bytes of its arrays, one after another. What comes
in is believed only as far as it is checked here: sizes, types, dtypes, nesting. Junk raises WireError.
Next: answers.py (the questions), ../remote.py (the trusted end), worker.py (the sandboxed end).
"""
import json
import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

MOST_HEADER = 16 * 2**20
MOST_BYTES = 512 * 2**20
MOST_ARRAYS = 1000
MOST_AXES, LONGEST_AXIS = 8, 2**31 - 1  # of an array
MOST_KEYS = 100  # of a dict, if they are tuples: whoever makes numbers up can make tuples of one hash
DEEPEST = 20
DTYPES = frozenset(["bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
                    "bfloat16", "float16", "float32", "float64"])


class WireError(Exception):
    """A message that is not one: too large, cut, of a kind that is not plain data."""


class NotPlain(Exception):
    """A value that is neither a number, text, array, nor a tuple, list or dict of them."""


def pack(value: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    """`value` as JSON can carry it; arrays are put into `arrays`. Tuples, dicts and arrays are marked, lists are not.

    >>> pack((1, [2.5]), [])
    {'t': [1, [2.5]]}
    """
    if depth > DEEPEST:
        raise NotPlain("data nested too deeply")
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        if abs(value) >= 2**63:
            raise NotPlain("a whole number beyond 64 bits")
        return value
    if kind in (Fraction, Decimal):
        try:
            return float(value)
        except (OverflowError, ValueError):
            _refuse(value)
    if isinstance(value, np.generic):
        return pack(value.item(), arrays, depth + 1) if str(value.dtype) in DTYPES else _refuse(value)
    if isinstance(value, list):
        return [pack(v, arrays, depth + 1) for v in value]
    if isinstance(value, tuple):
        return {"t": [pack(v, arrays, depth + 1) for v in value]}
    if isinstance(value, dict):
        if len(value) > MOST_KEYS and any(isinstance(k, tuple) for k in value):
            raise NotPlain(f"a dict with more than {MOST_KEYS} tuples as its keys")
        if any(isinstance(k, (list, dict)) for k in value):
            raise NotPlain("a dict with lists as its keys")
        return {"d": [[pack(k, arrays, depth + 1), _pack_under(k, v, arrays, depth + 1)] for k, v in value.items()]}
    if kind is range and len(value[:MOST_KEYS + 1]) <= MOST_KEYS:  # short: whoever writes one means its numbers
        return pack(list(value), arrays, depth)
    if kind is np.ndarray or (hasattr(value, "__array__") and kind.__module__.startswith(("jax", "jaxlib"))):
        array = np.asarray(value)
        if str(array.dtype) not in DTYPES:
            raise NotPlain(f"an array of dtype {array.dtype}")
        if not fits(array.shape) or bytes_of(array.shape, array.dtype) > MOST_BYTES:
            raise NotPlain(f"an array of shape {array.shape}, more than a message may hold")
        arrays.append(array)
        return {"a": len(arrays) - 1}
    return _refuse(value)


def _pack_under(key, value, arrays, depth):
    try:
        return pack(value, arrays, depth)
    except NotPlain as error:
        if type(key) is not str or " under " in str(error):
            raise
        raise NotPlain(f"{error} under {key[:40]!r}") from None


def _refuse(value):
    raise NotPlain(f"a value of type {type(value).__name__}")


def fits(shape: Any) -> bool:
    """Whether an array may have this shape."""
    return len(shape) <= MOST_AXES and all(type(n) is int and 0 <= n <= LONGEST_AXIS for n in shape)


def bytes_of(shape: Any, dtype: np.dtype) -> int:
    """Of an array. NumPy refuses the shape (0, 2**62) too: an empty array counts as if it were not."""
    return math.prod(max(n, 1) for n in shape) * dtype.itemsize


def refuse_too_much(arrays: list[np.ndarray], more: int = 0) -> None:
    """Raises NotPlain if these arrays, with so many bytes beside them, are more than a message may hold."""
    size = sum(bytes_of(a.shape, a.dtype) for a in arrays)
    if len(arrays) > MOST_ARRAYS:
        raise NotPlain(f"{len(arrays)} arrays, more than a message may hold")
    if size > MOST_BYTES or more > MOST_HEADER:
        raise NotPlain(f"{(size + more) / 2**20:.0f} MiB of data, more than a message may hold")


def unpack(data: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    """The value that `pack` was given. Trusts nothing."""
    if depth > DEEPEST:
        raise WireError("nested too deeply")
    if type(data) is int and abs(data) >= 2**63:
        raise WireError("a whole number beyond 64 bits")
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [unpack(v, arrays, depth + 1) for v in data]
    try:
        (kind, body), = data.items()
        if kind == "t" and isinstance(body, list):
            return tuple(unpack(v, arrays, depth + 1) for v in body)
        if kind == "d" and isinstance(body, list):
            keys = [unpack(k, arrays, depth + 1) for k, _ in body]
            if len(keys) > MOST_KEYS and tuple in map(type, keys):
                raise WireError(f"a dict with more than {MOST_KEYS} tuples as its keys")
            return dict(zip(keys, [unpack(v, arrays, depth + 1) for _, v in body], strict=True))
        if kind == "a" and type(body) is int and 0 <= body < len(arrays):
            return arrays[body]
    except (AttributeError, TypeError, ValueError):
        pass
    raise WireError("not plain data")


def encode(kind: str, body: Any) -> bytes:
    """One message."""
    arrays: list[np.ndarray] = []
    packed = pack(body, arrays)
    shapes = [[str(a.dtype), list(a.shape)] for a in arrays]
    header = json.dumps({"kind": kind, "body": packed, "arrays": shapes}).encode()
    refuse_too_much(arrays, len(header))
    return b"".join([struct.pack(">I", len(header)), header, *(np.ascontiguousarray(a).tobytes() for a in arrays)])


def decode(read) -> tuple[str, Any]:
    """One message from `read(n)`, which returns exactly n bytes or raises."""
    length, = struct.unpack(">I", read(4))
    if length > MOST_HEADER:
        raise WireError("header too large")
    try:
        header = json.loads(read(length))
        kind, packed, shapes = header["kind"], header["body"], header["arrays"]
        if type(kind) is not str or type(shapes) is not list or len(shapes) > MOST_ARRAYS:
            raise ValueError
        sizes, total = [], 0
        for dtype, shape in shapes:
            if dtype not in DTYPES or not fits(shape):
                raise ValueError
            dtype = dtype_of(dtype)
            total += bytes_of(shape, dtype)
            sizes.append((dtype, tuple(shape)))
        if total > MOST_BYTES:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WireError("not a message") from None
    arrays = []
    for dtype, shape in sizes:
        data = read(math.prod(shape) * dtype.itemsize)
        if dtype.kind == "b":  # a byte other than 0 and 1 is no truth value
            data = (np.frombuffer(data, np.uint8) != 0).tobytes()
        arrays.append(np.frombuffer(data, dtype).reshape(shape).copy())
    try:
        return kind, unpack(packed, arrays)
    except RecursionError:
        raise WireError("nested too deeply") from None


def dtype_of(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes  # jax brings it; NumPy alone does not know the type
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
