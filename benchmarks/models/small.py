"""Networks that learn something in seconds, each with a task to learn: made for whole training runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ..training import Loss, classes, next_token_of_logits


@dataclass(frozen=True)
class Task:
    """A network, batches without end, and a loss that noise in the data keeps away from zero.

    `hidden` names the dimensions `(parameter or buffer, dimension)` along which the units of one hidden layer lie:
    with these units in another order the network is the same function, whose sums are taken in another order.
    """

    title: str
    make: Callable[[], nn.Module]
    batch: Callable[[Generator], tuple[Tensor, ...]]
    loss: Loss
    hidden: tuple[tuple[str, int], ...]
    lr: float = 1e-3


class Block(nn.Module):
    """Causal attention and two linear layers, each after a norm and added to what came in."""

    def __init__(self, width: int, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """A causal language model with learned positions: tokens `(N, length)` to logits `(N, length, vocabulary)`."""

    def __init__(self, vocabulary: int = 32, length: int = 33, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions)))


def conv_net(labels: int = 10) -> nn.Module:
    """Images `(N, 3, 16, 16)` to logits `(N, labels)`: convolutions, batch norm, pooling, dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, labels),
    )  # fmt: skip


_FIXED = torch.Generator().manual_seed(0)
_TRANSITIONS = torch.randn(32, 32, generator=_FIXED).mul(2).softmax(1)
_PATTERNS = torch.randn(10, 3, 16, 16, generator=_FIXED)


def _markov_chain(generator: Generator, batch: int = 16, length: int = 33) -> tuple[Tensor]:
    tokens = [torch.randint(32, (batch,), generator=generator)]
    for _ in range(length - 1):
        tokens.append(torch.multinomial(_TRANSITIONS[tokens[-1]], 1, generator=generator)[:, 0])
    return (torch.stack(tokens, 1),)


def _noisy_patterns(generator: Generator, batch: int = 32) -> tuple[Tensor, Tensor]:
    """One pattern an image under as much noise; one label in ten is drawn by lot."""
    shown = torch.randint(10, (batch,), generator=generator)
    images = _PATTERNS[shown] + torch.randn(batch, 3, 16, 16, generator=generator)
    lot = torch.rand(batch, generator=generator) < 0.1
    return images, torch.where(lot, torch.randint(10, (batch,), generator=generator), shown)


TASKS = (
    Task(
        "transformer",
        Transformer,
        _markov_chain,
        next_token_of_logits,
        (("blocks.0.up.weight", 0), ("blocks.0.up.bias", 0), ("blocks.0.down.weight", 1)),
    ),
    Task(
        "conv net",
        conv_net,
        _noisy_patterns,
        classes,
        (("0.weight", 0), ("0.bias", 0), ("1.weight", 0), ("1.bias", 0), ("3.weight", 1)),
    ),
)
