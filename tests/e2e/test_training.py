"""Compiled forward and backward against eager: gradients, hooks, aliasing, mutation, gradients of gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import dovetail

BACKENDS = ("dovetail", "aot_eager")


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def leaves(tree: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def twins(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return copy.deepcopy(args)


def trained(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Everything a caller sees after a call and a backward pass."""
    torch.manual_seed(0)
    outputs = fn(*args)
    found = leaves(outputs)
    torch.manual_seed(1)
    total = sum((t * torch.randn_like(t)).sum() for t in found if t.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    return {
        "outputs": [t.detach().clone() for t in found],
        "requires_grad": [t.requires_grad for t in found],
        "views": [t._is_view() for t in found],
        "same objects": [next((k for k, a in enumerate(leaves(args)) if a is t), None) for t in found],
        "inputs": [t.detach().clone() for t in leaves(args)],
        "gradients": [t.grad for t in leaves(args) if t.is_leaf],
    }


def check(fn: Callable[..., Any], *args: Any, backend: str = "dovetail", **tolerance: float) -> None:
    ours, theirs = twins(args), twins(args)
    got = trained(dovetail.compile(fn, backend=backend, fullgraph=True), ours)
    want = trained(fn, theirs)
    for part, value in want.items():
        if part in ("outputs", "inputs", "gradients"):
            for a, b in zip(got[part], value, strict=True):
                assert (a is None) == (b is None), part
                if b is not None:
                    torch.testing.assert_close(a, b, **tolerance)
        else:
            assert got[part] == value, part


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


# ---------------------------------------------------------------- functions

FUNCTIONS = {
    "pointwise": (lambda x: x.sin().exp(), (4,)),
    "several results": (lambda x: (x.sin(), x.cos(), x.sum()), (4,)),
    "unused input": (lambda x, y: x * 2, (4,), (3,)),
    "unused result": (lambda x: (x.sin(), x.detach() * 2), (4,)),
    "not differentiable": (lambda x: (x * 2, x.argmax(), (x > 0)), (4,)),
    "the input itself": (lambda x: (x, x * 2), (4,)),
    "a view of the input": (lambda x: (x.view(2, 2), x * 2), (4,)),
    "only a view of the input": (lambda x: x.t(), (2, 3)),
    "views of a result": (lambda x: ((y := x * 2), y[0], y.t()), (3, 3)),
    "a part of a result": (lambda x: (x * 2)[0], (3, 3)),
    "pieces": (lambda x: (x * 2).chunk(3), (3, 3)),
    "the same twice": (lambda x: ((y := x * 2), y), (3,)),
    "matrix product": (lambda x, w: F.gelu(x @ w), (3, 4), (4, 5)),
    "softmax": (lambda x: F.log_softmax(x, 1).mean(), (5, 7)),
    "in place": (lambda x: (x * 2).mul_(3).add_(x), (4,)),
    "in place on a view": (lambda x: ((y := x * 2), y[0].mul_(5))[0], (3, 3)),
    "broadcast": (lambda x, y: x * y + y, (3, 4), (4,)),
    "dropout": (lambda x: F.dropout(x.sin(), 0.5), (64,)),
    "gather": (lambda x: x[torch.tensor([2, 0, 0])], (3, 4)),
    "no_grad inside": (lambda x: x * torch.no_grad()(torch.sin)(x), (4,)),
    "expanded result": (lambda x: x.sum().expand(3), (4,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, backend):
    fn, *shapes = FUNCTIONS[name]
    check(fn, *(leaf(*s) for s in shapes), backend=backend)


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), (5, 4)),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
        ),
        (2, 3, 8, 8),
    ),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1, bias=False),
            nn.MaxPool2d(2), nn.BatchNorm2d(8, affine=False), nn.SiLU(), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(2),
        ),
        (4, 3, 24, 24),
    ),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.SiLU()), (2, 4, 6, 6)),
    "group norm of large images": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), (2, 3, 12, 12)),
    "instance norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)), (2, 3, 12, 12)),
    "resampling": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReflectionPad2d(1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PReLU(4),
            nn.Conv2d(4, 4, 3, groups=4), nn.AdaptiveMaxPool2d(5), nn.Conv2d(4, 2, 1), nn.AvgPool2d(2),
        ),
        (2, 3, 12, 12),
    ),
    "log softmax of images": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GLU(1), nn.LogSoftmax(1), nn.Conv2d(2, 3, 1)), (2, 3, 12, 12),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), (2, 6, 16)),
    "frozen part": (lambda: nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 2)), (3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name, backend):
    """Three steps, so that accumulated gradients and running statistics are compared too."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make()
    other = copy.deepcopy(model)
    compiled = dovetail.compile(other, backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.randn(*shape)
        a, b = model(x), compiled(x)
        torch.testing.assert_close(b, a)
        tangent = torch.randn_like(a)
        a.backward(tangent), b.backward(tangent)
    for p, q in zip((*model.parameters(), *model.buffers()), (*other.parameters(), *other.buffers()), strict=True):
        torch.testing.assert_close(q, p)
        assert (q.grad is None) == (p.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)


def test_segmentation(backend):
    """The loss of an image takes its scores contiguous."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    other = copy.deepcopy(model)
    x, target = torch.randn(2, 3, 12, 12), torch.randint(0, 4, (2, 10, 10))
    step = lambda model, x, target: F.cross_entropy(model(x), target)
    for own, call in ((model, step), (other, dovetail.compile(step, backend=backend, fullgraph=True))):
        call(own, x, target).backward()
    torch.testing.assert_close([p.grad for p in other.parameters()], [p.grad for p in model.parameters()])


def test_library_operators_that_keep_a_workspace(backend):
    lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
    other = copy.deepcopy(lstm)
    x = torch.randn(3, 5, 8)
    for call in (lstm, dovetail.compile(other, backend=backend, fullgraph=True)):
        out, (h, c) = call(x)
        (out.sum() + h.sum() + c.sin().sum()).backward()
    torch.testing.assert_close([p.grad for p in other.parameters()], [p.grad for p in lstm.parameters()])


def test_bags_of_embeddings(backend):
    for mode in ("sum", "mean", "max"):
        bag = nn.EmbeddingBag(10, 4, mode=mode)
        check(lambda weight: F.embedding_bag(torch.arange(6), weight, torch.tensor([0, 2, 4]), mode=mode),
              bag.weight.detach().requires_grad_(), backend=backend)


# ---------------------------------------------------------------- the engine's features


def test_inputs_written_to(backend):
    def with_buffer(x, buffer):
        y = x * 2
        buffer.add_(y.detach().sum())
        return y, buffer

    check(with_buffer, leaf(3), torch.zeros(()), backend=backend)


def test_gradients_flow_through_an_input_that_is_written_to(backend):
    def fn(x):
        x.mul_(3)
        return x.sin()

    def outer(call, x):
        hidden = x * 2
        result = call(hidden)
        return result, hidden

    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    a, b = leaf(4), None
    b = a.detach().clone().requires_grad_()
    for call, x in ((fn, a), (compiled, b)):
        result, hidden = outer(call, x)
        (result.sum() + hidden.pow(2).sum()).backward()
    torch.testing.assert_close(b.grad, a.grad)


def overwritten(x, w):
    x.zero_()
    return x + w


def written_twice(x, w):
    y = x.exp()
    x.mul_(w)
    x[0] = y[1]
    x.relu_()
    return x * y, x[1:]


def written_through_a_view(x, w):
    x.view(-1)[::2].add_(w[0])
    return x.sin() * w


def written_without_grad(x, w):
    with torch.no_grad():
        x.mul_(2)
    return x * w


def written_and_returned(x, w):
    return x.add_(w), x


def shared(x, w):
    y = x.detach()
    x.mul_(3)
    return y * w, x


@pytest.mark.parametrize(
    "fn", [overwritten, written_twice, written_through_a_view, written_without_grad, written_and_returned, shared]
)
def test_writes_to_an_input_with_a_history(backend, fn):
    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for seed in range(2):
        found = []
        for call in (fn, compiled):
            torch.manual_seed(seed)
            x, w = leaf(4, 3), leaf(3)
            hidden = x.sin() * 2 if seed else x.relu() + x
            before = hidden.view(-1)[1:5]
            outputs = flat(call(hidden, w))
            version = hidden._version
            total = sum((k + 1) * t.pow(2).sum() for k, t in enumerate((*outputs, hidden, before)))
            total.backward()
            found.append((outputs, hidden, before, x.grad, w.grad, hidden.requires_grad, version > 0))
        torch.testing.assert_close(found[1], found[0])


def flat(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def test_only_a_leaf_must_not_be_written_to(backend):
    def fn(x):
        try:
            x.mul_(3)
        except RuntimeError as error:
            return str(error)
        return x.sin()

    compiled = dovetail.compile(fn, backend=backend)
    for make in (lambda: leaf(4), lambda: leaf(4) * 2, lambda: leaf(4), lambda: (leaf(5) * 2)[1:]):
        torch.manual_seed(0)
        expected = fn(make())
        torch.manual_seed(0)
        actual = compiled(make())
        torch.testing.assert_close(actual, expected) if isinstance(expected, torch.Tensor) else None
        assert type(actual) is type(expected) and (not isinstance(actual, str) or actual == expected)


def test_a_value_that_eager_still_needs_may_not_be_written_to(backend):
    def fn(x):
        return x.mul_(3)

    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for call in (fn, compiled):
        result = call(leaf(4).exp())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_gradients_of_gradients(backend):
    def penalty(fn, *args):
        out = fn(*args)
        first = torch.autograd.grad(out.sum(), args, create_graph=True)
        return [out, *first, *torch.autograd.grad(sum((g**2).sum() for g in first), args)]

    def fn(x, w):
        return F.layer_norm(torch.tanh(x @ w), (5,)).pow(3)

    args = leaf(3, 4), leaf(4, 5)
    ours = penalty(dovetail.compile(fn, backend=backend, fullgraph=True), *twins(args))
    torch.testing.assert_close(ours, penalty(fn, *args), rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients_see_the_same_random_numbers():
    def fn(x):
        return F.dropout(x**3, 0.5)

    x = leaf(256)
    out = dovetail.compile(fn, fullgraph=True)(x)
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    assert torch.equal(first != 0, out != 0)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, torch.where(out != 0, 12 * x, 0.0))


def test_a_changed_input_is_noticed():
    fn = dovetail.compile(lambda x, w: (x * w).sin(), fullgraph=True)
    x, w = leaf(3), leaf(3)
    out = fn(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_backward_pass_that_fails_in_eager_fails_there_and_no_sooner():
    def fn(x, counter):
        y = x * counter
        counter.add_(1)
        return y

    x = leaf(3)
    out = dovetail.compile(fn, fullgraph=True)(x, torch.ones(3))
    torch.testing.assert_close(out, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_the_graph_is_kept_on_request():
    fn = dovetail.compile(lambda x, w: torch.tanh(x @ w), fullgraph=True)
    x, w = leaf(3, 4), leaf(4, 5)
    out = fn(x, w)
    once = torch.autograd.grad(out.sum(), (x, w), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), (x, w)), once)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_hooks():
    seen = []
    x = leaf(4)
    x.register_hook(lambda g: seen.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("accumulated"))
    out = dovetail.compile(lambda t: t.sin(), fullgraph=True)(x)
    out.register_hook(lambda g: g * 2)
    out.sum().backward()
    assert seen == ["tensor", "accumulated"]
    torch.testing.assert_close(x.grad, 2 * x.cos().detach())


def test_tangents_of_any_layout():
    fn = dovetail.compile(lambda t: t.sin(), fullgraph=True)
    x = leaf(3, 4)
    for tangent in (torch.ones(()).expand(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]):
        (found,) = torch.autograd.grad(fn(x), x, tangent)
        torch.testing.assert_close(found, tangent * x.cos())


@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
def test_a_gradient_may_be_the_same_whatever_comes_back(backend: str):
    """That of what `cat` skips is empty."""
    fn = lambda x, y: torch.cat([x, y * 2])
    given = torch.randn(0, requires_grad=True), torch.randn(3, requires_grad=True)
    found = torch.autograd.grad(dovetail.compile(fn, backend=backend)(*given).sum(), given, allow_unused=True)
    torch.testing.assert_close(found, torch.autograd.grad(fn(*given).sum(), given, allow_unused=True))


def test_an_unused_result_counts_as_zero():
    x = leaf(4)
    a, _ = dovetail.compile(lambda t: (t.sin(), t.cos()), fullgraph=True)(x)
    a.sum().backward()
    torch.testing.assert_close(x.grad, x.cos().detach())


def test_saved_values_go_with_the_graph():
    """Nothing keeps the intermediate values alive once the result is gone."""
    model = dovetail.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), fullgraph=True)
    x = torch.randn(8, 64)
    out = model(x)
    kept = [t for t in out.grad_fn.saved_tensors if t is not None]
    assert kept
    out.sum().backward()
    with pytest.raises(RuntimeError):
        out.grad_fn.saved_tensors


@torch.library.custom_op("tests_of_training::marked", mutates_args=())
def _marked(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("tests_of_training::looked", mutates_args=())
def _looked(x: torch.Tensor) -> torch.Tensor:
    ALIVE.append(sum(not storage.expired() for storage in STORAGES))
    return x.clone()


_marked.register_fake(torch.empty_like)
_looked.register_fake(torch.empty_like)
_marked.register_autograd(lambda ctx, gradient: _looked(gradient))
ALIVE: list[int] = []
STORAGES: list[StorageWeakRef] = []


def test_saved_values_are_freed_while_the_backward_pass_runs():
    weights = [torch.randn(32, 32, requires_grad=True) for _ in range(4)]

    def fn(x):
        for w in weights:
            x = _marked((x @ w).tanh())
        return x.sum()

    ALIVE.clear()
    x = torch.randn(32, 32, requires_grad=True)
    out = dovetail.compile(fn, fullgraph=True)(x)
    held = {t.data_ptr() for t in (x, *weights)}
    STORAGES[:] = [
        StorageWeakRef(t.untyped_storage()) for t in out.grad_fn.saved_tensors if t.data_ptr() not in held
    ]
    out.backward()
    assert ALIVE == sorted(set(ALIVE), reverse=True) and ALIVE[0] > 4 > ALIVE[-1]


def test_without_gradients_nothing_is_recorded():
    fn = dovetail.compile(lambda t: t.sin(), fullgraph=True)
    x = leaf(3)
    with torch.no_grad():
        assert not fn(x).requires_grad
    assert fn(x).requires_grad


def test_training_a_model_ends_where_eager_ends():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    other = copy.deepcopy(model)
    compiled = dovetail.compile(other)
    data = torch.randn(64, 8)
    target = data.sum(1, keepdim=True).sin()
    for call, own in ((model, model), (compiled, other)):
        optimizer = torch.optim.Adam(own.parameters(), 1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            F.mse_loss(call(data), target).backward()
            optimizer.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-4)
