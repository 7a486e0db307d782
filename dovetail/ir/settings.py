"""Process-wide settings that programs ask for, and that only those are guarded on which do.

Each is the value of a function of PyTorch without arguments. A STATE guard names it by its key here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_C = torch._C

ATTENTION = "attention_kernels"
AUTOCAST_DEVICES = ("cpu", "cuda")


def attention_kernels() -> tuple[Any, ...]:
    """Which kernels scaled_dot_product_attention may use, and in which order they are tried."""
    names = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    enabled = (getattr(_C, f"_get_{name}_sdp_enabled")() for name in names)
    return (*enabled, *_C._get_sdp_priority_order())


#: Functions whose value is a setting.
ASKED: tuple[Callable[[], Any], ...] = (
    torch.get_num_threads, torch.get_num_interop_threads, torch.get_float32_matmul_precision,
    torch.is_deterministic_algorithms_warn_only_enabled, torch.is_autocast_cache_enabled, _C._get_cudnn_enabled,
    _C._get_cudnn_benchmark, _C._get_cudnn_deterministic, _C._get_mkldnn_enabled,
    _C._is_fwd_grad_enabled,
)  # fmt: skip
SETTINGS: dict[str, Callable[[], Any]] = {
    ATTENTION: attention_kernels,
    **{function.__name__.removeprefix("_get_"): function for function in ASKED},
}
