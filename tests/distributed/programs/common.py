"""What the programs have in common: small models, and training steps compiled and in eager mode, side by side."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dovetail

STEPS = 3
#: Where this process computes.
DEVICE = torch.device("cuda", dist.get_rank()) if dist.get_backend() == "nccl" else torch.device("cpu")
Wrap = Callable[[nn.Module], Any]


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """A few equal layers between two others."""

    def __init__(self, count: int = 2, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))
        self.last = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Normalized(nn.Module):
    """With statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


#: In several buckets.
ddp = functools.partial(DistributedDataParallel, bucket_cap_mb=0.002)


def batches(steps: int = STEPS, *sizes: int) -> list[torch.Tensor]:
    """Other ones on each rank."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    return [torch.randn(sizes or (4, 8), generator=generator).to(DEVICE) for _ in range(steps)]


def local(tensor: torch.Tensor) -> torch.Tensor:
    whole = getattr(tensor, "full_tensor", None)
    return tensor.detach().clone() if whole is None else whole().detach().clone()


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: local(tensor) for name, tensor in model.state_dict().items()}


def one_step(model: Any, batch: torch.Tensor, synchronized: bool = True) -> torch.Tensor:
    with nullcontext() if synchronized else model.no_sync():
        loss = model(batch).square().mean()
        loss.backward()
    return loss.detach()


def train(model: Any, given: Iterable[torch.Tensor], step: Callable[..., torch.Tensor] = one_step) -> list:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)  # tensors of several classes
    losses = []
    for batch in given:
        losses.append(step(model, batch))
        optimizer.step()
        optimizer.zero_grad()
    return [torch.stack(losses), state(model)]


def same_training(
    make: Callable[[], nn.Module], eager: Wrap, compiled: Wrap, run: Callable[[Any], Any] | None = None, graphs: int = 1
) -> Any:
    """Train the same model with both wrappers: equal losses and parameters, and at least so many graphs compiled.

    Gives the compiled model.
    """
    run = run or (lambda model: train(model, batches()))
    model = make().to(DEVICE)
    wrapped = eager(copy.deepcopy(model))
    expected = run(wrapped)
    other = compiled(copy.deepcopy(model))
    with torch.profiler.profile() as profile:
        found = run(other)
    torch.testing.assert_close(found, expected)
    ran = {name for name in names_in(profile) if name.startswith("dovetail graph")}
    assert len(ran) >= graphs, sorted({name for name in names_in(profile) if "dovetail" in name})
    return other


def names_in(profile: torch.profiler.profile) -> list[str]:
    """Of all that ran. `profile.events()` finds out as well who called whom, which takes seconds."""
    return [event.name() for event in profile.profiler.kineto_results.events()]


def compiles_once(model: Any, step: Callable[..., torch.Tensor] = one_step) -> None:
    """What the first steps have compiled serves all later ones."""
    for batch in batches(4):
        step(model, batch)
    with dovetail.set_stance("fail_on_recompile"):
        for batch in batches(2):
            step(model, batch)
