"""Attention on a GPU as kernels of its own, where a graph calls flex_attention."""

from __future__ import annotations

from typing import Any

from dovetail.loading import loaded
from dovetail.normalize.recording.templates import TEMPLATES
from dovetail.ops.calls.flex_attention import flex_attention


def _recorded(*args: Any) -> Any:
    return loaded("dovetail.attention.fused").recorded(*args)


TEMPLATES[flex_attention] = _recorded
