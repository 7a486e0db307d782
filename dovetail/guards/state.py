"""Process-wide and thread-wide state: read when compiling, checked on every call.

Every piece that eager PyTorch consults while it runs an operator and that tracing bakes into a
graph is one row of `PIECES`. A row is read through the cheapest C function there is (15 to 55 ns).
The pieces under `OUTSIDE` have one value only under which compiled code may run at all; with any
other value the original function runs, uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from dovetail.ir.settings import AUTOCAST_DEVICES

_C = torch._C


def _autocast(device: str) -> tuple[bool, Any]:
    enabled = torch.is_autocast_enabled(device)
    return (enabled, torch.get_autocast_dtype(device)) if enabled else (False, None)


def _any_autocast() -> bool:
    return any(torch.is_autocast_enabled(d) for d in AUTOCAST_DEVICES)


def _function_modes() -> tuple[Any, ...]:
    """The active torch function modes, outermost first; each `with torch.device(...)` makes another one."""
    modes = [_C._get_function_stack_at(k) for k in range(_C._len_torch_function_stack())]
    return tuple(str(m.device) if type(m) is DeviceContext else id(m) for m in modes)


def _users_function_mode() -> bool:
    """Is a torch function mode active, other than the one of `torch.set_default_device`, whose effects are traced?"""
    modes = (_C._get_function_stack_at(k) for k in range(_C._len_torch_function_stack()))
    return any(type(m) is not DeviceContext for m in modes)


def _first(*names: str, default: Callable[[], Any]) -> Callable[[], Any]:
    """The first of torch._C's functions that this version has."""
    return next((getattr(_C, n) for n in names if hasattr(_C, n)), default)


_tracing = _first("_is_tracing", "_get_tracing_state", default=lambda: False)
_transforms = _first(
    "_are_functorch_transforms_active", default=lambda: _C._functorch.peek_interpreter_stack() is not None
)
_dispatch_modes = _first("_len_torch_dispatch_stack", default=lambda: 0)
_autocast_anywhere = _first("_is_any_autocast_enabled", default=_any_autocast)

#: Name of a piece: its reader. STATE guards and snapshots use these names.
PIECES: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    "default_dtype": torch.get_default_dtype,
    "deterministic": _first("_get_deterministic_algorithms", default=torch.are_deterministic_algorithms_enabled),
    "autocast_cpu": lambda: _autocast("cpu"),
    "autocast_cuda": lambda: _autocast("cuda"),
    "torch_function_modes": _function_modes,
}

#: State under which nothing may be compiled or run compiled: (why, reader that is false normally).
OUTSIDE: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("a torch dispatch mode is active", _dispatch_modes),
    ("a functorch transform (vmap, grad, ...) is active", _transforms),
    ("torch.jit is tracing", _tracing),
)


@dataclass(frozen=True)
class Snapshot:
    """The value of every piece at one moment on one thread."""

    values: Mapping[str, Any]


def snapshot() -> Snapshot:
    return Snapshot({name: read() for name, read in PIECES.items()})


def outside_reason() -> str | None:
    """Why neither compiling nor compiled code is possible now, if so."""
    if _users_function_mode():  # entries check which modes are active, so they need not ask this
        return "a torch function mode is active"
    if forward_ad._current_level >= 0:
        return "a level of forward-mode differentiation is open"
    return next((why for why, read in OUTSIDE if read()), None)


def function_modes(taken: Snapshot, constant: Callable[[Any, str], str]) -> str:
    """The text to check before anything else: reading a tensor's attributes calls these modes."""
    if taken.values["torch_function_modes"]:
        reader = constant(PIECES["torch_function_modes"], "function_modes")
        return f"{reader}() == {taken.values['torch_function_modes']!r}"
    return f"not {constant(_C._len_torch_function_stack, 'function_modes')}()"


def conditions(taken: Snapshot, constant: Callable[[Any, str], str]) -> list[str]:
    """Texts that are true while the state is as in `taken`; `constant` names an object in the text."""
    values = taken.values
    texts = []
    for name in ("grad_mode", "inference_mode"):
        texts.append(("" if values[name] else "not ") + f"{constant(PIECES[name], name)}()")
    texts.append(
        f"{constant(PIECES['default_dtype'], 'default_dtype')}() is {constant(values['default_dtype'], 'dtype')}"
    )
    texts.append(
        ("" if values["deterministic"] else "not ") + f"{constant(PIECES['deterministic'], 'deterministic')}()"
    )
    texts += _autocast_conditions(values, constant)
    texts += [f"not {constant(read, 'outside')}()" for _, read in OUTSIDE]
    texts.append(f"{constant(forward_ad, 'forward_ad')}._current_level < 0")
    return texts


def _autocast_conditions(values: Mapping[str, Any], constant: Callable[[Any, str], str]) -> list[str]:
    names = ("autocast_cpu", "autocast_cuda")
    if not any(values[n][0] for n in names) and not _autocast_anywhere():
        return [f"not {constant(_autocast_anywhere, 'autocast')}()"]
    return [f"{constant(PIECES[n], n)}() == {constant(values[n], 'autocast_value')}" for n in names]
