"""Attributes of Python modules, some of which their own classes compute and store."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from dovetail.capture.polyfills import compiler_advice
from dovetail.capture.process import unguarded_facts
from dovetail.capture.values.base import MISSING, Const, Session, Value
from dovetail.capture.values.callables import ClassValue, PyModuleValue
from dovetail.capture.values.containers import DictValue
from dovetail.capture.values.objects import Lazy, ObjectValue
from dovetail.ir.source import Attr, Global, Source

FUNCTION = types.FunctionType


def pymodule_get_attr(s: Session, value: PyModuleValue, name: str) -> Value:
    """`module.name`."""
    module = value.real
    table = module.__dict__
    special = MODULE_ATTRIBUTES.get((module.__name__, name))
    if special is not None and (found := special(s)) is not None:
        return found
    if module is compiler_advice:
        return _advice(s, name)
    if name in table:
        found = s.scope(table, module.__name__).load(s, name)
        if found is not None:
            return found
    static = s.static(type(module), name)
    getter = s.static(type(static), "__get__")
    if type(getter) is FUNCTION and s.modes.switched:  # it may give what the program has set
        return s.call(s.wrap(getter, None), s.wrap(static, None), value, ClassValue(type(module)))
    try:
        real = getattr(module, name)
    except AttributeError as error:
        unguarded_facts.note(s, hasattr, (module, name), False)
        return s.throw_native(error)
    computed = static is not MISSING  # by a property of the module's own class
    return s.wrap(real, Attr(_module_source(value), name) if computed else None)


def _module_source(value: PyModuleValue) -> Source:
    name = value.real.__name__
    return value.source or Global("modules", "sys").item(name)


def _peer(s: Session) -> Value | None:
    """`torch._dynamo`, which PyTorch imports when its name is first used; None where it is to be the module itself."""
    imported = PEER in sys.modules or s.frames[-1].scope.table.get("__name__", "").partition(".")[0] != "torch"
    return None if imported else PyModuleValue(compiler_advice)


def _advice(s: Session, name: str) -> Value:
    known = vars(compiler_advice).get(name)
    if type(known) is FUNCTION:
        return s.wrap(known, None)
    return pymodule_get_attr(s, PyModuleValue(importlib.import_module(PEER)), name)


PEER = "torch._dynamo"


def _modules(s: Session) -> Value:
    """`sys.modules`: grows at any time, so only what is looked up is relied on."""
    made = DictValue()
    source = Global("modules", "sys")
    made.entries = {k: (Const(k), Lazy(m, source.item(k))) for k, m in sys.modules.items()}
    return made


def _stream(name: str) -> Callable[[Any], Value]:
    """A standard stream, whichever it is when the program runs."""

    def get(s: Session) -> Value:
        stored = s.scope(sys.__dict__, "sys").values.get(name)
        real = getattr(sys, name)
        return stored if stored is not None else ObjectValue(type(real), real, Global(name, "sys"))

    return get


MODULE_ATTRIBUTES: dict[tuple[str, str], Callable[[Any], Value | None]] = {
    ("torch", "_dynamo"): _peer,
    ("sys", "modules"): _modules,
    ("sys", "stdout"): _stream("stdout"),
    ("sys", "stderr"): _stream("stderr"),
}


def pymodule_set_attr(s: Session, value: PyModuleValue, name: str, new: Value) -> None:
    """`module.name = new`."""
    if (value.real.__name__, name) in MODULE_ATTRIBUTES:
        s.unsupported("stream-replaced", f"the code replaces sys.{name}")
    if type(value.real) is types.ModuleType or not _set_by_class(s, value, name, new):
        s.scope(value.real.__dict__, value.real.__name__).store(s, name, new)


def _set_by_class(s: Session, value: PyModuleValue, name: str, new: Value) -> bool:
    """Does a module's own class store the attribute?"""
    cls = type(value.real)
    setter = s.static(type(s.static(cls, name)), "__set__")
    if type(setter) is FUNCTION:
        s.call(s.wrap(setter, None), s.wrap(s.static(cls, name), None), value, new)
        return True
    if cls.__setattr__ is not types.ModuleType.__setattr__ or setter is not MISSING:
        s.unsupported("attribute-store", f"cannot set {name!r} of {value.describe()}: its class stores it")
    return False
