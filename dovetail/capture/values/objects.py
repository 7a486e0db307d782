"""Objects with attributes: instances of user classes, modules, exceptions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from dovetail.capture.values.base import MISSING, Args, NotNative, Session, Value, serial
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, OwnDict, Source


class Lazy:
    """Something inside a container from outside that nothing has read yet; reading wraps and guards it."""

    __slots__ = ("real", "source")

    def __init__(self, real: Any, source: Source) -> None:
        self.real, self.source = real, source


class ObjectValue(Value):
    """An instance of `cls`.

    `real` is the object behind it when it existed before the traced call, else MISSING. `attrs`
    holds what was read or written so far; a MISSING entry is a deleted attribute. `written` names
    the attributes whose stores must be replayed.
    """

    __slots__ = ("cls", "real", "attrs", "written", "made_by", "born")

    def __init__(self, cls: type, real: Any = MISSING, source: Source | None = None) -> None:
        self.cls, self.real, self.source = cls, real, source
        self.attrs: dict[str, Value] = {}
        self.written: dict[str, None] = {}
        self.made_by: Any = None
        self.born = serial()

    def native(self) -> Any:
        if self.real is MISSING or self.written:
            raise NotNative(self)
        return self.real

    def key(self) -> Any:
        return self if self.real is MISSING else self.real

    def instance_attr(self, s: Session, name: str) -> Value | None:
        found = self.attrs.get(name)
        if found is not None:
            return None if found is MISSING else found
        if self.real is MISSING:
            return None
        found = real_dict(self.real).get(name, MISSING)
        if found is MISSING:
            return None
        source = s.own_source(self, name)
        if s.growing.known:
            s.growing.meet(s, self.cls, name, source)
        value = s.wrap(found, source)
        self.attrs[name] = value
        return value

    def set_instance_attr(self, s: Session, name: str, value: Value) -> None:
        if self.attrs.get(name) is MISSING:
            self.written.pop(name, None)  # deleted and set again: last, as in a dictionary
        self.attrs[name] = value
        self.written[name] = None
        s.effects.touch(self)

    def del_instance_attr(self, s: Session, name: str) -> bool:
        if self.instance_attr(s, name) is None:
            return False
        if self.source is not None and name not in self.written and name in real_dict(self.real):
            s.guard(self.own_dict(), GuardKind.CONTAINS, (name, True))  # reading it may find the class's
        self.attrs[name] = MISSING
        self.written[name] = None
        s.effects.touch(self)
        return True

    def own_dict(self) -> Source:
        """Where the instance's dictionary is; a thread's own of a threading.local is no part of the object."""
        assert self.source is not None
        return OwnDict(self.source) if self.cls.__dictoffset__ else Attr(self.source, "__dict__")

    def attr_names(self, s: Session) -> list[str]:
        """Names in the instance's dictionary, in order; the entry relies on them."""
        names = dict.fromkeys(real_dict(self.real)) if self.real is not MISSING else {}
        if self.source is not None and self.real is not MISSING and (names or self.cls.__dictoffset__):
            s.guard(self.own_dict(), GuardKind.KEYS, tuple(names))
        names.update(self.written)
        return [n for n in names if self.attrs.get(n) is not MISSING]


def real_dict(obj: Any) -> dict[str, Any]:
    """The object's own `__dict__`, without running user code; empty if it has none."""
    try:
        if isinstance(obj, threading.local):
            return obj.__dict__  # this thread's
        own: dict[str, Any] = object.__getattribute__(obj, "__dict__")
        return own
    except AttributeError:
        return {}


class OpaqueValue(ObjectValue):
    """A native container (an array, a buffer): what it holds may change, and only native code can look."""

    __slots__ = ()

    def native(self) -> Any:
        raise NotNative(self)


class ModuleValue(ObjectValue):
    """An `nn.Module` from outside. `members` are names that `attrs` has from the module's tables.

    It is known by its identity; or it is one of many at `source` that are alike, and `identify` makes it the one.
    """

    __slots__ = ("identify", "members")

    def __init__(self, cls: type, real: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, real, source)
        self.members: dict[str, str] = {}
        self.identify: Callable[[], None] | None = None

    def instance_attr(self, s: Session, name: str) -> Value | None:
        table = self.members.get(name)
        if table is not None and getattr(self.attrs.get(table), "changed", False):
            del self.members[name], self.attrs[name]  # the table says what it is now
        return super().instance_attr(s, name)

    def native(self) -> Any:
        if self.real is MISSING:
            raise NotNative(self)
        if self.identify is not None:
            self.identify()
        return self.real

    def key(self) -> Any:
        return self if self.real is MISSING else self.native()


class ExceptionValue(ObjectValue):
    """An exception object made inside; `args` is a list of values.

    `cause`, `context` and `suppress` are its links, `raised` says that it has a traceback, whose frames, from the one
    that caught it inwards, are `break_candidates`; `origin` is the group that it is a part of.
    """

    __slots__ = ("args", "cause", "original", "context", "suppress", "raised", "origin", "break_candidates", "left")

    def __init__(self, cls: type, args: Args, original: BaseException | None = None) -> None:
        super().__init__(cls)
        self.args, self.original = args, original
        self.cause: Value | None = None
        self.context: Value | None = None
        self.suppress = self.raised = False
        self.origin: Value | None = None
        self.break_candidates: tuple = ()
        self.left: list = []  # variables of the frames that it has left, which its traceback keeps


class TracebackValue(ObjectValue):
    """The traceback of the exception being handled: not None, and that is all that is known while capturing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(TracebackType)
        self.made_by = "the interpreter"

    def get_attr(self, s: Session, name: str) -> Value:
        return s.unsupported("traceback", "a traceback is read, which exists only when the program runs")


class Handling(Value):
    """What a handler keeps on the stack: it handles `error`, and `previous` will be handled again after it."""

    __slots__ = ("error", "previous")

    def __init__(self, error: Value, previous: Value | None) -> None:
        super().__init__()
        self.error, self.previous = error, previous
