"""What a host program calls under `check_kernels`; raises KernelFault where compiled code is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.errors import KernelFault
from dovetail.ir.checks import Promise, Watched
from dovetail.ir.kernel import NOTHING
from dovetail.ir.loops import Buffer

#: Each byte of an integer that nobody has written yet.
_PATTERN = 0xAB


def poison_tensor(tensor: torch.Tensor) -> None:
    """Fill new memory with NaN, or with a number that nobody computes. No version counter goes on."""
    whole = tensor.data.as_strided((span(tensor),), (1,), tensor.storage_offset())
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        whole.fill_(float("nan"))
    else:
        whole.view(torch.uint8).fill_(_PATTERN)


def poison(base: torch.Tensor, start: int, elements: int, dtype: torch.dtype) -> None:
    """The same for so many elements from byte `start` of a block on."""
    poison_tensor(base[start : start + elements * dtype.itemsize].view(dtype))


def span(tensor: torch.Tensor) -> int:
    """Elements from the tensor's first to one past its last."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def elements(tensor: torch.Tensor, itemsize: int) -> int:
    """How many elements of so many bytes the tensor's memory has, from its first one on."""
    return span(tensor) * tensor.dtype.itemsize // itemsize


def elements_before(tensor: torch.Tensor, itemsize: int) -> int:
    """Those of its storage that come before it."""
    return tensor.storage_offset() * tensor.dtype.itemsize // itemsize


def elements_of_storage(tensor: torch.Tensor, itemsize: int) -> int:
    """Those of its storage from its first one on: views by `as_strided` may go beyond the tensor."""
    before = tensor.storage_offset() * tensor.dtype.itemsize
    return (tensor.untyped_storage().nbytes() - before) // itemsize


def begin(groups: int, accesses: int, device: torch.device) -> torch.Tensor:
    """A report for each group; each begins at a multiple of 16 bytes, as kernels like pointers to do."""
    return torch.full((groups, accesses + accesses % 2), NOTHING, device=device)


def inspect(report: torch.Tensor, watched: Watched, limits: Sequence[int]) -> None:
    """Raise for the first access that a kernel reports. `limits`: of each, the first element and one past the last."""
    for number, (access, place) in enumerate(zip(watched.accesses, report.tolist(), strict=False)):
        if place != NOTHING:
            first, end = limits[2 * number : 2 * number + 2]
            verb, kernel = "stores to" if access.stores else "loads", f"{watched.group} ({watched.kernel})"
            where = f"{verb} element {place} of {_text(access.buffer)}, whose memory has elements {first} to {end - 1}"
            raise KernelFault(f"the kernel {kernel} {where}", kernel, access.buffer.name, watched.stack)


def promised(tensor: Any, sizes: tuple[int, ...], strides: tuple[int, ...], promise: Promise) -> None:
    """Raise unless the tensor is what the program counts on. None stands for a result that was not made."""
    if tensor is None:
        return
    found = tensor.dtype, tensor.device, tuple(tensor.shape)
    laid_out = tensor.layout is torch.strided and 0 not in sizes
    moved = [k for k, n in enumerate(sizes) if n > 1 and tensor.stride(k) != strides[k]] if laid_out else []
    if found != (promise.dtype, _indexed(promise.device, tensor), sizes) or moved:
        has = f"{tensor.dtype} on {tensor.device}, sizes {tuple(tensor.shape)}, strides {tensor.stride()}"
        wanted = f"{promise.dtype} on {promise.device}, sizes {sizes}, strides {strides}"
        what = f"{promise.buffer}, {promise.role}, is {has}; the program counts on {wanted}"
        raise KernelFault(what, promise.role, promise.buffer, promise.stack)


def _indexed(device: torch.device, tensor: torch.Tensor) -> torch.device:
    """The device, which without an index is the tensor's if it is of the same type."""
    return tensor.device if device.index is None and device.type == tensor.device.type else device


def _text(buffer: Buffer) -> str:
    kind = {"input": "input ", "local": "row "}.get(buffer.kind, "")
    sizes, strides = (f"({', '.join(map(str, values))})" for values in (buffer.sizes, buffer.strides))
    return f"{kind}{buffer.name} ({buffer.dtype}, sizes {sizes}, strides {strides}, offset {buffer.offset})"


#: The names under which host programs find these.
NAMES = {f.__name__: f for f in (
    poison_tensor, poison, elements, elements_before, elements_of_storage, begin, inspect, promised,
)}  # fmt: skip
