"""Functions that change settings of the whole process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.process.settings import Switch, turn, value
from dovetail.capture.tables.known_callables import KNOWN, known
from dovetail.capture.values.base import FALSE, NONE, Args, Kwargs, Session, Value
from dovetail.ir.settings import DETERMINISTIC, HOOKS_DISABLED, SETTERS, set_deterministic, set_hooks_disabled

_C: Any = torch._C


def _writer(switch: Switch) -> Callable[[Any, Args, Kwargs], Value]:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        turn(s, switch, (args or [*kwargs.values()])[0].native())
        return NONE

    return handler


for _write, _key in SETTERS.items():
    KNOWN[_write] = _writer(Switch(_key, _write))

_DETERMINISTIC = Switch(
    DETERMINISTIC, set_deterministic, also=("deterministic", "is_deterministic_algorithms_warn_only_enabled")
)


@known(torch.use_deterministic_algorithms)
def _use_deterministic_algorithms(s: Session, args: Args, kwargs: Kwargs) -> Value:
    warn_only = kwargs.get("warn_only", FALSE).native()
    turn(s, _DETERMINISTIC, (args[0].native(), warn_only))
    return NONE


_HOOKS = Switch(HOOKS_DISABLED, set_hooks_disabled, silent=True)
KNOWN[_C._autograd._saved_tensors_hooks_get_disabled_error_message] = lambda s, args, kwargs: s.from_native(
    value(s, _HOOKS)
)
KNOWN[_C._autograd._saved_tensors_hooks_disable] = _writer(_HOOKS)


@known(_C._autograd._saved_tensors_hooks_enable)
def _enable_hooks(s: Session, args: Args, kwargs: Kwargs) -> Value:
    turn(s, _HOOKS, None)
    return NONE
