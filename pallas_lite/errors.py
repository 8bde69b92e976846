"""Errors and warnings a user can act on. Each says where, what, and how to mend it."""
import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn


class PallasLiteError(Exception):
    """Base of every error that a user can mend."""


class SpecError(PallasLiteError, ValueError):
    """A grid, BlockSpec or operand does not fit the others."""


class BlockIndexError(PallasLiteError, IndexError):
    """An index map, a kernel or a hand-written loop asks for a block or an element that the array does not have."""


class PipelineError(PallasLiteError):
    """A hand-written pipeline uses a copy verb on the wrong thing, or waits for a copy that was never started."""


class NotSupportedError(PallasLiteError, NotImplementedError):
    """A part of Pallas that pallas_lite does not have; the message names the nearest way."""


class MissingError(NotSupportedError, AttributeError):
    """A name of Pallas that this package does not have."""


class HazardWarning(UserWarning):
    """A call gave the hardware's numbers, and they depend on a hazard: read the message before the result.

    `hazards`: all of them, each with kind, operand, step, slot, events, message and mend.
    """

    def __init__(self, text: str, hazards: Iterable = ()) -> None:
        super().__init__(text)
        self.hazards = list(hazards)


UPSTREAM = ("it is jax.experimental.pallas's own: change both imports, to `import pallas_lite as pl` and "
            "`from pallas_lite import tpu as pltpu`.")


def many(n: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for messages.  >>> many(1, "block"), many(2, "index", "indices")
    ('1 block', '2 indices')
    """
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def mend_of(given: object, mend: str) -> str:
    """The end of a sentence on an argument that does not fit: `mend`, unless it comes from jax.experimental.pallas."""
    root, *rooms = type(given).__module__.split(".")
    return f"; {UPSTREAM}" if root == "jax" and {"pallas", "indexing"}.intersection(rooms) else mend


def expect(kind: Any, given: object, text: str) -> None:
    """Raises SpecError where an argument is of another kind. `text` says what is taken, and where to get it."""
    if not isinstance(given, kind):
        raise SpecError(f"{text}. This is of type {type(given).__name__}{mend_of(given, '.')}")


def bound(f, args: Iterable, kwargs: Mapping, hidden: bool = False) -> inspect.BoundArguments | None:
    """What each parameter of a function gets in a call; None where it cannot be called so.

    A decorator's own parameters, for it is called; with `hidden` those of the function that functools.wraps names.
    """
    try:
        return inspect.signature(f, follow_wrapped=hidden).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if isinstance(error, TypeError) and getattr(f, "__signature__", None) is None:
            return None
        # It has no signature, or one that somebody wrote: the call itself will tell.
        return inspect.signature(lambda *args, **kwargs: None).bind(*args, **kwargs)


def signature_of(f: Callable) -> inspect.Signature:
    """What a function says that it takes: a decorator that takes anything, what the function takes that it wraps."""
    with contextlib.suppress(ValueError):  # a function of C's says nothing
        own = inspect.signature(f, follow_wrapped=False)
        if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in own.parameters.values()):
            return own
    return inspect.signature(f)


class MissingModule(NotSupportedError, ImportError):
    """A module of Pallas that this package does not have. `from pallas_lite import …` would hide an AttributeError."""


def missing_names(module: str, nearest: dict[str, str]) -> Callable[[str], NoReturn]:
    """A module's `__getattr__`: for a name that Pallas has or had, the error says the nearest way here.

    `nearest`: names, with spaces between them -> the way.
    """
    ways = {name: way for names, way in nearest.items() for name in names.split()}

    def getattribute(name: str) -> NoReturn:
        if name in ways:
            kind = MissingModule if name in ("triton", "mosaic_gpu", "gpu", "fuser") else MissingError
            raise kind(f"{module}.{name} is not supported here. {ways[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattribute
