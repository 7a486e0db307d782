"""Memory as the reference evaluator sees it: bytes, a place in them, and which elements are written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dovetail.errors import InternalError
from dovetail.ir.loops import Buffer
from dovetail.ir.records import dataclass


@dataclass(slots=True)
class Memory:
    """Bytes from `start` on are where a buffer's offset 0 lies.

    `written` has a bool for each element when the program itself writes them; None when everything is defined.
    What is written `over` other memory, which shares the storage, makes its elements undefined.
    """

    storage: torch.UntypedStorage
    start: int
    device: torch.device
    written: torch.Tensor | None = None
    over: Memory | None = None

    def origin(self, dtype: torch.dtype) -> int:
        """Where the buffer begins in its storage, in elements."""
        return self.start // dtype.itemsize

    def elements(self, dtype: torch.dtype) -> torch.Tensor:
        """All of the storage as one vector."""
        flat = torch.empty(0, dtype=dtype, device=self.device)
        return flat.set_(self.storage, 0, (self.storage.nbytes() // dtype.itemsize,), (1,))

    def read(self, buffer: Buffer, position: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """The elements at `position`; anything where the mask is false (and position is -1)."""
        flat = self.elements(buffer.dtype)
        if not position.numel():
            return flat.new_empty(position.shape)
        at = position + self.origin(buffer.dtype)
        at = at if mask is None else torch.where(mask, at, 0)
        if self.written is not None and self.written.numel() == flat.numel():
            known = self.written[at]
            if not bool((known if mask is None else known | ~mask).all()):
                raise InternalError("evaluate", f"{buffer.name} is read where nothing was written")
        return flat[at]

    def write(self, buffer: Buffer, position: torch.Tensor, value: torch.Tensor) -> None:
        """Store `value` at `position`, both of the whole iteration space's shape."""
        at = position + self.origin(buffer.dtype)
        if self.written is not None:
            distinct = torch.unique(at).numel() == at.numel()
            if not distinct or bool(self.written[at].any()):
                raise InternalError("evaluate", f"an element of {buffer.name} is written twice")
            self.written[at] = True
        if self.over is not None:
            self.over.forget(at)
        self.elements(buffer.dtype)[at] = value

    def forget(self, at: torch.Tensor) -> None:
        """Something else lies there now."""
        assert self.written is not None
        self.written[at] = False
        if self.over is not None:
            self.over.forget(at)

    def overwritten(self, dtype: torch.dtype) -> Memory:
        """The same bytes for another buffer, of which nothing is written."""
        count = self.storage.nbytes() // dtype.itemsize
        if self.written is None:
            self.written = torch.ones(count, dtype=torch.bool, device=self.device)
        undefined = torch.zeros(count, dtype=torch.bool, device=self.device)
        return Memory(self.storage, self.start, self.device, undefined, self)


def memory_of(tensor: torch.Tensor) -> Memory | None:
    """The memory behind a tensor; None for layouts that have none (sparse)."""
    if tensor.layout is not torch.strided:
        return None
    start = int(tensor.storage_offset()) * tensor.dtype.itemsize
    return Memory(tensor.untyped_storage(), start, tensor.device)


def allocate(
    dtype: torch.dtype, device: torch.device, sizes: Sequence[int], strides: Sequence[int] | None, offset: int
) -> Memory:
    """New memory that just holds a tensor of this shape, nothing of it written."""
    if strides is None:
        tensor = torch.empty(list(sizes), dtype=dtype, device=device)
    else:
        span = 0 if 0 in sizes else offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        tensor = torch.empty(span, dtype=dtype, device=device)
    storage = tensor.untyped_storage()
    written = torch.zeros(storage.nbytes() // dtype.itemsize, dtype=torch.bool, device=device)
    return Memory(storage, 0, device, written)


def strided(
    memory: Memory, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """A tensor over `memory`."""
    tensor = torch.empty(0, dtype=dtype, device=memory.device)
    return tensor.set_(memory.storage, memory.origin(dtype) + offset, tuple(sizes), tuple(strides))
