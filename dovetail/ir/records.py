"""The standard library's `dataclass`, whose methods are made when a class is first used, and only `__init__` as text.

The standard library writes and compiles six methods for each class, 0.3 to 0.7 ms. There are 200 classes, and a process
that finds its programs compiled uses few of them: this took half of what its modules take to load.
"""

from __future__ import annotations

import dataclasses
import re
import reprlib
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False, kw_only=False):
        """As `dataclasses.dataclass`, of which it has the options that are used here."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr, slots=slots, kw_only=kw_only)
        return _with_stand_ins(cls, slots, {"frozen": frozen, "eq": eq, "repr": repr, "kw_only": kw_only})


__all__ = ["dataclass"]

_LOCK = threading.RLock()  # writing one class's methods may write its bases'
_NO_FIELD = re.compile(r"(\w+\.)?ClassVar\b")
_DESCRIPTIONS = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


class _StandIn:
    """A class attribute that describes the fields, until there is one."""

    def __init__(self, name: str, write: Callable[[], None]) -> None:
        self.name, self.write = name, write

    def __get__(self, instance: Any, owner: type) -> Any:
        self.write()
        return getattr(owner, self.name)


def _with_stand_ins(cls: type, slots: bool, options: dict[str, bool]) -> type:
    """The class with methods and attributes in whose places the written ones will be."""
    defaults: dict[str, Any] = {}
    if slots:
        cls, defaults = _with_slots(cls, options["frozen"])
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the signature is found out for it
    own = vars(cls)
    stand_ins: dict[str, Any] = {}

    def write() -> None:
        with _LOCK:
            if stand_ins:
                _write(cls, options, defaults, stand_ins)

    def method(name: str) -> Callable[..., Any]:
        def stand_in(self: Any, *args: Any, **kwargs: Any) -> Any:
            write()
            return getattr(cls, name)(self, *args, **kwargs)

        return stand_in

    eq, hashed = options["eq"], options["eq"] and options["frozen"]
    wanted = {"__init__": True, "__repr__": options["repr"], "__eq__": eq, "__hash__": hashed}
    names = [name for name, wanted in wanted.items() if wanted and own.get(name) is None]  # an `__eq__` hides the hash
    stand_ins |= {name: method(name) for name in names}
    stand_ins |= {name: _StandIn(name, write) for name in _DESCRIPTIONS if name not in own}
    for name, stand_in in stand_ins.items():
        setattr(cls, name, stand_in)
    if eq and not hashed and "__hash__" not in own:
        cls.__hash__ = None  # type: ignore[assignment]
    return cls


def _with_slots(cls: type, frozen: bool) -> tuple[type, dict[str, Any]]:
    """The class made anew with a slot for each field of its own, and what its body gave for these."""
    text = dict(vars(cls))
    inherited = {name for base in cls.__mro__[1:] for name in vars(base).get("__slots__", ())}
    names = [name for name, kind in text.get("__annotations__", {}).items() if not _NO_FIELD.match(str(kind))]
    defaults = {name: text.pop(name) for name in names if name in text}
    text["__slots__"] = tuple(name for name in names if name not in inherited)
    for name in ("__dict__", "__weakref__"):
        text.pop(name, None)
    if frozen:
        text = {"__getstate__": _state, "__setstate__": _set_state, **text}
    made = type(cls)(cls.__name__, cls.__bases__, text)
    made.__qualname__ = cls.__qualname__
    return made, defaults


def _write(cls: type, options: dict[str, bool], defaults: dict[str, Any], stand_ins: dict[str, Any]) -> None:
    """Have the methods written. `__init__`'s stand-in is replaced last, at once: other threads may be calling it, and
    without it there is no object that they could call another one of."""
    for name in stand_ins.keys() - {"__init__"}:
        delattr(cls, name)
    members = {name: vars(cls).get(name) for name in defaults}
    for name, default in defaults.items():
        setattr(cls, name, default)
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=options["kw_only"])(cls)
    for name, member in members.items():
        setattr(cls, name, member)
    if options["frozen"]:
        cls.__setattr__, cls.__delattr__ = _frozen(cls)  # type: ignore[method-assign]
    for name in stand_ins.keys() & _MADE.keys():
        setattr(cls, name, _MADE[name](dataclasses.fields(cls)))
    if "__init__" in stand_ins:
        cls.__init__ = _init(cls, options["frozen"])  # type: ignore[misc]
    stand_ins.clear()


def _getter(names: list[str]) -> Callable[[Any], tuple]:
    """The values of so many attributes as a tuple, as fast as Python can."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _eq(fields: tuple[dataclasses.Field, ...]) -> Callable[[Any, Any], Any]:
    values = _getter([field.name for field in fields if field.compare])

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(fields: tuple[dataclasses.Field, ...]) -> Callable[[Any], int]:
    values = _getter([field.name for field in fields if (field.compare if field.hash is None else field.hash)])
    return lambda self: hash(values(self))


def _repr(fields: tuple[dataclasses.Field, ...]) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


_MADE: dict[str, Callable[[tuple[dataclasses.Field, ...]], Any]] = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr}


def _frozen(cls: type) -> tuple[Callable[..., None], Callable[..., None]]:
    """What refuses to set and to delete fields, and whatever an object of the class itself may have."""
    names = {field.name for field in dataclasses.fields(cls)}

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return __setattr__, __delattr__


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    """`__init__`, which takes the fields in their order, those by name last."""
    space: dict[str, Any] = {"put": object.__setattr__, "unset": object()}
    by_position, by_name, lines = ["self"], ["*"], []
    for field in dataclasses.fields(cls):
        name, value, parameters = field.name, field.name, by_name if field.kw_only else by_position
        if field.default_factory is not dataclasses.MISSING:
            space[f"new_{name}"], value = field.default_factory, f"new_{name}()"
            if field.init:
                parameters.append(f"{name}=unset")
                value = f"{value} if {name} is unset else {name}"
        elif field.default is not dataclasses.MISSING:
            space[f"default_{name}"] = field.default
            parameters += [f"{name}=default_{name}"] if field.init else []
            value = name if field.init else f"default_{name}"
        elif field.init:
            parameters.append(name)
        else:
            continue
        lines.append(f" put(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    lines += [" self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    parameters = by_position + (by_name if len(by_name) > 1 else [])
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), space)
    made: Callable[..., None] = space["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _state(self: Any) -> list:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
