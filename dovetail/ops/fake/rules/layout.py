"""Sizes, strides and dtypes of element-wise results, as PyTorch's TensorIterator computes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ops.fake.symbolic.size_questions import (
    all_same,
    general,
    hint,
    rewrapped,
    same,
    sizes_behind,
    stretched,
    surely_less,
)  # fmt: skip
from dovetail.ops.fake.symbolic.symint import dim_of

Sizes = tuple


def contiguous(sizes: Iterable[Any]) -> Sizes:
    """Row-major strides."""
    sizes = tuple(sizes)
    behind = sizes_behind(sizes)
    if behind is not None:
        return tuple(rewrapped(behind, step) for step in contiguous(map(dim_of, sizes)))
    strides: list = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (size if not isinstance(size, int) or size > 1 else 1)
    return tuple(reversed(strides))


def broadcast(shapes: Sequence[Sizes]) -> Sizes:
    """The common shape. Raises RuntimeError with eager's message."""
    rank = max(map(len, shapes), default=0)
    result: list = [1] * rank
    for shape in shapes:
        for k in range(1, len(shape) + 1):
            size, sofar = shape[-k], result[-k]
            if isinstance(sofar, int) and sofar == 1:
                result[-k] = size
            elif isinstance(size, int) and size == 1 or same(size, sofar):
                continue
            elif stretched(sofar, size):
                result[-k] = size
            elif not stretched(size, sofar) and size != sofar:
                raise RuntimeError(
                    f"The size of tensor a ({sofar}) must match the size of tensor b ({size}) "
                    f"at non-singleton dimension {rank - k}"
                )
    return tuple(result)


def elementwise_strides(sizes: Sizes, tensors: Sequence[torch.Tensor]) -> Sizes:
    """Strides of a fresh result of an element-wise operator on `tensors`."""
    rank = len(sizes)
    if rank < 2:
        return contiguous(sizes)
    if all(all_same(t.shape, sizes) for t in tensors):
        if all(map(in_rows, tensors)):
            return contiguous(sizes)
        if rank in (4, 5) and all(map(in_channels, tensors)):
            return channels_last(sizes)
        first = tensors[0].stride()
        if all(all_same(t.stride(), first) for t in tensors) and dense_order(sizes, first) is not None:
            return first
    return _permuted(sizes, [_expanded(sizes, t) for t in tensors])


def in_rows(tensor: torch.Tensor) -> bool:
    """Is the tensor contiguous, whatever its sizes?"""
    if not tensor._has_symbolic_sizes_strides:
        return tensor.is_contiguous()
    return _fills(tensor, range(tensor.dim()))


def in_channels(tensor: torch.Tensor) -> bool:
    """Is an image of two or three dimensions contiguous with the channels last, whatever its sizes?"""
    if not tensor._has_symbolic_sizes_strides:
        return tensor.is_contiguous(
            memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        )
    return _fills(tensor, (0, *range(2, tensor.dim()), 1))


def _fills(tensor: torch.Tensor, order: Sequence[int]) -> bool:
    """Does each dimension, from the last of `order` on, step over those after it? Empty ones count as 0 or as 1."""
    sizes, strides = tuple(map(dim_of, tensor.shape)), tensor.stride()
    behind = sizes_behind((*tensor.shape, *strides))
    if 0 in sizes:
        return True
    step: dims.Dim = 1
    least: dims.Dim = 1
    for k in reversed(order):
        if is_one(tensor.shape[k]):
            continue
        if not same(strides[k], rewrapped(behind, step)) and not same(strides[k], rewrapped(behind, least)):
            return False
        step, least = step * sizes[k], least * dims.maximum(sizes[k], 1)
    return True


def strides_suggest_channels_last(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Of an image: their order decides, ambiguous ones count as contiguous."""
    rank = len(shape)
    if rank not in (4, 5):
        return False
    sizes, steps = list(map(general, shape)), list(map(general, strides))
    if steps[1] == 0:
        return False
    least = 0
    for d in (1, *range(rank - 1, 1, -1), 0):
        size, step = sizes[d], steps[d]
        if size == 0 or step < least or (d == 0 and least == steps[1]):
            return False
        least = step * (size if size > 1 else 1)
    return True


def channels_last(sizes: Sizes) -> Sizes:
    """Strides with dimension 1 fastest."""
    return filled(sizes, (0, *range(2, len(sizes)), 1))


def filled(sizes: Sequence[Any], order: Sequence[int]) -> Sizes:
    """Strides without gaps, in this order of the dimensions from the slowest to the fastest."""
    found = dict(zip(order, contiguous(sizes[k] for k in order), strict=True))
    return tuple(found[k] for k in range(len(sizes)))


def dense_order(sizes: Any, strides: Any) -> tuple[int, ...] | None:
    """The dimensions from slowest to fastest when they fill memory without gaps; None otherwise."""
    order = sorted(range(len(sizes)), key=lambda d: (general(strides[d]), general(sizes[d])), reverse=True)
    expected: Any = 1
    for d in reversed(order):
        if is_one(sizes[d]):
            continue
        if not same(strides[d], expected):
            return None
        expected = expected * sizes[d]
    return tuple(order)


def is_dense(tensor: torch.Tensor) -> bool:
    """Does the tensor fill memory without gaps or repetitions? Relies on the answer."""
    if not tensor._has_symbolic_sizes_strides:
        return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))
    if dense_order(tensor.shape, tensor.stride()) is not None:
        return True
    expected: Any = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True), key=lambda pair: hint(pair[0])):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected = expected * size
    return True


def is_one(size: Any) -> bool:
    """Is it 1 in every call?"""
    return same(size, 1)


def _expanded(sizes: Sizes, tensor: torch.Tensor) -> Sizes:
    lead = len(sizes) - tensor.dim()
    strides = [
        0 if is_one(own) and not is_one(full) else stride
        for own, full, stride in zip(tensor.shape, sizes[lead:], tensor.stride(), strict=True)
    ]
    return (*([0] * lead), *strides)


def _permuted(sizes: Sizes, operands: Sequence[Sizes]) -> Sizes:
    """Dense strides whose order follows the operands': an insertion sort over dimensions."""
    rank = len(sizes)
    order = list(range(rank - 1, -1, -1))  # fastest first
    for start in range(1, rank):
        at = start
        for below in range(start - 1, -1, -1):
            verdict = _swap(order[below], order[at], sizes, operands)
            if verdict > 0:
                order[below], order[at] = order[at], order[below]
                at = below
            elif verdict < 0:
                break
    return filled(sizes, order[::-1])


def _swap(a: int, b: int, sizes: Sizes, operands: Sequence[Sizes]) -> int:
    for strides in operands:
        first, second = general(strides[a]), general(strides[b])
        if first == 0 or second == 0:
            continue
        if first < second:
            return -1
        if first > second or general(sizes[a]) > general(sizes[b]):
            return 1
    return 0


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """May two elements of the tensor share a place?"""
    return share_places(tensor.shape, tensor.stride())


def share_places(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """May two elements of this layout? Yes unless each stride steps over all that smaller ones reach."""
    reach: Any = 0
    moving = [(s, n) for s, n in zip(strides, sizes, strict=True) if not is_one(n)]
    for stride, size in sorted(moving, key=lambda pair: (general(pair[0]), general(pair[1]))):
        if isinstance(size, int) and size == 0:
            return False
        if not surely_less(reach, stride):
            return True
        reach += (size - 1) * stride
    return False


def axis(dim: int, rank: int) -> int:
    """A dimension counted from the front. Raises eager's IndexError for one that there is not."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        low, high = -max(rank, 1), max(rank, 1) - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim % max(rank, 1)
