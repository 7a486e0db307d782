"""Built-in functions and types."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.calling.calls import fold
from dovetail.capture.containers import hashing
from dovetail.capture.containers.hashing import set_entries
from dovetail.capture.cpython import special_results
from dovetail.capture.handlers.stack import super_parts
from dovetail.capture.interpreter.tail_calls import OPERATOR
from dovetail.capture.library.python.class_creation import make_class
from dovetail.capture.numbers import dispatch, unbacked_sizes
from dovetail.capture.numbers.input_numbers import InputNumber
from dovetail.capture.outside.definitions import computes_class
from dovetail.capture.process import unguarded_facts
from dovetail.capture.process.trusted_code import trusted
from dovetail.capture.protocols.attributes import not_a_proxy
from dovetail.capture.tables.known_callables import known
from dovetail.capture.tensors.marked import MARKS, is_marked
from dovetail.capture.values.base import (
    FALSE,
    MISSING,
    NONE,
    Args,
    Const,
    Kwargs,
    LazyConst,
    Raised,
    Session,
    Value,
    boolean,
    is_singleton,
)
from dovetail.capture.values.callables import (
    ClassValue,
    FunctionValue,
    KnownValue,
    MethodValue,
    SuperValue,
)
from dovetail.capture.values.containers import ListValue, SequenceValue, SliceValue, TupleValue, copied
from dovetail.capture.values.objects import ModuleValue, ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import ChosenTensor, TensorValue, refuse_choice
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Computed

FUNCTION = types.FunctionType


known(len)(lambda s, args, kwargs: s.length(args[0], s.awaited() is OPERATOR))


@known(isinstance)
def _isinstance(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value, spec = args
    if isinstance(value, SuperValue):
        return FALSE
    return boolean(any(_instance_of(s, value, c) for c in _classes(s, spec)))


def _classes(s: Session, spec: Value) -> list[Any]:
    if isinstance(spec, TupleValue):
        return [c for item in spec.all(s) for c in _classes(s, item)]
    native = spec.native()
    return list(native.__args__) if not isinstance(native, type) and hasattr(native, "__args__") else [native]


def _instance_of(s: Session, value: Value, cls: Any) -> bool:
    if cls in MARKS:
        return is_marked(s, value, cls)
    if isinstance(value, TensorValue):
        own = _plain_meta(cls) or isinstance(cls, type) and issubclass(cls, torch.Tensor)
        return issubclass(value.cls, cls) if own else isinstance(value.fake, cls)
    if isinstance(value, (Const, KnownValue)):  # of what is late, the type is guarded
        native = value.real if isinstance(value, LazyConst) else value.native()
        found = isinstance(native, cls)
        unguarded_facts.subclass(s, type(native), cls, found)
        return found
    check = _own_check(s, cls, "__instancecheck__")
    if check is not None:
        return value.type is cls or s.truth(s.call(check, value))
    return _is_subclass(s, value.type, cls) or any(_is_subclass(s, c, cls) for c in _claimed(s, value))


def _plain_meta(cls: Any) -> bool:
    return type(cls).__instancecheck__ is type.__instancecheck__


def _own_check(s: Session, cls: Any, name: str) -> Value | None:
    """What the program's own metaclass has to say."""
    check = s.static(type(cls), name)
    own = type(check) is FUNCTION and not trusted(check.__globals__.get("__name__") or "")
    return MethodValue(s.wrap(check, None), s.wrap(cls, None)) if own else None


def _is_subclass(s: Session, cls: Any, other: Any) -> bool:
    own = _own_check(s, other, "__subclasscheck__")
    if own is not None:
        return s.truth(s.call(own, s.wrap(cls, None)))
    try:
        found = issubclass(cls, other)
        unguarded_facts.subclass(s, cls, other, found)
        return found
    except TypeError as error:
        return s.throw_native(error)


def _claimed(s: Session, value: Value) -> list[type]:
    """The class that an object says it has, where that is computed."""
    not_a_proxy(s, value)
    if type(s.static(value.cls, "__getattribute__")) is not FUNCTION and not computes_class(s, value):
        return []
    found = s.try_attr(value, "__class__")
    return [found.real] if isinstance(found, ClassValue) and found.real is not value.type else []


@known(issubclass)
def _issubclass(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return boolean(any(_is_subclass(s, args[0].native(), c) for c in _classes(s, args[1])))


@known(type)
def _type(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return s.wrap(args[0].type, None)
    return make_class(s, args, kwargs)


known(super)(lambda s, args, kwargs: SuperValue(*super_parts(args[0], args[1])))


@known(callable)
def is_callable(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, KnownValue):
        return boolean(callable(value.real))
    made = isinstance(value, (FunctionValue, MethodValue))
    return boolean(made or s.static(value.cls, "__call__") is not MISSING)


@known(id)
def _id(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, ChosenTensor):
        refuse_choice(s, "asks for the id of a tensor")
    if isinstance(value, TensorValue) and value.origin is not None and value.source is not None:
        return InputNumber(s, id(value.origin), Computed("id({})", (value.source,)), True)
    real = getattr(value, "real", MISSING)
    if real is MISSING:
        return Const(id(value))
    if isinstance(value, ModuleValue):
        value.native()
    elif value.source is not None and not isinstance(value, (KnownValue, FunctionValue)):
        s.guard(value.source, GuardKind.ID, real)
    return Const(id(real))


@known(hash)
def _hash(s: Session, args: Args, kwargs: Kwargs) -> Value:
    method = s.static(args[0].cls, "__hash__")
    if type(method) is type(_hash):
        return special_results.result(s, args[0], "__hash__", s.call_special(args[0], "__hash__"))
    if any(isinstance(part, TensorValue) for part in hashing.identified(s, args[0])):
        s.unsupported("tensor-hash", "the code hashes a tuple of tensors, which has their addresses in it")
    key = s.hashable(args[0])
    unguarded_facts.text_order(s, [key])
    return Const(hash(key))


def unless(error: type, call: Callable[[], Value]) -> Value | None:
    """The result of a call; None where it raises that."""
    try:
        return call()
    except Raised as raised:
        if not issubclass(raised.value.cls, error):
            raise
        return None


known(object.__init__, object.__init_subclass__, object.__dict__["__init_subclass__"])(lambda s, args, kwargs: NONE)
known(object.__eq__)(lambda s, args, kwargs: boolean(True) if s.same(*args) else Const(NotImplemented))


@known(object.__ne__)
def _object_ne(s: Session, args: Args, kwargs: Kwargs) -> Value:
    result = s.call_method(args[0], "__eq__", args[1])
    return result if is_singleton(result, NotImplemented) else boolean(not s.truth(result))


# ---------------------------------------------------------------- conversions


@known(bool)
def _bool(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return unbacked_sizes.claimed(s, args[0]) or boolean(s.truth(args[0])) if args else FALSE


def _number(cls: type, special: str) -> Any:
    def convert(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], TensorValue):
            number = s.torch_method("item", [args[0]], {})
            return dispatch.call(s, cls, [number]) or fold(s, cls, [number], {})
        if args and isinstance(args[0], ObjectValue):
            method = s.find_special(args[0], special)
            if method is not None:
                return special_results.result(s, args[0], special, s.call(method))
        return fold(s, cls, args, kwargs)

    return convert


known(int)(_number(int, "__int__"))
known(float)(_number(float, "__float__"))
known(complex)(_number(complex, "__complex__"))


@known(str)
def _str(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        return fold(s, str, args, kwargs)
    return s.to_string(args[0], "") if args else Const("")


known(repr)(lambda s, args, kwargs: s.to_string(args[0], "", repr))


@known(ascii)
def _ascii(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return Const(s.to_string(args[0], "", repr).native().encode("ascii", "backslashreplace").decode())


known(format)(lambda s, args, kwargs: s.to_string(args[0], args[1].native() if len(args) > 1 else "", format))
known(list)(lambda s, args, kwargs: _listed(s, args, ListValue))


@known(tuple)
def _tuple(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return _listed(s, args, TupleValue)


def _listed(s: Session, args: Args, kind: type[ListValue | TupleValue]) -> Value:
    if args and isinstance(args[0], SequenceValue) and args[0].divisible:
        return copied(s, args[0], kind)
    return kind(s.unpack(args[0]) if args else [])


known(torch.Size)(lambda s, args, kwargs: TupleValue(s.unpack(args[0]) if args else [], torch.Size))


def _make_set(cls: type) -> Any:
    def make(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if cls is frozenset and args and isinstance(args[0], SetValue) and args[0].cls is frozenset:
            return args[0]
        made = SetValue(cls)
        if args:
            made.entries.take_in(set_entries(s, args[0]))
        return made

    return make


known(set)(_make_set(set))
known(frozenset)(_make_set(frozenset))


@known(slice)
def _slice(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return SliceValue(NONE, args[0], NONE)
    return SliceValue(args[0], args[1], args[2] if len(args) > 2 else NONE)
