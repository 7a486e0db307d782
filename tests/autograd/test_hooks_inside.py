"""`register_hook` of what the program computes, inside the graph: PyTorch's engine calls the hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail

Tensor = torch.Tensor
SEEN: list[float] = []


def triple(gradient: Tensor) -> Tensor:
    SEEN.append(float(gradient.sum()))
    return gradient * 3


def plain(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(triple)
    return y.sum()


def used_before(x: Tensor, k: float) -> Tensor:
    y = x * 2
    z = y + 1
    y.register_hook(lambda gradient: gradient * 3)
    return (y * z).sum()


def by_a_number(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * k)
    return y.sum()


def several(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: None)
    y.register_hook(triple)
    y.mul_(2)
    return y.sum()


def backward_inside(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(triple)
    y.sum().backward()
    return x.grad * 1


WHOLE: dict[str, Callable[[Tensor, float], Any]] = {
    f.__name__: f for f in (plain, used_before, by_a_number, several, backward_inside)
}


def removed(x: Tensor, k: float) -> Tensor:
    y = x * 2
    handle = y.register_hook(triple)
    z = y.sin()
    handle.remove()
    return z.sum()


def given(x: Tensor, k: float) -> Any:
    y = x * 2
    return y.sum(), y.register_hook(triple)


def of_what_is_computed(x: Tensor, k: float) -> Tensor:
    y = x * 2
    other = y.detach() + k
    y.register_hook(lambda gradient: gradient * other)
    return y.sum()


def without_history(x: Tensor, k: float) -> Tensor:
    y = x.detach() * 2
    y.register_hook(triple)
    return y.sum()


def from_outside(x: Tensor, k: float) -> Tensor:
    x.register_hook(triple)
    return (x * 2).sum()


BREAKING: dict[str, Callable[[Tensor, float], Any]] = {
    f.__name__: f for f in (removed, given, of_what_is_computed, without_history, from_outside)
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("name", [*WHOLE, *BREAKING])
def test_gradients_go_through_hooks(name: str, backend: str) -> None:
    fn = WHOLE.get(name) or BREAKING[name]
    dovetail.reset()
    compiled = dovetail.compile(fn, backend=backend, fullgraph=name in WHOLE)
    for k in (2.0, 5.0, 5.0):
        assert _outcome(compiled, k) == _outcome(fn, k)


def _outcome(fn: Callable[[Tensor, float], Any], k: float) -> Any:
    x = torch.ones(2, requires_grad=True)
    SEEN.clear()
    try:
        result = fn(x, k)
    except RuntimeError as error:
        return str(error)
    result = result[0] if isinstance(result, tuple) else result
    if result.requires_grad:
        result.backward()
    return result.tolist(), x.grad.tolist(), list(SEEN)  # type: ignore[union-attr]
