"""Functions that change settings of the whole process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.process.settings import READERS, Switch, turn, value
from dovetail.capture.tables.known_callables import KNOWN, Handler, known
from dovetail.capture.values.base import FALSE, NONE, Args, Kwargs, Session, Value
from dovetail.ir.guard import GuardKind
from dovetail.ir.settings import (
    ATTENTION,
    DETERMINISTIC,
    HOOKS_DISABLED,
    ONE_PRECISION,
    SETTERS,
    set_deterministic,
    set_hooks_disabled,
)

_C: Any = torch._C


def _writer(switch: Switch) -> Handler:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        turn(s, switch, (args or [*kwargs.values()])[0].native())
        return NONE

    return handler


for _write, _key in SETTERS.items():
    KNOWN[_write] = _writer(Switch(_key, _write, also=tuple(sorted(ONE_PRECISION)) if _key in ONE_PRECISION else ()))

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


@known(_C._autograd._push_saved_tensors_default_hooks, _C._autograd._pop_saved_tensors_default_hooks)
def _put_hooks(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.unsupported("saved-tensor-hooks", "the code changes the hooks on what a backward pass keeps")


@known(_C._enter_dual_level, _C._exit_dual_level)
def _dual_level(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.unsupported("dual-level", "the code enters or leaves a level of forward-mode derivatives")


@known(torch.set_default_device)
def _set_default_device(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.unsupported("device-context", "the code sets the default device")


# ---------------------------------------------------------------- which attention kernels may be used

# The node that turns a switch does it for the nodes after it; so does capture, since fakes take the same ways. What the
# switches were is put back when capture ends.


def _reader(function: Callable[[], Any]) -> Handler:
    def read(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if ATTENTION not in s.modes.changed:
            s.guard(None, GuardKind.STATE, (ATTENTION, READERS[ATTENTION]()))
        return s.from_native(function())

    return read


def _turning(write: Callable[[Any], None], read: Callable[[], Any]) -> Handler:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        wanted, before = args[0].native(), read()
        if wanted != before:
            s.modes.changed.add(ATTENTION)
            s.modes.undo.append(lambda: write(before))
            write(wanted)
            s.state_node(write, wanted)
        return NONE

    return handler


for _name in ("flash", "mem_efficient", "math", "cudnn", "overrideable"):
    _get = getattr(torch._C, f"_get_{_name}_sdp_enabled")
    _set = getattr(torch._C, f"_set_sdp_use_{_name}")
    KNOWN[_get], KNOWN[_set] = _reader(_get), _turning(_set, _get)
KNOWN[torch._C._get_sdp_priority_order] = _reader(torch._C._get_sdp_priority_order)
KNOWN[torch._C._set_sdp_priority_order] = _turning(torch._C._set_sdp_priority_order, torch._C._get_sdp_priority_order)
