"""Tensors that the program has made and tells to require gradients: part of the graph where nobody sees those."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dovetail

from .comparing import BACKENDS, Call, leaf, same

Tensor = torch.Tensor
SEEN: list[Any] = []


def frozen_below(x: Tensor, w: Tensor) -> Tensor:
    h = x[:, None]
    h.requires_grad = True
    return (h * w).sin()


def by_method(x: Tensor, w: Tensor) -> Tensor:
    return (x * 2).requires_grad_().matmul(w).relu()


def some_without(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The second result has a history, though it depends on nothing that the caller can differentiate by."""
    h = (x + 1).requires_grad_(True)
    return h @ w, h.exp(), h.detach()


def of_what_has_a_history(x: Tensor, w: Tensor) -> Tensor:
    h = (w.detach() * 2).requires_grad_()
    return (h * w).sum() + h.is_leaf


def two(x: Tensor, w: Tensor) -> Tensor:
    h, k = x.sin().requires_grad_(), x.cos().requires_grad_()
    return (h * k) @ w


def without_recording(x: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        h = x.sin()
        h.requires_grad = True
    return h @ w


def told_twice(x: Tensor, w: Tensor) -> Tensor:
    h = x.sin().requires_grad_().requires_grad_()
    return h @ w


def differentiated_by(x: Tensor, w: Tensor) -> Tensor:
    h = x.detach() + 1
    h.requires_grad = True
    return (torch.autograd.grad((h * h * x.detach()).sum(), h)[0] @ w).sum()


def differentiated_inside(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    (force,) = torch.autograd.grad((h.sin() @ w).sum(), h, create_graph=True)
    return (force * w).sum()


UNSEEN = [
    frozen_below, by_method, some_without, of_what_has_a_history, two, without_recording, told_twice, differentiated_by,
    differentiated_inside,
]  # fmt: skip


def trained(call: Call) -> Any:
    x, w = torch.randn(3, 3), leaf(3, 3)
    result = call(x, w)
    some = result if isinstance(result, tuple) else (result,)
    sum(each.sum() for each in some).backward()
    return [*some, w.grad, x.requires_grad, x.grad]


@pytest.mark.parametrize("backend", [*BACKENDS, "eager"])
@pytest.mark.parametrize("fn", UNSEEN)
def test_a_leaf_that_nobody_sees_is_part_of_the_graph(fn: Call, backend: str) -> None:
    same(trained, fn, backend)
    found = dovetail.explain(fn)(torch.randn(3, 3), leaf(3, 3))
    assert found.graph_count == 1 and not found.break_reasons


@pytest.mark.parametrize("fn", [fn for fn in UNSEEN if fn is not some_without])
def test_nothing_of_it_is_left_to_the_engine(fn: Call) -> None:
    result = dovetail.compile(fn, fullgraph=True)(torch.randn(3, 3), leaf(3, 3))
    first = result[0] if isinstance(result, tuple) else result
    assert isinstance(first.grad_fn, torch.autograd.function.BackwardCFunction)


def returned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = (x * 2).requires_grad_()
    return (h @ w).sum(), h


def viewed(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = (x * 2).requires_grad_()
    return (h @ w).sum(), h.view(-1)


def stored(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    SEEN.append(h)
    return (h @ w).sum()


def read_behind_a_break(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    loss = (h @ w).sum()
    dovetail.graph_break()
    loss = loss * 2
    loss.backward(retain_graph=True)
    SEEN.append(h.grad)
    return loss


def hooked(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    h.register_hook(lambda gradient: SEEN.append(gradient))
    return (h @ w).sum()


def written_to(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    with torch.no_grad():
        h.add_(1)
    return (h @ w).sum()


def turned_back(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    y = h.sin()
    h.requires_grad_(False)
    return (y * h @ w).sum()


def refused(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    h.add_(1)
    return (h @ w).sum()


def its_own_input(x: Tensor, w: Tensor) -> Tensor:
    return (x.requires_grad_() @ w).sum()


def of_nothing_else(x: Tensor, w: Tensor) -> Tensor:
    return (x * 2).requires_grad_() * 3


def checkpointed(x: Tensor, w: Tensor) -> Tensor:
    h = (x * 2).requires_grad_()
    return checkpoint(lambda h: (h @ w).sin(), h, use_reentrant=False)


SHOWN = [
    returned, viewed, stored, read_behind_a_break, hooked, written_to, turned_back, refused, its_own_input,
    of_nothing_else, checkpointed,
]  # fmt: skip


def shown(call: Call) -> Any:
    SEEN.clear()
    x, w = torch.randn(3, 3), leaf(3, 3)
    result = call(x, w)
    some = list(result) if isinstance(result, tuple) else [result]
    some[0].sum().backward()
    extra = [each.grad for each in some[1:] if each.is_leaf]
    return [*some, *extra, w.grad, x.requires_grad, x.grad, *SEEN, *(each.grad for each in SEEN if each.is_leaf)]


@pytest.mark.parametrize("backend", ["dovetail", "eager"])
@pytest.mark.parametrize("fn", SHOWN)
def test_a_leaf_that_somebody_sees(fn: Call, backend: str) -> None:
    same(shown, fn, backend, fullgraph=False)
