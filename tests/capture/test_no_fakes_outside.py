"""What the program runs while it is captured sees real tensors, and no fake one gets out."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import dovetail

BACKENDS = ("eager", "aot_eager", "dovetail")
#: What a function allowed in the graph gives, and how the tensor in it is taken out.
GIVEN: dict[str, tuple[Any, Any]] = {
    "a tensor of a class of its own": (lambda x: TwoTensor(x.clone(), x.clone()), lambda given: given.view(-1).a),
    "an object": (lambda x: types.SimpleNamespace(a=x + 1), lambda given: given.a * 2),
    "a function": (lambda x: lambda: x + 1, lambda given: given()),
    "an iterator": (lambda x: iter([x + 1]), next),
    "a dictionary": (lambda x: {"a": [x + 1]}, lambda given: given["a"][0]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", GIVEN)
def test_what_allowed_functions_give_is_real(name: str, backend: str) -> None:
    make, take = GIVEN[name]
    allowed = dovetail.allow_in_graph(make)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return take(allowed(x))

    dovetail.reset()
    compiled = dovetail.compile(fn, backend=backend)
    for x in (torch.ones(2), torch.ones(2) * 3):
        found = compiled(x)
        assert type(found) is torch.Tensor
        torch.testing.assert_close(found, fn(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constant_result_may_hold_tensors(backend: str) -> None:
    calls = []

    @dovetail.assume_constant_result
    def table(n: int) -> Any:
        calls.append(n)
        return {"full": torch.full([n], 13), "range": (torch.arange(n),)}

    compiled = dovetail.compile(lambda x: table(x.size(0))["full"] * 2 + table(8)["range"][0] + x, fullgraph=True,
                                backend=backend)  # fmt: skip
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(8)), torch.full([8], 27.0) + torch.arange(8))
    assert set(calls) == {8}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_backward_reads_what_forward_has_saved(backend: str) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            result = x + x
            ctx.save_for_backward(x, result)
            return result

        @staticmethod
        @dovetail.compile(backend=backend, fullgraph=True)
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            x, result = ctx.saved_tensors
            return gradient * result.sin() + x

    for scale in (1.0, 2.0):
        x = torch.full((3,), scale, requires_grad=True)
        Doubled.apply(x).sum().backward()
        torch.testing.assert_close(x.grad, (2 * x).sin() + x)
