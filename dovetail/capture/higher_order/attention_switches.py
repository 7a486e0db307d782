"""Process-wide switches that PyTorch's context managers turn: which attention kernels may be used.

The node that turns a switch does it for the nodes after it; so does capture, since fakes take the same ways. What the
switches were is put back when capture ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.process import guarded_state
from dovetail.capture.tables.known_callables import KNOWN
from dovetail.capture.values.base import NONE, Args, Kwargs, Session, Value
from dovetail.ir.guard import GuardKind
from dovetail.ir.settings import ATTENTION

NAMES = ("flash", "mem_efficient", "math", "cudnn", "overrideable")


def _reader(function: Callable[[], Any]) -> Callable[..., Value]:
    def read(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if ATTENTION not in s.modes.changed:
            s.guard(None, GuardKind.STATE, (ATTENTION, guarded_state.READERS[ATTENTION]()))
        return s.from_native(function())

    return read


def _writer(write: Callable[[Any], None], read: Callable[[], Any]) -> Callable[..., Value]:
    def turn(s: Session, args: Args, kwargs: Kwargs) -> Value:
        wanted, before = args[0].native(), read()
        if wanted != before:
            s.modes.changed.add(ATTENTION)
            s.modes.undo.append(lambda: write(before))
            write(wanted)
            s.state_node(write, wanted)
        return NONE

    return turn


for _name in NAMES:
    _get = getattr(torch._C, f"_get_{_name}_sdp_enabled")
    KNOWN[_get] = _reader(_get)
    KNOWN[getattr(torch._C, f"_set_sdp_use_{_name}")] = _writer(getattr(torch._C, f"_set_sdp_use_{_name}"), _get)
KNOWN[torch._C._get_sdp_priority_order] = _reader(torch._C._get_sdp_priority_order)
KNOWN[torch._C._set_sdp_priority_order] = _writer(torch._C._set_sdp_priority_order, torch._C._get_sdp_priority_order)
