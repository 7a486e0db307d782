"""What code of PyTorch and the standard library is relied on for, and how.

Their code is taken to be constant, and so is plain data in their modules. Their definitions are not: a program may put
another function in a function's place, in a module or in a class. What the traced code found under a name is guarded,
along with everything below the objects that an entry holds, so a call pays nothing for it (`guards/native.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
import torch.functional
import torch.nn.functional as F

from dovetail.ir.callers import LIBRARY, of_library
from dovetail.ir.guard import GuardKind

if TYPE_CHECKING:
    from dovetail.capture.session import Session

#: Packages whose definitions PyTorch's modules have under their names.
_OWNERS = LIBRARY | {"numpy", "sympy", "typing_extensions"}


#: Is the module part of the standard library or of PyTorch?
trusted = of_library


def trusted_class(cls: type) -> bool:
    """Is the class of a trusted module? Those that ctypes makes natively have no module."""
    return trusted(getattr(cls, "__module__", None) or "")


def foreign(found: Any) -> bool:
    """Has the program put this where PyTorch or the standard library had a definition of their own?"""
    if isinstance(found, MethodType):
        found = found.__func__
    owner = found if isinstance(found, type) else type(found)
    module = found.__globals__.get("__name__") if isinstance(found, FunctionType) else owner.__module__
    return (module or "").partition(".")[0] not in _OWNERS


def rely_on_entry(s: Session, table: dict[str, Any], module: str, name: str, found: Any) -> None:
    """A module of the library has the definition `found` under `name`."""
    if callable(found) or isinstance(found, ModuleType):
        s.guard(s.bind(table, module).item(name), GuardKind.ID, found)


def changeable(cls: type) -> bool:
    """May attributes of the class be replaced?"""
    return cls.__flags__ & (HEAP_TYPE | _IMMUTABLE) == HEAP_TYPE


_IMMUTABLE = 1 << 8
HEAP_TYPE = 1 << 9  # of classes that are written in Python, among others

#: Modules whose functions in Python call one another and native ones; the graph may have a call of one as a node.
_INSIDE = (F.__dict__, torch.functional.__dict__)


def intact(s: Session, function: Any) -> bool:
    """May the graph have a call of this function of PyTorch as one node? Not where the program has replaced what it
    calls: its code is then traced. Relies on what it calls."""
    if not isinstance(function, FunctionType):
        return True
    entries, methods = _names(function)
    new = function not in s.relied.inside
    every = [(table, name, table.get(name)) for table, name in entries] if new else []
    if any(foreign(found) for _, _, found in every if callable(found)):
        return False
    if any(foreign(s.static(torch.Tensor, name)) for name in methods):
        return False
    for table, name, found in every:
        rely_on_entry(s, table, table.get("__name__", ""), name, found)
    s.relied.inside.add(function)
    return True


Entries = list[tuple[dict[str, Any], str]]
#: By function: several may share code and differ in what they enclose.
_known_names: WeakKeyDictionary[FunctionType, tuple[Entries, list[str]]] = WeakKeyDictionary()


def _names(function: FunctionType) -> tuple[Entries, list[str]]:
    """Entries of modules, and methods of tensors, that a function of PyTorch and those that it calls may read."""
    found = _known_names.get(function)
    if found is None:
        seen: dict[FunctionType, None] = {}  # in order
        entries = {(id(table), name): (table, name) for table, name in _read(function, seen)}
        used = dict.fromkeys(name for inner in seen for name in _mentioned(inner))
        methods = [name for name in used if callable(getattr(torch.Tensor, name, None))]
        found = _known_names[function] = list(entries.values()), methods
    return found


def _mentioned(function: FunctionType) -> list[str]:
    return [name for code in _codes(function.__code__) for name in code.co_names]


def _read(function: FunctionType, seen: dict[FunctionType, None]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every name in the code that one of the modules in reach has: more than what is read, never less."""
    if function in seen:
        return
    seen[function] = None
    names = _mentioned(function)
    tables = [function.__globals__]
    for table in tables:
        lazy = table.get("_lazy_modules", ())  # of torch: there once something has imported them
        for name in names:
            if name not in table or name in lazy:
                continue
            found = table[name]
            yield table, name
            if isinstance(found, ModuleType) and found.__dict__ not in tables:
                tables.append(found.__dict__)
            elif isinstance(found, FunctionType) and any(found.__globals__ is inside for inside in _INSIDE):
                yield from _read(found, seen)
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, FunctionType):
            yield from _read(cell.cell_contents, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@cache
def _specials() -> dict[Any, tuple[str, str]]:
    """The special method that a function of `operator` calls, and the one of a right operand."""
    dunders = [name for name in dir(operator) if name[:2] == name[-2:] == "__"]
    functions = {name: getattr(operator, name) for name in dunders}
    return {
        function: (name, f"__r{name[2:]}") for name, function in functions.items()
        if isinstance(function, BuiltinFunctionType) and hasattr(torch.Tensor, name)
    }  # fmt: skip


def replaced_operator(s: Session, target: Any, args: list, kinds: Any) -> Any:
    """What the program has put in the place of the special method by which a tensor takes part in an operator, and the
    arguments for it; None while it is PyTorch's, which is relied on. `kinds`: the class of tensors' values."""
    names = _specials().get(target) if args else None
    if names is None:
        return None
    left, *rest = args
    if isinstance(left, kinds):
        found, given = s.static(left.cls, names[0]), args
    elif len(rest) == 1 and isinstance(rest[0], kinds):
        found, given = s.static(rest[0].cls, names[1]), [rest[0], left]
    else:
        return None
    return (found, given) if foreign(found) else None
