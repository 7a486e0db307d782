"""Version counters of what a program writes to and gives, set to what eager's would say after a call."""

from __future__ import annotations

import torch

advance_all = torch._C._increment_version
_SET = torch._C._autograd._unsafe_set_version_counter


def at_version(tensor: torch.Tensor, version: int) -> torch.Tensor:
    """The tensor, its counter set. A view is made again: when the counter comes to where it was, it misses a write."""
    before = tensor._version
    _SET((tensor,), (version,))
    return torch.ops.aten.alias.default(tensor) if before > version and tensor._is_view() else tensor


def advance(tensor: torch.Tensor, extra: int) -> None:
    _SET((tensor,), (tensor._version + extra,))
