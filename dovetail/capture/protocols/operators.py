"""Operators and the protocols behind them: truth and equality.

Each looks first for a native answer (both operands known), then for a graph operation (a tensor
takes part), then follows Python's special-method protocol.
"""

from __future__ import annotations

import operator
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dovetail.capture.interpreter.tail_calls import of_method, protocol
from dovetail.capture.numbers import dispatch, input_numbers, optimizer_counters
from dovetail.capture.numbers.graph_numbers import GraphNumber
from dovetail.capture.numbers.tensor_numbers import TensorNumber
from dovetail.capture.outside.distinct_objects import rely_on_difference, same_number, same_varying
from dovetail.capture.polyfills.protocols import ask, equate, operate, outlast
from dovetail.capture.tables.operator_names import BINARY, COMPARE, IN_PLACE, SIGNS, UNARY
from dovetail.capture.tensors import literals, unit_interval
from dovetail.capture.tensors.extremes import beside
from dovetail.capture.values.array import NumberValue
from dovetail.capture.values.base import MISSING, Const, Session, Value, boolean, is_singleton
from dovetail.capture.values.callables import ClassValue, FunctionValue, KnownValue, MethodValue
from dovetail.capture.values.containers import (
    ListValue,
    SequenceValue,
    SliceValue,
    TupleValue,
)
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import Answer, ChosenTensor, TensorValue, refuse_choice
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Computed


def native_call(s: Session, function: Callable[..., Any], *args: Any) -> Value:
    """Run a pure native function for the traced program; its exception is the program's."""
    try:
        result = function(*args)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        return s.throw_native(error)
    return s.from_native(result)


def binary(s: Session, name: str, left: Value, right: Value, *, tail: bool = False) -> Value:
    """`left op right`; in-place names ("iadd") fall back to the plain operator.

    `tail`, here and below: is the result that of the running instruction?
    """
    made = dispatch.binary(s, name, left, right)
    if made is not None:
        return made
    if isinstance(left, Const) and isinstance(right, Const):
        return native_call(s, BINARY[name], left.value, right.value)
    left, right = beside(s, name, left, _number_beside(left, right))
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        if name in IN_PLACE and not isinstance(left, TensorValue):
            name = name[1:]
        text = isinstance(left, Const) and issubclass(left.cls, (str, bytes))
        if _tensor_operand(left) and _tensor_operand(right) and not text:
            return s.torch_call(BINARY[name], [left, right], {})
    first = [(left, right, f"__{name}__")] if name in IN_PLACE else []
    name = name[1:] if first else name
    return _protocol(s, left, right, f"__{name}__", f"__r{name}__", SIGNS[name], tail, first)


def _number_beside(left: Value, right: Value) -> Value:
    """A NumPy number that varies, beside a tensor whose dtype the result has anyway."""
    numbers = isinstance(right, NumberValue) and isinstance(left, TensorValue)
    return right.tensor if numbers and left.fake.dim() and left.fake.is_floating_point() else right  # type: ignore[attr-defined]


def _tensor_operand(value: Value) -> bool:
    return isinstance(value, (TensorValue, Const, TupleValue, ListValue, GraphNumber, TensorNumber))


Attempt = tuple[Value, Value, str]  # the receiver of a method, its argument, its name


def _protocol(
    s: Session, left: Value, right: Value, name: str, reflected: str, sign: str, tail: bool, first: list[Attempt]
) -> Value:
    """Methods of native classes are called here; from the first one in Python on, `operate` does it."""
    attempts: list[Attempt] = [(left, right, name), (right, left, reflected)]
    if left.cls is right.cls:
        if sign not in COMPARE:
            attempts.pop()
    elif issubclass(right.type, left.type) and s.static(right.type, reflected) is not s.static(left.type, reflected):
        attempts.reverse()
    attempts = [*first, *attempts]
    for number, (receiver, other, method_name) in enumerate(attempts, 1):
        method = s.find_special(receiver, method_name) if defines(s, receiver, method_name) else None
        if method is not None and of_method(method) is not None:
            others = [part for r, o, n in attempts[number:] for part in (r, Const(n), o)]
            given = [method, other, TupleValue(others), Const(_refusal(sign, left, right))]
            return protocol(s, operate, given, tail)
        if method is not None:
            result = s.call(method, other)
            if not is_singleton(result, NotImplemented):
                return result
    return s.throw(TypeError, _refusal(sign, left, right))


def _refusal(sign: str, left: Value, right: Value) -> str:
    """What Python says where no method knows."""
    if sign in COMPARE:
        return f"{sign!r} not supported between instances of {left.cls.__name__!r} and {right.cls.__name__!r}"
    if sign == "+" and issubclass(left.cls, JOINED):
        kind = next(c.__name__ for c in JOINED if issubclass(left.cls, c))
        return f'can only concatenate {kind} (not "{right.cls.__name__}") to {kind}'
    return f"unsupported operand type(s) for {sign}: {left.cls.__name__!r} and {right.cls.__name__!r}"


JOINED = (list, tuple, str, deque)


def unary(s: Session, name: str, value: Value) -> Value:
    """`-value` and its like."""
    function, special, sign = UNARY[name]
    made = dispatch.unary(s, name, value)
    if made is not None:
        return made
    if isinstance(value, Const):
        return _inverted(s, value) if function is operator.invert else native_call(s, function, value.value)
    if isinstance(value, TensorValue):
        return s.torch_call(function, [value], {})
    method = s.find_special(value, special)
    if method is None:
        return s.throw(TypeError, f"bad operand type for unary {sign}: {value.cls.__name__!r}")
    return s.call(method)


def _inverted(s: Session, value: Const) -> Value:
    """Python 3.12 and later warn about `~True`: the program shall, on every call, and not its capture."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = native_call(s, operator.invert, value.value)
    for warning in caught:
        s.call(s.wrap(warnings.warn, None), Const(str(warning.message)), s.wrap(warning.category, None))
    return result


def compare(s: Session, sign: str, left: Value, right: Value, *, tail: bool = False) -> Value:
    """`left sign right`."""
    function, name, reflected = COMPARE[sign]
    made = dispatch.compare(s, sign, left, right)
    if made is not None:
        return made
    if isinstance(left, Const) and isinstance(right, Const):
        return native_call(s, function, left.value, right.value)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        if _tensor_operand(left) and _tensor_operand(right) and not _tensor_to_none(left, right):
            return s.torch_call(function, [left, right], {})
    if sign in ("==", "!="):
        return _equality(s, sign, left, right, tail)
    return _protocol(s, left, right, name, reflected, sign, tail, [])


def _tensor_to_none(left: Value, right: Value) -> bool:
    return any(isinstance(v, Const) and v.cls in (type(None), str) for v in (left, right))


def _equality(s: Session, sign: str, left: Value, right: Value, tail: bool) -> Value:
    want = sign == "=="
    both = (left, right)
    if KnownValue in map(type, both) and all(isinstance(v, (KnownValue, Const)) for v in both):
        return native_call(s, COMPARE[sign][0], left.native(), right.native())
    if isinstance(left, MethodValue) and isinstance(right, MethodValue):
        equal_parts = same(s, left.function, right.function) and same(s, left.receiver, right.receiver)
        return boolean(equal_parts is want)
    attempts = []
    for receiver, other in ((left, right), (right, left)):
        for name in ("__eq__",) if want else ("__ne__", "__eq__"):  # `object.__ne__` is the opposite of `__eq__`
            if not _by_identity(receiver) and defines(s, receiver, name):
                attempts.append((receiver, other, name, not want and name == "__eq__"))
                break
    for number, (receiver, other, name, opposite) in enumerate(attempts):
        method: Any = s.find_special(receiver, name)
        if of_method(method) is not None:
            others: list[Value] = []
            for each, argument, named, opposed in attempts[number + 1 :]:
                others += [each, Const(named), argument, boolean(opposed)]
            given = [method, other, boolean(opposite), TupleValue(others), left, right, boolean(want)]
            return protocol(s, equate, given, tail)
        result = s.call(method, other)
        if not is_singleton(result, NotImplemented):
            return boolean(not truth(s, result)) if opposite else result
    return boolean(same(s, left, right) is want)


def defines(s: Session, value: Value, name: str) -> bool:
    """Does the class have a special method of its own, not `object`'s, which never knows?"""
    return s.static(value.cls, name) is not s.static(object, name)


def _by_identity(value: Value) -> bool:
    """Functions and classes are equal to themselves alone; other native objects, such as dates, are asked."""
    return type(value) in IDENTITY or type(value) is KnownValue and callable(value.real)


IDENTITY = (FunctionValue, MethodValue, ClassValue)


def equal(s: Session, left: Value, right: Value) -> bool:
    """`left is right or left == right`, as containers compare."""
    if input_numbers.varies(left) or input_numbers.varies(right):
        if left is right or truth(s, compare(s, "==", left, right)):
            return True
        return left.cls is right.cls is float and same_varying(s, left, right)
    if isinstance(left, Const) and isinstance(right, Const):
        if isinstance(left.value, FLOATS) and isinstance(right.value, (*FLOATS, int)):
            return bool(left.value == right.value) or same(s, left, right)
    return same(s, left, right) or truth(s, compare(s, "==", left, right))


def same(s: Session, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    for rule in SAME:
        known = rule(s, left, right)
        if known is not None:
            return known
    if ChosenTensor in (type(left), type(right)) and isinstance(left, TensorValue) and isinstance(right, TensorValue):
        refuse_choice(s, "asks which tensor it is")
    rely_on_difference(s, left, right)
    return False


def _same_constants(s: Session, left: Value, right: Value) -> bool | None:
    if not isinstance(left, Const) or not isinstance(right, Const):
        return None
    if left.cls is not right.cls:
        return False
    if isinstance(left.value, REMADE):
        return same_number(s, left, right)
    interned = type(left.value) is type(right.value) and isinstance(left.value, INTERNED)
    return left.value is right.value or interned and left.value == right.value


def _same_answers(s: Session, left: Value, right: Value) -> bool | None:
    if not isinstance(left, Answer) and not isinstance(right, Answer):
        return None
    return left.cls is right.cls and truth(s, left) is truth(s, right)


def _same_numbers(s: Session, left: Value, right: Value) -> bool | None:
    if isinstance(left, NumberValue) and isinstance(right, (NumberValue, Const)) and left.type is right.type:
        return same_varying(s, left, right)
    if isinstance(right, NumberValue) and isinstance(left, Const):
        return same(s, right, left)
    return None


def _same_objects(s: Session, left: Value, right: Value) -> bool | None:
    """Functions, classes and other objects known by identity; namespaces are those of what they belong to."""
    if isinstance(left, KnownValue) and isinstance(right, KnownValue):
        return left.real is right.real
    if isinstance(left, FunctionValue) and isinstance(right, FunctionValue):
        return True if left.real is not MISSING and left.real is right.real else None
    if isinstance(left, NamespaceValue) and isinstance(right, NamespaceValue):
        return same(s, left.base, right.base)
    return None


def _same_sequences(s: Session, left: Value, right: Value) -> bool | None:
    """A tuple or slice from outside is a value for each path to it."""
    if not isinstance(left, (SequenceValue, SliceValue)) or left.real is MISSING:
        return None
    if left.real is not getattr(right, "real", MISSING) or left.source is None or right.source is None:
        return None
    s.guard(left.source, GuardKind.ALIAS, right.source)
    return True


def _same_references(s: Session, left: Value, right: Value) -> bool | None:
    """One that is made here may be the one that is outside already."""
    made = [v for v in (left, right) if isinstance(v, ObjectValue)]
    if left.cls is right.cls is weakref.ref and len(made) == 1:
        s.unsupported("weak-reference", f"whether {left.describe()} is {right.describe()} cannot be told")
    return None


#: None: another rule decides.
SAME: tuple[Callable[[Session, Value, Value], bool | None], ...] = (
    _same_constants,
    _same_answers,
    _same_numbers,
    _same_objects,
    _same_sequences,
    _same_references,
)


INTERNED, FLOATS = (int, str, bytes), (float, complex)
#: What the entry knows by its value, and equal ones may be one object or several.
REMADE = (*FLOATS, np.generic, np.dtype, range, torch.device)


def truth(s: Session, value: Value, *, tail: bool = False) -> bool:
    """`bool(value)`, while capturing."""
    known = dispatch.truth(s, value)
    if known is not None:
        return known
    value = value.tensor if isinstance(value, Answer) else value
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, SequenceValue):
        if s.static(value.cls, "__bool__") is MISSING:
            return sequence_truth(s, value)
    if isinstance(value, TensorValue):
        constant = literals.number(s, value)
        decided = optimizer_counters.outcome(s, value) if constant is None else bool(constant.value)
        decided = unit_interval.outcome(value) if decided is None else decided
        if decided is not None:
            return decided
        return s.unsupported(
            "data-dependent-branch", "the code branches on the value of a tensor",
            "Use torch.where or torch.cond, or move the branch out of the compiled function.",
        )
    for name in ("__bool__", "__len__"):
        if s.static(value.cls, name) is not MISSING:
            method: Any = s.find_special(value, name)
            if name == "__bool__":
                return bool(protocol(s, ask, [method, value, Const(name)], tail).native())
            return truth(s, protocol(s, outlast, [method, value], tail))
    return True


def sequence_truth(s: Session, value: SequenceValue) -> bool:
    """Does it hold anything?"""
    if not value.divisible or value.head or value.tail:
        return bool(value.head or value.tail or value.items)
    span: Any = value.span
    more: bool = len(span.real) > span.taken - span.grown
    s.guard(Computed(f"(len({{}}) > {span.taken - span.grown})", (span.source,)), GuardKind.ID, more)
    return more
