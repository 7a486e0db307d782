"""`min`, `max` and `sorted`."""

from __future__ import annotations

from typing import Any

from dovetail.capture.numbers import dispatch
from dovetail.capture.numbers.graph_numbers import InGraph
from dovetail.capture.tables.known_callables import known
from dovetail.capture.tensors.extremes import choose
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import ListValue
from dovetail.capture.values.number import answering


def _extreme(sign: str, name: str) -> Any:
    def choose(s: Session, args: Args, kwargs: Kwargs) -> Value:
        items = list(args) if len(args) > 1 else s.unpack(args[0])
        if not items:
            return kwargs.get("default") or s.throw(ValueError, f"{name}() arg is an empty sequence")
        key = kwargs.get("key", NONE)
        plain = isinstance(key, Const)
        kinds = {v.cls if isinstance(v, (Const, InGraph)) else None for v in items}
        free = answering(*items) is not None
        if plain and (kinds == {float} or kinds == {int} and free):
            made = dispatch.call(s, {"min": min, "max": max}[name], items) if len(items) > 1 else None
            if made is not None:
                return made  # whichever it is: nothing relies on the outcome
        best, best_key = items[0], items[0] if plain else s.call(key, items[0])
        for item in items[1:]:
            item_key = item if plain else s.call(key, item)
            better = s.compare(sign, item_key, best_key)
            chosen = _chosen(s, better, (item, best), (item_key, best_key))
            if chosen is not None:
                best, best_key = chosen
            elif s.truth(better):
                best, best_key = item, item_key
        return best

    return choose


def _chosen(
    s: Session, better: Value, items: tuple[Value, Value], keys: tuple[Value, Value]
) -> tuple[Value, Value] | None:
    """An item and its key, where only the graph knows which."""
    item = choose(s, better, *items)
    key = item if items == keys else choose(s, better, *keys)
    return None if item is None or key is None else (item, key)


known(min)(_extreme("<", "min"))
known(max)(_extreme(">", "max"))


known(sorted)(lambda s, args, kwargs: ListValue(sort_values(s, s.unpack(args[0]), kwargs)))


def sort_values(s: Session, items: Args, kwargs: Kwargs) -> Args:
    """`items` in order; stable, as Python's sort."""
    key = kwargs.get("key", NONE)
    keys = items if isinstance(key, Const) else [s.call(key, item) for item in items]
    reverse = "reverse" in kwargs and s.truth(kwargs["reverse"])
    order = sorted(range(len(items)), key=lambda k: _Ordered(s, keys[k]), reverse=reverse)
    return [items[k] for k in order]


class _Ordered:
    """Compares two values by traced `<`."""

    __slots__ = ("s", "value")

    def __init__(self, s: Session, value: Value) -> None:
        self.s, self.value = s, value

    def __lt__(self, other: _Ordered) -> bool:
        return self.s.truth(self.s.compare("<", self.value, other.value))
