"""What PyTorch's code tells PyTorch's own compiler, as its flex_attention does.

It stands for `torch._dynamo` while nobody has imported that, which takes as long as compiling does.
"""

from __future__ import annotations

from typing import Any


def mark_static(tensor: Any, index: Any = None) -> None:
    """Sizes that have varied are the compiler's own business."""
