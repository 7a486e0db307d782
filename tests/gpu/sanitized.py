"""Kernels of all kinds, each run once: `make sanitize-gpu` has compute-sanitizer watch their accesses.

PyTorch's allocator is told to cache nothing, so that an access past the end of a tensor is one past its memory; CUDA
graphs are off, since nothing can be allocated while one is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import dovetail
from tests.gpu import test_programs, test_scans, test_scatter

compiled = functools.partial(dovetail.compile, mode="max-autotune-no-cudagraphs")


def programs() -> Iterator[Callable[[], Any]]:
    for fn, sizes in test_programs.CASES.values():
        for dtype in (torch.float32, torch.bfloat16):
            yield functools.partial(compiled(fn), torch.randn(*sizes, device="cuda").to(dtype))
    for fn in test_scans.CASES.values():
        yield functools.partial(compiled(fn), torch.randn(300, 500, device="cuda"))
    for fn in test_scatter.PROGRAMS.values():
        for kind in ("all", "mostly one", "one"):
            x = torch.randn(test_scatter.COUNT, test_scatter.WIDTH, device="cuda")
            yield functools.partial(compiled(fn), x, test_scatter.places(kind))
    images = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout()
    yield _step(nn.Sequential(*images, nn.Linear(1800, 10)), torch.randn(5, 3, 32, 32, device="cuda"), 10)
    words = nn.Embedding(50, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 50)
    yield _step(nn.Sequential(*words), torch.randint(0, 50, (70,), device="cuda"), 50)
    free = compiled(lambda x: torch.softmax(x + 1, -1).cumsum(-1), dynamic=True)
    for sizes in ((3, 5), (7, 129), (1, 1), (33, 1000)):
        yield functools.partial(free, torch.randn(*sizes, device="cuda"))


def _step(model: nn.Module, inputs: torch.Tensor, classes: int) -> Callable[[], Any]:
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters())
    labels = torch.randint(0, classes, (len(inputs),), device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return compiled(step)


def main() -> None:
    count = 0
    for program in programs():
        program(), program()  # a first step makes the optimizer's state
        count += 1
    torch.cuda.synchronize()
    print(f"{count} programs")


if __name__ == "__main__":
    main()
