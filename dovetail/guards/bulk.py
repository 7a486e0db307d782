"""Guards on what hangs below the objects an entry holds: all of a model in one or a few fast calls.

The facts below are sufficient, not necessary: the same objects in the same slots, the same types, lengths and tensor
metadata. When one fails, the exact guards are evaluated; if they hold, the facts are taken anew. Facts are
checked as words in memory (`native.py`) where there are many and this process's layout is known, and otherwise by one
C-level loop for each sort of fact.
"""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter, contains, getitem, is_
from typing import Any

import torch

from dovetail.guards import native
from dovetail.guards.conditions import Writer, write
from dovetail.guards.holding import Held, Weak
from dovetail.guards.layout import ObjectLayout, discover
from dovetail.guards.slots import NotSlotted, Resolver, Slot
from dovetail.ir.guard import ABSENT, Guard, GuardKind
from dovetail.ir.process import room_to_compile
from dovetail.ir.source import HOOKLESS, IS_VIEW, LENGTH, Attr, Computed, Source

_ATOMS = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout, range)
_BUILTIN = (dict, OrderedDict, list, tuple, deque, set, frozenset, *_ATOMS)
_TENSOR: Any = torch.Tensor
_READERS: tuple[Callable[[Any], Any], ...] = (
    _TENSOR.data_ptr, _TENSOR.size, _TENSOR.stride, _TENSOR.dtype.__get__, _TENSOR.requires_grad.__get__,
)  # fmt: skip
_PARTS = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_MANY = 64  # from here on compiling the loop that compares words pays at once
SAME = "_same_words"  # the name of `Anchored.same` in generated code
_OFTEN = 16  # and from so many calls on with fewer facts


class BulkFacts:
    """What one pass over the guarded objects found; tables are by identity."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.typed: dict[int, Any] = {}
        self.sized: dict[int, Any] = {}
        self.empty: dict[int, Any] = {}
        self.keyed: dict[int, Any] = {}
        self.tensors: dict[int, tuple[torch.Tensor, list[Guard]]] = {}
        self.asked: dict[int, tuple[torch.Tensor, list[Guard]]] = {}  # histories and hooks, which only words tell
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
        found = [guard for _, guards in self.asked.values() for guard in guards]
        self.asked.clear()
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
        return len(self.slots) + len(self.tensors) + len(self.typed)


def _unchanged(ref: Weak, cls: type, own: Any) -> bool:
    obj = ref()
    return type(obj) is cls and (own is None or instance_dict(obj) is own)


def instance_dict(obj: Any) -> dict[str, Any]:
    return object.__getattribute__(obj, "__dict__")


def _equality(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    return type(value) in _ATOMS or type(value) is tuple and all(type(v) in _ATOMS for v in value)


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
    if type(value) is not dict and (guard.payload or type(value) is not OrderedDict):
        return False  # an OrderedDict's order can change alone
    if not all(type(k) is str for k in guard.payload):
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
    return _PARTS(value)[1] is guard.payload[1]


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


def _contains(facts: BulkFacts, guard: Guard, value: Any, resolver: Resolver) -> bool:
    key, present = guard.payload
    if not native.watchable(value) or type(key) is not str:
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


def _question(source: Source) -> list[tuple[_Row, Source]]:
    """How to answer what is asked of the object at a path, and the path."""
    if isinstance(source, Computed):
        row = {IS_VIEW: _asked, HOOKLESS: _asked, LENGTH: _length}.get(source.template)
        return [] if row is None else [(row, source.operands[0])]
    return [(_asked, source.base)] if isinstance(source, Attr) and source.field == "is_leaf" else []


def python_check(facts: BulkFacts) -> Callable[[], bool]:
    """A function that is true while every fact holds: one C-level loop for each sort of fact."""
    # A defaultdict makes an entry for what is not there.
    plain_slots = [s for s in facts.slots if type(s.container) is not defaultdict]
    careful = [s for s in facts.slots if type(s.container) is defaultdict]
    containers, keys, values = ([getattr(s, n) for s in plain_slots] for n in ("container", "key", "value"))
    defaults, their_keys, theirs = ([getattr(s, n) for s in careful] for n in ("container", "key", "value"))
    typed, empty, sized = list(facts.typed.values()), list(facts.empty.values()), list(facts.sized.values())
    keyed, plain = list(facts.keyed.values()), list(facts.plain.values())
    types, lengths, keysets = [*map(type, typed)], [*map(len, sized)], [*map(tuple, keyed)]
    forward, roots = ["forward"] * len(plain), facts.roots
    objects, dicts = [obj for obj, _ in facts.owners.values()], [own for _, own in facts.owners.values()]
    (tables, names), (others, theirs_too) = _listed(facts.absent), _listed(facts.present)
    functions = list(facts.functions.values())
    definitions = [*map(_PARTS, functions)]
    tensors = [tensor for tensor, _ in facts.tensors.values()]
    readings = [(read, [*map(read, tensors)]) for read in _READERS] if tensors else []

    def check() -> bool:
        return (
            all(map(is_, map(getitem, containers, keys), values))
            and all(map(is_, map(dict.get, defaults, their_keys), theirs))
            and [*map(type, typed)] == types
            and not any(empty)
            and [*map(len, sized)] == lengths
            and [*map(tuple, keyed)] == keysets
            and not any(map(contains, plain, forward))
            and not any(map(contains, tables, names))
            and all(map(contains, others, theirs_too))
            and [*map(_PARTS, functions)] == definitions
            and all(map(is_, map(instance_dict, objects), dicts))
            and all(_unchanged(*root) for root in roots)
            and all([*map(read, tensors)] == found for read, found in readings)
        )

    return check


def _listed(tables: dict[int, tuple[Any, set[Any]]]) -> tuple[list, list]:
    """Each table once for each of its keys, and the keys."""
    pairs = [(table, key) for table, keys in tables.values() for key in keys]
    return [table for table, _ in pairs], [key for _, key in pairs]


def watch(
    facts: BulkFacts, exactly: Callable[[tuple[Guard, ...]], Callable[[], bool]]
) -> tuple[native.MemoryWatch | None, BulkFacts]:
    """Facts as words in memory, and the facts that have no such form. None where the layout is unknown, or where there
    is no room for the code that compares them."""
    layout = discover() if room_to_compile(0) else None
    if layout is None:
        return None, facts
    rest, tables = BulkFacts(), dict[Any, Any]()
    groups = _root_groups(facts, rest, layout)
    _watch_containers(facts, rest, tables)
    if layout.function:
        groups += [native.FunctionGroup(function) for function in facts.functions.values()]
    else:
        rest.functions = facts.functions
    groups += _tensor_groups(facts, rest, layout, exactly)
    groups += [native.TypeGroup(obj) for obj in facts.typed.values()]
    for key, (obj, own) in facts.owners.items():
        if native.owns_visibly(obj, own, layout):
            groups.append(native.OwnerGroup(obj, own))
        else:
            rest.owners[key] = (obj, own)
    return native.MemoryWatch([*tables.values(), *groups], layout), rest


def _root_groups(facts: BulkFacts, rest: BulkFacts, layout: ObjectLayout) -> list:
    groups = []
    for root in facts.roots:
        ref, _, own = root
        if layout.weak_object is not None and (own is None or native.owns_visibly(ref(), own, layout)):
            groups.append(native.RootGroup(*root))
        else:
            rest.roots.append(root)
    return groups


def _watch_containers(facts: BulkFacts, rest: BulkFacts, tables: dict[int, Any]) -> None:
    """What is known of dictionaries: one group in `tables` for each, with all that is asked of it."""
    for slot in facts.slots:
        if native.watchable(slot.container):
            native.dict_group(tables, slot.container).slots.append(slot)
        elif type(slot.container) is not tuple:
            rest.slots.append(slot)
    for found, rest_of, test in (
        (facts.empty, rest.empty, lambda table: not table),
        (facts.sized, rest.sized, None),
        (facts.keyed, rest.keyed, None),
        (facts.plain, rest.plain, lambda table: "forward" not in table),
    ):
        for key, table in found.items():
            if not native.watchable(table):
                rest_of[key] = table
                continue
            native.dict_group(tables, table).tests.append(test or partial(_same_keys, tuple(table)))
    for table, names in facts.absent.values():
        native.dict_group(tables, table).tests.append(names.isdisjoint)
    for table, names in facts.present.values():
        native.dict_group(tables, table).tests.append(names.issubset)


def _tensor_groups(
    facts: BulkFacts, rest: BulkFacts, layout: ObjectLayout, exactly: Callable[[tuple[Guard, ...]], Callable[[], bool]]
) -> list:
    groups = []
    for key, (tensor, guards) in facts.tensors.items():
        if native.fits(tensor):
            asked = facts.asked.get(key, (tensor, []))[1] if layout.hooks else []
            groups.append(native.TensorGroup(tensor, exactly((*guards, *asked)), bool(asked)))
        else:
            rest.tensors[key] = (tensor, guards)
    seen = facts.tensors.keys() - rest.tensors.keys() if layout.hooks else set()
    rest.asked = {key: row for key, row in facts.asked.items() if key not in seen}
    return groups


def _same_keys(keys: tuple, table: Any) -> bool:
    return tuple(table) == keys


def never() -> bool:
    """What stands for a comparison of words where there is none."""
    return False


class Anchored:
    """All guards below the held objects; `check()` is the whole test.

    While it holds, `wanted` sources lead to the objects in `loaded`, and `apart` tells whether other objects are none
    of those that a group of sources leads to. Where `same` says yes, `check` would, at ten times the cost; it is never
    right to ask it first of anything but a function that asks `check` next.
    """

    def __init__(
        self, guards: Iterable[Guard], bound: Held, namespace: dict[str, Any],
        wanted: Sequence[Source] = (), apart: Sequence[Sequence[Source]] = (),
    ) -> None:  # fmt: skip
        self.guards = tuple(guards)
        self.bound = bound
        self.namespace = namespace
        self.wanted, self.kept_apart = wanted, apart
        self.loaded: tuple = ()  # what the wanted sources lead to
        self.groups: list[frozenset[int]] = []  # the identities of the objects that others are kept apart from
        self.modules = [
            (k, type(m), "forward" in instance_dict(m)) for k, m in enumerate(bound) if isinstance(m, torch.nn.Module)
        ]
        self._exact: Callable[[], bool] | None = None
        self.same: Callable[[], bool] = never
        self.asking: Callable[[], Any] = lambda: None
        self.calls = 0
        self.fast: Callable[[], bool] = self._take()

    def tell(self, function: Any) -> None:
        """`function` finds `same` among its globals, whichever it is. Referred to weakly, since it refers to us."""
        self.asking = weakref.ref(function)
        function.__globals__[SAME] = self.same

    @property
    def text(self) -> str:
        """The guards as Python, for reading: what the facts stand for."""
        return exact_text(self.guards)[0]

    def check(self) -> bool:
        self.calls += 1
        if self.calls == _OFTEN and self.same is never and self.fast():
            self.fast = self._take()
        return self.fast() or self._again()

    def holds(self) -> bool:
        """The same where nobody catches what reading raises of objects that have changed: then it does not hold."""
        try:
            return self.check()
        except (LookupError, AttributeError, TypeError, RuntimeError, ReferenceError):
            return False

    def apart(self, group: int, *others: Any) -> bool:
        """Are these objects as many as there are names for them, and none of the group's?"""
        found = set(map(id, others))
        return len(found) == len(others) and self.groups[group].isdisjoint(found)

    def _take(self) -> Callable[[], bool]:
        """The facts as they are now, and a check of them and of the guards that no fact implies."""
        facts, resolver = BulkFacts(), Resolver(self.bound)
        self.loaded = tuple(map(resolver.value, self.wanted))
        self.groups = [frozenset(id(resolver.value(s)) for s in group) for group in self.kept_apart]
        leftover = tuple(g for g in self.guards if not facts.add(resolver, g))
        facts.slots = list(resolver.slots.values())
        facts.owners.update(resolver.owners)
        for index, _, _ in self.modules:
            facts.add_module(self.bound[index])
        facts.let_go(self.bound.weak)
        watched = None
        if len(facts) >= _MANY or self.calls >= _OFTEN:
            watched, facts = watch(facts, self._later)
        leftover = (*leftover, *facts.unanswered())
        checks = [watched.check] if watched is not None else []
        if watched is None or facts.any_left():
            checks.append(python_check(facts))
        if leftover:
            checks.append(compile_exact(leftover, self.namespace))
        self.same = watched.same if watched is not None and len(checks) == 1 else never
        if (asking := self.asking()) is not None:
            asking.__globals__[SAME] = self.same
        return checks[0] if len(checks) == 1 else lambda: all(check() for check in checks)

    def _later(self, guards: tuple[Guard, ...]) -> Callable[[], bool]:
        """A check of a few guards, compiled when first needed."""
        made: list[Callable[[], bool]] = []

        def holds() -> bool:
            if not made:
                made.append(compile_exact(guards, self.namespace))
            return made[0]()

        return holds

    def _again(self) -> bool:
        """A fact changed: do the guards themselves still hold?"""
        if self._exact is None:
            self._exact = compile_exact(self.guards, self.namespace)
        if not self.modules_unchanged() or not self._exact():
            return False
        try:
            self.fast = self._take()
        except NotSlotted:  # a container is another one now, which may compute what is in it
            return False
        return True

    def modules_unchanged(self) -> bool:
        """No held module changed its class or had its `forward` replaced on the instance."""
        modules = ((self.bound[index], cls, own) for index, cls, own in self.modules)
        return all(type(m) is cls and ("forward" in instance_dict(m)) is own for m, cls, own in modules)


def exact_text(guards: tuple[Guard, ...]) -> tuple[str, dict[str, Any]]:
    """A function `exact()` that evaluates the guards one by one, as text, and the objects that it names."""
    writer = Writer()
    for guard in guards:
        write(guard, writer)
    lines = "".join(f"        {line}\n" for line in [*writer.lines, "return True"])
    return f"def exact():\n    try:\n{lines}    except Exception:\n        return _MISS\n", writer.names


def compile_exact(guards: tuple[Guard, ...], namespace: dict[str, Any]) -> Callable[[], bool]:
    text, names = exact_text(guards)
    scope = {**namespace, **names, "_MISS": False}
    exec(compile(text, "<dovetail exact guards>", "exec"), scope)
    return scope["exact"]
