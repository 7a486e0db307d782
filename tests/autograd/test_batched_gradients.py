"""Backward passes for many gradients at once, Jacobians, and checks by finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.functional import hessian, jacobian, jvp, vhp, vjp
from torch.nn import functional as F

import dovetail
from tests.autograd.comparing import BACKENDS, leaf, same


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def fn(x, w):
    return torch.tanh(x @ w).t()


def test_batches_of_gradients(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        out = call(x, w)
        batch = torch.randn(7, *out.shape)
        return torch.autograd.grad(out, (x, w), batch, is_grads_batched=True)

    same(program, fn, backend, rtol=1e-4, atol=1e-5)


def test_batches_of_some_outputs_and_layouts(backend):
    def program(call):
        x = leaf(3, 4)
        a, b, _ = call(x)
        tangents = torch.randn(2, 4, 3).transpose(1, 2)
        seen = [torch.autograd.grad(a, x, tangents, is_grads_batched=True, retain_graph=True)]
        batch = torch.randn(3).expand(2, 4, 3)
        seen.append(torch.autograd.grad([a, b], x, [torch.randn(2, 3, 4), batch], is_grads_batched=True))
        return seen

    same(program, lambda x: (x.sin(), x.t() * 2, x.exp().sum(0)), backend)


def test_batches_through_torch_func(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        out = call(x, w)
        pull = lambda v: torch.autograd.grad(out, (x, w), v, retain_graph=True)
        return torch.func.vmap(pull)(torch.randn(7, *out.shape))

    same(program, fn, backend, rtol=1e-4, atol=1e-5)


def test_batches_of_batches(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        out = call(x, w)
        pull = lambda v: torch.autograd.grad(out, (x, w), v, retain_graph=True)
        return torch.func.vmap(torch.func.vmap(pull), in_dims=1, out_dims=2)(torch.randn(2, 3, *out.shape))

    same(program, fn, backend, rtol=1e-4, atol=1e-5)


def test_batches_with_random_numbers(backend):
    def program(call):
        x = leaf(64)
        out = call(x)
        return out, torch.autograd.grad(out, x, torch.eye(64)[:5], is_grads_batched=True)

    same(program, lambda x: F.dropout(x.sin(), 0.5), backend)


@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobians_and_hessians(vectorize, backend):
    def program(call):
        inputs = torch.randn(2, 3), torch.randn(3, 2)
        found = jacobian(call, inputs, vectorize=vectorize)
        return found, hessian(lambda x: call(x, inputs[1]).sum(), inputs[0], vectorize=vectorize)

    same(program, fn, backend, rtol=1e-4, atol=1e-5)


def test_products_with_vectors(backend):
    def program(call):
        x, w = torch.randn(2, 3), torch.randn(3, 2)
        only = lambda x: call(x, w)
        return vjp(only, x, torch.randn(2, 2)), jvp(only, x, torch.randn(2, 3)), vhp(
            lambda x: only(x).sum(), x, torch.randn(2, 3))

    same(program, fn, backend, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fn", [fn, lambda x, w: x.sin() * 2, lambda x, w: x.sum() + w.exp()])
def test_forward_mode(fn, backend):
    """Before and after calls without; nothing may lose a tangent."""
    def program(call):
        seen = []
        for wanted in (False, True):
            x, w = torch.randn(2, 3).requires_grad_(wanted), torch.randn(3, 2)
            seen.append(call(x, w))
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, torch.ones(2, 3))
                seen.append(tuple(forward_ad.unpack_dual(call(dual, w))))
            seen.append(jacobian(lambda x: call(x, w), x.detach(), strategy="forward-mode", vectorize=True))
        return seen

    same(program, fn, backend)


def test_forward_mode_inside(backend):
    def inside(x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones(3))
            return forward_ad.unpack_dual(dual.sin() * 2).tangent

    same(lambda call: [call(torch.randn(3)), call(torch.randn(3))], inside, backend, fullgraph=False)


def test_a_model_for_many_gradients(backend):
    def program(model):
        x = leaf(2, 3, 6, 6)
        out = model(x)
        batch = torch.eye(out.numel()).view(-1, *out.shape)
        return torch.autograd.grad(out, [x, *model.parameters()], batch, is_grads_batched=True)

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.Flatten(), nn.Linear(64, 2))
    same(program, model, backend, rtol=1e-3, atol=1e-4)


CHECKED = {
    "product": fn,
    "norm": lambda x, w: F.layer_norm(x @ w, (5,)).sigmoid(),
    "softmax": lambda x, w: F.log_softmax(x @ w, 1) * w.sum(),
    "views": lambda x, w: (x.t()[1:] * w[:3, :3]).cumsum(0),
    "two results": lambda x, w: (x.exp().sum(), (x @ w)[0] ** 2),
}


@pytest.mark.parametrize("name", CHECKED)
def test_finite_differences(name, backend):
    inputs = leaf(3, 4, dtype=torch.float64), leaf(4, 5, dtype=torch.float64)
    compiled = dovetail.compile(CHECKED[name], backend=backend, fullgraph=True)
    assert gradcheck(compiled, inputs, check_batched_grad=True)
    assert gradgradcheck(compiled, inputs)
