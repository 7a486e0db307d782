"""Which frame's result is, as it is, the result of an instruction: frames inside such a frame can be suspended.

`Frame.awaits` of the caller holds its code (or the generator that it advances) while the instruction makes its call:
the frame made next takes it over, and no other. An instruction begins without it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

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
from dovetail.capture.tables.known_callables import STANDINS
from dovetail.capture.values.base import MISSING, Const, Session, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue, KnownValue, MethodValue, PreparedCall
from dovetail.capture.values.derived_iterators import Enumerating, Filtering, Mapping, Zipping
from dovetail.capture.values.objects import ExceptionValue, ModuleValue, ObjectValue

FUNCTION = types.FunctionType
MODULE_SETATTR = torch.nn.Module.__setattr__
ADVANCING = (
    *(getattr(types.GeneratorType, n) for n in ("send", "throw", "__next__")),
    *(getattr(types.CoroutineType, n) for n in ("send", "throw")),
)

OPERATOR: Any = object()  # while a function of Python is called that looks methods up, or `value.name` is loaded


def of_call(function: Any, args: list[Any]) -> Any:
    """For `function(*args)`."""
    if isinstance(function, MethodValue):
        if type(function.receiver) is GeneratorValue and function.function.native() in ADVANCING:
            return function.receiver
        function = function.function
    awaited = _awaited(type(function))  # type: ignore[arg-type]
    return None if awaited is None else awaited(function, args)


@functools.cache
def _awaited(cls: type) -> Callable[[Any, list[Any]], Any] | None:
    return next((awaited for kind, awaited in AWAITED if issubclass(cls, kind)), None)


def _of_known(function: Any, args: list[Any]) -> Any:
    real = function.real
    if id(real) in LOOKING_UP:  # what it is may refuse to be compared
        return OPERATOR
    return of_instance(type(real))


#: Built-in functions that call methods of their arguments, and say themselves which one.
LOOKING_UP = frozenset(map(id, (len, next, getattr, setattr, hasattr)))


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
    (PreparedCall, lambda prepared, args: of_method(prepared.function)),
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
    """The same, for a method that the interpreter calls on its own."""
    return None if _of_torch(method) else of_method(method)


def _of_torch(method: Any) -> bool:
    """PyTorch's own are one step as a whole: ending graphs inside a profiler's `__init__` gains nothing."""
    function = getattr(method, "function", method)
    return isinstance(function, FunctionValue) and (function.globals.get("__name__") or "").startswith("torch.")


def of_attribute(s: Session, value: Value, name: str) -> Any:
    """For `value.name`, where a function computes it."""
    if not isinstance(value, ObjectValue) or isinstance(value, ExceptionValue) or name.startswith("__"):
        return None
    known, key = s.classes.computing, (value.cls, name)
    found = known.get(key, MISSING)
    if found is MISSING:
        found = known[key] = _of_attribute(s, *key)
    return found


def _of_attribute(s: Session, cls: type, name: str) -> Any:
    if type(s.static(cls, "__getattribute__")) is FUNCTION:
        return None
    static, fallback = s.static(cls, name), s.static(cls, "__getattr__")
    if static is MISSING:
        return fallback.__code__ if type(fallback) is FUNCTION else None
    if fallback is not MISSING or type(static) is functools.cached_property:
        return OPERATOR if type(static) in (property, functools.cached_property) else None
    getter = static.fget if type(static) is property else getattr(type(static), "__get__", None)
    return getter.__code__ if type(getter) is FUNCTION else None


def of_setter(s: Session, value: Value, name: str) -> Any:
    """For `value.name = ...`."""
    found = setter(s, value, name)
    return None if found is None else found[0].__code__


def setter(s: Session, value: Value, name: str) -> tuple[Any, list[Value]] | None:
    """The function in Python that stores an attribute, and its arguments but for the last, what is stored."""
    if type(value) not in (ObjectValue, ModuleValue):
        return None
    override = s.static(value.cls, "__setattr__")
    if type(override) is FUNCTION and (override is not MODULE_SETATTR or type(value) is not ModuleValue):
        return override, [value, Const(name)]
    static = s.static(value.cls, name)
    if type(static) is property:
        return (static.fset, [value]) if type(static.fset) is FUNCTION else None
    found = getattr(type(static), "__set__", None)
    return (found, [s.wrap(static, None), value]) if type(found) is FUNCTION else None


def of_special(s: Session, value: Value, name: str) -> Any:
    """For a special method whose result nothing is done with."""
    method = s.static(value.cls, name) if type(value) in (ObjectValue, ModuleValue) else MISSING
    if type(method) is not FUNCTION or (method.__module__ or "").startswith("torch."):
        return None
    return method.__code__


def of_next(s: Session, iterator: Value) -> Any:
    """For advancing it: the generator, or the code of `__next__`."""
    return iterator if type(iterator) is GeneratorValue else of_special(s, iterator, "__next__")


def protocol(s: Session, function: Any, values: list[Value], tail: bool) -> Value:
    """The result of a function of `polyfills.protocols`, run in a frame of its own.

    `tail`: that is, as it is, the result of the running instruction. So a graph can end in what the function calls.
    """
    code = decode(function.__code__)
    frame = Frame(s, code, s.scope(function.__globals__, function.__module__), None)
    frame.locals = dict(zip(code.fast_names, values))
    frame.direct = tail and not _of_torch(values[0])
    return frame.run_call()


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
    f.awaits = of_call(consumer, [])
    try:
        return consumer.call(f.s, [streamed(f.s, value), *more], {})
    finally:
        f.ip = after


_LISTED: list[list[Any]] = [[]]
ONLY_LISTED = sys.getrefcount(_LISTED[0])  # what a value counts that only a list refers to

READING_TABLES = (dict, dict.update)  # what has `keys` is read by them


def standing_in(s: Session, function: Value, args: list[Any], kwargs: dict[str, Any]) -> tuple[Value, list[Any]]:
    """What to call instead of a function that uses up a generator, and with what."""
    method = isinstance(function, MethodValue)
    known = function.function if isinstance(function, MethodValue) else function
    if not args or not isinstance(known, KnownValue):
        return function, args
    real: Any = known.real
    if real not in (CONSUMING if method else CONSUMERS) or kwargs and real not in WITH_OPTIONS:
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
