"""Capture switches real thread state while it traces (grad mode, autocast); this puts it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.amp.autocast_mode as autocast_mode


@contextmanager
def preserved(session: Any) -> Iterator[None]:
    """Restore grad mode and leave autocast contexts that traced code entered, however capture ends."""
    mode = torch.is_grad_enabled()
    try:
        yield
    finally:
        while session.open_contexts:
            autocast_mode._exit_autocast(session.open_contexts.pop().made_by[0])
        torch._C._set_grad_enabled(mode)
