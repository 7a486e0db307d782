"""Custom autograd functions, checkpoints and functional_call: one graph with eager's values and gradients."""

from __future__ import annotations

import copy
import functools
import warnings

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

import dovetail
from tests.capture.higher import everywhere, refused, same, with_gradients

W = torch.randn(4, 4)


class Scaled(torch.autograd.Function):
    """Its backward is not the derivative of its forward, so that nothing else can be mistaken for it."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.sin() * scale

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 100 * ctx.scale + x, None


class TwoResults(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y, x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.first = ctx.needs_input_grad[0]

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * y * 7 if ctx.first else None, g * x if ctx.needs_input_grad[1] else None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 5


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class Settings:
    scale = 3.0


class WithObjects(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, settings, function, rest):
        ctx.settings = settings
        return function(x) * settings.scale + rest[0]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.settings.scale, None, None, None


class Partial(torch.autograd.Function):
    """Gradients of outputs that nobody used come as None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return (a if b is None else a + b) * 11


SETTINGS = Settings()
STACK = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 4))


def squash(x):
    return x.tanh()


def in_place(x):
    y = x * 3
    z = InPlace.apply(y)
    return z + y


def several(x):
    a, positive = TwoResults.apply(x, x.cos())
    return a * positive, positive


FUNCTIONS = {
    "once_differentiable": lambda x: Scaled.apply(x * 2, 3) + 1,
    "setup_context": several,
    "only the second": lambda x: TwoResults.apply(x.detach(), x)[0],
    "mark_dirty": in_place,
    "identity": lambda x: (Reversed.apply(x) * 2, Reversed.apply(x)),
    "objects": lambda x: WithObjects.apply(x, SETTINGS, squash, [W, None]),
    "gradients left out": lambda x: Partial.apply(x)[0],
    "twice": lambda x: Scaled.apply(Scaled.apply(x, 2), 3),
    "under grad": lambda x: grad(lambda a: TwoResults.apply(a, a.cos())[0].sum())(x),
    "under vmap": lambda x: vmap(lambda a: TwoResults.apply(a, a.cos())[0])(x),
    "under vmap of grad": lambda x: vmap(grad(lambda a: TwoResults.apply(a, a.cos())[0].sum()))(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_values(name):
    everywhere(FUNCTIONS[name], torch.randn(4, 4))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_gradients(name):
    with_gradients(FUNCTIONS[name], torch.randn(4, 4), backends=("eager", "dovetail"))


def test_a_context_that_changes_is_another_program():
    box = Settings()
    compiled = dovetail.compile(lambda x: WithObjects.apply(x, box, squash, [0]), backend="eager")
    x = torch.randn(3, requires_grad=True)
    for scale in (2.0, 5.0):
        box.scale = scale
        torch.testing.assert_close(compiled(x), squash(x) * scale)


def test_a_function_that_keeps_count_breaks_the_graph():
    class Counting(torch.autograd.Function):
        calls = []

        @staticmethod
        def forward(ctx, x):
            Counting.calls.append(1)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def program(x):
        return Counting.apply(x + 1) * 3

    x = torch.randn(3, requires_grad=True)
    assert refused(program, x) == "side-effect-in-subgraph"
    compiled = dovetail.compile(program, backend="eager")
    Counting.calls.clear()
    for _ in range(3):
        same(compiled(x), (x + 1) * 6)
    assert len(Counting.calls) == 3


# ---------------------------------------------------------------- checkpoint


def with_keywords(x):
    return checkpoint(lambda a, k=1, *, b: {"o": STACK[0](a) * k + b}, x, b=x.sin(), use_reentrant=False)["o"]


def closing_over(x):
    y = x.sin()
    return checkpoint(lambda a: (a * y).sin(), x, use_reentrant=False, preserve_rng_state=False)


def selective(x):
    chosen = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    return checkpoint(lambda a: (a @ W).sin().cos(), x, use_reentrant=False, context_fn=chosen)


CHECKPOINTS = {
    "plain": lambda x: checkpoint(lambda a: (a @ W).sin().cos(), x, use_reentrant=False),
    "reentrant": lambda x: checkpoint(lambda a: (a @ W).sin().cos(), x, use_reentrant=True),
    "module": lambda x: checkpoint(STACK, x, use_reentrant=False) + checkpoint(STACK, x, use_reentrant=True),
    "sequential": lambda x: checkpoint_sequential(STACK, 2, x, use_reentrant=False),
    "keywords": with_keywords,
    "closure": closing_over,
    "nested": lambda x: checkpoint(lambda a: CHECKPOINTS["plain"](a) * 2, x, use_reentrant=False),
    "selective": selective,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_values(name):
    everywhere(CHECKPOINTS[name], torch.randn(4, 4))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_gradients(name):
    with_gradients(CHECKPOINTS[name], torch.randn(4, 4), backends=("eager", "dovetail"))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_parameters_get_their_gradients(use_reentrant):
    def run(fn):
        torch.manual_seed(0)
        STACK.zero_grad()
        fn(torch.ones(2, 4, requires_grad=True)).sum().backward()
        return [p.grad for p in STACK.parameters()]

    def program(x):
        return checkpoint(STACK, x, use_reentrant=use_reentrant) * 2

    same(run(dovetail.compile(program, fullgraph=True)), run(program))


def test_checkpointed_code_that_changes_objects_breaks_the_graph():
    log = []

    def layer(a):
        log.append(1)
        return a.sin()

    def program(x):
        return checkpoint(layer, x + 1, use_reentrant=False) * 2

    x = torch.randn(3, requires_grad=True)
    assert refused(program, x) == "side-effect-in-subgraph"
    dovetail.compile(program, backend="eager")(x).sum().backward()
    assert len(log) == 2  # forward, and again for backward


def test_the_missing_argument_is_warned_of():
    compiled = dovetail.compile(lambda x: checkpoint(torch.sin, x), backend="eager", fullgraph=True)
    for mode in (True, False):
        with warnings.catch_warnings(record=True) as caught, torch.set_grad_enabled(mode):
            warnings.simplefilter("always")
            compiled(torch.randn(3, requires_grad=True))
        assert any("use_reentrant" in str(w.message) for w in caught)


# ---------------------------------------------------------------- functional_call


class Net(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        if tied:
            self.second.weight = self.first.weight

    def forward(self, x, k=1):
        total = sum(p.sum() for p in self.parameters())
        return self.second(self.norm(self.first(x)).relu()) * k + total


NET = Net().eval()
PARAMETERS = {name: p.detach() * 2 for name, p in NET.named_parameters()}
BUFFERS = {name: b.clone() for name, b in NET.named_buffers()}
NETS = [Net(tied=False).eval() for _ in range(3)]
STACKED = stack_module_state(NETS)
SKELETON = copy.deepcopy(NETS[0]).to("meta")


def loss(parameters, x):
    return (functional_call(NET, (parameters, BUFFERS), (x,)) ** 2).sum()


CALLS = {
    "parameters": lambda x: functional_call(NET, PARAMETERS, (x,)),
    "all, with keywords": lambda x: functional_call(NET, (PARAMETERS, BUFFERS), (x,), {"k": 3}),
    "grad": lambda x: grad(loss)(PARAMETERS, x),
    "per-sample grad": lambda x: vmap(lambda p, a: grad(loss)(p, a[None]), in_dims=(None, 0))(PARAMETERS, x),
    "ensemble": lambda x: vmap(lambda p, b, a: functional_call(SKELETON, (p, b), (a,)), (0, 0, None))(*STACKED, x),
    "own again": lambda x: functional_call(STACK[0], {"weight": x}, x) + STACK[0](x),
}


@pytest.mark.parametrize("name", CALLS)
def test_functional_call(name):
    everywhere(CALLS[name], torch.randn(4, 4))


@pytest.mark.parametrize("name", [n for n in CALLS if n != "grad"])
def test_functional_call_gradients(name):
    with_gradients(CALLS[name], torch.randn(4, 4), backends=("dovetail",))


def test_functional_call_updates_the_statistics_it_is_given():
    net = Net().train()
    before = copy.deepcopy(net.state_dict())

    def program(x, buffers):
        return functional_call(net, (PARAMETERS, buffers), (x,))

    everywhere(program, torch.randn(4, 4), {name: b.clone() for name, b in net.named_buffers()})
    same(net.state_dict(), before)


def test_a_function_made_inside_that_keeps_what_it_needs_in_a_variable() -> None:
    """Its forward and its backward have a variable in common, so the graph ends and PyTorch runs both."""

    def fn(x, k):
        kept = None

        class Squared(torch.autograd.Function):
            @staticmethod
            def forward(x):
                nonlocal kept
                kept = x * k
                return x * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return g * 100 * kept

        return Squared.apply(x) + 1

    compiled = dovetail.compile(fn, backend="eager")
    for k in (2.0, 3.0):
        x = torch.randn(3, requires_grad=True)
        y, z = compiled(x, k), fn(x, k)
        torch.testing.assert_close(y, z)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(z.sum(), x))
