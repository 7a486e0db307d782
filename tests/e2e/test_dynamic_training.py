"""Training with sizes that change: outputs and gradients are eager's, and few compilations serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dovetail

SIZES = ((3, 4), (5, 6), (2, 7), (1, 3), (4, 1))
R = torch.randn


def entries(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


def gradients(fn: Callable[..., Any], x: torch.Tensor, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Of a loss in which every element of every result has a weight of its own."""
    x = x.clone().requires_grad_()
    found = torch.utils._pytree.tree_leaves(fn(x))
    loss = sum((y * torch.arange(y.numel()).sin().view(y.shape)).sum() for y in found)
    return [*found, *torch.autograd.grad(loss, [x, *parameters], allow_unused=True)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "layout",
    [
        lambda x, w: (x @ w).transpose(0, 1),
        lambda x, w: (x.transpose(0, 1).contiguous() @ w).transpose(0, 1),
        lambda x, w: F.linear(x.transpose(0, 1).contiguous(), w).transpose(0, 1),
        lambda x, w: (x * w[0]).transpose(0, 1).contiguous().transpose(0, 1),
    ],
)
def test_results_that_are_laid_out_in_another_order(layout: Callable[..., Any]) -> None:
    w = R(5, 5, requires_grad=True)
    ours = dovetail.compile(lambda x: layout(x, w))
    for n, m in SIZES:
        x = R(n, m, 5)
        torch.testing.assert_close(gradients(ours, x, [w]), gradients(lambda x: layout(x, w), x, [w]))
    assert entries(ours) == 2


LAYERS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "both ways": {"num_layers": 2, "bidirectional": True},
    "no biases": {"bias": False},
    "projected": {"proj_size": 3},
}


@pytest.mark.filterwarnings("error:dovetail runs")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: type[nn.Module], name: str) -> None:
    if name == "projected" and kind is not nn.LSTM:
        pytest.skip("only the state of an LSTM is projected")
    layer = kind(5, 7, **LAYERS[name])
    ours = dovetail.compile(layer)
    for size in (*SIZES, (2, 0) if name != "batch_first" else (0, 2)):
        x = R(*size, 5)
        torch.testing.assert_close(
            gradients(ours, x, layer.parameters()), gradients(layer, x, layer.parameters()), rtol=1e-4, atol=1e-5
        )
    assert entries(ours) == 2


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_batch_of_one_shows_nothing(batch_first: bool) -> None:
    layer = nn.LSTM(5, 7, batch_first=batch_first)
    ours = dovetail.compile(layer)
    with torch.no_grad():
        for size in ((7, 3), (1, 1), (2, 5)):
            x = R(*size, 5)
            torch.testing.assert_close(ours(x)[0], layer(x)[0])
    assert entries(ours) == 2


@pytest.mark.parametrize("kind", [nn.LSTM])
def test_dropout_between_recurrent_layers_draws_what_eager_draws(kind: type[nn.Module]) -> None:
    layer = kind(5, 7, num_layers=2, dropout=0.5)
    ours = dovetail.compile(layer)
    for size in SIZES:
        x, found = R(*size, 5), []
        for each in (ours, layer):
            torch.manual_seed(1)
            found.append(gradients(each, x, layer.parameters()))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert entries(ours) == 2


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_no_steps_are_refused(kind: type[nn.Module]) -> None:
    ours = dovetail.compile(kind(5, 7))
    for steps in (3, 4, 5):
        ours(R(steps, 2, 5))
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        ours(R(0, 2, 5))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_probabilities(reduction: str) -> None:
    fn = lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x) / 3, reduction=reduction)
    ours = dovetail.compile(fn)
    for size in SIZES:
        x = R(*size)
        torch.testing.assert_close(gradients(ours, x, []), gradients(fn, x, []))
    assert entries(ours) == 2


@pytest.mark.filterwarnings("error:dovetail compiles")
def test_a_size_that_turns_out_to_be_a_number() -> None:
    """A product of sizes is 0; then one of them is found to be a number, and so must the other be."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        rolled = torch.cat([x[:, :, -1:], x[:, :, :-1]], 2)
        return (rolled * x).unfold(0, 2, 2).log_softmax(1)

    ours = dovetail.compile(fn, dynamic=True)
    for size in ((2, 6, 4), (2, 1, 0), (2, 8, 8), (2, 1, 2)):
        x = R(*size)
        torch.testing.assert_close(gradients(ours, x, []), gradients(fn, x, []))


ACTIVATIONS = [
    F.softshrink, F.hardshrink, F.hardsigmoid, F.leaky_relu, F.mish, F.softplus, F.hardswish, F.elu, F.logsigmoid,
]  # fmt: skip


@pytest.mark.filterwarnings("error:.*operator by operator")
@pytest.mark.parametrize("fn", ACTIVATIONS, ids=lambda fn: fn.__name__)
def test_gradients_of_activations_at_sizes_that_vary(fn):
    compiled = dovetail.compile(lambda x: fn(x).square(), dynamic=True, fullgraph=True)
    x = torch.randn(4, 6, requires_grad=True)
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    (wanted,) = torch.autograd.grad(fn(x).square().sum(), x)
    torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("error:.*operator by operator")
@pytest.mark.parametrize("fn", [F.softshrink, F.hardshrink], ids=lambda fn: fn.__name__)
def test_bounds_that_vary(fn):
    compiled = dovetail.compile(lambda x, bound: fn(x, bound).square(), fullgraph=True)
    x = torch.randn(4, 6, requires_grad=True)
    for bound in (0.1, 0.2, 0.5, 0.9):
        found, wanted = compiled(x, bound), fn(x, bound).square()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in (found, wanted)))


@pytest.mark.filterwarnings("error:.*operator by operator")
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_images_made_larger_at_sizes_that_vary(rank, mode):
    enlarge = lambda x: F.interpolate(x, size=[n * 2 for n in x.shape[2:]], mode=mode).square()
    compiled = dovetail.compile(enlarge, fullgraph=True)
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    for size in (3, 4, 5):
        for memory_format in (torch.contiguous_format, formats.get(rank, torch.contiguous_format)):
            x = torch.randn(2, 4, *[size] * rank).contiguous(memory_format=memory_format).requires_grad_()
            found, wanted = (torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, enlarge))
            torch.testing.assert_close(found, wanted)
            assert found.stride() == wanted.stride()
