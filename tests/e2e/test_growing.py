"""State that grows from call to call, such as a cache of keys and values: compiled once for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail

CALLS = 5


class Cache:
    """What a layer has seen so far."""

    def __init__(self, length: int = 3, width: int = 2) -> None:
        self.keys, self.values = torch.ones(length, width), torch.zeros(length, width)

    def update(self, new):
        self.keys = torch.cat([self.keys, new])
        self.values = torch.cat([self.values, new * 2])
        return self.keys, self.values


class Part(torch.nn.Module):
    """A module that keeps a tensor which is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.ones(3, 2)

    def forward(self, x):
        self.kept = torch.cat([self.kept, x + self.kept.shape[0]])
        return self.kept.sum(0, keepdim=True)


class Line:
    """Two sizes that grow at once, by steps of their own."""

    def __init__(self) -> None:
        self.kept = torch.ones(3, 4)

    def __call__(self, x):
        self.kept = torch.nn.functional.pad(self.kept, (0, 2, 0, 1)) + x.sum()
        return self.kept.mean(1)


def entries(fn: Any) -> int:
    return len(fn._dovetail_dispatcher.entries)


def attend(cache, x):
    keys, values = cache.update(x)
    return torch.softmax(x @ keys.t(), -1) @ values


def of_layers(caches, x):
    for cache in caches:
        x = x + attend(cache, x)
    return x


def held(state: Any) -> list[torch.Tensor]:
    if isinstance(state, list):
        return [t for one in state for t in held(one)]
    if isinstance(state, torch.nn.Module):
        return [m.kept for m in state.modules() if isinstance(m, Part)]
    return [t for t in vars(state).values() if isinstance(t, torch.Tensor)]


def compilations(fn: Callable[[Any, Any], Any], make: Callable[[], Any], **options: Any) -> int:
    """How many a number of calls takes; results and state are eager's after each."""
    ours, theirs = make(), make()
    compiled = dovetail.compile(fn, **options)
    for k in range(CALLS):
        x = torch.full((1, 2), k / 4)
        torch.testing.assert_close(compiled(ours, x), fn(theirs, x))
        torch.testing.assert_close(held(ours), held(theirs))
    return entries(compiled)


GROWING = {
    "an object": (attend, Cache),
    "objects of a class": (of_layers, lambda: [Cache() for _ in range(6)]),
    "objects of several sizes": (of_layers, lambda: [Cache(3), Cache(5), Cache(3)]),
    "modules": (lambda m, x: m(x), lambda: torch.nn.Sequential(*[Part() for _ in range(4)])),
    "two dimensions": (lambda line, x: line(x), Line),
    "a call": (lambda line, x: Line.__call__(line, x), Line),
    "setattr": (lambda c, x: setattr(c, "keys", torch.cat([c.keys, x])), Cache),
    "the size itself": (lambda c, x: attend(c, x) * c.keys.shape[0], Cache),
}


@pytest.mark.parametrize("name", GROWING)
def test_one_compilation_serves_what_grows(name: str) -> None:
    fn, make = GROWING[name]
    assert compilations(fn, make, fullgraph=True) == 1


def shortened(cache, x):
    attend(cache, x)
    cache.keys, cache.values = cache.keys[1:], cache.values[-3:]


def window(cache, x):
    cache.keys = torch.cat([cache.keys, x])[-3:]


def there_and_back(cache, x):
    cache.keys = torch.cat([cache.keys, x])
    found = cache.keys.sum()
    cache.keys = cache.keys[1:]
    return found


@pytest.mark.parametrize("fn", [shortened, window, there_and_back])
def test_what_has_its_size_again_in_the_end_gives_the_right_state(fn: Any) -> None:
    assert compilations(fn, Cache, fullgraph=True) == 1


@pytest.mark.parametrize("fn", [window, there_and_back])
def test_what_a_function_leaves_as_long_as_it_was_is_constant(fn: Any) -> None:
    compiled = dovetail.compile(fn, fullgraph=True)
    compiled(Cache(3), torch.ones(1, 2))
    assert not compiled._dovetail_dispatcher.entries[0].captured.symbols


def test_never_if_sizes_are_not_to_vary() -> None:
    assert compilations(attend, Cache, dynamic=False) == CALLS


def test_what_is_marked_as_constant_stays_so() -> None:
    def make():
        cache = Cache()
        dovetail.mark_static(cache.keys)
        dovetail.mark_static(cache.values)
        return cache

    fn = lambda c, x: attend(c, x)
    compiled, cache = dovetail.compile(fn, fullgraph=True), make()
    compiled(cache, torch.ones(1, 2))
    assert not compiled._dovetail_dispatcher.entries[0].captured.symbols
    torch.testing.assert_close(cache.keys, torch.ones(4, 2))


def test_a_graph_break_in_between() -> None:
    def fn(cache, x):
        found = attend(cache, x)
        dovetail.graph_break()
        return found + attend(cache, x)

    assert compilations(fn, Cache) == 1


def test_an_error_after_the_store() -> None:
    def fn(cache, x):
        cache.update(x)
        if x.shape[0] == 1:
            raise ValueError("too short")

    for run in (fn, dovetail.compile(fn)):
        cache = Cache()
        with pytest.raises(ValueError, match="too short"):
            run(cache, torch.ones(1, 2))
        assert cache.keys.shape == (4, 2)


def test_what_takes_no_symbols_makes_the_size_constant() -> None:
    def fn(cache, x):
        cache.keys = torch.cat([cache.keys, x])
        return [row.sum() for row in cache.keys]  # as many as there are

    assert compilations(fn, Cache) == CALLS


def test_an_attribute_that_was_another_input_all_along() -> None:
    def fn(cache, x):
        cache.keys, cache.values = cache.values, cache.keys  # of other sizes, in turns
        return cache.keys.sum() + x.sum()

    def make():
        cache = Cache()
        cache.values = torch.zeros(5, 2)
        return cache

    assert compilations(fn, make) <= 2


def test_gradients_through_what_grows() -> None:
    def fn(cache, x):
        return attend(cache, x).sum()

    ours, theirs = Cache(), Cache()
    compiled = dovetail.compile(fn, fullgraph=True)
    for k in range(3):
        found = []
        for run, cache in ((compiled, ours), (fn, theirs)):
            x = torch.full((1, 2), k / 4, requires_grad=True)
            run(cache, x).backward()
            cache.keys, cache.values = cache.keys.detach(), cache.values.detach()
            found.append(x.grad)
        torch.testing.assert_close(*found)
    assert entries(compiled) == 1
