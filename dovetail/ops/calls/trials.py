"""How long operators take, by trying them out: a choice between libraries' functions that no rule makes as well."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dovetail.ir.devices import traits
from dovetail.ir.trials import TimedCall
from dovetail.loading import loaded


def microseconds(trials: Sequence[TimedCall], device: torch.device) -> list[float] | None:
    """What each takes on the device, launched with others; None where that cannot be told."""
    if not traits(device).records or not torch.cuda.is_available():
        return None
    found: list[float] | None = loaded("dovetail.runtime.gpu.trials").microseconds(trials, device)
    return found
