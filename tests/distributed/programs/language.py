"""A language model that is spread over the ranks as training programs spread one: along sequences between its layers,
by heads and columns inside, and by the vocabulary in its loss; then sharded, with its layers or all of it compiled."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import dovetail
from tests.distributed.programs.common import DEVICE, Wrap, local, same_training, state

WIDTH, HEADS, WORDS, LENGTH = 32, 4, 64, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        found = (linear(x).unflatten(-1, (-1, WIDTH // HEADS)) for linear in (self.wq, self.wk, self.wv))
        parts = (each.transpose(1, 2) for each in found)
        return self.wo(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(number): Layer() for number in range(layers)})
        self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.embeddings(words)
        for layer in self.layers.values():
            x = layer(x)
        return self.output(self.norm(x))


def _gathered() -> PrepareModuleInput:
    return PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))


def spread(model: Model, mesh: Any) -> Model:
    parallelize_module(model, mesh, {
        "embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip
    columns = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3")
    plan = {
        "attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel(), "attention": _gathered(),
        "feed_forward": _gathered(), **{name: ColwiseParallel() for name in columns},
        **{name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.wo", "feed_forward.w2")},
    }  # fmt: skip
    for layer in model.layers.values():
        parallelize_module(layer, mesh, plan)
    return model


def layers_compiled(model: Model) -> Model:
    for name, layer in list(model.layers.named_children()):
        model.layers.register_module(name, dovetail.compile(layer, fullgraph=True))
    return model


def sharded(model: Model, mesh: Any, ways: tuple[Wrap | None, Wrap | None] = (None, None)) -> Any:
    """Spread before. `ways`: how the whole is compiled, once that is done, and how its layers are before."""
    whole, layers = ways
    model = spread(model, mesh["parts"])
    model = model if layers is None else layers(model)
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh["shards"])
    fully_shard(model, mesh=mesh["shards"])
    return model if whole is None else whole(model)


def loss_of(logits, words):
    return F.cross_entropy(logits.flatten(0, 1), words.flatten())


def trained(model: Any, loss: Callable[..., torch.Tensor] = loss_of, groups: int = 1) -> Any:
    """`groups` of ranks have batches of their own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank() * groups // dist.get_world_size())
    found = []
    for _ in range(3):
        words = torch.randint(WORDS, (2, LENGTH), generator=generator).to(DEVICE)
        with loss_parallel():
            value = loss(model(words), words)
            value.backward()
        found += [local(value), local(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))]
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(found), state(model)


def _spread_alone(model: Model) -> Model:
    return spread(model, init_device_mesh(DEVICE.type, (dist.get_world_size(),)))


def more_case_layers():
    same_training(Model, _spread_alone, lambda m: layers_compiled(_spread_alone(m)), trained)


def case_the_whole_and_the_loss():
    run = functools.partial(trained, loss=dovetail.compile(loss_of))
    same_training(Model, _spread_alone, lambda m: dovetail.compile(_spread_alone(m), fullgraph=True), run)


def case_sharded_too():
    size = dist.get_world_size()
    for grid, ways in (((size // 2, 2), (dovetail.compile, None)), ((size, 1), (None, layers_compiled))):
        mesh = init_device_mesh(DEVICE.type, grid, mesh_dim_names=("shards", "parts"))

        eager, compiled = functools.partial(sharded, mesh=mesh), functools.partial(sharded, mesh=mesh, ways=ways)
        same_training(Model, eager, compiled, functools.partial(trained, groups=grid[0]))


def case_an_embedding_leaves_no_mask_of_a_graph_that_was_not_finished():
    """PyTorch keeps which words are on this rank for the sum that follows, where every call finds it."""
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    weight = distribute_tensor(torch.randn(16, 8), mesh, [Shard(0)])
    words = distribute_tensor(torch.arange(6), mesh, [Replicate()])

    def program(words, weight, last):
        found = F.embedding(words, weight)
        if not last:
            dovetail.graph_break()
        return found.redistribute(placements=[Replicate()]).to_local()

    expected = program(words, weight, True) + 0
    with contextlib.suppress(dovetail.errors.GraphBreakError):
        dovetail.compile(program, fullgraph=True)(words, weight, False)
        raise AssertionError("a graph that does not end")
    torch.testing.assert_close(program(words, weight, True) + 0, expected)
    torch.testing.assert_close(dovetail.compile(program, fullgraph=True)(words, weight, True) + 0, expected)
