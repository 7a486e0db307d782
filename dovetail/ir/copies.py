"""Inputs like those of a call, for runs that the program must not see."""

from __future__ import annotations

from typing import Any

import torch


def copied(value: Any) -> Any:
    """A leaf of its own in the place of a tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
