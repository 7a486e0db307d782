"""Gradients of gradients of compiled functions."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dovetail
from tests.autograd.comparing import BACKENDS, leaf, same
from tests.versions import VERSION


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def penalty(call, *inputs):
    """Outputs, gradients, and gradients of the squared gradients."""
    out = call(*inputs)
    first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True, allow_unused=True)
    total = sum((g * g).sum() for g in first if g is not None)
    second = torch.autograd.grad(total, inputs, allow_unused=True)
    return out, filled(first, inputs), filled(second, inputs)


def filled(gradients, inputs):
    """Which of them are zeros and which None is the engine's to know."""
    return [torch.zeros_like(t) if g is None else g.detach() for g, t in zip(gradients, inputs)]


FUNCTIONS = {
    "pointwise": lambda x, y: (x.sin() * y.exp()).tanh(),
    "product": lambda x, y: torch.tanh(x @ y.t()),
    "softmax": lambda x, y: F.softmax(x * y, 1).log(),
    "detached": lambda x, y: x.detach().sin() * x * y,
    "detached result": lambda x, y: (x * y).detach() + x**3,
    "without gradients inside": lambda x, y: torch.no_grad()(torch.exp)(x) * x * y,
    "views": lambda x, y: (x[1:] * y.t()[:2, :3].reshape(2, 3)[:, :1]).cos(),
    "in place": lambda x, y: (x * y).mul_(x).add_(1),
    "in place on a view": lambda x, y: ((z := x * y), z[0].mul_(y[1]), z)[-1].sin(),
    "reduction": lambda x, y: (x * y).logsumexp(0),
    "norm": lambda x, y: F.layer_norm(x * y, (4,)),
    "indices": lambda x, y: x[[0, 2, 2]] * y[[1, 0, 2]] ** 2,
    "one unused": lambda x, y: x**3,
    "linear": lambda x, y: x * 2 + y,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("error:.*operator by operator")
def test_functions(name, backend):
    same(lambda call: penalty(call, leaf(3, 4), leaf(3, 4)), FUNCTIONS[name], backend, rtol=1e-4, atol=1e-5)


def critic(norm):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1))


NORMS = {
    "batch": lambda: nn.BatchNorm2d(4),
    "batch, evaluated": lambda: nn.BatchNorm2d(4).eval(),
    "batch, no statistics": lambda: nn.BatchNorm2d(4, track_running_stats=False),
    "instance": lambda: nn.InstanceNorm2d(4, affine=True),
    "group": lambda: nn.GroupNorm(2, 4),
}


@pytest.mark.parametrize("name", NORMS)
def test_gradient_penalty(name, backend):
    """Two steps of a WGAN-GP critic; its running statistics are written to."""
    def program(model):
        seen = []
        for k in range(2):
            torch.manual_seed(k)
            x = leaf(3, 2, 6, 6)
            (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = ((gradient.flatten(1).norm(dim=1) - 1) ** 2).mean() - model(x.detach()).mean()
            model.zero_grad()
            loss.backward()
            seen += [loss, *(p.grad for p in model.parameters())]
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
        return seen, list(model.buffers())

    same(program, critic(NORMS[name]()), backend, rtol=1e-3, atol=1e-4)


def test_third_gradients(backend):
    def program(call):
        x = leaf(4)
        found = [call(x)]
        for _ in range(3):
            found.append(torch.autograd.grad(found[-1].sum(), x, create_graph=True)[0])
        return [t.detach() for t in found]

    same(program, lambda x: x.sin().exp(), backend)


def test_hessian_vector_products(backend):
    def program(call):
        x, v = leaf(4), torch.randn(4)
        (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient @ v, x, retain_graph=True)[0], torch.autograd.grad(gradient[0], x)[0]

    same(program, lambda x: (x**3).sin(), backend)
    same(lambda call: torch.autograd.functional.hessian(lambda x: call(x).sum(), torch.randn(4)),
         lambda x: (x**3).sin(), backend)


def test_backward_with_create_graph(backend):
    def program(call):
        x, y = leaf(4), leaf(4)
        call(x, y).sum().backward(create_graph=True)
        (x.grad * y.grad).sum().backward()
        found = x.grad.detach(), y.grad.detach()
        x.grad = y.grad = None
        return found

    same(program, lambda x, y: x.exp() * y.sin(), backend)


def test_the_tangent_has_a_history(backend):
    """Gradients flow to what the incoming gradient was computed from."""
    def program(call):
        x, v = leaf(4), leaf(4)
        (found,) = torch.autograd.grad(call(x), x, v, create_graph=True)
        return torch.autograd.grad(found.sum(), (x, v))

    same(program, lambda x: x.sin(), backend)


def test_a_counter_beside(backend):
    def fn(x, counter):
        counter.add_(1)
        return x.sin() * 2

    def program(call):
        x, counter = leaf(4), torch.zeros(())
        found = penalty(lambda x: call(x, counter), x)
        return found, counter

    same(program, fn, backend)


def test_an_input_that_is_written_to(backend):
    """What it was before is gone by the time it is wanted: an error that says so, no wrong numbers."""
    def fn(x, state):
        out = x**3 * 2 + state
        state.mul_(2)
        return out * state

    x, state = leaf(4), torch.ones(4)
    out = dovetail.compile(fn, backend=backend, fullgraph=True)(x, state)
    torch.testing.assert_close(out, (x**3 * 2 + 1) * 2)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(out.sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(found, 12 * x.detach() ** 2)


def test_a_written_input_whose_old_value_does_not_matter(backend):
    def fn(x, state):
        state.copy_(x.detach() * 2)
        return x**3

    same(lambda call: penalty(lambda x: call(x, torch.zeros(4)), leaf(4)), fn, backend)

    def through(x, state):
        state.copy_(x * 2)
        return x**3 * state

    same(lambda call: penalty(lambda x: call(x, torch.zeros(4)), leaf(4)), through, backend)


def test_a_leaf_that_gets_its_value_without_gradients(backend):
    """It is what the caller differentiates for, whatever it held before."""
    def fn(x, y):
        with torch.no_grad():
            torch.sin(y, out=x)
        return x**3 * y

    def program(call):
        x, y = leaf(4), leaf(4)
        return penalty(lambda x: call(x, y), x), torch.autograd.functional.hessian(lambda y: call(x, y).sum(), y)

    same(program, fn, backend)


def test_an_input_changed_in_between(backend):
    def program(call):
        x, w = leaf(4), leaf(4)
        out = call(x, w)
        with torch.no_grad():
            w.add_(1)
        return torch.autograd.grad(out.sum(), x, create_graph=True)

    want = "modified by an inplace operation"
    with pytest.raises(RuntimeError, match=want):
        program(dovetail.compile(lambda x, w: (x * w).sin(), backend=backend, fullgraph=True))


def test_under_autocast(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        with torch.autocast("cpu", torch.bfloat16):
            return penalty(call, x, w)

    same(program, lambda x, w: torch.tanh(x @ w) * 0.5, backend, rtol=5e-2, atol=5e-2)


def test_under_autocast_for_the_call_alone(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)

        def casting(x, w):
            with torch.autocast("cpu", torch.bfloat16):
                return call(x, w)

        return penalty(casting, x, w)

    same(program, lambda x, w: torch.tanh(x @ w) * 0.5, backend, rtol=5e-2, atol=5e-2)


def test_one_tensor_in_two_places(backend):
    """Compiled for two tensors, called with one."""
    def program(call):
        x, y = leaf(4), leaf(4)
        return penalty(call, x, y), penalty(lambda x: call(x, x), x), penalty(lambda x: call(x, x.view(4)), x)

    same(program, lambda x, y: x**3 * y.sin(), backend)


def test_hooks_are_called_once(backend):
    def program(call):
        x = leaf(4)
        seen = []
        x.register_hook(lambda g: seen.append(g.detach()))
        hidden = x * 2
        hidden.register_hook(lambda g: seen.append(g.detach()))
        (first,) = torch.autograd.grad(call(hidden).sum(), x, create_graph=True)
        first.sum().backward()
        return seen, x.grad

    same(program, lambda x: x.sin(), backend)


def test_parts_of_results(backend):
    def program(call):
        x = leaf(3, 4)
        a, b, c = call(x)
        (first,) = torch.autograd.grad(a.sum() + b.pow(2).sum() + c[0].sum(), x, create_graph=True)
        return first.detach(), torch.autograd.grad(first.pow(2).sum(), x)

    same(program, lambda x: ((y := x**3)[0], y.t(), y.detach()), backend)
    same(program, lambda x: (*(x**3).chunk(2), x), backend)


def test_parts_without_a_trace_of_the_whole_are_refused(backend):
    x = leaf(4, 4)
    a, _ = dovetail.compile(lambda x: (x**3).unsafe_chunk(2), backend=backend, fullgraph=True)(x)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(a.sum(), x, create_graph=True)


def test_a_freed_graph_is_refused(backend):
    def program(call):
        x, w = leaf(4), leaf(4)
        out = call(x, w).sum()
        out.backward()
        return torch.autograd.grad(out, x, create_graph=True)

    assert "second time" in same(program, lambda x, w: (x * w).sin(), backend)[1]


def test_inputs_go_with_the_graph(backend):
    """Nothing holds inputs once a pass has gone back through the graph."""
    fn = dovetail.compile(lambda x, w: (x * w).sin(), backend=backend, fullgraph=True)
    w = leaf(4)
    x = torch.randn(4)
    gone = weakref.ref(x)
    out = fn(x, w)
    del x
    out.sum().backward()
    gc.collect()
    assert gone() is None and out is not None


def test_no_cycle_through_a_written_input(backend):
    def fn(x):
        x.mul_(2)
        return x.sin()

    compiled = dovetail.compile(fn, backend=backend)
    hidden = leaf(4) * 1
    out = compiled(hidden)
    gone = weakref.ref(hidden)
    del hidden, out
    assert gone() is None


# ---------------------------------------------------------------- of gradients that the function itself computes


def penalized(net, x):
    """As in WGAN-GP: the leaf is the function's own."""
    x = (x * 0.5).requires_grad_()
    out = net(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return out.mean() + (slope.flatten(1).norm(dim=1) - 1).square().mean()


def of_parameters(net, x):
    """As in MAML: a step of gradient descent is differentiated."""
    parameters = dict(net.named_parameters())
    loss = net(x).square().mean()
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    stepped = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), slopes)}
    return torch.func.functional_call(net, stepped, (x,)).square().mean()


def twice(net, x):
    """As in the residual of a differential equation."""
    x = (x * 1).requires_grad_()
    (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
    return second.square().mean() + first.mean()


def kept_for_others(net, x):
    """The gradients have no history, and what led to them has."""
    parameters, out = list(net.parameters()), net(x)
    slopes = torch.autograd.grad(out.square().mean(), parameters, retain_graph=True)
    return out.abs().mean() * sum(g.norm() for g in slopes)


INSIDE = [penalized, of_parameters, twice, kept_for_others]
NETS = {
    "pointwise": lambda: (nn.Sequential(nn.Linear(4, 5), nn.Softplus(), nn.LayerNorm(5), nn.Linear(5, 2)), (3, 4)),
    "images": lambda: (
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten()), (2, 2, 6, 6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fn", INSIDE, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.filterwarnings("error:.*operator by operator")
def test_gradients_inside_are_differentiated_outside(fn, name, backend):
    if (fn, name) == (twice, "images") and VERSION >= (2, 15):
        pytest.skip("PyTorch refuses to differentiate batch_norm three times")
    net, shape = NETS[name]()
    before = {k: v.clone() for k, v in net.state_dict().items()}

    def program(call):
        net.load_state_dict(before)
        net.zero_grad(set_to_none=True)
        loss = call(net, torch.randn(shape))
        loss.backward()
        return loss, [p.grad for p in net.parameters()]

    same(program, fn, backend, rtol=1e-4, atol=1e-5)
