"""Buffers that a program exchanges for other tensors: `self.last = x.sum(0)`.

The exported module does the same when its graph has run: the graph's last outputs are what such buffers are then. So
the tensor that a buffer was before stays what it is for whoever has it, and a result can be the buffer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.exporting.state import ExportState
from dovetail.ir.captured import Captured
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Attr, Member

CODE = "not-exportable"
REMEDY = "Give the model all its buffers before it is exported, each a tensor of its own."


REACHED = (GuardKind.TENSOR, GuardKind.ALIAS, GuardKind.ID, GuardKind.TYPE)  # what the program has looked at


@dataclass(frozen=True)
class Exchange:
    """The buffer `name` of a `part` of the module, which has all the `names` there: `new` is what comes instead of the
    tensor `old`, or stands for it."""

    part: torch.nn.Module
    name: str
    names: tuple[str, ...]
    old: torch.Tensor
    new: Any


@dataclass
class Tables:
    """The dictionaries of buffers of a module and its parts, as they are now, and all names of each part."""

    parts: list[tuple[torch.nn.Module, dict[str, Any], list[str]]]

    def __contains__(self, table: Any) -> bool:
        return any(part._buffers is table for part, _, _ in self.parts)

    def exchanged(self) -> list[Exchange]:
        """The buffers that are other tensors by now. Raises Unsupported for any other change."""
        found = []
        for part, before, paths in self.parts:
            names = {n: tuple(f"{path}.{n}" if path else n for path in paths) for n in (*before, *part._buffers)}
            for name in (n for n in names if before.get(n) is not part._buffers.get(n)):
                old, new = (table.get(name) for table in (before, part._buffers))
                if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
                    said = "removes" if new is None else "adds"
                    raise Unsupported(CODE, f"the program {said} the buffer {names[name][0]}", REMEDY)
                found.append(Exchange(part, name, names[name], old, new))
        return found

    def put_back(self) -> None:
        for part, before, _ in self.parts:
            part._buffers.clear()
            part._buffers.update(before)


def tables(owner: torch.nn.Module | None) -> Tables:
    """Those of a module; of None, no buffers at all."""
    found: dict[int, tuple[torch.nn.Module, dict[str, Any], list[str]]] = {}
    for path, part in owner.named_modules(remove_duplicate=False) if owner is not None else ():
        found.setdefault(id(part), (part, dict(part._buffers), []))[2].append(path)
    return Tables([*found.values()])


Load = Callable[[Sequence[Any]], Sequence[Any]]  # what sources lead to


def refuse_other_names(exchanges: Sequence[Exchange], state: ExportState, captured: Captured, load: Load) -> None:
    """A tensor that the program has under another name too is two after the exchange, but one in the graph."""
    if not exchanges:
        return
    sources = list(dict.fromkeys(g.source for g in captured.guards if g.source is not None and g.kind in REACHED))
    reached = list(zip(sources, load(sources), strict=True))
    for exchange in exchanges:
        alike = [other for other in exchanges if other.old is exchange.old and other.new is exchange.new]
        names = {name for other in alike for name in other.names}
        others = [name for name, tensor in state.tensors.items() if tensor is exchange.old and name not in names]
        paths = [source for source, real in reached if real is exchange.old]
        others += [path.name() for path in paths if not any(_is_place(path, other, load) for other in alike)]
        if others:
            said = f"the buffer {exchange.names[0]} is {others[0]} as well, which keeps the old tensor"
            raise Unsupported(CODE, f"{said} where the program gives the buffer another", REMEDY)


def _is_place(source: Any, exchange: Exchange, load: Load) -> bool:
    """Does the source lead to the tensor by way of the buffer?"""
    if not isinstance(source, (Attr, Member)) or source.field != exchange.name:
        return False
    return load([source.base])[0] is exchange.part
