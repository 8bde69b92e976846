"""Every public name that a reader reaches from `pl` and `pltpu` says what it is."""
import dataclasses
import enum
import inspect

import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu


def members(thing, path):
    """(path, object) of a module's, class's or call's public names, and of theirs."""
    yield path, thing
    if inspect.isclass(thing):
        for name, value in vars(thing).items():
            if not name.startswith("_") and (inspect.isfunction(value) or hasattr(value, "fget")
                                             or hasattr(value, "func") or isinstance(value, staticmethod)):
                yield f"{path}.{name}", value


def public():
    for module, short in (pl, "pl"), (pltpu, "pltpu"), (pl.hardware, "pl.hardware"):
        for name, value in vars(module).items():
            ours = getattr(value, "__module__", "").startswith("pallas_lite")
            if not name.startswith("_") and ours and callable(value) and not isinstance(value, enum.Enum):
                yield from members(value, f"{short}.{name}")
    for hidden in type(pl.pallas_call(lambda o_ref: None, [])), pl.call.Traced, pl.refs.Ref:
        yield from members(hidden, hidden.__name__)


@pytest.mark.parametrize("path, thing", [*public()], ids=lambda p: p if isinstance(p, str) else "")
def test_it_says_what_it_is(path, thing):
    text = inspect.getdoc(thing) or ""
    # A dataclass without a docstring of its own gets its signature for one.
    written = not (dataclasses.is_dataclass(thing) and text.startswith(thing.__name__ + "("))
    assert len(text.split()) >= 3 and written, "it needs a docstring: what it does, shapes, units, errors"
