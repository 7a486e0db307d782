"""Strings made of parts that only tracing knows: joined, formatted, added."""

from __future__ import annotations

import re
import string
from typing import Any

from dovetail.capture.calling.calls import fold
from dovetail.capture.numbers.input_numbers import varies
from dovetail.capture.protocols.formatting import joined, separated
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import NOT_IMPLEMENTED, Args, Const, Kwargs, NotNative, Session, Value
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.capture.values.deferred import DeferredText
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.iterators import NativeIterator


@known(str.join)
def _join(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not issubclass(args[0].cls, str):
        s.throw(TypeError, f"descriptor 'join' for 'str' objects doesn't apply to a {args[0].cls.__name__!r} object")
    parts = s.unpack(args[1])
    wrong = next(((k, p.cls.__name__) for k, p in enumerate(parts) if not issubclass(p.cls, str)), None)
    if wrong is not None:
        s.throw(TypeError, "sequence item {}: expected str instance, {} found".format(*wrong))
    if not any(isinstance(p, DeferredText) or varies(p) for p in parts):
        return fold(s, str.join, [args[0], TupleValue(parts)], {})
    return joined(s, separated(parts, args[0]))


known(bytes.join)(lambda s, args, kwargs: fold(s, bytes.join, [args[0], TupleValue(s.unpack(args[1]))], {}))
known(str.__add__)(lambda s, args, kwargs: joined(s, args) if issubclass(args[1].cls, str) else NOT_IMPLEMENTED)


@known(re.Pattern.finditer)
def _find_all(s: Session, args: Args, kwargs: Kwargs) -> Value:
    pattern, *rest = [a.native() for a in args]
    return NativeIterator(iter([s.wrap(m, None) for m in pattern.finditer(*rest)]))


# ---------------------------------------------------------------- formatting


class FormattedPart:
    """Stands for a traced value while Python takes a format apart; text of tensors leaves a mark."""

    def __init__(self, s: Session, value: Value, marks: list[DeferredText]) -> None:
        self._s, self._value, self._marks = s, value, marks

    def _shown(self, spec: str, function: Any) -> str:
        text = self._s.to_string(self._value, spec, function)
        if isinstance(text, DeferredText):
            self._marks.append(text)
            return f"\0{len(self._marks) - 1}\0"
        return text.native()

    def __format__(self, spec: str) -> str:
        return self._shown(spec, format)

    def __str__(self) -> str:
        return self._shown("", str)

    def __repr__(self) -> str:
        return self._shown("", repr)

    def __getattr__(self, name: str) -> FormattedPart:
        return FormattedPart(self._s, self._s.get_attr(self._value, name), self._marks)

    def __getitem__(self, key: Any) -> FormattedPart:
        return FormattedPart(self._s, self._s.get_item(self._value, Const(key)), self._marks)

    def __index__(self) -> int:
        raise NotNative(self._value)

    __float__ = __int__ = __index__


@known(str.format)
def _format(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if all(isinstance(v, Const) for v in (*args, *kwargs.values())):
        return fold(s, str.format, args, kwargs)
    marks: list[DeferredText] = []
    values = [_late(s, a, marks) for a in args[1:]]
    named = {k: _late(s, v, marks) for k, v in kwargs.items()}
    text = args[0].native()
    return _made(s, lambda: string.Formatter().vformat(text, values, named), marks)


@known(str.format_map)
def _format_map(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[1], (DictValue, NamespaceValue)):
        return fold(s, str.format_map, args, kwargs)
    return _format(s, args[:1], {k.native(): v for k, v in args[1].pairs(s)})


@known(str.__mod__)
def _percent(s: Session, args: Args, kwargs: Kwargs) -> Value:
    text, given = args[0].native(), args[1]
    marks: list[DeferredText] = []
    values: Any
    if isinstance(given, TupleValue):
        values = tuple(_late(s, v, marks) for v in given.all(s))
    elif isinstance(given, DictValue):
        values = {n: _late(s, given.get(s, n), marks) for n in given.entries}
    else:
        values = (_late(s, given, marks),)
    return _made(s, lambda: text % values, marks)


def _late(s: Session, value: Value | None, marks: list[DeferredText]) -> Any:
    return value.value if isinstance(value, Const) else FormattedPart(s, value, marks)  # type: ignore[arg-type]


def _made(s: Session, make: Any, marks: list[DeferredText]) -> Value:
    try:
        text = make()
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        return s.throw_native(error)
    pieces = re.split("\0(\\d+)\0", text)
    return joined(s, [marks[int(p)] if k % 2 else Const(p) for k, p in enumerate(pieces)])
