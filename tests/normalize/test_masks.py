"""Masks of attention that hide nothing, or what follows, are left out; others stay, as do those that eager refuses."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.normalize import affine_index
from dovetail.normalize.normalize import record
from dovetail.ops.fake import to_fake

Q = torch.randn(2, 3, 5, 8)

IDLE = {
    "compared": lambda: (torch.arange(5)[:, None] >= 0).expand(2, 1, 5, 5),
    "one of two": lambda: (torch.arange(5)[:, None] >= 0) | (torch.arange(5) > 2),
    "both": lambda: (torch.arange(1, 6)[:, None] > 0) & torch.ones(5, 5, dtype=torch.bool),
    "filled": lambda: torch.full((5, 5), True),
    "shifted": lambda: (torch.arange(5) + 3 < 8)[None].expand(5, 5),
    "numbers": lambda: torch.zeros(5, 5),
    "filled with a number": lambda: torch.full((5, 5), 3) > 0,
    "floats compared": lambda: torch.ones(5, 5) > 0.0,
    "truth as integers": lambda: (torch.ones(5, 5, dtype=torch.bool).long() + 1) >= 2,
    "a row of many": lambda: (torch.arange(5)[:, None] >= 0).expand(7, 5, 5)[3],
    "chosen": lambda: torch.where(torch.ones(5, 5, dtype=torch.bool), 0.0, float("-inf")),
}
INF = float("inf")
ROWS, COLUMNS = lambda: torch.arange(5)[:, None], lambda: torch.arange(5)


def packed(positions):
    """As transformers make them: sequences begin where positions do not rise by one."""
    number = (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch, q, k = torch.arange(2)[:, None, None, None], torch.arange(5)[None, None, :, None], torch.arange(5)
    follows = positions[batch, k[None, None, None, :]] <= positions[batch, q]
    return (q.new_ones((), dtype=torch.bool) & (number[batch, q] == number[batch, k]) & follows).expand(2, -1, 5, 5)


CAUSAL = {
    "compared": lambda: ROWS() >= COLUMNS(),
    "less": lambda: COLUMNS() - 1 < ROWS(),
    "not more": lambda: ~(COLUMNS() > ROWS()),
    "shifted": lambda: torch.arange(2, 7)[:, None] >= torch.arange(2, 7),
    "with what hides nothing": lambda: ((ROWS() >= 0) & (COLUMNS() <= ROWS()))[None].expand(2, 1, 5, 5),
    "triangle": lambda: torch.ones(5, 5, dtype=torch.bool).tril(),
    "not the other": lambda: ~torch.ones(5, 5, dtype=torch.bool).triu(1),
    "numbers": lambda: torch.full((5, 5), -INF).triu(1),
    "chosen": lambda: torch.where(torch.ones(5, 5, dtype=torch.bool).tril(), 0.0, -INF),
    "filled in": lambda: torch.zeros(5, 5).masked_fill(COLUMNS() > ROWS(), -INF),
    "transposed": lambda: (COLUMNS() >= ROWS()).t(),
    "a part": lambda: (torch.arange(9)[:, None] >= torch.arange(9))[2:7, 2:7],
    "packed": lambda: packed(torch.arange(5)[None].expand(2, -1)),
}
KEPT = {
    "the other": lambda: ROWS() <= COLUMNS(),
    "without itself": lambda: (ROWS() > COLUMNS()) | (ROWS() == 0),
    "twice": lambda: 2 * ROWS() >= COLUMNS(),
    "a window": lambda: (ROWS() >= COLUMNS()) & (ROWS() - 2 < COLUMNS()),
    "one more": lambda: torch.ones(5, 5, dtype=torch.bool).tril(1),
    "a step": lambda: torch.arange(10)[::2][:, None] >= torch.arange(5),
    "small numbers": lambda: torch.full((5, 5), -9.0).triu(1),
    "two sequences": lambda: packed(torch.tensor([[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]])),
    "from the end": lambda: torch.arange(5)[torch.arange(-5, 0)][:, None] >= COLUMNS() - 1,
    "joined": lambda: torch.cat((torch.arange(2), torch.arange(3)))[:, None] >= torch.arange(5),
    "a part": lambda: (torch.arange(5) < 4).expand(5, 5),
    "one of two parts": lambda: (torch.arange(5)[:, None] > 3) | (torch.arange(5) > 2),
    "small integers": lambda: (torch.arange(5).to(torch.int8) + 127 > 0).expand(5, 5),
    "numbers": lambda: torch.full((5, 5), -1.0),
    "a fraction": lambda: torch.full((5, 5), 0.5) >= 1,
    "rounded": lambda: torch.full((5, 5), 0.5, dtype=torch.int64) > 0,
    "words of a float": lambda: torch.full((5, 5), -0.0).view(torch.int32) >= 0,
    "not a number": lambda: torch.full((5, 5), float("nan")) >= float("-inf"),
}


def attention(make, *words, **named):
    return lambda q: F.scaled_dot_product_attention(q, q, q, make(), *words, **named)


def recorded(make, *words, **named) -> list[torch.fx.Node]:
    graph = torch.fx.Graph()
    q = graph.placeholder("q")
    mask = graph.call_function(make)
    graph.output(graph.call_function(F.scaled_dot_product_attention, (q, q, q, mask, *words), named))
    return list(record(torch.fx.GraphModule(torch.nn.Module(), graph), [to_fake(Q)]).graph.nodes)


def masked(make, *words, **named) -> bool:
    return any(n.kwargs.get("attn_mask") is not None for n in recorded(make, *words, **named))


def causal(make) -> bool:
    (node,) = (n for n in recorded(make) if "attention" in str(n.target))
    return any(a is True for a in node.args)


@pytest.mark.parametrize("name", IDLE)
def test_idle(name):
    fn = attention(IDLE[name], 0.0)
    assert not masked(IDLE[name], 0.0)
    torch.testing.assert_close(dovetail.compile(fn)(Q), fn(Q))


@pytest.mark.parametrize("name", CAUSAL)
def test_causal(name):
    assert causal(CAUSAL[name]) and not masked(CAUSAL[name])
    fn = attention(CAUSAL[name])
    torch.testing.assert_close(dovetail.compile(fn)(Q), fn(Q))
    torch.testing.assert_close(dovetail.compile(fn, dynamic=True)(Q), fn(Q))


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


@pytest.mark.parametrize("mask", [
    lambda: torch.full((5, 5), -INF, dtype=torch.float64).triu(1),
    lambda: torch.arange(4)[torch.arange(5)][:, None] >= torch.arange(5),
], ids=["another type", "an index out of bounds"])  # fmt: skip
def test_what_eager_refuses(mask):
    fn = attention(mask)
    with pytest.raises((RuntimeError, IndexError)):
        fn(Q)
    with pytest.raises((RuntimeError, IndexError)):
        dovetail.compile(fn)(Q)


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


@pytest.mark.parametrize("name", [*IDLE, *CAUSAL, *KEPT])
def test_what_is_known_holds(name):
    """Whatever is said of a tensor is true of its elements."""
    make = {**IDLE, **CAUSAL, **KEPT}[name]
    graph = torch.fx.Graph()
    graph.output(graph.call_function(make))
    node = record(torch.fx.GraphModule(torch.nn.Module(), graph), []).graph.output_node().args[0][0]
    values = make()
    form = affine_index.shown(node) if values.is_floating_point() else affine_index.below(node)
    for place in itertools.product(*map(range, values.shape)) if form is not None else ():
        found = form.start + sum(step * place[d] for d, step in form.steps)
        assert (found <= 0) == bool(values[place] == (0 if values.is_floating_point() else True))
