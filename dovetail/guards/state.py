"""Process-wide and thread-wide state: read when compiling, checked on every call.

Every piece that eager PyTorch consults while it runs an operator and that tracing bakes into a
graph is one row of `PIECES`. A row is read through the cheapest C function there is (15 to 55 ns).
Those of `ir/settings.py` have one value only under which compiled code may run at all; with any other
value the original function runs, uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from dovetail.ir.outside import OUTSIDE, first
from dovetail.ir.records import dataclass
from dovetail.ir.settings import AUTOCAST, AUTOCAST_DEVICES

_C = torch._C


def _any_autocast() -> bool:
    return any(torch.is_autocast_enabled(d) for d in AUTOCAST_DEVICES)


def _function_modes() -> tuple:
    """The active torch function modes, outermost first; each `with torch.device(...)` makes another one."""
    modes = [_C._get_function_stack_at(k) for k in range(_C._len_torch_function_stack())]
    return tuple(str(m.device) if type(m) is DeviceContext else id(m) for m in modes)


_autocast_anywhere = first("_is_any_autocast_enabled", default=_any_autocast)

#: Name of a piece: its reader. STATE guards and snapshots use these names.
PIECES: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    "default_dtype": torch.get_default_dtype,
    "deterministic": first("_get_deterministic_algorithms", default=torch.are_deterministic_algorithms_enabled),
    **AUTOCAST,
    "torch_function_modes": _function_modes,
}

@dataclass(frozen=True)
class Snapshot:
    """The value of every piece at one moment on one thread."""

    values: Mapping[str, Any]


def snapshot() -> Snapshot:
    return Snapshot({name: read() for name, read in PIECES.items()})


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
    if not any(values[n][0] for n in AUTOCAST) and not _autocast_anywhere():
        return [f"not {constant(_autocast_anywhere, 'autocast')}()"]
    return [f"{constant(PIECES[n], n)}() == {constant(values[n], 'autocast_value')}" for n in AUTOCAST]
