"""einops: patterns are parsed while capturing, the graph has torch operations only."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.capture.whole import whole

einops = pytest.importorskip("einops")
layers = pytest.importorskip("einops.layers.torch")

CASES = {
    "rearrange": lambda x: einops.rearrange(x, "a (b c) -> c a b", b=2),
    "reduce": lambda x: einops.reduce(x, "a b -> a", "mean"),
    "repeat": lambda x: einops.repeat(x, "a b -> a r b", r=3),
    "einsum": lambda x: einops.einsum(x, x, "a b, c b -> a c"),
    "pack": lambda x: einops.unpack(*einops.pack([x, x], "* b"), "* b"),
    "ellipsis": lambda x: einops.rearrange(x, "... b -> b ..."),
    "list": lambda x: einops.rearrange([x, x], "n a b -> a (n b)"),
}


@pytest.mark.parametrize("name", CASES)
def test_function(name):
    whole(CASES[name], lambda: torch.randn(3, 4, requires_grad=True))


def test_layers():
    made = lambda: nn.Sequential(layers.Rearrange("a (b c) -> a b c", b=2), layers.Reduce("a b c -> a c", "max"))
    whole(lambda layer, x: layer(x), made, lambda: torch.randn(3, 4))
