"""Attention on a GPU as kernels of its own, where a graph calls flex_attention."""

from __future__ import annotations

from typing import Any

from dovetail.loading import loaded
from dovetail.ops.calls.flex_attention import flex_attention


def recorded(*args: Any) -> Any:
    """What a call gives, recorded as launches of kernels; NotImplemented for what they do not take."""
    return loaded("dovetail.attention.fused").recorded(*args)


TEMPLATES = {flex_attention: recorded}
