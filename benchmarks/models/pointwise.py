"""Small functions: the FAQ's examples of fusion, and rows that softmax and layer norm reduce."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def two_cosines(x: Tensor) -> Tensor:
    """Fused, this reads and writes memory once; operator by operator, twice."""
    return torch.cos(torch.cos(x))


def toy_example(a: Tensor, b: Tensor) -> Tensor:
    """The FAQ's toy without its print and its branch."""
    x = a / (torch.abs(a) + 1)
    return x * b


def pointwise_softmax(x: Tensor, y: Tensor) -> Tensor:
    """A pointwise chain that ends in a softmax over rows."""
    return torch.softmax(torch.sin(x) * y + torch.sigmoid(x), dim=-1)


def row_chain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu and sin into layer norm into softmax: one row can stay in cache throughout."""
    z = F.gelu(x) + torch.sin(x)
    return torch.softmax(F.layer_norm(z, z.shape[-1:], weight, bias), dim=-1)


def add_one(x: Tensor) -> Tensor:
    """One operator: what remains is the cost of the call."""
    return x + 1
