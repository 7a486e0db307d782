"""`str`, `repr` and `format` of traced values."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.cpython import special_results
from dovetail.capture.numbers import input_numbers
from dovetail.capture.numbers.graph_numbers import InGraph
from dovetail.capture.outside import stable_arguments
from dovetail.capture.protocols.operators import native_call
from dovetail.capture.values.base import Const, NotNative, Session, Value
from dovetail.capture.values.containers import DictValue, SequenceValue
from dovetail.capture.values.deferred import DeferredText, Snapshot
from dovetail.capture.values.deferred import joined as late_text
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.objects import ExceptionValue, ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import TensorValue

FUNCTION = types.FunctionType


def to_string(s: Session, value: Value, spec: str, function: Callable[..., str] = str) -> Value:
    """`format(value, spec)`, or that of `function(value)`; the text of a tensor is made after the graph."""
    if function is format:
        if isinstance(value, (TensorValue, InGraph)):
            return _formatted_later(s, value, spec)
        if type(s.static(value.cls, "__format__")) is FUNCTION:
            found = s.call_special(value, "__format__", Const(spec))
            return special_results.result(s, value, "__format__", found)
        if spec and s.static(value.cls, "__format__") is object.__format__:
            s.throw(TypeError, f"unsupported format string passed to {value.cls.__name__}.__format__")
        function = str
    if isinstance(value, Const):
        made = input_numbers.text(s, value, spec, function)
        if made is not None:
            return made
        return native_call(s, lambda v: format(v if spec else function(v), spec), value.value)
    if isinstance(value, (TensorValue, InGraph)):
        return DeferredText(s, [(function, _kept(s, value), spec)])
    if isinstance(value, DeferredText):
        return value if function is str and not spec else value.native()
    text = _text(s, value, function)
    if isinstance(text, DeferredText):
        return text if not spec else text.native()
    return native_call(s, format, text.native(), spec) if spec else text


def _formatted_later(s: Session, value: Any, spec: str) -> Value:
    """Whether a type has a format is known before the value is."""
    text = DeferredText(s, [(format, _kept(s, value), spec)])
    if not spec:
        return text
    if isinstance(value, InGraph):
        kind = value.cls
    elif value.cls is torch.Tensor and value.fake.dim() == 0 and value.fake.device.type != "meta":
        kind = _kind(value.fake.dtype)
    else:
        return s.throw(TypeError, f"unsupported format string passed to {value.cls.__name__}.__format__")
    native_call(s, format, kind(), spec)
    return text.native() if spec[-1] == "c" else text  # not every number is a character's


def _kind(dtype: torch.dtype) -> type:
    """What `item()` gives."""
    if dtype is torch.bool:
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


def _kept(s: Session, value: Value) -> Value:
    return Snapshot(s, value) if isinstance(value, TensorValue) else value


def _text(s: Session, value: Value, function: Callable[[Any], str]) -> Value:
    name = "__str__" if function is str else "__repr__"
    if type(s.static(value.cls, name)) is FUNCTION:
        return special_results.result(s, value, name, s.call_special(value, name))
    if name == "__str__" and not isinstance(value, ExceptionValue):
        if type(s.static(value.cls, "__repr__")) is FUNCTION:
            return _text(s, value, repr)
        name = "__repr__"
    if isinstance(value, ExceptionValue):
        return native_call(s, lambda: function(_native_exception(s, value)))
    writer = next((w for kind, w in WRITERS.items() if isinstance(value, kind)), None)
    if writer is not None:
        return writer(s, value)
    try:
        if type(value) is ObjectValue and value.source is not None:
            raise NotNative(value)  # its contents are not guarded
        return native_call(s, function, value.native())
    except NotNative:
        return s.unsupported("text-of-object", f"the text of {value.describe()} is needed while capturing")


def _native_exception(s: Session, value: ExceptionValue) -> BaseException:
    if value.original is not None:
        return value.original
    made = value.cls.__new__(value.cls, *[stable_arguments.native(s, a) for a in value.args])
    assert isinstance(made, BaseException)
    return made


# ---------------------------------------------------------------- containers


def joined(s: Session, parts: list[Value]) -> Value:
    """The concatenation of strings."""
    return input_numbers.joined(s, parts) or late_text(s, parts)


def _reprs(s: Session, items: list[Value]) -> list[Value]:
    return [to_string(s, item, "", repr) for item in items]


COMMA = Const(", ")


def separated(parts: list[Value], separator: Value = COMMA) -> list[Value]:
    """The parts, with the separator between them."""
    return [text for part in parts for text in (separator, part)][1:]


def _guarded(function: Callable[[Any, Any], Value]) -> Callable[[Any, Any], Value]:
    """A container inside itself is shown as dots."""

    def write(s: Session, value: Any) -> Value:
        if id(value) in s.writing:
            return Const(_DOTS.get(value.cls, "..."))
        s.writing.add(id(value))
        try:
            return function(s, value)
        finally:
            s.writing.discard(id(value))

    return write


_DOTS = {list: "[...]", dict: "{...}", deque: "[...]", tuple: "(...)"}


@_guarded
def _sequence(s: Session, value: Any) -> Value:
    cls, parts = value.cls, separated(_reprs(s, value.all(s)))
    if issubclass(cls, deque):
        limit = "" if value.maxlen is None else f", maxlen={value.maxlen}"
        return joined(s, [Const(f"{cls.__name__}(["), *parts, Const(f"]{limit})")])
    if issubclass(cls, list):
        return joined(s, [Const("["), *parts, Const("]")])
    before, after = ("torch.Size([", "])") if cls.__name__ == "Size" else ("(", ",)" if len(value.items) == 1 else ")")
    return joined(s, [Const(before), *parts, Const(after)])


# How this Python shows an OrderedDict: as pairs, or (since 3.12) as a dictionary.
ORDERED = ("[(", ", ", ")]") if "[" in repr(OrderedDict(a=1)) else ("{", ": ", "}")


@_guarded
def _mapping(s: Session, value: Any) -> Value:
    cls, pairs = value.cls, value.pairs(s)
    if issubclass(cls, OrderedDict):
        before, between, after = ORDERED
        left, right = Const(before[1:]), Const(after[:-1])
        rows = [joined(s, [left, k, Const(between), v, right]) for k, v in _pair_texts(s, pairs)]
        inside = [Const(before[0]), *separated(rows), Const(after[-1])] if rows else []
        return joined(s, [Const(f"{cls.__name__}("), *inside, Const(")")])
    rows = [joined(s, [k, Const(": "), v]) for k, v in _pair_texts(s, pairs)]
    text = joined(s, [Const("{"), *separated(rows), Const("}")])
    if issubclass(cls, defaultdict):
        factory = Const("None") if value.default_factory is None else to_string(s, value.default_factory, "", repr)
        return joined(s, [Const(f"{cls.__name__}("), factory, Const(", "), text, Const(")")])
    return text


def _pair_texts(s: Session, pairs: Any) -> list[tuple[Value, Value]]:
    return [(to_string(s, k, "", repr), to_string(s, v, "", repr)) for k, v in pairs]


def _set(s: Session, value: Any) -> Value:
    if not value.entries:
        return Const(f"{value.cls.__name__}()")
    parts = separated(_reprs(s, s.unpack(value)))
    if value.cls is set:
        return joined(s, [Const("{"), *parts, Const("}")])
    return joined(s, [Const(f"{value.cls.__name__}({{"), *parts, Const("})")])


WRITERS: dict[type, Callable[[Any, Any], Value]] = {
    SequenceValue: _sequence, DictValue: _mapping, SetValue: _set, NamespaceValue: _mapping,
}  # fmt: skip
