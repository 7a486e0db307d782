"""Which frame's result is, as it is, the result of an instruction: frames inside such a frame can be suspended.

`Session.expected` holds its code (or the generator that it advances) while the instruction makes its call.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dovetail.bytecode import decode
from dovetail.capture.interpreter.frame import Frame, GeneratorValue
from dovetail.capture.polyfills.iteration import (
    CONSUMERS,
    CONSUMING,
    WITH_MORE,
    WITH_OPTIONS,
    enumerated,
    filtered,
    mapped,
    mapped_one,
    zipped,
)
from dovetail.capture.polyfills.protocols import call_index, fetch, keep
from dovetail.capture.tables.known_callables import STANDINS
from dovetail.capture.values.base import MISSING, Const, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue, KnownValue, MethodValue
from dovetail.capture.values.derived_iterators import Enumerating, Filtering, Mapping, Zipping
from dovetail.capture.values.objects import ExceptionValue, ModuleValue, ObjectValue

if TYPE_CHECKING:
    from dovetail.capture.session import Session

FUNCTION = types.FunctionType
MODULE_SETATTR = torch.nn.Module.__setattr__
ADVANCING = (
    *(getattr(types.GeneratorType, n) for n in ("send", "throw", "__next__")),
    *(getattr(types.CoroutineType, n) for n in ("send", "throw")),
)

OPERATOR: Any = object()  # `Session.expected` while an operator's instruction runs, or `value.name` is loaded


def of_call(function: Any, args: list[Any]) -> Any:
    """For `function(*args)`."""
    if isinstance(function, MethodValue):
        if type(function.receiver) is GeneratorValue and function.function.native() in ADVANCING:
            return function.receiver
        function = function.function
    for kind, awaited in AWAITED:
        if isinstance(function, kind):
            return awaited(function, args)
    return None


def _of_known(function: Any, args: list[Any]) -> Any:
    real = function.real
    if any(real is each for each in LOOKING_UP):  # by identity: what it is may refuse to be compared
        return OPERATOR
    return of_instance(type(real))


#: Built-in functions that call methods of their arguments, and say themselves which one.
LOOKING_UP = frozenset((len, next, getattr, setattr, hasattr))


def of_instance(cls: type) -> Any:
    """The code of `__call__`."""
    call = getattr(cls, "__call__", None)  # noqa: B004
    if type(call) is not FUNCTION:
        call = STANDINS.get(call) if type(call).__hash__ is not None else None
    return getattr(call, "__code__", None)


def of_forward(cls: type) -> Any:
    """The code of the module's `forward`."""
    return getattr(inspect.getattr_static(cls, "forward", None), "__code__", None)


AWAITED: tuple[tuple[type, Callable[[Any, list[Any]], Any]], ...] = (
    (FunctionValue, lambda function, args: function.code),
    (ModuleValue, lambda function, args: of_forward(function.cls)),
    (ClassValue, lambda function, args: function),  # see `classes.instantiate`
    (KnownValue, _of_known),
    (ObjectValue, lambda function, args: of_instance(function.cls)),
)


def of_method(method: Any) -> Any:
    """The code of a Python function or method."""
    if isinstance(method, MethodValue):
        method = method.function
    return method.code if isinstance(method, FunctionValue) else None


def of_protocol(method: Any) -> Any:
    """The same, for a method that the interpreter calls on its own.

    PyTorch's own are one step as a whole: ending graphs inside a profiler's `__init__` gains nothing.
    """
    function = method.function if isinstance(method, MethodValue) else method
    if not isinstance(function, FunctionValue) or (function.globals.get("__name__") or "").startswith("torch."):
        return None
    return function.code


def of_attribute(s: Session, value: Value, name: str) -> Any:
    """For `value.name`, where a function computes it."""
    if not isinstance(value, ObjectValue) or isinstance(value, ExceptionValue) or name.startswith("__"):
        return None
    if type(s.static(value.cls, "__getattribute__")) is FUNCTION:
        return None
    static, fallback = s.static(value.cls, name), s.static(value.cls, "__getattr__")
    if static is MISSING:
        return fallback.__code__ if type(fallback) is FUNCTION else None
    if fallback is not MISSING or type(static) is functools.cached_property:
        return OPERATOR if type(static) in (property, functools.cached_property) else None
    getter = static.fget if type(static) is property else getattr(type(static), "__get__", None)
    return getter.__code__ if type(getter) is FUNCTION else None


def of_setter(s: Session, value: Value, name: str) -> Any:
    """For `value.name = ...`."""
    if type(value) not in (ObjectValue, ModuleValue):
        return None
    setter = s.static(value.cls, "__setattr__")
    if type(setter) is FUNCTION and (setter is not MODULE_SETATTR or type(value) is not ModuleValue):
        return setter.__code__
    static = s.static(value.cls, name)
    setter = static.fset if type(static) is property else getattr(type(static), "__set__", None)
    return setter.__code__ if type(setter) is FUNCTION else None


def of_special(s: Session, value: Value, name: str) -> Any:
    """For a special method whose result nothing is done with."""
    method = s.static(value.cls, name) if type(value) in (ObjectValue, ModuleValue) else MISSING
    if type(method) is not FUNCTION or (method.__module__ or "").startswith("torch."):
        return None
    return method.__code__


def of_next(s: Session, iterator: Value) -> Any:
    """For advancing it: the generator, or the code of `__next__`."""
    return iterator if type(iterator) is GeneratorValue else of_special(s, iterator, "__next__")


def remaining(s: Session, function: Any, values: dict[str, Value], method: Any, call: Callable[[], Value]) -> Value:
    """`call()`, which calls `method`, made by the frame of a function of `polyfills.protocols`.

    That frame goes on with the result after a graph break inside; without one, the caller does.
    """
    return within(s, function, values, of_protocol(method), call)


def within(s: Session, function: Any, values: dict[str, Value], awaited: Any, call: Callable[[], Value]) -> Value:
    """The same for a call that gives the result of the frame `awaited`, as it is; None: there is no such frame."""
    if awaited is None:
        return call()
    code = function.__code__
    frame = Frame(s, decode(code), s.scope(function.__globals__, function.__module__), None)
    frame.locals = dict(values)
    frame.at, frame.tick = call_index(code), s.frames[-1].tick
    frame.ip = frame.at + 1
    frame.direct = True
    s.frames.append(frame)
    s.expected = awaited
    try:
        return call()
    finally:
        s.expected = None
        s.frames.pop()


def computed_attribute(s: Session, value: Value, name: str) -> Value:
    """What a function computes, by an instruction that goes on with the result or AttributeError."""
    s.expected = None  # from here on it is loaded as ever
    static = s.static(value.cls, name)
    function = s.wrap(static.fget if type(static) is property else static.func, None)
    compute = functools.partial(s.generic_get_attr, value, name)
    parts = {"receiver": value, "name": Const(name)}
    if s.static(value.cls, "__getattr__") is MISSING:
        return remaining(s, keep, parts, function, compute)
    if type(static) is property:
        return remaining(s, fetch, parts, function, compute)
    return remaining(s, fetch, parts, function, lambda: remaining(s, keep, parts, function, compute))


def runs_code(value: Value) -> bool:
    """Is it a generator of the user's, or something that reads one?"""
    if type(value) is GeneratorValue:
        return True
    function = isinstance(value, (Mapping, Filtering)) and isinstance(value.function, (FunctionValue, MethodValue))
    return function or any(map(runs_code, _read(value)))


def _read(value: Any) -> list[Value]:
    if isinstance(value, (Mapping, Zipping)):
        return value.iterators
    return [value.iterator] if isinstance(value, (Filtering, Enumerating)) else []


def streamed(s: Session, value: Any) -> Any:
    """A generator that does what an iterator does, if that runs user code; else the iterator itself."""
    if not _read(value) or value.cls not in (map, zip, filter, enumerate) or not runs_code(value):
        return value
    inner = [streamed(s, iterator) for iterator in _read(value)]
    function: Callable[..., Any]
    if isinstance(value, Zipping):
        if len(inner) != 2 or value.strict or not all(type(it) is GeneratorValue for it in inner):
            return value
        function, args = zipped, inner
    elif isinstance(value, Enumerating):
        function, args = enumerated, [*inner, Const(value.count)]
    elif isinstance(value, Filtering):
        function, args = filtered, [value.function, *inner]
    else:
        function, args = mapped if len(inner) > 1 else mapped_one, [value.function, *inner]
    return s.wrap(function, None).call(s, args, {})


def used_up(f: Frame, function: Any, value: Value, *more: Value) -> Value:
    """What `function` makes of a generator; after a graph break in there the instruction is made again with that."""
    consumer = f.s.wrap(function, None)
    after, f.ip = f.ip, f.at
    f.s.expected = of_call(consumer, [])
    try:
        return consumer.call(f.s, [streamed(f.s, value), *more], {})
    finally:
        f.s.expected = None
        f.ip = after


_LISTED: list[list[Any]] = [[]]
ONLY_LISTED = sys.getrefcount(_LISTED[0])  # what a value counts that only a list refers to

READING_TABLES = (dict, dict.update)  # what has `keys` is read by them


def standing_in(s: Session, function: Value, args: list[Any], kwargs: dict[str, Any]) -> tuple[Value, list[Any]]:
    """What to call instead of a function that uses up a generator, and with what."""
    method = isinstance(function, MethodValue)
    known = function.function if isinstance(function, MethodValue) else function
    real: Any = known.real if isinstance(known, KnownValue) else None
    if not args or real not in (CONSUMING if method else CONSUMERS) or kwargs and real not in WITH_OPTIONS:
        return function, args
    alone = sys.getrefcount(args[0]) == ONLY_LISTED
    given = args[0]
    if alone or type(given) is Mapping:
        given = streamed(s, given)
    walks = type(given) is GeneratorValue or real not in READING_TABLES and of_special(s, given, "__iter__") is not None
    if not walks or len(args) > 1 and real not in WITH_MORE:
        return function, args
    if isinstance(function, MethodValue):
        return s.wrap(CONSUMING[real], None), [function.receiver, given]
    return s.wrap(CONSUMERS[real], None), [given, *args[1:]]
