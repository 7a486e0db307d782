"""Objects that are one in a call and two in another, and functions made anew for each call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dovetail

X = torch.arange(3.0)


class Holder:
    def __init__(self) -> None:
        self.value = 1.0

    def __repr__(self) -> str:
        return f"Holder({self.value})"


def append(x, a, b):
    a.append(5.0)
    return x + sum(b), len(b)


def put(x, a, b):
    a["k"] = 3.0
    return x + sum(b.values())


def store(x, a, b):
    a.value = 7.0
    return x + b.value


def add(x, a, b):
    a.add(3)
    return x + len(b)


def inside(x, a, b):
    a[0].append(1.0)
    return x + sum(b[0])


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "list": (append, lambda: [1.0]),
    "dict": (put, lambda: {"a": 1.0}),
    "object": (store, Holder),
    "set": (add, lambda: {1}),
    "is": (lambda x, a, b: x + 1 if a is b else x - 1, Holder),
    "is, of lists": (lambda x, a, b: x + 1 if a is b else x - 1, lambda: [1.0]),
    "is not, of tensors": (lambda x, a, b: x + 1 if a is not b else x - 1, lambda: torch.ones(3)),
    "equality": (lambda x, a, b: x + 1 if a == b else x - 1, Holder),
    "membership": (lambda x, a, b: x + 1 if a in (b,) else x - 1, Holder),
}


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["one first", "two first"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_one_object_or_two(case: str, order: tuple[bool, ...]) -> None:
    fn, make = PROGRAMS[case]
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    for one in (*order, *order):
        first = make()
        mine = (X, first, first if one else make())
        other = copy.deepcopy(mine)
        assert repr(compiled(*other)) == repr(fn(*mine)) and repr(other) == repr(mine)
    assert len(compiled._dovetail_dispatcher.entries) == 2


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["one first", "two first"])
def test_inside_containers(order: tuple[bool, ...]) -> None:
    compiled = dovetail.compile(inside, backend="eager", fullgraph=True)
    for one in (*order, *order):
        shared = [1.0]
        mine = (X, [shared], [shared if one else [1.0]])
        other = copy.deepcopy(mine)
        assert repr(compiled(*other)) == repr(inside(*mine)) and repr(other) == repr(mine)


def test_attributes_of_a_module() -> None:
    class Sharing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = [1.0], [1.0]

        def forward(self, x):
            self.a[0] += 1.0
            return x + sum(self.b)

    model, other = Sharing(), Sharing()
    compiled = dovetail.compile(model, backend="eager")
    for k in range(6):
        if k == 3:
            model.b, other.b = model.a, other.a
        assert torch.equal(compiled(X), other(X)) and model.a == other.a and model.b == other.b


def test_reading_two_lists_does_not_keep_them_apart() -> None:
    compiled = dovetail.compile(lambda x, a, b: x + sum(a) + sum(b), backend="eager", fullgraph=True)
    same = [1.0, 2.0]
    for a, b in ((same, [1.0, 2.0]), (same, same)):
        assert torch.equal(compiled(X, a, b), X + 6)
    assert len(compiled._dovetail_dispatcher.entries) == 1


def apply(x, fn):
    return fn(x) + 1


def test_functions_made_for_each_call() -> None:
    compiled = dovetail.compile(apply, backend="eager", fullgraph=True)
    for k in range(10):
        assert torch.equal(compiled(X, lambda t, k=k: t * k), X * k + 1)
    for k in range(10):
        assert torch.equal(compiled(X, lambda t: t - k), X - k + 1)
    assert len(compiled._dovetail_dispatcher.entries) == 4
    assert torch.equal(compiled(X, torch.relu), X + 1)


def test_cells_of_functions_made_for_each_call() -> None:
    def made() -> Any:
        count = 0

        def increment(x):
            nonlocal count
            count += 1
            return x * count

        return increment, lambda: count

    compiled = dovetail.compile(apply, backend="eager", fullgraph=True)
    for _ in range(3):
        increment, read = made()
        assert torch.equal(compiled(X, increment), X + 1)
        assert torch.equal(compiled(X, increment), X * 2 + 1)
        assert read() == 2
    assert len(compiled._dovetail_dispatcher.entries) == 2


def test_two_functions_made_for_a_call() -> None:
    def both(x, f, g):
        return f(g(x)) if f is not g else x

    compiled = dovetail.compile(both, backend="eager", fullgraph=True)
    for _ in range(2):
        f = lambda t: t + 1
        assert torch.equal(compiled(X, f, lambda t: t * 2), X * 2 + 1)
        assert torch.equal(compiled(X, f, f), X)
