"""Kernels of loops as machine code for every kind of GPU that is listed, without one. `make sweep-devices` has all
programs, this a few of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pytest
import torch

from dovetail.codegen.gpu import generate
from dovetail.ir.gpus import GPUS, Gpu, gpu
from dovetail.ir.kernel import Kernel
from dovetail.ir.loops import Group
from dovetail.options import Options
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule import schedule
from dovetail.schedule.gpu.split import spread
from tests.schedule.test_meaning import CASES, lowered

FEW = 4  # one of so many programs


def kernels(names: Iterable[str]) -> Iterator[tuple[str, Kernel]]:
    """Of these programs, each once."""
    seen = set()
    for name in names:
        fn, args, _ = CASES[name]
        items = schedule(lowered(fn, *args), Options()).items
        for group in (g for item in items if isinstance(item, Group) for g in spread(item)):
            kernel = generate(group) if isinstance(group, Group) else None
            if kernel is not None and kernel.symbol not in seen:
                seen.add(kernel.symbol)
                yield name, kernel


def compiled(names: Iterable[str], capability: tuple[int, int]) -> int:
    """How many kernels there are; each is machine code that a program of the device has enough memory for."""
    first, second = capability
    count = 0
    for name, kernel in kernels(names):
        made = to_binary(kernel, 10 * first + second)
        assert made.code.startswith(b"\x7fELF") and made.shared <= GPUS[capability].shared, (name, capability)
        count += 1
    return count


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (10, 0), (12, 0)])
def test_machine_code(capability):
    assert compiled([*CASES][::FEW], capability) > 8


def test_one_that_is_not_listed_has_little_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (13, 7))
    assert gpu(torch.device("cuda:0")) == Gpu(min(known.shared for known in GPUS.values()))


if __name__ == "__main__":
    for each in GPUS:
        print(f"sm_{each[0]}{each[1]}: {compiled(CASES, each)} kernels", file=sys.stderr)
