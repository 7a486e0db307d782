"""Where this package's own operators, `torch.ops.dovetail.*`, are defined."""

from __future__ import annotations

import torch

_MADE: dict[str, torch.library.Library] = {}


def library(module: str) -> torch.library.Library:
    """For the operators of one module. Those that an import of it has left which did not end (Ctrl-C) are undone, so
    that the next one can define them."""
    earlier = _MADE.pop(module, None)
    if earlier is not None:
        earlier._destroy()
    made = _MADE[module] = torch.library.Library("dovetail", "FRAGMENT")
    return made
