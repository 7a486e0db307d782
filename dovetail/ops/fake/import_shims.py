"""Light stand-ins for modules that meta kernels import and do not need.

PyTorch's Python meta kernels import a few helpers from `torch.fx.experimental.symbolic_shapes`, and that
imports a computer-algebra system (0.4 s); one function imports that system itself, to ask whether a
number is one of its expressions. For plain integers the helpers are one-liners, and our own symbolic
integers answer for themselves. Any other name asked of a stand-in loads the real module and comes
from there, so that no importer can tell the difference. The helpers of a module that is loaded already expect nodes
of PyTorch's own, so they are stood in for too, and get those.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from functools import reduce
from types import ModuleType
from typing import Any

import torch
import torch._prims_common
from torch.fx.experimental.sym_node import SymNode

from dovetail.ops.fake.rules.layout import strides_suggest_channels_last
from dovetail.ops.fake.symbolic.symint import is_size


def _question(name: str) -> Callable[..., bool]:
    """The helper that asks the node of a SymBool a question of the same name."""

    def ask(a: Any, skip: int = 0) -> bool:
        return getattr(a.node, name)("", 0) if isinstance(a, torch.SymBool) else bool(a)

    ask.__name__ = name
    return ask


def sym_and(*values: Any) -> Any:
    return reduce(operator.and_, values)


def sym_or(*values: Any) -> Any:
    return reduce(operator.or_, values)


def sym_eq(a: Any, b: Any) -> Any:
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and reduce(operator.and_, map(sym_eq, a, b), True)
    return a == b


def is_nested_int(value: Any) -> bool:
    return isinstance(value, torch.SymInt) and value.node.is_nested_int()


def has_guarding_hint(value: Any) -> bool:
    return value.node.has_hint() if isinstance(value, _SYMBOLIC) else True


def guarding_hint_or_throw(value: Any) -> Any:
    return value.node.hint if isinstance(value, _SYMBOLIC) else value


def has_hint(value: Any) -> bool:
    """The name of `has_guarding_hint` in PyTorch 2.11."""
    return has_guarding_hint(value)


def size_hint(value: Any, *, allow_none: bool = False) -> Any:
    """The name of `guarding_hint_or_throw` in PyTorch 2.11; ours always have a hint."""
    return guarding_hint_or_throw(value)


def guard_int(value: Any) -> int:
    return value.node.guard_int("", 0) if isinstance(value, torch.SymInt) else value


def has_free_unbacked_symbols(value: Any) -> bool:
    """Ours always have a value to go by."""
    return False


def free_unbacked_symbols(value: Any) -> set[Any]:
    return set()


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

HELPERS = (
    *map(_question, (
        "guard_or_false", "guard_or_true", "guard_size_oblivious", "statically_known_true", "expect_true",
    )),
    sym_and, sym_or, sym_eq, is_nested_int, has_guarding_hint, guarding_hint_or_throw, has_hint, size_hint, guard_int,
    has_free_unbacked_symbols, free_unbacked_symbols,
)  # fmt: skip


class _Delegate:
    """A class of a module that is not loaded; used as anything but below, the real one serves."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        return getattr(_real(self._module), self._name)

    def __instancecheck__(self, value: Any) -> bool:
        """Instances know the names of their classes, so nothing needs to be loaded to ask."""
        home = "sympy.core.basic" if self._module == "sympy" else self._module
        return any(c.__name__ == self._name and c.__module__ == home for c in type(value).__mro__)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (self._real(),)

    def __or__(self, other: Any) -> Any:
        return self._real() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._real()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __call__(self, *args: Any) -> Any:
        if self._name == "Max" and all(type(a) is int for a in args):
            return max(args)
        return self._real()(*args)


CONTENTS: dict[str, dict[str, Any]] = {
    "torch.fx.experimental.symbolic_shapes": {helper.__name__: helper for helper in HELPERS},
    "torch.utils._sympy.functions": {"Max": _Delegate("torch.utils._sympy.functions", "Max")},
    "sympy": {"Basic": _Delegate("sympy", "Basic")},
}


class StandIn(ModuleType):
    """Installed by `install`, taken away by `remove`. `real` is the module if it is loaded."""

    def __init__(self, name: str, real: ModuleType | None = None) -> None:
        super().__init__(name)
        own = CONTENTS[name]
        self.__dict__.update(own if real is None else {k: _chosen(f, getattr(real, k, f)) for k, f in own.items()})
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for `__path__`
            raise AttributeError(name)
        real = self.__dict__["_real"] or _real(self.__name__)
        if self.__dict__["_real"] is None:  # the table has every version's names, a version some of them
            self.__dict__.update({known: getattr(real, known, own) for known, own in CONTENTS[self.__name__].items()})
        return getattr(real, name)


def _chosen(own: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Which one answers depends on whose the nodes are."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        foreign = any(isinstance(a, _SYMBOLIC) and isinstance(a.node, SymNode) for a in args)
        return (real if foreign else own)(*args, **kwargs)

    return choose


def _by_sizes(own: Callable[..., bool], real: Callable[..., bool]) -> Callable[..., bool]:
    def choose(shape: Any, strides: Any) -> bool:
        return (own if any(map(is_size, (*shape, *strides))) else real)(shape, strides)

    return choose


#: Functions of modules that are loaded anyway: what they ask, helpers may answer either way, and one is eager's.
FUNCTIONS = ((torch._prims_common, "are_strides_like_channels_last_or_false", strides_suggest_channels_last),)
_replaced: list[tuple[Any, str, Any]] = []


def _real(name: str) -> Any:
    """The module itself, loaded now if need be. From then on it needs no stand-in, and nor does what it uses."""
    if isinstance(sys.modules.get(name), StandIn):
        remove()
    return importlib.import_module(name)


def install() -> None:
    """Where the real modules are loaded already, only what takes symbolic integers changes."""
    for name in CONTENTS:
        real = sys.modules.get(name)
        if real is None or name in _WITH_NODES and not isinstance(real, StandIn):
            sys.modules[name] = StandIn(name, real)
    for module, name, own in FUNCTIONS:
        if hasattr(module, name) and not _replaced:
            _replaced.append((module, name, getattr(module, name)))
            setattr(module, name, _by_sizes(own, getattr(module, name)))


def remove() -> None:
    while _replaced:
        setattr(*_replaced[-1])
        del _replaced[-1]
    for name in CONTENTS:
        found = sys.modules.get(name)
        if isinstance(found, StandIn):
            real = found.__dict__["_real"]
            if real is None:
                del sys.modules[name]
            else:
                sys.modules[name] = real


_WITH_NODES = frozenset(("torch.fx.experimental.symbolic_shapes",))
