"""Methods of built-in containers, and built-in functions, given every kind of iterable and wrong arguments.

A program is one compiled function that calls one method with one kind of argument after the other and keeps what each
call gave or raised, the receiver and what is left of the argument. `python -m tests.fuzz.python.methods` tries all.
"""

from __future__ import annotations

import builtins
import itertools
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

import dovetail
from dovetail.errors import GraphBreakError
from tests.fuzz.python.observe import Walk, difference


class Iterable:
    def __init__(self, held):
        self.held = held

    def __iter__(self):
        return iter(self.held)


class Indexed:
    def __init__(self, held):
        self.held = held

    def __getitem__(self, index):
        return self.held[index]


class Keyed:
    def __init__(self, held):
        self.held = held

    def keys(self):
        return iter(self.held)

    def __getitem__(self, key):
        if key not in self.held:
            raise IndexError(key)
        return 7


class Early(Iterable):
    """Raises after some items."""

    def __iter__(self):
        yield from self.held
        raise ArithmeticError("early")


class Within(set):
    pass


def generated(items):
    yield from items


#: What a method is given, made of a list of items.
KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list, "tuple": tuple, "deque": deque, "generator": generated, "iter": iter, "Iterable": Iterable,
    "map": lambda items: map(lambda item: item, items), "zip": lambda items: zip(items, items),
    "filter": lambda items: filter(None, items), "chain": lambda items: itertools.chain(items, items),
    "keys": lambda items: dict.fromkeys(items, 3).keys(), "values": lambda items: dict.fromkeys(items, 3).values(),
    "items": lambda items: dict.fromkeys(items, 3).items(), "dict": lambda items: dict.fromkeys(items, 4),
    "OrderedDict": lambda items: OrderedDict.fromkeys(items, 4), "set": set, "frozenset": frozenset,
    "Within": Within, "Indexed": Indexed, "Keyed": Keyed, "Early": Early,
    "str": lambda items: "ab", "bytes": lambda items: b"ab", "int": lambda items: 5, "None": lambda items: None,
    "range": lambda items: range(len(items)), "none": lambda items: (), "enumerate": enumerate,
}  # fmt: skip

RECEIVERS: dict[str, Callable[[], Any]] = {
    "set": lambda: {1, 2}, "frozenset": lambda: frozenset({1, 2}), "dict": lambda: {1: 2, "a": 3},
    "list": lambda: [1, 2],
    "deque": lambda: deque([1, 2], 4), "Counter": lambda: Counter("aab"), "tuple": lambda: (1, 2), "str": lambda: "a,b",
    "OrderedDict": lambda: OrderedDict([(1, 2), ("a", 3)]), "defaultdict": lambda: defaultdict(list, {1: 2}),
    "bytes": lambda: b"a,b", "keys": lambda: {1: 2, "a": 3}.keys(), "items": lambda: {1: 5}.items(),
    "values": lambda: {1: 5}.values(), "Within": lambda: Within((1, 2)), "range": lambda: range(3),
    "class dict": lambda: dict, "class OrderedDict": lambda: OrderedDict, "class defaultdict": lambda: defaultdict,
    "class Counter": lambda: Counter, "class set": lambda: set, "class frozenset": lambda: frozenset,
    "class list": lambda: list, "class tuple": lambda: tuple, "class deque": lambda: deque,
    "builtins": lambda: builtins,
}  # fmt: skip

FUNCTIONS = tuple("""list tuple set frozenset dict sum min max sorted any all enumerate reversed iter len zip map filter
    bytes bool next isinstance getattr divmod pow round abs int float range slice""".split())
#: They show where objects lie, make classes, or are slots of sequences that raise where they are called by name alone.
LEFT_ALONE = frozenset("""__reduce__ __reduce_ex__ __sizeof__ __class__ __subclasshook__ __init_subclass__ __dir__
    __new__ __getattribute__ __setattr__ __delattr__ __getstate__ __class_getitem__ __format__ __repr__ mro
    __subclasses__ __prepare__ __instancecheck__ __subclasscheck__ __hash__ __str__ __missing__
    __add__ __mul__ __rmul__ __mod__""".split())
#: Arguments that few functions take: too many, none, by names that nobody has.
WRONG: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}), ((1, 2, 3, 4), {}), ((), {"nobody": 1}), (([3],), {"nobody": 1}), (([3],), {"key": None}),
    (([3],), {"default": 1}), (([3],), {"start": 1}), (([3], 1), {}), ((), {"iterable": [3]}),
)  # fmt: skip


def names(receiver: str) -> list[str]:
    made = RECEIVERS[receiver]()
    if made is builtins:
        return list(FUNCTIONS)
    if isinstance(made, type):
        return ["__call__", *(name for name in ("fromkeys",) if hasattr(made, name))]
    return [name for name in dir(made) if callable(getattr(made, name)) and name not in LEFT_ALONE]


def programs() -> Iterator[tuple[str, str, bool]]:
    """(receiver, method, is it given wrong arguments)"""
    for receiver in RECEIVERS:
        for name in names(receiver):
            yield receiver, name, False
            yield receiver, name, True


def function(receiver: str, name: str, wrong: bool, kinds: tuple[str, ...]) -> Callable[..., Any]:
    make, makers = RECEIVERS[receiver], [KINDS[kind] for kind in kinds]
    call = (lambda held: held) if name == "__call__" else (lambda held: getattr(held, name))
    items = ["a", "b"] if receiver in ("str", "bytes") else [(1, 5), (2, 6)]

    def given(x):
        out = []
        for maker in makers:
            held, argument = make(), maker(items)
            try:
                out.append((call(held)(argument), held, argument))
            except Exception as error:
                out.append((type(error), held, argument))
        return x + 1, out

    def refused(x):
        out = []
        for args, kwargs in WRONG:
            held = make()
            try:
                out.append((call(held)(*args, **kwargs), held))
            except Exception as error:
                out.append((type(error), held))
        return x + 1, out

    return refused if wrong else given


def outcome(called: Callable[..., Any]) -> Walk:
    walk = Walk()
    try:
        walk.root("result", called(torch.zeros(1)))
    except GraphBreakError:
        raise
    except Exception as error:
        walk.root("error", (type(error), str(error)))
    return walk


def try_one(receiver: str, name: str, wrong: bool) -> str | None:
    """What is wrong, if anything. Where one kind of argument ends the graph, each is a program of its own."""
    try:
        return _try(receiver, name, wrong, tuple(KINDS), True)
    except GraphBreakError:
        pass
    found = [_try(receiver, name, wrong, (kind,), False) for kind in ("list",) if wrong]
    found += [_try(receiver, name, wrong, (kind,), False) for kind in KINDS if not wrong]
    return next(filter(None, found), None)


def _try(receiver: str, name: str, wrong: bool, kinds: tuple[str, ...], whole: bool) -> str | None:
    dovetail.reset()
    called = function(receiver, name, wrong, kinds)
    ours = outcome(dovetail.compile(called, fullgraph=whole, backend="eager"))
    return difference(ours, outcome(called))


def sample(seed: int, count: int) -> list[tuple[str, str, bool]]:
    return random.Random(seed).sample(list(programs()), count)


if __name__ == "__main__":
    chosen = sys.argv[1:]
    failed = 0
    for program in programs():
        words = None if chosen and program[0] not in chosen else try_one(*program)
        if words is not None:
            failed += 1
            print(*program, words, flush=True)
    sys.exit(bool(failed))
