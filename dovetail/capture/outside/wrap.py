"""Python object → symbolic value, with the guards that its kind needs.

`wrap(s, obj, source)` looks the object's type up in `WRAPPERS`, walking the MRO for subclasses; files of the layers
above add the types that they know of: numbers, containers, arrays, tensors. A source of None means that the path to
the object is trusted not to change: nothing is guarded, and objects with mutable contents are bound to the compiled
entry.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy
import torch

from dovetail.capture.tables.known_callables import KNOWN
from dovetail.capture.values.base import FALSE, MISSING, NONE, TRUE, Const, Session, Value, boolean
from dovetail.capture.values.callables import (
    CellValue,
    ClassValue,
    FunctionValue,
    KnownValue,
    MethodValue,
    OperatorValue,
    PyModuleValue,
)
from dovetail.capture.values.containers import DictValue, ListValue, SliceValue, TupleValue
from dovetail.capture.values.descriptors import has_dict
from dovetail.capture.values.objects import ModuleValue, ObjectValue, OpaqueValue, real_dict
from dovetail.capture.values.sets import SetEntries, SetValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir import marks
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Arg, Attr, Bound, ComputedItem, Item, Source, path
from dovetail.ir.varying import known_by_contents

Wrapper = Callable[[Any, Any, "Source | None"], Value]


def wrap(s: Session, obj: Any, source: Source | None) -> Value:
    """The value that stands for `obj`; the same object gives the same value."""
    found = s.objects.by_identity.get(id(obj))
    if found is not None:
        if source is not None:
            _guard_again(s, found, obj, source)
        return found
    cls = type(obj)
    wrapper = WRAPPERS.get(cls)
    if wrapper is None:
        wrapper = wrapper_for(cls)
        if wrapper is None:
            wrapper = wrap_object
    return wrapper(s, obj, source)


def wrapper_for(cls: type) -> Wrapper | None:
    """Who makes the value of an object of the class."""
    if isinstance(cls, enum.EnumMeta):
        return _wrap_identity_const
    for base in cls.__mro__[:-1]:
        found = WRAPPERS.get(base)
        if found is not None:
            return found
    return None


def remember(s: Session, obj: Any, value: Value) -> Value:
    """The value stands for the object from now on."""
    s.objects.by_identity[id(obj)] = value
    s.objects.keep.append(obj)
    return value


def _guard_again(s: Session, value: Value, obj: Any, source: Source) -> None:
    """The object is reached by one more path; that path must keep leading to it."""
    if value.source is None or value.source == source:
        return
    if isinstance(value, FunctionValue) and value.anew:
        s.guard(source, GuardKind.ALIAS, value.source)
    elif isinstance(value, (KnownValue, FunctionValue)) or isinstance(value, ModuleValue) and value.identify is None:
        s.guard(source, GuardKind.ID, obj)
    elif isinstance(value, TensorValue) or isinstance(value, (ObjectValue, MethodValue)) and not isinstance(obj, tuple):
        s.guard(source, GuardKind.ALIAS, value.source)
    elif isinstance(obj, tuple):
        WRAPPERS[tuple](s, obj, source)


# ---------------------------------------------------------------- known by value or identity


def _relying(kind: GuardKind, make: Wrapper) -> Wrapper:
    """The entry relies on the value or the identity of an object, if there is a path to it."""

    def wrapper(s: Session, obj: Any, source: Source | None) -> Value:
        if source is not None:
            s.guard(source, kind, obj)
        return make(s, obj, source)

    return wrapper


def _known(s: Session, obj: Any, source: Source | None) -> Value:
    kind = ClassValue if isinstance(obj, type) else PyModuleValue if inspect.ismodule(obj) else KnownValue
    return remember(s, obj, kind(obj, source))


def _slice(s: Session, obj: Any, source: Source | None) -> Value:
    return SliceValue(Const(obj.start), Const(obj.stop), Const(obj.step), source, obj)


wrap_const = _relying(GuardKind.EQUAL, lambda s, obj, source: Const(obj, source))
_wrap_identity_const = _relying(GuardKind.ID, lambda s, obj, source: Const(obj, source))
_wrap_singleton = _relying(GuardKind.ID, lambda s, obj, source: {None: NONE, True: TRUE, False: FALSE}[obj])
_wrap_slice = _relying(GuardKind.EQUAL, _slice)
_wrap_known = _relying(GuardKind.ID, _known)
_wrap_operator = _relying(GuardKind.ID, lambda s, obj, source: remember(s, obj, OperatorValue(obj, source)))


def _wrap_function(s: Session, obj: Any, source: Source | None) -> Value:
    value = FunctionValue(obj.__code__, obj.__globals__, obj.__name__, obj, source)
    if source is not None and made_anew(obj, source):
        value.anew = True
        s.guard(source, GuardKind.TYPE, types.FunctionType)
        s.guard(Attr(source, "__code__"), GuardKind.ID, obj.__code__)
        for name in marks.DISABLED:
            if name in vars(obj):
                s.guard(Attr(source, name), GuardKind.ID, vars(obj)[name])
    elif source is not None:
        s.guard(source, GuardKind.ID, obj)
    return remember(s, obj, value)


def made_anew(function: Any, source: Any) -> bool:
    """An argument that is made where it is given: its code identifies it, its cells and defaults are looked at."""
    while not isinstance(source, Arg):
        source = getattr(source, "base", None)
        if source is None:
            return False
    inner = "<locals>" in function.__qualname__ or function.__name__ == "<lambda>"
    return inner and not function.__dict__ or marks.disabled_anew(function)


def function_parts(s: Session, value: FunctionValue) -> None:
    """Load what a call of a real function reads besides its code: defaults and cells."""
    real = value.real
    if value.anew:
        _guard_defaults(s, value)
    if real.__defaults__ or real.__kwdefaults__:
        source = value.source
        value.defaults = tuple(
            _wrap_default(s, d, None if source is None else Item(Attr(source, "__defaults__"), k), value.anew)
            for k, d in enumerate(real.__defaults__ or ())
        )
        value.kwdefaults = {
            n: _wrap_default(s, d, None if source is None else Item(Attr(source, "__kwdefaults__"), n), value.anew)
            for n, d in (real.__kwdefaults__ or {}).items()
        }
    if real.__closure__:
        value.closure = tuple(_wrap_cell(s, c, value, k) for k, c in enumerate(real.__closure__))


def _guard_defaults(s: Session, value: FunctionValue) -> None:
    rows: Any = ("__defaults__", GuardKind.LENGTH, len), ("__kwdefaults__", GuardKind.KEYS, tuple)
    for name, kind, fact in rows:
        found, place = getattr(value.real, name), Attr(value.source, name)  # type: ignore[arg-type]
        s.guard(place, *((GuardKind.ID, None) if found is None else (kind, fact(found))))


def _wrap_default(s: Session, obj: Any, source: Source | None, anew: bool) -> Value:
    """Those of a function known by identity are part of its definition."""
    return wrap(s, obj, None if isinstance(obj, IMMUTABLE) and not anew else source)


def _wrap_cell(s: Session, cell: Any, function: FunctionValue, index: int) -> CellValue:
    found = s.objects.by_identity.get(id(cell))
    if isinstance(found, CellValue):
        return found
    base = function.source
    if base is None and _needs_guard(cell):
        base = s.bind(function.real, function.name)
    source = None if base is None else Attr(Item(Attr(base, "__closure__"), index), "cell_contents")
    made = CellValue(None, cell, source)
    remember(s, cell, made)
    return made


def _needs_guard(cell: Any) -> bool:
    """Cells of class-level functions (decorators) hold functions and classes that never change."""
    try:
        return not isinstance(cell.cell_contents, STABLE)
    except ValueError:
        return True


def _wrap_method(s: Session, obj: Any, source: Source | None) -> Value:
    if source is None:
        return MethodValue(wrap(s, obj.__func__, None), wrap(s, obj.__self__, None))
    s.guard(source, GuardKind.TYPE, type(obj))
    function = wrap(s, obj.__func__, Attr(source, "__func__"))
    return MethodValue(function, wrap(s, obj.__self__, Attr(source, "__self__")), source)


def _wrap_builtin(s: Session, obj: Any, source: Source | None) -> Value:
    receiver = getattr(obj, "__self__", None)
    if isinstance(receiver, type):
        return _wrap_class_method(s, obj, source)
    if receiver is None or inspect.ismodule(receiver):
        return _wrap_known(s, obj, source)
    unbound = s.static(type(receiver), obj.__name__)
    if unbound is MISSING:
        return _wrap_known(s, obj, source)
    if source is not None:
        s.guard(source, GuardKind.TYPE, type(obj))
        s.guard(Attr(source, "__name__"), GuardKind.EQUAL, obj.__name__)
        source = Attr(source, "__self__")
    return MethodValue(wrap(s, unbound, None), wrap(s, receiver, source))


def _wrap_class_method(s: Session, obj: Any, source: Source | None) -> Value:
    """A native class method; one that is known unbound is handed its class as Python's own are."""
    unbound = s.static(obj.__self__, obj.__name__)
    if type(unbound) is not types.ClassMethodDescriptorType or obj in KNOWN or unbound not in KNOWN:
        return _wrap_known(s, obj, source)
    if source is not None:
        s.guard(source, GuardKind.ID, obj)
    return MethodValue(_wrap_known(s, unbound, None), wrap(s, obj.__self__, None))


def owned(s: Session, obj: Any, source: Source | None) -> Source:
    """The path to an object whose class the entry relies on; one without a path is kept by the entry."""
    if source is None:
        return s.bind(obj)
    s.guard(source, GuardKind.TYPE, type(obj))
    return source


@dataclass(frozen=True, slots=True)
class Called(Source):
    """`base(arguments)` or, with a method, `base.method(arguments)`: a cheap reader without effects."""

    base: Source
    call: str

    def expr(self) -> str:
        return f"{self.base.expr()}{self.call}"


# ---------------------------------------------------------------- objects


def _wrap_module(s: Session, obj: Any, source: Source | None) -> Value:
    label = source.name() if source is not None else type(obj).__name__
    if source is not None and is_alike(s, source) and known_by_contents(obj):
        s.guard(source, GuardKind.TYPE, type(obj))
        value = ModuleValue(type(obj), obj, source)
        value.identify = functools.partial(s.guard, source, GuardKind.ID, obj)
        return remember(s, obj, value)
    if source is not None:
        s.guard(source, GuardKind.ID, obj)
    return remember(s, obj, ModuleValue(type(obj), obj, s.bind(obj, label)))


def is_alike(s: Session, source: Source) -> bool:
    """Is this a place that was seen to lead to many modules, or something below one of those?"""
    names = s.table.varying.names
    return any(
        isinstance(part, ComputedItem) or names and not isinstance(part, Bound) and part.name() in names
        for part in path(source)
    )


def _wrap_optimizer(s: Session, obj: Any, source: Source | None) -> Value:
    """Known by its identity, as a module is: hundreds of guards hang below it, which are then checked in bulk."""
    if source is not None and not isinstance(source, Bound):
        s.guard(source, GuardKind.ID, obj)
        source = s.bind(obj, source.name())
    return wrap_object(s, obj, source)


def wrap_object(s: Session, obj: Any, source: Source | None) -> Value:
    """An instance of a class, whose attributes are read when the program asks for them."""
    cls = type(obj)
    if source is not None and (hasattr(cls, "__next__") or cls in VIEWS):
        # Stepping a real iterator while capturing would use it up; a view's dictionary is out of reach.
        s.guard(source, GuardKind.TYPE, cls)
        return remember(s, obj, ObjectValue(cls, obj, source))
    if not has_dict(cls) and not hasattr(cls, "__slots__") or isinstance(obj, OPAQUE):
        if cls.__hash__ is None:
            return remember(s, obj, OpaqueValue(cls, obj, owned(s, obj, source)))
        return _wrap_known(s, obj, source)
    source = owned(s, obj, source)
    value = ObjectValue(cls, obj, source)
    if cls.__dictoffset__:
        _note_namespace(s, obj, value)
    return remember(s, obj, value)


def _note_namespace(s: Session, obj: Any, value: ObjectValue) -> None:
    """The object's dictionary may be reached on its own, and is then the same attributes."""
    table = real_dict(obj)
    if id(table) in s.objects.by_identity:
        s.unsupported("aliased-namespace", f"the __dict__ of {value.describe()} was read before the object itself")
    s.objects.namespaces[id(table)] = value
    s.objects.keep.append(table)


def _wrap_partial(s: Session, obj: Any, source: Source | None) -> Value:
    source = owned(s, obj, source)
    value = ObjectValue(type(obj), obj, source)
    value.attrs["func"] = wrap(s, obj.func, Attr(source, "func"))
    value.attrs["args"] = wrap(s, obj.args, Attr(source, "args"))
    value.attrs["keywords"] = keywords = wrap(s, obj.keywords, Attr(source, "keywords"))
    assert isinstance(keywords, DictValue)
    keywords.pairs(s)  # native code may be handed the whole
    return remember(s, obj, value)


# ---------------------------------------------------------------- results of native code


def from_native(s: Session, obj: Any) -> Value:
    """The value for something that native code just made: fresh containers of known things."""
    maker = FRESH.get(type(obj))
    return maker(s, obj) if maker is not None else wrap(s, obj, None)


def _fresh_dict(s: Session, obj: dict) -> Value:
    value = DictValue(type(obj))
    for key, item in obj.items():
        value.entries[key] = (from_native(s, key), from_native(s, item))
    return value


def _fresh_set(s: Session, obj: Any) -> Value:
    value = SetValue(type(obj))
    value.entries = SetEntries({item: from_native(s, item) for item in obj}, obj)
    return value


FRESH: dict[type, Callable[[Any, Any], Value]] = {
    list: lambda s, obj: ListValue([from_native(s, v) for v in obj]),
    tuple: lambda s, obj: TupleValue([from_native(s, v) for v in obj]),
    torch.SymBool: lambda s, obj: boolean(bool(obj)),
    dict: _fresh_dict,
    OrderedDict: _fresh_dict,
    set: _fresh_set,
    frozenset: _fresh_set,
}

STABLE = (types.FunctionType, type, types.BuiltinFunctionType, types.ModuleType)
IMMUTABLE = (int, float, bool, str, bytes, type(None), complex, type, types.FunctionType, torch.dtype, torch.device)
VIEWS = frozenset((type({}.keys()), type({}.values()), type({}.items())))
OPAQUE = (property, functools.cached_property, staticmethod, classmethod, torch.Generator)

WRAPPERS: dict[type, Wrapper] = {
    **dict.fromkeys((torch.dtype, torch.device), wrap_const),
    **dict.fromkeys((torch.layout, torch.memory_format, torch.finfo, torch.iinfo), _wrap_identity_const),
    **dict.fromkeys((type(...), type(NotImplemented), types.CodeType), _wrap_identity_const),
    **dict.fromkeys((bool, type(None)), _wrap_singleton),
    **dict.fromkeys((numpy.generic, numpy.dtype), wrap_const),
    **dict.fromkeys((numpy.ufunc, type(numpy.any), type(numpy.random.Generator.normal)), _wrap_known),
    slice: _wrap_slice,
    torch._ops.OpOverload: _wrap_operator,
    torch._ops.OpOverloadPacket: _wrap_operator,
    torch._ops.HigherOrderOperator: _wrap_known,
    type: _wrap_known,
    types.ModuleType: _wrap_known,
    types.FunctionType: _wrap_function,
    types.MethodType: _wrap_method,
    types.BuiltinFunctionType: _wrap_builtin,
    types.MethodWrapperType: _wrap_builtin,
    **dict.fromkeys(
        (
            types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
            types.MemberDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType,
            property, staticmethod, classmethod, functools.cached_property, weakref.ref,
        ),
        _wrap_known,
    ),
    functools.partial: _wrap_partial,
    torch._C.ScriptFunction: _wrap_known,
    torch.nn.Module: _wrap_module,
    torch.optim.Optimizer: _wrap_optimizer,
}

