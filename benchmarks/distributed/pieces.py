"""What a step is made of, for `simulate`: one process's passes, optimizer and gradients, and collectives of all.

python -m benchmarks.distributed.pieces --json FILE [--tiny]

Each process trains a whole model by itself. `gradients` are, in the order in which they are accumulated, the
milliseconds since the backward pass began, the bytes, and the layer, or -1 of what belongs to none; of a model that is
one graph all come at the end. Then all processes make collectives together: milliseconds by the bytes of the whole.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..contenders import CONTENDERS
from . import processes, worker
from .cases import BF16, PARTS, Part
from .machine import machine

ROUNDS, WARM = 9, 3
STEPS = (("ddp", "eager"), ("ddp", "dovetail"), ("fsdp", "eager"), ("fsdp", "dovetail"))
SIZES = tuple(2**k for k in range(12, 31, 2))


def step(part: Part, contender: str, device: torch.device) -> dict[str, Any]:
    """Medians over some rounds."""
    torch.manual_seed(0)
    with device:
        model = part.model(part.sizes).to(BF16)
    program, reached = CONTENDERS[contender].compiler(model), _noted(model, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    given, rounds = worker.batches(part, device), []
    for number in range(ROUNDS):
        reached.clear()
        worker.finish(device)
        begin = worker.Stamp(device)
        loss = program(*given[number % len(given)])
        forward = worker.Stamp(device)
        loss.backward()
        backward = worker.Stamp(device)
        optimizer.step()
        end = worker.Stamp(device)
        optimizer.zero_grad()
        worker.finish(device)
        times = [forward.until(stamp) for stamp, _, _ in reached]
        rounds.append((begin.until(forward), forward.until(backward), backward.until(end), times))
    forwards, backwards, steps, times = zip(*rounds[WARM:])
    gradients = [[median(t), *row[1:]] for t, row in zip(zip(*times), reached, strict=True)]
    figures = {"forward": median(forwards), "backward": median(backwards), "optimizer": median(steps)}
    return figures | {"gradients": gradients}


def _noted(model: nn.Module, device: torch.device) -> list[tuple[worker.Stamp, int, int]]:
    """Filled whenever a gradient has been accumulated."""
    reached: list[tuple[worker.Stamp, int, int]] = []
    layers = {p: number for number, layer in enumerate(model.layers) for p in layer.parameters()}
    for parameter in model.parameters():
        layer = layers.get(parameter, -1)
        parameter.register_post_accumulate_grad_hook(
            lambda p, layer=layer: reached.append((worker.Stamp(device), p.nbytes, layer))
        )
    return reached


def collectives(device: torch.device, sizes: tuple[int, ...]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for size in sizes:
        for name, call in _calls(size, device).items():
            times = [worker.milliseconds(call, device)[0] for _ in range(ROUNDS)]
            found.setdefault(name, {})[size] = median(times[WARM:])
    return found


def _calls(size: int, device: torch.device) -> dict[str, Callable[[], Any]]:
    whole = torch.ones(size // BF16.itemsize, dtype=BF16, device=device)
    piece = whole[: len(whole) // dist.get_world_size()].clone()
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, piece),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, whole),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small models, on the CPU")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each measurement")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    kind, ranks, session = machine(options.tiny, 2)
    found: dict[str, Any] = {"session": session, "ranks": ranks, "steps": {}}
    works = {f"{name}/{contender}": _work(name, contender, options.tiny) for name, contender in STEPS}
    works["collectives"] = functools.partial(collectives, sizes=SIZES[:3] if options.tiny else SIZES)
    for name, work in works.items():
        try:
            result = processes.together(work, kind, ranks, options.limit)[0]
        except processes.Failed as error:
            print(f"{name}: {error}", flush=True)
            continue
        (found if name == "collectives" else found["steps"])[name] = result
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _work(name: str, contender: str, tiny: bool) -> processes.Work:
    part = PARTS[name].tiny if tiny else PARTS[name]
    return functools.partial(step, part, contender)


if __name__ == "__main__":
    main()
