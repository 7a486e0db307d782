"""Guards on what hangs below the objects an entry holds: all of a model in a few C-speed calls.

The facts below are sufficient, not necessary: the same objects in the same slots, the same types, lengths
and tensor storage. When one fails, the exact guards are evaluated; if they hold, the facts are taken anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import contains, getitem, is_
from typing import Any

import torch

from dovetail.guards.conditions import Writer, write
from dovetail.guards.slots import NotSlotted, Resolver
from dovetail.ir.guard import Guard, GuardKind

_ATOMS = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout, range)
_BUILTIN = (dict, OrderedDict, list, tuple, deque, set, frozenset, *_ATOMS)
_TENSOR = torch.Tensor
_READERS: tuple[Callable[[Any], Any], ...] = (
    _TENSOR.data_ptr,
    _TENSOR.size,
    _TENSOR.stride,
    _TENSOR.dtype.__get__,
    _TENSOR.requires_grad.__get__,
)


class Facts:
    """What one pass over the guarded objects found."""

    def __init__(self, bound: tuple[Any, ...]) -> None:
        self.resolver = Resolver(bound)
        self.typed: dict[int, Any] = {}
        self.sized: dict[int, Any] = {}
        self.empty: dict[int, Any] = {}
        self.keyed: dict[int, Any] = {}
        self.tensors: dict[int, Any] = {}
        self.modules: dict[int, torch.nn.Module] = {}

    def add(self, guard: Guard) -> bool:
        """Record facts that imply the guard; False if there are none, so that it must be evaluated."""
        row = _ROWS.get(guard.kind)
        if row is None or guard.source is None:
            return False
        try:
            value = self.resolver.value(guard.source)
        except NotSlotted:
            return False
        if isinstance(value, torch.nn.Module):
            self.modules[id(value)] = value
        return row(self, guard, value)


def _identity(facts: Facts, guard: Guard, value: Any) -> bool:
    return value is guard.payload


def _equality(facts: Facts, guard: Guard, value: Any) -> bool:
    return type(value) in _ATOMS or type(value) is tuple and all(type(v) in _ATOMS for v in value)


def _typing(facts: Facts, guard: Guard, value: Any) -> bool:
    if type(value) not in _BUILTIN:
        facts.typed[id(value)] = value
    return type(value) is guard.payload


def _length(facts: Facts, guard: Guard, value: Any) -> bool:
    if type(value) not in (dict, OrderedDict, list, tuple):
        return False
    if guard.payload == 0:
        facts.empty[id(value)] = value
    elif type(value) is not tuple:
        facts.sized[id(value)] = value
    return True


def _keys(facts: Facts, guard: Guard, value: Any) -> bool:
    if type(value) not in (dict, OrderedDict) or not all(type(k) is str for k in guard.payload):
        return False
    if guard.payload:
        facts.keyed[id(value)] = value
    else:
        facts.empty[id(value)] = value
    return True


def _tensor(facts: Facts, guard: Guard, value: Any) -> bool:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return False
    facts.tensors[id(value)] = value
    return True


_ROWS: dict[GuardKind, Callable[[Facts, Guard, Any], bool]] = {
    GuardKind.ID: _identity,
    GuardKind.EQUAL: _equality,
    GuardKind.TYPE: _typing,
    GuardKind.LENGTH: _length,
    GuardKind.KEYS: _keys,
    GuardKind.TENSOR: _tensor,
}


def python_check(facts: Facts) -> Callable[[], bool]:
    """A function that is true while every fact holds: one C-level loop for each sort of fact."""
    rows = list(facts.resolver.slots.values())
    containers, keys, values = [r.container for r in rows], [r.key for r in rows], [r.value for r in rows]
    modules = list(facts.modules.values())
    typed = [*facts.typed.values(), *modules]
    types = [*map(type, typed)]
    empty, sized = list(facts.empty.values()), list(facts.sized.values())
    keyed = list(facts.keyed.values())
    lengths, keysets = [*map(len, sized)], [*map(tuple, keyed)]
    plain = [d for d in map(_instance_dict, modules) if "forward" not in d]
    forward = ["forward"] * len(plain)
    tensors = list(facts.tensors.values())
    readings = [(read, [*map(read, tensors)]) for read in _READERS] if tensors else []

    def check() -> bool:
        return (
            all(map(is_, map(getitem, containers, keys), values))
            and [*map(type, typed)] == types
            and not any(empty)
            and [*map(len, sized)] == lengths
            and [*map(tuple, keyed)] == keysets
            and not any(map(contains, plain, forward))
            and all([*map(read, tensors)] == found for read, found in readings)
        )

    return check


def _instance_dict(obj: Any) -> dict[str, Any]:
    return object.__getattribute__(obj, "__dict__")


class Anchored:
    """All guards below the held objects; `check()` is the whole test."""

    def __init__(self, guards: Iterable[Guard], bound: tuple[Any, ...], namespace: dict[str, Any]) -> None:
        self.guards = tuple(guards)
        self.bound = bound
        self.namespace = namespace
        self.exact, self.text = _exact(self.guards, namespace)
        self.types = {
            id(m): (m, type(m), "forward" in _instance_dict(m)) for m in bound if isinstance(m, torch.nn.Module)
        }
        self.fast: Callable[[], bool] = self._take()

    def _take(self) -> Callable[[], bool]:
        """The facts as they are now, and the guards that no fact implies."""
        facts = Facts(self.bound)
        facts.modules.update((key, module) for key, (module, _, _) in self.types.items())
        leftover = tuple(g for g in self.guards if not facts.add(g))
        check = python_check(facts)
        if not leftover:
            return check
        exact = _exact(leftover, self.namespace)[0]
        return lambda: check() and exact()

    def check(self) -> bool:
        return self.fast() or self._again()

    def _again(self) -> bool:
        """A fact changed: do the guards themselves still hold?"""
        if not self.modules_unchanged() or not self.exact():
            return False
        self.fast = self._take()
        return True

    def modules_unchanged(self) -> bool:
        """No held module changed its class or had its `forward` replaced on the instance."""
        return all(type(m) is cls and ("forward" in _instance_dict(m)) is own for m, cls, own in self.types.values())


def _exact(guards: tuple[Guard, ...], namespace: dict[str, Any]) -> tuple[Callable[[], bool], str]:
    writer = Writer()
    for guard in guards:
        write(guard, writer)
    lines = "".join(f"        {line}\n" for line in [*writer.lines, "return True"])
    text = f"def exact():\n    try:\n{lines}    except Exception:\n        return _MISS\n"
    scope = {**namespace, **writer.names, "_MISS": False}
    exec(compile(text, "<dovetail exact guards>", "exec"), scope)
    return scope["exact"], text
