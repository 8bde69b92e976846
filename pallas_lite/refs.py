"""refs: what a kernel holds. Reads and writes are bounds-checked, which a plain JAX ref does not do (it clamps).

A Ref is a window on a memory: a JAX ref while a kernel is traced, NumPy arrays while the simulator steps through it.
The memory gives `load(starts, sizes)` and `store(starts, sizes, value)`; everything about indices is here.
"""
import math
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .errors import BlockIndexError, MissingError, SpecError, many, mend_of
from .tracer_errors import first_outside


@dataclass(frozen=True)
class Slice:
    """`size` elements from `start` (which may be traced), in one dimension of a ref."""

    start: ArrayLike
    size: int
    stride: int = 1


def ds(start: ArrayLike, size: int, stride: int = 1) -> Slice:
    """A slice by start and size: x_ref[pl.ds(i * 8, 8)]. The size is a Python int; the start may be traced."""
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise SpecError(f"ds({start}, {size}): the size must be a Python int; only the start may be traced.")
    return Slice(start, int(size), int(stride))


def is_static(i) -> bool:
    return isinstance(i, (int, np.integer)) or (isinstance(i, (np.ndarray, jax.Array)) and i.ndim == 0
                                                 and not isinstance(i, jax.core.Tracer))


# What Pallas' refs have and arrays have not, or not for the same.
NEAREST = {"bitcast": "read it first, jax.lax.bitcast_convert_type({x}, dtype)", "get": "read it, {x}",
           "set": "write it, {x} = value", "addupdate": "write it, {x} += value",
           "swap": "read it, old = {x}, and write it, {x} = new"}


class Ref:
    """A window on a memory. `[...]` reads and writes it; `.at[...]` is a smaller window."""

    def __init__(self, memory: Any, starts: tuple | None = None, sizes: tuple[int, ...] | None = None,
                 kept: tuple[int, ...] | None = None) -> None:
        self.memory = memory
        self._starts = starts if starts is not None else (0,) * len(memory.shape)
        self._sizes = sizes if sizes is not None else tuple(memory.shape)  # of the window, in the memory's dimensions
        self._kept = kept if kept is not None else tuple(range(len(memory.shape)))  # the dimensions that are seen

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the window, without the dimensions that an index took away."""
        return tuple(self._sizes[d] for d in self._kept)

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions of the memory that the window sees."""
        return self._kept

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        return self.memory.dtype

    @property
    def ndim(self) -> int:
        """How many dimensions the window has."""
        return len(self._kept)

    @property
    def size(self) -> int:
        """How many elements the window has."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self):
        return f"Ref {self.memory.name} {self.dtype}{list(self.shape)}"

    def _no_value(self, *_, **__):
        raise SpecError(f"{self.memory.name} is a ref, not a value: read it first, {self.memory.name}[...].")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_value
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _no_value
    __neg__ = __abs__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__ = __ne__ = __and__ = __or__ = __invert__ = _no_value
    __bool__ = __int__ = __float__ = __index__ = __iter__ = __array__ = _no_value
    __jax_array__ = property(_no_value)  # JAX asks for it before anything else
    __hash__ = object.__hash__

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        x = f"{self.memory.name}[...]"
        own = f"read it first, {x}.{name}" if hasattr(jax.Array, name) else f"its value is {x}"
        mend = NEAREST.get(name, own).format(x=x)
        raise MissingError(f"{self.memory.name} is a ref, and has no {name}: {mend}.")

    @property
    def at(self) -> "_At":
        """`.at[...]` is a smaller window on the same memory."""
        return _At(self)

    @property
    def window(self) -> tuple:
        """(memory, starts, sizes): what a copy needs to know."""
        return self.memory, self._starts, self._sizes

    def __getitem__(self, index: Any) -> jax.Array:
        view, rest = self._view(index)
        value = view._load()
        return value if rest is None else value[rest]

    def __setitem__(self, index: Any, value: ArrayLike) -> None:
        view, rest = self._view(index)
        if rest is not None:
            whole = jnp.asarray(view[...]).at[rest].set(self._cast(value))
            view._store(whole)
            return
        view._store(self._cast(value, view.shape))

    def _load(self):
        return self.memory.load(self._starts, self._sizes).reshape(self.shape)

    def _store(self, value):
        self.memory.store(self._starts, self._sizes, value.reshape(self._sizes))

    def _cast(self, value, shape=None):
        """A value in the dtype of this ref, as Pallas asks: floats of no dtype of their own, as 1.5 is, in a ref of
        floats, and any integers in a ref of integers, take it; there too large ones wrap. `shape`: what it must be."""
        name = self.memory.name
        if isinstance(value, Ref):
            raise SpecError(f"{name}: read the ref first: {name}[...] = {value.memory.name}[...]")
        given, value = value, jnp.asarray(value)
        if shape not in (None, value.shape):
            mend = ("Transpose one of the two: the value (.T), or the block's shape in a spec" if
                    value.shape == shape[::-1] else "Give it the same shape (reshape)" if value.size == math.prod(shape)
                    else "Give it the same shape (jnp.broadcast_to, jnp.full_like), or a spec another block shape")
            raise SpecError(f"{name}: a value of shape {value.shape} is written to a window of shape {shape}. {mend}.")
        kinds = (jnp.integer, jnp.floating)[:1 + value.weak_type]
        if any(all(jnp.issubdtype(a.dtype, kind) for a in (self, value)) for kind in kinds):
            return value.astype(self.dtype)
        if value.dtype != self.dtype:
            mend = f"value.astype({name}.dtype)" if hasattr(given, "dtype") else f"jnp.asarray({given}, {name}.dtype)"
            raise SpecError(f"{name}: a value of {value.dtype} is written to a ref of {self.dtype}. Cast it first: "
                            f"{mend}.")
        return value

    def _view(self, index):
        """The window that an index selects, and what is left of the index for arrays and strides (or None)."""
        index = index if isinstance(index, tuple) else (index,)
        if any(i is Ellipsis for i in index):
            at = next(n for n, i in enumerate(index) if i is Ellipsis)
            index = index[:at] + (slice(None),) * (self.ndim - len(index) + 1) + index[at + 1:]
        if len(index) > self.ndim:
            raise BlockIndexError(f"{self.memory.name}: {many(len(index), 'index', 'indices')} for shape {self.shape}.")
        index += (slice(None),) * (self.ndim - len(index))
        starts, sizes, kept, rest = list(self._starts), list(self._sizes), [], []
        for d, i in zip(self._kept, index, strict=True):
            start, sizes[d], left = self._part(i, d, sizes[d])
            starts[d] = starts[d] + start
            if left is not None:
                rest.append(left)
                kept.append(d)
        view = type(self)(self.memory, tuple(starts), tuple(sizes), tuple(kept))
        plain = all(isinstance(r, slice) and r == slice(None) for r in rest)
        return view, None if plain else tuple(rest)

    def _part(self, i, d, n):
        """Of one index, in dimension d of n: start, size, and what is left of it; None: the dimension goes away."""
        name = self.memory.name
        if i is None or isinstance(i, str) or mend_of(i, ""):
            raise SpecError(f"{name}: a ref cannot be indexed with {i!r}" + mend_of(
                i, f"; index its value: {name}[...][{i!r}]."))
        if isinstance(i, slice):
            if not all(s is None or is_static(s) for s in (i.start, i.stop, i.step)):
                raise SpecError(f"{name}: a slice a:b has bounds that only a running step knows. Give a start and a "
                                "size: pl.ds(start, size).")
            for bound in (i.start, i.stop):
                if bound is not None and not self._is_constant(bound):
                    self._check(bound, 0, n, d)
            start, stop, step = i.indices(n)
            if start >= stop and start == n:
                at = self._kept.index(d)
                raise BlockIndexError(f"{name}: a slice from {i.start} lies past dimension {at} of {n}.")
            if step < 1:
                raise SpecError(f"{name}: a ref is not read backwards; its value is: {name}[...][::-1].")
            return (start, max(stop - start, 0), slice(None)) if step == 1 else (0, n, i)
        if isinstance(i, Slice):
            span = (i.size - 1) * i.stride + 1 if i.size else 0
            self._check(i.start, span, n, d)
            return i.start, span, slice(None) if i.stride == 1 else slice(None, None, i.stride)
        if getattr(i, "ndim", 0) == 0 and not isinstance(i, list):
            if is_static(i):
                low, below = (-n, None) if self._is_constant(i) else (0, "Only a Python int counts from the end.")
                self._check(i, 1, n, d, low, below)
                i = int(i) % n
            return i, 1, None
        if (np.asarray(i) if isinstance(i, list) else i).dtype == bool:
            raise SpecError(f"{name}: a mask cannot index a ref. Choose on the whole block: read jnp.where(mask, "
                            f"{name}[...], other), write {name}[...] = jnp.where(mask, value, {name}[...]).")
        return 0, n, i

    def _is_constant(self, i):
        """Is this index, which has a value, the same whenever the kernel runs? Only then it may count from the end."""
        return isinstance(i, int) or not self.memory.stepped

    def _check(self, start, size, n, d, low=0, below=None):
        if is_static(start) and not (low <= int(start) and int(start) + size <= n):
            what = f"index {int(start)}" if size == 1 else f"slice {int(start)}:{int(start) + size}"
            mend = ("A slice past the end does not shift." if int(start) >= 0 else
                    below or "A start does not count from the end.")
            if not self._is_constant(start):
                mend += " Guard it, with pl.when in a kernel and jnp.clip in an index map"
                mend += "; lax.rem keeps the sign, so to go round, add the size first." if int(start) < 0 else "."
            raise BlockIndexError(f"{self.memory.where}{self.memory.name}: {what} is out of range in dimension "
                                  f"{self._kept.index(d)}, which has {many(n, 'element')}. {mend}")


class _At:
    def __init__(self, ref):
        self._ref = ref

    def __getitem__(self, index):
        view, rest = self._ref._view(index)
        if rest is not None:
            raise SpecError(f"{self._ref.memory.name}.at[...] takes ints, slices and ds; give index arrays and "
                            "strides when you read or write: ref[pl.ds(start, size, stride)].")
        return view


class Table(Ref):
    """A prefetched scalar operand as an index map has it: a ref that it may read."""

    def __getitem__(self, index: Any) -> jax.Array:
        value = super().__getitem__(index)
        return value if isinstance(value, jax.Array) else value[()]  # a number

    def __setitem__(self, index: Any, value: ArrayLike) -> None:
        raise SpecError(f"{self.memory.name}: an index map reads its scalars, and writes nothing.")


class TracedMemory:
    """A JAX ref inside a trace. Reads past the end give `fill`, writes there are dropped, and `flag` tells."""

    is_semaphore = False
    stepped = False  # no: what a step computes has no value yet, and what has one is a constant of the kernel
    where = ""  # in what run of the kernel

    def __init__(self, name, ref, flag, fill):
        self.name, self.shape, self.dtype, self.ref, self.fill = name, ref.shape, ref.dtype, ref, fill
        self.flag = flag  # a ref to a bool: did an access with a traced start go past the end?
        # Does the kernel read it, write it? In which lines does it use traced starts?
        self.loaded, self.stored, self.moving = False, False, set()

    def load(self, starts, sizes):
        self.loaded = True
        if all(map(is_static, starts)):
            return self.ref[_slices(starts, sizes)]
        bad = self._note_past_end(starts, sizes)

        def window(whole):
            at, cells = self.inside(starts, sizes), self._cells(starts, sizes)
            return jax.lax.cond(bad, lambda: whole.at[cells].get(mode="fill", fill_value=self.fill),
                                lambda: jax.lax.dynamic_slice(whole, at, sizes))
        return no_arithmetic(window)(self.ref[...])

    def store(self, starts, sizes, value):
        self.stored = True
        if all(map(is_static, starts)):
            # A part goes into the value of the whole: where jax.ensure_compile_time_eval holds, JAX refuses a while
            # loop that writes part of a ref.
            put = no_arithmetic(lambda whole: jax.lax.dynamic_update_slice(whole, value, [int(s) for s in starts]))
            self.ref[...] = value if value.shape == tuple(self.shape) else put(self.ref[...])
            return
        bad = self._note_past_end(starts, sizes)

        def update(whole, value):
            at, cells = self.inside(starts, sizes), self._cells(starts, sizes)
            value = jax.lax.cond(bad, lambda: jax.lax.dynamic_slice(whole.at[cells].set(value, mode="drop"), at, sizes),
                                 lambda: value)
            return jax.lax.dynamic_update_slice(whole, value, at)
        self.ref[...] = no_arithmetic(update)(self.ref[...], value)

    def _cells(self, starts, sizes):
        """The index of each element of a window; for those outside, one that JAX takes for outside too."""
        cells = [s + jnp.arange(n) for s, n in zip(starts, sizes, strict=True)]
        return jnp.ix_(*(jnp.where(c < 0, n, c) for c, n in zip(cells, self.shape, strict=True)))

    def inside(self, starts, sizes):
        """The starts of the nearest window that lies inside."""
        return [jnp.clip(jnp.int32(s), 0, n - size) for s, n, size in zip(starts, self.shape, sizes, strict=True)]

    def _note_past_end(self, starts, sizes):
        bad = self.past_end(starts, sizes)
        self.flag[...], self.moving = self.flag[...] | bad, {*self.moving, first_outside()[1].f_lineno}
        return bad

    def past_end(self, starts, sizes):
        """Does a window reach past the end, or begin below 0? Traced, as its starts are."""
        moving = [(s, n, whole) for s, n, whole in zip(starts, sizes, self.shape, strict=True) if not is_static(s)]
        return reduce(or_, [(s < 0) | (s + n > whole) for s, n, whole in moving])


class Cell:
    """In place of a JAX ref: a value in a trace, so that JAX can vmap what writes it. See body.handing_on."""

    def __init__(self, value):
        self.value, self.shape, self.dtype = value, value.shape, value.dtype

    def __getitem__(self, index):
        return self.value[index]

    def __setitem__(self, index, value):
        # A copy belongs to the trace that writes it, so that a constant cannot leave a branch unseen.
        self.value = jnp.copy(value) if value.shape == self.shape else jax.lax.dynamic_update_slice(
            self.value, value, [s.start for s in index])


def _slices(starts, sizes):
    return tuple(slice(int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True))


def no_arithmetic(f):
    """A function that moves data: what it computes is not counted as the kernel's work (jaxprs.count_work)."""
    def moves_data(*arguments):
        return f(*arguments)
    return jax.jit(moves_data)
