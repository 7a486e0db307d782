"""The root of every symbolic value, and the exceptions that steer capture."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from dovetail.ir.guard import GuardKind
from dovetail.ir.literals import in_words
from dovetail.ir.source import Source

if TYPE_CHECKING:
    from dovetail.capture.session import Session
else:
    Session = Any  # whose file imports nearly every other; all of capture has the name from here, for annotations


class NotNative(Exception):
    """A value that has no native Python form while capturing (a tensor, an object made inside)."""


class Raised(Exception):
    """The traced program raised; `value` is the symbolic exception object; its frame is told of already (`again`).

    Handlers in traced code catch it; see `frame.Frame.run`.
    """

    def __init__(self, value: Value, again: bool = False) -> None:
        super().__init__(value)
        self.value, self.again = value, again
        self.stack: tuple = ()  # where it left its first frame


class RestartCapture(BaseException):
    """Unwinds a capture that has learned something: it starts again, and knows it from the beginning."""


#: Numbers values in the order of their making, and regions among them.
serial = itertools.count(1).__next__


class Missing:
    """The type of `MISSING`: no such attribute, entry or argument."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING: Any = Missing()


class Value:
    """A value of the traced program.

    `cls` is the Python type of what it stands for. `source` says where it came from; None means
    that the traced code made it. `s` in every method is the running `session.Session`.
    """

    __slots__ = ("source",)
    cls: type = object

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    @property
    def type(self) -> type:
        """What `type()` gives: `cls`, but for what is looked up in another class here."""
        return self.cls

    def native(self) -> Any:
        """The Python object itself, when it is known while capturing; raises NotNative."""
        raise NotNative(self)

    def key(self) -> Any:
        """A native object that hashes and compares as this value does as a dictionary key."""
        return self

    def instance_attr(self, s: Session, name: str) -> Value | None:
        """The attribute from the instance's own storage, None if it has none by that name."""
        return None

    def set_instance_attr(self, s: Session, name: str, value: Value) -> None:
        s.unsupported("attribute-store", f"cannot set attribute {name!r} of a {self.cls.__name__} here")

    def del_instance_attr(self, s: Session, name: str) -> bool:
        """Remove the attribute; False if there was none."""
        return False

    def get_attr(self, s: Session, name: str) -> Value:
        return s.generic_get_attr(self, name)

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        return s.call_object(self, args, kwargs)

    def describe(self) -> str:
        """How messages name the value: by the path to it, or by its type."""
        name = self.cls.__name__
        return self.source.name() if self.source is not None else f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}>"


#: What a call passes by position, and by keyword.
Args = list[Value]
Kwargs = dict[str, Value]


class NullValue(Value):
    """The NULL that CPython pushes beside a callable."""

    __slots__ = ()


NULL = NullValue()


class Const(Value):
    """An immutable object known while capturing: a number, a string, None, a dtype, an enum member."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source

    @property
    def cls(self) -> type:  # type: ignore[override]
        return type(self.value)

    def native(self) -> Any:
        return self.value

    def key(self) -> Any:
        return self.value

    def instance_attr(self, s: Session, name: str) -> Value | None:
        own = getattr(self.value, "__dict__", None)
        return s.wrap(own[name], None) if own and name in own else None

    def __repr__(self) -> str:
        return f"<Const {in_words(self.value)}>"


class LazyConst(Const):
    """A number or string from outside that nothing has looked at yet: only then does the entry rely on its value."""

    __slots__ = ("s", "real", "seen")

    def __init__(self, s: Session, real: Any, source: Source) -> None:
        self.s, self.real, self.source, self.seen = s, real, source, False
        s.guard(source, GuardKind.TYPE, type(real))

    @property
    def value(self) -> Any:
        if not self.seen:
            self.seen = True
            self.s.guard(self.source, GuardKind.EQUAL, self.real)
        return self.real

    @property
    def cls(self) -> type:  # type: ignore[override]
        return type(self.real)

    def instance_attr(self, s: Session, name: str) -> Value | None:
        return super().instance_attr(s, name) if self.cls.__dictoffset__ else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {in_words(self.real)}>"


def is_singleton(value: Any, obj: Any) -> bool:
    """Does the value stand for this very None, NotImplemented, ...? Asking relies on no number."""
    return isinstance(value, Const) and value.cls is type(obj) and value.value is obj


NONE, TRUE, FALSE = Const(None), Const(True), Const(False)
ELLIPSIS, NOT_IMPLEMENTED = Const(...), Const(NotImplemented)


def boolean(value: bool) -> Const:
    return TRUE if value else FALSE
