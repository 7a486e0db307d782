"""Loops in which a graph ends: what they still have to walk is known where it goes on."""

from __future__ import annotations

import itertools
from collections import OrderedDict

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.harness import compare

LAYERS = nn.ModuleList(nn.Linear(3, 3) for _ in range(5))
TABLE = nn.ModuleDict({str(k): layer for k, layer in enumerate(LAYERS)})


class Breaks(nn.Module):
    def forward(self, x):
        dovetail.graph_break()
        return x + 1


def twice(a):
    return a * 2


def doubled(items):
    for item in items:
        yield item * 2


#: What is walked, of numbers and of modules.
WALKED = {
    "list": lambda x: [1, 2, x, 4],
    "tuple": lambda x: (1, x, x, 4),
    "range": lambda x: range(5),
    "text": lambda x: map(ord, "abcd"),
    "reversed": lambda x: reversed([1, 2, x, 4]),
    "values": lambda x: {1: x, 2: 2, 3: x}.values(),
    "ordered": lambda x: OrderedDict(a=x, b=x, c=x).values(),
    "keys": lambda x: {1: x, 2: x, 3: x},
    "items": lambda x: (a + b for a, b in {1: x, 2: x, 3: x}.items()),
    "enumerate": lambda x: itertools.starmap(torch.mul, ((x, k) for k, _ in enumerate("abcd"))),
    "zip": lambda x: (a * b for a, b in zip([1, 2, 3, 4], reversed((x, x, x, x)), strict=True)),
    "map": lambda x: map(twice, [1, x, 3, 4]),
    "filter": lambda x: filter(None, [0, 1, 0, 2, 3, 4]),
    "generator": lambda x: doubled([1, x, 3]),
    "modules": lambda x: (layer(x) for layer in LAYERS),
    "modules by name": lambda x: (layer(x) for _, layer in TABLE.items()),
}


def graphs(fn, *args):
    found = dovetail.explain(fn)(*args)
    return found.graph_count, {str(reason.reason).split("]")[0][1:] for reason in found.break_reasons}


@pytest.mark.parametrize("name", WALKED)
def test_one_graph_break_in_a_loop_gives_two_graphs(name):
    def loop(x):
        for number, item in zip(itertools.count(), WALKED[name](x)):
            x = x + item
            if number == 1:
                dovetail.graph_break()
        return x

    compare(dovetail.compile(loop, backend="eager")(torch.ones(3)), loop(torch.ones(3)))
    assert graphs(loop, torch.ones(3)) == (2, {"explicit-break"})


class Dropping(nn.Module):
    """Leaves layers out at random, where the graph ends in each round."""

    def __init__(self, count, walk):
        super().__init__()
        self.layers, self.walk = nn.ModuleList(nn.Linear(3, 3) for _ in range(count)), walk

    def forward(self, x):
        for found in self.walk(self.layers):
            if torch.rand([]) < 0.3:
                continue
            x = (found[1] if self.walk is enumerate else found)(x).tanh()
        return x


@pytest.mark.parametrize("walk", [iter, enumerate])
def test_layers_that_are_left_out_at_random(walk):
    """One graph serves all rounds that are alike, and knows at once that each has a layer of its own. What draws the
    number is none."""
    module, x = Dropping(24, walk), torch.ones(2, 3, requires_grad=True)
    torch.manual_seed(0)
    count, codes = graphs(module, x)
    assert count == 1 and codes == {"data-dependent-branch", "outside-iterator"}
    compiled = dovetail.compile(module, backend="eager")
    for seed in range(4):
        torch.manual_seed(seed)
        found = compiled(x)
        torch.manual_seed(seed)
        compare(found, module(x))


def test_layers_behind_one_that_breaks():
    model = nn.Sequential(nn.Linear(3, 3), Breaks(), *LAYERS, nn.ReLU())
    assert graphs(model, torch.ones(2, 3)) == (2, {"explicit-break"})


@dovetail.disable
def call(function, *args):
    return function(*args)


def read_ahead(x):
    items = iter([x, x * 2, x * 3, x * 4, x * 5])
    for item in items:
        x = x + item
        dovetail.graph_break()
        x = x * next(items, 1)
    return x


def read_ahead_by_others(x):
    items = iter(range(10))
    for item in items:
        x = x * 2 + item
        call(next, items, None)
    return x


def kept(x):
    items = iter([1, 2, 3, 4, 5])
    for item in items:
        x = x + item
        dovetail.graph_break()
        if item == 3:
            return x, list(items)


def let_go(x):
    items = iter([1, 2, 3, 4, 5, 6, 7])
    for item in items:
        if item == 1:
            other = items
        x = x + item
        dovetail.graph_break()
        if item < 4:
            x = x * next(other)
        if item == 3:
            del other
    return x


def two_at_once(x):
    items = iter(range(8))
    for a, b in zip(items, items):
        x = x * a + b
        dovetail.graph_break()
    return x


def inside_another(x):
    items = iter([5, 6, 7, 8, 9, 10])
    for k, item in enumerate(items):
        x = x * k + item
        dovetail.graph_break()
        x = x + (call(next, items, 0))
    return x


def shorter(x):
    items = [x] * 6
    for item in items:
        x = x + item
        call(items.pop)
    return x


def shorter_backwards(x):
    items = [1, 2, 3, 4, 5]
    for item in reversed(items):
        x = x * item + 1
        call(items.pop)
    return x


def longer(x):
    items = [x, x * 2]
    for item in items:
        x = x + item
        if len(items) < 6:
            call(items.append, x)
    return x, len(items)


def other_values(x):
    table = {"a": x, "b": x * 2, "c": x * 3}
    for value in table.values():
        x = x + value
        call(table.__setitem__, "c", x)
    return x


def other_keys(x):
    table = {"a": x, "b": x * 2, "c": x * 3}
    seen = []
    try:
        for key in table:
            if not seen:
                call(table.pop, "a")
                call(table.__setitem__, "z", x * 7)
            seen.append(key)
            x = x + table.get(key, 5)
    except RuntimeError as error:
        return x, seen, str(error)


def more_keys(x):
    table = {"a": x, "b": x * 2}
    try:
        for key in table:
            call(table.__setitem__, key * 2, x)
            x = x + 1
    except RuntimeError as error:
        return x, str(error)


def nested(x):
    for a in [1, 2, 3]:
        for b in range(3):
            x = x * a + b
            dovetail.graph_break()
        else:
            x = x - 1
    return x


CHANGED = [read_ahead, read_ahead_by_others, kept, let_go, two_at_once, inside_another, shorter, shorter_backwards,
           longer, other_values, other_keys, more_keys, nested]  # fmt: skip


@pytest.mark.parametrize("fn", CHANGED, ids=lambda fn: fn.__name__)
def test_what_is_walked_changes_meanwhile(fn):
    compiled = dovetail.compile(fn, backend="eager")
    for k in range(3):
        compare(compiled(torch.ones(3) + k), fn(torch.ones(3) + k))
