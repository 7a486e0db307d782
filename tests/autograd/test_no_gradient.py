"""A backward that gives no gradient gives none compiled either: None is no zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail

Tensor = torch.Tensor


class First(torch.autograd.Function):
    """Its second argument gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 2, None


class Neither(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None


class Asked(torch.autograd.Function):
    """What is not asked for is not given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.saved_tensors[0] if ctx.needs_input_grad[0] else None, None


class Apart(torch.autograd.Function):
    """Two results; the gradient of one that nobody uses is None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        return None if first is None else first * 2, None if second is None else second * 3


CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one of two": lambda x, y: First.apply(x, y).sum(),
    "of what is used otherwise": lambda x, y: (First.apply(x, y) + y).sum(),
    "of what was computed": lambda x, y: First.apply(x * 2, y * 2).sum(),
    "of one of two ways": lambda x, y: (First.apply(x, y) * First.apply(y, x)).sum(),
    "of an argument of another": lambda x, y: First.apply(y, First.apply(y, x)).sum(),
    "of any": lambda x, y: Neither.apply(x, y).sum() + (x * 1).sum(),
    "that is asked for": lambda x, y: Asked.apply(x, y).exp().sum(),
    "of a result that is not used": lambda x, y: Apart.apply(x, y)[0].sum() + (x * 1).sum(),
    "of what is not used": lambda x, y: (x * 2).sum(),
    "of a branch that is detached": lambda x, y: (x * y.detach()).sum(),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("name", CASES)
def test_what_eager_gives_no_gradient_has_none(name: str, backend: str) -> None:
    dovetail.reset()
    assert _gradients(dovetail.compile(CASES[name], backend=backend)) == _gradients(CASES[name])


def _gradients(fn: Callable[[Tensor, Tensor], Tensor]) -> list[Any]:
    x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    fn(x, y).backward()
    return [None if leaf.grad is None else leaf.grad.tolist() for leaf in (x, y)]
