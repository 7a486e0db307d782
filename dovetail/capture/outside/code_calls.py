"""Which calls and attributes have effects, for `hidden_effects`."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.capture.outside.code_values import (
    FRESH,
    OTHER,
    REST,
    Attribute,
    Fresh,
    HasEffect,
    Method,
    Outside,
    Super,
    users_function,
)
from dovetail.capture.process.trusted_code import trusted, trusted_class

if TYPE_CHECKING:
    from dovetail.capture.outside.hidden_effects import Reading

#: Methods of containers, files and their like that change them. In place, tensors are changed by operators, which
#: a graph has.
CHANGING = frozenset((
    "append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft", "popitem", "clear", "update",
    "setdefault", "add", "discard", "sort", "reverse", "rotate", "write", "writelines", "flush", "close", "put",
    "acquire", "release", "set", "send", "throw", "register", "unregister", "__setitem__", "__delitem__", "__setattr__",
    "__next__", "__iadd__", "subtract", "difference_update", "intersection_update", "symmetric_difference_update",
))  # fmt: skip
#: Functions that change their first argument.
CHANGE_FIRST = frozenset((next, setattr, delattr, object.__setattr__, object.__delattr__, type.__setattr__))
REFUSED = frozenset((print, input, open, exec, eval, breakpoint, builtins.__import__))
#: Modules whose functions have effects that show, drawing random numbers included.
MODULES = frozenset(("random", "secrets", "logging", "warnings", "os", "sys", "atexit", "signal", "gc", "queue",
                     "io", "_io", "_random", "_warnings", "posix", "nt"))  # fmt: skip
#: A program that only reports what it does is not refused for that where operators are handled.
REPORTING = frozenset(("logging", "warnings", "_warnings"))
#: Native methods that make an instance of the class that they are given.
MAKING = frozenset(("__new__", "_make_wrapper_subclass", "_make_subclass"))
SETTING = ("manual_seed", "seed", "set_")  # how the names of PyTorch's functions that set something begin
#: What values that are not known may be asked to do, being tensors, numbers, texts or containers.
ASKED = frozenset(name for cls in (torch.Tensor, dict, list, tuple, str, torch.Size, torch.dtype) for name in dir(cls))


# ---------------------------------------------------------------- calls


def called_object(r: Reading, real: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call of an object from outside."""
    if isinstance(real, functools._lru_cache_wrapper):
        real = real.__wrapped__
    if isinstance(real, MethodType) and isinstance(real.__func__, FunctionType):
        return r.called(Method(real.__func__, Outside(real.__self__)), args, kwargs)
    if isinstance(real, type):
        return _called_class(r, real, args, kwargs)
    if isinstance(real, BuiltinMethodType) and not isinstance(real.__self__, (ModuleType, type, type(None))):
        return called_method(r, Outside(real.__self__), real.__name__, args)
    if isinstance(real, FunctionType) and users_function(real) is not None:
        return r.entered(real, args, kwargs)
    hand_on(r, args, kwargs)
    return _called_native(r, real, args)


def _called_native(r: Reading, real: Any, args: Sequence[Any]) -> Any:
    """A call of native code, or of PyTorch's and the standard library's."""
    owner = (getattr(real, "__module__", None) or "").partition(".")[0]
    name = getattr(real, "__name__", type(real).__name__)
    if hashable(real) and real in CHANGE_FIRST:
        r.changed(args[0] if args else OTHER, f"calls {name} on something that it does not make")
    elif hashable(real) and real in REFUSED:
        raise HasEffect(f"calls {name}")
    elif _shows(r, owner) or owner == "torch" and name.startswith(SETTING):
        raise HasEffect(f"calls {owner}.{name}")
    elif not trusted(owner) and not isinstance(real, BuiltinMethodType) and not trusted_class(type(real)):
        r.unclear(f"calls {name}")
    return _instance(name, args)


def _instance(name: str, args: Sequence[Any]) -> Any:
    makes = name in MAKING and args and isinstance(args[0], Outside) and isinstance(args[0].real, type)
    return Fresh(args[0].real) if makes else OTHER


def _shows(r: Reading, module: str) -> bool:
    return module in MODULES and (r.does.strict or module not in REPORTING)


def hand_on(r: Reading, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Functions of the program's that are handed to native code may be called by it."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Method):
            r.entered(value.function, (value.first, REST), {})
        elif isinstance(value, Outside) and isinstance(value.real, FunctionType):
            r.entered(value.real, (REST,), {})


def hashable(real: Any) -> bool:
    return type(real).__hash__ is not None


def _called_class(r: Reading, cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if cls is type and args is not None and len(args) == 1:
        return Outside(args[0].cls) if isinstance(args[0], Fresh) and args[0].cls is not None else OTHER
    if cls is super and not args:
        return implicit_super(r)
    if trusted_class(cls):
        hand_on(r, args, kwargs)
    for name, first in (("__new__", Outside(cls)), ("__init__", Fresh(cls)), ("__post_init__", Fresh(cls))):
        function = inspect.getattr_static(cls, name, None)
        function = getattr(function, "__func__", function)
        if isinstance(function, FunctionType):
            r.entered(function, (first, *(() if name == "__post_init__" else args)), kwargs)
    return FRESH if trusted_class(cls) else Fresh(cls)


def implicit_super(r: Reading) -> Any:
    names = r.code.parameters.positional
    first = r.names.get(names[0], OTHER) if names else OTHER
    after = cell(r, "__class__")
    start = first.real if isinstance(first, Outside) and isinstance(first.real, type) else getattr(first, "cls", None)
    if isinstance(after, Outside) and start is not None:
        return Super(start, after.real, first)
    return OTHER


def called_method(r: Reading, owner: Any, name: str, args: Sequence[Any]) -> Any:
    """A method of an object that is not known, or one that native code has."""
    real = getattr(owner, "real", None)
    if name in CHANGING and (isinstance(owner, Outside) or not hasattr(torch.Tensor, name)):
        if not isinstance(real, (torch.Tensor, ModuleType)):
            r.changed(owner, f"calls {name} of something that it does not make")
    if isinstance(owner, Outside):
        module = type(real).__module__.partition(".")[0]
        if _shows(r, module):
            raise HasEffect(f"calls {name} of {module}")
    elif not isinstance(owner, Fresh) and name not in ASKED:
        r.unclear(f"calls the method {name} of something that cannot be told beforehand")
    return FRESH if name in ("copy", "split", "keys", "items", "values") else _instance(name, args)


# ---------------------------------------------------------------- attributes and items


def attribute(r: Reading, owner: Any, name: str) -> Any:
    if isinstance(owner, Super):
        classes = owner.start.__mro__
        behind = classes[classes.index(owner.after) + 1 :] if owner.after in classes else ()
        return _of_classes(r, behind, name, owner.first, Attribute(FRESH, name))
    if isinstance(owner, Fresh) and owner.cls is not None:
        if name == "__class__":
            return Outside(owner.cls)
        own = r.does.attributes.get((owner.cls, name))
        return own if own is not None else _of_classes(r, owner.cls.__mro__, name, owner, Attribute(owner, name))
    if not isinstance(owner, Outside):
        return Attribute(owner, name)
    real = owner.real
    table = getattr(real, "__dict__", {})
    if isinstance(real, type):
        return _of_classes(r, real.__mro__, name, owner, Attribute(owner, name))
    if isinstance(table, Mapping) and name in table:
        return Outside(table[name])
    if isinstance(real, ModuleType):
        return Attribute(owner, name)
    return _of_classes(r, type(real).__mro__, name, owner, Attribute(owner, name))


def _of_classes(r: Reading, classes: Iterable[type], name: str, first: Any, otherwise: Any) -> Any:
    """What the classes have under a name, looked up through `first`."""
    holder = next((c for c in classes if name in c.__dict__), object)
    found = holder.__dict__.get(name)
    r.does.note(holder, name, found)
    through_class = isinstance(first, Outside) and isinstance(first.real, type)
    if isinstance(found, staticmethod):
        return Outside(found.__func__)
    if isinstance(found, classmethod) and isinstance(found.__func__, FunctionType):
        cls = first.real if through_class else getattr(first, "cls", None) or type(getattr(first, "real", None))
        return _bound(found.__func__, Outside(cls))
    if isinstance(found, FunctionType):
        return Outside(found) if through_class else _bound(found, first)
    if isinstance(found, property) and not through_class and isinstance(found.fget, FunctionType):
        return r.entered(found.fget, [first], {})
    if found is None or hasattr(type(found), "__get__"):
        return otherwise if found is None or not through_class else Outside(found)
    return Outside(found)


def _bound(function: FunctionType, first: Any) -> Any:
    return Attribute(first, function.__name__) if users_function(function) is None else Method(function, first)


def item(r: Reading) -> None:
    """A table of functions gives any of them."""
    owner, key = r.take(2)
    table = owner.real if isinstance(owner, Outside) else None
    r.stack.append(OTHER)
    if isinstance(table, dict):
        if isinstance(key, Outside) and hashable(key.real) and key.real in table:
            r.stack[-1] = Outside(table[key.real])
            return
        for value in list(table.values()):
            if isinstance(value, FunctionType) and not r.does.strict:
                r.entered(value, (REST,), {})


def cell(r: Reading, name: str) -> Any:
    if name in r.names or name in r.code.code.co_cellvars:
        return r.names.get(name, FRESH)
    if name in r.outer:
        return r.outer[name]
    cells = dict(zip(r.function.__code__.co_freevars, r.function.__closure__ or ()))
    try:
        return Outside(cells[name].cell_contents)
    except (KeyError, ValueError):  # of a function around it, or empty
        return OTHER
