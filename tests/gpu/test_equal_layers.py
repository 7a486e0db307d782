"""Layers that one compiled function serves: each replays a recording of its own, which copies no parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import dovetail
from dovetail.runtime.gpu.graphs import Recorder
from tests.gpu.layers import Layer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]
WIDTH, LAYERS = 256, 6


class Layers(nn.Module):
    """Each is called by `block`."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.block = nn.ModuleList(Layer(WIDTH) for _ in range(LAYERS)), block

    def forward(self, x):
        for layer in self.layers:
            x = self.block(layer, x)
        return x


def call(layer, x):
    return layer(x)


@pytest.fixture
def replayed(monkeypatch) -> list[Any]:
    """The recordings, in order."""
    found, replay = [], Recorder.replay
    monkeypatch.setattr(Recorder, "replay", lambda self, *args: found.append(args[0]) or replay(self, *args))
    return found


def batch(number: int) -> torch.Tensor:
    return torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(number)).cuda()


def test_training(replayed: list) -> None:
    plain, compiled = Layers(call).cuda(), Layers(dovetail.compile(call)).cuda()
    for number in range(6):
        replayed.clear()
        for model in (plain, compiled):
            model.zero_grad()
            model(batch(number)).square().mean().backward()
        for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-5)
    assert len({*map(id, replayed)}) == len(replayed) == 2 * LAYERS
    assert not any(target.shape == (WIDTH, 4 * WIDTH) for each in replayed for target in each.targets.values())


def test_inference(replayed: list) -> None:
    compiled = Layers(dovetail.compile(call)).cuda()
    plain = copy.deepcopy(compiled)
    plain.block = call
    with torch.no_grad():
        for number in range(5):
            replayed.clear()
            x = batch(number)
            torch.testing.assert_close(compiled(x), plain(x), rtol=1e-3, atol=1e-5)
    assert len({*map(id, replayed)}) == len(replayed) == LAYERS


@pytest.fixture
def alone(tmp_path) -> Iterator[None]:
    """A group of one process."""
    store = dist.FileStore(str(tmp_path / "meeting"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_sharded_parameters(replayed: list) -> None:
    """They are gathered somewhere else in each step: a layer's recording has copies."""
    plain, compiled = Layers(call).cuda(), Layers(call).cuda()
    for model in (plain, compiled):
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    run = dovetail.compile(compiled)
    for number in range(8):
        replayed.clear()
        for model, forward in (plain, plain), (compiled, run):
            model.zero_grad()
            forward(batch(number)).square().mean().backward()
        for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(other.grad.to_local(), one.grad.to_local(), rtol=1e-3, atol=1e-5)
    assert len({*map(id, replayed)}) == len(replayed) >= 2 * LAYERS
