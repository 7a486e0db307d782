"""The facts of `bulk.Facts` as words in memory: a model of a thousand modules in tens of microseconds.

Each group watches one object: a dictionary by its version, an object's type, a tensor by its implementation. When
a group's words change, the group looks closer: a dictionary may have changed elsewhere, a tensor may have been given
other data of the same kind. If what was guarded still holds, the new words are taken; otherwise the check fails.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import torch

from dovetail.guards.compare import Words
from dovetail.guards.layout import MAX_RANK, ObjectLayout, dict_runs, words
from dovetail.guards.slots import Field, Slot

Run = tuple[int, int]
_ABSENT = object()
_WORD = 8


class DictGroup:
    """The guarded slots of one dictionary, and what is known of its keys."""

    def __init__(self, table: Any) -> None:
        self.subject = table
        self.slots: list[Slot] = []
        self.tests: list[Callable[[Any], bool]] = []

    def runs(self, layout: ObjectLayout) -> list[Run]:
        return dict_runs(self.subject, layout.dict_version, layout.dict_values)

    def holds(self) -> bool:
        table = self.subject
        return all(table.get(s.key, _ABSENT) is s.value for s in self.slots) and all(t(table) for t in self.tests)


class TypeGroup:
    """An object that must keep its class."""

    def __init__(self, obj: Any) -> None:
        self.obj, self.cls = obj, type(obj)

    def runs(self, layout: ObjectLayout) -> list[Run]:
        return [(id(self.obj) + layout.object_type, 1)]

    def holds(self) -> bool:
        return type(self.obj) is self.cls


class FunctionGroup:
    """A function that must keep its code and defaults."""

    def __init__(self, function: Any) -> None:
        self.function, self.parts = function, _parts(function)

    def runs(self, layout: ObjectLayout) -> list[Run]:
        assert layout.function is not None
        return [(id(self.function) + offset, 1) for offset in layout.function]

    def holds(self) -> bool:
        return all(now is then for now, then in zip(_parts(self.function), self.parts, strict=True))


def _parts(function: Any) -> tuple:
    return function.__code__, function.__defaults__, function.__kwdefaults__


class OwnerGroup:
    """An object that must keep its instance dictionary."""

    def __init__(self, obj: Any, table: dict[str, Any]) -> None:
        self.obj, self.table = obj, table

    def runs(self, layout: ObjectLayout) -> list[Run]:
        return [(_place_of_dict(self.obj, layout), 1)]

    def holds(self) -> bool:
        return object.__getattribute__(self.obj, "__dict__") is self.table


class RootGroup:
    """An object that is only referred to weakly, which must live and keep its class and instance dictionary."""

    def __init__(self, ref: Any, cls: type, table: dict[str, Any] | None) -> None:
        self.ref, self.cls, self.table = ref, cls, table

    def runs(self, layout: ObjectLayout) -> list[Run]:
        """The first word says that the others are still the object's."""
        obj = self.ref()
        assert layout.weak_object is not None
        places = [id(self.ref) + layout.weak_object, id(obj) + layout.object_type]
        if self.table is not None:
            places.append(_place_of_dict(obj, layout))
        return [(place, 1) for place in places]

    def holds(self) -> bool:
        obj = self.ref()
        return type(obj) is self.cls and (
            self.table is None or object.__getattribute__(obj, "__dict__") is self.table
        )


def _place_of_dict(obj: Any, layout: ObjectLayout) -> int:
    offset = type(obj).__dictoffset__
    return id(obj) + (offset if offset > 0 else layout.object_dict)


def owns_visibly(obj: Any, table: dict[str, Any], layout: ObjectLayout) -> bool:
    """Whether the pointer to the object's dictionary lies where it should."""
    return type(obj).__dictoffset__ != 0 and words(_place_of_dict(obj, layout), 1)[0] == id(table)


class TensorGroup:
    """A tensor that must keep its metadata; other data of the same kind will do if `still` says so.

    `asked`: hooks on it count too.
    """

    def __init__(self, tensor: torch.Tensor, still: Callable[[], bool], asked: bool = False) -> None:
        self.subject, self.holds, self.asked = tensor, still, asked

    def runs(self, layout: ObjectLayout) -> list[Run]:
        """In the order in which one run's word leads to the next run's address."""
        impl = self.subject._cdata
        storage, meta = (words(impl + offset, 1)[0] for offset in (layout.impl_storage, layout.impl_meta))
        autograd = [meta + o if meta else impl + layout.impl_meta for o in (layout.meta_requires_grad, *layout.history)]
        inside = [(impl + offset, count) for offset, count in layout.impl]
        hooks = [id(self.subject) + offset for offset in layout.hooks or () if self.asked]
        last = [storage + layout.storage_data, *autograd, *hooks]
        return [(id(self.subject) + layout.tensor_impl, 1), *inside, *((address, 1) for address in last)]


class FieldGroup:
    """An object that must keep what lies in itself, at so many bytes."""

    def __init__(self, field: Field, place: int) -> None:
        self.field, self.place = field, place

    def runs(self, layout: ObjectLayout) -> list[Run]:
        return [(id(self.field.owner) + self.place, 1)]

    def holds(self) -> bool:
        return getattr(self.field.owner, self.field.name) is self.field.value


def place_of(owner: Any, value: Any) -> int | None:
    """Where in the object the pointer to the other lies, in bytes; None if that is not sure."""
    count = type(owner).__basicsize__ // _WORD
    places = [k for k, word in enumerate(words(id(owner), count)) if word == id(value)]
    return places[0] * _WORD if len(places) == 1 else None


#: Classes of tensors that are made of others -> what they keep in themselves: the part, and what makes the context
#: together with whether they require gradients.
_WHOLES = {"torch.distributed.tensor.DTensor": ("_local_tensor", "_spec")}


class WholeGroup:
    """A tensor made of another that must look as it did, if `still` does not say that it will do."""

    def __init__(self, tensor: Any, still: Callable[[], bool]) -> None:
        self.subject, self.holds = tensor, still
        self.places = [place_of(tensor, each) for each in _kept(tensor)]

    def runs(self, layout: ObjectLayout) -> list[Run]:
        """In the order in which one run's word leads to the next run's address."""
        part, context = _kept(self.subject)
        table = object.__getattribute__(context, "__dict__")
        found = TensorGroup(self.subject, self.holds).runs(layout)
        found += [(id(self.subject) + place, 1) for place in self.places if place is not None]
        found += TensorGroup(part, self.holds).runs(layout)
        found.append((_place_of_dict(context, layout), 1))
        return [*found, *dict_runs(table, layout.dict_version, layout.dict_values)]


def _kept(tensor: Any) -> tuple[Any, Any]:
    part, context = _WHOLES[_name(type(tensor))]
    return getattr(tensor, part), getattr(tensor, context)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def keeps_parts(tensor: Any) -> bool:
    """Whether a WholeGroup sees all that the tensor is made of."""
    if _name(type(tensor)) not in _WHOLES or tensor.ndim > MAX_RANK:
        return False
    part, context = _kept(tensor)
    sure = None not in (place_of(tensor, part), place_of(tensor, context))
    return sure and type(part) is torch.Tensor and fits(part) and hasattr(context, "__dict__")


def tells_of_parts(tensor: Any, layout: ObjectLayout) -> bool:
    context = _kept(tensor)[1]
    return owns_visibly(context, object.__getattribute__(context, "__dict__"), layout)


def fits(tensor: torch.Tensor) -> bool:
    """Whether a TensorGroup sees all of the tensor's metadata."""
    return tensor.ndim <= MAX_RANK and tensor.layout is torch.strided


def dict_group(groups: dict[int, DictGroup], table: Any) -> DictGroup:
    return groups.setdefault(id(table), DictGroup(table))


def watchable(container: Any) -> bool:
    return type(container) in (dict, OrderedDict, defaultdict)


#: The groups whose words may change while what is guarded holds.
ASKED = (DictGroup, TensorGroup, WholeGroup)


class MemoryWatch:
    """All groups behind one comparison."""

    def __init__(self, groups: list, layout: ObjectLayout) -> None:
        self.groups, self.layout = groups, layout
        self.first: list[int] = []
        runs: list[Run] = []
        for group in groups:
            self.first.append(len(runs))
            runs += group.runs(layout)
        self.looks = [0] * len(groups)
        self.checks = 0
        self.words = Words(runs)
        self.compare = self.words.first_difference
        self.same = self.words.builtin()

    def check(self) -> bool:
        """Whether everything guarded still holds."""
        self.checks += 1
        while (index := self.compare()) >= 0:
            if not self._look_closer(index):
                return False
        return True

    def _look_closer(self, index: int) -> bool:
        number = bisect_right(self.first, index) - 1
        group = self.groups[number]
        self.looks[number] += 1
        if not group.holds():
            return False
        runs = group.runs(self.layout)
        if [count for _, count in runs] != self.words.counts_from(self.first[number], self._end(number)):
            return False  # a dictionary went its own way: everything is taken anew
        for k, (address, _) in enumerate(runs, self.first[number]):
            self.words.take(k, address)
        return True

    def restless(self) -> set[int]:
        """The objects whose words change often, though what is guarded holds: asking takes an eighth of looking."""
        rows = zip(self.groups, self.looks, strict=True)
        return {id(g.subject) for g, looks in rows if isinstance(g, ASKED) and 8 * looks > self.checks}

    def _end(self, number: int) -> int:
        return self.first[number + 1] if number + 1 < len(self.first) else len(self.words.counts)
