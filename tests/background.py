"""What goes on in the background of every test, without the parts that take long and no test is about."""

from __future__ import annotations

import gc
import types

import torch


def quick_seeds() -> None:
    """PyTorch keeps who has seeded kinds of devices that nothing has used yet: the stack, as text, for each of three.
    That takes milliseconds, and more where calls are deep."""
    for device in (torch.cuda, torch.xpu, torch.mtia):
        device.traceback = types.SimpleNamespace(format_stack=list)  # type: ignore[attr-defined]


def seldom_collections() -> None:
    """A collection of garbage does not look through what all modules have imported, and comes more seldom: either took
    a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
