"""Masks of attention that hide nothing are left out; others stay, and so do those that eager would refuse."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.normalize.masks import bounds
from dovetail.normalize.normalize import record
from dovetail.ops.fake import to_fake
from tests.normalize.harness import graph_of

Q = torch.randn(2, 3, 5, 8)

IDLE = {
    "compared": lambda: (torch.arange(5)[:, None] >= 0).expand(2, 1, 5, 5),
    "one of two": lambda: (torch.arange(5)[:, None] >= 0) | (torch.arange(5) > 2),
    "both": lambda: (torch.arange(1, 6)[:, None] > 0) & torch.ones(5, 5, dtype=torch.bool),
    "filled": lambda: torch.full((5, 5), True),
    "shifted": lambda: (torch.arange(5) + 3 < 8)[None].expand(5, 5),
    "numbers": lambda: torch.zeros(5, 5),
    "chosen": lambda: torch.where(torch.ones(5, 5, dtype=torch.bool), 0.0, float("-inf")),
}
KEPT = {
    "causal": lambda: torch.arange(5)[:, None] >= torch.arange(5),
    "a part": lambda: (torch.arange(5) < 4).expand(5, 5),
    "one of two parts": lambda: (torch.arange(5)[:, None] > 3) | (torch.arange(5) > 2),
    "small integers": lambda: (torch.arange(5).to(torch.int8) + 127 > 0).expand(5, 5),
    "numbers": lambda: torch.full((5, 5), -1.0),
    "rounded": lambda: torch.full((5, 5), 0.5, dtype=torch.int64) > 0,
    "words of a float": lambda: torch.full((5, 5), -0.0).view(torch.int32) >= 0,
    "not a number": lambda: torch.full((5, 5), float("nan")) >= float("-inf"),
}


def attention(make, *words, **named):
    return lambda q: F.scaled_dot_product_attention(q, q, q, make(), *words, **named)


def masked(make, *words, **named) -> bool:
    graph = torch.fx.Graph()
    q = graph.placeholder("q")
    mask = graph.call_function(make)
    graph.output(graph.call_function(F.scaled_dot_product_attention, (q, q, q, mask, *words), named))
    recorded = record(torch.fx.GraphModule(torch.nn.Module(), graph), [to_fake(Q)])
    return any(n.kwargs.get("attn_mask") is not None for n in recorded.graph.nodes)


@pytest.mark.parametrize("name", IDLE)
def test_idle(name):
    fn = attention(IDLE[name], 0.0)
    assert not masked(IDLE[name], 0.0)
    torch.testing.assert_close(dovetail.compile(fn)(Q), fn(Q))


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    fn = attention(KEPT[name])
    assert masked(KEPT[name])
    torch.testing.assert_close(dovetail.compile(fn)(Q), fn(Q), equal_nan=True)


def outcome(fn):
    try:
        return fn(Q)
    except RuntimeError as error:
        return str(error)


def test_sizes_that_eager_refuses():
    fn = attention(lambda: torch.ones(4, 5, dtype=torch.bool))
    assert isinstance(outcome(fn), str)
    assert outcome(dovetail.compile(fn)) == outcome(fn)


def test_masks_beside_a_causal_one():
    """Newer versions of PyTorch refuse the two together."""
    fn = attention(IDLE["filled"], is_causal=True)
    ours, eager = outcome(dovetail.compile(fn)), outcome(fn)
    assert ours == eager if isinstance(eager, str) else torch.allclose(ours, eager)


def test_a_mask_that_learns():
    q, mask = Q.clone().requires_grad_(), torch.zeros(5, 5, requires_grad=True)
    fn = lambda q, m: F.scaled_dot_product_attention(q, q, q, m + torch.zeros(5, 5)).sum()
    expected = torch.autograd.grad(fn(q, mask), (q, mask))
    torch.testing.assert_close(torch.autograd.grad(dovetail.compile(fn)(q, mask), (q, mask)), expected)


def test_bounds_hold():
    """Whatever is said of a tensor is true of its elements."""
    for make in (*IDLE.values(), *KEPT.values()):
        graph = record(graph_of(lambda _, make=make: make(), 1), [to_fake(Q)])
        low, high = bounds(graph.graph.output_node().args[0][0])
        values = make().double().flatten().tolist()
        assert all(low <= v <= high or v != v for v in values)
