"""Programs that a device could run as fast as it copies, each with the bytes that must be moved for it.

What must be moved: every input is read once and every result is written once. It is more only where that cannot be:
a batch norm reads its images twice, because their mean comes first and nothing near the processors holds them all; so
does a gradient that needs the sum of a long row. What a program reads in vain or stores in between counts as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.pointwise import row_chain


@dataclass(frozen=True)
class Work:
    """`fn(*args)` reads and writes memory as large as these tensors. `random`: every call gives something else."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    reads: Sequence[Tensor]
    writes: Sequence[Tensor]
    random: bool = False

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.itemsize for t in (*self.reads, *self.writes))


@dataclass(frozen=True)
class Maker:
    """Inputs on `device`; most programs have one of 2**27 elements, four to eight times what a large cache holds."""

    dtype: torch.dtype
    device: str = "cuda"

    def tensor(self, *sizes: int) -> Tensor:
        return torch.randn(sizes, device=self.device, dtype=self.dtype)

    def rows(self, width: int) -> Tensor:
        return self.tensor(2**27 // width, width)

    def places(self, below: int, count: int) -> Tensor:
        return torch.randint(0, below, (count,), device=self.device)

    def room(self, *sizes: int) -> Tensor:
        """As large as a result, without its memory."""
        return torch.empty(sizes, device="meta", dtype=self.dtype)


# ---------------------------------------------------------------- element by element


def _pointwise(make: Maker) -> Work:
    x, weight, bias = make.rows(4096), make.tensor(4096), make.tensor(4096)
    return Work(lambda x, w, b: F.gelu(x * w + b), (x, weight, bias), (x, weight, bias), (x,))


def _dropout(make: Maker) -> Work:
    x = make.rows(4096)
    return Work(lambda x: F.dropout(x, 0.1), (x,), (x,), (x,), random=True)


def _uniform(make: Maker) -> Work:
    x = make.rows(4096)
    return Work(torch.rand_like, (x,), (), (x,), random=True)


# ---------------------------------------------------------------- rows


def _layer_norm(width: int) -> Callable[[Maker], Work]:
    def work(make: Maker) -> Work:
        x, weight, bias = make.rows(width), make.tensor(width), make.tensor(width)
        return Work(lambda x, w, b: F.layer_norm(x, (width,), w, b), (x, weight, bias), (x, weight, bias), (x,))

    return work


def _rms_norm(make: Maker) -> Work:
    x, weight = make.rows(4096), make.tensor(4096)
    return Work(lambda x, w: F.rms_norm(x, (4096,), w), (x, weight), (x, weight), (x,))


def _softmax(make: Maker) -> Work:
    x = make.rows(4096)
    return Work(lambda x: torch.softmax(x, -1), (x,), (x,), (x,))


def _row_chain(make: Maker) -> Work:
    x, weight, bias = make.rows(4096), make.tensor(4096), make.tensor(4096)
    return Work(row_chain, (x, weight, bias), (x, weight, bias), (x,))


def _running_sum(make: Maker) -> Work:
    x = make.rows(4096)
    return Work(lambda x: torch.cumsum(x, -1), (x,), (x,), (x,))


# ---------------------------------------------------------------- sums


def _sum(dim: int | None) -> Callable[[Maker], Work]:
    def work(make: Maker) -> Work:
        x = make.rows(1024 if dim == 0 else 4096)
        result = x[0] if dim == 0 else x[:, 0] if dim == 1 else x[0, 0]
        return Work(lambda x: x.sum() if dim is None else x.sum(dim), (x,), (x,), (result,))

    return work


def _batch_norm(layout: torch.memory_format) -> Callable[[Maker], Work]:
    def work(make: Maker) -> Work:
        x = make.tensor(128, 256, 64, 64).contiguous(memory_format=layout)
        weight, bias, mean, var = (make.tensor(256).abs() for _ in range(4))

        def norm(*given: Tensor) -> Tensor:
            return F.batch_norm(*given, training=True)

        return Work(norm, (x, mean, var, weight, bias), (x, x, mean, var, weight, bias), (x, mean, var))

    return work


def _cross_entropy(make: Maker) -> Work:
    logits = make.tensor(2048, 50257)
    labels = make.places(50257, 2048)
    return Work(F.cross_entropy, (logits, labels), (logits, labels), (logits[0, 0],))


def _cross_entropy_gradient(make: Maker) -> Work:
    logits = make.tensor(2048, 50257).requires_grad_()
    labels = make.places(50257, 2048)

    def gradient(logits: Tensor, labels: Tensor) -> Any:
        loss = F.cross_entropy(logits, labels)
        return loss.detach(), *torch.autograd.grad(loss, logits)

    return Work(gradient, (logits, labels), (logits, logits, labels), (logits, logits[0, 0]))


# ---------------------------------------------------------------- from one place to another


def _transposed(make: Maker) -> Work:
    x = make.rows(8192)
    return Work(lambda x: x.t().contiguous(), (x,), (x,), (x,))


def _concatenated(make: Maker) -> Work:
    parts = tuple(make.tensor(2**27 // 4096, width) for width in (512, 1024, 2560))
    return Work(lambda *parts: torch.cat(parts, 1), parts, parts, parts)


def _every_second(make: Maker) -> Work:
    """Memory comes in sectors of 32 bytes, so what is left out is read as well."""
    x = make.rows(4096)
    return Work(lambda x: x[:, ::2].contiguous(), (x,), (x,), (x[:, ::2],))


def _padded(make: Maker) -> Work:
    x = make.tensor(128, 256, 64, 64)
    return Work(lambda x: F.pad(x, (1, 1, 1, 1)), (x,), (x,), (make.room(128, 256, 66, 66),))


def _embedding(make: Maker) -> Work:
    """Every row of the table once, in any order."""
    table = make.rows(1024)
    places = torch.randperm(len(table), device=make.device)
    return Work(F.embedding, (places, table), (places, table), (table,))


def _embedding_gradient(padding: float = 0.0) -> Callable[[Maker], Work]:
    """`padding`: what part of the words is one word."""

    def program(make: Maker) -> Work:
        gradient = make.rows(1024)
        places = make.places(50257, len(gradient))
        places[: int(padding * len(places))] = 7

        def backward(gradient: Tensor, places: Tensor) -> Tensor:
            return torch.ops.aten.embedding_dense_backward(gradient, places, 50257, -1, False)

        return Work(backward, (gradient, places), (gradient, places), (make.room(50257, 1024),))

    return program


def _edges(make: Maker) -> Work:
    """The sum at each of a graph's nodes over its ten edges or so."""
    messages = make.rows(128)
    nodes = len(messages) // 10
    targets = make.places(nodes, len(messages))

    def gathered(messages: Tensor, targets: Tensor) -> Tensor:
        return messages.new_zeros(nodes, 128).index_add(0, targets, messages)

    return Work(gathered, (messages, targets), (messages, targets), (make.room(nodes, 128),))


# ---------------------------------------------------------------- optimizers


def _adam(make: Maker) -> Work:
    """The parameters of 24 layers of a transformer that is 1024 wide, biases included, and of its table of words."""
    attention, feed = 4 * [(1024, 1024), (1024,)], 2 * [(2816, 1024), (2816,)] + [(1024, 2816), (1024,)]
    sizes = 24 * [*attention, *feed, *4 * [(1024,)]] + [(32000, 1024)]
    parameters = [torch.nn.Parameter(make.tensor(*size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, capturable=make.device == "cuda")
    values = [p.detach() for p in parameters]

    def step() -> tuple[Tensor, ...]:
        optimizer.step()
        return tuple(values[:24])

    return Work(step, (), 4 * values, 3 * values)


PROGRAMS: dict[str, Callable[[Maker], Work]] = {
    "gelu(x * w + b)": _pointwise,
    "dropout": _dropout,
    "uniform random numbers": _uniform,
    "layer_norm, 768 wide": _layer_norm(768),
    "layer_norm, 1024 wide": _layer_norm(1024),
    "layer_norm, 4096 wide": _layer_norm(4096),
    "rms_norm, 4096 wide": _rms_norm,
    "softmax, 4096 wide": _softmax,
    "gelu/sin + norm + softmax, 4096 wide": _row_chain,
    "cumsum, 4096 wide": _running_sum,
    "sum of rows, 4096 wide": _sum(1),
    "sum of columns, 1024 wide": _sum(0),
    "sum of everything": _sum(None),
    "batch norm, training": _batch_norm(torch.contiguous_format),
    "batch norm, training, channels last": _batch_norm(torch.channels_last),
    "cross entropy, 2048x50257": _cross_entropy,
    "cross entropy and its gradient": _cross_entropy_gradient,
    "transposed copy": _transposed,
    "concatenation": _concatenated,
    "every second column": _every_second,
    "padded images, 66x66": _padded,
    "embedding, 1024 wide": _embedding,
    "gradient of an embedding": _embedding_gradient(),
    "the same, half of it padding": _embedding_gradient(0.5),
    "sums over edges, 128 wide": _edges,
    "Adam, 24 layers": _adam,
}
