"""How distributed tensors are laid out after an operator, while what they are made of is recorded.

PyTorch finds out by running the operator on fake tensors of its own, of the whole tensor's size. Those are no part of
the program: modes that record must not see them. So what it asks with is replaced once, by what looks at whether this
thread is recording: others are not disturbed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

_MODULE, _ASKED = "torch.distributed.tensor._sharding_prop", "_propagate_tensor_meta_non_cached"


class _Here(threading.local):
    recording = False


_here = _Here()


@contextmanager
def out_of_sight() -> Iterator[None]:
    """Inside, this thread asks these questions with no mode in force."""
    asks: Any = getattr(sys.modules.get(_MODULE), "ShardingPropagator", None)
    if asks is not None and getattr(asks, _ASKED).__module__ != __name__:
        setattr(asks, _ASKED, _without_modes(getattr(asks, _ASKED)))
    before, _here.recording = _here.recording, True
    try:
        yield
    finally:
        _here.recording = before


def _without_modes(own: Any) -> Any:
    def asked(propagator: Any, schema: Any) -> Any:
        if not _here.recording:
            return own(propagator, schema)
        with _disable_current_modes():
            return own(propagator, schema)

    return asked
