"""`torch.autograd.Function`s whose forward and backward become part of the compiled graphs, and those that do not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F

import dovetail
from tests.autograd.comparing import BACKENDS, alike, detached, leaf, same

W = torch.arange(1.0, 6.0)
SCALE = [2.0]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Rectified(Function):
    """As PyTorch's tutorial has it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        made = grad.clone()
        made[x < 0] = 0
        return made * 3


class Kept(Function):
    """Saves an input, a result, and something between; keeps a tensor and a number beside them."""

    @staticmethod
    def forward(ctx, x, y, power):
        between = x.exp()
        out = between * y
        ctx.save_for_backward(x, out, between)
        ctx.beside, ctx.power = y.cos(), power
        return out, between.detach() + power

    @staticmethod
    def backward(ctx, grad, other):
        x, out, between = ctx.saved_tensors
        return grad * out * ctx.power + other * x, grad * between * ctx.beside, None


class Around(Function):
    """Reads a tensor and a number from outside, in both directions."""

    @staticmethod
    def forward(ctx, x):
        ctx.set = x.sum()
        return x * W

    @staticmethod
    def backward(ctx, grad):
        return grad * W * SCALE[0] + ctx.set


class Flat(Function):
    """Relies on a gradient that can be viewed as one row."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous().view(-1).flip(0).view(ctx.shape)


class Noisy(Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        ctx.mark_non_differentiable(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, grad, _):
        (mask,) = ctx.saved_tensors
        return grad * mask * 5


class Quantized(Function):
    @staticmethod
    def forward(ctx, x, bits):
        return (x * 2**bits).round() / 2**bits

    @staticmethod
    def backward(ctx, grad):
        return grad, None


FUNCTIONS = {
    "a mask": lambda x, y: Rectified.apply(x) * y,
    "between operators": lambda x, y: Rectified.apply(x.sin() * y).cos(),
    "around": lambda x, y: Around.apply(x * y),
    "flat": lambda x, y: Flat.apply(x[:, None] * y),
    "random": lambda x, y: Noisy.apply(x * y)[0],
    "rounded": lambda x, y: Quantized.apply(x * y, 3) * x,
    "twice": lambda x, y: Rectified.apply(Rectified.apply(x) * y),
    "of one input": lambda x, y: Rectified.apply(x.detach()) * y + Rectified.apply(y),
}


def program(call):
    x, y = leaf(5), leaf(5)
    out = call(x, y)
    sum(t.square().sum() for t in (out if isinstance(out, (list, tuple)) else [out])).backward()
    return out, x.grad, y.grad, torch.rand(1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name, backend):
    same(program, FUNCTIONS[name], backend)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_left_to_the_engine(name):
    dovetail.reset()
    out = dovetail.compile(FUNCTIONS[name], fullgraph=True)(leaf(5), leaf(5))
    out = out[0] if isinstance(out, list) else out
    assert type(out.grad_fn).__name__ == "CompiledFunctionBackward"


def test_what_backward_reads_is_guarded(backend):
    def several(call):
        found = []
        for SCALE[0] in (2.0, 5.0, 2.0):
            found.append(program(call))
        return found

    same(several, FUNCTIONS["around"], backend)


def test_gradients_of_any_layout(backend):
    def program(call):
        x = leaf(3, 4)
        out = call(x)
        (first,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        (second,) = torch.autograd.grad(out, x, torch.randn(4, 3).t())
        return first, second

    class Viewed(Flat):
        @staticmethod
        def backward(ctx, grad):
            assert grad.dim() == 2
            return (grad if grad.is_contiguous() else grad.contiguous()).view(-1).flip(0).view(ctx.shape)

    same(program, lambda x: Viewed.apply(x).exp(), backend)
    same(program, lambda x: Viewed.apply(x), backend)


def test_what_was_saved_may_not_be_written_to(backend):
    def fn(x):
        y = x * 2
        z = Rectified.apply(y)
        y.add_(1)
        return z, y

    def program(call):
        x = leaf(4)
        z, _ = call(x)
        z.sum().backward()

    assert "modified by an inplace operation" in same(program, fn, backend)[1]


def test_gradients_of_gradients(backend):
    def twice(call):
        x, y = leaf(5), leaf(5)
        first = torch.autograd.grad(call(x, y).square().sum(), (x, y), create_graph=True)
        return first, torch.autograd.grad(sum((g * g).sum() for g in first), (x, y))

    same(twice, FUNCTIONS["a mask"], backend)
    same(twice, FUNCTIONS["around"], backend)


def test_sizes_that_change(backend):
    def several(call):
        found = []
        for n in (3, 5, 8):
            x, y = leaf(n), leaf(n)
            call(x, y).sum().backward()
            found += [x.grad, y.grad]
        return found

    same(several, FUNCTIONS["a mask"], backend)


def test_a_whole_step(backend):
    def made():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        return model, torch.optim.Adam(model.parameters())

    def trained(compiler):
        model, optimizer = made()

        @compiler
        def step(x):
            optimizer.zero_grad()
            loss = model[1](Rectified.apply(model[0](x))).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return [step(torch.full((3, 4), k + 1.0)) for k in range(3)], list(model.parameters())

    compiled = trained(lambda fn: dovetail.compile(fn, backend=backend, fullgraph=True))
    torch.testing.assert_close(compiled, trained(lambda fn: fn))


class Counting(Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Counting.calls += 1
        return grad * 2


class Lazy(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, a, b):
        return None if a is None else a * 2, None if b is None else b * 3


class Same(Function):
    """A view of its input, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(-1) * 7


class Drawing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.rand_like(grad)


class Writing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(4)


class Pulling(Function):
    """Adds to the gradient, as a penalty does: nothing of that may show where it has no part in a result."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 + 1


class Dirtied(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Uncertain(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 if grad.sum() > 0 else grad * 5


LEFT = {
    "counts": lambda x, y: Counting.apply(x) * y,
    "kept": lambda x, y: [t * x for t in Kept.apply(x, y, 2)],
    "one of two results": lambda x, y: Kept.apply(x, y, 3)[0],
    "the result without one of its inputs": lambda x, y: Kept.apply(x, y, 2.0)[1] * x,
    "told that there is none": lambda x, y: Lazy.apply(x, y)[1],
    "view": lambda x, y: Same.apply(x) * y,
    "view of an input": lambda x, y: [Same.apply(x), Same.apply(y) * 2],
    "draws": lambda x, y: Drawing.apply(x) * y,
    "writes": lambda x, y: Writing.apply(x) * y,
    "beside another result": lambda x, y: [Pulling.apply(x), x * y],
    "depends on values": lambda x, y: Uncertain.apply(x) * y,
    "beside one that is traced": lambda x, y: Counting.apply(Rectified.apply(x)) * Rectified.apply(y),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_the_engine(name, backend):
    def counted(call):
        Counting.calls = 0
        return program(call), Counting.calls

    same(counted, LEFT[name], backend)


def test_results_one_by_one(backend):
    def program(call):
        x, y = leaf(3), leaf(3)
        results = call(x, y)
        return [torch.autograd.grad(r.sum(), (x, y), allow_unused=True, retain_graph=True) for r in results]

    same(program, LEFT["beside another result"], backend)
    same(program, lambda x, y: [Pulling.apply(x) * y, Pulling.apply(y) * x], backend)
    same(program, lambda x, y: (lambda z: [z * y, z.sin()])(Pulling.apply(x * y)), backend)


def test_versions_of_what_is_marked_dirty(backend):
    def program(call):
        x, y = torch.ones(3), leaf(3)
        result = call(x, y)
        return x._version, [r._version for r in result]

    same(program, lambda x, y: (Dirtied.apply(x), Dirtied.apply(y * 2), Dirtied.apply(x + 1)), backend)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_beside_a_graph_break(fullgraph):
    """A capture that starts again for a function's sake ends at the same place."""
    def fn(x, y):
        z = Counting.apply(x)
        if not fullgraph:
            dovetail.graph_break()
        return F.gelu(z) * Rectified.apply(y)

    Counting.calls = 0
    torch.manual_seed(0)
    want = detached(program(fn))
    torch.manual_seed(0)
    alike(detached(program(dovetail.compile(fn, fullgraph=fullgraph))), want)
    assert Counting.calls == 2
