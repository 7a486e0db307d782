"""State of the process and the thread under which nothing may be compiled, or run compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

_C = torch._C


def first(*names: str, default: Callable[[], Any]) -> Callable[[], Any]:
    """The first of torch._C's functions that this version has."""
    return next((getattr(_C, n) for n in names if hasattr(_C, n)), default)


def _users_function_mode() -> bool:
    """Is a torch function mode active, other than the one of `torch.set_default_device`, whose effects are traced?"""
    modes = (_C._get_function_stack_at(k) for k in range(_C._len_torch_function_stack()))
    return any(type(m) is not DeviceContext for m in modes)


_tracing = first("_is_tracing", "_get_tracing_state", default=lambda: False)
_transforms = first(
    "_are_functorch_transforms_active", default=lambda: _C._functorch.peek_interpreter_stack() is not None
)
_dispatch_modes = first("_len_torch_dispatch_stack", default=lambda: 0)

#: (why, reader that is false normally).
OUTSIDE: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("a torch dispatch mode is active", _dispatch_modes),
    ("a functorch transform (vmap, grad, ...) is active", _transforms),
    ("torch.jit is tracing", _tracing),
)


def outside_reason() -> str | None:
    """Why neither compiling nor compiled code is possible now, if so."""
    if _users_function_mode():  # entries check which modes are active, so they need not ask this
        return "a torch function mode is active"
    if forward_ad._current_level >= 0:
        return "a level of forward-mode differentiation is open"
    return next((why for why, read in OUTSIDE if read()), None)
