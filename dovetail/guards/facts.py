"""Facts that imply guards: the same objects in the same places, the same types, lengths and tensor metadata.

They are sufficient, not necessary. `bulk.py` checks them all at once.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import torch

from dovetail.guards import native
from dovetail.guards.holding import Weak
from dovetail.guards.slots import Field, NotSlotted, Resolver, Slot
from dovetail.ir.guard import ABSENT, Guard, GuardKind
from dovetail.ir.source import ASKED_OF, HOOKLESS, IS_VIEW, LENGTH, LOOKS_LIKE, Attr, Computed, Source

_ATOMS = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout, range)
_BUILTIN = (dict, OrderedDict, list, tuple, deque, set, frozenset, *_ATOMS)
_PLACEMENTS = "torch.distributed.tensor.placement_types"  # whose objects never change
_KEYS = (str, int, bytes)  # keys that are compared natively
definition = attrgetter("__code__", "__defaults__", "__kwdefaults__")


class BulkFacts:
    """What one pass over the guarded objects found; tables are by identity."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.fields: list[Field] = []
        self.typed: dict[int, Any] = {}
        self.sized: dict[int, Any] = {}
        self.empty: dict[int, Any] = {}
        self.keyed: dict[int, Any] = {}
        self.tensors: dict[int, tuple[torch.Tensor, list[Guard]]] = {}
        self.asked: dict[int, tuple[torch.Tensor, list[Guard]]] = {}  # histories and hooks, which only words tell
        self.wholes: dict[int, tuple[torch.Tensor, list[Guard]]] = {}  # tensors made of others, the same
        self.owners: dict[int, tuple[Any, dict[str, Any]]] = {}  # objects, and the dictionaries they must keep
        self.roots: list[tuple[Weak, type, Any]] = []  # objects held weakly, their classes and dictionaries
        self.functions: dict[int, Any] = {}
        self.absent: dict[int, tuple[Any, set[Any]]] = {}  # dictionaries, and keys that they must not have
        self.present: dict[int, tuple[Any, set[Any]]] = {}  # and those that they must have
        self.plain: dict[int, dict[str, Any]] = {}  # instance dictionaries of modules without a `forward` of their own

    def add(self, resolver: Resolver, guard: Guard) -> bool:
        """Record facts that imply the guard; False if there are none, so that it must be evaluated."""
        row = _ROWS.get(guard.kind)
        if row is None or guard.source is None:
            return False
        try:
            for answer, source in _question(guard.source):
                if answer(self, guard, resolver.value(source), resolver):
                    return True
            return row(self, guard, resolver.value(guard.source), resolver)
        except NotSlotted:
            return False

    def unanswered(self) -> list[Guard]:
        """The guards of questions that are left for Python, no longer facts."""
        found = [guard for each in (self.asked, self.wholes) for _, guards in each.values() for guard in guards]
        self.asked.clear()
        self.wholes.clear()
        return found

    def add_module(self, module: torch.nn.Module) -> None:
        self.typed[id(module)] = module
        own = instance_dict(module)
        self.owners[id(module)] = (module, own)
        if "forward" not in own:
            self.plain[id(own)] = own

    def let_go(self, weak: Iterable[Weak]) -> None:
        """Keep only weak references to these objects."""
        for ref in weak:
            key = id(ref())
            if self.typed.pop(key, None) is not None or key in self.owners:
                self.roots.append((ref, type(ref()), self.owners.pop(key, (None, None))[1]))

    def any_left(self) -> bool:
        """Whether anything is left for Python to check."""
        return any(vars(self).values())

    def __len__(self) -> int:
        return len(self.slots) + len(self.tensors) + len(self.typed) + len(self.fields)


def unchanged(ref: Weak, cls: type, own: Any) -> bool:
    obj = ref()
    return type(obj) is cls and (own is None or instance_dict(obj) is own)


def instance_dict(obj: Any) -> dict[str, Any]:
    return object.__getattribute__(obj, "__dict__")


def _equality(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    return _is_fixed(value) or type(value) is tuple and all(map(_is_fixed, value))


def _is_fixed(value: Any) -> bool:
    return type(value) in _ATOMS or type(value).__module__ == _PLACEMENTS


def _typing(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if type(value) not in _BUILTIN:
        facts.typed[id(value)] = value
    return type(value) is guard.payload


def _length(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if type(value) not in (dict, OrderedDict, list, tuple):
        return False
    if guard.payload == 0:
        facts.empty[id(value)] = value
    elif type(value) is not tuple:
        facts.sized[id(value)] = value
    return True


def _keys(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if type(value) is not dict and (len(guard.payload) > 1 or type(value) is not OrderedDict):
        return False  # an OrderedDict's order can change alone
    if not all(type(k) in _KEYS for k in guard.payload):
        return False
    (facts.keyed if guard.payload else facts.empty)[id(value)] = value
    return True


def _tensor(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return False
    facts.tensors.setdefault(id(value), (value, []))[1].append(guard)
    return True


def _definition(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if guard.payload[2] is not None:
        return False  # entries of __kwdefaults__ may be replaced
    facts.functions[id(value)] = value
    return definition(value)[1] is guard.payload[1]


def _class_dict(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    name, raw = guard.payload
    table = gc.get_referents(value.__dict__)[0]
    if raw is ABSENT:
        return _lacking(facts, table, name)
    return resolver.read(table, name) is raw


def _distinct(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    return len({id(value), *(id(resolver.value(s)) for s in guard.payload)}) == len(guard.payload) + 1


def _asked(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    facts.asked.setdefault(id(value), (value, []))[1].append(guard)
    return True


def _whole(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if not native.keeps_parts(value):
        return False
    facts.wholes.setdefault(id(value), (value, []))[1].append(guard)
    return True


def _contains(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    key, present = guard.payload
    if not native.watchable(value) or type(key) not in _KEYS:
        return False
    if not present:
        return _lacking(facts, value, key)
    facts.present.setdefault(id(value), (value, set()))[1].add(key)
    return key in value


def _has_key(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    if not native.watchable(value):
        return False
    key, present = guard.payload
    key = resolver.value(key)
    if not present:
        return _lacking(facts, value, key)
    return key in value and resolver.read(value, key) is value[key]


def _lacking(facts: BulkFacts, table: Any, key: Any) -> bool:
    facts.absent.setdefault(id(table), (table, set()))[1].add(key)
    return key not in table


_Row = Callable[[BulkFacts, Guard, Any, Resolver], bool]
_ROWS: dict[GuardKind, _Row] = {
    GuardKind.ID: lambda facts, guard, value, resolver: value is guard.payload,
    GuardKind.EQUAL: _equality,
    GuardKind.TYPE: _typing,
    GuardKind.LENGTH: _length,
    GuardKind.KEYS: _keys,
    GuardKind.TENSOR: _tensor,
    GuardKind.DEFINITION: _definition,
    GuardKind.CLASS_DICT: _class_dict,
    GuardKind.HAS_KEY: _has_key,
    GuardKind.CONTAINS: _contains,
    GuardKind.OWN_LACKS: lambda facts, guard, value, resolver: _lacking(facts, resolver.own_dict(value), guard.payload),
    GuardKind.ALIAS: lambda facts, guard, value, resolver: value is resolver.value(guard.payload),
    GuardKind.DISTINCT: _distinct,
}


_ASKED: dict[str, _Row] = {IS_VIEW: _asked, HOOKLESS: _asked, LENGTH: _length, LOOKS_LIKE: _whole}


def _question(source: Source) -> list[tuple[_Row, Source]]:
    """How to answer what is asked of the object at a path, and the path."""
    if isinstance(source, Computed):
        row = _ASKED.get(source.template)
        return [] if row is None else [(row, source.operands[ASKED_OF[source.template]])]
    return [(_asked, source.base)] if isinstance(source, Attr) and source.field == "is_leaf" else []
