"""Process-wide and thread-wide state that traced code depends on.

`READERS` names each piece and reads it; a STATE guard's payload is `(name, value)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from dovetail.ir.settings import AUTOCAST_DEVICES, SETTINGS


def _function_modes() -> int:
    return torch._C._len_torch_function_stack()


def _autocast(device: str) -> tuple[bool, Any]:
    enabled = torch.is_autocast_enabled(device)
    return (enabled, torch.get_autocast_dtype(device)) if enabled else (False, None)


READERS: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    **{f"autocast_{device}": partial(_autocast, device) for device in AUTOCAST_DEVICES},
    "default_dtype": torch.get_default_dtype,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "torch_function_modes": _function_modes,
    **SETTINGS,
}
