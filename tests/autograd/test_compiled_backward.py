"""The backward pass of an eager model, traced by PyTorch's compiled autograd and compiled here."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import dovetail


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def layers(x, w, b):
    return nn.functional.layer_norm(nn.functional.gelu(x @ w + b), (4,)).pow(2)


def shared(x, w, b):
    return torch.add(b, b[[0, 0, 1, 1]]) + (b + b).sin() + w.expand(3, 4, 4)


def hooked(x, w, b):
    y = x @ w
    y.register_hook(lambda g: g * 2)
    return y.relu() * b


PROGRAMS = {
    "layers": layers,
    "leaves with one gradient": shared,
    "a function of one's own": lambda x, w, b: Cubed.apply(x @ w) + b,
    "a hook": hooked,
    "in place": lambda x, w, b: (x * 2).add_(1).mul_(x) @ w + b,
    "another layout": lambda x, w, b: (x @ w).t().sum(0) * b[0],
}


def steps(program, around):
    """Gradients after each of three backward passes; whether they stay the same objects; how many memories."""
    torch.manual_seed(0)
    leaves = [torch.randn(n, 4, requires_grad=True) for n in (4, 4)] + [torch.randn(4, requires_grad=True)]
    seen = []
    for _ in range(3):
        before = [leaf.grad for leaf in leaves]
        loss = program(*leaves).sum()
        around(loss)
        found = [leaf.grad for leaf in leaves]
        kept = [a is b for a, b in zip(before, found)]
        seen.append(([None if g is None else g.clone() for g in found], kept, len({id(g) for g in found})))
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_eager(name):
    compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")
    compiled_autograd.reset()
    made = []

    def compiler(graph):
        made.append(dovetail.compile(graph, fullgraph=True))
        return made[-1]

    def compiled(loss):
        with compiled_autograd._enable(compiler), warnings.catch_warnings(action="ignore"):
            loss.backward()

    expected, actual = steps(PROGRAMS[name], torch.Tensor.backward), steps(PROGRAMS[name], compiled)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert len(made) == 2  # leaves without a gradient, and with one
