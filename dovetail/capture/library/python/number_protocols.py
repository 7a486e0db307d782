"""Built-in functions of numbers, which ask an object for a special method: `__index__`, `__divmod__`, `__round__`."""

from __future__ import annotations

import operator
from typing import Any

import torch

from dovetail.capture.calling.calls import fold
from dovetail.capture.numbers import size_ranges
from dovetail.capture.protocols.subscripts import indexed_by
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue


@known(range)
def _range(s: Session, args: Args, kwargs: Kwargs) -> Value:
    for arg in args:
        if isinstance(arg, TensorValue):
            s.torch_method("item", [arg], {})
    args = [indexed_by(s, a) if isinstance(a, ObjectValue) else a for a in args]
    return size_ranges.between(s, args) or fold(s, range, args, kwargs)


@known(operator.index)
def _index(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and args[0].cls is int:
        return args[0]  # whatever it is
    if isinstance(args[0], (ObjectValue, TensorValue)):
        return indexed_by(s, args[0])
    return fold(s, operator.index, args, kwargs)


@known(divmod)
def _divmod(s: Session, args: Args, kwargs: Kwargs) -> Value:
    left, right = args
    for value, other, name in ((left, right, "__divmod__"), (right, left, "__rdivmod__")):
        if type(s.static(value.cls, name)) is type(_divmod) and not isinstance(value, TensorValue):
            result = s.call_special(value, name, other)
            if not (isinstance(result, Const) and result.value is NotImplemented):
                return result
    if any(isinstance(a, TensorValue) for a in args):
        names = " and ".join(repr(a.cls.__name__) for a in args)
        s.throw(TypeError, f"unsupported operand type(s) for divmod(): {names}")
    return TupleValue([s.binary("floordiv", *args), s.binary("mod", *args)])


@known(pow)
def _pow(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.binary("pow", *args) if len(args) == 2 else _special_or_fold(s, pow, "__pow__", args)


@known(abs, operator.abs)
def _abs(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        return s.torch_call(operator.abs, args, {})
    return _special_or_fold(s, abs, "__abs__", args)


@known(round)
def _round(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue) and not hasattr(torch.Tensor, "__round__"):
        s.throw(TypeError, f"type {args[0].cls.__name__} doesn't define __round__ method")
    return _special_or_fold(s, round, "__round__", args)


def _special_or_fold(s: Session, function: Any, special: str, args: Args) -> Value:
    method = s.find_special(args[0], special) if isinstance(args[0], ObjectValue) else None
    return s.call(method, *args[1:]) if method is not None else fold(s, function, args, {})
