"""Weak references to objects that the compiled function makes."""

from __future__ import annotations

import weakref

import pytest
import torch

import dovetail
from tests.capture.harness import compare

x = torch.ones(2)


class Node:
    def __init__(self, v):
        self.v = v


class Owner:
    found = None

    def part(self):
        if self.found is None or self.found() is None:
            made = Node(x)
            self.found = weakref.ref(made)
            return made
        return self.found()


OUTSIDE = Owner()


def held_by_a_local(a):
    node = Node(a)
    return weakref.ref(node)().v + 1


def held_by_another(a):
    owner = Owner()
    kept = {"parts": [Owner(), owner.part()]}
    return owner.part() is kept["parts"][1], owner.part().v + a


def given(node, a):
    return weakref.ref(node)() is node, a


def not_held(a):
    return weakref.ref(Node(a))() is None, a + 1


def made_again(a):
    owner = Owner()
    return owner.part().v + a, owner.part().v - a


def kept_outside(a):
    return OUTSIDE.part().v + a


@pytest.mark.parametrize("function", [held_by_a_local, held_by_another, lambda a: given(Node(a), a)])
def test_what_is_held_is_alive(function):
    compare(dovetail.compile(function, backend="eager", fullgraph=True)(x), function(x))


THERE, ELSEWHERE = Node(2), Node(3)
BY_OBJECT = weakref.WeakKeyDictionary({THERE: 5})
SET = weakref.WeakSet([THERE])
OUTER = weakref.ref(THERE)
LOOKED_UP = [
    lambda node, a: [a * BY_OBJECT.get(node, 0), node in SET, a + len(SET), node in BY_OBJECT, Node(a) in SET],
    lambda node, a: [OUTER == weakref.ref(node), weakref.ref(node) != OUTER, OUTER == 3],
    lambda node, a: [(m := {weakref.ref(node): a})[weakref.ref(node)], weakref.ref(n := Node(a)) in m, n.v],
    lambda node, a: [weakref.ref(node) is weakref.ref(node), len({weakref.ref(n := Node(a)), weakref.ref(n)})],
]


@pytest.mark.parametrize("function", LOOKED_UP)
def test_references_are_equal_where_their_objects_are(function):
    compiled = dovetail.compile(function, backend="eager", fullgraph=True)
    for node in (THERE, ELSEWHERE, THERE):
        compare(compiled(node, x), function(node, x))


class Equal:
    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


UNTOLD = [
    lambda node, a: (weakref.ref(node) is OUTER, a + 1),
    lambda node, a: (weakref.ref(a) in SET, a + 1),
    lambda node, a: (weakref.ref(e := Equal()) in SET, e == a, a + 1),
]


@pytest.mark.parametrize("function", UNTOLD)
def test_what_equality_of_references_cannot_be_told_breaks_the_graph(function):
    with pytest.raises(dovetail.GraphBreakError, match="weak-reference"):
        dovetail.compile(function, backend="eager", fullgraph=True)(THERE, x)
    compare(dovetail.compile(function, backend="eager")(THERE, x), function(THERE, x))


@pytest.mark.parametrize("function", [not_held, made_again, kept_outside])
def test_what_may_be_gone_breaks_the_graph(function):
    with pytest.raises(dovetail.GraphBreakError, match="weak-reference"):
        dovetail.compile(function, backend="eager", fullgraph=True)(x)
    compiled = dovetail.compile(function, backend="eager")
    for _ in range(3):
        compare(compiled(x), function(x))


def test_a_reference_that_leaves_is_alive_as_long_as_its_object():
    def run(a):
        node, gone = Node(a), Node(a + 1)
        return node, weakref.ref(node), weakref.ref(gone)

    node, alive, dead = dovetail.compile(run, backend="eager")(x)
    assert alive() is node and dead() is None
    del node
    assert alive() is None


class Referred:
    k = 2.0

    def __init__(self) -> None:
        self.w = torch.ones(2)

    def scaled(self, a):
        return a * self.k + self.w


REFERRED = Referred()
PROXY = weakref.proxy(REFERRED)


def stores_through(a):
    PROXY.k = 3.0
    return a * REFERRED.k, REFERRED.scaled(a)


THROUGH_PROXIES = {
    "a method": lambda a: PROXY.scaled(a) + 1,
    "an attribute": lambda a: a * PROXY.k + PROXY.w,
    "its class": lambda a: a * (2 if isinstance(PROXY, Referred) else 3),
    "its own class": lambda a: a * (2 if type(PROXY) is Referred else 3),
    "a name that is asked for": lambda a: a * getattr(PROXY, "k", 9) * hasattr(PROXY, "w"),
    "a store": stores_through,
}


@pytest.mark.parametrize("name", THROUGH_PROXIES)
def test_what_a_proxy_stands_for(name: str) -> None:
    """Python looks nothing up in the proxy's own class."""
    function = THROUGH_PROXIES[name]
    compiled = dovetail.compile(function, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
