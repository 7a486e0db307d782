"""Compiled functions do not keep alive the modules that they were compiled for."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import dovetail
from dovetail.guards import bulk
from dovetail.guards.layout import discover

pytestmark = pytest.mark.usefixtures("small_heap")

X = torch.randn(3, 4)


def net(layers: int = 2) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(layers))).eval()


def entries(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


@pytest.fixture(params=["words in memory", "loops in C"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "words in memory" and discover() is None:
        pytest.skip("the layout of this interpreter is unknown")
    monkeypatch.setattr(bulk, "_MANY", 1 if request.param == "words in memory" else 10**9)


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def test_a_module_that_was_an_argument() -> None:
    compiled = dovetail.compile(lambda m, x: m(x) * 2, backend="eager", fullgraph=True)
    one, other = net(), net()
    for m in (one, other, one, other):
        torch.testing.assert_close(compiled(m, X), m(X) * 2)
    assert entries(compiled) == 2
    seen = [weakref.ref(one), weakref.ref(one[0][0]), weakref.ref(one[0][0].weight)]
    del m, one
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3 and entries(compiled) == 1
    torch.testing.assert_close(compiled(other, X), other(X) * 2)
    assert entries(compiled) == 1


model: nn.Module | None = None


def uses_a_global(x):
    return x + 1 if model is None else model(x)


def test_a_module_that_was_a_global() -> None:
    global model
    compiled = dovetail.compile(uses_a_global, backend="eager", fullgraph=True)
    model = net()
    torch.testing.assert_close(compiled(X), model(X))
    seen = weakref.ref(model)
    model = None
    gc.collect()
    assert seen() is None
    torch.testing.assert_close(compiled(X), X + 1)  # None is not the module that is gone
    model = net()
    torch.testing.assert_close(compiled(X), model(X))
    model = None


def test_a_sweep_over_models_never_reaches_the_limit() -> None:
    compiled = dovetail.compile(lambda m, x: m(x), backend="eager", fullgraph=True)
    for layers in range(12):
        m = net(1 + layers % 3)
        torch.testing.assert_close(compiled(m, X), m(X))
        assert entries(compiled) == 1
        del m
        gc.collect()


class Loud(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 100


CHANGES = {
    "its class": lambda m: setattr(m, "__class__", Loud),
    "its dictionary": lambda m: setattr(m, "__dict__", net(3).__dict__),
    "its forward": lambda m: setattr(m, "forward", lambda x: x * 7),
    "a child": lambda m: m.__setitem__(1, nn.Tanh()),
    "a parameter": lambda m: setattr(m[0][0], "weight", nn.Parameter(torch.randn(4, 4))),
    "a hook": lambda m: m.register_forward_hook(lambda m, a, out: out * 2),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_of_a_module_held_weakly_show(what: str) -> None:
    compiled = dovetail.compile(lambda m, x: m(x), backend="eager", fullgraph=True)
    m = net()
    before = compiled(m, X)
    CHANGES[what](m)
    after = m(X)
    assert not torch.equal(before, after)
    for _ in range(2):
        torch.testing.assert_close(compiled(m, X), after)


def test_reasons_after_a_modules_death() -> None:
    compiled = dovetail.compile(lambda m, x: m(x), backend="eager", fullgraph=True)
    m = net()
    compiled(m, X)
    entry = compiled._dovetail_dispatcher.entries[0]
    del m
    gc.collect()
    assert entries(compiled) == 0
    (first, *_) = entry.failures((net(), X), {})
    assert "m is None (now another object" in str(first)


def test_a_compiled_model_and_its_original_can_go() -> None:
    m = net()
    compiled = dovetail.compile(m, backend="eager")
    torch.testing.assert_close(compiled(X), m(X))
    seen = weakref.ref(m)
    del m, compiled
    gc.collect()
    assert seen() is None
