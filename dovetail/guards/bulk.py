"""Guards on what hangs below the objects an entry holds: all of a model in one or a few fast calls.

The facts below are sufficient, not necessary: the same objects in the same slots, the same types, lengths and tensor
metadata. When one fails, the exact guards are evaluated; if they hold, the facts are taken anew. Facts are
checked as words in memory (`native.py`) where there are many and this process's layout is known, and otherwise by one
C-level loop for each sort of fact.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from operator import contains, getitem, is_
from typing import Any

import torch

from dovetail.guards import native
from dovetail.guards.conditions import Writer, write
from dovetail.guards.facts import BulkFacts, definition, instance_dict, unchanged
from dovetail.guards.holding import Held
from dovetail.guards.layout import ObjectLayout, discover
from dovetail.guards.slots import NotSlotted, Resolver
from dovetail.ir.guard import Guard
from dovetail.ir.process import room_to_compile
from dovetail.ir.source import Source

_TENSOR: Any = torch.Tensor
_READERS: tuple[Callable[[Any], Any], ...] = (
    _TENSOR.data_ptr, _TENSOR.size, _TENSOR.stride, _TENSOR.dtype.__get__, _TENSOR.requires_grad.__get__,
)  # fmt: skip
_MANY = 64  # from here on compiling the loop that compares words pays at once
SAME = "_same_words"  # the name of `Anchored.same` in generated code
_OFTEN = 16  # and from so many calls on with fewer facts
_RESTLESS = 32  # after so many checks of words it shows which of them change all the time


def python_check(facts: BulkFacts) -> Callable[[], bool]:
    """A function that is true while every fact holds: one C-level loop for each sort of fact."""
    # A defaultdict makes an entry for what is not there.
    plain_slots = [s for s in facts.slots if type(s.container) is not defaultdict]
    careful = [s for s in facts.slots if type(s.container) is defaultdict]
    containers, keys, values = ([getattr(s, n) for s in plain_slots] for n in ("container", "key", "value"))
    defaults, their_keys, theirs = ([getattr(s, n) for s in careful] for n in ("container", "key", "value"))
    kept_by, names_kept, kept = ([getattr(f, n) for f in facts.fields] for n in ("owner", "name", "value"))
    typed, empty, sized = list(facts.typed.values()), list(facts.empty.values()), list(facts.sized.values())
    keyed, plain = list(facts.keyed.values()), list(facts.plain.values())
    types, lengths, keysets = [*map(type, typed)], [*map(len, sized)], [*map(tuple, keyed)]
    forward, roots = ["forward"] * len(plain), facts.roots
    objects, dicts = [obj for obj, _ in facts.owners.values()], [own for _, own in facts.owners.values()]
    (tables, names), (others, theirs_too) = _listed(facts.absent), _listed(facts.present)
    functions = list(facts.functions.values())
    definitions = [*map(definition, functions)]
    tensors = [tensor for tensor, _ in facts.tensors.values()]
    readings = [(read, [*map(read, tensors)]) for read in _READERS] if tensors else []

    def check() -> bool:
        return (
            all(map(is_, map(getitem, containers, keys), values))
            and all(map(is_, map(dict.get, defaults, their_keys), theirs))
            and all(map(is_, map(getattr, kept_by, names_kept), kept))
            and [*map(type, typed)] == types
            and not any(empty)
            and [*map(len, sized)] == lengths
            and [*map(tuple, keyed)] == keysets
            and not any(map(contains, plain, forward))
            and not any(map(contains, tables, names))
            and all(map(contains, others, theirs_too))
            and [*map(definition, functions)] == definitions
            and all(map(is_, map(instance_dict, objects), dicts))
            and all(unchanged(*root) for root in roots)
            and all([*map(read, tensors)] == found for read, found in readings)
        )

    return check


def _listed(tables: dict[int, tuple[Any, set[Any]]]) -> tuple[list, list]:
    """Each table once for each of its keys, and the keys."""
    pairs = [(table, key) for table, keys in tables.values() for key in keys]
    return [table for table, _ in pairs], [key for _, key in pairs]


def watch(
    facts: BulkFacts, exactly: Callable[[tuple[Guard, ...]], Callable[[], bool]], restless: Set[int]
) -> tuple[native.MemoryWatch | None, BulkFacts, list[Callable[[], bool]]]:
    """Facts as words in memory, the facts that have no such form, and checks of the objects that are `restless`. None
    where the layout is unknown, or where there is no room for the code that compares them."""
    layout = discover() if room_to_compile(0) else None
    if layout is None:
        return None, facts, []
    rest, tables = BulkFacts(), dict[Any, Any]()
    groups = _root_groups(facts, rest, layout)
    _watch_containers(facts, rest, tables)
    if layout.function:
        groups += [native.FunctionGroup(function) for function in facts.functions.values()]
    else:
        rest.functions = facts.functions
    groups += _tensor_groups(facts, rest, layout, exactly)
    groups += _field_groups(facts, rest)
    groups += [native.TypeGroup(obj) for obj in facts.typed.values()]
    for key, (obj, own) in facts.owners.items():
        if native.owns_visibly(obj, own, layout):
            groups.append(native.OwnerGroup(obj, own))
        else:
            rest.owners[key] = (obj, own)
    watched, asked = [], []
    for group in (*tables.values(), *groups):
        if isinstance(group, native.ASKED) and id(group.subject) in restless:
            asked.append(group.holds)
        else:
            watched.append(group)
    return native.MemoryWatch(watched, layout), rest, asked


def _root_groups(facts: BulkFacts, rest: BulkFacts, layout: ObjectLayout) -> list:
    groups = []
    for root in facts.roots:
        ref, _, own = root
        if layout.weak_object is not None and (own is None or native.owns_visibly(ref(), own, layout)):
            groups.append(native.RootGroup(*root))
        else:
            rest.roots.append(root)
    return groups


def _field_groups(facts: BulkFacts, rest: BulkFacts) -> list:
    groups = []
    for field in facts.fields:
        place = native.place_of(field.owner, field.value)
        if place is None:
            rest.fields.append(field)
        else:
            groups.append(native.FieldGroup(field, place))
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
    groups: list = []
    for key, (tensor, guards) in facts.tensors.items():
        if native.fits(tensor):
            asked = facts.asked.get(key, (tensor, []))[1] if layout.hooks else []
            groups.append(native.TensorGroup(tensor, exactly((*guards, *asked)), bool(asked)))
        else:
            rest.tensors[key] = (tensor, guards)
    for key, (tensor, guards) in facts.wholes.items():
        if native.tells_of_parts(tensor, layout):
            groups.append(native.WholeGroup(tensor, exactly(tuple(guards))))
        else:
            rest.wholes[key] = (tensor, guards)
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
        self.watched: native.MemoryWatch | None = None
        self.restless: Set[int] = frozenset()
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
        if not self.fast():
            return self._again()
        if self.watched is not None and self.watched.checks == _RESTLESS:
            self.restless = self.watched.restless()
            if self.restless:
                self.fast = self._take()
        return True

    def holds(self) -> bool:
        """The same where nobody catches what reading raises of objects that have changed: then it does not hold."""
        try:
            return self.check()
        except (LookupError, AttributeError, TypeError, ValueError, RuntimeError, ReferenceError):
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
        facts.slots, facts.fields = list(resolver.slots.values()), list(resolver.fields.values())
        facts.owners.update(resolver.owners)
        for index, _, _ in self.modules:
            facts.add_module(self.bound[index])
        facts.let_go(self.bound.weak)
        watched: native.MemoryWatch | None = None
        checks: list[Callable[[], bool]] = []
        if len(facts) >= _MANY or self.calls >= _OFTEN:
            watched, facts, checks = watch(facts, self._later, self.restless)
        self.watched = watched
        leftover = (*leftover, *facts.unanswered())
        checks += [watched.check] if watched is not None else []
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
