"""What a caller can see of a call, as plain data that two runs can be compared by.

Objects are walked from the roots on; each mutable one has a number, given where it is first met, so that aliases
among results, arguments and globals are part of the data. Values that nobody can tell apart (numbers, strings, tuples)
have no number.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import re
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy
import torch

NODE = re.compile(r"grad_fn=<\w+>")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
DRAINED = 5  # so many items are taken from an iterator that a call leaves


class Walk:
    """`lines` describe everything reached so far, one object a line."""

    def __init__(self, tolerance: float = 0.0) -> None:
        self.lines: list[tuple[str, Any]] = []
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.keep: list[Any] = []
        self.tolerance = tolerance

    def root(self, name: str, value: Any) -> None:
        self.visit(name, value)

    def visit(self, place: str, value: Any) -> None:
        describe = _describer(type(value))
        if describe is None:
            return
        try:
            describe(self, place, value)
        except Exception as error:  # the object's own: some views refuse to be looked at
            self.add(place, ("refuses", type(error).__name__, shown(str(error))))

    def add(self, place: str, what: Any) -> None:
        self.lines.append((place, what))

    def numbered(self, place: str, value: Any, kind: Any) -> bool:
        """Note the object; False if it was met before."""
        number = self.seen.get(id(value))
        if number is not None:
            self.add(place, ("again", number))
            return False
        self.seen[id(value)] = len(self.seen)
        self.keep.append(value)
        self.add(place, kind)
        return True


def shown(text: str) -> str:
    """Without where objects lie in memory and the name of a node of PyTorch's graph: ours is one for many operators."""
    return NODE.sub("grad_fn=", ADDRESS.sub("", text))


def _plain(walk: Walk, place: str, value: Any) -> None:
    walk.add(place, (type(value).__name__, shown(repr(value))))


def _number(walk: Walk, place: str, value: float) -> None:
    walk.add(place, ("float", value))


def _tensor(walk: Walk, place: str, value: torch.Tensor) -> None:
    storage = value.untyped_storage().data_ptr()
    number = walk.storages.setdefault(storage, len(walk.storages)) if value.numel() else -1
    # Our own backend may give two views of one intermediate result memory of their own.
    memory = ("storage", number, value.storage_offset(), value.stride()) if walk.tolerance == 0 else ()
    shape = (str(value.dtype), tuple(value.shape), value.requires_grad, value.is_leaf)
    kind = ("tensor", type(value).__name__, *shape, *memory)
    if walk.numbered(place, value, kind):
        walk.keep.append(value.untyped_storage())
        walk.add(f"{place} values", ("values", value.detach().clone()))
        if value.__dict__:
            walk.visit(f"{place}.__dict__", dict(value.__dict__))


def _array(walk: Walk, place: str, value: numpy.ndarray) -> None:
    if walk.numbered(place, value, ("array", str(value.dtype), value.shape)):
        walk.add(f"{place} values", repr(value.tolist()))


def _sequence(walk: Walk, place: str, value: Any) -> None:
    if walk.numbered(place, value, (type(value).__qualname__, len(value), getattr(value, "maxlen", None))):
        for k, item in enumerate(value):
            walk.visit(f"{place}[{k}]", item)
        _attributes(walk, place, value)


def _tuple(walk: Walk, place: str, value: Any) -> None:
    walk.add(place, (type(value).__qualname__, len(value)))
    for k, item in enumerate(value):
        walk.visit(f"{place}[{k}]", item)


def _dict(walk: Walk, place: str, value: Any) -> None:
    if walk.numbered(place, value, (type(value).__qualname__, len(value))):
        for key, item in value.items():
            walk.add(f"{place} key", shown(repr(key)))
            walk.visit(f"{place}[{shown(repr(key))}]", item)
        if isinstance(value, defaultdict):
            walk.add(f"{place}.default_factory", getattr(value.default_factory, "__qualname__", None))
        _attributes(walk, place, value)


def _set(walk: Walk, place: str, value: Any) -> None:
    if walk.numbered(place, value, type(value).__qualname__):
        walk.add(place, sorted(shown(repr(item)) for item in value))


def _object(walk: Walk, place: str, value: Any) -> None:
    if walk.numbered(place, value, type(value).__qualname__):
        _attributes(walk, place, value)


def _attributes(walk: Walk, place: str, value: Any) -> None:
    for name, item in getattr(value, "__dict__", {}).items():
        walk.visit(f"{place}.{name}", item)


def _function(walk: Walk, place: str, value: Any) -> None:
    if walk.numbered(place, value, ("function", value.__qualname__, value.__doc__)):
        for k, cell in enumerate(value.__closure__ or ()):
            try:
                walk.visit(f"{place} cell {value.__code__.co_freevars[k]}", cell.cell_contents)
            except ValueError:
                walk.add(f"{place} cell", "empty")
        walk.visit(f"{place}.__defaults__", value.__defaults__)
        walk.visit(f"{place}.__kwdefaults__", value.__kwdefaults__)
        _attributes(walk, place, value)


def _native(walk: Walk, place: str, value: Any) -> None:
    """A method's text would tell where its object lies."""
    bound = value.__self__ is not None and not isinstance(value.__self__, types.ModuleType)
    (_method if bound else _plain)(walk, place, value)


def _method(walk: Walk, place: str, value: Any) -> None:
    walk.add(place, ("method", value.__name__))
    walk.visit(f"{place}.__self__", value.__self__)


def _partial(walk: Walk, place: str, value: Any) -> None:
    walk.add(place, "partial")
    for name in ("func", "args", "keywords"):
        walk.visit(f"{place}.{name}", getattr(value, name))


def _class(walk: Walk, place: str, value: type) -> None:
    walk.add(place, ("class", value.__qualname__))


def _exception(walk: Walk, place: str, value: BaseException) -> None:
    if walk.numbered(place, value, ("raised", type(value).__qualname__, shown(str(value)), value.__suppress_context__)):
        walk.visit(f"{place}.args", value.args)
        walk.visit(f"{place}.__cause__", value.__cause__)
        walk.visit(f"{place}.__context__", value.__context__)
        _attributes(walk, place, value)


def _iterator(walk: Walk, place: str, value: Iterator[Any]) -> None:
    """Its type, but that a generator may stand for one of itertools, and what it still gives."""
    lazy = isinstance(value, types.GeneratorType) or type(value).__module__ == "itertools"
    if walk.numbered(place, value, "iterator" if lazy else type(value).__name__):
        try:
            for k, item in enumerate(islice(value, DRAINED)):
                walk.visit(f"{place} item {k}", item)
        except Exception as error:  # the program's own, raised by its generator
            walk.visit(f"{place} raises", error)


DESCRIBERS: dict[type, Callable[[Walk, str, Any], None]] = {
    float: _number, torch.Tensor: _tensor, list: _sequence, deque: _sequence, tuple: _tuple,
    dict: _dict, OrderedDict: _dict,
    set: _set, frozenset: _set, types.FunctionType: _function, types.MethodType: _method, type: _class,
    BaseException: _exception, functools.partial: _partial, types.ModuleType: _plain,
    numpy.generic: _plain, decimal.Decimal: _plain, fractions.Fraction: _plain, datetime.timedelta: _plain,
    bytearray: _plain, numpy.ndarray: _array,
    types.BuiltinFunctionType: _native, types.MethodWrapperType: _native,
    **dict.fromkeys((int, str, bool, bytes, complex, type(None), torch.dtype, torch.device, slice, range), _plain),
}  # fmt: skip


@functools.cache
def _describer(cls: type) -> Callable[[Walk, str, Any], None]:
    for base in cls.__mro__[:-1]:
        if base in DESCRIBERS:
            return DESCRIBERS[base]
    if hasattr(cls, "__next__") and cls.__module__ in ("builtins", "itertools"):
        return _iterator
    return _object


def difference(ours: Walk, theirs: Walk) -> str | None:
    """The first place where two walks differ, in words."""
    for (place, mine), (other_place, other) in zip(ours.lines, theirs.lines):
        if place != other_place:
            return f"{place} instead of {other_place}"
        if not _same(mine, other, max(ours.tolerance, theirs.tolerance)):
            return f"{place}: {mine}, eager {other}"
    if len(ours.lines) != len(theirs.lines):
        longer = max(ours.lines, theirs.lines, key=len)
        place, what = longer[min(len(ours.lines), len(theirs.lines))]
        return f"{place}: {what} only {'compiled' if longer is ours.lines else 'in eager'}"
    return None


def _same(mine: Any, other: Any, tolerance: float) -> bool:
    if not isinstance(mine, tuple) or type(mine) is not type(other) or len(mine) != len(other):
        return mine == other
    if mine[0] == other[0] == "values":
        return torch.allclose(mine[1], other[1], rtol=tolerance, atol=tolerance, equal_nan=True)
    if mine[0] == other[0] == "float":
        a, b = mine[1], other[1]
        return repr(a) == repr(b) or abs(a - b) <= tolerance * max(1.0, abs(b))
    return mine == other
