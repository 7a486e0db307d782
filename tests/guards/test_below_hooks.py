"""What hooks of modules hold is noticed when it changes: in cells, partial functions and bound methods. So is what
changes in every call without a consequence, until it has one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dovetail
from dovetail.guards import bulk

pytestmark = pytest.mark.usefixtures("both_ways")
X = torch.ones(2, 4)


class Scaler:
    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def hook(self, module: nn.Module, given: tuple) -> tuple:
        return (given[0] * self.factor,)


def closing(factor: float) -> Callable[..., Any]:
    return lambda module, given: (given[0] * factor,)


def scaled(factor: float, module: nn.Module, given: tuple) -> tuple:
    return (given[0] * factor,)


def cell(hook: Any) -> None:
    hook.__closure__[0].cell_contents = 5.0


def partial(hook: Any) -> None:
    hook.__setstate__((scaled, (5.0,), {}, {}))


def slot(hook: Any) -> None:
    hook.__self__.factor = 5.0


@pytest.mark.parametrize(
    ("make", "change"), [(closing, cell), (functools.partial(functools.partial, scaled), partial),
                         (lambda factor: Scaler(factor).hook, slot)], ids=["cell", "partial", "slot"],
)  # fmt: skip
def test_what_a_hook_holds(make: Callable[[float], Any], change: Callable[[Any], None]) -> None:
    module, hook = nn.Linear(4, 4), make(2.0)
    module.register_forward_pre_hook(hook)
    compiled = dovetail.compile(module, fullgraph=True)
    plain = nn.Linear(4, 4)
    plain.load_state_dict(module.state_dict())
    for _ in range(3):
        torch.testing.assert_close(compiled(X), plain(X * 2))
    change(hook)
    torch.testing.assert_close(compiled(X), plain(X * 5))
    module.register_forward_pre_hook(make(2.0))
    torch.testing.assert_close(compiled(X), plain(X * 10))


def test_hooks_are_compared_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    exact = bulk.compile_exact
    monkeypatch.setattr(bulk, "compile_exact", lambda guards, names: left.append(guards) or exact(guards, names))
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    for layer, hook in zip(module, (closing(2.0), functools.partial(scaled, 2.0), Scaler(2.0).hook), strict=True):
        layer.register_forward_pre_hook(hook)
    compiled = dovetail.compile(module, fullgraph=True)
    for _ in range(3):
        compiled(X)
    assert not [guard for guards in left for guard in guards if "hooks" in guard.source.expr()]


def test_what_changes_in_every_call_and_then_matters() -> None:
    module = nn.Linear(4, 4)
    compiled = dovetail.compile(module, fullgraph=True)
    compiled(X)
    with dovetail.set_stance("fail_on_recompile"):
        for _ in range(3 * bulk._RESTLESS):
            module.weight.data = torch.randn(4, 4)
            module._parameters["note"] = None
            del module._parameters["note"]
            torch.testing.assert_close(compiled(X), module(X))
    module.weight.data = torch.randn(6, 4)
    module.bias.data = torch.randn(6)
    torch.testing.assert_close(compiled(X), module(X))
    module.weight = nn.Parameter(torch.randn(3, 4))
    module.bias = None
    torch.testing.assert_close(compiled(X), module(X))
