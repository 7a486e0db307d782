"""Programs whose code must not depend on what was compiled before: models, and random programs of the other fuzzers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.fuzz import images
from tests.fuzz.generate import generate

Inputs = tuple[Any, ...]


class Block(nn.Module):
    """Attention with fewer heads for keys than for queries, and a gated layer behind it."""

    def __init__(self, width: int = 32, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * shared * self.size)
        self.gate, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(batch, length, 2, self.shared, self.size).permute(2, 0, 3, 1, 4)
        times = self.heads // self.shared
        k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2) for t in (turned(k), v))
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = (q @ k.transpose(-1, -2) / self.size**0.5).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        left, right = self.gate(self.second(x)).chunk(2, -1)
        return x + self.down(F.silu(left) * right)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary embedding."""
    size, length = x.shape[-1], x.shape[-2]
    places, rates = (torch.arange(n, dtype=torch.float64) for n in (length, size // 2))
    angles = places[:, None] / 100 ** (rates * 2 / size)
    cos, sin = (torch.cat((t, t), -1).to(x.dtype) for t in (angles.cos(), angles.sin()))
    halves = x.chunk(2, -1)
    return x * cos + torch.cat((-halves[1], halves[0]), -1) * sin


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.blocks = nn.Embedding(50, 32), nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.steps = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(w), nn.ReLU(), nn.Conv2d(w, 4, 3, padding=1)) for w in (8, 12, 16)
        )
        self.head = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for step in self.steps:
            x = torch.cat((x, step(x)), 1)
        return self.head(F.max_pool2d(x, 2).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm = nn.GRUCell(8, 16), nn.RMSNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[0], 16)
        for k in range(3):
            state = self.norm(self.cell(x[:, k], state)) + state
        return state


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1).sqrt() * self.scale
        return torch.cat((x.cumsum(1), x.softmax(-1), x.flip(1) * x.amax((1, 2), keepdim=True)), -1).logsumexp(-1)


@dataclass(frozen=True)
class Model:
    """`inputs(size, dtype)`: its arguments; the sizes are those that may change from call to call."""

    make: Callable[[], nn.Module]
    inputs: Callable[[tuple[int, int], torch.dtype], Inputs]
    floats: bool = True  # are the inputs floats, and so of any layout?


MODELS = {
    "block": Model(Block, lambda size, dtype: (torch.randn(*size, 32, dtype=dtype),)),
    "language": Model(Language, lambda size, dtype: (torch.randint(0, 50, size),), floats=False),
    "dense": Model(Dense, lambda size, dtype: (torch.randn(size[0], 3, 2 * size[1], 8, dtype=dtype),)),
    "recurrent": Model(Recurrent, lambda size, dtype: (torch.randn(*size, 8, dtype=dtype),)),
    "statistics": Model(Statistics, lambda size, dtype: (torch.randn(*size, 8, dtype=dtype),)),
    "perceptron": Model(
        lambda: nn.Sequential(nn.Linear(8, 40), nn.GELU(), nn.BatchNorm1d(40), nn.Linear(40, 3), nn.LogSoftmax(-1)),
        lambda size, dtype: (torch.randn(size[0], 8, dtype=dtype),),
    ),
}


@dataclass(frozen=True)
class Program:
    """`make` gives a callable and its arguments. `trains`: in a mode in which gradients are wanted."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], Inputs]]
    trains: bool = False
    dynamic: bool | None = None


#: How a model is compiled: `dynamic` and `trains`.
WAYS = ((None, False), (None, True), (True, False), (True, True))


def pool(ways: int = 4, random_ones: int = 24, of_images: int = 8, transformers: bool = True) -> Iterator[Program]:
    """Each model in so many ways, another one first for each."""
    for number, (name, model) in enumerate(MODELS.items()):
        for k in range(ways):
            dynamic, trains = WAYS[(number + k) % len(WAYS)]
            yield Program(f"{name}, {dynamic=}, {trains=}", _of_model(model), trains, dynamic)
    if transformers:
        yield from (Program(f"{n}, {trains=}", make, trains) for n, make in LIBRARY.items() for trains in (False, True))
    for seed in range(random_ones):
        yield Program(f"random {seed}", _of_seed(seed), dynamic=True if seed % 3 == 0 else None)
    for seed in range(of_images):
        yield Program(f"images {seed}", _of_images(seed), trains=True)


def _of_model(model: Model) -> Callable[[], tuple[Callable[..., Any], Inputs]]:
    return lambda: (model.make(), model.inputs((3, 5), torch.float32))


def _of_seed(seed: int) -> Callable[[], tuple[Callable[..., Any], Inputs]]:
    def make() -> tuple[Callable[..., Any], Inputs]:
        program = generate(seed, 6 + seed % 12, 0.3 * (seed % 2))
        return program.function(), tuple(program.make_inputs())

    return make


def _of_images(seed: int) -> Callable[[], tuple[Callable[..., Any], Inputs]]:
    def make() -> tuple[Callable[..., Any], Inputs]:
        model, x = images.network(seed)
        return model, (x.requires_grad_(),)

    return make


def _llama() -> tuple[Callable[..., Any], Inputs]:
    from transformers import LlamaConfig, LlamaForCausalLM  # takes seconds

    config = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, use_cache=False)  # fmt: skip
    return LlamaForCausalLM(config), (torch.randint(0, 128, (2, 16)),)


def _gpt2() -> tuple[Callable[..., Any], Inputs]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, use_cache=False, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    return GPT2LMHeadModel(config), (torch.randint(0, 128, (2, 16)),)


LIBRARY = {"llama": _llama, "gpt2": _gpt2}


def shuffled(programs: list[Program], seed: int) -> list[Program]:
    return random.Random(seed).sample(programs, len(programs))
