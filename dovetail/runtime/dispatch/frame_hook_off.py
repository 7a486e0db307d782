"""Compiling while torch.compile's frame hook is active: our own frames are none of its business."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch

_HOOK = torch._C._dynamo.eval_frame


@contextlib.contextmanager
def frame_hook_off() -> Iterator[None]:
    """In this block the hook looks at nothing."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    before = _HOOK.set_eval_frame(None)
    try:
        yield
    finally:
        _HOOK.set_eval_frame(before)
