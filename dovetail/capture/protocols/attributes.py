"""Attribute access by Python's own rules, with storage replaced by symbolic values.

`generic_get_attr` is `type(v).__getattribute__`, including overrides and `__getattr__`;
`object_get_attr` is `object.__getattribute__`: data descriptor, instance, class, in this order.
"""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from dovetail.capture.interpreter.tail_calls import OPERATOR, protocol
from dovetail.capture.outside.definitions import computes_class, rely_on_no_shadow
from dovetail.capture.polyfills.protocols import fetch, keep
from dovetail.capture.process import unguarded_facts
from dovetail.capture.process.trusted_code import trusted_class
from dovetail.capture.tables.known_callables import FOLDED_METHOD_TYPES
from dovetail.capture.values.base import MISSING, NONE, Const, NotNative, Raised, Session, Value, boolean
from dovetail.capture.values.callables import (
    ClassValue,
    FunctionValue,
    KnownValue,
    MethodValue,
    PreparedCall,
)
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.capture.values.descriptors import Placeholder, has_dict, kind_of
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.objects import ExceptionValue, ModuleValue, ObjectValue, TracebackValue, real_dict
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, Member, OwnDict, Source

FUNCTION = types.FunctionType
MODULE_GETATTR = torch.nn.Module.__getattr__
Position = collections.namedtuple("Position", "x")  # for the type of a named tuple's field descriptors
MODULE_TABLES = ("_parameters", "_buffers", "_modules")


def generic_get_attr(s: Session, value: Value, name: str) -> Value:
    """`value.name`: `__getattribute__` of the class, and its `__getattr__` where that finds nothing."""
    cls = value.cls
    not_a_proxy(s, value)
    if s.frames and s.frames[-1].awaits is OPERATOR:
        s.frames[-1].awaits = None
        return _computed(s, value, name)
    override = s.static(cls, "__getattribute__")
    try:
        if type(override) is FUNCTION:
            return s.call(s.wrap(override, None), value, Const(name))
        return object_get_attr(s, value, name)
    except Raised as raised:
        if not issubclass(raised.value.cls, AttributeError):
            raise
        if s.static(cls, "__getattr__") is MISSING:
            raise
        return missing_attribute(s, value, name)


def not_a_proxy(s: Session, value: Value) -> None:
    """A proxy is what it refers to in native code alone, whatever its own class says."""
    if issubclass(value.cls, weakref.ProxyTypes):
        s.unsupported("weak-reference", f"{value.describe()} stands for something that it refers to weakly")


def missing_attribute(s: Session, value: Value, name: str) -> Value:
    """By `__getattr__`."""
    fallback = s.static(value.cls, "__getattr__")
    if fallback is MODULE_GETATTR and isinstance(value, ModuleValue):
        return module_member(s, value, name)
    return s.call(bind_descriptor(s, value, fallback, "__getattr__"), Const(name))


def _computed(s: Session, value: Value, name: str) -> Value:
    """What a function computes, by an instruction that goes on with the result or AttributeError."""
    static = s.static(value.cls, name)
    if type(static) is property:
        compute = PreparedCall(s.wrap(static.fget, None), [value], {})
        return protocol(s, fetch, [compute, value, Const(name)], True)
    found = value.instance_attr(s, name)
    if found is not None:
        return found
    rely_on_no_shadow(s, value, name)
    compute = PreparedCall(s.wrap(keep, None), [s.wrap(static.func, None), value, Const(static.attrname)], {})
    if s.static(value.cls, "__getattr__") is MISSING:
        return protocol(s, keep, compute.args, True)
    return protocol(s, fetch, [compute, value, Const(name)], True)


def object_get_attr(s: Session, value: Value, name: str) -> Value:
    """`object.__getattribute__(value, name)`: data descriptors, then the instance, then the class."""
    special = SPECIAL.get(name)
    if special is not None and not (special is _class_of and computes_class(s, value)):
        found = special(s, value)
        if found is not None:
            return found
    static = s.static(value.cls, name)
    if static is not MISSING and is_data_descriptor(static):
        return _get_data(s, value, static, name)
    found = value.instance_attr(s, name)
    if found is not None:
        return found
    if static is not MISSING:
        if hasattr(type(static), "__get__"):
            rely_on_no_shadow(s, value, name)
        return bind_descriptor(s, value, static, name)
    return no_attribute(s, value, name)


def no_attribute(s: Session, value: Value, name: str) -> NoReturn:
    if isinstance(value, ObjectValue) and value.source is not None and value.real is not MISSING:
        if isinstance(value, ModuleValue) or name in value.attrs:
            pass  # its members cannot be set beside an attribute of the same name
        elif s.static(value.cls, "__getattr__") is MISSING and not computes(s, value.cls, name):
            s.guard(value.source, GuardKind.HAS_ATTR, (name, False))
        elif value.cls.__dictoffset__:
            s.guard(OwnDict(value.source), GuardKind.CONTAINS, (name, False))
    cls = types.FunctionType if value.cls is types.MethodType else value.cls  # a method passes the question on
    error = ExceptionValue(AttributeError, [Const(f"{cls.__name__!r} object has no attribute {name!r}")])
    error.attrs = {"name": Const(name), "obj": value}
    raise s.raising(error)


def computes(s: Session, cls: type, name: str) -> bool:
    """Does reading `name` of an instance run code of the class even when the instance has it itself?"""
    if type(s.static(cls, "__getattribute__")) is FUNCTION:
        return True
    static = s.static(cls, name)
    return static is not MISSING and is_data_descriptor(static)


def is_data_descriptor(static: Any) -> bool:
    """Does it come before what the instance has under the name?"""
    kind = kind_of(static)
    return kind is property or hasattr(kind, "__set__")


def _get_data(s: Session, value: Value, static: Any, name: str) -> Value:
    if isinstance(static, property):
        if static.fget is None:
            return s.throw(AttributeError, f"property {name!r} has no getter")
        if value.cls in FOLDED_METHOD_TYPES and not isinstance(static.fget, FUNCTION):
            return s.from_native(static.__get__(value.native()))
        return s.call(s.wrap(static.fget, None), value)
    if isinstance(static, types.MemberDescriptorType):
        return _get_slot(s, value, static, name)
    if isinstance(static, types.GetSetDescriptorType):
        return _get_c_attribute(s, value, static, name)
    return bind_descriptor(s, value, static, name)


def _get_slot(s: Session, value: Value, static: Any, name: str) -> Value:
    if isinstance(value, Const):
        return s.from_native(static.__get__(value.value))
    if isinstance(value, TupleValue) and name in getattr(value.cls, "__match_args__", ()):
        return value.at(s, value.cls.__match_args__.index(name))  # type: ignore[attr-defined]
    if isinstance(value, (Const, KnownValue)) or (static.__objclass__, name) in NATIVE_ATTRIBUTES:
        return _get_c_attribute(s, value, static, name)
    found = value.attrs.get(name) if isinstance(value, ObjectValue) else None
    if found is None and isinstance(value, ExceptionValue) and value.real is MISSING:
        return _exception_member(s, value, static)
    if found is None and getattr(value, "real", MISSING) is not MISSING:
        try:
            real = static.__get__(value.real)  # type: ignore[attr-defined]
        except AttributeError:
            real = MISSING
        if real is not MISSING:
            found = s.wrap(real, s.attr_source(value, name))
            if isinstance(value, ObjectValue):
                value.attrs[name] = found
    if found is None or found is MISSING:
        return s.throw(AttributeError, name)
    return found


def _exception_member(s: Session, value: ExceptionValue, static: Any) -> Value:
    """What native exceptions keep besides `args`: the value of a StopIteration, the name of an ImportError."""
    if static in FIRST_ARGUMENT:
        return value.args[0] if value.args else NONE
    made = value.original if value.original is not None else value.cls(*[a.native() for a in value.args])
    return s.from_native(static.__get__(made))


FIRST_ARGUMENT = (StopIteration.__dict__["value"],)


def _get_c_attribute(s: Session, value: Value, static: Any, name: str) -> Value:
    reader = NATIVE_ATTRIBUTES.get((static.__objclass__, name))
    if reader is not None:
        return reader(s, value)
    try:
        native = value.native()
        with torch.utils._python_dispatch._disable_current_modes():  # what a node has saved is a new tensor each time
            found = static.__get__(native)
        if isinstance(value, ObjectValue) and value.source is not None and not isinstance(value, FunctionValue):
            return s.wrap(found, s.attr_source(value, name))
        return s.from_native(found)
    except AttributeError as error:
        return s.throw_native(error)
    except NotNative:
        pass
    return s.unsupported(
        "c-attribute", f"attribute {name!r} of {value.describe()} is computed by native code",
        "Read it outside the compiled function.",
    )


def bind_descriptor(s: Session, value: Value, static: Any, name: str) -> Value:
    """What `value.name` gives for `static` found in its class."""
    binder = BINDERS.get(type(static))
    if binder is not None:
        return binder(s, value, static, name)
    getter = s.static(type(static), "__get__")
    if getter is MISSING:
        if value.cls in s.classes.made:
            return s.wrap(static, None)
        return s.wrap(static, _class_constant_source(s, value, name))
    if type(getter) is not FUNCTION:
        return s.unsupported(
            "descriptor", f"{value.cls.__name__}.{name} is a {type(static).__name__}, a descriptor in native code",
            "Read it outside the compiled function.",
        )
    return s.call(s.wrap(getter, None), s.wrap(static, None), value, ClassValue(value.cls))


def _class_constant_source(s: Session, value: Value, name: str) -> Any:
    if stored(s, value.cls, name):
        return None
    if trusted_class(value.cls):
        unguarded_facts.datum(s, getattr, value.cls, name, s.static(value.cls, name))
        return None
    return s.attr_source(value, name)


def stored(s: Session, cls: type, name: str) -> bool:
    """Has traced code stored the attribute?"""
    return any(name in s.classes.stores[base].table for base in cls.__mro__ if base in s.classes.stores)


def _bind_placeholder(s: Session, value: Value, static: Placeholder, name: str) -> Value:
    inner = static.value
    if inner.cls is functools.cached_property:
        return protocol(s, keep, [s.get_attr(inner, "func"), value, Const(name)], False)
    getter = s.static(inner.cls, "__get__")
    if type(getter) is not FUNCTION:
        return inner
    return s.call(s.wrap(getter, None), inner, value, ClassValue(value.cls))


# Attributes of native types whose objects live in the trace: (class, name) → reader; filled by the folder `known`.
NATIVE_ATTRIBUTES: dict[tuple[type, str], Callable[[Any, Any], Value]] = {}

BINDERS: dict[type, Callable[[Any, Value, Any, str], Value]] = {
    FUNCTION: lambda s, v, static, name: MethodValue(s.wrap(static, None), v),
    types.MethodDescriptorType: lambda s, v, static, name: MethodValue(s.wrap(static, None), v),
    types.WrapperDescriptorType: lambda s, v, static, name: MethodValue(s.wrap(static, None), v),
    types.ClassMethodDescriptorType: lambda s, v, static, name: s.wrap(getattr(v.cls, name), None),
    types.BuiltinFunctionType: lambda s, v, static, name: s.wrap(static, None),
    staticmethod: lambda s, v, static, name: s.wrap(static.__func__, None),
    classmethod: lambda s, v, static, name: MethodValue(s.wrap(static.__func__, None), s.wrap(v.cls, None)),
    property: lambda s, v, static, name: s.call(s.wrap(static.fget, None), v),
    functools.cached_property: lambda s, v, static, name: protocol(
        s, keep, [s.wrap(static.func, None), v, Const(static.attrname)], False
    ),
    functools._lru_cache_wrapper: lambda s, v, static, name: MethodValue(s.wrap(static, None), v),
    Placeholder: _bind_placeholder,
    type(Position.x): lambda s, v, static, name: v.at(s, static.__reduce__()[1][0]),  # type: ignore[attr-defined]
}


def find_special(s: Session, value: Value, name: str) -> Value | None:
    """`type(value).name` bound to the value, the way operators look up special methods."""
    static = s.static(value.cls, name)
    if static is MISSING or static is None:
        return None
    return bind_descriptor(s, value, static, name)


# ---------------------------------------------------------------- names every object has


def _class_of(s: Session, value: Value) -> Value:
    return s.wrap(value.type, None)


def _dict_of(s: Session, value: Value) -> Value | None:
    has_one = isinstance(value, ObjectValue) and (has_dict(value.cls) or isinstance(value, FunctionValue))
    return NamespaceValue(value) if has_one else None  # type: ignore[arg-type]


def _function_part(name: str) -> Callable[[Any, Value], Value | None]:
    def get(s: Session, value: Value) -> Value | None:
        if isinstance(value, MethodValue):
            return s.get_attr(value.function, name)
        if not isinstance(value, FunctionValue):
            return None
        if name in value.attrs:
            return value.attrs[name]
        if value.real is not MISSING:
            found = getattr(value.real, name)
            unguarded_facts.function_part(s, value.real, name, found)
            return s.from_native(found)
        return MADE_PARTS[name](value)

    return get


def _exception_link(name: str) -> Callable[[Any, Value], Value | None]:
    return lambda s, v: (getattr(v, name) or NONE) if isinstance(v, ExceptionValue) else None


def _traceback(s: Session, value: Value) -> Value | None:
    if not issubclass(value.cls, BaseException):
        return None
    if isinstance(value, ExceptionValue) and not value.raised:
        return NONE
    if s.frames and s.frames[-1].scope.trusted:
        return TracebackValue()  # the library hands it on
    return s.unsupported("traceback", f"the traceback of {value.describe()} is read, which exists only when it runs")


def _annotations(value: FunctionValue) -> Value:
    made = DictValue()
    flat = value.annotations.items if isinstance(value.annotations, TupleValue) else []
    made.entries = {k.native(): (k, v) for k, v in zip(flat[::2], flat[1::2])}
    value.attrs["__annotations__"] = made
    return made


def _doc(value: FunctionValue) -> Value:
    first = value.code.co_consts[0] if value.code.co_consts else None
    return Const(first if isinstance(first, str) else None)


# Attributes of functions made inside.
MADE_PARTS: dict[str, Callable[[FunctionValue], Value]] = {
    "__name__": lambda v: Const(v.name),
    "__qualname__": lambda v: Const(v.code.co_qualname),
    "__module__": lambda v: Const(v.globals.get("__name__")),
    "__doc__": _doc,
    "__code__": lambda v: Const(v.code),
    "__annotations__": _annotations,
    "__closure__": lambda v: TupleValue(list(v.closure)) if v.closure else NONE,
    "__defaults__": lambda v: TupleValue(list(v.defaults)) if v.defaults else NONE,
    "__kwdefaults__": lambda v: DictValue.named(v.kwdefaults) if v.kwdefaults else NONE,
    "__type_params__": lambda v: TupleValue([]),
}
FUNCTION_PARTS = tuple(n for n in MADE_PARTS if n in FUNCTION.__dict__ or n == "__module__")

SPECIAL: dict[str, Callable[[Any, Value], Value | None]] = {
    "__class__": _class_of,
    "__dict__": _dict_of,
    "__self__": lambda s, v: v.receiver if isinstance(v, MethodValue) else None,
    "__func__": lambda s, v: v.function if isinstance(v, MethodValue) else None,
    **{n: _function_part(n) for n in FUNCTION_PARTS},
    "args": lambda s, v: TupleValue(v.args) if isinstance(v, ExceptionValue) else None,
    "__cause__": _exception_link("cause"),
    "__context__": _exception_link("context"),
    "__suppress_context__": lambda s, v: boolean(v.suppress) if isinstance(v, ExceptionValue) else None,
    "__traceback__": _traceback,
}


# ---------------------------------------------------------------- members of nn.Module


def module_member(s: Session, value: ModuleValue, name: str) -> Value:
    """What `nn.Module.__getattr__` finds."""
    if value.real is not MISSING:
        own = real_dict(value.real)
        for table in MODULE_TABLES:
            changed = value.attrs.get(table)
            if isinstance(changed, DictValue) and changed.changed:
                found = changed.get(s, name)
                if found is not None:
                    return found
                continue
            members = own.get(table)
            if members is not None and name in members:
                found = s.wrap(members[name], Member(value.source, table, name))  # type: ignore[arg-type]
                value.attrs[name], value.members[name] = found, table
                return found
        tables: dict[str, Source] = {t: Attr(value.source, t) for t in MODULE_TABLES}  # type: ignore[arg-type]
        if value.identify is not None:
            for place in (OwnDict(value.source), *tables.values()):  # type: ignore[arg-type]
                s.guard(place, GuardKind.CONTAINS, (name, False))
        elif name not in value.attrs:
            s.guard(value.source, GuardKind.OWN_LACKS, name)
            for table, source in tables.items():
                if id(own[table]) not in s.objects.by_identity:
                    s.guard(source, GuardKind.KEYS, tuple(own[table]))
    return s.throw(AttributeError, f"{value.cls.__name__!r} object has no attribute {name!r}")
