"""`torch.autograd.Function` inside compiled code."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from tests.autograd.comparing import BACKENDS, leaf, same


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin() * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.factor * 10, None


class SetUp(Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, first, second):
        x, y, product = ctx.saved_tensors
        return first * y + second + product, first * x + second


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


class Partly(Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.sort()
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx, grad, _):
        (places,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(0, places, grad * 2)


class Nothing(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 2

    @staticmethod
    def backward(ctx, a, b):
        return (None if a is None else a * 5), (None if b is None else b * 7)


class Needs(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y if ctx.needs_input_grad[0] else None, grad * x * 3 if ctx.needs_input_grad[1] else None


class Counted(Function):
    calls = [0]

    @staticmethod
    def forward(ctx, x):
        Counted.calls[0] += 1
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Counted.calls[0] += 10
        return grad * 2


class Straight(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


PROGRAMS = {
    "saved": (lambda x, y: Scaled.apply(x, 2.5) + y, 2),
    "between operators": (lambda x, y: Scaled.apply(x.exp(), 2.5).cos() * y, 2),
    "set up": (lambda x, y: sum(SetUp.apply(x, y)), 2),
    "set up, one result": (lambda x, y: SetUp.apply(x, y)[1], 2),
    "in place": (lambda x, y: InPlace.apply(x * y) + x, 2),
    "in place, twice": (lambda x, y: InPlace.apply(InPlace.apply(x * y)), 2),
    "not differentiable": (lambda x, y: Partly.apply(x)[0] * y, 2),
    "no gradient": (lambda x, y: Nothing.apply(x, y)[0], 2),
    "needed": (lambda x, y: Needs.apply(x, y), 2),
    "needed, one": (lambda x, y: Needs.apply(x, y.detach()) + y, 2),
    "straight through": (lambda x, y: Straight.apply(x * 3) * y, 2),
    "in a loop": (lambda x, y: [x := Scaled.apply(x, k) for k in (1.0, 2.0)][-1] * y, 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name, backend):
    fn, count = PROGRAMS[name]

    def program(call):
        inputs = [leaf(5) for _ in range(count)]
        out = call(*inputs)
        out.pow(2).sum().backward()
        return out, [t.grad for t in inputs]

    same(program, fn, backend, fullgraph=False)


def test_an_input_is_written_to(backend):
    def program(call):
        x = leaf(4)
        hidden = x * 2
        out = call(hidden)
        (out.sum() + hidden.pow(2).sum()).backward()
        return out is hidden, out, hidden, x.grad

    same(program, lambda x: InPlace.apply(x), backend, fullgraph=False)


def test_how_often_it_runs(backend):
    def program(call):
        Counted.calls[0] = 0
        x = leaf(4)
        for _ in range(3):
            call(x).sum().backward()
        return Counted.calls[0], x.grad

    same(program, lambda x: Counted.apply(x).sin(), backend, fullgraph=False)


def test_gradients_of_gradients(backend):
    def program(call):
        x, y = leaf(5), leaf(5)
        first = torch.autograd.grad(call(x, y).sum(), (x, y), create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), (x, y))
        return first, second

    same(program, lambda x, y: Scaled.apply(x, 2.5) * y.sin(), backend, fullgraph=False)


def test_an_error_in_backward(backend):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("no way back")

    def program(call):
        x = leaf(4)
        call(x).sum().backward()

    assert same(program, lambda x: Wrong.apply(x).sin(), backend, fullgraph=False)[1] == "no way back"


@pytest.mark.parametrize("between", [lambda t: t, torch.sin])
def test_one_behind_an_input_does_not_run_for_a_result_of_other_inputs(backend, between):
    class Noting(Function):
        @staticmethod
        def forward(ctx, x, seen):
            ctx.seen = seen
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            ctx.seen.append(grad.clone())
            return grad * 2, None

    def program(call):
        x, y, seen = leaf(3), leaf(3), []
        a, b = call(between(Noting.apply(x, seen)), y * y)
        b.sum().backward(retain_graph=True)
        before = x.grad, len(seen)
        a.sum().backward()
        return before, seen, x.grad, y.grad

    same(program, lambda h, k: (h.sin(), k.cos()), backend)


class Casting(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad @ y.t(), x.t() @ grad


def test_casts_of_its_own_under_autocast(backend):
    def program(call):
        x, y = leaf(3, 3), leaf(3, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = call(x, y)
        out.float().sum().backward()
        return out, x.grad, y.grad

    same(program, lambda x, y: Casting.apply(x @ y, y) @ x, backend, fullgraph=False, rtol=0.02, atol=0.02)


class Forwards(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y * 2, grad * x

    @staticmethod
    def jvp(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return dx * y * 2 + dy * x


def test_forward_mode(backend):
    def program(call):
        x, y = torch.randn(3), torch.randn(3)
        return torch.func.jvp(call, (x, y), (y, x)), torch.func.grad(lambda x: call(x, y).sum())(x)

    same(program, lambda x, y: Forwards.apply(x.sin(), y), backend, fullgraph=False)


def test_forward_mode_inside(backend):
    def program(call):
        return call(torch.randn(3), torch.randn(3))

    def fn(x, y):
        return torch.func.jvp(lambda x, y: Forwards.apply(x.sin(), y), (x, y), (y, x))

    same(program, fn, backend, fullgraph=False)


class Closing(Function):
    """Its forward uses a tensor that `apply` is not given: that has no part in the result's history."""

    factor = torch.nn.Parameter(torch.randn(3))

    @staticmethod
    def forward(ctx, x):
        return x * Closing.factor, torch.is_grad_enabled()

    @staticmethod
    def backward(ctx, grad, _):
        return grad


class Shown(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@pytest.mark.parametrize("backend", [*BACKENDS, "eager"])
def test_forward_runs_without_gradients_though_no_input_requires_them(backend):
    same(lambda call: [call(torch.randn(3)), torch.is_grad_enabled()], lambda x: Closing.apply(x.sin()), backend)


@pytest.mark.parametrize("backend", [*BACKENDS, "eager"])
def test_gradients_are_on_again_after_a_forward_that_raises(backend):
    def fn(x):
        try:
            Refusing.apply(x)
        except ValueError:
            return x * Closing.factor

    same(lambda call: call(torch.randn(3)), fn, backend)


class Refusing(Function):
    @staticmethod
    def forward(ctx, x):
        raise ValueError("refused")


@pytest.mark.parametrize("backend", [*BACKENDS, "eager"])
def test_a_view_by_a_function_gets_no_history_by_a_write(backend):
    def program(call):
        shown = call(torch.randn(3))
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            shown.add_(leaf(3))
        return shown

    same(program, Shown.apply, backend, fullgraph=False)
    same(lambda call: call(torch.randn(3), leaf(3)), lambda x, y: Shown.apply(x).add_(y), backend, fullgraph=False)
