"""`torch.autograd.grad`, kept graphs, accumulation, inputs and outputs with and without gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dovetail
from tests.autograd.comparing import BACKENDS, leaf, same


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_gradients_of_some_inputs(backend):
    def program(call):
        x, w, b = leaf(3, 4), leaf(4, 5), leaf(5)
        out = call(x, w, b)
        first = torch.autograd.grad(out.sum(), [w], retain_graph=True)
        second = torch.autograd.grad(out, [b, x], torch.ones_like(out))
        return first, second, x.grad, w.grad

    same(program, lambda x, w, b: torch.tanh(x @ w + b), backend)


def test_gradients_of_some_outputs(backend):
    def program(call):
        x, y = leaf(4), leaf(4)
        a, b, c = call(x, y)
        first = torch.autograd.grad(a.sum(), (x, y), retain_graph=True, allow_unused=True)
        second = torch.autograd.grad([b, c], (x, y), [torch.ones(4), torch.ones(4) * 2], retain_graph=True)
        c.sum().backward()
        return first, second, x.grad, y.grad

    same(lambda call: program(call)[1:], lambda x, y: (x.sin(), x * y, (x - y).exp()), backend)


def test_an_input_that_an_output_does_not_depend_on(backend):
    """Eager gives None; a compiled function knows of one backward pass for all outputs, and may give zeros."""
    def fn(x, y):
        return x.sin(), y.cos()

    def program(call):
        x, y = leaf(4), leaf(4)
        a, _ = call(x, y)
        found = torch.autograd.grad(a.sum(), (x, y), allow_unused=True)
        return [torch.zeros(4) if g is None else g for g in found]

    same(program, fn, backend)


def test_unused_inputs_have_no_gradient(backend):
    def program(call):
        x, y = leaf(4), leaf(4)
        call(x, y).sum().backward()
        return x.grad, y.grad

    same(program, lambda x, y: x.sin(), backend)

    def strict(call):
        x, y = leaf(4), leaf(4)
        return torch.autograd.grad(call(x, y).sum(), (x, y))

    assert "appears to not have been used in the graph" in same(strict, lambda x, y: x.sin(), backend)[1]


def test_kept_graphs(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        out = call(x, w).sum()
        out.backward(retain_graph=True)
        once = x.grad.clone()
        out.backward(retain_graph=True)
        out.backward(inputs=[w])
        return once, x.grad, w.grad

    same(program, lambda x, w: F.gelu(x @ w), backend)


def test_a_graph_that_was_not_kept_is_gone(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        out = call(x, w).sum()
        out.backward()
        out.backward()

    assert "second time" in same(program, lambda x, w: torch.tanh(x @ w), backend)[1]


def test_two_passes_through_one_kept_graph_from_two_outputs(backend):
    def program(call):
        x = leaf(4)
        a, b = call(x)
        a.sum().backward(retain_graph=True)
        b.sum().backward()
        return x.grad

    same(program, lambda x: (x.sin(), x.cos()), backend)


def test_accumulation(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        seen = []
        for k in range(3):
            call(x, w).pow(2).sum().backward()
            seen += [x.grad.clone(), w.grad.clone()]
        x.grad.zero_()
        w.grad = None
        call(x, w).sum().backward()
        return seen, x.grad, w.grad

    same(program, lambda x, w: torch.tanh(x @ w), backend)


def test_accumulation_is_in_place_where_eager_is(backend):
    def program(call):
        x = leaf(4)
        call(x).sum().backward()
        first = x.grad
        call(x).sum().backward()
        return first is x.grad, first

    same(program, lambda x: x.sin(), backend)


def test_gradients_have_the_layout_of_their_leaf(backend):
    def program(call):
        leaves = [torch.randn(4, 3).t(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)]
        leaves = [t.detach().requires_grad_() for t in leaves]
        call(*leaves).backward()
        return [t.grad for t in leaves], str([t.grad.stride() for t in leaves])

    same(program, lambda a, b: a.sin().sum() + (b * b).sum(), backend)


def test_gradients_that_repeat_numbers_hold_them_once(backend):
    def program(call):
        x = leaf(4, 3)
        (gradient,) = torch.autograd.grad(call(x), x, torch.randn(3))
        return gradient, str(gradient.stride())

    same(program, lambda x: x.sum(0), backend)


def test_gradients_own_their_memory(backend):
    """Two gradients that eager computes as one tensor may be changed one by one."""
    def program(call):
        x, y = leaf(4), leaf(4)
        call(x, y).backward(torch.ones(4))
        with torch.no_grad():
            x.grad.mul_(3)
        return x.grad, y.grad

    same(program, lambda x, y: x + y, backend)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, True), (True, True, True), (False,) * 3])
def test_which_inputs_require_gradients(wanted, backend):
    def program(call):
        x, w, b = (torch.randn(*s).requires_grad_(g) for s, g in zip(((3, 4), (4, 5), (5,)), wanted))
        out = call(x, w, b)
        if out.requires_grad:
            out.sum().backward()
        return out, x.grad, w.grad, b.grad

    same(program, lambda x, w, b: torch.relu(x @ w + b), backend)


def test_one_function_for_inputs_with_and_without_gradients(backend):
    def program(call):
        seen = []
        for wanted in ((True, False), (False, True), (False, False), (True, True), (True, False)):
            x, y = (torch.randn(4).requires_grad_(g) for g in wanted)
            out = call(x, y)
            if out.requires_grad:
                out.sum().backward()
            seen.append((out, x.grad, y.grad))
        return seen

    same(program, lambda x, y: x.sin() * y.cos(), backend)


def test_freezing_between_steps(backend):
    def program(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        seen = []
        for step in range(5):
            model[0].requires_grad_(step not in (1, 2))
            model[2].bias.requires_grad_(step != 3)
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).pow(2).sum()
            loss.backward()
            seen += [loss, *(p.grad for p in model.parameters())]
            optimizer.step()
        return seen

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    same(program, model, backend)


def test_grad_mode_of_each_call(backend):
    def program(call):
        x = leaf(4)
        seen = [call(x)]
        with torch.no_grad():
            seen.append(call(x))
        with torch.inference_mode():
            seen.append(call(x).clone())
        seen.append(call(x))
        seen[-1].sum().backward()
        return seen, x.grad

    same(program, lambda x: x.sin().exp(), backend)


def test_outputs_without_gradients(backend):
    def program(call):
        x = leaf(4, 5)
        values, places, mask, count, kept = call(x)
        (values.sum() + kept.sum()).backward()
        return values, places, mask, count, kept, x.grad

    same(program, lambda x: (*x.max(1), x > 0, (x > 0).sum(), x.detach() * 2), backend)


def test_detached_parts(backend):
    def program(call):
        x = leaf(4)
        out = call(x)
        out.sum().backward()
        return out, x.grad

    same(program, lambda x: x.detach().sin() * x + torch.no_grad()(torch.cos)(x) * x, backend)


def test_outputs_that_are_inputs(backend):
    def program(call):
        x, y = leaf(4), leaf(4)
        a, b, c = call(x, y)
        (a.sum() + 2 * b.sum() + 3 * c.sum()).backward()
        return a is x, b is y, x.grad, y.grad

    same(program, lambda x, y: (x, y, x * y), backend)


def test_the_same_tensor_twice(backend):
    def program(call):
        x = leaf(4)
        call(x, x).sum().backward()
        return x.grad

    same(program, lambda x, y: x.sin() * y.cos(), backend)


def test_inputs_that_are_no_leaves(backend):
    def program(call):
        x = leaf(3, 4)
        hidden = x * 2
        hidden.retain_grad()
        out = call(hidden, hidden.t())
        out.retain_grad()
        out.sum().backward()
        return out, out.grad, hidden.grad, x.grad

    same(program, lambda a, b: torch.tanh(a @ b), backend)


def test_complex_gradients(backend):
    def program(call):
        x, y = leaf(4, dtype=torch.complex64), leaf(4)
        out = call(x, y)
        torch.view_as_real(out).sum().backward()
        return out, x.grad, y.grad

    same(program, lambda x, y: (x * y).exp() + x.conj() * torch.fft.fft(y), backend)


def test_float64_and_half(backend):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        def program(call):
            x, w = leaf(3, 4, dtype=dtype), leaf(4, 5, dtype=dtype)
            out = call(x, w)
            out.sum().backward()
            return out, x.grad, w.grad

        same(program, lambda x, w: F.silu(x @ w), backend, rtol=2e-2, atol=2e-2)


def test_a_backward_pass_that_depends_on_values(backend):
    """index_fill's gradient looks for distinct indices: the graph is one, and PyTorch's engine differentiates it."""
    def program(call):
        x, value = leaf(4, 5), leaf()
        out = call(x, torch.tensor([0, 2, 2]), value)
        out.sum().backward()
        return out, x.grad, value.grad

    same(program, lambda x, index, value: x.sin().index_fill(0, index, value), backend)


def test_materialized_gradients(backend):
    """An output that nobody uses counts as zeros."""
    def program(call):
        x = leaf(4)
        a, _, c = call(x)
        (a.sum() + c.sum()).backward()
        return x.grad

    same(program, lambda x: (x.sin(), x.exp(), x * 2), backend)


def test_running_statistics_of_any_layout(backend):
    """What is kept for the backward pass is laid out as its kernels expect."""
    def program(call):
        x, w, b = leaf(3, 2, 4), leaf(2), leaf(2)
        mean, var = torch.randn(2, 2)[:, 1], torch.rand(2, 2)[:, 1]
        out = call(x, w, b, mean, var)
        out.pow(2).sum().backward()
        return out, x.grad, w.grad, b.grad, mean, var

    same(program, lambda *args: torch._native_batch_norm_legit(*args, False, 0.1, 1e-5)[0], backend)
    same(program, lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b, False), backend)
    same(program, lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b, True), backend, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", [*BACKENDS, "eager"])
def test_gradients_of_a_backward_pass_inside_can_be_detached_in_place(backend):
    weight = leaf(5, 4)

    def fn(x):
        F.linear(x, weight).tanh().sum().backward()

    def program(call):
        weight.grad = None
        for _ in range(2):
            call(torch.randn(3, 4))
            weight.grad.detach_().mul_(0.5)
        return weight.grad

    same(program, fn, backend)


def test_little_is_left_of_gradients_of_two_values_normalized_together():
    """And what is left, a bias before the norm gets: nothing but eager's rounding."""
    x, weight = torch.stack([torch.rand(256, 1, 1) + 1, -torch.rand(256, 1, 1) - 1]), torch.randn(256)

    def program(x, bias, weight):
        shifted = x + bias.reshape(-1, 1, 1)
        return (F.batch_norm(shifted, None, None, weight, None, True) * weight.reshape(-1, 1, 1)).cos().sum() * 1e6

    def largest(call):
        bias = torch.zeros(256, requires_grad=True)
        call(x, bias, weight).backward()
        return float(bias.grad.abs().max())

    ours, eager = largest(dovetail.compile(program)), largest(program)
    assert ours <= 2 * eager + 1e-9
