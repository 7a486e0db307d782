"""What a class holds for a value that only tracing knows."""

from __future__ import annotations

import threading
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

from dovetail.capture.values.base import Value


class Placeholder:
    """Takes the place of `value` in a class's dictionary; `kind` is the class of what it stands for."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class ClassStore(Value):
    """What traced code stored to a class from outside: names to stand-ins, MISSING where it deleted."""

    __slots__ = ("real", "table")

    def __init__(self, real: type) -> None:
        super().__init__()
        self.real = real
        self.table: dict[str, Any] = {}


def kind_of(static: Any) -> type:
    """The type of what a class holds."""
    return static.value.cls if type(static) is Placeholder else type(static)


def borrowed(static: Any, name: str) -> bool:
    """Is what a class has under `name` a native method of another name, as in `__setattr__ = dict.__setitem__`?"""
    return isinstance(static, (WrapperDescriptorType, MethodDescriptorType)) and static.__name__ != name


class QuietSlots:
    """First among the bases while a class is made: keeps Python from running `__init_subclass__` by itself."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class Quiet:
    """The same where the bases have instance dictionaries: the layouts must agree."""

    __init_subclass__ = QuietSlots.__dict__["__init_subclass__"]


def quiet_class(meta: type, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    """A class made without any hook of its bases."""
    first = Quiet if any(base.__dictoffset__ for base in bases) else QuietSlots
    made: type = type.__new__(meta, name, (first, *bases), dict(space))
    made.__bases__ = bases
    return made


def has_dict(cls: type) -> bool:
    """Do instances have a `__dict__`? Those of threading.local have one for each thread."""
    return cls.__dictoffset__ != 0 or issubclass(cls, threading.local)
