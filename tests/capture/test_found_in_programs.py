"""What programs of users showed to differ from eager."""

from __future__ import annotations

import functools
import random

import pytest
import torch

import dovetail
from tests.capture.harness import compare


class Options(dict):
    """Attributes are items."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Lenient(dict):
    __getitem__ = dict.get


class Stack(list):
    __call__ = list.pop
    __setitem__ = list.insert


def options(x):
    c = Options(a=1, b=Options())
    c.a += 1; c.b.x = x; del c.a
    return list(c), list(c.b), c.b.x, c.missing, hasattr(c, "missing"), vars(c)


def options_from_outside(x, c):
    c.step = c.step + 1 if c.step else 1
    c["scale"] = 3
    return x * c.scale + c.step, dict(c), vars(c)


def lenient(x): d = Lenient(a=x); return d["a"], d["b"], "b" in d, len(d)
def stack(x): s = Stack([x]); s[0] = 5; return s, s(), s(-1), s


@pytest.mark.parametrize("fn", (options, lenient, stack), ids=lambda fn: fn.__name__)
def test_special_methods_that_are_native_ones_of_other_names(fn):
    compare(dovetail.compile(fn, backend="eager", fullgraph=True)(torch.ones(2)), fn(torch.ones(2)))


def test_attributes_that_are_items():
    ours, theirs = Options(), Options()
    compiled = dovetail.compile(options_from_outside, backend="eager", fullgraph=True)
    for _ in range(3):
        compare(compiled(torch.ones(2), ours), options_from_outside(torch.ones(2), theirs))
        compare((dict(ours), vars(ours)), (dict(theirs), vars(theirs)))


class Grid:
    def __init__(self, size):
        self.size, self.made = size, 0

    @functools.cached_property
    def places(self):
        self.made += 1
        return torch.arange(float(self.size))


def resized(grid, x, size):
    x = x + grid.places.sum()
    grid.size = size
    grid.__dict__.pop("places", None)
    return x + grid.places.sum(), grid.made


def test_a_cached_property_that_was_taken_away():
    compiled, ours, theirs = dovetail.compile(resized, backend="eager"), Grid(3), Grid(3)
    for size in (4, 5, 6):
        compare(compiled(ours, torch.ones(2), size), resized(theirs, torch.ones(2), size))


def drawn(x, items):
    random.shuffle(items)
    return x + random.choice(items), random.sample(items, 3), items


def test_a_random_choice_is_one_step():
    compiled = dovetail.compile(drawn, backend="eager")
    for seed in range(3):
        found = []
        for call in (compiled, drawn):
            random.seed(seed)
            found.append((call(torch.ones(2), list(range(40))), random.random()))
        compare(*found)
    parts = compiled._dovetail_dispatcher, *compiled._dovetail_dispatcher.compiler.rests.values()
    assert len(parts) == 4  # one step each, and what follows


class Two:
    def __getitem__(self, k): return (1, 2)[k]


@pytest.mark.parametrize("make", (lambda: iter(Two()), lambda: iter(int, 0), lambda: iter([1]), lambda: iter("ab")))
def test_an_iterator_that_has_ended_is_still_of_its_kind(make):
    def walked(x):
        iterator = make()
        return x + len(list(iterator)), iterator

    found = dovetail.compile(walked, backend="eager", fullgraph=True)(torch.ones(2))[1]
    assert type(found) is type(make()) and list(found) == []


class Lengths:
    kept = 3
    def __getattr__(self, name): return len(name)


@pytest.mark.parametrize("name", ("extra", "kept"))
def test_an_attribute_can_be_deleted_once(name):
    held = Lengths()

    @dovetail.compile(backend="eager")
    def program(x):
        delattr(held, name)
        return x + 1

    setattr(held, name, 5)
    program(torch.ones(2))
    with pytest.raises(AttributeError):
        program(torch.ones(2))


def message(step):
    try:
        step()
    except Exception as error:
        return type(error).__name__, str(error)


ERRORS = {
    "too small in place": lambda x: message(lambda: x.add_(torch.ones(2, 4))),
    "too small with a number": lambda x: message(lambda: x.lerp_(torch.ones(3, 4), 0.5)),
    "no attribute of a method": lambda x: message(lambda: Two().__getitem__.missing),
    "no attribute of a function": lambda x: message(lambda: message.missing),
}


@pytest.mark.parametrize("name", ERRORS)
def test_messages_are_eagers(name):
    assert dovetail.compile(ERRORS[name], backend="eager")(torch.ones(4)) == ERRORS[name](torch.ones(4))
