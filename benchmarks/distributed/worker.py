"""What one process of several measures: the losses of its first steps, and what a step takes after them.

Milliseconds are medians of single steps, between CUDA events or by the clock; `host`: until the host is done. `first`
is the seconds from before the compiler's import until the first step is done; PyTorch, the model and the group of
processes are there already. Memory is what the process holds of the device through PyTorch, in MiB: after the measured
steps, and at most.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..contenders import CONTENDERS
from .cases import Part

Step = Callable[[], Tensor]
#: Other batches in turn: what a model has learned of one shows when it comes again.
BATCHES = 4


def measure(part: Part, contender: str, way: str, device: torch.device, steps: int, timed: int) -> dict[str, Any]:
    """The figures of this process. All processes call it at the same time."""
    torch.manual_seed(0)
    with device:
        model = part.model(part.sizes)
    given = batches(part, device)
    dist.all_reduce(torch.ones(1, device=device))  # connects the processes
    finish(device)
    start = time.perf_counter()
    model = part.ways[contender][way](model, CONTENDERS[contender].compiler)
    step = training(model, given)
    losses = [step()]
    finish(device)
    first = time.perf_counter() - start
    losses += [step() for _ in range(steps - 1)]
    whole, host = map(statistics.median, zip(*(milliseconds(step, device) for _ in range(timed)), strict=True))
    return {"first": first, "ms": whole, "host": host} | memory(device) | {"losses": torch.stack(losses).tolist()}


def batches(part: Part, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1 + dist.get_rank() // (part.alike or dist.get_world_size()))
    sizes = part.sizes
    shape = (BATCHES, 2, sizes.batch, sizes.length)
    words = torch.randint(0, sizes.vocabulary, shape, generator=generator, device="cpu").to(device)
    return [(inputs, labels) for inputs, labels in words]


def training(model: nn.Module, given: list[tuple[Tensor, Tensor]]) -> Step:
    """A step: gradients of one batch's loss, and Adam. The optimizer runs in eager mode."""
    optimizer = torch.optim.Adam(groups(model.parameters()), lr=1e-4, fused=True)
    count = 0

    def step() -> Tensor:
        nonlocal count
        loss = model(*given[count % len(given)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        count += 1
        return loss.detach().float()

    return step


def groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """One for each class of tensors: operators on lists do not take distributed tensors and others together."""
    found: dict[type, list[nn.Parameter]] = {}
    for parameter in parameters:
        found.setdefault(type(parameter), []).append(parameter)
    return [{"params": some} for some in found.values()]


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def milliseconds(call: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Of one call, and until the host is done with it."""
    finish(device)
    begin = Stamp(device)
    call()
    end = Stamp(device)
    finish(device)
    return begin.until(end), 1e3 * (end.time - begin.time)


class Stamp:
    """A point in the device's time, and in the host's."""

    def __init__(self, device: torch.device) -> None:
        self.event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        self.time = time.perf_counter()
        if self.event is not None:
            self.event.record()

    def until(self, other: Stamp) -> float:
        """Milliseconds of the device; both have been reached."""
        if self.event is None or other.event is None:
            return 1e3 * (other.time - self.time)
        return self.event.elapsed_time(other.event)


def memory(device: torch.device) -> dict[str, float]:
    if device.type != "cuda":
        return {}
    return {"held": torch.cuda.memory_reserved() / 2**20, "peak": torch.cuda.max_memory_reserved() / 2**20}
