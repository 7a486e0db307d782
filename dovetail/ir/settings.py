"""Process-wide settings that programs ask for, and that only those are guarded on which do.

Each setting is the value of a function of PyTorch without arguments. A STATE guard names it by its key here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.fx import Graph

from dovetail.ir.aten import Uncompiled
from dovetail.ir.devices import GPU, TRAITS

_C = torch._C

ATTENTION = "attention_kernels"
AUTOCAST_DEVICES = tuple(TRAITS)
DETERMINISTIC, HOOKS_DISABLED = "deterministic_algorithms", "saved_tensors_hooks_disabled"


def _autocast(device: str) -> tuple[bool, Any]:
    enabled = torch.is_autocast_enabled(device)
    return (enabled, torch.get_autocast_dtype(device)) if enabled else (False, None)


#: Whether autocast is on for a kind of device, and its type if so.
AUTOCAST: dict[str, Callable[[], Any]] = {f"autocast_{d}": partial(_autocast, d) for d in AUTOCAST_DEVICES}


def attention_kernels() -> tuple:
    """Which kernels scaled_dot_product_attention may use, and in which order they are tried."""
    names = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    enabled = (getattr(_C, f"_get_{name}_sdp_enabled")() for name in names)
    return (*enabled, *_C._get_sdp_priority_order())


def deterministic() -> tuple[bool, bool]:
    """Are nondeterministic algorithms refused, and is it only a warning?"""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def set_deterministic(wanted: tuple[bool, bool]) -> None:
    """Put back what `deterministic` gave: whether only deterministic algorithms run, or others with a warning."""
    torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1])


def set_hooks_disabled(message: str | None) -> None:
    """None: hooks on saved tensors are allowed."""
    switch: Any = _C._autograd
    if message is None:
        switch._saved_tensors_hooks_enable()
    else:
        switch._saved_tensors_hooks_disable(message)


#: Which ways libraries may take, where a version of PyTorch asks for them.
_OF_LIBRARIES = (
    "cublas_allow_tf32 cublas_allow_fp16_accumulation cublas_allow_fp16_reduced_precision_reduction "
    "cublas_allow_bf16_reduced_precision_reduction cudnn_allow_tf32 onednn_allow_tf32 mkldnn_deterministic "
    "linalg_preferred_backend blas_preferred_backend rocm_fa_preferred_backend sm_carveout_experimental "
    "cpu_allow_fp16_reduced_precision_reduction math_sdp_allow_fp16_bf16_reduction miopen_immediate nnpack_enabled "
    "cudnn_depthwise_kernel"
).split()
_NATIVE = [*(f"_get_{name}" for name in _OF_LIBRARIES), "_cuda_isInBadFork", "_accelerator_getDeviceIndex"]
_NATIVE += ["_cuda_isCurrentStreamCapturing"]

#: Functions whose value is a setting.
ASKED: tuple[Callable[[], Any], ...] = (
    *(getattr(_C, name) for name in _NATIVE if hasattr(_C, name)), torch.cuda.current_device,
    torch.get_num_threads, torch.get_num_interop_threads, torch.get_float32_matmul_precision,
    torch.is_deterministic_algorithms_warn_only_enabled, torch.is_autocast_cache_enabled, _C._get_cudnn_enabled,
    _C._get_cudnn_benchmark, _C._get_cudnn_deterministic, _C._get_mkldnn_enabled,
    _C._is_fwd_grad_enabled,
)  # fmt: skip
#: How precisely libraries compute on `float32`, by library and kind of operator.
PRECISIONS: dict[tuple[str, str], str] = {
    (library, kind): f"fp32_precision_{library}_{kind}"
    for library, kinds in (("generic", "all"), (GPU, "all matmul conv rnn"), ("mkldnn", "all matmul conv rnn"))
    for kind in kinds.split()
}
SETTINGS: dict[str, Callable[[], Any]] = {
    "default_dtype": torch.get_default_dtype,
    ATTENTION: attention_kernels,
    DETERMINISTIC: deterministic,
    HOOKS_DISABLED: _C._autograd._saved_tensors_hooks_get_disabled_error_message,
    **{name: partial(_C._get_fp32_precision_getter, *key) for key, name in PRECISIONS.items()},
    **{function.__name__.removeprefix("_get_"): function for function in ASKED},
}

_TF32 = ("cublas_allow_tf32", "cudnn_allow_tf32", "onednn_allow_tf32")
#: Settings that are others, seen from another side.
ONE_PRECISION = frozenset((*PRECISIONS.values(), *_TF32, "get_float32_matmul_precision"))
_HARDWARE = (
    "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "mkldnn_enabled", "cublas_allow_fp16_accumulation",
    *_TF32,
)  # fmt: skip
#: Functions that change a setting that operators are computed by, and its key. As nodes they do it for later ones.
SETTERS: dict[Any, str] = {
    _C._set_default_dtype: "default_dtype",
    _C._set_float32_matmul_precision: "get_float32_matmul_precision",
    set_deterministic: DETERMINISTIC,
    **{getattr(_C, f"_set_{name}"): name for name in _HARDWARE},
}


def turns_settings(graph: Graph) -> Uncompiled | None:
    """Why only PyTorch's own operators can follow the graph's nodes; or None."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in SETTERS:
            return Uncompiled(f"it changes the setting {SETTERS[node.target]!r}", node.meta.get("stack", ()))
    return None
