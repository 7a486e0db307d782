"""Functions, methods, classes, Python modules and other objects known by identity."""

from __future__ import annotations

from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from dovetail.capture.values.base import MISSING, Args, Kwargs, NotNative, Session, Value, serial
from dovetail.capture.values.objects import ObjectValue, real_dict
from dovetail.ir.source import Source


class CellValue(Value):
    """A closure cell. `real` and `source` are those of a cell that existed before."""

    __slots__ = ("contents", "real", "changed", "born")
    cls = CellType

    def __init__(self, contents: Value | None = None, real: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(source)
        self.contents, self.real, self.changed, self.born = contents, real, False, serial()

    def load(self, s: Session) -> Value | None:
        if self.contents is None and self.real is not MISSING and not self.changed:
            try:
                found = self.real.cell_contents
            except ValueError:
                return None
            self.contents = s.wrap(found, self.source)
        return self.contents

    def store(self, s: Session, value: Value | None) -> None:
        self.contents = value
        self.changed = True
        s.effects.touch(self)


class FunctionValue(ObjectValue):
    """A Python function, from outside (`real`) or made by MAKE_FUNCTION."""

    __slots__ = (
        "code", "globals", "name", "defaults", "kwdefaults", "closure", "annotations", "anew",
        "parts_loaded", "unlisted",
    )  # fmt: skip
    cls: type

    def __init__(
        self, code: CodeType, scope: dict[str, Any], name: str, real: Any = MISSING, source: Source | None = None
    ) -> None:
        super().__init__(FunctionType, real, source)
        self.code, self.globals, self.name = code, scope, name
        self.defaults: tuple[Value, ...] = ()
        self.kwdefaults: dict[str, Value] = {}
        self.closure: tuple[CellValue, ...] = ()
        self.annotations: Value | None = None
        self.anew = False  # another function object in each call, known by its code
        self.parts_loaded = False  # defaults and cells, of a real one
        self.unlisted = False  # has no table another way to call it than to run its code? True once that was asked

    def native(self) -> Any:
        if self.real is MISSING:
            raise NotNative(self)
        return self.real

    def instance_attr(self, s: Session, name: str) -> Value | None:
        if self.source is None and self.real is not MISSING and not s.scope(self.globals, None).trusted:
            self.source = s.bind(self.real)
        return super().instance_attr(s, name)

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        return s.call_function(self, args, kwargs)


def is_renamed(value: Value, name: str, new: Value) -> bool:
    """Is a function that was made inside given another name? Any other type is an error."""
    made = isinstance(value, FunctionValue) and value.real is MISSING
    return made and name in ("__name__", "__qualname__") and new.cls is str


class MethodKey(tuple):
    """The native keys of a function and of what is bound to it, as the key of the method."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is MethodKey and tuple.__eq__(self, other)

    __hash__ = tuple.__hash__


class MethodValue(Value):
    """`function` with its first argument bound."""

    __slots__ = ("function", "receiver")

    def __init__(self, function: Value, receiver: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function, self.receiver = function, receiver

    @property
    def cls(self) -> type:  # type: ignore[override]
        return METHOD_TYPE if isinstance(self.function, FunctionValue) else BUILTIN_METHOD_TYPE

    def native(self) -> Any:
        function, receiver = self.function.native(), self.receiver.native()
        if not hasattr(function, "__get__"):  # what a class made in C++ has in its `instancemethod`
            return MethodType(function, receiver)
        return function.__get__(receiver, type(receiver))

    def key(self) -> Any:
        return MethodKey((self.function.key(), self.receiver.key()))

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(s, [self.receiver, *args], kwargs)


class PreparedCall(Value):
    """A call with its arguments, for a polyfill to make. A graph that would end at it ends one call further out."""

    __slots__ = ("function", "args", "kwargs")

    def __init__(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
        self.source = None
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def call(self, s: Session, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(s, self.args, self.kwargs)


METHOD_TYPE: type = type(MethodValue(Value(), Value()).describe)
BUILTIN_METHOD_TYPE: type = type("".join)


class KnownValue(Value):
    """An object known by identity: a C function, a descriptor, a generic alias, ..."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None = None) -> None:
        self.real, self.source = real, source

    @property
    def cls(self) -> type:  # type: ignore[override]
        return type(self.real)

    def native(self) -> Any:
        return self.real

    def key(self) -> Any:
        return self.real

    def instance_attr(self, s: Session, name: str) -> Value | None:
        own = real_dict(self.real)
        return s.wrap(own[name], s.attr_source(self, name)) if name in own else None

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        return s.call_known(self, args, kwargs)

    def describe(self) -> str:
        name = getattr(self.real, "__qualname__", None) or super().describe()
        return name.replace("_VariableFunctionsClass.", "torch.")


class OperatorValue(KnownValue):
    """`torch.ops.namespace.name` or one of its overloads; its attributes are read natively."""

    __slots__ = ()

    def get_attr(self, s: Session, name: str) -> Value:
        try:
            return s.wrap(getattr(self.real, name), None)
        except AttributeError as error:
            return s.throw_native(error)


class ClassValue(KnownValue):
    """A class."""

    __slots__ = ()

    def get_attr(self, s: Session, name: str) -> Value:
        return s.class_get_attr(self, name)

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        return s.call_class(self, args, kwargs)


class PyModuleValue(KnownValue):
    """A Python module object."""

    __slots__ = ()

    def get_attr(self, s: Session, name: str) -> Value:
        return s.pymodule_get_attr(self, name)


class SuperValue(Value):
    """`super(start, receiver)`; `owner` is the class whose MRO is searched."""

    __slots__ = ("start", "receiver", "owner")
    cls = super

    def __init__(self, start: type, receiver: Value, owner: type) -> None:
        super().__init__()
        self.start, self.receiver, self.owner = start, receiver, owner

    def get_attr(self, s: Session, name: str) -> Value:
        return s.super_get_attr(self, name)
