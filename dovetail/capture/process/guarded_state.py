"""Process-wide and thread-wide state that traced code depends on.

`READERS` names each piece and reads it; a STATE guard's payload is `(name, value)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.settings import AUTOCAST, SETTINGS


def _function_modes() -> int:
    return torch._C._len_torch_function_stack()


READERS: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    **AUTOCAST,
    "default_dtype": torch.get_default_dtype,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "torch_function_modes": _function_modes,
    **SETTINGS,
}
