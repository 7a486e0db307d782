"""Storing and deleting attributes by Python's own rules."""

from __future__ import annotations

import types
import weakref

import torch

from dovetail.capture.outside import growing_state
from dovetail.capture.process.trusted_code import HEAP_TYPE
from dovetail.capture.protocols.attributes import FUNCTION, MODULE_TABLES, is_data_descriptor, no_attribute, not_a_proxy
from dovetail.capture.protocols.class_lookup import class_set_attr
from dovetail.capture.protocols.module_attributes import pymodule_set_attr
from dovetail.capture.tensors.marked import MARKS, is_marked
from dovetail.capture.values.base import MISSING, Const, Session, Value
from dovetail.capture.values.callables import ClassValue, PyModuleValue, is_renamed
from dovetail.capture.values.containers import DictValue
from dovetail.capture.values.descriptors import borrowed, has_dict, kind_of
from dovetail.capture.values.objects import ExceptionValue, ModuleValue, real_dict
from dovetail.capture.values.tensor import TENSOR_STORES, TensorValue
from dovetail.ir.source import Member


def set_attr(s: Session, value: Value, name: str, new: Value) -> None:
    """`setattr(value, name, new)`, `__setattr__` overrides included."""
    not_a_proxy(s, value)
    if isinstance(value, PyModuleValue):
        pymodule_set_attr(s, value, name, new)
        return
    override = s.static(value.cls, "__setattr__")
    if isinstance(value, ClassValue) and type(override) is not FUNCTION:
        meta = s.static(value.cls, name)
        if isinstance(meta, property) and meta.fset is not None:
            s.call(s.wrap(meta.fset, None), value, new)
        else:
            class_set_attr(s, value, name, new)
        return
    if type(override) is FUNCTION and not isinstance(value, TensorValue):
        if override is torch.nn.Module.__setattr__ and isinstance(value, ModuleValue):
            _set_module_attr(s, value, name, new)
        else:
            s.call(s.wrap(override, None), value, Const(name), new)
    elif borrowed(override, "__setattr__"):
        s.call(s.wrap(override, None), value, Const(name), new)
    else:
        object_set_attr(s, value, name, new)


def object_set_attr(s: Session, value: Value, name: str, new: Value) -> None:
    """`object.__setattr__(value, name, new)`."""
    static = s.static(value.cls, name)
    if static is not MISSING and is_data_descriptor(static) and not isinstance(static, types.MemberDescriptorType):
        if isinstance(static, property):
            if static.fset is None:
                s.throw(AttributeError, f"property {name!r} of {value.cls.__name__!r} object has no setter")
            s.call(s.wrap(static.fset, None), value, new)
            return
        if type(setter := s.static(kind_of(static), "__set__")) is FUNCTION:
            s.call(s.wrap(setter, None), s.wrap(static, None), value, new)
            return
        if isinstance(value, TensorValue):
            if (store := TENSOR_STORES.get(name)) is not None and store(s, value, new):
                return
        stored = isinstance(value, ExceptionValue) or is_renamed(value, name, new)
        if not stored and not (isinstance(value, TensorValue) and name == "grad"):
            s.unsupported("attribute-store", f"cannot set {name!r} of {value.describe()}: native code stores it")
    if static is MISSING and value.cls.__flags__ & HEAP_TYPE and not has_dict(value.cls):
        no_attribute(s, value, name)
    if new.cls is weakref.ref and value.source is not None:
        s.unsupported("weak-reference", f"a weak reference is stored on {value.describe()}, which is from outside")
    if name == "grad" and new.cls is type(None) and isinstance(value, TensorValue):
        s.gradients.set_to_none(s, value)
    growing_state.note(s, value, name, new)
    value.set_instance_attr(s, name, new)


def _set_module_attr(s: Session, value: ModuleValue, name: str, new: Value) -> None:
    """`nn.Module.__setattr__`: parameters, submodules and buffers go to their tables."""
    own = real_dict(value.real)
    for table in MODULE_TABLES:
        if name in own.get(table, ()):
            members = s.get_attr(value, table)
            assert isinstance(members, DictValue)
            members.put(s, Const(name), new)
            s.taken.replaced.append(Member(value.source, table, name))  # type: ignore[arg-type]
            return
    if issubclass(new.cls, torch.nn.Module) or any(is_marked(s, new, cls) for cls in MARKS):
        s.call(s.wrap(torch.nn.Module.__setattr__, None), value, Const(name), new)
    else:
        object_set_attr(s, value, name, new)


def del_attr(s: Session, value: Value, name: str) -> None:
    """`del value.name`."""
    not_a_proxy(s, value)
    override = s.static(value.cls, "__delattr__")
    if type(override) is FUNCTION or borrowed(override, "__delattr__"):
        s.call(s.wrap(override, None), value, Const(name))
    elif isinstance(value, ClassValue):
        class_set_attr(s, value, name, None)
    else:
        object_del_attr(s, value, name)


def object_del_attr(s: Session, value: Value, name: str) -> None:
    """`object.__delattr__`."""
    static = s.static(value.cls, name)
    if isinstance(static, property):
        if static.fdel is None:
            s.throw(AttributeError, f"property {name!r} of {value.cls.__name__!r} object has no deleter")
        s.call(s.wrap(static.fdel, None), value)
        return
    deleter = s.static(kind_of(static), "__delete__") if static is not MISSING else MISSING
    if type(deleter) is FUNCTION:
        s.call(s.wrap(deleter, None), s.wrap(static, None), value)
    elif not value.del_instance_attr(s, name):
        no_attribute(s, value, name)
