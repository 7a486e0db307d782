"""What PyTorch holds between an embedding of distributed words and the sum of its parts: which words are on this rank.

The mask lies in a placement that PyTorch remembers for all calls alike. One of fakes that was left in it, as a graph
ended in between or was not finished, would be found by the program's own tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dovetail.ops.fake.tensor import FakeTensor

MODULE = "torch.distributed.tensor._ops._mask_buffer"


@contextmanager
def masks_given_back() -> Iterator[None]:
    """Masks of fakes that are made in this block do not outlive it."""
    buffers: Any = getattr(sys.modules.get(MODULE), "MaskBuffer", None)
    if buffers is None:
        yield
        return
    before, made = buffers.materialize_mask, list[Any]()

    def materialize_mask(buffer: Any, mask: Any) -> None:
        before(buffer, mask)
        made.append(buffer)

    buffers.materialize_mask = materialize_mask
    try:
        yield
    finally:
        buffers.materialize_mask = before
        for buffer in made:
            if isinstance(buffer.data, FakeTensor):
                buffer.data, buffer.refcount = None, 0
