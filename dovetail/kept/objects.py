"""The program's own objects, as another process finds them again.

A compiled entry relies on objects by their identity: modules, functions, classes, parameters. In another process they
are others. Each is found by a way there (a path that a guard follows, or a name in a module), and has to be of the same
making: a function has the same code and defaults, a class the same bases. What it holds is for the entry's guards to
compare; of what never changes in a process, as a function's cells and a class's bases, the parts that the entry relies
on have to be where they were.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import importlib
import inspect
import marshal
import pathlib
import re
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy
import torch

from dovetail.errors import Unsupported
from dovetail.ir import marks
from dovetail.ir.callers import LIBRARY
from dovetail.ir.captured import Captured, Continuation, Point
from dovetail.ir.guard import ABSENT, GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import LOOKS_LIKE, Bound, Computed, Source, TypeOf
from dovetail.kept.meshes import parts_of
from dovetail.ops.fake.wrapped import Like, Same


class Unkept(Unsupported):
    """A compilation that no other process could use: it depends on what cannot be recognized there."""

    def __init__(self, reason: str) -> None:
        super().__init__("not-kept", reason)


# ---------------------------------------------------------------- of the same making

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
PRINTED = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
#: Which are known by their class alone: what is in them is read by guards.
HOLDERS = (dict, list, set, deque, OrderedDict, defaultdict, torch.nn.Module, torch.Tensor, torch.optim.Optimizer,
           types.MappingProxyType, types.SimpleNamespace, threading.local, numpy.ndarray)  # fmt: skip
NATIVE = (BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
          types.MemberDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType)  # fmt: skip
_NOT_MADE, _HEAP = 1 << 7, 1 << 9  # of a class: Python code cannot make instances; it was made by a program
#: Packages whose definitions count by their versions.
TRUSTED = LIBRARY | {"numpy"}


def trusted(module: Any) -> bool:
    return str(module).partition(".")[0] in TRUSTED


def making(obj: Any, whole: bool = False) -> Any:
    """What must be the same for an object to stand in another's place, as plain data. Raises Unkept for what cannot be
    told. `whole`: also for what says too little, since it holds what can change."""
    kind = type(obj)
    if kind in PLAIN:
        return kind.__name__, written(obj)
    if kind in PRINTED:
        return kind.__name__, str(obj)
    if isinstance(obj, tuple):
        return "tuple", name_of(kind), tuple(making(part, whole) for part in obj)
    if kind is frozenset:
        return "frozenset", tuple(sorted(repr(making(part, whole)) for part in obj))
    for known, described in _MAKINGS.items():
        if isinstance(obj, known):
            return described(obj)
    if obj is ABSENT:
        return ("absent",)
    told = parts_of(obj)
    if told is not None:
        return told[0], making(told[1], whole)
    if whole and kind in _CONTENTS:
        return kind.__name__, *(making(part, whole) for part in _CONTENTS[kind](obj))
    if not whole and isinstance(obj, HOLDERS):
        return "an object", name_of(kind)
    if kind.__module__ == "typing":
        return "a type", repr(obj)
    if any(map(_is_native, kind.__mro__[:-1])):
        return _of_native_object(obj)
    if not whole and kind.__flags__ & _HEAP:
        return "an object", name_of(kind)
    raise Unkept(f"nobody can tell whether a {kind.__module__}.{kind.__qualname__} is the same in another process")


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    list: iter, dict: dict.items, set: lambda found: [frozenset(found)],
}  # fmt: skip


def _is_native(cls: type) -> bool:
    """Do instances have a state of which Python shows nothing?"""
    new = cls.__dict__.get("__new__")
    own = isinstance(new, BuiltinFunctionType) and new.__self__ is cls
    return cls not in HOLDERS and (own or bool(cls.__flags__ & _NOT_MADE))


def _of_native_object(obj: Any) -> Any:
    """By what it is copied with, for classes of the standard library and NumPy that say that."""
    native = next(filter(_is_native, type(obj).__mro__))
    try:
        found = obj.__reduce_ex__(2) if native.__module__.partition(".")[0] != "torch" else ""
    except TypeError:
        found = ""
    if not isinstance(found, (tuple, str)) or not found or not trusted(native.__module__):
        raise Unkept(f"nobody can tell whether a {native.__module__}.{native.__qualname__} is the same elsewhere")
    return "native", name_of(type(obj)), making(found, whole=True)


def written(obj: Any) -> str:
    """A plain value as a text that no other has: Python refuses to write long integers in decimal digits."""
    return hex(obj) if type(obj) is int else repr(obj)


def _of_function(function: FunctionType) -> Any:
    rest = function.__defaults__, function.__kwdefaults__
    return "function", *name_of(function), code_digest(function.__code__), *map(_loosely, rest), _marked(function)


def _marked(function: Any) -> Any:
    """What the program has asked the compiler to do with it."""
    found = marks.of_function(function)
    if found is None:
        return ""
    detail = found.detail if isinstance(found.detail, tuple) else (found.detail,)
    return found.mark.name, *(name_of(part) if callable(part) else repr(part) for part in detail)


def _loosely(value: Any) -> Any:
    """Defaults: plain ones count, of others their kind; guards compare what is used."""
    if isinstance(value, Mapping):
        return tuple((key, _loosely(v)) for key, v in value.items())
    if type(value) is tuple:
        return tuple(map(_loosely, value))
    try:
        return making(value)
    except Unkept:
        return "an object", name_of(type(value))


def _of_class(cls: type) -> Any:
    """What its members are is for guards to compare; not that there are no others, which a program may look for."""
    return "class", tuple(map(name_of, cls.__mro__)), name_of(type(cls)), tuple(map(_members, cls.__mro__))


def _members(cls: type) -> Any:
    return () if trusted(cls.__module__) else tuple(sorted(cls.__dict__.keys() - _LAZY))


#: Entries that Python makes in a class when it is first asked for them.
_LAZY = frozenset(("__annotations__", "__annotations_cache__", "__slotnames__", "__doc__"))


def _of_ufunc(function: numpy.ufunc) -> Any:
    if getattr(numpy, function.__name__, None) is not function:
        raise Unkept("a function on arrays that is none of NumPy's is part of it")
    return "ufunc", function.__name__


def _of_module(module: torch.nn.Module) -> Any:
    """No guard looks whether one has a forward of its own where it had none."""
    own = "its own forward" if "forward" in object.__getattribute__(module, "__dict__") else ""
    return "an object", name_of(type(module)), own


def on_object(found: Any) -> bool:
    """Is it a native method of an object?"""
    owner = getattr(found, "__self__", None)
    return not (owner is None or isinstance(owner, (type, ModuleType)) or owner is torch.default_generator)


def _of_native(found: Any) -> Any:
    owner = getattr(found, "__objclass__", None) or getattr(found, "__self__", None)
    where = name_of(owner) if isinstance(owner, type) else getattr(owner, "__name__", name_of(type(owner)))
    return type(found).__name__, found.__name__, where


class NamedField(NamedTuple):
    """Has a field, whose class Python names nowhere."""

    first: int


_MAKINGS: dict[Any, Callable[[Any], Any]] = {
    type: _of_class,
    FunctionType: _of_function,
    NATIVE: _of_native,
    (range, slice): lambda found: (type(found).__name__, *map(making, (found.start, found.stop, found.step))),
    ModuleType: lambda found: ("module", found.__name__),
    MethodType: lambda found: ("method", making(found.__func__), name_of(type(found.__self__))),
    (classmethod, staticmethod): lambda found: (type(found).__name__, making(found.__func__)),
    property: lambda found: ("property", *(making(part) for part in (found.fget, found.fset, found.fdel))),
    functools.cached_property: lambda found: ("cached property", making(found.func)),
    functools.partial: lambda found: ("partial", making(found.func), making(found.args), _loosely(found.keywords)),
    functools._lru_cache_wrapper: lambda found: ("cached", making(found.__wrapped__)),
    enum.Enum: lambda found: ("enum", name_of(type(found)), repr(found), _loosely(found.__dict__)),
    torch.nn.Module: _of_module,
    inspect.Signature: lambda found: ("a signature", str(found)),
    re.Pattern: lambda found: ("a pattern", written(found.pattern), found.flags),
    (types.GenericAlias, types.UnionType): lambda found: ("a type", repr(found)),
    types.CellType: lambda found: ("a cell",),
    numpy.ufunc: lambda found: _of_ufunc(found),
    weakref.ref: lambda found: ("a weak reference", found() is None),
    pathlib.PurePath: lambda found: ("path", type(found).__name__, str(found)),
    type(NamedField.first): lambda found: ("field", repr(found.__reduce__()[1])),
    CodeType: lambda found: ("code", code_digest(found)),
    Same: lambda found: ("same", making(found.value)),
    Like: lambda found: ("like", making((found.facts, found.contexts, found.varying), whole=True)),
    Point: lambda p: ("point", code_digest(p.code), p.at, p.index, p.locals, p.cells, p.stack, p.result),
}


def name_of(found: Any) -> tuple[str, str]:
    return str(getattr(found, "__module__", "")), str(getattr(found, "__qualname__", ""))


_digests: WeakKeyDictionary[CodeType, str] = WeakKeyDictionary()


def code_digest(code: CodeType) -> str:
    """Of everything in it but the file's name: lines are part of it, since messages name them."""
    found = _digests.get(code)
    if found is None:
        digest = hashlib.sha256(marshal.dumps(_without_file(code)))
        found = _digests[code] = digest.hexdigest()
    return found


def _without_file(code: CodeType) -> CodeType:
    constants = tuple(_without_file(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename="", co_consts=constants)


# ---------------------------------------------------------------- ways there


@dataclass(frozen=True)
class Route:
    """How an object is found: `kind` says by what.

    "root", "self", "function", "globals": the callable, what its method belongs to, its function, that one's.
    "module", "namespace", "name": by `steps`, names. "value": it is in `steps`. "path": what `source` leads to.
    "part": from object number `of`, by `steps`. "answer": to question number `of`. "like": what a tensor at
    `source` that is made of others is compared with; `steps` are the paths to parts whose sizes vary. "beside": the
    object number `of` among those that such a tensor has beside its parts.
    "spec": where a tensor lies on the mesh that is object `of`.
    """

    kind: str
    source: Source | None = None
    of: int = -1
    steps: tuple = ()


@dataclass(frozen=True)
class Known:
    """An object that the entry relies on. `parts`: which others it has where, as steps and numbers."""

    way: Route
    made: Any
    parts: tuple[tuple[tuple, int], ...] = ()


def continuation_of(fn: Any) -> Continuation | None:
    """What is left to do, where the callable is what follows a graph break."""
    found = getattr(fn, "_dovetail_continuation", None) if isinstance(fn, FunctionType) else None
    return found if isinstance(found, Continuation) else None


def namespace_of(fn: Any, function: Any) -> dict[str, Any]:
    """What paths to globals begin with."""
    rest = continuation_of(fn)
    found: dict[str, Any] = getattr(function, "__globals__", {}) if rest is None else rest.scopes[0]
    return found


def routes(captured: Captured, fn: Any, function: Any) -> dict[int, list[Route]]:
    """By the identities of objects, the ways that guards and questions show, and those from the callable itself."""
    found: dict[int, list[Route]] = {id(fn): [Route("root")]}
    found.setdefault(id(function), []).append(Route("function"))
    found.setdefault(id(namespace_of(fn, function)), []).append(Route("globals"))
    owner = getattr(fn, "__self__", None)
    if owner is not None:
        found.setdefault(id(owner), []).append(Route("self"))
    for guard in captured.guards:
        if isinstance(guard.source, Computed) and guard.source.template == LOOKS_LIKE:
            check, tensor = guard.source.operands
            assert isinstance(check, Bound)
            known = captured.bound[check.index]
            found.setdefault(id(known), []).append(Route("like", tensor, steps=(known.varying,)))
            for k, beside in enumerate(known.beside):
                found.setdefault(id(beside), []).append(Route("beside", tensor, of=k))
        elif guard.kind is GuardKind.ID or guard.kind is GuardKind.EQUAL and type(guard.payload) not in PLAIN:
            found.setdefault(id(guard.payload), []).append(Route("path", guard.source))
        elif guard.kind is GuardKind.TYPE:
            found.setdefault(id(guard.payload), []).append(Route("path", TypeOf(guard.source)))  # type: ignore[arg-type]
    for k, each in enumerate(captured.asked):
        found.setdefault(id(each.answer), []).append(Route("answer", of=k))
    return found


def parts(obj: Any) -> Iterator[tuple[tuple, Any]]:
    """What belongs to an object whatever it holds, and the steps there: a function's cells, a class's members."""
    if isinstance(obj, FunctionType):
        for k, cell in enumerate(obj.__closure__ or ()):
            yield ("cell", k), cell
            with contextlib.suppress(ValueError):  # an empty one
                yield ("closure", k), cell.cell_contents
        for k, default in enumerate(obj.__defaults__ or ()):
            yield ("default", k), default
        for name, default in (obj.__kwdefaults__ or {}).items():
            yield ("keyword", name), default
        if "__wrapped__" in obj.__dict__:
            yield ("attribute", "__wrapped__"), obj.__wrapped__  # type: ignore[attr-defined]
    elif isinstance(obj, type):
        for k, base in enumerate(obj.__mro__[1:], 1):
            yield ("mro", k), base
        for name, member in obj.__dict__.items():
            yield ("member", name), member
            if _is_wrapper(member):
                yield from ((("member", name, *steps), part) for steps, part in parts(member))
    elif _is_wrapper(obj):
        for name in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__"):
            inner = getattr(obj, name, None)
            if isinstance(inner, FunctionType):
                yield ("attribute", name), inner
    else:
        yield ("type",), type(obj)


def names_in(obj: Any) -> dict[str, Any]:
    """What is found by name in a module's table, or in that of a function."""
    table = vars(obj) if isinstance(obj, ModuleType) else getattr(obj, "__globals__", obj)
    return table if isinstance(table, dict) and "__name__" in table else {}


def _is_wrapper(obj: Any) -> bool:
    return isinstance(obj, (classmethod, staticmethod, property, functools.partial, MethodType, *_CACHES))


_CACHES = functools.cached_property, functools._lru_cache_wrapper
_FOLLOWED: dict[str, Callable[[Any, Any], Any]] = {
    "cell": lambda obj, k: obj.__closure__[k],
    "closure": lambda obj, k: obj.__closure__[k].cell_contents,
    "default": lambda obj, k: obj.__defaults__[k],
    "keyword": lambda obj, name: obj.__kwdefaults__[name],
    "attribute": getattr,
    "mro": lambda obj, k: obj.__mro__[k],
    "member": lambda obj, name: obj.__dict__[name],
}


def followed(obj: Any, steps: tuple) -> Any:
    """What `parts` found there, in another process."""
    if steps == ("type",):
        return type(obj)
    if steps[0] == "in":
        return names_in(obj)[steps[1]]
    for kind, which in zip(steps[::2], steps[1::2], strict=True):
        obj = _FOLLOWED[kind](obj, which)
    return obj


#: Classes that Python has no other name for.
NAMED_IN_TYPES = {
    cls: name for name, cls in vars(types).items() if isinstance(cls, type) and cls.__module__ == "builtins"
}


def by_name(obj: Any) -> Route | None:
    """A way to what any process finds in a module, or can write down."""
    if type(obj) in (*PLAIN, *PRINTED, range, slice) or isinstance(obj, NATIVE) and not on_object(obj):
        return Route("value", steps=(obj,))
    if isinstance(obj, ModuleType):
        return _module_way("module", vars(obj))
    if isinstance(obj, dict):
        return _module_way("namespace", obj)
    module, path = name_of(obj)
    if isinstance(obj, type) and obj in NAMED_IN_TYPES:
        module, path = "types", NAMED_IN_TYPES[obj]
    if not isinstance(obj, (type, FunctionType, BuiltinFunctionType)) or not path or "<" in path:
        return None
    module = module or "builtins"
    way = Route("name", steps=(module, *path.split(".")))
    return way if named(way.steps) is obj else None


def _module_way(kind: str, table: dict[str, Any]) -> Route | None:
    """To the module that has this table, which may be registered under another name than it says."""
    names = table.get("__name__"), getattr(table.get("__spec__"), "name", None)
    for name in names:
        if isinstance(name, str) and vars(module_named(name)) is table:
            return Route(kind, steps=(name,))
    return None


def module_named(name: str) -> Any:
    """PyTorch has one for each namespace of operators, which it does not register."""
    own = name.removeprefix(_SPACES)
    return vars(torch.ops).get(own, _NOTHING) if own != name else sys.modules.get(name, _NOTHING)


_NOTHING = types.SimpleNamespace()
_SPACES = "torch.ops."


def import_of_library(name: str) -> None:
    """It imports some of its modules only when somebody uses their names, as `torch._dynamo`."""
    if name not in sys.modules and trusted(name) and not name.startswith(_SPACES):
        importlib.import_module(name)


def named(names: Sequence[str]) -> Any:
    """What has the names, in the module that is the first; the library's modules are imported for that."""
    import_of_library(names[0])
    found: Any = sys.modules.get(names[0])
    for name in names[1:]:
        found = getattr(found, name, None)
    return found
